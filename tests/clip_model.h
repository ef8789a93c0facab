/* clip_model.h - see clip_model.c. */
#ifndef CLIP_MODEL_H
#define CLIP_MODEL_H

#include "model.h"

enum { CLIP_ROOM = 8 << 20 }; /* bytes that its decode takes; half of them with each thrift */

extern const ModelOps MODEL_CLIPS, MODEL_HEARD; /* HEARD: with sound */

#endif
