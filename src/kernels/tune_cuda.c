/* tune_cuda.c - see tune_cuda.h. */
#include "kernels/tune_cuda.h"

#include "core/file.h"
#include "core/tuned.h"

#ifndef HAVE_CUDA

Status tune_cuda_open(Cuda *c, TuneMode mode, const char *file, char *note, size_t size, Error *e) {
    (void)c, (void)mode, (void)file;
    if (size) *note = 0;
    return fail(e, ERR_DEVICE, "this ditto was built without CUDA: there are no products to tune");
}
Status tune_cuda_save(const Cuda *c, const char *file, Error *e) {
    (void)c, (void)file;
    return fail(e, ERR_DEVICE, "this ditto was built without CUDA: there are no products to tune");
}
const TuneResult *tune_cuda_results(const Cuda *c, int *count) {
    (void)c;
    *count = 0;
    return NULL;
}
int tune_cuda_used(const Cuda *c) {
    (void)c;
    return 0;
}
void tune_cuda_close(Cuda *c) { (void)c; }

#else

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CANDIDATES = TUNE_CANDIDATES, ROUNDS = 9, FINAL_ROUNDS = 31 };
static const double WORTH = 0.99; /* a winner takes at most this much of the first one's time: less is noise */

struct Tune {
    TuneMode mode;
    Tuned table;
    TuneResult *result;
    int results, result_cap, used;
    void *flush; /* written before each timed launch */
    size_t flush_bytes;
    cudaEvent_t begin, end;
};

/* One algorithm for the product at hand. */
typedef struct Candidate {
    int index; /* of a product with a launch of its own */
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
    double time[FINAL_ROUNDS], median; /* seconds */
    bool failed;
} Candidate;

static void tune_free(struct Tune *t) {
    if (!t) return;
    tuned_close(&t->table);
    if (t->flush) cudaFree(t->flush);
    if (t->begin) cudaEventDestroy(t->begin);
    if (t->end) cudaEventDestroy(t->end);
    free(t->result);
    free(t);
}

void tune_cuda_close(Cuda *c) {
    tune_free(c->tune);
    c->tune = NULL;
}

static Status machine_of(Cuda *c, char *out, size_t size, Error *e) {
    struct cudaDeviceProp p;
    int device = 0, driver = 0;
    TRY(cuda_need_lt(c, e));
    if (cudaGetDevice(&device) != cudaSuccess || cudaGetDeviceProperties(&p, device) != cudaSuccess ||
        cudaDriverGetVersion(&driver) != cudaSuccess)
        return fail(e, ERR_DEVICE, "cuda: the card does not say what it is");
    snprintf(out, size, "%s %d SMs, driver %d, cuBLASLt %zu", p.name, p.multiProcessorCount, driver,
             c->libs.cublasLtGetVersion_());
    return OK;
}

static Status open_trying(struct Tune *t, Error *e) {
    int l2 = 0, device = 0;
    cudaError_t code = cudaGetDevice(&device);
    if (code == cudaSuccess) code = cudaDeviceGetAttribute(&l2, cudaDevAttrL2CacheSize, device);
    t->flush_bytes = 2 * (size_t)l2 + 1;
    if (code == cudaSuccess) code = cudaEventCreate(&t->begin);
    if (code == cudaSuccess) code = cudaEventCreate(&t->end);
    if (code == cudaSuccess) code = cudaMalloc(&t->flush, t->flush_bytes);
    if (code == cudaErrorMemoryAllocation) return fail(e, ERR_MEMORY, "tuning: %s", cudaGetErrorString(code));
    return code == cudaSuccess ? OK : fail(e, ERR_DEVICE, "tuning: %s", cudaGetErrorString(code));
}

