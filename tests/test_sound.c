/* test_sound.c - sound beside a clip: WAV files to the byte, tracks in MP4 and Matroska read back (exact where nothing
 * may be lost, within a bound elsewhere), lengths that are the video's, the sound beside a clip of frames, and what
 * must be refused or must leave no file. What ffprobe and ffmpeg say of the same files is test_sound.sh's: `test_sound
 * make [FILE]` writes them, or one, into the folder it is in, and of each the sound alone, FILE.wav of floats. Without
 * libav the parts that need it are skipped by name. */
#include "core/file.h"
#include "expect.h"
#include "media/av_read.h"
#include "output.h"

#include <math.h>

enum { FRAMES = 25, SIDE = 32 };

/* Two tones a channel, and a step in each, so that a shifted or exchanged channel shows. */
static Sound tones(int rate, int channels, int64_t count) {
    Sound s = {malloc((size_t)(count * channels) * sizeof(float)), count, rate, channels};
    for (int64_t i = 0; i < count * channels; i++) {
        double t = (double)(i / channels) / rate, f = i % channels ? 330 : 440;
        s.samples[i] = (float)(0.4 * sin(6.283185307179586 * f * t) + 0.1 * sin(6.283185307179586 * 3.1 * f * t) +
                               (i / channels > count / 3 ? 0.05 : 0) * (i % channels ? -1 : 1));
    }
    return s;
}

static uint8_t *pictures(void) {
    uint8_t *rgb = malloc((size_t)FRAMES * SIDE * SIDE * 3);
    for (int i = 0; i < FRAMES * SIDE * SIDE * 3; i++) rgb[i] = (uint8_t)(i * 7 / 5);
    return rgb;
}

/* --- WAV --- */

static void wav(void) {
    float v[] = {0, 1, -1, 0.5f, 2, -3, 1.5f / 32767, 0.5f / 32767, NAN, -0.25f};
    static const int16_t want[] = {0, 32767, -32767, 16384, 32767, -32767, 2, 0, 0, -8192};
    static const unsigned char head[] =
        "RIFF\x38\0\0\0WAVEfmt \x10\0\0\0\x01\0\x02\0\xc0\x5d\0\0\0\x77\x01\0\x04\0\x10\0data\x14\0\0\0";
    Sound s = {v, 5, 24000, 2};
    unsigned char *bytes;
    size_t size;
    Error e;
    expect_ok(sound_wav(&s, SOUND_PCM16, &bytes, &size, &e), &e);
    expect(size == 64 && !memcmp(bytes, head, 44));
    for (int i = 0; i < 10; i++) expect((int16_t)(bytes[44 + 2 * i] | bytes[45 + 2 * i] << 8) == want[i]);
    free(bytes);
    expect_ok(sound_wav(&s, SOUND_FLOAT32, &bytes, &size, &e), &e);
    expect(size == 98 && !memcmp(bytes + 58, v, 40) && bytes[20] == 3 && bytes[34] == 32 && bytes[4] == 90);
    free(bytes);
    Sound none = {v, 0, 24000, 2}, silent = {0}, many = {v, INT64_C(1) << 30, 48000, 2};
    expect_status(sound_wav(&none, SOUND_PCM16, &bytes, &size, &e), ERR_USAGE, "no sound has 0 samples", &e);
    expect_status(sound_wav(&silent, SOUND_PCM16, &bytes, &size, &e), ERR_USAGE, "no sound has", &e);
    expect_status(sound_wav(&many, SOUND_FLOAT32, &bytes, &size, &e), ERR_USAGE, "more than a WAV file can hold", &e);
}

/* --- tracks --- */

typedef struct Case {
    const char *file;
    int rate, channels;
    double seconds; /* of sound */
    Rate fps;
    Mp4Options o;
    const char *codec;
    double snr; /* at least; INFINITY: the same bits */
} Case;

