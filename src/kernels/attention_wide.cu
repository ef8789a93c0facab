/* attention_wide.cu - see attention_wide.h.
 *
 * A block takes 64 queries of one head: Q stays in shared memory, the output in registers (8 warps, 2 down and 4 across; a
 * warp holds 32 rows of 32 columns in each of the head's chunks of 128). K in slices of 64 dims and V in slices of 64 keys by
 * 128 columns come through one ring of shared memory. The four warps across are the four partial sums of the order.
 * Easy to get wrong: m16n8k8 and not k16, whose sums have other bits; rows of shared memory are 16 bytes longer than their
 * data so that ldmatrix meets no bank twice; keys past the end are zeros in V as in P, since 0 times NaN is NaN; the ring's
 * barrier is what makes P and the partial sums visible. */
#include "kernels/attention_wide.h"
#include "kernels/cuda_async.cuh"

#include <cuda_bf16.h>
#include <stdint.h>

namespace {

constexpr int QUERIES = 64, KEYS = 128, THREADS = 256, DOWN = 2, ACROSS = 4;
constexpr int DIMS = 64, V_KEYS = 64, CHUNK = 128; /* slices: KEYS x DIMS of K, V_KEYS x CHUNK of V */
constexpr int PAD = 16, K_PITCH = DIMS * 2 + PAD, V_PITCH = CHUNK * 2 + PAD,
              P_PITCH = KEYS * 2 + PAD; /* bytes */
constexpr int STAGES = 6, STAGE = KEYS * K_PITCH, P_BYTES = QUERIES * P_PITCH,
              PART = ACROSS * QUERIES;                           /* PART: floats */
constexpr int E_MIN = 256, E_MAX = 512, E_STEP = 32, VECTOR = 8; /* elements of 16 bytes */
constexpr float LOG2E = 1.4426950408889634074f;
static_assert(V_KEYS * V_PITCH <= STAGE, "a slice of V fits a stage");

struct View {
    const __nv_bfloat16 *data;
    int64_t token, head; /* strides in elements */
};

struct Shape {
    int tq, tk, e, group; /* group: query heads a key head */
    float scale;
};

/* Four 8x8 matrices, one row address a lane. */
__device__ inline void matrices(uint32_t *to, uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}
__device__ inline void matrices_turned(uint32_t *to, uint32_t at) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                 : "r"(at)
                 : "memory");
}

/* c[16 x 8] += a[16 x 8] b[8 x 8]. */
__device__ inline void multiply(float *c, const uint32_t *a, uint32_t b) {
    asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, "
        "%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(b));
}

/* acc[32 rows x 32 columns] += 16 steps of the sum: a[down]: 16 rows by 16, both halves; b[pair]: 16 columns by 16. */
__device__ inline void multiply_all(float (*acc)[4][4], const uint32_t (*a)[4], const uint32_t (*b)[4]) {
#pragma unroll
    for (int half = 0; half < 2; half++)
#pragma unroll
        for (int down = 0; down < 2; down++)
#pragma unroll
            for (int n = 0; n < 4; n++)
                multiply(acc[down][n], a[down] + 2 * half, b[n / 2][2 * (n % 2) + half]);
}

/* The ring's producer: which slice comes next. */
struct Source {
    const __nv_bfloat16 *k, *v; /* of the head */
    int64_t k_token, v_token;
    int key, step, slices, per; /* key: the block's first; slices of K a block, of K and V */
};

__device__ inline void produce(Source &s, const Shape &p, uint32_t stage) {
    if (s.key < p.tk) {
        bool is_k = s.step < s.slices;
        int v = s.step - s.slices, column = is_k ? s.step * DIMS : v / 2 * CHUNK;
        int first = is_k ? s.key : s.key + v % 2 * V_KEYS;
        int wide = is_k ? DIMS / VECTOR : CHUNK / VECTOR;
        int row = threadIdx.x / wide, at = threadIdx.x % wide * VECTOR, rows = THREADS / wide;
        const __nv_bfloat16 *data = is_k ? s.k : s.v;
        int64_t token = is_k ? s.k_token : s.v_token;
        uint32_t to = stage + row * (is_k ? K_PITCH : V_PITCH) + at * 2;
        bool inside = column + at < p.e;
#pragma unroll
        for (int i = 0; i < 4; i++, row += rows, to += rows * (is_k ? K_PITCH : V_PITCH)) {
            bool valid = inside && first + row < p.tk;
            async::copy_or_zero(to, valid ? data + (first + row) * token + column + at : data, valid);
        }
        if (++s.step == s.per) s.step = 0, s.key += KEYS;
    }
    async::commit();
}

