/* verify_file.h - the samples of a file that is to be verified, and the same samples of what was rendered again.
 *
 * A picture, or a lossless clip without sound: its RGB. One frame's PNG of a clip: that frame. A clip whose codec loses
 * something, or that has sound, is compared after the same encoding: what was rendered is encoded again, in memory, and both
 * are decoded.
 * Not the comparison (compare.h). Easy to get wrong: sizes are held against the record before anything is rendered. */
#ifndef VERIFY_FILE_H
#define VERIFY_FILE_H

#include "meta_read.h"

typedef struct VerifyFile {
    uint8_t *rgb; /* [frames][height][width][3], malloc'd */
    int width, height, frames;
    Sound sound; /* rate 0: its parameters tell of none */
} VerifyFile;

/* What r->path holds. ERR_USAGE: other sizes or another number of frames than r says; ERR_IO. */
Status verify_file_read(const MetaRecord *r, VerifyFile *out, Error *e);
/* media as such a file would hold it. ERR_IO: encoding failed. */
Status verify_file_again(const MetaRecord *r, const Media *media, const volatile int *interrupted, VerifyFile *out,
                         Error *e);
void verify_file_free(VerifyFile *f);
size_t verify_file_bytes(const VerifyFile *f); /* of rgb */
bool verify_file_same_sound(const VerifyFile *a, const VerifyFile *b);

#endif
