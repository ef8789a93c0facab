/* vae_rewrite_cpu.c - the CPU table's variants of the family vae-kl-rewrite (vae_rewrite.h): the meaning of the GPU's.
 *
 * Plain loops; the products are those of the table. Easy to get wrong: taps are summed in the order the header states,
 * rows before columns, since a GPU's weights must have the same bits. */
#include "kernels/gemm_cpu.h"
#include "kernels/registry.h"
#include "kernels/vae_rewrite.h"

/* --- upsample_conv --- */

/* Element i of a contiguous tensor; mapped weights may lie at odd addresses. */
static float element(const Tensor *t, int64_t i) {
    uint16_t v;
    memcpy(&v, (const char *)t->data + 2 * i, sizeof v);
    return bf16_to_f32(v);
}

/* Weight of output o at kernel row and column, input c. */
static float tap_at(const Tensor *w, int64_t o, int64_t row, int64_t column, int64_t c) {
    return element(w, ((o * 3 + row) * 3 + column) * w->shape[3] + c);
}

/* Of the three taps along one direction, the ones that meet at place t (0 or 1) of phase a: from *from, *count of them. */
static void meeting(int a, int t, int *from, int *count) {
    *from = a ? 2 * t : t;
    *count = a == t ? 1 : 2;
}

static Status taps(Exec *x, const Conv2d *a, Tensor w) {
    const Tensor *from = &a->w->w;
    int64_t out = from->shape[0], in = from->shape[3];
    (void)x;
    for (int64_t i = 0; i < 4 * out; i++) {
        int phase = (int)(i / out);
        for (int place = 0; place < 4; place++) {
            int row, rows, column, columns;
            meeting(phase / 2, place / 2, &row, &rows);
            meeting(phase % 2, place % 2, &column, &columns);
            uint16_t *to = (uint16_t *)w.data + (i * 4 + place) * in;
            for (int64_t c = 0; c < in; c++) {
                float sum = 0;
                for (int k = 0; k < columns; k++) {
                    float both = tap_at(from, i % out, row, column + k, c);
                    if (rows == 2) both += tap_at(from, i % out, row + 1, column + k, c);
                    sum = k ? sum + both : both;
                }
                to[c] = bf16_from_f32(sum);
            }
        }
    }
    return OK;
}

static uint16_t *at(const Tensor *t, int64_t y, int64_t x) {
    return (uint16_t *)t->data + y * t->stride[0] + x * t->stride[1];
}

static Status spread(Exec *x, const Conv2d *a, Tensor in) {
    int64_t out = a->y.shape[2];
    bool biased = a->w->bias.rank && a->form == CONV_BIAS;
    (void)x;
    for (int64_t y = 0; y < a->y.shape[0]; y++)
        for (int64_t i = 0; i < a->y.shape[1]; i++) {
            const uint16_t *from = at(&in, (y + 1) / 2, (i + 1) / 2) + (2 * (y & 1) + (i & 1)) * out;
            const uint16_t *skip = a->skip.rank ? at(&a->skip, y, i) : NULL;
            uint16_t *to = at(&a->y, y, i);
            for (int64_t c = 0; c < out; c++) {
                float v = bf16_to_f32(from[c]);
                if (biased) v = bf16_round(v + element(&a->w->bias, c));
                if (skip) {
                    float s = bf16_to_f32(skip[c]);
                    v += a->skip_bias.rank ? bf16_round(s + element(&a->skip_bias, c)) : s;
                }
                to[c] = bf16_from_f32(v);
            }
        }
    return OK;
}

static Status upsample_conv(Exec *x, const void *args) {
    static const VaeRewriteUpsample PIECES = {taps, spread};
    return vae_rewrite_upsample(x, args, &PIECES);
}

/* --- self_attention --- */

static Status fold(Exec *x, const SelfAttention *a, Tensor w, Tensor b) {
    int64_t c = w.shape[0], square = c * c;
    size_t bytes = vae_rewrite_fold_scratch(c);
    float *scratch = arena_push(x->scratch, bytes);
    if (!scratch) return fail(x->error, ERR_MEMORY, "self_attention: no scratch of %zu bytes", bytes);
    float *wo = scratch, *wv = wo + square, *product = wv + square;
    gemm_widen(wo, a->wo->w.data, BF16, BF16, square);
    gemm_widen(wv, a->wv->w.data, BF16, BF16, square);
    gemm_threads();
    gemm_nn(c, c, c, 1, wo, c, wv, c, 0, product, c);
    gemm_narrow(w.data, BF16, product, square);
    for (int64_t n = 0; n < c; n++) {
        float sum = 0;
        for (int64_t m = 0; m < c; m++) sum += wo[n * c + m] * element(&a->wv->bias, m);
        ((uint16_t *)b.data)[n] = bf16_from_f32(sum + element(&a->wo->bias, n));
    }
    return OK;
}

static Status self_attention(Exec *x, const void *args) {
    static const VaeRewriteAttention PIECES = {fold, NULL};
    return vae_rewrite_attention(x, args, &PIECES);
}

const Impl VAE_KL_REWRITE_CPU[] = {
    {OP_groupnorm_silu, "cpu_f32", groupnorm_cpu_silu_f32, groupnorm_cpu_scratch, vae_rewrite_norm_accepts},
    {OP_upsample_conv, "cpu_phases", upsample_conv, vae_rewrite_upsample_scratch, vae_rewrite_upsample_accepts},
    {OP_self_attention, "cpu_folded", self_attention, vae_rewrite_attention_scratch, vae_rewrite_attention_accepts},
};
const int VAE_KL_REWRITE_CPU_COUNT = sizeof VAE_KL_REWRITE_CPU / sizeof *VAE_KL_REWRITE_CPU;
