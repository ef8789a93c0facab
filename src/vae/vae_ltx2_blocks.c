/* vae_ltx2_blocks.c - see vae_ltx2_blocks.h. */
#include "vae/vae_ltx2_blocks.h"

#include <stdio.h>

static const float EPS = 1e-8f; /* PerChannelRMSNorm's own: the config's resnet_norm_eps is not used */

/* --- weights --- */

void vae_ltx2_blocks_bind_conv(Bind *b, Weight *w, int64_t out, int64_t in, const char *name) {
    bind_conv3d(b, w, out, in, 3, 3, "%s.conv", name);
}

void vae_ltx2_blocks_bind_resnets(Bind *b, VaeLtx2Resnet *n, int64_t count, int64_t channels, const char *name) {
    char part[96];
    for (int64_t i = 0; i < count; i++)
        for (int k = 0; k < 2; k++) {
            snprintf(part, sizeof part, "%s.resnets.%d.conv%d", name, (int)i, k + 1);
            vae_ltx2_blocks_bind_conv(b, &n[i].conv[k], channels, channels, part);
        }
}

/* --- rooms --- */

/* A kernel sees two frames beside its own, before or behind; a downsampling's convolution has one more ahead. */
enum { AROUND = 2, AHEAD = 1 };

static void most(int64_t *room, int64_t n) { *room = n > *room ? n : *room; }

void vae_ltx2_blocks_need(VaeLtx2Rooms *r, bool mirror, int64_t f, int64_t y, int64_t x, int64_t in, int64_t out, int64_t kept) {
    int64_t border = mirror ? 2 : 0;
    most(&r->kept, f * y * x * kept);
    most(&r->product, (f + AHEAD) * y * x * out);
    most(&r->window, (f + AROUND + AHEAD) * (y + border) * (x + border) * in);
}

VaeLtx2Run vae_ltx2_blocks_run(Exec *x, VaeLtx2Rooms rooms, bool causal, bool mirror) {
    return (VaeLtx2Run){.kept = exec_new(x, rooms.kept), .product = exec_new(x, rooms.product),
                        .window = exec_new(x, rooms.window), .before = causal ? 2 : 1, .after = causal ? 0 : 1,
                        .mirror = mirror, .first = true, .last = true};
}

static Tensor in_room(Tensor room, int64_t skipped, int64_t f, int64_t y, int64_t x, int64_t c) {
    return tensor_view(tensor_slice(room, 0, skipped * y * x * c, f * y * x * c), f, y, x, c);
}

Tensor vae_ltx2_blocks_kept(const VaeLtx2Run *r, int64_t f, int64_t y, int64_t x, int64_t c) {
    return in_room(r->kept, r->head, f, y, x, c);
}

Tensor vae_ltx2_blocks_inside(const VaeLtx2Run *r, Tensor window) {
    int64_t border = r->mirror ? 1 : 0;
    Tensor t = tensor_slice(window, 0, r->before, window.shape[0] - r->before - r->after);
    t = tensor_slice(t, 1, border, t.shape[1] - 2 * border);
    return tensor_slice(t, 2, border, t.shape[2] - 2 * border);
}

/* --- pieces --- */

static bool whole(const VaeLtx2Run *r) { return r->first && r->last; }

int64_t vae_ltx2_blocks_lag(const VaeLtx2Run *r) { return 2 * r->after; }

Status vae_ltx2_blocks_pieces(Exec *x, VaeLtx2Run *r, int64_t resnets, int64_t y, int64_t w, int64_t c) {
    int64_t border = r->mirror ? 2 : 0, lag = vae_ltx2_blocks_lag(r);
    if (resnets > VAE_LTX2_MAX_RESNETS) return fail(x->error, ERR_MODEL, "vae: more than %d resnets", VAE_LTX2_MAX_RESNETS);
    for (int64_t i = 0; i <= resnets; i++) {
        for (int k = 0; k < (i < resnets ? 2 : 1); k++)
            r->history[r->histories++] = exec_new(x, AROUND, y + border, w + border, c);
        if (i < resnets && lag) r->history[r->histories++] = exec_new(x, lag, y, w, c);
    }
    return OK;
}

static Tensor ending(Tensor t, int64_t frames) { return tensor_slice(t, 0, t.shape[0] - frames, frames); }

/* A window's new frames are in place: the ones before them come from the last piece, its last ones are for the next. */
static Status roll(Exec *x, VaeLtx2Run *r, Tensor window) {
    if (whole(r)) return OK;
    if (r->next >= r->histories || window.shape[0] <= AROUND)
        return fail(x->error, ERR_MODEL, "vae: a piece of %lld frames is too short", (long long)window.shape[0]);
    Tensor history = r->history[r->next++];
    if (r->first) return op_copy(x, &(Copy){.y = history, .x = ending(window, AROUND)});
    return op_roll(x, &(Roll){.window = window, .cache = history});
}

/* A resnet's other path: as many frames of the last piece in front of `at` as the result lags behind, which gives up its own
 * last ones. */
