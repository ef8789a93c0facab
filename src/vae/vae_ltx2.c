/* vae_ltx2.c - see vae_ltx2.h: the config and the names of the weights, and the latents' statistics. */
#include "vae/vae_ltx2.h"

#include "core/json.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>

/* --- config --- */

/* A boolean for all of `count`, or a list of as many. */
static Status booleans(const Json *j, const char *key, bool *out, int count, const char *path, Error *e) {
    const Json *item = json_get(j, key);
    int n = count;
    if (cJSON_IsBool(item)) {
        for (int i = 0; i < count; i++) out[i] = cJSON_IsTrue(item);
        return OK;
    }
    TRY(json_bools(j, key, out, VAE_LTX2_MAX_LEVELS + 1, &n, path, e));
    return n == count ? OK : fail(e, ERR_MODEL, "%s: %s: found %d, expected %d", path, key, n, count);
}

static Status scales(const Json *j, const char *key, VaeLtx2Scale *out, int count, const char *path, Error *e) {
    static const struct { const char *name; VaeLtx2Scale scale; } KINDS[] = {
        {"spatial", {1, 2, 2}}, {"temporal", {2, 1, 1}}, {"spatiotemporal", {2, 2, 2}}};
    const Json *list = json_get(j, key);
    if (json_is_null(list)) return OK;
    int n = 0;
    for (const Json *c = list->child; c; c = c->next) {
        int k = 0;
        while (k < 3 && !(cJSON_IsString(c) && !strcmp(c->valuestring, KINDS[k].name))) k++;
        if (k == 3 || n == count)
            return fail(e, ERR_MODEL, "%s: %s: expected %d of spatial, temporal and spatiotemporal, found %s", path, key, count,
                        k < 3 ? "more" : cJSON_IsString(c) ? c->valuestring : "something else");
        out[n++] = KINDS[k].scale;
    }
    return n == count ? OK : fail(e, ERR_MODEL, "%s: %s: found %d, expected %d", path, key, n, count);
}

static Status padding(const Json *j, const char *key, bool *mirror, const char *path, Error *e) {
    const char *mode = *mirror ? "reflect" : "zeros";
    TRY(json_string(j, key, &mode, path, e));
    *mirror = !strcmp(mode, "reflect");
    return *mirror || !strcmp(mode, "zeros") ? OK
         : fail(e, ERR_MODEL, "%s: %s \"%s\" is not supported: expected zeros or reflect", path, key, mode);
}

static Status all_true(const bool *b, int count, const char *key, const char *path, Error *e) {
    for (int i = 0; i < count; i++)
        if (!b[i]) return fail(e, ERR_MODEL, "%s: %s: a level that keeps the size is not supported", path, key);
    return OK;
}

/* What the class offers beside, and no published checkpoint uses. */
static Status refuse_variants(const Json *j, const char *path, Error *e) {
    bool timestep = false, noise[VAE_LTX2_MAX_LEVELS + 1] = {false};
    int64_t patch_t = 1;
    int n = 0;
    double scaling = 1;
    const Json *list = json_get(j, "decoder_inject_noise");
    TRY(json_bool(j, "timestep_conditioning", &timestep, path, e));
    TRY(json_int(j, "patch_size_t", &patch_t, path, e));
    TRY(json_double(j, "scaling_factor", &scaling, path, e));
    if (cJSON_IsBool(list)) noise[0] = cJSON_IsTrue(list);
    else TRY(json_bools(j, "decoder_inject_noise", noise, VAE_LTX2_MAX_LEVELS + 1, &n, path, e));
    for (int i = 1; i < n; i++) noise[0] = noise[0] || noise[i];
    if (timestep) return fail(e, ERR_MODEL, "%s: timestep_conditioning is not supported (no published decoder has it)", path);
    if (noise[0]) return fail(e, ERR_MODEL, "%s: decoder_inject_noise is not supported", path);
    if (patch_t != 1) return fail(e, ERR_MODEL, "%s: patch_size_t %lld is not supported: expected 1", path, (long long)patch_t);
    return scaling == 1 ? OK : fail(e, ERR_MODEL, "%s: scaling_factor %g is not supported: expected 1", path, scaling);
}

