/* test_verdicts.c - verdicts.h: what first sight found is written, read again and believed, on the same machine and build
 * only; a damaged file is said and replaced; a lie stays a lie; processes that save at once lose nothing of each other's.
 *
 * Easy to get wrong: run from the repository root. The family here wraps a real kernel and counts its runs, so a probe or a
 * comparison that was to be left out shows. */
#include "core/file.h"
#include "expect.h"
#include "gate.h"
#include "pipeline.h"
#include "verdicts.h"

#include <sys/wait.h>
#include <unistd.h>

static const char HERE[] = "a card, driver 1.2, build 00ff", THERE[] = "a card, driver 1.3, build 00ff";
static char folder[300]; /* lint: allow-static (test program) */

/* --- a family that counts and may lie --- */

static int ran;   /* lint: allow-static (test program) */
static bool lies; /* lint: allow-static (test program) */

static Status told_run(const Impl *real, Exec *x, const void *args) {
    const Tensor *y = args;
    ran++;
    TRY(real->run(x, args));
    *(uint16_t *)y->data ^= lies;
    return OK;
}

static Status told_norm(Exec *x, const void *args) { return told_run(LN_MODULATE_FUSED_CPU, x, args); }
static size_t norm_scratch(const Exec *x, const void *args) { return LN_MODULATE_FUSED_CPU->scratch(x, args); }
static const Impl TOLD[] = {{OP_ln_modulate, "told", told_norm, norm_scratch, NULL}};
static const Family EXACT_ONE[] = {{"told", EXACT, TOLD, 1, ""}}, BOUNDED_ONE[] = {{"told", BOUNDED, TOLD, 1, ""}};

/* --- the file --- */

static void test_file(void) {
    Error e = {0};
    char path[400];
    snprintf(path, sizeof path, "%s/made/verdicts.tsv", folder);
    Verdicts v;
    expect(verdicts_find(NULL, EXACT_ONE, TOLD, 7) == VERDICT_NONE);
    expect_ok(verdicts_open(&v, path, HERE, &e), &e);
    expect(!v.note[0] && verdicts_find(&v, EXACT_ONE, TOLD, 7) == VERDICT_NONE);
    verdicts_save(&v);
    expect(!file_exists(path)); /* nothing to say */
    expect_ok(verdicts_put(&v, EXACT_ONE, TOLD, 7, true, &e), &e);
    expect_ok(verdicts_put(&v, EXACT_ONE, TOLD, 8, false, &e), &e);
    expect(verdicts_find(&v, EXACT_ONE, TOLD, 7) == VERDICT_SAME);
    verdicts_save(&v);
    expect(!v.unsaved[0] && v.fresh.count == 0 && v.found == 2);
    verdicts_close(&v);

    const Impl other = {OP_ln_modulate, "another", told_norm, norm_scratch, NULL};
    const Family renamed = {"renamed", EXACT, TOLD, 1, ""};
    expect_ok(verdicts_open(&v, path, HERE, &e), &e);
    expect(verdicts_find(&v, EXACT_ONE, TOLD, 7) == VERDICT_SAME && verdicts_find(&v, EXACT_ONE, TOLD, 8) == VERDICT_OTHER);
    expect(verdicts_find(&v, EXACT_ONE, TOLD, 9) == VERDICT_NONE && verdicts_find(&v, EXACT_ONE, &other, 7) == VERDICT_NONE);
    expect(verdicts_find(&v, &renamed, TOLD, 7) == VERDICT_NONE);
    verdicts_close(&v);
    expect_ok(verdicts_open(&v, path, THERE, &e), &e); /* another driver: its own lines beside these */
    expect(!v.note[0] && verdicts_find(&v, EXACT_ONE, TOLD, 7) == VERDICT_NONE);
    expect_ok(verdicts_put(&v, EXACT_ONE, TOLD, 7, false, &e), &e);
    verdicts_save(&v);
    verdicts_close(&v);
    expect_ok(verdicts_open(&v, path, HERE, &e), &e);
    expect(v.known.count == 3 && verdicts_find(&v, EXACT_ONE, TOLD, 7) == VERDICT_SAME);
    verdicts_close(&v);

    /* damage is said, believed in no part, and gone with the next save */
    char *text = NULL;
    size_t size = 0;
    expect_ok(file_read(path, &text, &size, &e), &e);
    text[size / 2] ^= 1;
    expect_ok(file_write_atomic(path, text, size, true, &e), &e);
    free(text);
    expect_ok(verdicts_open(&v, path, HERE, &e), &e);
    expect(strstr(v.note, "it is not used") && v.known.count == 0);
    expect_ok(verdicts_put(&v, EXACT_ONE, TOLD, 11, true, &e), &e);
    verdicts_save(&v);
    verdicts_close(&v);
    expect_ok(verdicts_open(&v, path, HERE, &e), &e);
    expect(!v.note[0] && v.known.count == 1 && verdicts_find(&v, EXACT_ONE, TOLD, 11) == VERDICT_SAME);
    verdicts_close(&v);

    /* no place to write to: said, kept, and no error */
    expect_ok(verdicts_open(&v, "/proc/nowhere/verdicts.tsv", HERE, &e), &e);
    expect_ok(verdicts_put(&v, EXACT_ONE, TOLD, 1, true, &e), &e);
    verdicts_save(&v);
    expect(strstr(v.unsaved, "/proc/nowhere") && v.fresh.count == 1);
    verdicts_close(&v);
}

