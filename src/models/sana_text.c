/* sana_text.c - see sana_text.h. The instruction is part of the model: its bytes are the ones that the weights were trained
 * with and that SanaVideoPipeline passes. */
#include "models/sana_text.h"

#include "text/tok_unicode.h"

#include <stdio.h>
#include <stdlib.h>
#include <utf8proc.h>

static const char INSTRUCTION[] =
    "Given a user prompt, generate an 'Enhanced prompt' that provides detailed visual descriptions suitable for "
    "video generation. Evaluate the level of detail in the user prompt:\n"
    "- If the prompt is simple, focus on adding specifics about colors, shapes, sizes, textures, motion, and "
    "temporal relationships to create vivid and dynamic scenes.\n"
    "- If the prompt is already detailed, refine and enhance the existing details slightly without "
    "overcomplicating.\n"
    "Here are examples of how to transform or refine prompts:\n"
    "- User Prompt: A cat sleeping -> Enhanced: A small, fluffy white cat slowly settling into a curled "
    "position, peacefully falling asleep on a warm sunny windowsill, with gentle sunlight filtering through "
    "surrounding pots of blooming red flowers.\n"
    "- User Prompt: A busy city street -> Enhanced: A bustling city street scene at dusk, featuring glowing "
    "street lamps gradually lighting up, a diverse crowd of people in colorful clothing walking past, and a "
    "double-decker bus smoothly passing by towering glass skyscrapers.\n"
    "Please generate only the enhanced description for the prompt below and avoid including any additional "
    "commentary or evaluations:\n"
    "User Prompt: ";

/* --- Python's lower() and strip() --- */

/* Case_Ignorable: what may stand between a capital sigma and the letters that decide its form. */
static bool ignorable(uint32_t c) {
    static const uint16_t MID[] = {0x27,   0x2e,   0x3a,   0xb7,   0x387,  0x55f,  0x5f4,  0x2018, 0x2019,
                                   0x2024, 0x2027, 0xfe13, 0xfe52, 0xfe55, 0xff07, 0xff0e, 0xff1a};
    for (size_t i = 0; i < sizeof MID / sizeof *MID; i++)
        if (c == MID[i]) return true;
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK: return true;
    default: return false;
    }
}

/* Cased, of what is not ignorable. */
static bool cased(uint32_t c) {
    static const uint32_t OTHER[][2] = {{0xaa, 0xaa},       {0xba, 0xba},       {0x2160, 0x217f},  {0x24b6, 0x24e9},
                                        {0x1f130, 0x1f149}, {0x1f150, 0x1f169}, {0x1f170, 0x1f189}};
    for (size_t i = 0; i < sizeof OTHER / sizeof *OTHER; i++)
        if (c >= OTHER[i][0] && c <= OTHER[i][1]) return true;
    utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
    return k == UTF8PROC_CATEGORY_LU || k == UTF8PROC_CATEGORY_LL || k == UTF8PROC_CATEGORY_LT;
}

typedef struct Text { const char *at; size_t size; } Text;

static uint32_t code_point(Text t, size_t at, size_t *length) { return tok_unicode_decode(t.at + at, length); }

static size_t before(Text t, size_t at) { /* start of the character that ends at `at` */
    do at--;
    while (((unsigned char)t.at[at] & 0xc0) == 0x80);
    return at;
}

/* Does the sigma of two bytes at `at` end a word? */
static bool final_sigma(Text t, size_t at) {
    size_t length, left = at, right = at + 2;
    uint32_t c = ' ';
    while (left && (c = code_point(t, left = before(t, left), &length), ignorable(c))) c = ' ';
    if (!cased(c)) return false;
    for (; right < t.size; right += length)
        if (c = code_point(t, right, &length), !ignorable(c)) return !cased(c);
    return true;
}

/* Lower case of the character at `at` into out; returns its bytes. */
static size_t lower_one(Text t, size_t at, size_t *length, char out[8]) {
    uint32_t two[2], c = code_point(t, at, length);
    int n = tok_unicode_lower(c, two);
    if (c == 0x3a3 && final_sigma(t, at)) two[0] = 0x3c2;
    size_t size = 0;
    for (int i = 0; i < n; i++) size += tok_unicode_encode(two[i], out + size);
    return size;
}

static Text stripped(Text t) {
    tok_unicode_strip(&t.at, &t.size);
    return t;
}

/* Byte of t whose lower case holds byte `lowered` of all t's lower case. */
static size_t source_of(Text t, size_t lowered) {
    char out[8];
    for (size_t at = 0, size = 0, length; at < t.size; at += length) {
        size += lower_one(t, at, &length, out);
        if (size > lowered) return at;
    }
    return t.size;
}