/* Widths and numbers of layers: lists of integers from 1 on. */
static Status counts(const Json *j, const char *key, int64_t *out, int cap, int64_t most, int *n, const char *path, Error *e) {
    TRY(json_ints(j, key, out, cap, n, path, e));
    for (int i = 0; i < *n; i++)
        if (out[i] < 1 || out[i] > most)
            return fail(e, ERR_MODEL, "%s: %s: found %lld, expected 1 to %lld", path, key, (long long)out[i], (long long)most);
    return OK;
}

static int product_of(VaeLtx2Scale s) { return s.t * s.y * s.x; }

static Status read_encoder(const Json *j, VaeLtx2Config *c, const char *path, Error *e) {
    bool scaled[VAE_LTX2_MAX_LEVELS + 1] = {true, true, true, true, true, true, true};
    int layers = c->downs + 1;
    TRY(counts(j, "block_out_channels", c->down_out, VAE_LTX2_MAX_LEVELS, 65536, &c->downs, path, e));
    TRY(counts(j, "layers_per_block", c->down_resnets, VAE_LTX2_MAX_LEVELS + 1, VAE_LTX2_MAX_RESNETS, &layers, path, e));
    if (c->downs < 1 || layers != c->downs + 1)
        return fail(e, ERR_MODEL, "%s: layers_per_block: found %d, expected one more than the %d of block_out_channels", path,
                    layers, c->downs);
    TRY(scales(j, "downsample_type", c->down, c->downs, path, e));
    TRY(booleans(j, "spatio_temporal_scaling", scaled, c->downs, path, e));
    TRY(all_true(scaled, c->downs, "spatio_temporal_scaling", path, e));
    for (int i = 0; i < c->downs; i++) {
        int64_t in = i ? c->down_out[i - 1] : c->latent, n = product_of(c->down[i]);
        if (c->down_out[i] % n || in * n % c->down_out[i])
            return fail(e, ERR_MODEL, "%s: block_out_channels: %lld from %lld by %d are no groups of channels", path,
                        (long long)c->down_out[i], (long long)in, (int)n);
    }
    return OK;
}

/* The lists stand from the pixels to the latents, all but upsample_type. */
static Status read_decoder(const Json *j, VaeLtx2Config *c, const char *path, Error *e) {
    enum { CAP = VAE_LTX2_MAX_LEVELS + 1 };
    int64_t wide[CAP] = {256, 512, 1024}, resnets[CAP] = {5, 5, 5, 5}, factor[CAP] = {2, 2, 2};
    bool residual[CAP] = {true, true, true, true, true, true, true}, scaled[CAP] = {true, true, true, true, true, true, true};
    int layers = 4, factors = 3;
    TRY(counts(j, "decoder_block_out_channels", wide, VAE_LTX2_MAX_LEVELS, 65536, &c->ups, path, e));
    TRY(counts(j, "decoder_layers_per_block", resnets, CAP, VAE_LTX2_MAX_RESNETS, &layers, path, e));
    TRY(counts(j, "upsample_factor", factor, VAE_LTX2_MAX_LEVELS, 64, &factors, path, e));
    if (c->ups < 1 || layers != c->ups + 1 || factors != c->ups)
        return fail(e, ERR_MODEL, "%s: decoder_layers_per_block and upsample_factor: found %d and %d, expected %d and %d", path,
                    layers, factors, c->ups + 1, c->ups);
    TRY(scales(j, "upsample_type", c->up, c->ups, path, e));
    TRY(booleans(j, "upsample_residual", residual, c->ups, path, e));
    TRY(booleans(j, "decoder_spatio_temporal_scaling", scaled, c->ups, path, e));
    TRY(all_true(scaled, c->ups, "decoder_spatio_temporal_scaling", path, e));
    c->up_out[0] = wide[c->ups - 1], c->up_resnets[0] = resnets[c->ups];
    for (int i = 0; i < c->ups; i++) {
        int k = c->ups - 1 - i;
        int64_t in = c->up_out[i], out = wide[k] / factor[k], n = product_of(c->up[i]);
        c->up_out[i + 1] = out, c->up_resnets[i + 1] = resnets[k], c->up_residual[i] = residual[k];
        if (in != out * factor[k])
            return fail(e, ERR_MODEL, "%s: decoder_block_out_channels: %lld channels become %lld by a factor of %lld: a resnet "
                        "that changes channels is not supported", path, (long long)in, (long long)out, (long long)factor[k]);
        if (out * n % factor[k] || (residual[k] && (in % n || n % factor[k])))
            return fail(e, ERR_MODEL, "%s: upsample_factor %lld does not go with %lld channels", path, (long long)factor[k],
                        (long long)in);
    }
    return OK;
}

