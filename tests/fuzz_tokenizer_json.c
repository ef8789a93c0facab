/* fuzz_tokenizer_json.c - libFuzzer target: any bytes as a tokenizer.json, then a text encoded with it.
 *
 * Input: the JSON, a NUL byte, the text (without a NUL the JSON is the text, too). Checked beyond memory
 * safety: ids lie inside the vocabulary, offsets inside the text, and the padded form agrees with the plain one.
 * Seeds: tests/corpus/fuzz_tokenizer_json. Build with clang -fsanitize=fuzzer,address,undefined. */
#include "text/tok.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size);

static void require(bool good) {
    if (!good) abort();
}

int LLVMFuzzerTestOneInput(const unsigned char *data, size_t size) {
    const unsigned char *nul = size ? memchr(data, 0, size) : NULL;
    size_t json_size = nul ? (size_t)(nul - data) : size;
    const char *text = nul ? (const char *)nul + 1 : (const char *)data;
    size_t text_size = nul ? size - json_size - 1 : size;
    Error e = {0};
    Tokenizer *t = NULL;
    Status s = tok_parse((const char *)data, json_size, "fuzz", &t, &e);
    require(s == OK ? t != NULL : !t && e.text[0]);
    if (s != OK) return 0;
    TokenIds ids = {0};
    e = (Error){0};
    s = tok_encode(t, text, text_size, true, &ids, &e);
    require(s == OK || (e.text[0] && ids.count == 0));
    for (int64_t i = 0; i < ids.count; i++) {
        require(ids.ids[i] >= 0 && ids.ids[i] < tok_vocab_size(t));
        require((ids.start[i] == -1 && ids.end[i] == -1) ||
                (ids.start[i] >= 0 && ids.start[i] <= ids.end[i] && ids.end[i] <= (int64_t)text_size));
    }
    if (s == OK && ids.count && ids.count < 100000) {
        int32_t *fixed = malloc((size_t)ids.count * sizeof *fixed);
        int64_t used = 0, lost = 0;
        require(fixed != NULL);
        require(tok_encode_fixed(t, text, text_size, ids.count, fixed, NULL, &used, &lost, NULL) == OK);
        require(used == ids.count && lost == -1 && !memcmp(fixed, ids.ids, (size_t)ids.count * sizeof *fixed));
        free(fixed);
    }
    tok_ids_free(&ids);
    tok_close(t);
    return 0;
}
