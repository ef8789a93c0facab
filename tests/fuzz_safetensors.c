/* fuzz_safetensors.c - libFuzzer target: safetensors_parse on any bytes, and on any header text with a right length in
 * front, which a fuzzer would seldom guess. What is accepted is walked, and every claimed byte is read. */
#include "core/safetensors.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void try_parse(const uint8_t *bytes, size_t size) {
    Safetensors s;
    Error e = {0};
    if (safetensors_parse(bytes, size, "input", &s, &e) != OK) {
        if (e.code != ERR_MODEL || !e.text[0]) abort();
        return;
    }
    size_t covered = 0;
    volatile unsigned sum = 0;
    for (int i = 0; i < s.count; i++) {
        const SafetensorsEntry *t = &s.entry[i];
        char shape[64];
        for (size_t k = 0; k < t->bytes; k++) sum += s.payload[t->offset + k];
        covered += t->bytes;
        Tensor view = safetensors_tensor(&s, t);
        if (view.rank && dtype_bits(t->dtype) % 8 == 0 && tensor_bytes(view) != t->bytes) abort();
        if (safetensors_find(&s, t->name) != t || (i && strcmp(s.entry[i - 1].name, t->name) >= 0)) abort();
        sum += (unsigned)strlen(safetensors_shape_text(t, shape, sizeof shape));
    }
    (void)sum;
    if (covered != s.payload_bytes) abort();
    safetensors_close(&s);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    try_parse(data, size);
    /* the first byte says how many bytes at the end are payload */
    size_t payload = size ? data[0] % 32 : 0, header = size - (size ? 1 : 0);
    if (payload > header) payload = header;
    header -= payload;
    uint8_t *copy = malloc(8 + header + payload);
    if (!copy) return 0;
    for (int i = 0; i < 8; i++) copy[i] = (uint8_t)((uint64_t)header >> 8 * i);
    if (size) memcpy(copy + 8, data + 1, header + payload);
    try_parse(copy, 8 + header + payload);
    free(copy);
    return 0;
}