static Status read_config(const char *path, const Json *j, void *out, Error *e) {
    static const VaeLtx2Scale SPACE = {1, 2, 2}, TIME = {2, 1, 1}, BOTH = {2, 2, 2};
    VaeLtx2Config *c = out;
    *c = (VaeLtx2Config){.latent = 128, .in = 3, .out = 3, .patch = 4, .encoder_causal = true, .decoder_causal = true,
                         .decoder_mirror = true, .downs = 4, .down_out = {256, 512, 1024, 2048}, .down_resnets = {4, 6, 6, 2, 2},
                         .down = {SPACE, TIME, BOTH, BOTH}, .ups = 3, .up = {BOTH, BOTH, BOTH}}; /* the class's defaults */
    const JsonSize sizes[] = {{"in_channels", &c->in}, {"out_channels", &c->out}, {"latent_channels", &c->latent},
                              {"patch_size", &c->patch}};
    TRY(json_sizes(j, sizes, sizeof sizes / sizeof *sizes, path, e));
    TRY(refuse_variants(j, path, e));
    TRY(json_bool(j, "encoder_causal", &c->encoder_causal, path, e));
    TRY(json_bool(j, "decoder_causal", &c->decoder_causal, path, e));
    TRY(padding(j, "encoder_spatial_padding_mode", &c->encoder_mirror, path, e));
    TRY(padding(j, "decoder_spatial_padding_mode", &c->decoder_mirror, path, e));
    if (c->in != 3 || c->out != 3 || c->patch > 64)
        return fail(e, ERR_MODEL, "%s: expected in_channels and out_channels 3 and patch_size up to 64, found %lld, %lld and "
                    "%lld", path, (long long)c->in, (long long)c->out, (long long)c->patch);
    TRY(read_encoder(j, c, path, e));
    return read_decoder(j, c, path, e);
}

Status vae_ltx2_open(const char *folder, VaeLtx2 *out, Error *e) {
    return json_read_in(folder, "config.json", vae_ltx2_read, out, e);
}

Status vae_ltx2_read(const char *path, const Json *j, void *out, Error *e) {
    VaeLtx2 *v = out;
    *v = (VaeLtx2){0};
    return read_config(path, j, &v->c, e);
}

int64_t vae_ltx2_scale(const VaeLtx2Config *c) {
    int64_t n = c->patch;
    for (int i = 0; i < c->ups; i++) n *= c->up[i].y;
    return n;
}

int64_t vae_ltx2_frames_each(const VaeLtx2Config *c) {
    int64_t n = 1;
    for (int i = 0; i < c->ups; i++) n *= c->up[i].t;
    return n;
}

int64_t vae_ltx2_frames(const VaeLtx2Config *c, int64_t latent) { return 1 + (latent - 1) * vae_ltx2_frames_each(c); }

/* --- weights --- */

