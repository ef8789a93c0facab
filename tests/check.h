/* check.h - what checkop and its case generators share: cases, their buffers, and an independent model of rounding.
 *
 * A generator fills one Case: buffers with values in logical order, the args struct that refers to them, and for
 * every output element what is expected: the exact value (want) and, where the contract leaves room, the interval
 * [lo, hi]. It never sees device memory: checkop lays the buffers out with their strides, between guard bands, on the
 * device, runs every variant and compares.
 * Easy to get wrong: the model here must stay independent of src/kernels: it works in double and rounds with
 * check_round, which shares no code with core/tensor.h. Values of a buffer are kept as float: exact for every dtype
 * used here (ids stay below 2^24). */
#ifndef CHECK_H
#define CHECK_H

#include "ops.h"
#include "kernels/unary.h"

enum { CHECK_BUFS = 20, CHECK_SLOTS = LINEAR_MANY_MAX, CHECK_GUARD = 256 };

/* An element whose value nobody computed, but which must be the same in every run; one that the contract leaves open. */
enum { CHECK_UNJUDGED = 1, CHECK_OPEN = 2 };

typedef enum Layout {
    LAYOUT_DENSE,
    LAYOUT_PADDED,     /* last dimension contiguous, rows further apart */
    LAYOUT_SWAPPED,    /* last dimension contiguous, the outer ones in reverse order, padded */
    LAYOUT_TRANSPOSED, /* strides reversed: the last dimension is not contiguous */
    LAYOUT_TURNED,     /* the last two dimensions exchanged in memory */
    LAYOUT_UNALIGNED,  /* dense, but starting at an odd byte: mapped weights */
} Layout;

typedef struct Buf {
    const char *name;
    Tensor view;                /* geometry; data is set per run */
    Tensor *slot[CHECK_SLOTS];  /* where the device view goes: args or a Weight; two when an op works in place */
    size_t offset[CHECK_SLOTS]; /* bytes from element 0 to the slot's (check_part) */
    bool out;
    float *v;                   /* input values in logical order, NULL for a pure output */
    int64_t n;
    double *want, *lo, *hi;     /* outputs; lo and hi equal want where the result is exact */
    uint8_t *skipped;           /* outputs: CHECK_UNJUDGED, CHECK_OPEN or 0 for each element; NULL: all are judged */
    uint8_t *spilled;           /* outputs: 1 for each element that may also be a NaN or an infinity; NULL: none may */
    double near_limit;          /* share of elements that may differ from want inside [lo, hi]; 1: all */
    size_t bytes, lead;         /* of the whole allocation; of the guard before element 0 */
    char *image, *after;        /* host copies of the allocation before and after a run */
} Buf;

typedef struct Case {
    OpId op;
    int index;
    uint64_t seed, state; /* state of the generator of random numbers */
    bool small;           /* reduced shapes: sanitizers */
    bool gpu;             /* for a GPU's table: weights lie at aligned addresses there (weights_bind) */
    bool tidy;            /* pads keep rows at multiples of 16 bytes: wide accesses are possible everywhere */
    bool keeps;           /* for a variant that leaves out the roundings between an op's steps (BOUNDED families) */
    char label[224];
    Buf buf[CHECK_BUFS];
    int count;
    union {
        Tensor first;
        char bytes[1024];
    } args;
    Weight weight[LINEAR_MANY_MAX];
    Status status;        /* expected: OK, or the refusal that the contract promises */
    const char *refusal;  /* text that the refusal must contain */
    /* The same result by other ops, bit for bit (fused forms): run on the same buffers. NULL: none. */
    Status (*twin)(Exec *x, const void *args);
    void *owned[128];      /* memory of the case */
    int owned_count;
} Case;

/* Sets of one op: `count` cases, made one by one from c->index. */
typedef struct CaseSet {
    OpId op;
    int count;
    void (*make)(Case *c);
} CaseSet;

