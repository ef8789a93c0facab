/* test_sana_mutants.c - do the goldens of SANA-Video's transformer notice? As test_zimage_mutants.c: every tensor perturbed by
 * 10 % of its rms, tensors and their rows exchanged, configs changed (f32), and ops with one rounding or step wrong (bf16,
 * blocks fed with the reference's input). Each fault must raise some stage above its limit and at least tenfold.
 *
 * Easy to get wrong: the norms of cross attention's q and k may be exchanged (their weights only meet as a product). */
#include "fault_steps.h"
#include "golden_bench.h"
#include "golden_sana.h"

static Status measure(Bench *b, const char *model, bool bf16) {
    return golden_sana(&b->g, model, bf16 ? BF16 : F32, &(SanaRun){.clean = 0});
}

/* --- the checkpoint --- */

static void exchanged(Bench *b) {
#define L "transformer_blocks.0."
#define R "transformer_blocks.1."
    static const char *const SWAPS[][2] = {
        {L "attn1.to_q.weight", L "attn1.to_k.weight"},   {L "attn1.to_k.weight", L "attn1.to_v.weight"},
        {L "attn1.to_v.weight", L "attn1.to_out.0.weight"}, {L "attn1.norm_q.weight", L "attn1.norm_k.weight"},
        {L "attn2.to_q.weight", L "attn2.to_k.weight"},   {L "attn2.to_k.weight", L "attn2.to_v.weight"},
        {L "attn1.to_q.weight", L "attn2.to_q.weight"},
        {L "scale_shift_table", R "scale_shift_table"},   {L "ff.conv_depth.weight", R "ff.conv_depth.weight"},
        {L "attn2.to_k.bias", L "attn2.to_v.bias"},
    };
    bench_swaps(b, SWAPS, sizeof SWAPS / sizeof *SWAPS);
    for (int64_t i = 0; i < 6; i++) /* shift, scale, gate, twice */
        for (int64_t j = i + 1; j < 6; j++) {
            bench_rows(b, L "scale_shift_table", i, j, 1);
            bench_rows(b, "time_embed.linear.weight", 32 * i, 32 * j, 32);
        }
    bench_rows(b, "scale_shift_table", 0, 1, 1);
    bench_rows(b, L "ff.conv_inverted.weight", 0, 83, 83); /* halves of the gated convolution */
    bench_rows(b, L "ff.conv_depth.weight", 0, 83, 83);
    bench_rows(b, L "ff.conv_depth.bias", 0, 83, 83);
    bench_rows(b, L "attn2.norm_q.weight", 0, 16, 16); /* a norm of heads, not of rows */
    bench_rows(b, "proj_out.weight", 0, 6, 6);         /* the channel is fastest */
#undef L
#undef R
}

static void configs(Bench *b) {
    static const struct { const char *key, *value, *refusal; } FAULTS[] = {
        {"norm_eps", "0.01", NULL},
        {"caption_channels", "21", "caption_projection"},
        {"num_layers", "1", "transformer_blocks.1"},
        {"mlp_ratio", "2.5", "ff.conv_inverted"},
        {"in_channels", "7", "out_channels"},
    };
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++)
        bench_config(b, FAULTS[i].key, FAULTS[i].value, FAULTS[i].refusal);
    mutate_json(b->model, "config.json", "attention_head_dim", "8"); /* other axes: 4 heads of 8 */
    mutate_json(b->model, "config.json", "num_attention_heads", "4");
    bench_configured(b, "4 heads of 8", NULL);
    mutate_json(b->model, "config.json", "cross_attention_head_dim", "8");
    mutate_json(b->model, "config.json", "num_cross_attention_heads", "4");
    bench_configured(b, "4 cross heads of 8", NULL);
}

/* --- ops --- */

static float get(Tensor t, int64_t row, int64_t j) {
    uint16_t h;
    int64_t at = t.rank == 1 ? j * t.stride[0] : row * t.stride[0] + j;
    if (t.dtype == F32) {
        float f;
        return memcpy(&f, (char *)t.data + at * 4, 4), f;
    }
    memcpy(&h, (char *)t.data + at * 2, 2);
    return bf16_to_f32(h);
}

static void set(Tensor t, int64_t row, int64_t j, float v) {
    uint16_t h = bf16_from_f32(v);
    memcpy((char *)t.data + (row * t.stride[0] + j) * 2, &h, 2);
}

/* Of norm_relu_rope: what is left out or done otherwise. */
enum { NO_RELU = 1, RELU_LAST = 2, NORM_ONCE = 4, HALVES = 8, AXES = 16, EACH_HEAD = 32, ROTATED = 64, EPS = 128 };

