/* expect_pipeline.h - a model folder opened on the CPU, for tests of what jobs resolve to and of runs. The caller closes it.
 * Easy to get wrong: a folder that does not open has failed the test already; NULL is for the caller to leave by. */
#ifndef EXPECT_PIPELINE_H
#define EXPECT_PIPELINE_H

#include "expect.h"
#include "pipeline.h"

static inline Pipeline *expect_pipeline(const char *model) {
    Pipeline *p = NULL;
    Error e = {0};
    expect_ok(pipeline_open(&(PipelineOptions){.model = model, .device = "cpu"}, &p, &e), &e);
    return p;
}

/* The same, and *job what the model makes of a prompt alone; NULL also when it makes nothing of it. */
static inline Pipeline *expect_defaults(const char *model, Job *job) {
    Pipeline *p = expect_pipeline(model);
    Error e = {0};
    *job = (Job){.prompt = "a"};
    if (!p) return NULL;
    Status s = pipeline_resolve(p, job, &e);
    expect_ok(s, &e);
    if (s == OK) return p;
    pipeline_close(p);
    return NULL;
}

#endif
