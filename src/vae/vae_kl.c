/* vae_kl.c - see vae_kl.h. Two buffers, each large enough for the widest stage, take turns as input and output of the
 * stages; what a stage needs inside it pushes above them. */
#include "vae/vae_kl.h"

#include "core/file.h"
#include "core/json.h"
#include "residency.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static const float EPS = 1e-6f; /* hard-coded in AutoencoderKL's blocks */

static Status read_config(const char *path, VaeKlConfig *c, Error *e) {
    Json *j;
    TRY(json_read(path, &j, e));
    *c = (VaeKlConfig){.latent = 4, .channels = {64}, .layers = 1, .groups = 32, .out = 3, .levels = 1,
                       .scaling = 0.18215, .mid_attention = true, .post_quant = true}; /* the class defaults */
    const JsonSize sizes[] = {{"latent_channels", &c->latent}, {"layers_per_block", &c->layers},
                              {"norm_num_groups", &c->groups}, {"out_channels", &c->out}};
    const char *act = "silu";
    Status s = json_sizes(j, sizes, sizeof sizes / sizeof *sizes, path, e);
    if (s == OK) s = json_ints(j, "block_out_channels", c->channels, VAE_KL_MAX_LEVELS, &c->levels, path, e);
    if (s == OK) s = json_double(j, "scaling_factor", &c->scaling, path, e);
    if (s == OK) s = json_double(j, "shift_factor", &c->shift, path, e);
    if (s == OK) s = json_bool(j, "mid_block_add_attention", &c->mid_attention, path, e);
    if (s == OK) s = json_bool(j, "use_post_quant_conv", &c->post_quant, path, e);
    if (s == OK) s = json_string(j, "act_fn", &act, path, e);
    for (int i = 0; s == OK && i < c->levels; i++)
        if (c->channels[i] < 1 || c->channels[i] > 65536 || c->channels[i] % c->groups)
            s = fail(e, ERR_MODEL, "%s: block_out_channels: found %lld, expected a multiple of norm_num_groups %lld", path,
                     (long long)c->channels[i], (long long)c->groups);
    if (s == OK && (c->levels < 1 || c->layers + 1 > VAE_KL_MAX_RESNETS))
        s = fail(e, ERR_MODEL, "%s: expected at least one level and layers_per_block up to %d", path,
                 VAE_KL_MAX_RESNETS - 1);
    if (s == OK && (c->out != 3 || strcmp(act, "silu")))
        s = fail(e, ERR_MODEL, "%s: expected out_channels 3 and act_fn silu, found %lld and \"%s\"", path,
                 (long long)c->out, act);
    if (s == OK && !(isfinite(c->scaling) && c->scaling != 0 && isfinite(c->shift)))
        s = fail(e, ERR_MODEL, "%s: scaling_factor and shift_factor must be finite, scaling_factor not 0", path);
    json_free(j);
    return s;
}

Status vae_kl_open(const char *folder, VaeKl *out, Error *e) {
    *out = (VaeKl){0};
    char *path = file_join(folder, "config.json");
    if (!path) return fail(e, ERR_MEMORY, "%s: out of memory", folder);
    Status s = read_config(path, &out->c, e);
    free(path);
    return s;
}

int64_t vae_kl_scale(const VaeKl *v) { return (int64_t)1 << (v->c.levels - 1); }

static void bind_resnet(Bind *b, VaeResnet *r, int64_t in, int64_t out, const char *name) {
    r->in = in, r->out = out;
    bind_vector(b, &r->norm1_w, in, BIND_PLAIN, "%s.norm1.weight", name);
    bind_vector(b, &r->norm1_b, in, BIND_PLAIN, "%s.norm1.bias", name);
    bind_conv(b, &r->conv1, out, in, 3, "%s.conv1", name);
    bind_vector(b, &r->norm2_w, out, BIND_PLAIN, "%s.norm2.weight", name);
    bind_vector(b, &r->norm2_b, out, BIND_PLAIN, "%s.norm2.bias", name);
    bind_conv(b, &r->conv2, out, out, 3, "%s.conv2", name);
    if (in != out) bind_conv(b, &r->shortcut, out, in, 1, "%s.conv_shortcut", name);
}