static const Case CASES[] = {
    {"aac24.mp4", 24000, 2, 1.010, {24, 1}, {.crf = -1}, "aac LC", 25},
    {"aac48.mp4", 48000, 2, 1.042, {24, 1}, {.crf = -1}, "aac LC", 25},
    {"aac16.mp4", 16000, 1, 0.7, {30000, 1001}, {.crf = -1}, "aac LC", 25},
    {"long.mp4", 24000, 2, 9, {25, 1}, {.codec = MP4_X264RGB, .crf = -1}, "aac LC", 25},
    {"flac.mkv", 24000, 2, 1.010, {24, 1}, {.codec = MP4_H264, .crf = -1, .matroska = true}, "flac", 130},
    {"pcm.mkv", 48000, 2, 1.042, {24000, 1001}, {.crf = -1, .matroska = true}, "pcm_f32le", INFINITY},
    {"mono.mkv", 16000, 1, 2, {12, 1}, {.crf = -1, .matroska = true}, "pcm_f32le", INFINITY},
    {"flac2.mkv", 48000, 2, 3, {10, 1}, {.crf = -1, .sound = MP4_FLAC, .matroska = true}, "flac", 130},
};

static Mp4Clip clip_of(const Case *c, const uint8_t *rgb) {
    Mp4Clip clip = {rgb, SIDE, SIDE, FRAMES, c->fps, tones(c->rate, c->channels, llround(c->seconds * c->rate))};
    return clip;
}

/* What was read is the sound, then silence up to the video's end, then at most what a frame of AAC is longer. */
static void judge(const Case *c, const Sound *want, int64_t length) {
    Error e;
    Sound got;
    AvSoundInfo info;
    double signal = 0, noise = 0;
    bool bits = true, aac = !strncmp(c->codec, "aac", 3);
    expect_ok(av_sound_info(c->file, &info, &e), &e);
    expect_at(!strcmp(info.codec, c->codec) && info.rate == c->rate && info.channels == c->channels, c->file,
              info.codec, info.rate);
    expect_at(!aac || llabs(info.told - length) <= 1, c->file, "the length that is told", (int)info.told);
    expect_at(!aac || (info.bits > 16000 * c->channels && info.bits < 110000 * c->channels), c->file, "bits a second",
              (int)info.bits);
    expect_ok(av_sound_read(c->file, &got, &e), &e);
    expect_at(got.rate == c->rate && got.channels == c->channels && got.count >= length &&
                  got.count < length + (aac ? 1024 : 1),
              c->file, "samples", (int)got.count);
    for (int64_t i = 0; i < length * c->channels && i < got.count * c->channels; i++) {
        float v = i < want->count * c->channels ? want->samples[i] : 0;
        bits = bits && !memcmp(&v, &got.samples[i], 4);
        signal += (double)v * (double)v,
            noise += ((double)v - (double)got.samples[i]) * ((double)v - (double)got.samples[i]);
    }
    double snr = noise > 0 ? 10 * log10(signal / noise) : INFINITY;
    expect_at(isinf(c->snr) ? bits : snr >= c->snr, c->file, "SNR", (int)snr);
    if (getenv("GOLDEN_VERBOSE"))
        printf("%-10s SNR %.1f, %lld samples for %lld, %lld b/s\n", c->file, snr, (long long)got.count,
               (long long)length, (long long)info.bits);
    sound_free(&got);
}

static void tracks(void) {
    uint8_t *rgb = pictures();
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const Case *c = &CASES[i];
        Mp4Clip clip = clip_of(c, rgb);
        unsigned char *bytes[2];
        size_t size[2];
        Error e;
        expect_ok(mp4_check(&clip, &c->o, &e), &e);
        expect_ok(mp4_write(c->file, &clip, &c->o, true, &e), &e);
        judge(c, &clip.sound, llround((double)FRAMES * c->fps.den * c->rate / c->fps.num));
        for (int k = 0; k < 2; k++) expect_ok(mp4_encode(&clip, &c->o, &bytes[k], &size[k], &e), &e);
        expect_at(size[0] == size[1] && !memcmp(bytes[0], bytes[1], size[0]), c->file, "the same bytes again", 0);
        free(bytes[0]), free(bytes[1]);
        sound_free(&clip.sound);
    }
    free(rgb);
}

