/* test_sana_text.c - SANA-Video's prompts against SanaVideoPipeline and Python (tests/golden/gemma2.txt, written by
 * scripts/dump_golden_gemma2.py): lower case and stripping, ids behind the instruction and alone, which rows are kept; where a
 * cut text was cut; the encoder run for the kept rows.
 *
 * With a folder as argument and a recording made with --tokenizer: the published tokenizer
 * (test_sana_text DIR FILE). Easy to get wrong: run from the repository root. */
#include "expect.h"
#include "golden_gemma2.h"
#include "models/sana_text.h"

#include <inttypes.h>

static uint64_t fnv1a(const int32_t *ids, int64_t n) {
    uint64_t h = 0xcbf29ce484222325u;
    for (const unsigned char *c = (const unsigned char *)ids, *end = c + 4 * n; c < end; c++) h = (h ^ *c) * 0x100000001b3u;
    return h;
}

/* A JSON string at *line, which moves behind it and the space after it; free with cJSON_Delete. */
static cJSON *string_at(const char **line) {
    cJSON *j = cJSON_ParseWithOpts(*line, line, 0);
    if (!cJSON_IsString(j)) abort();
    while (**line == ' ') ++*line;
    return j;
}

static void check_lower(const char *line) {
    cJSON *text = string_at(&line), *want = string_at(&line);
    char *got = NULL;
    Error e = {0};
    expect_ok(sana_text_clean(text->valuestring, &got, &e), &e);
    expect_at(got && !strcmp(got, want->valuestring), text->valuestring, "lower", 0);
    free(got);
    cJSON_Delete(text);
    cJSON_Delete(want);
}

static void free_row(TokenRow *r) {
    free(r->ids);
    free(r->mask);
}

static void check_prompt(const Tokenizer *t, const char *line) {
    cJSON *text = string_at(&line);
    char kind[16];
    int64_t total, used;
    uint64_t hash;
    TokenRow row;
    Error e = {0};
    expect(sscanf(line, "%15s %" SCNd64 " %" SCNd64 " %" SCNx64, kind, &total, &used, &hash) == 4);
    bool positive = !strcmp(kind, "positive");
    expect_ok(sana_text_tokenize(t, text->valuestring, positive, SANA_TEXT_LENGTH, tok_vocab_size(t), &row, &e), &e);
    bool good = row.count == total && row.used == used && row.ids && fnv1a(row.ids, row.count) == hash;
    for (int64_t i = 0; good && i < total; i++) good = row.mask[i] == (i < used);
    expect_at(good, text->valuestring, kind, 0);
    int64_t real = sana_text_real(&row, SANA_TEXT_LENGTH), front = total - SANA_TEXT_LENGTH; /* tokens that are left out */
    expect_at(real == (used > front + 1 ? used - front : 1), text->valuestring, "real rows", (int)real);
    if (row.lost_byte >= 0) expect_at(used == total && row.lost_byte < (int64_t)strlen(text->valuestring), "cut", kind, 0);
    free_row(&row);
    cJSON_Delete(text);
}

/* Row 0 and the last 299: what sana_text_real and sana_text_encode suppose. */
static void check_kept(const char *line) {
    char kind[16];
    int64_t total, first, second, rows;
    expect(sscanf(line, "%15s %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64, kind, &total, &first, &second, &rows) == 5);
    expect_at(rows == SANA_TEXT_LENGTH && first == 0 && second == total - SANA_TEXT_LENGTH + 1, kind, "kept rows", 0);
}

static Tokenizer *check_recording(const char *path, const char *folder) {
    Tokenizer *t = NULL;
    Error e = {0};
    char *line = NULL;
    size_t cap = 0;
    int lowers = 0, prompts = 0, kept = 0;
    FILE *f = fopen(path, "r");
    expect(f != NULL);
    if (folder) expect_ok(tok_open(folder, &t, &e), &e);
    while (f && getline(&line, &cap, f) > 0) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "tokenizer ", 10)) {
            char tmp[500];
            expect_folder(tmp, sizeof tmp);
            expect_text(tmp, "tokenizer.json", line + 10);
            expect_text(tmp, "tokenizer_config.json", "{\"bos_token\": \"<bos>\", \"eos_token\": \"<eos>\", "
                                                      "\"pad_token\": \"<pad>\", \"unk_token\": \"<unk>\"}");
            expect_ok(tok_open(tmp, &t, &e), &e);
            expect_cleanup(tmp);
        } else if (!strncmp(line, "lower ", 6)) {
            check_lower(line + 6), lowers++;
        } else if (t && !strncmp(line, "prompt ", 7)) {
            check_prompt(t, line + 7), prompts++;
        } else if (!strncmp(line, "kept ", 5)) {
            check_kept(line + 5), kept++;
        } else {
            expect_at(0, line, "a line of the recording", 0);
        }
    }
    expect(lowers >= 12 && prompts == 2 * lowers && kept == 2);
    free(line);
    if (f) fclose(f);
    return t;
}

/* --- one by one --- */

