/* test_batch.c - the parts of ditto batch by themselves: the jobs file, names and order, the journal, the writers' queue, the
 * processes of --gpus (a shell script in the program's place), job arrays, the memo's groups. The whole is in test_batch.sh.
 *
 * Easy to get wrong: a script that stands for a process must get its arguments as the program would. */
#include "batch.h"
#include "batch_gpus.h"
#include "batch_items.h"
#include "batch_journal.h"
#include "batch_writer.h"
#include "core/device.h"
#include "expect.h"
#include "memo.h"

#include <pthread.h>
#include <sys/wait.h>

static char folder[512]; /* lint: allow-static (test program) */

static Cli parse(const char *extra) {
    char *argv[] = {(char *)(uintptr_t) "ditto",
                    (char *)(uintptr_t) "batch",
                    (char *)(uintptr_t) "j",
                    (char *)(uintptr_t) "--out=o",
                    (char *)(uintptr_t) "-mM",
                    (char *)(uintptr_t) "--steps=7",
                    (char *)(uintptr_t) "--inject=noise=n",
                    (char *)(uintptr_t)extra};
    Cli cli;
    Error e;
    expect_ok(cli_parse(extra ? 8 : 7, argv, &cli, &e), &e);
    return cli;
}

/* --- the file --- */

static void test_objects(void) {
    Cli cli = parse("--quality=high");
    BatchJobs jobs;
    Error e;
    const char *path = expect_text(
        folder, "a.jsonl",
        "\xef\xbb\xbf{\"prompt\":\"a\",\"num_inference_steps\":3,\"seed\":-1,\"cfg-scale\":\"2.5\"}\r\n"
        "  \t\r\n"
        "{\"prompt\":\"b\",\"quality\":null,\"inject\":[\"ids_1=x\"],\"sync\":true,\"graphs\":false}\n"
        "{\"prompt\":\"c\",\"seed\":9007199254740992,\"no_metadata\":true,\"vram\":\"2G\"}\n"
        "{\"prompt\":\"\xff\"}\n"
        "{\"prompt\":\"d\",\"steps\":1,\"steps\":2}");
    expect_ok(batch_jobs_read(path, &cli, &jobs, &e), &e);
    expect(jobs.count == 5);
    const BatchJob *j = jobs.job;
    expect(!j[0].bad && j[0].line == 1 && j[0].number == 1 && j[0].job.steps == 3 && !j[0].seed_given &&
           j[0].job.cfg_scale == 2.5);
    expect(j[0].job.quality == QUALITY_HIGH && j[0].job.inject_count == 1);
    expect(!j[1].bad && j[1].line == 3 && j[1].number == 2 && j[1].job.steps == 7 && j[1].open.sync &&
           j[1].open.no_graphs);
    expect(j[1].job.quality == QUALITY_HIGH && j[1].job.inject_count == 2 &&
           !strcmp(j[1].job.inject[1].file, "x"));
    expect(!j[2].bad && j[2].job.seed == UINT64_C(9007199254740992) && j[2].no_metadata &&
           j[2].open.vram == (size_t)2 << 30);
    expect(j[3].bad && strstr(j[3].bad->text, "line 5: ") != NULL);
    expect(j[4].bad && strstr(j[4].bad->text, "line 6: ") != NULL);
    expect(!j[2].open.sync && cli.inject_count == 1); /* one job's options are not the next one's */
    batch_jobs_free(&jobs);
    cli_free(&cli);
}

