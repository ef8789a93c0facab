/* te_decoder.h - what the decoders that serve as text encoders share: rotary positions in halves, as transformers' default
 * RoPE makes them.
 *
 * Not here: layers (te_qwen3.c, te_gemma2.c). Easy to get wrong: frequencies and angles are f32, cos and sin are rounded to the
 * dtype of the stream. */
#ifndef TE_DECODER_H
#define TE_DECODER_H

#include "core/json.h"
#include "ops.h"

/* The file's own keys, and what newer transformers write: rope_parameters {rope_theta, rope_type}. ERR_MODEL for scaling or a
 * type other than "default", and for a theta that is not above 1. Absent keys leave *theta. */
Status te_decoder_theta(const Json *j, const char *path, double *theta, Error *e);

/* cos, sin F32 [T, head/2], the first `real` rows; the padding behind them is given zeros. Nothing on a dry run. */
Status te_decoder_rope(Exec *x, double theta, int64_t head, int64_t real, Tensor cos_table, Tensor sin_table);

#endif
