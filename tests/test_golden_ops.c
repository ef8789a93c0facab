/* test_golden_ops.c - every elementwise and norm op in bf16, fed with the reference's own inputs, must give its bits
 * (golden_ops.h says what may differ). GOLDEN_VERBOSE=1 prints the counts. Run from the repository root. */
#include "expect.h"
#include "golden_ops.h"

int main(void) {
    Golden g;
    if (golden_open(&g) != OK) {
        printf("%s\n", g.error.text);
        return 1;
    }
    const bool verbose = getenv("GOLDEN_VERBOSE") != NULL;
    for (int i = 0; i < GOLDEN_OP_COUNT; i++) {
        GoldenCount c;
        double metric = INFINITY;
        Status s = golden_op(&g, &GOLDEN_OPS[i], &c, &metric);
        if (s != OK) printf("%s: %s\n", GOLDEN_OPS[i].name, g.error.text);
        expect_at(s == OK && metric <= 1, "equal bits", GOLDEN_OPS[i].name, 0);
        if (verbose || !(metric <= 1))
            printf("%-20s %lld of %lld differ, %lld by more than one ulp\n", GOLDEN_OPS[i].name, (long long)c.differ,
                   (long long)c.elements, (long long)c.far);
    }
    golden_close(&g);
    return expect_done();
}
