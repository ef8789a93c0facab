/* compare.c - see compare.h. Sums are integers and therefore exact: 255^2 times 2^30 bytes fit in 64 bits. */
#include "compare.h"

#include "core/json.h"
#include "media/image.h"
#include "media/png.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

Comparison compare_pixels(const uint8_t *a, const uint8_t *b, size_t bytes) {
    uint64_t sum = 0, squares = 0, differing = 0;
    int max = 0;
    for (size_t i = 0; i < bytes; i++) {
        int d = abs(a[i] - b[i]);
        sum += (uint64_t)d;
        squares += (uint64_t)(d * d);
        differing += d != 0;
        if (d > max) max = d;
    }
    double n = (double)bytes;
    return (Comparison){.equal = !differing,
                        .bytes = (int64_t)bytes,
                        .differing = (int64_t)differing,
                        .max_abs = max,
                        .mean_abs = (double)sum / n,
                        .psnr = squares ? 10.0 * log10(255.0 * 255.0 * n / (double)squares) : INFINITY};
}

bool compare_passes(const Comparison *c, const CompareLimits *limits) {
    if (!limits->has_min_psnr && !limits->has_max_abs) return c->equal;
    return (!limits->has_min_psnr || c->psnr >= limits->min_psnr) &&
           (!limits->has_max_abs || c->max_abs <= limits->max_abs);
}

/* --- metadata --- */

/* One value as JSON (no control character reaches a terminal), cut to a line's length between code points. */
static void print_value(FILE *text, const Json *value) {
    enum { SHOWN = 200 };
    if (!value) {
        fputs("absent", text);
        return;
    }
    char *json = cJSON_PrintUnformatted(value);
    size_t n = json ? strlen(json) : 0, cut = n;
    if (n > SHOWN)
        for (cut = SHOWN; cut && ((unsigned char)json[cut] & 0xc0) == 0x80;) cut--;
    for (size_t i = 0; i < cut; i++) /* DEL is the one control character that cJSON does not escape */
        fputc(json[i] == 0x7f ? '?' : json[i], text);
    if (cut < n) fprintf(text, "... (%zu bytes)", n);
    cJSON_free(json);
}

static int print_difference(FILE *text, const char *key, const Json *a, const Json *b) {
    if (a && b && cJSON_Compare(a, b, 1)) return 0;
    Json *name = cJSON_CreateString(key);
    fputs("metadata ", text);
    print_value(text, name);
    fputs(": ", text);
    print_value(text, a);
    fputs(" | ", text);
    print_value(text, b);
    fputc('\n', text);
    cJSON_Delete(name);
    return 1;
}

/* ditto's own parameters, key by key: those of A in its order, then those only B has. */
static int print_parameters(FILE *text, const Json *a, const Json *b) {
    int found = 0;
    for (const Json *i = a->child; i; i = i->next)
        found += print_difference(text, i->string, i, json_get(b, i->string));
    for (const Json *i = b->child; i; i = i->next)
        if (!json_get(a, i->string)) found += print_difference(text, i->string, NULL, i);
    return found;
}

/* The other texts, as strings. A key that occurs twice is compared by its first text. */
static int print_texts(FILE *text, const PngTexts *a, const PngTexts *b, bool only_missing) {
    int found = 0;
    for (int i = 0; i < a->count; i++) {
        const char *key = a->items[i].key, *mine = png_texts_get(a, key), *other = png_texts_get(b, key);
        if (!strcmp(key, PNG_DITTO_KEY) || mine != a->items[i].text || (other && only_missing)) continue;
        Json *x = cJSON_CreateString(mine), *y = other ? cJSON_CreateString(other) : NULL;
        found += only_missing ? print_difference(text, key, y, x) : print_difference(text, key, x, y);
        cJSON_Delete(x);
        cJSON_Delete(y);
    }
    return found;
}

static void print_metadata(FILE *text, const char *path_a, const char *path_b) {
    PngTexts a = {0}, b = {0};
    Json *x = NULL, *y = NULL;
    /* files without readable texts (JPEG, foreign PNG) carry no metadata; pixels decide about errors */
    png_read_texts(path_a, &a, NULL);
    png_read_texts(path_b, &b, NULL);
    const char *s = png_texts_get(&a, PNG_DITTO_KEY), *t = png_texts_get(&b, PNG_DITTO_KEY);
    if (s && t) {
        int found;
        if (json_parse(s, strlen(s), path_a, &x, NULL) == OK &&
            json_parse(t, strlen(t), path_b, &y, NULL) == OK && cJSON_IsObject(x) && cJSON_IsObject(y)) {
            found = print_parameters(text, x, y);
        } else {
            found = strcmp(s, t) != 0;
            if (found) fputs("metadata: not readable as parameters, and different\n", text);
        }
        found += print_texts(text, &a, &b, false) + print_texts(text, &b, &a, true);
        if (!found) fputs("metadata: equal\n", text);
    } else if (s || t) {
        fprintf(text, "metadata: only in %s\n", s ? path_a : path_b);
    }
    json_free(x);
    json_free(y);
    png_texts_free(&a);
    png_texts_free(&b);
}

/* --- files --- */

static void print_notes(FILE *text, const char *path, const Image *image) {
    if (image->channels == 2 || image->channels == 4)
        fprintf(text, "note: %s: alpha is not compared\n", path);
    if (image->deep) fprintf(text, "note: %s: of 16-bit samples only the upper byte is compared\n", path);
}

static void print_numbers(FILE *text, const Comparison *c) {
    fprintf(text, "size: %dx%d\n", c->width, c->height);
    fprintf(text, "equal pixels: %s\n", c->equal ? "yes" : "no");
    fprintf(text, "differing bytes: %lld of %lld\n", (long long)c->differing, (long long)c->bytes);
    fprintf(text, "max difference: %d\n", c->max_abs);
    fprintf(text, "mean difference: %.6g\n", c->mean_abs);
    if (isinf(c->psnr)) fputs("PSNR: inf\n", text);
    else fprintf(text, "PSNR: %.4f dB\n", c->psnr);
}

static Status compare_images(const char *a, const char *b, const Image *x, const Image *y,
                             const CompareLimits *limits, FILE *text, Comparison *out, Error *e) {
    print_metadata(text, a, b);
    if (x->width != y->width || x->height != y->height)
        return fail(e, ERR_USAGE, "%s is %dx%d and %s is %dx%d: only equal sizes can be compared", a,
                    x->width, x->height, b, y->width, y->height);
    print_notes(text, a, x);
    print_notes(text, b, y);
    *out = compare_pixels(x->rgb, y->rgb, (size_t)x->width * (size_t)x->height * 3);
    out->width = x->width;
    out->height = x->height;
    print_numbers(text, out);
    if (compare_passes(out, limits)) return OK;
    return fail(e, ERR_SOME, "%s and %s differ: max difference %d, PSNR %.4f dB", a, b, out->max_abs,
                out->psnr);
}

Status compare_files(const char *a, const char *b, const CompareLimits *limits, FILE *text, Comparison *out,
                     Error *e) {
    Image x = {0}, y = {0};
    *out = (Comparison){0};
    Status status = image_read(a, &x, e);
    if (status == OK) status = image_read(b, &y, e);
    if (status == OK) status = compare_images(a, b, &x, &y, limits, text, out, e);
    image_free(&x);
    image_free(&y);
    if (status != OK && status != ERR_SOME) {
        status = ERR_USAGE; /* compare knows three outcomes only */
        if (e) e->code = ERR_USAGE;
    }
    return status;
}
