/* compare_parts.h - what the files of compare share: the sink for both output forms, one frame's numbers, the parts by kind.
 * Not for other files; see compare.h.
 * Easy to get wrong: a part returns OK when the comparison could be made; whether it passed is in Verdict. */
#ifndef COMPARE_PARTS_H
#define COMPARE_PARTS_H

#include "compare.h"
#include "core/safetensors.h"
#include "frames.h"

typedef struct cJSON Json;

/* Either form: lines of text, or members of one object. The other one is NULL. */
typedef struct Sink {
    FILE *text;
    Json *json;
} Sink;

typedef struct Verdict {
    bool equal;    /* so far; begins true */
    bool failed;   /* so far */
    char why[400]; /* of the first failure, one line */
} Verdict;

/* The first failure is kept. */
void compare_failed(Verdict *v, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* NAN and infinities are no JSON numbers. null for them; of decibels, infinity (nothing differs) is the string "inf". */
void compare_number(Json *object, const char *key, double value);
void compare_decibel(Json *object, const char *key, double value);
/* Names of files and tensors, with a '?' for each byte that is not UTF-8. */
Json *compare_name(const char *name);
/* "inf", "-inf", "undefined" or the number with that many decimals. */
const char *compare_text(double value, int decimals, char out[32]);

/* --- pixels: compare_pixels.c --- */

enum { COMPARE_PARTS = PLANES_MAX + 1, COMPARE_ALL = PLANES_MAX };

/* Of one frame, or accumulated over frames (compare_add). */
typedef struct FrameNumbers {
    int planes, peak;
    int64_t samples, differing;
    uint64_t sum; /* of absolute differences */
    int max_abs;
    double mean_square[COMPARE_PARTS], ssim[COMPARE_PARTS]; /* a plane each, COMPARE_ALL: together */
    double luma[2];                                         /* reference, output */
    struct {
        bool found;
        int plane, x, y, channel, value[2];
    } first; /* that differs, in reading order, plane by plane */
} FrameNumbers;

/* a and b alike. ERR_MEMORY. */
Status compare_frame(const Planes *a, const Planes *b, FrameNumbers *out, Error *e);
double compare_psnr(double mean_square, double peak);
/* "red", "Y" ... */
const char *compare_channel(const Planes *p, int plane, int channel);

/* --- tensors: compare_tensors.c --- */

typedef struct CompareTensor {
    const SafetensorsEntry *entry; /* its offset is not looked at */
    const unsigned char *values;   /* may be unaligned */
} CompareTensor;

typedef struct TensorNumbers {
    bool equal, values;            /* values: there are numbers */
    int64_t count, differing, odd; /* odd: not finite on one side, and not the same */
    int64_t nan[2];
    double max_abs, mean_abs, psnr;
    int64_t first;   /* element whose bits (or with other dtypes: value) differ; -1 */
    double value[2]; /* there */
} TensorNumbers;

/* As many elements in both. peak: of the PSNR; 0: largest minus smallest value of a. */
TensorNumbers compare_tensor(const CompareTensor *a, const CompareTensor *b, double peak);
/* A line, or an object at the end of a list. */
void compare_print_tensor(FILE *out, const SafetensorsEntry *a, const SafetensorsEntry *b, const TensorNumbers *n);
void compare_put_tensor(Json *list, const SafetensorsEntry *a, const SafetensorsEntry *b, const TensorNumbers *n);

/* --- the parts --- */

void compare_metadata(const Sink *s, const char *path_a, const char *path_b);
Status compare_tensors(const char *const path[2], const CompareLimits *limits, Sink *s, Verdict *v, Error *e);
Status compare_sound(const char *const path[2], const CompareLimits *limits, Sink *s, Verdict *v, Error *e);
/* Pictures, folders, videos: kinds of a and b. */
Status compare_sequence(const char *const path[2], const FramesKind kind[2], const CompareOptions *o, Sink *s,
                        Verdict *v, Error *e);
/* compare_diff.c: pair number `index` (counted over those that both have), as RGB. */
Status compare_diff(const char *const path[2], const FramesKind kind[2], int64_t index, const CompareOptions *o,
                    Sink *s, Error *e);
/* Opens both, in one form if their planes are alike, else in RGB. */
Status compare_open(const char *const path[2], const FramesKind kind[2], bool rgb, Frames *pair[2], Error *e);
/* The next pair that both have; names of folders are matched. missing(name) is told what only one has. */
typedef struct PairWatch {
    void (*alone)(void *user, int who, const char *name); /* who: 0 reference, 1 output; name NULL: unnamed */
    void *user;
} PairWatch;
Status compare_pair(Frames *const pair[2], const PairWatch *watch, Planes out[2], const char **name, bool *end,
                    Error *e);

#endif
