/* yuv.h - RGB8 pictures as Y'CbCr 4:2:0 of 8 bits with the BT.709 matrix in limited range, as H.264 files for players have it.
 *
 *   Y  =  16 + 219/255 (0.2126 R + 0.7152 G + 0.0722 B)
 *   Cb = 128 + 224/255 (B - Y') / 1.8556        Y' without offset and scale
 *   Cr = 128 + 224/255 (R - Y') / 1.5748
 *
 * in whole numbers, each value rounded once, halves up: the planes are the same on every machine and with every libav. A chroma
 * sample lies on the left column of its two by two pixels, between the rows ("left", H.264's default): weights 1 2 1 across,
 * 1 1 down, edges repeated.
 * Not the way back: that is the decoder's. Easy to get wrong: players guess the matrix by size unless the file names it. */
#ifndef YUV_H
#define YUV_H

#include <stddef.h>
#include <stdint.h>

/* rgb [height][width][3], even sides -> y [height][..], cb and cr [height/2][..]; strides in bytes. */
void yuv_from_rgb(const uint8_t *rgb, int width, int height, uint8_t *y, ptrdiff_t y_stride, uint8_t *cb, uint8_t *cr,
                  ptrdiff_t c_stride);

#endif
