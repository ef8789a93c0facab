/* check_dump.h - `checkop --dump DIR`: arguments and results of the table's reference at the models' shapes, as files for
 * another program to compute again (scripts/compare_ops.py). Judges nothing.
 *
 * DIR/0.safetensors, 1.safetensors, ... hold a call each: "in0".. the inputs as they were before it, "w0", "b0".. weights and
 * biases, "out0".. what it wrote, each contiguous; scalars as text in __metadata__ ("s0".. as the 4 bytes' hexadecimal
 * value), and "op", "place", "variant", "shapes".
 * Easy to get wrong: inputs count without the outputs, in the order of the args struct; an absent one leaves a gap. */
#ifndef CHECK_DUMP_H
#define CHECK_DUMP_H

#include <stdbool.h>

/* One op of one backend, in BF16 or F32; prints a line a file. The exit code. */
int dump_all(const char *backend, const char *op, bool small, bool f32, int threads, const char *folder);

#endif
