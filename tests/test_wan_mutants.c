/* test_wan_mutants.c - do the goldens of Wan's autoencoder notice? Every tensor perturbed by 10 % of its rms, config values
 * exchanged, ops with a step wrong (f32, run through) and ops with one rounding left out (bf16, stage by stage). Each fault
 * must raise some metric above its limit and at least tenfold.
 *
 * GOLDEN_VERBOSE=1 prints all. Easy to get wrong: the goldens hold samples, so a fault must not be rare. */
#include "fault_steps.h"
#include "faults.h"
#include "golden_bench.h"
#include "golden_wan.h"

#define WAN_FILE "diffusion_pytorch_model.safetensors"

static Status measure(Bench *b, const char *folder, bool bf16) {
    WanParts p;
    Status s = wan_open(&b->g, folder, bf16 ? BF16 : F32, &p);
    if (s == OK) s = bf16 ? wan_bf16(&b->g, &p) : wan_f32(&b->g, &p);
    wan_close(&p);
    return s;
}

/* --- the checkpoint --- */

static void tensors(Bench *b) {
    printf("%d tensors perturbed\n", bench_tensors(b, NULL));
#define UP "decoder.up_blocks.0."
    static const char *const SWAPS[][2] = {
        {UP "resnets.0.conv1.weight", UP "resnets.0.conv2.weight"}, {UP "resnets.0.norm1.gamma", UP "resnets.0.norm2.gamma"},
        {UP "resnets.0.conv1.weight", UP "resnets.1.conv1.weight"},
        {"decoder.mid_block.resnets.0.conv1.weight", "decoder.mid_block.resnets.1.conv1.weight"},
        {UP "upsamplers.0.time_conv.weight", "decoder.up_blocks.1.upsamplers.0.time_conv.weight"},
    };
    bench_swaps(b, SWAPS, sizeof SWAPS / sizeof *SWAPS);
    bench_rows(b, "decoder.mid_block.attentions.0.to_qkv.weight", 0, 32, 32); /* q and k */
    bench_rows(b, "decoder.mid_block.attentions.0.to_qkv.weight", 32, 64, 32);
    bench_rows(b, UP "upsamplers.0.time_conv.weight", 0, 32, 32); /* which frame is the first */
    bench_rows(b, "quant_conv.weight", 0, 4, 4);                  /* mean and variance */
#undef UP
}

static void configs(Bench *b) {
    static const char *const EDITS[][2] = {
        {"latents_mean", "[2.8184, 1.4541, 0.6558, 1.916]"}, {"latents_std", "[0.7571, 0.1075, 0.9653, 0.0715]"},
        {"latents_mean", "[0, 0, 0, 0]"}, {"latents_std", "[1, 1, 1, 1]"}, {"latents_mean", "[0.1075, -0.7571, 0.9653, -0.0715]"},
    };
    for (size_t i = 0; i < sizeof EDITS / sizeof *EDITS; i++) bench_config(b, EDITS[i][0], EDITS[i][1], NULL);
}

/* --- ops --- */

