/* test_cuda_graphs.c - the cuDNN graphs of attention and convolution, built and finalized where no GPU is needed.
 *
 * cuDNN checks shapes, strides, types and the links between operations when a descriptor is finalized, with no driver
 * present; heuristics and plans need a card and are checkop's. Each good graph must finalize, each bad one must be refused
 * with a message that names the call. Skipped, and said so, where cuDNN or CUDA is absent. */
#include "kernels/attention_cuda.h"
#include "kernels/conv_cuda.h"

#include <stdio.h>
#include <string.h>

#ifndef HAVE_CUDA

int main(void) {
    printf("0 passed, 0 failed (built without CUDA)\n");
    return 0;
}

#else

typedef struct Tally { int passed, failed; } Tally;

static void expect(Tally *t, bool ok, const char *what, const Error *e) {
    t->passed += ok;
    t->failed += !ok;
    if (!ok) printf("FAIL %s: %s\n", what, e->text);
}

/* A [tokens, heads, E] view; gap: elements between heads of a token beyond E. Never read. */
static Tensor view(int64_t tokens, int64_t heads, int64_t e, int64_t gap) {
    Tensor t = tensor_of((void *)4096, BF16, tokens, heads, e);
    t.stride[1] += gap;
    t.stride[0] = heads * t.stride[1];
    return t;
}

static void attention(Tally *t, const CudaLibs *l) {
    static const struct {
        int64_t tq, tk, h, hk, e, gap;
        int mask;
        AttentionGraph form;
        bool good;
        int64_t bias; /* keys that it is for; 0: none */
        bool pairs;   /* a row for each query */
    } CASE[] = {
        {4608, 4608, 24, 24, 128, 0, MASK_NONE, ATTENTION_UNIFIED, true, 0, false},
        {4608, 4608, 24, 24, 128, 256, MASK_NONE, ATTENTION_UNIFIED, true, 0, false},
        {126, 1024, 32, 32, 64, 0, MASK_NONE, ATTENTION_UNIFIED, true, 0, false},
        {1, 1, 1, 1, 8, 0, MASK_NONE, ATTENTION_UNIFIED, true, 0, false},
        {4608, 4608, 24, 24, 128, 0, MASK_NONE, ATTENTION_COMPOSITE, true, 0, false},
        {77, 77, 12, 12, 64, 0, MASK_CAUSAL, ATTENTION_COMPOSITE, true, 0, false},
        {512, 512, 32, 8, 128, 0, MASK_CAUSAL, ATTENTION_COMPOSITE, true, 0, false},
        {512, 512, 32, 8, 128, 64, MASK_NONE, ATTENTION_COMPOSITE, true, 0, false},
        {512, 512, 32, 5, 128, 0, MASK_NONE, ATTENTION_COMPOSITE, false, 0, false}, /* heads do not divide */
        {7800, 300, 20, 20, 112, 0, MASK_NONE, ATTENTION_COMPOSITE, true, 300, false},
        {1024, 1024, 16, 8, 256, 0, MASK_NONE, ATTENTION_COMPOSITE, true, 1024, true},
    };
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        Attention a = {.q = view(CASE[i].tq, CASE[i].h, CASE[i].e, CASE[i].gap),
                       .k = view(CASE[i].tk, CASE[i].hk, CASE[i].e, 0),
                       .v = view(CASE[i].tk, CASE[i].hk, CASE[i].e, CASE[i].gap),
                       .o = view(CASE[i].tq, CASE[i].h, CASE[i].e, 0),
                       .scale = 0.125f, .mask = CASE[i].mask};
        if (CASE[i].bias) a.bias = tensor_of((void *)4096, BF16, CASE[i].bias);
        if (CASE[i].pairs) a.bias = tensor_of((void *)4096, BF16, CASE[i].tq, CASE[i].bias);
        Error e = {0};
        char what[64];
        snprintf(what, sizeof what, "attention %zu", i);
        CudaDnn *g = cuda_dnn_begin(l, NULL, &e, "%s", what);
        attention_cuda_graph(g, &a, CASE[i].form);
        Status s = cuda_dnn_plan(g, 0, 0, NULL, 0);
        expect(t, (s == OK) == CASE[i].good, what, &e);
        if (!CASE[i].good) expect(t, strstr(e.text, "cudnnBackend") && strstr(e.text, what), "its message", &e);
        cuda_dnn_free(g);
    }
}