/* What of a line makes a pipeline of its own, and what does not. */
static void test_pipelines(void) {
    Cli cli = parse(NULL);
    BatchJobs jobs;
    Error e;
    const char *path = expect_text(folder, "p.jsonl",
                                   "{\"prompt\":\"a\"}\n"
                                   "{\"prompt\":\"b\",\"width\":64,\"quality\":\"high\"}\n"
                                   "{\"prompt\":\"c\",\"device\":\"cpu\"}\n"
                                   "{\"prompt\":\"c\",\"dtype\":\"f32\"}\n"
                                   "{\"prompt\":\"c\",\"vae-dtype\":\"f32\"}\n"
                                   "{\"prompt\":\"c\",\"vram\":\"2G\"}\n"
                                   "{\"prompt\":\"c\",\"sync\":true}\n"
                                   "{\"prompt\":\"c\",\"graphs\":false}\n"
                                   "{\"prompt\":\"c\",\"model\":\"N\"}\n");
    expect_ok(batch_jobs_read(path, &cli, &jobs, &e), &e);
    expect(jobs.count == 9);
    for (int i = 0; i < jobs.count; i++)
        for (int k = 0; k < jobs.count; k++)
            expect(!jobs.job[i].bad && batch_items_same_pipeline(&jobs.job[i], &jobs.job[k]) == (i == k || (i < 2 && k < 2)));
    batch_jobs_free(&jobs);
    cli_free(&cli);
}

static void test_prompts(void) {
    Cli cli = parse(NULL);
    BatchJobs jobs;
    Error e;
    const struct {
        const char *name, *text;
        int count;
        const char *last;
    } files[] = {
        {"a.txt", "{\"prompt\":\"a\"}\n\n  \nlast", 3, "last"}, /* blanks are a prompt */
        {"a", "a {\n{b", 2, "{b"},
        {"b", "\n  {\"prompt\":\"x\"}\n", 1, "x"},
        {"b.json", "{\"prompt\":\"x\"}", 1, "x"},
    };
    for (int i = 0; i < 4; i++) {
        expect_ok(batch_jobs_read(expect_text(folder, files[i].name, files[i].text), &cli, &jobs, &e), &e);
        expect(jobs.count == files[i].count && !jobs.job[jobs.count - 1].bad);
        expect(jobs.count && !strcmp(jobs.job[jobs.count - 1].job.prompt, files[i].last));
        batch_jobs_free(&jobs);
    }
    expect_ok(batch_jobs_read(expect_write(folder, "n.txt", "a\0b\nc", 5), &cli, &jobs, &e), &e);
    expect(jobs.count == 2 && jobs.job[0].bad && !jobs.job[1].bad);
    batch_jobs_free(&jobs);
    cli_free(&cli);
}

/* --- pictures --- */

static int read_items(const char *text, int shard, int shards, BatchJobs *jobs, BatchItems *items) {
    Cli cli = parse(NULL);
    Error e;
    expect_ok(batch_jobs_read(expect_text(folder, "items.jsonl", text), &cli, jobs, &e), &e);
    expect_ok(batch_items_make(jobs, "o", NULL, shard, shards, items, &e), &e);
    cli_free(&cli); /* the jobs' stages are not looked at */
    return items->count;
}

static void test_order(void) {
    BatchJobs jobs;
    BatchItems items;
    const char text[] =
        "{\"prompt\":\"0\"}\n{\"prompt\":\"1\",\"model\":\"B\"}\n{\"prompt\":\"2\",\"quality\":\"high\"}\n"
        "{\"prompt\":\"3\",\"width\":64}\n{\"prompt\":\"4\"}\n{\"prompt\":\"5\",\"model\":\"B\",\"count\":2}"
        "\n"
        "{\"prompt\":\"6\",\"width\":64}\n{\"prompt\":\"7\"}\n";
    expect(read_items(text, 0, 1, &jobs, &items) == 9);
    batch_items_group(&items);
    batch_items_order(items.item, 6);
    batch_items_order(items.item + 6, 3);
    char got[32] = "";
    for (int i = 0; i < 9; i++) strcat(got, items.item[i].job.prompt);
    expect(!strcmp(got, "047362155"));
    expect(!strcmp(items.item[8].name, "0006-2.png") && items.item[8].job.seed == items.item[7].job.seed + 1);
    items.item[0].rows = 5, items.item[1].rows = 9, items.item[2].rows = 5;
    batch_items_order_rows(items.item, 3);
    expect(!strcmp(items.item[0].job.prompt, "0") && !strcmp(items.item[1].job.prompt, "7") &&
           !strcmp(items.item[2].job.prompt, "4"));
    batch_items_free(&items);
    batch_jobs_free(&jobs);
    int sum = 0;
    for (int s = 0; s < 4; s++) {
        sum += read_items(text, s, 4, &jobs, &items);
        expect(items.item[0].index == s);
        batch_items_free(&items);
        batch_jobs_free(&jobs);
    }
    expect(sum == 9);
}

