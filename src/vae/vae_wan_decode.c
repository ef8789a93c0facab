/* vae_wan_decode.c - the decoder of vae_wan.h, whole or in tiles.
 *
 * In tiles, the levels up to the second upsampling run whole, the attention and so all that sees the whole frame among them,
 * and what they make of all frames is kept; then the wide levels run tile by tile, each over all of its time, on a border wide
 * enough that no convolution misses anything: the frames are those of the whole decode, sum by sum, and nothing is blended.
 * Easy to get wrong: the border shrinks by a pixel with every 3 x 3 convolution and doubles with every upsampling; tiles lie
 * on the pixels of the level where they begin. */
#include "vae/vae_wan.h"

#include "residency.h"

static const char *const SITE_UPSAMPLE = "vae.upsample", *const SITE_OUT = "vae.norm_out";

/* Elements of the largest stage of levels [from, to), for f frames of h x w into the first. */
static int64_t widest(const VaeWanConfig *c, int from, int to, int64_t f, int64_t h, int64_t w) {
    int64_t most = 0;
    for (int i = from; i < to; i++, h *= 2, w *= 2) {
        int64_t in = vae_wan_level_in(c, i), out = vae_wan_level_out(c, i), size = f * h * w * (in > out ? in : out);
        if (vae_wan_doubles_time(c, i)) f *= 2, size = f * h * w * out;
        int64_t up = i + 1 < c->levels ? 2 * f * h * w * out : 0; /* half the channels, four times the pixels */
        size = up > size ? up : size;
        most = size > most ? size : most;
    }
    return most;
}

/* --- histories, in the order of use --- */

static Status cache_entry(const VaeWan *v, Exec *x, VaeWanRun *r, int64_t h, int64_t w) {
    TRY(vae_wan_blocks_cache(x, r, VAE_WAN_HISTORY, h, w, v->c.latent));
    return vae_wan_blocks_cache_mid(x, r, &v->mid, h, w);
}

static Status cache_levels(const VaeWan *v, Exec *x, VaeWanRun *r, int from, int to, int64_t h, int64_t w) {
    const VaeWanConfig *c = &v->c;
    for (int i = from; i < to; i++) {
        for (int k = 0; k <= c->resnets; k++) TRY(vae_wan_blocks_cache_resnet(x, r, &v->up[i][k], h, w));
        if (vae_wan_doubles_time(c, i)) TRY(vae_wan_blocks_cache(x, r, VAE_WAN_HISTORY, h, w, vae_wan_level_out(c, i)));
        if (i + 1 == c->levels) return vae_wan_blocks_cache(x, r, VAE_WAN_HISTORY, h, w, vae_wan_level_out(c, i));
        h *= 2, w *= 2;
    }
    return OK;
}

/* --- stages of a chunk; first: of the video's first one --- */

/* Each frame becomes two: the halves of the convolution's channels. The first chunk passes by, and leaves no history. */
static Status double_time(const Weight *time, Exec *x, VaeWanRun *r, bool first) {
    if (first) {
        r->next++;
        return OK;
    }
    size_t mark = arena_mark(x->work);
    Tensor in = r->t.at;
    int64_t f = in.shape[0], h = in.shape[1], w = in.shape[2], c = in.shape[3];
    Tensor window = exec_new(x, VAE_WAN_HISTORY + f, h, w, c), both = exec_new(x, f, h, w, 2 * c);
    TRY(op_copy(x, &(Copy){.y = vae_wan_blocks_behind(window, VAE_WAN_HISTORY), .x = in}));
    Conv3d conv = vae_wan_blocks_conv(both, window, time);
    TRY(vae_wan_blocks_causal(x, r, &conv));
    Tensor y = vae_wan_blocks_next(r, 2 * f, h, w, c), from = tensor_view(both, f, h * w, 2, c);
    from.shape[1] = 2, from.stride[1] = c;
    from.shape[2] = h * w, from.stride[2] = 2 * c;
    TRY(op_copy(x, &(Copy){.y = tensor_view(y, f, 2, h * w, c), .x = from}));
    arena_reset(x->work, mark);
    vae_blocks_done(&r->t, y);
    return OK;
}

static Status upsample(const Weight *weight, Exec *x, VaeWanRun *r) {
    const int64_t *s = r->t.at.shape;
    Tensor y = vae_wan_blocks_next(r, s[0], 2 * s[1], 2 * s[2], weight->w.shape[0]);
    Conv2d conv = vae_blocks_conv3(y, r->t.at, weight);
    conv.tf32 = 1;
    exec_site(x, SITE_UPSAMPLE);
    TRY(op_upsample_conv(x, &conv));
    vae_blocks_done(&r->t, y);
    return OK;
}

