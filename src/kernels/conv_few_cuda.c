/* conv_few_cuda.c - the variants of the family conv-few (conv_few.h). A decoder has two convolutions for them at most: of all
 * others they say nothing but that they are for somebody else, which refuses no place (Impl.accepts). */
#include "kernels/conv_few.h"

#include "kernels/registry.h"

#ifdef HAVE_CUDA

static Status conv2d(Exec *x, const void *args) { return conv_few_picture(x, args); }
static Status conv3d(Exec *x, const void *args) { return conv_few_clip(x, args); }

static bool conv2d_accepts(const void *args, char *why, size_t size) {
    (void)size;
    return conv_few_picture_fits(args) || impl_passes_on(why);
}

static bool conv3d_accepts(const void *args, char *why, size_t size) {
    (void)size;
    return conv_few_clip_fits(args) || impl_passes_on(why);
}

const Impl CONV_FEW_CUDA[] = {
    {OP_conv2d, "cuda_few", conv2d, NULL, conv2d_accepts},
    {OP_conv3d, "cuda_few", conv3d, NULL, conv3d_accepts},
};

#endif
