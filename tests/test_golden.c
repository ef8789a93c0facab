/* test_golden.c - CLIP, T5, DiT and VAE of the tiny FLUX.1 checkpoint against diffusers' and transformers' tensors,
 * stage by stage (golden.h says how a stage is judged), in f32 and in bf16, batches of 1 and 2. Ops alone:
 * test_golden_ops.c. Whole pictures: test_runs.c.
 *
 * GOLDEN_VERBOSE=1 prints every stage. Easy to get wrong: run from the repository root. */
#include "expect.h"
#include "golden.h"

int main(void) {
    static const struct { const char *name; GoldenPart part; DType dtype; } RUNS[] = {
        {"clip_f32", PART_CLIP, F32},       {"t5_f32", PART_T5, F32},
        {"dit_f32", PART_DIT, F32},         {"dit_batch2_f32", PART_DIT, F32},
        {"vae_f32", PART_VAE, F32},         {"vae_batch2_f32", PART_VAE, F32},
        {"clip_bf16", PART_CLIP, BF16},     {"t5_bf16", PART_T5, BF16},
        {"dit_bf16", PART_DIT, BF16},       {"vae_bf16", PART_VAE, BF16},
    };
    const bool verbose = getenv("GOLDEN_VERBOSE") != NULL;
    Golden g;
    if (golden_open(&g) != OK) {
        printf("%s\n", g.error.text);
        return 1;
    }
    for (size_t i = 0; i < sizeof RUNS / sizeof *RUNS; i++) {
        g.stages = 0, g.worst = 0;
        Status s = golden_part(&g, GOLDEN_MODEL, RUNS[i].part, RUNS[i].dtype, RUNS[i].name);
        if (s != OK) printf("%s: %s\n", RUNS[i].name, g.error.text);
        expect(s == OK);
        for (int k = 0; k < g.stages; k++) {
            bool good = g.stage[k].metric <= 1;
            expect_at(good, g.stage[k].name, RUNS[i].name, 0);
            if (verbose || !good)
                printf("%-15s %-22s %.3f of the allowance\n", RUNS[i].name, g.stage[k].name, g.stage[k].metric);
        }
        const char *unseen = golden_unseen(&g);
        if (unseen) printf("%s: nothing was compared with %s\n", RUNS[i].name, unseen);
        expect(!unseen);
    }
    golden_close(&g);
    return expect_done();
}
