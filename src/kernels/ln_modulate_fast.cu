/* ln_modulate_fast.cu - adaLN on BF16 rows in one pass over memory, alone or behind the gated residual that feeds it.
 *
 * The reference's bits (norm.cu): 128 threads a row, thread t takes the 4-element vectors t, t + 128, ..., Welford pushes,
 * merges by shuffle-down, then warps (0,2), (1,3), (0,1). What makes it fast: the row stays in registers, the next rows'
 * loads are under way meanwhile (on Hopper three of them, through shared memory by its copy engine; one in registers did not
 * hide a load's time), a block keeps scale and shift in registers for all its rows, and everything that
 * depends on counts alone (1/n of the pushes, the weights of the merges) is made once, so no division stands in the chain.
 * Rows that are too long or not aligned go to the table's reference.
 * Easy to get wrong: `own` and `other` of a merge are not symmetric in the last bit; a thread without vectors still
 * merges, with weight zero; an absent shift is -0.0 and an absent gate 1.0, which change no bit. */
#include "kernels/cuda_copy.cuh"
#include "kernels/cuda_fast.cuh"

using namespace fast;

namespace {

constexpr int THREADS = 128, WARPS = THREADS / 32, VEC = 4;
constexpr int MOST = 8;                    /* vectors of a thread: rows of up to 4,096 */
constexpr int LEVELS = 5, MERGES = LEVELS + 3;
constexpr unsigned ALL = 0xffffffffu;

struct Args {
    At y, x, scale, shift;
    At h, residual, gate;                  /* GATED only */
    Rows rows;
    int vectors;                           /* of a row */
    float eps;
};

/* --- statistics --- */

struct Moments {
    float mean, s;
};

/* The counts' share of a merge. */
struct Merge {
    float other, fa, fb;
};

__device__ inline Merge merge_of(float own, float other) {
    float n = other + own;
    if (n == 0.0f) return Merge{0.0f, 0.0f, 0.0f};
    float inverse = 1.0f / n;
    return Merge{other, other * inverse, own * inverse};
}

__device__ inline Moments merge(Moments own, Moments other, const Merge &m) {
    float delta = own.mean - other.mean;
    return Moments{fmaf(other.mean, m.fa, own.mean * m.fb), fmaf(delta * delta * m.other, m.fb, other.s + own.s)};
}

/* Elements of warp w when the last round has `left` vectors. */
__device__ inline float count_of(int rounds, int left, int w) {
    int mine = left - 32 * w;
    return (float)(VEC * (32 * (rounds - 1) + (mine < 0 ? 0 : mine > 32 ? 32 : mine)));
}

/* NV rounds; FULL: the last one has a vector for every thread, and all of this folds into constants. */
template <int NV, bool FULL> __device__ inline void merges_of(Merge m[MERGES], int vectors) {
    int left = FULL ? THREADS : vectors - (NV - 1) * THREADS;
    float own = (float)(VEC * (FULL || (int)threadIdx.x < left ? NV : NV - 1));
#pragma unroll
    for (int l = 0; l < LEVELS; l++) {
        float other = FULL ? own : __shfl_down_sync(ALL, own, 16 >> l);
        m[l] = merge_of(own, other);
        own = other + own;
    }
    float c[WARPS];
#pragma unroll
    for (int w = 0; w < WARPS; w++) c[w] = count_of(NV, left, w);
    m[LEVELS] = merge_of(c[0], c[2]);
    m[LEVELS + 1] = merge_of(c[1], c[3]);
    m[LEVELS + 2] = merge_of(c[0] + c[2], c[1] + c[3]);
}

template <int NV, bool FULL> __device__ inline bool mine(int k, int vectors) {
    return FULL || k < NV - 1 || (int)threadIdx.x + k * THREADS < vectors;
}

/* The row's moments in every thread. shared: a slot that the next row does not use. */
template <int NV, bool FULL>
__device__ inline Moments moments(const Four v[NV], const Merge m[MERGES], int vectors, float2 shared[WARPS]) {
    Moments own = {0.0f, 0.0f};
#pragma unroll
    for (int k = 0; k < NV; k++) {
        if (!mine<NV, FULL>(k, vectors)) continue;
#pragma unroll
        for (int j = 0; j < VEC; j++) {
            float x = j % 2 ? __high2float(v[k].p[j / 2]) : __low2float(v[k].p[j / 2]), delta = x - own.mean;
            own.mean = fmaf(delta, 1.0f / (float)(VEC * k + j + 1), own.mean);
            own.s = fmaf(delta, x - own.mean, own.s);
        }
    }
#pragma unroll
    for (int l = 0; l < LEVELS; l++) {
        Moments other = {__shfl_down_sync(ALL, own.mean, 16 >> l), __shfl_down_sync(ALL, own.s, 16 >> l)};
        own = merge(own, other, m[l]);
    }
    if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = make_float2(own.mean, own.s);
    __syncthreads();
    Moments w[WARPS];
#pragma unroll
    for (int i = 0; i < WARPS; i++) w[i] = Moments{shared[i].x, shared[i].y};
    return merge(merge(w[0], w[2], m[LEVELS]), merge(w[1], w[3], m[LEVELS + 1]), m[LEVELS + 2]);
}

/* --- rows --- */

template <int NV, bool FULL> __device__ inline void read(Four v[NV], const Bf *row, int vectors) {
#pragma unroll
    for (int k = 0; k < NV; k++)
        if (mine<NV, FULL>(k, vectors)) v[k] = get<2>(row + ((int)threadIdx.x + k * THREADS) * VEC);
        else v[k] = filled<2>(both(0.0f));
}

template <int NV, bool FULL> __device__ inline void write(Bf *row, const Four v[NV], int vectors) {
#pragma unroll
    for (int k = 0; k < NV; k++)
        if (mine<NV, FULL>(k, vectors)) put(row + ((int)threadIdx.x + k * THREADS) * VEC, v[k]);
}

/* r(1 + scale) and shift of a row. */
template <int NV, bool FULL> __device__ inline void read_modulation(Four scale[NV], Four shift[NV], const Args &a, unsigned row) {
    read<NV, FULL>(scale, row_of(a.scale, a.rows, row), a.vectors);
    if (a.shift.data) read<NV, FULL>(shift, row_of(a.shift, a.rows, row), a.vectors);
#pragma unroll
    for (int k = 0; k < NV; k++) {
        scale[k].p[0] = one_plus(scale[k].p[0]), scale[k].p[1] = one_plus(scale[k].p[1]);
        if (!a.shift.data) shift[k] = filled<2>(both(-0.0f));
    }
}

/* Normalised and modulated. */
template <int NV>
__device__ inline void finish(Four v[NV], const Moments &all, const Four scale[NV], const Four shift[NV], const Args &a) {
    float rstd = rsqrtf(all.s / (float)(a.vectors * VEC) + a.eps);
#pragma unroll
    for (int k = 0; k < NV; k++) {
#pragma unroll
        for (int j = 0; j < 2; j++) {
            Pair n = round2(rstd * (__low2float(v[k].p[j]) - all.mean), rstd * (__high2float(v[k].p[j]) - all.mean));
            v[k].p[j] = add(mul(n, scale[k].p[j]), shift[k].p[j]);
        }
    }
}

/* Blocks of a multiprocessor: what the registers for a row of NV vectors and the next one leave room for. */
constexpr int resident(int nv, bool gated) { return gated ? nv <= 6 ? 4 : 3 : nv <= 4 ? 6 : nv <= 6 ? 5 : 4; }

/* GATED: the row is h = r(residual + r(gate x)), which is written too; gate is one row. TOKEN: scale and shift differ by
 * row. Blocks take the rows blockIdx, blockIdx + gridDim, ... */
template <int NV, bool FULL, bool GATED, bool TOKEN>
__global__ void __launch_bounds__(THREADS, resident(NV, GATED)) k_ln_modulate_fast(Args a) {
    __shared__ float2 shared[2][WARPS];
    Merge m[MERGES];
    Four x[NV], residual[GATED ? NV : 1], gate[GATED ? NV : 1], scale[NV], shift[NV];
    unsigned row = blockIdx.x;
    begin();
    read<NV, FULL>(x, row_of(a.x, a.rows, row), a.vectors);
    if (GATED) {
        read<NV, FULL>(residual, row_of(a.residual, a.rows, row), a.vectors);
        if (a.gate.data) read<NV, FULL>(gate, (const Bf *)a.gate.data, a.vectors);
#pragma unroll
        for (int k = 0; k < NV && !a.gate.data; k++) gate[k] = filled<2>(both(1.0f));
    }
    if (!TOKEN) read_modulation<NV, FULL>(scale, shift, a, row);
    merges_of<NV, FULL>(m, a.vectors);
    for (int turn = 0; row < a.rows.count; row += gridDim.x, turn ^= 1) {
        Four v[NV];
#pragma unroll
        for (int k = 0; k < NV; k++) {
            v[k] = x[k];
            if (!GATED) continue;
            v[k].p[0] = add(residual[k].p[0], mul(gate[k].p[0], x[k].p[0]));
            v[k].p[1] = add(residual[k].p[1], mul(gate[k].p[1], x[k].p[1]));
        }
        unsigned ahead = row + gridDim.x;
        if (ahead < a.rows.count) {
            read<NV, FULL>(x, row_of(a.x, a.rows, ahead), a.vectors);
            if (GATED) read<NV, FULL>(residual, row_of(a.residual, a.rows, ahead), a.vectors);
        }
        if (TOKEN) read_modulation<NV, FULL>(scale, shift, a, row);
        if (GATED) write<NV, FULL>(row_of(a.h, a.rows, row), v, a.vectors);
        Moments all = moments<NV, FULL>(v, m, a.vectors, shared[turn]);
        finish<NV>(v, all, scale, shift, a);
        write<NV, FULL>(row_of(a.y, a.rows, row), v, a.vectors);
    }
}

/* --- rows through shared memory: the copy engine brings the next rows of a block while it works on one --- */

constexpr int SLOTS = 3; /* of a ring; each holds rows of x and, if gated, of the residual behind it */
constexpr int ring_resident(int nv, bool gated) { return gated ? nv <= 4 ? 6 : nv <= 6 ? 5 : 4 : nv <= 6 ? 6 : 5; }

template <bool GATED> __device__ inline void bring_row(Bf *slot, const Args &a, unsigned row, uint64_t *arrived) {
    unsigned bytes = (unsigned)a.vectors * sizeof(Four);
    copies::expect(arrived, GATED ? 2 * bytes : bytes);
    copies::bring(slot, row_of(a.x, a.rows, row), bytes, arrived);
    if (GATED) copies::bring(slot + a.rows.cols, row_of(a.residual, a.rows, row), bytes, arrived);
}

/* As k_ln_modulate_fast of one row of scale and shift. A row is in registers before the barrier in moments(): behind it its
 * slot is free. */
template <int NV, bool FULL, bool GATED>
__global__ void __launch_bounds__(THREADS, ring_resident(NV, GATED)) k_ln_modulate_ring(Args a) {
    extern __shared__ __align__(128) Bf ring[];
    __shared__ uint64_t arrived[SLOTS];
    __shared__ float2 shared[2][WARPS];
    Merge m[MERGES];
    Four gate[GATED ? NV : 1], scale[NV], shift[NV];
    int64_t each = a.rows.cols * (GATED ? 2 : 1);
    if (threadIdx.x == 0) copies::prepare(arrived, SLOTS);
    begin();
    if (threadIdx.x == 0)
        for (unsigned i = 0, row = blockIdx.x; i < SLOTS && row < a.rows.count; i++, row += gridDim.x)
            bring_row<GATED>(ring + i * each, a, row, arrived + i);
    if (GATED) {
        if (a.gate.data) read<NV, FULL>(gate, (const Bf *)a.gate.data, a.vectors);
#pragma unroll
        for (int k = 0; k < NV && !a.gate.data; k++) gate[k] = filled<2>(both(1.0f));
    }
    read_modulation<NV, FULL>(scale, shift, a, 0);
    merges_of<NV, FULL>(m, a.vectors);
    __syncthreads(); /* arrived is ready for all */
    unsigned slot = 0, parity = 0, turn = 0;
    for (unsigned row = blockIdx.x; row < a.rows.count; row += gridDim.x, turn ^= 1) {
        Four v[NV];
        Bf *here = ring + slot * each;
        copies::await(arrived + slot, parity);
        read<NV, FULL>(v, here, a.vectors);
        if (GATED) {
            Four residual[NV];
            read<NV, FULL>(residual, here + a.rows.cols, a.vectors);
#pragma unroll
            for (int k = 0; k < NV; k++) {
                v[k].p[0] = add(residual[k].p[0], mul(gate[k].p[0], v[k].p[0]));
                v[k].p[1] = add(residual[k].p[1], mul(gate[k].p[1], v[k].p[1]));
            }
            write<NV, FULL>(row_of(a.h, a.rows, row), v, a.vectors);
        }
        Moments all = moments<NV, FULL>(v, m, a.vectors, shared[turn]);
        unsigned ahead = row + SLOTS * gridDim.x;
        if (threadIdx.x == 0 && ahead < a.rows.count) bring_row<GATED>(here, a, ahead, arrived + slot);
        if (++slot == SLOTS) slot = 0, parity ^= 1;
        finish<NV>(v, all, scale, shift, a);
        write<NV, FULL>(row_of(a.y, a.rows, row), v, a.vectors);
    }
}

/* --- launches --- */

bool by_token(const Args &a) { return a.scale.outer || a.scale.inner || a.shift.outer || a.shift.inner; }

template <int NV, bool FULL, bool GATED, bool TOKEN> void launch(Exec *x, const Args &a) {
    unsigned room = (unsigned)(x->cuda->sm_count * resident(NV, GATED));
    unsigned turns = (a.rows.count + room - 1) / room; /* the same for every block */
    launch_early(x, k_ln_modulate_fast<NV, FULL, GATED, TOKEN>, (a.rows.count + turns - 1) / turns, THREADS, 0, a);
}

template <typename K> void launch_ring(Exec *x, K kernel, const Args &a, int each, unsigned room) {
    unsigned turns = (a.rows.count + room - 1) / room;
    size_t bytes = (size_t)a.rows.cols * sizeof(Bf) * each * SLOTS;
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes); /* else the launch fails */
    (void)cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared);
    launch_early(x, kernel, (a.rows.count + turns - 1) / turns, THREADS, bytes, a);
}

