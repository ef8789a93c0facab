/* vae_wan_blocks.c - see vae_wan_blocks.h. A convolution's input is written straight behind the room for its history
 * (op roll), so that nothing is concatenated. */
#include "vae/vae_wan_blocks.h"

#include <math.h>
#include <stdio.h>

/* --- weights --- */

static void bind_gamma(Bind *b, Tensor *t, int64_t n, const char *name, const char *norm) {
    bind_vector(b, t, n, BIND_SQUEEZE, "%s.%s.gamma", name, norm);
}

void vae_wan_blocks_bind_resnet(Bind *b, VaeWanResnet *r, int64_t in, int64_t out, const char *name) {
    r->in = in, r->out = out;
    bind_gamma(b, &r->norm1, in, name, "norm1");
    bind_conv3d(b, &r->conv1, out, in, 3, 3, "%s.conv1", name);
    bind_gamma(b, &r->norm2, out, name, "norm2");
    bind_conv3d(b, &r->conv2, out, out, 3, 3, "%s.conv2", name);
    if (in != out) bind_conv3d(b, &r->shortcut, out, in, 1, 1, "%s.conv_shortcut", name);
}

/* One third of the rows of a 1x1 convolution [3 c, c, 1, 1]. */
static void bind_third(Bind *b, Weight *w, int64_t c, int which, const char *name) {
    bind_linear(b, w, c, c, true, "%s.to_qkv", name);
    BindRow *last = bind_last(b);
    if (!last) return;
    last->transform = BIND_SQUEEZE;
    for (BindRow *r = last - 1; r <= last; r++) r->row_start = which * c, r->file_rows = 3 * c;
}

void vae_wan_blocks_bind_mid(Bind *b, VaeWanMid *m, int64_t c, const char *name) {
    char part[96];
    snprintf(part, sizeof part, "%s.resnets.0", name);
    vae_wan_blocks_bind_resnet(b, &m->resnet[0], c, c, part);
    snprintf(part, sizeof part, "%s.attentions.0", name);
    bind_gamma(b, &m->norm, c, part, "norm");
    bind_third(b, &m->q, c, 0, part);
    bind_third(b, &m->k, c, 1, part);
    bind_third(b, &m->v, c, 2, part);
    bind_linear(b, &m->out, c, c, true, "%s.proj", part);
    if (bind_last(b)) bind_last(b)->transform = BIND_SQUEEZE;
    snprintf(part, sizeof part, "%s.resnets.1", name);
    vae_wan_blocks_bind_resnet(b, &m->resnet[1], c, c, part);
}

/* --- histories --- */

Status vae_wan_blocks_cache(Exec *x, VaeWanRun *r, int64_t frames, int64_t h, int64_t w, int64_t c) {
    if (r->caches == VAE_WAN_MAX_CACHES)
        return fail(x->error, ERR_MODEL, "vae: more than %d causal convolutions", VAE_WAN_MAX_CACHES);
    r->cache[r->caches].frames = exec_new(x, frames, h, w, c);
    r->cache[r->caches++].used = false;
    return OK;
}

Status vae_wan_blocks_cache_resnet(Exec *x, VaeWanRun *r, const VaeWanResnet *n, int64_t h, int64_t w) {
    TRY(vae_wan_blocks_cache(x, r, VAE_WAN_HISTORY, h, w, n->in));
    return vae_wan_blocks_cache(x, r, VAE_WAN_HISTORY, h, w, n->out);
}

Status vae_wan_blocks_cache_mid(Exec *x, VaeWanRun *r, const VaeWanMid *m, int64_t h, int64_t w) {
    TRY(vae_wan_blocks_cache_resnet(x, r, &m->resnet[0], h, w));
    return vae_wan_blocks_cache_resnet(x, r, &m->resnet[1], h, w);
}

Tensor vae_wan_blocks_next(const VaeWanRun *r, int64_t f, int64_t h, int64_t w, int64_t c) {
    return tensor_view(vae_blocks_next(&r->t, f * h, w, c), f, h, w, c);
}

Tensor vae_wan_blocks_behind(Tensor window, int64_t history) {
    return tensor_slice(window, 0, history, window.shape[0] - history);
}

Conv3d vae_wan_blocks_conv(Tensor y, Tensor x, const Weight *w) {
    return (Conv3d){.y = y, .x = x, .w = w, .stride_t = 1, .pad = (int32_t)(w->w.shape[2] / 2), .tf32 = 1};
}

