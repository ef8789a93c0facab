/* test_tokenizers.c - ids against those that the reference libraries gave for the cut vocabularies in
 * tests/vocab (scripts/cut_vocab.py), a sweep over all of Unicode, and every refusal.
 *
 * Run from the repository root. With arguments it is the tool that scripts/check_tokenizers.py and
 * bench_tokenizers.py drive on real vocabularies: `lines DIR [--no-special]`, `class DIR [--no-special]`,
 * `fixed DIR LENGTH`, `bench DIR TEXTFILE TIMES`. */
#include "core/clock.h"
#include "core/file.h"
#include "text/tok.h"
#include "text/tok_unicode.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct Score { int passed, failed; } Score;

static bool check(Score *score, bool good, const char *what, const char *detail) {
    if (good) score->passed++;
    else if (score->failed++ < 40) fprintf(stderr, "FAIL %s: %s\n", what, detail);
    return good;
}

/* --- recorded ids --- */

/* tok_lines over texts.jsonl into memory; the text has "[1,2]" lines. */
static char *encode_file(const Tokenizer *t, const char *path, size_t *size, Error *e) {
    char *out = NULL;
    FILE *in = fopen(path, "r"), *memory = open_memstream(&out, size);
    Status s = in && memory ? tok_lines(t, in, memory, true, e) : fail(e, ERR_IO, "%s: cannot open", path);
    if (in) fclose(in);
    if (memory) fclose(memory);
    if (s == OK) return out;
    free(out);
    return NULL;
}

/* Whether "[1,2,3]\n" says the same as "1 2 3\n". Moves both to the next line. */
static bool same_line(char **ours, char **theirs) {
    char *a = *ours + 1, *b = *theirs;
    bool same = **ours == '[';
    while (*a && *a != '\n' && *b && *b != '\n' && same) {
        same = *a == *b || (*a == ',' && *b == ' ');
        a++, b++;
    }
    same &= *a == ']' ? *b == '\n' : *a == *b;
    *ours = strchr(*ours, '\n');
    *theirs = strchr(*theirs, '\n');
    *ours = *ours ? *ours + 1 : NULL;
    *theirs = *theirs ? *theirs + 1 : NULL;
    return same && *a;
}

/* Overwrites the lines of `ids` that class.txt ("number: ids") replaces. malloc'd. */
static char *with_class(const char *ids, char *class) {
    char *out = malloc(strlen(ids) + strlen(class) + 1), *end = out;
    char *next = class;
    long number = *next ? strtol(next, &next, 10) : -1;
    for (long line = 0; *ids && out; line++) {
        const char *stop = strchr(ids, '\n') + 1;
        if (line == number) {
            char *row = next + 2, *row_end = strchr(row, '\n') + 1;
            memcpy(end, row, (size_t)(row_end - row));
            end += row_end - row;
            next = row_end;
            number = *next ? strtol(next, &next, 10) : -1;
        } else {
            memcpy(end, ids, (size_t)(stop - ids));
            end += stop - ids;
        }
        ids = stop;
    }
    if (out) *end = 0;
    return out;
}

static void recorded(Score *score, const Tokenizer *t, char *want, const char *name) {
    Error e = {0};
    size_t size;
    char *got = encode_file(t, "tests/vocab/texts.jsonl", &size, &e), text[64];
    if (!check(score, got != NULL, name, e.text)) return;
    char *a = got, *b = want;
    for (int line = 1; a && b && (*a || *b); line++) {
        snprintf(text, sizeof text, "ids of tests/vocab/texts.jsonl line %d", line);
        check(score, same_line(&a, &b), name, text);
    }
    check(score, a && b && !*a && !*b, name, "number of lines");
    free(got);
}

/* --- the sweep --- */

static uint32_t crc_ids(const uint32_t table[256], uint32_t crc, const TokenIds *ids) {
    crc = ~crc;
    for (int64_t i = 0; i < ids->count; i++)
        for (int k = 0; k < 4; k++) crc = table[(crc ^ (uint32_t)ids->ids[i] >> 8 * k) & 255] ^ crc >> 8;
    return ~crc;
}

