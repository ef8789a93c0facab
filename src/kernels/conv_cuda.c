/* conv_cuda.c - CUDA reference of conv.h: conv2d, upsample_conv and conv3d by cuDNN, channels last.
 *
 * The first configuration of the heuristic, which is PyTorch's (few channels: asked for planes, as it asks), then one pass of
 * our own for bias and skip: the contract rounds before them. Frames are the batch of a 2-D convolution, the depth of a 3-D
 * one. The upsampled picture, and copies of strided or misaligned pictures, live in scratch; so does a picture with unequal
 * borders, with its zeros around it, which is what PyTorch hands to cuDNN then. F32 multiplies in f32: engines that round
 * their inputs (TF32) are passed over unless the call allows it, and those that use transforms (Winograd, FFT) always, although
 * PyTorch allows TF32 in convolutions by default: our f32 mode is the one to measure others against.
 * Easy to get wrong: memory is planned before a GPU is touched, so a plan that wants more than the library workspace
 * (F32 and 3-D: than room for transposed copies of its tensors) is passed over too; a shape left without a plan goes through a
 * plain kernel of ours, correct and slow. */
#include "kernels/conv_cuda.h"
#include "kernels/conv_pieces.h"
#include "kernels/conv_tune_cuda.h"
#include "kernels/cuda_pieces.h"
#include "kernels/cuda_plans.h"
#include "kernels/registry.h"

#ifdef HAVE_CUDA

#include <stdio.h>

enum { KEY_CONV = 3, KEY_CONV_BEST = 4, ALIGN = 16, COPIES_MARGIN = 1 << 20, PLANES_BELOW = 128 };
static const unsigned TF32_REFUSED = 1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE | 1u << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
static const unsigned F32_REFUSED = 1u << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION | 1u << CUDNN_NUMERICAL_NOTE_FFT |
                                    1u << CUDNN_NUMERICAL_NOTE_WINOGRAD | 1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4 |
                                    1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 |
                                    1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13;
static const unsigned ALWAYS_REFUSED = 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;

/* --- cuDNN --- */

/* Does the kernel see more than one frame at a time? */
static bool deep(const ConvFrames *a) { return a->kernel.shape[1] > 1 || a->stride_t > 1; }

bool conv_cuda_planes(const ConvFrames *a) {
    return !deep(a) && a->x.dtype == BF16 && a->kernel.shape[0] < PLANES_BELOW && a->kernel.shape[4] < PLANES_BELOW;
}

static CudaDnnDesc described(CudaDnn *g, int64_t id, DType t, int rank, const int64_t *dims, const int64_t *strides) {
    return cuda_dnn_tensor_of(g, id, t == BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT, DNN_REAL, rank, dims, strides);
}

/* Planes [n, c, y, x], one behind the other. */
static CudaDnnDesc planes_of(CudaDnn *g, int64_t id, DType t, int64_t n, int64_t y, int64_t x, int64_t c) {
    return described(g, id, t, 4, (const int64_t[]){n, c, y, x}, (const int64_t[]){c * y * x, y * x, x, 1});
}

/* Contiguous frames [f, y, x, c], or planes of them, as dims [f, c, y, x], or as one clip [1, c, f, y, x]. */
static CudaDnnDesc frames(CudaDnn *g, int64_t id, const Tensor *t, bool planes, bool clip) {
    const int64_t f = t->shape[0], y = t->shape[1], x = t->shape[2], c = t->shape[3], line = x * c, frame = y * line;
    if (planes) return planes_of(g, id, t->dtype, f, y, x, c);
    if (!clip) return described(g, id, t->dtype, 4, (const int64_t[]){f, c, y, x}, (const int64_t[]){frame, 1, line, c});
    return described(g, id, t->dtype, 5, (const int64_t[]){1, c, f, y, x}, (const int64_t[]){f * frame, 1, frame, line, c});
}

