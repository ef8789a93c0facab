/* frames.h - frames to compare, one after the other: a picture is one, a folder of pictures gives them by name, a video in
 * time.
 *
 * PNG and JPEG are decoded by media/image.h, everything else by libav. Compares nothing.
 * Easy to get wrong: frames_next() overwrites the frame before; a folder's frames come in the order of strverscmp
 * (f2.png before f10.png), and what is in it besides PNG and JPEG files is passed over. */
#ifndef FRAMES_H
#define FRAMES_H

#include "core/status.h"
#include "media/av_read.h"
#include "media/image.h"

typedef enum FramesKind { FRAMES_PICTURE, FRAMES_FOLDER, FRAMES_VIDEO } FramesKind;

typedef struct Frames Frames;

/* Whether the path holds frames of its own kind, not sound alone or anything else. *sound: there is some beside them. */
Status frames_kind_of(const char *path, FramesKind *kind, bool *frames, bool *sound, Error *e);

/* rgb: every frame as RGB8. ERR_IO for a folder without pictures, or a file that cannot be read as any of the three. */
Status frames_open(const char *path, FramesKind kind, bool rgb, Frames **out, Error *e);
void frames_close(Frames *f);

const char *frames_path(const Frames *f);
const AvInfo *frames_video(const Frames *f); /* NULL: no video */
/* The file name of the frame that comes next in a folder; NULL at its end, and for pictures and videos. */
const char *frames_name(const Frames *f);
/* Passes over that frame without reading it. */
void frames_skip(Frames *f);
/* The next frame; *end instead when there is none. */
Status frames_next(Frames *f, Planes *out, bool *end, Error *e);
/* What was left out of pictures so far. */
bool frames_dropped_alpha(const Frames *f);
bool frames_dropped_depth(const Frames *f);

#endif
