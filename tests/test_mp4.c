/* test_mp4.c - clips of moving shapes encoded and read back: sizes, counts, rates, colour tags and texts of what was written, the
 * samples themselves, exactly where nothing may be lost and within the quantiser's step elsewhere; then what must be refused.
 * What ffprobe says of the same files, full disks and failing encoders are test_mp4.sh's.
 * Without libav the parts that need it are skipped by name. */
#include "expect.h"
#include "media/av_read.h"
#include "media/av_texts.h"
#include "media/mp4.h"
#include "media/yuv.h"

#include <math.h>

enum { WIDTH = 96, HEIGHT = 64, FRAMES = 9 };

/* A disc that moves right over a colour ramp with a bar of noise: flat, smooth and rough areas, saturated colours. */
static uint8_t *shapes(int width, int height, int frames) {
    uint8_t *rgb = malloc((size_t)frames * (size_t)width * (size_t)height * 3), *p = rgb;
    uint32_t noise = 1;
    for (int n = 0; n < frames; n++)
        for (int y = 0; y < height; y++)
            for (int x = 0; x < width; x++, p += 3) {
                int dx = x - 16 - 4 * n, dy = y - height / 2;
                noise = noise * 1664525u + 1013904223u;
                bool disc = dx * dx + dy * dy < 144, rough = y < 8;
                int bits = (int)(noise >> 8);
                p[0] = (uint8_t)(disc ? 255 : rough ? bits >> 16 : x * 255 / width);
                p[1] = (uint8_t)(disc ? 0 : rough ? bits >> 8 : y * 255 / height);
                p[2] = (uint8_t)(disc ? 0 : rough ? bits : 255 - x * 255 / width);
            }
    return rgb;
}

/* --- the conversion --- */

static double clamp_at(const uint8_t *rgb, int width, int x, int y, int channel) {
    return rgb[((size_t)y * (size_t)width + (size_t)(x < 0 ? 0 : x)) * 3 + (size_t)channel];
}

/* yuv.h's formulas in double; a value within 1e-9 of a half may be rounded either way there. */
static int near_rounded(double value, int got) { return fabs(value - got) <= 0.5 + 1e-9; }

static void test_yuv(void) {
    uint8_t *rgb = shapes(WIDTH, HEIGHT, 1), y[WIDTH * HEIGHT], cb[WIDTH * HEIGHT / 4], cr[WIDTH * HEIGHT / 4];
    yuv_from_rgb(rgb, WIDTH, HEIGHT, y, WIDTH, cb, cr, WIDTH / 2);
    int wrong = 0;
    for (int i = 0; i < WIDTH * HEIGHT; i++) {
        const uint8_t *p = rgb + 3 * i;
        wrong += !near_rounded(16 + 219 / 255.0 * (0.2126 * p[0] + 0.7152 * p[1] + 0.0722 * p[2]), y[i]);
    }
    expect(wrong == 0);
    wrong = 0;
    for (int row = 0; row < HEIGHT / 2; row++)
        for (int col = 0; col < WIDTH / 2; col++) {
            double c[3] = {0};
            for (int k = 0; k < 3; k++)
                for (int dy = 0; dy < 2; dy++)
                    for (int dx = -1; dx <= 1; dx++)
                        c[k] += (dx ? 1 : 2) / 8.0 * clamp_at(rgb, WIDTH, 2 * col + dx, 2 * row + dy, k);
            double luma = 0.2126 * c[0] + 0.7152 * c[1] + 0.0722 * c[2];
            wrong += !near_rounded(128 + 224 / 255.0 * (c[2] - luma) / 1.8556, cb[row * WIDTH / 2 + col]);
            wrong += !near_rounded(128 + 224 / 255.0 * (c[0] - luma) / 1.5748, cr[row * WIDTH / 2 + col]);
        }
    expect(wrong == 0);
    free(rgb);
    /* the corners that every table of BT.709 lists */
    static const uint8_t COLOUR[][6] = {{255, 255, 255, 235, 128, 128}, {0, 0, 0, 16, 128, 128},
                                        {255, 0, 0, 63, 102, 240},      {0, 255, 0, 173, 42, 26},
                                        {0, 0, 255, 32, 240, 118},      {128, 128, 128, 126, 128, 128}};
    for (size_t i = 0; i < sizeof COLOUR / sizeof *COLOUR; i++) {
        uint8_t four[12], out[4], u, v;
        for (int k = 0; k < 12; k++) four[k] = COLOUR[i][k % 3];
        yuv_from_rgb(four, 2, 2, out, 2, &u, &v, 1);
        expect(out[0] == COLOUR[i][3] && out[3] == COLOUR[i][3] && u == COLOUR[i][4] && v == COLOUR[i][5]);
    }
}

