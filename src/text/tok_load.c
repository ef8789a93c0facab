/* tok_load.c - a tokenizer folder to a Tokenizer. See tok.h.
 *
 * tokenizer.json says everything about the ids; the names of the special tokens and the length limit stand in
 * tokenizer_config.json and special_tokens_map.json. Truncation and padding recorded in tokenizer.json are
 * left-overs of the run that saved it and are ignored. Easy to get wrong: CLIP is published without
 * tokenizer.json, and the pipeline its class builds is written down here. */
#include "core/file.h"
#include "text/tok_parts.h"
#include "text/tok_unicode.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

Status tok_pieces(Tokenizer *t, size_t count, Error *e) {
    if (count <= t->piece_count) return OK;
    TokPiece *p = realloc(t->pieces, count * sizeof *p);
    if (!p) return fail(e, ERR_MEMORY, "out of memory for a vocabulary of %zu", count);
    memset(p + t->piece_count, 0, (count - t->piece_count) * sizeof *p);
    t->pieces = p;
    t->piece_count = count;
    return OK;
}

/* --- the post-processor --- */

static Status around(Tokenizer *t, bool after, const Json *id, const char *where, Error *e) {
    int64_t value;
    int *count = after ? &t->after_count : &t->before_count;
    if (!json_as_int(id, &value) || value < 0 || (uint64_t)value >= t->piece_count)
        return fail(e, ERR_MODEL, "%s: post_processor: expected an id of the vocabulary", where);
    if (*count == TOK_AROUND_MAX) return fail(e, ERR_MODEL, "%s: post_processor: too many special tokens", where);
    (after ? t->after : t->before)[(*count)++] = (int32_t)value;
    return OK;
}

static Status parse_template(Tokenizer *t, const Json *j, const char *where, Error *e) {
    const Json *single = json_get(j, "single"), *specials = json_get(j, "special_tokens");
    int texts = 0;
    for (const Json *item = cJSON_IsArray(single) ? single->child : NULL; item; item = item->next) {
        const Json *special = json_get(item, "SpecialToken");
        const char *name = NULL;
        if (!special) {
            texts += json_get(item, "Sequence") != NULL;
            continue;
        }
        TRY(json_string(special, "id", &name, where, e));
        const Json *ids = json_get(name ? json_get(specials, name) : NULL, "ids");
        if (!cJSON_IsArray(ids))
            return fail(e, ERR_MODEL, "%s: post_processor: special token %.100s is not described", where, name ? name : "?");
        for (const Json *id = ids->child; id; id = id->next) TRY(around(t, texts, id, where, e));
    }
    return texts == 1 ? OK : fail(e, ERR_MODEL, "%s: post_processor: expected the text once in \"single\"", where);
}

static Status parse_post(Tokenizer *t, const Json *j, const char *where, Error *e) {
    if (json_is_null(j)) return OK;
    const char *type = NULL;
    TRY(json_string(j, "type", &type, where, e));
    if (!type) return fail(e, ERR_MODEL, "%s: post_processor: has no type", where);
    if (!strcmp(type, "ByteLevel")) return OK; /* changes offsets only */
    if ((t->before_count || t->after_count) && strcmp(type, "Sequence"))
        return fail(e, ERR_MODEL, "%s: post_processor: more than one that adds tokens is not implemented", where);
    if (!strcmp(type, "TemplateProcessing")) return parse_template(t, j, where, e);
    if (!strcmp(type, "RobertaProcessing") || !strcmp(type, "BertProcessing")) {
        TRY(around(t, false, cJSON_GetArrayItem(json_get(j, "cls"), 1), where, e));
        return around(t, true, cJSON_GetArrayItem(json_get(j, "sep"), 1), where, e);
    }
    if (strcmp(type, "Sequence"))
        return fail(e, ERR_MODEL, "%s: post_processor: type \"%.100s\" is not implemented", where, type);
    const Json *items = json_get(j, "processors");
    for (const Json *item = items ? items->child : NULL; item; item = item->next) TRY(parse_post(t, item, where, e));
    return OK;
}

