/* deflate.h - zlib streams in a few milliseconds a megabyte: Huffman codes of the bytes, and runs of one byte; no search for
 * other matches.
 *
 * Filtered pixels have little else to find: photographs come out about as small as from a thorough search, flat areas are
 * runs. Not a decoder, and a poor choice for text. */
#ifndef DEFLATE_H
#define DEFLATE_H

#include <stddef.h>

/* Bytes that any n bytes fit into. */
size_t deflate_bound(size_t n);
/* Writes a whole stream to out and says its length; 0 when it does not fit into `room`. The stream is a function of the bytes
 * alone. */
size_t deflate_write(const unsigned char *data, size_t n, unsigned char *out, size_t room);

#endif
