/* conv_cuda.c - CUDA reference of conv.h: conv2d and upsample_conv by cuDNN, channels last.
 *
 * The first configuration of the heuristic, which is PyTorch's (few channels: asked for planes, as it asks), then one pass
 * of our own for bias and skip: the contract rounds before them. The upsampled picture, and copies of strided or misaligned
 * pictures, live in scratch; so does a picture with unequal borders, with its zeros around it, which is what PyTorch hands to
 * cuDNN then. F32 multiplies in f32: engines that round their inputs (TF32) or use transforms (Winograd, FFT) are passed
 * over, although PyTorch
 * allows TF32 in convolutions by default: our f32 mode is the one to measure others against.
 * Easy to get wrong: memory is planned before a GPU is touched, so a plan that wants more than the library workspace
 * (F32: than room for transposed copies of its tensors) is passed over too; a shape left without a plan goes through a
 * plain kernel of ours, correct and slow. */
#include "kernels/conv_cuda.h"
#include "kernels/conv_pieces.h"
#include "kernels/cuda_pieces.h"
#include "kernels/cuda_plans.h"
#include "kernels/registry.h"

#ifdef HAVE_CUDA

#include <stdio.h>

enum { KEY_CONV = 3, ALIGN = 16, F32_MARGIN = 1 << 20, PLANES_BELOW = 128 };
static const unsigned F32_REFUSED = 1u << CUDNN_NUMERICAL_NOTE_TENSOR_CORE | 1u << CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS |
                                    1u << CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION | 1u << CUDNN_NUMERICAL_NOTE_FFT |
                                    1u << CUDNN_NUMERICAL_NOTE_WINOGRAD | 1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_4x4 |
                                    1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_6x6 |
                                    1u << CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13;
static const unsigned ALWAYS_REFUSED = 1u << CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;

/* --- cuDNN --- */

bool conv_cuda_planes(const Conv2d *a) {
    return a->x.dtype == BF16 && a->w->w.shape[0] < PLANES_BELOW && a->w->w.shape[3] < PLANES_BELOW;
}

/* A contiguous [n, y, x, c] tensor, or planes [n, c, y, x], as dims [n, c, y, x]. */
static CudaDnnDesc described(CudaDnn *g, int64_t id, DType t, bool planes, int64_t n, int64_t y, int64_t x, int64_t c) {
    const int64_t dims[] = {n, c, y, x}, last[] = {y * x * c, 1, x * c, c}, plane[] = {y * x * c, y * x, x, 1};
    return cuda_dnn_tensor(g, id, t == BF16 ? CUDNN_DATA_BFLOAT16 : CUDNN_DATA_FLOAT, DNN_REAL, dims, planes ? plane : last);
}

void conv_cuda_graph(CudaDnn *g, const Conv2d *a) {
    const int64_t *w = a->w->w.shape, *in = a->x.shape, *out = a->y.shape;
    const int64_t pre[] = {a->pad_top, a->pad_left}, post[] = {a->pad_bottom, a->pad_right};
    bool planes = conv_cuda_planes(a);
    CudaDnnDesc x = described(g, CONV_ID_X, a->x.dtype, planes, 1, in[0], in[1], in[2]);
    CudaDnnDesc y = described(g, CONV_ID_Y, a->y.dtype, planes, 1, out[0], out[1], out[2]);
    CudaDnnDesc f = described(g, CONV_ID_W, a->x.dtype, planes, w[0], w[1], w[2], w[3]);
    cuda_dnn_conv(g, x, f, y, a->stride, pre, post);
}

typedef struct Key {
    int64_t x[3], y[3], kh, kw;
    int32_t kind, dtype, stride, pads[4], padding;
} Key;

/* On any thread, with a handle of its own. */
static Status plan_of(Cuda *c, cudnnHandle_t handle, const Conv2d *a, size_t workspace, CudaDnn **out, Error *e) {
    Key key;
    memset(&key, 0, sizeof key);
    memcpy(key.x, a->x.shape, sizeof key.x);
    memcpy(key.y, a->y.shape, sizeof key.y);
    key.kh = a->w->w.shape[1], key.kw = a->w->w.shape[2];
    key.kind = KEY_CONV, key.dtype = a->x.dtype, key.stride = a->stride;
    key.pads[0] = a->pad_top, key.pads[1] = a->pad_left, key.pads[2] = a->pad_bottom, key.pads[3] = a->pad_right;
    *out = cuda_plans_claim(c->plans, &key, sizeof key);
    if (*out) return OK;
    CudaDnn *g = cuda_dnn_begin(&c->libs, handle, e, "convolution %lldx%lldx%lld to %lldx%lldx%lld, %lldx%lld, %s",
                                (long long)key.x[0], (long long)key.x[1], (long long)key.x[2], (long long)key.y[0],
                                (long long)key.y[1], (long long)key.y[2], (long long)key.kh, (long long)key.kw,
                                dtype_name(a->x.dtype));
    Status s = g ? OK : ERR_MEMORY;
    if (s == OK) {
        conv_cuda_graph(g, a);
        s = cuda_dnn_plan(g, ALWAYS_REFUSED | (a->x.dtype == F32 ? F32_REFUSED : 0), workspace, NULL, 0);
    }
    if (s != OK) {
        cuda_dnn_free(g);
        cuda_plans_give_up(c->plans, &key, sizeof key);
        return s;
    }
    *out = g;
    return cuda_plans_add(c, c->plans, &key, sizeof key, g, cuda_dnn_destroy, e);
}

