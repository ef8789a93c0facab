/* status.c - see status.h. Formatting only; texts that would overflow are cut, never dropped. */
#include "core/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

Status fail(Error *e, Status code, const char *format, ...) {
    if (!e) return code;
    va_list args;
    va_start(args, format);
    vsnprintf(e->text, sizeof e->text, format, args);
    va_end(args);
    /* One line is the promise; names and file contents may hold line breaks. */
    for (char *c = e->text; *c; c++)
        if ((unsigned char)*c < 0x20 || *c == 0x7f) *c = ' ';
    return e->code = code;
}

Status because(Error *e, const char *format, ...) {
    if (!e) return ERR_SOME;
    char tail[sizeof e->text];
    memcpy(tail, e->text, sizeof tail);
    va_list args;
    va_start(args, format);
    int used = vsnprintf(e->text, sizeof e->text, format, args);
    va_end(args);
    size_t at = used < 0 ? 0 : (size_t)used < sizeof e->text ? (size_t)used : sizeof e->text - 1;
    const char *join[] = {": ", tail};
    for (int i = 0; i < 2; i++)
        for (const char *c = join[i]; *c && at < sizeof e->text - 1;) e->text[at++] = *c++;
    e->text[at] = 0;
    return e->code;
}
