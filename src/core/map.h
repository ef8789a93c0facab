/* map.h - the one hash table: byte spans to int32 values.
 *
 * Vocabularies hold 30,000 to 260,000 pieces and safetensors headers thousands of names, where a linear
 * search per look-up would be quadratic. Open addressing with linear probing, grown at 3/4 full; no removal.
 * Easy to get wrong: keys are NOT copied, the bytes must outlive the map; and a key may hold any byte, NUL
 * included, so sizes are passed everywhere. */
#ifndef MAP_H
#define MAP_H

#include "core/status.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct MapSlot {
    const char *key; /* NULL: free */
    uint32_t size, hash;
    int32_t value;
} MapSlot;

/* Zero-initialised it is a valid empty map. */
typedef struct Map {
    MapSlot *slots;
    size_t mask;  /* slots - 1; a power of two minus one; 0 while slots is NULL */
    size_t count; /* keys stored */
} Map;

/* Room for `count` keys without growing. ERR_MEMORY. */
Status map_reserve(Map *map, size_t count, Error *e);
/* Stores value under the key; a key already there gets the new value. Keys of 4 GiB and more are refused.
 * ERR_MEMORY. */
Status map_put(Map *map, const char *key, size_t size, int32_t value, Error *e);
/* False, and *value untouched, when the key is absent. value may be NULL. */
bool map_get(const Map *map, const char *key, size_t size, int32_t *value);
void map_free(Map *map);

#endif
