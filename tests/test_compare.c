/* test_compare.c - numbers of compare_pixels() against sums done by hand, and compare_files() on files: exit
 * codes, limits, metadata before numbers, pictures that cannot be compared. */
#include "compare.h"
#include "media/png.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Tally { int passed, failed; } Tally;

static bool check(Tally *t, bool good, const char *what) {
    if (good) t->passed++;
    else t->failed++;
    if (!good && t->failed <= 20) fprintf(stderr, "FAIL: %s\n", what);
    return good;
}

static void check_numbers(Tally *t) {
    uint8_t a[1000], b[1000];
    for (int i = 0; i < 1000; i++) a[i] = b[i] = (uint8_t)(i * 7);
    Comparison c = compare_pixels(a, b, sizeof a);
    check(t, c.equal && !c.differing && !c.max_abs && c.mean_abs == 0 && isinf(c.psnr) && c.psnr > 0,
          "equal");
    b[3] = (uint8_t)(a[3] + 3); /* 21 -> 24 */
    b[4] = (uint8_t)(a[4] - 4); /* 28 -> 24 */
    c = compare_pixels(a, b, sizeof a);
    check(t, !c.equal && c.differing == 2 && c.max_abs == 4 && c.bytes == 1000, "two bytes differ");
    check(t, c.mean_abs == 7.0 / 1000, "mean");
    /* mean square 25/1000: 20 log10(255) - 10 log10(0.025); log10 within an ulp or two */
    check(t, fabs(c.psnr - (20 * log10(255.0) + 10 * log10(40.0))) < 1e-12, "PSNR");
    memset(a, 0, sizeof a);
    memset(b, 255, sizeof b);
    c = compare_pixels(a, b, sizeof a);
    check(t, c.max_abs == 255 && c.psnr == 0 && c.mean_abs == 255 && c.differing == 1000,
          "black and white: 0 dB");
}

static void check_limits(Tally *t) {
    Comparison c = {.equal = false, .max_abs = 2, .psnr = 50};
    Comparison same = {.equal = true, .max_abs = 0, .psnr = INFINITY};
    CompareLimits none = {0}, psnr = {.has_min_psnr = true, .min_psnr = 50},
                  abs = {.has_max_abs = true, .max_abs = 2};
    CompareLimits both = {.has_min_psnr = true, .min_psnr = 40, .has_max_abs = true, .max_abs = 1};
    check(t, !compare_passes(&c, &none) && compare_passes(&same, &none), "no limit: equal pixels");
    check(t, compare_passes(&c, &psnr) && compare_passes(&c, &abs), "on the limit");
    check(t, !compare_passes(&c, &both) && compare_passes(&same, &both), "all limits must hold");
    psnr.min_psnr = 50.001;
    abs.max_abs = 1;
    check(t, !compare_passes(&c, &psnr) && !compare_passes(&c, &abs), "beyond the limit");
}

typedef struct Files { char folder[64], a[96], b[96]; } Files;

static void write_png(Tally *t, const char *path, const uint8_t *rgb, int width, int height,
                      const char *ditto, const char *parameters) {
    PngText texts[2] = {{PNG_DITTO_KEY, ditto, false}, {"parameters", parameters, false}};
    Error e = {0};
    int first = ditto ? 0 : 1, count = (ditto != NULL) + (parameters != NULL);
    check(t, png_write(path, rgb, width, height, texts + first, count, true, &e) == OK, e.text);
}

/* Runs compare_files() and hands back what it printed. */
static Status run(const Files *f, const CompareLimits *limits, char *printed, size_t size, Error *e) {
    CompareOptions options = {.limits = *limits};
    memset(printed, 0, size);
    FILE *text = fmemopen(printed, size - 1, "w");
    if (!text) exit(4);
    *e = (Error){0};
    Status status = compare_files(f->a, f->b, &options, text, e);
    fclose(text);
    return status;
}

/* `first` occurs in the text, and `then` after it. */
static bool in_order(const char *text, const char *first, const char *then) {
    const char *at = strstr(text, first);
    return at && strstr(at + strlen(first), then);
}

