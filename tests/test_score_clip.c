/* test_score_clip.c - tests the judge of the demo clips: painted clips are accepted, clips with one changed attribute, backwards,
 * standing still or out of noise are not.
 *
 * Paints with score_paint.h, within the ranges of scripts/demo_clips.py. Bars as in test_score.c: 99.5 % of painted clips
 * accepted, at most 0.5 % after a change, the fault named as what was changed in 99 %. Easy to get wrong: noise must be as likely
 * as not to look like nothing at all, so it is also tried as frames of other clips in any order. */
#include "score_clip.h"
#include "score_paint.h"

#include <stdlib.h>
#include <string.h>

enum { SIDE = SCORE_CLIP_SIDE, FRAMES = SCORE_CLIP_FRAMES, FRAME = SIDE * SIDE * 3, CLIPS = 200 };
static const double RADIUS[SCORE_SIZES][2] = {{6.5, 7.5}, {10, 11.5}};

static ScoreClip random_clip(uint64_t *s) {
    return (ScoreClip){.background = below(s, SCORE_BACKGROUNDS), .size = below(s, SCORE_SIZES),
                       .colour = below(s, SCORE_COLOURS), .shape = below(s, SCORE_SHAPES),
                       .direction = below(s, SCORE_DIRECTIONS)};
}

/* travel: pixels from the first frame to the last. */
static void paint_clip(unsigned char *rgb, const ScoreClip *clip, double travel, uint64_t *s) {
    static _Thread_local double canvas[FRAME]; /* lint: allow-static (scratch of a test) */
    const int *way = SCORE_WAY[clip->direction];
    double r = RADIUS[clip->size][0] + unit(s) * (RADIUS[clip->size][1] - RADIUS[clip->size][0]);
    double along = (2 * unit(s) - 1) * 1.5, across = (2 * unit(s) - 1) * 7;
    for (int f = 0; f < FRAMES; f++) {
        double at = along + travel * ((double)f / (FRAMES - 1) - 0.5);
        for (int i = 0; i < FRAME; i++) canvas[i] = SCORE_GROUND[clip->background].rgb[i % 3];
        paint_shape(canvas, SIDE, clip->shape, SCORE_PAINT[clip->colour].rgb, SIDE / 2.0 + way[0] * at + abs(way[1]) * across,
                    SIDE / 2.0 + way[1] * at + abs(way[0]) * across, r);
        develop(canvas, SIDE, rgb + (size_t)f * FRAME, s);
    }
}

static double travel_of(uint64_t *s) { return 24 + 4 * unit(s); }

static ScoreClip changed(ScoreClip c, ScoreFault what, uint64_t *s) {
    switch (what) {
    case SCORE_BACKGROUND: c.background = other(s, c.background, SCORE_BACKGROUNDS); break;
    case SCORE_COLOUR: c.colour = other(s, c.colour, SCORE_COLOURS); break;
    case SCORE_SHAPE: c.shape = other(s, c.shape, SCORE_SHAPES); break;
    case SCORE_SIZE: c.size = 1 - c.size; break;
    default: c.direction = other(s, c.direction, SCORE_DIRECTIONS); break;
    }
    return c;
}

static void test_clips(Tally *t, unsigned char *rgb) {
    static const ScoreFault CHANGES[] = {SCORE_BACKGROUND, SCORE_COLOUR, SCORE_SHAPE, SCORE_SIZE, SCORE_DIRECTION};
    enum { KINDS = sizeof CHANGES / sizeof *CHANGES };
    int accepted = 0, bare = 0, wrongly[KINDS] = {0}, named[KINDS] = {0};
    uint64_t s = 20261201;
    for (int i = 0; i < CLIPS; i++) {
        ScoreClip clip = random_clip(&s), any = clip;
        paint_clip(rgb, &clip, travel_of(&s), &s);
        accepted += score_clip(rgb, FRAMES, &clip) == SCORE_RIGHT;
        any.background = any.size = -1;
        bare += score_clip(rgb, FRAMES, &any) == SCORE_RIGHT;
        for (int k = 0; k < KINDS; k++) {
            ScoreClip wrong = changed(clip, CHANGES[k], &s);
            ScoreFault got = score_clip(rgb, FRAMES, &wrong);
            wrongly[k] += got == SCORE_RIGHT;
            named[k] += got == CHANGES[k];
        }
    }
    printf("%d of %d painted clips accepted, %d of any background and size\n", accepted, CLIPS, bare);
    expect(t, accepted >= 0.995 * CLIPS, "99.5 % of painted clips are accepted");
    expect(t, bare >= 0.995 * CLIPS, "99.5 % are, of any background and size");
    for (int k = 0; k < KINDS; k++) {
        const char *name = score_fault_name(CHANGES[k]);
        printf("%-10s changed: %d of %d accepted, %d named as it\n", name, wrongly[k], CLIPS, named[k]);
        expect(t, wrongly[k] <= 0.005 * CLIPS, name);
        expect(t, named[k] >= 0.99 * CLIPS, name);
    }
}

