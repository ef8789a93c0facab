/* compare_sequence.c - pictures, folders of pictures and videos: frame by frame, then all together.
 * Each number is produced once and goes out as a line or as a member of the object (Sink).
 * Easy to get wrong: a single picture is a sequence of one frame, without a table and with the notes that only files with
 * ditto's metadata have. */
#include "compare_parts.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct Walk {
    const char *const *path;
    const CompareLimits *limits;
    Sink *sink;
    Verdict *verdict;
    Json *table, *alone[2]; /* JSON arrays */
    bool single;
    int64_t frames, differing, only[2];
    FrameNumbers all; /* sums over the frames, first difference */
    int64_t first_frame;
    char first_name[256];
    int64_t worst; /* frame with the largest mean square */
    double worst_mean_square;
    double lowest_ssim;
} Walk;

static const char *const KEYS[COMPARE_PARTS] = {"y", "u", "v", "all"};
static const char *const WHO[] = {"reference", "output"};

static void say_alone(void *user, int who, const char *name) {
    Walk *w = user;
    if (w->sink->text && name) fprintf(w->sink->text, "only in the %s: %s\n", WHO[who], name);
    if (w->sink->json && name) cJSON_AddItemToArray(w->alone[who], compare_name(name));
    if (!w->only[who]++) {
        if (name)
            compare_failed(w->verdict, "%s is only in the %s", name, WHO[who]);
        else
            compare_failed(w->verdict, "the %s has more frames", WHO[who]);
    }
    w->verdict->equal = false;
}

/* --- one frame --- */

static void table_head(const Walk *w, const Planes *p) {
    if (w->single || !w->sink->text) return;
    fputs("frame  max  mean      ", w->sink->text);
    if (p->count > 1)
        fputs("PSNR y   u        v        all      SSIM y    u         v         all       ", w->sink->text);
    else
        fputs("PSNR     SSIM      ", w->sink->text);
    fputs("luma reference, output\n", w->sink->text);
}

static void table_row(const Walk *w, const FrameNumbers *n, const char *name) {
    FILE *out = w->sink->text;
    char word[32];
    if (w->single || !out) return;
    fprintf(out, "%-6lld %-4d %-9.6f", (long long)w->frames, n->max_abs, (double)n->sum / (double)n->samples);
    for (int i = n->planes > 1 ? 0 : COMPARE_ALL; i <= COMPARE_ALL; i++)
        fprintf(out, " %-8s", compare_text(compare_psnr(n->mean_square[i], n->peak), 4, word));
    for (int i = n->planes > 1 ? 0 : COMPARE_ALL; i <= COMPARE_ALL; i++)
        fprintf(out, " %-9s", compare_text(n->ssim[i], 6, word));
    fprintf(out, " %.4f %.4f%s%s\n", n->luma[0], n->luma[1], name ? "  " : "", name ? name : "");
}

static void put_quality(Json *to, const FrameNumbers *n) {
    compare_decibel(to, "psnr", compare_psnr(n->mean_square[COMPARE_ALL], n->peak));
    compare_number(to, "ssim", n->ssim[COMPARE_ALL]);
    if (n->planes == 1) return;
    Json *psnr = cJSON_AddObjectToObject(to, "psnr_planes"), *ssim = cJSON_AddObjectToObject(to, "ssim_planes");
    for (int i = 0; i < n->planes; i++) {
        compare_decibel(psnr, KEYS[i], compare_psnr(n->mean_square[i], n->peak));
        compare_number(ssim, KEYS[i], n->ssim[i]);
    }
}

static void put_luma(Json *to, const FrameNumbers *n) {
    Json *luma = cJSON_AddObjectToObject(to, "luma");
    for (int i = 0; i < 2; i++) compare_number(luma, WHO[i], n->luma[i]);
}

