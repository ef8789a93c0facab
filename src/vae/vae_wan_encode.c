/* vae_wan_encode.c - see vae_wan_encode.h. */
#include "vae/vae_wan_encode.h"

#include "residency.h"

#include <stdio.h>

enum { TIME_HISTORY = 1 }; /* what the halving of time sees of the chunk before */

static int64_t level_out(const VaeWanConfig *c, int i) { return c->base * c->mult[i]; }
static int64_t level_in(const VaeWanConfig *c, int i) { return i ? level_out(c, i - 1) : c->base; }
static bool halves_time(const VaeWanConfig *c, int i) { return i + 1 < c->levels && c->temporal[i]; }

void vae_wan_encode_bind(VaeWanEncoder *v, Bind *b) {
    const VaeWanConfig *c = &v->c;
    int64_t top = level_out(c, c->levels - 1);
    char name[96];
    int block = 0; /* resnets and downsamplings stand in one list */
    bind_conv3d(b, &v->conv_in, c->base, c->in, 3, 3, "encoder.conv_in");
    for (int i = 0; i < c->levels; i++) {
        for (int r = 0; r < c->resnets; r++) {
            snprintf(name, sizeof name, "encoder.down_blocks.%d", block++);
            vae_wan_blocks_bind_resnet(b, &v->down[i][r], r ? level_out(c, i) : level_in(c, i), level_out(c, i), name);
        }
        if (i + 1 == c->levels) break;
        snprintf(name, sizeof name, "encoder.down_blocks.%d", block++);
        bind_conv(b, &v->downsample[i], level_out(c, i), level_out(c, i), 3, "%s.resample.1", name);
        if (halves_time(c, i)) bind_conv3d(b, &v->time[i], level_out(c, i), level_out(c, i), 3, 1, "%s.time_conv", name);
    }
    vae_wan_blocks_bind_mid(b, &v->mid, top, "encoder.mid_block");
    bind_vector(b, &v->norm_out, top, BIND_SQUEEZE, "encoder.norm_out.gamma");
    bind_conv3d(b, &v->conv_out, 2 * c->latent, top, 3, 3, "encoder.conv_out");
    bind_conv3d(b, &v->quant, 2 * c->latent, 2 * c->latent, 1, 1, "quant_conv");
}

/* Elements of the largest stage of a chunk of f frames. */
static int64_t widest(const VaeWanConfig *c, int64_t f, int64_t h, int64_t w) {
    int64_t most = 0;
    for (int i = 0; i < c->levels; i++, h /= 2, w /= 2) {
        int64_t in = level_in(c, i), out = level_out(c, i), n = f * h * w * (in > out ? in : out);
        if (halves_time(c, i)) f = (f + 1) / 2;
        most = n > most ? n : most;
    }
    return most;
}

static Status make_caches(const VaeWanEncoder *v, Exec *x, VaeWanRun *r, int64_t h, int64_t w) {
    const VaeWanConfig *c = &v->c;
    TRY(vae_wan_blocks_cache(x, r, VAE_WAN_HISTORY, h, w, c->in));
    for (int i = 0; i < c->levels; i++) {
        for (int k = 0; k < c->resnets; k++) TRY(vae_wan_blocks_cache_resnet(x, r, &v->down[i][k], h, w));
        if (i + 1 < c->levels) h /= 2, w /= 2;
        if (halves_time(c, i)) TRY(vae_wan_blocks_cache(x, r, TIME_HISTORY, h, w, level_out(c, i)));
    }
    TRY(vae_wan_blocks_cache_mid(x, r, &v->mid, h, w));
    return vae_wan_blocks_cache(x, r, VAE_WAN_HISTORY, h, w, level_out(c, c->levels - 1));
}

static Status downsample(const Weight *weight, Exec *x, VaeWanRun *r) {
    const int64_t *s = r->t.at.shape;
    Tensor y = vae_wan_blocks_next(r, s[0], s[1] / 2, s[2] / 2, s[3]);
    TRY(op_conv2d(x, &(Conv2d){.y = y, .x = r->t.at, .w = weight, .stride = 2, .pad_bottom = 1, .pad_right = 1, .tf32 = 1}));
    vae_blocks_done(&r->t, y);
    return OK;
}

/* Two frames become one. The first chunk's frame passes by, and is the next one's history. */
static Status halve_time(const Weight *time, Exec *x, VaeWanRun *r, bool first) {
    Tensor in = r->t.at;
    if (first) {
        int i = r->next++;
        r->cache[i].used = true;
        return op_copy(x, &(Copy){.y = r->cache[i].frames, .x = in});
    }
    size_t mark = arena_mark(x->work);
    const int64_t *s = in.shape;
    Tensor window = exec_new(x, TIME_HISTORY + s[0], s[1], s[2], s[3]), y = vae_wan_blocks_next(r, s[0] / 2, s[1], s[2], s[3]);
    TRY(op_copy(x, &(Copy){.y = vae_wan_blocks_behind(window, TIME_HISTORY), .x = in}));
    Conv3d conv = vae_wan_blocks_conv(y, window, time);
    conv.stride_t = 2;
    TRY(vae_wan_blocks_causal(x, r, &conv));
    arena_reset(x->work, mark);
    vae_blocks_done(&r->t, y);
    return OK;
}

