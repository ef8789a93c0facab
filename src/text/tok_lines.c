/* tok_lines.c - `ditto tokens DIR`: a JSON string a line in, a JSON array of ids a line out.
 *
 * JSON strings carry line breaks, NUL and everything else that a plain line cannot. They are read here and
 * not by the JSON library, which cuts strings at NUL. Easy to get wrong: \ud83d\ude00 is one character; half
 * of such a pair is no text and is refused. */
#include "text/tok.h"
#include "text/tok_unicode.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static int hex4(const char *p, const char *end) {
    int v = 0;
    if (end - p < 4) return -1;
    for (int i = 0; i < 4; i++) {
        char c = p[i], low = (char)(c | 32);
        int digit = c >= '0' && c <= '9' ? c - '0' : low >= 'a' && low <= 'f' ? low - 'a' + 10 : -1;
        if (digit < 0) return -1;
        v = v << 4 | digit;
    }
    return v;
}

static bool is_blank(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

/* Unescapes the JSON string in line[0, size) in place; its length, or -1 when the line is none. */
static int64_t unescape(char *line, size_t size) {
    const char *p = line, *end = line + size;
    while (p < end && is_blank(*p)) p++;
    while (p < end && is_blank(end[-1])) end--;
    if (end - p < 2 || *p != '"' || end[-1] != '"') return -1;
    p++, end--;
    char *out = line;
    while (p < end) {
        if (*p == '"' || (unsigned char)*p < 0x20) return -1;
        if (*p != '\\') {
            *out++ = *p++;
            continue;
        }
        if (end - p < 2) return -1;
        static const char names[] = "\"\\/bfnrt", values[] = "\"\\/\b\f\n\r\t";
        const char *known = p[1] ? strchr(names, p[1]) : NULL;
        if (known) {
            *out++ = values[known - names];
            p += 2;
            continue;
        }
        int c = p[1] == 'u' ? hex4(p + 2, end) : -1;
        if (c < 0 || (c >= 0xdc00 && c <= 0xdfff)) return -1;
        p += 6;
        uint32_t point = (uint32_t)c;
        if (c >= 0xd800 && c <= 0xdbff) {
            int low = end - p >= 6 && p[0] == '\\' && p[1] == 'u' ? hex4(p + 2, end) : -1;
            if (low < 0xdc00 || low > 0xdfff) return -1;
            point = 0x10000 + ((point - 0xd800) << 10) + ((uint32_t)low - 0xdc00);
            p += 6;
        }
        out += tok_unicode_encode(point, out); /* never longer than its escape */
    }
    return out - line;
}

Status tok_lines(const Tokenizer *t, FILE *in, FILE *out, bool specials, Error *e) {
    char *line = NULL;
    size_t cap = 0;
    int64_t number = 0;
    ssize_t size;
    TokenIds ids = {0};
    Status s = OK;
    while (s == OK && (size = getline(&line, &cap, in)) >= 0) {
        number++;
        int64_t length = unescape(line, (size_t)size);
        if (length < 0) {
            s = fail(e, ERR_USAGE, "line %lld: expected one JSON string", (long long)number);
            break;
        }
        ids.count = 0;
        s = tok_encode(t, line, (size_t)length, specials, &ids, e);
        if (s != OK) s = because(e, "line %lld", (long long)number);
        if (s == OK) fputc('[', out);
        for (int64_t i = 0; i < ids.count && s == OK; i++) fprintf(out, i ? ",%d" : "%d", ids.ids[i]);
        if (s == OK && fputs("]\n", out) == EOF) s = fail(e, ERR_IO, "cannot write token ids: %s", strerror(errno));
    }
    if (s == OK && ferror(in)) s = fail(e, ERR_IO, "cannot read text lines: %s", strerror(errno));
    if (s == OK && fflush(out)) s = fail(e, ERR_IO, "cannot write token ids: %s", strerror(errno));
    free(line);
    tok_ids_free(&ids);
    return s;
}
