/* cuda_dnn.c - see cuda_dnn.h. The order of attributes is the one that is known to work. */
#include "kernels/cuda_dnn.h"

#ifdef HAVE_CUDA

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { MADE_MAX = 160, OPS_MAX = 24, CONFIGS_MAX = 64, TEXT = 256, ALIGNMENT = 16 };

struct CudaDnn {
    const CudaLibs *l;
    cudnnHandle_t handle;
    Error *error;  /* of the build; runs have their own */
    Status status; /* of the build so far */
    char what[96];
    CudaDnnDesc made[MADE_MAX], op[OPS_MAX];
    int made_count, op_count;
    CudaDnnDesc graph, plan;
    CudaDnnDesc config[CONFIGS_MAX], built[CONFIGS_MAX]; /* the heuristic's, and plans of them: NULL, none yet */
    int64_t configs, own;                                /* own: the first one's */
    bool tuned;
};

/* --- failures --- */

static Status dnn_fail(const CudaDnn *g, Error *e, const char *call, const char *attribute, cudnnStatus_t code) {
    char last[TEXT] = "";
    g->l->cudnnGetLastErrorString_(last, sizeof last);
    for (char *p = last; *p; p++)
        if (*p == '\n') *p = ' ';
    return fail(e, ERR_DEVICE, "%s: cuDNN %zu: %s(%s): %s (%d)%s%s", g->what, g->l->cudnnGetVersion_(), call, attribute,
                g->l->cudnnGetErrorString_(code), (int)code, *last ? ": " : "", last);
}

static bool unsupported(cudnnStatus_t code) { return code / 1000 == CUDNN_STATUS_NOT_SUPPORTED / 1000; }

/* --- descriptors --- */

CudaDnn *cuda_dnn_begin(const CudaLibs *l, cudnnHandle_t handle, Error *e, const char *format, ...) {
    CudaDnn *g = calloc(1, sizeof *g);
    if (!g) {
        fail(e, ERR_MEMORY, "out of memory");
        return NULL;
    }
    g->l = l;
    g->handle = handle;
    g->error = e;
    va_list args;
    va_start(args, format);
    vsnprintf(g->what, sizeof g->what, format, args);
    va_end(args);
    return g;
}

void cuda_dnn_free(CudaDnn *g) {
    if (!g) return;
    while (g->made_count) g->l->cudnnBackendDestroyDescriptor_(g->made[--g->made_count]);
    free(g);
}

void cuda_dnn_destroy(Cuda *c, void *graph) {
    (void)c;
    cuda_dnn_free(graph);
}

static CudaDnnDesc make(CudaDnn *g, cudnnBackendDescriptorType_t type, const char *name) {
    if (g->status != OK) return NULL;
    CudaDnnDesc d = NULL;
    cudnnStatus_t code = g->made_count < MADE_MAX ? g->l->cudnnBackendCreateDescriptor_(type, &d)
                                                  : CUDNN_STATUS_INTERNAL_ERROR;
    if (code != CUDNN_STATUS_SUCCESS) {
        g->status = dnn_fail(g, g->error, "cudnnBackendCreateDescriptor", name, code);
        return NULL;
    }
    return g->made[g->made_count++] = d;
}

static void unmake(CudaDnn *g) { g->l->cudnnBackendDestroyDescriptor_(g->made[--g->made_count]); }

static void set(CudaDnn *g, CudaDnnDesc d, cudnnBackendAttributeName_t attribute, const char *name,
                cudnnBackendAttributeType_t type, int64_t count, const void *value) {
    if (g->status != OK) return;
    cudnnStatus_t code = g->l->cudnnBackendSetAttribute_(d, attribute, type, count, value);
    if (code != CUDNN_STATUS_SUCCESS) g->status = dnn_fail(g, g->error, "cudnnBackendSetAttribute", name, code);
}

static void finalize(CudaDnn *g, CudaDnnDesc d, const char *name) {
    if (g->status != OK) return;
    cudnnStatus_t code = g->l->cudnnBackendFinalize_(d);
    if (code != CUDNN_STATUS_SUCCESS) g->status = dnn_fail(g, g->error, "cudnnBackendFinalize", name, code);
}

#define MAKE(type) make(g, type, #type)
#define SET(d, attribute, type, count, value) set(g, d, attribute, #attribute, type, count, value)
#define SET_DESC(d, attribute, value) SET(d, attribute, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &(CudaDnnDesc){value})