/* cut_vocab.py's surroundings(): text[0, return) with every % replaced. */
static size_t surround(const char *c, size_t n, char text[256]) {
    const char *form =
        "a%b %\xcc\x81 \xe2\x84\xa2%\xcc\x81 e%\xcc\xa3 %\xe2\x84\xa2\xcc\x81 %\xe2\x80\x8d\xe2\x84\xa2\xcc\x81 "
        "\xe0\xa4\x95\xe0\xa5\x8d%\xcc\x81 \xe0\xa4\x95\xe0\xa5\x8d\xe0\xa4\x95%\xcc\x81 "
        "%\xe0\xa5\x8d\xe0\xa5\x98\xcc\x81 \xc2\xa9%\xe2\x80\x8d\xe2\x84\xa2\xcc\x81";
    size_t size = 0;
    for (; *form; form++) {
        if (*form == '%') memcpy(text + size, c, n), size += n;
        else text[size++] = *form;
    }
    return size;
}

static void sweep(Score *score, const Tokenizer *t, char *want, const char *name) {
    uint32_t table[256];
    for (uint32_t i = 0; i < 256; i++) {
        table[i] = i;
        for (int k = 0; k < 8; k++) table[i] = table[i] >> 1 ^ (table[i] & 1 ? 0xedb88320u : 0);
    }
    for (uint32_t block = 0; block < 0x110000; block += 4096, want += strnlen(want, 9)) {
        if (block >= 0x34000 && block % 0x10000) continue; /* unassigned and private: one block a plane will do */
        uint32_t crc = 0;
        Status s = OK;
        TokenIds ids = {0};
        for (uint32_t c = block; c < block + 4096 && s == OK; c++) {
            if (c >= 0xd800 && c <= 0xdfff) continue;
            char one[4], text[256];
            size_t size = surround(one, tok_unicode_encode(c, one), text);
            ids.count = 0;
            s = tok_encode(t, text, size, false, &ids, NULL);
            crc = crc_ids(table, crc, &ids);
        }
        tok_ids_free(&ids);
        char text[64], line[20];
        snprintf(line, sizeof line, "%08" PRIx32, crc);
        snprintf(text, sizeof text, "code points U+%04X to U+%04X", block, block + 4095);
        check(score, s == OK && !strncmp(line, want, 8), name, text);
    }
}

/* --- what a pipeline asks --- */

static void clip_lengths(Score *score, const Tokenizer *t) {
    const char *name = "clip";
    int32_t ids[77], mask[77];
    int64_t used, lost;
    Error e = {0};
    const char *prompt = "a photo of a cat";
    check(score, tok_encode_fixed(t, prompt, strlen(prompt), 77, ids, mask, &used, &lost, &e) == OK, name, e.text);
    check(score, used == 7 && lost == -1 && ids[0] == tok_bos(t) && ids[6] == tok_eos(t) && ids[7] == tok_pad(t) &&
                     ids[76] == tok_pad(t) && mask[6] == 1 && mask[7] == 0 && mask[76] == 0, name, "padding to 77");
    TokenIds all = {0};
    check(score, tok_encode(t, prompt, strlen(prompt), true, &all, &e) == OK && all.count == 7, name, "a plain prompt");
    const int64_t starts[] = {-1, 0, 2, 8, 11, 13, -1}, ends[] = {-1, 1, 7, 10, 12, 16, -1};
    for (int i = 0; i < 7 && all.count == 7; i++)
        check(score, all.start[i] == starts[i] && all.end[i] == ends[i] && all.ids[i] == ids[i], name, "offsets");
    char text[1000] = "";
    for (int i = 0; i < 75; i++) strcat(text, i % 2 ? "a " : "of ");
    size_t fits = strlen(text);
    check(score, tok_encode_fixed(t, text, fits, 77, ids, mask, &used, &lost, &e) == OK && used == 77 && lost == -1 &&
                     ids[76] == tok_eos(t), name, "75 words just fit");
    strcat(text, " \n balloon red");
    check(score, tok_encode_fixed(t, text, strlen(text), 77, ids, mask, &used, &lost, &e) == OK && used == 77 &&
                     (size_t)lost == fits + 3 && ids[0] == tok_bos(t) && ids[76] == tok_eos(t), name, "76th word lost");
    check(score, tok_encode_fixed(t, text, strlen(text), 1, ids, mask, NULL, NULL, &e) == ERR_USAGE &&
                     strstr(e.text, "at least 2"), name, "a limit below the special tokens is refused");
    size_t size;
    const char *piece = tok_piece(t, ids[76], &size);
    check(score, piece && size == 13 && !strcmp(piece, "<|endoftext|>") && tok_find(t, piece, size) == tok_eos(t) &&
                     !tok_piece(t, -1, NULL) && !tok_piece(t, tok_vocab_size(t), NULL) && tok_max_length(t) == 77 &&
                     tok_vocab_size(t) == 5514 && tok_unk(t) == tok_eos(t), name, "pieces and sizes");
    tok_ids_free(&all);
}

