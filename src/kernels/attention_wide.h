/* attention_wide.h - attention of wide BF16 heads (256 < E <= 512, the KL VAEs' mid block) in the arithmetic order of PyTorch's
 * memory-efficient kernel, which its dispatcher takes where neither cuDNN nor FlashAttention serves. A piece of
 * attention_cuda.c: arguments are checked there.
 *
 * The order, a function of the row alone: keys in blocks of 128. s = (q.k * scale) * log2(e), each product rounded; q.k
 * summed from 0 over dims in steps of 8, one matrix instruction (m16n8k8, f32) a step. top = max(top, block's scores);
 * keep = exp2(top before - top), 1 when it stayed; p = exp2(s - top). l = l keep, then + the sums of keys 0-31, 32-63, 64-95,
 * 96-127 in this order; inside such a sum lane t = 0..3 adds keys 2t, 2t+1, 8+2t, 9+2t, ... serially, then lanes 0+1 and
 * 2+3, then both. p is rounded to bf16 after it was summed; a = p.v summed from 0 over the block's keys in steps of 8;
 * o = fma(keep, o, a). The last block: r = 1 / l, o = r(fma(a, r, (r keep) o)); a single block: o = r(a r). */
#ifndef KERNELS_ATTENTION_WIDE_H
#define KERNELS_ATTENTION_WIDE_H

#include "kernels/cuda.h"

#ifdef HAVE_CUDA

#ifdef __cplusplus
extern "C" {
#endif

/* Decided from the arguments and the card alone: Hopper and newer have the shared memory for it. */
bool attention_wide_serves(const Cuda *c, const Attention *a);
Status attention_wide_run(Exec *x, const Attention *a);

#ifdef __cplusplus
}
#endif

#endif
#endif
