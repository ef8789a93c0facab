/* test_sana_720p.c - SANA-Video with LTX-2's autoencoder, the checkpoint of 720p: whole clips of a drawn model against
 * diffusers, from text and from an image; faults in that model which the goldens must notice; how latents are scaled, bit for
 * bit; the decoder in pieces; which autoencoder a folder has; what a job resolves to.
 *
 *   test_sana_720p --write FOLDER    the drawn model and nothing else, for test_sana_720p.sh
 *
 * GOLDEN_VERBOSE=1 prints every stage. Easy to get wrong: run from the repository root. */
#include "golden_judge.h"
#include "expect_pipeline.h"
#include "golden_ltx2_vae.h"
#include "golden_runs.h"
#include "golden_sana_model.h"
#include "model.h"
#include "models/sana_vae.h"

/* golden_sana_model.h's folder with the transformer and the autoencoder of scripts/dump_golden_sana.py's RUN_720. */
static void write_model(const char *folder) {
    static const SanaKey KEYS[] = {{"in_channels", "8"}, {"out_channels", "8"}, {"caption_channels", "48"},
                                   {"patch_size", "[1, 1, 1]"}, {"sample_size", "22"}};
    char path[900];
    snprintf(path, sizeof path, "rm -rf '%s'", folder);
    if (system(path)) mutate_stop(folder, "cannot remove");
    sana_model(folder, false);
    snprintf(path, sizeof path, "%s/transformer", folder);
    sana_write_as(path, KEYS, sizeof KEYS / sizeof *KEYS);
    snprintf(path, sizeof path, "%s/vae", folder);
    ltx2_checkpoint(path, "20", false);
    mutate_json(folder, "model_index.json", "vae", "[\"diffusers\", \"AutoencoderKLLTX2Video\"]");
}

/* --- whole clips --- */

static const struct { const char *name; DType dtype; } RUNS[] = {
    {"sana_720p_t2v_f32", F32}, {"sana_720p_i2v_f32", F32}, {"sana_720p_t2v_bf16", BF16}};

static Status run(Golden *g, const char *model, const char *folder, int i) {
    char dump[700];
    snprintf(dump, sizeof dump, "%s/%s", folder, RUNS[i].name);
    golden_clear(g);
    Status s = golden_picture(g, model, RUNS[i].dtype, RUNS[i].name, dump);
    for (int k = 0; k < g->stages; k++) /* "grid" is no stage: judged here, a code value being allowed */
        if (!strcmp(g->stage[k].name, "grid")) g->stage[k].metric = sana_grid_error(g, dump);
    return s;
}

static void clips(const char *model, const char *folder) {
    Golden g = {0};
    for (int i = 0; i < (int)(sizeof RUNS / sizeof *RUNS); i++) {
        Status s = run(&g, model, folder, i);
        golden_judge(&g, s, RUNS[i].name);
    }
    safetensors_close(&g.file);
}

/* --- faults of the model: each must show in the pixels of one run or the other, far beyond what is allowed --- */

static void exchange(const char *vae, const char *a, const char *b) {
    MutateFile m;
    mutate_open(&m, vae, LTX2_FILE);
    mutate_swap(&m, a, b);
    mutate_save(&m);
}

static void scale(const char *vae, const char *name) {
    MutateFile m;
    mutate_open(&m, vae, LTX2_FILE);
    mutate_scale(&m, name, 1.1);
    mutate_save(&m);
}

static void faults(const char *model, const char *folder) {
    static const struct { const char *what, *key, *value; int run; double least; } FAULTS[] = {
        {"mean and std exchanged, into the decoder", NULL, "latents_std", 0, 10},
        {"mean and std exchanged, out of the encoder", NULL, "latents_std", 1, 10},
        {"std a tenth larger, into the decoder", NULL, NULL, 0, 4},
        {"std a tenth larger, out of the encoder", NULL, NULL, 1, 4},
        {"a causal decoder", "decoder_causal", "true", 0, 10},
        {"a decoder whose borders are zeros", "decoder_spatial_padding_mode", "\"zeros\"", 0, 10},
        {"an encoder that is not causal", "encoder_causal", "false", 1, 0},
        {"upsampling without its other path", "upsample_residual", "[false, false, false]", 0, 10},
    };
    char vae[700];
    snprintf(vae, sizeof vae, "%s/vae", model);
    Golden g = {0};
    for (size_t i = 0; i < sizeof FAULTS / sizeof *FAULTS; i++) {
        write_model(model);
        if (FAULTS[i].key) mutate_json(vae, "config.json", FAULTS[i].key, FAULTS[i].value);
        else if (FAULTS[i].value) exchange(vae, "latents_mean", FAULTS[i].value);
        else scale(vae, "latents_std");
        Status s = run(&g, model, folder, FAULTS[i].run);
        double grid = 0, latents = 0;
        for (int k = 0; k < g.stages; k++) {
            if (!strcmp(g.stage[k].name, "grid")) grid = g.stage[k].metric;
            if (!strcmp(g.stage[k].name, "latents")) latents = g.stage[k].metric;
        }
        if (getenv("GOLDEN_VERBOSE")) printf("%s: pixels %g, latents %g\n", FAULTS[i].what, grid, latents);
        expect_at(s == OK && (FAULTS[i].least > 0 ? grid >= FAULTS[i].least : grid <= 1), FAULTS[i].what, "pixels", (int)grid);
        if (FAULTS[i].run) /* what leaves the encoder is seen in the latents too; one frame is the same either way */
            expect_at(FAULTS[i].least > 0 ? latents >= 100 : latents <= 1, FAULTS[i].what, "latents", (int)latents);
    }
    safetensors_close(&g.file);
    write_model(model);
}