static Status turn(const NormReluRope *a, int how) {
    int64_t d = a->x.shape[1], half = a->cos.shape[1], e = 2 * half;
    float v[512];
    for (int64_t t = 0; t < a->x.shape[0]; t++) {
        for (int64_t j = 0; j < d; j++) {
            double sum = 0;
            int64_t first = how & EACH_HEAD ? j / e * e : 0, n = how & EACH_HEAD ? e : d;
            for (int64_t i = first; i < first + n; i++) sum += (double)get(a->x, t, i) * (double)get(a->x, t, i);
            v[j] = get(a->x, t, j) * (float)(1 / sqrt(sum / (double)n + (how & EPS ? 1e-2 : (double)a->eps)));
            if (!(how & NORM_ONCE)) v[j] = bf16_round(v[j]);
            v[j] = bf16_round(v[j] * get(a->w, 0, j));
            if (!(how & (NO_RELU | RELU_LAST)) && v[j] < 0) v[j] = 0;
        }
        for (int64_t j = 0; j < d; j++) set(a->y, t, j, how & RELU_LAST && v[j] < 0 ? 0 : v[j]);
        for (int64_t h = 0; h < d; h += e)
            for (int64_t i = 0; i < half; i++) {
                int64_t p = how & HALVES ? i : 2 * i, q = how & HALVES ? i + half : 2 * i + 1;
                int64_t k = how & AXES && i >= half - 4 ? half - 4 + (i - (half - 4) + 2) % 4
                                                        : i; /* rows and columns: 2 pairs each */
                float c = get(a->cos, t, k), s = get(a->sin, t, k), x0 = v[h + p], x1 = v[h + q];
                float y0 = x0 * c - x1 * s, y1 = x1 * c + x0 * s;
                if (how & RELU_LAST) y0 = y0 > 0 ? y0 : 0, y1 = y1 > 0 ? y1 : 0;
                set(a->yr, t, h + p, y0), set(a->yr, t, h + q, y1);
                if (how & ROTATED) set(a->y, t, h + p, fmaxf(y0, 0)), set(a->y, t, h + q, fmaxf(y1, 0));
            }
    }
    return OK;
}
#define TURN(name, how) static Status name(Exec *x, const void *a) { return (void)x, turn(a, how); }
TURN(turn_right, 0)
TURN(no_relu, NO_RELU)
TURN(relu_last, RELU_LAST)
TURN(norm_once, NORM_ONCE)
TURN(halves, HALVES)
TURN(axes, AXES)
TURN(each_head, EACH_HEAD)
TURN(rotated, ROTATED)
TURN(norm_eps, EPS)

/* Of linear_attention: roundings of the normaliser kept or left out. */
enum { SUM = 1, DOT = 2, INVERSE = 4, U_ROUNDED = 8, STATE_ROUNDED = 16, NO_LAST = 32, TRANSPOSED = 64 };

static float keep(float v, int how, int bit) { return how & bit ? v : bf16_round(v); }

static Status attend(const LinearAttention *a, int how) {
    int64_t tokens = a->q.shape[0], e = a->q.shape[2];
    for (int64_t h = 0; h < a->q.shape[1]; h++) {
        Tensor part[6];
        for (int i = 0; i < 6; i++) {
            Tensor t = (&a->o)[i];
            part[i] = tensor_slice(t, 1, h, 1);
            part[i] = (Tensor){.data = part[i].data,
                               .dtype = t.dtype,
                               .rank = 2,
                               .shape = {tokens, e},
                               .stride = {t.stride[0], 1}};
        }
        float n[64], state[64][64];
        for (int64_t j = 0; j < e; j++) {
            double sum = 0;
            for (int64_t t = 0; t < tokens - !!(how & NO_LAST); t++) sum += (double)get(part[2], t, j);
            n[j] = keep((float)sum, how, SUM);
            for (int64_t i = 0; i < e; i++) {
                double s = 0;
                for (int64_t t = 0; t < tokens - !!(how & NO_LAST); t++)
                    s += (double)get(part[5], t, i) * (double)get(part[4], t, j);
                state[i][j] = how & STATE_ROUNDED ? bf16_round((float)s) : (float)s;
            }
        }
        for (int64_t t = 0; t < tokens; t++) {
            double dot = 0;
            for (int64_t j = 0; j < e; j++) dot += (double)n[j] * (double)get(part[1], t, j);
            float d = keep((float)dot, how, DOT), z = keep(1 / keep(d + a->eps, how, DOT), how, INVERSE);
            for (int64_t i = 0; i < e; i++) {
                double u = 0;
                for (int64_t j = 0; j < e; j++)
                    u += (double)(how & TRANSPOSED ? state[j][i] : state[i][j]) * (double)get(part[3], t, j);
                set(part[0], t, i, (how & U_ROUNDED ? bf16_round((float)u) : (float)u) * z);
            }
        }
    }
    return OK;
}
#define ATTEND(name, how) static Status name(Exec *x, const void *a) { return (void)x, attend(a, how); }
ATTEND(attend_right, 0)
ATTEND(sum_kept, SUM)
ATTEND(dot_kept, DOT)
ATTEND(inverse_kept, INVERSE)
ATTEND(u_rounded, U_ROUNDED)
ATTEND(state_rounded, STATE_ROUNDED)
ATTEND(no_last, NO_LAST)
ATTEND(state_transposed, TRANSPOSED)

