/* png.c - see png.h. Chunk arithmetic is done on offsets that were checked against the size first; nothing is
 * read through a pointer that was computed before its bound was known. */
#include "media/png.h"

#include "core/file.h"
#include "media/deflate.h"

#include <limits.h>
#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

/* stb asserts when memory runs out in the middle of compressing. Its blocks are kept in a list instead, and a failed
 * request leaves through png_blocks.escape, which gives them all back. */
typedef struct Block {
    struct Block *next, *before;
} Block;
typedef struct Blocks {
    Block first; /* ring */
    jmp_buf escape;
} Blocks;
static _Thread_local Blocks *png_blocks; /* lint: allow-static (stb passes no context to its allocator) */

static void *block_resize(void *old, size_t size) {
    Block *was = old ? (Block *)old - 1 : NULL;
    Block *b = size <= SIZE_MAX - sizeof *b ? realloc(was, sizeof *b + size) : NULL;
    if (!b) longjmp(png_blocks->escape, 1);
    if (!was) {
        b->next = png_blocks->first.next;
        b->before = &png_blocks->first;
    }
    b->next->before = b->before->next = b;
    return b + 1;
}

static void block_free(void *p) {
    if (!p) return;
    Block *b = (Block *)p - 1;
    b->next->before = b->before;
    b->before->next = b->next;
    free(b);
}

/* For stb, whose own search for matches takes longer than all else between latents and file. */
static unsigned char *pack(unsigned char *data, int n, int *length) {
    size_t room = deflate_bound((size_t)n);
    unsigned char *out = block_resize(NULL, room);
    size_t size = room <= INT_MAX ? deflate_write(data, (size_t)n, out, room) : 0;
    if (!size) longjmp(png_blocks->escape, 1);
    *length = (int)size;
    return out;
}

#define STBIW_ZLIB_COMPRESS(data, n, length, quality) pack(data, n, length)
#define STBIW_MALLOC(size) block_resize(NULL, size)
#define STBIW_REALLOC(p, size) block_resize(p, size)
#define STBIW_FREE(p) block_free(p)
#define STB_IMAGE_WRITE_IMPLEMENTATION
#define STB_IMAGE_WRITE_STATIC
/* STBI_WRITE_NO_STDIO would leave a static function declared but undefined; the rest is dropped as unused. */
/* lint: allow-static (firstmap, mapping: constant tables of stb's) */
#include <stb/stb_image_write.h>

static const unsigned char SIGNATURE[8] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1a, '\n'};

enum { HEAD_END = 8 + 12 + 13, CHUNK_MAX = 0x7fffffff, KEY_MAX = 79, PIXELS_MAX = 1 << 29 };

/* --- chunks --- */

/* CRC-32 of PNG (reflected 0xedb88320), continued from crc; 0 begins. Four bits a step. */
static uint32_t crc_add(uint32_t crc, const unsigned char *data, size_t size) {
    static const uint32_t NIBBLE[16] = {
        0x00000000, 0x1db71064, 0x3b6e20c8, 0x26d930ac, 0x76dc4190, 0x6b6b51f4, 0x4db26158, 0x5005713c,
        0xedb88320, 0xf00f9344, 0xd6d6a3e8, 0xcb61b38c, 0x9b64c2b0, 0x86d3d2d4, 0xa00ae278, 0xbdbdf21c};
    crc = ~crc;
    for (size_t i = 0; i < size; i++) {
        crc = NIBBLE[(crc ^ data[i]) & 15] ^ (crc >> 4);
        crc = NIBBLE[(crc ^ (data[i] >> 4)) & 15] ^ (crc >> 4);
    }
    return ~crc;
}