/* CHUNKS * CHUNK columns hold the head. */
template <int CHUNKS>
__global__ void __launch_bounds__(THREADS, 1)
    k_attention_wide(__nv_bfloat16 *o, int64_t o_token, int64_t o_head, View q, View k, View v, Shape p) {
    extern __shared__ __align__(16) char memory[];
    const int q_pitch = p.e * 2 + PAD;
    char *probabilities = memory + QUERIES * q_pitch;
    float *part_max = (float *)(probabilities + P_BYTES), *part_sum = part_max + PART;
    const uint32_t q_at = async::place_of(memory), p_at = async::place_of(probabilities), ring = async::place_of(part_sum + PART);
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, down = warp % DOWN, across = warp / DOWN;
    const int quad = lane / 4, t = lane % 4;
    const int64_t head = blockIdx.y, kv = head / p.group;
    const int query = blockIdx.x * QUERIES;
    const int a_row = lane % 16, a_column = lane / 16 * 8; /* ldmatrix of A, and of V turned */
    const int b_row = lane % 8 + lane / 16 * 8, b_column = lane / 8 % 2 * 8;

    Source source = {
        k.data + kv * k.head, v.data + kv * v.head, k.token, v.token, 0, 0, (p.e + DIMS - 1) / DIMS, 0};
    source.per = source.slices + CHUNKS * 2;
    for (int i = threadIdx.x; i < QUERIES * p.e / VECTOR; i += THREADS) {
        int row = i / (p.e / VECTOR), at = i % (p.e / VECTOR) * VECTOR;
        bool valid = query + row < p.tq;
        async::copy_or_zero(q_at + row * q_pitch + at * 2,
              q.data + (valid ? (query + row) * q.token : 0) + head * q.head + at, valid);
    }
    for (int i = 0; i < STAGES - 1; i++) produce(source, p, ring + i * STAGE);

    int slot = 0; /* of the slice in hand */
    /* Waits for it, and starts the one STAGES - 1 ahead in the slot of the one before. Returns its address. */
    auto next = [&]() {
        async::wait<STAGES - 2>();
        __syncthreads();
        produce(source, p, ring + (slot ? slot - 1 : STAGES - 1) * STAGE);
        uint32_t at = ring + slot * STAGE;
        slot = slot + 1 == STAGES ? 0 : slot + 1;
        return at;
    };

    float out[CHUNKS][2][4][4];
    float top[4], sum[4],
        keep[4]; /* of rows down * 32 + 8 i + quad, the same in all lanes and warps that have them */
#pragma unroll
    for (int i = 0; i < 4; i++) top[i] = -INFINITY, sum[i] = 0.0f;

#pragma unroll 1
    for (int key = 0; key < p.tk; key += KEYS) {
        const int left = p.tk - key < KEYS ? p.tk - key : KEYS;
        const bool first = key == 0, last = key + KEYS >= p.tk;
        float s[2][4][4] = {};
        uint32_t a[2][4], b[2][4];
#pragma unroll 1
        for (int dim = 0; dim < p.e; dim += DIMS) {
            uint32_t slice = next();
            auto step = [&](int d) {
#pragma unroll
                for (int i = 0; i < 2; i++) {
                    matrices(a[i], q_at + (down * 32 + i * 16 + a_row) * q_pitch + (dim + d + a_column) * 2);
                    matrices(b[i], slice + (across * 32 + i * 16 + b_row) * K_PITCH + (d + b_column) * 2);
                }
                multiply_all(s, a, b);
            };
            step(0);
            step(16);
            if (dim + DIMS > p.e) break; /* Q has no columns past the head's */
            step(32);
            step(48);
        }

        float most[4];
#pragma unroll
        for (int i = 0; i < 4; i++) {
            most[i] = -INFINITY;
#pragma unroll
            for (int n = 0; n < 4; n++)
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    float &x = s[i / 2][n][i % 2 * 2 + c];
                    x = x * p.scale * LOG2E;
                    if (across * 32 + n * 8 + 2 * t + c < left) most[i] = fmaxf(most[i], x);
                }
            most[i] = fmaxf(most[i], __shfl_xor_sync(0xffffffffu, most[i], 1));
            most[i] = fmaxf(most[i], __shfl_xor_sync(0xffffffffu, most[i], 2));
            if (t == 0) part_max[across * QUERIES + down * 32 + 8 * i + quad] = most[i];
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = down * 32 + 8 * i + quad;
            float now = top[i];
#pragma unroll
            for (int w = 0; w < ACROSS; w++) now = fmaxf(now, part_max[w * QUERIES + row]);
            keep[i] = top[i] < now ? exp2f(top[i] - now) : 1.0f;
            if (top[i] < now) sum[i] *= keep[i];
            top[i] = now;
            const float base = now == -INFINITY ? 0.0f : now; /* nothing but -inf or NaN so far */
            float total = 0.0f;
#pragma unroll
            for (int n = 0; n < 4; n++) {
                float e[2];
#pragma unroll
                for (int c = 0; c < 2; c++) {
                    e[c] = across * 32 + n * 8 + 2 * t + c < left ? exp2f(s[i / 2][n][i % 2 * 2 + c] - base)
                                                                  : 0.0f;
                    total += e[c];
                }
                *(__nv_bfloat162 *)(probabilities + row * P_PITCH + (across * 32 + n * 8 + 2 * t) * 2) =
                    __floats2bfloat162_rn(e[0], e[1]);
            }
            total += __shfl_xor_sync(0xffffffffu, total, 1);
            total += __shfl_xor_sync(0xffffffffu, total, 2);
            if (t == 0) part_sum[across * QUERIES + row] = total;
        }

#pragma unroll
        for (int chunk = 0; chunk < CHUNKS; chunk++) {
            float acc[2][4][4] = {};
#pragma unroll
            for (int part = 0; part < 2; part++) {
                uint32_t slice = next();
                if (chunk == 0 && part == 0)
#pragma unroll
                    for (int i = 0; i < 4; i++)
#pragma unroll
                        for (int w = 0; w < ACROSS; w++)
                            sum[i] += part_sum[w * QUERIES + down * 32 + 8 * i + quad];
#pragma unroll
                for (int d = 0; d < V_KEYS; d += 16) {
#pragma unroll
                    for (int i = 0; i < 2; i++) {
                        matrices(a[i], p_at + (down * 32 + i * 16 + a_row) * P_PITCH +
                                           (part * V_KEYS + d + a_column) * 2);
                        matrices_turned(b[i], slice + (d + a_row) * V_PITCH +
                                                  (across * 32 + i * 16 + a_column) * 2);
                    }
                    multiply_all(acc, a, b);
                }
            }
#pragma unroll
            for (int i = 0; i < 4; i++) {
                const float alpha = last ? 1.0f / (sum[i] == 0.0f ? 1.0f : sum[i]) : 1.0f,
                            beta = alpha * keep[i];
#pragma unroll
                for (int n = 0; n < 4; n++)
#pragma unroll
                    for (int c = 0; c < 2; c++) {
                        float &to = out[chunk][i / 2][n][i % 2 * 2 + c], x = acc[i / 2][n][i % 2 * 2 + c];
                        if (first)
                            to = x * alpha;
                        else
                            to = last ? fmaf(x, alpha, beta * to) : fmaf(keep[i], to, x);
                    }
            }
        }
    }

