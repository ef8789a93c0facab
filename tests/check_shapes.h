/* check_shapes.h - calls of ops as the models make them, at full size, with numbers in their arguments: for checkop's tables of
 * times and for comparing with another program. Not cases of checkop's own checks: nothing is expected of the results.
 *
 * Easy to get wrong: every argument of every copy has numbers of mean 0 and deviation 1 (a weight's rows: length 1), outputs too,
 * before the first run; an op that works in place in its model does so here. */
#ifndef CHECK_SHAPES_H
#define CHECK_SHAPES_H

#include "check_run.h"

typedef struct Maker Maker;

enum { SHAPES_PARAMS = 10, SHAPES_COPIES = 256 };

/* A call of a model: the shapes that `make` puts into args (zeroed), with tensors of m. p: what make says. */
typedef struct ShapeCase {
    OpId op;
    const char *name; /* the place in the model */
    int64_t p[SHAPES_PARAMS];
    void (*make)(Maker *m, const int64_t *p, void *args);
} ShapeCase;

/* Tables that end with a case without a name: the published models at 1024x1024; small: shapes of the demo checkpoint. */
const ShapeCase *shapes_cases(bool small);

/* The same call several times over, each with memory of its own. */
typedef struct ShapeCopies {
    Arena arena;
    Maker *maker;
    int count;
    union {
        Tensor first;
        char bytes[OPS_ARGS];
    } args[SHAPES_COPIES];
} ShapeCopies;

/* As many copies as take `least` bytes together, SHAPES_COPIES at most; shapes_close in any case. dtype: F32 or BF16. */
Status shapes_open(ShapeCopies *k, const ShapeCase *c, Session *t, DType dtype, size_t least);
void shapes_close(ShapeCopies *k);
Status shapes_fill(Device *d, Arena *a, Error *e);

/* --- for cases: data is NULL while sizes are counted --- */

DType shapes_dtype(const Maker *m);
Tensor shapes_tensor(Maker *m, DType dtype, int rank, const int64_t *shape);
#define shapes_new(m, dtype, ...)                                                                            \
    shapes_tensor(m, dtype, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})
/* With the strides of a transposed matrix: t[i][j] lies at j rows + i. */
Tensor shapes_transposed(Maker *m, DType dtype, int64_t rows, int64_t columns);
/* I32 [n] below `most`. */
Tensor shapes_ids(Maker *m, int64_t n, int64_t most);
/* [n] of zeros from 0, and from `real` on what takes a key out of a softmax. */
Tensor shapes_mask(Maker *m, int64_t n, int64_t real);
/* [rows, columns] of numbers behind a ReLU: half of them 0. */
Tensor shapes_positive(Maker *m, int64_t rows, int64_t columns);
/* F32 [rows, columns] of cosines or sines; rounded: values of the call's dtype. */
Tensor shapes_wave(Maker *m, int64_t rows, int64_t columns, int sine, bool rounded);
/* Weight of this shape, with a bias of shape[0] elements or without. Lives as long as m. */
const Weight *shapes_weight(Maker *m, bool bias, int rank, const int64_t *shape);
/* Some rows of one, as weights that were bound as a pack lie (kernels/packing.h). */
const Weight *shapes_weight_rows(Maker *m, const Weight *all, int64_t start, int64_t rows);

#endif