static void test_rate(void) {
    static const struct {
        const char *text;
        int num, den;
    } GOOD[] = {{"24", 24, 1},
                {"16", 16, 1},
                {"23.976", 24000, 1001},
                {"23.98", 24000, 1001},
                {"29.97", 30000, 1001},
                {"59.94", 60000, 1001},
                {"119.88", 120000, 1001},
                {"24000/1001", 24000, 1001},
                {"48/2", 24, 1},
                {"12.5", 25, 2},
                {"25.00", 25, 1},
                {"14.985", 15000, 1001},
                {"29.9", 299, 10},
                {"0.5", 1, 2},
                {"1000", 1000, 1},
                {"23.5", 47, 2},
                {"23.97602", 24000, 1001},
                {"23.977", 23977, 1000}};
    static const char *const BAD[] = {
        "",   "0",   "-24",       "24/0", "0/1",          "1001",     "24 ",       " 24",        "abc", "24.",
        ".5", "1e3", "24/1001/2", "0x18", "24000/1001.0", "99999999", "1/9999999", "23.9760001", "nan", "+24"};
    char text[RATE_TEXT];
    for (size_t i = 0; i < sizeof GOOD / sizeof *GOOD; i++) {
        Rate r = {0};
        bool ok = rate_parse(GOOD[i].text, &r) && r.num == GOOD[i].num && r.den == GOOD[i].den;
        if (!ok) printf("rate %s: %d/%d\n", GOOD[i].text, r.num, r.den);
        expect(ok);
    }
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) {
        Rate r = {7, 7};
        if (rate_parse(BAD[i], &r)) printf("rate %s: taken\n", BAD[i]);
        expect(!rate_parse(BAD[i], &r) && r.num == 7);
    }
    expect(!strcmp(rate_text((Rate){24000, 1001}, text), "24000/1001") &&
           !strcmp(rate_text((Rate){16, 1}, text), "16"));
    expect(rate_frames((Rate){16, 1}, 5) == 80 && rate_frames((Rate){24000, 1001}, 10) == 240 &&
           rate_frames((Rate){16, 1}, 1e12) == INT64_MAX);
}

/* --- files --- */

typedef struct Case {
    const char *file;
    int width, height, frames;
    Rate fps;
    Mp4Options o;
    const char *codec, *format, *colours;
} Case;

/* One plane against what yuv.h gives; the sum of squared differences. */
static double plane_error(const Planes *p, int plane, const uint8_t *want) {
    double sum = 0;
    for (int y = 0; y < p->plane[plane].height; y++)
        for (int x = 0; x < p->plane[plane].width; x++) {
            double d = planes_sample(p, &p->plane[plane], x, y) - *want++;
            sum += d * d;
        }
    return sum;
}

/* Sum of squared differences of Y, Cb, Cr together, or of the RGB bytes; -1: not the clip's frames. */
static double difference(const Case *c, const uint8_t *rgb) {
    Error e = {0};
    AvReader *r;
    Planes p;
    bool end = false, native = c->o.codec == MP4_H264;
    double sum = 0;
    size_t n = (size_t)c->width * (size_t)c->height;
    uint8_t *want = malloc(3 * n);
    expect_ok(av_read_open(c->file, !native, &r, &e), &e);
    const AvInfo *info = av_read_info(r);
    expect(info->width == c->width && info->height == c->height && !strcmp(info->codec, c->codec));
    expect(!strcmp(info->format, c->format) && !strcmp(info->colours, c->colours));
    if (strcmp(info->colours, c->colours)) printf("%s: %s\n", c->file, info->colours);
    expect(c->o.matroska || (rate_equal(info->rate, c->fps) && info->told == c->frames));
    int frames = 0;
    for (; av_read_video(r, &p, &end, &e) == OK && !end; frames++) {
        const uint8_t *frame = rgb + (size_t)frames * 3 * n;
        if (frames >= c->frames) continue;
        if (native) {
            yuv_from_rgb(frame, c->width, c->height, want, c->width, want + n, want + n + n / 4, c->width / 2);
            sum += plane_error(&p, 0, want) + plane_error(&p, 1, want + n) + plane_error(&p, 2, want + n + n / 4);
        } else {
            sum += plane_error(&p, 0, frame);
        }
    }
    expect(e.code == OK && frames == c->frames);
    av_read_close(r);
    free(want);
    return sum;
}

