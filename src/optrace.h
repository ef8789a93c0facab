/* optrace.h - `--trace FILE`: what every op wrote, a line a tensor, in the order in which they ran.
 *
 * Where stages (stages.h) say that two runs part, this says at which op. A line: phase, op, variant, number of the output,
 * dtype, shape ("2x77x768"), hash; tabs between. The hash is of the elements' bits without their order, so that a tensor has
 * the same one whatever its strides, and scripts/optrace.py looks for it among the results of PyTorch's own functions:
 *   sum over elements of mix(bits), modulo 2^64, bits as an unsigned number of the element's size,
 *   mix(v): x = (v + 1) * 0x9E3779B97F4A7C15; x ^= x >> 29; x *= 0xBF58476D1CE4E5B9.
 * Last in a line, of up to OPTRACE_ROWS rows (dimension 0, of two and more), each one's own hash, its upper 48 bits in 12 digits:
 * of padded texts the real rows can be equal and the others not.
 * An OpTimer of an Exec, so no graph is captured beside it. Every output comes to the host: slow.
 * Easy to get wrong: fused ops hide what stands between them (--families none shows it); an op that works in place has
 * the name of its result only. */
#ifndef OPTRACE_H
#define OPTRACE_H

#include "ops.h"

typedef struct OpTrace OpTrace;

enum { OPTRACE_ROWS = 2048 };

Status optrace_open(OpTrace **out, Error *e);
void optrace_close(OpTrace *t); /* NULL is fine */
OpTimer *optrace_timer(OpTrace *t);
void optrace_phase(OpTrace *t, const char *phase); /* of the lines from here on; a literal */
/* All lines so far, as a file. ERR_IO, ERR_MEMORY, and as file_write_atomic. */
Status optrace_write(OpTrace *t, const char *path, bool overwrite, Error *e);
uint64_t optrace_hash(const void *data, const Tensor *t); /* of t's elements, as they lie from data on, on the host */

#endif
