/* act_table.cu - see act_table.h. The function itself is some forty instructions an element, more than its bytes cost; of BF16
 * numbers there are so few that every block works it out for all that matter, and then looks them up in shared memory.
 *
 * In the table: magnitudes from 2^-20 on and below 128, both signs. A vector with any other number (zeros, denormals, large
 * ones, NaN) is worked out by the same function on the spot, so the bits are the function's everywhere, and no property of it is
 * used. That costs ten times a lookup and a warp waits for its slowest lane, so the table reaches far. It is made while the
 * kernel before this one ends.
 * A thread has its next vector under way while it looks the present one up: at 64 warps a multiprocessor one is enough.
 * Easy to get wrong: the index is made safe before the table is read; whether it had to be is what marks the vector. */
#include "kernels/act_table.h"

#include "kernels/cuda_act.cuh"
#include "kernels/cuda_fast.cuh"

using namespace fast;

namespace {

constexpr int THREADS = 1024, RESIDENT = 2;
constexpr int64_t LEAST = 1 << 21; /* elements: below, tables cost more than they save */
constexpr unsigned LOW = (127 - 20) << 7, SPAN = ((127 + 7) << 7) - LOW; /* bits of the least magnitude; magnitudes */
constexpr unsigned SIDE = SPAN + 1;                                      /* of one sign; the last is never right */

/* Rows of one distance, in vectors of 16 bytes. */
struct Plane {
    uint4 *y;
    const uint4 *x;
    int64_t y_row, x_row;
    unsigned rows, across;         /* rows, vectors of one */
    unsigned more_rows, more_cols; /* from a thread's vector to its next */
};

template <int KIND> __device__ inline unsigned worked_out(unsigned bits) {
    float v = __bfloat162float(__ushort_as_bfloat16((unsigned short)bits));
    return __bfloat16_as_ushort(__float2bfloat16_rn(act::activate<Bf>(v, KIND)));
}

/* Both halves of a word. */
__device__ inline unsigned looked_up(const unsigned short *table, unsigned word, bool *missed) {
    unsigned low = (word & 0x7fff) - LOW, high = (word >> 16 & 0x7fff) - LOW;
    *missed = *missed || low >= SPAN || high >= SPAN;
    low = min(low, SPAN) + (word >> 15 & 1) * SIDE;
    high = min(high, SPAN) + (word >> 31) * SIDE;
    return table[low] | (unsigned)table[high] << 16;
}

template <int KIND> __global__ void __launch_bounds__(THREADS, RESIDENT) k_act_table(Plane a) {
    __shared__ unsigned short table[2 * SIDE];
    unsigned first = blockIdx.x * THREADS + threadIdx.x, row = first / a.across, col = first - row * a.across;
    uint4 v, next;
    for (unsigned i = threadIdx.x; i < 2 * SIDE; i += THREADS)
        table[i] = (unsigned short)worked_out<KIND>(LOW + (i < SIDE ? i : i - SIDE) + (i < SIDE ? 0 : 0x8000));
    __syncthreads();
    begin();
    if (row < a.rows) next = a.x[row * a.x_row + col];
    while (row < a.rows) {
        uint4 *to = a.y + row * a.y_row + col;
        v = next;
        row += a.more_rows, col += a.more_cols;
        if (col >= a.across) row++, col -= a.across;
        if (row < a.rows) next = a.x[row * a.x_row + col]; /* under way while v is looked up */
        bool missed = false;
        uint4 out = {looked_up(table, v.x, &missed), looked_up(table, v.y, &missed), looked_up(table, v.z, &missed),
                     looked_up(table, v.w, &missed)};
        if (missed) {
            out = v;
#pragma unroll 1
            for (int k = 0; k < 4; k++) { /* word by word, in a circle */
                unsigned word = worked_out<KIND>(out.x & 0xffff) | worked_out<KIND>(out.x >> 16) << 16;
                out = make_uint4(out.y, out.z, out.w, word);
            }
        }
        *to = out;
    }
}

} /* namespace */

bool act_table_run(Exec *x, const Act *a, Status *status) {
    const Tensor *t[] = {&a->y, &a->x};
    At at[2];
    Rows rows;
    Plane p = {};
    if ((a->kind != ACT_GELU_TANH && a->kind != ACT_GELU_NEW) || a->y.dtype != BF16 || tensor_numel(a->y) < LEAST) return false;
    if (!rows_of(a->y, t, 2, &rows, at) || rows.cols % WIDE || rows.cols > INT32_MAX || rows.inner != rows.count) return false;
    if (a->x.shape[a->x.rank - 1] != rows.cols || !aligned(a->y, at[0], WIDE) || !aligned(a->x, at[1], WIDE)) return false;
    unsigned blocks = (unsigned)(x->cuda->sm_count * RESIDENT), step = blocks * THREADS;
    p.y = (uint4 *)at[0].data, p.x = (const uint4 *)at[1].data, p.y_row = at[0].inner / WIDE, p.x_row = at[1].inner / WIDE;
    p.rows = rows.count, p.across = (unsigned)(rows.cols / WIDE);
    p.more_rows = step / p.across, p.more_cols = step % p.across;
    if (a->kind == ACT_GELU_TANH) launch_early(x, k_act_table<ACT_GELU_TANH>, dim3(blocks), THREADS, 0, p);
    else launch_early(x, k_act_table<ACT_GELU_NEW>, dim3(blocks), THREADS, 0, p);
    *status = cuda_launched(x, "act");
    return true;
}
