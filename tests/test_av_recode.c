/* test_av_recode.c - a picture's way through H.264 (media/av_recode.h): the bytes that diffusers gets through PyAV
 * (scripts/compare_image_crf.py --golden), what 0 leaves alone, what is cut off, what is refused.
 *
 * Skipped by name: all of it without libav, the bytes on a CPU without AVX2, where libswscale has other colours.
 * Easy to get wrong: run from the repository root; the picture is low enough for one slice, so that the number of cores does
 * not matter. */
#include "core/safetensors.h"
#include "expect.h"
#include "media/av_recode.h"

#include <stdlib.h>
#include <string.h>

static Image photo(void) {
    Image image = {0};
    Error e = {0};
    expect_ok(image_read("tests/golden/photo.jpg", &image, &e), &e);
    expect_ok(image_upright(&image, &e), &e);
    return image;
}

static void bytes(const Safetensors *golden, int crf) {
    char name[16];
    Error e = {0};
    Image image = photo();
    snprintf(name, sizeof name, "crf%d", crf);
    const SafetensorsEntry *entry = safetensors_find(golden, name);
    expect_ok(av_recode(&image, crf, &e), &e);
    Tensor want = entry ? safetensors_tensor(golden, entry) : (Tensor){0};
    bool fits = want.rank == 3 && want.shape[0] == image.height && want.shape[1] == image.width;
    expect_at(fits, "size without the odd row and column", name, image.width);
    int64_t off = 0, n = fits ? tensor_numel(want) : 0;
    for (int64_t i = 0; i < n; i++) off += image.rgb[i] != ((const uint8_t *)want.data)[i];
    expect_at(n > 0 && off == 0, "bytes that differ", name, (int)off);
    image_free(&image);
}

static void whole(void) {
    Error e = {0};
    Image image = photo(), same = photo();
    expect_ok(av_recode(&image, 0, &e), &e);
    expect(image.width == same.width && image.height == same.height &&
           !memcmp(image.rgb, same.rgb, (size_t)same.width * (size_t)same.height * 3));
    image_free(&image), image_free(&same);
    image = photo();
    image.width = 1; /* of each row's start: no even column is left */
    expect_status(av_recode(&image, 33, &e), ERR_USAGE, "pixels are too few", &e);
    image_free(&image);
}

int main(void) {
    Safetensors golden = {0};
    Error e = {0};
    Image image = photo();
    Status s = av_recode(&image, 33, &e);
    image_free(&image);
    if (s == ERR_IO) { /* no libav in this build or on this machine, or none with libx264 */
        expect(strstr(e.text, "--image-crf") != NULL);
        printf("skipped: %s\n", e.text);
        return expect_done();
    }
    expect_ok(safetensors_open("tests/golden/image_crf.safetensors", &golden, &e), &e);
    if (__builtin_cpu_supports("avx2")) bytes(&golden, 33), bytes(&golden, 18);
    else printf("skipped: the bytes, on a CPU without AVX2\n");
    safetensors_close(&golden);
    whole();
    return expect_done();
}
