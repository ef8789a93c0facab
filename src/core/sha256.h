/* sha256.h - SHA-256 (FIPS 180-4): of memory in pieces, and of whole files.
 *
 * Not a signature and not for secrets: it says whether bytes are the bytes that somebody recorded.
 * Easy to get wrong: sha256_end spends the state; start again for another message. */
#ifndef SHA256_H
#define SHA256_H

#include "core/status.h"

#include <stddef.h>
#include <stdint.h>

enum { SHA256_BYTES = 32, SHA256_BLOCK = 64, SHA256_TEXT = 2 * SHA256_BYTES + 1 };

typedef struct Sha256 {
    uint32_t state[8];
    uint64_t length;              /* bytes so far */
    uint8_t block[SHA256_BLOCK];  /* the last length % 64 of them */
} Sha256;

void sha256_begin(Sha256 *s);
void sha256_add(Sha256 *s, const void *bytes, size_t size);
void sha256_end(Sha256 *s, uint8_t digest[SHA256_BYTES]);
/* 64 lower-case hexadecimal digits and a NUL. */
void sha256_text(const uint8_t digest[SHA256_BYTES], char text[SHA256_TEXT]);

/* Of one piece of memory, as text. */
void sha256_memory(const void *bytes, size_t size, char text[SHA256_TEXT]);
/* Of a file, as text, and its size. Read in order with plain reads, so a file that shrinks meanwhile is an error, not a
 * fault. ERR_IO names the path; ERR_INTERRUPTED between pieces when *interrupted (NULL: never). */
Status sha256_file(const char *path, char text[SHA256_TEXT], uint64_t *size, const volatile int *interrupted, Error *e);

#endif
