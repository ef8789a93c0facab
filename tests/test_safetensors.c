/* test_safetensors.c - core/safetensors: every kind of bad header is refused with a line that names the cause, good ones
 * are listed with the right bytes, and a published tensor list comes back unchanged. */
#include "core/safetensors.h"
#include "expect.h"

/* Parses header + payload and checks the outcome. Memory is exact, so a sanitizer build sees every overread. */
static void try_header(const char *header, size_t payload, Status code, const char *part) {
    size_t size;
    unsigned char *bytes = expect_safetensors(header, payload, &size);
    Safetensors s;
    Error e;
    expect_status(safetensors_parse(bytes, size, "x", &s, &e), code, part, &e);
    safetensors_close(&s);
    free(bytes);
}

static void try_bytes(const char *bytes, size_t size, const char *part) {
    unsigned char *copy = malloc(size ? size : 1);
    Safetensors s;
    Error e;
    memcpy(copy, bytes, size);
    expect_status(safetensors_parse(copy, size, "x", &s, &e), ERR_MODEL, part, &e);
    free(copy);
}

#define T(name, dtype, shape, from, to)                                                                      \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #from "," #to "]}"

static void good(void) {
    size_t size;
    Error e;
    Safetensors s;
    /* out of name order, a scalar, zero-element tensors at shared offsets, an odd (unaligned) payload start */
    unsigned char *bytes = expect_safetensors(
        "{\"__metadata__\":{\"format\":\"pt\"}," T("z", "U8", "[3]", 0, 3) "," T(
            "a", "F32", "[]", 3, 7) "," T("none", "BF16", "[0,5]", 3,
                                          3) "," T("also", "F16", "[2,0]", 7, 7) "," T("m", "BF16", "[1,2,1]",
                                                                                       7, 11) "}  ",
        11, &size);
    expect_ok(safetensors_parse(bytes, size, "x", &s, &e), &e);
    expect(s.count == 5 && s.payload_bytes == 11);
    const char *order[] = {"a", "also", "m", "none", "z"};
    for (int i = 0; i < 5; i++) expect(s.count == 5 && !strcmp(s.entry[i].name, order[i]));
    const SafetensorsEntry *m = safetensors_find(&s, "m"), *a = safetensors_find(&s, "a");
    expect(m && m->dtype == BF16 && m->rank == 3 && m->shape[1] == 2 && m->offset == 7 && m->bytes == 4);
    Tensor t = safetensors_tensor(&s, m);
    expect(t.rank == 3 && ((unsigned char *)t.data)[0] == 7 && ((unsigned char *)t.data)[3] == 10);
    t = safetensors_tensor(&s, a);
    expect(a && a->rank == 0 && t.rank == 1 && t.shape[0] == 1 && tensor_bytes(t) == 4);
    expect(safetensors_find(&s, "M") == NULL && safetensors_find(&s, "") == NULL);
    expect(s.metadata && json_get(s.metadata, "format"));
    safetensors_close(&s);
    free(bytes);

    try_header("{\"__metadata__\":{}}", 0, OK, "");
    try_header("{}", 0, OK, "");
    try_header("{" T("w", "F32", "[1,1,1,1,1,1,1,2]", 0, 8) "}", 8, OK, "");
    try_header("{\"w\":{\"extra\":7,\"dtype\":\"I8\",\"shape\":[1],\"data_offsets\":[0,1]}}", 1, OK, "");
    bytes = expect_safetensors("{" T("w", "F32", "[1,1,1,1,1,2]", 0, 8) "}", 8, &size);
    expect_ok(safetensors_parse(bytes, size, "x", &s, &e), &e);
    expect(s.count == 1 && s.entry[0].rank == 6 && safetensors_tensor(&s, &s.entry[0]).rank == 0);
    char text[64];
    expect(!strcmp(safetensors_shape_text(&s.entry[0], text, sizeof text), "[1, 1, 1, 1, 1, 2]"));
    expect(!strcmp(safetensors_shape_text(&s.entry[0], text, 6), "[1, 1"));
    safetensors_close(&s);
    free(bytes);
}