/* A coefficient that a block quantiser of step q leaves is off by at most q, and the transform keeps energy: no sample's mean
 * square is above q^2. x264's steps: 0.625 * 2^(qp / 6); mp4.c keeps qp within crf + 12. */
static double largest_mse(int crf) { return pow(0.625 * pow(2, (crf + 12) / 6.0), 2); }

static void test_files(void) {
    static const Case CASES[] = {
        {"a.mp4",
         WIDTH,
         HEIGHT,
         FRAMES,
         {16, 1},
         {.codec = MP4_H264, .crf = 0},
         "h264",
         "yuv420p",
         "tv bt709 bt709 bt709"},
        {"b.mp4", WIDTH, HEIGHT, FRAMES, {24000, 1001}, {.crf = -1}, "h264", "yuv420p", "tv bt709 bt709 bt709"},
        {"c.mp4", 66, 34, 81, {30000, 1001}, {.codec = MP4_H264, .crf = 30}, "h264", "yuv420p", "tv bt709 bt709 bt709"},
        {"d.mp4", WIDTH, HEIGHT, 1, {25, 2}, {.codec = MP4_H264, .crf = 0}, "h264", "yuv420p", "tv bt709 bt709 bt709"},
        {"e.mp4",
         65,
         33,
         FRAMES,
         {16, 1},
         {.codec = MP4_X264RGB, .crf = -1},
         "h264",
         "gbrp",
         "pc gbr bt709 iec61966-2-1"},
        {"f.mkv",
         65,
         33,
         FRAMES,
         {24000, 1001},
         {.crf = -1, .matroska = true},
         "ffv1",
         "bgr0",
         "pc gbr bt709 iec61966-2-1"},
        {"g.mkv",
         WIDTH,
         HEIGHT,
         17,
         {16, 1},
         {.codec = MP4_X264RGB, .crf = 0, .matroska = true},
         "h264",
         "gbrp",
         "pc gbr bt709 iec61966-2-1"},
        {"h.mkv",
         WIDTH,
         HEIGHT,
         FRAMES,
         {16, 1},
         {.codec = MP4_H264, .crf = 0, .matroska = true},
         "h264",
         "yuv420p",
         "tv bt709 bt709 bt709"},
        {"i.mkv", 3, 5, 3, {1, 2}, {.crf = -1, .matroska = true}, "ffv1", "bgr0", "pc gbr bt709 iec61966-2-1"},
    };
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        Case c = CASES[i];
        Error e;
        uint8_t *rgb = shapes(c.width, c.height, c.frames);
        Mp4Clip clip = {rgb, c.width, c.height, c.frames, c.fps, {0}};
        unsigned char *bytes[2];
        size_t size[2];
        c.o = mp4_resolved(c.o);
        expect_ok(mp4_write(c.file, &clip, &CASES[i].o, false, &e), &e);
        double sum = difference(&c, rgb), samples = (double)c.width * c.height * c.frames * 1.5;
        double bound = c.o.crf > 0 ? largest_mse(c.o.crf) * samples : 0;
        if (sum > bound) printf("%s: %g, at most %g\n", c.file, sum, bound);
        expect(sum >= 0 && sum <= bound);
        expect(c.o.crf <= 0 || sum > 0); /* or the case bounds nothing */
        for (int k = 0; k < 2; k++) expect_ok(mp4_encode(&clip, &c.o, &bytes[k], &size[k], &e), &e);
        expect(size[0] == size[1] && !memcmp(bytes[0], bytes[1], size[0]));
        free(bytes[0]), free(bytes[1]), free(rgb);
    }
}

