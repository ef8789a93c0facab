/* compare_tensors.c - two safetensors files, tensor by tensor in the order of the names.
 *
 * Values are compared as doubles, so the dtypes may differ (then the bits are not equal, whatever the values). Types without
 * values here (fp8 and smaller) are compared by their bytes alone.
 * Easy to get wrong: two NaN are the same value and add nothing; a NaN or infinity on one side only makes the largest
 * difference infinite and the PSNR minus infinity, which no limit lets through. A PSNR here has the reference's range as
 * its peak, so a constant reference gives minus infinity or infinity. */
#include "compare_parts.h"
#include "core/convert.h"
#include "core/safetensors.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

typedef struct TensorWalk {
    const CompareLimits *limits;
    Sink *sink;
    Verdict *verdict;
    Json *list, *only[2];
    int64_t compared, differing, alone[2];
    char first[200]; /* the first tensor that differs */
} TensorWalk;

static int64_t numel(const SafetensorsEntry *t) {
    int64_t n = 1;
    for (int d = 0; d < t->rank; d++) n *= t->shape[d];
    return n;
}

static bool same_shape(const SafetensorsEntry *a, const SafetensorsEntry *b) {
    return a->rank == b->rank && !memcmp(a->shape, b->shape, (size_t)a->rank * sizeof *a->shape);
}

static void measure_values(const unsigned char *p, DType t, const unsigned char *q, DType u, double peak,
                           TensorNumbers *n) {
    size_t step = dtype_size(t), other = dtype_size(u);
    double low = INFINITY, high = -INFINITY, sum = 0, squares = 0;
    for (int64_t i = 0; i < n->count; i++, p += step, q += other) {
        double a = convert_value(p, t), b = convert_value(q, u);
        bool same = t == u ? !memcmp(p, q, step) : a == b || (isnan(a) && isnan(b));
        n->nan[0] += isnan(a), n->nan[1] += isnan(b);
        if (!same && n->first < 0) n->first = i, n->value[0] = a, n->value[1] = b;
        n->differing += !same;
        if (isfinite(a) && a < low) low = a;
        if (isfinite(a) && a > high) high = a;
        if (!isfinite(a) || !isfinite(b)) {
            n->odd += !(a == b || (isnan(a) && isnan(b)));
            continue;
        }
        double d = fabs(a - b);
        sum += d, squares += d * d;
        if (d > n->max_abs) n->max_abs = d;
    }
    n->mean_abs = n->count ? sum / (double)n->count : 0;
    n->psnr = compare_psnr(squares / (double)n->count, peak > 0 ? peak : high - low);
    if (n->odd) n->max_abs = n->mean_abs = INFINITY, n->psnr = -INFINITY;
}

TensorNumbers compare_tensor(const CompareTensor *a, const CompareTensor *b, double peak) {
    TensorNumbers n = {.count = numel(a->entry), .first = -1, .psnr = INFINITY};
    DType t = a->entry->dtype, u = b->entry->dtype;
    n.values = convert_has_value(t) && convert_has_value(u);
    n.equal = t == u && (!a->entry->bytes || !memcmp(a->values, b->values, a->entry->bytes));
    if (n.values) measure_values(a->values, t, b->values, u, peak, &n);
    return n;
}

/* "[0, 3, 17]" of a flat index. */
static const char *index_text(const SafetensorsEntry *t, int64_t flat, char *out, size_t size) {
    int64_t at[SAFETENSORS_MAX_RANK];
    for (int d = t->rank - 1; d >= 0; d--) at[d] = flat % t->shape[d], flat /= t->shape[d];
    size_t used = (size_t)snprintf(out, size, "[");
    for (int d = 0; d < t->rank && used < size; d++)
        used += (size_t)snprintf(out + used, size - used, "%s%lld", d ? ", " : "", (long long)at[d]);
    if (used < size) snprintf(out + used, size - used, "]");
    return out;
}

