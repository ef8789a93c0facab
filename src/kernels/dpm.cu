/* dpm.cu - CUDA reference of dpm_step (elementwise.h): two results in one pass, since either may lie on an input.
 *
 * Coefficients are read from the device, so that a captured step replays with the values of its turn.
 * Easy to get wrong: no fused multiply-add anywhere: PyTorch runs each operation as a kernel of its own. */
#include "kernels/cuda_rows.cuh"
#include "kernels/registry.h"

namespace {

constexpr int THREADS = 256;

struct Views {
    rows::View y, m, x, v, last;
};

__device__ inline float *at(const rows::View &t, const rows::Walk &w, int64_t row, int64_t col) {
    return (float *)t.data + rows::offset(t, w, row) + col * t.last;
}

__global__ void __launch_bounds__(THREADS) k_dpm_step(Views t, rows::Walk w, const float *k) {
    int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= w.rows * w.cols) return;
    int64_t row = i / w.cols, col = i - row * w.cols;
    float x = *at(t.x, w, row, col), m = x - k[DPM_SIGMA] * *at(t.v, w, row, col);
    float y = k[DPM_SAMPLE] * x - k[DPM_DATA] * m;
    if (k[DPM_HALF] != 0.0f) y = y - k[DPM_HALF] * (k[DPM_RATIO] * (m - *at(t.last, w, row, col)));
    *at(t.y, w, row, col) = y;
    *at(t.m, w, row, col) = m;
}

Status dpm_step_cuda(Exec *x, const void *args) {
    const DpmStep *a = (const DpmStep *)args;
    Tensor y = a->y, m = a->m, in = a->x, v = a->v, last = a->last, *all[] = {&y, &m, &in, &v, &last};
    for (int i = 0; i < 5; i++)
        if (all[i]->dtype != F32 || !tensor_same_shape(*all[i], y))
            return fail(x->error, ERR_MODEL, "dpm_step: x, y, v, m and last must be F32 of one shape");
    if (a->k.dtype != F32 || a->k.rank != 1 || a->k.shape[0] != DPM_COEFFICIENTS || !tensor_contiguous(a->k))
        return fail(x->error, ERR_MODEL, "dpm_step: k must be F32 [%d]", (int)DPM_COEFFICIENTS);
    rows::flatten(5, all);
    rows::Walk w = rows::walk_of(y);
    Views t = {rows::view_of(y, w), rows::view_of(m, w), rows::view_of(in, w), rows::view_of(v, w), rows::view_of(last, w)};
    unsigned blocks = (unsigned)((w.rows * w.cols + THREADS - 1) / THREADS);
    if (!blocks) return OK;
    k_dpm_step<<<blocks, THREADS, 0, x->cuda->stream>>>(t, w, (const float *)a->k.data);
    return cuda_launched(x, "dpm_step");
}

} /* namespace */

const Impl DPM_CUDA[] = {{OP_dpm_step, "cuda", dpm_step_cuda, NULL, NULL}};
const int DPM_CUDA_COUNT = 1;