/* From scaled latents to the first level. */
static Status entry(const VaeWan *v, Exec *x, VaeWanRun *r, Tensor z) {
    const VaeWanConfig *c = &v->c;
    size_t mark = arena_mark(x->work);
    int64_t f = z.shape[0], h = z.shape[1], w = z.shape[2];
    Tensor window = exec_new(x, VAE_WAN_HISTORY + f, h, w, c->latent);
    Tensor next = vae_wan_blocks_next(r, f, h, w, vae_wan_level_in(c, 0));
    Conv3d conv = vae_wan_blocks_conv(vae_wan_blocks_behind(window, VAE_WAN_HISTORY), z, &v->post_quant);
    TRY(op_conv3d(x, &conv));
    conv = vae_wan_blocks_conv(next, window, &v->conv_in);
    TRY(vae_wan_blocks_causal(x, r, &conv));
    arena_reset(x->work, mark);
    vae_blocks_done(&r->t, next);
    TRY(exec_tap(x, "vae.conv_in", next));
    return vae_wan_blocks_mid(&v->mid, x, r);
}

static Status levels(const VaeWan *v, Exec *x, VaeWanRun *r, int from, int to, bool first) {
    const VaeWanConfig *c = &v->c;
    for (int i = from; i < to; i++) {
        for (int k = 0; k <= c->resnets; k++)
            if (vae_wan_blocks_resnet(&v->up[i][k], x, r) != OK) return because(x->error, "vae up block %d", i);
        if (vae_wan_doubles_time(c, i)) TRY(double_time(&v->time[i], x, r, first));
        if (i + 1 == c->levels) break;
        TRY(upsample(&v->upsample[i], x, r));
        TRY(exec_tapf(x, r->t.at, "vae.up.%d", i));
    }
    return OK;
}

/* y = conv(silu(norm(at))). */
static Status head(const VaeWan *v, Exec *x, VaeWanRun *r, Tensor y) {
    size_t mark = arena_mark(x->work);
    const int64_t *s = r->t.at.shape;
    Tensor window = exec_new(x, VAE_WAN_HISTORY + s[0], s[1], s[2], s[3]);
    Tensor normed = vae_wan_blocks_behind(window, VAE_WAN_HISTORY);
    TRY(vae_wan_blocks_norm(x, SITE_OUT, normed, r->t.at, v->norm_out, (Tensor){0}));
    TRY(exec_tap(x, "vae.norm_out", normed));
    Conv3d conv = vae_wan_blocks_conv(y, window, &v->conv_out);
    TRY(vae_wan_blocks_causal(x, r, &conv));
    arena_reset(x->work, mark);
    return exec_tap(x, "vae.frames", y);
}

/* --- the order of chunks --- */

/* Frames [first, first + n) of latents, and how many frames each becomes, the video's first one apart. */
static Tensor made_of(Tensor t, int64_t first, int64_t n, int64_t each) {
    return tensor_slice(t, 0, first ? 1 + (first - 1) * each : 0, first ? n * each : 1);
}

typedef struct Work {
    const VaeWan *v;
    Exec *x;
    Tensor z, video; /* scaled latents; as vae_wan_decode has it */
    int64_t together;
} Work;

static int64_t chunk_of(const Work *k, int64_t first) {
    int64_t left = k->z.shape[0] - first;
    return !first ? 1 : left < k->together ? left : k->together;
}

static int64_t largest_chunk(const Work *k) {
    int64_t rest = k->z.shape[0] - 1;
    return rest < 1 ? 1 : rest < k->together ? rest : k->together;
}

static Status whole(const Work *k) {
    const VaeWanConfig *c = &k->v->c;
    Exec *x = k->x;
    int64_t h = k->z.shape[1], w = k->z.shape[2];
    VaeWanRun r = {.t = vae_blocks_turns(x, widest(c, 0, c->levels, largest_chunk(k), h, w))};
    TRY(cache_entry(k->v, x, &r, h, w));
    TRY(cache_levels(k->v, x, &r, 0, c->levels, h, w));
    for (int64_t i = 0; i < k->z.shape[0]; i += chunk_of(k, i)) {
        size_t mark = arena_mark(x->work);
        Tensor out = made_of(k->video, i, chunk_of(k, i), vae_wan_frames_each(c)), frames = out;
        if (out.dtype == U8) frames = exec_new(x, out.shape[0], out.shape[1], out.shape[2], out.shape[3]);
        r.next = 0;
        TRY(entry(k->v, x, &r, tensor_slice(k->z, 0, i, chunk_of(k, i))));
        TRY(levels(k->v, x, &r, 0, c->levels, !i));
        TRY(head(k->v, x, &r, frames));
        if (out.dtype == U8) TRY(exec_check_finite(x, frames, "vae: decoded frames"));
        if (out.dtype == U8) TRY(op_to_rgb8(x, &(ToRgb8){.y = out, .x = frames}));
        arena_reset(x->work, mark);
    }
    return OK;
}

