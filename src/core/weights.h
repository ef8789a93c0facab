/* weights.h - the tensors of one component's files, and how they become a model's Weights.
 *
 * A component folder holds one *.safetensors or an index with shards. weights_open() maps them and checks headers
 * and index; nothing is read beyond the headers. A model describes what it wants as Bind rows: on-disk name ->
 * destination, shape, transform. weights_bind() resolves all rows and reports every missing, mis-shaped and unused
 * tensor at once. Rows are kept: a resident tensor can be re-read from its file later, and another file layout is
 * another set of rows.
 *
 * On the CPU a plain matrix stays where it is mapped, in its disk dtype (Weight.w points into the file, perhaps
 * unaligned: kernels widen tiles with memcpy-style loads); small vectors and transformed tensors are copied into the
 * component's region in the compute dtype. On CUDA everything is copied.
 * Easy to get wrong: the mapped bytes are disk dtype; the value an op must use is that value rounded to
 * Weight.round (bf16 compute on an F32 file rounds to nearest even, as torch_dtype= does). */
#ifndef WEIGHTS_H
#define WEIGHTS_H

#include "core/arena.h"
#include "core/tensor.h"

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What linear, conv and embed take. Vectors for norms are plain Tensors in the compute dtype (bind_vector). */
typedef struct Weight {
    Tensor w;          /* [N,K], [Cout,kh,kw,Cin] or [rows,D]; dtype as stored in memory */
    Tensor bias;       /* [N] in the compute dtype, or absent */
    Tensor scale;      /* quantised storage only; absent: refused until fp8 exists */
    DType round;       /* compute dtype: values are rounded to it before use */
    void *lora;        /* slot, NULL */
    uint32_t version;  /* bumped when the bytes change; caches of packed forms carry it */
    const char *name;  /* on-disk name, for messages */
} Weight;

typedef enum Transform {
    BIND_PLAIN,       /* as stored */
    BIND_OIHW_OHWI,   /* convolution weight to channels last */
    BIND_FRAME_OHWI,  /* the same of a 3-D convolution over single frames: [O,I,1,H,W] to [O,H,W,I] */
    BIND_LINE_OHWI,   /* of a convolution along a line, as one over the rows of a picture: [O,I,K] to [O,K,1,I] */
    BIND_SWAP_HALVES, /* rows [N/2..N) first */
    BIND_PLUS_ONE,    /* Gemma norms: 1 + w, in f32, before rounding to the compute dtype */
    BIND_SQUEEZE,     /* extents of 1 dropped: a 1x1 convolution [N,K,1,1], a norm's [N,1,1,1], a filter's [1,1,K] */
} Transform;

typedef enum BindTarget { BIND_MATRIX, BIND_BIAS, BIND_VECTOR } BindTarget;

enum { GATHERED_ROWS = 1024 };

typedef struct BindRow {
    char *name;                 /* full on-disk name */
    Weight *weight;             /* BIND_MATRIX, BIND_BIAS: into w / bias */
    Tensor *vector;             /* BIND_VECTOR */
    BindTarget target;
    Transform transform;
    int rank;
    int64_t shape[TENSOR_MAX_RANK]; /* expected on disk, after row selection */
    int64_t row_start;          /* first row taken from the file's tensor (packed files); 0 */
    int64_t file_rows;          /* rows of the file's tensor; 0: same as shape[0] */
    bool gathered;              /* a table of which a run reads few rows: the plan counts GATHERED_ROWS where it is mapped */
    bool optional;              /* absent in the file is allowed: destination stays absent */
    int block;                  /* 1 + the block that uses it; 0: none, used at any time */
    int pack;                   /* number of its pack; 0: none */
} BindRow;

typedef struct Bind {
    BindRow *rows; /* malloc'd */
    int count, cap;
    bool failed;   /* out of memory while adding; weights_bind reports it */
    const char *prefix; /* prepended to every name; may be "" */
    int block;          /* of rows to come, as in BindRow */
    int pack, packs;    /* of rows to come, 0: none; how many there are */
} Bind;

/* Rows added from here on belong to the i-th block of the model, counted in the order in which blocks run; -1: to none.
 * The model promises to use them only between weights_enter(x, i) and weights_leave(x, i). */
void bind_block(Bind *b, int i);

/* Rows added between on and off are one pack: in a region their biases lie one behind the other, and so do their matrices,
 * in the order of binding and without gaps where sizes are multiples of ARENA_ALIGN. What takes the same input can then be
 * one product (kernels/packing.h). All of a pack belongs to one block. */
void bind_pack(Bind *b, bool on);

