/* test_ltx2_audio.c - the sound side of LTX-2: names and sizes of the published checkpoints, whole runs against diffusers in
 * f32, every stage in bf16, lengths, refusals, equal bits whatever the threads, the memory plan.
 *
 * GOLDEN_VERBOSE=1 prints how near everything is. Run from the repository root. */
#include "expect.h"
#include "golden_ltx2_audio.h"

#include <omp.h>

static char folder[500]; /* lint: allow-static (test program) */

static void report(const Golden *g, const char *part, const char *what) {
    for (int i = 0; i < g->stages; i++) {
        bool good = g->stage[i].metric <= 1;
        expect_at(good, g->stage[i].name, part, 0);
        if (!good || getenv("GOLDEN_VERBOSE"))
            printf("%-11s %-4s %-22s %.3g\n", part, what, g->stage[i].name, g->stage[i].metric);
    }
}

static void config(const char *json) {
    char path[600];
    snprintf(path, sizeof path, "%s/config.json", folder);
    mutate_write(path, json, strlen(json));
}

/* --- the published checkpoints --- */

static int64_t values(const Bind *b) {
    int64_t all = 0;
    for (int i = 0; i < b->count; i++) {
        int64_t n = 1;
        for (int d = 0; d < b->rows[i].rank; d++) n *= b->rows[i].shape[d];
        all += n;
    }
    return all;
}

static void published(void) {
    static const struct { const char *json; int tensors; int64_t values; int rate; int64_t samples; } VOCODERS[] = {
        {"{\"_class_name\": \"LTX2Vocoder\"}", 194, 55592802, 24000, 120240},
        {"{\"_class_name\": \"LTX2VocoderWithBWE\"}", 1226, 129085032 - 514 * 512, 48000, 240480}}; /* inverse_basis */
    Error e = {0};
    Bind b = {.prefix = ""};
    VaeLtx2Audio vae;
    config("{}");
    expect_ok(vae_ltx2_audio_open(folder, &vae, &e), &e);
    vae_ltx2_audio_bind(&vae, &b);
    expect(b.count == 58 && values(&b) == 31915394 && vae_ltx2_audio_width(&vae.c) == 128);
    expect(vae.up[1][0].in == 512 && vae.up[1][0].out == 256 && vae.up[2][0].out == 128 && vae.mid[0].in == 512);
    bind_free(&b);
    /* 121 frames at 24 a second are 126.04 rows; 97 at 24, 101.04; 12.5 and 13.5 are rounded to even */
    const VaeLtx2AudioConfig *c = &vae.c;
    expect(vae_ltx2_audio_rows(c, 121.0 / 24.0) == 126 && vae_ltx2_audio_rows(c, 97.0 / 24.0) == 101 &&
           vae_ltx2_audio_rows(c, 0.5) == 12 && vae_ltx2_audio_rows(c, 0.54) == 14 && vae_ltx2_audio_mel_rows(c, 126) == 501);
    for (int i = 0; i < 2; i++) {
        VocoderLtx2 v;
        config(VOCODERS[i].json);
        expect_ok(vocoder_ltx2_open(folder, &v, &e), &e);
        vocoder_ltx2_bind(&v, &b);
        expect_at(b.count == VOCODERS[i].tensors && values(&b) == VOCODERS[i].values, "tensors", VOCODERS[i].json, b.count);
        expect(vocoder_ltx2_rate(&v) == VOCODERS[i].rate && vocoder_ltx2_channels(&v) == 2 && vocoder_ltx2_bands(&v) == 64);
        expect(vocoder_ltx2_samples(&v, 501) == VOCODERS[i].samples);
        bind_free(&b);
    }
}

/* --- refusals --- */

static void refused_vae(const char *key, const char *value, const char *text) {
    VaeLtx2Audio v;
    Error e = {0};
    char json[300];
    snprintf(json, sizeof json, "{\"%s\": %s}", key, value);
    config(json);
    expect_status(vae_ltx2_audio_open(folder, &v, &e), ERR_MODEL, text, &e);
}

static void refused_vocoder(const char *kind, const char *key, const char *value, const char *text) {
    VocoderLtx2 v;
    Error e = {0};
    char json[300];
    snprintf(json, sizeof json, "{\"_class_name\": \"LTX2Vocoder%s\", \"%s\": %s}", kind, key, value);
    config(json);
    expect_status(vocoder_ltx2_open(folder, &v, &e), ERR_MODEL, text, &e);
}

