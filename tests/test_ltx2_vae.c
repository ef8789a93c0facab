/* test_ltx2_vae.c - LTX-2's video autoencoder and latent upsampler: names and sizes of the published checkpoints, decode of 1, 2
 * and 3 latent frames and encode of a clip and an image against diffusers in f32, every stage in bf16, 2.0's and 2.3's forms
 * and what else the class has, refusals, the memory plan.
 *
 * GOLDEN_VERBOSE=1 prints how near everything is. Run from the repository root. */
#include "expect.h"
#include "golden_ltx2_vae.h"

#include <omp.h>

static char folder[500]; /* lint: allow-static (test program) */

static void report(Golden *g, const char *what, int stages) {
    expect_at(g->stages == stages, "number of stages", what, g->stages);
    for (int i = 0; i < g->stages; i++) {
        bool good = g->stage[i].metric <= 1;
        expect_at(good, g->stage[i].name, what, 0);
        if (!good || getenv("GOLDEN_VERBOSE")) printf("%-5s %-22s %.3g\n", what, g->stage[i].name, g->stage[i].metric);
    }
    g->stages = 0;
}

/* --- published checkpoints --- */

static const char LTX23[] =
    "{\"block_out_channels\": [256, 512, 1024, 1024], \"layers_per_block\": [4, 6, 4, 2, 2], \"decoder_causal\": false,"
    " \"decoder_block_out_channels\": [256, 512, 512, 1024], \"decoder_layers_per_block\": [4, 6, 4, 2, 2],"
    " \"decoder_spatio_temporal_scaling\": [true, true, true, true], \"upsample_factor\": [2, 2, 1, 2],"
    " \"decoder_inject_noise\": [false, false, false, false, false], \"upsample_residual\": [false, false, false, false],"
    " \"upsample_type\": [\"spatiotemporal\", \"spatiotemporal\", \"temporal\", \"spatial\"],"
    " \"decoder_spatial_padding_mode\": \"zeros\", \"timestep_conditioning\": false, \"scaling_factor\": 1.0}";

static void write_config(const char *text) {
    char path[600];
    snprintf(path, sizeof path, "%s/config.json", folder);
    mutate_write(path, text, strlen(text));
}

/* Tensors and values of an encoder and of a decoder with its statistics. */
static void published(const char *config, int tensors, int64_t encoder, int64_t decoder) {
    Ltx2Parts p;
    Error e = {0};
    int64_t values[2] = {0};
    write_config(config);
    expect_ok(ltx2_names(folder, false, &p, &e), &e);
    for (int i = 0; i < p.weights.bind.count; i++) {
        const BindRow *r = &p.weights.bind.rows[i];
        values[!strncmp(r->name, "encoder.", 8)] += draw_count(r);
    }
    expect(p.weights.bind.count == tensors && values[1] == encoder && values[0] == decoder);
    expect(vae_ltx2_scale(&p.decoder.c) == 32 && vae_ltx2_frames_each(&p.decoder.c) == 8);
    expect(vae_ltx2_frames(&p.decoder.c, 16) == 121);
    bind_free(&p.weights.bind);
}

static void published_upsampler(const char *config, int tensors, int64_t size) {
    Ltx2Parts p;
    Error e = {0};
    int64_t values = 0;
    write_config(config);
    expect_ok(ltx2_names(folder, true, &p, &e), &e);
    for (int i = 0; i < p.weights.bind.count; i++) values += draw_count(&p.weights.bind.rows[i]);
    expect(p.weights.bind.count == tensors && values == size);
    bind_free(&p.weights.bind);
}

/* --- refusals --- */

static void refused(bool upsampler, const char *key, const char *value, const char *text) {
    VaeLtx2 v;
    VaeLtx2Upsampler u;
    Error e = {0};
    char json[300];
    snprintf(json, sizeof json, "{\"%s\": %s}", key, value);
    write_config(json);
    expect_status(upsampler ? vae_ltx2_upsample_open(folder, &u, &e) : vae_ltx2_open(folder, &v, &e), ERR_MODEL, text, &e);
}

