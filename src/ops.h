/* ops.h - the list of operations, the table that says who runs them, and Exec, all that an op may touch.
 *
 * Models call op_<name>(x, &(Args){...}) and never mention devices or fusion. An op resolves its signature (shapes,
 * strides, dtypes, scalars) to a Call once; afterwards it is one lookup. The table (Ops) is a value: a fusion family
 * prepends variants on a copy. With x->dry nothing runs: the signature is recorded and scratch is reserved and freed,
 * so that the peaks of the arenas are the plan.
 * Easy to get wrong: args structs begin with their Tensors, outputs first, then Weight pointers, then 4-byte scalars,
 * in the numbers the OPS list states; step-varying values never stand in args, only in StepParams tensors. */
#ifndef OPS_H
#define OPS_H

#include "core/arena.h"
#include "core/weights.h"
#include "kernels/attention.h"
#include "kernels/conv.h"
#include "kernels/elementwise.h"
#include "kernels/frames.h"
#include "kernels/head_gate.h"
#include "kernels/guide.h"
#include "kernels/linear.h"
#include "kernels/linear_attention.h"
#include "kernels/move.h"
#include "kernels/norm.h"
#include "kernels/rms_modulate.h"
#include "kernels/rope_split.h"
#include "kernels/stack_norm.h"
#include "kernels/wave.h"

