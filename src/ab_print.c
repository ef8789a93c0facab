/* ab_print.c - see ab_print.h. */
#include "ab_print.h"

#include "ab_meta.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const char *const PHASE[AB_PHASES] = {"text", "denoise", "decode", "all"};
static const char *const ROLE[2] = {"reference", "output"};

static void describe(const AbPrint *p, int i) {
    const AbSide *s = &p->side[i];
    const char *what = s->folder ? s->folder : s->options ? s->options : "";
    if (p->sink.text) {
        fprintf(p->sink.text, "%s: %s%s%s\n", ROLE[i], s->folder ? "" : s->name, s->folder || !*what ? "" : " ", what);
        return;
    }
    Json *o = cJSON_AddObjectToObject(p->sink.json, ROLE[i]);
    cJSON_AddItemToObject(o, s->folder ? "folder" : "options", compare_name(what));
}

void ab_print_begin(AbPrint *p) {
    describe(p, 0);
    describe(p, 1);
    if (p->sink.json) p->prompts = cJSON_AddArrayToObject(p->sink.json, "prompts");
}

/* --- one prompt --- */

static void print_differences(FILE *out, const Json *differences) {
    for (const Json *pair = differences->child; pair; pair = pair->next) {
        char *a = cJSON_PrintUnformatted(pair->child), *b = cJSON_PrintUnformatted(pair->child->next);
        fprintf(out, "other %s: %s | %s\n", pair->string, a ? a : "?", b ? b : "?");
        cJSON_free(a);
        cJSON_free(b);
    }
}

static void print_alone(FILE *out, const AbWalk *w, int who) {
    const char *comma = "";
    for (int i = 0; i < w->rows; i++) {
        const AbStage *alone = who ? w->row[i].b : w->row[i].a, *other = who ? w->row[i].a : w->row[i].b;
        if (!alone || other) continue;
        fprintf(out, "%s%s", *comma ? comma : who ? "only in the output: " : "only in the reference: ", alone->name);
        comma = ", ";
    }
    if (*comma) fputc('\n', out);
}

static const char *first_text(const AbWalk *w, char *text, size_t size) {
    char word[32];
    if (!w->first) return "none";
    const TensorNumbers *n = &w->first->n;
    snprintf(text, size, "%s (%lld of %lld elements, max %.9g, PSNR %s dB)", w->first->a->name, (long long)n->differing,
             (long long)n->count, n->max_abs, compare_text(n->psnr, 4, word));
    return text;
}

static void print_stages(FILE *out, const AbWalk *w) {
    for (int i = 0; i < w->rows; i++)
        if (w->row[i].a && w->row[i].b)
            compare_print_tensor(out, &w->row[i].a->entry, &w->row[i].b->entry, &w->row[i].n);
    print_alone(out, w, 0);
    print_alone(out, w, 1);
}

static void print_seconds(FILE *out, const char *label, const double *seconds) {
    fputs(label, out);
    for (int i = 0; i < AB_PHASES; i++) fprintf(out, " %s %.3f", PHASE[i], seconds[i]);
    fputc('\n', out);
}

static void print_prompt(const AbPrint *p, int k, const AbWalk *w, const AbResult *r, const Json *differences) {
    FILE *out = p->sink.text;
    char text[300], x[32], y[32];
    if (p->count > 1) fprintf(out, "prompt %d\n", k + 1);
    print_differences(out, differences);
    if (p->stages) print_stages(out, w);
    fprintf(out, "first stage that differs: %s\n", first_text(w, text, sizeof text));
    if (r->has_latents || r->has_pixels)
        fprintf(out, "PSNR: latents %s%s, pixels %s%s\n", r->has_latents ? compare_text(r->latents, 4, x) : "absent",
                r->has_latents ? " dB" : "", r->has_pixels ? compare_text(r->pixels, 4, y) : "absent",
                r->has_pixels ? " dB" : "");
    for (int i = 0; i < 2; i++) {
        char label[40];
        snprintf(label, sizeof label, "seconds of %s:", p->side[i].name);
        if (r->timed[i]) print_seconds(out, label, r->seconds[i]);
    }
}

static Json *json_seconds(const double *seconds) {
    Json *o = cJSON_CreateObject();
    for (int i = 0; i < AB_PHASES; i++) compare_number(o, PHASE[i], seconds[i]);
    return o;
}

