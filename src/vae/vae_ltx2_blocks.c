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

static void most(int64_t *room, int64_t n) { *room = n > *room ? n : *room; }

/* Frames before and behind together, however they are shared out; a downsampling's convolution has one more ahead. */
enum { AROUND = 2, AHEAD = 1 };

void vae_ltx2_blocks_need(VaeLtx2Rooms *r, bool mirror, int64_t f, int64_t y, int64_t x, int64_t in, int64_t out, int64_t kept) {
    int64_t border = mirror ? 2 : 0;
    most(&r->kept, f * y * x * kept);
    most(&r->product, (f + AHEAD) * y * x * out);
    most(&r->window, (f + AROUND + AHEAD) * (y + border) * (x + border) * in);
}

VaeLtx2Run vae_ltx2_blocks_run(Exec *x, VaeLtx2Rooms rooms, bool causal, bool mirror) {
    return (VaeLtx2Run){.kept = exec_new(x, rooms.kept), .product = exec_new(x, rooms.product),
                        .window = exec_new(x, rooms.window), .before = causal ? 2 : 1, .after = causal ? 0 : 1,
                        .mirror = mirror};
}

static Tensor in_room(Tensor room, int64_t f, int64_t y, int64_t x, int64_t c) {
    return tensor_view(tensor_slice(room, 0, 0, f * y * x * c), f, y, x, c);
}

Tensor vae_ltx2_blocks_kept(const VaeLtx2Run *r, int64_t f, int64_t y, int64_t x, int64_t c) {
    return in_room(r->kept, f, y, x, c);
}

Tensor vae_ltx2_blocks_inside(const VaeLtx2Run *r, Tensor window) {
    int64_t border = r->mirror ? 1 : 0;
    Tensor t = tensor_slice(window, 0, r->before, window.shape[0] - r->before - r->after);
    t = tensor_slice(t, 1, border, t.shape[1] - 2 * border);
    return tensor_slice(t, 2, border, t.shape[2] - 2 * border);
}

/* --- steps --- */

/* What the next reader of at + rest is given: x, bias and skip. */
static Window pending(const VaeLtx2Run *r, int64_t ahead) {
    const int64_t *s = r->at.shape, border = r->mirror ? 2 : 0;
    Window w = {.x = r->at, .eps = EPS, .before = (int32_t)(ahead + r->before), .border = r->mirror};
    w.y = in_room(r->window, ahead + r->before + s[0] + r->after, s[1] + border, s[2] + border, s[3]);
    if (r->rest.rank) w.x = r->rest, w.bias = r->rest_bias, w.skip = r->at;
    return w;
}

Status vae_ltx2_blocks_plain(Exec *x, VaeLtx2Run *r, int64_t ahead, Tensor *window) {
    Window w = pending(r, ahead);
    *window = w.y;
    r->rest = r->rest_bias = (Tensor){0};
    return op_frame_window(x, &w);
}

Status vae_ltx2_blocks_norm(Exec *x, VaeLtx2Run *r, const char *site, const char *tap, Tensor *window) {
    Window w = pending(r, 0);
    if (r->rest.rank) w.h = r->at;
    *window = w.y;
    r->rest = r->rest_bias = (Tensor){0};
    exec_site(x, site);
    TRY(op_pixelnorm_silu(x, &w));
    return exec_tap(x, tap ? tap : "vae.norm", w.y);
}

Tensor vae_ltx2_blocks_product(const VaeLtx2Run *r, Tensor window, const Weight *w) {
    const int64_t *s = window.shape, border = r->mirror ? 2 : 0;
    return in_room(r->product, s[0] - 2, s[1] - border, s[2] - border, w->w.shape[0]);
}

Status vae_ltx2_blocks_conv(Exec *x, const VaeLtx2Run *r, const Weight *w, Tensor window, Tensor y, int form) {
    return op_conv3d(x, &(Conv3d){.y = y, .x = window, .w = w, .stride_t = 1, .pad = r->mirror ? 0 : 1, .form = form, .tf32 = 1});
}

Status vae_ltx2_blocks_resnet(Exec *x, VaeLtx2Run *r, const VaeLtx2Resnet *n) {
    Tensor window;
    TRY(vae_ltx2_blocks_norm(x, r, "vae.resnet.norm1", NULL, &window));
    Tensor first = vae_ltx2_blocks_product(r, window, &n->conv[0]), in = r->at;
    TRY(vae_ltx2_blocks_conv(x, r, &n->conv[0], window, first, CONV_RAW));
    Window w = {.y = window, .x = first, .bias = n->conv[0].bias, .eps = EPS, .before = r->before, .border = r->mirror};
    exec_site(x, "vae.resnet.norm2");
    TRY(op_pixelnorm_silu(x, &w));
    TRY(exec_tap(x, "vae.norm", window));
    r->rest = vae_ltx2_blocks_product(r, window, &n->conv[1]), r->rest_bias = n->conv[1].bias;
    r->at = in;
    return vae_ltx2_blocks_conv(x, r, &n->conv[1], window, r->rest, CONV_RAW);
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
