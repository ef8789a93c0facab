/* test_wan.c - Wan's autoencoder: names and sizes of the published checkpoint, decode of 1, 5 and 17 frames and encode of 1
 * and 5 against diffusers in f32, every stage in bf16, equal bits whatever is decoded together, refusals, the memory plan.
 *
 * GOLDEN_VERBOSE=1 prints how near everything is. Run from the repository root. */
#include "expect.h"
#include "golden_wan.h"

#include <omp.h>

static char folder[500]; /* lint: allow-static (test program) */

static void report(const Golden *g, const char *what) {
    for (int i = 0; i < g->stages; i++) {
        bool good = g->stage[i].metric <= 1;
        expect_at(good, g->stage[i].name, what, 0);
        if (!good || getenv("GOLDEN_VERBOSE")) printf("%-5s %-22s %.3g\n", what, g->stage[i].name, g->stage[i].metric);
    }
}

/* --- the published checkpoint --- */

static void published(void) {
    VaeWan decoder;
    Error e = {0};
    char path[600];
    snprintf(path, sizeof path, "%s/config.json", folder);
    mutate_write(path, "{}", 2);
    expect_ok(vae_wan_open(folder, &decoder, &e), &e);
    VaeWanEncoder encoder = {.c = decoder.c};
    Bind b = {.prefix = ""};
    vae_wan_bind(&decoder, &b);
    int both = b.count;
    vae_wan_encode_bind(&encoder, &b);
    int64_t values = 0;
    int tensors = 0;
    for (int i = 0; i < b.count; i++) {
        int64_t n = 1;
        for (int d = 0; d < b.rows[i].rank; d++) n *= b.rows[i].shape[d];
        values += n;
        if (!b.rows[i].row_start) tensors++;
    }
    expect(tensors == 194 && values == 126892531 && both < b.count);
    expect(vae_wan_scale(&decoder.c) == 8 && vae_wan_frames_each(&decoder.c) == 4 && vae_wan_frames(&decoder.c, 21) == 81);
    expect(decoder.up[1][0].in == 192 && decoder.up[1][0].out == 384 && decoder.up[3][0].out == 96);
    bind_free(&b);
}

/* --- refusals --- */

static void refused(const char *key, const char *value, const char *text) {
    VaeWan v;
    Error e = {0};
    char path[700], json[300];
    snprintf(path, sizeof path, "%s/config.json", folder);
    snprintf(json, sizeof json, "{\"%s\": %s}", key, value);
    mutate_write(path, json, strlen(json));
    expect_status(vae_wan_open(folder, &v, &e), ERR_MODEL, text, &e);
}

static void refusals(void) {
    refused("is_residual", "true", "is_residual");
    refused("patch_size", "2", "patch_size");
    refused("attn_scales", "[1]", "attn_scales");
    refused("dim_mult", "[1, 2]", "temperal_downsample");
    refused("dim_mult", "[1, 2, 0, 4]", "dim_mult 0");
    refused("dim_mult", "\"x\"", "a list of integers");
    refused("temperal_downsample", "[1, 2, 3]", "a short list of booleans");
    refused("temperal_downsample", "[false, true, false]", "scale_factor_temporal: found 4, expected 2");
    refused("scale_factor_temporal", "8", "scale_factor_temporal: found 8, expected 4");
    refused("scale_factor_spatial", "16", "scale_factor_spatial: found 16, expected 8");
    refused("latents_mean", "[1.0]", "z_dim 16 numbers, found 1");
    refused("latents_std", "[0,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]", "latents_std not 0");
    refused("latents_std", "[\"a\"]", "a short list of numbers");
    refused("out_channels", "12", "out_channels 3");
    refused("num_res_blocks", "9", "num_res_blocks below");
}

