/* self_attention.c - self_attention of attention.h on both tables: the chain of the table's own references, literally; and
 * the folded form of the family vae-kl-rewrite (vae_rewrite.h).
 *
 * One source for every device, since all it does is call other ops of the table in scratch memory.
 * Easy to get wrong: the pieces use x->scratch too: what they push is taken back after each, and the declared size is what
 * is pushed here plus the largest of the pieces. */
#include "kernels/vae_rewrite.h"
#include "kernels/registry.h"

#include <stdio.h>

typedef struct Chain {
    Tensor q, k, v, o, w, b; /* [T,C]; folded: w [C,C], b [C] */
    Weight folded;
    LinearMany in;
    Linear value; /* folded: v alone */
    Attention attention;
    Linear out;
    Add sum;
    size_t pushed;
} Chain;

static Tensor push(Exec *x, Chain *c, DType t, int rank, const int64_t *shape) {
    Tensor none = tensor_make(NULL, t, rank, shape);
    c->pushed += arena_rounded(tensor_bytes(none));
    return x ? arena_tensor(x->scratch, t, rank, shape) : none;
}

static Tensor head(Tensor t) { return tensor_view(t, t.shape[0], 1, t.shape[1]); }

/* Without an Exec: the shapes alone. c stays where it is: value points into it. */
static void chain(Exec *x, const SelfAttention *a, bool folded, Chain *c) {
    const int64_t *shape = a->x.shape, square[] = {shape[1], shape[1]};
    DType t = a->x.dtype;
    *c = (Chain){0};
    Tensor *all[] = {&c->q, &c->k, &c->v, &c->o};
    for (int i = 0; i < 4; i++) *all[i] = push(x, c, t, 2, shape);
    if (folded) {
        c->w = push(x, c, t, 2, square);
        c->b = push(x, c, t, 1, square);
        c->folded = (Weight){.w = c->w, .bias = c->b, .round = t, .name = "wo.wv"};
        c->in = (LinearMany){.y = {c->q, c->k}, .x = a->x, .w = {a->wq, a->wk}, .bias_mode = BIAS_AFTER};
        c->value = (Linear){.y = c->v, .x = a->x, .w = &c->folded, .bias_mode = BIAS_FUSED};
    } else {
        c->in = (LinearMany){.y = {c->q, c->k, c->v}, .x = a->x, .w = {a->wq, a->wk, a->wv}, .bias_mode = BIAS_TURNED};
        c->out = (Linear){.y = c->q, .x = c->o, .w = a->wo, .bias_mode = a->out_bias};
    }
    c->attention = (Attention){.o = head(c->o), .q = head(c->q), .k = head(c->k), .v = head(c->v), .scale = a->scale};
    c->sum = (Add){.y = a->y, .a = a->residual, .b = folded ? c->o : c->q};
}

static size_t piece(const Exec *x, OpId op, const void *args) {
    const Impl *impl = ops_reference(x->ops, op);
    return impl && impl->scratch ? arena_rounded(impl->scratch(x, args)) : 0;
}

static size_t scratch_of(const Exec *x, const SelfAttention *a, bool folded) {
    Chain c;
    chain(NULL, a, folded, &c);
    const size_t need[] = {piece(x, OP_linear_many, &c.in), piece(x, OP_attention, &c.attention),
                           piece(x, OP_linear, folded ? &c.value : &c.out), piece(x, OP_add, &c.sum),
                           folded ? arena_rounded(vae_rewrite_fold_scratch(a->x.shape[1])) : 0};
    size_t most = 0;
    for (size_t i = 0; i < sizeof need / sizeof *need; i++) most = need[i] > most ? need[i] : most;
    return c.pushed + most;
}

static size_t scratch(const Exec *x, const void *args) { return scratch_of(x, args, false); }
size_t vae_rewrite_attention_scratch(const Exec *x, const void *args) { return scratch_of(x, args, true); }