static void refusals(void) {
    refused(false, "timestep_conditioning", "true", "timestep_conditioning is not supported");
    refused(false, "decoder_inject_noise", "[false, true, false, false]", "decoder_inject_noise");
    refused(false, "decoder_inject_noise", "true", "decoder_inject_noise");
    refused(false, "patch_size_t", "2", "patch_size_t 2");
    refused(false, "scaling_factor", "0.5", "scaling_factor 0.5");
    refused(false, "out_channels", "12", "out_channels 3");
    refused(false, "decoder_spatial_padding_mode", "\"circular\"", "circular");
    refused(false, "upsample_type", "[\"spatial\"]", "upsample_type: found 1, expected 3");
    refused(false, "upsample_type", "[\"spatial\", \"conv\", \"spatial\"]", "found conv");
    refused(false, "downsample_type", "[1, 2, 3, 4]", "found something else");
    refused(false, "downsample_type", "[\"spatial\",\"spatial\",\"spatial\",\"spatial\",\"spatial\"]", "found more");
    refused(false, "upsample_factor", "[2, 4, 2]", "a resnet that changes channels");
    refused(false, "upsample_factor", "[0, 2, 2]", "found 0");
    refused(false, "upsample_residual", "[true]", "found 1, expected 3");
    refused(false, "decoder_layers_per_block", "[5, 5]", "found 2 and 3, expected 4 and 3");
    refused(false, "layers_per_block", "[5, 5]", "found 2, expected one more than the 4");
    refused(false, "layers_per_block", "[4, 6, 6, 2, 20]", "found 20");
    refused(false, "spatio_temporal_scaling", "[true, true, false, true]", "keeps the size");
    refused(false, "decoder_spatio_temporal_scaling", "false", "keeps the size");
    refused(false, "block_out_channels", "[250, 512, 1024, 2048]", "no groups of channels");
    refused(true, "temporal_upsample", "true", "temporal_upsample");
    refused(true, "spatial_upsample", "false", "temporal_upsample");
    refused(true, "dims", "2", "dims 2");
    refused(true, "rational_spatial_scale", "1.5", "rational_spatial_scale 1.5");
    refused(true, "mid_channels", "100", "a multiple of 32");
    refused(true, "num_blocks_per_stage", "9", "up to 8");
}

static void wrong_shapes(Golden *g, const Ltx2Parts *p) {
    size_t mark = arena_mark(&g->work);
    g->x.dtype = F32;
    Tensor z = ltx2_latents(g, "z", 2, F32), good = ltx2_video_like(g, &p->decoder.c, 2), bad = tensor_slice(good, 0, 0, 8);
    expect_status(vae_ltx2_decode(&p->decoder, &g->x, z, bad), ERR_MODEL, "give 9 frames of 64 x 96", &g->error);
    expect_status(vae_ltx2_decode(&p->decoder, &g->x, tensor_slice(z, 3, 0, 3), good), ERR_MODEL, "Y, X, 8]", &g->error);
    expect_status(vae_ltx2_decode(&p->decoder, &g->x, tensor_slice(z, 1, 0, 1), good), ERR_MODEL, "takes 2 x 2", &g->error);
    expect_status(vae_ltx2_encode(&p->encoder, &g->x, bad, z), ERR_MODEL, "8 frames of 64 x 96 do not give 2", &g->error);
    expect_status(vae_ltx2_encode(&p->encoder, &g->x, tensor_slice(good, 1, 0, 63), z), ERR_MODEL, "do not give", &g->error);
    arena_reset(&g->work, mark);
}

/* --- latents and bytes --- */

static void statistics(Golden *g, const Ltx2Parts *p) {
    static const struct { const char *name; DType in, out; bool back; } CASE[] = {
        {"scaled", F32, BF16, false}, {"scaled", BF16, BF16, false}, {"normal", F32, F32, true},
        {"normal_bf16", F32, BF16, true}, {"normal_bf16", BF16, BF16, true}};
    g->x.dtype = BF16;
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        size_t mark = arena_mark(&g->work);
        Tensor z = ltx2_latents(g, "z", LTX2_LATENT, CASE[i].in), want = golden_find(g, CASE[i].name);
        Tensor y = exec_new_as(&g->x, CASE[i].out, LTX2_LATENT, LTX2_Y, LTX2_X, LTX2_C);
        expect_ok(CASE[i].back ? vae_ltx2_normalise(&p->decoder, &g->x, y, z) : vae_ltx2_denormalise(&p->decoder, &g->x, y, z),
                  &g->error);
        bool same = want.rank && tensor_numel(want) == tensor_numel(y) && !memcmp(y.data, want.data, tensor_bytes(y));
        expect_at(same, "latents", CASE[i].name, (int)i);
        arena_reset(&g->work, mark);
    }
}

