/* yuv.c - see yuv.h. Luma weights are in units of 1/10000.
 * Easy to get wrong: C divides towards zero; numerators are made positive first. */
#include "media/yuv.h"

enum { RED = 2126, GREEN = 7152, BLUE = 722, UNIT = 10000 };

static int luma(const uint8_t *p) { return RED * p[0] + GREEN * p[1] + BLUE * p[2]; }

/* 128 + 224/255 (sum / 8 - luma / 80000) / (2 (1 - weight)): sum and luma of eight pixels' worth. */
static uint8_t chroma(int64_t sum, int64_t luma_sum, int weight) {
    const int64_t d = (int64_t)8 * 255 * 2 * (UNIT - weight);
    int64_t n = 224 * (UNIT * sum - luma_sum) + 128 * d;
    return (uint8_t)((2 * n + d) / (2 * d));
}

static void luma_row(const uint8_t *rgb, int width, uint8_t *y) {
    const int d = 255 * UNIT;
    for (int i = 0; i < width; i++) y[i] = (uint8_t)(16 + (2 * 219 * (int64_t)luma(rgb + 3 * i) + d) / (2 * d));
}

static void chroma_row(const uint8_t *rgb, int width, uint8_t *cb, uint8_t *cr) {
    const uint8_t *rows[2] = {rgb, rgb + (size_t)width * 3};
    for (int i = 0; i < width / 2; i++) {
        const int at[3] = {i ? 2 * i - 1 : 0, 2 * i, 2 * i + 1}, weight[3] = {1, 2, 1};
        int64_t red = 0, blue = 0, y = 0;
        for (int k = 0; k < 6; k++) {
            const uint8_t *p = rows[k / 3] + 3 * at[k % 3];
            red += weight[k % 3] * p[0];
            blue += weight[k % 3] * p[2];
            y += weight[k % 3] * (int64_t)luma(p);
        }
        cb[i] = chroma(blue, y, BLUE);
        cr[i] = chroma(red, y, RED);
    }
}

void yuv_from_rgb(const uint8_t *rgb, int width, int height, uint8_t *y, ptrdiff_t y_stride, uint8_t *cb, uint8_t *cr,
                  ptrdiff_t c_stride) {
#pragma omp parallel for
    for (int row = 0; row < height / 2; row++) {
        const uint8_t *at = rgb + (size_t)row * 2 * (size_t)width * 3;
        luma_row(at, width, y + 2 * row * y_stride);
        luma_row(at + (size_t)width * 3, width, y + (2 * row + 1) * y_stride);
        chroma_row(at, width, cb + row * c_stride, cr + row * c_stride);
    }
}
