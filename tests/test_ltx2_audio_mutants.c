/* test_ltx2_audio_mutants.c - do the goldens of LTX-2's sound side notice? Every tensor perturbed by 10 % of its rms, config
 * values exchanged, ops with a step wrong (f32, run through) and ops with one rounding left out (bf16, stage by stage). Each
 * fault must raise some metric above its limit and at least tenfold.
 *
 * GOLDEN_VERBOSE=1 prints all. Easy to get wrong: the bf16 goldens hold samples, so a fault must not be rare. */
#include "fault_steps.h"
#include "faults.h"
#include "golden_bench.h"
#include "golden_ltx2_audio.h"

#define AUDIO_FILE "diffusion_pytorch_model.safetensors"

static Status measure(Bench *b, const char *folder, bool bf16) {
    AudioParts p;
    Status s = audio_open(&b->g, (AudioPart)b->run, folder, bf16 ? BF16 : F32, &p);
    if (s == OK) s = bf16 ? audio_bf16(&b->g, &p) : audio_f32(&b->g, &p);
    audio_close(&p);
    return s;
}

/* --- the checkpoint --- */

static void tensors(Bench *b) {
    printf("%s: %d tensors perturbed\n", b->name, bench_tensors(b, NULL));
    static const struct { int part; const char *a, *b; } SWAPS[] = {
        {AUDIO_VAE, "decoder.up.2.block.0.conv1.conv.weight", "decoder.up.2.block.0.conv2.conv.weight"},
        {AUDIO_VAE, "decoder.mid.block_1.conv1.conv.weight", "decoder.mid.block_2.conv1.conv.weight"},
        {AUDIO_VAE, "latents_mean", "latents_std"},
        {AUDIO_VOCODER, "resnets.3.convs1.0.weight", "resnets.3.convs2.0.weight"},
        {AUDIO_VOCODER, "resnets.3.convs1.0.weight", "resnets.3.convs1.1.weight"},
        {AUDIO_BWE, "vocoder.resnets.0.acts1.0.act.alpha", "vocoder.resnets.0.acts1.0.act.beta"},
        {AUDIO_BWE, "vocoder.resnets.0.acts1.0.upsample.filter", "vocoder.resnets.0.acts1.0.downsample.filter"},
        {AUDIO_BWE, "vocoder.resnets.0.acts1.0.act.alpha", "vocoder.resnets.0.acts2.0.act.alpha"},
        {AUDIO_BWE, "vocoder.act_out.act.alpha", "vocoder.resnets.3.acts2.2.act.alpha"},
    };
    for (size_t i = 0; i < sizeof SWAPS / sizeof *SWAPS; i++)
        if (SWAPS[i].part == b->run) bench_edit(b, SWAPS[i].a, SWAPS[i].b, 0, 0, 0);
}

/* Keys that the committed configs leave at their defaults: put in front of the rest. */
static void config_fault(Bench *b, const char *pair) {
    char path[700], *text, *out;
    size_t size;
    Error e = {0};
    snprintf(path, sizeof path, "%s/config.json", b->clean);
    if (file_read(path, &text, &size, &e) != OK || asprintf(&out, "{%s,%s", pair, strchr(text, '{') + 1) < 0) abort();
    snprintf(path, sizeof path, "%s/config.json", b->model);
    mutate_write(path, out, strlen(out));
    free(text);
    free(out);
    bench_configured(b, pair, NULL);
}

static void configs(Bench *b) {
    if (b->run == AUDIO_VOCODER) {
        config_fault(b, "\"leaky_relu_negative_slope\": 0.11");
        config_fault(b, "\"final_act_fn\": null");
        config_fault(b, "\"resnet_dilations\": [[1, 3, 5], [1, 3, 5], [1, 5, 3]]");
        config_fault(b, "\"resnet_dilations\": [[1, 1, 1], [1, 3, 5], [1, 3, 5]]");
    }
    if (b->run == AUDIO_BWE) {
        config_fault(b, "\"final_act_fn\": \"tanh\"");
        config_fault(b, "\"bwe_final_act_fn\": \"tanh\"");
        config_fault(b, "\"bwe_resnet_dilations\": [[1, 3, 5], [1, 5, 3], [1, 3, 5]]");
    }
}

