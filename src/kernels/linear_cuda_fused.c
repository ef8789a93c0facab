/* linear_cuda_fused.c - the CUDA table's families of products (linear.h): several weights as one, the rows of several
 * steps as one product, GELU in the epilogue.
 *
 * linear-gelu is EXACT: the reference's product, and the activation by the fast kernel (elementwise_fast.cu), as behind a
 * packed product. linear-packed and linear-rows are EXACT too: cuBLASLt's split of K is kept as the reference has it
 * (linear_cuda.h), first sight compares, and where no such algorithm exists the reference's calls run. linear-gelu-f32 is
 * BOUNDED: the activation takes the f32 sum, and the library's tanh is the card's own instruction (2^-11 relative).
 * Easy to get wrong: guards are asked once for all calls of one shape, so what depends on addresses is asked again in run. */
#include "kernels/cuda_pieces.h"
#include "kernels/linear_cuda.h"
#include "kernels/packing.h"
#include "kernels/registry.h"

#ifdef HAVE_CUDA

#include <stdio.h>

enum { ROW_ALIGN = 16, ADDRESS_ALIGN = 256 };

static int count_of(const Weight *const *w) {
    int n = 0;
    while (n < LINEAR_MANY_MAX && w[n]) n++;
    return n;
}

/* Rows of t all start at multiples of `bytes`. */
static bool aligned(Tensor t, uintptr_t bytes) {
    if ((uintptr_t)t.data % bytes) return false;
    for (int d = 0; d + 1 < t.rank; d++)
        if (t.shape[d] > 1 && (size_t)t.stride[d] * dtype_size(t.dtype) % bytes) return false;
    return true;
}

/* What every variant here wants of its tensors. */
static bool suitable(Tensor y, Tensor x, const Weight *w, uintptr_t bytes, char *why, size_t size) {
    if (!linear_cuda_plain(x, w, why, size)) return false;
    if (x.dtype != BF16 || y.dtype != BF16)
        snprintf(why, size, "x is %s, expected BF16", dtype_name(x.dtype));
    else if (!aligned(x, bytes) || !aligned(y, bytes) || !aligned(w->w, bytes) || (w->bias.rank && !aligned(w->bias, bytes)))
        snprintf(why, size, "rows that do not start at multiples of %d bytes", (int)bytes);
    else return true;
    return false;
}

/* --- several weights as one --- */

/* y[0..count) of one input as one product, when the arguments allow it and the bits do. */
static Status pack(Exec *x, const Tensor *y, Tensor in, const Weight *const *w, int count, int32_t bias_mode, bool *done) {
    Packing p;
    char why[200];
    LinearHow how = {.way = LINEAR_PACKED};
    *done = false;
    if (!packing_make(y, w, count, bias_mode, &p, why, sizeof why) || !tensor_numel(p.y)) return OK;
    for (int i = 0; i < count; i++) {
        TRY(linear_cuda_check(x, in, w[i], y[i]));
        how.part[i] = w[i]->w.shape[0];
    }
    TRY(cuda_need_lt(x->cuda, x->error));
    TRY(linear_cuda_product(x, p.y, in, &p.w, p.w.bias.rank != 0, &how, done));
    return *done ? cuda_launched(x, "linear_many") : OK;
}

/* GELU as a pass of its own, by the fast kernel: the chain's bits. */
static Status gelu_pass(Exec *x, Tensor y, Tensor in) {
    return ACT_FAST_CUDA->run(x, &(Act){.y = y, .x = in, .kind = ACT_GELU_TANH});
}

static Status linear_many_packed(Exec *x, const void *args) {
    const LinearMany *a = args;
    bool done;
    TRY(pack(x, a->y, a->x, a->w, count_of(a->w), a->bias_mode, &done));
    return done ? OK : cuda_pieces_op(x, OP_linear_many, a);
}

static Status linear_many_gelu_packed(Exec *x, const void *args) {
    const LinearManyGelu *a = args;
    int count = count_of(a->w);
    bool done;
    TRY(pack(x, a->y, a->x, a->w, count, a->bias_mode, &done));
    if (!done) return cuda_pieces_op(x, OP_linear_many_gelu, a);
    return gelu_pass(x, a->g, a->y[count - 1]);
}

static bool packs(const Tensor *y, Tensor x, const Weight *const *w, int32_t bias_mode, char *why, size_t size) {
    Packing p;
    int count = count_of(w);
    if (count < 2) return snprintf(why, size, "one weight has nothing to be packed with"), false;
    for (int i = 0; i < count; i++)
        if (!suitable(y[i], x, w[i], ROW_ALIGN, why, size)) return false;
    return packing_make(y, w, count, bias_mode, &p, why, size);
}

static bool linear_many_packed_accepts(const void *args, char *why, size_t size) {
    const LinearMany *a = args;
    return packs(a->y, a->x, a->w, a->bias_mode, why, size);
}