Status tune_cuda_open(Cuda *c, TuneMode mode, const char *file, char *note, size_t size, Error *e) {
    char machine[400];
    TRY(machine_of(c, machine, sizeof machine, e));
    struct Tune *t = calloc(1, sizeof *t);
    if (!t) return fail(e, ERR_MEMORY, "out of memory");
    t->mode = mode;
    Status s = tuned_open(&t->table, "tuned", machine, e);
    if (s == OK) s = tuned_read(&t->table, file, note, size, e);
    if (s == OK && !file_exists(file)) snprintf(note, size, "%s: not there; ditto bench --tune makes it", file);
    if (s == OK && mode == TUNE_TRY) s = open_trying(t, e);
    if (s != OK) {
        tune_free(t);
        return s;
    }
    tune_cuda_close(c);
    c->tune = t;
    return OK;
}

Status tune_cuda_save(const Cuda *c, const char *file, Error *e) { return tuned_write(&c->tune->table, file, e); }

const TuneResult *tune_cuda_results(const Cuda *c, int *count) {
    *count = c && c->tune ? c->tune->results : 0;
    return *count ? c->tune->result : NULL;
}

int tune_cuda_used(const Cuda *c) { return c && c->tune ? c->tune->used : 0; }

/* --- one product --- */

/* 0: it does not say. */
static uint32_t splits(Cuda *c, const cublasLtMatmulAlgo_t *algo) {
    uint32_t n = 0;
    size_t written;
    cublasStatus_t code =
        c->libs.cublasLtMatmulAlgoConfigGetAttribute_(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &n, sizeof n, &written);
    return code == CUBLAS_STATUS_SUCCESS ? n : 0;
}

/* Whether the algorithm may stand in for the plan's own: it does these layouts in the workspace there is, and splits alike. */
static bool may_replace(Cuda *c, const TunePlan *p, const cublasLtMatmulAlgo_t *algo, size_t *workspace) {
    cublasLtMatmulHeuristicResult_t found = {.workspaceSize = 0};
    uint32_t split = splits(c, p->algo);
    if (!split || splits(c, algo) != split) return false;
    cublasStatus_t code = c->libs.cublasLtMatmulAlgoCheck_(c->lt, p->product, p->w, p->x, p->y, p->y, algo, &found);
    *workspace = found.workspaceSize;
    return code == CUBLAS_STATUS_SUCCESS && found.workspaceSize <= CUDA_BLAS_WORKSPACE;
}

static bool launch(Cuda *c, const TunePlan *p, const Candidate *k) {
    const float one = 1, zero = 0;
    if (p->launch) return p->launch(p->self, k->index);
    return c->libs.cublasLtMatmul_(c->lt, p->product, &one, p->w_data, p->w, p->x_data, p->x, &zero, p->y_data, p->y, p->y_data,
                                   p->y, &k->algo, c->workspace, k->workspace, c->stream) == CUBLAS_STATUS_SUCCESS;
}

/* Candidate 0 is the reference. */
static int candidates_of(Cuda *c, const TunePlan *p, Candidate *out) {
    if (p->launch) {
        for (int i = 0; i < p->candidates; i++) out[i] = (Candidate){.index = i};
        return p->candidates;
    }
    cublasLtMatmulPreference_t wish = NULL;
    cublasLtMatmulHeuristicResult_t *found = calloc(CANDIDATES, sizeof *found);
    uint64_t limit = CUDA_BLAS_WORKSPACE;
    uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; /* as the reference: split sums meet in f32 */
    uint32_t w = (uint32_t)p->align_w, in = (uint32_t)p->align_x, y = (uint32_t)p->align_y;
    const struct { cublasLtMatmulPreferenceAttributes_t name; const void *value; size_t size; } wishes[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &limit, sizeof limit},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &w, sizeof w}, {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &in, sizeof in},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &y, sizeof y}, {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &y, sizeof y},
    };
    int count = 0, kept = 1;
    out[0] = (Candidate){.algo = *p->algo, .workspace = *p->workspace};
    bool good = found && c->libs.cublasLtMatmulPreferenceCreate_(&wish) == CUBLAS_STATUS_SUCCESS;
    for (size_t i = 0; good && i < sizeof wishes / sizeof *wishes; i++)
        good = c->libs.cublasLtMatmulPreferenceSetAttribute_(wish, wishes[i].name, wishes[i].value, wishes[i].size) ==
               CUBLAS_STATUS_SUCCESS;
    if (good && c->libs.cublasLtMatmulAlgoGetHeuristic_(c->lt, p->product, p->w, p->x, p->y, p->y, wish, CANDIDATES, found,
                                                        &count) != CUBLAS_STATUS_SUCCESS)
        count = 0;
    for (int i = 0; i < count && kept < CANDIDATES; i++) {
        size_t workspace;
        if (found[i].state != CUBLAS_STATUS_SUCCESS || !memcmp(&found[i].algo, p->algo, sizeof *p->algo) ||
            !may_replace(c, p, &found[i].algo, &workspace))
            continue;
        out[kept++] = (Candidate){.algo = found[i].algo, .workspace = workspace};
    }
    if (wish) c->libs.cublasLtMatmulPreferenceDestroy_(wish);
    free(found);
    return kept;
}

