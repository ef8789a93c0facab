/* test_map.c - core/map: what goes in comes out, over growth, with empty keys and NUL bytes. */
#include "core/map.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { KEYS = 50000 };

typedef struct Score { int passed, failed; } Score;

static void check(Score *score, bool good, const char *what) {
    if (good) score->passed++;
    else score->failed++, fprintf(stderr, "FAIL %s\n", what);
}

int main(void) {
    Score score = {0, 0};
    Error e = {0};
    Map map = {0};
    int32_t v = 7;
    check(&score, !map_get(&map, "a", 1, &v) && v == 7, "an empty map holds nothing");
    char (*names)[16] = malloc(sizeof(char[KEYS][16]));
    if (!names) return 1;
    bool good = true;
    for (int i = 0; i < KEYS; i++) {
        snprintf(names[i], sizeof names[i], "k%d", i * 7919);
        good &= map_put(&map, names[i], strlen(names[i]), i, &e) == OK;
    }
    for (int i = 0; i < KEYS; i++) good &= map_get(&map, names[i], strlen(names[i]), &v) && v == i;
    check(&score, good && map.count == KEYS, "50,000 keys come back with their values");
    good = true;
    for (int i = 0; i < KEYS; i++) good &= !map_get(&map, names[i], strlen(names[i]) - 1, NULL) || i * 7919 / 10 % 7919 == 0;
    check(&score, good, "a prefix of a key is another key");
    check(&score, map_put(&map, names[5], strlen(names[5]), -3, &e) == OK && map.count == KEYS &&
                      map_get(&map, names[5], strlen(names[5]), &v) && v == -3, "a second put replaces");
    check(&score, map_put(&map, "", 0, 11, &e) == OK && map_get(&map, NULL, 0, &v) && v == 11, "the empty key");
    check(&score, map_put(&map, "a\0b", 3, 1, &e) == OK && map_put(&map, "a\0c", 3, 2, &e) == OK &&
                      map_get(&map, "a\0b", 3, &v) && v == 1 && !map_get(&map, "a", 1, NULL), "NUL is a byte");
    map_free(&map);
    check(&score, !map_get(&map, "", 0, NULL), "freed is empty");
    free(names);
    printf("%d passed, %d failed\n", score.passed, score.failed);
    return score.failed != 0;
}
