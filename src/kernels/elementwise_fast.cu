/* elementwise_fast.cu - gated residual, modulation and activations on BF16 rows at the speed of a copy.
 *
 * A block covers a piece of the columns of a few rows: every thread keeps one 16-byte column, asks for it in TURNS rows at
 * once, and what is the same in all rows (gate, scale, shift as one row) is read once. Addresses are worked out once a
 * row, not once an element. Rows that are not aligned, or of more than two strides, go to the table's reference;
 * a transposed residual goes through tiles (residual_gate_tiled.cu).
 * Easy to get wrong: r(act(a)) is rounded before the product of act_mul; a gate or scale of one column is one value for
 * the whole row (its last stride is 0). */
#include "kernels/act_table.h"
#include "kernels/cuda_act.cuh"
#include "kernels/cuda_fast.cuh"
#include "kernels/residual_gate_tiled.h"
#include "kernels/swiglu_fused.h"

using namespace fast;

namespace {

constexpr int THREADS = 256, TURNS = 4, MOST_INPUTS = 3;

/* How an input is found in each row. */
enum Form {
    ABSENT,
    STREAM, /* a row of its own, or one of a few */
    ONE,    /* the same row for all */
    VALUE,  /* one value a row */
};

struct Streams {
    At y, in[MOST_INPUTS];
    Rows rows;
    unsigned columns; /* 16-byte columns that a block covers */
};

__device__ inline Wide read(Form form, const At &t, const Rows &rows, unsigned row, unsigned column) {
    if (form == ABSENT) return filled<4>(both(0.0f));
    const Bf *at = row_of(t, rows, row);
    if (form == VALUE) return filled<4>(__bfloat162bfloat162(*at));
    return get<4>(at + (int64_t)column * WIDE);
}

/* F: FORM of each input, and Pair operator()(Pair, Pair, Pair). blockIdx.x: rows, blockIdx.y: columns. */
template <typename F> __global__ void __launch_bounds__(THREADS) k_rows_fast(Streams s, F f) {
    begin();
    unsigned column = threadIdx.x % s.columns, high = blockDim.x / s.columns;
    unsigned first = blockIdx.x * high * TURNS + threadIdx.x / s.columns;
    column += blockIdx.y * s.columns;
    if (column >= s.rows.cols / WIDE) return;
    Wide v[MOST_INPUTS][TURNS];
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        unsigned row = first + t * high;
        if (row >= s.rows.count) break;
#pragma unroll
        for (int i = 0; i < MOST_INPUTS; i++)
            if (F::form(i) != ONE || t == 0) v[i][t] = read(F::form(i), s.in[i], s.rows, row, column);
    }
#pragma unroll
    for (int t = 0; t < TURNS; t++) {
        unsigned row = first + t * high;
        if (row >= s.rows.count) break;
        Wide out;
#pragma unroll
        for (int k = 0; k < WIDE / 2; k++)
            out.p[k] = f(v[0][F::form(0) == ONE ? 0 : t].p[k], v[1][F::form(1) == ONE ? 0 : t].p[k],
                         v[2][F::form(2) == ONE ? 0 : t].p[k]);
        put(row_of(s.y, s.rows, row) + (int64_t)column * WIDE, out);
    }
}

/* False when the rows do not suit; y and in[0] are streams. */
bool arrange(const Tensor &y, const Tensor *in, int count, Streams *s, Form *form) {
    const Tensor none = {};
    const Tensor *t[1 + MOST_INPUTS] = {&y, &none, &none, &none};
    At at[1 + MOST_INPUTS];
    for (int i = 0; i < count; i++) t[1 + i] = &in[i];
    if (!rows_of(y, t, 1 + MOST_INPUTS, &s->rows, at) || s->rows.cols % WIDE) return false;
    if (s->rows.cols / WIDE > (int64_t)THREADS * 65535) return false;
    for (int i = 0; i < 1 + MOST_INPUTS; i++) {
        const Tensor *a = t[i];
        bool value = a->rank && a->shape[a->rank - 1] == 1 && s->rows.cols != 1;
        if (!value && !aligned(*a, at[i], WIDE)) return false;
        if (i == 0) s->y = at[0];
        else s->in[i - 1] = at[i];
        if (i == 0) continue;
        form[i - 1] = !a->rank ? ABSENT : value ? VALUE : !at[i].outer && !at[i].inner && s->rows.count > 1 ? ONE : STREAM;
    }
    return true;
}

template <typename F> Status run(Exec *x, const char *op, Streams s, F f) {
    unsigned all = (unsigned)(s.rows.cols / WIDE), pieces = blocks_for(all, THREADS);
    s.columns = (all + pieces - 1) / pieces;
    unsigned high = THREADS / s.columns; /* rows side by side */
    if (high > s.rows.count) high = s.rows.count;
    dim3 grid(blocks_for(s.rows.count, (int64_t)high * TURNS), pieces);
    launch_early(x, k_rows_fast<F>, grid, s.columns * high, 0, s, f);
    return cuda_launched(x, op);
}

/* --- gated residual --- */

template <Form GATE> struct GateF {
    __host__ __device__ static constexpr Form form(int i) { return i < 2 ? STREAM : GATE; }
    __device__ Pair operator()(Pair residual, Pair v, Pair gate) const {
        return add(residual, GATE == ABSENT ? v : mul(gate, v));
    }
};