static int by_size(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One launch with an empty L2. False: the device failed; an algorithm that cannot be launched is marked. */
static bool time_once(Cuda *c, const TunePlan *p, Candidate *k, int round) {
    struct Tune *t = c->tune;
    float ms = 0;
    if (k->failed) return true;
    if (cudaMemsetAsync(t->flush, round, t->flush_bytes, c->stream) != cudaSuccess) return false;
    if (cudaEventRecord(t->begin, c->stream) != cudaSuccess) return false;
    k->failed = !launch(c, p, k);
    if (cudaEventRecord(t->end, c->stream) != cudaSuccess || cudaEventSynchronize(t->end) != cudaSuccess) return false;
    if (cudaEventElapsedTime(&ms, t->begin, t->end) != cudaSuccess) return false;
    k->time[round] = (double)ms * 1e-3;
    return true;
}

/* Candidates take turns, so that a clock that falls falls for all. */
static bool time_all(Cuda *c, const TunePlan *p, Candidate **k, int count, int rounds) {
    for (int i = 0; i < count; i++)
        if (!k[i]->failed) k[i]->failed = !launch(c, p, k[i]); /* its first launch loads its code */
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < count; i++)
            if (!time_once(c, p, k[i], round)) return false;
    for (int i = 0; i < count; i++) {
        qsort(k[i]->time, (size_t)rounds, sizeof *k[i]->time, by_size);
        k[i]->median = k[i]->failed ? 1e9 : k[i]->time[rounds / 2];
    }
    return true;
}

/* y as this algorithm makes it; what was there before is overwritten with other bytes first. */
static bool result_of(Cuda *c, const TunePlan *p, const Candidate *k, char *out) {
    size_t rows = (size_t)p->rows;
    if (cudaMemset2DAsync(p->y_data, p->pitch, 0xa5, p->row_bytes, rows, c->stream) != cudaSuccess) return false;
    if (!launch(c, p, k)) return false;
    if (cudaMemcpy2DAsync(out, p->row_bytes, p->y_data, p->pitch, p->row_bytes, rows, cudaMemcpyDeviceToHost, c->stream) !=
        cudaSuccess)
        return false;
    return cudaStreamSynchronize(c->stream) == cudaSuccess;
}

/* Twice the very bytes of the reference. */
static bool same_bits(Cuda *c, const TunePlan *p, const Candidate *reference, const Candidate *k) {
    size_t bytes = p->row_bytes * (size_t)p->rows;
    char *a = malloc(bytes), *b = malloc(bytes);
    bool same = a && b && result_of(c, p, reference, a);
    for (int i = 0; same && i < 2; i++) same = result_of(c, p, k, b) && !memcmp(a, b, bytes);
    free(a);
    free(b);
    return same;
}

