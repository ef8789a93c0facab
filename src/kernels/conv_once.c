/* conv_once.c - see conv_once.h: guards and rules of the family. The kernel is conv_once.cu, the CPU's variant in conv_cpu.c.
 *
 * Easy to get wrong: guards and scratch see the addresses of a dry run, so alignment is asked about when the call runs. */
#include "kernels/conv_once.h"

#include "kernels/conv_once_layout.h"

#include <stdio.h>

/* --- guards --- */

static bool accepts(const ConvFrames *a, char *why, size_t size) {
    const Weight *w = a->w;
    const char *name = w->name ? w->name : "weight";
    if (a->x.dtype != BF16 || a->y.dtype != BF16)
        snprintf(why, size, "x is %s, expected BF16: without a rounding there is none to leave out", dtype_name(a->x.dtype));
    else if (w->scale.rank || w->lora) snprintf(why, size, "%s has scales or a LoRA", name);
    else if (w->w.dtype != BF16 || w->round != BF16 || (w->bias.rank && w->bias.dtype != BF16) ||
             (a->skip_bias.rank && a->skip_bias.dtype != BF16))
        snprintf(why, size, "%s is %s rounded to %s, expected BF16, its bias too", name, dtype_name(w->w.dtype),
                 dtype_name(w->round));
    else return true;
    return false;
}

bool conv_once_accepts_flat(const void *args, char *why, size_t size) {
    ConvFrames a = conv_frames(OP_conv2d, args);
    return accepts(&a, why, size);
}

bool conv_once_accepts_deep(const void *args, char *why, size_t size) {
    ConvFrames a = conv_frames(OP_conv3d, args);
    return accepts(&a, why, size);
}

/* --- what the kernel can take --- */

static bool aligned(const Tensor *t) { return (uintptr_t)t->data % ONCE_UNIT == 0; }

bool conv_once_aligned(const ConvFrames *a) {
    return aligned(&a->x) && aligned(&a->kernel) && aligned(&a->y) && aligned(&a->skip);
}

static int64_t parts(int64_t n, int64_t size) { return (n + size - 1) / size; }

int conv_once_columns(const ConvFrames *a) {
    const int64_t *k = a->kernel.shape, out = k[0];
    bool same = k[2] == ONCE_KERNEL && k[3] == ONCE_KERNEL && a->pad_top == 1 && a->pad_left == 1 && a->pad_bottom == 1 &&
                a->pad_right == 1 && a->stride == 1 && a->stride_t == 1 && !a->up;
    bool fits = a->x.dtype == BF16 && k[4] % ONCE_CHANNELS == 0 && tensor_contiguous(a->x) && tensor_contiguous(a->kernel) &&
                tensor_contiguous(a->y) && (!a->skip.rank || tensor_contiguous(a->skip)) && tensor_numel(a->y) &&
                a->x.shape[0] <= INT32_MAX && a->x.shape[1] * a->x.shape[2] <= INT32_MAX && k[0] * k[1] * k[4] <= INT32_MAX;
    if (!same || !fits) return 0;
    int n = out % 192 == 0 ? 192 : out % 96 == 0 ? 96 : 0;
    return n && conv_once_grid(a, n).tiles <= INT32_MAX ? n : 0;
}

OnceGrid conv_once_grid(const ConvFrames *a, int columns) {
    const int64_t *y = a->y.shape;
    OnceGrid g = {.across = parts(y[2], once_width(columns)), .down = parts(y[1], ONCE_ROWS), .groups = y[3] / columns};
    g.tiles = y[0] * g.down * g.across * g.groups;
    return g;
}

size_t conv_once_packed(const ConvFrames *a, int columns) {
    const int64_t *k = a->kernel.shape;
    return (size_t)(k[0] / columns * k[1] * (k[4] / ONCE_CHANNELS) * ONCE_KERNEL) * (size_t)once_slot(columns);
}

size_t conv_once_terms(const ConvFrames *a) { return (size_t)a->kernel.shape[0] * sizeof(float); }

/* --- what it pays for --- */

/* Multiprocessors do a tile at a time, whole turns of them: the share of the turns' work that is wanted, in percent, and from
 * where on it is enough. Of whole turns the kernel does 620 TFLOP/s of 96 channels, cuDNN 260 to 300; of 192 it does 700, cuDNN
 * 570 to 650, and of those of 384 that leave a fifth of the last turn empty it is the slower one. */
bool conv_once_pays(const ConvFrames *a, int columns, int multiprocessors) {
    const int64_t *y = a->y.shape;
    OnceGrid g = conv_once_grid(a, columns);
    int64_t turns = parts(g.tiles, multiprocessors) * multiprocessors;
    int64_t wanted = 100 * y[0] * y[1] * y[2] * g.groups / (turns * ONCE_ROWS * once_width(columns));
    return wanted >= (columns == 96 ? 60 : 92);
}
