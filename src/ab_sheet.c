/* ab_sheet.c - see ab_sheet.h. */
#include "ab_sheet.h"

#include "media/png.h"
#include "media/resize.h"

#include <stdlib.h>
#include <string.h>

enum { COLUMNS = 3, CHANNELS = 3 };

void ab_sheet_free(AbSheet *s) {
    free(s->rgb);
    s->rgb = NULL;
}

/* [F,H,W,3] or [H,W,3]. */
static Status picture(const AbStage *stage, int *frames, int *height, int *width, Error *e) {
    const SafetensorsEntry *t = &stage->entry;
    const int64_t *shape = t->shape + t->rank - 3;
    if (t->dtype != U8 || t->rank < 3 || t->rank > 4 || shape[2] != CHANNELS || !t->bytes || shape[0] > 1 << 20 ||
        shape[1] > 1 << 20)
        return fail(e, ERR_USAGE, "--sheet: the stage pixels holds no RGB pictures");
    *frames = t->rank == 4 ? (int)t->shape[0] : 1;
    *height = (int)shape[0];
    *width = (int)shape[1];
    return OK;
}

static size_t worst_frame(const uint8_t *a, const uint8_t *b, int frames, size_t bytes) {
    double most = -1;
    int worst = 0;
    for (int f = 0; f < frames; f++) {
        double squares = 0;
        for (size_t i = (size_t)f * bytes; i < (size_t)(f + 1) * bytes; i++) squares += (double)((a[i] - b[i]) * (a[i] - b[i]));
        if (squares > most) most = squares, worst = f;
    }
    return (size_t)worst * bytes;
}

static size_t sheet_bytes(const AbSheet *s, int divide, int *width, int *height) {
    *width = COLUMNS * (s->cell_width / divide) + (COLUMNS - 1) * AB_SHEET_GAP;
    int64_t rows = s->rows, tall = rows * (s->cell_height / divide) + (rows - 1) * AB_SHEET_GAP;
    *height = tall < 1 << 30 ? (int)tall : 1 << 30;
    return (size_t)*width * (size_t)*height * CHANNELS;
}

static Status begin(AbSheet *s, int rows, int width, int height, Error *e) {
    s->rows = rows, s->cell_width = width, s->cell_height = height, s->divide = 1;
    size_t bytes;
    while ((bytes = sheet_bytes(s, s->divide, &s->width, &s->height)) > (s->most ? s->most : (size_t)AB_SHEET_BYTES))
        if (++s->divide > width || s->divide > height)
            return fail(e, ERR_USAGE, "--sheet: %d rows of %dx%d are too many for one picture", rows, width, height);
    s->rgb = malloc(bytes);
    if (!s->rgb) return fail(e, ERR_MEMORY, "--sheet: out of memory for %dx%d pixels", s->width, s->height);
    memset(s->rgb, 255, bytes);
    return OK;
}

static uint8_t *cell(const AbSheet *s, int row, int column, int y) {
    int w = s->cell_width / s->divide, h = s->cell_height / s->divide;
    size_t x = (size_t)column * (size_t)(w + AB_SHEET_GAP), line = (size_t)row * (size_t)(h + AB_SHEET_GAP) + (size_t)y;
    return s->rgb + (line * (size_t)s->width + x) * CHANNELS;
}

static Status draw(AbSheet *s, int row, int column, const uint8_t *rgb, Error *e) {
    int w = s->cell_width / s->divide, h = s->cell_height / s->divide;
    uint8_t *small = NULL;
    if (s->divide > 1) TRY(resize_lanczos(rgb, s->cell_width, s->cell_height, w, h, &small, e));
    const uint8_t *from = small ? small : rgb;
    for (int y = 0; y < h; y++)
        memcpy(cell(s, row, column, y), from + (size_t)y * (size_t)w * CHANNELS, (size_t)w * CHANNELS);
    free(small);
    return OK;
}

/* The largest of each square; what is left over at the right and below belongs to the last ones. */
static void draw_difference(AbSheet *s, int row, const uint8_t *a, const uint8_t *b) {
    int w = s->cell_width / s->divide, h = s->cell_height / s->divide;
    for (int y = 0; y < h; y++) memset(cell(s, row, 2, y), 0, (size_t)w * CHANNELS);
    for (int y = 0; y < s->cell_height; y++) {
        uint8_t *line = cell(s, row, 2, y / s->divide < h ? y / s->divide : h - 1);
        for (int x = 0; x < s->cell_width; x++)
            for (int c = 0; c < CHANNELS; c++) {
                size_t at = ((size_t)y * (size_t)s->cell_width + (size_t)x) * CHANNELS + (size_t)c;
                int d = abs(a[at] - b[at]), column = x / s->divide < w ? x / s->divide : w - 1;
                uint8_t *to = line + (size_t)column * CHANNELS + c;
                if (d > *to) *to = (uint8_t)d;
                if (d > s->largest) s->largest = d;
            }
    }
}

Status ab_sheet_add(AbSheet *s, int k, int rows, const AbStage *a, const AbStage *b, Error *e) {
    int frames = 0, height = 0, width = 0;
    TRY(picture(a, &frames, &height, &width, e));
    TRY(picture(b, &frames, &height, &width, e));
    if (!s->rgb) TRY(begin(s, rows, width, height, e));
    if (width != s->cell_width || height != s->cell_height)
        return fail(e, ERR_USAGE, "--sheet: prompt %d has %dx%d pixels, those before have %dx%d; expected one size", k + 1, width,
                    height, s->cell_width, s->cell_height);
    size_t bytes = (size_t)width * (size_t)height * CHANNELS, at = worst_frame(a->values, b->values, frames, bytes);
    TRY(draw(s, k, 0, a->values + at, e));
    TRY(draw(s, k, 1, b->values + at, e));
    draw_difference(s, k, a->values + at, b->values + at);
    return OK;
}

Status ab_sheet_write(AbSheet *s, bool overwrite, int *factor, Error *e) {
    *factor = s->largest ? 255 / s->largest : 1;
    for (int row = 0; row < s->rows; row++)
        for (int y = 0; y < s->cell_height / s->divide; y++) {
            uint8_t *line = cell(s, row, 2, y);
            for (int i = 0; i < s->cell_width / s->divide * CHANNELS; i++) line[i] = (uint8_t)(line[i] * *factor);
        }
    return png_write(s->path, s->rgb, s->width, s->height, NULL, 0, overwrite, e);
}