/* --- ops --- */

static Status signal_causal(Exec *x, const void *args) { /* convolutions along time look back only */
    Conv2d a = *(const Conv2d *)args;
    a.pad_top += a.pad_bottom, a.pad_bottom = 0;
    return fault_call(x, OP_conv2d, &a);
}
static Status picture_centred(Exec *x, const void *args) { /* and those of spectrograms look ahead */
    Conv2d a = *(const Conv2d *)args;
    a.pad_bottom = a.pad_top / 2, a.pad_top -= a.pad_bottom;
    return fault_call(x, OP_conv2d, &a);
}
static Status bands_causal(Exec *x, const void *args) {
    Conv2d a = *(const Conv2d *)args;
    a.pad_left += a.pad_right, a.pad_right = 0;
    return fault_call(x, OP_conv2d, &a);
}
static Status last_row_dropped(Exec *x, const void *args) { /* the first one stays */
    Conv2d a = *(const Conv2d *)args;
    a.pad_top = 2, a.pad_bottom = 0;
    return fault_call(x, OP_upsample_conv, &a);
}
static Status nothing_behind(Exec *x, const void *args) { /* what lies behind a signal, or before it, is not zero */
    Roll a = *(const Roll *)args;
    for (int64_t i = 0; i < tensor_numel(a.window); i++) faults_set(a.window, i, 0.3f);
    (void)x;
    return OK;
}
static Status same_slope(Exec *x, const void *args) {
    Act a = *(const Act *)args;
    if (a.kind == ACT_LEAKY_RELU) a.slope = 0.1f;
    return fault_call(x, OP_act, &a);
}
static Status small_slope(Exec *x, const void *args) {
    Act a = *(const Act *)args;
    if (a.kind == ACT_LEAKY_RELU) a.slope = 0.01f;
    return fault_call(x, OP_act, &a);
}
static Status no_clamp(Exec *x, const void *args) {
    const Act *a = args;
    return a->kind == ACT_CLAMP ? OK : fault_call(x, OP_act, a);
}
static Status log_of_ten(Exec *x, const void *args) {
    const Act *a = args;
    TRY(fault_call(x, OP_act, a));
    for (int64_t i = 0; a->kind == ACT_LOG_FLOOR && i < tensor_numel(a->y); i++)
        faults_set(a->y, i, faults_get(a->y, i) * 0.4342945f);
    return OK;
}
static Status sum_of_three(Exec *x, const void *args) {
    const Mean3 *a = args;
    (void)x;
    for (int64_t i = 0; i < tensor_numel(a->y); i++)
        faults_set(a->y, i, faults_get(a->a, i) + faults_get(a->b, i) + faults_get(a->c, i));
    return OK;
}
static Status first_of_three(Exec *x, const void *args) {
    Mean3 a = *(const Mean3 *)args;
    a.c = a.b;
    return fault_call(x, OP_mean3, &a);
}
static Status row_late(Exec *x, const void *args) {
    ConvTranspose1d a = *(const ConvTranspose1d *)args;
    size_t row = (size_t)a.x.shape[1] * dtype_size(a.x.dtype), all = tensor_bytes(a.x);
    char *copy = calloc(1, all);
    if (!copy) abort();
    memcpy(copy + row, a.x.data, all - row);
    a.x.data = copy;
    Status s = fault_call(x, OP_conv_transpose1d, &a);
    free(copy);
    return s;
}
/* The weight's in and out exchanged, as PyTorch's other convolutions have them: where they are as many, another kernel order. */
static Status kernel_turned(Exec *x, const void *args) {
    ConvTranspose1d a = *(const ConvTranspose1d *)args;
    Weight w = *a.w;
    const int64_t k = w.w.shape[2], n = tensor_numel(w.w);
    Tensor copy = exec_new_as(x, w.w.dtype, w.w.shape[0], w.w.shape[1], k);
    for (int64_t i = 0; i < n; i++) faults_set(copy, i, faults_get(w.w, i - i % k + k - 1 - i % k));
    w.w = copy;
    a.w = &w;
    return fault_call(x, OP_conv_transpose1d, &a);
}
static Status snake_exchanged(Exec *x, const void *args) {
    SnakeFiltered a = *(const SnakeFiltered *)args;
    Tensor t = a.alpha;
    a.alpha = a.beta, a.beta = t;
    return fault_call(x, OP_snake_filtered, &a);
}
static Status filters_exchanged(Exec *x, const void *args) {
    SnakeFiltered a = *(const SnakeFiltered *)args;
    Tensor t = a.up;
    a.up = a.down, a.down = t;
    return fault_call(x, OP_snake_filtered, &a);
}
static Status filter_reversed(Exec *x, const void *args) {
    SnakeFiltered a = *(const SnakeFiltered *)args;
    Tensor copy = exec_new_as(x, a.down.dtype, tensor_numel(a.down));
    for (int64_t i = 0; i < tensor_numel(copy); i++) faults_set(copy, i, faults_get(a.down, tensor_numel(copy) - 1 - i));
    a.down = copy;
    return fault_call(x, OP_snake_filtered, &a);
}
static Status up_a_sample_early(Exec *x, const void *args) {
    FirUp a = *(const FirUp *)args;
    a.crop++;
    return fault_call(x, OP_fir_up, &a);
}
static Status power_not_magnitude(Exec *x, const void *args) {
    const Magnitude *a = args;
    TRY(fault_call(x, OP_magnitude, a));
    for (int64_t i = 0; i < tensor_numel(a->y); i++) faults_set(a->y, i, faults_get(a->y, i) * faults_get(a->y, i));
    return OK;
}
static Status real_part_alone(Exec *x, const void *args) {
    const Magnitude *a = args;
    (void)x;
    int64_t n = a->y.shape[1];
    for (int64_t i = 0; i < tensor_numel(a->y); i++) faults_set(a->y, i, fabsf(faults_get(a->x, i / n * 2 * n + i % n)));
    return OK;
}
static Status channels_fast(Exec *x, const void *args) { /* a spectrogram's bands with the channels between them */
    Copy a = *(const Copy *)args;
    if (a.x.rank != 3 || tensor_contiguous(a.x)) return fault_call(x, OP_copy, &a);
    a.x.stride[1] = a.x.shape[2], a.x.stride[2] = 1;
    return fault_call(x, OP_copy, &a);
}
static Status windows_late(Exec *x, const void *args) { /* windows begin with their hop */
    Copy a = *(const Copy *)args;
    if (a.x.rank != 2 || a.x.stride[0] >= a.x.shape[1] * a.x.stride[1] || a.x.shape[0] < 2) return fault_call(x, OP_copy, &a);
    a.x.data = (char *)a.x.data + a.x.stride[0] * (int64_t)dtype_size(a.x.dtype);
    a.x.shape[0]--, a.y.shape[0]--;
    return fault_call(x, OP_copy, &a);
}
static Status affine_late(Exec *x, const void *args) { /* packed rows read as mel * channels */
    ChanAffine a = *(const ChanAffine *)args;
    Tensor copy = exec_new_as(x, F32, tensor_numel(a.a));
    int64_t n = tensor_numel(copy), bands = 4;
    for (int64_t i = 0; i < n; i++) faults_set(copy, i, faults_get(a.a, i % (n / bands) * bands + i / (n / bands)));
    a.a = copy;
    return fault_call(x, OP_chan_affine, &a);
}
static Status affine_in_bf16(Exec *x, const void *args) {
    const ChanAffine *a = args;
    (void)x;
    for (int64_t i = 0, c = tensor_numel(a->a); i < tensor_numel(a->y); i++) {
        float v = bf16_round(bf16_round(faults_get(a->x, i)) * faults_get(a->a, i % c));
        faults_set(a->y, i, bf16_round(v + faults_get(a->b, i % c)));
    }
    return OK;
}
static Status norm_without_bias(Exec *x, const void *args) {
    Window a = *(const Window *)args;
    a.bias = (Tensor){0};
    return fault_call(x, OP_pixelnorm_silu, &a);
}
static Status norm_eps(Exec *x, const void *args) {
    Window a = *(const Window *)args;
    a.eps = 1e-3f;
    return fault_call(x, OP_pixelnorm_silu, &a);
}
static Status norm_without_silu(Exec *x, const void *args) {
    const Window *a = args;
    int64_t c = a->x.shape[3], n = tensor_numel(a->x);
    (void)x;
    for (int64_t row = 0; row < n / c; row++) {
        double square = 0;
        for (int64_t j = 0; j < c; j++) {
            float v = faults_get(a->x, row * c + j) + (a->bias.rank ? faults_get(a->bias, j) : 0);
            square += (double)v * (double)v;
            faults_set(a->y, row * c + j, v);
        }
        for (int64_t j = 0; j < c; j++)
            faults_set(a->y, row * c + j, (float)((double)faults_get(a->y, row * c + j) / sqrt(square / (double)c + 1e-6)));
    }
    return OK;
}

