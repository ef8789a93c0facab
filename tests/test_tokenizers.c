/* test_tokenizers.c - placeholder while the parts come up: `lines DIR [--no-special]`, `bench DIR FILE N`. */
#include "core/file.h"
#include "text/tok.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

int main(int argc, char **argv) {
    Error e = {0};
    Tokenizer *t;
    double t0 = now();
    if (argc < 3 || (strcmp(argv[1], "class") ? tok_open : tok_open_class)(argv[2], &t, &e) != OK) return fprintf(stderr, "%s\n", e.text), 1;
    fprintf(stderr, "open %.1f ms\n", 1e3 * (now() - t0));
    Status s = OK;
    if (!strcmp(argv[1], "lines") || !strcmp(argv[1], "class")) s = tok_lines(t, stdin, stdout, argc < 4, &e);
    if (!strcmp(argv[1], "bench")) {
        char *text;
        size_t size;
        s = file_read(argv[3], &text, &size, &e);
        for (int i = 0; i < atoi(argv[4]) && s == OK; i++) {
            TokenIds ids = {0};
            t0 = now();
            s = tok_encode(t, text, size, true, &ids, &e);
            printf("%zu bytes, %lld ids, %.1f ms\n", size, (long long)ids.count, 1e3 * (now() - t0));
            tok_ids_free(&ids);
        }
        free(text);
    }
    tok_close(t);
    if (s != OK) fprintf(stderr, "%s\n", e.text);
    return s != OK;
}
