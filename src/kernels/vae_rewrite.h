/* vae_rewrite.h - the family vae-kl-rewrite: ops of the VAEs' decoders re-associated, with fewer roundings than their contracts.
 *
 *   groupnorm_silu: x' = x + bias and SiLU's input z stay in f32, y = r(silu(fmaf(p, x', q))), silu within 9 units of f32, and
 *     2 |z| more where z < 0: what is rounded off the exponent. Statistics are rounded as in the contract, since that costs
 *     nothing.
 *   upsample_conv: nearest x2 then 3x3 is, for each of the four output phases (2i + a, 2j + b), a 2x2 convolution of x with
 *     taps summed in f32 and rounded once (rows for a = 0: k0 | k1 + k2, from row i - 1 on; a = 1: k0 + k1 | k2, from
 *     row i on; columns alike; rows are summed first). All four are one convolution to 4 Cout channels at (Y+1)(X+1)
 *     places, then a move: 16 products for 4 pixels where the contract has 36. c = r(that), then the contract's bias and
 *     skip.
 *   self_attention: softmax rows sum to one, so wo goes into v: W = r(wo . wv), B = r(wo . bv + bo), v = linear{x, W, B,
 *     BIAS_FUSED}, q and k as in the contract, y = r(residual + attention{q, k, v}).
 * BF16 only: without roundings there is none to leave out. Weights are transformed anew in each call (once a decode): it
 * costs microseconds, and scratch is all the memory it takes.
 * This header: what the variants of both devices and the family's guards share. */
#ifndef KERNELS_VAE_REWRITE_H
#define KERNELS_VAE_REWRITE_H

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Guards. */
bool vae_rewrite_norm_accepts(const void *args, char *why, size_t size);
bool vae_rewrite_upsample_accepts(const void *args, char *why, size_t size);
bool vae_rewrite_attention_accepts(const void *args, char *why, size_t size);

/* self_attention with wo folded into wv, on any device (self_attention.c). fold() makes w [C,C] = r(wo . wv) and
 * b [C] = r(wo . bv + bo), in at most vae_rewrite_fold_scratch(C) bytes of x->scratch; attend() is attention in any order, in the
 * scratch of the table's reference, NULL: that reference. */
typedef struct VaeRewriteAttention {
    Status (*fold)(Exec *x, const SelfAttention *a, Tensor w, Tensor b);
    Status (*attend)(Exec *x, const void *attention);
} VaeRewriteAttention;
Status vae_rewrite_attention(Exec *x, const SelfAttention *a, const VaeRewriteAttention *pieces);
size_t vae_rewrite_attention_scratch(const Exec *x, const void *args);
static inline size_t vae_rewrite_fold_scratch(int64_t c) { return (size_t)(3 * c * c) * sizeof(float) + 3 * ARENA_ALIGN; }

/* upsample_conv by phases, on any device (vae_rewrite.c), frames in one convolution. taps() makes w [4 Cout,2,2,Cin] from a's
 * weight, phase 2a + b first; spread(), for each frame, moves in [Y+1,X+1,4 Cout], r(the convolution), to y with the
 * contract's bias and skip. */
typedef struct VaeRewriteUpsample {
    Status (*taps)(Exec *x, const Conv2d *a, Tensor w);
    Status (*spread)(Exec *x, const Conv2d *a, Tensor in);
} VaeRewriteUpsample;
Status vae_rewrite_upsample(Exec *x, const Conv2d *a, const VaeRewriteUpsample *pieces);
/* The convolution inside, without memory: its shapes are those of *conv, w is where conv's weight is described. */
void vae_rewrite_phases(const Conv2d *a, Conv2d *conv, Weight *w);
size_t vae_rewrite_upsample_scratch(const Exec *x, const void *args);

/* groupnorm_silu of the family. */
Status groupnorm_cpu_silu_f32(Exec *x, const void *args);
size_t groupnorm_cpu_scratch(const Exec *x, const void *args);
#ifdef HAVE_CUDA
Status groupnorm_cuda_silu_f32(Exec *x, const void *args);
size_t groupnorm_cuda_scratch(const Exec *x, const void *args);
#endif

#ifdef __cplusplus
}
#endif

#endif
