/* rows.h - how the CPU table walks tensors: rows of the last dimension, cut into spans of at most ROWS_SPAN elements
 * that are widened to f32 buffers, worked on and narrowed again. Not a contract and not for CUDA: only *_cpu.c files
 * include it.
 *
 * An op makes a Walk over its output, loops over walk.count spans (in parallel when walk.parallel says so), loads
 * every input span before it stores, and so may work in place. Spans never share an output element, hence results do
 * not depend on the number of threads.
 * Easy to get wrong: bf16 values in a span buffer are exact; after each operation that the contract writes as r(...)
 * call rows_round, which does nothing for F32. */
#ifndef KERNELS_ROWS_H
#define KERNELS_ROWS_H

#include "ops.h"

enum {
    ROWS_SPAN = 1024,           /* a multiple of ROWS_LANES: reductions keep their order across spans */
    ROWS_LANES = 16,            /* partial sums of a reduction; element j of a row goes to lane j % 16 */
    ROWS_PARALLEL_AT = 1 << 16, /* elements from which a second thread pays: some 15 us of the cheapest op */
};

typedef struct Walk {
    int64_t rows, cols, pieces; /* pieces: spans per row */
    int64_t count;              /* rows * pieces */
    bool parallel;
} Walk;

typedef struct Span {
    int64_t row, first, n;
} Span;

Walk rows_walk(Tensor y);
static inline Span rows_piece(const Walk *w, int64_t row, int64_t first) {
    return (Span){row, first, w->cols - first < ROWS_SPAN ? w->cols - first : ROWS_SPAN};
}
static inline Span rows_span(const Walk *w, int64_t i) {
    int64_t row = w->pieces == 1 ? i : i / w->pieces;
    return rows_piece(w, row, (i - row * w->pieces) * ROWS_SPAN);
}

/* When all tensors are contiguous and of one shape, each becomes one row: short rows then cost nothing. */
void rows_flatten(int count, Tensor *const *tensors);
/* t seen in the shape of `like`: dimensions are aligned at the end; missing ones and extents of 1 get stride 0. */
bool rows_broadcast(Tensor t, Tensor like, Tensor *out);

/* Address of element (row, first) of t; stride of the last dimension is t.stride[t.rank - 1]. */
void *rows_at(const Tensor *t, int64_t row, int64_t first);
/* F32, BF16 and F16, any strides; addresses need no alignment (mapped weights have none). */
void rows_load(float *to, const Tensor *t, Span s);
void rows_store(const Tensor *t, Span s, const float *from); /* F32 as is, BF16 and F16 to nearest even */
void rows_round(float *v, int64_t n, DType t);               /* r(...) of the contracts: in place */
/* adaLN: v = r(v * r(1 + scale)), then v + shift unless that is absent (rank 0); t: the dtype that rounds. */
void rows_modulate(float *v, const Tensor *scale, const Tensor *shift, Span s, DType t);

/* Refusals, naming op and argument. */
Status rows_want_float(Exec *x, OpId op, const char *arg, Tensor t);              /* F32 or BF16 */
Status rows_want_like(Exec *x, OpId op, const char *arg, Tensor t, Tensor like);  /* same shape and dtype */
/* Same dtype, broadcastable; *t is replaced by its broadcast view. */
Status rows_want_row(Exec *x, OpId op, const char *arg, Tensor *t, Tensor like);

#endif