static void t5_lengths(Score *score, const Tokenizer *t) {
    int32_t ids[16], mask[16];
    int64_t used, lost;
    Error e = {0};
    check(score, tok_encode_fixed(t, "", 0, 16, ids, mask, &used, &lost, &e) == OK && used == 1 && ids[0] == tok_eos(t) &&
                     ids[1] == tok_pad(t) && tok_pad(t) == 0 && tok_eos(t) == 1 && tok_bos(t) == -1 && mask[0] && !mask[1],
          "t5", "the empty prompt");
    const char *text = "of of of of of of of of of of of of of of of lost words";
    check(score, tok_encode_fixed(t, text, strlen(text), 16, ids, NULL, &used, &lost, &e) == OK && used == 16 &&
                     lost == 45 && ids[15] == tok_eos(t) && ids[14] == ids[0], "t5", "truncation names the word");
    check(score, tok_max_length(t) == 512 && tok_unk(t) == 2, "t5", "length limit, unknown token");
}

static void bad_text(Score *score, const Tokenizer *t) {
    const struct { const char *text; size_t size, at; } bad[] = {
        {"ok \xff", 4, 3}, {"\xc0\xaf", 2, 0}, {"a\xe2\x82", 3, 1}, {"\xed\xa0\x80", 3, 0}, {"x\xf4\x90\x80\x80", 5, 1},
        {"\xe0\x80\xaf", 3, 0}, {"\xf0\x80\x80\xaf", 4, 0}, {"\x80", 1, 0}, {"ab\xf5\x80\x80\x80", 6, 2}, {"\xc3(", 2, 0}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        Error e = {0};
        TokenIds ids = {0};
        char at[32];
        snprintf(at, sizeof at, "byte %zu ", bad[i].at);
        check(score, tok_encode(t, bad[i].text, bad[i].size, true, &ids, &e) == ERR_USAGE && strstr(e.text, at) &&
                         strstr(e.text, "not valid UTF-8") && !ids.count, "invalid UTF-8", e.text);
        tok_ids_free(&ids);
    }
}

/* --- lines --- */

