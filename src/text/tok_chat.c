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

static bool frames_as_qwen3(const char *source, size_t size) {
    char *plain = malloc(size + 1);
    size_t n = 0;
    if (!plain) return false;
    for (size_t i = 0; i < size; i++)
        if (!strchr(" \t\r\n", source[i])) plain[n++] = source[i]; /* a NUL is found too */
    plain[n] = 0;
    bool good = true;
    for (size_t i = 0; i < sizeof PIECES / sizeof *PIECES; i++) good &= holds(plain, PIECES[i]);
    for (const char *at = plain; (at = strstr(at, SYSTEM)); at += sizeof SYSTEM - 1)
        good &= at[sizeof SYSTEM - 1] == '\'' || at[sizeof SYSTEM - 1] == '"';
    free(plain);
    return good;
}

static Status check(const char *source, size_t size, const char *where, Error *e) {
    if (frames_as_qwen3(source, size)) return OK;
    return fail(e, ERR_MODEL, "%s: chat template: is not Qwen3's, expected one that makes <|im_start|>user\\n PROMPT "
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
    char path[4096], *source;
    size_t size;
    snprintf(path, sizeof path, "%s/chat_template.jinja", dir);
    if (file_exists(path)) { /* goes before the config's */
        TRY(file_read(path, &source, &size, e));
        Status s = check(source, size, path, e);
        free(source);
        return s;
    }
    snprintf(path, sizeof path, "%s/tokenizer_config.json", dir);
    return file_exists(path) ? json_read_in(dir, "tokenizer_config.json", check_config, NULL, e) : OK;
}
