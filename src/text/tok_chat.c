/* tok_chat.c - whether a tokenizer folder frames a prompt as Qwen3 does. See tok.h.
 *
 * A chat template is a program (Jinja), and ditto runs none: it knows what Qwen3's makes of one message of a user. Releases of
 * that template differ in what they do with tools and replies, so it is told by the pieces that such a message meets.
 * Easy to get wrong: a template that puts a system message of its own before the user's has all these pieces too. */
#include "core/file.h"
#include "core/json.h"
#include "text/tok.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>

static const char SYSTEM[] = "<|im_start|>system\\n";
enum { SPELLINGS = 3 };

/* As Jinja's source spells them, without blanks; one of each row. */
static const char *const PIECES[][SPELLINGS] = {
    {"'<|im_start|>'+message.role+'\\n'+message.content+'<|im_end|>", "'<|im_start|>'+message.role+'\\n'+content+'<|im_end|>",
     "'<|im_start|>'+message['role']+'\\n'+message['content']+'<|im_end|>"},
    {"<|im_end|>'+'\\n'}}", "<|im_end|>\\n'}}"},
    {"{%-ifadd_generation_prompt%}{{-'<|im_start|>assistant\\n'}}", "{%ifadd_generation_prompt%}{{'<|im_start|>assistant\\n'}}"},
};

static bool holds(const char *text, const char *const spelling[SPELLINGS]) {
    for (int i = 0; i < SPELLINGS && spelling[i]; i++)
        if (strstr(text, spelling[i])) return true;
    return false;
}

static Status frames_as_qwen3(const char *source, size_t size, bool *good, Error *e) {
    char *plain = malloc(size + 1);
    size_t n = 0;
    if (!plain) return fail(e, ERR_MEMORY, "out of memory");
    for (size_t i = 0; i < size; i++)
        if (!strchr(" \t\r\n", source[i])) plain[n++] = source[i]; /* a NUL is found too */
    plain[n] = 0;
    *good = true;
    for (size_t i = 0; i < sizeof PIECES / sizeof *PIECES; i++) *good &= holds(plain, PIECES[i]);
    for (const char *at = plain; (at = strstr(at, SYSTEM)); at += sizeof SYSTEM - 1) { /* nothing of its own may follow */
        const char *end = at + sizeof SYSTEM - 1;
        *good &= (*end == '\'' || *end == '"') && (end[1] != '+' || !strncmp(end + 1, "+messages[0]", 12));
    }
    free(plain);
    return OK;
}

static Status check(const char *source, size_t size, const char *where, Error *e) {
    bool good;
    TRY(frames_as_qwen3(source, size, &good, e));
    return good ? OK : fail(e, ERR_MODEL, "%s: chat template: is not Qwen3's, expected one that makes <|im_start|>user\\n PROMPT "
                "<|im_end|>\\n<|im_start|>assistant\\n (templates are not run)", where);
}

/* A list of templates has names; the pipeline takes the one called default. */
static const Json *template_of(const Json *config) {
    const Json *j = json_get(config, "chat_template");
    if (!cJSON_IsArray(j)) return j;
    for (const Json *row = j->child; row; row = row->next) {
        const Json *name = json_get(row, "name");
        if (cJSON_IsString(name) && !strcmp(name->valuestring, "default")) return json_get(row, "template");
    }
    return NULL;
}

static Status check_config(const char *path, const Json *j, void *out, Error *e) {
    (void)out;
    const Json *source = template_of(j);
    return cJSON_IsString(source) ? check(source->valuestring, strlen(source->valuestring), path, e) : OK;
}

Status tok_expect_qwen3_chat(const char *dir, Error *e) {
    char *jinja = file_join(dir, "chat_template.jinja"), *config = file_join(dir, "tokenizer_config.json"), *source;
    size_t size;
    Status s = OK;
    if (!jinja || !config) {
        s = fail(e, ERR_MEMORY, "%s: out of memory", dir);
    } else if (file_exists(jinja)) { /* goes before the config's */
        s = file_read(jinja, &source, &size, e);
        if (s == OK) {
            s = check(source, size, jinja, e);
            free(source);
        }
    } else if (file_exists(config)) {
        s = json_read_in(dir, "tokenizer_config.json", check_config, NULL, e);
    }
    free(jinja), free(config);
    return s;
}