/* Latents as the transformer may have them, [C,F,Y,X]; bytes as to_rgb8 makes them. */
static void bytes(Golden *g, const Ltx2Parts *p, DType dtype) {
    size_t mark = arena_mark(&g->work);
    g->x.dtype = dtype;
    Tensor z = ltx2_latents(g, "z", 2, F32), video = ltx2_video_like(g, &p->decoder.c, 2);
    Tensor across = exec_new_as(&g->x, F32, LTX2_C, 2, LTX2_Y, LTX2_X), view = across;
    for (int d = 0; d < 4; d++) view.shape[d] = across.shape[(d + 1) % 4], view.stride[d] = across.stride[(d + 1) % 4];
    Tensor rgb = exec_tensor(&g->x, U8, 4, video.shape), want = exec_tensor(&g->x, U8, 4, video.shape);
    expect_ok(op_copy(&g->x, &(Copy){.y = view, .x = z}), &g->error);
    expect_ok(vae_ltx2_decode(&p->decoder, &g->x, z, video), &g->error);
    expect_ok(vae_ltx2_decode(&p->decoder, &g->x, view, rgb), &g->error);
    expect_ok(op_to_rgb8(&g->x, &(ToRgb8){.y = want, .x = video}), &g->error);
    expect_at(!memcmp(rgb.data, want.data, tensor_bytes(rgb)), "the bytes", dtype_name(dtype), 0);
    arena_reset(&g->work, mark);
}

/* --- the same video in pieces --- */

static void pieces(Golden *g, const Ltx2Parts *p, DType dtype) {
    size_t mark = arena_mark(&g->work);
    g->x.dtype = dtype;
    for (int64_t n = 1; n <= LTX2_LATENT; n++) {
        Tensor z = ltx2_latents(g, "z", n, F32), one = ltx2_video_like(g, &p->decoder.c, n);
        Tensor other = ltx2_video_like(g, &p->decoder.c, n), rgb = exec_tensor(&g->x, U8, 4, one.shape);
        Tensor want = exec_tensor(&g->x, U8, 4, one.shape);
        uint64_t calls = calls_count(&g->calls, OP_roll);
        expect_ok(vae_ltx2_decode(&p->decoder, &g->x, z, one), &g->error);
        expect(calls_count(&g->calls, OP_roll) == calls);
        for (int64_t together = 1; together < 10; together++) {
            memset(other.data, 0x55, tensor_bytes(other));
            expect_ok(vae_ltx2_decode_pieces(&p->decoder, &g->x, z, together, other), &g->error);
            expect_at(!memcmp(one.data, other.data, tensor_bytes(one)), "the bits of the whole", dtype_name(dtype),
                      (int)(10 * n + together));
        }
        expect(n < LTX2_LATENT || calls_count(&g->calls, OP_roll) > calls);
        expect_ok(op_to_rgb8(&g->x, &(ToRgb8){.y = want, .x = one}), &g->error);
        expect_ok(vae_ltx2_decode_pieces(&p->decoder, &g->x, z, 2, rgb), &g->error);
        expect_at(!memcmp(rgb.data, want.data, tensor_bytes(rgb)), "the bytes of the whole", dtype_name(dtype), (int)n);
        arena_reset(&g->work, mark);
    }
}

/* --- the plan of the published size --- */