void vae_kl_bind(VaeKl *v, Bind *b) {
    const VaeKlConfig *c = &v->c;
    int64_t top = c->channels[c->levels - 1], in = top;
    char name[96];
    if (c->post_quant) bind_conv(b, &v->post_quant, c->latent, c->latent, 1, "post_quant_conv");
    bind_conv(b, &v->conv_in, top, c->latent, 3, "decoder.conv_in");
    bind_resnet(b, &v->mid[0], top, top, "decoder.mid_block.resnets.0");
    bind_resnet(b, &v->mid[1], top, top, "decoder.mid_block.resnets.1");
    if (c->mid_attention) {
        const char *at = "decoder.mid_block.attentions.0";
        bind_vector(b, &v->attn_norm_w, top, BIND_PLAIN, "%s.group_norm.weight", at);
        bind_vector(b, &v->attn_norm_b, top, BIND_PLAIN, "%s.group_norm.bias", at);
        bind_linear(b, &v->attn_q, top, top, true, "%s.to_q", at);
        bind_linear(b, &v->attn_k, top, top, true, "%s.to_k", at);
        bind_linear(b, &v->attn_v, top, top, true, "%s.to_v", at);
        bind_linear(b, &v->attn_out, top, top, true, "%s.to_out.0", at);
    }
    for (int i = 0; i < c->levels; i++) {
        int64_t out = c->channels[c->levels - 1 - i];
        for (int r = 0; r <= c->layers; r++) {
            snprintf(name, sizeof name, "decoder.up_blocks.%d.resnets.%d", i, r);
            bind_resnet(b, &v->up[i][r], r ? out : in, out, name);
        }
        if (i + 1 < c->levels) bind_conv(b, &v->upsample[i], out, out, 3, "decoder.up_blocks.%d.upsamplers.0.conv", i);
        in = out;
    }
    bind_vector(b, &v->norm_out_w, in, BIND_PLAIN, "decoder.conv_norm_out.weight");
    bind_vector(b, &v->norm_out_b, in, BIND_PLAIN, "decoder.conv_norm_out.bias");
    bind_conv(b, &v->conv_out, c->out, in, 3, "decoder.conv_out");
}

/* --- decode --- */

static Conv2d conv3(Tensor y, Tensor x, const Weight *w) {
    return (Conv2d){.y = y, .x = x, .w = w, .stride = 1, .pad_top = 1, .pad_left = 1, .pad_bottom = 1, .pad_right = 1};
}

static Conv2d conv1(Tensor y, Tensor x, const Weight *w) { return (Conv2d){.y = y, .x = x, .w = w, .stride = 1}; }

/* y = shortcut(in) + conv2(silu(norm2(conv1(silu(norm1(in)))))). The biases of conv1 and of the shortcut are added by the
 * op that reads them: on a GPU a pass over the picture less. */
static Status resnet(const VaeKl *v, Exec *x, const VaeResnet *r, Tensor y, Tensor in) {
    size_t mark = arena_mark(x->work);
    int64_t h = in.shape[0], w = in.shape[1];
    int groups = (int)v->c.groups;
    Tensor a = exec_new(x, h, w, r->in), b = exec_new(x, h, w, r->out);
    exec_site(x, "vae.resnet.norm1");
    TRY(op_groupnorm_silu(x, &(GroupNorm){.y = a, .x = in, .w = r->norm1_w, .b = r->norm1_b, .eps = EPS,
                                          .groups = groups}));
    Conv2d c = conv3(b, a, &r->conv1);
    c.form = CONV_RAW;
    TRY(op_conv2d(x, &c));
    exec_site(x, "vae.resnet.norm2");
    TRY(op_groupnorm_silu(x, &(GroupNorm){.y = b, .x = b, .w = r->norm2_w, .b = r->norm2_b, .bias = r->conv1.bias,
                                          .eps = EPS, .groups = groups}));
    Tensor skip = in, skip_bias = {0};
    if (r->shortcut.w.rank) {
        skip = tensor_view(tensor_slice(tensor_view(a, h * w * r->in), 0, 0, h * w * r->out), h, w, r->out);
        if (r->out > r->in) skip = exec_new(x, h, w, r->out);
        skip_bias = r->shortcut.bias;
        c = conv1(skip, in, &r->shortcut);
        c.form = CONV_RAW;
        TRY(op_conv2d(x, &c));
    }
    c = conv3(y, b, &r->conv2);
    c.skip = skip, c.skip_bias = skip_bias;
    TRY(op_conv2d(x, &c));
    arena_reset(x->work, mark);
    return OK;
}

