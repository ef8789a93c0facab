/* conv_once.cu - the CUDA table's variant of the family conv-once (conv_once.h): 3x3 convolutions of frames as products of the
 * tensor cores over the input itself, for sm_90a. Nothing for other GPUs: kernels are empty there, the guard says so.
 *
 * A block of threads makes tile after tile. Two warpgroups multiply, each its half of a tile; a warp brings weights, packed
 * anew in each call in the order of use, by the copy engine; three warps bring the input. Of what lies outside the picture
 * there are zeros, from copies of no bytes, so that nothing else knows of borders. All nine taps read one halo
 * (conv_once_layout.h): the input is brought once a frame of the kernel, not nine times. It is brought by threads and not by the
 * copy engine, whose boxes would be 16 bytes wide here, half a sector a request.
 * Easy to get wrong: a slot is free when all eight multiplying warps have seen the products done that read it, which is one
 * commit later; the order of sums depends on channels and taps alone, so frames decoded in other pieces have the same bits. */
#include "kernels/conv_once.h"

#include "kernels/chain.h"
#include "kernels/conv_once_parts.cuh"
#include "kernels/cuda.h"
#include "kernels/registry.h"
#include "kernels/wgmma.cuh"

#include <stdio.h>

using namespace once;

namespace {

/* 128 x 40 + 256 x 232 = 384 x 168 = 64,512 of 65,536. */
[[maybe_unused]] constexpr int FEW_REGISTERS = 40, MANY_REGISTERS = 232;
[[maybe_unused]] constexpr int LAG = 2;         /* slots that the second half begins behind the first */
[[maybe_unused]] constexpr int LAG_BARRIER = 1; /* 0 is that of __syncthreads */

/* --- multiplying --- */

/* Sums begin with what their channels add to them. */
template <int N> __device__ inline void begin(const Args &a, float (&sum)[once_blocks(N)][N / 2], int first) {
#pragma unroll
    for (int j = 0; j < N / 8; j++) {
        const float2 term = __ldg(reinterpret_cast<const float2 *>(a.term + first + once_d_column(threadIdx.x % 32, j, 0)));
#pragma unroll
        for (int k = 0; k < 2 * once_blocks(N); k++) {
            sum[k / 2][4 * j + k % 2 * 2] = term.x;
            sum[k / 2][4 * j + k % 2 * 2 + 1] = term.y;
        }
    }
}

/* The halves do not begin together, so that one's products fill the time of the other's finish. */
template <int N> __device__ inline void multiply(const Args &a, Barriers<N> &b, unsigned halos, unsigned slots, int half) {
    constexpr int BLOCKS = once_blocks(N), SLOTS = once_slots(N);
    const uint64_t pixels = wgmma::describe(halos + once_a_start(N, half, 0, 0, 0, 0), once_a_leading(N), once_a_stride(N));
    const uint64_t weights = wgmma::describe(slots, once_b_leading(N), once_b_stride());
    const bool tells = threadIdx.x % 32 == 0;
    copies::Place halo = {0, 0}, slot = {0, 0};
    float sum[BLOCKS][N / 2];
    int seen = 0;
    if (half) asm volatile("bar.sync %0, %1;" ::"n"(LAG_BARRIER), "n"(MULTIPLIERS * WARPGROUP) : "memory");
    for (int i = blockIdx.x; i < a.tiles; i += gridDim.x) {
        const Tile t = tile_of<N>(a, i);
        begin<N>(a, sum, t.group * N);
        for (int s = 0; s < a.kt * a.stages; s++) {
            copies::await(b.halo_full + halo.slot, halo.parity);
#pragma unroll 1
            for (int ky = 0; ky < ONCE_KERNEL; ky++) {
                copies::await(b.slot_full + slot.slot, slot.parity);
                const uint64_t from = pixels + (halo.slot * once_halo(N) + once_a_start(N, 0, 0, ky, 0, 0)) / ONCE_UNIT;
                const uint64_t by = weights + slot.slot * once_slot(N) / ONCE_UNIT;
                wgmma::fence();
#pragma unroll
                for (int kx = 0; kx < ONCE_KERNEL; kx++)
#pragma unroll
                    for (int step = 0; step < ONCE_STEPS; step++)
#pragma unroll
                        for (int block = 0; block < BLOCKS; block++)
                            wgmma::multiply<N>(sum[block], from + once_a_start(N, 0, block, 0, kx, step) / ONCE_UNIT,
                                               by + once_b_start(N, kx, step) / ONCE_UNIT);
                wgmma::commit();
                wgmma::wait<1>();
                if (tells && (s || ky)) {
                    copies::arrive(b.slot_free + before<SLOTS>(slot));
                    if (ky == 0) copies::arrive(b.halo_free + before<ONCE_HALOS>(halo));
                }
                copies::advance(slot, SLOTS);
                if (++seen == LAG && !half)
                    asm volatile("bar.arrive %0, %1;" ::"n"(LAG_BARRIER), "n"(MULTIPLIERS * WARPGROUP) : "memory");
            }
            copies::advance(halo, ONCE_HALOS);
        }
        wgmma::wait<0>();
        if (tells) {
            copies::arrive(b.slot_free + before<SLOTS>(slot));
            copies::arrive(b.halo_free + before<ONCE_HALOS>(halo));
        }
        finish<N>(a, t, sum, half);
    }
}

template <int N> __global__ void __launch_bounds__(THREADS, 1) k_conv_once(const __grid_constant__ Args a) {
#ifdef WGMMA_THERE
    extern __shared__ __align__(128) unsigned char shared[];
    __shared__ Barriers<N> b;
    if (threadIdx.x == 0) {
        copies::prepare(b.halo_full, ONCE_HALOS, FETCHERS);
        copies::prepare(b.halo_free, ONCE_HALOS, MULTIPLYING_WARPS);
        copies::prepare(b.slot_full, once_slots(N));
        copies::prepare(b.slot_free, once_slots(N), MULTIPLYING_WARPS);
    }
    __syncthreads();
    unsigned char *slots = shared + ONCE_HALOS * once_halo(N);
    const int warpgroup = threadIdx.x / WARPGROUP, warp = threadIdx.x % WARPGROUP / 32;
    if (warpgroup == MULTIPLIERS) {
        wgmma::shrink<FEW_REGISTERS>();
        if (warp < FETCHERS) bring_halos<N>(a, b, copies::shared_at(shared), warp);
        else if (threadIdx.x % 32 == 0) bring_weights<N>(a, b, slots);
    } else {
        wgmma::grow<MANY_REGISTERS>();
        multiply<N>(a, b, copies::shared_at(shared), copies::shared_at(slots), warpgroup);
    }
#endif
}

/* --- weights --- */

/* A thread a unit; the first ones make the terms too. */
__global__ void __launch_bounds__(256) k_pack(uint4 *packed, float *term, const Bf *w, const Bf *bias, const Bf *skip_bias, int n,
                                              int kt, int stages, int64_t units, int terms) {
    const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
    if (i < terms)
        term[i] = (bias ? __bfloat162float(bias[i]) : 0.0f) + (skip_bias ? __bfloat162float(skip_bias[i]) : 0.0f);
    if (i >= units) return;
    const OnceUnit u = once_unit(n, kt, stages, i);
    const int64_t at = (((int64_t)(u.o * kt + u.t) * ONCE_KERNEL + u.ky) * ONCE_KERNEL + u.kx) * stages * ONCE_CHANNELS + u.c;
    packed[i] = *reinterpret_cast<const uint4 *>(w + at);
}

/* --- the ops --- */

template <int N> Status launch(Exec *x, const Args &a, OpId op) {
    auto kernel = k_conv_once<N>;
    cudaError_t code = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, once_shared(N));
    if (code != cudaSuccess) return fail(x->error, ERR_DEVICE, "%s: %s", ops_info(op)->name, cudaGetErrorString(code));
    int blocks = a.tiles < x->cuda->sm_count ? a.tiles : x->cuda->sm_count;
    kernel<<<blocks, THREADS, once_shared(N), x->cuda->stream>>>(a);
    return cuda_launched(x, ops_info(op)->name);
}