static void wrong_shapes(Golden *g, const WanParts *p) {
    size_t mark = arena_mark(&g->work);
    g->x.dtype = F32;
    Tensor z = wan_latents(g, 2, F32), four = exec_new(&g->x, 4, 24, 40, 3), five = exec_new(&g->x, 5, 24, 40, 3);
    expect_status(vae_wan_decode(&p->decoder, &g->x, z, 1, four), ERR_MODEL, "give 5 frames of 24 x 40", &g->error);
    expect_status(vae_wan_decode(&p->decoder, &g->x, z, 0, five), ERR_MODEL, "one or more frames at a time", &g->error);
    expect_status(vae_wan_decode(&p->decoder, &g->x, tensor_slice(z, 3, 0, 3), 1, five), ERR_MODEL, "Y, X, 4]", &g->error);
    expect_status(vae_wan_encode(&p->encoder, &g->x, four, z), ERR_MODEL, "4 frames of 24 x 40 do not give 2", &g->error);
    arena_reset(&g->work, mark);
}

/* --- the same video in other pieces --- */

static void pieces(Golden *g, const WanParts *p, DType dtype) {
    size_t mark = arena_mark(&g->work);
    g->x.dtype = dtype;
    Tensor z = wan_latents(g, WAN_LATENT, F32), one = exec_new(&g->x, 17, 24, 40, 3), other = exec_new(&g->x, 17, 24, 40, 3);
    expect_ok(vae_wan_decode(&p->decoder, &g->x, z, 1, one), &g->error);
    for (int64_t together = 2; together < 8; together += together == 4 ? 3 : 1) {
        memset(other.data, 0x55, tensor_bytes(other));
        expect_ok(vae_wan_decode(&p->decoder, &g->x, z, together, other), &g->error);
        bool same = !memcmp(one.data, other.data, tensor_bytes(one));
        expect_at(same, "the bits of one at a time", dtype_name(dtype), (int)together);
    }
    for (int64_t n = 1; n < WAN_LATENT; n++) { /* what follows changes nothing of what was */
        Tensor part = tensor_slice(other, 0, 0, vae_wan_frames(&p->decoder.c, n));
        expect_ok(vae_wan_decode(&p->decoder, &g->x, tensor_slice(z, 0, 0, n), 1, part), &g->error);
        expect_at(!memcmp(one.data, part.data, tensor_bytes(part)), "the bits of a longer video", dtype_name(dtype), (int)n);
    }
    /* latents as the transformer has them, [C,F,Y,X]; bytes as to_rgb8 makes them */
    Tensor across = exec_new_as(&g->x, F32, 4, WAN_LATENT, WAN_H, WAN_W), view = across;
    for (int d = 0; d < 4; d++) view.shape[d] = across.shape[(d + 1) % 4], view.stride[d] = across.stride[(d + 1) % 4];
    Tensor rgb = exec_new_as(&g->x, U8, 17, 24, 40, 3), want = exec_new_as(&g->x, U8, 17, 24, 40, 3);
    expect_ok(op_copy(&g->x, &(Copy){.y = view, .x = z}), &g->error);
    expect_ok(vae_wan_decode(&p->decoder, &g->x, view, 3, rgb), &g->error);
    expect_ok(op_to_rgb8(&g->x, &(ToRgb8){.y = want, .x = one}), &g->error);
    expect_at(!memcmp(rgb.data, want.data, tensor_bytes(rgb)), "the bytes", dtype_name(dtype), 0);
    arena_reset(&g->work, mark);
}

/* --- tiles --- */

enum { TILE_FRAMES = 2, TILE_H = 5, TILE_W = 13 };

/* Latents that are the same everywhere, that rise from the left to the right, or noise. */
static Tensor tile_latents(Golden *g, int kind) {
    Tensor z = exec_new_as(&g->x, F32, TILE_FRAMES, TILE_H, TILE_W, 4);
    wan_normal("tiles", tensor_numel(z), z.data);
    for (int64_t i = 0; kind && i < tensor_numel(z); i++)
        golden_put(z.data, F32, i, kind == 1 ? 0.7 : 2.0 * (double)(i / 4 % TILE_W) / TILE_W - 1.0);
    return z;
}

typedef struct Apart { double most, norm, top; } Apart;

static Apart apart(Tensor a, Tensor b) {
    Apart d = {0};
    for (int64_t i = 0; i < tensor_numel(a); i++) {
        double v = golden_at(b.data, b.dtype, i), e = fabs(golden_at(a.data, a.dtype, i) - v);
        if (!(e <= d.most)) d.most = e;
        d.norm += e * e;
        d.top = fmax(d.top, fabs(v));
    }
    d.norm = sqrt(d.norm);
    return d;
}