/* What a plan may use beside the library workspace, 0: nothing. The F32 engines want transposed copies of everything. */
static size_t own_workspace(Tensor in, Tensor w, Tensor out) {
    if (in.dtype != F32) return 0;
    size_t bytes = tensor_bytes(in) + tensor_bytes(w) + tensor_bytes(out) + F32_MARGIN;
    return bytes > CUDA_BLAS_WORKSPACE ? bytes : 0;
}

static size_t rounded(size_t bytes) { return (bytes + ARENA_ALIGN - 1) / ARENA_ALIGN * ARENA_ALIGN; }

/* Copies of x, w and y for a call in planes. */
static size_t planes_scratch(const Conv2d *a) {
    return conv_cuda_planes(a) ? rounded(tensor_bytes(a->x)) + rounded(tensor_bytes(a->w->w)) + rounded(tensor_bytes(a->y)) : 0;
}

static Status fresh(Exec *x, Tensor like, Tensor *out) {
    *out = arena_tensor(x->scratch, like.dtype, like.rank, like.shape);
    return out->data ? OK : fail(x->error, ERR_MEMORY, "convolution: no scratch of %zu bytes", tensor_bytes(like));
}

/* Every matrix [pixels, c] of a tensor with channels last. */
static Tensor matrices(Tensor t) {
    int64_t n = t.rank == 4 ? t.shape[0] : 1, c = t.shape[t.rank - 1];
    return tensor_of(t.data, t.dtype, n, tensor_numel(t) / (n * c), c);
}

/* The same of its planes: [c, pixels]. */
static Tensor turned(Tensor planes, Tensor last) {
    Tensor m = matrices(last);
    return tensor_of(planes.data, m.dtype, m.shape[0], m.shape[2], m.shape[1]);
}

static Status product_in_planes(Exec *x, const Conv2d *a, CudaDnn *g) {
    const int64_t ids[] = {CONV_ID_X, CONV_ID_W, CONV_ID_Y};
    Tensor in, w, y;
    TRY(fresh(x, a->x, &in));
    TRY(fresh(x, a->w->w, &w));
    TRY(fresh(x, a->y, &y));
    TRY(cuda_pieces_turn(x, turned(in, a->x), matrices(a->x)));
    TRY(cuda_pieces_turn(x, turned(w, a->w->w), matrices(a->w->w)));
    void *pointers[] = {in.data, w.data, y.data};
    TRY(cuda_dnn_run(x, g, x->cuda->workspace, 3, ids, pointers));
    return cuda_pieces_turn(x, matrices(a->y), turned(y, a->y));
}

/* y = r(conv(x)) on contiguous, aligned pictures. */
static Status product(Exec *x, const Conv2d *a) {
    CudaDnn *g = NULL;
    size_t bytes = own_workspace(a->x, a->w->w, a->y);
    void *workspace = bytes ? arena_push(x->scratch, bytes) : x->cuda->workspace;
    if (!workspace) return fail(x->error, ERR_MEMORY, "convolution: no scratch of %zu bytes", bytes);
    TRY(cuda_need_dnn(x->cuda, x->error));
    TRY(plan_of(x->cuda, x->cuda->dnn, a, bytes ? bytes : CUDA_BLAS_WORKSPACE, &g, x->error));
    if (!cuda_dnn_ready(g)) return cuda_pieces_conv(x, a->y, a->x, a->w->w, a->stride, a->pad_top, a->pad_left);
    if (conv_cuda_planes(a)) return product_in_planes(x, a, g);
    const int64_t ids[] = {CONV_ID_X, CONV_ID_W, CONV_ID_Y};
    void *pointers[] = {a->x.data, a->w->w.data, a->y.data};
    return cuda_dnn_run(x, g, workspace, 3, ids, pointers);
}

