/* test_compare_kinds.c - compare on what is not two PNG files: SSIM and PSNR against scikit-image's numbers (printed by
 * scripts/dump_compare.py), folders of frames, safetensors, the difference picture, JSON, limits, faults; the stub of a build
 * without libav; the length that media files promise. What needs files made by ffmpeg is in test_compare_av.sh.
 * Easy to get wrong: an outcome is checked together with its text, since "differs" has many reasons. */
#include "compare.h"
#include "core/file.h"
#include "core/json.h"
#include "expect.h"
#include "media/av_whole.h"
#include "media/image.h"
#include "media/png.h"
#include "ssim.h"

#include <cjson/cJSON.h>
#include <math.h>

/* The functions of a build without libav, beside those of this build. */
#define av_read_available stub_available
#define av_read_probe stub_probe
#define av_read_open stub_open
#define av_read_close stub_close
#define av_read_info stub_info
#define av_read_video stub_video
#define av_sound_read stub_sound
#define av_sound_info stub_sound_info
#undef AV_READ_H
#include "media/av_read.c"
#include "media/av_sound.c"

/* --- scikit-image --- */

/* In the same integers as scripts/dump_compare.py's picture(). */
static uint8_t *picture(int width, int height, int noise, int flat) {
    size_t n = (size_t)width * (size_t)height * 3;
    uint8_t *rgb = malloc(n);
    if (!rgb) abort();
    uint32_t state = 12345;
    for (size_t i = 0; i < n; i++) {
        int x = (int)(i / 3) % width, y = (int)(i / 3) / width;
        state = state * 1103515245u + 12345u;
        int base = flat ? 100 : (x * 7 + y * 5 + (int)(i % 3) * 40) % 256;
        int v = noise ? base + (int)((state >> 16) % (unsigned)(2 * noise + 1)) - noise : base;
        rgb[i] = (uint8_t)(v < 0 ? 0 : v > 255 ? 255 : v);
    }
    return rgb;
}

static Planes planes_of(const uint8_t *rgb, int width, int height) {
    return (Planes){.width = width,
                    .height = height,
                    .rgb = true,
                    .count = 1,
                    .bits = 8,
                    .plane[0] = {rgb, width * 3, width * 3, height}};
}

typedef struct Known {
    int width, height, noise, flat;
    double psnr, ssim;
} Known;
/* scikit-image 0.26.0, numpy 2.4.6 */
static const Known KNOWN[] = {
    {7, 7, 3, 0, 42.2300166682, 0.9941549091},     {23, 17, 5, 0, 37.9655283946, 0.9859772938},
    {64, 48, 40, 0, 21.0963308173, 0.6622732662},  {31, 9, 1, 1, 49.9702526038, 0.9889044644},
    {16, 16, 127, 1, 11.2235811920, 0.0117387748},
};

static void test_known(void) {
    for (size_t i = 0; i < sizeof KNOWN / sizeof *KNOWN; i++) {
        const Known *k = &KNOWN[i];
        Error e = {0};
        uint8_t *a = picture(k->width, k->height, 0, k->flat), *b = picture(k->width, k->height, k->noise, k->flat);
        Planes p = planes_of(a, k->width, k->height), q = planes_of(b, k->width, k->height);
        Comparison c = compare_pixels(a, b, (size_t)k->width * (size_t)k->height * 3);
        double ssim;
        expect_ok(ssim_rgb(&p, &q, &ssim, &e), &e);
        /* half a unit of the recordings' last digit; double rounding is far below */
        expect(fabs(c.psnr - k->psnr) <= 0.5e-10 + 1e-12 && fabs(ssim - k->ssim) <= 0.5e-10 + 1e-12);
        expect_ok(ssim_rgb(&p, &p, &ssim, &e), &e);
        expect(ssim == 1);
        p.plane[0].width -= 3, p.width--, q.plane[0].width -= 3,
            q.width--; /* strides are honoured: below 7 no window fits */
        expect_ok(ssim_rgb(&p, &q, &ssim, &e), &e);
        expect(isnan(ssim) == (p.width < 7 || p.height < 7) && ssim != k->ssim);
        free(a);
        free(b);
    }
}