#ifdef __cplusplus
extern "C" {
#endif

/* X(name, args struct, outputs, inputs, weights, scalars, promise) */
#define OPS(X)                                                                                           \
    X(copy, Copy, 1, 1, 0, 0, EXACT)                                                                     \
    X(embed, Embed, 1, 1, 1, 0, EXACT)                                                                   \
    X(rel_bias, RelBias, 1, 0, 1, 1, EXACT)                                                              \
    X(pack, Pack, 1, 1, 0, 0, EXACT)                                                                     \
    X(unpack, Unpack, 1, 1, 0, 0, EXACT)                                                                 \
    X(linear, Linear, 1, 1, 1, 1, BOUNDED)                                                               \
    X(linear_rows, Linear, 1, 1, 1, 1, BOUNDED)                                                          \
    X(linear_many, LinearMany, 4, 1, 4, 1, BOUNDED)                                                      \
    X(linear_gelu, Linear, 1, 1, 1, 1, BOUNDED)                                                          \
    X(linear_many_gelu, LinearManyGelu, 5, 1, 4, 1, BOUNDED)                                             \
    X(act, Act, 1, 1, 0, 2, EXACT)                                                                       \
    X(act_mul, ActMul, 1, 2, 0, 1, EXACT)                                                                \
    X(add, Add, 1, 2, 0, 0, EXACT)                                                                       \
    X(residual_gate, ResidualGate, 1, 3, 0, 0, EXACT)                                                    \
    X(layernorm, LayerNorm, 1, 3, 0, 1, EXACT)                                                           \
    X(ln_modulate, LnModulate, 1, 3, 0, 1, EXACT)                                                        \
    X(rmsnorm, RmsNorm, 1, 2, 0, 2, EXACT)                                                               \
    X(rmsnorm_scale, RmsNormScale, 1, 3, 0, 1, EXACT)                                                    \
    X(residual_norm, ResidualNorm, 1, 4, 0, 1, EXACT)                                                    \
    X(qk_norm_rope_head, QkNormRopeHead, 2, 6, 0, 3, EXACT)                                              \
    X(attention, Attention, 1, 4, 0, 2, BOUNDED)                                                         \
    X(attention_eager, AttentionEager, 1, 4, 0, 4, BOUNDED)                                              \
    X(time_embed, TimeEmbed, 1, 1, 0, 1, EXACT)                                                          \
    X(cfg_combine, CfgCombine, 1, 3, 0, 0, EXACT)                                                        \
    X(cfg_extrapolate, CfgCombine, 1, 3, 0, 0, EXACT)                                                    \
    X(norm_limit, NormLimit, 1, 2, 0, 1, BOUNDED)                                                        \
    X(negate, Negate, 1, 1, 0, 0, EXACT)                                                                 \
    X(guide_x0, GuideX0, 2, 6, 0, 4, EXACT)                                                              \
    X(velocity_x0, VelocityX0, 1, 6, 0, 3, BOUNDED)                                                      \
    X(euler_step, EulerStep, 1, 3, 0, 0, EXACT)                                                          \
    X(dpm_step, DpmStep, 2, 4, 0, 0, EXACT)                                                              \
    X(affine, Affine, 1, 1, 0, 2, EXACT)                                                                 \
    X(chan_affine, ChanAffine, 1, 3, 0, 1, EXACT)                                                        \
    X(kl_sample, KlSample, 1, 3, 0, 2, EXACT)                                                            \
    X(scale_noise, ScaleNoise, 1, 2, 0, 1, EXACT)                                                        \
    X(to_rgb8, ToRgb8, 1, 1, 0, 0, EXACT)                                                                \
    X(count_nonfinite, CountNonfinite, 1, 1, 0, 0, EXACT)                                                \
    X(self_attention, SelfAttention, 1, 2, 4, 2, BOUNDED)                                                \
    X(conv2d, Conv2d, 1, 3, 1, 7, BOUNDED)                                                               \
    X(upsample_conv, Conv2d, 1, 3, 1, 7, BOUNDED)                                                        \
    X(conv3d, Conv3d, 1, 3, 1, 5, BOUNDED)                                                               \
    X(roll, Roll, 2, 0, 0, 1, EXACT)                                                                     \
    X(groupnorm, GroupNorm, 1, 4, 0, 2, BOUNDED)                                                         \
    X(groupnorm_silu, GroupNorm, 1, 4, 0, 2, BOUNDED)                                                    \
    X(chan_rmsnorm, ChanRmsNorm, 1, 3, 0, 0, BOUNDED)                                                    \
    X(chan_rmsnorm_silu, ChanRmsNorm, 1, 3, 0, 0, BOUNDED)                                               \
    X(residual_norm_scale, ResidualNormScale, 2, 6, 0, 1, EXACT)                                         \
    X(modulate, Modulate, 1, 3, 0, 0, EXACT)                                                             \
    X(residual_gate_ln_modulate, ResidualGateLnModulate, 2, 5, 0, 1, EXACT)                              \
    X(norm_relu_rope, NormReluRope, 2, 4, 0, 1, EXACT)                                                   \
    X(linear_attention, LinearAttention, 1, 5, 0, 1, BOUNDED)                                            \
    X(dwconv3_glu, Dwconv3Glu, 1, 2, 1, 0, EXACT)                                                        \
    X(rope_split, RopeSplit, 1, 3, 0, 1, EXACT)                                                          \
    X(rms_modulate, RmsModulate, 2, 5, 0, 1, EXACT)                                                      \
    X(residual_rms_modulate, ResidualRmsModulate, 3, 7, 0, 1, EXACT)                                     \
    X(norm_rope_split, NormRopeSplit, 2, 6, 0, 3, EXACT)                                                 \
    X(head_gate, HeadGate, 1, 2, 0, 0, EXACT)                                                            \
    X(cos_sin, CosSin, 2, 1, 0, 0, EXACT)                                                                \
    X(stack_range_norm, StackRangeNorm, 1, 1, 0, 3, EXACT)                                               \
    X(stack_rms_norm, StackRmsNorm, 1, 1, 0, 2, EXACT)                                                   \
    X(conv_transpose1d, ConvTranspose1d, 1, 1, 1, 2, BOUNDED)                                            \
    X(mean3, Mean3, 1, 3, 0, 0, EXACT)                                                                   \
    X(fir_up, FirUp, 1, 2, 0, 3, BOUNDED)                                                                \
    X(snake_filtered, SnakeFiltered, 1, 5, 0, 0, BOUNDED)                                                \
    X(magnitude, Magnitude, 1, 1, 0, 0, EXACT)                                                           \
    X(frame_window, Window, 2, 3, 0, 3, EXACT)                                                           \
    X(pixelnorm_silu, Window, 2, 3, 0, 3, BOUNDED)                                                       \
    X(depth_to_space, Depth, 1, 3, 0, 4, EXACT)                                                          \
    X(space_to_depth, Depth, 1, 3, 0, 4, EXACT)

typedef enum OpId {
#define X(name, args, no, ni, nw, ns, promise) OP_##name,
    OPS(X)
#undef X
    OP_COUNT
} OpId;

typedef enum Promise { EXACT, BOUNDED } Promise;

typedef struct OpInfo {
    const char *name;
    int outputs, inputs, weights, scalars;
    Promise promise;
} OpInfo;

const OpInfo *ops_info(OpId op);

typedef struct Exec Exec;

/* One way to run an op. The reference of a table stands last in its list and accepts everything the contract allows. A variant
 * that is made for few of an op's calls leaves `why` empty for the others: they are for what stands behind it. */
typedef struct Impl {
    OpId op;
    const char *name;                                              /* "cpu", "cuda", "cuda_sm90_fused" */
    Status (*run)(Exec *x, const void *args);
    size_t (*scratch)(const Exec *x, const void *args);            /* bytes of x->scratch; NULL: none */
    bool (*accepts)(const void *args, char *why, size_t size);     /* NULL: everything */
} Impl;

/* What accepts says of a call that is for what stands behind. */
static inline bool impl_passes_on(char *why) {
    why[0] = 0;
    return false;
}

enum { OPS_MAX_VARIANTS = 6 };

/* The table of one component. A value: copying it is how a family is tried. */
typedef struct Ops {
    const Impl *impl[OP_COUNT][OPS_MAX_VARIANTS]; /* in order of preference, reference last */
    int count[OP_COUNT];
    uint32_t epoch; /* bumped by every mount and unmount; calls carry it */
    bool row_bits;  /* a row's bits depend on how many rows there are (libraries choose by it): run as many as the reference */
} Ops;

void ops_append(Ops *ops, const Impl *impls, int count);   /* at the end of each op's list */
void ops_cpu(Ops *ops);                                    /* kernels/registry.c: the CPU table */
size_t ops_cpu_resident(void); /* bytes beside the arenas that its tables and library buffers come to hold */

/* A resolved signature: who runs it, and how often it ran. */
typedef struct Call {
    uint64_t key, signature;
    const Impl *impl;
    OpId op;
    uint32_t epoch;  /* of the table it was resolved on; no other table's runs use it */
    uint64_t count;
    size_t scratch;  /* enough for the table's reference too: falling back to it needs no new plan */
    size_t reserve;  /* what first sight will take beside it */
    bool seen;       /* first sight is over */
    uint64_t rehearsed; /* runs in the rehearsal in hand */
} Call;

typedef struct Calls {
    Call *slot; /* open addressing, power-of-two capacity, malloc'd; impl NULL = free */
    size_t capacity, used;
} Calls;

void calls_free(Calls *calls);
/* Adds the counts to `past`, by signature and variant, whatever table they were resolved on, and empties `calls`. */
Status calls_retire(Calls *calls, Calls *past, Error *e);
uint64_t calls_count(const Calls *calls, OpId op); /* runs of one op over all signatures */
void calls_settle(Calls *calls, bool ran);         /* ends a rehearsal: what it saw was run, or was not */

/* The signature of a call: one for all calls that resolve alike on one table. */
uint64_t ops_signature(OpId op, const void *args);
const struct Weight *ops_weight(OpId op, const void *args, int i); /* the i-th weight of a call, or NULL */
enum { OPS_ARGS = 1024 };                  /* no args struct is larger */
size_t ops_args_size(OpId op);
const Impl *ops_reference(const Ops *ops, OpId op); /* NULL when the table lacks the op */

/* Sees every call of a dry run, with the name of its place ("flux.double.img_norm1"; NULL when the model gave none). */
typedef struct Recorder {
    Status (*see)(struct Recorder *r, Exec *x, OpId op, const void *args, const char *site);
} Recorder;

/* Asked before the first run of a signature whose variant is not the table's reference. reserve: bytes of scratch that
 * look() will take, 0: not interested. look() may change x's table; the call is then resolved again. */
typedef struct FirstSight {
    size_t (*reserve)(struct FirstSight *f, const Exec *x, OpId op, const void *args, const Impl *impl);
    Status (*look)(struct FirstSight *f, Exec *x, OpId op, const void *args, const Impl *impl);
} FirstSight;

/* Instead of a run (graph.h): see() is shown each call as it would be launched, after all checks, and nothing is launched;
 * see NULL: calls are launched for the device to record. Either way they do not count, first sight is not offered, and
 * moving bytes to or from the host is an error. */
typedef struct Rehearsal {
    Status (*see)(struct Rehearsal *r, Exec *x, Call *call, const void *args);
} Rehearsal;

/* Brackets every run of an op, without waiting for it (optimes.h). Nothing may be captured while there is one. */
typedef struct OpTimer {
    Status (*begin)(struct OpTimer *t, Exec *x);
    Status (*end)(struct OpTimer *t, Exec *x, const Call *call, const void *args);
} OpTimer;

/* Called with named intermediate tensors: dumps, tests. NULL most of the time. */
typedef struct Tap {
    Status (*see)(struct Tap *tap, Exec *x, const char *name, Tensor t);
} Tap;

struct Unary; /* kernels/unary.h: recorded bf16 function tables of the CPU table */
struct Cuda;  /* kernels/cuda.h: stream and library handles of the CUDA table */
struct Residency; /* residency.h: the current part's weights on the device */

/* All that an op may touch besides its arguments. One owner thread; never shared. */
struct Exec {
    const Ops *ops;
    Device *device;
    Calls *calls;
    Arena *work;    /* activations */
    Arena *scratch; /* inside one op; reset after each */
    Error *error;
    DType dtype;    /* compute dtype of the component: F32 or BF16 */
    bool dry;
    bool sync;      /* wait after every op, so that a fault on the device names its op; never during a rehearsal */
    int last;       /* 1 + the op launched last; 0: none */
    const struct Unary *unary; /* CPU table only */
    struct Cuda *cuda;         /* CUDA table only */
    struct Residency *residency; /* weights_enter(x, block); NULL: all weights are in place */
    Tap *tap;
    Recorder *recorder;        /* dry runs only */
    FirstSight *first;         /* NULL: every variant is trusted */
    Rehearsal *rehearsal;      /* NULL: calls are run */
    OpTimer *timer;            /* NULL most of the time */
    const char *site;          /* name of the next call's place; op_run takes it */
    const volatile int *interrupted; /* set by the signal handler; checked between ops */
};

/* Work-arena tensor of x->dtype: exec_new(x, T, D). */
Tensor exec_tensor(Exec *x, DType dtype, int rank, const int64_t *shape);
#define exec_new(x, ...)                                                                                 \
    exec_tensor(x, (x)->dtype, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})
