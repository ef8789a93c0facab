/* compare_meta.c - the texts that two PNG files carry, where they differ: ditto's parameters key by key, other texts whole.
 * Easy to get wrong: texts come from files, so no control character of theirs may reach a terminal. */
#include "compare_parts.h"
#include "core/json.h"
#include "media/png.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

/* One value as JSON (no control character reaches a terminal), cut to a line's length between code points. */
static void print_value(FILE *text, const Json *value) {
    enum { SHOWN = 200 };
    if (!value) {
        fputs("absent", text);
        return;
    }
    char *json = cJSON_PrintUnformatted(value);
    size_t n = json ? strlen(json) : 0, cut = n;
    if (n > SHOWN)
        for (cut = SHOWN; cut && ((unsigned char)json[cut] & 0xc0) == 0x80;) cut--;
    for (size_t i = 0; i < cut; i++) /* DEL is the one control character that cJSON does not escape */
        fputc(json[i] == 0x7f ? '?' : json[i], text);
    if (cut < n) fprintf(text, "... (%zu bytes)", n);
    cJSON_free(json);
}

static Json *copy_of(const Json *j) { return j ? cJSON_Duplicate(j, 1) : cJSON_CreateNull(); }

static int print_difference(const Sink *s, const char *key, const Json *a, const Json *b) {
    if (a && b && cJSON_Compare(a, b, 1)) return 0;
    if (s->json) {
        Json *pair = cJSON_CreateArray();
        cJSON_AddItemToArray(pair, copy_of(a));
        cJSON_AddItemToArray(pair, copy_of(b));
        cJSON_AddItemToObject(s->json, key, pair);
        return 1;
    }
    FILE *text = s->text;
    Json *name = cJSON_CreateString(key);
    fputs("metadata ", text);
    print_value(text, name);
    fputs(": ", text);
    print_value(text, a);
    fputs(" | ", text);
    print_value(text, b);
    fputc('\n', text);
    cJSON_Delete(name);
    return 1;
}

/* ditto's own parameters, key by key: those of A in its order, then those only B has. */
static int print_parameters(const Sink *s, const Json *a, const Json *b) {
    int found = 0;
    for (const Json *i = a->child; i; i = i->next) found += print_difference(s, i->string, i, json_get(b, i->string));
    for (const Json *i = b->child; i; i = i->next)
        if (!json_get(a, i->string)) found += print_difference(s, i->string, NULL, i);
    return found;
}

/* The other texts, as strings. A key that occurs twice is compared by its first text. */
static int print_texts(const Sink *s, const PngTexts *a, const PngTexts *b, bool only_missing) {
    int found = 0;
    for (int i = 0; i < a->count; i++) {
        const char *key = a->items[i].key, *mine = png_texts_get(a, key), *other = png_texts_get(b, key);
        if (!strcmp(key, PNG_DITTO_KEY) || mine != a->items[i].text || (other && only_missing)) continue;
        Json *x = cJSON_CreateString(mine), *y = other ? cJSON_CreateString(other) : NULL;
        found += only_missing ? print_difference(s, key, y, x) : print_difference(s, key, x, y);
        cJSON_Delete(x);
        cJSON_Delete(y);
    }
    return found;
}

/* Both carry ditto's parameters. */
static void print_both(const Sink *sink, const PngTexts *a, const PngTexts *b) {
    const char *s = png_texts_get(a, PNG_DITTO_KEY), *t = png_texts_get(b, PNG_DITTO_KEY);
    Json *x = NULL, *y = NULL;
    int found;
    if (json_parse(s, strlen(s), "reference", &x, NULL) == OK && json_parse(t, strlen(t), "output", &y, NULL) == OK &&
        cJSON_IsObject(x) && cJSON_IsObject(y)) {
        found = print_parameters(sink, x, y);
    } else {
        found = strcmp(s, t) != 0;
        if (found && sink->text) fputs("metadata: not readable as parameters, and different\n", sink->text);
        if (found && sink->json) cJSON_AddTrueToObject(sink->json, "unreadable");
    }
    found += print_texts(sink, a, b, false) + print_texts(sink, b, a, true);
    if (!found && sink->text) fputs("metadata: equal\n", sink->text);
    json_free(x);
    json_free(y);
}

void compare_metadata(const Sink *sink, const char *path_a, const char *path_b) {
    PngTexts a = {0}, b = {0};
    /* files without readable texts (JPEG, foreign PNG) carry no metadata; pixels decide about errors */
    png_read_texts(path_a, &a, NULL);
    png_read_texts(path_b, &b, NULL);
    bool s = png_texts_get(&a, PNG_DITTO_KEY) != NULL, t = png_texts_get(&b, PNG_DITTO_KEY) != NULL;
    if (s && t) {
        Sink inner = {.text = sink->text, .json = sink->json ? cJSON_AddObjectToObject(sink->json, "metadata") : NULL};
        if (inner.text || inner.json) print_both(&inner, &a, &b);
    } else if (s || t) {
        if (sink->text)
            fprintf(sink->text, "metadata: only in %s\n", s ? path_a : path_b);
        else
            cJSON_AddStringToObject(sink->json, "metadata", s ? "only in the reference" : "only in the output");
    }
    png_texts_free(&a);
    png_texts_free(&b);
}
