/* vocoder_ltx2_net.c - see vocoder_ltx2_net.h. Of eight buffers, each as large as the widest stage, two hold what goes
 * into a stage and what its transposed convolution made, three the resnets' results, two the inside of a resnet, one
 * what it had before. */
#include "vae/vocoder_ltx2_net.h"

#include <cjson/cJSON.h>
#include <stdio.h>

static const float LAST_SLOPE = 0.01f; /* torch.nn.LeakyReLU's own */
enum { ENDS_KERNEL = 7 };              /* of the first and the last convolution */

/* --- config --- */

static Status read_dilations(const Json *j, const char *key, VocoderNetConfig *c, const char *path, Error *e) {
    const Json *list = json_get(j, key);
    if (json_is_null(list)) return OK;
    int n = 0;
    for (const Json *row = cJSON_IsArray(list) ? list->child : NULL; row; row = row->next, n++) {
        int d = 0;
        for (const Json *v = n < VOCODER_KERNELS && cJSON_IsArray(row) ? row->child : NULL; v; v = v->next, d++)
            if (d >= VOCODER_DILATIONS || !json_as_int(v, &c->dilation[n][d]) || c->dilation[n][d] < 1 ||
                c->dilation[n][d] > 64)
                return fail(e, ERR_MODEL, "%s: %s: expected lists of up to %d integers, 1 to 64", path, key,
                            VOCODER_DILATIONS);
        if (!d || (n && d != c->dilations))
            return fail(e, ERR_MODEL, "%s: %s: expected %d lists of one length", path, key, VOCODER_KERNELS);
        c->dilations = d;
    }
    return n == VOCODER_KERNELS
               ? OK
               : fail(e, ERR_MODEL, "%s: %s: found %d lists, expected %d", path, key, n, VOCODER_KERNELS);
}

static Status read_act(const Json *j, const char *const key[4], VocoderNetConfig *c, const char *path, Error *e) {
    const char *act = c->act == VOCODER_SNAKE ? "snakebeta" : "leaky_relu";
    bool filtered = c->act == VOCODER_SNAKE;
    int64_t ratio = 2;
    TRY(json_string(j, key[0], &act, path, e));
    TRY(json_bool(j, key[1], &filtered, path, e));
    TRY(json_int(j, key[2], &ratio, path, e));
    TRY(json_int(j, key[3], &c->taps, path, e));
    c->act = !strcmp(act, "snakebeta") ? VOCODER_SNAKE : VOCODER_LEAKY;
    if ((c->act != VOCODER_SNAKE && strcmp(act, "leaky_relu")) || filtered != (c->act == VOCODER_SNAKE))
        return fail(e, ERR_MODEL, "%s: %s: found \"%s\" %s, expected leaky_relu, or snakebeta with %s", path, key[0],
                    act, filtered ? "filtered" : "as it is", key[1]);
    if (filtered && (ratio != 2 || c->taps < 4 || c->taps > WAVE_TAPS || c->taps % 2))
        return fail(e, ERR_MODEL, "%s: %s and %s: found %lld and %lld, expected 2 and an even number from 4 to %d",
                    path, key[2], key[3], (long long)ratio, (long long)c->taps, WAVE_TAPS);
    return OK;
}

static Status read_end(const Json *j, const char *key, VocoderNetConfig *c, const char *path, Error *e) {
    const Json *item = json_get(j, key);
    const char *end = "";
    if (!item) return OK;
    TRY(json_string(j, key, &end, path, e)); /* null: none */
    c->end = !strcmp(end, "tanh") ? VOCODER_END_TANH : !strcmp(end, "clamp") ? VOCODER_END_CLAMP : VOCODER_END_NONE;
    return OK;
}

static Status check(const VocoderNetConfig *c, int kernels, int factors, const char *prefix, const char *path,
                    Error *e) {
    if (c->stages < 1 || factors != c->stages || kernels != VOCODER_KERNELS)
        return fail(e, ERR_MODEL,
                    "%s: %s: expected 1 to %d upsample_kernel_sizes and as many upsample_factors (found %d and %d), "
                    "and %d resnet_kernel_sizes (found %d)",
                    path, *prefix ? prefix : "vocoder", VOCODER_STAGES, c->stages, factors, VOCODER_KERNELS, kernels);
    for (int i = 0; i < c->stages; i++) {
        int64_t extra = c->up_kernel[i] - c->up[i];
        if (c->up[i] < 1 || c->up[i] > 64 || extra < 0 || extra % 2 || c->up_kernel[i] > 256)
            return fail(e, ERR_MODEL, "%s: %supsample_factors: %lld with a kernel of %lld does not multiply a length",
                        path, prefix, (long long)c->up[i], (long long)c->up_kernel[i]);
    }
    for (int i = 0; i < kernels; i++)
        if (c->kernel[i] < 1 || c->kernel[i] > 63 || c->kernel[i] % 2 == 0)
            return fail(e, ERR_MODEL, "%s: %sresnet_kernel_sizes: found %lld, expected an odd number", path, prefix,
                        (long long)c->kernel[i]);
    if (c->hidden % ((int64_t)1 << c->stages))
        return fail(e, ERR_MODEL, "%s: %shidden_channels: %lld cannot be halved %d times", path, prefix,
                    (long long)c->hidden, c->stages);
    return OK;
}