/* Every dtype that the format publishes, 24 elements each. */
static void dtypes(void) {
    static const struct {
        const char *name;
        int bytes;
    } ALL[] = {{"BOOL", 24},        {"F4", 12},      {"F6_E2M3", 18}, {"F6_E3M2", 18}, {"U8", 24},
               {"I8", 24},          {"F8_E5M2", 24}, {"F8_E4M3", 24}, {"F8_E8M0", 24}, {"F8_E4M3FNUZ", 24},
               {"F8_E5M2FNUZ", 24}, {"I16", 48},     {"U16", 48},     {"F16", 48},     {"BF16", 48},
               {"I32", 96},         {"U32", 96},     {"F32", 96},     {"C64", 192},    {"F64", 192},
               {"I64", 192},        {"U64", 192}};
    for (size_t i = 0; i < sizeof ALL / sizeof *ALL; i++) {
        char header[200];
        snprintf(header, sizeof header, "{\"w\":{\"dtype\":\"%s\",\"shape\":[4,6],\"data_offsets\":[0,%d]}}",
                 ALL[i].name, ALL[i].bytes);
        try_header(header, (size_t)ALL[i].bytes, OK, "");
        try_header(header, (size_t)ALL[i].bytes + 1, ERR_MODEL, "after the last tensor");
    }
    try_header("{" T("w", "F4", "[3]", 0, 2) "}", 2, ERR_MODEL,
               "span 2 bytes"); /* 12 bits are no whole bytes */
    try_header("{" T("w", "F4", "[3]", 0, 1) "}", 1, ERR_MODEL, "span 1 bytes");
    try_header("{" T("w", "F128", "[1]", 0, 16) "}", 16, ERR_MODEL, "unknown dtype \"F128\"");
    try_header("{" T("w", "f32", "[1]", 0, 4) "}", 4, ERR_MODEL, "unknown dtype \"f32\"");
    try_header("{" T("w", "none", "[1]", 0, 0) "}", 0, ERR_MODEL, "unknown dtype");
}

