/* ltx2_text.c - LTX-2's prompts: all hidden states of Gemma-3, made into two contexts by the connectors; and what they and a
 * size fix for the transformer.
 *
 * Easy to get wrong: the connectors see both prompts of guidance as one batch, as in diffusers, so what they make is remembered
 * of the pair; the text encoder sees one prompt at a time. */
#include "models/ltx2.h"

#include <stdio.h>
#include <stdlib.h>

static const char *const NAMES[2][LTX2_STREAMS] = {
    {"prompt_embeds", "audio_prompt_embeds"}, {"negative_prompt_embeds", "negative_audio_prompt_embeds"}};

/* Which text sample i is: 0 the prompt, 1 the negative one. */
static int text_of(const Run *run, int i) { return run->cfg && i == 0; }

/* contexts [samples * rows, width] from the texts. */
static Status make(Ltx2 *z, Exec *x, const Run *run, const Tensor context[LTX2_STREAMS]) {
    int samples = 1 + run->cfg;
    int64_t rows = run->job->max_sequence_length;
    size_t mark = arena_mark(x->work);
    int64_t used[2];
    Gemma3States states[2];
    for (int i = 0; i < samples; i++) used[i] = run->tokens[text_of(run, i)].row[0].used;
    model_enter(x, &z->base.part[LTX2_TE]);
    te_gemma3_room(&z->te, x, samples, rows, used, states);
    for (int i = 0; i < samples; i++)
        TRY(te_gemma3_states(&z->te, x, run->tokens[text_of(run, i)].row[0].ids, rows, &states[i]));
    model_enter(x, &z->base.part[LTX2_CONNECTORS]);
    z->connectors.form = guiding_official(run->job) ? ROPE_SPLIT_DTYPE : ROPE_SPLIT_ONCE;
    TRY(ltx2_connectors_run(&z->connectors, x, samples, rows, states, context));
    arena_reset(x->work, mark);
    return OK;
}

/* "ltx2 PROFILE LENGTH DTYPE FAMILIES STREAM NEGATIVE-SIZE NEGATIVE PROMPT", malloc'd. */
static char *key_of(const Ltx2 *z, const Run *run, int which) {
    const char *negative = run->cfg ? run->text[1] : "";
    char *key = NULL;
    if (asprintf(&key, "ltx2 %d %d %d %u %d %zu %s %s", guiding_official(run->job), run->job->max_sequence_length,
                 (int)z->base.dtype, model_bounded(run->families), which, run->cfg ? strlen(negative) + 1 : 0, negative,
                 run->text[0]) < 0)
        return NULL;
    return key;
}

/* Every text is injected: nothing to encode. */
static bool all_injected(const Run *run) {
    for (int i = 0; i <= run->cfg; i++)
        for (int k = 0; k < LTX2_STREAMS; k++)
            if (!stages_injected(run->stages, NAMES[i][k])) return false;
    return true;
}

static Status remembered(Ltx2 *z, Exec *x, const Run *run, const Tensor context[LTX2_STREAMS], bool put,
                         bool *found) {
    for (int k = 0; k < LTX2_STREAMS; k++) {
        char *key = key_of(z, run, k);
        if (!key) return fail(x->error, ERR_MEMORY, "connectors: out of memory");
        Status s =
            put ? memo_put(run->memo, x, key, context[k]) : memo_get(run->memo, x, key, context[k], found);
        free(key);
        TRY(s);
        if (!put && !*found) return OK;
    }
    return OK;
}

static Status contexts(Ltx2 *z, Exec *x, const Run *run, Tensor context[LTX2_STREAMS]) {
    int samples = 1 + run->cfg;
    int64_t rows = run->job->max_sequence_length;
    bool done = all_injected(run) && !x->dry;
    for (int k = 0; k < LTX2_STREAMS; k++)
        context[k] = exec_tensor(x, z->base.dtype, 2,
                                 (int64_t[]){samples * rows, dit_ltx2_context(&z->dit, (Ltx2Which)k)});
    if (!done) TRY(remembered(z, x, run, context, false, &done));
    if (!done) {
        TRY(make(z, x, run, context));
        TRY(remembered(z, x, run, context, true, &done));
    }
    model_enter(x, &z->base.part[LTX2_CONNECTORS]);
    for (int i = 0; i < samples; i++)
        for (int k = 0; k < LTX2_STREAMS; k++) {
            Tensor t = tensor_slice(context[k], 0, i * rows, rows);
            const char *name = NAMES[text_of(run, i)][k];
            char stage[80];
            TRY(stages_pass(run->stages, x, name, t, 3, (int64_t[]){1, rows, t.shape[1]}));
            snprintf(stage, sizeof stage, "connectors: %s", name);
            TRY(exec_check_finite(x, t, stage));
        }
    return OK;
}

/* All rows are always there: registers stand where there are no tokens. */
Status ltx2_texts(Model *m, Exec *x, const Run *run, int64_t *rows) {
    size_t mark = arena_mark(x->work);
    Tensor context[LTX2_STREAMS];
    TRY(contexts((Ltx2 *)m, x, run, context));
    arena_reset(x->work, mark);
    *rows = (int64_t)run->job->max_sequence_length << 1 | run->cfg;
    return OK;
}

/* --- all that a job fixes --- */

Status ltx2_places(Ltx2 *z, Exec *x, const Run *run) {
    Ltx2Size s = ltx2_size(z, run->job);
    Rate fps = run->job->fps;
    Ltx2Place *place = x->dry ? NULL : malloc((size_t)s.tokens[LTX2_VIDEO] * sizeof *place);
    if (!place && !x->dry) return fail(x->error, ERR_MEMORY, "transformer: out of memory for positions");
    z->grid = (Ltx2Grid){.tokens = {s.tokens[LTX2_VIDEO], s.tokens[LTX2_AUDIO]},
                         .form = guiding_official(run->job) ? ROPE_SPLIT_DTYPE : ROPE_SPLIT_ONCE};
    if (run->image) ltx2_image_spans(run, &s, &z->grid);
    if (place) {
        dit_ltx2_places(&z->dit, s.frames, s.rows, s.cols, (double)fps.num / fps.den, place);
        ltx2_image_places(z, run, &s, place + s.tokens[LTX2_VIDEO] - s.extra);
    }
    Status status = dit_ltx2_rope(&z->dit, x, place, &z->grid);
    free(place);
    return status;
}

Status ltx2_encode(Model *m, Exec *x, const Run *run) {
    Ltx2 *z = (Ltx2 *)m;
    Tensor context[LTX2_STREAMS];
    z->finished = false;
    Ltx2Size s = ltx2_size(z, run->job);
    if (run->image) ltx2_image_room(z, x, &s);
    model_enter(x, &m->part[LTX2_DIT]);
    dit_ltx2_prompt_room(&z->dit, x, 1 + run->cfg, run->job->max_sequence_length, &z->prompt);
    TRY(ltx2_places(z, x, run));
    size_t mark = arena_mark(x->work);
    TRY(contexts(z, x, run, context));
    if (run->image) TRY(ltx2_image(z, x, run, &s));
    model_enter(x, &m->part[LTX2_DIT]);
    TRY(dit_ltx2_prompt(&z->dit, x, context, &z->prompt));
    arena_reset(x->work, mark);
    return OK;
}