/* --- the journal --- */

static void test_journal(void) {
    char place[600], sum[SHA256_TEXT], path[700];
    Error e;
    BatchJournal *j = NULL, *other = NULL;
    BatchFound found;
    const volatile int no = 0;
    snprintf(place, sizeof place, "%s/journal", folder);
    mkdir(place, 0777);
    sha256_memory("abc", 3, sum);
    expect_ok(batch_journal_open(place, 0, 1, true, &j, &e), &e);
    expect_ok(batch_journal_add(j, &(BatchRecord){"x.png", "D1", sum, "x.png.tmp-1", UINT64_MAX}, &e), &e);
    expect_ok(batch_journal_add(j, &(BatchRecord){"y.png", "D2", sum, "y.png.tmp-1", 3}, &e), &e);
    expect_status(batch_journal_open(place, 0, 1, true, &other, &e), ERR_USAGE,
                  "another ditto batch is at work there", &e);
    expect_ok(batch_journal_open(place, 1, 2, true, &other, &e), &e); /* another part has its own */
    batch_journal_close(other);
    batch_journal_close(j);
    /* a line that was cut off, and one of somebody else */
    snprintf(path, sizeof path, "%s/ditto-journal.jsonl", place);
    FILE *f = fopen(path, "a");
    fprintf(f, "not ours\n{\"name\":\"z.png\",\"job\":\"D3\",\"sha2");
    fclose(f);
    expect_text(place, "x.png", "abc");
    expect_text(place, "y.png.tmp-1", "abc");
    expect_text(place, "z.png", "abc");
    expect_ok(batch_journal_open(place, 0, 1, false, &j, &e), &e);
    expect_ok(batch_journal_find(j, "x.png", "D1", &no, &found, &e), &e);
    expect(found.done && found.ours && found.seed == UINT64_MAX && !strcmp(found.sha256, sum));
    expect_ok(batch_journal_find(j, "x.png", "D9", &no, &found, &e), &e);
    expect(!found.done && found.ours && found.exists);
    expect_ok(batch_journal_find(j, "y.png", "D2", &no, &found, &e), &e);
    expect(!found.done && !found.exists); /* read only: it is not finished */
    expect_ok(batch_journal_find(j, "z.png", "D3", &no, &found, &e), &e);
    expect(!found.done && !found.ours && found.exists);
    batch_journal_close(j);
    expect_ok(batch_journal_open(place, 0, 1, true, &j, &e), &e);
    expect_ok(batch_journal_find(j, "y.png", "D2", &no, &found, &e), &e);
    expect(found.done && found.seed == 3);
    snprintf(path, sizeof path, "%s/y.png", place);
    expect(!access(path, F_OK));
    expect_ok(batch_journal_add(j, &(BatchRecord){"z.png", "D3", sum, "z.png.tmp-1", 4}, &e), &e);
    batch_journal_close(j);
    expect_ok(batch_journal_open(place, 0, 1, false, &j, &e), &e); /* the whole line stands alone */
    expect_ok(batch_journal_find(j, "z.png", "D3", &no, &found, &e), &e);
    expect(found.done && found.seed == 4);
    expect_text(place, "x.png", "abd");
    expect_ok(batch_journal_find(j, "x.png", "D1", &no, &found, &e), &e);
    expect(!found.done && !found.ours && found.exists);
    batch_journal_close(j);
}

