/* test_ltx2_audio.c - the sound side of LTX-2: names and sizes of the published checkpoints, whole runs against
 * diffusers in f32, every stage in bf16, lengths, refusals, the memory plan.
 *
 * GOLDEN_VERBOSE=1 prints how near everything is. Run from the repository root. */
#include "expect.h"
#include "golden_ltx2_audio.h"

#include <omp.h>

static char folder[500]; /* lint: allow-static (test program) */

static void report(const Golden *g, const char *part, const char *what) {
    for (int i = 0; i < g->stages; i++) {
        bool good = g->stage[i].metric <= 1;
        expect_at(good, g->stage[i].name, part, 0);
        if (!good || getenv("GOLDEN_VERBOSE"))
            printf("%-11s %-4s %-22s %.3g\n", part, what, g->stage[i].name, g->stage[i].metric);
    }
}

int main(void) {
    static Golden g; /* lint: allow-static (test program) */
    static const int STAGES[AUDIO_PARTS][2] = {{2, 12}, {2, 8}, {2, 15}};
    AudioParts p;
    omp_set_num_threads(1); /* tiny tensors: threads only wait for each other */
    expect_folder(folder, sizeof folder);
    expect_ok(golden_open(&g), &g.error);
    for (AudioPart part = AUDIO_VAE; part < AUDIO_PARTS; part++) {
        audio_checkpoint(&g, part, folder);
        expect_ok(audio_golden(&g, part), &g.error);
        for (int half = 0; half < 2; half++) {
            g.stages = 0;
            expect_ok(audio_open(&g, part, folder, half ? BF16 : F32, &p), &g.error);
            expect_ok(half ? audio_bf16(&g, &p) : audio_f32(&g, &p), &g.error);
            expect(g.stages == STAGES[part][half]);
            report(&g, AUDIO_NAMES[part], half ? "bf16" : "f32");
            audio_close(&p);
        }
    }
    golden_close(&g);
    expect_cleanup(folder);
    return expect_done();
}