static Status note_result(struct Tune *t, const TuneResult *r, Error *e) {
    if (t->results == t->result_cap) {
        int cap = t->result_cap ? 2 * t->result_cap : 64;
        TuneResult *more = realloc(t->result, (size_t)cap * sizeof *more);
        if (!more) return fail(e, ERR_MEMORY, "out of memory for the results of tuning");
        t->result = more, t->result_cap = cap;
    }
    t->result[t->results++] = *r;
    return OK;
}

static int fastest(Candidate **k, int count) {
    int best = -1;
    for (int i = 1; i < count; i++)
        if (!k[i]->failed && (best < 0 || k[i]->median < k[best]->median)) best = i;
    return best;
}

static Status device_failed(Exec *x, const TunePlan *p) {
    return fail(x->error, ERR_DEVICE, "tuning %s: %s", p->label, cudaGetErrorString(cudaGetLastError()));
}

static Status try_plan(Exec *x, const TunePlan *p) {
    Cuda *c = x->cuda;
    struct Tune *t = c->tune;
    Candidate *all = calloc(CANDIDATES, sizeof *all), *turn[CANDIDATES];
    if (!all) return fail(x->error, ERR_MEMORY, "out of memory for tuning");
    int count = candidates_of(c, p, all), best;
    for (int i = 0; i < count; i++) turn[i] = &all[i];
    TuneResult r = {.candidates = count};
    snprintf(r.label, sizeof r.label, "%s", p->label);
    bool alive = time_all(c, p, turn, count, ROUNDS);
    r.first = r.best = all[0].median;
    tuned_drop(&t->table, p->key, p->key_size);
    Status s = OK;
    while (alive && !r.kept && (best = fastest(turn, count)) > 0 && turn[best]->median < WORTH * all[0].median) {
        Candidate *pair[2] = {&all[0], turn[best]};
        bool same = same_bits(c, p, pair[0], pair[1]);
        alive = same ? time_all(c, p, pair, 2, FINAL_ROUNDS) : cudaStreamSynchronize(c->stream) == cudaSuccess;
        if (same && alive && pair[1]->median < WORTH * pair[0]->median) {
            r.kept = true, r.first = pair[0]->median, r.best = pair[1]->median;
            const void *value = p->launch ? (const void *)&p->value[pair[1]->index] : &pair[1]->algo;
            size_t size = p->launch ? sizeof *p->value : sizeof pair[1]->algo;
            if (p->launch) *p->choice = p->value[pair[1]->index];
            else *p->algo = pair[1]->algo, *p->workspace = pair[1]->workspace;
            s = tuned_put(&t->table, p->key, p->key_size, value, size, p->label, r.first * 1e6, r.best * 1e6, x->error);
            t->used++;
        }
        pair[1]->failed = true; /* tried */
    }
    r.first *= 1e6, r.best *= 1e6;
    free(all);
    if (!alive) return device_failed(x, p);
    return s == OK ? note_result(t, &r, x->error) : s;
}

bool tune_cuda_tries(const Cuda *c) { return c->tune && c->tune->mode == TUNE_TRY; }

Status tune_cuda_plan(Exec *x, const TunePlan *p) {
    Cuda *c = x->cuda;
    struct Tune *t = c->tune;
    if (p->key_size > TUNED_KEY) return OK;
    if (t->mode == TUNE_TRY) return try_plan(x, p);
    const TunedEntry *n = tuned_find(&t->table, p->key, p->key_size);
    cublasLtMatmulAlgo_t algo;
    size_t workspace;
    if (p->launch) {
        if (n && n->value_size == sizeof *p->choice) memcpy(p->choice, n->value, sizeof *p->choice), t->used++;
        return OK;
    }
    if (!n || n->value_size != sizeof algo) return OK;
    memcpy(&algo, n->value, sizeof algo);
    if (!may_replace(c, p, &algo, &workspace)) return OK;
    *p->algo = algo, *p->workspace = workspace;
    t->used++;
    return OK;
}

#endif