static void test_texts(void) {
    static const char TEXT[] =
        "{\"ditto\":\"0.1\",\"prompt\":\"caf\xc3\xa9 \xe7\x8c\xab \xf0\x9f\x90\x88 \\\"x\\\" \\n=;#\"}";
    char *longest = malloc(100000);
    uint8_t *rgb = shapes(32, 32, 3);
    Mp4Clip clip = {rgb, 32, 32, 3, {16, 1}, {0}};
    memset(longest, 'x', 99999);
    longest[99999] = 0;
    memcpy(longest, "{\"ditto\":", 9);
    for (int i = 0; i < 4; i++) {
        const char *name = i % 2 ? "t.mkv" : "t.mp4", *text = i < 2 ? TEXT : longest, *got;
        Error e;
        PngTexts texts;
        expect_ok(mp4_write(name, &clip, &(Mp4Options){.crf = -1, .matroska = i % 2, .comment = text}, true, &e), &e);
        expect_ok(av_texts_read(name, &texts, &e), &e);
        got = png_texts_get(&texts, PNG_DITTO_KEY);
        expect(got && !strcmp(got, text));
        png_texts_free(&texts);
    }
    Error e;
    PngTexts texts;
    expect_ok(mp4_write("t.mp4", &clip, &(Mp4Options){.crf = -1, .comment = "a film of mine"}, true, &e), &e);
    expect_ok(av_texts_read("t.mp4", &texts, &e), &e);
    expect(!png_texts_get(&texts, PNG_DITTO_KEY) && png_texts_get(&texts, "comment"));
    png_texts_free(&texts);
    free(rgb);
    free(longest);
}

/* Refusals that need no libav: they come before it is looked for. */
static void test_refused(void) {
    uint8_t *rgb = shapes(65, 33, 1);
    const Mp4Clip odd = {rgb, 65, 33, 1, {16, 1}, {0}}, even = {rgb, 32, 32, 1, {16, 1}, {0}};
    const Mp4Clip none = {rgb, 32, 32, 0, {16, 1}, {0}};
    Error e;
    expect_status(mp4_check(&odd, &(Mp4Options){.crf = -1}, &e), ERR_USAGE, "65x33 has an odd side", &e);
    expect_status(mp4_write("no.mp4", &odd, &(Mp4Options){.crf = -1}, true, &e), ERR_USAGE,
                  "no.mp4: --codec h264: 65x33", &e);
    expect_status(mp4_check(&even, &(Mp4Options){.codec = MP4_FFV1, .crf = -1}, &e), ERR_USAGE, "to .mkv files", &e);
    expect_status(mp4_check(&even, &(Mp4Options){.crf = 3, .matroska = true}, &e), ERR_USAGE, "--crf: ffv1 has none",
                  &e);
    expect_status(mp4_check(&even, &(Mp4Options){.crf = 52}, &e), ERR_USAGE, "--crf: 52 is out of range", &e);
    expect_status(mp4_check(&none, &(Mp4Options){.crf = -1}, &e), ERR_USAGE, "0 frames", &e);
    expect(access("no.mp4", F_OK) != 0);
    expect(mp4_lossless((Mp4Options){.crf = -1, .matroska = true}) && !mp4_lossless((Mp4Options){.crf = -1}) &&
           mp4_lossless((Mp4Options){.codec = MP4_X264RGB, .crf = -1}) &&
           !mp4_lossless((Mp4Options){.codec = MP4_X264RGB, .crf = 9}));
    free(rgb);
}

static void test_stopped(void) {
    uint8_t *rgb = shapes(32, 32, 3);
    const volatile int yes = 1;
    Mp4Clip clip = {rgb, 32, 32, 3, {16, 1}, {0}};
    Error e;
    expect_status(mp4_write("stopped.mp4", &clip, &(Mp4Options){.crf = -1, .interrupted = &yes}, true, &e),
                  ERR_INTERRUPTED, "interrupted", &e);
    expect(access("stopped.mp4", F_OK) != 0);
    expect_ok(mp4_write("once.mp4", &clip, &(Mp4Options){.crf = -1}, false, &e), &e);
    expect_status(mp4_write("once.mp4", &clip, &(Mp4Options){.crf = -1}, false, &e), ERR_USAGE, "exists; give -y", &e);
    free(rgb);
}

int main(void) {
    char folder[300];
    static const char *const PARTS[] = {"files", "texts", "stopped"};
    if (chdir(expect_folder(folder, sizeof folder))) return 1;
    test_yuv();
    test_rate();
    test_refused();
    if (av_read_available()) {
        test_files();
        test_texts();
        test_stopped();
    } else {
        for (int i = 0; i < 3; i++) printf("skipped: %s: this ditto was built without libav\n", PARTS[i]);
    }
    expect_cleanup(folder);
    return expect_done();
}