static uint32_t get32(const unsigned char *p) {
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put32(unsigned char *p, uint32_t v) {
    for (int i = 0; i < 4; i++) p[i] = (unsigned char)(v >> (24 - 8 * i));
}

/* --- writing --- */

static bool key_ok(const char *key) {
    size_t n = strlen(key);
    if (!n || n > KEY_MAX || key[0] == ' ' || key[n - 1] == ' ') return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)key[i] < 0x20 || (unsigned char)key[i] > 0x7e ||
            (key[i] == ' ' && key[i + 1] == ' '))
            return false;
    return true;
}

static bool plain(const char *text) {
    for (; *text; text++)
        if (((unsigned char)*text < 0x20 && *text != '\n') || (unsigned char)*text > 0x7e) return false;
    return true;
}

/* Bytes of the chunk's data: keyword, NUL, for iTXt two flags and two empty strings, text. */
static size_t text_size(const PngText *t) {
    return strlen(t->key) + (plain(t->text) ? 1 : 5) + strlen(t->text);
}

static unsigned char *put_text(unsigned char *p, const PngText *t) {
    size_t key = strlen(t->key), text = strlen(t->text), body = text_size(t), gap = body - key - text;
    put32(p, (uint32_t)body);
    memcpy(p + 4, gap == 1 ? "tEXt" : "iTXt", 4);
    memcpy(p + 8, t->key, key);
    memset(p + 8 + key, 0, gap); /* uncompressed, no language, no translated keyword */
    memcpy(p + 8 + key + gap, t->text, text);
    put32(p + 8 + body, crc_add(0, p + 4, body + 4));
    return p + 12 + body;
}

/* The PNG of the pixels alone, made by stb; NULL when out of memory. *blocks holds it: blocks_free. */
static unsigned char *compress(const uint8_t *rgb, int width, int height, Blocks *blocks, int *length) {
    blocks->first.next = blocks->first.before = &blocks->first;
    png_blocks = blocks;
    if (setjmp(blocks->escape)) return NULL;
    return stbi_write_png_to_mem(rgb, width * 3, width, height, 3, length);
}

static void blocks_free(Blocks *blocks) {
    while (blocks->first.next != &blocks->first) block_free(blocks->first.next + 1);
    png_blocks = NULL;
}

Status png_encode(const uint8_t *rgb, int width, int height, const PngText *texts, int count,
                  unsigned char **bytes, size_t *size, Error *e) {
    *bytes = NULL;
    *size = 0;
    if (width < 1 || height < 1 || (int64_t)height * ((int64_t)width * 3 + 1) > PIXELS_MAX)
        return fail(e, ERR_USAGE, "PNG: size %dx%d, expected at least 1x1 and below 2^29 bytes", width,
                    height);
    size_t extra = 0;
    for (int i = 0; i < count; i++) {
        if (!key_ok(texts[i].key))
            return fail(e, ERR_USAGE, "PNG: text key \"%.100s\": expected 1..79 printable ASCII characters, "
                        "no leading, trailing or double spaces", texts[i].key);
        size_t body = text_size(&texts[i]);
        if (body > CHUNK_MAX)
            return fail(e, ERR_USAGE, "PNG: text %s: %zu bytes are too long", texts[i].key, body);
        extra += 12 + body;
    }
    int length = 0;
    Blocks blocks;
    unsigned char *pixels = compress(rgb, width, height, &blocks, &length);
    unsigned char *all = pixels ? malloc((size_t)length + extra) : NULL;
    if (!all) {
        blocks_free(&blocks);
        return fail(e, ERR_MEMORY, "PNG: out of memory for %dx%d pixels and %zu bytes of text", width, height,
                    extra);
    }
    memcpy(all, pixels, HEAD_END);
    unsigned char *p = all + HEAD_END;
    for (int i = 0; i < count; i++) p = put_text(p, &texts[i]);
    memcpy(p, pixels + HEAD_END, (size_t)length - HEAD_END);
    blocks_free(&blocks);
    *bytes = all;
    *size = (size_t)length + extra;
    return OK;
}