/* --- latents, bit for bit --- */

typedef struct Bound { /* the model's autoencoder in one dtype */
    SanaVae v;
    GoldenWeights w;
} Bound;

static Json *index_of(const char *model) {
    char path[700];
    Json *j = NULL;
    Error e = {0};
    snprintf(path, sizeof path, "%s/model_index.json", model);
    expect_ok(json_read(path, &j, &e), &e);
    return j;
}

static Status bind_all(Golden *g, const char *model, DType dtype, Bound *b) {
    char path[700];
    Json *index = index_of(model);
    *b = (Bound){.w.bind.prefix = ""};
    g->x.dtype = dtype;
    Status s = sana_vae_open(model, index, &b->v, &g->error);
    json_free(index);
    TRY(s);
    snprintf(path, sizeof path, "%s/vae", model);
    sana_vae_bind(&b->v, &b->w.bind);
    sana_vae_encode_bind(&b->v, &b->w.bind);
    TRY(weights_open(path, &b->w.files, &g->error));
    return golden_bind(g, &b->w, dtype, NULL);
}

/* false, counted and cleaned up, where it fails. */
static bool bound(Golden *g, const char *model, DType dtype, Bound *b) {
    Status s = bind_all(g, model, dtype, b);
    expect_at(s == OK, "the autoencoder", g->error.text, 0);
    if (s != OK) golden_unbind(&b->w);
    return s == OK;
}

static float rounded(double v, DType t) { return t == BF16 ? bf16_round((float)v) : (float)v; }

/* by LTX2Pipeline's formula where `plain`, which gives other bits; in: into the decoder. */
static float scaled(float z, float mean, float std, DType t, bool in, bool plain) {
    float d = rounded(1.0f / std, t);
    if (in) return rounded((double)(plain ? rounded((double)z * (double)std, t) : rounded(z / d, t)) + (double)mean, t);
    float moved = rounded((double)z - (double)mean, t);
    return plain ? rounded(moved / std, t) : rounded((double)moved * (double)d, t);
}

/* y against what x gives; how many bits LTX2Pipeline would have made others. */
static int differing(const Bound *b, Tensor y, Tensor x, DType t, bool in, int *other) {
    int64_t c = y.shape[y.rank - 1];
    int wrong = 0;
    const VaeLtx2 *stats = in ? &b->v.ltx : &b->v.measure;
    for (int64_t i = 0; i < tensor_numel(y); i++) {
        float z = rounded(golden_at(x.data, x.dtype, i), t), have = (float)golden_at(y.data, y.dtype, i);
        float mean = (float)golden_at(stats->mean.data, t, i % c), std = (float)golden_at(stats->std.data, t, i % c);
        wrong += have != scaled(z, mean, std, t, in, false);
        *other += have != scaled(z, mean, std, t, in, true);
    }
    return wrong;
}

typedef struct Seen {
    Tap base;
    const Bound *b;
    Tensor z;
    int count, wrong, other;
} Seen;

static Status see(Tap *base, Exec *x, const char *name, Tensor t) {
    Seen *s = (Seen *)base;
    if (strcmp(name, "vae.denormalised")) return OK;
    s->count++;
    s->wrong += differing(s->b, t, s->z, x->dtype, true, &s->other);
    return OK;
}

