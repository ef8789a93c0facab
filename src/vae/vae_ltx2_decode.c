/* vae_ltx2_decode.c - the decoder of vae_ltx2.h.
 *
 * Three rooms hold everything: the frames that a level's resnets add up, a convolution's result, and the window that the next
 * one reads. An upsampling reads its other path from the window that its convolution has read. The levels up to the last
 * upsampling run whole and leave its window; all behind it runs in one piece or in several.
 * Easy to get wrong: every convolution that looks ahead takes a frame from the first piece and gives one to the last, and a frame
 * of the level before is two behind the upsampling. */
#include "vae/vae_ltx2.h"

#include "residency.h"

#include <stdio.h>

typedef struct Size { int64_t f, y, x; } Size;

static Size size_of(Tensor t) { return (Size){t.shape[0], t.shape[1], t.shape[2]}; }
static Size upsampled(Size s, VaeLtx2Scale by) { return (Size){s.f * by.t - (by.t - 1), s.y * by.y, s.x * by.x}; }
static int64_t product_of(VaeLtx2Scale s) { return (int64_t)s.t * s.y * s.x; }

typedef struct Work {
    const VaeLtx2 *v;
    const VaeLtx2Config *c;
    Exec *x;
    Tensor z, video;
    int64_t together; /* frames of the last upsampling's window a piece */
} Work;

/* --- the levels before the last upsampling --- */

static VaeLtx2Rooms lower_rooms(const VaeLtx2Config *c, Size s) {
    VaeLtx2Rooms r = {0};
    vae_ltx2_blocks_need(&r, c->decoder_mirror, s.f, s.y, s.x, c->latent, 0, c->latent);
    for (int i = 0;; i++) {
        vae_ltx2_blocks_need(&r, c->decoder_mirror, s.f, s.y, s.x, c->up_out[i], c->up_out[i], c->up_out[i]);
        if (i + 1 == c->ups) return r;
        vae_ltx2_blocks_need(&r, c->decoder_mirror, s.f, s.y, s.x, c->up_out[i], c->up_out[i + 1] * product_of(c->up[i]), 0);
        s = upsampled(s, c->up[i]);
    }
}

/* De-normalised latents into the first frames. */
static Status entry(const Work *k, VaeLtx2Run *r) {
    Size s = size_of(k->z);
    Tensor window, latents = vae_ltx2_blocks_kept(r, s.f, s.y, s.x, k->c->latent);
    TRY(vae_ltx2_denormalise(k->v, k->x, latents, k->z));
    TRY(exec_tap(k->x, "vae.denormalised", latents));
    r->at = latents;
    TRY(vae_ltx2_blocks_plain(k->x, r, 0, &window));
    r->at = vae_ltx2_blocks_kept(r, s.f, s.y, s.x, k->c->up_out[0]);
    TRY(vae_ltx2_blocks_conv(k->x, r, &k->v->conv_in, window, r->at, CONV_BIAS));
    return exec_tap(k->x, "vae.conv_in", r->at);
}

static Status resnets(const Work *k, VaeLtx2Run *r, int level) {
    for (int64_t i = 0; i < k->c->up_resnets[level]; i++)
        if (vae_ltx2_blocks_resnet(k->x, r, &k->v->resnet[level][i]) != OK) return because(k->x->error, "vae level %d", level);
    return OK;
}

