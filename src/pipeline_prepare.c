/* pipeline_prepare.c - what a job needs before any device: the image that it begins from, its noise levels, its tokens.
 *
 * Easy to get wrong: all of it passes through the stages in the reference's order, so that --dump shows it and --inject may
 * replace it. */
#include "pipeline_parts.h"

#include "condition.h"
#include "media/av_recode.h"
#include "media/image.h"
#include "media/resize.h"

#include <stdlib.h>

void pipeline_unprepare(Prepared *r) {
    model_tokens_free(&r->tokens[0]);
    model_tokens_free(&r->tokens[1]);
    for (int k = 0; k < MODEL_MAX_ROUNDS; k++) sched_free(&r->schedule[k]);
    free(r->image);
}

/* The image that a job begins from, upright and in the job's size. */
static Status prepare_image(const ModelOps *ops, const Job *job, Stages *stages, Prepared *r, Error *e) {
    Image image;
    Condition c = {0};
    if (!job->image) return OK;
    if (ops->image_conditions) TRY(condition_parse(job->image, &c, e));
    if (image_read_pillow(*c.path ? c.path : job->image, &image, e) != OK) return because(e, "--image");
    Status s = image_upright(&image, e);
    r->run.image_width = job->made_width, r->run.image_height = job->made_height;
    if (s == OK && ops->image_conditions) {
        s = av_recode(&image, job->image_crf, e);
        r->run.image_width = image.width, r->run.image_height = image.height;
        r->image = image.rgb, image.rgb = NULL;
    } else if (s == OK) s = resize_lanczos(image.rgb, image.width, image.height, job->made_width, job->made_height, &r->image, e);
    image_free(&image);
    TRY(s);
    r->run.image = r->image;
    return stages_host(stages, "image", U8, 3, (int64_t[]){r->run.image_height, r->run.image_width, 3}, r->image, e);
}

static Status prepare_schedules(const Model *m, const Job *job, Stages *stages, Prepared *r, Error *e) {
    for (int k = 0; k < (job->decode_only ? 1 : model_rounds(m, job)); k++) {
        Job own;
        Run round;
        char name[32];
        model_round(m, &r->run, k, &own, &round);
        TRY(m->ops->schedule(m, &own, &r->schedule[k], e));
        const Schedule *s = &r->schedule[k];
        snprintf(name, sizeof name, "%ssigmas", round.prefix);
        TRY(stages_host(stages, name, F32, 1, (int64_t[]){s->steps + 1}, s->sigmas, e));
        snprintf(name, sizeof name, "%stimesteps", round.prefix);
        TRY(stages_host(stages, name, F32, 1, (int64_t[]){s->steps}, s->timesteps, e));
    }
    return OK;
}

Status pipeline_tokenize(const Model *m, const Job *job, bool negative, Tokens *out, Error *e) {
    const char *text = negative ? job->negative_prompt : job->prompt;
    return (negative && m->ops->tokenize_negative ? m->ops->tokenize_negative : m->ops->tokenize)(m, text, job, out, e);
}

/* Everything of a job that needs no device: image, tokens and sigmas. */
Status pipeline_prepare(Pipeline *p, const Job *job, Stages *stages, Prepared *r, Error *e) {
    const Model *m = p->model;
    *r = (Prepared){.text = {job->prompt, job->negative_prompt}};
    r->run = (Run){.job = job, .tokens = r->tokens, .schedule = r->schedule, .text = r->text, .stages = stages,
                   .memo = job->inject_count || job->fresh ? NULL : &p->memo, .cfg = job->cfg};
    r->set = (FamilySet){.families = p->families, .count = p->family_count};
    TRY(fusion_choose(p->families, p->family_count, job->quality == QUALITY_HIGH, job->families, &r->set.wanted, e));
    r->device_exec = (Exec){.device = p->cuda ? p->device : &p->host, .error = &r->probe_error, .unary = &p->unary,
                            .cuda = p->cuda, .dtype = m->dtype, .first = &p->gate.base};
    r->run.families = &r->set, r->run.device_exec = &r->device_exec, r->run.graphs = &p->graphs;
    TRY(prepare_image(m->ops, job, stages, r, e));
    TRY(prepare_schedules(m, job, stages, r, e));
    for (int i = 0; i < (job->decode_only ? 0 : r->run.cfg ? 2 : 1); i++) {
        TRY(pipeline_tokenize(m, job, i, &r->tokens[i], e));
        for (int k = 0; k < r->tokens[i].rows; k++) {
            TokenRow *row = &r->tokens[i].row[k];
            char name[32];
            snprintf(name, sizeof name, "%sids_%s", i ? "negative_" : "", row->encoder);
            TRY(stages_host(stages, name, I32, 2, (int64_t[]){1, row->count}, row->ids, e));
            snprintf(name, sizeof name, "%smask_%s", i ? "negative_" : "", row->encoder);
            TRY(stages_host(stages, name, I32, 2, (int64_t[]){1, row->count}, row->mask, e));
        }
    }
    return OK;
}