/* linear with [out,in] weight NAME.weight and, when bias, NAME.bias [out]. Name is printf-formatted. */
void bind_linear(Bind *b, Weight *w, int64_t out, int64_t in, bool bias, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
/* convolution NAME.weight [out,in,k,k] -> OHWI, NAME.bias [out]. */
void bind_conv(Bind *b, Weight *w, int64_t out, int64_t in, int64_t k, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
/* convolution over frames NAME.weight [out,in,kt,k,k] -> [out,kt,k,k,in], NAME.bias [out]. */
void bind_conv3d(Bind *b, Weight *w, int64_t out, int64_t in, int64_t kt, int64_t k, const char *format, ...)
    __attribute__((format(printf, 7, 8)));
/* convolution along a line NAME.weight [out,in,k] -> [out,k,1,in], and when bias NAME.bias [out]; transposed: [in,out,k] as it
 * is. */
void bind_conv1d(Bind *b, Weight *w, int64_t out, int64_t in, int64_t k, bool bias, const char *format, ...)
    __attribute__((format(printf, 7, 8)));
void bind_conv_transpose1d(Bind *b, Weight *w, int64_t out, int64_t in, int64_t k, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
/* a weight NAME.weight of any form, [out, ...] on disk, and when bias NAME.bias [out]. */
void bind_filter(Bind *b, Weight *w, Transform transform, int rank, const int64_t *shape, bool bias, const char *format, ...)
    __attribute__((format(printf, 7, 8)));
/* one matrix by its full name (embedding tables). */
void bind_matrix(Bind *b, Weight *w, int64_t rows, int64_t cols, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* one vector by its full name. */
void bind_vector(Bind *b, Tensor *t, int64_t n, Transform transform, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* vectors that one tensor [rows, d] holds, by its full name. */
void bind_table(Bind *b, Tensor *t, int64_t rows, int64_t d, const char *format, ...) __attribute__((format(printf, 5, 6)));
/* To set optional, row_start, file_rows, transform; NULL after a failure. After bind_linear and bind_conv: the weight's
 * row (the bias's row stands before it). */
BindRow *bind_last(Bind *b);
void bind_free(Bind *b);

typedef struct WeightFiles WeightFiles; /* mapped shards and their name table */

/* folder: a component folder ("DIR/transformer"), or one *.safetensors file. Which files of a folder are taken, also when
 * several would do, is stated in shards.h. ERR_MODEL names what is missing or wrong. */
Status weights_open(const char *folder, WeightFiles **out, Error *e);
void weights_close(WeightFiles *f);
int weights_count(const WeightFiles *f);
/* i-th tensor in name order; the returned name lives as long as f. data NULL is never returned; a tensor of rank above
 * TENSOR_MAX_RANK is returned flat, weights_entry has its shape. */
void weights_at(const WeightFiles *f, int i, const char **name, Tensor *t, const char **file);
/* NULL-safe lookup; false when there is no such tensor. Tensor ranks above TENSOR_MAX_RANK never match. */
bool weights_find(const WeightFiles *f, const char *name, Tensor *t);
/* Without extents of 1, a matrix down to two dimensions, and with its rows: a BIND_SQUEEZE tensor may come with or without
 * them, and its row may state either. */
Tensor weights_squeezed(Tensor t, BindTarget target);
const struct SafetensorsEntry *weights_entry(const WeightFiles *f, int i);

/* What rows and files have to do with each other; weights_bind reports from it, `ditto inspect` lists it. */
typedef enum RowState { ROW_FOUND, ROW_ABSENT, ROW_MISSING, ROW_SHAPE, ROW_DTYPE } RowState; /* ABSENT: optional */
typedef enum TensorUse { TENSOR_UNUSED, TENSOR_IGNORED, TENSOR_USED } TensorUse;
typedef struct WeightMatch {
    int *tensor;    /* [rows] index of the file's tensor, -1 when there is none */
    RowState *row;  /* [rows] */
    TensorUse *use; /* [tensors] */
    int missing, shape, dtype, unused; /* how many of each kind */
} WeightMatch;
/* `ignore`: NULL, or NULL-ended prefixes of full on-disk names that may stay unused. */
Status weights_match(const WeightFiles *f, const Bind *b, const char *const *ignore, WeightMatch *out, Error *e);
void weights_match_free(WeightMatch *m);
/* The same, and ERR_MODEL in one line that names every missing and mis-shaped tensor (the first few of each, then a
 * count), and the unused ones too when `surplus` is true. Nothing is left to free then. */
Status weights_check(const WeightFiles *f, const Bind *b, const char *const *ignore, bool surplus, WeightMatch *out,
                     Error *e);

/* Bytes of region that weights_bind will use on this device for these rows with this compute dtype (the plan), and bytes
 * that stay mapped and are only read (cpu: plain matrices are not copied). Fails on missing and mis-shaped tensors. */
Status weights_measure(const WeightFiles *f, const Bind *b, DType compute, const Device *device, size_t *region,
                       size_t *mapped, Error *e);
/* Resolves every row; copies what must be copied into region (device of the arena). Names every missing, mis-shaped and
 * unused tensor in one message (the first few of each, then a count). Unused tensors listed in `ignore` (NULL, or
 * NULL-ended prefixes of full on-disk names) are fine. Weights are BF16, F16 or F32 on disk; others are refused by name.
 * With a dry region only addresses are assigned: those of the CPU's split. */
Status weights_bind(const WeightFiles *f, const Bind *b, DType compute, Arena *region, const char *const *ignore,
                    Error *e);

#ifdef __cplusplus
}
#endif

#endif
