/* test_ltx2_dit.c - LTX-2's transformer, drawn from a seed, against diffusers stage by stage (golden.h says how a stage is
 * judged): 2.0 and 2.3, the passes of a step, tokens with times of their own; what its config refuses.
 *
 * GOLDEN_VERBOSE=1 prints every stage. Easy to get wrong: run from the repository root. */
#include "golden_judge.h"
#include "golden_ltx2_dit.h"

static void refusals(const char *folder) {
    static const struct { const char *key, *value, *text; } FAULTS[] = {
        {"ff_bias", "false", "ff_bias: found false, expected true: an LTX-2.5 model"},
        {"use_prompt_adaln_single", "false", "an LTX-2.5 model"},
        {"use_keyframes_abs_pos_embedding", "true", "an LTX-2.5 model"},
        {"rope_type", "\"interleaved\"", "rope_type: found \"interleaved\", expected \"split\""},
        {"rope_type", "null", "rope_type: found \"interleaved\""}, /* the class default */
        {"rope_double_precision", "false", "rope_double_precision"},
        {"patch_size", "2", "patch_size: found 2, expected 1"},
        {"audio_patch_size_t", "2", "audio_patch_size_t"},
        {"norm_elementwise_affine", "true", "norm_elementwise_affine"},
        {"attention_bias", "false", "attention_bias"},
        {"qk_norm", "\"rms_norm\"", "qk_norm"},
        {"activation_fn", "\"geglu\"", "activation_fn"},
        {"cross_attention_dim", "64", "cross_attention_dim"},
        {"audio_num_attention_heads", "4", "audio_num_attention_heads"},
        {"cross_attn_mod", "true", "audio_cross_attn_mod as cross_attn_mod"},
        {"vae_scale_factors", "[8, 32]", "vae_scale_factors"},
        {"rope_theta", "-1.0", "rope_theta"},
    };
    ltx2_write(folder, false);
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) {
        Ltx2Dit m = {0};
        Error e = {0};
        draw_config(folder, GOLDEN_DIR "/tiny-ltx2.json");
        mutate_json(folder, "config.json", FAULTS[i].key, FAULTS[i].value);
        expect_status(dit_ltx2_open(folder, &m, &e), ERR_MODEL, FAULTS[i].text, &e);
        dit_ltx2_close(&m);
    }
}

/* The published sizes: as many parameters as the checkpoints have, and places as their tables have. */
static void published(const char *folder) {
    static const char *const EMPTY = "{\"rope_type\": \"split\"}";
    Ltx2Dit m = {0};
    Bind b = {.prefix = ""};
    Error e = {0};
    char path[700];
    snprintf(path, sizeof path, "%s/config.json", folder);
    mutate_write(path, EMPTY, strlen(EMPTY));
    expect_ok(dit_ltx2_open(folder, &m, &e), &e);
    dit_ltx2_bind(&m, &b);
    int64_t parameters = 0;
    for (int i = 0; i < b.count; i++) parameters += draw_count(&b.rows[i]);
    expect(b.count == 3510 && parameters == 18876174592);
    Ltx2Place *place = calloc((size_t)16 * 16 * 24, sizeof *place);
    if (!place) abort();
    dit_ltx2_places(&m, 16, 16, 24, 24, place);
    const Ltx2Place *p = &place[384 + 2 * 24 + 3]; /* frame 1, row 2, column 3 */
    expect(fabs((double)(p->from[0] + p->to[0]) / 2 - 5.0 / 24) < 1e-6 && p->from[1] == 64 && p->to[2] == 128);
    expect(place[0].from[0] == 0 && fabs((double)place[0].to[0] - 1.0 / 24) < 1e-8);
    free(place);
    bind_free(&b);
    dit_ltx2_close(&m);
}

/* What must not matter: whether a prompt runs alone or in a batch, or that tokens of one time are said in two parts. */
static void same(Golden *g, const char *folder) {
    for (int newer = 0; newer < 2; newer++) {
        char model[600];
        const char *name = newer ? "23" : "20";
        const Ltx2Case alone = {name, .newer = newer, .only = true};
        const Ltx2Case parts = {name, .newer = newer, .given = true, .alike = true};
        snprintf(model, sizeof model, "%s/%s", folder, newer ? "newer" : "older");
        g->item = 1; /* the second prompt's half */
        golden_judge(g, golden_ltx2_dit(g, model, F32, &alone), "alone");
        g->item = 0;
        golden_judge(g, golden_ltx2_dit(g, model, F32, &parts), "in parts");
        if (newer) golden_judge(g, golden_ltx2_dit(g, model, BF16, &parts), "in parts, bf16");
    }
}