/* One latent frame y, before quant_conv, of the frames of a chunk. */
static Status chunk(const VaeWanEncoder *v, Exec *x, VaeWanRun *r, Tensor frames, bool first, Tensor y) {
    const VaeWanConfig *c = &v->c;
    size_t mark = arena_mark(x->work);
    int64_t f = frames.shape[0], h = frames.shape[1], w = frames.shape[2], top = level_out(c, c->levels - 1);
    r->next = 0;
    Tensor window = exec_new(x, VAE_WAN_HISTORY + f, h, w, c->in), next = vae_wan_blocks_next(r, f, h, w, c->base);
    TRY(op_copy(x, &(Copy){.y = vae_wan_blocks_behind(window, VAE_WAN_HISTORY), .x = frames}));
    Conv3d conv = vae_wan_blocks_conv(next, window, &v->conv_in);
    TRY(vae_wan_blocks_causal(x, r, &conv));
    arena_reset(x->work, mark);
    vae_blocks_done(&r->t, next);
    TRY(exec_tap(x, "vae.enc.conv_in", next));
    for (int i = 0; i < c->levels; i++) {
        for (int k = 0; k < c->resnets; k++)
            if (vae_wan_blocks_resnet(&v->down[i][k], x, r) != OK) return because(x->error, "vae down block %d", i);
        if (i + 1 == c->levels) break;
        TRY(downsample(&v->downsample[i], x, r));
        if (halves_time(c, i)) TRY(halve_time(&v->time[i], x, r, first));
        TRY(exec_tapf(x, r->t.at, "vae.enc.down.%d", i));
    }
    TRY(vae_wan_blocks_mid(&v->mid, x, r));
    const int64_t *s = r->t.at.shape;
    window = exec_new(x, VAE_WAN_HISTORY + s[0], s[1], s[2], top);
    next = vae_wan_blocks_behind(window, VAE_WAN_HISTORY);
    TRY(vae_wan_blocks_norm(x, "vae.norm_out", next, r->t.at, v->norm_out, (Tensor){0}));
    TRY(exec_tap(x, "vae.enc.norm_out", next));
    conv = vae_wan_blocks_conv(y, window, &v->conv_out);
    TRY(vae_wan_blocks_causal(x, r, &conv));
    arena_reset(x->work, mark);
    return OK;
}

Status vae_wan_encode(const VaeWanEncoder *v, Exec *x, Tensor video, Tensor z) {
    const VaeWanConfig *c = &v->c;
    int64_t k = vae_wan_scale(c), each = vae_wan_frames_each(c), count = z.shape[0], h = z.shape[1], w = z.shape[2];
    if (z.rank != 4 || video.rank != 4 || count < 1 || z.shape[3] != c->latent || video.shape[0] != vae_wan_frames(c, count) ||
        video.shape[1] != k * h || video.shape[2] != k * w || video.shape[3] != c->in || z.dtype != x->dtype)
        return fail(x->error, ERR_MODEL, "vae: %lld frames of %lld x %lld do not give %lld latent frames of %lld x %lld",
                    (long long)video.shape[0], (long long)video.shape[1], (long long)video.shape[2], (long long)count,
                    (long long)h, (long long)w);
    size_t mark = arena_mark(x->work);
    VaeWanRun r = {.t = vae_blocks_turns(x, widest(c, count > 1 ? each : 1, k * h, k * w))};
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(make_caches(v, x, &r, k * h, k * w));
    Tensor out = exec_new(x, count, h, w, 2 * c->latent), moments = exec_new(x, count, h, w, 2 * c->latent);
    for (int64_t i = 0; i < count; i++) {
        Tensor frames = tensor_slice(video, 0, i ? 1 + (i - 1) * each : 0, i ? each : 1);
        if (chunk(v, x, &r, frames, !i, tensor_slice(out, 0, i, 1)) != OK)
            return because(x->error, "vae: latent frame %lld", (long long)i);
    }
    Conv3d quant = vae_wan_blocks_conv(moments, out, &v->quant);
    TRY(op_conv3d(x, &quant));
    TRY(exec_tap(x, "vae.enc.moments", moments));
    Tensor by, add;
    TRY(vae_wan_vectors(c, x, &by, &add));
    TRY(op_chan_affine(x, &(ChanAffine){.y = z, .x = tensor_slice(moments, 3, 0, c->latent), .a = by, .b = add,
                                        .form = CHAN_SUBTRACT_MULTIPLY}));
    TRY(weights_leave(x, WEIGHTS_PART));
    arena_reset(x->work, mark);
    return OK;
}