static Status no_history(Exec *x, const void *args) {
    Roll a = *(const Roll *)args;
    a.fresh = 1;
    return fault_call(x, OP_roll, &a);
}
static Status first_repeated(Exec *x, const void *args) { /* the first frame stands for what was before it */
    Roll a = *(const Roll *)args;
    TRY(fault_call(x, OP_roll, &a));
    size_t frame = tensor_bytes(a.window) / (size_t)a.window.shape[0];
    for (int64_t i = 0; a.fresh && i < a.cache.shape[0]; i++)
        memcpy((char *)a.window.data + (size_t)i * frame, (char *)a.window.data + (size_t)a.cache.shape[0] * frame, frame);
    return OK;
}
static Status behind(Exec *x, const void *args) { /* the history comes last */
    Roll a = *(const Roll *)args;
    TRY(fault_call(x, OP_roll, &a));
    size_t history = tensor_bytes(a.cache), all = tensor_bytes(a.window);
    char *copy = malloc(all);
    if (!copy) abort();
    memcpy(copy, a.window.data, all);
    memcpy(a.window.data, copy + history, all - history);
    memcpy((char *)a.window.data + (all - history), copy, history);
    free(copy);
    return OK;
}
static Status first_frames_kept(Exec *x, const void *args) {
    Roll a = *(const Roll *)args;
    TRY(fault_call(x, OP_roll, &a));
    memcpy(a.cache.data, a.window.data, tensor_bytes(a.cache));
    return OK;
}
static Status last_frame_only(Exec *x, const void *args) { /* a chunk of one frame forgets the one before */
    Roll a = *(const Roll *)args;
    TRY(fault_call(x, OP_roll, &a));
    if (a.cache.shape[0] == 2 && a.window.shape[0] == 3) memset(a.cache.data, 0, tensor_bytes(a.cache) / 2);
    return OK;
}
static Status halves_exchanged(Exec *x, const void *args) { /* of the frames that time_conv makes */
    Copy a = *(const Copy *)args;
    if (a.y.rank != 4 || a.y.shape[1] != 2 || tensor_contiguous(a.x)) return fault_call(x, OP_copy, &a);
    a.x.data = (char *)a.x.data + a.x.stride[1] * (int64_t)dtype_size(a.x.dtype);
    a.x.stride[1] = -a.x.stride[1];
    return fault_call(x, OP_copy, &a);
}
static Status affine_other_form(Exec *x, const void *args) {
    ChanAffine a = *(const ChanAffine *)args;
    a.form = a.form == CHAN_DIVIDE_ADD ? CHAN_SUBTRACT_MULTIPLY : CHAN_DIVIDE_ADD;
    return fault_call(x, OP_chan_affine, &a);
}
static Status norm_without_bias(Exec *x, const void *args) {
    ChanRmsNorm a = *(const ChanRmsNorm *)args;
    a.bias = (Tensor){0};
    return fault_call(x, OP_chan_rmsnorm_silu, &a);
}
static Status norm_without_silu(Exec *x, const void *args) { return fault_call(x, OP_chan_rmsnorm, args); }
static Status conv_other_end(Exec *x, const void *args) { /* the frames one earlier, the last one never */
    Conv3d a = *(const Conv3d *)args;
    if (a.w->w.shape[1] != 3 || a.stride_t != 1) return fault_call(x, OP_conv3d, &a);
    int64_t frame = a.x.stride[0] * (int64_t)dtype_size(a.x.dtype);
    size_t last = (size_t)(a.x.shape[0] - 1) * (size_t)frame;
    char *copy = malloc(last + (size_t)frame);
    if (!copy) abort();
    memcpy(copy + frame, a.x.data, last);
    memset(copy, 0, (size_t)frame);
    a.x.data = copy;
    Status s = fault_call(x, OP_conv3d, &a);
    free(copy);
    return s;
}
static Status stride_before(Exec *x, const void *args) { /* zeros above and to the left */
    Conv2d a = *(const Conv2d *)args;
    a.pad_top = a.pad_bottom, a.pad_left = a.pad_right, a.pad_bottom = a.pad_right = 0;
    return fault_call(x, OP_conv2d, &a);
}
static Status scale_of_attention(Exec *x, const void *args) {
    SelfAttention a = *(const SelfAttention *)args;
    a.scale *= 1.01f;
    return fault_call(x, OP_self_attention, &a);
}

/* --- roundings --- */

enum { SKIP_QUOTIENT = 1, SKIP_SCALED = 2, SKIP_WEIGHTED = 4, SKIP_BIASED = 8 };