/* --- refusals --- */

static void refused(void) {
    uint8_t *rgb = pictures();
    Mp4Clip clip = {rgb, SIDE, SIDE, FRAMES, {24, 1}, tones(24000, 2, 24000)};
    Error e;
    expect_status(mp4_check(&clip, &(Mp4Options){.crf = -1, .sound = MP4_AAC, .matroska = true}, &e), ERR_USAGE,
                  "sound: aac is written to .mp4 files", &e);
    expect_status(mp4_check(&clip, &(Mp4Options){.crf = -1, .sound = MP4_PCM}, &e), ERR_USAGE,
                  "sound: pcm is written to .mkv files", &e);
    Mp4Options plain = mp4_resolved((Mp4Options){.crf = -1}),
               mkv = mp4_resolved((Mp4Options){.crf = -1, .matroska = true});
    Mp4Options lossy = mp4_resolved((Mp4Options){.crf = -1, .codec = MP4_H264, .matroska = true});
    expect(plain.sound == MP4_AAC && mkv.sound == MP4_PCM && lossy.sound == MP4_FLAC);
    if (!av_read_available()) {
        sound_free(&clip.sound);
        free(rgb);
        return;
    }
    clip.sound.channels = 3;
    expect_status(mp4_check(&clip, &plain, &e), ERR_USAGE, "24000 Hz and 3 channels cannot be written", &e);
    clip.sound.channels = 2, clip.sound.rate = 23999;
    expect_status(mp4_check(&clip, &plain, &e), ERR_IO, "sound of 23999 Hz: aac: cannot begin", &e);
    clip.sound.rate = 24000;
    for (int i = 0; i < 2; i++) { /* a sample that is no number: no file */
        clip.sound.samples[30001] = i ? INFINITY : NAN;
        expect_status(mp4_write("nan.mkv", &clip, &lossy, true, &e), i ? OK : ERR_NAN,
                      i ? "" : "sample 15000 is no number", &e);
        expect((access("nan.mkv", F_OK) == 0) == (i == 1));
    }
    clip.sound.samples[30001] = NAN;
    expect_status(mp4_write("nan.mp4", &clip, &plain, true, &e), ERR_IO, "nan.mp4: aac: cannot encode", &e);
    expect(access("nan.mp4", F_OK) != 0);
    sound_free(&clip.sound);
    free(rgb);
}

/* --- beside frames --- */

static void named(const char *pattern, const char *want) {
    char *got = names_sound(pattern);
    expect_at(got && !strcmp(got, want), pattern, got ? got : "none", 0);
    free(got);
}

