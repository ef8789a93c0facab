/* ltx2_single_names.c - see ltx2_single.h: the names. Each component of a diffusers name is looked up by itself; the blocks of
 * the video autoencoder, which the file counts through, have a rule of their own.
 *
 * Easy to get wrong: the file's blocks take turns: resnets at even numbers, what changes the size at odd ones. The decoder's
 * first are diffusers' mid block, the encoder's last are. */
#include "models/ltx2_single.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct Name { const char *diffusers, *file; } Name;

static const Name DIT[] = {
    {"proj_in", "patchify_proj"}, {"audio_proj_in", "audio_patchify_proj"}, {"time_embed", "adaln_single"},
    {"audio_time_embed", "audio_adaln_single"},
    {"av_cross_attn_video_scale_shift", "av_ca_video_scale_shift_adaln_single"},
    {"av_cross_attn_audio_scale_shift", "av_ca_audio_scale_shift_adaln_single"},
    {"av_cross_attn_video_a2v_gate", "av_ca_a2v_gate_adaln_single"},
    {"av_cross_attn_audio_v2a_gate", "av_ca_v2a_gate_adaln_single"},
    {"video_a2v_cross_attn_scale_shift_table", "scale_shift_table_a2v_ca_video"},
    {"audio_a2v_cross_attn_scale_shift_table", "scale_shift_table_a2v_ca_audio"},
    {"norm_q", "q_norm"}, {"norm_k", "k_norm"}, {NULL, NULL}};
static const Name CONNECTORS[] = {
    {"video_connector", "video_embeddings_connector"}, {"audio_connector", "audio_embeddings_connector"},
    {"transformer_blocks", "transformer_1d_blocks"}, {"norm_q", "q_norm"}, {"norm_k", "k_norm"},
    {"text_proj_in", "aggregate_embed"}, {NULL, NULL}};
static const Name VAE[] = {{"resnets", "res_blocks"}, {"latents_mean", "per_channel_statistics.mean-of-means"},
                           {"latents_std", "per_channel_statistics.std-of-means"}, {NULL, NULL}};
static const Name VOCODER[] = {{"upsamplers", "ups"}, {"resnets", "resblocks"}, {"conv_in", "conv_pre"},
                               {"conv_out", "conv_post"}, {NULL, NULL}};
static const Name *const TABLES[] = {CONNECTORS, DIT, VAE, VAE, VOCODER};

/* "decoder.up_blocks.1.upsamplers.0.conv" to "decoder.up_blocks.3.conv"; a name of no block as it is. */
static void count_through(const Ltx2Single *s, const char *name, char *out, size_t size) {
    const char *side = name[0] == 'd' ? "decoder.up_blocks" : "encoder.down_blocks";
    const bool decodes = name[0] == 'd';
    const char *rest = strchr(name, '.');
    int i = 0, used = 0;
    snprintf(out, size, "%s", name);
    if (!rest) return;
    if (!strncmp(rest, ".mid_block.", 11)) {
        snprintf(out, size, "%s.%d.%s", side, decodes ? 0 : (int)(2 * s->downs), rest + 11);
    } else if (!strncmp(name, side, strlen(side)) && sscanf(name + strlen(side), ".%d.%n", &i, &used) == 1 && used) {
        const char *inner = name + strlen(side) + used, *change = decodes ? "upsamplers.0." : "downsamplers.0.";
        bool changes = !strncmp(inner, change, strlen(change));
        int at = decodes ? (changes ? 2 * i + 1 : 2 * i + 2) : (changes ? 2 * i + 1 : 2 * i);
        snprintf(out, size, "%s.%d.%s", side, at, changes ? inner + strlen(change) : inner);
    }
}

static const char *head_of(const Ltx2Single *s, Ltx2SinglePart part, const char *name) {
    static const char *const HEADS[] = {NULL, NULL, "vae.", "audio_vae.", "vocoder."};
    if (part == LTX2_SINGLE_CONNECTORS && !strncmp(name, "text_proj_in.", 13)) return "text_embedding_projection.";
    return HEADS[part] ? HEADS[part] : s->prefix;
}

static void translate(const Ltx2Single *s, Ltx2SinglePart part, const char *name, char *out, size_t size) {
    char counted[256];
    if (part == LTX2_SINGLE_VAE) count_through(s, name, counted, sizeof counted);
    else snprintf(counted, sizeof counted, "%s", name);
    size_t at = (size_t)snprintf(out, size, "%s", head_of(s, part, name));
    for (const char *c = counted; c && at < size;) {
        const char *dot = strchr(c, '.');
        size_t n = dot ? (size_t)(dot - c) : strlen(c);
        const char *word = c;
        for (const Name *k = TABLES[part]; k->diffusers; k++)
            if (strlen(k->diffusers) == n && !strncmp(k->diffusers, c, n)) word = k->file;
        int w = word == c ? (int)n : (int)strlen(word);
        at += (size_t)snprintf(out + at, size - at, "%.*s%s", w, word, dot ? "." : "");
        c = dot ? dot + 1 : NULL;
    }
}

Status ltx2_single_rename(const Ltx2Single *s, Ltx2SinglePart part, Bind *b, Error *e) {
    for (int i = 0; i < b->count && !b->failed; i++) {
        char name[320];
        translate(s, part, b->rows[i].name, name, sizeof name);
        char *own = strdup(name);
        if (!own) return fail(e, ERR_MEMORY, "out of memory for the names of tensors");
        free(b->rows[i].name);
        b->rows[i].name = own;
    }
    return OK;
}
