/* test_img2img_mutants.c - do the goldens of image-to-image notice? As test_mutants.c: every tensor of the encoder perturbed by
 * 10 % of its rms, tensors exchanged, and ops with one step or rounding wrong (bf16, stages fed with the reference's values).
 * Each fault must raise some stage above its limit and at least tenfold.
 *
 * Easy to get wrong: the ends of the clamp on the variance are out of these pictures' reach; checkop's are not. */
#include "faults.h"
#include "golden_bench.h"
#include "golden_img2img.h"

static Status measure(Bench *b, const char *model, bool bf16) { return bf16 ? golden_encoder(&b->g, model) : ERR_USAGE; }

/* --- the checkpoint --- */

static bool decodes(const Bench *b, const char *tensor) {
    (void)b;
    return strncmp(tensor, "encoder.", 8);
}

static void checkpoint(Bench *b) {
    expect(bench_tensors(b, decodes) == 76);
#define D "encoder.down_blocks.0.resnets.0."
#define A "encoder.mid_block.attentions.0."
    static const char *const SWAPS[][2] = {
        {A "to_q.weight", A "to_k.weight"}, {A "to_k.weight", A "to_v.weight"}, {A "to_v.weight", A "to_out.0.weight"},
        {A "group_norm.weight", "encoder.conv_norm_out.weight"}, {D "norm1.weight", D "norm2.weight"},
        {D "conv1.weight", D "conv2.weight"}, {D "conv1.weight", "encoder.down_blocks.0.downsamplers.0.conv.weight"},
        {"encoder.mid_block.resnets.0.conv1.weight", "encoder.mid_block.resnets.1.conv1.weight"},
    };
#undef D
#undef A
    bench_swaps(b, SWAPS, sizeof SWAPS / sizeof *SWAPS);
}

/* --- ops --- */

static Status pads_other_side(Exec *x, const void *args) {
    Conv2d a = *(const Conv2d *)args;
    if (a.stride == 2) a.pad_top = a.pad_left = 1, a.pad_bottom = a.pad_right = 0;
    return fault_call(x, OP_conv2d, &a);
}
static Status pads_right_only(Exec *x, const void *args) { /* the border below on the other side */
    Conv2d a = *(const Conv2d *)args;
    if (a.stride == 2) a.pad_top = 1, a.pad_bottom = 0;
    return fault_call(x, OP_conv2d, &a);
}

enum { SWAPPED = 1, SCALE_FIRST = 2, VARIANCE = 4, UNROUNDED_DEVIATION = 8, UNROUNDED_PRODUCT = 16, UNROUNDED_DRAW = 32,
       UNROUNDED_SHIFT = 64, NO_NOISE = 128 };

static float keep(Tensor like, float v, int how, int bit) { return how & bit ? v : r(like, v); }

static Status sampled(const KlSample *a, int how) {
    float shift = how & SWAPPED ? a->scale : a->shift, scale = how & SWAPPED ? a->shift : a->scale;
    for (int64_t i = 0; i < tensor_numel(a->y); i++) {
        float half = r(a->y, (how & VARIANCE ? 1.0f : 0.5f) * faults_get(a->logvar, i));
        float v = keep(a->y, expf(half), how, UNROUNDED_DEVIATION) * (how & NO_NOISE ? 0 : faults_get(a->noise, i));
        v = keep(a->y, faults_get(a->mean, i) + keep(a->y, v, how, UNROUNDED_PRODUCT), how, UNROUNDED_DRAW);
        v = how & SCALE_FIRST ? r(a->y, v * scale) - shift : keep(a->y, v - shift, how, UNROUNDED_SHIFT) * scale;
        faults_set(a->y, i, v);
    }
    return OK;
}
#define SAMPLED(name, how) static Status name(Exec *x, const void *a) { return (void)x, sampled(a, how); }
SAMPLED(shift_for_scale, SWAPPED)
SAMPLED(scale_before_shift, SCALE_FIRST)
SAMPLED(variance_for_deviation, VARIANCE)
SAMPLED(deviation_unrounded, UNROUNDED_DEVIATION)
SAMPLED(product_unrounded, UNROUNDED_PRODUCT)
SAMPLED(draw_unrounded, UNROUNDED_DRAW)
SAMPLED(shift_unrounded, UNROUNDED_SHIFT)
SAMPLED(mode_of_posterior, NO_NOISE)
static Status mean_for_logvar(Exec *x, const void *args) {
    KlSample a = *(const KlSample *)args;
    a.mean = a.logvar, a.logvar = ((const KlSample *)args)->mean;
    return fault_call(x, OP_kl_sample, &a);
}

