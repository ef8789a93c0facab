/* vae_kl.c - see vae_kl.h. */
#include "vae/vae_kl.h"

#include "core/json.h"
#include "residency.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static Status read_config(const char *path, const Json *j, void *out, Error *e) {
    VaeKlConfig *c = out;
    *c = (VaeKlConfig){.latent = 4, .channels = {64}, .layers = 1, .groups = 32, .out = 3, .in = 3, .levels = 1,
                       .scaling = 0.18215, .mid_attention = true, .post_quant = true, .quant = true}; /* the class defaults */
    const JsonSize sizes[] = {{"latent_channels", &c->latent}, {"layers_per_block", &c->layers},
                              {"norm_num_groups", &c->groups}, {"out_channels", &c->out},
                              {"in_channels", &c->in}};
    const char *act = "silu";
    Status s = json_sizes(j, sizes, sizeof sizes / sizeof *sizes, path, e);
    if (s == OK) s = json_ints(j, "block_out_channels", c->channels, VAE_KL_MAX_LEVELS, &c->levels, path, e);
    if (s == OK) s = json_double(j, "scaling_factor", &c->scaling, path, e);
    if (s == OK) s = json_double(j, "shift_factor", &c->shift, path, e);
    if (s == OK) s = json_bool(j, "mid_block_add_attention", &c->mid_attention, path, e);
    if (s == OK) s = json_bool(j, "use_post_quant_conv", &c->post_quant, path, e);
    if (s == OK) s = json_bool(j, "use_quant_conv", &c->quant, path, e);
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
    return s;
}

Status vae_kl_open(const char *folder, VaeKl *out, Error *e) {
    *out = (VaeKl){0};
    return json_read_in(folder, "config.json", read_config, &out->c, e);
}

int64_t vae_kl_scale(const VaeKl *v) { return (int64_t)1 << (v->c.levels - 1); }

void vae_kl_bind(VaeKl *v, Bind *b) {
    const VaeKlConfig *c = &v->c;
    int64_t top = c->channels[c->levels - 1], in = top;
    char name[96];
    if (c->post_quant) bind_conv(b, &v->post_quant, c->latent, c->latent, 1, "post_quant_conv");
    bind_conv(b, &v->conv_in, top, c->latent, 3, "decoder.conv_in");
    vae_blocks_bind_mid(b, &v->mid, top, c->mid_attention, "decoder.mid_block");
    for (int i = 0; i < c->levels; i++) {
        int64_t out = c->channels[c->levels - 1 - i];
        for (int r = 0; r <= c->layers; r++) {
            snprintf(name, sizeof name, "decoder.up_blocks.%d.resnets.%d", i, r);
            vae_blocks_bind_resnet(b, &v->up[i][r], r ? out : in, out, name);
        }
        if (i + 1 < c->levels) bind_conv(b, &v->upsample[i], out, out, 3, "decoder.up_blocks.%d.upsamplers.0.conv", i);
        in = out;
    }
    bind_vector(b, &v->norm_out_w, in, BIND_PLAIN, "decoder.conv_norm_out.weight");
    bind_vector(b, &v->norm_out_b, in, BIND_PLAIN, "decoder.conv_norm_out.bias");
    bind_conv(b, &v->conv_out, c->out, in, 3, "decoder.conv_out");
}

/* --- decode --- */

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
    int groups = (int)c->groups;
    char stage[32];
    int64_t h = z.shape[0], w = z.shape[1], channels = c->channels[c->levels - 1];
    VaeTurns t = vae_blocks_turns(x, widest(c, h, w));
    TRY(weights_enter(x, WEIGHTS_PART));
    if (c->post_quant) {
        Tensor q = exec_new(x, h, w, c->latent);
        Conv2d cq = vae_blocks_conv1(q, z, &v->post_quant);
        TRY(op_conv2d(x, &cq));
        z = q;
    }
    Tensor next = vae_blocks_next(&t, h, w, channels);
    Conv2d conv = vae_blocks_conv3(next, z, &v->conv_in);
    TRY(op_conv2d(x, &conv));
    vae_blocks_done(&t, next);
    TRY(exec_tap(x, "vae.conv_in", t.at));
    TRY(vae_blocks_mid(&v->mid, groups, "vae.mid", x, &t));
    TRY(exec_tap(x, "vae.mid", t.at));
    for (int i = 0; i < c->levels; i++) {
        for (int r = 0; r <= c->layers; r++) {
            snprintf(stage, sizeof stage, "vae.up.%d.%d", i, r);
            if (vae_blocks_resnet(&v->up[i][r], groups, stage, x, &t) != OK) return because(x->error, "vae up block %d", i);
        }
        channels = t.at.shape[2];
        if (i + 1 < c->levels) {
            h *= 2, w *= 2;
            next = vae_blocks_next(&t, h, w, channels);
            conv = vae_blocks_conv3(next, t.at, &v->upsample[i]);
            exec_site(x, "vae.upsample");
            TRY(op_upsample_conv(x, &conv));
            vae_blocks_done(&t, next);
        }
        TRY(exec_tapf(x, t.at, "vae.up.%d", i));
    }
    next = vae_blocks_next(&t, h, w, channels);
    exec_site(x, "vae.norm_out");
    TRY(op_groupnorm_silu(x, &(GroupNorm){.y = next, .x = t.at, .w = v->norm_out_w, .b = v->norm_out_b, .eps = VAE_EPS,
                                          .groups = groups}));
    TRY(exec_tap(x, "vae.norm_out", next));
    conv = vae_blocks_conv3(picture, next, &v->conv_out);
    TRY(op_conv2d(x, &conv));
    TRY(weights_leave(x, WEIGHTS_PART));
    arena_reset(x->work, mark);
    return OK;
}
