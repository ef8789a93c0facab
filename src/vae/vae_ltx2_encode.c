/* vae_ltx2_encode.c - see vae_ltx2_encode.h. A whole clip at a time, in the three rooms of the decoder. */
#include "vae/vae_ltx2_encode.h"

#include "residency.h"

#include <stdio.h>

typedef struct Size { int64_t f, y, x; } Size;

static int64_t level_in(const VaeLtx2Config *c, int i) { return i ? c->down_out[i - 1] : c->latent; }

static int64_t product_of(VaeLtx2Scale s) { return (int64_t)s.t * s.y * s.x; }

static Size downsampled(Size s, VaeLtx2Scale by) { return (Size){(s.f + by.t - 1) / by.t, s.y / by.y, s.x / by.x}; }

void vae_ltx2_encode_bind(VaeLtx2Encoder *v, Bind *b) {
    const VaeLtx2Config *c = &v->c;
    char name[96];
    vae_ltx2_blocks_bind_conv(b, &v->conv_in, c->latent, c->in * c->patch * c->patch, "encoder.conv_in");
    for (int i = 0; i < c->downs; i++) {
        snprintf(name, sizeof name, "encoder.down_blocks.%d", i);
        vae_ltx2_blocks_bind_resnets(b, v->resnet[i], c->down_resnets[i], level_in(c, i), name);
        snprintf(name, sizeof name, "encoder.down_blocks.%d.downsamplers.0.conv", i);
        vae_ltx2_blocks_bind_conv(b, &v->down[i], c->down_out[i] / product_of(c->down[i]), level_in(c, i), name);
    }
    vae_ltx2_blocks_bind_resnets(b, v->resnet[c->downs], c->down_resnets[c->downs], c->down_out[c->downs - 1],
                                 "encoder.mid_block");
    vae_ltx2_blocks_bind_conv(b, &v->conv_out, c->latent + 1, c->down_out[c->downs - 1], "encoder.conv_out");
}

static VaeLtx2Rooms rooms(const VaeLtx2Config *c, Size s) {
    VaeLtx2Rooms r = {0};
    int64_t patch = c->in * c->patch * c->patch;
    vae_ltx2_blocks_need(&r, c->encoder_mirror, s.f, s.y, s.x, patch, 0, patch);
    for (int i = 0;; i++) {
        int64_t in = level_in(c, i);
        vae_ltx2_blocks_need(&r, c->encoder_mirror, s.f, s.y, s.x, in, in, in);
        if (i == c->downs) break;
        vae_ltx2_blocks_need(&r, c->encoder_mirror, s.f, s.y, s.x, in, c->down_out[i] / product_of(c->down[i]), 0);
        s = downsampled(s, c->down[i]);
    }
    vae_ltx2_blocks_need(&r, c->encoder_mirror, s.f, s.y, s.x, 1, c->latent + 1, 0);
    return r;
}

static Status entry(const VaeLtx2Encoder *v, Exec *x, VaeLtx2Run *r, Tensor video) {
    int64_t p = v->c.patch, f = video.shape[0], h = video.shape[1] / p, w = video.shape[2] / p;
    Tensor window;
    r->at = vae_ltx2_blocks_kept(r, f, h, w, v->c.in * p * p);
    TRY(op_copy(x, &(Copy){.y = vae_ltx2_blocks_patches(r->at, p), .x = vae_ltx2_blocks_pixels(video, p)}));
    TRY(vae_ltx2_blocks_plain(x, r, 0, &window));
    r->at = vae_ltx2_blocks_kept(r, f, h, w, v->c.latent);
    TRY(vae_ltx2_blocks_conv(x, r, &v->conv_in, window, r->at, CONV_BIAS));
    return exec_tap(x, "vae.enc.conv_in", r->at);
}

