/* test_ltx2_vae_mutants.c - do the goldens of LTX-2's video autoencoder and latent upsampler notice? Every tensor perturbed by
 * 10 % of its rms, config values exchanged, ops with a step wrong (f32, run through) and ops with one rounding left out (bf16,
 * stage by stage). Each fault must raise some metric above its limit and at least tenfold.
 *
 * GOLDEN_VERBOSE=1 prints all. Not here, because no number shows it: one of the two roundings around + eps alone, since eps
 * vanishes beside any mean of squares above 1e-5. Easy to get wrong: a fault in an op of both forms must be tried
 * on the form that shows it. */
#include "fault_steps.h"
#include "faults.h"
#include "golden_bench.h"
#include "golden_ltx2_vae.h"

typedef enum Form { FORM_20, FORM_23, FORM_UP, FORM_PLAIN, FORMS } Form;
static const char *const FORM[] = {"20", "23", "up", "plain"};

static bool upsamples(Form f) { return f >= FORM_UP; }

static Status measure(Bench *b, const char *folder, bool bf16) {
    Ltx2Parts p;
    Form f = (Form)b->run;
    DType t = bf16 ? BF16 : F32;
    Status s = ltx2_open(&b->g, folder, upsamples(f), t, &p);
    if (s == OK && upsamples(f)) s = ltx2_up(&b->g, FORM[f], &p, t);
    else if (s == OK) s = bf16 ? ltx2_bf16(&b->g, FORM[f], &p) : ltx2_f32(&b->g, FORM[f], &p);
    ltx2_close(&p);
    return s;
}

static void take(Bench *b, Form f) {
    b->run = (int)f, b->name = FORM[f];
    snprintf(b->clean, sizeof b->clean, "%s/clean-%s", b->folder, FORM[f]);
    snprintf(b->model, sizeof b->model, "%s/model-%s", b->folder, FORM[f]);
}

/* --- the checkpoints --- */

static bool of_no_effect(const Bench *b, const char *tensor) {
    (void)b;
    return strstr(tensor, "blur_down");
}

static void swap(Bench *b, const char *tensor, const char *other) { bench_edit(b, tensor, other, 0, 0, 0); }

static void tensors(Bench *b, Form f) {
    take(b, f);
    printf("%s: %d tensors perturbed\n", FORM[f], bench_tensors(b, of_no_effect));
    if (upsamples(f)) {
        swap(b, "res_blocks.0.conv1.weight", "post_upsample_res_blocks.0.conv1.weight");
        swap(b, "res_blocks.0.norm1.weight", "res_blocks.0.norm2.weight");
        const char *shuffle = f == FORM_UP ? "upsampler.conv.weight" : "upsampler.0.weight";
        bench_rows(b, shuffle, 0, 1, 1); /* which column is the first */
        bench_rows(b, shuffle, 0, 2, 2); /* which row */
        return;
    }
#define UP "decoder.up_blocks.1."
    swap(b, UP "resnets.0.conv1.conv.weight", UP "resnets.0.conv2.conv.weight");
    swap(b, "latents_mean", "latents_std");
    bench_rows(b, UP "upsamplers.0.conv.conv.weight", 0, 4, 4);   /* which frame is the first */
    bench_rows(b, "encoder.down_blocks.2.downsamplers.0.conv.conv.weight", 0, 1, 1);
    bench_rows(b, "decoder.conv_out.conv.weight", 0, 4, 4);       /* columns of a patch */
    bench_rows(b, "encoder.conv_out.conv.weight", 0, 4, 4);
#undef UP
}

static void configs(Bench *b) {
    static const struct { Form f; const char *key, *value; } EDITS[] = {
        {FORM_20, "decoder_spatial_padding_mode", "\"zeros\""}, {FORM_20, "decoder_causal", "true"},
        {FORM_20, "encoder_causal", "false"}, {FORM_20, "encoder_spatial_padding_mode", "\"reflect\""},
        {FORM_20, "upsample_residual", "false"}, {FORM_20, "upsample_residual", "[true, true, false]"},
        {FORM_23, "decoder_spatial_padding_mode", "\"reflect\""}, {FORM_23, "decoder_causal", "true"},
        {FORM_23, "upsample_residual", "[false, true, false, false]"}, {FORM_23, "encoder_causal", "false"},
    };
    for (size_t i = 0; i < sizeof EDITS / sizeof *EDITS; i++) {
        take(b, EDITS[i].f);
        bench_config(b, EDITS[i].key, EDITS[i].value, NULL);
    }
}

