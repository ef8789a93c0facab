/* layout.h - where the bytes of a component's bound rows lie in its weight region, and how they are made out of the
 * mapped files: in one piece, or with some blocks taking turns in two slots.
 *
 * Layouts decide nothing and move nothing: the caller says which blocks stream, reserves the region, and hands runs to
 * Device.upload_start. A run is one contiguous stretch: run 0 holds everything that stays, run k the k-th streamed block,
 * which lies in slot (k - 1) % 2. Slots are as large as the largest streamed block. In a run items lie in the order of their
 * rows, a pack (bind_pack) at its first row's place.
 * Easy to get wrong: place again and every offset may differ, so bind again; two streamed blocks of one slot share
 * addresses, and only one of them is there. */
#ifndef LAYOUT_H
#define LAYOUT_H

#include "core/weights.h"

typedef struct LayoutItem {
    Tensor src;          /* the file's rows, in the file's layout and dtype; absent: an optional row without tensor */
    Tensor dst;          /* the transformed shape in the compute dtype; .data by layout_bind */
    const char *name;    /* on disk */
    size_t offset;       /* in the region, a multiple of ARENA_ALIGN */
    int row, block;      /* as in Bind and BindRow */
    int first;           /* the first row of its pack; without one: row */
    bool matrix;         /* a pack's matrices lie behind its other rows */
    int group;           /* sort key: 0 not in the region (mapped or absent), 1 stays, 1 + k streamed block number k */
    Transform transform;
} LayoutItem;

typedef struct LayoutRun {
    const LayoutItem *item; /* count, by offset */
    int count;
    size_t offset, size;    /* in the region */
} LayoutRun;

typedef struct Layout {
    const Bind *bind;
    DType compute;
    LayoutItem *item;
    int items;
    size_t whole, mapped; /* bytes when nothing streams; bytes that are read where they are mapped */
    size_t *block_size;   /* [blocks] */
    int blocks;
    /* by layout_place */
    LayoutRun *run;       /* [1 + blocks] */
    int runs;             /* 1 + streamed blocks */
    int *run_of;          /* [blocks]: the block's run, 0 when it stays */
    size_t region;        /* bytes */
} Layout;

/* Matches rows with files; nothing is placed yet. maps: plain matrices stay in their files (Device.maps). Faults are
 * reported as by weights_check. */
Status layout_make(const WeightFiles *f, const Bind *b, const char *const *ignore, bool surplus, DType compute, bool maps,
                   Layout *out, Error *e);
void layout_free(Layout *l);
/* streamed: [blocks], or NULL: everything stays. */
void layout_place(Layout *l, const bool *streamed);
/* Points every Weight and Tensor of the rows into the region (or at its mapped bytes), and raises Weight.version. */
void layout_bind(const Layout *l, void *region);
/* The bytes of a run, for a region at this address. */
Fill layout_fill(const Layout *l, int run, void *region);

#endif
