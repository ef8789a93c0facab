/* score_clip.h - does a clip show the object it was asked for, moving where it was told to? The judge of demo-sana-video.
 *
 * A clip is a background and one object with size, colour, shape and direction: the world of scripts/demo_clips.py, whose
 * numbers are repeated in score_clip.c: change both. Frames are judged one by one as pictures are (score.h); three quarters of
 * them must be right, and the object's way over all of them is the direction.
 * Easy to get wrong: a clip that is right in every frame may still run backwards. */
#ifndef SCORE_CLIP_H
#define SCORE_CLIP_H

#include "score.h"

enum { SCORE_CLIP_SIDE = 64, SCORE_CLIP_FRAMES = 17, SCORE_DIRECTIONS = 4 };

/* Indices into score.h's tables; directions are right, left, up, down. */
typedef struct ScoreClip {
    int background, size; /* -1: any */
    int colour, shape, direction;
} ScoreClip;

extern const int SCORE_WAY[SCORE_DIRECTIONS][2]; /* x, y of a direction, y downwards */

/* rgb: [frames][64][64][3]. SCORE_RIGHT, what most of the wrong frames have wrong where too few are right, or
 * SCORE_DIRECTION. */
ScoreFault score_clip(const unsigned char *rgb, int frames, const ScoreClip *clip);

/* Reads "gray: small red circle right", "any: any red circle right". False when the text is anything else. */
bool score_clip_parse(const char *text, ScoreClip *out);

#endif