void vae_ltx2_bind_statistics(VaeLtx2 *v, Bind *b) {
    bind_vector(b, &v->mean, v->c.latent, BIND_PLAIN, "latents_mean");
    bind_vector(b, &v->std, v->c.latent, BIND_PLAIN, "latents_std");
}

void vae_ltx2_bind(VaeLtx2 *v, Bind *b) {
    const VaeLtx2Config *c = &v->c;
    char name[96];
    vae_ltx2_bind_statistics(v, b);
    vae_ltx2_blocks_bind_conv(b, &v->conv_in, c->up_out[0], c->latent, "decoder.conv_in");
    vae_ltx2_blocks_bind_resnets(b, v->resnet[0], c->up_resnets[0], c->up_out[0], "decoder.mid_block");
    for (int i = 0; i < c->ups; i++) {
        snprintf(name, sizeof name, "decoder.up_blocks.%d.upsamplers.0.conv", i);
        vae_ltx2_blocks_bind_conv(b, &v->up[i], c->up_out[i + 1] * product_of(c->up[i]), c->up_out[i], name);
        snprintf(name, sizeof name, "decoder.up_blocks.%d", i);
        vae_ltx2_blocks_bind_resnets(b, v->resnet[i + 1], c->up_resnets[i + 1], c->up_out[i + 1], name);
    }
    vae_ltx2_blocks_bind_conv(b, &v->conv_out, c->out * c->patch * c->patch, c->up_out[c->ups], "decoder.conv_out");
}

/* --- the latents' statistics --- */

static Status cast(Exec *x, Tensor t, DType to, Tensor *out) {
    *out = t;
    if (t.dtype == to) return OK;
    *out = exec_tensor(x, to, t.rank, t.shape);
    return op_copy(x, &(Copy){.y = *out, .x = t});
}

/* r(1 / std), of std's dtype: the op's (1 - 0) / std. */
static Status inverse(Exec *x, Tensor std, Tensor *out) {
    int64_t n = std.shape[0];
    Tensor one = exec_new_as(x, F32, n), zero = exec_tensor(x, std.dtype, 1, std.shape);
    *out = exec_tensor(x, std.dtype, 1, std.shape);
    float *host = calloc((size_t)n, sizeof *host);
    if (!host) return fail(x->error, ERR_MEMORY, "vae: out of memory");
    Status s = exec_upload(x, zero, host); /* zero in either dtype */
    for (int64_t i = 0; i < n; i++) host[i] = 1;
    if (s == OK) s = exec_upload(x, one, host);
    free(host);
    if (s == OK) s = op_chan_affine(x, &(ChanAffine){.y = *out, .x = one, .a = std, .b = zero, .form = CHAN_SUBTRACT_DIVIDE});
    return s;
}

static Status affine(const VaeLtx2 *v, Exec *x, Tensor y, Tensor z, ChanForm form) {
    size_t mark = arena_mark(x->work);
    Tensor mean, std, in = z;
    TRY(cast(x, v->mean, y.dtype, &mean));
    TRY(cast(x, v->std, y.dtype, &std));
    if (v->inverse) TRY(inverse(x, std, &std));
    if (z.dtype != F32) TRY(cast(x, z, y.dtype, &in)); /* F32 is rounded by the op */
    TRY(op_chan_affine(x, &(ChanAffine){.y = y, .x = in, .a = std, .b = mean, .form = form}));
    arena_reset(x->work, mark);
    return OK;
}

Status vae_ltx2_denormalise(const VaeLtx2 *v, Exec *x, Tensor y, Tensor z) {
    return affine(v, x, y, z, v->inverse ? CHAN_DIVIDE_ADD : CHAN_MULTIPLY_ADD);
}

Status vae_ltx2_normalise(const VaeLtx2 *v, Exec *x, Tensor y, Tensor z) {
    return affine(v, x, y, z, v->inverse ? CHAN_SUBTRACT_MULTIPLY : CHAN_SUBTRACT_DIVIDE);
}