static void lines(Score *score, const Tokenizer *t) {
    const struct { const char *in; bool good; } cases[] = {
        {"\"\"", true}, {" \"a\" \r", true}, {"\"\\ud83d\\ude00\\u0000\\n\\\"\\\\\\/\"", true}, {"a", false}, {"\"a", false},
        {"\"a\" \"b\"", false}, {"\"\\ud83d\"", false}, {"\"\\ude00\"", false}, {"\"\\x\"", false}, {"\"\\u12\"", false},
        {"\"\t\"", false}, {"", false}, {"[\"a\"]", false}, {"\"\\\"", false}, {"\"\\ud83d\\u0041\"", false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[128], *out = NULL;
        size_t size;
        Error e = {0};
        snprintf(text, sizeof text, "\"x\"\n%s\n", cases[i].in);
        FILE *in = fmemopen(text, strlen(text), "r"), *memory = open_memstream(&out, &size);
        Status s = tok_lines(t, in, memory, true, &e);
        fclose(in);
        fclose(memory);
        check(score, cases[i].good ? s == OK : s == ERR_USAGE && strstr(e.text, "line 2"), "lines", cases[i].in);
        free(out);
    }
    FILE *in = fopen("tests/vocab/texts.jsonl", "r"), *full = fopen("/dev/full", "w");
    Error e = {0};
    if (in && full) check(score, tok_lines(t, in, full, true, &e) == ERR_IO, "lines", "a full disk is reported");
    if (in) fclose(in);
    if (full) fclose(full);
}

/* --- small tokenizers in memory --- */

#define BPE \
    "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2,\"<unk>\":3,\"<0xC3>\":4,\"<0xA9>\":5},\"merges\":[\"a b\"]"
#define UNIGRAM "\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"<unk>\",0],[\"a\",-1.5],[\"aa\",-2e0]]"

static void refusals(Score *score) {
    const struct { const char *json, *names; } cases[] = {
        {"{", "not valid JSON"},
        {"{}", "model: type \"missing\""},
        {"{\"model\":{\"type\":\"WordPiece\"}}", "WordPiece"},
        {"{\"normalizer\":{\"type\":\"BertNormalizer\"}," BPE "}}", "BertNormalizer"},
        {"{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFKC\"}]}," BPE "}}", "NFKC"},
        {"{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"x+\"},\"content\":\"\"}," BPE "}}", "\"x+\""},
        {"{\"normalizer\":{\"type\":\"Replace\",\"pattern\":{\"String\":\"\"},\"content\":\"\"}," BPE "}}", "empty string"},
        {"{\"normalizer\":{\"type\":\"Precompiled\",\"precompiled_charsmap\":\"AAAA\"}," BPE "}}", "damaged"},
        {"{\"pre_tokenizer\":{\"type\":\"Digits\"}," BPE "}}", "Digits"},
        {"{\"pre_tokenizer\":{\"type\":\"ByteLevel\"}," BPE "}}", "add_prefix_space"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"\\\\w\"},\"behavior\":\"Removed\"}," BPE "}}",
         "\\w"},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"x\"},\"behavior\":\"Contiguous\"}," BPE "}}",
         "Contiguous"},
        {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"prepend_scheme\":\"last\"}," BPE "}}", "last"},
        {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"xy\"}," BPE "}}", "one character"},
        {"{\"post_processor\":{\"type\":\"Unknown\"}," BPE "}}", "Unknown"},
        {"{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[]}," BPE "}}", "once"},
        {"{\"post_processor\":{\"type\":\"RobertaProcessing\",\"cls\":[\"x\",9],\"sep\":[\"x\",9]}," BPE "}}",
         "id of the vocabulary"},
        {"{" BPE ",\"dropout\":0.1}}", "dropout"},
        {"{" BPE ",\"continuing_subword_prefix\":\"##\"}}", "continuing_subword_prefix"},
        {"{" BPE ",\"end_of_word_suffix\":\"</w>\"}}", "end_of_word_suffix"},
        {"{" BPE ",\"unk_token\":\"?\"}}", "unk_token"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a a\"]}}", "not all of it"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0},\"merges\":[\"a\"]}}", "no pair"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":0},\"merges\":[]}}", "id 0 is given"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":-1},\"merges\":[]}}", "expected an id"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":1e9},\"merges\":[]}}", "expected an id"},
        {"{\"model\":{\"type\":\"BPE\",\"vocab\":{\"\xff\":1},\"merges\":[]}}", "UTF-8"},
        {"{" UNIGRAM ",\"byte_fallback\":true}}", "byte_fallback"},
        {"{\"model\":{\"type\":\"Unigram\",\"unk_id\":3,\"vocab\":[[\"a\",0]]}}", "unk_id"},
        {"{\"model\":{\"type\":\"Unigram\",\"unk_id\":0,\"vocab\":[[\"a\"]]}}", "entry 0"},
        {"{\"added_tokens\":[{\"id\":1,\"content\":\"a\"}]," BPE "}}", "has id 1"},
        {"{\"added_tokens\":[{\"id\":1,\"content\":\"x\"}]," BPE "}}", "which is \"b\""},
        {"{\"added_tokens\":[{\"id\":7,\"content\":\"x\",\"single_word\":true}]," BPE "}}", "single_word"},
        {"{\"added_tokens\":[{\"id\":99999999,\"content\":\"x\"}]," BPE "}}", "an id below"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Error e = {0};
        Tokenizer *t = NULL;
        Status s = tok_parse(cases[i].json, strlen(cases[i].json), "mem", &t, &e);
        char detail[3000];
        snprintf(detail, sizeof detail, "%s -> %s", cases[i].json, e.text);
        check(score, s == ERR_MODEL && !t && !strncmp(e.text, "mem", 3) && strstr(e.text, cases[i].names), "refusal", detail);
        tok_close(t);
    }
    Error e = {0};
    Tokenizer *t = NULL;
    check(score, tok_open("tests/vocab", &t, &e) == ERR_MODEL && strstr(e.text, "neither"), "refusal", e.text);
    e = (Error){0};
    check(score, tok_open("tests/vocab/none", &t, &e) == ERR_MODEL && strstr(e.text, "no folder"), "refusal", e.text);
}