/* Upsampling i of `n` frames from frame `from` on of those inside `window`, a whole clip's; its result is r's `at`. */
static Status upsample(const Work *k, VaeLtx2Run *r, int i, Tensor window, int64_t from, int64_t n) {
    const VaeLtx2Scale by = k->c->up[i];
    const Weight *w = &k->v->up[i];
    Tensor part = tensor_slice(window, 0, from, n + 2), product = vae_ltx2_blocks_product(r, part, w);
    TRY(vae_ltx2_blocks_conv(k->x, r, w, part, product, CONV_RAW));
    int64_t drop = from ? 0 : by.t - 1;
    r->at = vae_ltx2_blocks_kept(r, n * by.t - drop, product.shape[1] * by.y, product.shape[2] * by.x, k->c->up_out[i + 1]);
    Depth d = {.y = r->at, .x = product, .bias = w->bias, .t = by.t, .rows = by.y, .columns = by.x, .drop = (int32_t)drop};
    if (k->c->up_residual[i]) d.skip = tensor_slice(vae_ltx2_blocks_inside(r, window), 0, from, n);
    TRY(op_depth_to_space(k->x, &d));
    return exec_tapf(k->x, r->at, "vae.up.%d", i);
}

/* The window of the last upsampling, in `window`, which stays when the other rooms are given back. */
static Status lower(const Work *k, Tensor *window) {
    const VaeLtx2Config *c = k->c;
    VaeLtx2Rooms rooms = lower_rooms(c, size_of(k->z));
    Tensor room = exec_new(k->x, rooms.window);
    size_t mark = arena_mark(k->x->work);
    rooms.window = 0;
    VaeLtx2Run r = vae_ltx2_blocks_run(k->x, rooms, c->decoder_causal, c->decoder_mirror);
    r.window = room;
    TRY(entry(k, &r));
    TRY(resnets(k, &r, 0));
    for (int i = 0; i + 1 < c->ups; i++) {
        Tensor w;
        TRY(vae_ltx2_blocks_plain(k->x, &r, 0, &w));
        TRY(upsample(k, &r, i, w, 0, vae_ltx2_blocks_inside(&r, w).shape[0]));
        TRY(resnets(k, &r, i + 1));
    }
    TRY(vae_ltx2_blocks_plain(k->x, &r, 0, window));
    arena_reset(k->x->work, mark);
    return OK;
}

/* --- the last level --- */

/* Frames of video that the piece leaves, from frame `done` on; returns how many in *made. */
static Status head(const Work *k, VaeLtx2Run *r, int64_t done, int64_t *made) {
    Exec *x = k->x;
    const Weight *w = &k->v->conv_out;
    int64_t p = k->c->patch;
    Tensor window;
    TRY(vae_ltx2_blocks_norm(x, r, "vae.norm_out", "vae.norm_out", false, &window));
    Tensor frames = vae_ltx2_blocks_product(r, window, w);
    TRY(vae_ltx2_blocks_conv(x, r, w, window, frames, CONV_BIAS));
    TRY(exec_tap(x, "vae.frames", frames));
    *made = frames.shape[0];
    Tensor out = vae_ltx2_blocks_pixels(tensor_slice(k->video, 0, done, *made), p);
    if (out.dtype != U8) return op_copy(x, &(Copy){.y = out, .x = vae_ltx2_blocks_patches(frames, p)});
    TRY(exec_check_finite(x, frames, "vae: decoded frames"));
    return op_to_rgb8(x, &(ToRgb8){.y = out, .x = vae_ltx2_blocks_patches(frames, p)});
}

/* Frames of the window that a first piece needs so that its last convolution has one to give. */
static int64_t shortest(const VaeLtx2Config *c) {
    int64_t lost = c->decoder_causal ? 0 : 2 * c->up_resnets[c->ups] + 1, t = c->up[c->ups - 1].t;
    return (lost + 1 + (t - 1) + t - 1) / t;
}

