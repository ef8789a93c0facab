/* test_runs.c - whole pictures of the tiny FLUX.1 checkpoint against diffusers: guidance-distilled, with classifier-free
 * guidance, and the schnell variant; in f32 and in bf16 (golden_runs.h says how a stage is judged).
 *
 * GOLDEN_VERBOSE=1 prints every stage. Easy to get wrong: run from the repository root. */
#include "expect.h"
#include "golden_runs.h"
#include "mutate.h"

int main(void) {
    char folder[500], schnell[600], dump[700];
    expect_folder(folder, sizeof folder);
    snprintf(schnell, sizeof schnell, "%s/schnell-model", folder);
    mutate_copy_folder(GOLDEN_MODEL, schnell);
    mutate_drop(schnell, "transformer/diffusion_pytorch_model.safetensors", "guidance_embedder");
    mutate_json(schnell, "transformer/config.json", "guidance_embeds", "false");
    mutate_json(schnell, "scheduler/scheduler_config.json", "shift", "1.0");
    mutate_json(schnell, "scheduler/scheduler_config.json", "use_dynamic_shifting", "false");
    const struct { const char *name, *model; DType dtype; } runs[] = {
        {"dev_f32", GOLDEN_MODEL, F32}, {"dev_bf16", GOLDEN_MODEL, BF16}, {"cfg_f32", GOLDEN_MODEL, F32},
        {"cfg_bf16", GOLDEN_MODEL, BF16}, {"schnell_f32", schnell, F32}, {"schnell_bf16", schnell, BF16}};
    Golden g = {0};
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        snprintf(dump, sizeof dump, "%s/%s", folder, runs[i].name);
        g.stages = 0, g.worst = 0;
        Status s = golden_picture(&g, runs[i].model, runs[i].dtype, runs[i].name, dump);
        if (s != OK) printf("%s: %s\n", runs[i].name, g.error.text);
        expect(s == OK && g.stages > 0);
        for (int k = 0; k < g.stages; k++) {
            bool good = g.stage[k].metric <= 1;
            expect_at(good, g.stage[k].name, runs[i].name, 0);
            if (getenv("GOLDEN_VERBOSE") || !good)
                printf("%-13s %-24s %.3f of the allowance\n", runs[i].name, g.stage[k].name, g.stage[k].metric);
        }
    }
    safetensors_close(&g.file);
    expect_cleanup(folder);
    return expect_done();
}