/* --- the ops --- */

static bool usable(const Tensor *t) { return tensor_contiguous(*t) && (uintptr_t)t->data % ALIGN == 0; }

static Status check(Exec *x, OpId op, const Conv2d *a, int up) {
    const char *op_name = ops_info(op)->name, *name = a->w->name ? a->w->name : "weight";
    const Tensor *w = &a->w->w;
    if (w->rank != 4 || !tensor_contiguous(*w))
        return fail(x->error, ERR_MODEL, "%s: %s takes plain contiguous [out, kh, kw, in] weights only", name, op_name);
    if (a->x.rank != 3 || a->y.rank != 3 || a->x.stride[2] != 1 || a->y.stride[2] != 1)
        return fail(x->error, ERR_MODEL, "%s: %s needs pictures [Y, X, C] with contiguous channels", name, op_name);
    if (a->x.shape[2] != w->shape[3] || a->y.shape[2] != w->shape[0])
        return fail(x->error, ERR_MODEL, "%s: %s from %lld to %lld channels, weight has %lld to %lld", name, op_name,
                    (long long)a->x.shape[2], (long long)a->y.shape[2], (long long)w->shape[3], (long long)w->shape[0]);
    if (a->stride < 1 || a->pad_top < 0 || a->pad_left < 0 || a->pad_bottom < 0 || a->pad_right < 0)
        return fail(x->error, ERR_MODEL, "%s: %s with stride %d or a negative padding", name, op_name, a->stride);
    int64_t across = (a->x.shape[1] << up) + a->pad_left + a->pad_right - w->shape[2];
    int64_t down = (a->x.shape[0] << up) + a->pad_top + a->pad_bottom - w->shape[1];
    if (across < 0 || down < 0 || across / a->stride + 1 != a->y.shape[1] || down / a->stride + 1 != a->y.shape[0])
        return fail(x->error, ERR_MODEL, "%s: %s output is %lld x %lld, expected %lld x %lld", name, op_name,
                    (long long)a->y.shape[0], (long long)a->y.shape[1], (long long)(down / a->stride + 1),
                    (long long)(across / a->stride + 1));
    if (a->w->bias.rank && tensor_numel(a->w->bias) != w->shape[0])
        return fail(x->error, ERR_MODEL, "%s: bias has %lld elements, want %lld", name,
                    (long long)tensor_numel(a->w->bias), (long long)w->shape[0]);
    if (a->x.dtype != a->y.dtype || (a->x.dtype != F32 && a->x.dtype != BF16))
        return fail(x->error, ERR_MODEL, "%s: %s from %s to %s", name, op_name, dtype_name(a->x.dtype),
                    dtype_name(a->y.dtype));
    if (a->skip.rank && (!tensor_same_shape(a->skip, a->y) || a->skip.stride[2] != 1 || a->skip.dtype != a->y.dtype))
        return fail(x->error, ERR_MODEL, "%s: %s: skip must be like the output, channels contiguous", name, op_name);
    if (a->skip_bias.rank && (!a->skip.rank || tensor_numel(a->skip_bias) != w->shape[0] ||
                              !tensor_contiguous(a->skip_bias) || a->skip_bias.dtype != a->y.dtype))
        return fail(x->error, ERR_MODEL, "%s: %s: skip_bias must be a vector of %lld beside a skip", name, op_name,
                    (long long)w->shape[0]);
    return OK;
}

static bool uneven(const Conv2d *a, int up) { return !up && (a->pad_top != a->pad_bottom || a->pad_left != a->pad_right); }
static bool needs_copy(const Conv2d *a, int up) { return up || uneven(a, up) || !usable(&a->x); }
static bool skip_copied(const Conv2d *a) { return a->skip.rank && !usable(&a->skip); }

/* What cuDNN is asked for: of the upsampled picture, or of one that its uneven borders are part of. A picture that is made for
 * it has no address yet. */
static Conv2d asked(const Conv2d *args, int up) {
    Conv2d a = *args;
    int64_t y = a.x.shape[0] << up, w = a.x.shape[1] << up;
    if (uneven(args, up)) {
        y += a.pad_top + a.pad_bottom, w += a.pad_left + a.pad_right;
        a.pad_top = a.pad_left = a.pad_bottom = a.pad_right = 0;
    }
    if (needs_copy(args, up)) a.x = tensor_of(NULL, a.x.dtype, y, w, a.x.shape[2]);
    return a;
}