Status sana_text_clean(const char *text, char **out, Error *e) {
    Text all = {text, strlen(text)};
    size_t bad = tok_unicode_check(text, all.size), size = 0;
    *out = NULL;
    if (bad < all.size) return fail(e, ERR_USAGE, "prompt: byte %zu: not valid UTF-8", bad);
    char *lowered = malloc(2 * all.size + 8); /* no character takes more than twice its bytes, and 8 may be written at once */
    if (!lowered) return fail(e, ERR_MEMORY, "prompt: out of memory");
    Text t = stripped(all);
    for (size_t at = 0, length; at < t.size; at += length) size += lower_one(t, at, &length, lowered + size);
    lowered[size] = 0;
    *out = lowered;
    return OK;
}

Status sana_text_motion(const char *prompt, int score, char **out, Error *e) {
    static const char FORMAT[] = "%s motion score: %d.";
    size_t size = strlen(prompt) + sizeof FORMAT + 16;
    *out = malloc(size);
    if (!*out) return fail(e, ERR_MEMORY, "prompt: out of memory");
    snprintf(*out, size, FORMAT, prompt, score);
    return OK;
}

/* --- tokens --- */

/* ids of front + clean for `count` tokens; *lost: as tok_encode_fixed says, in clean. */
static Status encode_all(const Tokenizer *t, const char *front, const char *clean, TokenRow *row, int64_t *lost, Error *e) {
    size_t a = strlen(front), b = strlen(clean);
    char *text = malloc(a + b + 1);
    Status s = text ? OK : fail(e, ERR_MEMORY, "prompt: out of memory for %lld tokens", (long long)row->count);
    if (s == OK) {
        memcpy(text, front, a);
        memcpy(text + a, clean, b + 1);
        s = model_row_encode(t, text, a + b, row, lost, e);
        if (s == OK && *lost >= 0) *lost = *lost > (int64_t)a ? *lost - (int64_t)a : 0;
    }
    free(text);
    return s;
}

static Status instruction_tokens(const Tokenizer *t, int64_t *count, Error *e) {
    TokenIds ids = {0};
    Status s = tok_encode(t, INSTRUCTION, sizeof INSTRUCTION - 1, true, &ids, e);
    *count = ids.count;
    tok_ids_free(&ids);
    return s;
}

Status sana_text_tokenize(const Tokenizer *t, const char *text, bool instruct, int64_t length, int64_t vocab, TokenRow *out,
                          Error *e) {
    int64_t front = 2, lost = -1;
    char *clean = NULL;
    *out = (TokenRow){.encoder = "1", .lost_byte = -1};
    if (instruct) TRY(instruction_tokens(t, &front, e));
    TRY(sana_text_clean(text, &clean, e));
    TokenRow row = {.encoder = "1", .count = front + length - 2, .lost_byte = -1};
    Status s = encode_all(t, instruct ? INSTRUCTION : "", clean, &row, &lost, e);
    free(clean);
    if (s == OK) s = model_check_ids("tokenizer", row.ids, row.count, vocab, e);
    if (s == OK && lost >= 0) {
        Text all = {text, strlen(text)}, seen = stripped(all);
        row.lost_byte = (int64_t)(seen.at - all.at) + (int64_t)source_of(seen, (size_t)lost);
    }
    if (s == OK) {
        *out = row;
    } else {
        free(row.ids);
        free(row.mask);
    }
    return s;
}

/* --- rows --- */

static int64_t real_tokens(const TokenRow *row) {
    int64_t n = 0;
    while (n < row->count && row->mask[n]) n++;
    return n ? n : 1;
}

/* Where the kept tail begins. */
static int64_t tail(const TokenRow *row, int64_t length) { return row->count - length + 1; }

int64_t sana_text_real(const TokenRow *row, int64_t length) {
    int64_t n = real_tokens(row), first = tail(row, length);
    return n > first ? n - first + 1 : 1;
}

Status sana_text_encode(const Gemma *te, Exec *x, const TokenRow *row, int64_t length, Tensor y) {
    size_t mark = arena_mark(x->work);
    int64_t kept = y.shape[0], first = tail(row, length), real = sana_text_real(row, length);
    bool padding = kept > real || x->ops->row_bits;
    int64_t count = padding ? row->count : kept > 1 ? first + kept - 1 : 1;
    Tensor ids = exec_new_as(x, I32, count), all = exec_new(x, count, te->c.hidden);
    TRY(exec_upload(x, ids, row->ids));
    TRY(te_gemma2_encode(te, x, ids, all));
    TRY(op_copy(x, &(Copy){.y = tensor_slice(y, 0, 0, 1), .x = tensor_slice(all, 0, 0, 1)}));
    if (kept > 1)
        TRY(op_copy(x, &(Copy){.y = tensor_slice(y, 0, 1, kept - 1), .x = tensor_slice(all, 0, first, kept - 1)}));
    arena_reset(x->work, mark);
    return OK;
}
