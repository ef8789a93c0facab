/* conv_check.c - what both tables refuse of roll (conv.h). One source, since it only reads shapes. */
#include "kernels/conv_check.h"

Status conv_check_roll(Exec *x, const Roll *a) {
    Tensor w = a->window, c = a->cache;
    bool alike = w.rank == c.rank && w.rank > 0 && w.dtype == c.dtype && w.shape[0] >= c.shape[0];
    for (int d = 1; alike && d < w.rank; d++) alike = w.shape[d] == c.shape[d];
    if (!alike || !tensor_contiguous(w) || !tensor_contiguous(c))
        return fail(x->error, ERR_MODEL, "roll: cache must be as many frames of window's kind as window has or fewer, both contiguous");
    return OK;
}