Status png_write(const char *path, const uint8_t *rgb, int width, int height, const PngText *texts, int count,
                 bool overwrite, Error *e) {
    unsigned char *bytes;
    size_t size;
    TRY(png_encode(rgb, width, height, texts, count, &bytes, &size, e));
    Status status = file_write_atomic(path, bytes, size, overwrite, e);
    free(bytes);
    return status;
}

/* --- reading --- */

bool png_is(const unsigned char *data, size_t size) { return size >= 8 && !memcmp(data, SIGNATURE, 8); }

typedef struct Chunk {
    const unsigned char *data; /* [size] */
    size_t size, at;           /* at: of its length field in the file */
    char type[5];
} Chunk;

/* The chunk at *at, which moves behind it. */
static Status next_chunk(const unsigned char *data, size_t size, size_t *at, const char *where, Chunk *c,
                         Error *e) {
    size_t left = size - *at;
    if (left < 12)
        return fail(e, ERR_IO, "%s: PNG is cut short: %zu bytes after byte %zu, expected a chunk up to IEND",
                    where, left, *at);
    const unsigned char *p = data + *at;
    *c = (Chunk){.data = p + 8, .size = get32(p), .at = *at};
    for (int i = 0; i < 4; i++) {
        if ((p[4 + i] | 32) < 'a' || (p[4 + i] | 32) > 'z')
            return fail(e, ERR_IO, "%s: PNG is damaged: byte %zu begins no chunk", where, *at);
        c->type[i] = (char)p[4 + i];
    }
    if (c->size > CHUNK_MAX || c->size > left - 12)
        return fail(e, ERR_IO,
                    "%s: PNG is cut short: %s chunk at byte %zu has %zu bytes, the file only %zu more", where,
                    c->type, *at, c->size, left - 12);
    uint32_t want = get32(c->data + c->size), have = crc_add(0, p + 4, c->size + 4);
    if (want != have)
        return fail(e, ERR_IO, "%s: PNG is damaged: %s chunk at byte %zu has checksum %08x, expected %08x",
                    where, c->type, *at, have, want);
    *at += 12 + c->size;
    return OK;
}

static bool is(const Chunk *c, const char *type) { return !strcmp(c->type, type); }

static char *put_latin1(char *out, const unsigned char *s, size_t n) {
    for (size_t i = 0; i < n; i++) {
        if (s[i] < 0x80) {
            *out++ = (char)s[i];
        } else {
            *out++ = (char)(0xc0 | s[i] >> 6);
            *out++ = (char)(0x80 | (s[i] & 0x3f));
        }
    }
    *out++ = 0;
    return out;
}

static size_t length_to_nul(const unsigned char *s, size_t n) {
    const unsigned char *end = n ? memchr(s, 0, n) : NULL;
    return end ? (size_t)(end - s) : n;
}

/* Appends the text of one chunk. The block that holds key and text belongs to `key`. */
static Status add_text(PngTexts *out, int *room, const Chunk *c, const char *where, Error *e) {
    const unsigned char *s = c->data, *end = c->data + c->size;
    size_t key = length_to_nul(s, c->size);
    bool utf8 = is(c, "iTXt"), compressed = is(c, "zTXt");
    size_t head = key + (utf8 ? 3 : 1); /* NUL, and for iTXt the two compression bytes */
    if (!key || key > KEY_MAX || head > c->size)
        return fail(e, ERR_IO, "%s: PNG is damaged: %s chunk at byte %zu has no proper key", where, c->type,
                    c->at);
    const unsigned char *text = s + head;
    if (utf8) {
        compressed = s[key + 1] != 0;
        for (int i = 0; i < 2; i++) { /* language, translated keyword */
            size_t n = length_to_nul(text, (size_t)(end - text));
            if (n == (size_t)(end - text))
                return fail(e, ERR_IO, "%s: PNG is damaged: iTXt chunk at byte %zu ends early", where, c->at);
            text += n + 1;
        }
    }
    size_t n = compressed ? 0 : length_to_nul(text, (size_t)(end - text));
    if (out->count == *room) {
        int more = *room ? 2 * *room : 8;
        PngText *items = more > *room ? realloc(out->items, (size_t)more * sizeof *items) : NULL;
        if (!items) return fail(e, ERR_MEMORY, "%s: out of memory for %d texts", where, more);
        out->items = items;
        *room = more;
    }
    char *block = malloc(2 * key + 1 + 2 * n + 1); /* Latin-1 at most doubles */
    if (!block) return fail(e, ERR_MEMORY, "%s: out of memory for a text of %zu bytes", where, n);
    char *value = put_latin1(block, s, key);
    if (utf8) {
        if (n) memcpy(value, text, n);
        value[n] = 0;
    } else {
        put_latin1(value, text, n);
    }
    out->items[out->count++] = (PngText){.key = block, .text = value, .unreadable = compressed};
    return OK;
}

