/* conv_few_cuda.c - the variants of the family conv-few (conv_few.h): its own shapes to its kernels, all others on.
 *
 * Easy to get wrong: a component is mounted whole, so a guard here would cost the decoder its last convolution because of
 * another's shape. Guards ask what the references ask, and what is refused is F32. */
#include "kernels/conv_few.h"

#include "kernels/chain.h"
#include "kernels/registry.h"

#ifdef HAVE_CUDA

#include <stdio.h>

static const Impl *const TWO = &CONV_FEW_CUDA[0], *const THREE = &CONV_FEW_CUDA[1];

static Status conv2d(Exec *x, const void *args) {
    return conv_few_picture_fits(args) ? conv_few_picture(x, args) : chain_behind(x, TWO, args);
}

static Status conv3d(Exec *x, const void *args) {
    return conv_few_clip_fits(args) ? conv_few_clip(x, args) : chain_behind(x, THREE, args);
}

static size_t conv2d_scratch(const Exec *x, const void *args) { return chain_behind_scratch(x, TWO, args); }
static size_t conv3d_scratch(const Exec *x, const void *args) { return chain_behind_scratch(x, THREE, args); }

/* x is the second tensor of either op. */
static bool accepts(OpId op, const void *args, char *why, size_t size) {
    const Tensor *x = (const Tensor *)args + 1;
    if (x->dtype != BF16) return snprintf(why, size, "x is %s, expected BF16", dtype_name(x->dtype)), false;
    for (int i = 0; i < CONV_CUDA_COUNT; i++)
        if (CONV_CUDA[i].op == op) return CONV_CUDA[i].accepts(args, why, size);
    return true;
}

static bool conv2d_accepts(const void *args, char *why, size_t size) { return accepts(OP_conv2d, args, why, size); }
static bool conv3d_accepts(const void *args, char *why, size_t size) { return accepts(OP_conv3d, args, why, size); }

const Impl CONV_FEW_CUDA[] = {
    {OP_conv2d, "cuda_few", conv2d, conv2d_scratch, conv2d_accepts},
    {OP_conv3d, "cuda_few", conv3d, conv3d_scratch, conv3d_accepts},
};

#endif