extern const CaseSet CHECK_MOVE[], CHECK_ELEMENTWISE[], CHECK_NORM[], CHECK_LINEAR[], CHECK_ATTENTION[], CHECK_CONV[],
    CHECK_VIDEO[], CHECK_TEXT[], CHECK_RMS[], CHECK_WAVE[], CHECK_GUIDE[];
extern const int CHECK_MOVE_COUNT, CHECK_ELEMENTWISE_COUNT, CHECK_NORM_COUNT, CHECK_LINEAR_COUNT, CHECK_ATTENTION_COUNT,
    CHECK_CONV_COUNT, CHECK_VIDEO_COUNT, CHECK_TEXT_COUNT, CHECK_RMS_COUNT, CHECK_WAVE_COUNT, CHECK_GUIDE_COUNT;

/* --- building a case --- */

void *check_alloc(Case *c, size_t bytes); /* zeroed; exits the child when memory is out */
void check_label(Case *c, const char *format, ...) __attribute__((format(printf, 2, 3)));
Buf *check_in(Case *c, const char *name, Tensor *slot, DType t, Layout layout, int rank, const int64_t *shape);
Buf *check_out(Case *c, const char *name, Tensor *slot, DType t, Layout layout, int rank, const int64_t *shape);
#define SHAPE(...) (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__}
/* One more slot of b: `count` indices of dimension `dim` from `first`. Columns of one buffer, rows of packed weights. */
void check_part(Case *c, Buf *b, Tensor *slot, int dim, int64_t first, int64_t count);
/* Turns an input into an output of the same memory: the op works in place. */
void check_in_place(Case *c, Buf *b, Tensor *output_slot);
/* Weight i of the case: values in the stored dtype; b->v are the stored values. */
Buf *check_weight(Case *c, int i, DType stored, DType round, Layout layout, int rank, const int64_t *shape);
/* count weights, n[i] rows each, behind one another in one buffer; their biases in another (bias NULL: none). */
Buf *check_weights(Case *c, int count, const int64_t *n, DType stored, DType round, int64_t columns, Buf **bias);
Buf *check_bias(Case *c, int i, DType t, int64_t n);

int64_t check_dim(const Case *c, int64_t full, int64_t small); /* min of both when c->small */
Layout check_layout(Case *c);                                  /* dense, padded or swapped, at random */
const char *check_layout_name(Layout layout);

/* --- random values, already rounded to the buffer's dtype --- */

uint64_t check_random(Case *c);
int64_t check_below(Case *c, int64_t n);
double check_normal(Case *c);
void check_fill(Case *c, Buf *b, double mean, double deviation);
/* A few elements become +-0, denormals, the largest value, infinities and NaN. */
void check_spoil(Case *c, Buf *b);

/* --- the model --- */

double check_round(double v, DType t);    /* nearest even, with subnormals and overflow; t F32, BF16, F16 */
double check_r(double v, DType t);        /* as a kernel rounds: to f32, then to t */
double check_half_ulp(double v, DType t); /* half the distance of neighbours at |v| */
const uint16_t *check_table(UnaryFn fn);  /* a unary BF16 table */
double check_unary(UnaryFn fn, double v); /* its value at v, which is a BF16 number */

void check_exact(Buf *b, int64_t i, double want);
void check_within(Buf *b, int64_t i, double want, double tolerance);
void check_between(Buf *b, int64_t i, double want, double a, double b_end); /* a, b in any order */
void check_unjudged(Case *c, Buf *b); /* all of it: only equal bits are asked for */
/* Largest |naive - ref| / scale over finite elements: what plain same-precision arithmetic loses. */
double check_naive_error(int64_t n, const double *ref, const float *naive, const double *scale);

static const double CHECK_U = 0x1p-24; /* unit roundoff of f32 */

/* --- used by checkop --- */

void check_free(Case *c);
void check_images(Case *c, int poison);                      /* lays out every buffer; outputs get the poison byte */
void check_gather(const Buf *b, const char *image, float *out);
bool check_outside_equal(const Buf *b, const char *image);   /* nothing but the view's elements changed */
bool check_judge(const Buf *b, const char *image, char *text, size_t size);

#endif