/* The oldest lines of other machines make room; this one's stay. */
static void test_trim(void) {
    Error e = {0};
    Verdicts v;
    char path[400];
    snprintf(path, sizeof path, "%s/full.tsv", folder);
    for (int k = 0; k < 2; k++) {
        expect_ok(verdicts_open(&v, path, k ? HERE : THERE, &e), &e);
        for (int i = 0; i < (k ? 100 : VERDICTS_MOST); i++)
            expect_ok(verdicts_put(&v, EXACT_ONE, TOLD, (uint64_t)i, true, &e), &e);
        verdicts_save(&v);
        verdicts_close(&v);
    }
    expect_ok(verdicts_open(&v, path, THERE, &e), &e);
    expect(v.known.count == VERDICTS_MOST && verdicts_find(&v, EXACT_ONE, TOLD, 99) == VERDICT_NONE &&
           verdicts_find(&v, EXACT_ONE, TOLD, 100) == VERDICT_SAME);
    verdicts_close(&v);
}

/* Each process saves one verdict at a time, as a batch on several GPUs does. */
static void test_processes(void) {
    enum { PROCESSES = 6, EACH = 12 };
    Error e = {0};
    Verdicts v;
    char path[400];
    pid_t child[PROCESSES];
    snprintf(path, sizeof path, "%s/shared.tsv", folder);
    for (int p = 0; p < PROCESSES; p++) {
        child[p] = fork();
        if (child[p]) continue;
        bool good = verdicts_open(&v, path, HERE, &e) == OK;
        for (int i = 0; good && i < EACH; i++) {
            good = verdicts_put(&v, EXACT_ONE, TOLD, (uint64_t)(100 * p + i), true, &e) == OK;
            verdicts_save(&v);
        }
        for (int i = 0; v.fresh.count && i < 50; i++) verdicts_save(&v); /* a machine this busy may make it wait */
        _exit(good && !v.fresh.count ? 0 : 1);
    }
    for (int p = 0; p < PROCESSES; p++) {
        int status = 1;
        waitpid(child[p], &status, 0);
        expect(status == 0);
    }
    expect_ok(verdicts_open(&v, path, HERE, &e), &e);
    expect(!v.note[0] && v.known.count == PROCESSES * EACH);
    verdicts_close(&v);
}

/* --- pipelines --- */

typedef struct Seen {
    uint64_t looks, runs;
    int ran, believed;
    bool mounted;
    char warning[400], note[700];
} Seen;