Status vocoder_ltx2_net_read(const Json *j, const char *prefix, VocoderNetConfig *c, const char *path, Error *e) {
    static const char *const KEYS[] = {
        "in_channels",      "hidden_channels",          "out_channels",          "upsample_kernel_sizes",
        "upsample_factors", "resnet_kernel_sizes",      "resnet_dilations",      "act_fn",
        "antialias",        "antialias_ratio",          "antialias_kernel_size", "final_act_fn",
        "final_bias",       "leaky_relu_negative_slope"};
    enum { COUNT = sizeof KEYS / sizeof *KEYS };
    char text[COUNT][48];
    const char *key[COUNT];
    for (int i = 0; i < COUNT; i++) {
        snprintf(text[i], sizeof text[i], "%s%s", prefix, KEYS[i]);
        key[i] = text[i];
    }
    const JsonSize sizes[] = {{key[0], &c->in}, {key[1], &c->hidden}, {key[2], &c->out}};
    int factors = c->stages, kernels = VOCODER_KERNELS;
    double slope = (double)c->slope;
    TRY(json_sizes(j, sizes, 3, path, e));
    TRY(json_ints(j, key[3], c->up_kernel, VOCODER_STAGES, &c->stages, path, e));
    TRY(json_ints(j, key[4], c->up, VOCODER_STAGES, &factors, path, e));
    TRY(json_ints(j, key[5], c->kernel, VOCODER_KERNELS, &kernels, path, e));
    TRY(read_dilations(j, key[6], c, path, e));
    TRY(read_act(j, &key[7], c, path, e));
    TRY(read_end(j, key[11], c, path, e));
    TRY(json_bool(j, key[12], &c->final_bias, path, e));
    TRY(json_double(j, key[13], &slope, path, e));
    c->slope = (float)slope;
    return check(c, kernels, factors, prefix, path, e);
}

int64_t vocoder_ltx2_net_factor(const VocoderNetConfig *c) {
    int64_t factor = 1;
    for (int i = 0; i < c->stages; i++) factor *= c->up[i];
    return factor;
}

/* --- weights --- */

static void bind_snake(Bind *b, VocoderSnake *s, int64_t channels, int64_t taps, const char *name) {
    bind_vector(b, &s->alpha, channels, BIND_PLAIN, "%s.act.alpha", name);
    bind_vector(b, &s->beta, channels, BIND_PLAIN, "%s.act.beta", name);
    bind_vector(b, &s->up, taps, BIND_SQUEEZE, "%s.upsample.filter", name);
    bind_vector(b, &s->down, taps, BIND_SQUEEZE, "%s.downsample.filter", name);
}

static void bind_resnet(Bind *b, VocoderResnet *r, const VocoderNetConfig *c, int64_t channels, int64_t kernel,
                        const char *name) {
    char act[96];
    for (int i = 0; i < c->dilations; i++) {
        bind_conv1d(b, &r->conv1[i], channels, channels, kernel, true, "%s.convs1.%d", name, i);
        bind_conv1d(b, &r->conv2[i], channels, channels, kernel, true, "%s.convs2.%d", name, i);
        if (c->act != VOCODER_SNAKE) continue;
        snprintf(act, sizeof act, "%s.acts1.%d", name, i);
        bind_snake(b, &r->act1[i], channels, c->taps, act);
        snprintf(act, sizeof act, "%s.acts2.%d", name, i);
        bind_snake(b, &r->act2[i], channels, c->taps, act);
    }
}