template <int NV, bool GATED> void launch_form(Exec *x, const Args &a, bool ring) {
    bool full = a.vectors == NV * THREADS;
    unsigned room = (unsigned)(x->cuda->sm_count * ring_resident(NV, GATED));
    if (!GATED && by_token(a)) launch<NV, false, false, true>(x, a);
    else if (ring && full) launch_ring(x, k_ln_modulate_ring<NV, true, GATED>, a, GATED ? 2 : 1, room);
    else if (ring) launch_ring(x, k_ln_modulate_ring<NV, false, GATED>, a, GATED ? 2 : 1, room);
    else if (full) launch<NV, true, GATED, false>(x, a);
    else launch<NV, false, GATED, false>(x, a);
}

template <bool GATED> void launch_rounds(Exec *x, const Args &a, bool ring) {
    switch ((a.vectors + THREADS - 1) / THREADS) {
    case 1: launch_form<1, GATED>(x, a, ring); break;
    case 2: launch_form<2, GATED>(x, a, ring); break;
    case 3: launch_form<3, GATED>(x, a, ring); break;
    case 4: launch_form<4, GATED>(x, a, ring); break;
    case 5: launch_form<5, GATED>(x, a, ring); break;
    case 6: launch_form<6, GATED>(x, a, ring); break;
    case 7: launch_form<7, GATED>(x, a, ring); break;
    default: launch_form<MOST, GATED>(x, a, ring); break;
    }
}