static Status walk(const unsigned char *data, size_t size, const char *where, PngTexts *texts, Error *e) {
    if (!png_is(data, size)) return fail(e, ERR_IO, "%s: is no PNG file", where);
    size_t at = 8;
    int room = 0;
    for (bool first = true;; first = false) {
        Chunk c;
        TRY(next_chunk(data, size, &at, where, &c, e));
        if (first != is(&c, "IHDR") || (first && c.size != 13))
            return fail(e, ERR_IO, "%s: PNG is damaged: %s chunk of %zu bytes at byte %zu, expected %s",
                        where, c.type, c.size, c.at, first ? "IHDR of 13" : "one IHDR only");
        if (is(&c, "IEND")) return OK;
        if (texts && (is(&c, "tEXt") || is(&c, "iTXt") || is(&c, "zTXt")))
            TRY(add_text(texts, &room, &c, where, e));
    }
}

Status png_check(const unsigned char *data, size_t size, const char *where, Error *e) {
    return walk(data, size, where, NULL, e);
}

bool png_find(const unsigned char *data, size_t size, const char *type, const unsigned char **chunk, size_t *chunk_size) {
    Error ignored = {0};
    Chunk c = {0};
    for (size_t at = 8; !is(&c, "IEND");) {
        if (next_chunk(data, size, &at, "", &c, &ignored) != OK) return false;
        *chunk = c.data, *chunk_size = c.size;
        if (is(&c, type)) return true;
    }
    return false;
}

Status png_parse_texts(const unsigned char *data, size_t size, const char *where, PngTexts *out, Error *e) {
    *out = (PngTexts){0};
    Status status = walk(data, size, where, out, e);
    if (status != OK) png_texts_free(out);
    return status;
}

Status png_read_texts(const char *path, PngTexts *out, Error *e) {
    FileMap map;
    *out = (PngTexts){0};
    TRY(file_map(path, &map, e));
    Status status = png_parse_texts(map.data, map.size, path, out, e);
    file_unmap(&map);
    return status;
}

Status png_texts_add(PngTexts *texts, const char *key, const char *text, const char *where, Error *e) {
    size_t n = strlen(key) + 1, m = strlen(text) + 1;
    PngText *items = realloc(texts->items, (size_t)(texts->count + 1) * sizeof *items);
    if (items) texts->items = items;
    char *block = items ? malloc(n + m) : NULL;
    if (!block) return fail(e, ERR_MEMORY, "%s: out of memory for a text of %zu bytes", where, m);
    memcpy(block, key, n);
    memcpy(block + n, text, m);
    items[texts->count++] = (PngText){.key = block, .text = block + n};
    return OK;
}

void png_texts_free(PngTexts *texts) {
    for (int i = 0; i < texts->count; i++) free((void *)(uintptr_t)texts->items[i].key);
    free(texts->items);
    *texts = (PngTexts){0};
}

const char *png_texts_get(const PngTexts *texts, const char *key) {
    for (int i = 0; i < texts->count; i++)
        if (!texts->items[i].unreadable && !strcmp(texts->items[i].key, key)) return texts->items[i].text;
    return NULL;
}