static Status bias_fused(Exec *x, const void *args) {
    Linear a = *(const Linear *)args;
    a.bias_mode = BIAS_FUSED;
    return fault_call(x, OP_linear, &a);
}
/* Of dwconv3_glu. */
enum { GATE_FIRST = 1, BIAS_INSIDE = 2, SILU_KEPT = 4, SHIFTED = 8, NO_SILU = 16, BEFORE_KEPT = 32, BEFORE_BARE = 64,
       BEFORE_LEFT = 128, FIRST_KEPT = 256 };

static Status depth(const Dwconv3Glu *a, int how) {
    int64_t ch = a->y.shape[3], hh = a->x.shape[1], ww = a->x.shape[2];
    for (int64_t i = 0; i < tensor_numel(a->y); i++) {
        int64_t c = i % ch, x = i / ch % ww, y = i / ch / ww % hh, f = i / ch / ww / hh;
        float d[2];
        for (int half = 0; half < 2; half++) {
            int64_t k = (half ^ (how & GATE_FIRST)) * ch + c;
            float sum = 0;
            for (int64_t ky = 0; ky < 3; ky++)
                for (int64_t kx = 0; kx < 3; kx++) {
                    int64_t iy = y + ky - 1, ix = x + kx - (how & SHIFTED ? 0 : 1);
                    uint16_t h;
                    if (iy < 0 || iy >= hh || ix < 0 || ix >= ww) continue;
                    memcpy(&h, (uint16_t *)a->x.data + ((f * hh + iy) * ww + ix) * 2 * ch + k, 2);
                    float v = bf16_to_f32(h) + (how & BEFORE_LEFT ? 0 : get(a->before, 0, k));
                    v = keep(v, how, BEFORE_KEPT);
                    if (!(how & BEFORE_BARE)) v = keep(v / (1 + expf(-v)), how, FIRST_KEPT);
                    sum = fmaf(v, get(tensor_view(a->w->w, 2 * ch, 9), k, ky * 3 + kx), sum);
                }
            d[half] = bf16_round(keep(sum, how, BIAS_INSIDE) + get(a->w->bias, 0, k));
        }
        float s = how & NO_SILU ? d[1] : keep(d[1] / (1 + expf(-d[1])), how, SILU_KEPT);
        set(tensor_view(a->y, 1, tensor_numel(a->y)), 0, i, d[0] * s);
    }
    return OK;
}
#define DEPTH(name, how) static Status name(Exec *x, const void *a) { return (void)x, depth(a, how); }
DEPTH(depth_right, 0)
DEPTH(gate_first, GATE_FIRST)
DEPTH(bias_inside, BIAS_INSIDE)
DEPTH(silu_kept, SILU_KEPT)
DEPTH(shifted, SHIFTED)
DEPTH(no_silu, NO_SILU)
DEPTH(before_kept, BEFORE_KEPT)
DEPTH(before_bare, BEFORE_BARE)
DEPTH(before_left, BEFORE_LEFT)
DEPTH(first_kept, FIRST_KEPT)

static Status no_mask(Exec *x, const void *args) {
    Attention a = *(const Attention *)args;
    a.bias = (Tensor){0};
    return fault_call(x, OP_attention, &a);
}
static Status mask_short(Exec *x, const void *args) { /* one real key less */
    Attention a = *(const Attention *)args;
    a.k = tensor_slice(a.k, 0, 0, SANA_REAL - 1), a.v = tensor_slice(a.v, 0, 0, SANA_REAL - 1), a.bias = (Tensor){0};
    return fault_call(x, OP_attention, &a);
}
static Status mask_long(Exec *x, const void *args) { /* one more */
    Attention a = *(const Attention *)args;
    a.k = tensor_slice(a.k, 0, 0, SANA_REAL + 1), a.v = tensor_slice(a.v, 0, 0, SANA_REAL + 1), a.bias = (Tensor){0};
    return fault_call(x, OP_attention, &a);
}