Status vae_wan_blocks_causal(Exec *x, VaeWanRun *r, const Conv3d *conv) {
    if (r->next >= r->caches) return fail(x->error, ERR_MODEL, "vae: a convolution without its history");
    int i = r->next++;
    TRY(op_roll(x, &(Roll){.window = conv->x, .cache = r->cache[i].frames, .fresh = !r->cache[i].used}));
    r->cache[i].used = true;
    return op_conv3d(x, conv);
}

/* --- blocks --- */

Status vae_wan_blocks_norm(Exec *x, const char *site, Tensor y, Tensor in, Tensor gamma, Tensor bias) {
    exec_site(x, site);
    return op_chan_rmsnorm_silu(x, &(ChanRmsNorm){.y = y, .x = in, .w = gamma, .bias = bias});
}

/* Both convolutions read the same room, one after the other; between them lies conv1's output, which norm2 frees for the
 * shortcut's. Biases of conv1 and the shortcut are added by the op that reads them. */
Status vae_wan_blocks_resnet(const VaeWanResnet *n, Exec *x, VaeWanRun *r) {
    size_t mark = arena_mark(x->work);
    Tensor in = r->t.at, skip = in, skip_bias = {0};
    int64_t f = in.shape[0], h = in.shape[1], w = in.shape[2], all = VAE_WAN_HISTORY + f, pixels = all * h * w;
    Tensor y = vae_wan_blocks_next(r, f, h, w, n->out);
    Tensor room = exec_new(x, pixels * (n->in > n->out ? n->in : n->out)), b = exec_new(x, f, h, w, n->out);
    Tensor first = tensor_view(tensor_slice(room, 0, 0, pixels * n->in), all, h, w, n->in);
    Tensor second = tensor_view(tensor_slice(room, 0, 0, pixels * n->out), all, h, w, n->out);
    TRY(vae_wan_blocks_norm(x, "vae.resnet.norm1", vae_wan_blocks_behind(first, VAE_WAN_HISTORY), in, n->norm1, (Tensor){0}));
    Conv3d c = vae_wan_blocks_conv(b, first, &n->conv1);
    c.form = CONV_RAW;
    TRY(vae_wan_blocks_causal(x, r, &c));
    TRY(vae_wan_blocks_norm(x, "vae.resnet.norm2", vae_wan_blocks_behind(second, VAE_WAN_HISTORY), b, n->norm2, n->conv1.bias));
    if (n->shortcut.w.rank) {
        skip = b, skip_bias = n->shortcut.bias;
        c = vae_wan_blocks_conv(skip, in, &n->shortcut);
        c.form = CONV_RAW;
        TRY(op_conv3d(x, &c));
    }
    c = vae_wan_blocks_conv(y, second, &n->conv2);
    c.skip = skip, c.skip_bias = skip_bias;
    TRY(vae_wan_blocks_causal(x, r, &c));
    arena_reset(x->work, mark);
    vae_blocks_done(&r->t, y);
    return exec_tap(x, "vae.resnet", y);
}

/* Frame i as rows of pixels. */
static Tensor pixels_of(Tensor t, int64_t i) {
    return tensor_view(tensor_slice(t, 0, i, 1), t.shape[1] * t.shape[2], t.shape[3]);
}

static Status attention(const VaeWanMid *m, Exec *x, VaeWanRun *r) {
    size_t mark = arena_mark(x->work);
    Tensor in = r->t.at;
    int64_t f = in.shape[0], h = in.shape[1], w = in.shape[2], c = in.shape[3];
    Tensor y = vae_wan_blocks_next(r, f, h, w, c), n = exec_new(x, f, h, w, c);
    exec_site(x, "vae.attention.norm");
    TRY(op_chan_rmsnorm(x, &(ChanRmsNorm){.y = n, .x = in, .w = m->norm}));
    for (int64_t i = 0; i < f; i++) {
        exec_site(x, "vae.attention");
        TRY(op_self_attention(x, &(SelfAttention){.y = pixels_of(y, i), .x = pixels_of(n, i), .residual = pixels_of(in, i),
                                                  .wq = &m->q, .wk = &m->k, .wv = &m->v, .wo = &m->out,
                                                  .scale = (float)(1.0 / sqrt((double)c)), .out_bias = BIAS_AFTER}));
    }
    arena_reset(x->work, mark);
    vae_blocks_done(&r->t, y);
    return exec_tap(x, "vae.attention", y);
}

Status vae_wan_blocks_mid(const VaeWanMid *m, Exec *x, VaeWanRun *r) {
    TRY(vae_wan_blocks_resnet(&m->resnet[0], x, r));
    TRY(attention(m, x, r));
    return vae_wan_blocks_resnet(&m->resnet[1], x, r);
}
