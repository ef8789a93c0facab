/* test_png.c - pictures and their texts, out and back: pixels, prompts of any length, another encoder's
 * files, and every way a file can be cut or changed by one byte. */
#include "core/file.h"
#include "media/image.h"
#include "media/png.h"

#include <stdio.h>
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

typedef struct Where { char folder[64], path[96]; } Where;

/* A picture with smooth parts and noise, so that all of stb's filters and both block kinds occur. */
static uint8_t *paint(int width, int height, unsigned seed) {
    size_t n = (size_t)width * (size_t)height * 3;
    uint8_t *rgb = malloc(n);
    if (!rgb) exit(4);
    for (size_t i = 0; i < n; i++) {
        seed = seed * 1664525u + 1013904223u;
        size_t y = i / 3 / (size_t)width;
        rgb[i] = (uint8_t)(y % 4 < 2 ? i / 7 : seed >> 24);
    }
    return rgb;
}

static void check_pixels(Tally *t, Where *w) {
    static const int SIZES[][2] = {{1, 1}, {1, 9}, {9, 1}, {7, 5}, {16, 16}, {130, 67}, {256, 256}};
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        int width = SIZES[i][0], height = SIZES[i][1];
        uint8_t *rgb = paint(width, height, (unsigned)i);
        Image back = {0};
        Error e = {0};
        bool good = png_write(w->path, rgb, width, height, NULL, 0, true, &e) == OK &&
                    image_read(w->path, &back, &e) == OK;
        if (check(t, good, e.text)) {
            good = back.width == width && back.height == height && back.channels == 3 && !back.deep &&
                   !memcmp(back.rgb, rgb, (size_t)width * (size_t)height * 3);
            check(t, good, "pixels come back");
            image_free(&back);
        }
        free(rgb);
    }
}

/* `n` bytes of text in four scripts, cut at a whole code point. */
static char *long_prompt(size_t n) {
    static const char PIECE[] = "a cat, \xe7\x8c\xab, \xd0\xba\xd0\xbe\xd1\x82, \xf0\x9f\x90\x88; ";
    char *text = malloc(n + sizeof PIECE);
    if (!text) exit(4);
    size_t at = 0;
    while (at + sizeof PIECE - 1 <= n) memcpy(text + at, PIECE, sizeof PIECE - 1), at += sizeof PIECE - 1;
    text[at] = 0;
    return text;
}

static void check_texts(Tally *t, Where *w) {
    char *prompt = long_prompt(9000), *book = long_prompt(3000000);
    const PngText texts[] = {
        {"parameters", "a cat\nSteps: 4, Sampler: Euler, Seed: 42", false},
        {"prompt", prompt, false},
        {"empty", "", false},
        {"tab", "a\tb\x7f", false},
        {"book", book, false},
        {"prompt", "the second of that key", false},
        {"0123456789012345678901234567890123456789012345678901234567890123456789 12345678", "79 characters",
         false},
    };
    enum { COUNT = sizeof texts / sizeof *texts };
    uint8_t *rgb = paint(20, 30, 3);
    PngTexts back = {0};
    Error e = {0};
    bool good = png_write(w->path, rgb, 20, 30, texts, COUNT, true, &e) == OK &&
                png_read_texts(w->path, &back, &e) == OK;
    check(t, good, e.text);
    check(t, back.count == COUNT, "all texts come back");
    for (int i = 0; i < back.count && i < COUNT; i++)
        check(t, !strcmp(back.items[i].key, texts[i].key) && !strcmp(back.items[i].text, texts[i].text) &&
              !back.items[i].unreadable, texts[i].key);
    const char *first = png_texts_get(&back, "prompt");
    check(t, first && !strcmp(first, prompt) && !png_texts_get(&back, "none"), "the first text of a key");
    png_texts_free(&back);
    Image image = {0};
    good = image_read(w->path, &image, &e) == OK && !memcmp(image.rgb, rgb, 20 * 30 * 3);
    check(t, good, "texts leave the pixels alone");
    image_free(&image);

    /* ASCII goes into tEXt and anything else into iTXt: readers that know only tEXt see plain prompts */
    unsigned char *bytes;
    size_t size;
    good = png_encode(rgb, 20, 30, texts, 2, &bytes, &size, &e) == OK &&
           !memcmp(bytes + 33 + 4, "tEXtparameters", 15) &&
           memmem(bytes, size, "iTXtprompt\0\0\0\0", 15) != NULL;
    check(t, good, "chunk types");
    free(bytes);
    free(rgb);
    free(prompt);
    free(book);
}