/* --- tiles --- */

/* The first level that runs in tiles, and the frames that a latent frame has become by then. */
static int tiled_from(const VaeWanConfig *c) { return c->levels > 3 ? c->levels - 3 : 1; }

static int64_t frames_by(const VaeWanConfig *c, int level) {
    int64_t each = 1;
    for (int i = 0; i < level; i++) each *= vae_wan_doubles_time(c, i) ? 2 : 1;
    return each;
}

/* Pixels at level `from` beyond a tile on which its frames depend. */
static int64_t border(const VaeWanConfig *c, int from) {
    int64_t r = 1; /* conv_out */
    for (int i = c->levels - 1; i >= from; i--) {
        if (i + 1 < c->levels) r = (r + 2) / 2; /* the upsampling's convolution, then half the pixels */
        r += 2 * (c->resnets + 1);
    }
    return r;
}

/* Tile i of n along `size` pixels: [at, at + count), and with its border [from, from + all). */
typedef struct Span { int64_t at, count, from, all; } Span;

static Span span_of(int64_t size, int i, int n, int64_t edge) {
    Span s = {.at = size * i / n};
    s.count = size * (i + 1) / n - s.at;
    int64_t end = s.at + s.count + edge < size ? s.at + s.count + edge : size;
    s.from = s.at > edge ? s.at - edge : 0;
    s.all = end - s.from;
    return s;
}

/* All that the whole levels make: [frames, Y, X, C]. */
static Status lower(const Work *k, int to, Tensor made) {
    const VaeWanConfig *c = &k->v->c;
    Exec *x = k->x;
    size_t mark = arena_mark(x->work);
    int64_t h = k->z.shape[1], w = k->z.shape[2];
    VaeWanRun r = {.t = vae_blocks_turns(x, widest(c, 0, to, largest_chunk(k), h, w))};
    TRY(cache_entry(k->v, x, &r, h, w));
    TRY(cache_levels(k->v, x, &r, 0, to, h, w));
    for (int64_t i = 0; i < k->z.shape[0]; i += chunk_of(k, i)) {
        r.next = 0;
        TRY(entry(k->v, x, &r, tensor_slice(k->z, 0, i, chunk_of(k, i))));
        TRY(levels(k->v, x, &r, 0, to, !i));
        TRY(op_copy(x, &(Copy){.y = made_of(made, i, chunk_of(k, i), frames_by(c, to)), .x = r.t.at}));
    }
    arena_reset(x->work, mark);
    return OK;
}

static Status tile(const Work *k, int from, Tensor made, Span sy, Span sx) {
    const VaeWanConfig *c = &k->v->c;
    Exec *x = k->x;
    size_t mark = arena_mark(x->work);
    int64_t before = frames_by(c, from), scale = k->video.shape[1] / made.shape[1];
    VaeWanRun r = {.t = vae_blocks_turns(x, widest(c, from, c->levels, largest_chunk(k) * before, sy.all, sx.all))};
    TRY(cache_levels(k->v, x, &r, from, c->levels, sy.all, sx.all));
    Tensor in = tensor_slice(tensor_slice(made, 1, sy.from, sy.all), 2, sx.from, sx.all);
    Tensor out = tensor_slice(tensor_slice(k->video, 1, scale * sy.at, scale * sy.count), 2, scale * sx.at, scale * sx.count);
    for (int64_t i = 0; i < k->z.shape[0]; i += chunk_of(k, i)) {
        size_t at = arena_mark(x->work);
        Tensor part = made_of(in, i, chunk_of(k, i), before), to = made_of(out, i, chunk_of(k, i), vae_wan_frames_each(c));
        Tensor next = vae_wan_blocks_next(&r, part.shape[0], sy.all, sx.all, part.shape[3]);
        Tensor frames = exec_new(x, to.shape[0], scale * sy.all, scale * sx.all, c->out);
        TRY(op_copy(x, &(Copy){.y = next, .x = part}));
        vae_blocks_done(&r.t, next);
        r.next = 0;
        TRY(levels(k->v, x, &r, from, c->levels, !i));
        TRY(head(k->v, x, &r, frames));
        if (to.dtype == U8) TRY(exec_check_finite(x, frames, "vae: decoded frames"));
        frames = tensor_slice(frames, 1, scale * (sy.at - sy.from), scale * sy.count);
        frames = tensor_slice(frames, 2, scale * (sx.at - sx.from), scale * sx.count);
        if (to.dtype == U8) TRY(op_to_rgb8(x, &(ToRgb8){.y = to, .x = frames}));
        else TRY(op_copy(x, &(Copy){.y = to, .x = frames}));
        arena_reset(x->work, at);
    }
    arena_reset(x->work, mark);
    return OK;
}