static CudaDnnDesc filter(CudaDnn *g, const ConvFrames *a, bool clip) {
    const int64_t *k = a->kernel.shape, o = k[0], t = k[1], y = k[2], x = k[3], c = k[4], line = x * c, plane = y * line;
    DType type = a->x.dtype;
    if (conv_cuda_planes(a)) return planes_of(g, CONV_ID_W, type, o, y, x, c);
    if (!clip) return described(g, CONV_ID_W, type, 4, (const int64_t[]){o, c, y, x}, (const int64_t[]){plane, 1, line, c});
    return described(g, CONV_ID_W, type, 5, (const int64_t[]){o, c, t, y, x}, (const int64_t[]){t * plane, 1, plane, line, c});
}

void conv_cuda_graph(CudaDnn *g, const ConvFrames *a) {
    const int64_t pre[] = {a->pad_t, a->pad_top, a->pad_left}, post[] = {a->pad_t, a->pad_bottom, a->pad_right};
    const int64_t strides[] = {a->stride_t, a->stride, a->stride};
    bool clip = deep(a), planes = conv_cuda_planes(a);
    int skipped = clip ? 0 : 1;
    CudaDnnDesc x = frames(g, CONV_ID_X, &a->x, planes, clip), y = frames(g, CONV_ID_Y, &a->y, planes, clip);
    cuda_dnn_conv(g, x, filter(g, a, clip), y, 3 - skipped, strides + skipped, pre + skipped, post + skipped);
}

typedef struct Key {
    int64_t x[4], y[4], kernel[3];
    int32_t kind, dtype, stride_t, stride, pads[5], tf32;
} Key;

static unsigned refused(const ConvFrames *a) {
    return ALWAYS_REFUSED | (a->x.dtype != F32 ? 0 : a->tf32 ? F32_REFUSED : F32_REFUSED | TF32_REFUSED);
}

static Key key_of(const ConvFrames *a, int32_t kind) {
    Key key;
    memset(&key, 0, sizeof key);
    memcpy(key.x, a->x.shape, sizeof key.x);
    memcpy(key.y, a->y.shape, sizeof key.y);
    memcpy(key.kernel, a->kernel.shape + 1, sizeof key.kernel);
    key.kind = kind, key.dtype = a->x.dtype, key.tf32 = a->tf32;
    key.stride_t = (int32_t)a->stride_t, key.stride = (int32_t)a->stride;
    const int64_t pads[] = {a->pad_top, a->pad_left, a->pad_bottom, a->pad_right, a->pad_t};
    for (int i = 0; i < 5; i++) key.pads[i] = (int32_t)pads[i];
    return key;
}

Status conv_cuda_build(Cuda *c, cudnnHandle_t handle, const ConvFrames *a, size_t workspace, int skip, CudaDnn **out, Error *e) {
    const Key key = key_of(a, KEY_CONV);
    *out = NULL;
    CudaDnn *g = cuda_dnn_begin(&c->libs, handle, e, "convolution %lldx%lldx%lldx%lld to %lldx%lldx%lldx%lld, %lldx%lldx%lld, %s",
                                (long long)key.x[0], (long long)key.x[1], (long long)key.x[2], (long long)key.x[3],
                                (long long)key.y[0], (long long)key.y[1], (long long)key.y[2], (long long)key.y[3],
                                (long long)key.kernel[0], (long long)key.kernel[1], (long long)key.kernel[2],
                                dtype_name(a->x.dtype));
    Status s = g ? OK : ERR_MEMORY;
    if (s == OK) {
        conv_cuda_graph(g, a);
        s = cuda_dnn_plan_behind(g, refused(a), workspace, skip, NULL, 0);
    }
    if (s == OK) *out = g;
    else cuda_dnn_free(g);
    return s;
}

