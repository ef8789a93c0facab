/* golden_judge.h - says of one run's stages (golden.h) whether they are within their allowance, each stage one expectation, and
 * whether every golden output was compared. For the programs that hold a part against its goldens.
 *
 * GOLDEN_VERBOSE=1 prints every stage. Easy to get wrong: a run adds to the stages of the one before until golden_clear(). */
#ifndef GOLDEN_JUDGE_H
#define GOLDEN_JUDGE_H

#include "expect.h"
#include "golden.h"

static inline void golden_clear(Golden *g) { g->stages = 0, g->worst = 0; }

/* s: what the run returned; limit: of golden.h's allowance. */
static inline void golden_within(const Golden *g, Status s, const char *name, double limit) {
    if (s != OK) printf("%s: %s\n", name, g->error.text);
    expect(s == OK && g->stages > 0);
    for (int k = 0; k < g->stages; k++) {
        bool good = g->stage[k].metric <= limit;
        expect_at(good, g->stage[k].name, name, 0);
        if (getenv("GOLDEN_VERBOSE") || !good)
            printf("%-18s %-28s %.3g of the allowance\n", name, g->stage[k].name, g->stage[k].metric / limit);
    }
}

/* dotless: tensors whose name has no dot are outputs too, not inputs. */
static inline void golden_all_seen(const Golden *g, const char *name, bool dotless) {
    for (int k = 0; k < g->file.count; k++) {
        const char *output = g->file.entry[k].name;
        bool seen = strchr(output, '@') || (!dotless && !strchr(output, '.'));
        for (int j = 0; j < g->stages; j++) seen |= !strcmp(g->stage[j].name, output);
        expect_at(seen, output, name, 0);
    }
}

/* A run of which every golden tensor is an output; then clear for the next one. */
static inline void golden_judge(Golden *g, Status s, const char *name) {
    golden_within(g, s, name, 1);
    golden_all_seen(g, name, true);
    golden_clear(g);
}

#endif
