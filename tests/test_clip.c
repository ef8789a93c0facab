/* test_clip.c - clip.h's rule, and what a pipeline does with a model of clips (clip_model.c): resolved jobs, frames in Media, the
 * decode that needs less memory where the plan would not fit otherwise, latents handed out before the decode.
 * Files and the command line are test_clip.sh's. */
#include "clip_model.h"
#include "device_test.h"
#include "expect_pipeline.h"
#include "pipeline.h"
#include "plan.h"

static const ClipRule WAN = {.step = 4, .frames = 81, .most = 101, .fps = {16, 1}},
                      ANY = {.step = 1, .frames = 8, .fps = {8, 1}};

/* Frames that come out, or the refusal's code, negative. */
static int resolved(const ClipRule *rule, int frames, double seconds, Rate fps, Error *e) {
    Job job = {.frames = frames, .seconds = seconds, .fps = fps};
    *e = (Error){0};
    Status s = clip_resolve(rule, "Pictures", &job, e);
    Job again = job;
    if (s == OK && (clip_resolve(rule, "Pictures", &again, e) != OK || again.frames != job.frames)) return -1000;
    return s == OK ? job.frames : -(int)s;
}

static void test_rule(void) {
    static const struct {
        int frames;
        double seconds;
        int want;
        const char *text;
    } ROWS[] = {{0, 0, 81, ""},
                {1, 0, 1, ""},
                {5, 0, 5, ""},
                {81, 0, 81, ""},
                {101, 0, 101, ""},
                {80, 0, -2, "the nearest are 77 and 81"},
                {2, 0, -2, "the nearest are 1 and 5"},
                {102, 0, -2, "at most 101"},
                {0, 5, 81, ""},
                {0, 5.07, 81, ""},
                {0, 0.001, 1, ""},
                {0, 4.9, 77, ""},    /* 78.4: 77 is nearer than 81 */
                {0, 4.9375, 81, ""}, /* 79, as far from both: up */
                {0, 6.3125, 101, ""},
                {0, 6.4, -2, "at most 101"},
                {0, 1e9, -2, "too many"}};
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        Error e;
        int got = resolved(&WAN, ROWS[i].frames, ROWS[i].seconds, (Rate){0}, &e);
        if (got != ROWS[i].want) printf("row %zu: %d, %s\n", i, got, e.text);
        expect(got == ROWS[i].want && strstr(e.text, ROWS[i].text));
    }
    Error e;
    expect(resolved(&ANY, 7, 0, (Rate){0}, &e) == 7 && resolved(&ANY, 0, 1.5, (Rate){24000, 1001}, &e) == 36);
    expect(resolved(&(ClipRule){.step = 8, .frames = 9, .most = 20, .fps = {16, 1}}, 18, 0, (Rate){0}, &e) == -2 &&
           strstr(e.text, "the nearest is 17"));
    expect(resolved(NULL, 0, 0, (Rate){0}, &e) == 1 && resolved(NULL, 1, 0, (Rate){0}, &e) == 1);
    expect(resolved(NULL, 2, 0, (Rate){0}, &e) == -2 && strstr(e.text, "--frames: Pictures makes pictures"));
    expect(resolved(NULL, 0, 1, (Rate){0}, &e) == -2 && strstr(e.text, "--seconds"));
    expect(resolved(NULL, 0, 0, (Rate){9, 1}, &e) == -2 && strstr(e.text, "--fps"));
    char text[200];
    Job job = {.seconds = 5, .fps = {16, 1}, .frames = 81};
    expect(!strcmp(clip_rounded(&job, text, sizeof text),
                   "5 s at 16 frames a second are 80 frames; made are 81, 5.0625 s"));
    job.seconds = 5.0625;
    expect(!clip_rounded(&job, text, sizeof text)[0]);
    job.seconds = 0;
    expect(!clip_rounded(&job, text, sizeof text)[0]);
}

typedef struct Kept {
    int times, rank;
    int64_t shape[TENSOR_MAX_RANK];
    float first;
} Kept;

