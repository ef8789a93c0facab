/* condition.c - see condition.h. */
#include "condition.h"

#include "core/file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Takes ":NUMBER" off the end of path; false when it does not end so. */
static bool take(char *path, double *out, bool *whole) {
    char *colon = strrchr(path, ':'), *end;
    if (!colon || !colon[1] || colon == path) return false;
    double v = strtod(colon + 1, &end);
    if (*end || !(v == v)) return false;
    *whole = !strpbrk(colon + 1, ".eExX");
    *out = v;
    *colon = 0;
    return true;
}

Status condition_parse(const char *text, Condition *c, Error *e) {
    *c = (Condition){.strength = 1};
    double last, before;
    bool whole, index;
    if ((size_t)snprintf(c->path, sizeof c->path, "%s", text) >= sizeof c->path)
        return fail(e, ERR_USAGE, "--image: a name of %zu bytes", strlen(text));
    if (file_exists(c->path) || !take(c->path, &last, &whole)) return OK;
    if (!file_exists(c->path) && take(c->path, &before, &index)) {
        if (!index || before < -1e6 || before > 1e6)
            return fail(e, ERR_USAGE, "--image %s: expected a whole number of a frame before the strength",
                        text);
        c->frame = (int)before, c->strength = last, c->framed = c->firm = true;
    } else {
        if (!whole || last < -1e6 || last > 1e6)
            return fail(e, ERR_USAGE, "--image %s: expected FILE:FRAME or FILE:FRAME:STRENGTH", text);
        c->frame = (int)last, c->framed = true;
    }
    if (!(c->strength >= 0 && c->strength <= 1))
        return fail(e, ERR_USAGE, "--image %s: strength %g is out of range, expected 0 to 1", text,
                    c->strength);
    return OK;
}
