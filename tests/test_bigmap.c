/* test_bigmap.c - an 8 GB checkpoint is bound and every matrix of it goes through linear, with less than 2 GB of
 * anonymous memory at any time: weights stay mapped in their disk dtype, and linear widens tiles, never tensors.
 *
 * The two shards are sparse files: holes read as zeros, and the few values that are written at known places prove that
 * the products come from the files. CHECK_FULL runs all matrices; otherwise every seventh (the files stay 8 GB, all
 * dtypes occur).
 * Easy to get wrong: holes of a tmpfs file take memory when read, so the files lie in build/, not in /tmp. RssAnon counts
 * what cannot be given back; pages of the file are RssFile and can. */
#include "core/weights.h"
#include "expect.h"
#include "kernels/unary.h"
#include "ops.h"

#include <pthread.h>
#include <stdatomic.h>

enum { N = 8192, K = 8192, M = 4, SHARDS = 2, PER_SHARD = 24, COUNT = SHARDS * PER_SHARD };

static DType dtype_of(int i) { return i % 3 == 0 ? F32 : i % 3 == 1 ? BF16 : F16; }

/* Anonymous resident bytes of this process. */
static size_t rss_anon(void) {
    FILE *f = fopen("/proc/self/status", "r");
    char line[200];
    unsigned long long kib = 0;
    while (f && fgets(line, sizeof line, f)) sscanf(line, "RssAnon: %llu", &kib);
    if (f) fclose(f);
    return (size_t)kib * 1024;
}

typedef struct Watch {
    atomic_size_t peak;
    atomic_int stop;
} Watch;

static void note_peak(Watch *w) {
    size_t now = rss_anon();
    if (now > atomic_load(&w->peak)) atomic_store(&w->peak, now);
}

static void *watch(void *user) {
    Watch *w = user;
    while (!atomic_load(&w->stop)) note_peak(w), usleep(2000);
    return NULL;
}

/* Matrix i: w[row_of(i), column_of(i)] = 1.5 + i, zero elsewhere; its bias is zero but for bias[1] = 2. */
static int64_t row_of(int i) { return (i * 1237 + 11) % N; }
static int64_t column_of(int i) { return (i * 3571 + 5) % K; }

static void put(FILE *f, uint64_t at, float value, DType t) {
    uint16_t half = t == BF16 ? bf16_from_f32(value) : f16_from_f32(value);
    fseeko(f, (off_t)at, SEEK_SET);
    if (t == F32)
        fwrite(&value, 4, 1, f);
    else
        fwrite(&half, 2, 1, f);
}

/* Writes one shard and returns its payload bytes. */
static uint64_t make_shard(const char *folder, int shard) {
    char path[600], header[PER_SHARD * 300], *at = header;
    uint64_t end = 0, from[PER_SHARD], bias[PER_SHARD];
    at += sprintf(at, "{");
    for (int k = 0; k < PER_SHARD; k++) {
        DType t = dtype_of(shard * PER_SHARD + k);
        from[k] = end;
        bias[k] = end + (uint64_t)N * K * dtype_size(t);
        end = bias[k] + N * dtype_size(t);
        at += sprintf(at,
                      "%s\"l.%d.weight\":{\"dtype\":\"%s\",\"shape\":[%d,%d],\"data_offsets\":[%llu,%llu]},"
                      "\"l.%d.bias\":{\"dtype\":\"%s\",\"shape\":[%d],\"data_offsets\":[%llu,%llu]}",
                      k ? "," : "", shard * PER_SHARD + k, dtype_name(t), N, K, (unsigned long long)from[k],
                      (unsigned long long)bias[k], shard * PER_SHARD + k, dtype_name(t), N,
                      (unsigned long long)bias[k], (unsigned long long)end);
    }
    at += sprintf(at, "}");
    while ((at - header) % 8 != 3) *at++ = ' '; /* payload at an odd address */
    uint64_t length = (uint64_t)(at - header);
    snprintf(path, sizeof path, "%s/model-%d.safetensors", folder, shard);
    FILE *f = fopen(path, "wb");
    if (!f) abort();
    for (int i = 0; i < 8; i++) fputc((int)(length >> 8 * i & 255), f);
    fwrite(header, 1, length, f);
    for (int k = 0; k < PER_SHARD; k++) {
        int i = shard * PER_SHARD + k;
        DType t = dtype_of(i);
        put(f, 8 + length + from[k] + (uint64_t)(row_of(i) * K + column_of(i)) * dtype_size(t),
            1.5f + (float)i, t);
        put(f, 8 + length + bias[k] + dtype_size(t), 2.0f, t);
    }
    if (fclose(f) || truncate(path, (off_t)(8 + length + end))) abort();
    return end;
}

