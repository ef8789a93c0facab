/* score.h - does a picture show the scene it was asked for? The judge of the demo checkpoint's pictures.
 *
 * A scene is a background and one to three objects; an object has a place, a size, a colour and a shape. The world is
 * that of scripts/demo_scenes.py, whose numbers are repeated in score.c: change both. Nothing learned, no tolerance for
 * taste: a stray blob, a two-coloured object or a torn shape is wrong.
 * Easy to get wrong: places are told apart by the middle of an object's bounding box, so two objects at one place, or
 * objects that touch, are refused as a wrong number. Pictures are 128 x 128 and nothing else. */
#ifndef SCORE_H
#define SCORE_H

#include <stdbool.h>

enum {
    SCORE_SIDE = 128, /* pixels */
    SCORE_PLACES = 5,
    SCORE_SIZES = 2,
    SCORE_COLOURS = 8,
    SCORE_SHAPES = 3,
    SCORE_BACKGROUNDS = 4,
    SCORE_OBJECTS = 3, /* at most */
};

/* Indices into the tables below; shapes are circle, square, triangle. */
typedef struct ScoreObject {
    int place, size, colour, shape;
} ScoreObject;

typedef struct ScoreScene {
    int background, count;
    ScoreObject objects[SCORE_OBJECTS]; /* `count` of them, places all different, any order */
} ScoreScene;

/* What is wrong, in the order of checking: the first fault found is the one reported. */
typedef enum ScoreFault {
    SCORE_RIGHT,
    SCORE_BACKGROUND,
    SCORE_NUMBER,
    SCORE_PLACE,
    SCORE_COLOUR,
    SCORE_SHAPE,
    SCORE_SIZE,
    SCORE_DIRECTION, /* of clips alone: score_clip.h */
    SCORE_FAULTS
} ScoreFault;

typedef struct ScoreName {
    const char *name;
    unsigned char rgb[3];
} ScoreName;

extern const ScoreName SCORE_PAINT[SCORE_COLOURS];
extern const ScoreName SCORE_GROUND[SCORE_BACKGROUNDS];
extern const double SCORE_ANCHOR[SCORE_PLACES][2]; /* x, y of a place's middle, pixels */
extern const double SCORE_RADIUS[SCORE_SIZES][2];  /* from, to, pixels */

/* rgb: [128][128][3]. */
ScoreFault score_picture(const unsigned char *rgb, const ScoreScene *scene);
const char *score_fault_name(ScoreFault fault); /* "right", "background", ... */

/* What a picture of one object shows. */
typedef struct ScoreSeen {
    bool single;         /* it is one; else the rest is 0 */
    double x, y, radius; /* pixels: middle of its bounding box; 0 or the radius of its shape as painted */
} ScoreSeen;

/* rgb: [side][side][3], side at most SCORE_SIDE. Is there one object, of this colour and shape, wherever it is, on this
 * background (-1: on any)? */
ScoreFault score_single(const unsigned char *rgb, int side, int background, int colour, int shape, ScoreSeen *seen);

/* Reads "gray: small red circle top left; large blue square centre". False when the text is anything else, names a
 * place twice or has more than three objects. */
bool score_parse(const char *text, ScoreScene *out);

/* Its parts. Moves *at behind the word, and a blank behind that, when the text goes on with it and then a blank, ';', ':' or
 * the end. score_word: the index of the word of that kind, -1 for none. */
typedef enum ScoreWord { SCORE_A_GROUND, SCORE_A_SIZE, SCORE_A_COLOUR, SCORE_A_SHAPE, SCORE_A_PLACE } ScoreWord;
bool score_take(const char **at, const char *word);
int score_word(const char **at, ScoreWord kind);

#endif
