/* map.c - see map.h. The hash reads eight bytes a step and mixes by multiplication; it is not keyed, so a
 * hostile file can make look-ups slow (never wrong). */
#include "core/map.h"

#include <stdlib.h>
#include <string.h>

static uint32_t hash_of(const char *key, size_t size) {
    uint64_t h = 0x9e3779b97f4a7c15u ^ (size * 0xff51afd7ed558ccdu);
    for (; size >= 8; key += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, key, 8);
        h = (h ^ word) * 0xd6e8feb86659fd93u;
        h ^= h >> 32;
    }
    if (size) {
        uint64_t word = 0;
        memcpy(&word, key, size);
        h = (h ^ word) * 0xd6e8feb86659fd93u;
        h ^= h >> 32;
    }
    h *= 0xd6e8feb86659fd93u;
    return (uint32_t)(h >> 32);
}

/* The slot that holds the key, or the free slot where it belongs. slots is not NULL and not full. */
static MapSlot *find(const Map *map, const char *key, size_t size, uint32_t hash) {
    for (size_t i = hash & map->mask;; i = (i + 1) & map->mask) {
        MapSlot *slot = &map->slots[i];
        if (!slot->key) return slot;
        if (slot->hash == hash && slot->size == size && (!size || !memcmp(slot->key, key, size))) return slot;
    }
}

static Status resize(Map *map, size_t slots, Error *e) {
    MapSlot *fresh = calloc(slots, sizeof *fresh);
    if (!fresh) return fail(e, ERR_MEMORY, "out of memory for a table of %zu names", slots);
    Map grown = {fresh, slots - 1, map->count};
    if (map->slots)
        for (size_t i = 0; i <= map->mask; i++) {
            MapSlot *old = &map->slots[i];
            if (old->key) *find(&grown, old->key, old->size, old->hash) = *old;
        }
    free(map->slots);
    *map = grown;
    return OK;
}

Status map_reserve(Map *map, size_t count, Error *e) {
    if (count > SIZE_MAX / 64) return fail(e, ERR_MEMORY, "out of memory for a table of %zu names", count);
    size_t slots = 16;
    while (slots / 4 * 3 < count) slots *= 2;
    return map->slots && map->mask + 1 >= slots ? OK : resize(map, slots, e);
}

Status map_put(Map *map, const char *key, size_t size, int32_t value, Error *e) {
    if (size > UINT32_MAX) return fail(e, ERR_MEMORY, "a name of %zu bytes is too long", size);
    TRY(map_reserve(map, map->count + 1, e));
    uint32_t hash = hash_of(key, size);
    MapSlot *slot = find(map, key, size, hash);
    if (!slot->key) map->count++;
    *slot = (MapSlot){key ? key : "", (uint32_t)size, hash, value};
    return OK;
}

bool map_get(const Map *map, const char *key, size_t size, int32_t *value) {
    if (!map->slots || size > UINT32_MAX) return false;
    const MapSlot *slot = find(map, key, size, hash_of(key, size));
    if (!slot->key) return false;
    if (value) *value = slot->value;
    return true;
}

void map_free(Map *map) {
    free(map->slots);
    *map = (Map){0};
}