static void small(Score *score) {
    const struct { const char *json, *text; int32_t ids[8]; int count; } cases[] = {
        {"{" BPE "}}", "abba", {2, 1, 0}, 3},
        {"{" BPE "}}", "axb", {2}, 1}, /* no unknown token: unknown characters vanish before merging */
        {"{" BPE ",\"unk_token\":\"<unk>\"}}", "axxb", {0, 3, 3, 1}, 4},
        {"{" BPE ",\"unk_token\":\"<unk>\",\"fuse_unk\":true}}", "axxb", {0, 3, 1}, 3},
        {"{" BPE ",\"unk_token\":\"<unk>\",\"byte_fallback\":true}}", "a\xc3\xa9\xc3\xb6", {0, 4, 5, 3}, 4},
        {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"String\":\"x\"},\"behavior\":\"MergedWithNext\"}," BPE "}}",
         "axab", {0, 2}, 2},
        {"{\"added_tokens\":[{\"id\":6,\"content\":\"<s>\",\"lstrip\":true,\"rstrip\":true,\"special\":true}]," BPE
         ",\"unk_token\":\"<unk>\"}}", "a  <s> b <s", {0, 6, 1, 3, 3, 3}, 6},
        {"{" UNIGRAM "}}", "aaaxyaa", {1, 2, 0, 2}, 4},
        {"{\"normalizer\":{\"type\":\"Prepend\",\"prepend\":\"b\"}," BPE "}}", "ab", {1, 2}, 2},
        {"{\"normalizer\":{\"type\":\"Strip\"}," BPE ",\"unk_token\":\"<unk>\"}}", " \xe3\x80\x80" "a b \n", {0, 3, 1}, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Error e = {0};
        Tokenizer *t = NULL;
        TokenIds ids = {0};
        Status s = tok_parse(cases[i].json, strlen(cases[i].json), "mem", &t, &e);
        if (s == OK) s = tok_encode(t, cases[i].text, strlen(cases[i].text), true, &ids, &e);
        bool same = s == OK && ids.count == cases[i].count && !memcmp(ids.ids, cases[i].ids, (size_t)ids.count * 4);
        char detail[3000];
        snprintf(detail, sizeof detail, "%s: %s: case %zu gives %lld ids, first %d", cases[i].text, e.text, i,
                 (long long)ids.count, ids.count ? ids.ids[0] : -1);
        check(score, same, "small", detail);
        tok_ids_free(&ids);
        tok_close(t);
    }
}

/* A long word goes through the heap, its halves do not; the pieces must be the same where nothing joins them. */
static void long_words(Score *score, const Tokenizer *clip) {
    enum { TIMES = 4000 };
    char *text = malloc(TIMES * 3 + 1);
    TokenIds ids = {0};
    for (int i = 0; i < TIMES; i++) memcpy(text + 3 * i, "\xe7\x8c\xab", 3); /* no merge crosses the character */
    bool good = tok_encode(clip, text, 3, false, &ids, NULL) == OK;
    int64_t one = ids.count;
    good = good && tok_encode(clip, text, TIMES * 3, false, &ids, NULL) == OK;
    int64_t each = one ? (ids.count - one) / TIMES : 0;
    check(score, good && each >= 1, "long words", "a word of 4,000 characters");
    for (int64_t i = each; good && i + 2 * each < ids.count - one; i++)
        good = ids.ids[one + i] == ids.ids[one + i + each];
    check(score, good, "long words", "the heap repeats itself");
    tok_ids_free(&ids);
    free(text);
}

/* Folders from before added_tokens_decoder: what the reference gave for the same vocabulary and this text. */
static void old_clip(Score *score) {
    const char *text = "a <|STARTOFTEXT|> b <|startoftext|> <|ENDOFTEXT|>!<|endoftext|>";
    const struct { const char *config; int32_t ids[24]; int count; } cases[] = {
        {"{\"tokenizer_class\":\"CLIPTokenizer\",\"bos_token\":{\"content\":\"<|startoftext|>\",\"normalized\":true},"
         "\"eos_token\":{\"content\":\"<|endoftext|>\",\"normalized\":true},\"pad_token\":\"<|endoftext|>\"}",
         {5512, 320, 5512, 321, 5512, 27, 347, 524, 639, 69, 4160, 91, 285, 256, 5513, 5513}, 16},
        {"{\"tokenizer_class\":\"CLIPTokenizer\",\"pad_token\":\"!\"}",
         {5512, 320, 27, 347, 993, 580, 69, 4160, 91, 285, 321, 5512, 27, 347, 524, 639, 69, 4160, 91, 285, 0, 5513, 5513}, 23}};
    char dir[] = "/tmp/ditto-tok-XXXXXX", from[5000], to[200], *root = realpath("tests/vocab/clip", NULL);
    if (!check(score, root && mkdtemp(dir), "old clip", "a temporary folder")) return free(root);
    static const char *const files[] = {"vocab.json", "merges.txt", "tokenizer_config.json"};
    for (int i = 0; i < 2; i++) {
        snprintf(from, sizeof from, "%s/%s", root, files[i]);
        snprintf(to, sizeof to, "%s/%s", dir, files[i]);
        check(score, !symlink(from, to), "old clip", to);
    }
    snprintf(to, sizeof to, "%s/%s", dir, files[2]);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        Error e = {0};
        Tokenizer *t = NULL;
        TokenIds ids = {0};
        Status s = file_write_atomic(to, cases[i].config, strlen(cases[i].config), true, &e);
        if (s == OK) s = tok_open(dir, &t, &e);
        if (s == OK) s = tok_encode(t, text, strlen(text), true, &ids, &e);
        check(score, s == OK && ids.count == cases[i].count && !memcmp(ids.ids, cases[i].ids, (size_t)ids.count * 4) &&
                         tok_pad(t) == (i ? 0 : 5513) && tok_eos(t) == 5513 && tok_max_length(t) == INT64_MAX,
              "old clip", e.text);
        tok_ids_free(&ids);
        tok_close(t);
    }
    for (int i = 0; i < 3; i++) {
        snprintf(to, sizeof to, "%s/%s", dir, files[i]);
        unlink(to);
    }
    rmdir(dir);
    free(root);
}