/* Names come from files. */
static void print_name(FILE *out, const char *name) {
    for (const unsigned char *c = (const unsigned char *)name; *c; c++) fputc(*c < 0x20 || *c == 0x7f ? '?' : *c, out);
}

void compare_print_tensor(FILE *out, const SafetensorsEntry *a, const SafetensorsEntry *b, const TensorNumbers *n) {
    char shape[200], index[200], word[32];
    print_name(out, a->name);
    fprintf(out, ": %s%s%s %s: ", dtype_name(a->dtype), a->dtype != b->dtype ? " | " : "",
            a->dtype != b->dtype ? dtype_name(b->dtype) : "", safetensors_shape_text(a, shape, sizeof shape));
    if (n->equal && !n->nan[0]) {
        fputs("equal bits\n", out);
        return;
    }
    fprintf(out, "%s", n->equal ? "equal bits" : "different");
    if (!n->values)
        fputs(" bytes (values of this type are not read)", out);
    else {
        fprintf(out, ", %lld of %lld elements, max %.9g, mean %.6g, PSNR %s dB", (long long)n->differing,
                (long long)n->count, n->max_abs, n->mean_abs, compare_text(n->psnr, 4, word));
        if (n->nan[0] || n->nan[1]) fprintf(out, ", NaN %lld | %lld", (long long)n->nan[0], (long long)n->nan[1]);
        if (n->odd) fprintf(out, ", not finite on one side %lld", (long long)n->odd);
        if (n->first >= 0)
            fprintf(out, ", first at %s: %.9g | %.9g", index_text(a, n->first, index, sizeof index), n->value[0],
                    n->value[1]);
    }
    fputc('\n', out);
}

void compare_put_tensor(Json *list, const SafetensorsEntry *a, const SafetensorsEntry *b, const TensorNumbers *n) {
    Json *row = cJSON_CreateObject(), *shape = cJSON_AddArrayToObject(row, "shape");
    cJSON_AddItemToObject(row, "name", compare_name(a->name));
    for (int d = 0; d < a->rank; d++) cJSON_AddItemToArray(shape, cJSON_CreateNumber((double)a->shape[d]));
    cJSON_AddStringToObject(row, "dtype", dtype_name(a->dtype));
    if (a->dtype != b->dtype) cJSON_AddStringToObject(row, "output_dtype", dtype_name(b->dtype));
    cJSON_AddBoolToObject(row, "equal", n->equal);
    cJSON_AddNumberToObject(row, "elements", (double)n->count);
    if (n->values) {
        char index[200];
        cJSON_AddNumberToObject(row, "differing", (double)n->differing);
        compare_number(row, "max_abs", n->max_abs);
        compare_number(row, "mean_abs", n->mean_abs);
        compare_decibel(row, "psnr", n->psnr);
        for (int i = 0; i < 2; i++) cJSON_AddNumberToObject(row, i ? "output_nan" : "reference_nan", (double)n->nan[i]);
        cJSON_AddNumberToObject(row, "not_finite_on_one_side", (double)n->odd);
        if (n->first >= 0) {
            Json *first = cJSON_AddObjectToObject(row, "first_difference");
            cJSON_AddRawToObject(first, "index", index_text(a, n->first, index, sizeof index));
            compare_number(first, "reference", n->value[0]);
            compare_number(first, "output", n->value[1]);
        }
    }
    cJSON_AddItemToArray(list, row);
}

static void judge(TensorWalk *w, const SafetensorsEntry *a, const TensorNumbers *n) {
    const CompareLimits *l = w->limits;
    bool limited = n->values && (l->has_min_psnr || l->has_max_abs);
    bool good = limited ? (!l->has_min_psnr || n->psnr >= l->min_psnr) && (!l->has_max_abs || n->max_abs <= l->max_abs)
                        : n->equal;
    char word[32];
    if (!n->equal) {
        w->verdict->equal = false;
        if (!w->differing++) snprintf(w->first, sizeof w->first, "%s", a->name);
    }
    if (!good && n->values)
        compare_failed(w->verdict, "%s: max difference %g, PSNR %s dB", a->name, n->max_abs,
                       compare_text(n->psnr, 4, word));
    else if (!good)
        compare_failed(w->verdict, "%s: other bytes", a->name);
}