/* The temporal convolution stands out by its kernel. */
static bool temporal(const Conv2d *a) { return a->w->w.shape[1] == 3 && a->w->w.shape[2] == 1; }
static Status late(Exec *x, const void *args) { /* a frame off */
    Conv2d a = *(const Conv2d *)args;
    if (temporal(&a)) a.pad_top = 0, a.pad_bottom = 2;
    return fault_call(x, OP_conv2d, &a);
}
static Status causal(Exec *x, const void *args) {
    Conv2d a = *(const Conv2d *)args;
    if (temporal(&a)) a.pad_top = 2, a.pad_bottom = 0;
    return fault_call(x, OP_conv2d, &a);
}
static Status no_skip(Exec *x, const void *args) {
    Conv2d a = *(const Conv2d *)args;
    a.skip = (Tensor){0};
    return fault_call(x, OP_conv2d, &a);
}

static void faulty_ops(Bench *b) {
#define F(what, op, run) {what, {OP_##op, "fault", run, NULL, NULL}}
    static const BenchFault FAULTS[] = {
        F("no ReLU", norm_relu_rope, no_relu),
        F("ReLU after the rotation", norm_relu_rope, relu_last),
        F("QK norm rounds once", norm_relu_rope, norm_once),
        F("RoPE of halves", norm_relu_rope, halves),
        F("RoPE rows and columns swapped", norm_relu_rope, axes),
        F("QK norm of each head", norm_relu_rope, each_head),
        F("normaliser of rotated keys", norm_relu_rope, rotated),
        F("QK norm eps 1e-2", norm_relu_rope, norm_eps),
        F("sum of keys not rounded", linear_attention, sum_kept),
        F("normaliser's dot product not rounded", linear_attention, dot_kept),
        F("normaliser not rounded", linear_attention, inverse_kept),
        F("S q rounded", linear_attention, u_rounded),
        F("S rounded", linear_attention, state_rounded),
        F("last token not seen", linear_attention, no_last),
        F("S transposed", linear_attention, state_transposed),
        F("biases fused", linear, bias_fused),
        F("conv_inverted with its bias not rounded", dwconv3_glu, before_kept),
        F("no bias behind conv_inverted", dwconv3_glu, before_left),
        F("no SiLU behind conv_inverted", dwconv3_glu, before_bare),
        F("SiLU behind conv_inverted not rounded", dwconv3_glu, first_kept),
        F("GLU halves swapped", dwconv3_glu, gate_first),
        F("depthwise bias inside the sum", dwconv3_glu, bias_inside),
        F("SiLU of the gate not rounded", dwconv3_glu, silu_kept),
        F("depthwise taps one column off", dwconv3_glu, shifted),
        F("gate without SiLU", dwconv3_glu, no_silu),
        F("no mask", attention, no_mask),
        F("mask one key short", attention, mask_short),
        F("mask one key long", attention, mask_long),
        F("temporal convolution a frame early", conv2d, late),
        F("temporal convolution causal", conv2d, causal),
        F("temporal convolution without its input", conv2d, no_skip),
        F("no gates", residual_gate, fault_no_gate),
        F("caption and cross norms round once", rmsnorm, fault_rms_once),
        F("shift and scale swapped", ln_modulate, fault_shift_for_scale),
        F("sine before cosine", time_embed, fault_sines_first),
    };
#undef F
    static const Impl RIGHT[] = { /* the stand-ins without a fault must be the ops: else their faults prove nothing */
        {OP_norm_relu_rope, "right", turn_right, NULL, NULL}, {OP_linear_attention, "right", attend_right, NULL, NULL},
        {OP_dwconv3_glu, "right", depth_right, NULL, NULL}};
    bench_right(b, RIGHT, sizeof RIGHT / sizeof *RIGHT);
    bench_faults(b, FAULTS, sizeof FAULTS / sizeof *FAULTS);
}

int main(void) {
    static Bench b; /* lint: allow-static (test program: the sheets are large) */
    if (bench_open(&b) != OK) return printf("%s\n", b.g.error.text), 1;
    b.name = "sana_video", b.file = SANA_FILE, b.measure = measure;
    sana_write(b.clean);
    mutate_copy_folder(b.clean, b.model);
    for (int bf16 = 0; bf16 < 2; bf16++) bench_keep(&b, bf16);
    expect(bench_tensors(&b, NULL) == 16 + 2 * 24);
    exchanged(&b);
    configs(&b);
    faulty_ops(&b);
    return bench_close(&b);
}
