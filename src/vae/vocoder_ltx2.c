/* vocoder_ltx2.c - see vocoder_ltx2.h: which of the two, its config and tensors, and the way in. */
#include "vae/vocoder_ltx2.h"

#include "residency.h"

#include <string.h>

/* --- config: the class defaults, which are the published ones --- */

#define RESNETS                                                                                                        \
    .dilations = 3, .kernel = {3, 7, 11}, .dilation = {{1, 3, 5}, {1, 3, 5}, {1, 3, 5}}, .taps = 12, .slope = 0.1f

static const VocoderNetConfig PLAIN = {.in = 128,
                                       .hidden = 1024,
                                       .out = 2,
                                       .stages = 5,
                                       .up_kernel = {16, 15, 8, 4, 4},
                                       .up = {6, 5, 2, 2, 2},
                                       .act = VOCODER_LEAKY,
                                       .end = VOCODER_END_TANH,
                                       .final_bias = true,
                                       RESNETS};
static const VocoderNetConfig FIRST = {.in = 128,
                                       .hidden = 1536,
                                       .out = 2,
                                       .stages = 6,
                                       .up_kernel = {11, 4, 4, 4, 4, 4},
                                       .up = {5, 2, 2, 2, 2, 2},
                                       .act = VOCODER_SNAKE,
                                       RESNETS};
static const VocoderNetConfig GENERATOR = {.in = 128,
                                           .hidden = 512,
                                           .out = 2,
                                           .stages = 5,
                                           .up_kernel = {12, 11, 4, 4, 4},
                                           .up = {6, 5, 2, 2, 2},
                                           .act = VOCODER_SNAKE,
                                           RESNETS};

static Status check_bwe(const VocoderLtx2 *v, const char *path, Error *e) {
    const VocoderNetConfig *c = &v->generator.c;
    if (v->filter != v->window || v->window < v->hop || v->filter % 2)
        return fail(
            e, ERR_MODEL,
            "%s: filter_length %lld, window_length %lld, hop_length %lld: expected two equal even ones, and a hop "
            "of no more",
            path, (long long)v->filter, (long long)v->window, (long long)v->hop);
    if (v->rate % v->in_rate || vocoder_ltx2_net_factor(c) != v->hop * (v->rate / v->in_rate))
        return fail(e, ERR_MODEL, "%s: %lld samples a hop of %lld do not make %lld Hz of %lld", path,
                    (long long)vocoder_ltx2_net_factor(c), (long long)v->hop, (long long)v->rate,
                    (long long)v->in_rate);
    if (c->in != v->net.c.out * v->bands || c->out != v->net.c.out)
        return fail(e, ERR_MODEL, "%s: bwe_in_channels %lld, bwe_out_channels %lld: expected %lld and %lld", path,
                    (long long)c->in, (long long)c->out, (long long)(v->net.c.out * v->bands), (long long)v->net.c.out);
    return OK;
}

static Status read_bwe(const Json *j, VocoderLtx2 *v, const char *path, Error *e) {
    v->filter = v->window = 512, v->hop = 80, v->bands = 64, v->in_rate = 16000, v->rate = 48000;
    const JsonSize sizes[] = {
        {"filter_length", &v->filter},   {"window_length", &v->window},        {"hop_length", &v->hop},
        {"num_mel_channels", &v->bands}, {"input_sampling_rate", &v->in_rate}, {"output_sampling_rate", &v->rate}};
    v->bwe = true;
    v->net.c = FIRST, v->generator.c = GENERATOR;
    TRY(vocoder_ltx2_net_read(j, "", &v->net.c, path, e));
    TRY(vocoder_ltx2_net_read(j, "bwe_", &v->generator.c, path, e));
    TRY(json_sizes(j, sizes, sizeof sizes / sizeof *sizes, path, e));
    return check_bwe(v, path, e);
}

