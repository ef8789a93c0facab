/* dpm_cpu.c - the meaning of dpm_step (elementwise.h): one step of DPM-Solver++ 2M on F32 latents, every operation rounded.
 *
 * Easy to get wrong: with the first order's k the history holds nothing yet and must not be read; m may lie where last lies. */
#include "kernels/registry.h"
#include "kernels/rows.h"

static Status dpm_step_cpu(Exec *x, const void *args) {
    DpmStep a = *(const DpmStep *)args;
    const struct { const char *name; Tensor t; } like[] = {{"y", a.y}, {"m", a.m}, {"v", a.v}, {"last", a.last}};
    float k[DPM_COEFFICIENTS];
    if (a.x.dtype != F32) return fail(x->error, ERR_MODEL, "dpm_step: x is %s, expected F32", dtype_name(a.x.dtype));
    for (int i = 0; i < 4; i++) TRY(rows_want_like(x, OP_dpm_step, like[i].name, like[i].t, a.x));
    if (a.k.dtype != F32 || a.k.rank != 1 || a.k.shape[0] != DPM_COEFFICIENTS || !tensor_contiguous(a.k))
        return fail(x->error, ERR_MODEL, "dpm_step: k must be F32 [%d]", DPM_COEFFICIENTS);
    memcpy(k, a.k.data, sizeof k);
    rows_flatten(5, (Tensor *const[]){&a.y, &a.m, &a.x, &a.v, &a.last});
    Walk w = rows_walk(a.y);
#pragma omp parallel for schedule(static) if (w.parallel)
    for (int64_t i = 0; i < w.count; i++) {
        float y[ROWS_SPAN], m[ROWS_SPAN], last[ROWS_SPAN];
        Span s = rows_span(&w, i);
        rows_load(y, &a.x, s);
        rows_load(m, &a.v, s);
        for (int64_t j = 0; j < s.n; j++) {
            m[j] = y[j] - k[DPM_SIGMA] * m[j];
            y[j] = k[DPM_SAMPLE] * y[j] - k[DPM_DATA] * m[j];
        }
        if (k[DPM_HALF] != 0) {
            rows_load(last, &a.last, s);
            for (int64_t j = 0; j < s.n; j++) y[j] -= k[DPM_HALF] * (k[DPM_RATIO] * (m[j] - last[j]));
        }
        rows_store(&a.y, s, y);
        rows_store(&a.m, s, m);
    }
    return OK;
}

const Impl DPM_CPU[] = {{.op = OP_dpm_step, .name = "cpu", .run = dpm_step_cpu}};
const int DPM_CPU_COUNT = 1;