static void frames(void) {
    named("%04d.png", "sound.wav");
    named("f/%d.png", "f/sound.wav");
    named("f.g/shot-%03d.png", "f.g/shot.wav");
    named("f/a%02db.png", "f/ab.wav");
    named("_%d.png", "sound.wav");
    uint8_t *rgb = pictures();
    Job job = {.prompt = "x", .width = SIDE, .height = SIDE, .frames = 3, .fps = {24, 1}};
    Media media = {
        .rgb = rgb, .width = SIDE, .height = SIDE, .frames = 3, .fps = {24, 1}, .sound = tones(24000, 2, 3000)};
    OutputOptions o = {.crf = -1, .sound = {.rate = 24000, .channels = 2}};
    Meta meta = {.job = &job, .title = "t", .device = "cpu", .dtype = F32, .clip = true};
    char *path[] = {"s-%d.png"};
    Names names = {path, 1, NAMES_FRAMES, 3};
    Error e;
    expect_ok(output_check(path[0], NAMES_FRAMES, true, "t", &job, &o, &e), &e);
    expect_ok(output_write(&names, 0, &meta, &media, &o, &e), &e);
    char *bytes;
    size_t size;
    expect_ok(file_read("s.wav", &bytes, &size, &e), &e);
    expect(size == 58 + 3000 * 8 && !memcmp(bytes + 58, media.sound.samples, 3000 * 8) && access("s-3.png", F_OK) == 0);
    free(bytes);
    expect_status(output_check(path[0], NAMES_FRAMES, true, "t", &job, &o, &e), ERR_USAGE, "s.wav: exists; give -y",
                  &e);
    /* half a clip is none: the second frame's name is a folder's */
    char *other[] = {"u%d.png"};
    names.path = other;
    expect(mkdir("u2.png", 0777) == 0);
    expect_status(output_write(&names, 0, &meta, &media, &o, &e), ERR_USAGE, "u2.png", &e);
    expect(access("u.wav", F_OK) != 0 && access("u1.png", F_OK) != 0);
    media.sound.count = 0; /* and a sound that cannot be written leaves no frames */
    char *third[] = {"w%d.png"};
    names.path = third;
    expect_status(output_write(&names, 0, &meta, &media, &o, &e), ERR_USAGE, "w.wav: no sound has 0 samples", &e);
    expect(access("w1.png", F_OK) != 0);
    sound_free(&media.sound);
    free(rgb);
}

/* What a file says of its sound travels in its texts. */
static void described(void) {
    Job job = {.prompt = "x", .frames = 3, .fps = {24, 1}};
    Meta meta = {.job = &job, .title = "t", .device = "cpu", .dtype = F32, .clip = true};
    OutputOptions o = {.crf = -1, .sound = {.rate = 24000, .channels = 2}};
    output_describe(NAMES_MKV, &o, &meta);
    char *json = meta_json(&meta, NULL, NULL);
    expect(json && strstr(json, "\"codec\":\"ffv1\",\"sound\":\"pcm\""));
    free(json);
    o.sound.rate = 0, meta.sound = NULL;
    output_describe(NAMES_MP4, &o, &meta);
    json = meta_json(&meta, NULL, NULL);
    expect(json && strstr(json, "\"codec\":\"h264\"") && !strstr(json, "\"sound\""));
    free(json);
}

/* The exit code of ditto for what went wrong. */
static int make(const char *only) {
    uint8_t *rgb = pictures();
    for (size_t i = 0; i < sizeof CASES / sizeof *CASES; i++) {
        const Case *c = &CASES[i];
        if (only && strcmp(only, c->file) != 0) continue;
        Mp4Clip clip = clip_of(c, rgb);
        Error e = {0};
        unsigned char *bytes = NULL;
        size_t size;
        char name[64];
        snprintf(name, sizeof name, "%s.wav", c->file);
        Status s = mp4_write(c->file, &clip, &c->o, true, &e);
        if (s == OK) s = sound_wav(&clip.sound, SOUND_FLOAT32, &bytes, &size, &e);
        if (s == OK) s = file_write_atomic(name, bytes, size, true, &e);
        free(bytes);
        sound_free(&clip.sound);
        if (s != OK) fprintf(stderr, "ditto: %s\n", e.text);
        if (s != OK) return (int)s;
    }
    free(rgb);
    return 0;
}

int main(int argc, char **argv) {
    char folder[300];
    if (argc > 1 && !strcmp(argv[1], "make")) return make(argc > 2 ? argv[2] : NULL);
    if (chdir(expect_folder(folder, sizeof folder))) return 1;
    wav();
    refused();
    frames();
    described();
    if (av_read_available())
        tracks();
    else
        printf("skipped: tracks: this ditto was built without libav\n");
    expect_cleanup(folder);
    return expect_done();
}