static Status norm_unrounded(Exec *x, OpId op, const ChanRmsNorm *a, int skip) {
    int64_t c = a->x.shape[a->x.rank - 1], n = tensor_numel(a->x);
    float scale = (float)sqrt((double)c), v[64];
    if (c > 64) return fail(x->error, ERR_MODEL, "wider than the test");
    for (int64_t row = 0; row < n / c; row++) {
        double square = 0;
        for (int64_t j = 0; j < c; j++) {
            v[j] = faults_get(a->x, row * c + j) + (a->bias.rank ? faults_get(a->bias, j) : 0);
            if (a->bias.rank && !(skip & SKIP_BIASED)) v[j] = r(a->x, v[j]);
            square += (double)v[j] * (double)v[j];
        }
        for (int64_t j = 0; j < c; j++) {
            float u = v[j] / fmaxf((float)sqrt(square), 1e-12f);
            if (!(skip & SKIP_QUOTIENT)) u = r(a->x, u);
            u *= scale;
            if (!(skip & SKIP_SCALED)) u = r(a->x, u);
            u *= faults_get(a->w, j);
            if (!(skip & SKIP_WEIGHTED)) u = r(a->x, u);
            faults_set(a->y, row * c + j, op == OP_chan_rmsnorm ? u : u / (1 + expf(-u)));
        }
    }
    return OK;
}
#define UNROUNDED(name, op, skip) \
    static Status name(Exec *x, const void *a) { return norm_unrounded(x, OP_##op, a, skip); }
UNROUNDED(quotient_unrounded, chan_rmsnorm_silu, SKIP_QUOTIENT)
UNROUNDED(scaled_unrounded, chan_rmsnorm_silu, SKIP_SCALED)
UNROUNDED(weighted_unrounded, chan_rmsnorm_silu, SKIP_WEIGHTED)
UNROUNDED(biased_unrounded, chan_rmsnorm_silu, SKIP_BIASED)
UNROUNDED(attention_norm_unrounded, chan_rmsnorm, SKIP_QUOTIENT)

/* conv, bias and skip in f32, rounded once. */
static Status conv_once(Exec *x, const Conv3d *a, bool with_bias) {
    Conv3d c = *a;
    Weight w = *a->w, wide = w;
    int64_t n = tensor_numel(a->y), ch = a->y.shape[3];
    Tensor in = exec_new_as(x, F32, a->x.shape[0], a->x.shape[1], a->x.shape[2], a->x.shape[3]);
    Tensor out = exec_new_as(x, F32, a->y.shape[0], a->y.shape[1], a->y.shape[2], ch);
    for (int64_t i = 0; i < tensor_numel(in); i++) faults_set(in, i, faults_get(a->x, i));
    wide.bias = (Tensor){0};
    c.x = in, c.y = out, c.w = &wide, c.skip = c.skip_bias = (Tensor){0};
    TRY(fault_call(x, OP_conv3d, &c));
    for (int64_t i = 0; i < n; i++) {
        float v = faults_get(out, i);
        if (a->form == CONV_BIAS && w.bias.rank) v = (with_bias ? v : r(a->y, v)) + faults_get(w.bias, i % ch);
        if (a->skip.rank) {
            float s = faults_get(a->skip, i);
            if (a->skip_bias.rank) s = r(a->y, s + faults_get(a->skip_bias, i % ch));
            v = s + (with_bias ? r(a->y, v) : v);
        }
        faults_set(a->y, i, v);
    }
    return OK;
}
static Status bias_in_the_sum(Exec *x, const void *args) { return conv_once(x, args, true); }
static Status skip_on_the_sum(Exec *x, const void *args) { return conv_once(x, args, false); }
static Status out_bias_fused(Exec *x, const void *args) {
    SelfAttention a = *(const SelfAttention *)args;
    a.out_bias = BIAS_FUSED;
    return fault_call(x, OP_self_attention, &a);
}

FAULT_SCRATCH(self_attention)
FAULT_SCRATCH(conv3d)
FAULT_SCRATCH(conv2d)

static void ops(Bench *b) {
#define F(bf16, what, op, run, scratch) {bf16, what, {OP_##op, "fault", run, scratch, NULL}}
    static const struct { bool bf16; const char *what; Impl impl; } STEPS[] = {
        F(false, "histories dropped", roll, no_history, NULL),
        F(false, "the first frame repeated before it", roll, first_repeated, NULL),
        F(false, "histories behind the new frames", roll, behind, NULL),
        F(false, "the first frames kept, not the last", roll, first_frames_kept, NULL),
        F(false, "a history of one frame", roll, last_frame_only, NULL),
        F(false, "doubled frames exchanged", copy, halves_exchanged, NULL),
        F(false, "mean and std exchanged", chan_affine, fault_affine_exchanged, NULL),
        F(false, "latents scaled the other way", chan_affine, affine_other_form, NULL),
        F(false, "norm without the convolution's bias", chan_rmsnorm_silu, norm_without_bias, NULL),
        F(false, "norm without SiLU", chan_rmsnorm_silu, norm_without_silu, NULL),
        F(false, "convolution a frame late", conv3d, conv_other_end, scratch_conv3d),
        F(false, "downsampling pads before", conv2d, stride_before, scratch_conv2d),
        F(false, "attention scale one per cent off", self_attention, scale_of_attention, scratch_self_attention),
        F(true, "norm's quotient not rounded", chan_rmsnorm_silu, quotient_unrounded, NULL),
        F(true, "norm not rounded before gamma", chan_rmsnorm_silu, scaled_unrounded, NULL),
        F(true, "norm not rounded before SiLU", chan_rmsnorm_silu, weighted_unrounded, NULL),
        F(true, "biased input of a norm not rounded", chan_rmsnorm_silu, biased_unrounded, NULL),
        F(true, "attention's norm quotient not rounded", chan_rmsnorm, attention_norm_unrounded, NULL),
        F(true, "bias added before the rounding", conv3d, bias_in_the_sum, scratch_conv3d),
        F(true, "other path added before the rounding", conv3d, skip_on_the_sum, scratch_conv3d),
        F(true, "attention's last bias fused", self_attention, out_bias_fused, scratch_self_attention),
        F(true, "histories dropped", roll, no_history, NULL),
    };
#undef F
    for (size_t i = 0; i < sizeof STEPS / sizeof *STEPS; i++) bench_fault(b, STEPS[i].bf16, STEPS[i].what, &STEPS[i].impl);
}

int main(void) {
    static Bench b; /* lint: allow-static (test program: the sheets are large) */
    expect_ok(bench_open(&b), &b.g.error);
    b.name = "wan", b.file = WAN_FILE, b.measure = measure;
    expect_ok(safetensors_open(GOLDEN_DIR "/wan.safetensors", &b.g.file, &b.g.error), &b.g.error);
    mkdir(b.clean, 0777);
    wan_checkpoint(&b.g, b.clean);
    mutate_copy_folder(b.clean, b.model);
    for (int bf16 = 0; bf16 < 2; bf16++) bench_keep(&b, bf16);
    tensors(&b);
    configs(&b);
    ops(&b);
    return bench_close(&b);
}