static void check_refusals(Tally *t, Where *w) {
    static const char *KEYS[] = {
        "", " a", "a ", "a  b", "caf\xc3\xa9", "a\nb",
        "01234567890123456789012345678901234567890123456789012345678901234567890123456789"};
    uint8_t rgb[12] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
    unsigned char *bytes;
    size_t size;
    for (size_t i = 0; i < sizeof KEYS / sizeof *KEYS; i++) {
        Error e = {0};
        PngText text = {KEYS[i], "x", false};
        check(t,
              png_encode(rgb, 2, 2, &text, 1, &bytes, &size, &e) == ERR_USAGE && !bytes &&
                  strstr(e.text, "key"),
              KEYS[i]);
    }
    static const int SIZES[][2] = {{0, 2}, {2, 0}, {-1, 2}, {1 << 20, 1 << 20}, {178956971, 1}};
    for (size_t i = 0; i < sizeof SIZES / sizeof *SIZES; i++) {
        Error e = {0};
        check(t, png_encode(rgb, SIZES[i][0], SIZES[i][1], NULL, 0, &bytes, &size, &e) == ERR_USAGE && !bytes,
              "absurd sizes");
    }
    Error e = {0};
    Image image = {0};
    PngTexts texts;
    png_write(w->path, rgb, 2, 2, NULL, 0, true, &e);
    check(t, png_write(w->path, rgb, 2, 1, NULL, 0, false, &e) == ERR_USAGE && strstr(e.text, "-y"),
          "no overwriting");
    check(t, image_read(w->path, &image, &e) == OK && image.height == 2, "the old file stands");
    image_free(&image);
    check(t, png_write("/nonexistent/a.png", rgb, 2, 2, NULL, 0, true, &e) == ERR_IO, "no such folder");
    check(t, png_read_texts("/nonexistent/a.png", &texts, &e) == ERR_IO && !texts.count, "no such file");
    check(t, png_read_texts(w->folder, &texts, &e) == ERR_IO && !texts.count, "a folder");
    check(t, image_read("tests/test_png.c", &image, &e) == ERR_IO && !image.rgb, "not a picture");
}

static void check_other_encoder(Tally *t) {
    PngTexts texts = {0};
    Image image = {0};
    Error e = {0};
    if (check(t, png_read_texts("tests/golden/pil.png", &texts, &e) == OK && texts.count == 5, e.text)) {
        const char *title = png_texts_get(&texts, "Title"), *parameters = png_texts_get(&texts, "parameters");
        check(t, title && !strcmp(title, "caf\xc3\xa9"), "Latin-1 becomes UTF-8");
        check(t, parameters && !strcmp(parameters, "\xe7\x8c\xab, a cat\nSteps: 4"),
              "iTXt with language and keyword");
        check(t, !png_texts_get(&texts, "packed") && texts.items[2].unreadable, "compressed iTXt is told");
        check(t, !png_texts_get(&texts, "Comment") && texts.items[3].unreadable, "zTXt is told");
        const char *empty = png_texts_get(&texts, "empty");
        check(t, empty && !*empty, "an empty text");
    }
    png_texts_free(&texts);
    bool good = image_read("tests/golden/pil.png", &image, &e) == OK && image.width == 5 && image.height == 4;
    for (int y = 0; good && y < 4; y++)
        for (int x = 0; x < 5; x++) {
            const uint8_t *p = image.rgb + 3 * (5 * y + x);
            good = good && p[0] == x * 40 && p[1] == y * 60 && p[2] == 255 - x * y;
        }
    check(t, good, "its pixels");
    image_free(&image);
    good = image_read("tests/golden/pil.jpg", &image, &e) == OK && image.width == 8 && image.height == 8 &&
           image.channels == 1;
    for (int i = 0; good && i < 8 * 8 * 3; i++) good = image.rgb[i] == 128;
    check(t, good, "a JPEG");
    image_free(&image);
}

/* Every prefix and every change of one byte must be refused: the checksums see any of them. Bytes behind IEND
 * are no part of the picture. The copy has exactly its size, so that a sanitizer sees a step too far. */
static void check_damage(Tally *t) {
    const PngText text[] = {{"a", "b", false}, {"prompt", "\xe7\x8c\xab", false}};
    uint8_t *rgb = paint(6, 5, 1);
    unsigned char *bytes;
    size_t size, survived = 0;
    Error e = {0};
    if (!check(t, png_encode(rgb, 6, 5, text, 2, &bytes, &size, &e) == OK, e.text)) exit(1);
    for (size_t n = 0; n < size; n++) {
        unsigned char *copy = malloc(n ? n : 1);
        PngTexts texts;
        if (!copy) exit(4);
        memcpy(copy, bytes, n);
        e = (Error){0};
        survived += png_parse_texts(copy, n, "cut.png", &texts, &e) != ERR_IO || texts.count ||
                    !strstr(e.text, "cut.png");
        free(copy);
    }
    check(t, survived == 0, "every prefix is refused");
    survived = 0;
    for (size_t i = 0; i < size; i++)
        for (int bit = 0; bit < 8; bit++) {
            PngTexts texts;
            unsigned char *copy = malloc(size);
            if (!copy) exit(4);
            memcpy(copy, bytes, size);
            copy[i] ^= (unsigned char)(1 << bit);
            survived += png_parse_texts(copy, size, "bad.png", &texts, &e) != ERR_IO || texts.count;
            free(copy);
        }
    check(t, survived == 0, "every changed bit is refused");
    free(bytes);
    free(rgb);
}

int main(void) {
    Tally t = {0};
    Where w = {"/tmp/ditto-png-XXXXXX", ""};
    if (!mkdtemp(w.folder)) return 1;
    snprintf(w.path, sizeof w.path, "%s/a.png", w.folder);
    check_pixels(&t, &w);
    check_texts(&t, &w);
    check_refusals(&t, &w);
    check_other_encoder(&t);
    check_damage(&t);
    unlink(w.path);
    check(&t, rmdir(w.folder) == 0, "no temporary file is left");
    printf("%d passed, %d failed\n", t.passed, t.failed);
    return t.failed ? 1 : 0;
}