static void put_row(const Walk *w, const FrameNumbers *n, const char *name) {
    if (!w->table) return;
    Json *row = cJSON_CreateObject();
    cJSON_AddNumberToObject(row, "frame", (double)w->frames);
    if (name) cJSON_AddItemToObject(row, "name", compare_name(name));
    cJSON_AddBoolToObject(row, "equal", !n->differing);
    cJSON_AddNumberToObject(row, "max_abs", n->max_abs);
    compare_number(row, "mean_abs", (double)n->sum / (double)n->samples);
    put_quality(row, n);
    put_luma(row, n);
    cJSON_AddItemToArray(w->table, row);
}

static Status judge(const Walk *w, const FrameNumbers *n, const char *name, Error *e) {
    const CompareLimits *l = w->limits;
    double psnr = compare_psnr(n->mean_square[COMPARE_ALL], n->peak), ssim = n->ssim[COMPARE_ALL];
    if (l->has_min_ssim && isnan(ssim))
        return fail(e, ERR_USAGE, "--min-ssim: %s is smaller than the window of the SSIM", w->path[0]);
    bool limited = l->has_min_psnr || l->has_min_ssim || l->has_max_abs;
    bool good = limited ? (!l->has_min_psnr || psnr >= l->min_psnr) && (!l->has_min_ssim || ssim >= l->min_ssim) &&
                              (!l->has_max_abs || n->max_abs <= l->max_abs)
                        : !n->differing;
    if (n->differing) w->verdict->equal = false;
    char where[300] = "", a[32], b[32];
    if (!w->single)
        snprintf(where, sizeof where, "frame %lld%s%s: ", (long long)w->frames, name ? ", " : "", name ? name : "");
    if (!good)
        compare_failed(w->verdict, "%smax difference %d, PSNR %s dB, SSIM %s", where, n->max_abs,
                       compare_text(psnr, 4, a), compare_text(ssim, 6, b));
    return OK;
}

static void accumulate(Walk *w, const FrameNumbers *n, const char *name) {
    FrameNumbers *all = &w->all;
    all->planes = n->planes, all->peak = n->peak;
    all->samples += n->samples, all->differing += n->differing, all->sum += n->sum;
    if (n->max_abs > all->max_abs) all->max_abs = n->max_abs;
    for (int i = 0; i < COMPARE_PARTS; i++) all->mean_square[i] += n->mean_square[i], all->ssim[i] += n->ssim[i];
    for (int i = 0; i < 2; i++) all->luma[i] += n->luma[i];
    if (n->first.found && !all->first.found) {
        all->first = n->first;
        w->first_frame = w->frames;
        snprintf(w->first_name, sizeof w->first_name, "%s", name ? name : "");
    }
    if (!w->frames || n->mean_square[COMPARE_ALL] > w->worst_mean_square)
        w->worst = w->frames, w->worst_mean_square = n->mean_square[COMPARE_ALL];
    if (!w->frames || n->ssim[COMPARE_ALL] < w->lowest_ssim) w->lowest_ssim = n->ssim[COMPARE_ALL];
    w->differing += n->differing != 0;
    w->frames++;
}

/* --- all of them --- */

static void finish(Walk *w) {
    FrameNumbers *all = &w->all;
    for (int i = 0; i < COMPARE_PARTS; i++) all->mean_square[i] /= (double)w->frames, all->ssim[i] /= (double)w->frames;
    for (int i = 0; i < 2; i++) all->luma[i] /= (double)w->frames;
}

static void print_quality(FILE *out, const FrameNumbers *n, const char *label, bool psnr) {
    char word[32];
    fprintf(out, "%s:", label);
    for (int i = n->planes > 1 ? 0 : COMPARE_ALL; i <= COMPARE_ALL; i++)
        fprintf(out, "%s%s %s", n->planes > 1 ? " " : "", n->planes > 1 ? KEYS[i] : "",
                psnr ? compare_text(compare_psnr(n->mean_square[i], n->peak), 4, word)
                     : compare_text(n->ssim[i], 6, word));
    fputs(psnr && n->mean_square[COMPARE_ALL] > 0 ? " dB\n" : "\n", out);
}