/* Constant planes x and y have no variance: S = (2xy + C1') / (x^2 + y^2 + C1') with C1' = C1 / 64^2 of the sums. */
static void test_constant_planes(void) {
    uint16_t x[12 * 9], y[12 * 9];
    for (int bits = 8; bits <= 10; bits += 2) {
        double largest = (1 << bits) - 1, c1 = floor(.01 * .01 * largest * largest * 64 + .5) / 64 / 64, a = 100,
               b = 140, ssim;
        for (int i = 0; i < 12 * 9; i++) {
            if (bits > 8)
                x[i] = (uint16_t)a, y[i] = (uint16_t)b;
            else
                ((uint8_t *)x)[i] = (uint8_t)a, ((uint8_t *)y)[i] = (uint8_t)b;
        }
        int stride = bits > 8 ? 24 : 12;
        Planes p = {.width = 12, .height = 9, .count = 1, .bits = bits, .plane[0] = {(uint8_t *)x, stride, 12, 9}},
               q = p;
        q.plane[0].data = (uint8_t *)y;
        Error e = {0};
        expect_ok(ssim_plane(&p, &q, 0, &ssim, &e), &e);
        expect(fabs(ssim - (2 * a * b + c1) / (a * a + b * b + c1)) < 1e-15);
        p.plane[0].height = q.plane[0].height = 7; /* one row of blocks is no window */
        expect_ok(ssim_plane(&p, &q, 0, &ssim, &e), &e);
        expect(isnan(ssim));
    }
}

/* --- compare_files --- */

static char printed[65536]; /* lint: allow-static (test program) */

static Status run(const char *a, const char *b, const CompareOptions *o, Error *e) {
    memset(printed, 0, sizeof printed);
    FILE *text = fmemopen(printed, sizeof printed - 1, "w");
    if (!text) abort();
    *e = (Error){0};
    Status status = compare_files(a, b, o, text, e);
    fclose(text);
    return status;
}

#define outcome(a, b, options, code, part)                                                                             \
    do {                                                                                                               \
        Error e_;                                                                                                      \
        expect_status_at(run((a), (b), (options), &e_), (code), (part), &e_, a " " b, __FILE__, __LINE__);             \
    } while (0)
#define says(part) expect_at(strstr(printed, (part)) != NULL, "output says " part, __FILE__, __LINE__)

static void put_picture(const char *path, int noise) {
    Error e = {0};
    uint8_t *rgb = picture(20, 12, noise, 0);
    expect_mkdirs(path);
    expect_ok(png_write(path, rgb, 20, 12, NULL, 0, true, &e), &e);
    free(rgb);
}

static void test_folders(void) {
    const CompareOptions none = {0}, loose = {.limits = {.has_min_psnr = true, .min_psnr = 30}},
                         tight = {.limits = {.has_min_ssim = true, .min_ssim = 0.99}}, json = {.json = true};
    for (int i = 0; i < 4; i++) {
        char a[32], b[32];
        snprintf(a, sizeof a, "a/f%d.png", i + 8); /* 8, 9, 10, 11: not in the order of the letters */
        snprintf(b, sizeof b, "b/f%d.png", i + 8);
        put_picture(a, 0);
        put_picture(b, i == 2 ? 5 : 0);
    }
    expect_text(".", "b/notes.txt", "passed over");
    outcome("a", "a", &none, OK, "");
    says("frames: 4 compared, 0 differ; 0 only in the reference, 0 only in the output\n");
    outcome("a", "b", &none, ERR_SOME, "frame 2, f10.png: max difference 5, PSNR");
    says("first difference: frame 2 f10.png, x 0, y 0, ");
    outcome("a", "b", &loose, OK, "");
    outcome("a", "b", &tight, ERR_SOME, "SSIM 0.98");
    outcome("a", "b", &json, ERR_SOME, "f10.png");
    Error e = {0};
    Json *j = NULL;
    expect_ok(json_parse(printed, strlen(printed), "printed", &j, &e), &e);
    const Json *frames = json_get(j, "frames"), *third = cJSON_GetArrayItem(frames, 2);
    expect(cJSON_GetArraySize(frames) == 4 && cJSON_IsFalse(json_get(j, "passed")) &&
           cJSON_IsFalse(json_get(j, "equal")));
    expect(cJSON_IsFalse(json_get(third, "equal")) && cJSON_IsTrue(json_get(cJSON_GetArrayItem(frames, 3), "equal")));
    expect(!strcmp(cJSON_GetStringValue(json_get(cJSON_GetArrayItem(frames, 0), "psnr")), "inf"));
    json_free(j);

    rename("b/f9.png", "b/f12.png");
    outcome("a", "b", &loose, ERR_SOME, "f9.png is only in the reference");
    says("only in the reference: f9.png\n");
    says("only in the output: f12.png\n");
    outcome("a", "a/f8.png", &none, ERR_USAGE, "a is a folder and a/f8.png a picture");
    mkdir("empty", 0777);
    outcome("a", "empty", &none, ERR_USAGE, "empty: no PNG or JPEG file");
    put_picture("other/g.png", 0);
    outcome("a", "other", &none, ERR_USAGE, "no frame of the same name");
    char *bytes;
    size_t size;
    expect_ok(file_read("b/f10.png", &bytes, &size, &e), &e);
    expect_write("b", "f10.png", bytes, size - 20);
    free(bytes);
    outcome("a", "b", &none, ERR_USAGE, "b/f10.png");
}