/* y = in + to_out(attention(groupnorm(in))), one head as wide as the channels. */
static Status mid_attention(const VaeKl *v, Exec *x, Tensor y, Tensor in) {
    size_t mark = arena_mark(x->work);
    int64_t h = in.shape[0], w = in.shape[1], c = in.shape[2];
    Tensor n = exec_new(x, h, w, c);
    exec_site(x, "vae.attention.norm");
    TRY(op_groupnorm(x, &(GroupNorm){.y = n, .x = in, .w = v->attn_norm_w, .b = v->attn_norm_b, .eps = EPS,
                                     .groups = (int)v->c.groups}));
    exec_site(x, "vae.attention");
    TRY(op_self_attention(x, &(SelfAttention){.y = tensor_view(y, h * w, c), .x = tensor_view(n, h * w, c),
                                              .residual = tensor_view(in, h * w, c), .wq = &v->attn_q, .wk = &v->attn_k,
                                              .wv = &v->attn_v, .wo = &v->attn_out,
                                              .scale = (float)(1.0 / sqrt((double)c))}));
    arena_reset(x->work, mark);
    return OK;
}

/* Elements of the largest stage tensor: the upsampled output of each level, at its own width. */
static int64_t widest(const VaeKlConfig *c, int64_t h, int64_t w) {
    int64_t most = h * w * c->channels[c->levels - 1];
    for (int i = 0; i < c->levels; i++) {
        int64_t n = (h << i) * (w << i) * c->channels[c->levels - 1 - i];
        if (i + 1 < c->levels) n *= 4;
        if (n > most) most = n;
    }
    return most;
}

Status vae_kl_decode(const VaeKl *v, Exec *x, Tensor z, Tensor picture) {
    size_t mark = arena_mark(x->work);
    const VaeKlConfig *c = &v->c;
    int64_t h = z.shape[0], w = z.shape[1], channels = c->channels[c->levels - 1], most = widest(c, h, w);
    Tensor buffer[2] = {exec_new(x, most), exec_new(x, most)};
    int turn = 0; /* the buffer that the next stage writes */
    TRY(weights_enter(x, WEIGHTS_PART));
#define STAGE(hh, ww, cc) tensor_view(tensor_slice(buffer[turn], 0, 0, (hh) * (ww) * (cc)), hh, ww, cc)
    if (c->post_quant) {
        Tensor q = exec_new(x, h, w, c->latent);
        Conv2d cq = conv1(q, z, &v->post_quant);
        TRY(op_conv2d(x, &cq));
        z = q;
    }
    Tensor at = STAGE(h, w, channels), next;
    Conv2d conv = conv3(at, z, &v->conv_in);
    TRY(op_conv2d(x, &conv));
    TRY(exec_tap(x, "vae.conv_in", at));
    for (int i = 0; i < 2; i++) {
        turn ^= 1;
        next = STAGE(h, w, channels);
        TRY(resnet(v, x, &v->mid[i], next, at));
        at = next;
        if (i || !c->mid_attention) continue;
        turn ^= 1;
        next = STAGE(h, w, channels);
        TRY(mid_attention(v, x, next, at));
        at = next;
    }
    TRY(exec_tap(x, "vae.mid", at));
    for (int i = 0; i < c->levels; i++) {
        for (int r = 0; r <= c->layers; r++) {
            turn ^= 1;
            next = STAGE(h, w, v->up[i][r].out);
            if (resnet(v, x, &v->up[i][r], next, at) != OK) return because(x->error, "vae up block %d", i);
            at = next;
        }
        channels = at.shape[2];
        if (i + 1 < c->levels) {
            h *= 2, w *= 2;
            turn ^= 1;
            next = STAGE(h, w, channels);
            conv = conv3(next, at, &v->upsample[i]);
            exec_site(x, "vae.upsample");
            TRY(op_upsample_conv(x, &conv));
            at = next;
        }
        TRY(exec_tapf(x, at, "vae.up.%d", i));
    }
    turn ^= 1;
    next = STAGE(h, w, channels);
    exec_site(x, "vae.norm_out");
    TRY(op_groupnorm_silu(x, &(GroupNorm){.y = next, .x = at, .w = v->norm_out_w, .b = v->norm_out_b, .eps = EPS,
                                          .groups = (int)c->groups}));
    TRY(exec_tap(x, "vae.norm_out", next));
    conv = conv3(picture, next, &v->conv_out);
    TRY(op_conv2d(x, &conv));
    TRY(weights_leave(x, WEIGHTS_PART));
    arena_reset(x->work, mark);
    return OK;
#undef STAGE
}
