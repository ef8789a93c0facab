/* unary.c - fills unary bf16 tables: double formula, one rounding to bf16, then the recorded differences.
 *
 * Not a fast path: the caller fills a table once and indexes it. scripts/pack_unary.py holds the same formulas
 * and decides from the recording which entries must be stored; changing a formula here means packing again
 * (tests/test_unary.c compares checksums of the recordings, so it notices).
 * Easy to get wrong: rounding must go from double straight to bf16; through float it would round twice. */
#include "kernels/unary.h"

#include "core/tensor.h"

#include <math.h>
#include <stdlib.h>

static const char *const NAMES[UNARY_COUNT] = {
    "silu", "gelu_tanh", "gelu_erf", "tanh", "sigmoid", "exp", "sin",
    "cos", "log", "sqrt", "rsqrt", "softplus", "pow3",
};

const char *unary_name(UnaryFn fn) {
    return fn >= 0 && fn < UNARY_COUNT ? NAMES[fn] : "unknown";
}

const char *unary_source(void) {
    return unary_tables_source;
}

/* Nearest bf16, ties to even, with bf16's subnormals (spacing 2^-133) and overflow to infinity. */
static uint16_t bf16_from_double(double v) {
    if (isnan(v)) return 0x7fc0;
    uint16_t sign = signbit(v) ? 0x8000 : 0;
    double a = fabs(v);
    if (a == 0) return sign;
    int e;
    frexp(a, &e);                            /* a = m 2^e, m in [0.5, 1) */
    int unit = e - 8 < -133 ? -133 : e - 8;  /* exponent of the last place: 8 significant bits */
    double n = ldexp(a, -unit);              /* exact: at most 2^8 */
    double r = floor(n), rest = n - r;
    if (rest > 0.5 || (rest == 0.5 && fmod(r, 2) != 0)) r += 1;
    double rounded = ldexp(r, unit);
    if (rounded > 3.3895313892515355e38) return (uint16_t)(sign | 0x7f80);
    return (uint16_t)(sign | bf16_from_f32((float)rounded)); /* exact in float by now */
}

/* The GELUs cancel (1 + tanh near -1), so their f32 steps show in bf16: as PyTorch's kernel takes them, tanh and erf
 * correctly rounded. */
static double gelu_tanh(float x) {
    float inner = 0.79788456f * (x + 0.044715f * (x * x * x));
    return (double)(0.5f * x * (1.0f + (float)tanh((double)inner)));
}

static double gelu_erf(float x) {
    return (double)(0.5f * x * (1.0f + (float)erf((double)(x * 0.70710678f))));
}

static double formula(UnaryFn fn, double x) {
    switch (fn) {
    case UNARY_SILU: return x / (1 + exp(-x));
    case UNARY_GELU_TANH: return gelu_tanh((float)x);
    case UNARY_GELU_ERF: return gelu_erf((float)x);
    case UNARY_TANH: return tanh(x);
    case UNARY_SIGMOID: return 1 / (1 + exp(-x));
    case UNARY_EXP: return exp(x);
    case UNARY_SIN: return sin(x);
    case UNARY_COS: return cos(x);
    case UNARY_LOG: return log(x);
    case UNARY_SQRT: return sqrt(x);
    case UNARY_RSQRT: return 1 / sqrt(x);
    case UNARY_SOFTPLUS: return x > 20 ? x : log1p(exp(x));
    case UNARY_POW3: return (double)bf16_to_f32(bf16_from_double(x * x)) * x;
    case UNARY_COUNT: break;
    }
    return NAN;
}

void unary_table_fill(UnaryFn fn, uint16_t table[UNARY_ENTRIES]) {
    for (int b = 0; b < UNARY_ENTRIES; b++)
        table[b] = bf16_from_double(formula(fn, (double)bf16_to_f32((uint16_t)b)));
    const UnaryFixes *fixes = &unary_tables_fixes[fn];
    for (int i = 0; i < fixes->count; i++) table[fixes->fix[i].in] = fixes->fix[i].out;
}

Status unary_open(Unary *u, Error *e) {
    *u = (Unary){0};
    for (int fn = 0; fn < UNARY_COUNT; fn++) {
        u->table[fn] = malloc(UNARY_ENTRIES * sizeof *u->table[fn]);
        if (!u->table[fn]) {
            unary_close(u);
            return fail(e, ERR_MEMORY, "out of memory for the BF16 function tables");
        }
        unary_table_fill((UnaryFn)fn, u->table[fn]);
    }
    return OK;
}

void unary_close(Unary *u) {
    for (int fn = 0; fn < UNARY_COUNT; fn++) free(u->table[fn]);
    *u = (Unary){0};
}