static void test_difference(void) {
    CompareOptions o = {.diff = "d.png", .limits = {.has_max_abs = true, .max_abs = 5}};
    put_picture("x.png", 0);
    put_picture("y.png", 5);
    outcome("x.png", "y.png", &o, OK, "");
    says("difference picture: d.png, differences times 51\n");
    outcome("x.png", "y.png", &o, ERR_USAGE, "d.png exists; give -y");
    Error e = {0};
    Image d, x, y;
    expect_ok(image_read("d.png", &d, &e), &e);
    expect_ok(image_read("x.png", &x, &e), &e);
    expect_ok(image_read("y.png", &y, &e), &e);
    int wrong = 0;
    for (int i = 0; i < 20 * 12 * 3; i++) wrong += d.rgb[i] != 51 * abs(x.rgb[i] - y.rgb[i]);
    expect(d.width == 20 && d.height == 12 && !wrong);
    image_free(&d), image_free(&x), image_free(&y);
    o.limits.max_abs = 4;
    o.overwrite = true;
    outcome("x.png", "y.png", &o, ERR_SOME, "max difference 5");
    uint8_t small[6 * 6 * 3] = {0};
    expect_ok(png_write("s.png", small, 6, 6, NULL, 0, true, &e), &e);
    const CompareOptions none = {0}, ssim = {.limits = {.has_min_ssim = true}}, snr = {.limits = {.has_min_snr = true}};
    outcome("s.png", "s.png", &none, OK, "");
    says("SSIM: undefined\n");
    outcome("s.png", "s.png", &ssim, ERR_USAGE, "--min-ssim: s.png is smaller than the window");
    outcome("s.png", "s.png", &snr, ERR_USAGE, "--min-snr: these files hold no sound");
}

/* --- tensors --- */

static void put_tensors(const char *name, const char *header, const void *payload, size_t size) {
    size_t all;
    unsigned char *bytes = expect_safetensors(header, size, &all);
    if (size) memcpy(bytes + all - size, payload, size);
    expect_write(".", name, bytes, all);
    free(bytes);
}

#define TWO                                                                                                            \
    "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]},\"b\":{\"dtype\":\"BF16\",\"shape\":[2],"      \
    "\"data_offsets\":[24,28]}}"

typedef struct Two {
    float a[6];
    uint16_t b[2];
} Two;