void vocoder_ltx2_net_bind(VocoderNet *n, Bind *b, const char *prefix) {
    const VocoderNetConfig *c = &n->c;
    char name[64];
    int64_t channels = c->hidden;
    bind_conv1d(b, &n->conv_in, channels, c->in, ENDS_KERNEL, true, "%sconv_in", prefix);
    for (int i = 0; i < c->stages; i++) {
        channels /= 2;
        bind_conv_transpose1d(b, &n->up[i], channels, 2 * channels, c->up_kernel[i], "%supsamplers.%d", prefix, i);
        for (int k = 0; k < VOCODER_KERNELS; k++) {
            snprintf(name, sizeof name, "%sresnets.%d", prefix, VOCODER_KERNELS * i + k);
            bind_resnet(b, &n->resnet[i][k], c, channels, c->kernel[k], name);
        }
    }
    snprintf(name, sizeof name, "%sact_out", prefix);
    if (c->act == VOCODER_SNAKE) bind_snake(b, &n->act_out, channels, c->taps, name);
    bind_conv1d(b, &n->conv_out, c->out, channels, ENDS_KERNEL, c->final_bias, "%sconv_out", prefix);
}

/* --- running --- */

Status vocoder_ltx2_net_zero(Exec *x, Tensor t) {
    size_t mark = arena_mark(x->work);
    Tensor other = exec_tensor(x, t.dtype, t.rank, t.shape); /* a history that nobody has is zeros */
    TRY(op_roll(x, &(Roll){.window = t, .cache = other, .fresh = 1}));
    arena_reset(x->work, mark);
    return OK;
}

/* The first rows of a buffer as a signal. */
static Tensor signal(Tensor buffer, int64_t rows, int64_t channels) {
    return tensor_view(tensor_slice(buffer, 0, 0, rows * channels), rows, channels);
}

/* A signal of `rows` rows as a picture d columns wide; behind the signal lies room for a whole last row. */
static Tensor picture(Tensor buffer, int64_t rows, int64_t channels, int64_t d) {
    int64_t down = (rows + d - 1) / d;
    return tensor_view(tensor_slice(buffer, 0, 0, down * d * channels), down, d, channels);
}

/* y = conv(in) + skip, all pictures of one width. */
static Status convolve(Exec *x, Tensor y, Tensor in, const Weight *w, Tensor skip) {
    int32_t pad = (int32_t)(w->w.shape[1] / 2);
    return op_conv2d(x,
                     &(Conv2d){.y = y, .x = in, .skip = skip, .w = w, .stride = 1, .pad_top = pad, .pad_bottom = pad});
}

static Status activate(const VocoderNetConfig *c, const VocoderSnake *s, float slope, Exec *x, Tensor y, Tensor in) {
    if (c->act == VOCODER_LEAKY) return op_act(x, &(Act){.y = y, .x = in, .kind = ACT_LEAKY_RELU, .slope = slope});
    return op_snake_filtered(
        x, &(SnakeFiltered){.y = y, .x = in, .alpha = s->alpha, .beta = s->beta, .up = s->up, .down = s->down});
}

enum { IN, RAISED, RESULT, INSIDE = RESULT + VOCODER_KERNELS, ACTED, BEFORE, BUFFERS };

/* A net under way. */
typedef struct Work {
    const VocoderNetConfig *c;
    Exec *x;
    Tensor buffer[BUFFERS]; /* [elements] */
    int64_t rows, channels; /* of the stage */
} Work;

static Tensor at(const Work *k, int buffer) { return signal(k->buffer[buffer], k->rows, k->channels); }

/* RESULT + i = resnet(RAISED); the zeros behind ACTED are there. */
static Status resnet(Work *k, const VocoderResnet *r, int i) {
    const VocoderNetConfig *c = k->c;
    int from = RAISED;
    for (int d = 0; d < c->dilations; d++) {
        const int64_t wide = c->dilation[i][d];
        const int to = (c->dilations - d) % 2 ? RESULT + i : BEFORE; /* the last one is the result */
        TRY(activate(c, &r->act1[d], c->slope, k->x, at(k, ACTED), at(k, from)));
        TRY(convolve(k->x, picture(k->buffer[INSIDE], k->rows, k->channels, wide),
                     picture(k->buffer[ACTED], k->rows, k->channels, wide), &r->conv1[d], (Tensor){0}));
        TRY(activate(c, &r->act2[d], c->slope, k->x, at(k, ACTED), at(k, INSIDE)));
        TRY(convolve(k->x, picture(k->buffer[to], k->rows, k->channels, 1),
                     picture(k->buffer[ACTED], k->rows, k->channels, 1), &r->conv2[d],
                     picture(k->buffer[from], k->rows, k->channels, 1)));
        from = to;
    }
    return OK;
}

