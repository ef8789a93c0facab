/* pipeline_tell.c - a job in words, before and beside its run: what --dry-run shows, texts that are cut, tokens, meta.json.
 *
 * Easy to get wrong: only what pipeline_resolve has filled in is told; nothing is decided here. */
#include "pipeline_parts.h"

#include "clip.h"
#include "guiding.h"
#include "uses.h"

#include <cjson/cJSON.h>

/* Where an encoder stops reading a text; nothing when it reads all of it. */
static void print_cut(const TokenRow *row, const char *text, const char *before, FILE *out) {
    if (row->lost_byte < 0) return;
    const char *rest = text + row->lost_byte;
    rest += strspn(rest, " \t\r\n");
    fprintf(out, "%scut: \"%.*s\" and all that follows is lost", before, (int)strcspn(rest, " \t\r\n"), rest);
}

Status pipeline_note_cut(Pipeline *p, const Job *job, FILE *out, Error *e) {
    const char *texts[] = {job->prompt, job->cfg ? job->negative_prompt : NULL};
    for (int i = 0; i < 2 && texts[i]; i++) {
        Tokens tokens;
        TRY(pipeline_tokenize(p->model, job, i, &tokens, e));
        for (int k = 0; k < tokens.rows; k++) {
            const TokenRow *row = &tokens.row[k];
            if (row->lost_byte < 0) continue;
            fprintf(out, "note: encoder %s reads %lld tokens of the %sprompt", row->encoder, (long long)row->count,
                    i ? "negative " : "");
            print_cut(row, texts[i], "; ", out);
            fputc('\n', out);
        }
        model_tokens_free(&tokens);
    }
    return OK;
}

Status pipeline_describe(Pipeline *p, const Job *job, FILE *out, Error *e) {
    Model *m = p->model;
    Prepared r;
    Plan plan = {0};
    Status s = pipeline_prepare(p, job, NULL, &r, e);
    if (s == OK) s = pipeline_make_plan(p, &r, &plan, e);
    if (s == OK) {
        fprintf(out, "model          %s (%s), %s on %s\n", pipeline_title(p), p->folder, dtype_name(m->dtype), p->device->name);
        fprintf(out, "picture        %d x %d, %d steps, seed %llu\n", job->width, job->height, job->steps,
                (unsigned long long)job->seed);
        if (job->bin) fprintf(out, "made           %d x %d, then scaled and cropped\n", job->made_width, job->made_height);
        if (m->ops->clip) clip_describe(job, out);
        if (job->image)
            fprintf(out, "image          %s, %d x %d; strength %g: %d of %d steps run\n", job->image, job->image_width,
                    job->image_height, job->strength, job->steps - job->first_step, job->steps);
        fprintf(out, "guidance       %g (distilled)%s\n", job->guidance,
                job->guidance_given ? "" : job->guidance > 0 ? ", default" : ", none in this model");
        fprintf(out, "cfg scale      %g, %s%s\n", job->cfg_scale, r.run.cfg ? "two passes: " : "",
                r.run.cfg ? m->ops->cfg_formula : m->ops->cfg_off);
        guiding_describe(job, out);
        for (int i = 0; i < (r.run.cfg ? 2 : 1); i++)
            for (int k = 0; k < r.tokens[i].rows; k++) {
                const TokenRow *row = &r.tokens[i].row[k];
                fprintf(out, "tokens         %sencoder %s: %lld of %lld", i ? "negative, " : "", row->encoder,
                        (long long)row->used, (long long)row->count);
                print_cut(row, r.text[i], "; ", out);
                fputc('\n', out);
            }
        fprintf(out, "sigmas        ");
        for (int i = 0; i <= job->steps; i++) fprintf(out, " %.9g", (double)r.schedule[0].sigmas[i]);
        fputc('\n', out);
        fprintf(out, "quality        %s\n", job->quality == QUALITY_HIGH ? "high" : "lossless");
        uses_explain(m, out);
        plan_print(&plan, out);
        s = plan_check(&plan, e);
    }
    pipeline_unprepare(&r);
    return s;
}

Status pipeline_tokens(Pipeline *p, const char *prompt, FILE *out, Error *e) {
    Job job = {.prompt = prompt};
    Tokens tokens;
    TRY(pipeline_resolve(p, &job, e));
    TRY(pipeline_tokenize(p->model, &job, false, &tokens, e));
    for (int k = 0; k < tokens.rows; k++) {
        fprintf(out, "{\"encoder\":\"%s\",\"used\":%lld,\"ids\":[", tokens.row[k].encoder, (long long)tokens.row[k].used);
        for (int64_t i = 0; i < tokens.row[k].count; i++) fprintf(out, i ? ",%d" : "%d", tokens.row[k].ids[i]);
        fprintf(out, "]}\n");
    }
    model_tokens_free(&tokens);
    return OK;
}

Status pipeline_write_meta(Pipeline *p, const Job *job, Stages *stages, Error *e) {
    if (!job->dump) return OK;
    cJSON *j = cJSON_CreateObject();
    cJSON_AddStringToObject(j, "model", pipeline_title(p));
    cJSON_AddStringToObject(j, "prompt", job->prompt);
    if (job->negative_prompt) cJSON_AddStringToObject(j, "negative_prompt", job->negative_prompt);
    char seed[24];
    snprintf(seed, sizeof seed, "%llu", (unsigned long long)job->seed);
    cJSON_AddRawToObject(j, "seed", seed);
    cJSON_AddNumberToObject(j, "width", job->width);
    cJSON_AddNumberToObject(j, "height", job->height);
    cJSON_AddNumberToObject(j, "steps", job->steps);
    if (p->model->ops->clip) {
        char rate[RATE_TEXT];
        cJSON_AddNumberToObject(j, "frames", job->frames);
        cJSON_AddStringToObject(j, "fps", rate_text(job->fps, rate));
        if (job->motion_score) cJSON_AddNumberToObject(j, "motion_score", job->motion_score);
        if (job->bin) cJSON_AddTrueToObject(j, "bin");
    }
    if (job->image) {
        cJSON_AddStringToObject(j, "image_sha256", job->image_sha256);
        cJSON_AddNumberToObject(j, "strength", job->strength);
        cJSON_AddNumberToObject(j, "first_step", job->first_step);
    }
    cJSON_AddNumberToObject(j, "guidance", job->guidance);
    cJSON_AddNumberToObject(j, "cfg_scale", job->cfg_scale);
    guiding_add(j, job);
    if (job->cfg_normalization > 0) cJSON_AddNumberToObject(j, "cfg_normalization", job->cfg_normalization);
    if (job->cfg_truncation_given) cJSON_AddNumberToObject(j, "cfg_truncation", job->cfg_truncation);
    cJSON_AddNumberToObject(j, "max_sequence_length", job->max_sequence_length);
    cJSON_AddStringToObject(j, "device", p->device->name);
    cJSON_AddStringToObject(j, "dtype", dtype_name(p->model->dtype));
    if (pipeline_vae_dtype(p)) cJSON_AddStringToObject(j, "vae_dtype", dtype_name(pipeline_vae_dtype(p)));
    cJSON_AddStringToObject(j, "quality", job->quality == QUALITY_HIGH ? "high" : "lossless");
    cJSON_AddStringToObject(j, "families", job->families ? job->families : "all");
    cJSON_AddStringToObject(j, "unary_tables", unary_source());
    char *text = cJSON_Print(j);
    Status s = text ? stages_meta(stages, text, e) : fail(e, ERR_MEMORY, "out of memory");
    cJSON_free(text);
    cJSON_Delete(j);
    return s;
}
