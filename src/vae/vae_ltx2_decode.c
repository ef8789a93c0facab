/* vae_ltx2_decode.c - the decoder of vae_ltx2.h, a whole clip at a time.
 *
 * Three rooms hold everything: the frames that a level's resnets add up, a convolution's result, and the window that the next
 * one reads. An upsampling reads its other path from the window that its convolution has read.
 * Easy to get wrong: behind the last level the products are the widest, before it those of the upsampling. */
#include "vae/vae_ltx2.h"

#include "residency.h"

#include <stdio.h>

typedef struct Size { int64_t f, y, x; } Size;

static Size upsampled(Size s, VaeLtx2Scale by) { return (Size){s.f * by.t - (by.t - 1), s.y * by.y, s.x * by.x}; }

static VaeLtx2Rooms rooms(const VaeLtx2Config *c, Size s) {
    VaeLtx2Rooms r = {0};
    vae_ltx2_blocks_need(&r, c->decoder_mirror, s.f, s.y, s.x, c->latent, 0, c->latent);
    for (int i = 0;; i++) {
        vae_ltx2_blocks_need(&r, c->decoder_mirror, s.f, s.y, s.x, c->up_out[i], c->up_out[i], c->up_out[i]);
        if (i == c->ups) break;
        int64_t out = c->up_out[i + 1] * c->up[i].t * c->up[i].y * c->up[i].x;
        vae_ltx2_blocks_need(&r, c->decoder_mirror, s.f, s.y, s.x, c->up_out[i], out, 0);
        s = upsampled(s, c->up[i]);
    }
    vae_ltx2_blocks_need(&r, c->decoder_mirror, s.f, s.y, s.x, c->up_out[c->ups], c->out * c->patch * c->patch, 0);
    return r;
}

/* De-normalised latents into the first frames. */
static Status entry(const VaeLtx2 *v, Exec *x, VaeLtx2Run *r, Tensor z) {
    Tensor window, latents = vae_ltx2_blocks_kept(r, z.shape[0], z.shape[1], z.shape[2], v->c.latent);
    TRY(vae_ltx2_denormalise(v, x, latents, z));
    TRY(exec_tap(x, "vae.denormalised", latents));
    r->at = latents;
    TRY(vae_ltx2_blocks_plain(x, r, 0, &window));
    r->at = vae_ltx2_blocks_kept(r, z.shape[0], z.shape[1], z.shape[2], v->c.up_out[0]);
    TRY(vae_ltx2_blocks_conv(x, r, &v->conv_in, window, r->at, CONV_BIAS));
    return exec_tap(x, "vae.conv_in", r->at);
}

static Status upsample(const VaeLtx2 *v, Exec *x, VaeLtx2Run *r, int i) {
    VaeLtx2Scale by = v->c.up[i];
    Tensor window;
    TRY(vae_ltx2_blocks_plain(x, r, 0, &window));
    Tensor product = vae_ltx2_blocks_product(r, window, &v->up[i]);
    TRY(vae_ltx2_blocks_conv(x, r, &v->up[i], window, product, CONV_RAW));
    Size s = upsampled((Size){product.shape[0], product.shape[1], product.shape[2]}, by);
    r->at = vae_ltx2_blocks_kept(r, s.f, s.y, s.x, v->c.up_out[i + 1]);
    Depth d = {.y = r->at, .x = product, .bias = v->up[i].bias, .t = by.t, .rows = by.y, .columns = by.x};
    if (v->c.up_residual[i]) d.skip = vae_ltx2_blocks_inside(r, window);
    TRY(op_depth_to_space(x, &d));
    return exec_tapf(x, r->at, "vae.up.%d", i);
}

static Status head(const VaeLtx2 *v, Exec *x, VaeLtx2Run *r, Tensor video) {
    Tensor window;
    int64_t p = v->c.patch;
    TRY(vae_ltx2_blocks_norm(x, r, "vae.norm_out", "vae.norm_out", &window));
    Tensor frames = vae_ltx2_blocks_product(r, window, &v->conv_out);
    TRY(vae_ltx2_blocks_conv(x, r, &v->conv_out, window, frames, CONV_BIAS));
    TRY(exec_tap(x, "vae.frames", frames));
    Tensor flat = vae_ltx2_blocks_pixels(video, p);
    if (video.dtype != U8) return op_copy(x, &(Copy){.y = flat, .x = vae_ltx2_blocks_patches(frames, p)});
    TRY(exec_check_finite(x, frames, "vae: decoded frames"));
    return op_to_rgb8(x, &(ToRgb8){.y = flat, .x = vae_ltx2_blocks_patches(frames, p)});
}

static Status check(const VaeLtx2Config *c, Exec *x, Tensor z, Tensor video) {
    int64_t k = vae_ltx2_scale(c);
    if (z.rank != 4 || z.shape[0] < 1 || z.shape[3] != c->latent)
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

Status vae_ltx2_decode(const VaeLtx2 *v, Exec *x, Tensor z, Tensor video) {
    const VaeLtx2Config *c = &v->c;
    TRY(check(c, x, z, video));
    size_t mark = arena_mark(x->work);
    VaeLtx2Run r = vae_ltx2_blocks_run(x, rooms(c, (Size){z.shape[0], z.shape[1], z.shape[2]}), c->decoder_causal,
                                       c->decoder_mirror);
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(entry(v, x, &r, z));
    for (int i = 0; i <= c->ups; i++) {
        if (i) TRY(upsample(v, x, &r, i - 1));
        for (int64_t k = 0; k < c->up_resnets[i]; k++)
            if (vae_ltx2_blocks_resnet(x, &r, &v->resnet[i][k]) != OK) return because(x->error, "vae level %d", i);
    }
    TRY(head(v, x, &r, video));
    TRY(weights_leave(x, WEIGHTS_PART));
    arena_reset(x->work, mark);
    return OK;
}
