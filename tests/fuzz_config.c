/* fuzz_config.c - libFuzzer target: json_parse on any text, then every reader on every key, the index of a sharded
 * component and the scheduler's config. */
#include "core/json.h"
#include "core/shards.h"
#include "sched_dpm.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A failed call must say so; a reader that succeeds leaves a value of its kind. */
static void must(Status status, const Error *e) {
    if ((status != OK) != (e->code != OK) || (status != OK && !e->text[0])) abort();
}

static void read_all(const Json *j) {
    for (const Json *c = cJSON_IsObject(j) || cJSON_IsArray(j) ? j->child : NULL; c; c = c->next) {
        if (cJSON_IsObject(j)) {
            int64_t i = 0, list[4] = {0};
            double d = 0;
            bool b = false;
            const char *s = "";
            int count = 0;
            Error e[5] = {0};
            must(json_int(j, c->string, &i, "input", &e[0]), &e[0]);
            must(json_double(j, c->string, &d, "input", &e[1]), &e[1]);
            must(json_bool(j, c->string, &b, "input", &e[2]), &e[2]);
            must(json_string(j, c->string, &s, "input", &e[3]), &e[3]);
            must(json_ints(j, c->string, list, 4, &count, "input", &e[4]), &e[4]);
            if (fabs((double)i) > 0x1p53 || count < 0 || count > 4 || strlen(s) > (size_t)1 << 30) abort();
        }
        read_all(c);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    Json *j = NULL;
    Error e = {0};
    Status status = json_parse((const char *)data, size, "input", &j, &e);
    must(status, &e);
    if (status != OK) return 0;
    read_all(j);
    char **names = NULL;
    int count = 0;
    Error index_error = {0}, sched_error = {0};
    must(shards_index_files(j, "input", &names, &count, &index_error), &index_error);
    for (int i = 0; i < count; i++)
        if (strchr(names[i], '/') || (i && strcmp(names[i - 1], names[i]) >= 0)) abort();
    shards_names_free(names, count);
    SchedConfig config;
    must(sched_config_parse(j, "input", &config, &sched_error), &sched_error);
    DpmConfig dpm;
    Error dpm_error = {0};
    Schedule s = {0};
    must(sched_dpm_config_parse(j, "input", &dpm, &dpm_error), &dpm_error);
    if (dpm_error.code == OK) {
        must(sched_dpm_make(&dpm, 20, &s, &dpm_error), &dpm_error);
        sched_free(&s);
    }
    json_free(j);
    return 0;
}
