/* fuzz_png_meta.c - libFuzzer target: the PNG chunk walker on any bytes. Checksums would stop a fuzzer at the
 * first chunk, so each input is also tried with its checksums put right. */
#include "media/png.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* Reads every byte of what came back, so that a bad length shows. */
static void try_parse(const uint8_t *data, size_t size) {
    PngTexts texts;
    Error e = {0};
    volatile size_t sum = 0;
    if (png_parse_texts(data, size, "input", &texts, &e) != OK) return;
    for (int i = 0; i < texts.count; i++) sum += strlen(texts.items[i].key) + strlen(texts.items[i].text);
    png_texts_free(&texts);
}

static uint32_t crc32_of(const uint8_t *data, size_t size) {
    uint32_t crc = ~0u;
    for (size_t i = 0; i < size; i++) {
        crc ^= data[i];
        for (int k = 0; k < 8; k++) crc = (crc >> 1) ^ ((0u - (crc & 1u)) & 0xedb88320u);
    }
    return ~crc;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    try_parse(data, size);
    uint8_t *copy = malloc(size + 1);
    if (!copy) return 0;
    memcpy(copy, data, size);
    for (size_t at = 8; size >= 12 && at <= size - 12;) {
        size_t n =
            (size_t)copy[at] << 24 | (size_t)copy[at + 1] << 16 | (size_t)copy[at + 2] << 8 | copy[at + 3];
        if (n > size - 12 - at) break;
        uint32_t crc = crc32_of(copy + at + 4, n + 4);
        for (size_t i = 0; i < 4; i++) copy[at + 8 + n + i] = (uint8_t)(crc >> (24 - 8 * i));
        at += 12 + n;
    }
    try_parse(copy, size);
    free(copy);
    return 0;
}
