/* image.c - see image.h. stb_image verifies no PNG checksum, so png_check() goes first. */
#include "media/image.h"

#include "core/file.h"
#include "media/png.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

/* stb declares more than it defines here; that is told at the end of the file, so no "pop" behind it */
#pragma GCC diagnostic ignored "-Wunused-function"
#define STB_IMAGE_IMPLEMENTATION
#define STB_IMAGE_STATIC
#define STBI_NO_STDIO
#define STBI_NO_HDR
#define STBI_NO_LINEAR
#define STBI_ONLY_PNG
#define STBI_ONLY_JPEG
/* lint: allow-static (stbi__g_failure_reason: a thread's own; invalid_chunk: the name in an error text) */
#include <stb/stb_image.h>

static Status decode(const unsigned char *data, size_t size, const char *path, Image *out, Error *e) {
    bool png = png_is(data, size), jpeg = size >= 3 && !memcmp(data, "\xff\xd8\xff", 3);
    if (!png && !jpeg) return fail(e, ERR_IO, "%s: is neither a PNG nor a JPEG file", path);
    if (png) TRY(png_check(data, size, path, e));
    int width, height, channels;
    if (size > INT_MAX) return fail(e, ERR_IO, "%s: %zu bytes are too many for a picture", path, size);
    if (!stbi_info_from_memory(data, (int)size, &width, &height, &channels))
        return fail(e, ERR_IO, "%s: cannot decode: %s", path, stbi_failure_reason());
    if ((int64_t)width * height > 1 << 28)
        return fail(e, ERR_IO, "%s: %dx%d pixels are too many, at most 2^28 are read", path, width, height);
    uint8_t *rgb = stbi_load_from_memory(data, (int)size, &width, &height, &channels, 3);
    if (!rgb) {
        const char *reason = stbi_failure_reason();
        return fail(e, strcmp(reason, "outofmem") ? ERR_IO : ERR_MEMORY, "%s: cannot decode: %s", path,
                    reason);
    }
    *out = (Image){.rgb = rgb, .width = width, .height = height, .channels = channels,
                   .deep = stbi_is_16_bit_from_memory(data, (int)size)};
    return OK;
}

Status image_read(const char *path, Image *out, Error *e) {
    FileMap map;
    *out = (Image){0};
    TRY(file_map(path, &map, e));
    Status status = decode(map.data, map.size, path, out, e);
    file_unmap(&map);
    return status;
}

void image_free(Image *image) {
    free(image->rgb);
    *image = (Image){0};
}