static void print_all(const Walk *w, const Planes *p) {
    const FrameNumbers *n = &w->all;
    FILE *out = w->sink->text;
    char word[32];
    fprintf(out, "equal pixels: %s\n", n->differing ? "no" : "yes");
    if (!w->single)
        fprintf(out, "frames: %lld compared, %lld differ; %lld only in the reference, %lld only in the output\n",
                (long long)w->frames, (long long)w->differing, (long long)w->only[0], (long long)w->only[1]);
    fprintf(out, "differing %s: %lld of %lld\n", p->rgb ? "bytes" : "samples", (long long)n->differing,
            (long long)n->samples);
    fprintf(out, "max difference: %d\n", n->max_abs);
    fprintf(out, "mean difference: %.6g\n", (double)n->sum / (double)n->samples);
    print_quality(out, n, "PSNR", true);
    print_quality(out, n, "SSIM", false);
    if (!w->single && n->differing)
        fprintf(out, "lowest: frame %lld, PSNR %s dB; SSIM %s\n", (long long)w->worst,
                compare_text(compare_psnr(w->worst_mean_square, n->peak), 4, word),
                compare_text(w->lowest_ssim, 6, (char[32]){0}));
    fprintf(out, "mean luma: %.4f | %.4f\n", n->luma[0], n->luma[1]);
    if (!n->first.found) return;
    fputs("first difference: ", out);
    if (!w->single)
        fprintf(out, "frame %lld%s%s, ", (long long)w->first_frame, w->first_name[0] ? " " : "", w->first_name);
    fprintf(out, "x %d, y %d, %s: %d | %d\n", n->first.x, n->first.y,
            compare_channel(p, n->first.plane, n->first.channel), n->first.value[0], n->first.value[1]);
}

static void put_all(const Walk *w, const Planes *p) {
    const FrameNumbers *n = &w->all;
    Json *to = w->sink->json;
    cJSON_AddBoolToObject(to, "equal_pixels", !n->differing);
    cJSON_AddNumberToObject(to, "frames_compared", (double)w->frames);
    cJSON_AddNumberToObject(to, "frames_differing", (double)w->differing);
    for (int i = 0; i < 2; i++)
        cJSON_AddNumberToObject(to, i ? "surplus_frames" : "missing_frames", (double)w->only[i]);
    cJSON_AddNumberToObject(to, "samples", (double)n->samples);
    cJSON_AddNumberToObject(to, "differing", (double)n->differing);
    cJSON_AddNumberToObject(to, "max_abs", n->max_abs);
    compare_number(to, "mean_abs", (double)n->sum / (double)n->samples);
    put_quality(to, n);
    put_luma(to, n);
    if (!w->single) cJSON_AddNumberToObject(to, "lowest_frame", (double)w->worst);
    if (!n->first.found) return;
    Json *first = cJSON_AddObjectToObject(to, "first_difference");
    cJSON_AddNumberToObject(first, "frame", (double)w->first_frame);
    if (w->first_name[0]) cJSON_AddItemToObject(first, "name", compare_name(w->first_name));
    cJSON_AddNumberToObject(first, "x", n->first.x);
    cJSON_AddNumberToObject(first, "y", n->first.y);
    cJSON_AddStringToObject(first, "channel", compare_channel(p, n->first.plane, n->first.channel));
    for (int i = 0; i < 2; i++) cJSON_AddNumberToObject(first, WHO[i], n->first.value[i]);
}

/* --- before the first frame --- */

