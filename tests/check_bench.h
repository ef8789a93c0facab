/* check_bench.h - `checkop --bench`: how long every variant of every op takes at the shapes that the models call it with.
 *
 * One line a variant and shape, the table's reference (the unfused chain) first: median microseconds of a launch, GB/s of
 * the arguments or TFLOP/s, the share of the rate at which this machine copies a large buffer, and how many times as fast
 * as the reference it is. Results are not looked at: that is checkop's other half.
 * Easy to get wrong: launches take turns with copies of all arguments, weights too, of at least four times the L2 together,
 * so that no launch finds its data there; in a model some of it would be. */
#ifndef CHECK_BENCH_H
#define CHECK_BENCH_H

#include <stdbool.h>

/* All of it, or one backend's, or one op's; prints the table. The exit code. */
int bench_all(const char *backend, const char *op, bool small, int threads);

#endif