#pragma unroll
    for (int chunk = 0; chunk < CHUNKS; chunk++)
#pragma unroll
        for (int i = 0; i < 4; i++) {
            const int row = query + down * 32 + 8 * i + quad;
#pragma unroll
            for (int n = 0; n < 4; n++) {
                const int column = chunk * CHUNK + across * 32 + n * 8 + 2 * t;
                if (row < p.tq && column < p.e)
                    *(__nv_bfloat162 *)(o + row * o_token + head * o_head + column) = __floats2bfloat162_rn(
                        out[chunk][i / 2][n][i % 2 * 2], out[chunk][i / 2][n][i % 2 * 2 + 1]);
            }
        }
}

View view_of(const Tensor &t) { return {(const __nv_bfloat16 *)t.data, t.stride[0], t.stride[1]}; }

template <int CHUNKS> Status launch(Exec *x, const Attention *a) {
    Shape p = {(int)a->q.shape[0], (int)a->k.shape[0], (int)a->q.shape[2],
               (int)(a->q.shape[1] / a->k.shape[1]), a->scale};
    size_t bytes =
        (size_t)QUERIES * (size_t)(p.e * 2 + PAD) + P_BYTES + 2 * PART * sizeof(float) + STAGES * STAGE;
    cudaError_t code = cudaFuncSetAttribute(k_attention_wide<CHUNKS>,
                                            cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (code != cudaSuccess)
        return fail(x->error, ERR_DEVICE, "attention: %zu bytes of shared memory: %s", bytes,
                    cudaGetErrorString(code));
    dim3 blocks((unsigned)((p.tq + QUERIES - 1) / QUERIES), (unsigned)a->q.shape[1]);
    k_attention_wide<CHUNKS><<<blocks, THREADS, bytes, x->cuda->stream>>>(
        (__nv_bfloat16 *)a->o.data, a->o.stride[0], a->o.stride[1], view_of(a->q), view_of(a->k),
        view_of(a->v), p);
    return cuda_launched(x, "attention");
}

bool vectors(const Tensor &t, int elements) {
    return (uintptr_t)t.data % (elements * sizeof(__nv_bfloat16)) == 0 &&
           (t.shape[0] == 1 || t.stride[0] % elements == 0) &&
           (t.shape[1] == 1 || t.stride[1] % elements == 0);
}

} /* namespace */

bool attention_wide_serves(const Cuda *c, const Attention *a) {
    int64_t e = a->q.shape[2];
    return c->sm >= 90 && a->q.dtype == BF16 && a->mask == MASK_NONE && e > E_MIN && e <= E_MAX &&
           e % E_STEP == 0 && a->k.shape[0] > 0 && a->k.shape[0] < INT32_MAX - KEYS &&
           a->q.shape[0] < INT32_MAX - QUERIES && a->q.shape[1] <= 65535 && vectors(a->q, VECTOR) &&
           vectors(a->k, VECTOR) && vectors(a->v, VECTOR) && vectors(a->o, 2);
}

Status attention_wide_run(Exec *x, const Attention *a) {
    return a->q.shape[2] <= 3 * CHUNK ? launch<3>(x, a) : launch<4>(x, a);
}