static void check_files(Tally *t, const Files *f) {
    uint8_t a[4 * 3 * 3], b[4 * 3 * 3];
    for (size_t i = 0; i < sizeof a; i++) a[i] = b[i] = (uint8_t)(40 + 5 * i);
    char text[8192];
    Error e;
    CompareLimits none = {0}, loose = {.has_max_abs = true, .max_abs = 1},
                  tight = {.has_min_psnr = true, .min_psnr = 90};

    write_png(t, f->a, a, 4, 3, NULL, NULL);
    write_png(t, f->b, b, 4, 3, NULL, NULL);
    Status status = run(f, &none, text, sizeof text, &e);
    check(t, status == OK && strstr(text, "size: 4x3\n") && strstr(text, "equal pixels: yes\n") &&
          strstr(text, "differing bytes: 0 of 36\n") && strstr(text, "PSNR: inf\n"), text);
    check(t, !strstr(text, "metadata"), "no metadata, nothing said about it");

    b[35]++;
    write_png(t, f->b, b, 4, 3, NULL, NULL);
    status = run(f, &none, text, sizeof text, &e);
    check(t, status == ERR_SOME && e.code == ERR_SOME && strstr(e.text, "differ"), "one byte off is 1");
    check(t, strstr(text, "equal pixels: no\n") && strstr(text, "differing bytes: 1 of 36\n") &&
          strstr(text, "max difference: 1\n") && strstr(text, "PSNR: 63.69"), text);
    check(t, run(f, &loose, text, sizeof text, &e) == OK, "within --max-abs 1");
    check(t, run(f, &tight, text, sizeof text, &e) == ERR_SOME, "below --min-psnr 90");

    write_png(t, f->a, a, 4, 3, "{\"seed\":42,\"steps\":28,\"prompt\":\"a\\u001bb\"}", "x");
    write_png(t, f->b, b, 4, 3, "{\"prompt\":\"a\\u001bb\",\"steps\":20,\"seed\":42,\"guidance\":3.5}", "y");
    run(f, &none, text, sizeof text, &e);
    check(t, in_order(text, "metadata \"steps\": 28 | 20\n", "equal pixels: no"), "metadata before numbers");
    check(t,
          strstr(text, "metadata \"guidance\": absent | 3.5\n") &&
              strstr(text, "metadata \"parameters\": \"x\" | \"y\"\n") && !strstr(text, "seed") &&
              !strstr(text, "prompt") && !strchr(text, 0x1b),
          text);

    write_png(t, f->b, b, 4, 3, "{\"seed\":42,\"prompt\":\"a\\u001bc\",\"steps\":28}", NULL);
    run(f, &none, text, sizeof text, &e);
    check(t, strstr(text, "\"a\\u001bb\" | \"a\\u001bc\"\n") && !strchr(text, 0x1b),
          "no control character is printed");
    check(t, strstr(text, "metadata \"parameters\": \"x\" | absent\n") != NULL, "a text that only A has");
    write_png(t, f->b, b, 4, 3, "{\"seed\":42,\"prompt\":\"a\\u001bb\",\"steps\":28}", "x");
    run(f, &none, text, sizeof text, &e);
    check(t, strstr(text, "metadata: equal\n") && !strstr(text, "metadata \""), "equal metadata in another order");
    write_png(t, f->b, b, 4, 3, NULL, "x");
    run(f, &none, text, sizeof text, &e);
    check(t, strstr(text, "metadata: only in ") && strstr(text, "a.png\n"), "metadata in one only");
    write_png(t, f->b, b, 4, 3, "{broken", "x");
    check(t, run(f, &loose, text, sizeof text, &e) == OK && strstr(text, "metadata: not readable"),
          "broken metadata");

    write_png(t, f->b, b, 3, 4, NULL, NULL);
    status = run(f, &loose, text, sizeof text, &e);
    check(t, status == ERR_USAGE && strstr(e.text, "4x3") && strstr(e.text, "3x4") && !strstr(text, "PSNR"),
          "sizes: 2");
    FILE *file = fopen(f->b, "w");
    if (file) fputs("not a picture", file), fclose(file);
    check(t,
          run(f, &none, text, sizeof text, &e) == ERR_USAGE && e.code == ERR_USAGE && strstr(e.text, "b.png"),
          "junk: 2");
    unlink(f->b);
    check(t, run(f, &none, text, sizeof text, &e) == ERR_USAGE && strstr(e.text, "b.png"), "missing: 2");
}

int main(void) {
    Tally t = {0};
    Files f = {"/tmp/ditto-compare-XXXXXX", "", ""};
    if (!mkdtemp(f.folder)) return 1;
    snprintf(f.a, sizeof f.a, "%s/a.png", f.folder);
    snprintf(f.b, sizeof f.b, "%s/b.png", f.folder);
    check_numbers(&t);
    check_limits(&t);
    check_files(&t, &f);
    unlink(f.a);
    unlink(f.b);
    check(&t, rmdir(f.folder) == 0, "no temporary file is left");
    printf("%d passed, %d failed\n", t.passed, t.failed);
    return t.failed ? 1 : 0;
}