static void test_digest(void) {
    Error e;
    char a[SHA256_TEXT], b[SHA256_TEXT];
    expect_text(folder, "one", "1");
    char file[600];
    snprintf(file, sizeof file, "%s/one", folder);
    Inject inject[] = {{"noise", file}};
    BatchJob job = {.seed_given = true, .job = {.prompt = "p", .inject = inject, .inject_count = 1}};
    Job resolved = {
        .prompt = "p", .seed = 1, .width = 64, .height = 64, .steps = 2, .inject = inject, .inject_count = 1};
    Meta meta = {
        .job = &resolved, .title = "t", .device = "cpu", .dtype = BF16, .path = "here", .profile = "x"};
    expect_ok(batch_journal_digest(&meta, &job, folder, a, &e), &e);
    meta.path = "there", meta.profile = "y"; /* nothing that the pixels know of */
    expect_ok(batch_journal_digest(&meta, &job, folder, b, &e), &e);
    expect(!strcmp(a, b));
#define changes(statement, back)                                                                             \
    do {                                                                                                     \
        statement;                                                                                           \
        expect_ok(batch_journal_digest(&meta, &job, folder, b, &e), &e);                                     \
        expect_at(strcmp(a, b) != 0, #statement, __FILE__, __LINE__);                                        \
        back;                                                                                                \
    } while (0)
    changes(resolved.prompt = "q", resolved.prompt = "p");
    changes(resolved.seed = 2, resolved.seed = 1);
    changes(resolved.families = "none", resolved.families = NULL);
    changes(resolved.quality = QUALITY_HIGH, resolved.quality = QUALITY_LOSSLESS);
    changes(meta.dtype = F32, meta.dtype = BF16);
    changes(job.no_metadata = true, job.no_metadata = false);
    changes(expect_text(folder, "one", "2"), expect_text(folder, "one", "1"));
    job.seed_given = false;
    expect_ok(batch_journal_digest(&meta, &job, folder, a, &e), &e);
    resolved.seed = 77;
    expect_ok(batch_journal_digest(&meta, &job, folder, b, &e), &e);
    expect(!strcmp(a, b)); /* a drawn seed is no parameter */
}

/* --- writers --- */

typedef struct Seen {
    pthread_mutex_t lock;
    int handled, put, most_ahead;
} Seen;

static void handle(void *user, BatchPicture *picture) {
    Seen *s = user;
    usleep(2000);
    pthread_mutex_lock(&s->lock);
    s->handled++;
    pthread_mutex_unlock(&s->lock);
    free(picture->media.rgb);
}

static void test_writer(void) {
    for (int threads = 1; threads <= 3; threads += 2) {
        Seen s = {.lock = PTHREAD_MUTEX_INITIALIZER};
        BatchWriter *w = NULL;
        Error e;
        expect_ok(batch_writer_open(threads, 2, handle, &s, &w, &e), &e);
        for (int i = 0; i < 40; i++) {
            batch_writer_put(w, &(BatchPicture){.media = {.rgb = malloc(1)}});
            pthread_mutex_lock(&s.lock);
            int ahead = ++s.put - s.handled;
            if (ahead > s.most_ahead) s.most_ahead = ahead;
            pthread_mutex_unlock(&s.lock);
        }
        expect(s.most_ahead <= 2 + threads && s.most_ahead >= 2);
        batch_writer_wait(w);
        expect(s.handled == 40);
        batch_writer_put(w, &(BatchPicture){.media = {.rgb = malloc(1)}});
        batch_writer_close(w);
        expect(s.handled == 41);
    }
}

/* --- a process a GPU --- */

static char printed[16384], said[4096]; /* lint: allow-static (test program) */

static Status processes(const char *script, const char *list, bool keep_going, const char *visible,
                        const volatile int *interrupted, Error *e) {
    char program[600], text[2048];
    snprintf(program, sizeof program, "%s/program", folder);
    snprintf(text, sizeof text, "#!/bin/sh\n%s\n", script);
    expect_text(folder, "program", text);
    chmod(program, 0777);
    char *argv[] = {(char *)(uintptr_t) "ditto",       (char *)(uintptr_t) "batch",
                    (char *)(uintptr_t) "--gpus",      (char *)(uintptr_t)list,
                    (char *)(uintptr_t) "--shard=1/2", (char *)(uintptr_t) "-p",
                    (char *)(uintptr_t) "two words",   (char *)(uintptr_t) "--",
                    (char *)(uintptr_t) "--gpus",      NULL};
    char *environment[] = {(char *)(uintptr_t) "PATH=/usr/bin:/bin",
                           (char *)(uintptr_t) "CUDA_VISIBLE_DEVICES=9", NULL};
    BatchGpus g = {.program = program,
                   .argc = 9,
                   .argv = argv,
                   .environment = environment,
                   .visible = visible,
                   .list = list,
                   .there = 4,
                   .shard = 1,
                   .shards = 2,
                   .keep_going = keep_going,
                   .interrupted = interrupted};
    memset(printed, 0, sizeof printed);
    memset(said, 0, sizeof said);
    FILE *out = fmemopen(printed, sizeof printed - 1, "w"), *err = fmemopen(said, sizeof said - 1, "w");
    Status s = batch_gpus_run(&g, out, err, e);
    fclose(out);
    fclose(err);
    return s;
}

static void test_gpus(void) {
    const volatile int no = 0, yes = 1;
    Error e = {0};
    int gpu[BATCH_GPUS_MOST], count;
    expect_ok(batch_gpus_count("3,0", 4, gpu, &count, &e), &e);
    expect(count == 2 && gpu[0] == 3 && gpu[1] == 0);
    const char *const bad[] = {"", "a", "0,", "0,,1", "0 1", "-1", "0x1"};
    for (int i = 0; i < 7; i++)
        expect_status(batch_gpus_count(bad[i], 4, gpu, &count, &e), ERR_USAGE, "expected numbers of GPUs",
                      &e);
    expect_status(batch_gpus_count("0,4", 4, gpu, &count, &e), ERR_USAGE, "there is no GPU 4 here: found 4",
                  &e);
    expect_status(batch_gpus_count("1,1", 4, gpu, &count, &e), ERR_USAGE, "1 is given twice", &e);

    /* lines come whole, however they were written */
    expect_ok(processes("printf '%s|' \"$CUDA_VISIBLE_DEVICES\" \"$@\"; echo; for i in 1 2 3 4 5 6 7 8; do "
                        "printf 'left %s ' $1; sleep 0.01; "
                        "echo right; done; printf unended; echo note >&2",
                        "0,2", false, NULL, &no, &e),
              &e);
    expect(strstr(printed, "0|batch|--shard=1/4|--device=cuda|-p|two words|--|--gpus|\n") != NULL);
    expect(strstr(printed, "2|batch|--shard=3/4|--device=cuda|-p|two words|--|--gpus|\n") != NULL);
    int lines = 0;
    for (const char *at = printed; (at = strstr(at, "left batch right\n")); at++)
        lines += at == printed || at[-1] == '\n';
    expect(lines == 16 && strstr(printed, "\nunended\n") != NULL);
    expect(strstr(said, "gpu 0: note\n") && strstr(said, "gpu 2: note\n"));
    expect_ok(processes("echo $CUDA_VISIBLE_DEVICES", "1,3", false, "GPU-a,GPU-b,5,7", &no, &e), &e);
    expect(strstr(printed, "GPU-b\n") && strstr(printed, "7\n"));

    /* one that fails: the others are ended, or not */
    const char *const fails = "[ $CUDA_VISIBLE_DEVICES = 0 ] && sleep 0.4 && exit 6; trap 'echo ended; exit "
                              "130' TERM; sleep 1.5 & wait; echo whole";
    expect_status(processes(fails, "0,1", false, NULL, &no, &e), ERR_IO, "the process of GPU 0 failed", &e);
    expect(strstr(printed, "ended") && !strstr(printed, "whole"));
    expect_status(processes(fails, "0,1", true, NULL, &no, &e), ERR_IO, "the process of GPU 0 failed", &e);
    expect(strstr(printed, "whole") && !strstr(printed, "ended"));
    expect_status(processes("exit 1", "0", true, NULL, &no, &e), ERR_SOME, "reports failed pictures", &e);
    expect_status(processes("kill -9 $$", "0", true, NULL, &no, &e), ERR_DEVICE,
                  "was ended by signal 9; --resume", &e);
    expect_status(processes("trap 'echo ended; exit 130' TERM; sleep 5 & wait", "0,1", true, NULL, &yes, &e),
                  ERR_INTERRUPTED, "", &e);
}

static void test_slurm(void) {
    Cli cli = {0};
    Error e;
    expect_ok(batch_slurm(&cli, "12", "10", "4", NULL, &e), &e);
    expect(cli.shard == 2 && cli.shards == 4);
    expect_ok(batch_slurm(&cli, "6", "0", "4", "2", &e), &e);
    expect(cli.shard == 3 && cli.shards == 4);
    expect_status(batch_slurm(&cli, "7", "0", "4", "2", &e), ERR_USAGE, "task 7 is none of 4 tasks", &e);
    expect_status(batch_slurm(&cli, "8", "0", "4", "2", &e), ERR_USAGE, "needs --shard I/N", &e);
    expect_status(batch_slurm(&cli, "8", NULL, "4", NULL, &e), ERR_USAGE, "expected SLURM_ARRAY_TASK_ID", &e);
}

/* --- what is remembered --- */

static void test_memo(void) {
    Device d = device_cpu();
    Error e = {0};
    Arena work = {0};
    expect_ok(arena_open(&work, &d, "work", (size_t)40 << 20, &e), &e);
    Exec x = {.device = &d, .work = &work, .error = &e};
    Tensor t = arena_tensor(&work, U8, 1, (int64_t[]){(int64_t)(32 << 20)}); /* eight fill it */
    Memo *m = calloc(1, sizeof *m);
    bool found;
    char key[16];
    for (int i = 0; i < 12; i++) {
        if (i % 8 == 0) memo_group(m);
        expect(!memo_full(m, 1));
        memset(t.data, i, 16);
        snprintf(key, sizeof key, "%d", i);
        expect_ok(memo_put(m, &x, key, t), &e);
        expect(m->bytes <= MEMO_BYTES);
    }
    expect(!memo_full(m, 4) && memo_full(m, 5)); /* four of the second group are in */
    expect_ok(memo_get(m, &x, "4", t, &found), &e);
    expect(found && ((char *)t.data)[0] == 4 && memo_full(m, 4)); /* found again: of this group now */
    expect_ok(memo_get(m, &x, "3", t, &found), &e);
    expect(!found); /* the oldest left */
    memset(t.data, 99, 16);
    expect_ok(memo_put(m, &x, "12", t), &e);
    expect_ok(memo_get(m, &x, "4", t, &found), &e);
    expect(found);
    expect_ok(memo_get(m, &x, "5", t, &found), &e);
    expect(!found); /* least recently used */
    memo_group(m);
    expect(!memo_full(m, 8));
    memo_free(m);
    free(m);
    arena_close(&work);
}

int main(void) {
    expect_folder(folder, sizeof folder);
    test_objects();
    test_pipelines();
    test_prompts();
    test_order();
    test_journal();
    test_digest();
    test_writer();
    test_gpus();
    test_slurm();
    test_memo();
    expect_cleanup(folder);
    return expect_done();
}