static void refusals(void) {
    static const char BWE[] = "WithBWE";
    refused_vae("norm_type", "\"group\"", "norm_type \"group\"");
    refused_vae("causality_axis", "\"width\"", "causality_axis \"width\"");
    refused_vae("mid_block_add_attention", "true", ", attention: expected");
    refused_vae("attn_resolutions", "[16]", ", attention: expected");
    refused_vae("ch_mult", "[1, 2]", "3 levels (found 2)");
    refused_vae("ch_mult", "[1, 0, 2]", "ch_mult 0");
    refused_vae("num_res_blocks", "9", "num_res_blocks below");
    refused_vae("mel_bins", "32", "are not base_channels 128");
    refused_vae("base_channels", "\"x\"", "expected an integer");
    refused_vocoder("X", "in_channels", "128", "_class_name: found \"LTX2VocoderX\", expected");
    refused_vocoder("", "act_fn", "\"snake\"", "act_fn: found \"snake\" as it is");
    refused_vocoder("", "act_fn", "\"snakebeta\"", "snakebeta with antialias");
    refused_vocoder("", "antialias", "true", "act_fn: found \"leaky_relu\" filtered");
    refused_vocoder("", "upsample_factors", "[6, 5]", "as many upsample_factors (found 5 and 2)");
    refused_vocoder("", "upsample_factors", "[6, 5, 2, 2, 3]", "3 with a kernel of 4 does not multiply");
    refused_vocoder("", "resnet_kernel_sizes", "[3, 7, 8]", "found 8, expected an odd number");
    refused_vocoder("", "resnet_kernel_sizes", "[3, 7]", "3 resnet_kernel_sizes (found 2)");
    refused_vocoder("", "resnet_dilations", "[[1, 3, 5], [1, 3, 5]]", "found 2 lists, expected 3");
    refused_vocoder("", "resnet_dilations", "[[1, 3, 5], [1, 3], [1]]", "expected 3 lists of one length");
    refused_vocoder("", "resnet_dilations", "[[1, 3, 0], [1, 3, 5], [1, 3, 5]]", "integers, 1 to 64");
    refused_vocoder("", "hidden_channels", "1000", "1000 cannot be halved 5 times");
    refused_vocoder("", "out_channels", "3", "128 are no bands of 3 channels");
    refused_vocoder(BWE, "antialias_ratio", "4", "antialias_ratio and antialias_kernel_size: found 4");
    refused_vocoder(BWE, "bwe_antialias_kernel_size", "13", "found 2 and 13");
    refused_vocoder(BWE, "hop_length", "100", "240 samples a hop of 100 do not make 48000 Hz of 16000");
    refused_vocoder(BWE, "window_length", "256", "filter_length 512, window_length 256");
    refused_vocoder(BWE, "num_mel_channels", "32", "bwe_in_channels 128");
    refused_vocoder(BWE, "output_sampling_rate", "40000", "do not make 40000 Hz of 16000");
    VocoderLtx2 v;
    Error e = {0};
    config("{\"_class_name\": \"LTX2VocoderWithBWE\", \"final_act_fn\": \"clamp\", \"bwe_final_bias\": true}");
    expect_ok(vocoder_ltx2_open(folder, &v, &e), &e);
    expect(v.net.c.end == VOCODER_END_CLAMP && v.generator.c.end == VOCODER_END_NONE && v.generator.c.final_bias &&
           !v.net.c.final_bias);
}

static void wrong_shapes(Golden *g, const AudioParts *p) {
    size_t mark = arena_mark(&g->work);
    g->x.dtype = F32;
    Tensor mel = exec_new(&g->x, 9, AUDIO_BANDS, 2), z = exec_new(&g->x, AUDIO_LATENT, 8), sound = exec_new(&g->x, 9, 2);
    if (p->part == AUDIO_VAE) {
        expect_status(vae_ltx2_audio_decode(&p->vae, &g->x, z, tensor_slice(mel, 0, 0, 8)), ERR_MODEL, "[4 L - 3, 16, 2]",
                      &g->error);
        expect_status(vae_ltx2_audio_decode(&p->vae, &g->x, mel, mel), ERR_MODEL, "latents F32 [L, 8]", &g->error);
    } else {
        expect_status(vocoder_ltx2_run(&p->vocoder, &g->x, mel, sound), ERR_MODEL, "[rows, 16, 2]", &g->error);
        expect_status(vocoder_ltx2_run(&p->vocoder, &g->x, sound, sound), ERR_MODEL, "[rows, 16, 2]", &g->error);
    }
    arena_reset(&g->work, mark);
}

/* --- the same bits --- */

