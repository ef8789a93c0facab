/* score_clip.c - see score_clip.h. The same steps as score_clip() in scripts/demo_score.py, which the training looks at; this
 * one counts. Its own test paints clips and changes one attribute (test_score_clip.c). */
#include "score_clip.h"

#include <math.h>
#include <string.h>

enum { ENDS = 3 }; /* frames at either end whose mean is where the object begins and ends */
static const double SIZE_SPLIT = 8.75;  /* pixels of radius, between small (6.5 to 7.5) and large (10 to 11.5) */
static const double FRAME_SHARE = 0.75; /* of the frames must be right */
static const double MIN_WAY = 12;       /* pixels; clips are painted with 24 to 28 from the first frame to the last */
static const double ACROSS_SHARE = 0.5; /* of the way may be off its direction */
static const double BACK = 2;           /* pixels that a frame may go back */

const int SCORE_WAY[SCORE_DIRECTIONS][2] = {{1, 0}, {-1, 0}, {0, -1}, {0, 1}};
static const char *const WAY_NAME[SCORE_DIRECTIONS] = {"right", "left", "up", "down"};

static ScoreFault judge_frame(const unsigned char *rgb, const ScoreClip *clip, ScoreSeen *seen) {
    ScoreFault fault = score_single(rgb, SCORE_CLIP_SIDE, clip->background, clip->colour, clip->shape, seen);
    if (fault == SCORE_RIGHT && clip->size >= 0 && (seen->radius > SIZE_SPLIT) != clip->size) return SCORE_SIZE;
    return fault;
}

/* Means of the first and the last values, their difference. */
static double way_of(const double *at, int count) {
    double sum = 0;
    for (int i = 0; i < ENDS; i++) sum += at[count - 1 - i] - at[i];
    return sum / ENDS;
}

static bool goes(const double *along, const double *across, int count) {
    double way = way_of(along, count);
    if (way < MIN_WAY || fabs(way_of(across, count)) > ACROSS_SHARE * way) return false;
    for (int i = 1; i < count; i++)
        if (along[i] < along[i - 1] - BACK) return false;
    return true;
}

ScoreFault score_clip(const unsigned char *rgb, int frames, const ScoreClip *clip) {
    int faults[SCORE_FAULTS] = {0}, seen_count = 0, worst = SCORE_RIGHT + 1;
    double along[SCORE_CLIP_FRAMES], across[SCORE_CLIP_FRAMES];
    const int *way = SCORE_WAY[clip->direction];
    if (frames > SCORE_CLIP_FRAMES || frames < 2 * ENDS) return SCORE_NUMBER;
    for (int i = 0; i < frames; i++) {
        ScoreSeen seen;
        faults[judge_frame(rgb + (size_t)i * SCORE_CLIP_SIDE * SCORE_CLIP_SIDE * 3, clip, &seen)]++;
        if (!seen.single) continue;
        along[seen_count] = seen.x * way[0] + seen.y * way[1];
        across[seen_count++] = seen.x * way[1] + seen.y * way[0];
    }
    for (int f = worst; f < SCORE_FAULTS; f++)
        if (faults[f] > faults[worst]) worst = f;
    if (faults[SCORE_RIGHT] < FRAME_SHARE * frames) return (ScoreFault)worst;
    return goes(along, across, seen_count) ? SCORE_RIGHT : SCORE_DIRECTION;
}

/* "any " or a word of the kind. */
static bool word_or_any(const char **at, ScoreWord kind, int *out) {
    *out = -1;
    if (score_take(at, "any")) return true;
    *out = score_word(at, kind);
    return *out >= 0;
}

bool score_clip_parse(const char *text, ScoreClip *out) {
    const char *at = text;
    if (!word_or_any(&at, SCORE_A_GROUND, &out->background) || strncmp(at, ": ", 2) != 0) return false;
    at += 2;
    if (!word_or_any(&at, SCORE_A_SIZE, &out->size)) return false;
    out->colour = score_word(&at, SCORE_A_COLOUR);
    out->shape = score_word(&at, SCORE_A_SHAPE);
    for (out->direction = 0; out->direction < SCORE_DIRECTIONS; out->direction++)
        if (strcmp(at, WAY_NAME[out->direction]) == 0) break;
    return out->colour >= 0 && out->shape >= 0 && out->direction < SCORE_DIRECTIONS;
}
