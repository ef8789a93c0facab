/* fuzz_av_whole.c - libFuzzer target: the sizes that MP4, Matroska and RIFF headers promise, on any bytes. */
#include "media/av_whole.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const BEGINNINGS[] = {"", "\x1a\x45\xdf\xa3", "RIFF", "\0\0\0\x08" "ftyp"};
    static const size_t SIZES[] = {0, 4, 4, 8};
    for (int i = 0; i < 4; i++) { /* the right beginning is not left to chance */
        uint8_t *copy = malloc(size + SIZES[i]); /* of exactly that size, so that a read beyond it shows */
        if (!copy) return 0;
        memcpy(copy, BEGINNINGS[i], SIZES[i]);
        if (size) memcpy(copy + SIZES[i], data, size);
        volatile size_t promised = av_whole_promised(copy, size + SIZES[i]);
        (void)promised;
        free(copy);
    }
    return 0;
}