static size_t scratch(const Conv2d *args, int up) {
    Conv2d a = asked(args, up);
    return (needs_copy(args, up) ? rounded(tensor_bytes(a.x)) : 0) + (usable(&a.y) ? 0 : rounded(tensor_bytes(a.y))) +
           (skip_copied(&a) ? rounded(tensor_bytes(a.skip)) : 0) + rounded(own_workspace(a.x, a.w->w, a.y)) + planes_scratch(&a);
}

static Status copied(Exec *x, Tensor from, Tensor *to) {
    TRY(fresh(x, from, to));
    return cuda_pieces_op(x, OP_copy, &(Copy){.y = *to, .x = from});
}

/* The picture of asked(): doubled, inside its border of zeros, or as it is. */
static Status spread(Exec *x, const Conv2d *args, int up, Tensor *to) {
    Tensor inner;
    TRY(fresh(x, *to, to));
    if (up) return conv_pieces_double(x, *to, args->x);
    inner = *to;
    if (uneven(args, up)) {
        cudaError_t code = cudaMemsetAsync(to->data, 0, tensor_bytes(*to), x->cuda->stream);
        if (code != cudaSuccess) return fail(x->error, ERR_DEVICE, "convolution: cudaMemsetAsync: %s", cudaGetErrorString(code));
        inner = tensor_slice(inner, 0, args->pad_top, args->x.shape[0]);
        inner = tensor_slice(inner, 1, args->pad_left, args->x.shape[1]);
    }
    return cuda_pieces_op(x, OP_copy, &(Copy){.y = inner, .x = args->x});
}

static Status convolve(Exec *x, OpId op, const Conv2d *args, int up) {
    TRY(check(x, op, args, up));
    if (!tensor_numel(args->y)) return OK;
    if (!tensor_numel(args->x)) return fail(x->error, ERR_MODEL, "%s: empty picture", ops_info(op)->name);
    Conv2d a = asked(args, up);
    Tensor bias = a.form == CONV_BIAS ? a.w->bias : (Tensor){0};
    if (needs_copy(args, up)) TRY(spread(x, args, up, &a.x));
    if (skip_copied(args)) TRY(copied(x, args->skip, &a.skip));
    if (!usable(&args->y)) TRY(fresh(x, args->y, &a.y));
    TRY(product(x, &a));
    if (bias.rank || a.skip.rank) TRY(conv_pieces_post(x, a.y, bias, a.skip, a.skip_bias));
    return usable(&args->y) ? OK : cuda_pieces_op(x, OP_copy, &(Copy){.y = args->y, .x = a.y});
}

Status conv_cuda_prepare(Cuda *c, cudnnHandle_t handle, OpId op, const Conv2d *args, Error *e) {
    Conv2d a = asked(args, op == OP_upsample_conv);
    CudaDnn *g;
    size_t bytes = own_workspace(a.x, a.w->w, a.y);
    return plan_of(c, handle, &a, bytes ? bytes : CUDA_BLAS_WORKSPACE, &g, e);
}

static Status conv2d(Exec *x, const void *args) { return convolve(x, OP_conv2d, args, 0); }
static Status upsample_conv(Exec *x, const void *args) { return convolve(x, OP_upsample_conv, args, 1); }

static size_t conv2d_scratch(const Exec *x, const void *args) {
    (void)x;
    return scratch(args, 0);
}

static size_t upsample_conv_scratch(const Exec *x, const void *args) {
    (void)x;
    return scratch(args, 1);
}

/* As for linear: weights of a GPU are in the compute dtype. */
static bool accepts(const void *args, char *why, size_t size) {
    const Conv2d *a = args;
    const Weight *w = a->w;
    const char *name = w->name ? w->name : "weight";
    if (w->scale.rank || w->lora) snprintf(why, size, "%s: no scales or LoRA on the CUDA table yet", name);
    else if (w->w.dtype != a->x.dtype || w->round != a->x.dtype || (w->bias.rank && w->bias.dtype != a->x.dtype))
        snprintf(why, size, "%s: weight %s rounded to %s, bias %s: expected %s as x", name, dtype_name(w->w.dtype),
                 dtype_name(w->round), w->bias.rank ? dtype_name(w->bias.dtype) : "none", dtype_name(a->x.dtype));
    else if ((uintptr_t)w->w.data % ALIGN) snprintf(why, size, "%s: not aligned to %d bytes", name, ALIGN);
    else return true;
    return false;
}

const Impl CONV_CUDA[] = {
    {OP_conv2d, "cuda", conv2d, conv2d_scratch, accepts},
    {OP_upsample_conv, "cuda", upsample_conv, upsample_conv_scratch, accepts},
};
const int CONV_CUDA_COUNT = sizeof CONV_CUDA / sizeof *CONV_CUDA;

#endif
