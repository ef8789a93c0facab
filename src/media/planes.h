/* planes.h - one decoded picture as planes of samples: a view, as media/av_read.h and frames.h hand it out.
 *
 * Either the planes of the file itself (Y, or Y, U, V, subsampled as they are stored) or RGB, one plane with the three
 * samples of a pixel side by side. Not an owner: whoever decoded it says how long it lives.
 * Easy to get wrong: width and height of a plane count samples, so an RGB plane is three times as wide as the picture;
 * samples of more than 8 bits are uint16_t; strides count bytes. */
#ifndef PLANES_H
#define PLANES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PLANES_MAX = 3 };

typedef struct Plane {
    const uint8_t *data;
    ptrdiff_t stride;
    int width, height;
} Plane;

typedef struct Planes {
    int width, height; /* of the picture */
    bool rgb;          /* count is 1 and bits 8 then */
    int count, bits;   /* 1 or 3 planes; 8 to 16 bits a sample */
    Plane plane[PLANES_MAX];
} Planes;

static inline int planes_sample(const Planes *p, const Plane *plane, int x, int y) {
    const uint8_t *row = plane->data + y * plane->stride;
    return p->bits > 8 ? ((const uint16_t *)(const void *)row)[x] : row[x];
}

#endif
