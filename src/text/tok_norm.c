/* tok_norm.c - the normalisers of tokenizer.json. Others are refused by name.
 *
 * NFC is the system's utf8proc, but it only ever sees code points on which every version agrees with the
 * reference (its NFC is that of Unicode 9); all others are copied. Easy to get wrong: normalisers run on
 * each piece between added tokens, so "strip" strips at every added token, not at the ends of the text. */
#include "text/tok_parts.h"
#include "text/tok_unicode.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

/* --- reading --- */

static Status parse_replace(const Json *j, TokNorm *n, const char *where, Error *e) {
    const Json *pattern = json_get(j, "pattern");
    const char *content = NULL, *string = NULL, *regex = NULL;
    TRY(json_string(j, "content", &content, where, e));
    TRY(json_string(pattern, "String", &string, where, e));
    TRY(json_string(pattern, "Regex", &regex, where, e));
    if (!content || !string == !regex)
        return fail(e, ERR_MODEL, "%s: normalizer: Replace needs content and one pattern", where);
    if (string && !*string) return fail(e, ERR_MODEL, "%s: normalizer: Replace of the empty string", where);
    if (regex && !strcmp(regex, " {2,}")) n->kind = NORM_REPLACE_BLANKS;
    else if (regex && !strcmp(regex, "\\s+")) n->kind = NORM_REPLACE_SPACES;
    else if (regex)
        return fail(e, ERR_MODEL, "%s: normalizer: Replace of the pattern \"%.200s\" is not implemented", where, regex);
    else n->kind = NORM_REPLACE;
    if (string) TRY(tok_text_string(string, &n->find, where, e));
    return tok_text_string(content, &n->text, where, e);
}

static Status parse_one(const Json *j, const char *type, TokNorm *n, const char *where, Error *e) {
    const char *text = NULL;
    if (!strcmp(type, "NFC")) {
        n->kind = NORM_NFC;
    } else if (!strcmp(type, "Lowercase")) {
        n->kind = NORM_LOWER;
    } else if (!strcmp(type, "Strip")) {
        n->kind = NORM_STRIP;
        n->left = n->right = true;
        TRY(json_bool(j, "strip_left", &n->left, where, e));
        TRY(json_bool(j, "strip_right", &n->right, where, e));
    } else if (!strcmp(type, "Replace")) {
        TRY(parse_replace(j, n, where, e));
    } else if (!strcmp(type, "Prepend")) {
        n->kind = NORM_PREPEND;
        TRY(json_string(j, "prepend", &text, where, e));
        TRY(tok_text_string(text ? text : "", &n->text, where, e));
    } else if (!strcmp(type, "Precompiled")) {
        n->kind = NORM_CHARSMAP;
        TRY(json_string(j, "precompiled_charsmap", &text, where, e));
        if (!text) return fail(e, ERR_MODEL, "%s: normalizer: precompiled_charsmap is missing", where);
        TRY(tok_charsmap_parse(text, &n->map, where, e));
    } else {
        return fail(e, ERR_MODEL, "%s: normalizer: type \"%.100s\" is not implemented", where, type);
    }
    return OK;
}

Status tok_norm_parse(const Json *j, TokNorm **list, size_t *count, const char *where, Error *e) {
    if (json_is_null(j)) return OK;
    const char *type = NULL;
    TRY(json_string(j, "type", &type, where, e));
    if (!type) return fail(e, ERR_MODEL, "%s: normalizer: has no type", where);
    if (!strcmp(type, "Sequence")) {
        const Json *items = json_get(j, "normalizers");
        if (!cJSON_IsArray(items)) return fail(e, ERR_MODEL, "%s: normalizer: Sequence without normalizers", where);
        for (const Json *item = items->child; item; item = item->next) TRY(tok_norm_parse(item, list, count, where, e));
        return OK;
    }
    TokNorm *more = realloc(*list, (*count + 1) * sizeof **list);
    if (!more) return fail(e, ERR_MEMORY, "%s: out of memory", where);
    *list = more;
    more[*count] = (TokNorm){0};
    return parse_one(j, type, &more[(*count)++], where, e);
}

static void free_one(TokNorm *n) {
    free(n->find);
    free(n->text);
    tok_charsmap_free(&n->map);
}