Status convolve(Exec *x, const ConvFrames *f, int n) {
    const int64_t *k = f->kernel.shape, *y = f->y.shape;
    size_t packed = conv_once_packed(f, n), terms = conv_once_terms(f);
    void *weights = arena_push(x->scratch, packed), *term = arena_push(x->scratch, terms);
    if (!weights || !term)
        return fail(x->error, ERR_MEMORY, "%s: no scratch of %zu bytes", ops_info(f->op)->name, packed + terms);
    Args a = {};
    a.x = (const Bf *)f->x.data, a.skip = f->skip.rank ? (const Bf *)f->skip.data : nullptr, a.y = (Bf *)f->y.data;
    a.packed = (const char *)weights, a.term = (const float *)term;
    a.frames = (int)f->x.shape[0], a.height = (int)y[1], a.width = (int)y[2], a.in = (int)k[4], a.out = (int)k[0];
    a.kt = (int)k[1], a.pad_t = (int)f->pad_t, a.stages = a.in / ONCE_CHANNELS;
    OnceGrid g = conv_once_grid(f, n);
    a.across = (int)g.across, a.down = (int)g.down, a.groups = (int)g.groups, a.tiles = (int)g.tiles;
    int64_t units = (int64_t)(packed / ONCE_UNIT);
    k_pack<<<(unsigned)((units + 255) / 256), 256, 0, x->cuda->stream>>>(
        (uint4 *)weights, (float *)term, (const Bf *)f->kernel.data, f->biased ? (const Bf *)f->w->bias.data : nullptr,
        f->skip_bias.rank ? (const Bf *)f->skip_bias.data : nullptr, n, a.kt, a.stages, units,
        (int)(terms / sizeof(float)));
    TRY(cuda_launched(x, ops_info(f->op)->name));
    return n == 96 ? launch<96>(x, a, f->op) : launch<192>(x, a, f->op);
}