static Status wait(Exec *x, VaeLtx2Run *r) {
    int64_t lag = vae_ltx2_blocks_lag(r);
    if (whole(r) || !lag) return OK;
    Tensor history = r->history[r->next++], t = r->at;
    if (!r->first) {
        if (r->head < lag) return fail(x->error, ERR_MODEL, "vae: no room in front of a piece");
        r->head -= lag;
        t = vae_ltx2_blocks_kept(r, lag + t.shape[0], t.shape[1], t.shape[2], t.shape[3]);
        TRY(op_copy(x, &(Copy){.y = tensor_slice(t, 0, 0, lag), .x = history}));
    }
    if (!r->last) TRY(op_copy(x, &(Copy){.y = history, .x = ending(t, lag)}));
    r->at = tensor_slice(t, 0, 0, r->rest.shape[0]);
    return OK;
}

/* --- steps --- */

/* What fills the window of frames like x: y is the part of it behind the frames of the last piece. */
static Window filling(const VaeLtx2Run *r, Tensor x, int64_t ahead, Tensor *window) {
    int64_t border = r->mirror ? 2 : 0, lead = r->first ? ahead + r->before : AROUND, behind = r->last ? r->after : 0;
    *window = in_room(r->window, 0, lead + x.shape[0] + behind, x.shape[1] + border, x.shape[2] + border, x.shape[3]);
    return (Window){.y = r->first ? *window : ending(*window, x.shape[0] + behind), .x = x, .eps = EPS,
                    .before = (int32_t)(r->first ? lead : 0), .border = r->mirror};
}

/* The same of at + rest, which is then taken. */
static Window pending(VaeLtx2Run *r, int64_t ahead, Tensor *window) {
    Window w = filling(r, r->at, ahead, window);
    if (r->rest.rank) w.x = r->rest, w.bias = r->rest_bias, w.skip = r->at;
    r->rest = r->rest_bias = (Tensor){0};
    return w;
}

Status vae_ltx2_blocks_plain(Exec *x, VaeLtx2Run *r, int64_t ahead, Tensor *window) {
    Window w = pending(r, ahead, window);
    return op_frame_window(x, &w);
}

Status vae_ltx2_blocks_norm(Exec *x, VaeLtx2Run *r, const char *site, const char *tap, bool keep, Tensor *window) {
    Window w = pending(r, 0, window);
    if (keep && w.skip.rank) w.h = w.skip;
    exec_site(x, site);
    TRY(op_pixelnorm_silu(x, &w));
    TRY(roll(x, r, *window));
    return exec_tap(x, tap, *window);
}

Tensor vae_ltx2_blocks_product(const VaeLtx2Run *r, Tensor window, const Weight *w) {
    const int64_t *s = window.shape, border = r->mirror ? 2 : 0;
    return in_room(r->product, 0, s[0] - AROUND, s[1] - border, s[2] - border, w->w.shape[0]);
}

Status vae_ltx2_blocks_conv(Exec *x, const VaeLtx2Run *r, const Weight *w, Tensor window, Tensor y, int form) {
    return op_conv3d(x, &(Conv3d){.y = y, .x = window, .w = w, .stride_t = 1, .pad = r->mirror ? 0 : 1, .form = form, .tf32 = 1});
}

Status vae_ltx2_blocks_resnet(Exec *x, VaeLtx2Run *r, const VaeLtx2Resnet *n) {
    Tensor window;
    TRY(vae_ltx2_blocks_norm(x, r, "vae.resnet.norm1", "vae.norm", true, &window));
    Tensor middle = vae_ltx2_blocks_product(r, window, &n->conv[0]);
    TRY(vae_ltx2_blocks_conv(x, r, &n->conv[0], window, middle, CONV_RAW));
    Window w = filling(r, middle, 0, &window);
    w.bias = n->conv[0].bias;
    exec_site(x, "vae.resnet.norm2");
    TRY(op_pixelnorm_silu(x, &w));
    TRY(roll(x, r, window));
    TRY(exec_tap(x, "vae.norm", window));
    r->rest = vae_ltx2_blocks_product(r, window, &n->conv[1]), r->rest_bias = n->conv[1].bias;
    TRY(vae_ltx2_blocks_conv(x, r, &n->conv[1], window, r->rest, CONV_RAW));
    return wait(x, r);
}

/* --- patches --- */

Tensor vae_ltx2_blocks_patches(Tensor t, int64_t p) {
    Tensor v = t;
    int64_t deep = t.shape[3], shape[] = {t.shape[0] * t.shape[1], p, t.shape[2], p, deep / (p * p)};
    int64_t stride[] = {t.shape[2] * deep, 1, deep, p, p * p};
    v.rank = 5;
    for (int d = 0; d < 5; d++) v.shape[d] = shape[d], v.stride[d] = stride[d];
    return v;
}

Tensor vae_ltx2_blocks_pixels(Tensor t, int64_t p) {
    return tensor_view(t, t.shape[0] * t.shape[1] / p, p, t.shape[2] / p, p, t.shape[3]);
}
