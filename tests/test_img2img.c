/* test_img2img.c - runs that begin from an image: reading, turning and resizing pictures as Pillow does, byte for byte
 * (tests/golden/images.txt); which steps run; the encoder stage by stage in bf16; whole runs of the tiny FLUX.1 and Z-Image
 * checkpoints in f32 against diffusers at three strengths; the encoder's place in the memory plan; refusals; metadata.
 *
 * GOLDEN_VERBOSE=1 prints how near everything is. Easy to get wrong: run from the repository root. */
#include "device_test.h"
#include "expect_pipeline.h"
#include "golden_img2img.h"
#include "golden_runs.h"
#include "golden_zimage.h"
#include "media/exif.h"
#include "media/image.h"
#include "media/png.h"
#include "media/resize.h"
#include "meta.h"
#include "mutate.h"
#include "plan.h"
#include "stages.h"

#include <unistd.h>

static char folder[500]; /* lint: allow-static (test program) */

static const char *in_folder(const char *name) {
    static char path[700]; /* lint: allow-static (test program) */
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

/* --- pictures --- */

static void sum_is(const uint8_t *rgb, int width, int height, const char *want, const char *what) {
    char sum[SHA256_TEXT];
    sha256_memory(rgb, (size_t)width * (size_t)height * 3, sum);
    expect_at(!strcmp(sum, want), what, "SHA-256 of the picture", 0);
}

static void turned(const char *name, int orientation, int width, int height, const char *want) {
    char path[600], *bytes, what[80];
    size_t size;
    Error e = {0};
    snprintf(path, sizeof path, GOLDEN_DIR "/%s", name);
    snprintf(what, sizeof what, "orientation %d", orientation);
    if (file_read(path, &bytes, &size, &e) != OK) mutate_stop(path, e.text);
    const char tag[] = {1, 0x12, 0, 3, 0, 0, 0, 1, 0, 6}; /* Orientation, SHORT, one, 6 */
    char *at = memmem(bytes, size, tag, sizeof tag);
    expect_at(at != NULL, what, "the tag is there", 0);
    if (at) at[9] = (char)orientation;
    mutate_write(in_folder("turned.jpg"), bytes, size);
    Image image, probed;
    char sum[SHA256_TEXT];
    expect_ok(image_read(in_folder("turned.jpg"), &image, &e), &e);
    expect(image.orientation == orientation && image.channels == 3 && !image.deep);
    expect_ok(image_probe(in_folder("turned.jpg"), &probed, sum, &e), &e);
    expect(!probed.rgb && probed.width == image.width && probed.height == image.height && probed.orientation == orientation);
    expect_ok(image_upright(&image, &e), &e);
    expect_ok(image_upright(&probed, &e), &e);
    expect(image.width == width && image.height == height && image.orientation == 1);
    expect(probed.width == width && probed.height == height);
    sum_is(image.rgb, image.width, image.height, want, what);
    image_free(&image);
    free(bytes);
}

static void resized(int width, int height, int to_width, int to_height, const char *want) {
    size_t n = (size_t)width * (size_t)height * 3;
    uint8_t *from = malloc(n), *to = NULL;
    char what[80];
    Error e = {0};
    snprintf(what, sizeof what, "%dx%d to %dx%d", width, height, to_width, to_height);
    if (!from) abort();
    for (size_t i = 0; i < n; i++) from[i] = (uint8_t)((uint32_t)i * (uint32_t)i * 2654435761u >> 13);
    expect_ok(resize_lanczos(from, width, height, to_width, to_height, &to, &e), &e);
    if (to) sum_is(to, to_width, to_height, want, what);
    free(from);
    free(to);
}

/* Against torch.nn.functional.interpolate(mode="bilinear", align_corners=False) on sin(0.7 i), then the crop. */
static void covers(void) {
    static const struct { int width, height; float at[5]; double sum; } WANT[] = {
        {10, 4, {0.483284f, -0.1809712f, 0.2571168f, 0.5570232f, -0.387645f}, -1.10719787},
        {4, 4, {0.2134472f, -0.4099734f, -0.4033693f, 0.02979826f, 0.2843989f}, 1.29096713},
        {3, 9, {-0.760527f, 0.5158328f, -0.01289951f, -0.4996442f, 0.8121773f}, 3.81038479}};
    float from[5 * 7 * 3], to[10 * 9 * 3];
    for (int i = 0; i < 5 * 7 * 3; i++) from[i] = sinf((float)i * 0.7f);
    for (size_t k = 0; k < sizeof WANT / sizeof *WANT; k++) {
        int n = WANT[k].width * WANT[k].height * 3;
        const int place[5] = {0, 5, 11, n - 1, n - 7};
        double sum = 0;
        resize_cover(from, 7, 5, WANT[k].width, WANT[k].height, to);
        for (int i = 0; i < n; i++) sum += (double)to[i];
        for (int i = 0; i < 5; i++) expect_at(fabsf(to[place[i]] - WANT[k].at[i]) < 1e-6f, "cover", "", (int)k);
        expect_at(fabs(sum - WANT[k].sum) < 1e-5, "cover", "sum", (int)k);
    }
}

static void steps_run(Pipeline *p, int steps, double strength, int first) {
    Error e = {0};
    Job job = {.prompt = "a", .steps = steps, .image = GOLDEN_DIR "/photo.jpg", .strength = strength, .strength_given = true};
    char what[80];
    snprintf(what, sizeof what, "%d steps at strength %g", steps, strength);
    Status s = pipeline_resolve(p, &job, &e);
    expect_at(first < steps ? s == OK && job.first_step == first : s == ERR_USAGE && strstr(e.text, "leaves none to run"), what,
              e.text, first);
}

static void recorded(void) {
    FILE *f = fopen(GOLDEN_DIR "/images.txt", "r");
    char line[300], name[80], sum[80];
    int a, b, c, d, count = 0;
    double strength;
    Error e = {0};
    Pipeline *p = expect_pipeline(GOLDEN_MODEL);
    while (f && p && fgets(line, sizeof line, f)) {
        count++;
        if (sscanf(line, "jpeg %79s %d %d %d %79s", name, &a, &b, &c, sum) == 5) {
            turned(name, a, b, c, sum);
        } else if (sscanf(line, "resize %d %d %d %d %79s", &a, &b, &c, &d, sum) == 5) {
            resized(a, b, c, d, sum);
        } else if (sscanf(line, "steps %d %lf %d", &a, &strength, &b) == 3) {
            steps_run(p, a, strength, b);
        } else if (sscanf(line, "cmyk %79s", sum) == 1) {
            Image image;
            expect_ok(image_read(GOLDEN_DIR "/cmyk.jpg", &image, &e), &e);
            expect(image.channels == 4 && image.orientation == 1);
            sum_is(image.rgb, image.width, image.height, sum, "CMYK");
            image_free(&image);
        } else {
            expect_at(0, line, "images.txt: unknown line", count);
        }
    }
    expect(count == 39);
    if (f) fclose(f);
    pipeline_close(p);
}

static uint32_t crc(const unsigned char *p, size_t n) {
    uint32_t c = 0xffffffffu;
    for (size_t i = 0; i < n; i++) {
        c ^= p[i];
        for (int k = 0; k < 8; k++) c = c & 1 ? 0xedb88320u ^ c >> 1 : c >> 1;
    }
    return ~c;
}

/* Grey of 16 bits: stored as it is, Pillow's conversion to RGB cuts it off at 255; everybody else takes the upper byte. */
static void deep_grey(void) {
    static const uint16_t GREY[] = {0, 200, 255, 256, 40000};
    static const uint8_t CUT[] = {0, 200, 255, 255, 255}, UPPER[] = {0, 0, 0, 1, 156};
    enum { COUNT = 5, ROW = 1 + 2 * COUNT, DATA = 2 + 5 + ROW + 4, IDAT = 33, END = IDAT + 12 + DATA, SIZE = END + 12 };
    unsigned char png[SIZE] = {0x89, 'P', 'N', 'G', 13, 10, 26, 10, 0, 0, 0, 13, 'I', 'H', 'D', 'R', 0, 0, 0, COUNT, 0, 0, 0, 1,
                               16};
    unsigned char *z = png + IDAT + 8, *row = z + 7;
    const struct { int at, size; const char *name; } chunks[] = {{8, 13, "IHDR"}, {IDAT, DATA, "IDAT"}, {END, 0, "IEND"}};
    uint32_t a = 1, b = 0;
    for (int i = 0; i < COUNT; i++) row[1 + 2 * i] = (unsigned char)(GREY[i] >> 8), row[2 + 2 * i] = (unsigned char)GREY[i];
    for (int i = 0; i < ROW; i++) a = (a + row[i]) % 65521, b = (b + a) % 65521;
    memcpy(z, (unsigned char[]){0x78, 1, 1, ROW, 0, 255 - ROW, 255}, 7); /* one block, stored */
    for (int i = 0; i < 4; i++) row[ROW + i] = (unsigned char)((b << 16 | a) >> (24 - 8 * i));
    for (int c = 0; c < 3; c++) {
        unsigned char *p = png + chunks[c].at;
        p[3] = (unsigned char)chunks[c].size;
        memcpy(p + 4, chunks[c].name, 4);
        uint32_t sum = crc(p + 4, 4 + (size_t)chunks[c].size);
        for (int i = 0; i < 4; i++) p[8 + chunks[c].size + i] = (unsigned char)(sum >> (24 - 8 * i));
    }
    mutate_write(in_folder("deep.png"), png, sizeof png);
    for (int pillow = 0; pillow < 2; pillow++) {
        Image image;
        Error e = {0};
        expect_ok((pillow ? image_read_pillow : image_read)(in_folder("deep.png"), &image, &e), &e);
        expect(image.width == COUNT && image.deep && image.channels == 1);
        for (int i = 0; image.rgb && i < 3 * COUNT; i++)
            expect_at(image.rgb[i] == (pillow ? CUT : UPPER)[i / 3], "grey of 16 bits", pillow ? "cut off" : "upper byte", i / 3);
        image_free(&image);
    }
}

/* A PNG's orientation stands in a chunk of its own. */
static void png_turned(void) {
    static const unsigned char TIFF[] = {'e', 'X', 'I', 'f', 'M', 'M', 0, 42, 0, 0, 0, 8, 0, 1,
                                         1, 0x12, 0, 3, 0, 0, 0, 1, 0, 6, 0, 0, 0, 0, 0, 0};
    char *bytes;
    size_t size;
    Error e = {0};
    Image stored, upright;
    if (file_read(GOLDEN_DIR "/drawing.png", &bytes, &size, &e) != OK) mutate_stop("drawing.png", e.text);
    unsigned char *all = malloc(size + 8 + sizeof TIFF);
    if (!all) abort();
    memcpy(all, bytes, 33); /* signature and IHDR */
    unsigned char *p = all + 33;
    size_t n = sizeof TIFF - 4;
    uint32_t sum = crc(TIFF, sizeof TIFF);
    for (int i = 0; i < 4; i++) {
        p[i] = (unsigned char)(n >> (24 - 8 * i));
        p[4 + sizeof TIFF + (size_t)i] = (unsigned char)(sum >> (24 - 8 * i));
    }
    memcpy(p + 4, TIFF, sizeof TIFF);
    memcpy(p + 8 + sizeof TIFF, bytes + 33, size - 33);
    mutate_write(in_folder("turned.png"), all, size + 8 + sizeof TIFF);
    expect_ok(image_read(GOLDEN_DIR "/drawing.png", &stored, &e), &e);
    expect(stored.orientation == 1 && stored.channels == 4);
    expect_ok(image_read(in_folder("turned.png"), &upright, &e), &e);
    expect(upright.orientation == 6);
    expect_ok(image_upright(&upright, &e), &e);
    bool same = upright.width == stored.height && upright.height == stored.width;
    for (int y = 0; same && y < upright.height; y++) /* 6: a quarter turn clockwise */
        for (int x = 0; same && x < upright.width; x++)
            same = !memcmp(upright.rgb + 3 * (y * upright.width + x),
                           stored.rgb + 3 * ((stored.height - 1 - x) * stored.width + y), 3);
    expect(same);
    image_free(&stored);
    image_free(&upright);
    free(all);
    free(bytes);
}

/* --- whole runs --- */

enum { SEEN = 40 };
typedef struct Seen {
    struct { char name[32]; DType dtype; int64_t n; char *values; } stage[SEEN];
    int stages;
} Seen;

static Status see(void *user, const char *name, DType dtype, int rank, const int64_t *shape, const void *values, Error *e) {
    Seen *s = user;
    Tensor t = tensor_make(NULL, dtype, rank, shape);
    if (s->stages == SEEN) return fail(e, ERR_MODEL, "too many stages");
    snprintf(s->stage[s->stages].name, sizeof s->stage->name, "%s", name);
    s->stage[s->stages].dtype = dtype, s->stage[s->stages].n = tensor_numel(t);
    s->stage[s->stages].values = malloc(tensor_bytes(t));
    if (!s->stage[s->stages].values) abort();
    memcpy(s->stage[s->stages++].values, values, tensor_bytes(t));
    return OK;
}

static int seen_at(const Seen *s, const char *name) {
    for (int i = 0; i < s->stages; i++)
        if (!strcmp(s->stage[i].name, name)) return i;
    return -1;
}

static void seen_free(Seen *s) {
    for (int i = 0; i < s->stages; i++) free(s->stage[i].values);
    s->stages = 0;
}

/* Error over allowance: max |a - b| <= 1e-4 max |b|; pixels 60 dB. INFINITY when the stage is missing. */
static double near(const Golden *g, const Seen *s, const char *stage, const char *golden) {
    Tensor want = golden_find(g, golden);
    int at = seen_at(s, stage);
    if (at < 0 || !want.rank || tensor_numel(want) != s->stage[at].n || want.dtype != s->stage[at].dtype) return INFINITY;
    double most = 0, top = 0, square = 0;
    for (int64_t i = 0; i < s->stage[at].n; i++) {
        double b = golden_at(want.data, want.dtype, i), d = fabs(golden_at(s->stage[at].values, want.dtype, i) - b);
        most = d <= most ? most : d, top = fmax(top, fabs(b)), square += d * d;
    }
    if (want.dtype == U8) return sqrt(square / (double)s->stage[at].n) / (255 * pow(10, -60 / 20.0));
    return most / (GOLDEN_F32 * top);
}

static void is_near(const Golden *g, const Seen *s, const char *stage, const char *golden, const char *model) {
    double metric = near(g, s, stage, golden);
    expect_at(metric <= 1, golden, model, 0);
    if (!(metric <= 1) || getenv("GOLDEN_VERBOSE")) printf("%-12s %-16s %.3f of the allowance\n", model, golden, metric);
}

static Job job_of(const Golden *g, char *image, size_t size, const Seen *s, StageWatch *watch) {
    snprintf(image, size, GOLDEN_DIR "/%s", golden_words(g, "image"));
    *watch = (StageWatch){see, (void *)(uintptr_t)s};
    Job job = {.prompt = golden_words(g, "prompt"), .image = image, .watch = watch, .strength_given = true,
               .width = (int)golden_number(g, "width"), .height = (int)golden_number(g, "height"),
               .steps = (int)golden_number(g, "steps"), .seed = (uint64_t)golden_number(g, "seed"),
               .guidance = golden_number(g, "guidance"), .cfg_scale = golden_number(g, "cfg"),
               .max_sequence_length = (int)golden_number(g, "max_sequence_length")};
    job.guidance_given = job.guidance > 0, job.cfg_scale_given = job.cfg_scale > 0;
    return job;
}

static Status render(Pipeline *p, Job *job, Media *media, Error *e) {
    *e = (Error){0};
    TRY(pipeline_resolve(p, job, e));
    return pipeline_render(p, job, NULL, media, e);
}

/* The two draws exchanged must be noticed: the generator's order is the pipeline's. */
static void other_order(Pipeline *p, Job job, const Golden *g, const Seen *first, const char *last, const char *model) {
    static const char *const NAMES[2] = {"image_noise", "noise"};
    char path[2][700];
    Inject inject[2];
    Seen s = {0};
    Media media = {0};
    Error e = {0};
    for (int i = 0; i < 2; i++) {
        int from = seen_at(first, NAMES[1 - i]);
        snprintf(path[i], sizeof path[i], "%s/%s.safetensors", folder, NAMES[i]);
        expect_ok(stages_write_file(path[i], NAMES[i], F32, 1, &first->stage[from].n, first->stage[from].values, true, &e), &e);
        inject[i] = (Inject){NAMES[i], path[i]};
    }
    StageWatch watch = {see, &s};
    job.watch = &watch, job.inject = inject, job.inject_count = 2;
    Status status = render(p, &job, &media, &e);
    (void)status;
    expect_at(near(g, &s, "image_latents", "image_latents") > 10, "draws exchanged: image_latents", model, 0);
    expect_at(near(g, &s, "latents", last) > 10, "draws exchanged: latents", model, 0);
    media_free(&media);
    seen_free(&s);
}

static void runs(const char *golden, const char *model) {
    char path[600], image[600], name[40], key[40];
    Golden g = {0};
    Error e = {0};
    Pipeline *p = NULL;
    snprintf(path, sizeof path, GOLDEN_DIR "/%s.safetensors", golden);
    expect_ok(safetensors_open(path, &g.file, &e), &e);
    expect_ok(pipeline_open(&(PipelineOptions){.model = model, .device = "cpu", .dtype = F32}, &p, &e), &e);
    for (int k = 0; p && k < 3; k++) {
        static const char *const STRENGTHS[] = {"0.3", "0.6", "1.0"};
        Seen s = {0};
        Media media = {0};
        StageWatch watch;
        Job job = job_of(&g, image, sizeof image, &s, &watch);
        job.strength = strtod(STRENGTHS[k], NULL);
        expect_ok(render(p, &job, &media, &e), &e);
        int at = seen_at(&s, "image"), velocities = 0;
        expect(at >= 0);
        if (at >= 0) sum_is((uint8_t *)s.stage[at].values, (int)s.stage[at].n / 3, 1, golden_words(&g, "image_sha256"), golden);
        for (int i = 0; i < s.stages; i++) velocities += !strncmp(s.stage[i].name, "velocity_", 9);
        snprintf(key, sizeof key, "velocities_%s", STRENGTHS[k]);
        expect(velocities == (int)golden_number(&g, key) && velocities == job.steps - job.first_step);
        snprintf(key, sizeof key, "velocity_%03d", job.first_step);
        expect(seen_at(&s, key) >= 0);
        is_near(&g, &s, "image_latents", "image_latents", golden);
        snprintf(name, sizeof name, "latents_%s", STRENGTHS[k]);
        is_near(&g, &s, "latents", name, golden);
        if (k == 1) other_order(p, job, &g, &s, name, golden);
        snprintf(name, sizeof name, "pixels_%s", STRENGTHS[k]);
        if (golden_find(&g, name).rank) is_near(&g, &s, "pixels", name, golden);
        media_free(&media);
        seen_free(&s);
    }
    pipeline_close(p);
    safetensors_close(&g.file);
}

/* --- the encoder alone --- */

static void encoder(void) {
    Golden g;
    if (golden_open(&g) != OK) mutate_stop("golden", g.error.text);
    expect_ok(golden_encoder(&g, GOLDEN_MODEL), &g.error);
    expect(g.stages == 9);
    for (int k = 0; k < g.stages; k++) {
        expect_at(g.stage[k].metric <= 1, g.stage[k].name, "img2img_bf16", 0);
        if (getenv("GOLDEN_VERBOSE")) printf("img2img_bf16 %-16s %.3f of the allowance\n", g.stage[k].name, g.stage[k].metric);
    }
    golden_close(&g);
}

/* quant_conv, which neither published VAE has: moments = w m + b, here recomputed in double. */
static void quantised(void) {
    enum { N = 12 };
    float w[N * N], bias[N];
    Golden g;
    EncoderRig r = {0};
    if (golden_open(&g) != OK) mutate_stop("golden", g.error.text);
    expect_ok(safetensors_open(GOLDEN_DIR "/img2img_bf16.safetensors", &g.file, &g.error), &g.error);
    g.x.dtype = F32;
    expect_ok(encoder_open(&g, GOLDEN_MODEL, F32, &r), &g.error);
    Tensor picture = encoder_picture(&g);
    int64_t h = picture.shape[0] / 8, wide = picture.shape[1] / 8;
    Tensor plain = exec_new(&g.x, h, wide, N), mixed = exec_new(&g.x, h, wide, N);
    expect_ok(vae_kl_encode(&r.encoder, &g.x, picture, plain), &g.error);
    for (int i = 0; i < N * N; i++) w[i] = (float)((i * 37 % 23) - 11) / 23;
    for (int i = 0; i < N; i++) bias[i] = (float)i / 7 - 1;
    r.encoder.quant = (Weight){.w = tensor_of(w, F32, N, 1, 1, N), .bias = tensor_of(bias, F32, N), .round = F32,
                               .name = "quant"};
    r.encoder.c.quant = true;
    expect_ok(vae_kl_encode(&r.encoder, &g.x, picture, mixed), &g.error);
    double worst = 0;
    const float *from = plain.data, *to = mixed.data;
    for (int64_t i = 0; i < h * wide; i++)
        for (int o = 0; o < N; o++) {
            double sum = 0, size = 0; /* error of a sum of 12 products in f32: below 13 roundings of its absolute terms */
            for (int k = 0; k < N; k++) sum += (double)w[o * N + k] * (double)from[i * N + k];
            for (int k = 0; k < N; k++) size += fabs((double)w[o * N + k] * (double)from[i * N + k]);
            double room = (size + fabs((double)bias[o])) * 14 * 0x1p-24;
            worst = fmax(worst, fabs((double)to[i * N + o] - sum - (double)bias[o]) / room);
        }
    expect(worst <= 1);
    encoder_close(&r);
    golden_close(&g);
}

/* --- memory --- */

static const PlanPart *planned(const Plan *p, const char *name) {
    for (int i = 0; i < p->parts; i++)
        if (!strcmp(p->part[i].name, name) && !p->part[i].unused) return &p->part[i];
    return NULL;
}

static Job small_job(bool image) {
    return (Job){.prompt = "a cat", .width = 48, .height = 64, .steps = 2, .seed = 3, .max_sequence_length = 24,
                 .image = image ? GOLDEN_DIR "/photo.jpg" : NULL};
}

static Plan plan_of(Pipeline *p, bool image) {
    Plan plan = {0};
    Error e = {0};
    Job job = small_job(image);
    expect_ok(pipeline_resolve(p, &job, &e), &e);
    expect_ok(pipeline_plan(p, &job, &plan, &e), &e);
    return plan;
}

/* Jobs without an image neither plan nor upload the encoder, before and after one that has it; the image job's pictures are the
 * cpu's in bits, whole or in turns. */
static void memory(DType dtype) {
    Error e = {0};
    Pipeline *cpu = NULL;
    Media want = {0}, got = {0};
    expect_ok(pipeline_open(&(PipelineOptions){.model = GOLDEN_MODEL, .device = "cpu", .dtype = dtype}, &cpu, &e), &e);
    Job job = small_job(true);
    expect_ok(render(cpu, &job, &want, &e), &e);
    pipeline_close(cpu);
    size_t limits[2] = {0, 0}, encoder_bytes = 0;
    for (int turn = 0; turn < 2; turn++) { /* all the room there is; as little as the plan can do with */
        TestDevice memory = {0};
        Device device = test_device(&memory, SIZE_MAX);
        Pipeline *p = NULL;
        PipelineOptions o = {.model = GOLDEN_MODEL, .device = "cpu", .dtype = dtype, .vram = limits[turn], .on = &device};
        expect_ok(pipeline_open(&o, &p, &e), &e);
        if (!p) exit(1);
        Plan before = plan_of(p, false);
        expect(!planned(&before, "vae_encoder") && planned(&before, "vae") && before.parts == 4);
        job = small_job(false);
        expect_ok(render(p, &job, &got, &e), &e);
        media_free(&got);
        size_t moved = memory.bytes;
        Plan with = plan_of(p, true);
        const PlanPart *part = planned(&with, "vae_encoder");
        expect(part && part->whole > 0 && with.parts == 5 && with.fits);
        if (part) encoder_bytes = part->whole;
        if (!turn) expect(with.peak >= before.peak + encoder_bytes && memory.peak == before.peak);
        Plan after = plan_of(p, false);
        expect(!planned(&after, "vae_encoder") && after.peak == before.peak && after.smallest == before.smallest);
        expect(memory.bytes == moved);
        job = small_job(true);
        expect_ok(render(p, &job, &got, &e), &e);
        expect(got.rgb && want.rgb && !memcmp(got.rgb, want.rgb, (size_t)(48 * 64 * 3)));
        if (!turn) expect(memory.peak <= with.peak && memory.bytes > moved);
        if (turn) expect(memory.peak <= limits[1] && with.part[2].mode == PLAN_STREAM);
        limits[1] = with.smallest;
        media_free(&got);
        pipeline_close(p);
        expect(memory.committed == 0 && memory.faults == 0);
    }
    media_free(&want);
}

/* A folder whose VAE has no encoder draws from text, and refuses an image by the tensors' names. */
static void without_encoder(void) {
    Error e = {0};
    Media media = {0};
    char model[600];
    snprintf(model, sizeof model, "%s/half", folder);
    mutate_copy_folder(GOLDEN_MODEL, model);
    mutate_drop(model, IMG2IMG_VAE, "encoder.");
    Pipeline *p = expect_pipeline(model);
    if (!p) return;
    for (int i = 0; i < 2; i++) { /* the refusal leaves the pipeline usable */
        Job job = small_job(false);
        expect_ok(render(p, &job, &media, &e), &e);
        media_free(&media);
        job = small_job(true);
        Status s = render(p, &job, &media, &e);
        expect_at(s == ERR_MODEL && strstr(e.text, "encoder.conv_in.weight"), "no encoder", e.text, 0);
        media_free(&media);
    }
    pipeline_close(p);
}

/* --- refusals, defaults, metadata --- */

static void refusals(void) {
    Error e = {0};
    Pipeline *p = NULL, *z = NULL;
    unsigned char big[] = {0x89, 'P', 'N', 'G', 13, 10, 26, 10, 0, 0, 0, 13, 'I', 'H', 'D', 'R', 0, 0, 0x80, 0, 0, 0,
                           0x40, 0, 8, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 'I', 'E', 'N', 'D', 0xae, 0x42, 0x60, 0x82};
    uint32_t sum = crc(big + 12, 17);
    for (int i = 0; i < 4; i++) big[29 + i] = (unsigned char)(sum >> (24 - 8 * i));
    mutate_write(in_folder("big.png"), big, sizeof big); /* 32768 x 16384 */
    mutate_write(in_folder("text.png"), "not a picture", 13);
    char *bytes;
    size_t size;
    if (file_read(GOLDEN_DIR "/photo.jpg", &bytes, &size, &e) != OK) mutate_stop("photo.jpg", e.text);
    mutate_write(in_folder("short.jpg"), bytes, size - 200);
    const uint8_t pixel[15 * 9 * 3] = {0};
    expect_ok(png_write(in_folder("small.png"), pixel, 15, 9, NULL, 0, true, &e), &e);
    free(bytes);
    p = expect_pipeline(GOLDEN_MODEL);
    z = expect_pipeline(ZIMAGE_MODEL);
    const struct { const char *image; double strength; bool given; Status code; const char *text; } CASES[] = {
        {"none.png", 0, false, ERR_IO, "none.png"}, {"text.png", 0, false, ERR_IO, "is neither a PNG nor a JPEG file"},
        {"big.png", 0, false, ERR_IO, "32768x16384 pixels are too many"}, {".", 0, false, ERR_IO, "--image"},
        {"small.png", 1.5, true, ERR_USAGE, "--strength: 1.5 is out of range, expected 0 to 1"},
        {"small.png", -0.1, true, ERR_USAGE, "--strength: -0.1 is out of range"},
        {"small.png", (double)NAN, true, ERR_USAGE, "out of range"},
        {"small.png", 0, true, ERR_USAGE, "--strength: 0 of 4 steps leaves none to run"},
        {NULL, 0.5, true, ERR_USAGE, "--strength: says how far to go from an image"},
    };
    for (size_t i = 0; p && i < sizeof CASES / sizeof *CASES; i++) {
        char path[700] = "";
        if (CASES[i].image) snprintf(path, sizeof path, "%s", in_folder(CASES[i].image));
        Job job = {.prompt = "a", .steps = 4, .image = CASES[i].image ? path : NULL, .strength = CASES[i].strength,
                   .strength_given = CASES[i].given};
        expect_status(pipeline_resolve(p, &job, &e), CASES[i].code, CASES[i].text, &e);
    }
    Job job = {.prompt = "a", .steps = 1, .image = in_folder("small.png")};
    expect_status(pipeline_resolve(z, &job, &e), ERR_USAGE, "15 x 9 pixels: without --width and --height at least 16", &e);
    job = small_job(true);
    job.image = in_folder("short.jpg"); /* its header is whole: the fault shows when it is read */
    Media media = {0};
    expect_ok(pipeline_resolve(p, &job, &e), &e);
    expect_status(pipeline_render(p, &job, NULL, &media, &e), ERR_IO, "short.jpg: cannot decode: ", &e);
    media_free(&media);
    pipeline_close(p);
    pipeline_close(z);
}

static void defaults(void) {
    Error e = {0};
    Pipeline *p = expect_pipeline(GOLDEN_MODEL), *z = expect_pipeline(ZIMAGE_MODEL);
    Job job = {.prompt = "a", .image = GOLDEN_DIR "/photo.jpg"};
    expect_ok(pipeline_resolve(p, &job, &e), &e);
    expect(job.width == 1024 && job.height == 1024 && job.steps == 28 && job.guidance == 7 && job.strength == 0.6);
    expect(job.first_step == 11 && job.image_width == 39 && job.image_height == 61);
    job.image = NULL, job.strength_given = false;
    expect(pipeline_resolve(p, &job, &e) == OK && job.first_step == 0);
    job = (Job){.prompt = "a", .image = GOLDEN_DIR "/photo.jpg"};
    expect_ok(pipeline_resolve(z, &job, &e), &e);
    expect(job.width == 32 && job.height == 48 && job.steps == 8 && job.first_step == 3 && job.strength == 0.6);
    job = (Job){.prompt = "a", .image = GOLDEN_DIR "/photo.jpg", .width = 64};
    expect(pipeline_resolve(z, &job, &e) == OK && job.width == 64 && job.height == 48);
    const Meta meta = {.job = &job, .title = "t", .device = "cpu", .dtype = F32};
    char *text = meta_json(&meta, NULL, NULL), *line = meta_parameters(&meta);
    char sum[SHA256_TEXT], want[200];
    uint64_t size;
    expect_ok(sha256_file(GOLDEN_DIR "/photo.jpg", sum, &size, NULL, &e), &e);
    snprintf(want, sizeof want, "\"image\":\"photo.jpg\",\"image_sha256\":\"%s\",\"strength\":0.6,\"steps_run\":5", sum);
    expect_at(text && strstr(text, want), "metadata", text ? text : "", 0);
    expect_at(line && strstr(line, " Denoising strength: 0.6, Seed"), "parameters", line ? line : "", 0);
    free(text);
    free(line);
    pipeline_close(p);
    pipeline_close(z);
}

int main(void) {
    expect_folder(folder, sizeof folder);
    deep_grey();
    recorded();
    covers();
    png_turned();
    encoder();
    quantised();
    runs("img2img_flux_f32", GOLDEN_MODEL);
    runs("img2img_zimage_f32", ZIMAGE_MODEL);
    memory(F32);
    memory(BF16);
    without_encoder();
    refusals();
    defaults();
    expect_cleanup(folder);
    return expect_done();
}