/* --- windows --- */

enum { NO_SQUARE = 1, NO_MEAN = 2, NO_ROOT = 4, NO_QUOTIENT = 8, NO_BIAS = 16, NO_SUM = 32, NO_SILU = 64 };

/* The op by plain loops, steps left out. Pixels of the window are those that the true op fills: it runs first. */
static Status norm_fault(Exec *x, const Window *args, int skip) {
    Window a = *args;
    int64_t c = a.x.shape[3], pixels = tensor_numel(a.x) / c;
    Tensor n = exec_new_as(x, a.x.dtype, a.x.shape[0], a.x.shape[1], a.x.shape[2], c);
    for (int64_t p = 0; p < pixels; p++) {
        double sum = 0;
        float h[256], s;
        if (c > 256) return fail(x->error, ERR_MODEL, "wider than the test");
        for (int64_t j = 0; j < c; j++) {
            h[j] = faults_get(a.x, p * c + j);
            if (a.bias.rank) h[j] += faults_get(a.bias, j);
            if (a.bias.rank && !(skip & NO_BIAS)) h[j] = r(a.x, h[j]);
            if (a.skip.rank) h[j] += faults_get(a.skip, p * c + j);
            if (a.skip.rank && !(skip & NO_SUM)) h[j] = r(a.x, h[j]);
            sum += (double)(skip & NO_SQUARE ? h[j] * h[j] : r(a.x, h[j] * h[j]));
        }
        s = (float)sum / (float)c;
        s = sqrtf(skip & NO_MEAN ? s + a.eps : r(a.x, r(a.x, s) + a.eps));
        if (!(skip & NO_ROOT)) s = r(a.x, s);
        for (int64_t j = 0; j < c; j++) {
            float z = h[j] / s;
            if (!(skip & NO_QUOTIENT)) z = r(a.x, z);
            faults_set(n, p * c + j, skip & NO_SILU ? z : z / (1 + expf(-z)));
            if (a.h.rank) faults_set(a.h, p * c + j, h[j]);
        }
    }
    return fault_call(x, OP_frame_window, &(Window){.y = a.y, .x = n, .before = a.before, .border = a.border});
}
#define UNROUNDED(name, skip) \
    static Status name(Exec *x, const void *a) { return norm_fault(x, a, skip); }
UNROUNDED(square_unrounded, NO_SQUARE)
UNROUNDED(mean_unrounded, NO_MEAN)
UNROUNDED(root_unrounded, NO_ROOT)
UNROUNDED(quotient_unrounded, NO_QUOTIENT)
UNROUNDED(biased_unrounded, NO_BIAS)
UNROUNDED(sum_unrounded, NO_SUM)
UNROUNDED(no_silu, NO_SILU)