static Status read_config(const char *path, const Json *j, void *out, Error *e) {
    VocoderLtx2 *v = out;
    const char *kind = "";
    const JsonSize rate = {"output_sampling_rate", &v->rate};
    TRY(json_string(j, "_class_name", &kind, path, e));
    if (!strcmp(kind, "LTX2VocoderWithBWE")) {
        TRY(read_bwe(j, v, path, e));
    } else if (!strcmp(kind, "LTX2Vocoder")) {
        v->rate = 24000;
        v->net.c = PLAIN;
        TRY(vocoder_ltx2_net_read(j, "", &v->net.c, path, e));
        TRY(json_sizes(j, &rate, 1, path, e));
    } else {
        return fail(e, ERR_MODEL, "%s: _class_name: found \"%s\", expected LTX2Vocoder or LTX2VocoderWithBWE", path,
                    kind);
    }
    if (v->net.c.in % v->net.c.out)
        return fail(e, ERR_MODEL, "%s: in_channels %lld are no bands of %lld channels", path, (long long)v->net.c.in,
                    (long long)v->net.c.out);
    return OK;
}

Status vocoder_ltx2_open(const char *folder, VocoderLtx2 *out, Error *e) {
    return json_read_in(folder, "config.json", vocoder_ltx2_read, out, e);
}

Status vocoder_ltx2_read(const char *path, const Json *j, void *out, Error *e) {
    VocoderLtx2 *v = out;
    *v = (VocoderLtx2){0};
    return read_config(path, j, v, e);
}

void vocoder_ltx2_bind(VocoderLtx2 *v, Bind *b) {
    int64_t n = v->filter / 2 + 1;
    vocoder_ltx2_net_bind(&v->net, b, v->bwe ? "vocoder." : "");
    if (!v->bwe) return;
    vocoder_ltx2_net_bind(&v->generator, b, "bwe_generator.");
    bind_matrix(b, &v->basis, 2 * n, v->filter, "mel_stft.stft_fn.forward_basis");
    if (bind_last(b)) bind_last(b)->transform = BIND_SQUEEZE, bind_last(b)->gathered = false; /* [2n, 1, filter] */
    bind_matrix(b, &v->mel, v->bands, n, "mel_stft.mel_basis");
    if (bind_last(b)) bind_last(b)->gathered = false;
}

int64_t vocoder_ltx2_rate(const VocoderLtx2 *v) { return v->rate; }
int64_t vocoder_ltx2_channels(const VocoderLtx2 *v) { return v->net.c.out; }
int64_t vocoder_ltx2_bands(const VocoderLtx2 *v) { return v->net.c.in / v->net.c.out; }

int64_t vocoder_ltx2_samples(const VocoderLtx2 *v, int64_t mel_rows) {
    int64_t first = mel_rows * vocoder_ltx2_net_factor(&v->net.c);
    return v->bwe ? first * (v->rate / v->in_rate) : first;
}

/* --- running --- */

Status vocoder_ltx2_run(const VocoderLtx2 *v, Exec *x, Tensor mel, Tensor sound) {
    const int64_t bands = vocoder_ltx2_bands(v), channels = vocoder_ltx2_channels(v),
                  rows = mel.rank == 3 ? mel.shape[0] : 0;
    if (!rows || mel.shape[1] != bands || mel.shape[2] != channels || sound.rank != 2 || !tensor_contiguous(sound) ||
        sound.shape[1] != channels || sound.shape[0] != vocoder_ltx2_samples(v, rows))
        return fail(x->error, ERR_MODEL, "vocoder: expected a spectrogram [rows, %lld, %lld] and sound [samples, %lld]",
                    (long long)bands, (long long)channels, (long long)channels);
    size_t mark = arena_mark(x->work);
    TRY(weights_enter(x, WEIGHTS_PART));
    Tensor in = exec_new(x, rows, channels * bands), from = mel;
    from.shape[1] = channels, from.stride[1] = mel.stride[2];
    from.shape[2] = bands, from.stride[2] = mel.stride[1];
    TRY(op_copy(x, &(Copy){.y = tensor_view(in, rows, channels, bands), .x = from}));
    if (v->bwe) {
        const int64_t samples = rows * vocoder_ltx2_net_factor(&v->net.c), lead = vocoder_ltx2_lead(v);
        Tensor room = exec_new(x, lead + vocoder_ltx2_padded(v, samples), channels);
        TRY(vocoder_ltx2_net_run(&v->net, x, "vocoder", in, tensor_slice(room, 0, lead, samples)));
        TRY(vocoder_ltx2_widen(v, x, room, samples, sound));
    } else {
        TRY(vocoder_ltx2_net_run(&v->net, x, "vocoder", in, sound));
    }
    TRY(weights_leave(x, WEIGHTS_PART));
    arena_reset(x->work, mark);
    return OK;
}