Status run(Exec *x, OpId op, const void *args) {
    const ConvFrames a = conv_frames(op, args);
    const int n = conv_once_columns(&a);
    const bool pays = n && (x->cuda->takes_all || conv_once_pays(&a, n, x->cuda->sm_count));
    if (!pays || !conv_once_aligned(&a)) return chain_run(x, op, args);
    TRY(conv_frames_check(x, &a));
    return convolve(x, &a, n);
}

Status conv2d(Exec *x, const void *args) { return run(x, OP_conv2d, args); }
Status conv3d(Exec *x, const void *args) { return run(x, OP_conv3d, args); }

size_t scratch(const Exec *x, OpId op, const void *args) {
    const ConvFrames a = conv_frames(op, args);
    const Impl *reference = ops_reference(x->ops, op);
    const int n = conv_once_columns(&a);
    size_t own = n ? arena_rounded(conv_once_packed(&a, n)) + arena_rounded(conv_once_terms(&a)) : 0;
    size_t handed = reference && reference->scratch ? reference->scratch(x, args) : 0;
    return own > handed ? own : handed;
}

size_t conv2d_scratch(const Exec *x, const void *args) { return scratch(x, OP_conv2d, args); }
size_t conv3d_scratch(const Exec *x, const void *args) { return scratch(x, OP_conv3d, args); }

/* Is the code that would run here that for sm_90a? */
bool there(char *why, size_t size) {
    cudaFuncAttributes f = {};
    cudaError_t code = cudaFuncGetAttributes(&f, k_conv_once<96>);
    if (code == cudaSuccess && f.binaryVersion == 90 && f.ptxVersion >= 90) return true;
    cudaGetLastError(); /* said; nothing later should find it */
    snprintf(why, size, "the kernel is built for sm_90a only, code for sm_%d from compute_%d would run", f.binaryVersion,
             f.ptxVersion);
    return false;
}

/* Calls that the kernel cannot take are for what stands behind. */
bool takes(OpId op, const void *args) {
    const ConvFrames a = conv_frames(op, args);
    return conv_once_columns(&a) != 0;
}

bool accepts2d(const void *args, char *why, size_t size) {
    if (!takes(OP_conv2d, args)) return impl_passes_on(why);
    return conv_once_accepts_flat(args, why, size) && there(why, size);
}
bool accepts3d(const void *args, char *why, size_t size) {
    if (!takes(OP_conv3d, args)) return impl_passes_on(why);
    return conv_once_accepts_deep(args, why, size) && there(why, size);
}

} /* namespace */

const Impl CONV_ONCE_CUDA[] = {
    {OP_conv2d, "cuda_once", conv2d, conv2d_scratch, accepts2d},
    {OP_conv3d, "cuda_once", conv3d, conv3d_scratch, accepts3d},
};
