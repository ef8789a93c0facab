/* vae_wan.c - see vae_wan.h. */
#include "vae/vae_wan.h"

#include "core/file.h"
#include "core/json.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* --- config --- */

static const double MEAN[] = {-0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508,
                              0.4134, -0.0715, 0.5517, -0.3632, -0.1922, -0.9497, 0.2503, -0.2921};
static const double STD[] = {2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743,
                             3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251, 1.9160};
enum { DEFAULT_LATENT = 16 };

/* What the class offers beside, and no published checkpoint with this decoder uses. */
static Status refuse_variants(const Json *j, const char *path, Error *e) {
    bool residual = false;
    int64_t scale[1] = {0}, patch = 1;
    int scales = 0;
    TRY(json_bool(j, "is_residual", &residual, path, e));
    TRY(json_ints(j, "attn_scales", scale, 1, &scales, path, e));
    TRY(json_int(j, "patch_size", &patch, path, e));
    if (!residual && !scales && patch == 1) return OK;
    return fail(e, ERR_MODEL, "%s: is_residual, attn_scales and patch_size are not supported (Wan 2.1 has none), found %s, "
                "%d numbers and %lld", path, residual ? "true" : "false", scales, (long long)patch);
}

/* The pipeline counts frames and pixels of a latent by these two, the decoder makes what its levels make. */
static Status check_factors(const Json *j, const VaeWanConfig *c, const char *path, Error *e) {
    int64_t spatial = 8, temporal = 4, makes = 1;
    const JsonSize sizes[] = {{"scale_factor_spatial", &spatial}, {"scale_factor_temporal", &temporal}};
    TRY(json_sizes(j, sizes, 2, path, e));
    for (int i = 0; i < c->levels - 1; i++) makes *= c->temporal[i] ? 2 : 1;
    if (temporal != makes)
        return fail(e, ERR_MODEL, "%s: scale_factor_temporal: found %lld, expected %lld as temperal_downsample makes it", path,
                    (long long)temporal, (long long)makes);
    if (spatial == (int64_t)1 << (c->levels - 1)) return OK;
    return fail(e, ERR_MODEL, "%s: scale_factor_spatial: found %lld, expected %lld as dim_mult of %d levels makes it", path,
                (long long)spatial, 1LL << (c->levels - 1), c->levels);
}

static Status check_config(const VaeWanConfig *c, int means, int stds, int temporal, const char *path, Error *e) {
    if (c->levels < 1 || c->resnets >= VAE_WAN_MAX_RESNETS || temporal != c->levels - 1)
        return fail(e, ERR_MODEL, "%s: expected dim_mult of 1 to %d levels, temperal_downsample of one less (found %d), "
                    "num_res_blocks below %d", path, VAE_WAN_MAX_LEVELS, temporal, VAE_WAN_MAX_RESNETS);
    if (c->latent > VAE_WAN_MAX_LATENT || means != c->latent || stds != c->latent)
        return fail(e, ERR_MODEL, "%s: expected latents_mean and latents_std of z_dim %lld numbers, found %d and %d", path,
                    (long long)c->latent, means, stds);
    for (int i = 0; i < c->levels; i++)
        if (c->mult[i] < 1 || c->mult[i] * c->base > 65536 || c->mult[i] * c->decoder_base > 65536 ||
            (i && c->mult[i] * c->decoder_base % 2))
            return fail(e, ERR_MODEL, "%s: dim_mult %lld does not give 1 to 65536 channels, halved by the decoder's upsampling",
                        path, (long long)c->mult[i]);
    for (int i = 0; i < means; i++)
        if (!isfinite(c->mean[i]) || !isfinite(c->std[i]) || c->std[i] == 0)
            return fail(e, ERR_MODEL, "%s: latents_mean and latents_std must be finite, latents_std not 0", path);
    return c->out == 3 && c->in == 3 ? OK
         : fail(e, ERR_MODEL, "%s: expected in_channels and out_channels 3, found %lld and %lld", path, (long long)c->in,
                (long long)c->out);
}

static Status read_values(const Json *j, VaeWanConfig *c, const char *path, Error *e) {
    double mean[VAE_WAN_MAX_LATENT], std[VAE_WAN_MAX_LATENT];
    int means = DEFAULT_LATENT, stds = DEFAULT_LATENT, temporal = 3;
    const JsonSize sizes[] = {{"base_dim", &c->base}, {"z_dim", &c->latent}, {"num_res_blocks", &c->resnets},
                              {"in_channels", &c->in}, {"out_channels", &c->out}};
    const JsonSize decoder = {"decoder_base_dim", &c->decoder_base};
    memcpy(mean, MEAN, sizeof MEAN);
    memcpy(std, STD, sizeof STD);
    TRY(json_sizes(j, sizes, sizeof sizes / sizeof *sizes, path, e));
    c->decoder_base = c->base;
    TRY(json_sizes(j, &decoder, 1, path, e));
    TRY(json_ints(j, "dim_mult", c->mult, VAE_WAN_MAX_LEVELS, &c->levels, path, e));
    TRY(json_bools(j, "temperal_downsample", c->temporal, VAE_WAN_MAX_LEVELS, &temporal, path, e));
    TRY(json_doubles(j, "latents_mean", mean, VAE_WAN_MAX_LATENT, &means, path, e));
    TRY(json_doubles(j, "latents_std", std, VAE_WAN_MAX_LATENT, &stds, path, e));
    for (int i = 0; i < means; i++) c->mean[i] = (float)mean[i];
    for (int i = 0; i < stds; i++) c->std[i] = (float)std[i];
    TRY(refuse_variants(j, path, e));
    TRY(check_config(c, means, stds, temporal, path, e));
    return check_factors(j, c, path, e);
}