static Status keep(void *user, DType dtype, const Streams *streams, const void *values, Error *e) {
    Kept *k = user;
    const Stream *s = &streams->stream[0];
    (void)e;
    expect(streams->count == 1 && !*s->prefix && dtype == F32);
    k->times++, k->rank = s->rank;
    memcpy(k->shape, s->shape, (size_t)s->rank * sizeof *s->shape);
    memcpy(&k->first, values, sizeof k->first);
    return OK;
}

typedef struct Marks {
    int decodes, last;
} Marks;

static void on_step(void *user, const char *phase, int done, int total) {
    Marks *m = user;
    if (strcmp(phase, "decode")) return;
    m->decodes++, m->last = done * 100 / total;
}

static void test_pipeline(const char *folder) {
    Error e = {0};
    Pipeline *p = expect_pipeline(folder);
    Kept kept = {0};
    Marks marks = {0};
    LatentsWatch watch = {keep, &kept};
    Progress progress = {on_step, &marks};
    Job job = {.prompt = "x", .frames = 17, .seed = 4, .keep = &watch};
    Media media;
    expect(pipeline_makes_clips(p));
    expect_ok(pipeline_resolve(p, &job, &e), &e);
    expect(job.width == 64 && job.frames == 17 && job.fps.num == 16);
    expect_ok(pipeline_render(p, &job, &progress, &media, &e), &e);
    expect(media.frames == 17 && media.width == 64 && media.height == 48 && media.fps.num == 16 && media.fps.den == 1);
    size_t frame = 64 * 48 * 3;
    /* the disc's centre, frame by frame */
    for (int n = 0; n < 17; n += 8) {
        const uint8_t *at = media.rgb + (size_t)n * frame + (24 * 64 + 12 + 2 * (size_t)n) * 3;
        expect(at[0] == 255 && !at[1] && !at[2]);
    }
    expect(memcmp(media.rgb, media.rgb + 16 * frame, frame) != 0);
    expect(kept.times == 1 && kept.rank == 5 && kept.shape[2] == 5 && kept.shape[3] == 3 && kept.shape[4] == 4);
    expect(marks.decodes == 18 && marks.last == 100); /* 0, 16 between, the end */
    Plan plan;
    expect_ok(pipeline_plan(p, &job, &plan, &e), &e);
    expect(plan.thrift == 0 && plan.result == 17 * frame);
    media_free(&media);
    pipeline_close(p);
}

/* Room for everything but the decode: each of its frugal ways in turn, then none. */
static void test_thrift(const char *folder) {
    static const struct {
        size_t room;
        int thrift;
    } ROWS[] = {
        {CLIP_ROOM + (1 << 20), 0}, {CLIP_ROOM / 2 + (1 << 20), 1}, {CLIP_ROOM / 4 + (1 << 20), 2}, {CLIP_ROOM / 8, 2}};
    for (size_t i = 0; i < sizeof ROWS / sizeof *ROWS; i++) {
        Error e = {0};
        TestDevice t;
        Device d = test_device(&t, SIZE_MAX);
        Pipeline *p;
        Plan plan;
        Job job = {.prompt = "x", .seed = 4};
        expect_ok(pipeline_open(&(PipelineOptions){.model = folder, .on = &d, .vram = ROWS[i].room}, &p, &e), &e);
        expect_ok(pipeline_resolve(p, &job, &e), &e);
        expect_ok(pipeline_plan(p, &job, &plan, &e), &e);
        expect(plan.thrift == ROWS[i].thrift && plan.fits == (i < 3));
        Media media;
        bool fits = i < 3;
        expect_status(pipeline_render(p, &job, NULL, &media, &e), fits ? OK : ERR_MEMORY, fits ? "" : "does not fit",
                      &e);
        expect(!fits || media.frames == 9);
        media_free(&media);
        pipeline_close(p);
        expect(!t.faults);
    }
}

int main(void) {
    char folder[300], command[900];
    expect_folder(folder, sizeof folder);
    snprintf(command, sizeof command,
             "for d in \"$PWD\"/tests/golden/tiny-flux/*/; do ln -s \"$d\" '%s/'; done && sed "
             "'0,/{/s//{\"moving_shapes\": true,/' "
             "tests/golden/tiny-flux/model_index.json >'%s/model_index.json'",
             folder, folder);
    if (system(command)) return 1;
    test_rule();
    test_pipeline(folder);
    test_thrift(folder);
    expect_cleanup(folder);
    return expect_done();
}