/* On any thread, with a handle of its own. */
static Status plan_of(Cuda *c, cudnnHandle_t handle, const ConvFrames *a, size_t workspace, CudaDnn **out, Error *e) {
    const Key key = key_of(a, KEY_CONV);
    *out = cuda_plans_claim(c->plans, &key, sizeof key);
    if (*out) return OK;
    CudaDnn *g;
    Status s = conv_cuda_build(c, handle, a, workspace, 0, &g, e);
    if (s != OK) {
        cuda_plans_give_up(c->plans, &key, sizeof key);
        return s;
    }
    *out = g;
    return cuda_plans_add(c, c->plans, &key, sizeof key, g, cuda_dnn_destroy, e);
}

/* What a plan may use beside the library workspace, 0: nothing. The F32 engines want transposed copies of everything, some of
 * the 3-D ones too. */
static size_t own_workspace(const ConvFrames *a) {
    if (a->x.dtype != F32 && !deep(a)) return 0;
    size_t bytes = tensor_bytes(a->x) + tensor_bytes(a->kernel) + tensor_bytes(a->y) + COPIES_MARGIN;
    return bytes > CUDA_BLAS_WORKSPACE ? bytes : 0;
}

/* Copies of x, the kernel and y for a call in planes. */
static size_t planes_scratch(const ConvFrames *a) {
    if (!conv_cuda_planes(a)) return 0;
    return arena_rounded(tensor_bytes(a->x)) + arena_rounded(tensor_bytes(a->kernel)) + arena_rounded(tensor_bytes(a->y));
}

static Status fresh(Exec *x, Tensor like, Tensor *out) {
    *out = arena_tensor(x->scratch, like.dtype, like.rank, like.shape);
    return out->data ? OK : fail(x->error, ERR_MEMORY, "convolution: no scratch of %zu bytes", tensor_bytes(like));
}

/* Every matrix [pixels, c] of frames, or of the filters of a kernel. */
static Tensor matrices(Tensor t) {
    int64_t n = t.shape[0], c = t.shape[t.rank - 1];
    return tensor_of(t.data, t.dtype, n, tensor_numel(t) / (n * c), c);
}

/* The same of its planes: [c, pixels]. */
static Tensor turned(Tensor planes, Tensor last) {
    Tensor m = matrices(last);
    return tensor_of(planes.data, m.dtype, m.shape[0], m.shape[2], m.shape[1]);
}

static Status product_in_planes(Exec *x, const ConvFrames *a, CudaDnn *g) {
    const int64_t ids[] = {CONV_ID_X, CONV_ID_W, CONV_ID_Y};
    Tensor in, w, y;
    TRY(fresh(x, a->x, &in));
    TRY(fresh(x, a->kernel, &w));
    TRY(fresh(x, a->y, &y));
    TRY(cuda_pieces_turn(x, turned(in, a->x), matrices(a->x)));
    TRY(cuda_pieces_turn(x, turned(w, a->kernel), matrices(a->kernel)));
    void *pointers[] = {in.data, w.data, y.data};
    TRY(cuda_dnn_run(x, g, x->cuda->workspace, 3, ids, pointers));
    return cuda_pieces_turn(x, matrices(a->y), turned(y, a->y));
}

/* y = r(conv(x)) on contiguous, aligned frames. */
static Status product(Exec *x, const ConvFrames *a) {
    CudaDnn *g = NULL;
    size_t bytes = own_workspace(a);
    void *workspace = bytes ? arena_push(x->scratch, bytes) : x->cuda->workspace;
    if (!workspace) return fail(x->error, ERR_MEMORY, "convolution: no scratch of %zu bytes", bytes);
    TRY(cuda_need_dnn(x->cuda, x->error));
    TRY(plan_of(x->cuda, x->cuda->dnn, a, bytes ? bytes : CUDA_BLAS_WORKSPACE, &g, x->error));
    if (!cuda_dnn_ready(g)) return cuda_pieces_conv(x, a);
    if (conv_cuda_planes(a)) return product_in_planes(x, a, g);
    const Key best = key_of(a, KEY_CONV_BEST);
    if (x->cuda->tune)
        TRY(conv_tune_cuda(x, &(ConvTune){a, &best, sizeof best, workspace, bytes ? bytes : CUDA_BLAS_WORKSPACE}, &g));
    const int64_t ids[] = {CONV_ID_X, CONV_ID_W, CONV_ID_Y};
    void *pointers[] = {a->x.data, a->kernel.data, a->y.data};
    return cuda_dnn_run(x, g, workspace, 3, ids, pointers);
}

