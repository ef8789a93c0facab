/* slice.h - an op's arguments cut down to some rows and moved to other memory: what probes and first-sight checks run on.
 *
 * Rows are dimension 0 of output 0; every tensor of rank 2 or more with that extent is cut with it, vectors stay whole.
 * That is a true piece of the op only where rows do not depend on each other (slice_rowwise).
 * Easy to get wrong: strides are kept, so a moved tensor takes the span of the original, gaps included; what lay side by
 * side has to be moved together (slice_stretches), or a packed variant would not know its arguments again. */
#ifndef SLICE_H
#define SLICE_H

#include "ops.h"

typedef union Args {
    Tensor tensor[OPS_ARGS / sizeof(Tensor)]; /* outputs first, then inputs */
    unsigned char bytes[OPS_ARGS];
} Args;

/* Whether each row of the outputs is made from the same rows of the inputs (and from vectors, weights and scalars). */
bool slice_rowwise(OpId op);
int64_t slice_rows(const Args *a);
Args slice_copy(OpId op, const void *args);
/* Rows [start, start + count) of a. */
Args slice_cut(OpId op, const Args *a, int64_t start, int64_t count);
/* A problem of the same kind with at most `rows` rows (of the input, where a picture grows), for probes: a true piece of a
 * where rows are independent, else a smaller picture, one frame of a convolution over frames. What cannot be made smaller stays
 * as it is. */
Args slice_small(OpId op, const Args *a, int64_t rows);
/* Bytes from the first to the last element of t. */
size_t slice_span(Tensor t);
/* Address of weight i (NULL when unused), and replacing it. */
const Weight *slice_weight(OpId op, const Args *a, int i);
void slice_set_weight(OpId op, Args *a, int i, const Weight *w);

/* A piece of memory that some of the arguments share: tensors that overlap (work in place, columns of one buffer), outputs
 * that touch, and weights and biases that touch. */
typedef struct Stretch {
    char *from, *to; /* from: rounded down to ARENA_ALIGN, which keeps alignments. to: the caller's */
    size_t size;
    bool written, read, weight; /* holds an output, an input, a weight or bias */
} Stretch;
enum { SLICE_STRETCHES = OPS_ARGS / sizeof(Tensor) + 2 * LINEAR_MANY_MAX };
typedef struct Stretches {
    Stretch at[SLICE_STRETCHES];
    int count;
} Stretches;

/* All memory of a's tensors, and of its weights when asked for; `to` is `from`. */
void slice_stretches(OpId op, const Args *a, bool weights, Stretches *out);
/* Where an address inside a stretch has gone; any other address is itself. */
void *slice_moved(const Stretches *s, void *address);

#endif
