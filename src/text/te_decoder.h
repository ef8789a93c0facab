/* te_decoder.h - what the decoders that serve as text encoders share: rotary positions in halves, as transformers' default
 * RoPE makes them.
 *
 * Not here: layers (te_qwen3.c, te_gemma.c). Easy to get wrong: frequencies and angles are f32, cos and sin are rounded to the
 * dtype of the stream. */
#ifndef TE_DECODER_H
#define TE_DECODER_H

#include "core/json.h"
#include "ops.h"

/* The file's own keys, and what newer transformers write: rope_parameters {rope_theta, rope_type}. ERR_MODEL for scaling or a
 * type other than "default", and for a theta that is not above 1. Absent keys leave *theta. */
Status te_decoder_theta(const Json *j, const char *path, double *theta, Error *e);

/* cos, sin F32 [T, head/2] of positions first, first + 1, ...: angles p / theta^(2i / head) / factor in f32, their cosines and
 * sines by op_cos_sin, rounded to the stream's dtype. Easy to get wrong: PyTorch's power is a unit off the exact one for single i
 * (1e4 and 1e6 of heads of 256, 1e6 of 128: one each); ours is exact. */
Status te_decoder_rope(Exec *x, double theta, double factor, int64_t first, Tensor cos_table, Tensor sin_table);

#endif