static void reverse(unsigned char *rgb, unsigned char *spare) {
    for (int f = 0; f < FRAMES / 2; f++) {
        unsigned char *a = rgb + (size_t)f * FRAME, *b = rgb + (size_t)(FRAMES - 1 - f) * FRAME;
        memcpy(spare, a, FRAME);
        memcpy(a, b, FRAME);
        memcpy(b, spare, FRAME);
    }
}

/* What no attribute describes: never right. Backwards it is the opposite direction, and right as that. */
static void test_damage(Tally *t, unsigned char *rgb, unsigned char *spare) {
    static const int OPPOSITE[SCORE_DIRECTIONS] = {1, 0, 3, 2};
    enum { STILL, NOISE, EMPTY, ONE_FRAME_BACK, TOO_FEW, SHUFFLED, KINDS };
    static const char *const NAMES[KINDS] = {"standing still", "noise", "empty", "a jump back", "five frames of other colour",
                                             "frames in another order"};
    uint64_t s = 9;
    int accepted[KINDS] = {0}, forwards = 0, backwards = 0, tries = 100;
    for (int i = 0; i < tries; i++) {
        ScoreClip clip = random_clip(&s), back = clip;
        paint_clip(rgb, &clip, travel_of(&s), &s);
        reverse(rgb, spare);
        back.direction = OPPOSITE[clip.direction];
        forwards += score_clip(rgb, FRAMES, &clip) == SCORE_DIRECTION;
        backwards += score_clip(rgb, FRAMES, &back) == SCORE_RIGHT;
        for (int kind = 0; kind < KINDS; kind++) {
            paint_clip(rgb, &clip, kind == STILL ? 0 : travel_of(&s), &s);
            for (int k = 0; k < FRAMES * FRAME; k++) {
                if (kind == NOISE) rgb[k] = (unsigned char)below(&s, 256);
                if (kind == EMPTY) rgb[k] = SCORE_GROUND[clip.background].rgb[k % 3];
                if (kind == TOO_FEW && k < 5 * FRAME) rgb[k] = (unsigned char)~rgb[k];
            }
            if (kind == ONE_FRAME_BACK) memcpy(rgb + 10 * FRAME, rgb + 2 * FRAME, FRAME);
            if (kind == SHUFFLED) {
                reverse(rgb, spare);
                memcpy(spare, rgb, FRAME);
                memcpy(rgb, rgb + (FRAMES - 1) * FRAME, FRAME);
                memcpy(rgb + (FRAMES - 1) * FRAME, spare, FRAME);
            }
            accepted[kind] += score_clip(rgb, FRAMES, &clip) == SCORE_RIGHT;
        }
    }
    for (int kind = 0; kind < KINDS; kind++) {
        printf("%-28s %d of %d accepted\n", NAMES[kind], accepted[kind], tries);
        expect(t, accepted[kind] == 0, NAMES[kind]);
    }
    expect(t, forwards == tries && backwards == tries, "frames backwards are the opposite direction");
}

static void test_parse(Tally *t) {
    static const char *const BAD[] = {
        "", "gray", "gray: small red circle", "gray: small red circle right ", "gray: red circle up",
        "gray: small red circle sideways", "gray small red circle right", "any: any any circle up",
    };
    ScoreClip c;
    expect(t, score_clip_parse("gray: small red circle right", &c) && c.background == 2 && c.size == 0 && c.colour == 0 &&
                  c.shape == 0 && c.direction == 0, "a full clip is read");
    expect(t, score_clip_parse("any: any pink triangle down", &c) && c.background == -1 && c.size == -1 && c.colour == 7 &&
                  c.shape == 2 && c.direction == 3, "a bare one is read");
    for (size_t i = 0; i < sizeof BAD / sizeof *BAD; i++) expect(t, !score_clip_parse(BAD[i], &c), BAD[i]);
}

int main(void) {
    Tally t = {0};
    unsigned char *rgb = malloc((size_t)FRAMES * FRAME), *spare = malloc(FRAME);
    if (!rgb || !spare) return 2;
    test_clips(&t, rgb);
    test_damage(&t, rgb, spare);
    test_parse(&t);
    free(rgb);
    free(spare);
    printf("%d passed, %d failed\n", t.passed, t.failed);
    return t.failed != 0;
}