static Status norm_eps(Exec *x, const void *args) {
    Window a = *(const Window *)args;
    a.eps = 1e-3f;
    return fault_call(x, OP_pixelnorm_silu, &a);
}
static Status no_bias(Exec *x, const void *args) {
    Window a = *(const Window *)args;
    a.bias = (Tensor){0};
    return fault_call(x, OP_pixelnorm_silu, &a);
}
static Status no_other_path(Exec *x, const void *args) {
    Window a = *(const Window *)args;
    a.skip = (Tensor){0};
    return fault_call(x, OP_pixelnorm_silu, &a);
}
static Status sum_lost(Exec *x, const void *args) { /* the next resnet adds to what this one began with */
    Window a = *(const Window *)args;
    a.h = (Tensor){0};
    return fault_call(x, OP_pixelnorm_silu, &a);
}
static Status all_copies_before(Exec *x, const void *args) {
    Window a = *(const Window *)args;
    a.before = (int32_t)(a.y.shape[0] - a.x.shape[0]);
    return fault_call(x, OP_pixelnorm_silu, &a);
}
static Status no_copies(Exec *x, const void *args) { /* zeros before the first frame and behind the last */
    Window a = *(const Window *)args;
    TRY(fault_call(x, OP_pixelnorm_silu, &a));
    size_t frame = tensor_bytes(a.y) / (size_t)a.y.shape[0];
    for (int64_t f = 0; f < a.y.shape[0]; f++)
        if (f < a.before || f >= a.before + a.x.shape[0]) memset((char *)a.y.data + (size_t)f * frame, 0, frame);
    return OK;
}
/* The border's pixels are zeros, or the outermost pixels themselves. */
static Status border_other(Exec *x, OpId op, const void *args, bool repeat) {
    Window a = *(const Window *)args;
    TRY(fault_call(x, op, &a));
    int64_t c = a.y.shape[3], h = a.y.shape[1], w = a.y.shape[2];
    for (int64_t i = 0; a.border && i < tensor_numel(a.y); i++) {
        int64_t px = i / c % w, py = i / c / w % h, sx = px ? px : 1, sy = py ? py : 1;
        sx = sx == w - 1 ? w - 2 : sx, sy = sy == h - 1 ? h - 2 : sy;
        if (sx == px && sy == py) continue;
        faults_set(a.y, i, repeat ? faults_get(a.y, ((i / c / w / h * h + sy) * w + sx) * c + i % c) : 0);
    }
    return OK;
}
static Status border_repeated(Exec *x, const void *a) { return border_other(x, OP_pixelnorm_silu, a, true); }
static Status border_zero(Exec *x, const void *a) { return border_other(x, OP_pixelnorm_silu, a, false); }
static Status plain_border_repeated(Exec *x, const void *a) { return border_other(x, OP_frame_window, a, true); }
static Status plain_all_before(Exec *x, const void *args) {
    Window a = *(const Window *)args;
    a.before = (int32_t)(a.y.shape[0] - a.x.shape[0]);
    return fault_call(x, OP_frame_window, &a);
}
static Status plain_unrounded(Exec *x, const void *args) { /* bias and other path added at once */
    Window a = *(const Window *)args;
    if (!a.skip.rank) return fault_call(x, OP_frame_window, &a);
    Tensor n = exec_new_as(x, a.x.dtype, a.x.shape[0], a.x.shape[1], a.x.shape[2], a.x.shape[3]);
    for (int64_t i = 0; i < tensor_numel(n); i++)
        faults_set(n, i, faults_get(a.x, i) + faults_get(a.bias, i % a.x.shape[3]) + faults_get(a.skip, i));
    return fault_call(x, OP_frame_window, &(Window){.y = a.y, .x = n, .before = a.before, .border = a.border});
}

/* --- channels and places --- */

typedef enum DepthFault {
    INTERLEAVED, LAST_DROPPED, TURNED, NO_SKIP, NO_DEPTH_BIAS, SLOW, SUM_AT_ONCE, FIRST_OF_GROUP, MEAN_KEPT
} DepthFault;