/* Bytes of the work arena for 121 frames of 768 x 512, latents and bytes of the video included. */
static size_t planned(Golden *g, const char *config, DType dtype, int64_t together, size_t *scratch) {
    VaeLtx2 v;
    Bind b = {.prefix = ""};
    write_config(config);
    expect_ok(vae_ltx2_open(folder, &v, &g->error), &g->error);
    vae_ltx2_bind(&v, &b);
    for (int i = 0; i < b.count; i++) { /* as a dry run sees them: shapes without numbers */
        BindRow *r = &b.rows[i];
        int64_t s[5] = {r->shape[0], r->shape[2], r->shape[3], r->shape[4], r->shape[1]};
        Tensor w = tensor_make((void *)4096, dtype, r->rank, r->rank > 2 ? s : r->shape);
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
    Tensor z = exec_new_as(&x, F32, 16, 16, 24, 128), video = exec_new_as(&x, U8, 121, 512, 768, 3);
    size_t before = work.used;
    expect_ok(vae_ltx2_decode_pieces(&v, &x, z, together, video), &g->error);
    expect(work.used == before);
    size_t peak = work.peak;
    *scratch = room.peak;
    if (getenv("GOLDEN_VERBOSE"))
        printf("plan  768x512x121 in %s, %d frames a piece: %.2f GiB, scratch of this table %.2f GiB\n", dtype_name(dtype),
               (int)together, (double)peak / 0x1p30, (double)room.peak / 0x1p30);
    calls_free(&calls);
    arena_close(&work);
    arena_close(&room);
    bind_free(&b);
    return peak;
}

static void plans(Golden *g) {
    const size_t gib = (size_t)1 << 30;
    size_t scratch;
    expect(planned(g, "{\"decoder_causal\": false}", BF16, 0, &scratch) < 11 * gib / 4);
    expect(planned(g, "{\"decoder_causal\": false}", BF16, 8, &scratch) < 5 * gib / 4);
    expect(planned(g, "{\"decoder_causal\": false}", F32, 0, &scratch) < 11 * gib / 2);
    expect(planned(g, LTX23, BF16, 0, &scratch) < 3 * gib);
    expect(planned(g, LTX23, BF16, 8, &scratch) < 3 * gib / 2);
}

int main(void) {
    static const struct { const char *form; int f32, bf16; } FORMS[] = {{"20", 29, 37}, {"23", 29, 38}, {"other", 17, 0}};
    static Golden g; /* lint: allow-static (test program) */
    Ltx2Parts p;
    omp_set_num_threads(1); /* tiny tensors: threads only wait for each other */
    expect_folder(folder, sizeof folder);
    published("{\"decoder_causal\": false}", 184, 694098881, 528380976);
    published(LTX23, 170, 318936897, 407169328);
    published_upsampler("{}", 73, 497867929);
    published_upsampler("{\"use_rational_resampler\": false}", 72, 497867904);
    refusals();
    expect_ok(golden_open(&g), &g.error);
    expect_ok(safetensors_open(GOLDEN_DIR "/ltx2_vae.safetensors", &g.file, &g.error), &g.error);
    for (int i = 0; i < 3; i++) {
        ltx2_checkpoint(folder, FORMS[i].form, false);
        expect_ok(ltx2_open(&g, folder, false, F32, &p), &g.error);
        expect_ok(ltx2_f32(&g, FORMS[i].form, &p), &g.error);
        report(&g, "f32", FORMS[i].f32);
        if (!i) wrong_shapes(&g, &p);
        bytes(&g, &p, F32);
        pieces(&g, &p, F32);
        ltx2_close(&p);
        expect_ok(ltx2_open(&g, folder, false, BF16, &p), &g.error);
        if (!i) statistics(&g, &p);
        bytes(&g, &p, BF16);
        pieces(&g, &p, BF16);
        if (FORMS[i].bf16) expect_ok(ltx2_bf16(&g, FORMS[i].form, &p), &g.error);
        report(&g, "bf16", FORMS[i].bf16);
        ltx2_close(&p);
    }
    for (int i = 0; i < 3; i++) {
        ltx2_checkpoint(folder, "upsampler", i == 1);
        expect_ok(ltx2_open(&g, folder, true, i == 2 ? BF16 : F32, &p), &g.error);
        expect_ok(ltx2_up(&g, i == 1 ? "plain" : "up", &p, i == 2 ? BF16 : F32), &g.error);
        report(&g, "up", i == 2 ? 5 : 1);
        ltx2_close(&p);
    }
    plans(&g);
    golden_close(&g);
    expect_cleanup(folder);
    return expect_done();
}