/* --- the two layouts --- */

static Status start(Tokenizer **out, Error *e) {
    Tokenizer *t = calloc(1, sizeof *t);
    if (t) t->flags = malloc(UNICODE_COUNT * sizeof *t->flags);
    if (!t || !t->flags) {
        free(t);
        return fail(e, ERR_MEMORY, "out of memory for a tokenizer");
    }
    tok_unicode_fill(t->flags);
    t->pad = t->bos = t->eos = t->unk = -1;
    t->max_length = INT64_MAX;
    *out = t;
    return OK;
}

/* What the class CLIPTokenizer builds around its two files. */
static const char CLIP_STEPS[] =
    "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"NFC\"},"
    "{\"type\":\"Replace\",\"pattern\":{\"Regex\":\"\\\\s+\"},\"content\":\" \"},{\"type\":\"Lowercase\"}]},"
    "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":"
    "\"<\\\\|startoftext\\\\|>|<\\\\|endoftext\\\\|>|'s|'t|'re|'ve|'m|'ll|'d|[\\\\p{L}]+|[\\\\p{N}]|"
    "[^\\\\s\\\\p{L}\\\\p{N}]+\"},\"behavior\":\"Removed\",\"invert\":true},"
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"use_regex\":true}]}}";

/* What the class T5Tokenizer puts in place of the file's pre-tokenizer; of the normalisers it keeps the map. */
static const char T5_STEPS[] =
    "{\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"WhitespaceSplit\"},"
    "{\"type\":\"Metaspace\",\"replacement\":\"\xe2\x96\x81\",\"prepend_scheme\":\"always\",\"split\":true}]}}";

static bool is_clip(const char *class) { return !strcmp(class, "CLIPTokenizer") || !strcmp(class, "CLIPTokenizerFast"); }
static bool is_t5(const char *class) { return !strcmp(class, "T5Tokenizer") || !strcmp(class, "T5TokenizerFast"); }

/* Normalisers and pre-tokenizers: the file's, or those that the class builds. */
static Status load_text_steps(Tokenizer *t, const Json *j, const char *class, const char *where, Error *e) {
    if (!is_clip(class)) TRY(tok_norm_parse(json_get(j, "normalizer"), &t->norms, &t->norm_count, where, e));
    if (!is_clip(class) && !is_t5(class))
        return tok_split_parse(json_get(j, "pre_tokenizer"), &t->splits, &t->split_count, &t->byte_level, where, e);
    Json *steps;
    if (is_clip(class)) TRY(json_parse(CLIP_STEPS, sizeof CLIP_STEPS - 1, "CLIP", &steps, e));
    else TRY(json_parse(T5_STEPS, sizeof T5_STEPS - 1, "T5", &steps, e));
    Status s = tok_norm_parse(json_get(steps, "normalizer"), &t->norms, &t->norm_count, where, e);
    if (s == OK)
        s = tok_split_parse(json_get(steps, "pre_tokenizer"), &t->splits, &t->split_count, &t->byte_level, where, e);
    json_free(steps);
    if (is_t5(class)) tok_norm_keep(t->norms, &t->norm_count, NORM_CHARSMAP);
    return s;
}

/* class: "" for the file as it is. */
static Status load_steps(Tokenizer *t, const Json *j, const char *class, const char *text, size_t size,
                         const char *where, Error *e) {
    const Json *model = json_get(j, "model");
    const char *type = NULL;
    TRY(json_string(model, "type", &type, where, e));
    if (!type) type = json_get(model, "merges") ? "BPE" : "missing"; /* files older than the field */
    TRY(load_text_steps(t, j, class, where, e));
    if (is_t5(class)) text = NULL; /* Python reads the numbers, and reads them exactly */
    if (!strcmp(type, "Unigram")) TRY(tok_unigram_parse(t, model, text, size, where, e));
    else if (!strcmp(type, "BPE")) TRY(tok_bpe_parse(t, model, where, e));
    else return fail(e, ERR_MODEL, "%s: model: type \"%.100s\" is not implemented", where, type);
    if (t->unigram_model && t->byte_level)
        return fail(e, ERR_MODEL, "%s: pre_tokenizer: ByteLevel before Unigram is not implemented", where);
    TRY(tok_added_parse(t, json_get(j, "added_tokens"), where, e));
    return parse_post(t, json_get(j, "post_processor"), where, e);
}