static int test(void) {
    Score score = {0, 0};
    Error e = {0};
    Tokenizer *clip = NULL, *t5 = NULL, *class = NULL, *same = NULL, *clusters = NULL, *qwen = NULL;
    char *clip_ids, *clip_sweep, *t5_ids, *t5_sweep, *t5_class, *clusters_ids, *clusters_sweep, *qwen_ids, *qwen_sweep;
    bool opened = tok_open("tests/vocab/clip", &clip, &e) == OK && tok_open("tests/vocab/t5", &t5, &e) == OK &&
                  tok_open_class("tests/vocab/t5", &class, &e) == OK && tok_open_class("tests/vocab/clip", &same, &e) == OK &&
                  file_read("tests/vocab/clip/ids.txt", &clip_ids, NULL, &e) == OK &&
                  file_read("tests/vocab/clip/sweep.txt", &clip_sweep, NULL, &e) == OK &&
                  tok_open("tests/vocab/qwen", &qwen, &e) == OK &&
                  file_read("tests/vocab/qwen/ids.txt", &qwen_ids, NULL, &e) == OK &&
                  file_read("tests/vocab/qwen/sweep.txt", &qwen_sweep, NULL, &e) == OK &&
                  tok_open("tests/vocab/clusters", &clusters, &e) == OK &&
                  file_read("tests/vocab/clusters/ids.txt", &clusters_ids, NULL, &e) == OK &&
                  file_read("tests/vocab/clusters/sweep.txt", &clusters_sweep, NULL, &e) == OK &&
                  file_read("tests/vocab/t5/ids.txt", &t5_ids, NULL, &e) == OK &&
                  file_read("tests/vocab/t5/class.txt", &t5_class, NULL, &e) == OK &&
                  file_read("tests/vocab/t5/sweep.txt", &t5_sweep, NULL, &e) == OK;
    if (!check(&score, opened, "open", e.text)) return printf("%d passed, %d failed\n", score.passed, score.failed), 1;
    char *class_ids = with_class(t5_ids, t5_class);
    recorded(&score, clip, clip_ids, "clip");
    recorded(&score, same, clip_ids, "clip by class");
    recorded(&score, t5, t5_ids, "t5");
    recorded(&score, class, class_ids, "t5 by class");
    sweep(&score, clip, clip_sweep, "clip sweep");
    sweep(&score, t5, t5_sweep, "t5 sweep");
    recorded(&score, clusters, clusters_ids, "clusters");
    sweep(&score, clusters, clusters_sweep, "clusters sweep");
    recorded(&score, qwen, qwen_ids, "qwen");
    sweep(&score, qwen, qwen_sweep, "qwen sweep");
    clip_lengths(&score, clip);
    t5_lengths(&score, t5);
    bad_text(&score, clip);
    bad_text(&score, t5);
    bad_text(&score, qwen);
    lines(&score, clip);
    refusals(&score);
    small(&score);
    long_words(&score, clip);
    old_clip(&score);
    tok_close(clip), tok_close(t5), tok_close(class), tok_close(same), tok_close(clusters), tok_close(qwen);
    free(clip_ids), free(clip_sweep), free(t5_ids), free(t5_sweep), free(t5_class), free(class_ids);
    free(clusters_ids), free(clusters_sweep), free(qwen_ids), free(qwen_sweep);
    printf("%d passed, %d failed\n", score.passed, score.failed);
    return score.failed != 0;
}