static Status tiled(const Work *k, VaeWanTiles tiles) {
    const VaeWanConfig *c = &k->v->c;
    Exec *x = k->x;
    int from = tiled_from(c);
    int64_t count = k->z.shape[0], edge = border(c, from);
    Tensor made = exec_new(x, 1 + (count - 1) * frames_by(c, from), k->z.shape[1] << from, k->z.shape[2] << from,
                           vae_wan_level_in(c, from));
    TRY(lower(k, from, made));
    for (int i = 0; i < tiles.down * tiles.across; i++) {
        Span sy = span_of(made.shape[1], i / tiles.across, tiles.down, edge);
        Span sx = span_of(made.shape[2], i % tiles.across, tiles.across, edge);
        if (tile(k, from, made, sy, sx) != OK) return because(x->error, "tile %d of %d", i + 1, tiles.down * tiles.across);
    }
    return OK;
}

VaeWanTiles vae_wan_tiles(const VaeWanConfig *c, int64_t h, int64_t w, int times) {
    VaeWanTiles t = {1, 1};
    int from = tiled_from(c);
    if (c->levels < 2) return t;
    for (h <<= from, w <<= from; times > 0; times--) { /* halves the longer side of a tile */
        if (h / t.down > w / t.across) t.down = 2 * t.down <= h ? 2 * t.down : t.down;
        else t.across = 2 * t.across <= w ? 2 * t.across : t.across;
    }
    return t;
}

/* --- the whole of it --- */

static Status check(const VaeWanConfig *c, Exec *x, Tensor z, int64_t together, VaeWanTiles tiles, Tensor video) {
    int64_t k = vae_wan_scale(c), grid = c->levels < 2 ? 0 : (int64_t)1 << tiled_from(c);
    if (z.rank != 4 || z.shape[0] < 1 || z.shape[3] != c->latent || together < 1)
        return fail(x->error, ERR_MODEL, "vae: latents must be [frames, Y, X, %lld], decoded one or more frames at a time",
                    (long long)c->latent);
    if (video.rank != 4 || video.shape[0] != vae_wan_frames(c, z.shape[0]) || video.shape[1] != k * z.shape[1] ||
        video.shape[2] != k * z.shape[2] || video.shape[3] != c->out || (video.dtype != U8 && video.dtype != x->dtype))
        return fail(x->error, ERR_MODEL, "vae: %lld latent frames of %lld x %lld give %lld frames of %lld x %lld",
                    (long long)z.shape[0], (long long)z.shape[1], (long long)z.shape[2],
                    (long long)vae_wan_frames(c, z.shape[0]), (long long)(k * z.shape[1]), (long long)(k * z.shape[2]));
    if (tiles.down < 1 || tiles.across < 1 ||
        (tiles.down * tiles.across > 1 && (tiles.down > grid * z.shape[1] || tiles.across > grid * z.shape[2])))
        return fail(x->error, ERR_MODEL, "vae: latents of %lld x %lld cannot be cut into %d x %d tiles", (long long)z.shape[1],
                    (long long)z.shape[2], tiles.down, tiles.across);
    return OK;
}

Status vae_wan_decode_tiles(const VaeWan *v, Exec *x, Tensor z, int64_t together, VaeWanTiles tiles, Tensor video) {
    const VaeWanConfig *c = &v->c;
    TRY(check(c, x, z, together, tiles, video));
    size_t mark = arena_mark(x->work);
    Tensor by, add, scaled = exec_new(x, z.shape[0], z.shape[1], z.shape[2], c->latent);
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(vae_wan_vectors(c, x, &by, &add));
    TRY(op_chan_affine(x, &(ChanAffine){.y = scaled, .x = z, .a = by, .b = add, .form = CHAN_DIVIDE_ADD}));
    Work k = {.v = v, .x = x, .z = scaled, .video = video, .together = together};
    TRY(tiles.down * tiles.across == 1 ? whole(&k) : tiled(&k, tiles));
    TRY(weights_leave(x, WEIGHTS_PART));
    arena_reset(x->work, mark);
    return OK;
}

Status vae_wan_decode(const VaeWan *v, Exec *x, Tensor z, int64_t together, Tensor video) {
    return vae_wan_decode_tiles(v, x, z, together, (VaeWanTiles){1, 1}, video);
}
