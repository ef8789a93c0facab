/* fuzz_batch_jobs.c - libFuzzer target: a file of jobs, as objects and as prompts, and the names of its pictures.
 * Easy to get wrong: a bad line is a job that says why, never an error of the whole. */
#include "batch_items.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_as(const char *name, const uint8_t *data, size_t size) {
    Cli cli = {.command = COMMAND_BATCH,
               .model = "m",
               .count = 1,
               .shards = 1,
               .guidance = -1,
               .cfg_scale = -1,
               .guidance_scale = -1};
    BatchJobs jobs;
    BatchItems items = {0};
    Error e = {0};
    char *text = malloc(size + 1);
    if (!text) return;
    if (size) memcpy(text, data, size);
    text[size] = 0;
    Status s = batch_jobs_parse(text, size, name, &cli, &jobs, &e);
    if ((s != OK) != (e.code != OK) || (s == OK && !jobs.count)) abort();
    int pictures = 0; /* a few lines may ask for very many */
    for (int i = 0; i < jobs.count; i++) {
        if (jobs.job[i].bad && !jobs.job[i].bad->text[0]) abort();
        pictures += jobs.job[i].count;
        if (pictures > 1000) s = ERR_USAGE;
    }
    if (s == OK && batch_items_make(&jobs, "folder", NULL, 0, 1, &items, &e) == OK) {
        for (int i = 0; i < items.count; i++)
            if (!items.item[i].of->bad && (!items.item[i].path || strncmp(items.item[i].path, "folder/", 7)))
                abort();
        batch_items_group(&items);
        batch_items_order(items.item, items.count);
    }
    batch_items_free(&items);
    batch_jobs_free(&jobs);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    read_as("jobs.jsonl", data, size);
    read_as("jobs.txt", data, size);
    return 0;
}