static int64_t widest_dilation(const VocoderNetConfig *c) {
    int64_t most = 1;
    for (int k = 0; k < VOCODER_KERNELS; k++)
        for (int d = 0; d < c->dilations; d++)
            if (c->dilation[k][d] > most) most = c->dilation[k][d];
    return most;
}

/* IN becomes the next stage's. */
static Status stage(Work *k, const VocoderNet *n, int i, const char *name) {
    const VocoderNetConfig *c = k->c;
    const int64_t tail = widest_dilation(c) - 1;
    Tensor in = at(k, IN);
    if (c->act == VOCODER_LEAKY) TRY(activate(c, NULL, c->slope, k->x, in, in));
    k->rows *= c->up[i], k->channels /= 2;
    TRY(op_conv_transpose1d(k->x, &(ConvTranspose1d){.y = at(k, RAISED),
                                                     .x = in,
                                                     .w = &n->up[i],
                                                     .stride = (int32_t)c->up[i],
                                                     .pad = (int32_t)((c->up_kernel[i] - c->up[i]) / 2)}));
    TRY(exec_tapf(k->x, at(k, RAISED), "%s.up.%d", name, i));
    if (tail)
        TRY(vocoder_ltx2_net_zero(
            k->x, tensor_view(tensor_slice(k->buffer[ACTED], 0, k->rows * k->channels, tail * k->channels), tail,
                              k->channels)));
    for (int r = 0; r < VOCODER_KERNELS; r++) TRY(resnet(k, &n->resnet[i][r], r));
    TRY(op_mean3(k->x, &(Mean3){.y = at(k, IN), .a = at(k, RESULT), .b = at(k, RESULT + 1), .c = at(k, RESULT + 2)}));
    return exec_tapf(k->x, at(k, IN), "%s.stage.%d", name, i);
}

/* Elements of the largest signal, with the room behind it. */
static int64_t widest(const VocoderNetConfig *c, int64_t rows) {
    const int64_t tail = widest_dilation(c) - 1;
    int64_t channels = c->hidden, most = rows * channels;
    for (int i = 0; i < c->stages; i++) {
        rows *= c->up[i], channels /= 2;
        if ((rows + tail) * channels > most) most = (rows + tail) * channels;
    }
    return most;
}

static Status end(const Work *k, const VocoderNet *n, const char *name, Tensor y) {
    const VocoderNetConfig *c = k->c;
    const int kind = c->end == VOCODER_END_TANH ? ACT_TANH : c->end == VOCODER_END_CLAMP ? ACT_CLAMP : ACT_NONE;
    TRY(activate(c, &n->act_out, LAST_SLOPE, k->x, at(k, ACTED), at(k, IN)));
    TRY(convolve(k->x, tensor_view(y, k->rows, 1, c->out), picture(k->buffer[ACTED], k->rows, k->channels, 1),
                 &n->conv_out, (Tensor){0}));
    if (kind) TRY(op_act(k->x, &(Act){.y = y, .x = y, .kind = kind}));
    return exec_tapf(k->x, y, "%s.sound", name);
}

Status vocoder_ltx2_net_run(const VocoderNet *n, Exec *x, const char *name, Tensor in, Tensor y) {
    const VocoderNetConfig *c = &n->c;
    const int64_t rows = in.rank == 2 ? in.shape[0] : 0;
    if (!rows || in.shape[1] != c->in || !tensor_contiguous(in) || y.rank != 2 || y.shape[1] != c->out ||
        !tensor_contiguous(y) || y.shape[0] != rows * vocoder_ltx2_net_factor(c))
        return fail(x->error, ERR_MODEL, "%s: expected signals [T, %lld] and [%lld T, %lld]", name, (long long)c->in,
                    (long long)vocoder_ltx2_net_factor(c), (long long)c->out);
    size_t mark = arena_mark(x->work);
    Work k = {.c = c, .x = x, .rows = rows, .channels = c->hidden};
    for (int i = 0; i < BUFFERS; i++) k.buffer[i] = exec_new(x, widest(c, rows));
    TRY(convolve(x, picture(k.buffer[IN], rows, c->hidden, 1), tensor_view(in, rows, 1, c->in), &n->conv_in,
                 (Tensor){0}));
    TRY(exec_tapf(x, at(&k, IN), "%s.conv_in", name));
    for (int i = 0; i < c->stages; i++)
        if (stage(&k, n, i, name) != OK) return because(x->error, "%s: stage %d", name, i);
    TRY(end(&k, n, name, y));
    arena_reset(x->work, mark);
    return OK;
}
