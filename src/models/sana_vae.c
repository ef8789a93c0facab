/* sana_vae.c - see sana_vae.h.
 *
 * Easy to get wrong: without ratios in its config AutoencoderKLLTX2Video makes them up from its encoder's levels, twice the
 * decoder's; published configs have them, so what is said is checked and what is not is the decoder's. */
#include "models/sana_vae.h"

#include "residency.h"

#include <cjson/cJSON.h>
#include <stdio.h>

/* --- config --- */

static const char WAN[] = "AutoencoderKLWan", LTX2[] = "AutoencoderKLLTX2Video";

/* What a config says of itself. */
typedef struct Said {
    const char *index; /* the class by model_index.json; NULL: not said */
    bool ltx2;
    int64_t spatial, temporal; /* -1: not said */
} Said;

static Status read_said(const char *path, const Json *j, void *out, Error *e) {
    Said *s = out;
    const char *name = s->index ? s->index : WAN;
    TRY(json_string(j, "_class_name", &name, path, e));
    s->ltx2 = !strcmp(name, LTX2);
    if (!s->ltx2 && strcmp(name, WAN) != 0)
        return fail(e, ERR_MODEL, "%s: _class_name: found %.80s, expected %s or %s", path, name, WAN, LTX2);
    if (s->index && strcmp(name, s->index) != 0)
        return fail(e, ERR_MODEL, "%s: _class_name: found %s, but model_index.json says %.80s", path, name, s->index);
    TRY(json_int(j, "spatial_compression_ratio", &s->spatial, path, e));
    return json_int(j, "temporal_compression_ratio", &s->temporal, path, e);
}

Status sana_vae_open(const char *folder, const Json *index, SanaVae *out, Error *e) {
    static const ModelClass CLASSES[] = {{"vae", WAN, LTX2}};
    const cJSON *class = cJSON_GetArrayItem(json_get(index, "vae"), 1); /* [library, class] */
    char path[4096];
    Said said = {.index = cJSON_IsString(class) ? class->valuestring : NULL, .spatial = -1, .temporal = -1};
    *out = (SanaVae){0};
    TRY(model_check_classes(folder, index, CLASSES, 1, e));
    snprintf(path, sizeof path, "%s/vae", folder);
    TRY(json_read_in(path, "config.json", read_said, &said, e));
    out->ltx2 = said.ltx2;
    if (!said.ltx2) {
        TRY(vae_wan_open(path, &out->wan, e));
        out->wan_encoder.c = out->wan.c;
        return OK;
    }
    TRY(vae_ltx2_open(path, &out->ltx, e));
    out->ltx.inverse = true;
    out->ltx_encoder.c = out->ltx.c;
    out->measure = (VaeLtx2){.c = out->ltx.c, .inverse = true};
    int64_t pixels = sana_vae_scale(out), frames = sana_vae_frames_each(out);
    const ModelFit fits[] = {
        {"vae spatial_compression_ratio / its decoder's", said.spatial < 0 ? pixels : said.spatial, pixels},
        {"vae temporal_compression_ratio / its decoder's", said.temporal < 0 ? frames : said.temporal, frames},
    };
    return model_check_fits(folder, fits, sizeof fits / sizeof *fits, e);
}

void sana_vae_bind(SanaVae *v, Bind *b) {
    if (v->ltx2) vae_ltx2_bind(&v->ltx, b);
    else vae_wan_bind(&v->wan, b);
}

void sana_vae_encode_bind(SanaVae *v, Bind *b) {
    if (!v->ltx2) {
        vae_wan_encode_bind(&v->wan_encoder, b);
        return;
    }
    vae_ltx2_encode_bind(&v->ltx_encoder, b);
    vae_ltx2_bind_statistics(&v->measure, b);
}

/* --- sizes --- */

int64_t sana_vae_latent(const SanaVae *v) { return v->ltx2 ? v->ltx.c.latent : v->wan.c.latent; }
int64_t sana_vae_scale(const SanaVae *v) { return v->ltx2 ? vae_ltx2_scale(&v->ltx.c) : vae_wan_scale(&v->wan.c); }

int64_t sana_vae_frames_each(const SanaVae *v) {
    return v->ltx2 ? vae_ltx2_frames_each(&v->ltx.c) : vae_wan_frames_each(&v->wan.c);
}

int64_t sana_vae_least(const SanaVae *v) { return v->ltx2 && v->ltx.c.decoder_mirror ? 2 : 1; }

/* --- a picture in, frames out --- */

Status sana_vae_encode(const SanaVae *v, Exec *x, Tensor picture, Tensor z) {
    if (!v->ltx2) return vae_wan_encode(&v->wan_encoder, x, picture, z);
    TRY(vae_ltx2_encode(&v->ltx_encoder, x, picture, z));
    TRY(weights_enter(x, WEIGHTS_PART));
    TRY(vae_ltx2_normalise(&v->measure, x, z, z));
    return weights_leave(x, WEIGHTS_PART);
}

/* Frames that the last upsampling reads. */
static int64_t frames_before_last(const VaeLtx2Config *c, int64_t latent) {
    int64_t each = c->ups ? vae_ltx2_frames_each(c) / c->up[c->ups - 1].t : 1;
    return 1 + (latent - 1) * each;
}

Status sana_vae_decode(const SanaVae *v, Exec *x, Tensor z, int thrift, Tensor video) {
    if (!v->ltx2)
        return vae_wan_decode_tiles(&v->wan, x, z, 1, vae_wan_tiles(&v->wan.c, z.shape[1], z.shape[2], thrift), video);
    int64_t all = frames_before_last(&v->ltx.c, z.shape[0]), piece = (all + ((int64_t)1 << thrift) - 1) >> thrift;
    return vae_ltx2_decode_pieces(&v->ltx, x, z, thrift ? piece : 0, video);
}
