/* test_zimage.c - the tiny Z-Image checkpoint against diffusers and transformers: Qwen3 and the transformer stage by stage
 * (golden.h says how a stage is judged), the edges of the padding to 32, and whole pictures: Turbo, base with guidance and
 * a negative prompt, guidance that is normalised and truncated.
 *
 * GOLDEN_VERBOSE=1 prints every stage. Easy to get wrong: run from the repository root. */
#include "expect.h"
#include "golden_runs.h"
#include "golden_zimage.h"
#include "mutate.h"

static void judge(Golden *g, Status s, const char *name) {
    if (s != OK) printf("%s: %s\n", name, g->error.text);
    expect(s == OK && g->stages > 0);
    for (int k = 0; k < g->stages; k++) {
        bool good = g->stage[k].metric <= 1;
        expect_at(good, g->stage[k].name, name, 0);
        if (getenv("GOLDEN_VERBOSE") || !good)
            printf("%-18s %-24s %.3f of the allowance\n", name, g->stage[k].name, g->stage[k].metric);
    }
    g->stages = 0, g->worst = 0;
}

static void parts(void) {
    static const struct { const char *name; bool te; DType dtype; } RUNS[] = {
        {"qwen3_f32", true, F32},     {"qwen3_bf16", true, BF16},    {"zdit_f32", false, F32},
        {"zdit_bf16", false, BF16},   {"zdit_n1_f32", false, F32},   {"zdit_n32_f32", false, F32},
        {"zdit_n33_f32", false, F32},
    };
    Golden g;
    if (golden_open(&g) != OK) {
        printf("%s\n", g.error.text);
        expect(0);
        return;
    }
    for (size_t i = 0; i < sizeof RUNS / sizeof *RUNS; i++) {
        Status s = golden_zimage(&g, ZIMAGE_MODEL, RUNS[i].te, RUNS[i].dtype, RUNS[i].name);
        for (int k = 0; k < g.file.count; k++) { /* every golden output was compared */
            bool seen = !strchr(g.file.entry[k].name, '.') || strchr(g.file.entry[k].name, '@');
            for (int j = 0; j < g.stages; j++) seen |= !strcmp(g.stage[j].name, g.file.entry[k].name);
            expect_at(seen, g.file.entry[k].name, RUNS[i].name, 0);
        }
        judge(&g, s, RUNS[i].name);
    }
    golden_close(&g);
}

int main(void) {
    char folder[500], base[600], dump[700];
    expect_folder(folder, sizeof folder);
    snprintf(base, sizeof base, "%s/base-model", folder);
    mutate_copy_folder(ZIMAGE_MODEL, base);
    mutate_json(base, "scheduler/scheduler_config.json", "shift", "6.0");
    parts();
    const struct { const char *name, *model; DType dtype; } runs[] = {
        {"zimage_turbo_f32", ZIMAGE_MODEL, F32}, {"zimage_turbo_bf16", ZIMAGE_MODEL, BF16}, {"zimage_base_f32", base, F32},
        {"zimage_base_bf16", base, BF16},        {"zimage_norm_f32", base, F32}};
    Golden g = {0};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        snprintf(dump, sizeof dump, "%s/%s", folder, runs[i].name);
        judge(&g, golden_picture(&g, runs[i].model, runs[i].dtype, runs[i].name, dump), runs[i].name);
    }
    safetensors_close(&g.file);
    expect_cleanup(folder);
    return expect_done();
}