static void convolution(Tally *t, const CudaLibs *l) {
    static const struct {
        int64_t y, x, in, out, k;
        int32_t stride, top, left, bottom, right;
        DType type;
        int64_t extra; /* rows too many in y */
    } CASE[] = {
        {128, 128, 512, 512, 3, 1, 1, 1, 1, 1, BF16, 0}, {1024, 1024, 128, 3, 3, 1, 1, 1, 1, 1, BF16, 0},
        {16, 24, 16, 512, 3, 1, 1, 1, 1, 1, F32, 0},     {64, 64, 128, 128, 3, 2, 0, 0, 1, 1, BF16, 0},
        {64, 64, 512, 256, 1, 1, 0, 0, 0, 0, BF16, 0},   {5, 7, 3, 5, 3, 1, 1, 1, 1, 1, BF16, 0},
        {64, 64, 128, 128, 3, 1, 1, 1, 1, 1, BF16, 1}, /* the output is one row too high: refused */
    };
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        Weight w = {.w = tensor_of((void *)4096, CASE[i].type, CASE[i].out, CASE[i].k, CASE[i].k, CASE[i].in)};
        int64_t down = (CASE[i].y + CASE[i].top + CASE[i].bottom - CASE[i].k) / CASE[i].stride + 1 + CASE[i].extra;
        int64_t across = (CASE[i].x + CASE[i].left + CASE[i].right - CASE[i].k) / CASE[i].stride + 1;
        Conv2d a = {.x = tensor_of((void *)4096, CASE[i].type, CASE[i].y, CASE[i].x, CASE[i].in),
                    .y = tensor_of((void *)4096, CASE[i].type, down, across, CASE[i].out),
                    .w = &w, .stride = CASE[i].stride, .pad_top = CASE[i].top, .pad_left = CASE[i].left,
                    .pad_bottom = CASE[i].bottom, .pad_right = CASE[i].right};
        Error e = {0};
        char what[64];
        snprintf(what, sizeof what, "convolution %zu", i);
        CudaDnn *g = cuda_dnn_begin(l, NULL, &e, "%s", what);
        ConvFrames f = conv_frames(OP_conv2d, &a);
        conv_cuda_graph(g, &f);
        Status s = cuda_dnn_plan(g, 0, 0, NULL, 0);
        expect(t, (s == OK) == !CASE[i].extra, what, &e);
        if (CASE[i].extra) expect(t, strstr(e.text, "cudnnBackend") && strstr(e.text, what), "its message", &e);
        cuda_dnn_free(g);
    }
}

static void frames(Tally *t, const CudaLibs *l) {
    static const struct {
        int64_t frames, y, x, in, out, kt, k;
        int32_t stride;
        DType type;
    } CASE[] = {
        {6, 480, 832, 96, 96, 3, 3, 1, BF16}, {6, 480, 832, 96, 3, 3, 3, 1, F32}, {3, 60, 104, 384, 768, 3, 1, 1, BF16},
        {2, 120, 208, 192, 384, 1, 1, 1, F32}, {5, 120, 208, 192, 192, 3, 1, 2, BF16},
    };
    for (size_t i = 0; i < sizeof CASE / sizeof *CASE; i++) {
        Weight w = {.w = tensor_of((void *)4096, CASE[i].type, CASE[i].out, CASE[i].kt, CASE[i].k, CASE[i].k, CASE[i].in)};
        int64_t left = (CASE[i].frames - CASE[i].kt) / CASE[i].stride + 1;
        Conv3d a = {.x = tensor_of((void *)4096, CASE[i].type, CASE[i].frames, CASE[i].y, CASE[i].x, CASE[i].in),
                    .y = tensor_of((void *)4096, CASE[i].type, left, CASE[i].y, CASE[i].x, CASE[i].out),
                    .w = &w, .stride_t = CASE[i].stride, .pad = (int32_t)CASE[i].k / 2};
        Error e = {0};
        char what[64];
        snprintf(what, sizeof what, "convolution of frames %zu", i);
        CudaDnn *g = cuda_dnn_begin(l, NULL, &e, "%s", what);
        ConvFrames f = conv_frames(OP_conv3d, &a);
        conv_cuda_graph(g, &f);
        expect(t, cuda_dnn_plan(g, 0, 0, NULL, 0) == OK, what, &e);
        cuda_dnn_free(g);
    }
}

int main(void) {
    CudaLibs l = {0};
    Error e = {0};
    if (cuda_libs_dnn(&l, &e) != OK) {
        printf("0 passed, 0 failed (%s)\n", e.text);
        return 0;
    }
    Tally t = {0};
    attention(&t, &l);
    convolution(&t, &l);
    frames(&t, &l);
    cuda_libs_close(&l);
    printf("%d passed, %d failed\n", t.passed, t.failed);
    return t.failed != 0;
}

#endif
