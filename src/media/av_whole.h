/* av_whole.h - whether a media file is as long as its own header says, which libav does not ask: it reads to wherever a file
 * ends.
 *
 * MP4/MOV (the outermost boxes), Matroska/WebM (the size of the segment) and RIFF (WAV, AVI). Ogg, MPEG-TS and raw streams do
 * not know their length.
 * Easy to get wrong: whoever wrote to a pipe could not know the size and left it unknown (all ones, or 0): that is whole. */
#ifndef AV_WHOLE_H
#define AV_WHOLE_H

#include "core/status.h"

#include <stddef.h>

/* ERR_IO names the file, where it ends and where it should. */
Status av_whole_check(const char *path, Error *e);
/* The same of bytes: how many the header promises; 0: it does not say, or it is another format. Safe on any bytes. */
size_t av_whole_promised(const unsigned char *data, size_t size);

#endif