enum { SIGMA_UNROUNDED = 1, REST_UNROUNDED = 2, TERM_UNROUNDED = 4 };

static Status noised(const ScaleNoise *a, int how) {
    float sigma = keep(a->y, a->sigma, how, SIGMA_UNROUNDED), rest = keep(a->y, 1 - sigma, how, REST_UNROUNDED);
    for (int64_t i = 0; i < tensor_numel(a->y); i++) {
        float u = keep(a->y, sigma * faults_get(a->noise, i), how, TERM_UNROUNDED);
        faults_set(a->y, i, u + r(a->y, rest * faults_get(a->x, i)));
    }
    return OK;
}
#define NOISED(name, how) static Status name(Exec *x, const void *a) { return (void)x, noised(a, how); }
NOISED(sigma_unrounded, SIGMA_UNROUNDED | REST_UNROUNDED)
NOISED(rest_unrounded, REST_UNROUNDED)
NOISED(term_unrounded, TERM_UNROUNDED)
static Status noise_for_image(Exec *x, const void *args) {
    ScaleNoise a = *(const ScaleNoise *)args;
    a.x = a.noise, a.noise = ((const ScaleNoise *)args)->x;
    return fault_call(x, OP_scale_noise, &a);
}

static void faulty_ops(Bench *b) {
#define F(what, op, run) {what, {OP_##op, "fault", run, NULL, NULL}}
    static const BenchFault OPS_AT_FAULT[] = {
        F("downsampling pads above and left", conv2d, pads_other_side),
        F("downsampling pads above", conv2d, pads_right_only),
        F("shift and scale exchanged", kl_sample, shift_for_scale),
        F("scaled before shifted", kl_sample, scale_before_shift),
        F("variance for deviation", kl_sample, variance_for_deviation),
        F("deviation not rounded", kl_sample, deviation_unrounded),
        F("deviation times noise not rounded", kl_sample, product_unrounded),
        F("draw not rounded", kl_sample, draw_unrounded),
        F("shifted draw not rounded", kl_sample, shift_unrounded),
        F("mode of the posterior, no draw", kl_sample, mode_of_posterior),
        F("mean and variance exchanged", kl_sample, mean_for_logvar),
        F("sigma not rounded", scale_noise, sigma_unrounded),
        F("1 - sigma not rounded", scale_noise, rest_unrounded),
        F("noise term not rounded", scale_noise, term_unrounded),
        F("noise and image exchanged", scale_noise, noise_for_image),
    };
#undef F
    bench_faults(b, OPS_AT_FAULT, sizeof OPS_AT_FAULT / sizeof *OPS_AT_FAULT);
}

int main(void) {
    static Bench b; /* lint: allow-static (test program: the sheets are large) */
    if (bench_open(&b) != OK) return printf("%s\n", b.g.error.text), 1;
    b.name = "encoder", b.file = IMG2IMG_VAE, b.bf16 = true, b.measure = measure;
    snprintf(b.clean, sizeof b.clean, "%s", GOLDEN_MODEL);
    mutate_copy_folder(b.clean, b.model);
    expect(bench_measure(&b, b.clean, true) == OK && b.g.worst <= 1 && b.g.stages == 9);
    bench_note(&b, true);
    checkpoint(&b);
    faulty_ops(&b);
    return bench_close(&b);
}
