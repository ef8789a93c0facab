/* vae_rewrite_cuda.c - the CUDA table's variants of the family vae-kl-rewrite (vae_rewrite.h).
 *
 * Products go through the table's references; only the sums of taps and the move of the phases are kernels of our own
 * (conv_pieces.cu). Easy to get wrong: cuBLASLt multiplies by a transposed weight, so wv is transposed first to make
 * wo . wv. */
#include "kernels/vae_rewrite.h"

#include "kernels/attention_cuda.h"
#include "kernels/conv_pieces.h"
#include "kernels/cuda_pieces.h"
#include "kernels/registry.h"

#ifdef HAVE_CUDA

#include <stdio.h>

/* --- upsample_conv --- */

static Status taps(Exec *x, const Conv2d *a, Tensor w) { return conv_pieces_taps(x, w, a->w->w); }

/* The move, with y and skip wherever they lie: their copies are not worth a kernel, decoders have none. */
static Status spread(Exec *x, const Conv2d *a, Tensor in) {
    Tensor bias = a->form == CONV_BIAS ? a->w->bias : (Tensor){0};
    return conv_pieces_spread(x, a->y, in, bias, a->skip, a->skip_bias);
}

static Status upsample_conv(Exec *x, const void *args) {
    static const VaeRewriteUpsample PIECES = {taps, spread};
    return vae_rewrite_upsample(x, args, &PIECES);
}

static bool upsample_accepts(const void *args, char *why, size_t size) {
    const Conv2d *a = args;
    if (!tensor_contiguous(a->y) || (a->skip.rank && !tensor_contiguous(a->skip))) {
        snprintf(why, size, "y or skip is not contiguous");
        return false;
    }
    return vae_rewrite_upsample_accepts(args, why, size);
}

/* --- self_attention --- */

/* w = r(wo . wv): rows of wo times rows of wv^T. b = r(bv . wo^T + bo). */
static Status fold(Exec *x, const SelfAttention *a, Tensor w, Tensor b) {
    int64_t c = w.shape[0];
    const int64_t turned[] = {c, c}, steps[] = {1, c};
    Tensor transposed = arena_tensor(x->scratch, w.dtype, 2, turned), view = a->wv->w;
    if (!transposed.data)
        return fail(x->error, ERR_MEMORY, "self_attention: no scratch of %zu bytes", tensor_bytes(w));
    memcpy(view.stride, steps, sizeof steps);
    TRY(cuda_pieces_op(x, OP_copy, &(Copy){.y = transposed, .x = view}));
    Weight columns = {.w = transposed, .round = w.dtype, .name = "wv^T"};
    TRY(cuda_pieces_op(x, OP_linear, &(Linear){.y = w, .x = a->wo->w, .w = &columns}));
    return cuda_pieces_op(x, OP_linear, &(Linear){.y = tensor_view(b, 1, c), .x = tensor_view(a->wv->bias, 1, c), .w = a->wo});
}

static Status self_attention(Exec *x, const void *args) {
    static const VaeRewriteAttention PIECES = {fold, attention_cuda_parts};
    return vae_rewrite_attention(x, args, &PIECES);
}

const Impl VAE_KL_REWRITE_CUDA[] = {
    {OP_groupnorm_silu, "cuda_f32", groupnorm_cuda_silu_f32, groupnorm_cuda_scratch, vae_rewrite_norm_accepts},
    {OP_upsample_conv, "cuda_phases", upsample_conv, vae_rewrite_upsample_scratch, upsample_accepts},
    {OP_self_attention, "cuda_folded", self_attention, vae_rewrite_attention_scratch, vae_rewrite_attention_accepts},
};

#endif
