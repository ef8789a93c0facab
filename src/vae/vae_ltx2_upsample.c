/* vae_ltx2_upsample.c - see vae_ltx2_upsample.h. */
#include "vae/vae_ltx2_upsample.h"

#include "core/json.h"
#include "residency.h"

#include <stdio.h>

enum { GROUPS = 32, BLUR = 5 };
static const float EPS = 1e-5f;

/* --- config and weights --- */

static Status read_config(const char *path, const Json *j, void *out, Error *e) {
    VaeLtx2Upsampler *u = out;
    bool space = true, time = false;
    double scale = 2;
    int64_t dims = 3;
    *u = (VaeLtx2Upsampler){.in = 128, .mid = 1024, .blocks = 4, .rational = true};
    const JsonSize sizes[] = {{"in_channels", &u->in}, {"mid_channels", &u->mid}, {"num_blocks_per_stage", &u->blocks}};
    TRY(json_sizes(j, sizes, sizeof sizes / sizeof *sizes, path, e));
    TRY(json_int(j, "dims", &dims, path, e));
    TRY(json_bool(j, "spatial_upsample", &space, path, e));
    TRY(json_bool(j, "temporal_upsample", &time, path, e));
    TRY(json_double(j, "rational_spatial_scale", &scale, path, e));
    TRY(json_bool(j, "use_rational_resampler", &u->rational, path, e));
    if (!space || time) return fail(e, ERR_MODEL, "%s: temporal_upsample is not supported: latents are upsampled in space", path);
    if (dims != 3) return fail(e, ERR_MODEL, "%s: dims %lld is not supported: expected 3", path, (long long)dims);
    if (u->rational && scale != 2)
        return fail(e, ERR_MODEL, "%s: rational_spatial_scale %g is not supported: expected 2", path, scale);
    if (u->mid % GROUPS || u->blocks > VAE_LTX2_UPSAMPLE_BLOCKS)
        return fail(e, ERR_MODEL, "%s: expected mid_channels a multiple of %d and num_blocks_per_stage up to %d, found %lld and "
                    "%lld", path, GROUPS, VAE_LTX2_UPSAMPLE_BLOCKS, (long long)u->mid, (long long)u->blocks);
    return OK;
}

Status vae_ltx2_upsample_open(const char *folder, VaeLtx2Upsampler *out, Error *e) {
    *out = (VaeLtx2Upsampler){0};
    return json_read_in(folder, "config.json", read_config, out, e);
}

static void bind_norm(Bind *b, Tensor *w, Tensor *bias, int64_t n, const char *name) {
    bind_vector(b, w, n, BIND_PLAIN, "%s.weight", name);
    bind_vector(b, bias, n, BIND_PLAIN, "%s.bias", name);
}

/* [1, 1, 5, 5]; later files may come without it. */
static void bind_blur(Bind *b, Tensor *blur) {
    bind_vector(b, blur, 1, BIND_PLAIN, "upsampler.blur_down.kernel");
    BindRow *row = bind_last(b);
    if (!row) return;
    row->rank = 4, row->optional = true;
    row->shape[1] = 1, row->shape[2] = row->shape[3] = BLUR;
}

void vae_ltx2_upsample_bind(VaeLtx2Upsampler *u, Bind *b) {
    static const char *const STAGE[] = {"res_blocks", "post_upsample_res_blocks"};
    char name[96];
    bind_conv3d(b, &u->initial, u->mid, u->in, 3, 3, "initial_conv");
    bind_norm(b, &u->norm_w, &u->norm_b, u->mid, "initial_norm");
    for (int s = 0; s < 2; s++)
        for (int64_t i = 0; i < u->blocks; i++)
            for (int k = 0; k < 2; k++) {
                VaeLtx2UpsampleBlock *block = &u->block[s][i];
                bind_conv3d(b, &block->conv[k], u->mid, u->mid, 3, 3, "%s.%d.conv%d", STAGE[s], (int)i, k + 1);
                snprintf(name, sizeof name, "%s.%d.norm%d", STAGE[s], (int)i, k + 1);
                bind_norm(b, &block->norm_w[k], &block->norm_b[k], u->mid, name);
            }
    bind_conv(b, &u->shuffle, 4 * u->mid, u->mid, 3, u->rational ? "upsampler.conv" : "upsampler.0");
    if (u->rational) bind_blur(b, &u->blur);
    bind_conv3d(b, &u->final, u->in, u->mid, 3, 3, "final_conv");
}

/* --- run --- */

/* Three rooms of one size take turns: the frames so far, a convolution's result, and what follows from it. */
typedef struct Run {
    Tensor at, product, normed;
} Run;

static Tensor like(Tensor room, int64_t f, int64_t y, int64_t x, int64_t c) {
    return tensor_view(tensor_slice(room, 0, 0, f * y * x * c), f, y, x, c);
}

/* The clip as one picture: statistics are of all its frames. */
static Tensor stacked(Tensor t) { return tensor_view(t, t.shape[0] * t.shape[1], t.shape[2], t.shape[3]); }