static void cut_texts(const Tokenizer *t) {
    char text[2000];
    TokenRow row;
    Error e = {0};
    /* negative: BOS and 299 characters fit; in front blanks that are stripped, a letter that grows by a byte when lowered */
    snprintf(text, sizeof text, "  \xc4\xb0");
    size_t n = strlen(text);
    memset(text + n, '!', 600);
    text[n + 600] = 0;
    expect_ok(sana_text_tokenize(t, text, false, SANA_TEXT_LENGTH, tok_vocab_size(t), &row, &e), &e);
    /* i, two bytes of the dot above, then 296 marks of exclamation */
    expect(row.used == 300 && row.count == 300 && row.lost_byte == (int64_t)n + 296);
    free_row(&row);
    expect_ok(sana_text_tokenize(t, text, true, 20, tok_vocab_size(t), &row, &e), &e);
    expect(row.used == row.count && row.lost_byte > 4 && row.lost_byte < 30);
    free_row(&row);
    expect_ok(sana_text_tokenize(t, "a cat", true, SANA_TEXT_LENGTH, tok_vocab_size(t), &row, &e), &e);
    expect(row.lost_byte == -1 && !strcmp(row.encoder, "1") && row.ids[0] == tok_bos(t));
    free_row(&row);
    expect_status(sana_text_tokenize(t, "a\xff", true, SANA_TEXT_LENGTH, tok_vocab_size(t), &row, &e), ERR_USAGE, "byte 1", &e);
    expect(!row.ids && !row.mask);
    expect_status(sana_text_tokenize(t, "~", false, SANA_TEXT_LENGTH, 200, &row, &e), ERR_MODEL, "vocabulary of 200", &e);
    expect(!row.ids && !row.mask);
    char *moved = NULL;
    expect_ok(sana_text_motion("a red circle", 30, &moved, &e), &e);
    expect(moved && !strcmp(moved, "a red circle motion score: 30."));
    free(moved);
}

/* Rows of the encoder, all tokens run or the real ones alone. */
static void encoded(void) {
    enum { COUNT = 12, LENGTH = 6, USED = 9 };
    char folder[500], model[600];
    int32_t ids[COUNT], mask[COUNT];
    Gemma te = {0};
    GoldenWeights w = {.bind.prefix = ""};
    Golden g;
    if (golden_open(&g) != OK) abort();
    Error *e = &g.error;
    expect_folder(folder, sizeof folder);
    snprintf(model, sizeof model, "%s/text_encoder", folder);
    gemma2_write(model);
    expect_ok(te_gemma2_open(model, &te, e), e);
    expect_ok(weights_open(model, &w.files, e), e);
    te_gemma2_bind(&te, w.files, &w.bind);
    expect_ok(golden_bind(&g, &w, F32, NULL), e);
    for (int i = 0; i < COUNT; i++) ids[i] = i < USED ? 5 + 11 * i : 0, mask[i] = i < USED;
    TokenRow row = {.encoder = "1", .ids = ids, .mask = mask, .count = COUNT, .used = USED, .lost_byte = -1};
    Tensor all_ids = exec_new_as(&g.x, I32, USED), all = exec_new(&g.x, USED, te.c.hidden);
    memcpy(all_ids.data, ids, sizeof(int32_t) * USED);
    expect_ok(te_gemma2_encode(&te, &g.x, all_ids, all), e);
    expect(sana_text_real(&row, LENGTH) == 3); /* tokens 0, 7, 8 */
    for (int bits = 0; bits < 2; bits++)
        for (int64_t kept = 3; kept <= LENGTH; kept += 3) {
            static const int64_t FROM[] = {0, 7, 8};
            Tensor y = exec_new(&g.x, kept, te.c.hidden);
            g.ops.row_bits = bits;
            expect_ok(sana_text_encode(&te, &g.x, &row, LENGTH, y), e);
            double worst = 0;
            for (int64_t i = 0; i < tensor_numel(y); i++) {
                double v = golden_at(y.data, F32, i);
                if (!isfinite(v)) worst = INFINITY;
                if (i >= 3 * te.c.hidden) continue;
                int64_t from = FROM[i / te.c.hidden] * te.c.hidden + i % te.c.hidden;
                worst = fmax(worst, fabs(v - golden_at(all.data, F32, from)));
            }
            expect(worst < 1e-5);
        }
    row.mask[0] = 0; /* an injected mask of nothing still leaves a row */
    expect(sana_text_real(&row, LENGTH) == 1);
    Tensor one = exec_new(&g.x, 1, te.c.hidden);
    g.ops.row_bits = false;
    expect_ok(sana_text_encode(&te, &g.x, &row, LENGTH, one), e);
    for (int64_t i = 0; i < te.c.hidden; i++) expect(fabs(golden_at(one.data, F32, i) - golden_at(all.data, F32, i)) < 1e-5);
    golden_unbind(&w);
    te_gemma_close(&te);
    golden_close(&g);
    expect_cleanup(folder);
}

int main(int argc, char **argv) {
    if (argc > 2) {
        tok_close(check_recording(argv[2], argv[1]));
        return expect_done();
    }
    Tokenizer *t = check_recording(GOLDEN_DIR "/gemma2.txt", NULL);
    if (t) cut_texts(t);
    tok_close(t);
    encoded();
    return expect_done();
}
