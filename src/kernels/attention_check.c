/* attention_check.c - see attention_check.h. */
#include "kernels/attention_check.h"

Status attention_check(Exec *x, OpId op, Tensor o, Tensor q, Tensor k, Tensor v) {
    const char *name = ops_info(op)->name;
    if (o.rank != 3 || q.rank != 3 || k.rank != 3 || v.rank != 3)
        return fail(x->error, ERR_MODEL, "%s: q, k, v and o must be [tokens, heads, head dim]", name);
    if (!tensor_same_shape(o, q) || !tensor_same_shape(k, v) || k.shape[2] != q.shape[2] || !k.shape[1] ||
        q.shape[1] % k.shape[1])
        return fail(x->error, ERR_MODEL, "%s: shapes of q [%lld, %lld, %lld] and k [%lld, %lld, %lld] do not fit", name,
                    (long long)q.shape[0], (long long)q.shape[1], (long long)q.shape[2], (long long)k.shape[0],
                    (long long)k.shape[1], (long long)k.shape[2]);
    if ((q.dtype != F32 && q.dtype != BF16) || k.dtype != q.dtype || v.dtype != q.dtype || o.dtype != q.dtype)
        return fail(x->error, ERR_MODEL, "%s: q, k, v and o must all be F32 or all BF16", name);
    if (o.stride[2] != 1 || q.stride[2] != 1 || k.stride[2] != 1 || v.stride[2] != 1)
        return fail(x->error, ERR_MODEL, "%s: the head dimension must be contiguous", name);
    return OK;
}

Status attention_check_bias(Exec *x, const Attention *a) {
    const Tensor *b = &a->bias;
    bool row = b->rank == 1, rows = b->rank == 2 && b->shape[0] == a->q.shape[0];
    if (!b->rank || ((row || rows) && b->shape[b->rank - 1] == a->k.shape[0] && b->stride[b->rank - 1] == 1 &&
                     b->dtype == a->q.dtype && a->mask == MASK_NONE))
        return OK;
    return fail(x->error, ERR_MODEL, "attention: bias must be [%lld] or [%lld, %lld] of the dtype of q, without another mask",
                (long long)a->k.shape[0], (long long)a->q.shape[0], (long long)a->k.shape[0]);
}