/* The same sums, but BLAS orders them by a product's extents. F32: both may be 1e-5 from the truth, as the goldens allow.
 * BF16: one sum that rounds otherwise goes on in all that follows, up to the format's own noise: the distance of the whole
 * decode from its f32 twin. */
static void near(const Apart *d, DType dtype, double noise, int what) {
    bool good = dtype == F32 ? d->most <= 2 * WAN_F32 * d->top : d->norm <= noise;
    expect_at(good, "the frames of the whole", dtype_name(dtype), what);
    if (getenv("GOLDEN_VERBOSE"))
        printf("tiles %s %d: most %.3g, norm %.3g of noise %.3g\n", dtype_name(dtype), what, d->most, d->norm, noise);
}

static void tiles(Golden *g, const WanParts *p, DType dtype, Tensor f32[3]) {
    static const VaeWanTiles CUTS[] = {{1, 2}, {2, 1}, {2, 2}, {3, 5}};
    size_t mark = arena_mark(&g->work);
    g->x.dtype = dtype;
    int64_t frames = vae_wan_frames(&p->decoder.c, TILE_FRAMES);
    Tensor whole[3], have = exec_new(&g->x, frames, 8 * TILE_H, 8 * TILE_W, 3);
    for (int kind = 0; kind < 3; kind++) {
        whole[kind] = exec_new(&g->x, frames, 8 * TILE_H, 8 * TILE_W, 3);
        Tensor z = tile_latents(g, kind);
        expect_ok(vae_wan_decode(&p->decoder, &g->x, z, 1, whole[kind]), &g->error);
        double noise = dtype == F32 ? 0 : apart(whole[kind], f32[kind]).norm;
        for (int i = 0; i < (kind ? 3 : 4); i++) {
            memset(have.data, 0x55, tensor_bytes(have));
            expect_ok(vae_wan_decode_tiles(&p->decoder, &g->x, z, 1 + i % 2, CUTS[i], have), &g->error);
            Apart d = apart(have, whole[kind]);
            near(&d, dtype, noise, 10 * kind + i);
        }
    }
    Tensor z = tile_latents(g, 0), rgb = exec_new_as(&g->x, U8, frames, 8 * TILE_H, 8 * TILE_W, 3);
    Tensor want = exec_new_as(&g->x, U8, frames, 8 * TILE_H, 8 * TILE_W, 3);
    expect_ok(vae_wan_decode_tiles(&p->decoder, &g->x, z, 1, (VaeWanTiles){2, 3}, have), &g->error);
    expect_ok(vae_wan_decode_tiles(&p->decoder, &g->x, z, 1, (VaeWanTiles){2, 3}, rgb), &g->error);
    expect_ok(op_to_rgb8(&g->x, &(ToRgb8){.y = want, .x = have}), &g->error);
    expect(!memcmp(rgb.data, want.data, tensor_bytes(rgb)));
    VaeWanTiles many = {2 * TILE_H + 1, 1}, none = {1, 0};
    expect_status(vae_wan_decode_tiles(&p->decoder, &g->x, z, 1, many, have), ERR_MODEL, "into 11 x 1 tiles", &g->error);
    expect_status(vae_wan_decode_tiles(&p->decoder, &g->x, z, 1, none, have), ERR_MODEL, "into 1 x 0 tiles", &g->error);
    for (int kind = 0; dtype == F32 && kind < 3; kind++) { /* for the other dtype */
        f32[kind] = whole[kind];
        f32[kind].data = golden_copy(whole[kind]);
    }
    arena_reset(&g->work, mark);
}

/* --- quality high --- */

static void prepend(Ops *t, const Family *f) {
    for (int i = 0; i < f->count; i++) {
        OpId op = f->impl[i].op;
        for (int k = t->count[op]++; k > 0; k--) t->impl[op][k] = t->impl[op][k - 1];
        t->impl[op][0] = &f->impl[i];
    }
    t->epoch++;
}