static Status bracketed(Exec *x, Status (*call)(Exec *, const void *), const void *args) {
    size_t mark = arena_mark(x->scratch);
    Status s = call(x, args);
    arena_reset(x->scratch, mark);
    return s;
}

static Status run_piece(Exec *x, OpId op, const void *args) {
    const Impl *impl = ops_reference(x->ops, op);
    if (!impl) return fail(x->error, ERR_MODEL, "self_attention: the table lacks %s", ops_info(op)->name);
    return bracketed(x, impl->run, args);
}

static Status check(Exec *x, const SelfAttention *a) {
    if (a->x.rank != 2 || !tensor_same_shape(a->x, a->y) || !tensor_same_shape(a->x, a->residual))
        return fail(x->error, ERR_MODEL, "self_attention: x, residual and y must be [T,C] of one shape");
    const Weight *all[] = {a->wq, a->wk, a->wv, a->wo};
    for (int i = 0; i < 4; i++)
        if (!all[i] || all[i]->w.rank != 2 || all[i]->w.shape[0] != a->x.shape[1] || all[i]->w.shape[1] != a->x.shape[1])
            return fail(x->error, ERR_MODEL, "self_attention: weights must be [%lld, %lld]", (long long)a->x.shape[1],
                        (long long)a->x.shape[1]);
    return OK;
}

static Status run(Exec *x, const SelfAttention *a, const VaeRewriteAttention *folded) {
    TRY(check(x, a));
    if (!tensor_numel(a->x)) return OK;
    Chain c;
    chain(x, a, folded != NULL, &c);
    if (!c.o.data || (folded && !c.b.data))
        return fail(x->error, ERR_MEMORY, "self_attention: no scratch of %zu bytes", c.pushed);
    TRY(run_piece(x, OP_linear_many, &c.in));
    if (folded) {
        size_t mark = arena_mark(x->scratch);
        TRY(folded->fold(x, a, c.w, c.b));
        arena_reset(x->scratch, mark);
        TRY(run_piece(x, OP_linear, &c.value));
    }
    if (folded && folded->attend) TRY(bracketed(x, folded->attend, &c.attention));
    else TRY(run_piece(x, OP_attention, &c.attention));
    if (!folded) TRY(run_piece(x, OP_linear, &c.out));
    return run_piece(x, OP_add, &c.sum);
}

static Status self_attention(Exec *x, const void *args) { return run(x, args, NULL); }
Status vae_rewrite_attention(Exec *x, const SelfAttention *a, const VaeRewriteAttention *pieces) { return run(x, a, pieces); }

const Impl SELF_ATTENTION_CPU[] = {{OP_self_attention, "cpu", self_attention, scratch, NULL}};
const int SELF_ATTENTION_CPU_COUNT = sizeof SELF_ATTENTION_CPU / sizeof *SELF_ATTENTION_CPU;

#ifdef HAVE_CUDA
/* Weights of a GPU are in the compute dtype, as for linear. */
static bool accepts(const void *args, char *why, size_t size) {
    const SelfAttention *a = args;
    const Weight *all[] = {a->wq, a->wk, a->wv, a->wo};
    for (int i = 0; i < 4; i++) {
        if (!all[i]) snprintf(why, size, "a weight is missing");
        else if (all[i]->w.dtype != a->x.dtype || all[i]->round != a->x.dtype || all[i]->scale.rank || all[i]->lora ||
                 (all[i]->bias.rank && all[i]->bias.dtype != a->x.dtype))
            snprintf(why, size, "%s is %s, expected %s as x", all[i]->name ? all[i]->name : "weight",
                     dtype_name(all[i]->w.dtype), dtype_name(a->x.dtype));
        else continue;
        return false;
    }
    return true;
}

const Impl SELF_ATTENTION_CUDA[] = {{OP_self_attention, "cuda", self_attention, scratch, accepts}};
const int SELF_ATTENTION_CUDA_COUNT = sizeof SELF_ATTENTION_CUDA / sizeof *SELF_ATTENTION_CUDA;
#endif