/* The class norms queries and keys by an epsilon of its own, whatever norm_eps is: keys of the prompt meet no other norm. */
static void epsilon(Golden *g, const char *folder) {
    char model[600];
    Ltx2Dit m = {0};
    GoldenWeights w = {.bind.prefix = ""};
    Ltx2Prompt p[2];
    snprintf(model, sizeof model, "%s/older", folder);
    expect_ok(golden_start(g, "ltx2dit_20_f32", F32), &g->error);
    expect_ok(dit_ltx2_open(model, &m, &g->error), &g->error);
    expect_ok(weights_open(model, &w.files, &g->error), &g->error);
    dit_ltx2_bind(&m, &w.bind);
    expect_ok(golden_bind(g, &w, F32, NULL), &g->error);
    size_t mark = arena_mark(&g->work);
    for (int i = 0; i < 2; i++) {
        Tensor contexts[LTX2_STREAMS];
        Rng rng;
        rng_seed(&rng, LTX2_SEED_INPUTS);
        m.c.eps = i ? 0.5 : 1e-6;
        for (int s = 0; s < LTX2_STREAMS; s++)
            contexts[s] = ltx2_input(g, &rng, F32, LTX2_TEXT, dit_ltx2_context(&m, (Ltx2Which)s), 3);
        dit_ltx2_prompt_room(&m, &g->x, 1, LTX2_TEXT, &p[i]);
        expect_ok(dit_ltx2_prompt(&m, &g->x, contexts, &p[i]), &g->error);
    }
    for (int s = 0; s < LTX2_STREAMS; s++)
        expect(!memcmp(p[0].kv[s].data, p[1].kv[s].data, tensor_bytes(p[0].kv[s])));
    arena_reset(&g->work, mark);
    golden_unbind(&w);
    dit_ltx2_close(&m);
    golden_stop(g);
}

static void spans(Golden *g, const char *folder) {
    static const Ltx2Grid GRIDS[] = {{.tokens = {12, 5}, .spans = 1, .span = {{0, 11, 0}}},
                                     {.tokens = {12, 5}, .spans = 2, .span = {{0, 6, 0}, {6, 6, 1}}},
                                     {.tokens = {12, 5}, .spans = 2, .span = {{0, 6, 0}, {7, 5, 0}}}};
    char path[600];
    Ltx2Dit m = {0};
    snprintf(path, sizeof path, "%s/older", folder);
    expect_ok(dit_ltx2_open(path, &m, &g->error), &g->error);
    Tensor t = exec_new_as(&g->x, F32, 1);
    const Ltx2Step step = {.video = t, .audio = t, .sigma = {t, t}};
    const Ltx2Prompt prompt = {.samples = 2};
    const Tensor none[LTX2_STREAMS] = {{0}};
    for (size_t i = 0; i < sizeof GRIDS / sizeof *GRIDS; i++)
        expect_status(dit_ltx2_run(&m, &g->x, &GRIDS[i], &prompt, &step, &(Ltx2Pass){.count = 1}, none, none), ERR_MODEL,
                      "spans of tokens", &g->error);
    const Ltx2Grid grid = {.tokens = {12, 5}};
    expect_status(dit_ltx2_run(&m, &g->x, &grid, &prompt, &step, &(Ltx2Pass){.first = 1, .count = 2}, none, none), ERR_MODEL,
                  "a pass of 2 prompts", &g->error);
    dit_ltx2_close(&m);
}

int main(void) {
    char folder[500], model[600];
    Golden g;
    expect_folder(folder, sizeof folder);
    if (golden_open(&g) != OK) return printf("%s\n", g.error.text), 1;
    snprintf(model, sizeof model, "%s/other", folder);
    refusals(model);
    published(model);
    for (int i = 0; i < LTX2_CASE_COUNT; i++) {
        const Ltx2Case *c = &LTX2_CASES[i];
        char name[40];
        snprintf(model, sizeof model, "%s/%s", folder, c->newer ? "newer" : "older");
        ltx2_write(model, c->newer);
        for (int half = 0; half <= c->half; half++) {
            snprintf(name, sizeof name, "%s_%s", c->name, half ? "bf16" : "f32");
            Status s = golden_ltx2_dit(&g, model, half ? BF16 : F32, c);
            golden_judge(&g, s, name);
        }
    }
    same(&g, folder);
    epsilon(&g, folder);
    spans(&g, folder);
    golden_close(&g);
    expect_cleanup(folder);
    return expect_done();
}