static void say_alone(TensorWalk *w, int who, const char *name) {
    static const char *const WHO[] = {"reference", "output"};
    w->alone[who]++;
    w->verdict->equal = false;
    compare_failed(w->verdict, "%s is only in the %s", name, WHO[who]);
    if (w->sink->json)
        cJSON_AddItemToArray(w->only[who], compare_name(name));
    else {
        fprintf(w->sink->text, "only in the %s: ", WHO[who]);
        print_name(w->sink->text, name);
        fputc('\n', w->sink->text);
    }
}

static Status walk(TensorWalk *w, const char *const path[2], const Safetensors f[2], Error *e) {
    for (int i = 0, k = 0; i < f[0].count || k < f[1].count;) {
        const SafetensorsEntry *a = i < f[0].count ? &f[0].entry[i] : NULL, *b = k < f[1].count ? &f[1].entry[k] : NULL;
        int order = !a ? 1 : !b ? -1 : strcmp(a->name, b->name);
        i += order <= 0, k += order >= 0;
        if (order) {
            say_alone(w, order > 0, order > 0 ? b->name : a->name);
            continue;
        }
        char x[200], y[200];
        if (!same_shape(a, b))
            return fail(e, ERR_USAGE, "%s is %s in %s and %s in %s: only equal shapes can be compared", a->name,
                        safetensors_shape_text(a, x, sizeof x), path[0], safetensors_shape_text(b, y, sizeof y),
                        path[1]);
        CompareTensor mine = {a, f[0].payload + a->offset}, other = {b, f[1].payload + b->offset};
        TensorNumbers n = compare_tensor(&mine, &other, 0);
        if (w->sink->json)
            compare_put_tensor(w->list, a, b, &n);
        else
            compare_print_tensor(w->sink->text, a, b, &n);
        judge(w, a, &n);
        w->compared++;
    }
    return OK;
}

static void summary(const TensorWalk *w) {
    if (w->sink->json) {
        cJSON_AddNumberToObject(w->sink->json, "tensors_compared", (double)w->compared);
        cJSON_AddNumberToObject(w->sink->json, "tensors_differing", (double)w->differing);
        if (w->first[0]) cJSON_AddItemToObject(w->sink->json, "first_differing", compare_name(w->first));
        return;
    }
    fprintf(w->sink->text, "tensors: %lld compared, %lld differ; %lld only in the reference, %lld only in the output\n",
            (long long)w->compared, (long long)w->differing, (long long)w->alone[0], (long long)w->alone[1]);
    if (w->first[0]) {
        fputs("first different tensor: ", w->sink->text);
        print_name(w->sink->text, w->first);
        fputc('\n', w->sink->text);
    }
    fprintf(w->sink->text, "equal bits: %s\n", w->verdict->equal ? "yes" : "no");
}

Status compare_tensors(const char *const path[2], const CompareLimits *limits, Sink *s, Verdict *v, Error *e) {
    TensorWalk w = {.limits = limits, .sink = s, .verdict = v};
    Safetensors f[2];
    memset(f, 0, sizeof f);
    Status status = safetensors_open(path[0], &f[0], e);
    if (status == OK) status = safetensors_open(path[1], &f[1], e);
    if (s->json) {
        w.only[0] = cJSON_AddArrayToObject(s->json, "missing");
        w.only[1] = cJSON_AddArrayToObject(s->json, "surplus");
        w.list = cJSON_AddArrayToObject(s->json, "tensors");
    }
    if (status == OK) status = walk(&w, path, f, e);
    if (status == OK) summary(&w);
    safetensors_close(&f[0]);
    safetensors_close(&f[1]);
    return status;
}