/* Reads the JSON before anything big is allocated. */
static Status load_json(const char *class, const char *text, size_t size, const char *where, Tokenizer **out,
                        Error *e) {
    Json *j;
    TRY(json_parse(text, size, where, &j, e));
    Status s = start(out, e);
    if (s == OK) s = load_steps(*out, j, class, text, size, where, e);
    json_free(j);
    return s;
}

/* The text of a token that is an object; NULL: it has none. */
static const char *token_name_of(const Json *token) {
    const Json *content = json_get(token, "content");
    return cJSON_IsString(content) ? content->valuestring : NULL;
}

/* A special token's text: a string or an object with content. NULL when the key is absent. */
static const char *token_name(const Json *j, const char *key) {
    const Json *token = json_get(j, key);
    return cJSON_IsString(token) ? token->valuestring : token_name_of(token);
}

static const char *token_or(const Json *config, const Json *specials, const char *key, const char *otherwise) {
    const char *name = token_name(config, key);
    if (!name) name = token_name(specials, key);
    return name ? name : otherwise;
}

/* Folders older than added_tokens_decoder: the named special tokens become added tokens, searched in the raw text
 * unless their object says otherwise; of two names for one token the later counts (the reference has odder rules
 * where the names disagree; they show in "<|ENDOFTEXT|>" alone). A list for json_free into *out. */
static Status clip_added(const Tokenizer *t, const Json *config, const Json *specials, const char *dir, Json **out,
                         Error *e) {
    static const char *const keys[] = {"bos_token", "eos_token", "unk_token", "pad_token"};
    const Json *decoder = json_get(config, "added_tokens_decoder");
    Json *list = cJSON_CreateArray(), *token = NULL;
    bool good = list != NULL;
    *out = list;
    if (!json_is_null(decoder) && !cJSON_IsObject(decoder))
        return fail(e, ERR_MODEL, "%s/tokenizer_config.json: added_tokens_decoder: expected an object", dir);
    for (const Json *row = decoder ? decoder->child : NULL; row; row = row->next)
        if (!token_name_of(row))
            return fail(e, ERR_MODEL, "%s/tokenizer_config.json: added_tokens_decoder: %.40s: expected an object with content",
                        dir, row->string);
    for (const Json *row = decoder ? decoder->child : NULL; row && good; row = row->next) {
        token = cJSON_Duplicate(row, 1);
        good = token && cJSON_AddItemToArray(list, token);
        if (good && !json_get(token, "id")) good = cJSON_AddNumberToObject(token, "id", strtod(row->string, NULL)) != NULL;
    }
    for (int i = 0; i < 4 && good; i++) {
        const Json *named = json_get(config, keys[i]) ? json_get(config, keys[i]) : json_get(specials, keys[i]);
        const char *name = token_or(config, specials, keys[i], i ? "<|endoftext|>" : "<|startoftext|>");
        int32_t id = tok_find(t, name, strlen(name));
        bool decoded = false;
        for (const Json *row = decoder ? decoder->child : NULL; row; row = row->next)
            decoded |= !strcmp(token_name_of(row), name);
        if (decoded || id < 0) continue;
        for (Json *old = list->child; old; old = old->next)
            if (token_name_of(old) && !strcmp(token_name_of(old), name)) {
                cJSON_Delete(cJSON_DetachItemViaPointer(list, old));
                break;
            }
        token = cJSON_IsObject(named) ? cJSON_Duplicate(named, 1) : cJSON_CreateObject();
        good = token && cJSON_AddItemToArray(list, token);
        good = good && (token_name_of(token) || cJSON_AddStringToObject(token, "content", name)) &&
               (json_get(token, "special") || cJSON_AddTrueToObject(token, "special")) &&
               (json_get(token, "id") || cJSON_AddNumberToObject(token, "id", id));
    }
    return good ? OK : fail(e, ERR_MEMORY, "%s: out of memory", dir);
}