static Status downsample(const VaeLtx2Encoder *v, Exec *x, VaeLtx2Run *r, int i) {
    VaeLtx2Scale by = v->c.down[i];
    Size s = downsampled((Size){r->at.shape[0], r->at.shape[1], r->at.shape[2]}, by);
    Tensor window;
    TRY(vae_ltx2_blocks_plain(x, r, by.t - 1, &window));
    Tensor product = vae_ltx2_blocks_product(r, window, &v->down[i]);
    TRY(vae_ltx2_blocks_conv(x, r, &v->down[i], window, product, CONV_RAW));
    r->at = vae_ltx2_blocks_kept(r, s.f, s.y, s.x, v->c.down_out[i]);
    TRY(op_space_to_depth(x, &(Depth){.y = r->at, .x = product, .bias = v->down[i].bias,
                                      .skip = vae_ltx2_blocks_inside(r, window), .t = by.t, .rows = by.y, .columns = by.x}));
    return exec_tapf(x, r->at, "vae.enc.down.%d", i);
}

static Status head(const VaeLtx2Encoder *v, Exec *x, VaeLtx2Run *r, Tensor z) {
    Tensor window;
    TRY(vae_ltx2_blocks_norm(x, r, "vae.norm_out", "vae.enc.norm_out", false, &window));
    Tensor moments = vae_ltx2_blocks_product(r, window, &v->conv_out);
    TRY(vae_ltx2_blocks_conv(x, r, &v->conv_out, window, moments, CONV_BIAS));
    TRY(exec_tap(x, "vae.enc.moments", moments));
    return op_copy(x, &(Copy){.y = z, .x = tensor_slice(moments, 3, 0, v->c.latent)});
}

/* Do frames of video give these latents? Every halving of time must have an odd number of frames before it. */
static bool fits(const VaeLtx2Config *c, Tensor video, Tensor z) {
    if (z.rank != 4 || video.rank != 4 || video.shape[3] != c->in || z.shape[3] != c->latent) return false;
    int64_t p = c->patch;
    Size s = {video.shape[0], video.shape[1] / p, video.shape[2] / p};
    if (s.f < 1 || s.y * p != video.shape[1] || s.x * p != video.shape[2]) return false;
    for (int i = 0; i < c->downs; i++) {
        if ((s.f - 1) % c->down[i].t || s.y % c->down[i].y || s.x % c->down[i].x) return false;
        s = downsampled(s, c->down[i]);
    }
    return s.f == z.shape[0] && s.y == z.shape[1] && s.x == z.shape[2];
}

Status vae_ltx2_encode(const VaeLtx2Encoder *v, Exec *x, Tensor video, Tensor z) {
    const VaeLtx2Config *c = &v->c;
    if (!fits(c, video, z) || video.dtype != x->dtype || z.dtype != x->dtype || !tensor_contiguous(video))
        return fail(x->error, ERR_MODEL, "vae: %lld frames of %lld x %lld do not give %lld latent frames of %lld x %lld",
                    (long long)video.shape[0], (long long)video.shape[1], (long long)video.shape[2], (long long)z.shape[0],
                    (long long)z.shape[1], (long long)z.shape[2]);
    if (c->encoder_mirror && (z.shape[1] < 2 || z.shape[2] < 2))
        return fail(x->error, ERR_MODEL, "vae: latents of %lld x %lld are too small: this encoder mirrors borders, which takes "
                    "2 x 2", (long long)z.shape[1], (long long)z.shape[2]);
    size_t mark = arena_mark(x->work);
    Size s = {video.shape[0], video.shape[1] / c->patch, video.shape[2] / c->patch};
    VaeLtx2Run r = vae_ltx2_blocks_run(x, rooms(c, s), c->encoder_causal, c->encoder_mirror);
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(entry(v, x, &r, video));
    for (int i = 0; i <= c->downs; i++) {
        if (i) TRY(downsample(v, x, &r, i - 1));
        for (int64_t k = 0; k < c->down_resnets[i]; k++)
            if (vae_ltx2_blocks_resnet(x, &r, &v->resnet[i][k]) != OK) return because(x->error, "vae encoder level %d", i);
    }
    TRY(head(v, x, &r, z));
    TRY(weights_leave(x, WEIGHTS_PART));
    arena_reset(x->work, mark);
    return OK;
}
