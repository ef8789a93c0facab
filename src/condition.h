/* condition.h - FILE[:FRAME[:STRENGTH]]: a picture, and where and how firmly it stands in a clip.
 *
 * FRAME counts latent frames from 0, as diffusers' conditions do, negative ones from the end: 0 is the clip's first frame, n > 0
 * begins at frame 1 + (n - 1) times the frames of one. STRENGTH is from 0 to 1.
 * Easy to get wrong: a file whose whole name exists is that file, colons and all. */
#ifndef CONDITION_H
#define CONDITION_H

#include "core/status.h"

#include <stdbool.h>

enum { CONDITION_PATH = 4096 };

typedef struct Condition {
    char path[CONDITION_PATH];
    int frame;       /* 0 when it is not said */
    double strength; /* 1 when it is not said */
    bool framed, firm; /* FRAME, STRENGTH are there */
} Condition;

/* ERR_USAGE: a strength out of range, a name that is too long. */
Status condition_parse(const char *text, Condition *out, Error *e);

#endif