#define exec_new_as(x, dtype, ...)                                                                       \
    exec_tensor(x, dtype, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__})

/* Host bytes into a contiguous tensor and back; no-ops when dry, ERR_MODEL during a rehearsal. */
Status exec_upload(Exec *x, Tensor to, const void *from);
Status exec_download(Exec *x, void *to, Tensor from);
Status exec_tap(Exec *x, const char *name, Tensor t);   /* name may be formatted by exec_tapf */
Status exec_tapf(Exec *x, Tensor t, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* Names the place of the next call. Names are literals: they outlive the Exec. */
static inline void exec_site(Exec *x, const char *name) { x->site = name; }

Status op_run(Exec *x, OpId op, const void *args);
/* h with all that tells this launch from another mixed in: who runs it, on which table, the signature, every address. */
uint64_t op_digest(uint64_t h, const Exec *x, const Call *call, const void *args);
/* Passes s on. A fault on the device shows at some later call, which then fails for no reason of its own: when that is why
 * s is ERR_DEVICE, adds to the text which op was launched last, and how to find the one at fault. */
Status exec_blame(Exec *x, Status s);
/* ERR_NAN naming the stage when t holds NaN or infinity. Runs on x's current table. */
Status exec_check_finite(Exec *x, Tensor t, const char *stage);

#define X(name, args, no, ni, nw, ns, promise)                                                           \
    static inline Status op_##name(Exec *x, const args *a) { return op_run(x, OP_##name, a); }
OPS(X)
#undef X

#ifdef __cplusplus
}
#endif

#endif