/* --- roundings --- */

/* conv, bias and skip in f32; with_bias: the bias is in the sum, else the skip is. */
static Status conv_once(Exec *x, const Conv2d *a, bool with_bias) {
    Conv2d c = *a;
    Weight w = *a->w, wide = w;
    int64_t n = tensor_numel(a->y), ch = a->y.shape[2];
    Tensor in = exec_new_as(x, F32, a->x.shape[0], a->x.shape[1], a->x.shape[2]);
    Tensor out = exec_new_as(x, F32, a->y.shape[0], a->y.shape[1], ch);
    for (int64_t i = 0; i < tensor_numel(in); i++) faults_set(in, i, faults_get(a->x, i));
    wide.bias = (Tensor){0};
    c.x = in, c.y = out, c.w = &wide, c.skip = c.skip_bias = (Tensor){0};
    TRY(fault_call(x, OP_conv2d, &c));
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
static Status raised_at_once(Exec *x, const void *args) {
    const ConvTranspose1d *a = args;
    ConvTranspose1d c = *a;
    Weight wide = *a->w;
    Tensor in = exec_new_as(x, F32, a->x.shape[0], a->x.shape[1]), out = exec_new_as(x, F32, a->y.shape[0], a->y.shape[1]);
    for (int64_t i = 0; i < tensor_numel(in); i++) faults_set(in, i, faults_get(a->x, i));
    wide.bias = (Tensor){0};
    c.x = in, c.y = out, c.w = &wide;
    TRY(fault_call(x, OP_conv_transpose1d, &c));
    for (int64_t i = 0; i < tensor_numel(out); i++)
        faults_set(a->y, i, faults_get(out, i) + faults_get(a->w->bias, i % a->y.shape[1]));
    return OK;
}
static Status mean_of_rounded(Exec *x, const void *args) { /* as PyTorch's CPU kernel: the sum is rounded, then divided */
    const Mean3 *a = args;
    (void)x;
    for (int64_t i = 0; i < tensor_numel(a->y); i++)
        faults_set(a->y, i, r(a->y, faults_get(a->a, i) + faults_get(a->b, i) + faults_get(a->c, i)) / 3);
    return OK;
}
static Status raised_unrounded(Exec *x, const void *args) { /* the ratio before the rounding */
    const FirUp *a = args;
    int64_t c = a->x.shape[1], rows = a->x.shape[0], taps = tensor_numel(a->filter);
    (void)x;
    for (int64_t i = 0; i < tensor_numel(a->y); i++) {
        float sum = 0;
        for (int64_t j = 0; j < taps; j++) {
            if ((i / c + a->crop - j) % a->ratio) continue;
            int64_t at = (i / c + a->crop - j) / a->ratio - a->pad;
            sum += faults_get(a->filter, j) * faults_get(a->x, (at < 0 ? 0 : at < rows ? at : rows - 1) * c + i % c);
        }
        faults_set(a->y, i, sum * (float)a->ratio);
    }
    return OK;
}
enum { SKIP_RAISED = 1, SKIP_SINE = 2, SKIP_ADDED = 4, SKIP_SNAKE = 8 };
static Status snake_unrounded(Exec *x, const SnakeFiltered *a, int skip) {
    int64_t c = a->x.shape[1], rows = a->x.shape[0], taps = tensor_numel(a->up);
    int64_t lead = taps / 2 - 1, crop = 2 * lead + (taps - 2) / 2;
    Tensor s = exec_new_as(x, F32, 2 * rows, c);
    for (int64_t i = 0; i < 2 * rows * c; i++) {
        float u = 0, by = r(a->y, expf(faults_get(a->alpha, i % c))), beta = r(a->y, expf(faults_get(a->beta, i % c)));
        const float inverse = r(a->y, 1 / r(a->y, beta + 1e-9f));
        for (int64_t j = 0; j < taps; j++) {
            if ((i / c + crop - j) % 2) continue;
            int64_t at = (i / c + crop - j) / 2 - lead;
            u += faults_get(a->up, j) * faults_get(a->x, (at < 0 ? 0 : at < rows ? at : rows - 1) * c + i % c);
        }
        u = skip & SKIP_RAISED ? 2 * u : r(a->y, 2 * r(a->y, u));
        float v = r(a->y, u * by);
        v = skip & SKIP_SINE ? sinf(v) : r(a->y, sinf(v));
        v = r(a->y, v * v) * inverse;
        v = u + (skip & SKIP_ADDED ? v : r(a->y, v));
        faults_set(s, i, skip & SKIP_SNAKE ? v : r(a->y, v));
    }
    for (int64_t i = 0; i < rows * c; i++) {
        float sum = 0;
        for (int64_t j = 0; j < taps; j++) {
            int64_t at = 2 * (i / c) + j - lead;
            sum += faults_get(a->down, j) * faults_get(s, (at < 0 ? 0 : at < 2 * rows ? at : 2 * rows - 1) * c + i % c);
        }
        faults_set(a->y, i, sum);
    }
    return OK;
}
#define SNAKE(name, skip) \
    static Status name(Exec *x, const void *a) { return snake_unrounded(x, a, skip); }
SNAKE(snake_raised, SKIP_RAISED)
SNAKE(snake_sine, SKIP_SINE)
SNAKE(snake_added, SKIP_ADDED)
SNAKE(snake_whole, SKIP_SNAKE)

FAULT_SCRATCH(conv2d)
FAULT_SCRATCH(upsample_conv)
FAULT_SCRATCH(conv_transpose1d)
FAULT_SCRATCH(snake_filtered)

enum { VAE = 1 << AUDIO_VAE, VOC = 1 << AUDIO_VOCODER, BWE = 1 << AUDIO_BWE };

static void ops(Bench *b) {
#define F(parts, bf16, what, op, run, scratch) {parts, bf16, what, {OP_##op, "fault", run, scratch, NULL}}
    static const struct { int parts; bool bf16; const char *what; Impl impl; } STEPS[] = {
        F(VOC | BWE, false, "convolutions along time look back", conv2d, signal_causal, scratch_conv2d),
        F(VAE, false, "spectrograms look ahead", conv2d, picture_centred, scratch_conv2d),
        F(VAE, false, "bands are causal", conv2d, bands_causal, scratch_conv2d),
        F(VAE, false, "an upsampling's last row dropped", upsample_conv, last_row_dropped, scratch_upsample_conv),
        F(VOC | BWE, false, "no zeros behind a signal", roll, nothing_behind, NULL),
        F(VOC, false, "the last slope is the others'", act, same_slope, NULL),
        F(VOC, false, "all slopes are the last one", act, small_slope, NULL),
        F(BWE, true, "not held to full scale", act, no_clamp, NULL),
        F(BWE, false, "decimal logarithm", act, log_of_ten, NULL),
        F(VOC | BWE, false, "resnets summed", mean3, sum_of_three, NULL),
        F(VOC | BWE, false, "the third resnet left out", mean3, first_of_three, NULL),
        F(VOC | BWE, false, "transposed convolution a row late", conv_transpose1d, row_late, scratch_conv_transpose1d),
        F(VOC | BWE, false, "its kernel turned", conv_transpose1d, kernel_turned, scratch_conv_transpose1d),
        F(BWE, false, "alpha and beta exchanged", snake_filtered, snake_exchanged, scratch_snake_filtered),
        F(BWE, false, "filters exchanged", snake_filtered, filters_exchanged, scratch_snake_filtered),
        F(BWE, false, "filter turned", snake_filtered, filter_reversed, scratch_snake_filtered),
        F(BWE, false, "resampler a sample early", fir_up, up_a_sample_early, NULL),
        F(BWE, false, "power instead of magnitude", magnitude, power_not_magnitude, NULL),
        F(BWE, false, "the real part alone", magnitude, real_part_alone, NULL),
        F(VOC | BWE, false, "channels between the bands", copy, channels_fast, NULL),
        F(VAE, false, "latents unpacked the other way", copy, channels_fast, NULL),
        F(BWE, false, "windows begin with their hop", copy, windows_late, NULL),
        F(VAE, false, "mean and std exchanged", chan_affine, fault_affine_exchanged, NULL),
        F(VAE, false, "std in another order", chan_affine, affine_late, NULL),
        F(VAE, false, "norm without the convolution's bias", pixelnorm_silu, norm_without_bias, NULL),
        F(VAE, false, "norm without SiLU", pixelnorm_silu, norm_without_silu, NULL),
        F(VAE, false, "norm's eps 1e-3", pixelnorm_silu, norm_eps, NULL),
        F(VAE, true, "latents scaled in bf16", chan_affine, affine_in_bf16, NULL),
        F(VAE | VOC | BWE, true, "bias added before the rounding", conv2d, bias_in_the_sum, scratch_conv2d),
        F(VAE | VOC | BWE, true, "other path added before the rounding", conv2d, skip_on_the_sum, scratch_conv2d),
        F(VOC | BWE, true, "raised signal's bias before the rounding", conv_transpose1d, raised_at_once,
          scratch_conv_transpose1d),
        F(VOC | BWE, true, "mean of a rounded sum", mean3, mean_of_rounded, NULL),
        F(BWE, true, "resampler's gain before the rounding", fir_up, raised_unrounded, NULL),
        F(BWE, true, "raised signal of a snake not rounded", snake_filtered, snake_raised, scratch_snake_filtered),
        F(BWE, true, "sine not rounded", snake_filtered, snake_sine, scratch_snake_filtered),
        F(BWE, true, "snake's summand not rounded", snake_filtered, snake_added, scratch_snake_filtered),
        F(BWE, true, "snake not rounded", snake_filtered, snake_whole, scratch_snake_filtered),
    };
#undef F
    for (size_t i = 0; i < sizeof STEPS / sizeof *STEPS; i++)
        if (STEPS[i].parts >> b->run & 1) bench_fault(b, STEPS[i].bf16, STEPS[i].what, &STEPS[i].impl);
}

int main(void) {
    static Bench b; /* lint: allow-static (test program: the sheets are large) */
    expect_ok(bench_open(&b), &b.g.error);
    b.file = AUDIO_FILE, b.measure = measure;
    mkdir(b.clean, 0777);
    for (AudioPart part = AUDIO_VAE; part < AUDIO_PARTS; part++) {
        b.run = (int)part, b.name = AUDIO_NAMES[part];
        expect_ok(audio_golden(&b.g, part), &b.g.error);
        audio_checkpoint(&b.g, part, b.clean);
        mutate_copy_folder(b.clean, b.model);
        for (int bf16 = 0; bf16 < 2; bf16++) bench_keep(&b, bf16);
        tensors(&b);
        configs(&b);
        ops(&b);
    }
    return bench_close(&b);
}
