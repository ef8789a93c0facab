/* vae_blocks.c - see vae_blocks.h. What a stage needs inside it lies above the two buffers in the work arena. */
#include "vae/vae_blocks.h"

#include <math.h>
#include <stdio.h>

VaeTurns vae_blocks_turns(Exec *x, int64_t elements) {
    VaeTurns t = {.turn = 1};
    for (int i = 0; i < 2; i++) t.buffer[i] = exec_new(x, elements);
    return t;
}

Tensor vae_blocks_next(const VaeTurns *t, int64_t y, int64_t w, int64_t c) {
    return tensor_view(tensor_slice(t->buffer[t->turn ^ 1], 0, 0, y * w * c), y, w, c);
}

void vae_blocks_done(VaeTurns *t, Tensor next) {
    t->turn ^= 1;
    t->at = next;
}

void vae_blocks_bind_resnet(Bind *b, VaeResnet *r, int64_t in, int64_t out, const char *name) {
    r->in = in, r->out = out;
    bind_vector(b, &r->norm1_w, in, BIND_PLAIN, "%s.norm1.weight", name);
    bind_vector(b, &r->norm1_b, in, BIND_PLAIN, "%s.norm1.bias", name);
    bind_conv(b, &r->conv1, out, in, 3, "%s.conv1", name);
    bind_vector(b, &r->norm2_w, out, BIND_PLAIN, "%s.norm2.weight", name);
    bind_vector(b, &r->norm2_b, out, BIND_PLAIN, "%s.norm2.bias", name);
    bind_conv(b, &r->conv2, out, out, 3, "%s.conv2", name);
    if (in != out) bind_conv(b, &r->shortcut, out, in, 1, "%s.conv_shortcut", name);
}

void vae_blocks_bind_mid(Bind *b, VaeMid *m, int64_t c, bool attention, const char *name) {
    char part[96];
    for (int i = 0; i < 2; i++) {
        snprintf(part, sizeof part, "%s.resnets.%d", name, i);
        vae_blocks_bind_resnet(b, &m->resnet[i], c, c, part);
    }
    m->attention = attention;
    if (!attention) return;
    snprintf(part, sizeof part, "%s.attentions.0", name);
    bind_vector(b, &m->norm_w, c, BIND_PLAIN, "%s.group_norm.weight", part);
    bind_vector(b, &m->norm_b, c, BIND_PLAIN, "%s.group_norm.bias", part);
    bind_linear(b, &m->q, c, c, true, "%s.to_q", part);
    bind_linear(b, &m->k, c, c, true, "%s.to_k", part);
    bind_linear(b, &m->v, c, c, true, "%s.to_v", part);
    bind_linear(b, &m->out, c, c, true, "%s.to_out.0", part);
}

Conv2d vae_blocks_conv3(Tensor y, Tensor x, const Weight *w) {
    return (Conv2d){.y = y, .x = x, .w = w, .stride = 1, .pad_top = 1, .pad_left = 1, .pad_bottom = 1, .pad_right = 1};
}

Conv2d vae_blocks_conv1(Tensor y, Tensor x, const Weight *w) { return (Conv2d){.y = y, .x = x, .w = w, .stride = 1}; }

/* Shows t under the stage's name; NULL: this stage shows nothing. */
static Status tap(Exec *x, const char *stage, const char *name, Tensor t) {
    return stage ? exec_tapf(x, t, "%s.%s", stage, name) : OK;
}

/* The biases of conv1 and of the shortcut are added by the op that reads them: on a GPU a pass over the picture less. */
Status vae_blocks_resnet(const VaeResnet *r, int groups, const char *stage, Exec *x, VaeTurns *t) {
    size_t mark = arena_mark(x->work);
    Tensor in = t->at;
    int64_t h = in.shape[0], w = in.shape[1];
    Tensor y = vae_blocks_next(t, h, w, r->out), a = exec_new(x, h, w, r->in), b = exec_new(x, h, w, r->out);
    exec_site(x, "vae.resnet.norm1");
    TRY(op_groupnorm_silu(x, &(GroupNorm){.y = a, .x = in, .w = r->norm1_w, .b = r->norm1_b, .eps = VAE_EPS,
                                          .groups = groups}));
    TRY(tap(x, stage, "norm1", a));
    Conv2d c = vae_blocks_conv3(b, a, &r->conv1);
    c.form = CONV_RAW;
    TRY(op_conv2d(x, &c));
    TRY(tap(x, stage, "conv1", b));
    exec_site(x, "vae.resnet.norm2");
    TRY(op_groupnorm_silu(x, &(GroupNorm){.y = b, .x = b, .w = r->norm2_w, .b = r->norm2_b, .bias = r->conv1.bias,
                                          .eps = VAE_EPS, .groups = groups}));
    TRY(tap(x, stage, "norm2", b));
    Tensor skip = in, skip_bias = {0};
    if (r->shortcut.w.rank) {
        int64_t n = h * w * r->out; /* a is free again, if it is large enough */
        skip = r->out > r->in ? exec_new(x, h, w, r->out)
                              : tensor_view(tensor_slice(tensor_view(a, h * w * r->in), 0, 0, n), h, w, r->out);
        skip_bias = r->shortcut.bias;
        c = vae_blocks_conv1(skip, in, &r->shortcut);
        c.form = CONV_RAW;
        TRY(op_conv2d(x, &c));
        TRY(tap(x, stage, "shortcut", skip));
    }
    c = vae_blocks_conv3(y, b, &r->conv2);
    c.skip = skip, c.skip_bias = skip_bias;
    TRY(op_conv2d(x, &c));
    TRY(tap(x, stage, "out", y));
    arena_reset(x->work, mark);
    vae_blocks_done(t, y);
    return OK;
}

/* y = in + to_out(attention(groupnorm(in))), one head as wide as the channels. */
static Status attention(const VaeMid *m, int groups, const char *stage, Exec *x, VaeTurns *t) {
    size_t mark = arena_mark(x->work);
    Tensor in = t->at;
    int64_t h = in.shape[0], w = in.shape[1], c = in.shape[2];
    Tensor y = vae_blocks_next(t, h, w, c), n = exec_new(x, h, w, c);
    exec_site(x, "vae.attention.norm");
    TRY(op_groupnorm(x, &(GroupNorm){.y = n, .x = in, .w = m->norm_w, .b = m->norm_b, .eps = VAE_EPS, .groups = groups}));
    TRY(tap(x, stage, "attention.norm", n));
    exec_site(x, "vae.attention");
    TRY(op_self_attention(x, &(SelfAttention){.y = tensor_view(y, h * w, c), .x = tensor_view(n, h * w, c),
                                              .residual = tensor_view(in, h * w, c), .wq = &m->q, .wk = &m->k, .wv = &m->v,
                                              .wo = &m->out, .scale = (float)(1.0 / sqrt((double)c))}));
    TRY(tap(x, stage, "attention.out", y));
    arena_reset(x->work, mark);
    vae_blocks_done(t, y);
    return OK;
}

Status vae_blocks_mid(const VaeMid *m, int groups, const char *stage, Exec *x, VaeTurns *t) {
    char name[2][64];
    for (int i = 0; i < 2; i++) snprintf(name[i], sizeof name[i], "%s.%d", stage ? stage : "", i);
    TRY(vae_blocks_resnet(&m->resnet[0], groups, stage ? name[0] : NULL, x, t));
    if (m->attention) TRY(attention(m, groups, stage, x, t));
    return vae_blocks_resnet(&m->resnet[1], groups, stage ? name[1] : NULL, x, t);
}