static Seen render(const Family *family, const char *path, bool lying) {
    Error e = {0};
    Seen s = {0};
    Pipeline *p = NULL;
    Media media = {0};
    PipelineOptions o = {.model = "tests/golden/tiny-flux", .device = "cpu", .dtype = BF16, .families = family,
                         .family_count = 1, .verdicts = path};
    Job job = {.prompt = "a red fox", .width = 32, .height = 32, .steps = 1, .seed = 7, .max_sequence_length = 24,
               .quality = QUALITY_HIGH};
    ran = 0;
    lies = lying;
    expect_ok(pipeline_open(&o, &p, &e), &e);
    expect_ok(pipeline_resolve(p, &job, &e), &e);
    expect_ok(pipeline_render(p, &job, NULL, &media, &e), &e);
    const PipelineFacts f = pipeline_facts(p);
    s.ran = ran, s.looks = f.gate->looks, s.believed = f.gate->verdicts ? f.gate->verdicts->believed : -1;
    for (int i = 0; i < media.dispatches; i++)
        if (!strcmp(media.dispatch[i].impl, "told")) s.runs += media.dispatch[i].count;
    s.mounted = pipeline_mounted(p, "transformer", "told");
    snprintf(s.warning, sizeof s.warning, "%s", media.warning);
    snprintf(s.note, sizeof s.note, "%s", media.note);
    media_free(&media);
    pipeline_close(p);
    return s;
}

static void test_pipelines(void) {
    Error e = {0};
    char path[400];
    snprintf(path, sizeof path, "%s/run.tsv", folder);
    Seen without = render(EXACT_ONE, NULL, false), first = render(EXACT_ONE, path, false),
         second = render(EXACT_ONE, path, false);
    expect(without.believed == -1 && without.looks > 0 && without.mounted);
    expect(first.looks == without.looks && first.ran == without.ran && first.believed == 0 && first.mounted);
    /* the second run: neither probe nor comparison, the same calls by the same variant */
    expect(second.looks == 0 && second.believed == (int)first.looks && second.mounted && second.runs == first.runs);
    expect(second.ran == (int)second.runs && first.ran > second.ran);
    /* verdicts are an EXACT family's: a gated one is probed every time, and never looked at */
    Seen gated = render(BOUNDED_ONE, path, false);
    expect(gated.looks == 0 && gated.believed == 0 && gated.ran > (int)gated.runs);

    /* of another build nothing counts: the last digit of it in every line, with sums that fit */
    Tuned all;
    char note[600], *copy = NULL;
    size_t size = 0;
    expect_ok(file_read(path, &copy, &size, &e), &e);
    char *end = strchr(strchr(copy, '\n'), '\t'), machine[400];
    snprintf(machine, sizeof machine, "%.*s", (int)(end - strchr(copy, '\n') - 1), strchr(copy, '\n') + 1);
    expect(strstr(machine, "build ") != NULL);
    free(copy);
    expect_ok(tuned_open(&all, "verdicts", machine, &e), &e);
    expect_ok(tuned_read(&all, path, note, sizeof note, &e), &e);
    for (int i = 0; i < all.count; i++) {
        char *digit = all.entry[i].machine + strlen(all.entry[i].machine) - 1;
        *digit = *digit == '0' ? '1' : '0';
    }
    expect(all.count == (int)first.looks);
    expect_ok(tuned_write(&all, path, &e), &e);
    tuned_close(&all);
    Seen rebuilt = render(EXACT_ONE, path, false);
    expect(rebuilt.looks == first.looks && rebuilt.believed == 0 && !rebuilt.note[0]);

    /* a damaged file: one line, everything is looked at again */
    expect_write(folder, "run.tsv", "# ditto verdicts 1\nnonsense\n", 28);
    Seen damaged = render(EXACT_ONE, path, false);
    expect(damaged.looks == first.looks && strstr(damaged.note, "run.tsv: damaged") && damaged.mounted);

    /* one lie is enough for all runs to come */
    expect_ok(file_write_atomic(path, "# ditto verdicts 1\n", 19, true, &e), &e);
    Seen lie = render(EXACT_ONE, path, true), after = render(EXACT_ONE, path, false);
    expect(lie.looks == 1 && !lie.mounted && strstr(lie.warning, "other bits than the reference"));
    expect(after.looks == 0 && !after.mounted && after.runs == 0 && strstr(after.warning, "in an earlier run"));
}

int main(int argc, char **argv) {
    (void)argc;
    if (!getenv("OMP_WAIT_POLICY")) {
        setenv("OMP_WAIT_POLICY", "passive", 1);
        execv("/proc/self/exe", argv);
    }
    expect_folder(folder, sizeof folder);
    test_file();
    test_trim();
    test_processes();
    test_pipelines();
    expect_cleanup(folder);
    return expect_done();
}