/* Families leave roundings out, so their frames are other ones, no further away than the format's noise. */
static void high(Golden *g, const WanParts *p, Tensor f32) {
    static const char *const NAMES[] = {"wan-norm", "vae-kl-rewrite"};
    size_t mark = arena_mark(&g->work);
    Ops plain = g->ops;
    int count, mounted = 0;
    const Family *all = registry_families(false, &count);
    g->x.dtype = BF16;
    int64_t frames = vae_wan_frames(&p->decoder.c, TILE_FRAMES);
    Tensor z = tile_latents(g, 0), low = exec_new(&g->x, frames, 8 * TILE_H, 8 * TILE_W, 3);
    Tensor now = exec_new(&g->x, frames, 8 * TILE_H, 8 * TILE_W, 3), last = exec_new(&g->x, frames, 8 * TILE_H, 8 * TILE_W, 3);
    expect_ok(vae_wan_decode(&p->decoder, &g->x, z, 1, low), &g->error);
    memcpy(last.data, low.data, tensor_bytes(low));
    for (int i = 0; i < count; i++)
        for (int k = 0; k < 2; k++) {
            if (strcmp(all[i].name, NAMES[k]) != 0) continue;
            prepend(&g->ops, &all[i]);
            expect_ok(vae_wan_decode(&p->decoder, &g->x, z, 1, now), &g->error);
            double moved = apart(now, low).norm / apart(low, f32).norm;
            expect_at(memcmp(now.data, last.data, tensor_bytes(now)) != 0 && moved <= 1, NAMES[k], "other frames, as near", 0);
            if (getenv("GOLDEN_VERBOSE")) printf("high  %s: moved by %.3g of the noise\n", NAMES[k], moved);
            memcpy(last.data, now.data, tensor_bytes(now));
            mounted++;
        }
    expect(mounted == 2);
    uint32_t epoch = g->ops.epoch + 1;
    g->ops = plain;
    g->ops.epoch = epoch;
    expect_ok(vae_wan_decode(&p->decoder, &g->x, z, 1, now), &g->error);
    expect(!memcmp(now.data, low.data, tensor_bytes(now)));
    arena_reset(&g->work, mark);
}

static void cut(const VaeWanConfig *c, int times, int down, int across) {
    VaeWanTiles t = vae_wan_tiles(c, 60, 104, times);
    expect_at(t.down == down && t.across == across, "tiles", "halved", times);
}

/* --- the plan of the published size --- */

static size_t planned(Golden *g, DType dtype, int64_t frames, VaeWanTiles t, size_t *scratch) {
    VaeWan v;
    Bind b = {.prefix = ""};
    char path[600];
    snprintf(path, sizeof path, "%s/config.json", folder);
    mutate_write(path, "{}", 2);
    expect_ok(vae_wan_open(folder, &v, &g->error), &g->error);
    vae_wan_bind(&v, &b);
    for (int i = 0; i < b.count; i++) { /* as a dry run sees them: shapes without numbers */
        BindRow *r = &b.rows[i];
        int64_t s[5] = {r->shape[0], r->shape[2], r->shape[3], r->shape[4], r->shape[1]};
        if (r->rank == 4) s[3] = s[4];
        Tensor w = tensor_make((void *)4096, dtype, r->rank, r->rank > 2 ? s : r->shape);
        if (r->target == BIND_VECTOR) *r->vector = w;
        else if (r->target == BIND_BIAS) r->weight->bias = w;
        else r->weight->w = w, r->weight->round = dtype;
    }
    Device dry = device_dry();
    Arena work, room;
    Calls calls = {0};
    expect_ok(arena_open(&work, &dry, "work", (size_t)1 << 40, &g->error), &g->error);
    expect_ok(arena_open(&room, &dry, "scratch", (size_t)1 << 40, &g->error), &g->error);
    Exec x = {.ops = &g->ops, .device = &dry, .calls = &calls, .work = &work, .scratch = &room, .error = &g->error,
              .dtype = dtype, .dry = true};
    Tensor z = exec_new_as(&x, F32, frames, 60, 104, 16);
    Tensor video = exec_new_as(&x, U8, vae_wan_frames(&v.c, frames), 480, 832, 3);
    size_t before = work.used;
    expect_ok(vae_wan_decode_tiles(&v, &x, z, 1, t, video), &g->error);
    expect(work.used == before);
    size_t peak = work.peak;
    *scratch = room.peak;
    if (getenv("GOLDEN_VERBOSE"))
        printf("plan  832x480x%d in %s, %d x %d tiles: %.2f GiB, scratch of this table %.2f GiB\n",
               (int)vae_wan_frames(&v.c, frames), dtype_name(dtype), t.down, t.across, (double)peak / 0x1p30,
               (double)room.peak / 0x1p30);
    calls_free(&calls);
    arena_close(&work);
    arena_close(&room);
    bind_free(&b);
    return peak;
}

