/* golden_zimage.h - runs Qwen3 or the transformer of the tiny Z-Image checkpoint on the CPU table against golden tensors
 * (scripts/reference_zimage.py). Judging, feeding and the rig are golden.h's; here is only how the parts are called.
 * Shared by test_zimage.c and test_zimage_mutants.c. */
#ifndef GOLDEN_ZIMAGE_H
#define GOLDEN_ZIMAGE_H

#include "golden.h"
#include "models/dit_zimage.h"
#include "text/te_qwen3.h"

#define ZIMAGE_MODEL GOLDEN_DIR "/tiny-zimage"

typedef struct ZimageRig {
    Qwen3 te;
    ZimageDit dit;
    GoldenWeights weights;
} ZimageRig;

static inline Status zimage_run_te(Golden *g, ZimageRig *r) {
    int64_t t = golden_find(g, "ids_1").shape[1];
    Tensor ids = golden_in(g, "ids_1", I32, t), y = exec_new(&g->x, t, r->te.c.hidden);
    if (ids.rank && g->ops.row_bits) { /* as such a table wants it: with padding behind, here of nonsense */
        Tensor padded = exec_new_as(&g->x, I32, t + 19);
        int32_t *to = padded.data, *from = ids.data;
        for (int64_t i = 0; i < t + 19; i++) to[i] = i < t ? from[i] : (int32_t)(7 * i % 101);
        ids = padded;
    }
    return ids.rank ? te_qwen3_encode(&r->te, &g->x, ids, y) : ERR_MODEL;
}

static inline Status zimage_run_dit(Golden *g, ZimageRig *r) {
    Tensor l = golden_find(g, "latents"), e = golden_find(g, "embeds");
    int64_t c = l.shape[0], h = l.shape[1], w = l.shape[2], n = e.shape[0];
    Tensor latents = golden_in(g, "latents", F32, c, h, w), embeds = golden_in(g, "embeds", g->x.dtype, n, e.shape[1]);
    Tensor t = golden_in(g, "t", F32, 1), out = exec_new_as(&g->x, F32, c, h, w);
    if (!latents.rank || !embeds.rank || !t.rank) return ERR_MODEL;
    ZimagePrompt p;
    TRY(dit_zimage_layout(&r->dit, &g->x, &n, 1, h / 2, w / 2, &p));
    TRY(dit_zimage_prompt(&r->dit, &g->x, &embeds, &p));
    TRY(dit_zimage_run(&r->dit, &g->x, &p, latents, t, out));
    golden_result(g, "zimage.out", out);
    return OK;
}

static inline Status zimage_bound(Golden *g, ZimageRig *r, bool te, DType dtype) {
    static const char *const IGNORE[] = {"model.layers.3.", "model.norm.", NULL};
    if (te) te_qwen3_bind(&r->te, r->weights.files, &r->weights.bind);
    else dit_zimage_bind(&r->dit, r->weights.files, &r->weights.bind);
    TRY(golden_bind(g, &r->weights, dtype, te ? IGNORE : NULL));
    size_t mark = arena_mark(&g->work);
    Status s = te ? zimage_run_te(g, r) : zimage_run_dit(g, r);
    arena_reset(&g->work, mark);
    return s;
}

/* Part of the model folder (the encoder, or the transformer) against GOLDEN_DIR/NAME.safetensors; results as golden_part's. */
static inline Status golden_zimage(Golden *g, const char *model, bool te, DType dtype, const char *name) {
    char path[1200];
    Error *e = &g->error;
    TRY(golden_start(g, name, dtype));
    ZimageRig r = {.weights.bind.prefix = ""};
    snprintf(path, sizeof path, "%s/%s", model, te ? "text_encoder" : "transformer");
    Status s = te ? te_qwen3_open(path, &r.te, e) : dit_zimage_open(path, &r.dit, e);
    if (s == OK) s = weights_open(path, &r.weights.files, e);
    if (s == OK) s = zimage_bound(g, &r, te, dtype);
    golden_unbind(&r.weights);
    te_qwen3_close(&r.te);
    dit_zimage_close(&r.dit);
    golden_stop(g);
    return s;
}

#endif
