/* check_shapes_cases.c - the calls of check_shapes.h: what the models call each op with, in place where they do.
 *
 * FULL: FLUX.1-dev at 1024x1024 (4096 image and 512 text tokens, width 3072, 24 heads of 128), Z-Image (4128 tokens, width
 * 3840, 30 heads, ffn 10240), their encoders, the KL decoder of both, and SANA-Video at 832x480 with 17 frames (7800 tokens)
 * and 81 (32760), width 2240, 20 heads of 112, LTX-2's VAE at 768x512 (a part of its 121 frames where they are
 * large). SMALL: the demo checkpoint at 128x128, for the CPU table.
 * Easy to get wrong: an op that is missing here fails both tables made from them; add a line when an op is added. */
#include "check_shapes.h"

#include <math.h>

#define MAKE(name, Type)                                                                                     \
    static void name##_args(Maker *m, const int64_t *p, Type *a);                                             \
    static void name(Maker *m, const int64_t *p, void *args) { name##_args(m, p, args); }                     \
    static void name##_args(Maker *m, const int64_t *p, Type *a)

static DType real(const Maker *m) { return shapes_dtype(m); }
static const Weight *matrix(Maker *m, int64_t n, int64_t k, bool bias) { return shapes_weight(m, bias, 2, (int64_t[]){n, k}); }

/* --- moves --- */

MAKE(copy, Copy) { /* rows, columns; 1: the source is transposed */
    a->y = shapes_new(m, real(m), p[0], p[1]);
    a->x = p[2] ? shapes_transposed(m, real(m), p[0], p[1]) : shapes_new(m, real(m), p[0], p[1]);
}

MAKE(embed, Embed) { /* ids, rows, columns */
    a->y = shapes_new(m, real(m), p[0], p[2]);
    a->ids = shapes_ids(m, p[0], p[1]);
    a->table = matrix(m, p[1], p[2], false);
}

MAKE(rel_bias, RelBias) { /* heads, tokens */
    a->y = shapes_new(m, real(m), p[0], p[1], p[1]);
    a->table = matrix(m, 32, p[0], false);
    a->max_distance = 128;
}

MAKE(pack, Pack) { /* channels, height, width of the latents */
    a->y = shapes_new(m, real(m), p[1] / 2 * (p[2] / 2), 4 * p[0]);
    a->x = shapes_new(m, real(m), p[0], p[1], p[2]);
}

MAKE(unpack, Unpack) {
    a->y = shapes_new(m, real(m), p[1], p[2], p[0]);
    a->x = shapes_new(m, real(m), p[1] / 2 * (p[2] / 2), 4 * p[0]);
}

/* --- products --- */

/* M, K, N; bias; columns of the buffers that x and y are slices of (0: their own). */
MAKE(linear, Linear) {
    a->x = tensor_slice(shapes_new(m, real(m), p[0], p[5] ? p[5] : p[1]), 1, 0, p[1]);
    a->y = tensor_slice(shapes_new(m, real(m), p[0], p[4] ? p[4] : p[2]), 1, 0, p[2]);
    a->w = matrix(m, p[2], p[1], p[3] != 0);
}

/* M, K, form, N...: apart, each with its weight; as a pack, outputs in neighbouring columns, weights one behind the other. */
enum { NO_BIAS, BIAS, PACK = 2 };
static void many(Maker *m, const int64_t *p, Tensor *y, const Weight **w) {
    int64_t total = 0, at = 0;
    for (int i = 0; i < LINEAR_MANY_MAX; i++) total += p[3 + i];
    Tensor wide = {0};
    const Weight *all = NULL;
    if (p[2] & PACK) {
        wide = shapes_new(m, real(m), p[0], total);
        all = matrix(m, total, p[1], p[2] & BIAS);
    }
    for (int i = 0; i < LINEAR_MANY_MAX && p[3 + i]; at += p[3 + i++]) {
        y[i] = all ? tensor_slice(wide, 1, at, p[3 + i]) : shapes_new(m, real(m), p[0], p[3 + i]);
        w[i] = all ? shapes_weight_rows(m, all, at, p[3 + i]) : matrix(m, p[3 + i], p[1], p[2] & BIAS);
    }
}

MAKE(linear_many, LinearMany) {
    a->x = shapes_new(m, real(m), p[0], p[1]);
    many(m, p, a->y, a->w);
}

MAKE(linear_many_gelu, LinearManyGelu) { /* g stands behind K columns of something else, as in a single block */
    int last = LINEAR_MANY_MAX - 1;
    a->x = shapes_new(m, real(m), p[0], p[1]);
    many(m, p, a->y, a->w);
    a->g = tensor_slice(shapes_new(m, real(m), p[0], p[1] + p[3 + last]), 1, p[1], p[3 + last]);
}

/* --- without a reduction --- */

MAKE(act, Act) { /* rows, columns, kind */
    a->y = a->x = shapes_new(m, real(m), p[0], p[1]);
    a->kind = (int32_t)p[2];
}

MAKE(act_mul, ActMul) { /* rows, columns, kind; 1: a and b are halves of one buffer */
    Tensor both = p[3] ? shapes_new(m, real(m), p[0], 2 * p[1]) : (Tensor){0};
    a->y = a->a = p[3] ? tensor_slice(both, 1, 0, p[1]) : shapes_new(m, real(m), p[0], p[1]);
    a->b = p[3] ? tensor_slice(both, 1, p[1], p[1]) : shapes_new(m, real(m), p[0], p[1]);
    a->kind = (int32_t)p[2];
}

MAKE(add, Add) {
    a->y = a->a = shapes_new(m, real(m), p[0], p[1]);
    a->b = shapes_new(m, real(m), p[0], p[1]);
}

enum { GATE_NONE, GATE_ROW, GATE_TOKEN, GATE_FULL };
MAKE(residual_gate, ResidualGate) { /* tokens, columns, gate; 1: the residual is transposed */
    a->y = a->residual = p[3] ? shapes_transposed(m, real(m), p[0], p[1]) : shapes_new(m, real(m), p[0], p[1]);
    a->x = shapes_new(m, real(m), p[0], p[1]);
    if (p[2] == GATE_ROW) a->gate = shapes_new(m, real(m), p[1]);
    if (p[2] == GATE_TOKEN) a->gate = shapes_new(m, real(m), p[0], 1);
    if (p[2] == GATE_FULL) a->gate = shapes_new(m, real(m), p[0], p[1]);
}

MAKE(modulate, Modulate) { /* tokens, columns; 1: scale and shift by token */
    a->y = shapes_new(m, real(m), p[0], p[1]);
    a->x = shapes_new(m, real(m), p[0], p[1]);
    a->scale = p[2] ? shapes_new(m, real(m), p[0], p[1]) : shapes_new(m, real(m), p[1]);
    a->shift = p[2] ? shapes_new(m, real(m), p[0], p[1]) : shapes_new(m, real(m), p[1]);
}

MAKE(time_embed, TimeEmbed) {
    a->y = shapes_new(m, real(m), 1, p[0]);
    a->t = shapes_new(m, F32, 1);
    a->max_period = 10000;
}

MAKE(cfg_combine, CfgCombine) { /* rows, columns; 1: F32 */
    DType t = p[2] ? F32 : real(m);
    a->y = a->pos = shapes_new(m, t, p[0], p[1]);
    a->neg = shapes_new(m, t, p[0], p[1]);
    a->scale = shapes_new(m, F32, 1);
}

MAKE(norm_limit, NormLimit) {
    a->y = a->x = shapes_new(m, F32, p[0], p[1]);
    a->like = shapes_new(m, F32, p[0], p[1]);
    a->limit = 1;
}

MAKE(guide_x0, GuideX0) { /* rows, columns */
    Tensor *slots[] = {&a->y, &a->c, &a->x, &a->cond, &a->neg, &a->perturbed, &a->isolated};
    for (int i = 0; i < 7; i++) *slots[i] = shapes_new(m, F32, p[0], p[1]);
    a->sigma = shapes_new(m, F32, 1);
    a->cfg = 2, a->stg = 1, a->modality = 2;
}

MAKE(velocity_x0, VelocityX0) { /* rows, columns */
    a->y = a->x0 = shapes_new(m, F32, p[0], p[1]);
    a->x = shapes_new(m, F32, p[0], p[1]);
    a->like = shapes_new(m, F32, p[0], p[1]);
    a->clean = shapes_new(m, F32, p[0], p[1]);
    a->mask = shapes_new(m, F32, p[0], 1);
    a->sigma = shapes_new(m, F32, 1);
    a->rescale = 0.7f, a->rest = (float)(1 - 0.7);
}

MAKE(negate, Negate) { a->y = a->x = shapes_new(m, F32, p[0], p[1]); }

MAKE(euler_step, EulerStep) { /* rows, columns; 1: F32 */
    DType t = p[2] ? F32 : real(m);
    a->y = a->x = shapes_new(m, t, p[0], p[1]);
    a->v = shapes_new(m, t, p[0], p[1]);
    a->dt = shapes_new(m, F32, 1);
}

MAKE(dpm_step, DpmStep) { /* rows, columns */
    a->y = a->x = shapes_new(m, F32, p[0], p[1]);
    a->m = a->last = shapes_new(m, F32, p[0], p[1]);
    a->v = shapes_new(m, F32, p[0], p[1]);
    a->k = shapes_new(m, F32, DPM_COEFFICIENTS);
}

MAKE(affine, Affine) {
    a->y = a->x = shapes_new(m, real(m), p[0], p[1], p[2]);
    a->mul = (float)(1 / 0.3611), a->add = 0.1159f;
}

MAKE(kl_sample, KlSample) { /* height, width, channels */
    Tensor moments = shapes_new(m, real(m), p[0], p[1], 2 * p[2]);
    a->y = shapes_new(m, real(m), p[0], p[1], p[2]);
    a->mean = tensor_slice(moments, 2, 0, p[2]);
    a->logvar = tensor_slice(moments, 2, p[2], p[2]);
    a->noise = shapes_new(m, real(m), p[0], p[1], p[2]);
    a->shift = 0.1159f, a->scale = 0.3611f;
}

MAKE(scale_noise, ScaleNoise) {
    a->y = shapes_new(m, real(m), p[0], p[1], p[2]);
    a->x = shapes_new(m, real(m), p[0], p[1], p[2]);
    a->noise = shapes_new(m, real(m), p[0], p[1], p[2]);
    a->sigma = 0.7109375f;
}

MAKE(to_rgb8, ToRgb8) {
    a->y = shapes_new(m, U8, p[0], p[1], 3);
    a->x = shapes_new(m, real(m), p[0], p[1], 3);
}

MAKE(count_nonfinite, CountNonfinite) {
    a->y = shapes_new(m, I32, 1);
    a->x = shapes_new(m, real(m), p[0], p[1]);
}

/* --- norms --- */

MAKE(layernorm, LayerNorm) { /* rows, columns */
    a->y = shapes_new(m, real(m), p[0], p[1]);
    a->x = shapes_new(m, real(m), p[0], p[1]);
    a->w = shapes_new(m, real(m), p[1]);
    a->b = shapes_new(m, real(m), p[1]);
    a->eps = 1e-5f;
}

MAKE(ln_modulate, LnModulate) { /* rows, columns; 1: without shift */
    a->y = shapes_new(m, real(m), p[0], p[1]);
    a->x = shapes_new(m, real(m), p[0], p[1]);
    a->scale = shapes_new(m, real(m), p[1]);
    if (!p[2]) a->shift = shapes_new(m, real(m), p[1]);
    a->eps = 1e-6f;
}

MAKE(residual_gate_ln_modulate, ResidualGateLnModulate) { /* tokens, columns */
    a->h = a->residual = shapes_new(m, real(m), p[0], p[1]);
    a->y = a->x = shapes_new(m, real(m), p[0], p[1]);
    a->gate = shapes_new(m, real(m), p[1]);
    a->scale = shapes_new(m, real(m), p[1]);
    a->shift = shapes_new(m, real(m), p[1]);
    a->eps = 1e-6f;
}

MAKE(rmsnorm, RmsNorm) { /* rows, columns, form; 1: without a weight */
    a->y = shapes_new(m, real(m), p[0], p[1]);
    a->x = shapes_new(m, real(m), p[0], p[1]);
    if (!p[3]) a->w = shapes_new(m, real(m), p[1]);
    a->eps = 1e-6f;
    a->form = (int32_t)p[2];
}

MAKE(rmsnorm_scale, RmsNormScale) {
    a->y = shapes_new(m, real(m), p[0], p[1]);
    a->x = shapes_new(m, real(m), p[0], p[1]);
    a->w = shapes_new(m, real(m), p[1]);
    a->scale = shapes_new(m, real(m), p[1]);
    a->eps = 1e-5f;
}

MAKE(residual_norm, ResidualNorm) {
    a->y = a->residual = shapes_new(m, real(m), p[0], p[1]);
    a->x = shapes_new(m, real(m), p[0], p[1]);
    a->w = shapes_new(m, real(m), p[1]);
    a->gate = shapes_new(m, real(m), p[1]);
    a->eps = 1e-5f;
}

MAKE(residual_norm_scale, ResidualNormScale) {
    a->y = a->residual = shapes_new(m, real(m), p[0], p[1]);
    a->n = a->x = shapes_new(m, real(m), p[0], p[1]);
    a->w = shapes_new(m, real(m), p[1]);
    a->gate = shapes_new(m, real(m), p[1]);
    a->w_next = shapes_new(m, real(m), p[1]);
    a->scale = shapes_new(m, real(m), p[1]);
    a->eps = 1e-5f;
}

/* q, k and v side by side in rows of that many columns; 0: apart. */
static void heads(Maker *m, const int64_t *p, int64_t wide, Tensor *q, Tensor *k, Tensor *v) {
    int64_t nq = p[1] * p[3], nk = p[2] * p[3];
    Tensor all = wide ? shapes_new(m, real(m), p[0], wide) : (Tensor){0};
    *q = tensor_split(wide ? tensor_slice(all, 1, 0, nq) : shapes_new(m, real(m), p[0], nq), p[3]);
    *k = tensor_split(wide ? tensor_slice(all, 1, nq, nk) : shapes_new(m, real(m), p[0], nk), p[3]);
    if (v) *v = tensor_split(wide ? tensor_slice(all, 1, nq + nk, nk) : shapes_new(m, real(m), p[0], nk), p[3]);
}

/* Tokens, heads, heads of k, head width, RoPE, form, columns of q, k and v's buffer. */
MAKE(qk_norm_rope_head, QkNormRopeHead) {
    heads(m, p, p[6], &a->q, &a->k, NULL);
    a->yq = a->q, a->yk = a->k;
    if (p[5] != RMS_NONE) a->wq = shapes_new(m, real(m), p[3]);
    if (p[5] != RMS_NONE) a->wk = shapes_new(m, real(m), p[3]);
    a->cos = shapes_wave(m, p[0], p[3] / 2, 0, p[4] == ROPE_HALF_EAGER);
    a->sin = shapes_wave(m, p[0], p[3] / 2, 1, p[4] == ROPE_HALF_EAGER);
    a->eps = 1e-6f;
    a->rope = (int32_t)p[4];
    a->form = (int32_t)p[5];
}

MAKE(groupnorm, GroupNorm) { /* height, width, channels; 1: a convolution's bias is added first */
    a->y = shapes_new(m, real(m), p[0], p[1], p[2]);
    a->x = shapes_new(m, real(m), p[0], p[1], p[2]);
    a->w = shapes_new(m, real(m), p[2]);
    a->b = shapes_new(m, real(m), p[2]);
    if (p[3]) a->bias = shapes_new(m, real(m), p[2]);
    a->eps = 1e-6f;
    a->groups = 32;
}

/* --- attention, convolution --- */

/* Tokens, heads, heads of k and v, head width, mask; columns of the buffers of o and of q, k and v (0: their own). */
MAKE(attention, Attention) {
    int64_t columns = p[1] * p[3];
    heads(m, p, p[6], &a->q, &a->k, &a->v);
    a->o = tensor_split(tensor_slice(shapes_new(m, real(m), p[0], p[5] ? p[5] : columns), 1, 0, columns), p[3]);
    a->scale = (float)(1 / sqrt((double)p[3]));
    a->mask = (int32_t)p[4];
}

/* Tokens, heads, heads of k and v, head width, mask; 1: with a bias, as T5, 2: with a window of 20; the soft cap. */
MAKE(attention_eager, AttentionEager) {
    a->o = shapes_new(m, real(m), p[0], p[1], p[3]);
    a->q = shapes_new(m, real(m), p[0], p[1], p[3]);
    a->k = shapes_new(m, real(m), p[0], p[2], p[3]);
    a->v = shapes_new(m, real(m), p[0], p[2], p[3]);
    if (p[5] == 1) a->bias = shapes_new(m, real(m), p[1], p[0], p[0]);
    a->scale = p[5] == 1 ? 1 : (float)(1 / sqrt((double)p[3]));
    a->mask = (int32_t)p[4];
    a->softcap = (float)p[6];
    a->window = p[5] == 2 ? 20 : 0;
}

MAKE(self_attention, SelfAttention) { /* pixels, channels */
    a->y = a->residual = shapes_new(m, real(m), p[0], p[1]);
    a->x = shapes_new(m, real(m), p[0], p[1]);
    a->wq = matrix(m, p[1], p[1], true);
    a->wk = matrix(m, p[1], p[1], true);
    a->wv = matrix(m, p[1], p[1], true);
    a->wo = matrix(m, p[1], p[1], true);
    a->scale = (float)(1 / sqrt((double)p[1]));
}

/* Height and width of y, channels in and out, kernel, form, the other path (1: there is one, 2: without its bias yet). */
static void convolution(Maker *m, const int64_t *p, Conv2d *a, int64_t scale) {
    a->y = shapes_new(m, real(m), p[0], p[1], p[3]);
    a->x = shapes_new(m, real(m), p[0] / scale, p[1] / scale, p[2]);
    a->w = shapes_weight(m, true, 4, (int64_t[]){p[3], p[4], p[4], p[2]});
    if (p[6]) a->skip = shapes_new(m, real(m), p[0], p[1], p[3]);
    if (p[6] == 2) a->skip_bias = shapes_new(m, real(m), p[3]);
    a->stride = 1;
    a->form = (int32_t)p[5];
    a->pad_top = a->pad_left = a->pad_bottom = a->pad_right = (int32_t)p[4] / 2;
}
MAKE(conv2d, Conv2d) { convolution(m, p, a, 1); }
MAKE(upsample_conv, Conv2d) { convolution(m, p, a, 2); }

/* Frames of y, height, width, channels in and out, kernel in time and space, form, the other path as for conv2d; 1: the border is
 * part of x, 2: zeros before the first frame and behind the last. */
MAKE(conv3d, Conv3d) {
    a->y = shapes_new(m, real(m), p[0], p[1], p[2], p[4]);
    int64_t border = p[9] == 1 ? 2 : 0;
    a->x = shapes_new(m, real(m), p[9] == 2 ? p[0] : p[0] - 1 + p[5], p[1] + border, p[2] + border, p[3]);
    a->w = shapes_weight(m, true, 5, (int64_t[]){p[4], p[5], p[6], p[6], p[3]});
    if (p[8]) a->skip = shapes_new(m, real(m), p[0], p[1], p[2], p[4]);
    if (p[8] == 2) a->skip_bias = shapes_new(m, real(m), p[4]);
    a->stride_t = 1;
    a->pad = p[9] == 1 ? 0 : (int32_t)p[6] / 2;
    a->pad_t = p[9] == 2;
    a->form = (int32_t)p[7];
    a->tf32 = 1;
}

/* A kernel over three frames as one over pictures whose pixels hold the channels of three frames: the same products. */
MAKE(conv_of_three, Conv2d) { /* frames, height, width, channels of a frame, of y */
    a->y = shapes_new(m, real(m), p[0], p[1], p[2], p[4]);
    a->x = shapes_new(m, real(m), p[0], p[1], p[2], 3 * p[3]);
    a->w = shapes_weight(m, true, 4, (int64_t[]){p[4], 3, 3, 3 * p[3]});
    a->stride = a->pad_top = a->pad_left = a->pad_bottom = a->pad_right = 1;
    a->form = CONV_RAW;
}

MAKE(roll, Roll) { /* new frames, height, width, channels */
    a->window = shapes_new(m, real(m), p[0] + 2, p[1], p[2], p[3]);
    a->cache = shapes_new(m, real(m), 2, p[1], p[2], p[3]);
}

MAKE(chan_rmsnorm, ChanRmsNorm) { /* frames, height, width, channels; 1: a convolution's bias is added first */
    a->y = shapes_new(m, real(m), p[0], p[1], p[2], p[3]);
    a->x = shapes_new(m, real(m), p[0], p[1], p[2], p[3]);
    a->w = shapes_new(m, real(m), p[3]);
    if (p[4]) a->bias = shapes_new(m, real(m), p[3]);
}

/* Frames, height, width, channels; 1: mirrored; what is added: 1 a bias, 2 and a skip, 3 and their sum takes its place. */
MAKE(window, Window) {
    int64_t border = 2 * p[4];
    a->y = shapes_new(m, real(m), p[0] + 2, p[1] + border, p[2] + border, p[3]);
    a->x = shapes_new(m, real(m), p[0], p[1], p[2], p[3]);
    if (p[5]) a->bias = shapes_new(m, real(m), p[3]);
    if (p[5] > 1) a->skip = shapes_new(m, real(m), p[0], p[1], p[2], p[3]);
    if (p[5] > 2) a->h = a->skip;
    a->eps = 1e-8f;
    a->before = 1;
    a->border = (int32_t)p[4];
}

/* Frames, height, width of the small side; channels of the large one; the factors; channels of skip, 0: none. */
static void depth(Maker *m, const int64_t *p, Depth *a, bool deep) {
    int64_t n = p[4] * p[5] * p[6];
    Tensor small = shapes_new(m, real(m), p[0], p[1], p[2], p[3] * n);
    Tensor large = shapes_new(m, real(m), p[0] * p[4] - (deep ? p[4] - 1 : 0), p[1] * p[5], p[2] * p[6], p[3]);
    a->y = deep ? large : small, a->x = deep ? small : large;
    a->bias = shapes_new(m, real(m), a->x.shape[3]);
    if (p[7]) a->skip = shapes_new(m, real(m), a->x.shape[0], a->x.shape[1], a->x.shape[2], p[7]);
    a->t = (int32_t)p[4], a->rows = (int32_t)p[5], a->columns = (int32_t)p[6];
    a->drop = deep ? a->t - 1 : 0;
}
MAKE(depth_to_space, Depth) { depth(m, p, a, true); }
MAKE(space_to_depth, Depth) { depth(m, p, a, false); }

MAKE(chan_affine, ChanAffine) { /* frames, height, width, channels */
    a->y = shapes_new(m, real(m), p[0], p[1], p[2], p[3]);
    a->x = shapes_new(m, F32, p[0], p[1], p[2], p[3]);
    a->a = shapes_new(m, real(m), p[3]);
    a->b = shapes_new(m, real(m), p[3]);
}

/* --- LTX-2's sound --- */

MAKE(line_conv, Conv2d) { /* rows of a signal, dilation, channels in and out, kernel; 1: the other path */
    int64_t down = (p[0] + p[1] - 1) / p[1];
    a->y = shapes_new(m, real(m), down, p[1], p[3]);
    a->x = shapes_new(m, real(m), down, p[1], p[2]);
    a->w = shapes_weight(m, true, 4, (int64_t[]){p[3], p[4], 1, p[2]});
    if (p[5]) a->skip = shapes_new(m, real(m), down, p[1], p[3]);
    a->stride = 1;
    a->pad_top = a->pad_bottom = (int32_t)p[4] / 2;
}

MAKE(leaky, Act) { /* rows, channels */
    a->y = shapes_new(m, real(m), p[0], p[1]);
    a->x = shapes_new(m, real(m), p[0], p[1]);
    a->kind = ACT_LEAKY_RELU, a->slope = 0.1f;
}

MAKE(conv_transpose1d, ConvTranspose1d) { /* rows, channels in and out, kernel, stride */
    a->stride = (int32_t)p[4], a->pad = (int32_t)(p[3] - p[4]) / 2;
    a->x = shapes_new(m, real(m), p[0], p[1]);
    a->y = shapes_new(m, real(m), (p[0] - 1) * a->stride - 2 * a->pad + p[3], p[2]);
    a->w = shapes_weight(m, false, 3, (int64_t[]){p[1], p[2], p[3]});
}

MAKE(mean3, Mean3) { /* rows, channels */
    Tensor *t = &a->y;
    for (int i = 0; i < 4; i++) t[i] = shapes_new(m, real(m), p[0], p[1]);
}

MAKE(fir_up, FirUp) { /* rows, channels, ratio, taps, pad, crop */
    a->x = shapes_new(m, real(m), p[0], p[1]);
    a->y = shapes_new(m, real(m), p[2] * p[0], p[1]);
    a->filter = shapes_new(m, real(m), p[3]);
    a->ratio = (int32_t)p[2], a->pad = (int32_t)p[4], a->crop = (int32_t)p[5];
}

MAKE(snake_filtered, SnakeFiltered) { /* rows, channels */
    a->x = shapes_new(m, real(m), p[0], p[1]);
    a->y = shapes_new(m, real(m), p[0], p[1]);
    a->alpha = shapes_new(m, real(m), p[1]);
    a->beta = shapes_new(m, real(m), p[1]);
    a->up = shapes_new(m, real(m), 12);
    a->down = shapes_new(m, real(m), 12);
}

MAKE(magnitude, Magnitude) { /* rows, frequencies */
    a->x = shapes_new(m, real(m), p[0], 2 * p[1]);
    a->y = shapes_new(m, real(m), p[0], p[1]);
}

/* --- SANA-Video --- */

MAKE(cross_attention, Attention) { /* tokens, keys, heads, head width: keys and values side by side, some keys masked */
    int64_t d = p[2] * p[3];
    Tensor kv = shapes_new(m, real(m), p[1], 2 * d);
    a->o = tensor_split(shapes_new(m, real(m), p[0], d), p[3]);
    a->q = tensor_split(shapes_new(m, real(m), p[0], d), p[3]);
    a->k = tensor_split(tensor_slice(kv, 1, 0, d), p[3]);
    a->v = tensor_split(tensor_slice(kv, 1, d, d), p[3]);
    a->bias = shapes_mask(m, p[1], p[1] / 3);
    a->scale = (float)(1 / sqrt((double)p[3]));
    a->mask = MASK_NONE;
}

MAKE(norm_relu_rope, NormReluRope) { /* tokens, heads, head width; columns of x's buffer, of yr's */
    int64_t d = p[1] * p[2];
    a->y = a->x = tensor_slice(shapes_new(m, real(m), p[0], p[3]), 1, 0, d);
    a->yr = tensor_slice(shapes_new(m, real(m), p[0], p[4]), 1, 0, d);
    a->w = shapes_new(m, real(m), d);
    a->cos = shapes_wave(m, p[0], p[2] / 2, 0, false);
    a->sin = shapes_wave(m, p[0], p[2] / 2, 1, false);
    a->eps = 1e-5f;
}

MAKE(rope_split, RopeSplit) { /* tokens, heads, head width: in place */
    a->y = a->x = shapes_new(m, real(m), p[0], p[1], p[2]);
    a->cos = tensor_split(shapes_wave(m, p[0], p[1] * p[2] / 2, 0, false), p[2] / 2);
    a->sin = tensor_split(shapes_wave(m, p[0], p[1] * p[2] / 2, 1, false), p[2] / 2);
}

MAKE(rms_modulate, RmsModulate) { /* rows, columns */
    a->y = shapes_new(m, real(m), p[0], p[1]);
    a->x = shapes_new(m, real(m), p[0], p[1]);
    a->scale = shapes_new(m, real(m), p[1]);
    a->shift = shapes_new(m, real(m), p[1]);
    a->eps = 1e-6f;
}

MAKE(residual_rms_modulate, ResidualRmsModulate) { /* rows, columns; 1: a gate, 2: a second modulation, 4: none at all */
    a->h = a->residual = shapes_new(m, real(m), p[0], p[1]);
    a->y = a->x = shapes_new(m, real(m), p[0], p[1]);
    if (p[2] & 1) a->gate = shapes_new(m, real(m), p[1]);
    a->eps = 1e-6f;
    if (p[2] & 4) return;
    a->scale = shapes_new(m, real(m), p[1]);
    a->shift = shapes_new(m, real(m), p[1]);
    if (!(p[2] & 2)) return;
    a->y2 = shapes_new(m, real(m), p[0], p[1]);
    a->scale2 = shapes_new(m, real(m), p[1]);
    a->shift2 = shapes_new(m, real(m), p[1]);
}

MAKE(norm_rope_split, NormRopeSplit) { /* tokens, heads, head width; columns of the buffer; 1: with k */
    int64_t d = p[1] * p[2];
    Tensor buffer = shapes_new(m, real(m), p[0], p[3]);
    a->yq = a->q = tensor_slice(buffer, 1, 0, d);
    a->wq = shapes_new(m, real(m), d);
    if (p[4]) a->yk = a->k = tensor_slice(buffer, 1, d, d), a->wk = shapes_new(m, real(m), d);
    a->cos = shapes_wave(m, p[0], d / 2, 0, false);
    a->sin = shapes_wave(m, p[0], d / 2, 1, false);
    a->eps = 1e-6f;
    a->heads = (int32_t)p[1];
}

MAKE(head_gate, HeadGate) { /* tokens, heads, head width */
    a->y = a->x = shapes_new(m, real(m), p[0], p[1], p[2]);
    a->logits = shapes_new(m, real(m), p[0], p[1]);
}

MAKE(cos_sin, CosSin) {
    a->cos = a->x = shapes_new(m, F32, p[0], p[1]);
    a->sin = shapes_new(m, F32, p[0], p[1]);
}

/* Tokens, channels, layers, tokens of padding. */
MAKE(stack_range_norm, StackRangeNorm) {
    a->x = shapes_new(m, real(m), p[0], p[1], p[2]);
    a->y = shapes_new(m, real(m), p[0], p[1], p[2]);
    a->eps = 1e-6f, a->scale = 8, a->first = (int32_t)p[3];
}

MAKE(stack_rms_norm, StackRmsNorm) {
    a->x = shapes_new(m, real(m), p[0], p[1], p[2]);
    a->y = shapes_new(m, real(m), p[0], p[1], p[2]);
    a->eps = 1e-6f, a->first = (int32_t)p[3];
}

/* Tokens, heads, heads of k and v, head width, tokens of padding in front: causal behind them. */
MAKE(masked_attention, Attention) {
    a->o = shapes_new(m, real(m), p[0], p[1], p[3]);
    a->q = shapes_new(m, real(m), p[0], p[1], p[3]);
    a->k = shapes_new(m, real(m), p[0], p[2], p[3]);
    a->v = shapes_new(m, real(m), p[0], p[2], p[3]);
    a->bias = shapes_pairs(m, p[0], p[4]);
    a->scale = (float)(1 / sqrt((double)p[3]));
    a->mask = MASK_NONE;
}

MAKE(linear_attention, LinearAttention) { /* tokens, heads, head width: q, k and v side by side, and the rotated ones */
    int64_t d = p[1] * p[2];
    Tensor qkv = shapes_positive(m, p[0], 3 * d), turned = shapes_new(m, real(m), p[0], 2 * d);
    a->o = tensor_split(shapes_new(m, real(m), p[0], d), p[2]);
    a->q = tensor_split(tensor_slice(qkv, 1, 0, d), p[2]);
    a->k = tensor_split(tensor_slice(qkv, 1, d, d), p[2]);
    a->v = tensor_split(tensor_slice(qkv, 1, 2 * d, d), p[2]);
    a->qr = tensor_split(tensor_slice(turned, 1, 0, d), p[2]);
    a->kr = tensor_split(tensor_slice(turned, 1, d, d), p[2]);
    a->eps = 1e-15f;
}

MAKE(linear_after, Linear) { /* M, K, N: a bias behind a rounding */
    a->x = shapes_new(m, real(m), p[0], p[1]);
    a->y = shapes_new(m, real(m), p[0], p[2]);
    a->w = matrix(m, p[2], p[1], true);
    a->bias_mode = BIAS_AFTER;
}

MAKE(dwconv3_glu, Dwconv3Glu) { /* frames, height, width, channels of y; 1: a bias and SiLU before it */
    a->y = shapes_new(m, real(m), p[0], p[1], p[2], p[3]);
    a->x = shapes_new(m, real(m), p[0], p[1], p[2], 2 * p[3]);
    if (p[4]) a->before = shapes_new(m, real(m), 2 * p[3]);
    a->w = shapes_weight(m, true, 4, (int64_t[]){2 * p[3], 3, 3, 1});
}

MAKE(temporal_conv, Conv2d) { /* frames, tokens of a frame, channels: added to what it reads */
    a->y = shapes_new(m, real(m), p[0], p[1], p[2]);
    a->x = a->skip = shapes_new(m, real(m), p[0], p[1], p[2]);
    a->w = shapes_weight(m, false, 4, (int64_t[]){p[2], 3, 1, p[2]});
    a->stride = a->pad_top = a->pad_bottom = 1;
    a->form = CONV_RAW;
}

MAKE(patch_conv, Conv2d) { /* rows of latents, columns, channels, width of the tokens */
    a->x = shapes_new(m, real(m), p[0], p[1], p[2]);
    a->y = shapes_new(m, real(m), p[0] / 2, p[1] / 2, p[3]);
    a->w = shapes_weight(m, true, 4, (int64_t[]){p[3], 2, 2, p[2]});
    a->stride = 2;
    a->form = CONV_BIAS;
}

/* --- the tables --- */

static const ShapeCase FULL[] = {
    {OP_copy, "flux.text_rows", {512, 3072}, copy},
    {OP_copy, "rows of a transposed picture", {4096, 3072, 1}, copy},
    {OP_embed, "t5", {512, 32128, 4096}, embed},
    {OP_embed, "qwen3", {512, 151936, 2560}, embed},
    {OP_embed, "gemma2", {519, 256000, 2304}, embed},
    {OP_rel_bias, "t5", {64, 512}, rel_bias},
    {OP_pack, "flux", {16, 128, 128}, pack},
    {OP_unpack, "flux", {16, 128, 128}, unpack},
    {OP_linear, "flux.double.out image", {4096, 3072, 3072, 1}, linear},
    {OP_linear, "flux.double.out text", {512, 3072, 3072, 1}, linear},
    {OP_linear, "flux.double.ff_out image", {4096, 12288, 3072, 1}, linear},
    {OP_linear, "flux.double.ff_out text", {512, 12288, 3072, 1}, linear},
    {OP_linear, "one row", {1, 3072, 18432, 1}, linear},
    {OP_linear, "flux.single.out", {4608, 15360, 3072, 1}, linear},
    {OP_linear, "flux.x_embedder", {4096, 64, 3072, 1}, linear},
    {OP_linear, "flux.proj_out", {4096, 3072, 64, 1}, linear},
    {OP_linear, "t5.o", {512, 4096, 4096, 0}, linear},
    {OP_linear, "t5.wo", {512, 10240, 4096, 0}, linear},
    {OP_linear, "gemma2, q", {519, 2304, 2048, 0}, linear},
    {OP_linear, "gemma2, k", {519, 2304, 1024, 0}, linear},
    {OP_linear, "gemma2, o", {519, 2048, 2304, 0}, linear},
    {OP_linear, "gemma2, up", {519, 2304, 9216, 0}, linear},
    {OP_linear, "gemma2, down", {519, 9216, 2304, 0}, linear},
    {OP_linear, "gemma2, long, q", {1352, 2304, 2048, 0}, linear},
    {OP_linear, "gemma2, long, k", {1352, 2304, 1024, 0}, linear},
    {OP_linear, "gemma2, long, o", {1352, 2048, 2304, 0}, linear},
    {OP_linear, "gemma2, long, up", {1352, 2304, 9216, 0}, linear},
    {OP_linear, "gemma2, long, down", {1352, 9216, 2304, 0}, linear},
    {OP_linear, "zimage.out", {4128, 3840, 3840, 0}, linear},
    {OP_linear, "zimage.w2", {4128, 10240, 3840, 0}, linear},
    {OP_linear, "ltx2.text_proj_in", {1024, 188160, 3840, 0}, linear},
    {OP_linear, "ltx2.text_proj_in, both prompts", {2048, 188160, 3840, 0}, linear},
    {OP_linear_rows, "flux.double.mod", {28, 3072, 18432, 1, 1056768}, linear},
    {OP_linear_rows, "flux.single.mod", {28, 3072, 9216, 1, 1056768}, linear},
    {OP_linear_many, "flux.double.qkv image", {4096, 3072, PACK | BIAS, 3072, 3072, 3072}, linear_many},
    {OP_linear_many, "flux.double.qkv text", {512, 3072, PACK | BIAS, 3072, 3072, 3072}, linear_many},
    {OP_linear_many, "t5.qkv", {512, 4096, NO_BIAS, 4096, 4096, 4096}, linear_many},
    {OP_linear_many, "t5.wi", {512, 4096, NO_BIAS, 10240, 10240}, linear_many},
    {OP_linear_many, "zimage.qkv", {4128, 3840, PACK, 3840, 3840, 3840}, linear_many},
    {OP_linear_many, "zimage.w1_w3", {4128, 3840, PACK, 10240, 10240}, linear_many},
    {OP_linear_many_gelu, "flux.single.qkv_mlp", {4608, 3072, PACK | BIAS, 3072, 3072, 3072, 12288}, linear_many_gelu},
    {OP_linear_gelu, "flux.double.ff_in image", {4096, 3072, 12288, 1}, linear},
    {OP_linear_gelu, "flux.double.ff_in text", {512, 3072, 12288, 1}, linear},
    {OP_linear_gelu, "into a wider buffer", {4608, 3072, 12288, 1, 15360}, linear},
    {OP_act, "flux.temb", {1, 3072, ACT_SILU}, act},
    {OP_act, "flux.mlp", {4608, 12288, ACT_GELU_TANH}, act},
    {OP_act_mul, "t5", {512, 10240, ACT_GELU_NEW}, act_mul},
    {OP_act_mul, "gemma2", {519, 9216, ACT_GELU_TANH}, act_mul},
    {OP_act_mul, "gemma2, long", {1352, 9216, ACT_GELU_TANH}, act_mul},
    {OP_act_mul, "zimage", {4128, 10240, ACT_SILU, 1}, act_mul},
    {OP_add, "t5", {512, 4096}, add},
    {OP_add, "vae.up.0", {128 * 128, 512}, add},
    {OP_add, "vae.up.2", {512 * 512, 256}, add},
    {OP_add, "vae.up.3", {1024 * 1024, 128}, add},
    {OP_residual_gate, "flux.double image", {4096, 3072, GATE_ROW}, residual_gate},
    {OP_residual_gate, "flux.double text", {512, 3072, GATE_ROW}, residual_gate},
    {OP_residual_gate, "flux.single", {4608, 3072, GATE_ROW}, residual_gate},
    {OP_residual_gate, "by token", {4096, 3072, GATE_TOKEN}, residual_gate},
    {OP_residual_gate, "by element", {4096, 3072, GATE_FULL}, residual_gate},
    {OP_residual_gate, "sana video, transposed", {7800, 2240, GATE_ROW, 1}, residual_gate},
    {OP_residual_gate, "sana video, in rows", {7800, 2240, GATE_ROW}, residual_gate},
    {OP_layernorm, "clip", {77, 768}, layernorm},
    {OP_layernorm, "width of flux", {4096, 3072}, layernorm},
    {OP_ln_modulate, "flux.double image", {4096, 3072}, ln_modulate},
    {OP_ln_modulate, "flux.double text", {512, 3072}, ln_modulate},
    {OP_ln_modulate, "flux.single", {4608, 3072}, ln_modulate},
    {OP_ln_modulate, "zimage.final", {4096, 3840, 1}, ln_modulate},
    {OP_ln_modulate, "sana video", {7800, 2240}, ln_modulate},
    {OP_residual_gate_ln_modulate, "flux.double.norm2 image", {4096, 3072}, residual_gate_ln_modulate},
    {OP_residual_gate_ln_modulate, "flux.double.norm2 text", {512, 3072}, residual_gate_ln_modulate},
    {OP_residual_gate_ln_modulate, "flux.single.gate", {4608, 3072}, residual_gate_ln_modulate},
    {OP_modulate, "4096 tokens", {4096, 3072}, modulate},
    {OP_modulate, "by token", {4096, 3072, 1}, modulate},
    {OP_rmsnorm, "t5", {512, 4096, RMS_TWICE}, rmsnorm},
    {OP_rmsnorm, "qwen3", {512, 2560, RMS_TWICE}, rmsnorm},
    {OP_rmsnorm, "sana.cross, 81 frames", {32760, 2240, RMS_TWICE}, rmsnorm},
    {OP_rmsnorm, "gemma2", {519, 2304, RMS_PLUS_ONE}, rmsnorm},
    {OP_rmsnorm, "gemma2, long", {1352, 2304, RMS_PLUS_ONE}, rmsnorm},
    {OP_rmsnorm, "gemma3", {1024, 3840, RMS_PLUS_ONE}, rmsnorm},
    {OP_rmsnorm, "ltx2 connector", {1024, 3840, RMS_ONCE, 1}, rmsnorm},
    {OP_rmsnorm_scale, "zimage", {4128, 3840}, rmsnorm_scale},
    {OP_rmsnorm_scale, "zimage.noise_refiner", {4096, 3840}, rmsnorm_scale},
    {OP_residual_norm, "zimage", {4128, 3840}, residual_norm},
    {OP_residual_norm, "zimage.noise_refiner", {4096, 3840}, residual_norm},
    {OP_residual_norm_scale, "zimage", {4128, 3840}, residual_norm_scale},
    {OP_residual_norm_scale, "zimage.noise_refiner", {4096, 3840}, residual_norm_scale},
    {OP_qk_norm_rope_head, "flux.double image", {4096, 24, 24, 128, ROPE_INTERLEAVED, RMS_ONCE, 9216}, qk_norm_rope_head},
    {OP_qk_norm_rope_head, "flux.double text", {512, 24, 24, 128, ROPE_INTERLEAVED, RMS_ONCE, 9216}, qk_norm_rope_head},
    {OP_qk_norm_rope_head, "flux.single", {4608, 24, 24, 128, ROPE_INTERLEAVED, RMS_ONCE, 21504}, qk_norm_rope_head},
    {OP_qk_norm_rope_head, "zimage", {4128, 30, 30, 128, ROPE_COMPLEX, RMS_TWICE, 11520}, qk_norm_rope_head},
    {OP_qk_norm_rope_head, "qwen3", {512, 32, 8, 128, ROPE_HALF_EAGER, RMS_TWICE}, qk_norm_rope_head},
    {OP_qk_norm_rope_head, "gemma2", {519, 8, 4, 256, ROPE_HALF_EAGER, RMS_NONE}, qk_norm_rope_head},
    {OP_qk_norm_rope_head, "gemma2, long", {1352, 8, 4, 256, ROPE_HALF_EAGER, RMS_NONE}, qk_norm_rope_head},
    {OP_qk_norm_rope_head, "gemma3", {1024, 16, 8, 256, ROPE_HALF_EAGER, RMS_PLUS_ONE}, qk_norm_rope_head},
    {OP_attention, "flux.double", {4608, 24, 24, 128, MASK_NONE, 0, 9216}, attention},
    {OP_attention, "flux.single", {4608, 24, 24, 128, MASK_NONE, 15360, 21504}, attention},
    {OP_attention, "zimage", {4128, 30, 30, 128, MASK_NONE, 0, 11520}, attention},
    {OP_attention, "vae.mid", {16384, 1, 1, 512, MASK_NONE}, attention},
    {OP_attention_eager, "t5", {512, 64, 64, 64, MASK_NONE, 1}, attention_eager},
    {OP_attention_eager, "clip", {77, 12, 12, 64, MASK_CAUSAL}, attention_eager},
    {OP_attention_eager, "qwen3", {512, 32, 8, 128, MASK_CAUSAL}, attention_eager},
    {OP_attention_eager, "gemma2", {519, 8, 4, 256, MASK_CAUSAL, 0, 50}, attention_eager},
    {OP_attention_eager, "gemma2, long", {1352, 8, 4, 256, MASK_CAUSAL, 0, 50}, attention_eager},
    {OP_time_embed, "flux", {256}, time_embed},
    {OP_cfg_combine, "flux", {4096, 64}, cfg_combine},
    {OP_cfg_extrapolate, "zimage", {16, 16384, 1}, cfg_combine},
    {OP_norm_limit, "zimage", {16, 16384}, norm_limit},
    {OP_guide_x0, "ltx2.video", {6144, 128}, guide_x0},
    {OP_velocity_x0, "ltx2.video", {6144, 128}, velocity_x0},
    {OP_negate, "zimage", {16, 16384}, negate},
    {OP_euler_step, "flux", {4096, 64}, euler_step},
    {OP_euler_step, "zimage", {16, 16384, 1}, euler_step},
    {OP_dpm_step, "sana-video", {16, 131040}, dpm_step},
    {OP_affine, "vae.in", {128, 128, 16}, affine},
    {OP_kl_sample, "vae.encoder", {128, 128, 16}, kl_sample},
    {OP_scale_noise, "img2img", {16, 128, 128}, scale_noise},
    {OP_to_rgb8, "vae.picture", {1024, 1024}, to_rgb8},
    {OP_count_nonfinite, "flux.velocity", {4096, 64}, count_nonfinite},
    {OP_count_nonfinite, "vae.picture", {1024 * 1024, 3}, count_nonfinite},
    {OP_self_attention, "vae.mid", {16384, 512}, self_attention},
    {OP_conv2d, "vae.conv_in", {128, 128, 16, 512, 3}, conv2d},
    {OP_conv2d, "vae.up.0 conv1", {128, 128, 512, 512, 3, CONV_RAW}, conv2d},
    {OP_conv2d, "vae.up.0 conv2", {128, 128, 512, 512, 3, CONV_BIAS, 1}, conv2d},
    {OP_conv2d, "vae.up.1 conv1", {256, 256, 512, 512, 3, CONV_RAW}, conv2d},
    {OP_conv2d, "vae.up.1 conv2", {256, 256, 512, 512, 3, CONV_BIAS, 1}, conv2d},
    {OP_conv2d, "vae.up.2 first conv1", {512, 512, 512, 256, 3, CONV_RAW}, conv2d},
    {OP_conv2d, "vae.up.2 shortcut", {512, 512, 512, 256, 1, CONV_RAW}, conv2d},
    {OP_conv2d, "vae.up.2 first conv2", {512, 512, 256, 256, 3, CONV_BIAS, 2}, conv2d},
    {OP_conv2d, "vae.up.2 conv1", {512, 512, 256, 256, 3, CONV_RAW}, conv2d},
    {OP_conv2d, "vae.up.3 first conv1", {1024, 1024, 256, 128, 3, CONV_RAW}, conv2d},
    {OP_conv2d, "vae.up.3 shortcut", {1024, 1024, 256, 128, 1, CONV_RAW}, conv2d},
    {OP_conv2d, "vae.up.3 first conv2", {1024, 1024, 128, 128, 3, CONV_BIAS, 2}, conv2d},
    {OP_conv2d, "vae.up.3 conv1", {1024, 1024, 128, 128, 3, CONV_RAW}, conv2d},
    {OP_conv2d, "vae.conv_out", {1024, 1024, 128, 3, 3}, conv2d},
    {OP_upsample_conv, "vae.up.0", {256, 256, 512, 512, 3}, upsample_conv},
    {OP_upsample_conv, "vae.up.1", {512, 512, 512, 512, 3}, upsample_conv},
    {OP_upsample_conv, "vae.up.2", {1024, 1024, 256, 256, 3}, upsample_conv},
    {OP_groupnorm, "vae.mid", {128, 128, 512}, groupnorm},
    {OP_groupnorm_silu, "vae.up.0 norm1", {128, 128, 512}, groupnorm},
    {OP_groupnorm_silu, "vae.up.0 norm2", {128, 128, 512, 1}, groupnorm},
    {OP_groupnorm_silu, "vae.up.1 norm2", {256, 256, 512, 1}, groupnorm},
    {OP_groupnorm_silu, "vae.up.2 first norm1", {512, 512, 512}, groupnorm},
    {OP_groupnorm_silu, "vae.up.2 norm2", {512, 512, 256, 1}, groupnorm},
    {OP_groupnorm_silu, "vae.up.3 first norm1", {1024, 1024, 256}, groupnorm},
    {OP_groupnorm_silu, "vae.up.3 norm2", {1024, 1024, 128, 1}, groupnorm},
    {OP_conv3d, "wan.conv_in", {1, 60, 104, 16, 384, 3, 3, CONV_BIAS}, conv3d},
    {OP_conv3d, "wan.mid conv1", {1, 60, 104, 384, 384, 3, 3, CONV_RAW}, conv3d},
    {OP_conv3d, "wan.up.0 time", {1, 60, 104, 384, 768, 3, 1, CONV_BIAS}, conv3d},
    {OP_conv3d, "wan.up.1 shortcut", {2, 120, 208, 192, 384, 1, 1, CONV_RAW}, conv3d},
    {OP_conv3d, "wan.up.1 conv1", {2, 120, 208, 384, 384, 3, 3, CONV_RAW}, conv3d},
    {OP_conv3d, "wan.up.2 conv1", {4, 240, 416, 192, 192, 3, 3, CONV_RAW}, conv3d},
    {OP_conv3d, "wan.up.2 conv2", {4, 240, 416, 192, 192, 3, 3, CONV_BIAS, 1}, conv3d},
    {OP_conv3d, "wan.up.3 conv1", {4, 480, 832, 96, 96, 3, 3, CONV_RAW}, conv3d},
    {OP_conv3d, "wan.up.3 conv2", {4, 480, 832, 96, 96, 3, 3, CONV_BIAS, 1}, conv3d},
    {OP_conv2d, "wan.up.1 conv1 by pictures", {2, 120, 208, 384, 384}, conv_of_three},
    {OP_conv2d, "wan.up.2 conv1 by pictures", {4, 240, 416, 192, 192}, conv_of_three},
    {OP_conv2d, "wan.up.3 conv1 by pictures", {4, 480, 832, 96, 96}, conv_of_three},
    {OP_conv3d, "wan.conv_out", {4, 480, 832, 96, 3, 3, 3, CONV_BIAS}, conv3d},
    {OP_roll, "wan.up.3", {4, 480, 832, 96}, roll},
    {OP_roll, "wan.mid", {1, 60, 104, 384}, roll},
    {OP_chan_rmsnorm, "wan.mid", {1, 60, 104, 384}, chan_rmsnorm},
    {OP_chan_rmsnorm_silu, "wan.up.1", {2, 120, 208, 384, 1}, chan_rmsnorm},
    {OP_chan_rmsnorm_silu, "wan.up.2", {4, 240, 416, 192, 1}, chan_rmsnorm},
    {OP_chan_rmsnorm_silu, "wan.up.3 norm1", {4, 480, 832, 96}, chan_rmsnorm},
    {OP_chan_rmsnorm_silu, "wan.up.3 norm2", {4, 480, 832, 96, 1}, chan_rmsnorm},
    {OP_chan_affine, "wan.in", {21, 60, 104, 16}, chan_affine},
    {OP_conv3d, "ltx2.mid", {16, 16, 24, 1024, 1024, 3, 3, CONV_RAW, 0, 1}, conv3d},
    {OP_conv3d, "ltx2.up.0", {16, 16, 24, 1024, 4096, 3, 3, CONV_RAW, 0, 1}, conv3d},
    {OP_conv3d, "ltx2.up.0 resnet", {31, 32, 48, 512, 512, 3, 3, CONV_RAW, 0, 1}, conv3d},
    {OP_conv3d, "ltx2.up.1 resnet", {61, 64, 96, 256, 256, 3, 3, CONV_RAW, 0, 1}, conv3d},
    {OP_conv3d, "ltx2.up.2", {16, 64, 96, 256, 1024, 3, 3, CONV_RAW, 0, 1}, conv3d},
    {OP_conv3d, "ltx2.up.2 resnet", {32, 128, 192, 128, 128, 3, 3, CONV_RAW, 0, 1}, conv3d},
    {OP_conv3d, "ltx2.3 up.3 resnet", {32, 128, 192, 128, 128, 3, 3, CONV_RAW}, conv3d},
    {OP_conv3d, "ltx2.conv_out", {32, 128, 192, 128, 48, 3, 3, CONV_BIAS, 0, 1}, conv3d},
    {OP_conv3d, "ltx2.upsampler", {16, 16, 24, 1024, 1024, 3, 3, CONV_RAW, 0, 2}, conv3d},
    {OP_frame_window, "ltx2.up.2", {61, 64, 96, 256, 1, 2}, window},
    {OP_pixelnorm_silu, "ltx2.mid", {16, 16, 24, 1024, 1, 3}, window},
    {OP_pixelnorm_silu, "ltx2.up.1 norm1", {61, 64, 96, 256, 1, 3}, window},
    {OP_pixelnorm_silu, "ltx2.up.2 norm1", {32, 128, 192, 128, 1, 3}, window},
    {OP_pixelnorm_silu, "ltx2.up.2 norm2", {32, 128, 192, 128, 1, 1}, window},
    {OP_pixelnorm_silu, "ltx2.3 up.3 norm2", {32, 128, 192, 128, 0, 1}, window},
    {OP_depth_to_space, "ltx2.up.0", {16, 16, 24, 512, 2, 2, 2, 1024}, depth_to_space},
    {OP_depth_to_space, "ltx2.up.2", {16, 64, 96, 128, 2, 2, 2, 256}, depth_to_space},
    {OP_depth_to_space, "ltx2.3 up.3", {32, 64, 96, 128, 1, 2, 2, 0}, depth_to_space},
    {OP_depth_to_space, "ltx2.upsampler", {16, 16, 24, 1024, 1, 2, 2, 0}, depth_to_space},
    {OP_groupnorm_silu, "ltx2.upsampler norm1", {256, 24, 1024, 1}, groupnorm},
    {OP_groupnorm_silu, "ltx2.upsampler norm1, enlarged", {512, 48, 1024, 1}, groupnorm},
    {OP_space_to_depth, "ltx2.enc.down.0", {1, 64, 96, 64, 1, 2, 2, 128}, space_to_depth},
    {OP_space_to_depth, "ltx2.enc.down.2", {4, 32, 48, 64, 2, 2, 2, 512}, space_to_depth},
    {OP_conv2d, "sana.patch, 17 frames", {300, 104, 16, 2240}, patch_conv},
    {OP_linear_many, "sana.qkv, 17 frames", {7800, 2240, PACK, 2240, 2240, 2240}, linear_many},
    {OP_norm_relu_rope, "sana, 17 frames", {7800, 20, 112, 6720, 4480}, norm_relu_rope},
    {OP_norm_relu_rope, "sana, 81 frames", {32760, 20, 112, 6720, 4480}, norm_relu_rope},
    {OP_linear_attention, "sana, 17 frames", {7800, 20, 112}, linear_attention},
    {OP_linear_attention, "sana, 81 frames", {32760, 20, 112}, linear_attention},
    {OP_attention, "sana.cross, 17 frames", {7800, 300, 20, 112}, cross_attention},
    {OP_attention, "sana.cross, 81 frames", {32760, 300, 20, 112}, cross_attention},
    {OP_rope_split, "ltx2 video, 121 frames", {6144, 32, 128}, rope_split},
    {OP_rope_split, "ltx2 audio, 121 frames", {126, 32, 64}, rope_split},
    {OP_rope_split, "ltx2 connector", {1024, 30, 128}, rope_split},
    {OP_stack_range_norm, "ltx2", {1024, 3840, 49, 1012}, stack_range_norm},
    {OP_stack_range_norm, "ltx2, long prompt", {1024, 3840, 49, 700}, stack_range_norm},
    {OP_stack_rms_norm, "ltx2.3", {1024, 3840, 49, 1012}, stack_rms_norm},
    {OP_attention, "gemma3", {1024, 16, 8, 256, 1012}, masked_attention},
    {OP_attention, "gemma3, long prompt", {1024, 16, 8, 256, 700}, masked_attention},
    {OP_rms_modulate, "ltx2.video, 2 x 121 frames", {12288, 4096}, rms_modulate},
    {OP_residual_rms_modulate, "ltx2.video.text, 2 x 121 frames", {12288, 4096, 1}, residual_rms_modulate},
    {OP_residual_rms_modulate, "ltx2.video.cross, 2 x 121 frames", {12288, 4096, 2}, residual_rms_modulate},
    {OP_rms_modulate, "ltx2.video, 121 frames", {6144, 4096}, rms_modulate},
    {OP_residual_rms_modulate, "ltx2.video.cross, 121 frames", {6144, 4096, 2}, residual_rms_modulate},
    {OP_residual_rms_modulate, "ltx2.video.plain, 121 frames", {6144, 4096, 5}, residual_rms_modulate},
    {OP_residual_rms_modulate, "ltx2.audio.ff, 2 x 121 frames", {252, 2048, 1}, residual_rms_modulate},
    {OP_norm_rope_split, "ltx2.video, 121 frames", {6144, 32, 128, 12288, 1}, norm_rope_split},
    {OP_norm_rope_split, "ltx2.cross, 121 frames", {6144, 32, 64, 2048}, norm_rope_split},
    {OP_norm_rope_split, "ltx2.audio, 121 frames", {126, 32, 64, 6144, 1}, norm_rope_split},
    {OP_head_gate, "ltx2.video, 2 x 121 frames", {12288, 32, 128}, head_gate},
    {OP_cos_sin, "ltx2.video, 121 frames", {6144, 2048}, cos_sin},
    {OP_dwconv3_glu, "sana.ff, 17 frames", {5, 30, 52, 6720, 1}, dwconv3_glu},
    {OP_dwconv3_glu, "sana.ff, 81 frames", {21, 30, 52, 6720, 1}, dwconv3_glu},
    {OP_dwconv3_glu, "the same alone", {21, 30, 52, 6720}, dwconv3_glu},
    {OP_linear, "sana.cross, 81 frames", {32760, 2240, 2240, 1}, linear},
    {OP_linear, "sana.out, bias after, 81 frames", {32760, 2240, 2240}, linear_after},
    {OP_linear, "sana.point, 17 frames", {7800, 6720, 2240, 0}, linear},
    {OP_conv2d, "sana.temporal, 17 frames", {5, 1560, 2240}, temporal_conv},
    {OP_conv2d, "sana.temporal, 81 frames", {21, 1560, 2240}, temporal_conv},
    {OP_conv2d, "ltx2.vocoder conv_in", {501, 1, 128, 1024, 7}, line_conv},
    {OP_conv2d, "ltx2.vocoder stage 0, dilated", {3006, 5, 512, 512, 11}, line_conv},
    {OP_conv2d, "ltx2.vocoder stage 4", {120240, 1, 32, 32, 11, 1}, line_conv},
    {OP_act, "ltx2.vocoder stage 4", {120240, 32}, leaky},
    {OP_conv_transpose1d, "ltx2.vocoder up.0", {501, 1024, 512, 16, 6}, conv_transpose1d},
    {OP_conv_transpose1d, "ltx2.vocoder up.4", {60120, 64, 32, 4, 2}, conv_transpose1d},
    {OP_conv_transpose1d, "ltx2.bwe up.1", {6012, 256, 128, 11, 5}, conv_transpose1d},
    {OP_mean3, "ltx2.vocoder stage 4", {120240, 32}, mean3},
    {OP_snake_filtered, "ltx2.vocoder 2.3 stage 0", {2505, 768}, snake_filtered},
    {OP_snake_filtered, "ltx2.vocoder 2.3 stage 5", {80160, 24}, snake_filtered},
    {OP_snake_filtered, "ltx2.bwe stage 4", {240480, 16}, snake_filtered},
    {OP_fir_up, "ltx2.bwe skip", {80160, 2, 3, 43, 7, 42}, fir_up},
    {OP_magnitude, "ltx2.bwe mel", {1002, 257}, magnitude},
    {.name = NULL},
};

static const ShapeCase SMALL[] = {
    {OP_copy, "demo.text_rows", {512, 128}, copy},
    {OP_embed, "demo.t5", {512, 1000, 128}, embed},
    {OP_rel_bias, "demo.t5", {2, 512}, rel_bias},
    {OP_pack, "demo", {16, 16, 16}, pack},
    {OP_unpack, "demo", {16, 16, 16}, unpack},
    {OP_linear, "demo.single.out", {576, 640, 128, 1}, linear},
    {OP_linear, "one row", {1, 128, 384, 1}, linear},
    {OP_linear_rows, "demo.single.mod", {28, 128, 384, 1, 5632}, linear},
    {OP_linear_many, "demo.double.qkv text", {512, 128, PACK | BIAS, 128, 128, 128}, linear_many},
    {OP_linear_many_gelu, "demo.single.qkv_mlp", {576, 128, PACK | BIAS, 128, 128, 128, 512}, linear_many_gelu},
    {OP_linear_gelu, "into a wider buffer", {576, 128, 512, 1, 640}, linear},
    {OP_linear_gelu, "demo.double.ff_in text", {512, 128, 512, 1}, linear},
    {OP_act, "demo.temb", {1, 128, ACT_SILU}, act},
    {OP_act_mul, "demo.t5", {512, 256, ACT_GELU_NEW}, act_mul},
    {OP_add, "demo.vae", {128 * 128, 32}, add},
    {OP_residual_gate, "demo.single", {576, 128, GATE_ROW}, residual_gate},
    {OP_residual_gate, "transposed", {576, 128, GATE_ROW, 1}, residual_gate},
    {OP_layernorm, "demo.clip", {77, 128}, layernorm},
    {OP_ln_modulate, "demo.single", {576, 128}, ln_modulate},
    {OP_ln_modulate, "a few rows, width of flux", {21, 3072}, ln_modulate},
    {OP_residual_gate_ln_modulate, "demo.single", {576, 128}, residual_gate_ln_modulate},
    {OP_modulate, "576 tokens", {576, 128}, modulate},
    {OP_rmsnorm, "demo.t5", {512, 128, RMS_TWICE}, rmsnorm},
    {OP_rmsnorm, "as gemma2", {64, 128, RMS_PLUS_ONE}, rmsnorm},
    {OP_rmsnorm_scale, "width of demo", {576, 128}, rmsnorm_scale},
    {OP_residual_norm, "width of demo", {576, 128}, residual_norm},
    {OP_residual_norm_scale, "width of demo", {576, 128}, residual_norm_scale},
    {OP_qk_norm_rope_head, "demo.single", {576, 1, 1, 128, ROPE_INTERLEAVED, RMS_ONCE, 896}, qk_norm_rope_head},
    {OP_qk_norm_rope_head, "as gemma2", {64, 4, 2, 32, ROPE_HALF_EAGER, RMS_NONE}, qk_norm_rope_head},
    {OP_attention, "demo.single", {576, 1, 1, 128, MASK_NONE, 640, 896}, attention},
    {OP_attention_eager, "demo.t5", {512, 2, 2, 64, MASK_NONE, 1}, attention_eager},
    {OP_attention_eager, "as gemma2", {96, 4, 2, 32, MASK_CAUSAL, 2, 2}, attention_eager},
    {OP_time_embed, "demo", {256}, time_embed},
    {OP_cfg_combine, "demo", {64, 64}, cfg_combine},
    {OP_cfg_extrapolate, "small", {16, 256, 1}, cfg_combine},
    {OP_norm_limit, "small", {16, 256}, norm_limit},
    {OP_guide_x0, "small", {126, 128}, guide_x0},
    {OP_velocity_x0, "small", {126, 128}, velocity_x0},
    {OP_negate, "small", {16, 256}, negate},
    {OP_euler_step, "demo", {64, 64}, euler_step},
    {OP_dpm_step, "small", {16, 256}, dpm_step},
    {OP_affine, "demo.vae.in", {16, 16, 16}, affine},
    {OP_kl_sample, "demo.vae.encoder", {16, 16, 16}, kl_sample},
    {OP_scale_noise, "demo", {16, 16, 16}, scale_noise},
    {OP_to_rgb8, "demo.vae.picture", {128, 128}, to_rgb8},
    {OP_count_nonfinite, "demo.velocity", {64, 64}, count_nonfinite},
    {OP_self_attention, "demo.vae.mid", {256, 64}, self_attention},
    {OP_conv2d, "demo.vae conv1", {64, 64, 64, 64, 3, CONV_RAW}, conv2d},
    {OP_conv2d, "demo.vae conv2", {64, 64, 64, 64, 3, CONV_BIAS, 2}, conv2d},
    {OP_upsample_conv, "demo.vae", {64, 64, 64, 64, 3}, upsample_conv},
    {OP_groupnorm, "demo.vae.mid", {16, 16, 64}, groupnorm},
    {OP_groupnorm_silu, "demo.vae norm1", {64, 48, 128}, groupnorm},
    {OP_groupnorm_silu, "demo.vae last norm2", {128, 128, 32, 1}, groupnorm},
    {OP_conv3d, "small frames", {4, 48, 64, 32, 32, 3, 3, CONV_BIAS, 1}, conv3d},
    {OP_roll, "small frames", {4, 48, 64, 32}, roll},
    {OP_chan_rmsnorm, "small frames", {1, 48, 64, 32}, chan_rmsnorm},
    {OP_chan_rmsnorm_silu, "small frames", {4, 48, 64, 32, 1}, chan_rmsnorm},
    {OP_chan_affine, "small frames", {5, 6, 8, 16}, chan_affine},
    {OP_frame_window, "small frames", {4, 12, 16, 64, 1, 2}, window},
    {OP_pixelnorm_silu, "small frames", {4, 12, 16, 64, 1, 3}, window},
    {OP_depth_to_space, "small frames", {4, 6, 8, 32, 2, 2, 2, 64}, depth_to_space},
    {OP_space_to_depth, "small frames", {4, 6, 8, 32, 2, 2, 2, 64}, space_to_depth},
    {OP_conv2d, "small sana.patch", {24, 16, 16, 224}, patch_conv},
    {OP_conv2d, "small sana.temporal", {3, 48, 224}, temporal_conv},
    {OP_norm_relu_rope, "small sana", {144, 2, 112, 672, 448}, norm_relu_rope},
    {OP_linear_attention, "small sana", {144, 2, 112}, linear_attention},
    {OP_attention, "small sana.cross", {144, 300, 2, 112}, cross_attention},
    {OP_linear, "small, bias after", {144, 224, 1344}, linear_after},
    {OP_rope_split, "small ltx2", {48, 4, 32}, rope_split},
    {OP_stack_range_norm, "small ltx2", {32, 48, 5, 11}, stack_range_norm},
    {OP_stack_rms_norm, "small ltx2", {32, 48, 5, 11}, stack_rms_norm},
    {OP_attention, "small gemma3", {40, 4, 2, 32, 9}, masked_attention},
    {OP_rms_modulate, "small ltx2", {48, 128}, rms_modulate},
    {OP_residual_rms_modulate, "small ltx2", {48, 128, 3}, residual_rms_modulate},
    {OP_norm_rope_split, "small ltx2", {48, 4, 32, 384, 1}, norm_rope_split},
    {OP_head_gate, "small ltx2", {48, 4, 32}, head_gate},
    {OP_cos_sin, "small ltx2", {48, 64}, cos_sin},
    {OP_dwconv3_glu, "small sana.ff", {3, 8, 6, 672, 1}, dwconv3_glu},
    {OP_dwconv3_glu, "small, alone", {3, 8, 6, 672}, dwconv3_glu},
    {OP_conv2d, "small vocoder, dilated", {300, 3, 32, 32, 7, 1}, line_conv},
    {OP_act, "small vocoder", {300, 32}, leaky},
    {OP_conv_transpose1d, "small vocoder", {50, 64, 32, 16, 6}, conv_transpose1d},
    {OP_mean3, "small vocoder", {300, 32}, mean3},
    {OP_snake_filtered, "small vocoder", {300, 32}, snake_filtered},
    {OP_fir_up, "small vocoder", {300, 2, 3, 43, 7, 42}, fir_up},
    {OP_magnitude, "small vocoder", {30, 257}, magnitude},
    {.name = NULL},
};

const ShapeCase *shapes_cases(bool small) { return small ? SMALL : FULL; }
