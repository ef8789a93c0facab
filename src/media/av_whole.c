/* av_whole.c - see av_whole.h.
 * Easy to get wrong: boxes of MP4 count their own header, and one of size 1 has its size behind it; EBML sizes are 1 to 8
 * bytes long, the number of leading zero bits says how many, and the marker bit is no part of the value; RIFF counts from
 * behind its size field. */
#include "media/av_whole.h"

#include "core/file.h"

#include <stdint.h>
#include <string.h>

/* An EBML size at *at, which moves behind it. False: cut off, malformed or unknown. */
static bool read_size(const unsigned char *data, size_t size, size_t *at, uint64_t *out) {
    if (*at >= size || !data[*at]) return false;
    int length = 1;
    while (!(data[*at] & (0x80 >> (length - 1)))) length++;
    if (size - *at < (size_t)length) return false;
    uint64_t v = data[*at] & (0xffu >> length), unknown = (UINT64_C(1) << 7 * length) - 1;
    for (int i = 1; i < length; i++) v = v << 8 | data[*at + (size_t)i];
    *at += (size_t)length;
    *out = v;
    return v != unknown;
}

static size_t matroska(const unsigned char *data, size_t size) {
    size_t at = 4;
    uint64_t header, segment;
    if (!read_size(data, size, &at, &header) || header > size - at) return 0;
    at += (size_t)header;
    if (size - at < 4 || memcmp(data + at, "\x18\x53\x80\x67", 4)) return 0;
    at += 4;
    if (!read_size(data, size, &at, &segment) || segment > SIZE_MAX - at) return 0;
    return at + (size_t)segment;
}

static uint64_t big_endian(const unsigned char *p, int bytes) {
    uint64_t v = 0;
    for (int i = 0; i < bytes; i++) v = v << 8 | p[i];
    return v;
}

/* The end of the last box that begins in the file. */
static size_t boxes(const unsigned char *data, size_t size) {
    size_t at = 0;
    while (size - at >= 8) {
        uint64_t box = big_endian(data + at, 4);
        if (!box) return at; /* to the end of the file, wherever that is */
        if (box == 1) {
            if (size - at < 16) return at + 16;
            box = big_endian(data + at + 8, 8);
        }
        if (box < 8 || box > SIZE_MAX - at) return 0;
        if (box > size - at) return at + (size_t)box;
        at += (size_t)box;
    }
    return at < size ? at + 8 : at;
}

size_t av_whole_promised(const unsigned char *data, size_t size) {
    if (size >= 5 && !memcmp(data, "\x1a\x45\xdf\xa3", 4)) return matroska(data, size);
    if (size >= 8 && !memcmp(data + 4, "ftyp", 4)) return boxes(data, size);
    if (size >= 12 && !memcmp(data, "RIFF", 4)) {
        uint32_t n = (uint32_t)data[4] | (uint32_t)data[5] << 8 | (uint32_t)data[6] << 16 | (uint32_t)data[7] << 24;
        return n && n != UINT32_MAX ? (size_t)n + 8 : 0;
    }
    return 0;
}

Status av_whole_check(const char *path, Error *e) {
    FileMap map;
    TRY(file_map(path, &map, e));
    size_t promised = av_whole_promised(map.data, map.size), size = map.size;
    file_unmap(&map);
    if (promised <= size) return OK;
    return fail(e, ERR_IO, "%s: ends after %zu bytes, its header says %zu", path, size, promised);
}