static void make_checkpoint(const char *folder) {
    char index[COUNT * 120], *at = index;
    uint64_t total = 0;
    for (int s = 0; s < SHARDS; s++) total += make_shard(folder, s);
    at += sprintf(at, "{\"metadata\":{\"total_size\":%llu},\"weight_map\":{", (unsigned long long)total);
    for (int i = 0; i < COUNT; i++)
        at += sprintf(at, "%s\"l.%d.weight\":\"model-%d.safetensors\",\"l.%d.bias\":\"model-%d.safetensors\"",
                      i ? "," : "", i, i / PER_SHARD, i, i / PER_SHARD);
    sprintf(at, "}}");
    expect_text(folder, "model.safetensors.index.json", index);
    printf("checkpoint: %.2f GB\n", (double)total / 1e9);
    expect(total >= 8000000000u);
}

/* y = x . w^T + b for one matrix; x[m, k] = m + 1 at the column that holds the value. */
static void run_one(Exec *x, const Weight *w, int i) {
    size_t mark = arena_mark(x->work);
    Tensor in = exec_new_as(x, F32, M, K), out = exec_new_as(x, F32, M, N);
    memset(in.data, 0, tensor_bytes(in));
    float *a = in.data, *y = out.data;
    for (int m = 0; m < M; m++) a[m * K + column_of(i)] = (float)(m + 1);
    Status status = op_linear(x, &(Linear){.y = out, .x = in, .w = w});
    if (status != OK) printf("%s\n", x->error->text);
    expect(status == OK);
    int wrong = 0;
    for (int m = 0; m < M && status == OK; m++)
        for (int64_t n = 0; n < N; n++)
            wrong += y[m * N + n] !=
                     (n == row_of(i) ? (float)(m + 1) * (1.5f + (float)i) : 0.0f) + (n == 1 ? 2.0f : 0.0f);
    expect(wrong == 0);
    arena_reset(x->work, mark);
}

int main(void) {
    char folder[] = "build/bigmap-XXXXXX", here[] = "bigmap-XXXXXX", *dir = mkdtemp(folder);
    if (!dir) dir = mkdtemp(here);
    if (!dir) abort();
    make_checkpoint(dir);
    Watch w = {0};
    pthread_t thread;
    if (pthread_create(&thread, NULL, watch, &w)) abort();

    static Weight weight[COUNT]; /* lint: allow-static (test program) */
    Error e = {0};
    Bind rows = {.prefix = "l."};
    for (int i = 0; i < COUNT; i++) bind_linear(&rows, &weight[i], N, K, true, "%d", i);
    WeightFiles *files;
    Device cpu = device_cpu();
    Arena region, work, scratch;
    Calls calls = {0};
    Ops ops = {0};
    Unary unary;
    size_t bytes = 0, mapped = 0;
    ops_cpu(&ops);
    expect_ok(weights_open(dir, &files, &e), &e);
    expect_ok(weights_measure(files, &rows, F32, NULL, &bytes, &mapped, &e), &e);
    expect(mapped >= 8000000000u - 100000000u && bytes < 10000000);
    expect_ok(arena_open(&region, &cpu, "weights", bytes, &e), &e);
    expect_ok(arena_open(&work, &cpu, "work", 64 << 20, &e), &e);
    expect_ok(arena_open(&scratch, &cpu, "scratch", (size_t)2 << 30, &e), &e);
    expect_ok(weights_bind(files, &rows, F32, &region, NULL, &e), &e);
    expect_ok(unary_open(&unary, &e), &e);
    Exec x = {.ops = &ops,
              .device = &cpu,
              .calls = &calls,
              .work = &work,
              .scratch = &scratch,
              .error = &e,
              .dtype = F32,
              .unary = &unary};
    int step = getenv("CHECK_FULL") && *getenv("CHECK_FULL") ? 1 : 7;
    for (int i = 0; i < COUNT; i += step) run_one(&x, &weight[i], i);
    note_peak(&w);
    atomic_store(&w.stop, 1);
    pthread_join(thread, NULL);
    size_t peak = atomic_load(&w.peak);
    printf("peak anonymous memory: %.1f MB\n", (double)peak / 1e6);
    expect(peak > 100000 && peak < 2000000000u);
    unary_close(&unary);
    calls_free(&calls);
    arena_close(&scratch);
    arena_close(&work);
    arena_close(&region);
    bind_free(&rows);
    weights_close(files);
    expect_cleanup(dir);
    return expect_done();
}