static void test_tensors(void) {
    const CompareOptions none = {0}, near = {.limits = {.has_max_abs = true, .max_abs = 0.5}},
                         psnr = {.limits = {.has_min_psnr = true, .min_psnr = 20}}, json = {.json = true},
                         ssim = {.limits = {.has_min_ssim = true}}, diff = {.diff = "t.png"};
    Two x = {{0, 1, 2, 3, 4, 8}, {0x3f80, 0x4000}}, y = x;
    put_tensors("x.safetensors", TWO, &x, sizeof x);
    outcome("x.safetensors", "x.safetensors", &none, OK, "");
    says("a: F32 [2, 3]: equal bits\nb: BF16 [2]: equal bits\n");
    y.a[4] = 4.5f;
    put_tensors("y.safetensors", TWO, &y, sizeof y);
    outcome("x.safetensors", "y.safetensors", &none, ERR_SOME, "a: max difference 0.5, PSNR 31.8639 dB");
    /* peak 8, mean square 0.25 / 6: 10 log10(64 * 24) = 31.8639... */
    says("a: F32 [2, 3]: different, 1 of 6 elements, max 0.5, mean 0.0833333, PSNR 31.8639 dB, first at [1, 1]: 4 | "
         "4.5\n");
    says("first different tensor: a\n");
    outcome("x.safetensors", "y.safetensors", &near, OK, "");
    outcome("x.safetensors", "y.safetensors", &psnr, OK, "");
    outcome("x.safetensors", "y.safetensors", &ssim, ERR_USAGE, "--min-ssim: these files hold no pictures");
    outcome("x.safetensors", "y.safetensors", &diff, ERR_USAGE, "--diff: these files hold no pictures");
    outcome("x.safetensors", "y.safetensors", &json, ERR_SOME, "a: max");
    says("\"first_difference\":{\"index\":[1, 1],\"reference\":4,\"output\":4.5}");

    y = x;
    y.a[2] = NAN; /* on one side only: nothing lets that pass */
    put_tensors("y.safetensors", TWO, &y, sizeof y);
    outcome("x.safetensors", "y.safetensors", &near, ERR_SOME, "a: max difference inf, PSNR -inf dB");
    says("NaN 0 | 1, not finite on one side 1");
    outcome("x.safetensors", "y.safetensors", &psnr, ERR_SOME, "PSNR -inf");
    outcome("y.safetensors", "x.safetensors", &near, ERR_SOME, "max difference inf");
    outcome("y.safetensors", "y.safetensors", &none, OK, "");
    says("a: F32 [2, 3]: equal bits, 0 of 6 elements, max 0");
    x = y;
    x.a[0] = 0.25f; /* the same NaN on both sides adds nothing */
    put_tensors("x.safetensors", TWO, &x, sizeof x);
    outcome("x.safetensors", "y.safetensors", &near, OK, "");
    says("NaN 1 | 1, first at [0, 0]: 0.25 | 0\n");
    x = y;
    x.a[0] = -0.0f; /* a bit, not a value */
    put_tensors("x.safetensors", TWO, &x, sizeof x);
    outcome("x.safetensors", "y.safetensors", &none, ERR_SOME, "a: max difference 0, PSNR inf dB");
    outcome("x.safetensors", "y.safetensors", &near, OK, "");
    x.a[0] = INFINITY;
    put_tensors("x.safetensors", TWO, &x, sizeof x);
    outcome("x.safetensors", "y.safetensors", &near, ERR_SOME, "max difference inf");

    put_tensors("z.safetensors", "{\"a\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[0,24]}}", &y, 24);
    outcome("y.safetensors", "z.safetensors", &near, ERR_SOME, "b is only in the reference");
    outcome("z.safetensors", "y.safetensors", &near, ERR_SOME, "b is only in the output");
    put_tensors("z.safetensors", "{\"a\":{\"dtype\":\"F32\",\"shape\":[6],\"data_offsets\":[0,24]}}", &y, 24);
    outcome("y.safetensors", "z.safetensors", &near, ERR_USAGE,
            "a is [2, 3] in y.safetensors and [6] in z.safetensors");
    const int64_t wide[] = {3, 4};
    const int32_t slim[] = {3, 6};
    const uint8_t fp8[] = {1, 2};
    put_tensors("i.safetensors", "{\"a\":{\"dtype\":\"I64\",\"shape\":[2],\"data_offsets\":[0,16]}}", wide,
                sizeof wide);
    put_tensors("j.safetensors", "{\"a\":{\"dtype\":\"I32\",\"shape\":[2],\"data_offsets\":[0,8]}}", slim, sizeof slim);
    outcome("i.safetensors", "j.safetensors", &none, ERR_SOME, "max difference 2");
    says("a: I64 | I32 [2]: different, 1 of 2 elements, max 2, mean 1,");
    put_tensors("j.safetensors", "{\"a\":{\"dtype\":\"F8_E4M3\",\"shape\":[2],\"data_offsets\":[0,2]}}", fp8,
                sizeof fp8);
    outcome("j.safetensors", "j.safetensors", &none, OK, "");
    outcome("i.safetensors", "j.safetensors", &near, ERR_SOME, "a: other bytes");
    put_picture("x.png", 0);
    outcome("x.png", "j.safetensors", &none, ERR_USAGE, "x.png holds frames and j.safetensors holds tensors");
    put_tensors("z.safetensors", "{}", NULL, 0);
    outcome("z.safetensors", "z.safetensors", &none, OK, "");
    outcome("z.safetensors", "no.safetensors", &none, ERR_USAGE, "no.safetensors");
}