static void latents(Golden *g, const char *model, DType dtype) {
    Bound b;
    size_t mark = arena_mark(&g->work);
    if (!bound(g, model, dtype, &b)) return;
    expect(b.v.ltx2 && sana_vae_latent(&b.v) == 8 && sana_vae_scale(&b.v) == 32 && sana_vae_frames_each(&b.v) == 8 &&
           sana_vae_least(&b.v) == 2);
    Tensor z = ltx2_latents(g, "z", LTX2_LATENT, F32), video = ltx2_video_like(g, &b.v.ltx.c, LTX2_LATENT);
    Seen seen = {.base = {see}, .b = &b, .z = z};
    g->x.tap = &seen.base;
    expect_ok(sana_vae_decode(&b.v, &g->x, z, 0, video), &g->error);
    g->x.tap = NULL;
    expect(seen.count == 1 && seen.wrong == 0 && seen.other > 0);
    Tensor picture = tensor_slice(ltx2_video(g, &b.v.ltx.c), 0, 0, 1);
    Tensor own = exec_new(&g->x, 1, LTX2_Y, LTX2_X, LTX2_C), raw = exec_new(&g->x, 1, LTX2_Y, LTX2_X, LTX2_C);
    int other = 0;
    expect_ok(sana_vae_encode(&b.v, &g->x, picture, own), &g->error);
    expect_ok(vae_ltx2_encode(&b.v.ltx_encoder, &g->x, picture, raw), &g->error);
    expect(differing(&b, own, raw, dtype, false, &other) == 0 && other > 0);
    golden_unbind(&b.w);
    arena_reset(&g->work, mark);
}

/* Less memory at every turn till a piece is as short as the resnets behind allow, and the same bytes. */
static void pieces(Golden *g, const char *model, DType dtype) {
    enum { FRAMES = 17 };
    Bound b;
    size_t mark = arena_mark(&g->work), peak[SANA_VAE_THRIFTS + 1];
    if (!bound(g, model, dtype, &b)) return;
    int64_t scale = sana_vae_scale(&b.v), frames = 1 + (FRAMES - 1) * sana_vae_frames_each(&b.v);
    Tensor z = exec_new_as(&g->x, F32, FRAMES, LTX2_Y, LTX2_X, LTX2_C), rgb[2];
    wan_normal("pieces", tensor_numel(z), z.data);
    for (int i = 0; i < 2; i++) rgb[i] = exec_new_as(&g->x, U8, frames, scale * LTX2_Y, scale * LTX2_X, 3);
    for (int thrift = 0; thrift <= SANA_VAE_THRIFTS; thrift++) {
        memset(rgb[1].data, 0x55, tensor_bytes(rgb[1]));
        g->work.peak = g->work.used;
        expect_ok(sana_vae_decode(&b.v, &g->x, z, thrift, rgb[thrift > 0]), &g->error);
        peak[thrift] = g->work.peak;
        expect_at(!thrift || !memcmp(rgb[0].data, rgb[1].data, tensor_bytes(rgb[0])), "the bytes of the whole", "", thrift);
        expect_at(!thrift || peak[thrift] < peak[thrift - 1], "less memory", "", thrift);
        if (getenv("GOLDEN_VERBOSE")) printf("thrift %d: %zu bytes\n", thrift, peak[thrift]);
    }
    golden_unbind(&b.w);
    arena_reset(&g->work, mark);
}

/* --- which autoencoder, and what is refused --- */

static void recognised(const char *model) {
    static const struct { const char *index, *key, *value, *text; } CASES[] = { /* text NULL: opens */
        {NULL, "_class_name", "null", NULL},
        {"null", "latent_channels", "8", NULL},
        {"[\"diffusers\", \"AutoencoderDC\"]", "_class_name", "\"AutoencoderDC\"",
         "vae: found class AutoencoderDC, expected AutoencoderKLWan or AutoencoderKLLTX2Video"},
        {"null", "_class_name", "\"AutoencoderDC\"",
         "_class_name: found AutoencoderDC, expected AutoencoderKLWan or AutoencoderKLLTX2Video"},
        {"[\"diffusers\", \"AutoencoderKLWan\"]", "latent_channels", "8",
         "_class_name: found AutoencoderKLLTX2Video, but model_index.json says AutoencoderKLWan"},
        {NULL, "spatial_compression_ratio", "64", "vae spatial_compression_ratio / its decoder's: found 64 and 32"},
        {NULL, "temporal_compression_ratio", "4", "vae temporal_compression_ratio / its decoder's: found 4 and 8"},
        {NULL, "spatial_compression_ratio", "null", NULL},
        {NULL, "latent_channels", "16", "transformer in_channels / vae latent channels: found 8 and 16"},
        {NULL, "timestep_conditioning", "true", "timestep_conditioning is not supported"},
    };
    char vae[700];
    snprintf(vae, sizeof vae, "%s/vae", model);
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        Pipeline *p = NULL;
        Error e = {0};
        write_model(model);
        if (CASES[i].index) mutate_json(model, "model_index.json", "vae", CASES[i].index);
        mutate_json(vae, "config.json", CASES[i].key, CASES[i].value);
        Status s = pipeline_open(&(PipelineOptions){.model = model, .device = "cpu"}, &p, &e);
        bool good = CASES[i].text ? s == ERR_MODEL && strstr(e.text, CASES[i].text) : s == OK;
        expect_at(good, CASES[i].text ? CASES[i].text : "opens", e.text, (int)i);
        pipeline_close(p);
    }
    write_model(model);
}