static Status load_clip(Tokenizer *t, const Json *vocab, const char *merges, size_t merges_size, const Json *config,
                        const Json *specials, const char *dir, Error *e) {
    const char *bos = token_or(config, specials, "bos_token", "<|startoftext|>");
    const char *eos = token_or(config, specials, "eos_token", "<|endoftext|>");
    const char *unk = token_or(config, specials, "unk_token", "<|endoftext|>");
    TRY(load_text_steps(t, NULL, "CLIPTokenizer", dir, e));
    TRY(tok_bpe_files(t, vocab, merges, merges_size, "</w>", unk, dir, e));
    Json *added = NULL;
    Status s = clip_added(t, config, specials, dir, &added, e);
    if (s == OK) s = tok_added_parse(t, added, dir, e);
    json_free(added);
    TRY(s);
    t->before[0] = tok_find(t, bos, strlen(bos));
    t->after[0] = tok_find(t, eos, strlen(eos));
    if (t->before[0] < 0 || t->after[0] < 0)
        return fail(e, ERR_MODEL, "%s: vocab.json: %s or %s is missing", dir, bos, eos);
    t->before_count = t->after_count = 1;
    t->bos = t->before[0]; /* the class's defaults; names in the files replace them */
    t->eos = t->pad = t->after[0];
    return OK;
}

/* --- a folder --- */

static Status read_optional(const char *dir, const char *name, Json **out, Error *e) {
    *out = NULL;
    char *path = file_join(dir, name);
    if (!path) return fail(e, ERR_MEMORY, "%s: out of memory", dir);
    Status s = file_exists(path) ? json_read_object(path, out, e) : OK;
    free(path);
    return s;
}

static Status open_files(Tokenizer *t, const char *dir, const Json *config, const Json *specials, Error *e) {
    const char *class = "";
    TRY(json_string(config, "tokenizer_class", &class, dir, e));
    char *vocab_path = file_join(dir, "vocab.json"), *merges_path = file_join(dir, "merges.txt"), *merges = NULL;
    Json *vocab = NULL;
    size_t size = 0;
    Status s = OK;
    if (!vocab_path || !merges_path) s = fail(e, ERR_MEMORY, "%s: out of memory", dir);
    else if (!file_exists(vocab_path) || !file_exists(merges_path))
        s = fail(e, ERR_MODEL, "%s: holds neither tokenizer.json nor vocab.json with merges.txt", dir);
    else if (!is_clip(class))
        s = fail(e, ERR_MODEL, "%s/tokenizer_config.json: tokenizer_class is \"%.100s\", expected CLIPTokenizer (or a "
                 "tokenizer.json)", dir, class);
    if (s == OK) s = json_read(vocab_path, &vocab, e);
    if (s == OK) s = file_read(merges_path, &merges, &size, e);
    if (s == OK) s = load_clip(t, vocab, merges, size, config, specials, dir, e);
    free(merges);
    json_free(vocab);
    free(vocab_path);
    free(merges_path);
    return s;
}

static Status name_ids(Tokenizer *t, const Json *config, const Json *specials, const char *dir, Error *e) {
    const struct { const char *key; int32_t *id; } names[] = {
        {"pad_token", &t->pad}, {"bos_token", &t->bos}, {"eos_token", &t->eos}};
    for (size_t i = 0; i < 3; i++) {
        const char *name = token_or(config, specials, names[i].key, NULL);
        if (name && (*names[i].id = tok_find(t, name, strlen(name))) < 0)
            return fail(e, ERR_MODEL, "%s: %s \"%.100s\" is not in the vocabulary", dir, names[i].key, name);
    }
    double limit = 0x1p62;
    TRY(json_double(config, "model_max_length", &limit, dir, e));
    if (limit >= 1 && limit < 0x1p53) t->max_length = (int64_t)limit; /* "no limit" is written as 1e30 */
    return OK;
}

