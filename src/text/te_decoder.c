/* te_decoder.c - see te_decoder.h. */
#include "text/te_decoder.h"

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

Status te_decoder_rope(Exec *x, double theta, int64_t head, int64_t real, Tensor cos_table, Tensor sin_table) {
    if (x->dry) return OK;
    int64_t t = cos_table.shape[0], half = head / 2;
    float *host = calloc((size_t)(2 * t * half), sizeof *host);
    if (!host) return fail(x->error, ERR_MEMORY, "out of memory for rotary tables");
    for (int64_t i = 0; i < half; i++) {
        float power = (float)pow((double)(float)theta, (double)((float)(2 * i) / (float)head));
        float frequency = 1.0f / power;
        for (int64_t p = 0; p < real; p++) {
            double angle = (double)((float)p * frequency);
            float values[2] = {(float)cos(angle), (float)sin(angle)};
            for (int k = 0; k < 2; k++)
                host[(k * t + p) * half + i] = x->dtype == BF16 ? bf16_round(values[k]) : values[k];
        }
    }
    Status s = exec_upload(x, cos_table, host);
    if (s == OK) s = exec_upload(x, sin_table, host + t * half);
    free(host);
    return s;
}
