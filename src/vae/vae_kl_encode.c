/* vae_kl_encode.c - see vae_kl_encode.h. */
#include "vae/vae_kl_encode.h"

#include "residency.h"

#include <stdio.h>

void vae_kl_encode_bind(VaeKlEncoder *v, Bind *b) {
    const VaeKlConfig *c = &v->c;
    int64_t in = c->channels[0], top = c->channels[c->levels - 1];
    char name[96];
    bind_conv(b, &v->conv_in, in, c->in, 3, "encoder.conv_in");
    for (int i = 0; i < c->levels; i++) {
        int64_t out = c->channels[i];
        for (int r = 0; r < c->layers; r++) {
            snprintf(name, sizeof name, "encoder.down_blocks.%d.resnets.%d", i, r);
            vae_blocks_bind_resnet(b, &v->down[i][r], r ? out : in, out, name);
        }
        if (i + 1 < c->levels) bind_conv(b, &v->downsample[i], out, out, 3, "encoder.down_blocks.%d.downsamplers.0.conv", i);
        in = out;
    }
    vae_blocks_bind_mid(b, &v->mid, top, c->mid_attention, "encoder.mid_block");
    bind_vector(b, &v->norm_out_w, top, BIND_PLAIN, "encoder.conv_norm_out.weight");
    bind_vector(b, &v->norm_out_b, top, BIND_PLAIN, "encoder.conv_norm_out.bias");
    bind_conv(b, &v->conv_out, 2 * c->latent, top, 3, "encoder.conv_out");
    if (c->quant) bind_conv(b, &v->quant, 2 * c->latent, 2 * c->latent, 1, "quant_conv");
}

/* Elements of the largest stage: the resnets of each level, at its own size. */
static int64_t widest(const VaeKlConfig *c, int64_t h, int64_t w) {
    int64_t most = 0;
    for (int i = 0; i < c->levels; i++) {
        int64_t in = c->channels[i ? i - 1 : 0], out = c->channels[i], n = (h >> i) * (w >> i) * (in > out ? in : out);
        if (n > most) most = n;
    }
    return most;
}

Status vae_kl_encode(const VaeKlEncoder *v, Exec *x, Tensor picture, Tensor moments) {
    size_t mark = arena_mark(x->work);
    const VaeKlConfig *c = &v->c;
    int groups = (int)c->groups;
    int64_t h = picture.shape[0], w = picture.shape[1];
    if (c->in != picture.shape[2])
        return fail(x->error, ERR_MODEL, "vae: the encoder takes %lld channels, expected %lld", (long long)c->in,
                    (long long)picture.shape[2]);
    VaeTurns t = vae_blocks_turns(x, widest(c, h, w));
    TRY(weights_enter(x, WEIGHTS_PART));
    Tensor next = vae_blocks_next(&t, h, w, c->channels[0]);
    Conv2d conv = vae_blocks_conv3(next, picture, &v->conv_in);
    TRY(op_conv2d(x, &conv));
    vae_blocks_done(&t, next);
    TRY(exec_tap(x, "vae.enc.conv_in", t.at));
    for (int i = 0; i < c->levels; i++) {
        for (int r = 0; r < c->layers; r++)
            if (vae_blocks_resnet(&v->down[i][r], groups, NULL, x, &t) != OK) return because(x->error, "vae down block %d", i);
        if (i + 1 < c->levels) {
            h /= 2, w /= 2;
            next = vae_blocks_next(&t, h, w, c->channels[i]);
            conv = (Conv2d){.y = next, .x = t.at, .w = &v->downsample[i], .stride = 2, .pad_bottom = 1, .pad_right = 1};
            TRY(op_conv2d(x, &conv));
            vae_blocks_done(&t, next);
        }
        TRY(exec_tapf(x, t.at, "vae.enc.down.%d", i));
    }
    TRY(vae_blocks_mid(&v->mid, groups, NULL, x, &t));
    TRY(exec_tap(x, "vae.enc.mid", t.at));
    next = vae_blocks_next(&t, h, w, c->channels[c->levels - 1]);
    exec_site(x, "vae.norm_out");
    TRY(op_groupnorm_silu(x, &(GroupNorm){.y = next, .x = t.at, .w = v->norm_out_w, .b = v->norm_out_b, .eps = VAE_EPS,
                                          .groups = groups}));
    TRY(exec_tap(x, "vae.enc.norm_out", next));
    Tensor out = c->quant ? exec_new(x, h, w, 2 * c->latent) : moments;
    conv = vae_blocks_conv3(out, next, &v->conv_out);
    TRY(op_conv2d(x, &conv));
    if (c->quant) {
        conv = vae_blocks_conv1(moments, out, &v->quant);
        TRY(op_conv2d(x, &conv));
    }
    TRY(exec_tap(x, "vae.enc.moments", moments));
    TRY(weights_leave(x, WEIGHTS_PART));
    arena_reset(x->work, mark);
    return OK;
}