static void plans(Golden *g) {
    const size_t gib = (size_t)1 << 30;
    const VaeWanTiles one = {1, 1}, four = {2, 2}, eight = {2, 4};
    size_t scratch, bf16 = planned(g, BF16, 21, one, &scratch);
    expect(bf16 < 4 * gib && scratch < gib); /* of 6 for both */
    expect(planned(g, BF16, 2, one, &scratch) + gib / 8 > bf16); /* latents and pixels alone grow with the length */
    expect(planned(g, F32, 21, one, &scratch) < 8 * gib);
    expect(planned(g, BF16, 21, four, &scratch) < 2 * gib);
    expect(planned(g, BF16, 21, eight, &scratch) < 3 * gib / 2);
}

static void image_latents(Golden *g, const WanParts *p) {
    size_t mark = arena_mark(&g->work);
    g->x.dtype = F32;
    Tensor z = exec_new(&g->x, 2, WAN_H, WAN_W, 4), one = exec_new(&g->x, 1, WAN_H, WAN_W, 4);
    expect_ok(vae_wan_encode(&p->encoder, &g->x, wan_video(g, 5), z), &g->error);
    expect_ok(vae_wan_encode(&p->encoder, &g->x, wan_video(g, 1), one), &g->error);
    expect(!memcmp(one.data, z.data, tensor_bytes(one)));
    arena_reset(&g->work, mark);
}

static void scaled(Golden *g, const WanParts *p) {
    size_t mark = arena_mark(&g->work);
    g->x.dtype = BF16;
    Tensor by, add, y = exec_new(&g->x, 3, WAN_H, WAN_W, 4), want = golden_find(g, "scaled");
    expect_ok(vae_wan_vectors(&p->decoder.c, &g->x, &by, &add), &g->error);
    expect_ok(op_chan_affine(&g->x, &(ChanAffine){.y = y, .x = wan_latents(g, 3, F32), .a = by, .b = add}), &g->error);
    expect(want.rank && tensor_numel(want) >= tensor_numel(y) && !memcmp(y.data, want.data, tensor_bytes(y)));
    arena_reset(&g->work, mark);
}

int main(void) {
    static Golden g; /* lint: allow-static (test program) */
    WanParts p;
    Tensor whole[3] = {{0}};
    omp_set_num_threads(1); /* tiny tensors: threads only wait for each other */
    expect_folder(folder, sizeof folder);
    published();
    refusals();
    expect_ok(golden_open(&g), &g.error);
    expect_ok(safetensors_open(GOLDEN_DIR "/wan.safetensors", &g.file, &g.error), &g.error);
    wan_checkpoint(&g, folder);
    expect_ok(wan_open(&g, folder, F32, &p), &g.error);
    expect_ok(wan_f32(&g, &p), &g.error);
    expect(g.stages == 18);
    report(&g, "f32");
    wrong_shapes(&g, &p);
    pieces(&g, &p, F32);
    tiles(&g, &p, F32, whole);
    image_latents(&g, &p);
    wan_close(&p);
    g.stages = 0;
    expect_ok(wan_open(&g, folder, BF16, &p), &g.error);
    scaled(&g, &p);
    expect_ok(wan_bf16(&g, &p), &g.error);
    expect(g.stages == 76);
    report(&g, "bf16");
    pieces(&g, &p, BF16);
    tiles(&g, &p, BF16, whole);
    high(&g, &p, whole[0]);
    for (int i = 0; i < 3; i++) free(whole[i].data);
    for (int i = 0; i < 5; i++) cut(&p.decoder.c, i, i < 2 ? 1 : i < 4 ? 2 : 4, i < 1 ? 1 : i < 3 ? 2 : 4);
    wan_close(&p);
    plans(&g);
    golden_close(&g);
    expect_cleanup(folder);
    return expect_done();
}