/* --- the ops --- */

static bool usable(const Tensor *t) { return tensor_contiguous(*t) && (uintptr_t)t->data % ALIGN == 0; }
static bool uneven(const ConvFrames *a) { return !a->up && (a->pad_top != a->pad_bottom || a->pad_left != a->pad_right); }
static bool needs_copy(const ConvFrames *a) { return a->up || uneven(a) || !usable(&a->x); }
static bool skip_copied(const ConvFrames *a) { return a->skip.rank && !usable(&a->skip); }

/* What cuDNN is asked for: of upsampled frames, or of frames that their uneven borders are part of. What is made for it has no
 * address yet. */
static ConvFrames asked(const ConvFrames *args) {
    ConvFrames a = *args;
    int64_t y = a.x.shape[1] << a.up, w = a.x.shape[2] << a.up;
    if (uneven(args)) {
        y += a.pad_top + a.pad_bottom, w += a.pad_left + a.pad_right;
        a.pad_top = a.pad_left = a.pad_bottom = a.pad_right = 0;
    }
    if (needs_copy(args)) a.x = tensor_of(NULL, a.x.dtype, a.x.shape[0], y, w, a.x.shape[3]);
    return a;
}

static size_t scratch(const ConvFrames *args) {
    ConvFrames a = asked(args);
    return (needs_copy(args) ? arena_rounded(tensor_bytes(a.x)) : 0) + (usable(&a.y) ? 0 : arena_rounded(tensor_bytes(a.y))) +
           (skip_copied(&a) ? arena_rounded(tensor_bytes(a.skip)) : 0) + arena_rounded(own_workspace(&a)) + planes_scratch(&a);
}

static Status copied(Exec *x, Tensor from, Tensor *to) {
    TRY(fresh(x, from, to));
    return cuda_pieces_op(x, OP_copy, &(Copy){.y = *to, .x = from});
}

/* Frame i of frames with contiguous pixels in a line or without, as a picture. */
static Tensor frame_of(Tensor t, int64_t i) {
    t.data = (char *)t.data + i * t.stride[0] * (int64_t)dtype_size(t.dtype);
    for (int d = 0; d < 3; d++) t.shape[d] = t.shape[d + 1], t.stride[d] = t.stride[d + 1];
    t.rank = 3;
    return t;
}

/* The frames of asked(): doubled, inside their border of zeros, or as they are. */
static Status spread(Exec *x, const ConvFrames *args, Tensor *to) {
    Tensor inner;
    TRY(fresh(x, *to, to));
    for (int64_t i = 0; args->up && i < to->shape[0]; i++)
        TRY(conv_pieces_double(x, frame_of(*to, i), frame_of(args->x, i)));
    if (args->up) return OK;
    inner = *to;
    if (uneven(args)) {
        cudaError_t code = cudaMemsetAsync(to->data, 0, tensor_bytes(*to), x->cuda->stream);
        if (code != cudaSuccess) return fail(x->error, ERR_DEVICE, "convolution: cudaMemsetAsync: %s", cudaGetErrorString(code));
        inner = tensor_slice(inner, 1, args->pad_top, args->x.shape[1]);
        inner = tensor_slice(inner, 2, args->pad_left, args->x.shape[2]);
    }
    return cuda_pieces_op(x, OP_copy, &(Copy){.y = inner, .x = args->x});
}

