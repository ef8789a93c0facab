/* compare_sound.c - two sounds, sample by sample as f32 with full scale 1.
 * Easy to get wrong: the shorter one is continued by silence, so that a missing end lowers the SNR instead of being passed
 * over; a sample that is not a number on one side only makes the SNR the worst there is. */
#include "compare_parts.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <string.h>

typedef struct SoundNumbers {
    bool equal;
    double signal, noise, max_abs, sum;
    int64_t samples, odd; /* all channels; odd: not finite in one of them, and not the same in both */
    int64_t first;        /* that differs; -1 */
} SoundNumbers;

static float at(const Sound *s, int64_t i) { return i < s->count * s->channels ? s->samples[i] : 0.0f; }

static SoundNumbers measure(const Sound s[2]) {
    int64_t longest = s[0].count > s[1].count ? s[0].count : s[1].count;
    SoundNumbers n = {.equal = s[0].count == s[1].count, .samples = longest * s[0].channels, .first = -1};
    for (int64_t i = 0; i < n.samples; i++) {
        float a = at(&s[0], i), b = at(&s[1], i);
        bool same = !memcmp(&a, &b, sizeof a);
        if (!same && n.first < 0) n.first = i;
        n.equal = n.equal && same;
        if (!isfinite(a) || !isfinite(b)) {
            n.odd += !(a == b || (isnan(a) && isnan(b)));
            continue;
        }
        double d = fabs((double)a - (double)b);
        n.signal += (double)a * (double)a;
        n.noise += d * d;
        n.sum += d;
        if (d > n.max_abs) n.max_abs = d;
    }
    if (n.odd) n.max_abs = n.sum = n.noise = INFINITY;
    return n;
}

static void put(const Sound s[2], const SoundNumbers *n, double snr, double psnr, Json *to) {
    static const char *const LENGTHS[] = {"reference_samples", "output_samples"};
    cJSON_AddBoolToObject(to, "equal", n->equal);
    cJSON_AddNumberToObject(to, "rate", s[0].rate);
    cJSON_AddNumberToObject(to, "channels", s[0].channels);
    for (int i = 0; i < 2; i++) cJSON_AddNumberToObject(to, LENGTHS[i], (double)s[i].count);
    cJSON_AddNumberToObject(to, "length_difference", (double)(s[1].count - s[0].count));
    compare_number(to, "max_abs", n->max_abs);
    compare_number(to, "mean_abs", n->sum / (double)n->samples);
    compare_decibel(to, "snr", snr);
    compare_decibel(to, "psnr", psnr);
    if (n->first < 0) return;
    Json *first = cJSON_AddObjectToObject(to, "first_difference");
    cJSON_AddNumberToObject(first, "sample", (double)(n->first / s[0].channels));
    cJSON_AddNumberToObject(first, "channel", (double)(n->first % s[0].channels));
    compare_number(first, "reference", (double)at(&s[0], n->first));
    compare_number(first, "output", (double)at(&s[1], n->first));
}

static void print(const Sound s[2], const SoundNumbers *n, double snr, double psnr, FILE *out) {
    char a[32], b[32];
    int64_t longer = s[1].count - s[0].count;
    fprintf(out, "sound: %d Hz, %d channel%s\n", s[0].rate, s[0].channels, s[0].channels == 1 ? "" : "s");
    fprintf(out, "sound length: %lld | %lld samples, difference %lld (%.6f s)\n", (long long)s[0].count,
            (long long)s[1].count, (long long)longer, (double)longer / s[0].rate);
    fprintf(out, "equal sound: %s\n", n->equal ? "yes" : "no");
    fprintf(out, "sound max difference: %.9g\nsound mean difference: %.6g\n", n->max_abs, n->sum / (double)n->samples);
    if (n->odd) fprintf(out, "sound samples that are not finite and not the same: %lld\n", (long long)n->odd);
    fprintf(out, "sound SNR: %s dB\nsound PSNR: %s dB\n", compare_text(snr, 4, a), compare_text(psnr, 4, b));
    if (n->first >= 0)
        fprintf(out, "first different sample: %lld, channel %lld: %.9g | %.9g\n", (long long)(n->first / s[0].channels),
                (long long)(n->first % s[0].channels), (double)at(&s[0], n->first), (double)at(&s[1], n->first));
}

static Status both(const char *const path[2], const Sound s[2], const CompareLimits *limits, Sink *sink, Verdict *v,
                   Error *e) {
    if (s[0].rate != s[1].rate || s[0].channels != s[1].channels)
        return fail(e, ERR_USAGE,
                    "%s has %d Hz, %d channels and %s %d Hz, %d channels: only equal ones can be compared", path[0],
                    s[0].rate, s[0].channels, path[1], s[1].rate, s[1].channels);
    SoundNumbers n = measure(s);
    double snr = n.odd ? -INFINITY : n.noise > 0 ? 10 * log10(n.signal / n.noise) : INFINITY;
    double psnr = n.odd ? -INFINITY : compare_psnr(n.noise / (double)n.samples, 1);
    if (sink->text)
        print(s, &n, snr, psnr, sink->text);
    else
        put(s, &n, snr, psnr, cJSON_AddObjectToObject(sink->json, "sound"));
    char word[32];
    if (!n.equal) v->equal = false;
    if (limits->has_min_snr ? !(snr >= limits->min_snr) : !n.equal)
        compare_failed(v, "sound: SNR %s dB, max difference %g, length %lld | %lld samples%s",
                       compare_text(snr, 4, word), n.max_abs, (long long)s[0].count, (long long)s[1].count,
                       limits->has_min_snr ? "" : "; without --min-snr it has to be equal");
    return OK;
}

Status compare_sound(const char *const path[2], const CompareLimits *limits, Sink *sink, Verdict *v, Error *e) {
    Sound s[2];
    memset(s, 0, sizeof s);
    Status status = av_sound_read(path[0], &s[0], e);
    if (status == OK) status = av_sound_read(path[1], &s[1], e);
    if (status == OK) status = both(path, s, limits, sink, v, e);
    sound_free(&s[0]);
    sound_free(&s[1]);
    return status;
}