/* of: the frames of the window. */
static Status pieces(const Work *k, Tensor window, Size of) {
    const VaeLtx2Config *c = k->c;
    Exec *x = k->x;
    int level = c->ups;
    const VaeLtx2Scale by = c->up[level - 1];
    int64_t wanted = k->together, done = 0, made = 0, lag = c->decoder_causal ? 0 : 2;
    if (!wanted || wanted > of.f) wanted = of.f;
    int64_t first = wanted < shortest(c) ? shortest(c) : wanted, width = c->up_out[level];
    if (first > of.f) first = of.f;
    bool whole = first == of.f;
    int64_t more = whole ? 0 : lag * c->up_resnets[level] + 1, n = first > wanted ? first : wanted;
    Size s = upsampled((Size){n, of.y, of.x}, by);
    VaeLtx2Rooms rooms = {0};
    if (!whole) s.f += by.t - 1; /* but for the first piece, no frame is left out */
    vae_ltx2_blocks_need(&rooms, c->decoder_mirror, n, of.y, of.x, 0, width * product_of(by), 0);
    vae_ltx2_blocks_need(&rooms, c->decoder_mirror, s.f + more, s.y, s.x, width, width, width);
    vae_ltx2_blocks_need(&rooms, c->decoder_mirror, s.f + more, s.y, s.x, 0, c->out * c->patch * c->patch, 0);
    VaeLtx2Run r = vae_ltx2_blocks_run(x, rooms, c->decoder_causal, c->decoder_mirror);
    if (!whole) TRY(vae_ltx2_blocks_pieces(x, &r, c->up_resnets[level], s.y, s.x, width));
    for (int64_t from = 0; from < of.f; from += n, n = wanted, done += made) {
        n = !from ? first : n < of.f - from ? n : of.f - from;
        r.first = !from, r.last = from + n == of.f, r.next = 0;
        r.head = whole ? 0 : lag * c->up_resnets[level];
        TRY(upsample(k, &r, level - 1, window, from, n));
        TRY(resnets(k, &r, level));
        TRY(head(k, &r, done, &made));
    }
    return OK;
}

/* --- the whole of it --- */

static Status check(const VaeLtx2Config *c, Exec *x, Tensor z, int64_t together, Tensor video) {
    int64_t k = vae_ltx2_scale(c);
    if (z.rank != 4 || z.shape[0] < 1 || z.shape[3] != c->latent || together < 0)
        return fail(x->error, ERR_MODEL, "vae: latents must be [frames, Y, X, %lld]", (long long)c->latent);
    if (c->decoder_mirror && (z.shape[1] < 2 || z.shape[2] < 2))
        return fail(x->error, ERR_MODEL, "vae: latents of %lld x %lld are too small: this decoder mirrors borders, which takes "
                    "2 x 2", (long long)z.shape[1], (long long)z.shape[2]);
    if (video.rank != 4 || video.shape[0] != vae_ltx2_frames(c, z.shape[0]) || video.shape[1] != k * z.shape[1] ||
        video.shape[2] != k * z.shape[2] || video.shape[3] != c->out || (video.dtype != U8 && video.dtype != x->dtype) ||
        !tensor_contiguous(video))
        return fail(x->error, ERR_MODEL, "vae: %lld latent frames of %lld x %lld give %lld frames of %lld x %lld",
                    (long long)z.shape[0], (long long)z.shape[1], (long long)z.shape[2],
                    (long long)vae_ltx2_frames(c, z.shape[0]), (long long)(k * z.shape[1]), (long long)(k * z.shape[2]));
    return OK;
}

Status vae_ltx2_decode_pieces(const VaeLtx2 *v, Exec *x, Tensor z, int64_t together, Tensor video) {
    const VaeLtx2Config *c = &v->c;
    const Work k = {.v = v, .c = c, .x = x, .z = z, .video = video, .together = together};
    Tensor window;
    TRY(check(c, x, z, together, video));
    Size s = size_of(z);
    for (int i = 0; i + 1 < c->ups; i++) s = upsampled(s, c->up[i]);
    size_t mark = arena_mark(x->work);
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(lower(&k, &window));
    TRY(pieces(&k, window, s));
    TRY(weights_leave(x, WEIGHTS_PART));
    arena_reset(x->work, mark);
    return OK;
}

Status vae_ltx2_decode(const VaeLtx2 *v, Exec *x, Tensor z, Tensor video) { return vae_ltx2_decode_pieces(v, x, z, 0, video); }
