/* test_memo.c - remembered text embeddings belong to the families they were made with: after a lossless job the same prompt at
 * high gives what a fresh pipeline gives, and back.
 *
 * Easy to get wrong: the family must change the text encoder itself, or nothing is tested. */
#include "expect.h"
#include "kernels/registry.h"
#include "pipeline.h"

/* A gated norm that T5 runs, with another eps. */
static Status other_eps(Exec *x, const void *args) {
    RmsNorm a = *(const RmsNorm *)args;
    a.eps = 0.25f;
    for (int i = 0; i < NORM_CPU_COUNT; i++)
        if (NORM_CPU[i].op == OP_rmsnorm) return NORM_CPU[i].run(x, &a);
    return fail(x->error, ERR_MODEL, "the CPU table has no rmsnorm");
}
static const Impl EPS[] = {{OP_rmsnorm, "other_eps", other_eps, NULL, NULL}};
static const Family FAMILIES[] = {{"other-eps", BOUNDED, EPS, 1, ""}};

static Pipeline *begin(void) {
    Pipeline *p = NULL;
    Error e = {0};
    expect_ok(pipeline_open(&(PipelineOptions){.model = "tests/golden/tiny-flux", .device = "cpu", .families = FAMILIES,
                                               .family_count = 1}, &p, &e), &e);
    if (!p) exit(1);
    return p;
}

static Media render(Pipeline *p, Quality quality) {
    Error e = {0};
    Media out = {0};
    Job job = {.prompt = "a red circle", .width = 32, .height = 32, .steps = 2, .seed = 7, .max_sequence_length = 16,
               .quality = quality};
    expect_ok(pipeline_resolve(p, &job, &e), &e);
    expect_ok(pipeline_render(p, &job, NULL, &out, &e), &e);
    return out;
}

static bool same(const Media *a, const Media *b) {
    return a->rgb && b->rgb && !memcmp(a->rgb, b->rgb, (size_t)a->width * (size_t)a->height * 3);
}

int main(void) {
    Pipeline *one = begin(), *fresh = begin();
    Media high = render(fresh, QUALITY_HIGH);
    Media got[4];
    for (int i = 0; i < 4; i++) got[i] = render(one, i % 2 ? QUALITY_HIGH : QUALITY_LOSSLESS);
    expect(!same(&got[0], &high));
    expect(same(&got[1], &high) && same(&got[3], &high));
    expect(same(&got[2], &got[0]));
    for (int i = 0; i < 4; i++) media_free(&got[i]);
    media_free(&high);
    pipeline_close(one);
    pipeline_close(fresh);
    return expect_done();
}