static Status convolve(Exec *x, const Weight *w, Tensor from, Tensor to, int form) {
    return op_conv3d(x, &(Conv3d){.y = to, .x = from, .w = w, .stride_t = 1, .pad = 1, .pad_t = 1, .form = form, .tf32 = 1});
}

/* What a norm takes, of a convolution that has left its bias. */
static GroupNorm norm_of(Tensor y, Tensor x, const Weight *conv, Tensor w, Tensor b) {
    return (GroupNorm){.y = stacked(y), .x = stacked(x), .w = w, .b = b, .bias = conv->bias, .eps = EPS, .groups = GROUPS};
}

static Status block(Exec *x, const VaeLtx2UpsampleBlock *b, const Run *r) {
    GroupNorm n = norm_of(r->normed, r->product, &b->conv[0], b->norm_w[0], b->norm_b[0]);
    TRY(convolve(x, &b->conv[0], r->at, r->product, CONV_RAW));
    exec_site(x, "upsample.norm1");
    TRY(op_groupnorm_silu(x, &n));
    TRY(convolve(x, &b->conv[1], r->normed, r->product, CONV_RAW));
    n = norm_of(r->normed, r->product, &b->conv[1], b->norm_w[1], b->norm_b[1]);
    exec_site(x, "upsample.norm2");
    TRY(op_groupnorm(x, &n));
    TRY(op_add(x, &(Add){.y = r->normed, .a = r->normed, .b = r->at}));
    TRY(op_act(x, &(Act){.y = r->at, .x = r->normed, .kind = ACT_SILU}));
    return exec_tap(x, "upsample.block", r->at);
}

static Status blocks(const VaeLtx2Upsampler *u, Exec *x, int stage, const Run *r) {
    for (int64_t i = 0; i < u->blocks; i++)
        if (block(x, &u->block[stage][i], r) != OK)
            return because(x->error, "upsampler block %d of stage %d", (int)i + 1, stage + 1);
    return OK;
}

static Status entry(const VaeLtx2Upsampler *u, Exec *x, const Run *r, Tensor z) {
    GroupNorm n = norm_of(r->at, r->product, &u->initial, u->norm_w, u->norm_b);
    TRY(convolve(x, &u->initial, z, r->product, CONV_RAW));
    exec_site(x, "upsample.initial_norm");
    TRY(op_groupnorm_silu(x, &n));
    return exec_tap(x, "upsample.initial", r->at);
}

/* Each frame by itself: four times the channels, then twice the rows and columns. */
static Status shuffle(const VaeLtx2Upsampler *u, Exec *x, Tensor at, Tensor product, Tensor y) {
    TRY(op_conv2d(x, &(Conv2d){.y = product, .x = at, .w = &u->shuffle, .stride = 1, .pad_top = 1, .pad_left = 1,
                               .pad_bottom = 1, .pad_right = 1, .form = CONV_RAW, .tf32 = 1}));
    TRY(op_depth_to_space(x, &(Depth){.y = y, .x = product, .bias = u->shuffle.bias, .t = 1, .rows = 2, .columns = 2}));
    return exec_tap(x, "upsample.shuffle", y);
}

Status vae_ltx2_upsample(const VaeLtx2Upsampler *u, Exec *x, Tensor z, Tensor y) {
    if (z.rank != 4 || y.rank != 4 || z.shape[3] != u->in || y.shape[3] != u->in || y.shape[0] != z.shape[0] ||
        y.shape[1] != 2 * z.shape[1] || y.shape[2] != 2 * z.shape[2] || z.dtype != x->dtype || y.dtype != x->dtype)
        return fail(x->error, ERR_MODEL, "latent upsampler: expected latents [F, Y, X, %lld] to [F, 2 Y, 2 X, %lld]",
                    (long long)u->in, (long long)u->in);
    int64_t f = z.shape[0], h = z.shape[1], w = z.shape[2];
    size_t mark = arena_mark(x->work);
    Tensor room[3];
    for (int i = 0; i < 3; i++) room[i] = exec_new(x, 4 * f * h * w * u->mid);
    Run small = {like(room[0], f, h, w, u->mid), like(room[1], f, h, w, u->mid), like(room[2], f, h, w, u->mid)};
    Run large = {like(room[2], f, 2 * h, 2 * w, u->mid), like(room[1], f, 2 * h, 2 * w, u->mid),
                 like(room[0], f, 2 * h, 2 * w, u->mid)};
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(entry(u, x, &small, z));
    TRY(blocks(u, x, 0, &small));
    TRY(shuffle(u, x, small.at, like(room[1], f, h, w, 4 * u->mid), large.at));
    TRY(blocks(u, x, 1, &large));
    TRY(convolve(x, &u->final, large.at, y, CONV_BIAS));
    TRY(weights_leave(x, WEIGHTS_PART));
    arena_reset(x->work, mark);
    return exec_tap(x, "upsample.latents", y);
}