void tok_norm_keep(TokNorm *list, size_t *count, TokNormKind kind) {
    size_t kept = 0;
    for (size_t i = 0; i < *count; i++)
        if (list[i].kind == kind) list[kept++] = list[i];
        else free_one(&list[i]);
    *count = kept;
}

void tok_norm_free(TokNorm *list, size_t count) {
    for (size_t i = 0; i < count; i++) free_one(&list[i]);
    free(list);
}

/* --- running: every function writes out from in --- */

/* Appends the NFC of in[start, end). What stays equal at both ends keeps its memory byte by byte. */
static Status compose(const TokText *in, TokText *out, uint32_t start, uint32_t end, Error *e) {
    const utf8proc_option_t how = UTF8PROC_COMPOSE | UTF8PROC_STABLE;
    const utf8proc_uint8_t *bytes = (const utf8proc_uint8_t *)in->bytes + start;
    utf8proc_int32_t small[64], *points = small;
    utf8proc_ssize_t n = utf8proc_decompose(bytes, (utf8proc_ssize_t)(end - start), small, 64, how);
    if (n > 64) {
        points = malloc((size_t)n * sizeof *points);
        if (!points) return fail(e, ERR_MEMORY, "out of memory normalising text");
        n = utf8proc_decompose(bytes, (utf8proc_ssize_t)(end - start), points, n, how);
    }
    if (n > 0) n = utf8proc_normalize_utf32(points, n, how);
    Status s = n < 0 ? fail(e, ERR_USAGE, "text: cannot be normalised: %s", utf8proc_errmsg(n)) : OK;
    TokText made = {0};
    for (utf8proc_ssize_t i = 0; i < n && s == OK; i++) {
        char c[4];
        s = tok_text_put(&made, c, tok_unicode_encode((uint32_t)points[i], c), in->from[start], in->to[end - 1], e);
    }
    /* Bytes equal at either end, whole characters only, remember themselves; the rest remembers the middle. */
    uint32_t head = 0, tail = 0, size = end - start, least = made.size < size ? made.size : size;
    while (head < least && made.bytes[head] == in->bytes[start + head]) head++;
    while (head && head < size && ((unsigned char)in->bytes[start + head] & 0xc0) == 0x80) head--;
    while (tail < least - head && made.bytes[made.size - 1 - tail] == in->bytes[end - 1 - tail]) tail++;
    while (tail && ((unsigned char)in->bytes[end - tail] & 0xc0) == 0x80) tail--;
    for (uint32_t i = 0; i < made.size && s == OK; i++) {
        if (i < head || i >= made.size - tail) {
            uint32_t same = i < head ? start + i : end - (made.size - i);
            made.from[i] = in->from[same];
            made.to[i] = in->to[same];
        } else {
            made.from[i] = in->from[head < size ? start + head : end - 1];
            made.to[i] = in->to[end - tail > start + head ? end - tail - 1 : start + head];
        }
    }
    if (s == OK) s = tok_text_copy(out, &made, 0, made.size, e);
    tok_text_free(&made);
    if (points != small) free(points);
    return s;
}

static Status nfc(const uint16_t *flags, const TokText *in, TokText *out, Error *e) {
    uint32_t at = 0, copied = 0;
    while (at < in->size) {
        /* A segment: one code point, then those that may attach. Below U+0300 nothing attaches backwards. */
        uint32_t end = at;
        bool moves = false;
        while (end < in->size) {
            size_t length;
            uint32_t c = tok_unicode_decode(in->bytes + end, &length);
            bool composes = flags[c] & UNICODE_COMPOSES;
            if (end > at && (c < 0x300 || !composes)) break;
            moves |= (flags[c] & UNICODE_MOVES) != 0;
            end += (uint32_t)length;
            if (c >= 0x300 && !composes) break;
        }
        if (moves) {
            TRY(tok_text_copy(out, in, copied, at, e));
            TRY(compose(in, out, at, end, e));
            copied = end;
        }
        at = end;
    }
    return tok_text_copy(out, in, copied, in->size, e);
}

