/* test_sana_video.c - SANA-Video's transformer, drawn from a seed, against diffusers stage by stage (golden.h says how a stage
 * is judged), and what its config refuses.
 *
 * GOLDEN_VERBOSE=1 prints every stage. Easy to get wrong: run from the repository root. */
#include "expect.h"
#include "golden_sana.h"

static void judge(Golden *g, Status s, const char *name) {
    if (s != OK) printf("%s: %s\n", name, g->error.text);
    expect(s == OK && g->stages > 0);
    for (int k = 0; k < g->stages; k++) {
        bool good = g->stage[k].metric <= 1;
        expect_at(good, g->stage[k].name, name, 0);
        if (getenv("GOLDEN_VERBOSE") || !good)
            printf("%-18s %-24s %.3f of the allowance\n", name, g->stage[k].name, g->stage[k].metric);
    }
    for (int k = 0; k < g->file.count; k++) { /* every golden output was compared */
        bool seen = strchr(g->file.entry[k].name, '@') != NULL;
        for (int j = 0; j < g->stages; j++) seen |= !strcmp(g->stage[j].name, g->file.entry[k].name);
        expect_at(seen, g->file.entry[k].name, name, 0);
    }
    g->stages = 0, g->worst = 0;
}

static void refusals(const char *folder) {
    static const struct { const char *key, *value, *text; } FAULTS[] = {
        {"out_channels", "12", "out_channels: found 12"},
        {"cross_attention_dim", "64", "cross_attention_dim"},
        {"num_cross_attention_heads", "4", "num_cross_attention_heads"},
        {"patch_size", "[2, 2, 2]", "patch_size: expected [1, n, n]"},
        {"norm_elementwise_affine", "true", "norm_elementwise_affine"},
        {"guidance_embeds", "true", "guidance_embeds"},
        {"qk_norm", "\"rms_norm\"", "qk_norm"},
        {"attention_head_dim", "15", "cross_attention_dim"},
        {"mlp_ratio", "-1.0", "mlp_ratio"},
    };
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) {
        SanaVideoDit m = {0};
        Error e = {0};
        sana_write(folder);
        mutate_json(folder, "config.json", FAULTS[i].key, FAULTS[i].value);
        expect_status(dit_sana_video_open(folder, &m, &e), ERR_MODEL, FAULTS[i].text, &e);
        dit_sana_video_close(&m);
    }
}

int main(void) {
    char folder[500], model[600];
    Golden g;
    expect_folder(folder, sizeof folder);
    snprintf(model, sizeof model, "%s/transformer", folder);
    sana_write(model);
    if (golden_open(&g) != OK) return printf("%s\n", g.error.text), 1;
    for (int64_t clean = 0; clean <= SANA_FRAMES; clean++) { /* all frames at one time, said in two parts */
        char name[40];
        snprintf(name, sizeof name, "f32, %d frames apart", (int)clean);
        judge(&g, golden_sana(&g, model, F32, &(SanaRun){.clean = clean}), name);
        snprintf(name, sizeof name, "bf16, %d frames apart", (int)clean);
        judge(&g, golden_sana(&g, model, BF16, &(SanaRun){.clean = clean}), name);
    }
    golden_close(&g);
    refusals(model);
    expect_cleanup(folder);
    return expect_done();
}