static void describe(const Walk *w, Frames *const pair[2], const Planes *p) {
    const AvInfo *video[2] = {frames_video(pair[0]), frames_video(pair[1])};
    const char *pixels = p->rgb ? "rgb" : video[0]->format;
    if (w->sink->json) {
        cJSON_AddNumberToObject(w->sink->json, "width", p->width);
        cJSON_AddNumberToObject(w->sink->json, "height", p->height);
        cJSON_AddStringToObject(w->sink->json, "pixels", pixels);
        cJSON_AddStringToObject(w->sink->json, "ssim_windows", p->rgb ? "7x7, scikit-image" : "8x8, ffmpeg");
        return;
    }
    fprintf(w->sink->text, "size: %dx%d\n", p->width, p->height);
    for (int i = 0; i < 2; i++)
        if (video[i])
            fprintf(w->sink->text, "%s: %s, %s%s, %g frames/s\n", WHO[i], video[i]->container, video[i]->format,
                    video[i]->full ? " in full range" : "", video[i]->fps);
    if (video[0] || video[1]) fprintf(w->sink->text, "compared in: %s, %d bits\n", pixels, p->bits);
    if (!p->rgb && video[0]->full != video[1]->full)
        fputs("note: one is in full range, the other is not: equal code values mean different colours\n",
              w->sink->text);
}

static void say_dropped(const Walk *w, Frames *const pair[2]) {
    for (int i = 0; i < 2 && w->sink->text; i++) {
        if (frames_dropped_alpha(pair[i])) fprintf(w->sink->text, "note: %s: alpha is not compared\n", w->path[i]);
        if (frames_dropped_depth(pair[i]))
            fprintf(w->sink->text, "note: %s: of samples with more than 8 bits only the upper byte is compared\n",
                    w->path[i]);
    }
}

static Status walk(Walk *w, Frames *const pair[2], Error *e) {
    const PairWatch watch = {say_alone, w};
    Planes p[2], last = {0};
    for (bool end = false;;) {
        const char *name;
        FrameNumbers n;
        TRY(compare_pair(pair, &watch, p, &name, &end, e));
        if (end) break;
        if (!w->frames) {
            describe(w, pair, &p[0]);
            table_head(w, &p[0]);
        }
        TRY(compare_frame(&p[0], &p[1], &n, e));
        table_row(w, &n, name);
        put_row(w, &n, name);
        TRY(judge(w, &n, name, e));
        accumulate(w, &n, name);
        last = p[0];
    }
    if (!w->frames) return fail(e, ERR_USAGE, "%s and %s have no frame of the same name", w->path[0], w->path[1]);
    finish(w);
    say_dropped(w, pair);
    if (w->sink->text)
        print_all(w, &last);
    else
        put_all(w, &last);
    return OK;
}

Status compare_sequence(const char *const path[2], const FramesKind kind[2], const CompareOptions *o, Sink *s,
                        Verdict *v, Error *e) {
    Walk w = {.path = path, .limits = &o->limits, .sink = s, .verdict = v};
    Frames *pair[2];
    w.single = kind[0] == FRAMES_PICTURE && kind[1] == FRAMES_PICTURE;
    if (w.single)
        compare_metadata(s, path[0], path[1]);
    else if ((kind[0] == FRAMES_FOLDER && kind[1] == FRAMES_PICTURE) ||
             (kind[0] == FRAMES_PICTURE && kind[1] == FRAMES_FOLDER))
        return fail(e, ERR_USAGE, "%s is a folder and %s a picture", path[kind[1] == FRAMES_FOLDER],
                    path[kind[0] == FRAMES_FOLDER]);
    TRY(compare_open(path, kind, false, pair, e));
    if (s->json && !w.single) {
        w.alone[0] = cJSON_AddArrayToObject(s->json, "missing");
        w.alone[1] = cJSON_AddArrayToObject(s->json, "surplus");
        w.table = cJSON_AddArrayToObject(s->json, "frames");
    }
    Status status = walk(&w, pair, e);
    frames_close(pair[0]);
    frames_close(pair[1]);
    return status == OK && o->diff ? compare_diff(path, kind, w.worst, o, s, e) : status;
}