static Status read_config(const char *path, const Json *j, void *out, Error *e) {
    VaeWanConfig *c = out;
    *c = (VaeWanConfig){.base = 96, .latent = DEFAULT_LATENT, .mult = {1, 2, 4, 4}, .resnets = 2, .in = 3, .out = 3,
                        .levels = 4, .temporal = {false, true, true}}; /* the class defaults, as published */
    return read_values(j, c, path, e);
}

Status vae_wan_open(const char *folder, VaeWan *out, Error *e) {
    *out = (VaeWan){0};
    return json_read_in(folder, "config.json", read_config, &out->c, e);
}

int64_t vae_wan_scale(const VaeWanConfig *c) { return (int64_t)1 << (c->levels - 1); }

int64_t vae_wan_frames_each(const VaeWanConfig *c) {
    int64_t each = 1;
    for (int i = 0; i + 1 < c->levels; i++) each *= c->temporal[i] ? 2 : 1;
    return each;
}

int64_t vae_wan_frames(const VaeWanConfig *c, int64_t latent) { return 1 + (latent - 1) * vae_wan_frames_each(c); }

Status vae_wan_vectors(const VaeWanConfig *c, Exec *x, Tensor *by, Tensor *add) {
    float a[VAE_WAN_MAX_LATENT], b[VAE_WAN_MAX_LATENT];
    uint16_t half[2][VAE_WAN_MAX_LATENT];
    bool narrow = x->dtype == BF16;
    *by = exec_new(x, c->latent);
    *add = exec_new(x, c->latent);
    for (int64_t i = 0; i < c->latent; i++) {
        a[i] = 1.0f / (narrow ? bf16_round(c->std[i]) : c->std[i]);
        b[i] = c->mean[i];
        half[0][i] = bf16_from_f32(a[i]), half[1][i] = bf16_from_f32(b[i]);
    }
    TRY(exec_upload(x, *by, narrow ? (const void *)half[0] : a));
    return exec_upload(x, *add, narrow ? (const void *)half[1] : b);
}

/* --- weights --- */

int64_t vae_wan_level_out(const VaeWanConfig *c, int i) { return c->decoder_base * c->mult[c->levels - 1 - i]; }
int64_t vae_wan_level_in(const VaeWanConfig *c, int i) { return i ? vae_wan_level_out(c, i - 1) / 2 : vae_wan_level_out(c, 0); }
bool vae_wan_doubles_time(const VaeWanConfig *c, int i) { return i + 1 < c->levels && c->temporal[c->levels - 2 - i]; }

void vae_wan_bind(VaeWan *v, Bind *b) {
    const VaeWanConfig *c = &v->c;
    char name[96];
    bind_conv3d(b, &v->post_quant, c->latent, c->latent, 1, 1, "post_quant_conv");
    bind_conv3d(b, &v->conv_in, vae_wan_level_in(c, 0), c->latent, 3, 3, "decoder.conv_in");
    vae_wan_blocks_bind_mid(b, &v->mid, vae_wan_level_in(c, 0), "decoder.mid_block");
    for (int i = 0; i < c->levels; i++) {
        int64_t out = vae_wan_level_out(c, i);
        for (int r = 0; r <= c->resnets; r++) {
            snprintf(name, sizeof name, "decoder.up_blocks.%d.resnets.%d", i, r);
            vae_wan_blocks_bind_resnet(b, &v->up[i][r], r ? out : vae_wan_level_in(c, i), out, name);
        }
        if (i + 1 == c->levels) break;
        snprintf(name, sizeof name, "decoder.up_blocks.%d.upsamplers.0", i);
        bind_conv(b, &v->upsample[i], out / 2, out, 3, "%s.resample.1", name);
        if (vae_wan_doubles_time(c, i)) bind_conv3d(b, &v->time[i], 2 * out, out, 3, 1, "%s.time_conv", name);
    }
    bind_vector(b, &v->norm_out, vae_wan_level_out(c, c->levels - 1), BIND_SQUEEZE, "decoder.norm_out.gamma");
    bind_conv3d(b, &v->conv_out, c->out, vae_wan_level_out(c, c->levels - 1), 3, 3, "decoder.conv_out");
}