static void put_prompt(AbPrint *p, const AbWalk *w, const AbShot *const shot[2], const AbResult *r, const Json *differences) {
    Json *o = cJSON_CreateObject(), *only[2], *list;
    cJSON_AddItemToArray(p->prompts, o);
    for (int i = 0; i < 2; i++)
        if (shot[i]->meta)
            cJSON_AddItemToObject(o, i ? "output_parameters" : "reference_parameters", cJSON_Duplicate(shot[i]->meta, 1));
    cJSON_AddItemToObject(o, "other_parameters", cJSON_Duplicate(differences, 1));
    cJSON_AddBoolToObject(o, "equal", w->equal);
    if (w->first) cJSON_AddItemToObject(o, "first_differing", compare_name(w->first->a->name));
    if (r->has_latents) compare_decibel(o, "latents_psnr", r->latents);
    if (r->has_pixels) compare_decibel(o, "pixels_psnr", r->pixels);
    Json *seconds = cJSON_AddObjectToObject(o, "seconds");
    for (int i = 0; i < 2; i++)
        if (r->timed[i]) cJSON_AddItemToObject(seconds, ROLE[i], json_seconds(r->seconds[i]));
    only[0] = cJSON_AddArrayToObject(o, "missing");
    only[1] = cJSON_AddArrayToObject(o, "surplus");
    list = cJSON_AddArrayToObject(o, "stages");
    for (int i = 0; i < w->rows; i++) {
        const AbRow *row = &w->row[i];
        if (row->a && row->b)
            compare_put_tensor(list, &row->a->entry, &row->b->entry, &row->n);
        else
            cJSON_AddItemToArray(only[row->a == NULL], compare_name(row->a ? row->a->name : row->b->name));
    }
}

Status ab_print_prompt(AbPrint *p, int k, const AbWalk *w, const AbShot *const shot[2], const AbResult *r, Error *e) {
    Json *differences = ab_meta_differences(shot[0]->meta, shot[1]->meta);
    if (!differences) return fail(e, ERR_MEMORY, "out of memory");
    if (p->sink.json)
        put_prompt(p, w, shot, r, differences);
    else
        print_prompt(p, k, w, r, differences);
    cJSON_Delete(differences);
    return OK;
}

/* --- all prompts --- */