/* Contiguous frames as one picture, one below the other. */
static Tensor stacked(Tensor t) {
    return t.rank ? tensor_view(t, t.shape[0] * t.shape[1], t.shape[2], t.shape[3]) : t;
}

static Status convolve(Exec *x, ConvFrames args) {
    TRY(conv_frames_check(x, &args));
    if (args.skip_bias.rank && args.skip_bias.dtype != args.y.dtype)
        return fail(x->error, ERR_MODEL, "%s: skip_bias is %s", ops_info(args.op)->name, dtype_name(args.skip_bias.dtype));
    if (!tensor_numel(args.y)) return OK;
    if (!tensor_numel(args.x)) return fail(x->error, ERR_MODEL, "%s: empty picture", ops_info(args.op)->name);
    ConvFrames a = asked(&args);
    Tensor bias = a.biased ? a.w->bias : (Tensor){0};
    if (needs_copy(&args)) TRY(spread(x, &args, &a.x));
    if (skip_copied(&args)) TRY(copied(x, args.skip, &a.skip));
    if (!usable(&args.y)) TRY(fresh(x, args.y, &a.y));
    TRY(product(x, &a));
    if (bias.rank || a.skip.rank) TRY(conv_pieces_post(x, stacked(a.y), bias, stacked(a.skip), a.skip_bias));
    return usable(&args.y) ? OK : cuda_pieces_op(x, OP_copy, &(Copy){.y = args.y, .x = a.y});
}

Status conv_cuda_prepare(Cuda *c, cudnnHandle_t handle, OpId op, const void *args, Error *e) {
    ConvFrames given = conv_frames(op, args), a = asked(&given);
    CudaDnn *g;
    size_t bytes = own_workspace(&a);
    return plan_of(c, handle, &a, bytes ? bytes : CUDA_BLAS_WORKSPACE, &g, e);
}

static Status conv2d(Exec *x, const void *args) { return convolve(x, conv_frames(OP_conv2d, args)); }
static Status upsample_conv(Exec *x, const void *args) { return convolve(x, conv_frames(OP_upsample_conv, args)); }
static Status conv3d(Exec *x, const void *args) { return convolve(x, conv_frames(OP_conv3d, args)); }

static size_t conv2d_scratch(const Exec *x, const void *args) {
    (void)x;
    ConvFrames a = conv_frames(OP_conv2d, args);
    return scratch(&a);
}

static size_t upsample_conv_scratch(const Exec *x, const void *args) {
    (void)x;
    ConvFrames a = conv_frames(OP_upsample_conv, args);
    return scratch(&a);
}

static size_t conv3d_scratch(const Exec *x, const void *args) {
    (void)x;
    ConvFrames a = conv_frames(OP_conv3d, args);
    return scratch(&a);
}

static bool weight_accepted(const Weight *w, DType t, char *why, size_t size) {
    if (!cuda_takes_weight(w, t, why, size)) return false;
    if ((uintptr_t)w->w.data % ALIGN)
        return snprintf(why, size, "%s: not aligned to %d bytes", w->name ? w->name : "weight", ALIGN), false;
    return true;
}

static bool accepts(const void *args, char *why, size_t size) {
    const Conv2d *a = args;
    return weight_accepted(a->w, a->x.dtype, why, size);
}

static bool conv3d_accepts(const void *args, char *why, size_t size) {
    const Conv3d *a = args;
    return weight_accepted(a->w, a->x.dtype, why, size);
}

const Impl CONV_CUDA[] = {
    {OP_conv2d, "cuda", conv2d, conv2d_scratch, accepts},
    {OP_upsample_conv, "cuda", upsample_conv, upsample_conv_scratch, accepts},
    {OP_conv3d, "cuda", conv3d, conv3d_scratch, conv3d_accepts},
};
const int CONV_CUDA_COUNT = sizeof CONV_CUDA / sizeof *CONV_CUDA;

#endif