/* What the class does by its config and is not implemented: ids would differ without a word. */
static Status check_config(Tokenizer *t, const Json *config, const char *dir, Error *e) {
    const char *class = "", *cuts = "right", *pads = "right";
    bool split = false, space = false;
    char where[4096];
    snprintf(where, sizeof where, "%s/tokenizer_config.json", dir);
    TRY(json_string(config, "tokenizer_class", &class, where, e));
    TRY(json_string(config, "truncation_side", &cuts, where, e));
    TRY(json_string(config, "padding_side", &pads, where, e));
    TRY(json_bool(config, "split_special_tokens", &split, where, e));
    TRY(json_bool(config, "add_prefix_space", &space, where, e));
    if (strcmp(cuts, "right"))
        return fail(e, ERR_MODEL, "%s: truncation_side: found \"%.40s\", expected \"right\"", where, cuts);
    if (split) return fail(e, ERR_MODEL, "%s: split_special_tokens: found true, expected false", where);
    if (space && !strncmp(class, "Qwen2Tokenizer", 14)) /* the one class here that heeds it */
        return fail(e, ERR_MODEL, "%s: add_prefix_space: found true, expected false", where);
    t->pads_left = !strcmp(pads, "left");
    if (!t->pads_left && strcmp(pads, "right"))
        return fail(e, ERR_MODEL, "%s: padding_side: found \"%.40s\", expected \"left\" or \"right\"", where, pads);
    return OK;
}

static Status open_folder(const char *dir, bool by_class, Tokenizer **out, Error *e) {
    *out = NULL;
    if (!file_is_dir(dir)) return fail(e, ERR_MODEL, "%s: is no folder, expected a tokenizer folder", dir);
    Json *config = NULL, *specials = NULL;
    Tokenizer *t = NULL;
    char *path = file_join(dir, "tokenizer.json");
    Status s = path ? OK : fail(e, ERR_MEMORY, "%s: out of memory", dir);
    if (s == OK) s = read_optional(dir, "tokenizer_config.json", &config, e);
    if (s == OK) s = read_optional(dir, "special_tokens_map.json", &specials, e);
    if (s == OK && file_exists(path)) {
        char *text;
        size_t size;
        s = file_read(path, &text, &size, e);
        if (s == OK) {
            const char *class = "";
            if (by_class) s = json_string(config, "tokenizer_class", &class, dir, e);
            if (s == OK) s = load_json(class, text, size, path, &t, e);
            free(text);
        }
    } else if (s == OK) {
        s = start(&t, e);
        if (s == OK) s = open_files(t, dir, config, specials, e);
    }
    if (s == OK) s = name_ids(t, config, specials, dir, e);
    if (s == OK) s = check_config(t, config, dir, e);
    free(path);
    json_free(config);
    json_free(specials);
    if (s == OK) *out = t;
    else tok_close(t);
    return s;
}

Status tok_open(const char *dir, Tokenizer **out, Error *e) { return open_folder(dir, false, out, e); }

Status tok_open_class(const char *dir, Tokenizer **out, Error *e) { return open_folder(dir, true, out, e); }

Status tok_parse(const char *json, size_t size, const char *where, Tokenizer **out, Error *e) {
    *out = NULL;
    Tokenizer *t = NULL;
    Status s = load_json("", json, size, where, &t, e);
    if (s == OK) *out = t;
    else tok_close(t);
    return s;
}

void tok_close(Tokenizer *t) {
    if (!t) return;
    free(t->flags);
    tok_norm_free(t->norms, t->norm_count);
    tok_split_free(t->splits, t->split_count);
    free(t->unigram.scores);
    tok_trie_free(&t->unigram.trie);
    tok_bpe_free(&t->bpe);
    tok_trie_free(&t->added.raw);
    tok_trie_free(&t->added.normalised);
    free(t->added.tokens);
    free(t->pieces);
    map_free(&t->by_text);
    free(t->pool);
    free(t->added_pool);
    free(t);
}
