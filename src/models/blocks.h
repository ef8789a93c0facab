/* blocks.h - pieces that several models share: rotary tables, small conditioning MLPs. Not a model. */
#ifndef BLOCKS_H
#define BLOCKS_H

#include "ops.h"

/* Rotary tables on the host: cos, sin F32 [rows, sum(axes)/2], row-major, filled for one row. position[a] is the
 * row's coordinate on axis a. Angle = position * theta^(-2i/axis) in float64, cos and sin in float64, then rounded
 * (diffusers' get_1d_rotary_pos_embed with float64 frequencies). */
void blocks_rope_row(const int64_t *axes, int axis_count, const double *position, double theta, float *cos_row,
                     float *sin_row);

/* t, F32 and contiguous, with its values rounded to x's dtype. */
Status blocks_round(Exec *x, Tensor t);

/* Rotary tables by the device's own functions: cos and sin of angles, all F32, contiguous and of one shape; cos may be angles.
 * round: their values are then rounded to x's dtype. */
Status blocks_cos_sin(Exec *x, Tensor angles, Tensor cos_table, Tensor sin_table, bool round);

/* linear_2(silu(linear_1(x))): the embedders of timestep, guidance and pooled text. y [M,D], x [M,K]. */
typedef struct BlocksMlp { Weight linear_1, linear_2; } BlocksMlp;
void blocks_mlp_bind(Bind *b, BlocksMlp *m, int64_t in, int64_t hidden, const char *name);
Status blocks_mlp(const BlocksMlp *m, Exec *x, Tensor y, Tensor in);

#endif
