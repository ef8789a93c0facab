/* te_decoder.c - see te_decoder.h. */
#include "text/te_decoder.h"

#include "models/blocks.h"

#include <math.h>
#include <stdlib.h>

Status te_decoder_theta(const Json *j, const char *path, double *theta, Error *e) {
    const char *type = "default";
    TRY(json_double(j, "rope_theta", theta, path, e));
    const Json *p = json_get(j, "rope_parameters");
    if (!json_is_null(p)) {
        TRY(json_double(p, "rope_theta", theta, path, e));
        TRY(json_string(p, "rope_type", &type, path, e));
    }
    if (strcmp(type, "default") || !json_is_null(json_get(j, "rope_scaling")))
        return fail(e, ERR_MODEL, "%s: rope_scaling or rope_type \"%s\": expected plain rotary positions", path, type);
    if (!(*theta > 1) || !isfinite(*theta))
        return fail(e, ERR_MODEL, "%s: rope_theta: found %g, expected a number above 1", path, *theta);
    return OK;
}

Status te_decoder_rope(Exec *x, double theta, double factor, int64_t first, Tensor cos_table, Tensor sin_table) {
    size_t mark = arena_mark(x->work);
    int64_t rows = cos_table.shape[0], half = cos_table.shape[1];
    float *host = x->dry ? NULL : malloc((size_t)(rows * half) * sizeof *host);
    if (!x->dry && !host) return fail(x->error, ERR_MEMORY, "out of memory for rotary tables");
    for (int64_t i = 0; host && i < half; i++) {
        float power = (float)pow((double)(float)theta, (double)((float)(2 * i) / (float)(2 * half)));
        float frequency = 1.0f / power / (float)factor;
        for (int64_t p = 0; p < rows; p++) host[p * half + i] = (float)(first + p) * frequency;
    }
    Tensor angles = exec_new_as(x, F32, rows, half);
    Status s = exec_upload(x, angles, host);
    free(host);
    TRY(s);
    TRY(blocks_cos_sin(x, angles, cos_table, sin_table, true));
    arena_reset(x->work, mark);
    return OK;
}
