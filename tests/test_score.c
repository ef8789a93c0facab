/* test_score.c - tests the judge of the demo pictures: painted scenes are accepted, scenes with one changed attribute not.
 *
 * Paints with a painter of its own (score_paint.h). Bars: at least 99.5 % of painted scenes accepted, at most 0.5 %
 * after a change, per attribute, and the fault named as what was changed in at least 99 %. Also pictures that must
 * never pass: a stray blob, a two-coloured object, a torn one.
 * Easy to get wrong: a change must really change (another colour, not the same one drawn again). */
#include "score.h"
#include "score_paint.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { SIDE = SCORE_SIDE, SCENES = 3000 };

static ScoreScene random_scene(uint64_t *s) {
    ScoreScene scene = {.background = below(s, SCORE_BACKGROUNDS), .count = 1 + below(s, SCORE_OBJECTS)};
    unsigned seen = 0;
    for (int i = 0; i < scene.count; i++) {
        int place;
        do place = below(s, SCORE_PLACES);
        while (seen >> place & 1u);
        seen |= 1u << place;
        scene.objects[i] = (ScoreObject){place, below(s, SCORE_SIZES), below(s, SCORE_COLOURS), below(s, SCORE_SHAPES)};
    }
    return scene;
}

static void paint(double *canvas, const ScoreScene *scene, uint64_t *s) {
    for (int i = 0; i < 3 * SIDE * SIDE; i++) canvas[i] = SCORE_GROUND[scene->background].rgb[i % 3];
    for (int i = 0; i < scene->count; i++) {
        const ScoreObject *o = &scene->objects[i];
        double jitter = o->place == 4 ? 1.0 : 2.5;
        double x = SCORE_ANCHOR[o->place][0] + (2 * unit(s) - 1) * jitter;
        double y = SCORE_ANCHOR[o->place][1] + (2 * unit(s) - 1) * jitter;
        double r = SCORE_RADIUS[o->size][0] + unit(s) * (SCORE_RADIUS[o->size][1] - SCORE_RADIUS[o->size][0]);
        paint_shape(canvas, SIDE, o->shape, SCORE_PAINT[o->colour].rgb, x, y, r);
    }
}

/* Changes one attribute of the expected scene. */
static ScoreScene changed(ScoreScene scene, ScoreFault what, uint64_t *s) {
    ScoreObject *o = &scene.objects[below(s, scene.count)];
    unsigned seen = 0;
    for (int i = 0; i < scene.count; i++) seen |= 1u << scene.objects[i].place;
    int place;
    do place = below(s, SCORE_PLACES);
    while (seen >> place & 1u); /* at most three of five are taken */
    switch (what) {
    case SCORE_BACKGROUND: scene.background = other(s, scene.background, SCORE_BACKGROUNDS); break;
    case SCORE_NUMBER:
        if (scene.count == SCORE_OBJECTS || (scene.count > 1 && below(s, 2))) {
            scene.count--;
        } else {
            scene.objects[scene.count] = scene.objects[0];
            scene.objects[scene.count++].place = place;
        }
        break;
    case SCORE_PLACE: o->place = place; break;
    case SCORE_COLOUR: o->colour = other(s, o->colour, SCORE_COLOURS); break;
    case SCORE_SHAPE: o->shape = other(s, o->shape, SCORE_SHAPES); break;
    case SCORE_SIZE: o->size = 1 - o->size; break;
    default: break;
    }
    return scene;
}

static void test_scenes(Tally *t, double *canvas, unsigned char *rgb) {
    uint64_t s = 20261130;
    int accepted = 0, wrongly[SCORE_FAULTS] = {0}, named[SCORE_FAULTS] = {0};
    for (int i = 0; i < SCENES; i++) {
        ScoreScene scene = random_scene(&s);
        paint(canvas, &scene, &s);
        develop(canvas, SIDE, rgb, &s);
        accepted += score_picture(rgb, &scene) == SCORE_RIGHT;
        for (int f = SCORE_BACKGROUND; f < SCORE_DIRECTION; f++) {
            ScoreScene wrong = changed(scene, (ScoreFault)f, &s);
            ScoreFault got = score_picture(rgb, &wrong);
            wrongly[f] += got == SCORE_RIGHT;
            named[f] += got == (ScoreFault)f;
        }
    }
    printf("seed 20261130: %d of %d painted scenes accepted (%.2f %%)\n", accepted, SCENES, 100.0 * accepted / SCENES);
    expect(t, accepted >= 0.995 * SCENES, "99.5 % of painted scenes are accepted");
    for (int f = SCORE_BACKGROUND; f < SCORE_DIRECTION; f++) {
        const char *name = score_fault_name((ScoreFault)f);
        printf("%-10s changed: %d of %d accepted, %d named as it\n", name, wrongly[f], SCENES, named[f]);
        expect(t, wrongly[f] <= 0.005 * SCENES, name);
        expect(t, named[f] >= 0.99 * SCENES, name);
    }
}