/* --- media --- */

static void test_stub(void) {
    Error e;
    bool video, sound;
    AvReader *r;
    Sound s;
    static const char PART[] = "x.mp4: this ditto was built without libav";
    expect(!stub_available());
    expect_status(stub_probe("x.mp4", &video, &sound, &e), ERR_IO, PART, &e);
    expect_status(stub_open("x.mp4", false, &r, &e), ERR_IO, PART, &e);
    expect_status(stub_sound("x.mp4", &s, &e), ERR_IO, PART, &e);
    AvSoundInfo told;
    expect_status(stub_sound_info("x.mp4", &told, &e), ERR_IO, PART, &e);
    expect(!r && !s.samples && !video && !sound);
}

static void test_promised(void) {
    unsigned char mkv[] = {0x1a, 0x45, 0xdf, 0xa3, 0x82, 1, 2, 0x18, 0x53, 0x80, 0x67, 0x41, 0x00, 9, 9};
    expect(av_whole_promised(mkv, sizeof mkv) == 13 + 256);
    mkv[11] = 0x81;
    expect(av_whole_promised(mkv, sizeof mkv) == 12 + 1);
    mkv[11] = 0xff; /* unknown */
    expect(av_whole_promised(mkv, sizeof mkv) == 0);
    mkv[11] = 0; /* malformed */
    expect(av_whole_promised(mkv, sizeof mkv) == 0);
    mkv[11] = 0x01; /* eight bytes that are not there */
    expect(av_whole_promised(mkv, sizeof mkv) == 0);
    mkv[4] = 0x90; /* a header beyond the end */
    expect(av_whole_promised(mkv, sizeof mkv) == 0);
    for (size_t n = 0; n < sizeof mkv; n++) expect(av_whole_promised(mkv, n) == 0);
    expect(av_whole_promised((const unsigned char *)"RIFF\x10\x00\x00\x00WAVE", 12) == 24);
    expect(av_whole_promised((const unsigned char *)"RIFF\xff\xff\xff\xffWAVE", 12) == 0);
    unsigned char mp4[] = {0, 0, 0, 12, 'f', 't', 'y', 'p', 'i', 's', 'o', 'm', 0, 0, 0, 1,   'm', 'd', 'a', 't', 0,
                           0, 0, 0, 0,  0,   0,   20,  1,   2,   3,   4,   0,   0, 0, 9, 'm', 'o', 'o', 'v', 7};
    expect(av_whole_promised(mp4, sizeof mp4) == sizeof mp4);
    for (size_t n = 8; n < sizeof mp4; n++) expect(av_whole_promised(mp4, n) > n || n == 12 || n == 32);
    mp4[35] = 0; /* the last box goes to the end */
    expect(av_whole_promised(mp4, sizeof mp4) == 32);
    mp4[27] = 7; /* smaller than its own header */
    expect(av_whole_promised(mp4, sizeof mp4) == 0);
    expect(av_whole_promised((const unsigned char *)"RIFX\x10\x00\x00\x00WAVE", 12) == 0);
}

int main(void) {
    char folder[512];
    if (chdir(expect_folder(folder, sizeof folder))) return 1;
    test_known();
    test_constant_planes();
    test_folders();
    test_difference();
    test_tensors();
    test_stub();
    test_promised();
    expect_cleanup(folder);
    return expect_done();
}