static bool linear_many_gelu_packed_accepts(const void *args, char *why, size_t size) {
    const LinearManyGelu *a = args;
    return packs(a->y, a->x, a->w, a->bias_mode, why, size);
}

const Impl LINEAR_PACKED_CUDA[] = {
    {OP_linear_many, "cuda_packed", linear_many_packed, NULL, linear_many_packed_accepts},
    {OP_linear_many_gelu, "cuda_packed", linear_many_gelu_packed, NULL, linear_many_gelu_packed_accepts}};

/* --- rows of several steps as one product --- */

static Status linear_rows_once(Exec *x, const void *args) {
    const Linear *a = args;
    const LinearHow how = {.way = LINEAR_ROWS};
    bool done = false;
    TRY(linear_cuda_check(x, a->x, a->w, a->y));
    if (tensor_numel(a->y)) {
        TRY(cuda_need_lt(x->cuda, x->error));
        TRY(linear_cuda_product(x, a->y, a->x, a->w, a->w->bias.rank != 0, &how, &done));
    }
    return done ? cuda_launched(x, "linear_rows") : cuda_pieces_op(x, OP_linear_rows, a);
}

/* Rows of other alignments would be other problems to the reference. */
static bool linear_rows_once_accepts(const void *args, char *why, size_t size) {
    const Linear *a = args;
    if (a->w->bias.rank && a->bias_mode != BIAS_FUSED) return snprintf(why, size, "the bias is added after a rounding"), false;
    return suitable(a->y, a->x, a->w, ADDRESS_ALIGN, why, size);
}

const Impl LINEAR_ROWS_CUDA[] = {{OP_linear_rows, "cuda_once", linear_rows_once, NULL, linear_rows_once_accepts}};

/* --- GELU behind the product --- */

static Status linear_gelu_apart(Exec *x, const void *args) {
    const Linear *a = args;
    TRY(cuda_pieces_op(x, OP_linear, a));
    return gelu_pass(x, a->y, a->y);
}

static bool linear_gelu_apart_accepts(const void *args, char *why, size_t size) {
    const Linear *a = args;
    return suitable(a->y, a->x, a->w, ROW_ALIGN, why, size);
}

const Impl LINEAR_GELU_CUDA[] = {{OP_linear_gelu, "cuda_fast", linear_gelu_apart, NULL, linear_gelu_apart_accepts}};

/* --- GELU in the epilogue --- */

static Status gelu(Exec *x, Tensor y, Tensor in, const Weight *w) {
    const LinearHow how = {.way = LINEAR_GELU};
    bool done = true;
    TRY(linear_cuda_check(x, in, w, y));
    if (!tensor_numel(y)) return OK;
    TRY(cuda_need_lt(x->cuda, x->error));
    TRY(linear_cuda_product(x, y, in, w, true, &how, &done));
    return done ? cuda_launched(x, "linear_gelu") : cuda_pieces_op(x, OP_linear_gelu, &(Linear){.y = y, .x = in, .w = w});
}

static Status linear_gelu_f32(Exec *x, const void *args) {
    const Linear *a = args;
    return gelu(x, a->y, a->x, a->w);
}

/* The last output's product goes straight to g; the others are packed where that has their bits. */
static Status linear_many_gelu_f32(Exec *x, const void *args) {
    const LinearManyGelu *a = args;
    int last = count_of(a->w) - 1;
    bool done = true;
    if (last > 0) TRY(pack(x, a->y, a->x, a->w, last, a->bias_mode, &done));
    for (int i = 0; !done && i < last; i++)
        TRY(cuda_pieces_op(x, OP_linear, &(Linear){.y = a->y[i], .x = a->x, .w = a->w[i], .bias_mode = a->bias_mode}));
    return gelu(x, a->g, a->x, a->w[last]);
}

static bool keeps(Tensor y, Tensor x, const Weight *w, int32_t bias_mode, char *why, size_t size) {
    if (!w->bias.rank) return snprintf(why, size, "the epilogue with GELU has a bias, and this weight has none"), false;
    if (bias_mode != BIAS_FUSED) return snprintf(why, size, "the bias is added after a rounding"), false;
    return suitable(y, x, w, ROW_ALIGN, why, size);
}

static bool linear_gelu_f32_accepts(const void *args, char *why, size_t size) {
    const Linear *a = args;
    return keeps(a->y, a->x, a->w, a->bias_mode, why, size);
}

static bool linear_many_gelu_f32_accepts(const void *args, char *why, size_t size) {
    const LinearManyGelu *a = args;
    return keeps(a->g, a->x, a->w[count_of(a->w) - 1], a->bias_mode, why, size);
}

const Impl LINEAR_GELU_F32_CUDA[] = {
    {OP_linear_gelu, "cuda_f32", linear_gelu_f32, NULL, linear_gelu_f32_accepts},
    {OP_linear_many_gelu, "cuda_f32", linear_many_gelu_f32, NULL, linear_many_gelu_f32_accepts}};

#endif