/* --- the tool --- */

static Status bench(const Tokenizer *t, const char *path, int times, Error *e) {
    char *text;
    size_t size;
    TRY(file_read(path, &text, &size, e));
    Status s = OK;
    for (int i = 0; i < times && s == OK; i++) {
        TokenIds ids = {0};
        double began = clock_now();
        s = tok_encode(t, text, size, true, &ids, e);
        printf("%zu bytes, %lld ids, %.2f ms\n", size, (long long)ids.count, 1e3 * (clock_now() - began));
        tok_ids_free(&ids);
    }
    free(text);
    return s;
}

/* One text a line (line breaks escaped by the caller's choice of texts), ids padded and truncated. */
static Status fixed(const Tokenizer *t, int64_t length, Error *e) {
    char *line = NULL;
    size_t cap = 0;
    ssize_t size;
    int32_t *ids = malloc((size_t)length * sizeof *ids);
    Status s = ids ? OK : fail(e, ERR_MEMORY, "out of memory");
    while (s == OK && (size = getline(&line, &cap, stdin)) > 0) {
        if (line[size - 1] == '\n') size--;
        s = tok_encode_fixed(t, line, (size_t)size, length, ids, NULL, NULL, NULL, e);
        for (int64_t i = 0; i < length && s == OK; i++) printf(i ? ",%d" : "[%d", ids[i]);
        puts("]");
    }
    free(line);
    free(ids);
    return s;
}

int main(int argc, char **argv) {
    if (argc == 1) return test();
    Error e = {0};
    Tokenizer *t = NULL;
    bool by_class = !strcmp(argv[1], "class") || !strcmp(argv[1], "fixed");
    Status s = argc < 3 ? fail(&e, ERR_USAGE, "needs a folder") : (by_class ? tok_open_class : tok_open)(argv[2], &t, &e);
    bool specials = argc < 4 || strcmp(argv[3], "--no-special");
    if (s == OK && !strcmp(argv[1], "bench")) s = argc == 5 ? bench(t, argv[3], atoi(argv[4]), &e) : ERR_USAGE;
    else if (s == OK && !strcmp(argv[1], "fixed")) s = argc == 4 ? fixed(t, atol(argv[3]), &e) : ERR_USAGE;
    else if (s == OK) s = tok_lines(t, stdin, stdout, specials, &e);
    tok_close(t);
    if (s != OK) fprintf(stderr, "%s\n", e.text);
    return (int)s;
}