/* Damage that no attribute describes: must be refused every time. */
static void test_damage(Tally *t, double *canvas, unsigned char *rgb) {
    static const char *const NAMES[] = {"stray blob", "two-coloured object", "torn object", "empty picture", "upside down"};
    uint64_t s = 7;
    for (int kind = 0; kind < 5; kind++) {
        int accepted = 0, tries = 400;
        for (int i = 0; i < tries; i++) {
            ScoreScene scene = random_scene(&s);
            scene.count = 1;
            ScoreObject *o = &scene.objects[0];
            if (kind == 4) o->shape = 2;
            paint(canvas, &scene, &s);
            const double *a = SCORE_ANCHOR[o->place];
            double r = SCORE_RADIUS[o->size][0];
            if (kind == 0) { /* 5 pixels wide, away from all places */
                paint_shape(canvas, SIDE, 0, SCORE_PAINT[other(&s, o->colour, SCORE_COLOURS)].rgb, 64, below(&s, 2) ? 12 : 116,
                            4);
            } else if (kind == 1) { /* its lower part in another colour */
                const unsigned char *mine = SCORE_PAINT[o->colour].rgb;
                const unsigned char *two = SCORE_PAINT[other(&s, o->colour, SCORE_COLOURS)].rgb;
                for (int k = (int)a[1] * SIDE; k < SIDE * SIDE; k++)
                    if (fabs(canvas[3 * k] - mine[0]) + fabs(canvas[3 * k + 1] - mine[1]) + fabs(canvas[3 * k + 2] - mine[2]) < 1)
                        for (int c = 0; c < 3; c++) canvas[3 * k + c] = two[c];
            } else if (kind == 2) { /* its middle wiped out */
                paint_shape(canvas, SIDE, 1, SCORE_GROUND[scene.background].rgb, a[0], a[1], r * 0.75);
            } else if (kind == 3) {
                for (int k = 0; k < 3 * SIDE * SIDE; k++) canvas[k] = SCORE_GROUND[scene.background].rgb[k % 3];
            } else {
                for (int y = 0; y < SIDE / 2; y++)
                    for (int k = 0; k < 3 * SIDE; k++) {
                        double *p = canvas + y * 3 * SIDE + k, *q = canvas + (SIDE - 1 - y) * 3 * SIDE + k, v = *p;
                        *p = *q, *q = v;
                    }
                static const int FLIP[SCORE_PLACES] = {2, 3, 0, 1, 4};
                o->place = FLIP[o->place];
            }
            develop(canvas, SIDE, rgb, &s);
            accepted += score_picture(rgb, &scene) == SCORE_RIGHT;
        }
        printf("%-20s %d of %d accepted\n", NAMES[kind], accepted, tries);
        expect(t, accepted <= 0.005 * tries, NAMES[kind]);
    }
}

static void test_parse(Tally *t) {
    ScoreScene s;
    expect(t, score_parse("gray: small red circle top left; large blue square centre", &s) && s.background == 2 &&
                  s.count == 2 && s.objects[0].place == 0 && s.objects[0].size == 0 && s.objects[0].colour == 0 &&
                  s.objects[0].shape == 0 && s.objects[1].place == 4 && s.objects[1].size == 1 &&
                  s.objects[1].colour == 5 && s.objects[1].shape == 1,
           "a scene is read");
    static const char *const BAD[] = {"", "gray", "gray:", "gray: ", "grey: small red circle centre",
                                      "gray: small red circle", "gray: small red circle centre;",
                                      "gray: red small circle centre", "gray: small red circle centres",
                                      "gray: small red circle centre; small red square centre",
                                      "gray: small red circle top left; small red circle top right; "
                                      "small red circle bottom left; small red circle centre"};
    for (int i = 0; i < (int)(sizeof BAD / sizeof *BAD); i++) expect(t, !score_parse(BAD[i], &s), BAD[i]);
}

int main(void) {
    static double canvas[3 * SIDE * SIDE];
    static unsigned char rgb[3 * SIDE * SIDE];
    Tally t = {0, 0};
    test_scenes(&t, canvas, rgb);
    test_damage(&t, canvas, rgb);
    test_parse(&t);
    printf("%d passed, %d failed\n", t.passed, t.failed);
    return t.failed != 0;
}