/* Fills a when these kernels can run it. gated: NULL without a residual. */
bool arrange(const LnModulate *norm, const ResidualGate *gated, Args *a) {
    const Tensor none = {};
    const Tensor *t[] = {&norm->y,
                         gated ? &gated->x : &norm->x,
                         &norm->scale,
                         &norm->shift,
                         gated ? &gated->y : &none,
                         gated ? &gated->residual : &none,
                         gated ? &gated->gate : &none};
    constexpr int COUNT = sizeof t / sizeof *t;
    At at[COUNT];
    if (!rows_of(norm->y, t, COUNT, &a->rows, at) || a->rows.cols % VEC || a->rows.cols > MOST * THREADS * VEC) return false;
    for (int i = 0; i < COUNT; i++)
        if (!aligned(*t[i], at[i], VEC) || (t[i]->rank && t[i]->shape[t[i]->rank - 1] != a->rows.cols)) return false;
    if (gated && (at[6].outer || at[6].inner)) return false;
    a->y = at[0], a->x = at[1], a->scale = at[2], a->shift = at[3], a->h = at[4], a->residual = at[5], a->gate = at[6];
    a->vectors = (int)(a->rows.cols / VEC);
    a->eps = norm->eps;
    return true;
}

/* Rows that the copy engine takes: whole 16 bytes, on a card that has one. */
bool ring_fits(const Exec *x, const Args &a) {
    for (const At *t : {&a.x, &a.residual})
        if ((uintptr_t)t->data % 16 || t->outer % WIDE || t->inner % WIDE) return false;
    return x->cuda->sm >= 90 && a.rows.cols % WIDE == 0;
}