static int by_value(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n) {
    qsort(v, (size_t)n, sizeof *v, by_value);
    return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

/* Medians of each phase over the prompts; false: not known. */
static bool medians(const AbPrint *p, const AbResult *result, int side, double out[AB_PHASES]) {
    double *v = malloc((size_t)p->count * sizeof *v);
    bool known = v != NULL;
    for (int i = 0; known && i < AB_PHASES; i++) {
        for (int k = 0; k < p->count; k++) v[k] = result[k].seconds[side][i], known = known && result[k].timed[side];
        out[i] = median(v, p->count);
    }
    free(v);
    return known;
}

typedef struct Spread {
    double min, mean; /* of those that are finite; INFINITY: there are none */
    int count, finite;
} Spread;

static Spread spread(const AbPrint *p, const AbResult *result, bool latents) {
    Spread s = {.min = INFINITY};
    double sum = 0;
    for (int k = 0; k < p->count; k++) {
        if (!(latents ? result[k].has_latents : result[k].has_pixels)) continue;
        double v = latents ? result[k].latents : result[k].pixels;
        s.count++;
        if (v < s.min) s.min = v;
        if (v < INFINITY) sum += v, s.finite++;
    }
    s.mean = s.finite ? sum / s.finite : INFINITY;
    return s;
}

static void print_table(const AbPrint *p, const AbResult *result) {
    FILE *out = p->sink.text;
    char x[32], y[32];
    fprintf(out, "%6s %12s %12s", "prompt", "latents dB", "pixels dB");
    for (int i = 0; i < 2; i++)
        for (int f = 0; f < AB_PHASES; f++)
            fprintf(out, "%s %7s", f ? " " : i ? "  b" : p->side[i].folder ? "  -" : "  a", PHASE[f]);
    fputc('\n', out);
    for (int k = 0; k < p->count; k++) {
        const AbResult *r = &result[k];
        fprintf(out, "%6d %12s %12s", k + 1, r->has_latents ? compare_text(r->latents, 4, x) : "absent",
                r->has_pixels ? compare_text(r->pixels, 4, y) : "absent");
        for (int i = 0; i < 2; i++)
            for (int f = 0; f < AB_PHASES; f++) {
                fputs(f ? " " : "   ", out);
                if (r->timed[i])
                    fprintf(out, " %7.3f", r->seconds[i][f]);
                else
                    fprintf(out, " %7s", "-");
            }
        fputc('\n', out);
    }
}

static void print_end(const AbPrint *p, const AbResult *result, const double *const seconds[2]) {
    FILE *out = p->sink.text;
    char x[32], y[32];
    int equal = 0;
    for (int k = 0; k < p->count; k++) equal += result[k].equal;
    if (p->count > 1) {
        print_table(p, result);
        for (int i = 0; i < 2; i++) {
            Spread s = spread(p, result, !i);
            if (s.count)
                fprintf(out, "%s: PSNR min %s dB, mean %s dB; %d of %d without a difference\n", i ? "pixels" : "latents",
                        compare_text(s.min, 4, x), compare_text(s.mean, 4, y), s.count - s.finite, s.count);
        }
        for (int i = 0; i < 2; i++) {
            char label[60];
            snprintf(label, sizeof label, "median seconds of %s:", p->side[i].name);
            if (seconds[i]) print_seconds(out, label, seconds[i]);
        }
    }
    if (seconds[0] && seconds[1] && p->warm) {
        double ratio[AB_PHASES];
        char label[60];
        for (int f = 0; f < AB_PHASES; f++) ratio[f] = seconds[0][f] / seconds[1][f];
        snprintf(label, sizeof label, "seconds, %s / %s:", p->side[0].name, p->side[1].name);
        print_seconds(out, label, ratio);
    }
    if (p->count > 1)
        fprintf(out, "equal bits: %d of %d prompts\n", equal, p->count);
    else
        fprintf(out, "equal bits: %s\n", equal ? "yes" : "no");
}

static void put_end(const AbPrint *p, const AbResult *result, const double *const seconds[2]) {
    Json *o = p->sink.json, *all = cJSON_AddObjectToObject(o, "median_seconds");
    for (int i = 0; i < 2; i++) {
        Spread s = spread(p, result, !i);
        Json *one = s.count ? cJSON_AddObjectToObject(o, i ? "pixels_psnr" : "latents_psnr") : NULL;
        if (one) {
            compare_decibel(one, "min", s.min);
            compare_decibel(one, "mean", s.mean);
            cJSON_AddNumberToObject(one, "without_difference", s.count - s.finite);
        }
        if (seconds[i]) cJSON_AddItemToObject(all, ROLE[i], json_seconds(seconds[i]));
    }
    cJSON_AddBoolToObject(o, "warm", p->warm);
}

void ab_print_end(AbPrint *p, const AbResult *result, const char *sheet, int factor) {
    double value[2][AB_PHASES];
    const double *seconds[2];
    for (int i = 0; i < 2; i++) seconds[i] = medians(p, result, i, value[i]) ? value[i] : NULL;
    if (p->sink.json)
        put_end(p, result, seconds);
    else
        print_end(p, result, seconds);
    if (sheet && p->sink.json) {
        cJSON_AddItemToObject(p->sink.json, "sheet", compare_name(sheet));
        cJSON_AddNumberToObject(p->sink.json, "sheet_factor", factor);
    }
    if (sheet && p->sink.text) fprintf(p->sink.text, "sheet: %s, differences times %d\n", sheet, factor);
}

Status ab_print_flush(AbPrint *p, const Verdict *v, FILE *out, Error *e) {
    if (p->sink.json) {
        cJSON_AddBoolToObject(p->sink.json, "equal", v->equal);
        cJSON_AddBoolToObject(p->sink.json, "passed", !v->failed);
        if (v->failed) cJSON_AddItemToObject(p->sink.json, "why", compare_name(v->why));
        char *line = cJSON_PrintUnformatted(p->sink.json);
        if (!line) return fail(e, ERR_MEMORY, "out of memory for the result");
        fprintf(out, "%s\n", line);
        cJSON_free(line);
    }
    if (fflush(out) || ferror(out)) return fail(e, ERR_IO, "standard output: cannot write: %s", strerror(errno));
    return OK;
}
