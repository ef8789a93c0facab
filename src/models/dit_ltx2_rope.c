/* dit_ltx2_rope.c - positions and rotary tables of the LTX-2 transformer (dit_ltx2.h), once a size.
 *
 * Angles are made on the host in the f32 steps of diffusers' LTX2AudioVideoRotaryPosEmbed, frequencies in f64; cosines and sines
 * are the device's, as there. They reach 15,708 rad, where an f32 ulp is a thousandth of a radian: every step counts.
 * Easy to get wrong: PyTorch on CUDA divides by a host number by multiplying with its f32 reciprocal; the angles of a row go
 * from head to head on, so each head has frequencies of its own; numbers that no frequency is left for stand in front. */
#include "models/dit_ltx2_parts.h"

#include <math.h>
#include <stdlib.h>

static const double PI = 3.14159265358979323846;

/* Of one kind of table: positions of `axes` axes in units of the whole range, rows of `half` angles. */
typedef struct Angles {
    int64_t tokens, half;
    int axes;
    float inverse[LTX2_AXES]; /* of the range */
} Angles;

static float clamped(float v) { return v > 0 ? v : 0; }

void dit_ltx2_places(const Ltx2Dit *m, int64_t frames, int64_t rows, int64_t cols, double fps, Ltx2Place *place) {
    const int64_t *scale = m->c.scale;
    float per_second = 1.0f / (float)fps;
    for (int64_t f = 0; f < frames; f++)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < cols; c++, place++) {
                const int64_t at[LTX2_AXES] = {f, r, c};
                for (int a = 0; a < LTX2_AXES; a++) {
                    place->from[a] = (float)(at[a] * scale[a]);
                    place->to[a] = (float)((at[a] + 1) * scale[a]);
                }
                /* the first latent frame is one picture, the others `scale` of them */
                float shift = (float)m->c.causal_offset, back = (float)scale[0];
                place->from[0] = clamped(place->from[0] + shift - back) * per_second;
                place->to[0] = clamped(place->to[0] + shift - back) * per_second;
            }
}

/* The same of audio latent i: seconds. */
static Ltx2Place audio_place(const Ltx2Config *c, int64_t i) {
    float scale = (float)c->audio_scale, shift = (float)c->causal_offset, hop = (float)c->hop;
    float per_sample = 1.0f / (float)c->sampling_rate;
    Ltx2Place p = {{0}, {0}};
    p.from[0] = clamped((float)i * scale + shift - scale) * hop * per_sample;
    p.to[0] = clamped((float)(i + 1) * scale + shift - scale) * hop * per_sample;
    return p;
}

/* theta^(k / (n - 1)) pi / 2, as torch.linspace counts: from both ends. */
static void frequencies(double theta, int64_t n, float *out) {
    double step = n > 1 ? 1.0 / (double)(n - 1) : 0;
    for (int64_t k = 0; k < n; k++) {
        double at = k < n / 2 ? step * (double)k : 1.0 - step * (double)(n - 1 - k);
        out[k] = (float)(pow(theta, n > 1 ? at : 0) * PI / 2.0);
    }
}

/* One token's row of angles. */
static void row(const Angles *a, const Ltx2Place *p, const float *frequency, int64_t n, float *out) {
    int64_t pad = a->half - n * a->axes;
    for (int64_t i = 0; i < pad; i++) *out++ = 0;
    float place[LTX2_AXES];
    for (int i = 0; i < a->axes; i++) {
        float middle = (p->from[i] + p->to[i]) * 0.5f, fraction = middle * a->inverse[i];
        place[i] = fraction * 2.0f - 1.0f;
    }
    for (int64_t k = 0; k < n; k++)
        for (int i = 0; i < a->axes; i++) *out++ = place[i] * frequency[k];
}

/* cos and sin F32 [tokens, half]; place NULL: those of audio latents. */
static Status table(const Ltx2Dit *m, Exec *x, const Angles *a, const Ltx2Place *place, RopeSplitForm form, Tensor *cos_out,
                    Tensor *sin_out) {
    int64_t n = a->half / a->axes;
    *cos_out = exec_new_as(x, F32, a->tokens, a->half);
    *sin_out = exec_new_as(x, F32, a->tokens, a->half);
    float *host = x->dry ? NULL : malloc((size_t)(a->tokens * a->half + n) * sizeof *host);
    if (!x->dry && !host) return fail(x->error, ERR_MEMORY, "ltx2: out of memory for rotary tables");
    if (host) {
        float *frequency = host + a->tokens * a->half;
        frequencies(m->c.theta, n, frequency);
        for (int64_t t = 0; t < a->tokens; t++) {
            Ltx2Place own = place ? place[t] : audio_place(&m->c, t);
            row(a, &own, frequency, n, host + t * a->half);
        }
    }
    Status s = host ? exec_upload(x, *cos_out, host) : OK;
    free(host);
    TRY(s);
    return blocks_cos_sin(x, *cos_out, *cos_out, *sin_out, form == ROPE_SPLIT_DTYPE);
}

Status dit_ltx2_rope(const Ltx2Dit *m, Exec *x, const Ltx2Place *place, Ltx2Grid *g) {
    const Ltx2Config *c = &m->c;
    int64_t narrow = m->stream[LTX2_AUDIO].d / 2, latest = c->most[0] > c->audio_most ? c->most[0] : c->audio_most;
    Angles video = {g->tokens[LTX2_VIDEO], m->stream[LTX2_VIDEO].d / 2, LTX2_AXES, {0}};
    for (int a = 0; a < LTX2_AXES; a++) video.inverse[a] = 1.0f / (float)c->most[a];
    const Angles audio = {g->tokens[LTX2_AUDIO], narrow, 1, {1.0f / (float)c->audio_most}};
    const Angles cross[] = {{g->tokens[LTX2_VIDEO], narrow, 1, {1.0f / (float)latest}},
                            {g->tokens[LTX2_AUDIO], narrow, 1, {1.0f / (float)latest}}};
    TRY(table(m, x, &video, place, g->form, &g->cos[LTX2_VIDEO], &g->sin[LTX2_VIDEO]));
    TRY(table(m, x, &audio, NULL, g->form, &g->cos[LTX2_AUDIO], &g->sin[LTX2_AUDIO]));
    TRY(table(m, x, &cross[0], place, g->form, &g->cross_cos[LTX2_VIDEO], &g->cross_sin[LTX2_VIDEO]));
    return table(m, x, &cross[1], NULL, g->form, &g->cross_cos[LTX2_AUDIO], &g->cross_sin[LTX2_AUDIO]);
}
