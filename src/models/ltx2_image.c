/* ltx2_image.c - a picture that a clip shall show, as diffusers' LTX2ConditionPipeline takes it: cut to the clip's shape,
 * encoded, put in place of the first frame's latents or beside all latents with a place of its own.
 *
 * Not here: the picture's way through H.264 (media/av_recode.h).
 * Easy to get wrong: the picture covers the frame, its middle is kept, and a smaller size has no anti-aliasing; the latents
 * are normalised in the autoencoder's dtype; tokens beside the clip's have times of whole frames, without the shift that the
 * first frame has. */
#include "models/ltx2.h"
#include "residency.h"

#include <math.h>
#include <stdlib.h>

/* Where a value of a scaled line comes from: two neighbours and the second one's weight. As torch's bilinear interpolation
 * without aligned corners, in f32. */
typedef struct Source {
    int a, b;
    float w;
} Source;

static Source source(int i, int from, int to) {
    float at = ((float)i + 0.5f) * ((float)from / (float)to) - 0.5f;
    if (at < 0) at = 0;
    int a = (int)at;
    if (a > from - 1) a = from - 1;
    return (Source){a, a < from - 1 ? a + 1 : a, at - (float)a};
}

/* rgb [y][x][3] covers [height][width]: the shorter of both ways fits, of the other the middle is kept; -1 to 1. */
static void cover(const uint8_t *rgb, int x, int y, int width, int height, float *out) {
    double down = (double)height / y, across = (double)width / x, scale = down > across ? down : across;
    int all_y = (int)ceil(y * scale), all_x = (int)ceil(x * scale), top = (all_y - height) / 2,
        left = (all_x - width) / 2;
    for (int i = 0; i < height; i++) {
        Source v = source(i + top, y, all_y);
        for (int j = 0; j < width; j++) {
            Source h = source(j + left, x, all_x);
            const uint8_t *p00 = rgb + ((size_t)v.a * (size_t)x + (size_t)h.a) * 3,
                          *p01 = rgb + ((size_t)v.a * (size_t)x + (size_t)h.b) * 3;
            const uint8_t *p10 = rgb + ((size_t)v.b * (size_t)x + (size_t)h.a) * 3,
                          *p11 = rgb + ((size_t)v.b * (size_t)x + (size_t)h.b) * 3;
            for (int c = 0; c < 3; c++) {
                float upper = (1 - h.w) * (float)p00[c] + h.w * (float)p01[c];
                float lower = (1 - h.w) * (float)p10[c] + h.w * (float)p11[c];
                float value = (1 - v.w) * upper + v.w * lower;
                out[((size_t)i * (size_t)width + (size_t)j) * 3 + (size_t)c] = value / 127.5f - 1.0f;
            }
        }
    }
}

/* The picture as the encoder takes it. */
static Status picture(Exec *x, const Run *run, Tensor to) {
    Tensor plain = exec_tensor(x, F32, to.rank, to.shape);
    if (x->dry) return op_copy(x, &(Copy){.y = to, .x = plain});
    float *host = malloc(tensor_bytes(plain));
    if (!host) return fail(x->error, ERR_MEMORY, "vae: out of memory for the picture");
    cover(run->image, run->image_width, run->image_height, run->job->width, run->job->height, host);
    Status s = exec_upload(x, plain, host);
    free(host);
    return s == OK ? op_copy(x, &(Copy){.y = to, .x = plain}) : s;
}

void ltx2_image_room(Ltx2 *z, Exec *x, const Ltx2Size *s) {
    z->given = exec_new_as(x, F32, s->rows * s->cols, s->channels[LTX2_VIDEO]);
}

Status ltx2_image(Ltx2 *z, Exec *x, const Run *run, const Ltx2Size *s) {
    size_t mark = arena_mark(x->work);
    const int64_t c = s->channels[LTX2_VIDEO];
    model_enter(x, &z->base.part[LTX2_ENCODER]);
    Tensor pixels = exec_new(x, 1, run->job->height, run->job->width, 3),
           latents = exec_new(x, 1, s->rows, s->cols, c);
    TRY(picture(x, run, pixels));
    TRY(vae_ltx2_encode(&z->encoder, x, pixels, latents));
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(vae_ltx2_normalise(&z->measure, x, latents, latents));
    TRY(weights_leave(x, WEIGHTS_PART));
    TRY(op_copy(x, &(Copy){.y = z->given, .x = tensor_make(latents.data, latents.dtype, 2, z->given.shape)}));
    arena_reset(x->work, mark);
    TRY(stages_pass(run->stages, x, "image_latents", z->given, 3, (int64_t[]){1, s->rows * s->cols, c}));
    return exec_check_finite(x, z->given, "vae: latents of the image");
}

/* Places of the tokens beside the clip's: one frame, whole and unshifted. */
void ltx2_image_places(const Ltx2 *z, const Run *run, const Ltx2Size *s, Ltx2Place *place) {
    const int64_t *scale = z->dit.c.scale;
    float fps = (float)((double)run->job->fps.num / run->job->fps.den);
    float at = (float)((run->job->image_frame - 1) * scale[0] + 1);
    for (int64_t i = 0; i < s->extra; i++) {
        int64_t row = i / s->cols, col = i % s->cols;
        place[i] =
            (Ltx2Place){.from = {at / fps, (float)(row * scale[1]), (float)(col * scale[2])},
                        .to = {(at + 1) / fps, (float)((row + 1) * scale[1]), (float)((col + 1) * scale[2])}};
    }
}

/* First token of the picture's. */
static int64_t first_of(const Run *run, const Ltx2Size *s) {
    return run->job->image_frame ? s->tokens[LTX2_VIDEO] - s->extra : 0;
}

void ltx2_image_spans(const Run *run, const Ltx2Size *s, Ltx2Grid *g) {
    int64_t first = first_of(run, s), count = s->rows * s->cols, all = s->tokens[LTX2_VIDEO];
    g->spans = 0;
    if (first) g->span[g->spans++] = (Ltx2Span){0, first, 0};
    g->span[g->spans++] = (Ltx2Span){first, count, 1};
    if (first + count < all) g->span[g->spans++] = (Ltx2Span){first + count, all - first - count, 0};
}

/* latents hold noise: the picture's tokens take what its strength says, and what the steps keep is written down. */
Status ltx2_image_begin(Ltx2 *z, Exec *x, const Run *run, const Ltx2Size *s, Tensor video) {
    int64_t first = first_of(run, s), count = s->rows * s->cols, all = s->tokens[LTX2_VIDEO];
    float strength = (float)run->job->strength, *host;
    z->clean = exec_tensor(x, F32, 2, video.shape), z->mask = exec_new_as(x, F32, all, 1);
    if (!x->dry) {
        host = calloc((size_t)tensor_numel(video), sizeof *host);
        if (!host) return fail(x->error, ERR_MEMORY, "noise: out of memory");
        Status status = exec_upload(x, z->clean, host);
        for (int64_t i = 0; i < count; i++) host[first + i] = strength;
        if (status == OK) status = exec_upload(x, z->mask, host);
        free(host);
        TRY(status);
    }
    Tensor own = tensor_slice(video, 0, first, count);
    TRY(op_copy(x, &(Copy){.y = tensor_slice(z->clean, 0, first, count), .x = z->given}));
    return op_scale_noise(x, &(ScaleNoise){.y = own, .x = z->given, .noise = own, .sigma = 1.0f - strength});
}