static Status depth_fault(Exec *x, OpId op, const Depth *args, DepthFault how) {
    Depth a = *args;
    int64_t n = a.t * a.rows * a.columns;
    if (how == NO_SKIP) a.skip = (Tensor){0};
    if (how == NO_DEPTH_BIAS) a.bias = (Tensor){0};
    if (how == NO_SKIP || how == NO_DEPTH_BIAS) return fault_call(x, op, &a);
    int64_t channels = op == OP_depth_to_space ? a.y.shape[3] : a.x.shape[3];
    for (int64_t i = 0; i < tensor_numel(a.y); i++) {
        const int64_t *s = a.y.shape;
        int64_t c = i % s[3], px = i / s[3] % s[2], py = i / s[3] / s[2] % s[1], f = i / s[3] / s[2] / s[1], e;
        float v, other = 0;
        if (op == OP_depth_to_space) {
            int64_t frame = f + (how == LAST_DROPPED ? 0 : a.drop), b = py % a.rows, d = px % a.columns;
            if (how == TURNED) e = b, b = d % a.rows, d = e % a.columns;
            int64_t k = (frame % a.t * a.rows + b) * a.columns + d;
            int64_t at = (frame / a.t * a.x.shape[1] + py / a.rows) * a.x.shape[2] + px / a.columns;
            int64_t period = a.skip.rank ? a.skip.shape[3] / n : 1;
            int64_t sc = how == INTERLEAVED ? c / (channels / period) : c % period;
            e = how == SLOW ? k * channels + c : c * n + k;
            v = faults_get(a.x, at * a.x.shape[3] + e) + (a.bias.rank ? faults_get(a.bias, e) : 0);
            if (a.skip.rank) other = faults_get(a.skip, at * a.skip.shape[3] + sc * n + k);
        } else {
            int64_t k = how == SLOW ? c / channels : c % n, ch = how == SLOW ? c % channels : c / n, g;
            int64_t row = py * a.rows + k / a.columns % a.rows;
            int64_t at = ((f * a.t + k / a.columns / a.rows) * a.x.shape[1] + row) * a.x.shape[2] + px * a.columns +
                         k % a.columns;
            v = faults_get(a.x, at * channels + ch) + (a.bias.rank ? faults_get(a.bias, ch) : 0);
            g = a.skip.rank ? a.skip.shape[3] / channels : 0;
            for (int64_t m = 0; m < (how == FIRST_OF_GROUP ? g > 0 : g); m++) {
                e = c * g + m;
                int64_t frame = f * a.t + e % n / a.columns / a.rows;
                row = py * a.rows + e % n / a.columns % a.rows;
                int64_t from = (frame * a.x.shape[1] + row) * a.x.shape[2] + px * a.columns + e % n % a.columns;
                other += faults_get(a.skip, from * a.skip.shape[3] + e / n) / (how == FIRST_OF_GROUP ? 1 : (float)g);
            }
            if (how != MEAN_KEPT) other = r(a.y, other);
        }
        if (how != SUM_AT_ONCE) v = r(a.y, v);
        faults_set(a.y, i, v + other);
    }
    return OK;
}
#define EXCHANGE(name, op, how) \
    static Status name(Exec *x, const void *a) { return depth_fault(x, OP_##op, a, how); }
EXCHANGE(interleaved, depth_to_space, INTERLEAVED)
EXCHANGE(last_dropped, depth_to_space, LAST_DROPPED)
EXCHANGE(turned, depth_to_space, TURNED)
EXCHANGE(up_no_skip, depth_to_space, NO_SKIP)
EXCHANGE(up_no_bias, depth_to_space, NO_DEPTH_BIAS)
EXCHANGE(up_slow, depth_to_space, SLOW)
EXCHANGE(up_at_once, depth_to_space, SUM_AT_ONCE)
EXCHANGE(down_slow, space_to_depth, SLOW)
EXCHANGE(down_first, space_to_depth, FIRST_OF_GROUP)
EXCHANGE(down_no_skip, space_to_depth, NO_SKIP)
EXCHANGE(down_no_bias, space_to_depth, NO_DEPTH_BIAS)
EXCHANGE(down_mean, space_to_depth, MEAN_KEPT)
EXCHANGE(down_at_once, space_to_depth, SUM_AT_ONCE)

/* --- other ops --- */

static Status patch_turned(Exec *x, const void *args) { /* rows and columns of a patch exchanged */
    Copy a = *(const Copy *)args;
    Tensor *t = a.x.rank == 5 && a.x.stride[1] == 1 ? &a.x : &a.y;
    if (a.x.rank != 5) return fault_call(x, OP_copy, &a);
    int64_t s = t->stride[1];
    t->stride[1] = t->stride[3], t->stride[3] = s;
    return fault_call(x, OP_copy, &a);
}
static Status affine_other_form(Exec *x, const void *args) {
    ChanAffine a = *(const ChanAffine *)args;
    a.form = CHAN_SUBTRACT_DIVIDE;
    return fault_call(x, OP_chan_affine, &a);
}
static Status bias_in_the_sum(Exec *x, const void *args) {
    Conv3d a = *(const Conv3d *)args, c = a;
    if (a.form != CONV_BIAS) return fault_call(x, OP_conv3d, &a);
    Weight wide = *a.w;
    Tensor in = exec_new_as(x, F32, a.x.shape[0], a.x.shape[1], a.x.shape[2], a.x.shape[3]);
    c.y = exec_new_as(x, F32, a.y.shape[0], a.y.shape[1], a.y.shape[2], a.y.shape[3]);
    for (int64_t i = 0; i < tensor_numel(in); i++) faults_set(in, i, faults_get(a.x, i));
    wide.bias = (Tensor){0};
    c.x = in, c.w = &wide;
    TRY(fault_call(x, OP_conv3d, &c));
    for (int64_t i = 0; i < tensor_numel(a.y); i++)
        faults_set(a.y, i, faults_get(c.y, i) + faults_get(a.w->bias, i % a.y.shape[3]));
    return OK;
}
FAULT_SCRATCH(groupnorm)
static size_t conv_scratch(const Exec *x, const void *args) {
    return 2 * fault_true.impl[OP_conv3d][0]->scratch(x, args);
}
static Status frames_apart(Exec *x, const void *args) { /* statistics of each frame of three */
    GroupNorm a = *(const GroupNorm *)args;
    int64_t rows = a.x.shape[0] / LTX2_LATENT;
    for (int64_t f = 0; f < LTX2_LATENT; f++) {
        GroupNorm one = a;
        one.y = tensor_slice(a.y, 0, f * rows, rows), one.x = tensor_slice(a.x, 0, f * rows, rows);
        TRY(fault_call(x, OP_groupnorm, &one));
    }
    return OK;
}
static Status half_the_groups(Exec *x, const void *args) {
    GroupNorm a = *(const GroupNorm *)args;
    a.groups /= 2;
    return fault_call(x, OP_groupnorm, &a);
}
static Status group_eps(Exec *x, const void *args) {
    GroupNorm a = *(const GroupNorm *)args;
    a.eps = 1e-3f;
    return fault_call(x, OP_groupnorm, &a);
}
static Status first_repeated(Exec *x, const void *args) { /* copies, not zeros, before and behind */
    Conv3d a = *(const Conv3d *)args;
    size_t frame = tensor_bytes(a.x) / (size_t)a.x.shape[0];
    Tensor in = exec_new_as(x, a.x.dtype, a.x.shape[0] + 2, a.x.shape[1], a.x.shape[2], a.x.shape[3]);
    memcpy((char *)in.data + frame, a.x.data, tensor_bytes(a.x));
    memcpy(in.data, a.x.data, frame);
    memcpy((char *)in.data + tensor_bytes(in) - frame, (char *)a.x.data + tensor_bytes(a.x) - frame, frame);
    a.x = in, a.pad_t = 0;
    return fault_call(x, OP_conv3d, &a);
}
static Status silu_first(Exec *x, const void *args) { /* r(silu(normed)) + in: the sum must not be activated */
    Act a = *(const Act *)args;
    return fault_call(x, OP_copy, &(Copy){.y = a.y, .x = a.x});
}
static Status no_sum(Exec *x, const void *args) {
    Add a = *(const Add *)args;
    return fault_call(x, OP_copy, &(Copy){.y = a.y, .x = a.a});
}

static void ops(Bench *b) {
#define F(form, bf16, what, op, run, scratch) {FORM_##form, bf16, what, {OP_##op, "fault", run, scratch, NULL}}
    static const struct { Form form; bool bf16; const char *what; Impl impl; } STEPS[] = {
        F(20, false, "norm without SiLU", pixelnorm_silu, no_silu, NULL),
        F(20, false, "norm's eps 1e-3", pixelnorm_silu, norm_eps, NULL),
        F(20, false, "norm without the convolution's bias", pixelnorm_silu, no_bias, NULL),
        F(20, false, "norm of the convolution alone", pixelnorm_silu, no_other_path, NULL),
        F(20, false, "a resnet's sum lost", pixelnorm_silu, sum_lost, NULL),
        F(20, false, "all copies before", pixelnorm_silu, all_copies_before, NULL),
        F(23, false, "all copies before", pixelnorm_silu, all_copies_before, NULL),
        F(20, false, "all copies before an upsampling", frame_window, plain_all_before, NULL),
        F(20, false, "zeros, not copies", pixelnorm_silu, no_copies, NULL),
        F(23, false, "zeros, not copies", pixelnorm_silu, no_copies, NULL),
        F(20, false, "border repeated, not mirrored", pixelnorm_silu, border_repeated, NULL),
        F(20, false, "border of zeros", pixelnorm_silu, border_zero, NULL),
        F(20, false, "border repeated before an upsampling", frame_window, plain_border_repeated, NULL),
        F(20, false, "other path interleaved", depth_to_space, interleaved, NULL),
        F(20, false, "the last frame dropped", depth_to_space, last_dropped, NULL),
        F(23, false, "the last frame dropped", depth_to_space, last_dropped, NULL),
        F(23, false, "rows and columns exchanged", depth_to_space, turned, NULL),
        F(20, false, "upsampling without its other path", depth_to_space, up_no_skip, NULL),
        F(20, false, "upsampling without bias", depth_to_space, up_no_bias, NULL),
        F(23, false, "places slower than channels", depth_to_space, up_slow, NULL),
        F(20, false, "places slower than channels, down", space_to_depth, down_slow, NULL),
        F(20, false, "first of a group, not the mean", space_to_depth, down_first, NULL),
        F(20, false, "downsampling without its other path", space_to_depth, down_no_skip, NULL),
        F(20, false, "downsampling without bias", space_to_depth, down_no_bias, NULL),
        F(20, false, "a patch turned", copy, patch_turned, NULL),
        F(20, false, "latents scaled the other way", chan_affine, affine_other_form, NULL),
        F(UP, false, "copies, not zeros", conv3d, first_repeated, conv_scratch),
        F(UP, false, "statistics of a frame", groupnorm, frames_apart, scratch_groupnorm),
        F(UP, false, "half the groups", groupnorm, half_the_groups, scratch_groupnorm),
        F(UP, false, "norm's eps 1e-3", groupnorm, group_eps, scratch_groupnorm),
        F(UP, false, "sum not activated", act, silu_first, NULL),
        F(UP, false, "no sum", add, no_sum, NULL),
        F(UP, false, "rows and columns exchanged", depth_to_space, turned, NULL),
        F(PLAIN, false, "places slower than channels", depth_to_space, up_slow, NULL),
        F(20, true, "square not rounded", pixelnorm_silu, square_unrounded, NULL),
        F(20, true, "mean not rounded", pixelnorm_silu, mean_unrounded, NULL),
        F(20, true, "root not rounded", pixelnorm_silu, root_unrounded, NULL),
        F(20, true, "quotient not rounded", pixelnorm_silu, quotient_unrounded, NULL),
        F(20, true, "biased input of a norm not rounded", pixelnorm_silu, biased_unrounded, NULL),
        F(20, true, "a resnet's sum not rounded", pixelnorm_silu, sum_unrounded, NULL),
        F(20, true, "sum before an upsampling rounded once", frame_window, plain_unrounded, NULL),
        F(20, true, "upsampling's sum rounded once", depth_to_space, up_at_once, NULL),
        F(20, true, "downsampling's sum rounded once", space_to_depth, down_at_once, NULL),
        F(20, true, "mean of a group not rounded", space_to_depth, down_mean, NULL),
        F(20, true, "bias added before the rounding", conv3d, bias_in_the_sum, conv_scratch),
        F(23, true, "zeros, not copies", pixelnorm_silu, no_copies, NULL),
        F(UP, true, "bias added before the rounding", conv3d, bias_in_the_sum, conv_scratch),
    };
#undef F
    for (size_t i = 0; i < sizeof STEPS / sizeof *STEPS; i++) {
        take(b, STEPS[i].form);
        bench_fault(b, STEPS[i].bf16, STEPS[i].what, &STEPS[i].impl);
    }
}

int main(void) {
    static Bench b; /* lint: allow-static (test program: the sheets are large) */
    expect_ok(bench_open(&b), &b.g.error);
    b.file = LTX2_FILE, b.measure = measure;
    expect_ok(safetensors_open(GOLDEN_DIR "/ltx2_vae.safetensors", &b.g.file, &b.g.error), &b.g.error);
    for (Form f = 0; f < FORMS; f++) {
        take(&b, f);
        ltx2_checkpoint(b.clean, upsamples(f) ? "upsampler" : FORM[f], f == FORM_PLAIN);
        mutate_copy_folder(b.clean, b.model);
        for (int bf16 = 0; bf16 < (f == FORM_PLAIN ? 1 : 2); bf16++) bench_keep(&b, bf16);
    }
    for (Form f = 0; f < FORMS; f++) tensors(&b, f);
    configs(&b);
    ops(&b);
    return bench_close(&b);
}