/* --- jobs --- */

static DType decodes_in(const char *model, DType dtype, DType vae) {
    Pipeline *p = NULL;
    Error e = {0};
    expect_ok(pipeline_open(&(PipelineOptions){.model = model, .device = "cpu", .dtype = dtype, .vae_dtype = vae}, &p, &e), &e);
    DType t = p ? pipeline_vae_dtype(p) : DTYPE_NONE;
    for (int i = 0; p && i < pipeline_facts(p).model->parts; i++) {
        const Part *part = &pipeline_facts(p).model->part[i];
        if (part->encodes_image) expect(part->dtype == t);
    }
    pipeline_close(p);
    return t;
}

static void jobs(const char *model) {
    Job job;
    Pipeline *p = expect_defaults(model, &job);
    Error e = {0};
    if (!p) return;
    expect(job.width == 1280 && job.height == 704 && job.frames == 81 && job.fps.num == 16 && job.fps.den == 1);
    expect(job.steps == 50 && job.cfg && job.cfg_scale == 6 && job.made_width == 1280 && job.made_height == 704);
    const struct { int width, height, made_width, made_height; } bins[] = { /* as classify_height_width_bin has them */
        {832, 480, 1280, 704}, {0, 0, 1280, 704}, {512, 512, 960, 960}, {480, 832, 704, 1280}, {640, 448, 1152, 800},
        {400, 800, 672, 1344}, {1600, 400, 1344, 672}, {496, 800, 736, 1248}, {560, 640, 896, 1024}};
    for (size_t i = 0; i < sizeof bins / sizeof *bins; i++) {
        job = (Job){.prompt = "a", .bin = true, .width = bins[i].width, .height = bins[i].height};
        expect_at(pipeline_resolve(p, &job, &e) == OK && job.made_width == bins[i].made_width &&
                      job.made_height == bins[i].made_height && (!bins[i].width || job.width == bins[i].width),
                  "bin", e.text, (int)i);
    }
    const struct { Job job; const char *text; } refused[] = {
        {{.prompt = "a", .width = 1264}, "--width 1264: expected a multiple of 32, at least 64; the nearest are 1248 and 1280"},
        {{.prompt = "a", .height = 32}, "--height 32: expected a multiple of 32, at least 64; the nearest are 64 and 96"},
        {{.prompt = "a", .width = 32800}, "--width 32800: the model has positions for 32768 pixels"},
        {{.prompt = "a", .frames = 85}, "--frames 85: expected 1 and a multiple of 8; the nearest are 81 and 89"},
        {{.prompt = "a", .frames = 8193}, "--frames 8193: at most 8185"},
    };
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        job = refused[i].job;
        expect_status(pipeline_resolve(p, &job, &e), ERR_USAGE, refused[i].text, &e);
    }
    pipeline_close(p);
    expect(decodes_in(model, DTYPE_NONE, DTYPE_NONE) == BF16 && decodes_in(model, F32, DTYPE_NONE) == F32);
    expect(decodes_in(model, BF16, F32) == F32 && decodes_in(model, F32, BF16) == BF16);
}

int main(int argc, char **argv) {
    char folder[500], model[600];
    static Golden g; /* lint: allow-static (test program) */
    if (argc == 3 && !strcmp(argv[1], "--write")) {
        write_model(argv[2]);
        return 0;
    }
    expect_folder(folder, sizeof folder);
    snprintf(model, sizeof model, "%s/model", folder);
    write_model(model);
    if (golden_open(&g) != OK) return printf("%s\n", g.error.text), 1;
    for (DType t = F32; t; t = t == F32 ? BF16 : DTYPE_NONE) {
        latents(&g, model, t);
        pieces(&g, model, t);
    }
    golden_close(&g);
    clips(model, folder);
    faults(model, folder);
    recognised(model);
    jobs(model);
    expect_cleanup(folder);
    return expect_done();
}