Status residual_gate_cuda_fast(Exec *x, const void *args) {
    const ResidualGate *a = (const ResidualGate *)args;
    const Tensor in[] = {a->residual, a->x, a->gate};
    Streams s = {};
    Form form[MOST_INPUTS];
    if (!tensor_numel(a->y)) return OK;
    if (residual_gate_tiled_fits(a)) return residual_gate_tiled(x, a);
    if (!arrange(a->y, in, 3, &s, form) || form[0] != STREAM || form[1] != STREAM)
        return chain_run(x, OP_residual_gate, args);
    switch (form[2]) {
    case ABSENT: return run(x, "residual_gate", s, GateF<ABSENT>{});
    case ONE: return run(x, "residual_gate", s, GateF<ONE>{});
    case VALUE: return run(x, "residual_gate", s, GateF<VALUE>{});
    default: return run(x, "residual_gate", s, GateF<STREAM>{});
    }
}

/* --- modulation --- */

template <Form SCALE, Form SHIFT> struct ModulateF {
    __host__ __device__ static constexpr Form form(int i) { return i == 0 ? STREAM : i == 1 ? SCALE : SHIFT; }
    __device__ Pair operator()(Pair v, Pair scale, Pair shift) const {
        Pair scaled = mul(v, one_plus(scale));
        return SHIFT == ABSENT ? scaled : add(scaled, shift);
    }
};

Status modulate_cuda_fast(Exec *x, const void *args) {
    const Modulate *a = (const Modulate *)args;
    const Tensor in[] = {a->x, a->scale, a->shift};
    Streams s = {};
    Form form[MOST_INPUTS];
    if (!tensor_numel(a->y)) return OK;
    bool good = arrange(a->y, in, 3, &s, form) && form[0] == STREAM;
    if (good && form[1] == ONE && form[2] == ONE) return run(x, "modulate", s, ModulateF<ONE, ONE>{});
    if (good && form[1] == ONE && form[2] == ABSENT) return run(x, "modulate", s, ModulateF<ONE, ABSENT>{});
    if (good && form[1] == STREAM && form[2] == STREAM) return run(x, "modulate", s, ModulateF<STREAM, STREAM>{});
    if (good && form[1] == STREAM && form[2] == ABSENT) return run(x, "modulate", s, ModulateF<STREAM, ABSENT>{});
    return chain_run(x, OP_modulate, args);
}

/* --- activations --- */

template <int KIND, bool TIMES> struct ActF {
    __host__ __device__ static constexpr Form form(int i) { return i == 0 || (i == 1 && TIMES) ? STREAM : ABSENT; }
    __device__ Pair operator()(Pair v, Pair b, Pair) const {
        Pair a = KIND == ACT_SILU ? act::silu_of_pair(v)
                                  : round2(act::activate<Bf>(__low2float(v), KIND), act::activate<Bf>(__high2float(v), KIND));
        return TIMES ? mul(a, b) : a;
    }
};

template <bool TIMES> bool run_act(Exec *x, const char *op, const Streams &s, int kind, Status *status) {
    switch (kind) {
    case ACT_SILU: *status = run(x, op, s, ActF<ACT_SILU, TIMES>{}); return true;
    case ACT_GELU_TANH: *status = run(x, op, s, ActF<ACT_GELU_TANH, TIMES>{}); return true;
    case ACT_GELU_NEW: *status = run(x, op, s, ActF<ACT_GELU_NEW, TIMES>{}); return true;
    default: return false;
    }
}

Status act_cuda_fast(Exec *x, const void *args) {
    const Act *a = (const Act *)args;
    Streams s = {};
    Form form[MOST_INPUTS];
    Status status = OK;
    if (!tensor_numel(a->y)) return OK;
    if (act_table_run(x, a, &status)) return status;
    bool good = arrange(a->y, &a->x, 1, &s, form) && form[0] == STREAM;
    if (good && run_act<false>(x, "act", s, a->kind, &status)) return status;
    return chain_run(x, OP_act, args);
}

Status act_mul_cuda_fast(Exec *x, const void *args) {
    const ActMul *a = (const ActMul *)args;
    const Tensor in[] = {a->a, a->b};
    Streams s = {};
    Form form[MOST_INPUTS];
    Status status = OK;
    if (!tensor_numel(a->y)) return OK;
    if (swiglu_fused_fits(a)) return swiglu_fused(x, a);
    bool good = arrange(a->y, in, 2, &s, form) && form[0] == STREAM && form[1] == STREAM;
    if (good && run_act<true>(x, "act_mul", s, a->kind, &status)) return status;
    return chain_run(x, OP_act_mul, args);
}

bool four_accepts(const void *args, char *why, size_t size) { return want_bf16((const Tensor *)args, 4, why, size); }

/* Kinds that only text encoders have gain nothing here. */
bool kind_accepts(int kind, char *why, size_t size) {
    if (kind == ACT_SILU || kind == ACT_GELU_TANH || kind == ACT_GELU_NEW) return true;
    return snprintf(why, size, "activation %d is none of SiLU, GELU tanh and gelu_new", kind), false;
}
bool act_accepts(const void *args, char *why, size_t size) {
    return want_bf16((const Tensor *)args, 2, why, size) && kind_accepts(((const Act *)args)->kind, why, size);
}
bool act_mul_accepts(const void *args, char *why, size_t size) {
    return want_bf16((const Tensor *)args, 3, why, size) && kind_accepts(((const ActMul *)args)->kind, why, size);
}

} /* namespace */

const Impl RESIDUAL_GATE_FAST_CUDA[] = {
    {OP_residual_gate, "cuda_fast", residual_gate_cuda_fast, NULL, four_accepts},
    {OP_modulate, "cuda_fast", modulate_cuda_fast, NULL, four_accepts},
};
const Impl ACT_FAST_CUDA[] = {
    {OP_act, "cuda_fast", act_cuda_fast, NULL, act_accepts},
    {OP_act_mul, "cuda_fast", act_mul_cuda_fast, NULL, act_mul_accepts},
};
