/* test_ab_sheet.c - the contact sheet of ditto ab, pixel by pixel: of pictures in folders of stages, of a video, and divided.
 * Easy to get wrong: the sheet's differences are from the pictures as they are, also where the cells are smaller. */
#include "ab_sheet.h"
#include "ab_test.h"
#include "media/image.h"
#include "media/resize.h"
#include "stages.h"

#include <math.h>

static void put_pixels(const char *folder, const uint8_t *rgb, int rank, const int64_t *shape) {
    char path[100];
    Error e;
    snprintf(path, sizeof path, "%s/pixels.safetensors", folder);
    expect_mkdirs(path);
    expect_ok(stages_write_file(path, "pixels", U8, rank, shape, rgb, true, &e), &e);
}

static const uint8_t *pixel(const Image *m, int x, int y) { return m->rgb + ((size_t)y * (size_t)m->width + (size_t)x) * 3; }

static void test_sheet(void) {
    enum { W = 5, H = 4, BYTES = W * H * 3 };
    uint8_t rgb[2][2][BYTES]; /* prompt, side */
    const int64_t shape[] = {H, W, 3};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < BYTES; i++) {
            rgb[k][0][i] = (uint8_t)(37 * i + 11 * k);
            int d = k ? i % 3 - 1 : i == 20 ? 40 : 0, v = rgb[k][0][i] + d;
            rgb[k][1][i] = (uint8_t)(v < 0 || v > 255 ? rgb[k][0][i] - d : v);
        }
    for (int side = 0; side < 2; side++)
        for (int k = 0; k < 2; k++) {
            static const char *const FOLDER[2][2] = {{"sa/0001", "sa/0002"}, {"sb/0001", "sb/0002"}};
            put_pixels(FOLDER[side][k], rgb[k][side], 3, shape);
        }
    gives(ERR_SOME, "prompt 1: first pixels: max difference 40", "sa|sb|--sheet|s.png");
    says("sheet: s.png, differences times 6\n"); /* 255 / 40 */
    Image m;
    Error e;
    expect_ok(image_read("s.png", &m, &e), &e);
    expect(m.width == 3 * W + 2 * AB_SHEET_GAP && m.height == 2 * H + AB_SHEET_GAP);
    int wrong = 0;
    for (int y = 0; y < m.height; y++)
        for (int x = 0; x < m.width; x++)
            for (int c = 0; c < 3; c++) {
                int column = x / (W + AB_SHEET_GAP), row = y / (H + AB_SHEET_GAP);
                int cx = x % (W + AB_SHEET_GAP), cy = y % (H + AB_SHEET_GAP), want = 255;
                if (cx < W && cy < H) {
                    int at = (cy * W + cx) * 3 + c, a = rgb[row][0][at], b = rgb[row][1][at];
                    want = column == 0 ? a : column == 1 ? b : 6 * abs(a - b);
                }
                wrong += pixel(&m, x, y)[c] != want;
            }
    expect(wrong == 0);
    image_free(&m);
    gives(ERR_USAGE, "--sheet: s.png: exists; give -y to overwrite", "sa|sb|--sheet|s.png");
    gives(OK, "", "sa|sa|--sheet|s.png|-y");
    says("differences times 1\n");
    expect_ok(image_read("s.png", &m, &e), &e);
    expect(!pixel(&m, m.width - 1, 0)[0] && !pixel(&m, m.width - 1, m.height - 1)[2]); /* black */
    image_free(&m);
    gives(ERR_USAGE, "--sheet: nowhere: no such folder", "sa|sb|--sheet|nowhere/s.png");
    expect(!*printed);
    put_pixels("sa/0002", rgb[0][0], 3, (int64_t[]){W, H, 3});
    put_pixels("sb/0002", rgb[0][0], 3, (int64_t[]){W, H, 3});
    gives(ERR_USAGE, "prompt 2: --sheet: prompt 2 has 4x5 pixels, those before have 5x4", "sa|sb|--sheet|t.png");
    expect(!file_exists("t.png"));
}

/* Of a video, the frame that is furthest off. */
static void test_sheet_frames(void) {
    uint8_t a[3 * 2 * 2 * 3], b[sizeof a];
    for (int i = 0; i < (int)sizeof a; i++) a[i] = b[i] = (uint8_t)(5 * i);
    b[0] += 3, b[12 + 1] += 100, b[24] += 50;
    put_pixels("va", a, 4, (int64_t[]){3, 2, 2, 3});
    put_pixels("vb", b, 4, (int64_t[]){3, 2, 2, 3});
    gives(ERR_SOME, "pixels", "va|vb|--sheet|v.png");
    char line[80]; /* peak 255, though these have 0 to 175 */
    snprintf(line, sizeof line, "PSNR: latents absent, pixels %.4f dB\n", 10 * log10(255 * 255 / (12509.0 / 36)));
    expect(strstr(printed, line) != NULL);
    Image m;
    Error e;
    expect_ok(image_read("v.png", &m, &e), &e);
    expect(m.width == 6 + 2 * AB_SHEET_GAP && m.height == 2 && !memcmp(m.rgb, a + 12, 6));
    expect(pixel(&m, m.width - 2, 0)[1] == 200 && pixel(&m, m.width - 2, 0)[0] == 0);
    image_free(&m);
}

/* Too large for one picture: cells divided, no difference lost. */
static void test_sheet_divided(void) {
    enum { W = 11, H = 7, BYTES = W * H * 3 };
    static uint8_t a[BYTES], b[BYTES]; /* lint: allow-static (test program) */
    for (int i = 0; i < BYTES; i++) a[i] = b[i] = (uint8_t)(i % 200);
    b[(6 * W + 10) * 3 + 2] += 9; /* the corner that is left over */
    AbStage x = {.entry = {.dtype = U8, .rank = 3, .shape = {H, W, 3}, .bytes = BYTES}, .values = a}, y = x;
    y.values = b;
    AbSheet s = {.path = "d.png", .most = (3 * 5 + 2 * AB_SHEET_GAP) * 3 * 3};
    Error e;
    int factor;
    uint8_t *small;
    Image m;
    expect_ok(ab_sheet_add(&s, 0, 1, &x, &y, &e), &e);
    expect_ok(ab_sheet_write(&s, true, &factor, &e), &e);
    ab_sheet_free(&s);
    expect(factor == 28);
    expect_ok(image_read("d.png", &m, &e), &e);
    expect(m.width == 3 * 5 + 2 * AB_SHEET_GAP && m.height == 3);
    expect_ok(resize_lanczos(a, W, H, 5, 3, &small, &e), &e);
    int wrong = 0;
    for (int v = 0; v < 3; v++)
        for (int u = 0; u < 5; u++)
            for (int c = 0; c < 3; c++) {
                wrong += pixel(&m, u, v)[c] != small[(v * 5 + u) * 3 + c];
                wrong += pixel(&m, u + 2 * (5 + AB_SHEET_GAP), v)[c] != (u == 4 && v == 2 && c == 2 ? 9 * 28 : 0);
            }
    expect(wrong == 0);
    free(small);
    image_free(&m);
    AbSheet tiny = {.path = "d.png", .most = 10};
    expect_status(ab_sheet_add(&tiny, 0, 1, &x, &y, &e), ERR_USAGE, "--sheet: 1 rows of 11x7 are too many", &e);
    ab_sheet_free(&tiny);
}

int main(void) {
    char folder[512];
    if (chdir(expect_folder(folder, sizeof folder))) return 1;
    test_sheet();
    test_sheet_frames();
    test_sheet_divided();
    free(printed);
    free(said);
    expect_cleanup(folder);
    return expect_done();
}
