/* names.h - the file names of a run's pictures or clips, decided and checked before any work is done. The suffix says what kind
 * of file it is.
 *
 * The rules (README, "Output names"), picture numbers K counting from 1:
 *   no -o                    ./TITLE-SEED.png
 *   an existing folder       FOLDER/TITLE-SEED.png    (a trailing slash says folder; a missing one is refused)
 *   NAME with %d or %03d     the number in its place, also for a single picture
 *   NAME.png                 NAME.png for one picture, NAME-K.png for several
 * and of a model that makes clips the same with .mp4 and .mkv; .png there means a file a frame, and its counter, which it must
 * have, counts frames (a clip of one frame may be a picture).
 * Only the last part of the path is a pattern, and only %d and %0Nd (N one digit) are counters; any other '%' is a
 * plain character. Not the writer: that is file_write_atomic, which checks once more.
 * Easy to get wrong: SEED is the picture's own seed, so a folder run of several pictures needs no number. */
#ifndef NAMES_H
#define NAMES_H

#include "core/status.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum NamesKind { NAMES_PNG, NAMES_FRAMES, NAMES_MP4, NAMES_MKV } NamesKind;

typedef struct Names {
    char **path; /* count malloc'd paths; of NAMES_FRAMES the one with its counter still in it: names_number() */
    int count;
    NamesKind kind;
    int frames; /* files of a clip: 1 but for NAMES_FRAMES */
} Names;

/* NAMES_OF_ANY: not known yet; the suffix is what counts, and a .png is a picture. */
typedef enum NamesOf { NAMES_OF_PICTURES, NAMES_OF_CLIPS, NAMES_OF_ANY } NamesOf;

/* What a run makes. */
typedef struct NamesWanted {
    const char *title; /* of the model; characters that a file name should not hold become '-' */
    uint64_t seed;
    int count;
    NamesOf of;
    int frames;         /* of a clip */
    const char *suffix; /* of a name that is not given, ".png"; NULL: .png, of clips .mp4 */
} NamesWanted;

/* output NULL: none given. ERR_USAGE: a suffix that is not of what is made, a missing counter or two, several pictures with the
 * same name. names_free in any case. */
Status names_make(const char *output, const NamesWanted *wanted, Names *out, Error *e);
void names_free(Names *names);
/* output with its counter replaced by the number, or as it is; malloc'd, NULL when out of memory. */
char *names_number(const char *output, int number);

/* Of the frames' sound: output without its counter, and what stands between it and the name, with .wav: f/sound.wav for
 * f/%04d.png, f/shot.wav for f/shot-%04d.png. malloc'd, NULL when out of memory. */
char *names_sound(const char *output);

/* Refuses what the writer would refuse later: an existing name without overwrite (ERR_USAGE), a missing or unwritable
 * folder, a name that is too long (ERR_IO). Proves it by creating and removing the temporary file of the longest name. */
Status names_check(const Names *names, bool overwrite, Error *e);

#endif
