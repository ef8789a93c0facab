/* safetensors.h - one *.safetensors file: mapped, its header checked, its tensors listed in name order.
 *
 * Not a loader: nothing of the payload is read here, and several files forming one component are shards.h's business.
 * The format: 8 bytes little-endian header length n, n bytes of JSON {"name": {"dtype", "shape", "data_offsets"}, ...,
 * "__metadata__": {string: string}}, then the payload. Every claim of the header is checked before it is used: length
 * against the file, dtype, shape (at most SAFETENSORS_MAX_RANK extents), byte span against shape times dtype, and
 * the spans together, which must tile the payload without hole or overlap.
 * Easy to get wrong: payloads start at any byte, so they can be unaligned; zero-element tensors are legal and may
 * share an offset; a scalar has an empty shape; cJSON numbers are doubles. */
#ifndef SAFETENSORS_H
#define SAFETENSORS_H

#include "core/file.h"
#include "core/json.h"
#include "core/tensor.h"

enum { SAFETENSORS_MAX_RANK = 8, SAFETENSORS_MAX_HEADER = 100 * 1000 * 1000 };

typedef struct SafetensorsEntry {
    const char *name; /* lives as long as the Safetensors */
    DType dtype;
    int rank; /* 0: a scalar */
    int64_t shape[SAFETENSORS_MAX_RANK];
    size_t offset, bytes; /* within the payload */
} SafetensorsEntry;

typedef struct Safetensors {
    FileMap map; /* empty when parsed from memory */
    Json *header;
    const Json *metadata; /* object of strings, or NULL */
    const unsigned char *payload;
    size_t payload_bytes, header_bytes;
    SafetensorsEntry *entry; /* count, in strcmp order of the names; zero tensors are legal */
    int count;
} Safetensors;

/* Maps and checks a file. ERR_IO when it cannot be read; ERR_MODEL names file and tensor, says what was found and what
 * was expected, and recognises what is often saved under this name (web page, pickle, GGUF). */
Status safetensors_open(const char *path, Safetensors *out, Error *e);
/* The same over bytes in memory, which must outlive *out; `where` names them in messages. */
Status safetensors_parse(const void *bytes, size_t size, const char *where, Safetensors *out, Error *e);
/* Also fine on a zeroed or failed one. */
void safetensors_close(Safetensors *s);

const SafetensorsEntry *safetensors_find(const Safetensors *s, const char *name);
/* View of an entry's bytes. A scalar becomes rank 1, shape {1}. An absent tensor when the rank is above
 * TENSOR_MAX_RANK. The address may be unaligned; for a zero-element tensor it must not be read. */
Tensor safetensors_tensor(const Safetensors *s, const SafetensorsEntry *entry);
/* Writes "[2, 77, 768]" into out. */
const char *safetensors_shape_text(const SafetensorsEntry *entry, char *out, size_t size);

#endif