CudaDnnDesc cuda_dnn_tensor(CudaDnn *g, int64_t id, cudnnDataType_t t, CudaDnnKind kind, const int64_t *dims,
                            const int64_t *strides) {
    return cuda_dnn_tensor_of(g, id, t, kind, CUDA_DNN_RANK, dims, strides);
}

CudaDnnDesc cuda_dnn_tensor_of(CudaDnn *g, int64_t id, cudnnDataType_t t, CudaDnnKind kind, int rank, const int64_t *dims,
                               const int64_t *strides) {
    CudaDnnDesc d = MAKE(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    const int64_t alignment = ALIGNMENT;
    const bool yes = true;
    SET(d, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &t);
    SET(d, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, rank, dims);
    SET(d, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, rank, strides);
    SET(d, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    SET(d, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    if (kind == DNN_VIRTUAL) SET(d, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &yes);
    if (kind == DNN_BY_VALUE) SET(d, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &yes);
    finalize(g, d, "tensor");
    return d;
}

/* --- operations --- */

static void add_op(CudaDnn *g, CudaDnnDesc op, const char *name) {
    finalize(g, op, name);
    if (g->status != OK) return;
    if (g->op_count == OPS_MAX) g->status = fail(g->error, ERR_DEVICE, "%s: too many operations", g->what);
    else g->op[g->op_count++] = op;
}

void cuda_dnn_pointwise(CudaDnn *g, cudnnPointwiseMode_t mode, cudnnDataType_t math, int64_t axis, CudaDnnDesc x,
                        CudaDnnDesc b, CudaDnnDesc t, CudaDnnDesc y) {
    CudaDnnDesc d = MAKE(CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    SET(d, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    SET(d, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &math);
    if (axis >= 0) SET(d, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    finalize(g, d, "pointwise");
    CudaDnnDesc op = MAKE(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    SET_DESC(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, d);
    SET_DESC(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b) SET_DESC(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    SET_DESC(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    if (t) SET_DESC(op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    add_op(g, op, "pointwise operation");
}

void cuda_dnn_reduce(CudaDnn *g, cudnnReduceTensorOp_t what, CudaDnnDesc x, CudaDnnDesc y) {
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    CudaDnnDesc d = MAKE(CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    SET(d, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &f32);
    SET(d, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &what);
    finalize(g, d, "reduction");
    CudaDnnDesc op = MAKE(CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    SET_DESC(op, CUDNN_ATTR_OPERATION_REDUCTION_DESC, d);
    SET_DESC(op, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    SET_DESC(op, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    add_op(g, op, "reduction operation");
}

void cuda_dnn_matmul(CudaDnn *g, CudaDnnDesc a, CudaDnnDesc b, CudaDnnDesc c) {
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    CudaDnnDesc d = MAKE(CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    SET(d, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &f32);
    finalize(g, d, "matmul");
    CudaDnnDesc op = MAKE(CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    SET_DESC(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    SET_DESC(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    SET_DESC(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    SET_DESC(op, CUDNN_ATTR_OPERATION_MATMUL_DESC, d);
    add_op(g, op, "matmul operation");
}

void cuda_dnn_sdpa(CudaDnn *g, CudaDnnDesc q, CudaDnnDesc k, CudaDnnDesc v, CudaDnnDesc o, CudaDnnDesc scale) {
    CudaDnnDesc op = MAKE(CUDNN_BACKEND_OPERATION_SDPA_FWD_DESCRIPTOR);
    SET_DESC(op, CUDNN_ATTR_OPERATION_SDPA_FWD_QDESC, q);
    SET_DESC(op, CUDNN_ATTR_OPERATION_SDPA_FWD_KDESC, k);
    SET_DESC(op, CUDNN_ATTR_OPERATION_SDPA_FWD_VDESC, v);
    SET_DESC(op, CUDNN_ATTR_OPERATION_SDPA_FWD_ODESC, o);
    SET_DESC(op, CUDNN_ATTR_OPERATION_SDPA_FWD_SCALEDESC, scale);
    add_op(g, op, "SDPA operation");
}

void cuda_dnn_conv(CudaDnn *g, CudaDnnDesc x, CudaDnnDesc w, CudaDnnDesc y, int dims, const int64_t *strides,
                   const int64_t *pre, const int64_t *post) {
    const cudnnDataType_t f32 = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t spatial = dims, dilation[] = {1, 1, 1};
    const float one = 1, zero = 0;
    CudaDnnDesc d = MAKE(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    SET(d, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &f32);
    SET(d, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    SET(d, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &spatial);
    SET(d, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, dims, pre);
    SET(d, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, dims, post);
    SET(d, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, dims, dilation);
    SET(d, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, dims, strides);
    finalize(g, d, "convolution");
    CudaDnnDesc op = MAKE(CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
    SET_DESC(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X, x);
    SET_DESC(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, w);
    SET_DESC(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y, y);
    SET_DESC(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, d);
    SET(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_TYPE_FLOAT, 1, &one);
    SET(op, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, CUDNN_TYPE_FLOAT, 1, &zero);
    add_op(g, op, "convolution operation");
}

/* --- plan --- */

static bool engine_refused(CudaDnn *g, CudaDnnDesc config, unsigned refuse) {
    if (!refuse) return false;
    CudaDnnDesc engine = MAKE(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    if (!engine) return true;
    int64_t count = 0;
    cudnnBackendNumericalNote_t note[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnStatus_t code = g->l->cudnnBackendGetAttribute_(config, CUDNN_ATTR_ENGINECFG_ENGINE,
                                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, &engine);
    if (code == CUDNN_STATUS_SUCCESS)
        code = g->l->cudnnBackendGetAttribute_(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                               CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, note);
    bool refused = code != CUDNN_STATUS_SUCCESS;
    for (int64_t i = 0; !refused && i < count; i++) refused = refuse >> note[i] & 1;
    unmake(g);
    return refused;
}

/* The plan of one configuration: true when it stays. Statuses of what fails go to `last`. */
static bool try_config(CudaDnn *g, CudaDnnDesc config, size_t workspace, cudnnStatus_t *last, int64_t *wanted) {
    CudaDnnDesc plan = MAKE(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    if (!plan) return false;
    int64_t need = 0, count = 0;
    cudnnStatus_t code = g->l->cudnnBackendSetAttribute_(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                                         CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &config);
    if (code == CUDNN_STATUS_SUCCESS) code = g->l->cudnnBackendFinalize_(plan);
    if (code == CUDNN_STATUS_SUCCESS)
        code = g->l->cudnnBackendGetAttribute_(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                               &need);
    if (code == CUDNN_STATUS_SUCCESS && (uint64_t)need <= workspace) {
        g->plan = plan;
        return true;
    }
    if (code != CUDNN_STATUS_SUCCESS) *last = code;
    else if (!*wanted || need < *wanted) *wanted = need;
    unmake(g);
    return false;
}

/* The heuristic's configurations, in its order. They belong to the graph; the count is 0 when it knows none. */
static Status configurations(CudaDnn *g, CudaDnnDesc *config, int64_t *count, cudnnStatus_t *last) {
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    *count = 0;
    CudaDnnDesc heur = MAKE(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    SET_DESC(heur, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, g->graph);
    SET(heur, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    TRY(g->status);
    int64_t announced = 0;
    cudnnStatus_t code = g->l->cudnnBackendFinalize_(heur);
    if (code == CUDNN_STATUS_SUCCESS)
        code = g->l->cudnnBackendGetAttribute_(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, 0,
                                               &announced, NULL);
    if (code == CUDNN_STATUS_SUCCESS && announced > 0) {
        if (announced > CONFIGS_MAX) announced = CONFIGS_MAX;
        for (int64_t i = 0; i < announced; i++) config[i] = MAKE(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        TRY(g->status);
        code = g->l->cudnnBackendGetAttribute_(heur, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                               announced, count, config);
    }
    *last = code;
    if (code == CUDNN_STATUS_SUCCESS) return OK;
    *count = 0;
    return unsupported(code) ? OK : dnn_fail(g, g->error, "heuristics", "CUDNN_HEUR_MODE_A", code);
}

bool cuda_dnn_ready(const CudaDnn *g) { return g->plan != NULL; }

Status cuda_dnn_plan(CudaDnn *g, unsigned refuse, size_t workspace, char *why, size_t why_size) {
    g->graph = MAKE(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    SET(g->graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, g->op_count, g->op);
    if (g->handle) SET(g->graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &g->handle);
    finalize(g, g->graph, "operation graph");
    if (g->status != OK || !g->handle) return g->status;
    CudaDnnDesc *config = g->config;
    int64_t count = 0, wanted = 0, refused = 0;
    cudnnStatus_t last = CUDNN_STATUS_SUCCESS;
    TRY(g->status = configurations(g, config, &count, &last));
    g->configs = count;
    for (int64_t i = 0; i < count && !g->plan; i++) {
        if (engine_refused(g, config[i], refuse)) refused++;
        else if (try_config(g, config[i], workspace, &last, &wanted)) g->built[i] = g->plan, g->own = i;
        TRY(g->status);
    }
    if (g->plan || !why) return OK;
    char text[TEXT] = "";
    g->l->cudnnGetLastErrorString_(text, sizeof text);
    snprintf(why, why_size,
             "%s: cuDNN %zu has no engine: %lld configurations, %lld refused for their numerics, least workspace over "
             "the limit %lld, last status %s: %s",
             g->what, g->l->cudnnGetVersion_(), (long long)count, (long long)refused, (long long)wanted,
             g->l->cudnnGetErrorString_(last), text);
    return OK;
}

/* --- other configurations --- */

/* Its plan, made when there is none. What fails is no failure: the plan in use stays. */
static bool build(CudaDnn *g, int64_t i, unsigned refuse, size_t workspace, Error *e) {
    CudaDnnDesc plan = g->plan;
    cudnnStatus_t last;
    int64_t wanted = 0;
    if (i < 0 || i >= g->configs) return false;
    if (g->built[i]) return true;
    g->error = e;
    if (!engine_refused(g, g->config[i], refuse) && try_config(g, g->config[i], workspace, &last, &wanted)) g->built[i] = g->plan;
    g->plan = plan;
    g->status = OK;
    return g->built[i] != NULL;
}

int cuda_dnn_others(CudaDnn *g, unsigned refuse, size_t workspace, int32_t *config, int most, Error *e) {
    int count = 0;
    for (int64_t i = g->own; i < g->configs && count < most && g->plan; i++)
        if (build(g, i, refuse, workspace, e)) config[count++] = (int32_t)i;
    return count;
}

bool cuda_dnn_take(CudaDnn *g, int32_t config, unsigned refuse, size_t workspace, Error *e) {
    if (!build(g, config, refuse, workspace, e)) return false;
    g->plan = g->built[config];
    return true;
}

bool *cuda_dnn_tuned(CudaDnn *g) { return &g->tuned; }

/* --- running --- */

Status cuda_dnn_run(Exec *x, CudaDnn *g, void *workspace, int count, const int64_t *ids, void *const *pointers) {
    const CudaLibs *l = g->l;
    CudaDnnDesc pack = NULL;
    const char *call = "cudnnBackendCreateDescriptor", *attribute = "CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR";
    cudnnStatus_t code = l->cudnnBackendCreateDescriptor_(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
#define STEP(function, name, ...)                                                                        \
    if (code == CUDNN_STATUS_SUCCESS) {                                                                  \
        call = #function;                                                                                \
        attribute = name;                                                                                \
        code = l->function##_(__VA_ARGS__);                                                              \
    }
    STEP(cudnnBackendSetAttribute, "CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS", pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS,
         CUDNN_TYPE_INT64, count, ids)
    STEP(cudnnBackendSetAttribute, "CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS", pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS,
         CUDNN_TYPE_VOID_PTR, count, pointers)
    STEP(cudnnBackendSetAttribute, "CUDNN_ATTR_VARIANT_PACK_WORKSPACE", pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE,
         CUDNN_TYPE_VOID_PTR, 1, &workspace)
    STEP(cudnnBackendFinalize, "variant pack", pack)
    STEP(cudnnBackendExecute, "plan", x->cuda->dnn, g->plan, pack)
#undef STEP
    /* A plan of the preparing thread belongs to no handle by all that is known; should that change, its own runs it. */
    if (code != CUDNN_STATUS_SUCCESS && g->handle != x->cuda->dnn && pack &&
        l->cudnnSetStream_(g->handle, x->cuda->stream) == CUDNN_STATUS_SUCCESS)
        code = l->cudnnBackendExecute_(g->handle, g->plan, pack);
    Status s = code == CUDNN_STATUS_SUCCESS ? OK : dnn_fail(g, x->error, call, attribute, code);
    if (pack) l->cudnnBackendDestroyDescriptor_(pack);
    return s;
}

#endif