/* With more threads, and from a spectrogram that lies otherwise. */
static void bits(Golden *g, const AudioParts *p, DType dtype) {
    size_t mark = arena_mark(&g->work);
    Tensor one, two;
    g->x.dtype = dtype;
    const int64_t rows = p->part == AUDIO_VAE ? AUDIO_LATENT : AUDIO_ROWS;
    expect_ok(audio_run(g, p, rows, &one), &g->error);
    omp_set_num_threads(2);
    expect_ok(audio_run(g, p, rows, &two), &g->error);
    omp_set_num_threads(1);
    expect_at(!memcmp(one.data, two.data, tensor_bytes(one)), "the bits of one thread", dtype_name(dtype), (int)p->part);
    if (p->part != AUDIO_VAE) {
        Tensor across = exec_new(&g->x, 2, AUDIO_BANDS, rows), view = across;
        for (int d = 0; d < 3; d++) view.shape[d] = across.shape[2 - d], view.stride[d] = across.stride[2 - d];
        expect_ok(op_copy(&g->x, &(Copy){.y = view, .x = audio_given(g, dtype, rows)}), &g->error);
        expect_ok(vocoder_ltx2_run(&p->vocoder, &g->x, view, two), &g->error);
        expect_at(!memcmp(one.data, two.data, tensor_bytes(one)), "from other strides", dtype_name(dtype), (int)p->part);
    }
    arena_reset(&g->work, mark);
}

/* --- the plan of the published size --- */

static size_t planned(Golden *g, const char *json, DType dtype) {
    VocoderLtx2 v;
    Bind b = {.prefix = ""};
    config(json);
    expect_ok(vocoder_ltx2_open(folder, &v, &g->error), &g->error);
    vocoder_ltx2_bind(&v, &b);
    for (int i = 0; i < b.count; i++) { /* as a dry run sees them: shapes without numbers */
        BindRow *r = &b.rows[i];
        int64_t line[4] = {r->shape[0], r->shape[2], 1, r->shape[1]};
        bool last = r->transform == BIND_LINE_OHWI;
        Tensor w = tensor_make((void *)4096, dtype, last ? 4 : r->rank, last ? line : r->shape);
        if (r->target == BIND_VECTOR) *r->vector = w;
        else if (r->target == BIND_BIAS) r->weight->bias = w;
        else r->weight->w = w, r->weight->round = dtype;
    }
    Device dry = device_dry();
    Arena work, room;
    Calls calls = {0};
    expect_ok(arena_open(&work, &dry, "work", (size_t)1 << 40, &g->error), &g->error);
    expect_ok(arena_open(&room, &dry, "scratch", (size_t)1 << 40, &g->error), &g->error);
    Exec x = {.ops = &g->ops, .device = &dry, .calls = &calls, .work = &work, .scratch = &room, .error = &g->error,
              .dtype = dtype, .dry = true};
    Tensor mel = exec_new(&x, 501, 64, 2), sound = exec_new(&x, vocoder_ltx2_samples(&v, 501), 2);
    size_t before = work.used;
    expect_ok(vocoder_ltx2_run(&v, &x, mel, sound), &g->error);
    expect(work.used == before);
    size_t peak = work.peak;
    if (getenv("GOLDEN_VERBOSE"))
        printf("plan  5 s in %s: %.1f MiB, scratch of this table %.1f MiB\n", dtype_name(dtype), (double)peak / 0x1p20,
               (double)room.peak / 0x1p20);
    calls_free(&calls);
    arena_close(&work);
    arena_close(&room);
    bind_free(&b);
    return peak;
}

int main(void) {
    static Golden g; /* lint: allow-static (test program) */
    static const int STAGES[AUDIO_PARTS][2] = {{2, 12}, {2, 8}, {2, 15}};
    AudioParts p;
    omp_set_num_threads(1); /* tiny tensors: threads only wait for each other */
    expect_folder(folder, sizeof folder);
    published();
    refusals();
    expect_ok(golden_open(&g), &g.error);
    for (AudioPart part = AUDIO_VAE; part < AUDIO_PARTS; part++) {
        audio_checkpoint(&g, part, folder);
        expect_ok(audio_golden(&g, part), &g.error);
        for (int half = 0; half < 2; half++) {
            g.stages = 0;
            expect_ok(audio_open(&g, part, folder, half ? BF16 : F32, &p), &g.error);
            expect_ok(half ? audio_bf16(&g, &p) : audio_f32(&g, &p), &g.error);
            expect(g.stages == STAGES[part][half]);
            report(&g, AUDIO_NAMES[part], half ? "bf16" : "f32");
            bits(&g, &p, half ? BF16 : F32);
            if (!half) wrong_shapes(&g, &p);
            audio_close(&p);
        }
    }
    const size_t mib = (size_t)1 << 20;
    expect(planned(&g, "{\"_class_name\": \"LTX2Vocoder\"}", BF16) < 80 * mib);
    expect(planned(&g, "{\"_class_name\": \"LTX2VocoderWithBWE\"}", F32) < 160 * mib);
    golden_close(&g);
    expect_cleanup(folder);
    return expect_done();
}