static void bad(void) {
    /* spans */
    try_header("{" T("w", "F32", "[1000,1000]", 0, 4) "}", 4, ERR_MODEL, "w: data_offsets span 4 bytes");
    try_header("{" T("w", "F32", "[1]", 8, 4) "}", 8, ERR_MODEL, "w: data_offsets [8, 4] do not rise");
    try_header("{" T("w", "F32", "[1]", -1, 4) "}", 8, ERR_MODEL, "w: data_offsets [-1, 4]");
    try_header("{" T("w", "F32", "[1]", 0, 1e3) "}", 1000, ERR_MODEL, "found 'e'");
    try_header("{" T("w", "F32", "[1]", 0, 4.0) "}", 4, ERR_MODEL, "found '.'");
    try_header("{" T("w", "F32", "[1]", 0, 9223372036854775809) "}", 4, ERR_MODEL,
               "w: data_offsets is no pair");
    try_header("{" T("w", "F32", "[1]", 0, 8) "}", 4, ERR_MODEL, "truncated: w ends at byte 8");
    try_header("{" T("w", "F32", "[4611686018427387904,4]", 0, 0) "}", 0, ERR_MODEL, "shape[0]");
    try_header("{" T("w", "F32", "[4503599627370496,4503599627370496]", 0, 0) "}", 0, ERR_MODEL,
               "span 0 bytes");
    try_header("{" T("w", "U8", "[2147483648,2147483648,4]", 0, 0) "}", 0, ERR_MODEL,
               "span 0 bytes"); /* 2^64 */
    try_header("{" T("w", "F32", "[-1]", 0, 4) "}", 4, ERR_MODEL, "w: shape[0]");
    try_header("{" T("a", "U8", "[4]", 0, 4) "," T("b", "U8", "[4]", 3, 7) "}", 7, ERR_MODEL,
               "a and b overlap");
    try_header("{" T("a", "U8", "[4]", 0, 4) "," T("b", "U8", "[4]", 0, 4) "}", 4, ERR_MODEL, "overlap");
    try_header("{" T("a", "U8", "[4]", 0, 4) "," T("b", "U8", "[1]", 5, 6) "}", 6, ERR_MODEL,
               "1 bytes before b");
    try_header("{" T("a", "U8", "[4]", 2, 6) "}", 6, ERR_MODEL, "2 bytes before a");
    try_header("{" T("a", "U8", "[4]", 0, 4) "}", 6, ERR_MODEL, "2 bytes after the last");
    try_header("{" T("a", "U8", "[0]", 1, 1) "}", 0, ERR_MODEL, "truncated: a ends");
    try_header("{" T("w", "U8", "[1,1,1,1,1,1,1,1,1]", 0, 1) "}", 1, ERR_MODEL, "w: shape has more than 8");
    /* forms */
    try_header("{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, ERR_MODEL, "no pair");
    try_header("{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,1]}}", 1, ERR_MODEL, "no pair");
    try_header("{\"w\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":{\"a\":0,\"b\":1}}}", 1, ERR_MODEL,
               "no pair");
    try_header("{\"w\":{\"dtype\":\"U8\",\"shape\":[1]}}", 1, ERR_MODEL, "no pair");
    try_header("{\"w\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, ERR_MODEL, "w: no \"shape\"");
    try_header("{\"w\":{\"shape\":[1],\"data_offsets\":[0,1]}}", 1, ERR_MODEL, "w: no \"dtype\"");
    try_header("{\"w\":{\"DType\":\"U8\",\"Shape\":[1],\"Data_offsets\":[0,1]}}", 1, ERR_MODEL,
               "w: no \"dtype\"");
    try_header("{\"w\":{\"dtype\":\"U8\",\"shape\":[\"1\"],\"data_offsets\":[0,1]}}", 1, ERR_MODEL,
               "w: shape[0]");
    try_header("{\"w\":[0,1]}", 0, ERR_MODEL, "w: expected");
    try_header("{\"w\":{\"dtype\":null,\"shape\":[1],\"data_offsets\":[0,1]}}", 1, ERR_MODEL, "found 'n'");
    try_header("{\"__metadata__\":{\"a\":1}}", 0, ERR_MODEL, "__metadata__: a is no string");
    try_header("{\"__metadata__\":[]}", 0, ERR_MODEL, "__metadata__ is no object");
    try_header("[]", 0, ERR_MODEL, "no '{'");
    try_header("{\"a\":", 0, ERR_MODEL, "not valid JSON");
    try_header("{}{}", 0, ERR_MODEL, "not valid JSON");
    /* names */
    try_header("{" T("w", "U8", "[1]", 0, 1) "," T("w", "U8", "[1]", 1, 2) "}", 2, ERR_MODEL,
               "\"w\" occurs twice");
    try_header("{" T("w", "U8", "[1]", 0, 1) "," T("w\\u0000x", "U8", "[1]", 1, 2) "}", 2, ERR_MODEL,
               "\\u0000");
    try_header("{" T("w", "U8", "[1]", 0, 1) "," T("\\u0077", "U8", "[1]", 1, 2) "}", 2, ERR_MODEL,
               "occurs twice");
    char raw[] = "{\"w!x\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}";
    size_t size;
    unsigned char *bytes = expect_safetensors(raw, 1, &size);
    Safetensors s;
    Error e;
    bytes[8 + 3] = 0;
    expect_status(safetensors_parse(bytes, size, "x", &s, &e), ERR_MODEL, "NUL byte", &e);
    free(bytes);
}

static void lengths(void) {
    try_bytes("", 0, "truncated: 0 bytes");
    try_bytes("\2\0\0\0\0\0\0\0{", 9, "truncated: 9 bytes");
    try_bytes("\5\0\0\0\0\0\0\0{}", 10, "truncated: the header takes 5 bytes");
    try_bytes("\0\0\0\0\0\0\0\0{}", 10, "not valid JSON");
    try_bytes("\xff\xff\xff\xff\xff\xff\xff\xff{}", 10, "above the limit of 100000000");
    try_bytes("\1\xe1\xf5\5\0\0\0\0{}", 10, "header of 100000001 bytes is above the limit of 100000000");
    try_bytes("\0\xe1\xf5\5\0\0\0\0{}", 10, "truncated: the header takes 100000000 bytes");
    /* what is saved under this name by accident */
    const char *html = "\n<!DOCTYPE html><html><head></head></html>";
    try_bytes(html, strlen(html), "web page");
    try_bytes("<html>", 6, "web page");
    const char *json = "{\"error\":\"Access to this model is restricted\"}";
    try_bytes(json, strlen(json), "JSON text");
    try_bytes("GGUF\3\0\0\0\0\0\0\0", 12, "GGUF");
    try_bytes("PK\3\4\0\0\10\10\0\0\0\0", 12, "zip archive");
    try_bytes("\x80\2\x8a\nl\xfc\x9c\x46\xf9 j\xa8P\x19.", 15, "Python pickle");
    /* honest headers whose length begins like one of those */
    static const int LENGTHS[] = {0x3c, 0x7b, 0x280};
    for (int i = 0; i < 3; i++) {
        char header[700];
        memset(header, ' ', sizeof header);
        memcpy(header, "{}", 2);
        header[LENGTHS[i]] = 0;
        try_header(header, 0, OK, "");
    }
}

/* A header of exactly the limit loads. Sparse, so it costs 100 MB of reading and no disk. */
static void header_limit(const char *folder) {
    char *header = malloc(SAFETENSORS_MAX_HEADER + 1);
    memset(header, ' ', SAFETENSORS_MAX_HEADER);
    memcpy(header, "{}", 2);
    header[SAFETENSORS_MAX_HEADER] = 0;
    try_header(header, 0, OK, "");
    free(header);
    Safetensors s;
    Error e;
    char path[600];
    snprintf(path, sizeof path, "%s/none.safetensors", folder);
    expect_status(safetensors_open(path, &s, &e), ERR_IO, "cannot open", &e);
    expect_status(safetensors_open(folder, &s, &e), ERR_IO, "not a regular file", &e);
    expect_status(safetensors_open(expect_text(folder, "empty.safetensors", ""), &s, &e), ERR_MODEL,
                  "truncated: 0 bytes", &e);
    const char *file =
        expect_safetensors_file(folder, "one.safetensors", "{" T("w", "U8", "[2]", 0, 2) "}", 2);
    expect_ok(safetensors_open(file, &s, &e), &e);
    expect(s.count == 1 && s.map.data && s.payload[1] == 1);
    safetensors_close(&s);
    /* every shorter prefix of a good file is refused, never read past */
    size_t size;
    unsigned char *bytes = expect_safetensors("{" T("w", "U8", "[2]", 0, 2) "}", 2, &size);
    for (size_t n = 0; n < size; n++) try_bytes((char *)bytes, n, "truncated");
    free(bytes);
}

int main(void) {
    char folder[256];
    expect_folder(folder, sizeof folder);
    good();
    dtypes();
    bad();
    lengths();
    header_limit(folder);
    expect_cleanup(folder);
    return expect_done();
}