static Status lower(const uint16_t *flags, const TokText *in, TokText *out, Error *e) {
    TRY(tok_text_copy(out, in, 0, in->size, e));
    bool beyond = false;
    for (uint32_t i = 0; i < out->size; i++) {
        char c = out->bytes[i];
        if (c >= 'A' && c <= 'Z') out->bytes[i] = (char)(c + 32);
        beyond |= (unsigned char)c >= 128;
    }
    if (!beyond) return OK;
    out->size = 0;
    uint32_t copied = 0;
    for (uint32_t i = 0; i < in->size;) {
        size_t length;
        uint32_t c = tok_unicode_decode(in->bytes + i, &length);
        if (flags[c] & UNICODE_CASED) {
            uint32_t low[2];
            int n = tok_unicode_lower(c, low);
            TRY(tok_text_copy(out, in, copied, i, e));
            for (int k = 0; k < n; k++) {
                char bytes[4];
                TRY(tok_text_put(out, bytes, tok_unicode_encode(low[k], bytes), in->from[i], in->to[i], e));
            }
            copied = i + (uint32_t)length;
        }
        i += (uint32_t)length;
    }
    return tok_text_copy(out, in, copied, in->size, e);
}

static bool is_space(const uint16_t *flags, const char *p, size_t *length) {
    return flags[tok_unicode_decode(p, length)] & UNICODE_SPACE;
}

static Status strip(const uint16_t *flags, const TokNorm *n, const TokText *in, TokText *out, Error *e) {
    uint32_t start = 0, end = in->size;
    size_t length;
    if (n->left)
        while (start < end && is_space(flags, in->bytes + start, &length)) start += (uint32_t)length;
    while (n->right && end > start) {
        uint32_t back = end - 1;
        while (((unsigned char)in->bytes[back] & 0xc0) == 0x80) back--;
        if (!is_space(flags, in->bytes + back, &length)) break;
        end = back;
    }
    return tok_text_copy(out, in, start, end, e);
}

static Status replace(const uint16_t *flags, const TokNorm *n, const TokText *in, TokText *out, Error *e) {
    size_t size = strlen(n->text), want = n->kind == NORM_REPLACE ? strlen(n->find) : 0;
    uint32_t copied = 0;
    for (uint32_t i = 0; i < in->size;) {
        uint32_t end = i;
        size_t length = tok_unicode_length(in->bytes[i]);
        if (n->kind == NORM_REPLACE) {
            if (want <= in->size - i && !memcmp(in->bytes + i, n->find, want)) end = i + (uint32_t)want;
        } else if (n->kind == NORM_REPLACE_BLANKS) {
            while (end < in->size && in->bytes[end] == ' ') end++;
            if (end == i + 1) end = i;
        } else {
            while (end < in->size && is_space(flags, in->bytes + end, &length)) end += (uint32_t)length;
            length = tok_unicode_length(in->bytes[i]);
        }
        if (end > i) {
            TRY(tok_text_copy(out, in, copied, i, e));
            TRY(tok_text_put(out, n->text, size, in->from[i], in->to[end - 1], e));
            i = copied = end;
        } else {
            i += (uint32_t)length;
        }
    }
    return tok_text_copy(out, in, copied, in->size, e);
}

static Status prepend(const TokNorm *n, const TokText *in, TokText *out, Error *e) {
    if (!in->size) return OK;
    TRY(tok_text_put(out, n->text, strlen(n->text), in->from[0], in->from[0], e));
    return tok_text_copy(out, in, 0, in->size, e);
}

Status tok_norm_run(const Tokenizer *t, TokText *text, TokText *spare, Error *e) {
    for (size_t i = 0; i < t->norm_count; i++) {
        const TokNorm *n = &t->norms[i];
        spare->size = 0;
        switch (n->kind) {
        case NORM_NFC: TRY(nfc(t->flags, text, spare, e)); break;
        case NORM_LOWER: TRY(lower(t->flags, text, spare, e)); break;
        case NORM_STRIP: TRY(strip(t->flags, n, text, spare, e)); break;
        case NORM_CHARSMAP: TRY(tok_charsmap_run(t->flags, &n->map, text, spare, e)); break;
        case NORM_PREPEND: TRY(prepend(n, text, spare, e)); break;
        case NORM_REPLACE:
        case NORM_REPLACE_SPACES:
        case NORM_REPLACE_BLANKS: TRY(replace(t->flags, n, text, spare, e)); break;
        }
        tok_text_swap(text, spare);
    }
    return OK;
}