Status ln_modulate_cuda_fast(Exec *x, const void *args) {
    Args a = {};
    if (!tensor_numel(((const LnModulate *)args)->y)) return OK;
    if (!arrange((const LnModulate *)args, NULL, &a)) return chain_run(x, OP_ln_modulate, args);
    launch_rounds<false>(x, a, ring_fits(x, a));
    return cuda_launched(x, "ln_modulate");
}

/* Gates by token or element, and modulation by token, as the two ops apart. */
Status residual_gate_ln_modulate_cuda_fast(Exec *x, const void *args) {
    ChainGateNorm c = chain_gate_norm((const ResidualGateLnModulate *)args);
    Args a = {};
    if (!tensor_numel(c.norm.y)) return OK;
    if (!arrange(&c.norm, &c.gate, &a) || by_token(a)) return chain_run(x, OP_residual_gate_ln_modulate, args);
    launch_rounds<true>(x, a, ring_fits(x, a));
    return cuda_launched(x, "residual_gate_ln_modulate");
}

bool ln_modulate_accepts(const void *args, char *why, size_t size) { return want_bf16((const Tensor *)args, 4, why, size); }
bool gated_accepts(const void *args, char *why, size_t size) { return want_bf16((const Tensor *)args, 7, why, size); }

} /* namespace */

const Impl LN_MODULATE_FAST_CUDA[] = {
    {OP_ln_modulate, "cuda_fast", ln_modulate_cuda_fast, NULL, ln_modulate_accepts},
    {OP_residual_gate_ln_modulate, "cuda_fast", residual_gate_ln_modulate_cuda_fast, NULL, gated_accepts},
};
