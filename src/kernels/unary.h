/* unary.h - unary bf16 functions as tables of 65,536 entries: one entry per input bit pattern.
 *
 * A bf16 function of one argument has only 65,536 values, so the CPU can carry the GPU's bits: the tables are
 * PyTorch's CUDA kernels as recorded on the reference profile (scripts/record_unary.py; versions stand in
 * unary_tables.c). They are stored as a double-precision formula plus the entries where the recording
 * differs from its correctly rounded value. Not for f32: there the formula of the header below applies.
 * Easy to get wrong: one entry is ONE kernel. Chains (quick_gelu, gelu_new) round between kernels: the caller
 * composes them from tables and bf16 products.
 *
 * Contract of unary_table_fill: table[b] is the output's bits for input bits b; every NaN output is 0x7fc0
 * (CUDA writes 0x7fff; comparisons treat all NaN alike). Promise EXACT against the recording, on every host
 * whose libm has an error below 2^-40 in double: entries whose exact value lies closer than that to a
 * rounding boundary are stored. Cost: 65,536 evaluations of a libm function (about 2 ms); fill once and keep. */
#ifndef UNARY_H
#define UNARY_H

#include "core/status.h"

#include <stdint.h>

typedef enum UnaryFn {
    UNARY_SILU,      /* x / (1 + exp(-x)) */
    UNARY_GELU_TANH, /* 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) as one kernel */
    UNARY_GELU_ERF,  /* 0.5 x (1 + erf(x / sqrt(2))) */
    UNARY_TANH,
    UNARY_SIGMOID,   /* 1 / (1 + exp(-x)) */
    UNARY_EXP,
    UNARY_SIN,
    UNARY_COS,
    UNARY_LOG,
    UNARY_SQRT,
    UNARY_RSQRT,
    UNARY_SOFTPLUS,  /* log1p(exp(x)), x itself above 20 */
    UNARY_POW3,      /* torch.pow(x, 3.0): bf16(bf16(x x) x) */
    UNARY_COUNT
} UnaryFn;

enum { UNARY_ENTRIES = 65536 };

const char *unary_name(UnaryFn fn); /* "silu", "gelu_tanh", ...: the recording's file names */
void unary_table_fill(UnaryFn fn, uint16_t table[UNARY_ENTRIES]);

/* All tables, filled once per process and read by every op of the CPU table (Exec.unary). */
typedef struct Unary {
    uint16_t *table[UNARY_COUNT];
} Unary;

Status unary_open(Unary *u, Error *e);
void unary_close(Unary *u);

/* Where the tables come from, for --explain and reports: "torch 2.11.0+cu130, ..., NVIDIA H200". */
const char *unary_source(void);

/* One line of unary_tables.c: where the recording differs from the formula. Sorted by input. */
typedef struct UnaryFix {
    uint16_t in, out;
} UnaryFix;

typedef struct UnaryFixes {
    const UnaryFix *fix;
    int count;
} UnaryFixes;

extern const UnaryFixes unary_tables_fixes[UNARY_COUNT];
extern const char unary_tables_source[];

#endif
