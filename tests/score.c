/* score.c - the judge: background from the border, components of what differs from it, then place, colour, shape, size.
 *
 * The same steps as scripts/demo_score.py, which the training looks at; this one counts. Its own test paints scenes and
 * changes one attribute (test_score.c).
 * Easy to get wrong: an anti-aliased edge mixes two colours into a third (red on white has a pink rim), so an object's
 * colour is read from its core alone, and its extent from the distance to the background, never from a class. */
#include "score.h"

#include <math.h>
#include <string.h>

enum {
    PIXELS = SCORE_SIDE * SCORE_SIDE,
    BORDER = 2,    /* pixels of the frame that show the background */
    MIN_AREA = 20, /* pixels: specks below are ignored */
    MAX_PARTS = SCORE_OBJECTS + 1
};
static const double FOREGROUND = 45;      /* RGB distance from the background; palettes lie at least 90 apart */
static const double FRAME_SHARE = 0.05;   /* of the frame may differ */
static const double PLACE_REACH = 12;     /* pixels */
static const double COLOUR_REACH = 50;    /* RGB distance of a core's mean */
static const double PATCH_REACH = 75;     /* RGB distance of a core's pixel ... */
static const double PATCH_SHARE = 0.2;    /* ... that this share may exceed */
static const double MIN_OVERLAP = 0.78;   /* intersection over union with the ideal shape */
static const double MAX_STRETCH = 1.43;   /* bounding box, width against height */
static const double RADIUS_SPLIT = 13.25; /* halfway between small and large */

const ScoreName SCORE_PAINT[SCORE_COLOURS] = {
    {"red", {215, 35, 40}},   {"orange", {240, 120, 20}}, {"yellow", {250, 225, 60}}, {"green", {40, 160, 70}},
    {"cyan", {60, 200, 220}}, {"blue", {45, 80, 210}},    {"purple", {130, 50, 170}}, {"pink", {245, 150, 190}},
};
const ScoreName SCORE_GROUND[SCORE_BACKGROUNDS] = {
    {"white", {250, 250, 250}}, {"black", {10, 10, 10}}, {"gray", {128, 128, 128}}, {"brown", {105, 65, 35}}};
const double SCORE_ANCHOR[SCORE_PLACES][2] = {{26, 26}, {102, 26}, {26, 102}, {102, 102}, {64, 64}};
const double SCORE_RADIUS[SCORE_SIZES][2] = {{8.5, 10.5}, {16, 18}};

static const char *const PLACE_NAME[SCORE_PLACES] = {"top left", "top right", "bottom left", "bottom right", "centre"};
static const char *const SIZE_NAME[SCORE_SIZES] = {"small", "large"};
static const char *const SHAPE_NAME[SCORE_SHAPES] = {"circle", "square", "triangle"};

typedef struct Part {
    int area, x1, y1, x2, y2; /* bounding box, ends excluded */
    int label;
} Part;

static double distance(const double *a, const unsigned char *b) {
    double sum = 0;
    for (int c = 0; c < 3; c++) sum += (a[c] - b[c]) * (a[c] - b[c]);
    return sqrt(sum);
}

static int nearest(const double *rgb, const ScoreName *palette, int count, double *dist) {
    int best = 0;
    for (int i = 0; i < count; i++) {
        double d = distance(rgb, palette[i].rgb);
        if (i == 0 || d < *dist) best = i, *dist = d;
    }
    return best;
}

/* A picture and what is found out about it. */
typedef struct Look {
    const unsigned char *rgb; /* [side][side][3] */
    int side, pixels;
    unsigned char far[PIXELS]; /* differs from the background, and belongs to no component yet */
    int labels[PIXELS];        /* of components; 0: none */
} Look;

static void look_at(Look *k, const unsigned char *rgb, int side) {
    k->rgb = rgb, k->side = side, k->pixels = side * side;
    memset(k->labels, 0, sizeof k->labels);
}

static bool on_frame(const Look *k, int i) {
    int x = i % k->side, y = i / k->side;
    return x < BORDER || y < BORDER || x >= k->side - BORDER || y >= k->side - BORDER;
}

static double distance_at(const Look *k, int i, const unsigned char *colour) {
    const double p[3] = {k->rgb[3 * i], k->rgb[3 * i + 1], k->rgb[3 * i + 2]};
    return distance(p, colour);
}

/* The background that the frame shows. */
static int background_of(const Look *k) {
    double mean[3] = {0, 0, 0}, dist = 0;
    int frame = 0;
    for (int i = 0; i < k->pixels; i++) {
        if (!on_frame(k, i)) continue;
        frame++;
        for (int c = 0; c < 3; c++) mean[c] += k->rgb[3 * i + c];
    }
    for (int c = 0; c < 3; c++) mean[c] /= frame;
    return nearest(mean, SCORE_GROUND, SCORE_BACKGROUNDS, &dist);
}

/* Marks what differs from the expected background; false when the frame shows another one. */
static bool find_background(Look *k, int background) {
    int frame = 0, other = 0;
    for (int i = 0; i < k->pixels; i++) {
        k->far[i] = distance_at(k, i, SCORE_GROUND[background].rgb) > FOREGROUND;
        if (!on_frame(k, i)) continue;
        frame++;
        other += k->far[i];
    }
    return background_of(k) == background && other <= FRAME_SHARE * frame;
}

/* 4-connected component of `far` from `start`; its pixels get `label`. stack: room for PIXELS numbers. */
static Part flood(Look *k, int *stack, int start, int label) {
    int top = 0, side = k->side;
    Part part = {.x1 = side, .y1 = side, .label = label};
    stack[top++] = start;
    k->far[start] = 0;
    while (top) {
        int i = stack[--top], x = i % side, y = i / side;
        k->labels[i] = label;
        part.area++;
        if (x < part.x1) part.x1 = x;
        if (y < part.y1) part.y1 = y;
        if (x >= part.x2) part.x2 = x + 1;
        if (y >= part.y2) part.y2 = y + 1;
        const int next[4] = {x > 0 ? i - 1 : i, x < side - 1 ? i + 1 : i, y > 0 ? i - side : i,
                             y < side - 1 ? i + side : i};
        for (int n = 0; n < 4; n++)
            if (k->far[next[n]]) {
                k->far[next[n]] = 0;
                stack[top++] = next[n];
            }
    }
    return part;
}

/* All components that count, at most MAX_PARTS. */
static int find_parts(Look *k, Part *parts) {
    static _Thread_local int stack[PIXELS]; /* lint: allow-static (64 KiB scratch of a test) */
    int count = 0;
    for (int i = 0, label = 1; i < k->pixels; i++) {
        if (!k->far[i]) continue;
        Part part = flood(k, stack, i, label++);
        if (part.area < MIN_AREA) continue;
        parts[count++] = part;
        if (count == MAX_PARTS) break;
    }
    return count;
}

static double middle_x(const Part *part) { return (part->x1 + part->x2) / 2.0; }
static double middle_y(const Part *part) { return (part->y1 + part->y2) / 2.0; }

static int place_of(const Part *part) {
    for (int i = 0; i < SCORE_PLACES; i++)
        if (hypot(middle_x(part) - SCORE_ANCHOR[i][0], middle_y(part) - SCORE_ANCHOR[i][1]) <= PLACE_REACH) return i;
    return -1;
}

/* The core are pixels whose four neighbours belong to the part as well. False when it has another colour; *empty when
 * there is no core at all. */
static bool has_colour(const Look *k, const Part *part, int colour, bool *empty) {
    double mean[3] = {0, 0, 0}, dist = 0;
    int core = 0, off = 0, side = k->side, l = part->label;
    for (int y = part->y1 > 0 ? part->y1 : 1; y < part->y2 && y < side - 1; y++)
        for (int x = part->x1 > 0 ? part->x1 : 1; x < part->x2 && x < side - 1; x++) {
            int i = y * side + x;
            const int *at = k->labels + i;
            if (at[0] != l || at[-1] != l || at[1] != l || at[-side] != l || at[side] != l) continue;
            core++;
            off += distance_at(k, i, SCORE_PAINT[colour].rgb) > PATCH_REACH;
            for (int c = 0; c < 3; c++) mean[c] += k->rgb[3 * i + c];
        }
    *empty = core == 0;
    if (*empty) return false;
    for (int c = 0; c < 3; c++) mean[c] /= core;
    return nearest(mean, SCORE_PAINT, SCORE_COLOURS, &dist) == colour && dist <= COLOUR_REACH &&
           off <= PATCH_SHARE * core;
}

/* The best fitting ideal shape over the bounding box, -1 when none fits; *radius as the painter means it. */
static int shape_of(const Look *k, const Part *part, double *radius) {
    int h = part->y2 - part->y1, w = part->x2 - part->x1, best = 0;
    int both[SCORE_SHAPES] = {0}, any[SCORE_SHAPES] = {0};
    for (int y = 0; y < h; y++)
        for (int x = 0; x < w; x++) {
            bool mine = k->labels[(part->y1 + y) * k->side + part->x1 + x] == part->label;
            double v = (y + 0.5) / h, u = fabs((x + 0.5) / w * 2 - 1);
            const bool ideal[SCORE_SHAPES] = {u * u + (2 * v - 1) * (2 * v - 1) <= 1, true, u <= v};
            for (int s = 0; s < SCORE_SHAPES; s++) both[s] += mine && ideal[s], any[s] += mine || ideal[s];
        }
    for (int s = 1; s < SCORE_SHAPES; s++)
        if ((double)both[s] / any[s] > (double)both[best] / any[best]) best = s;
    const double radii[SCORE_SHAPES] = {(h + w) / 4.0, (h + w) / 3.6, (h / 2.0 + w / 2.3) / 2};
    double stretch = (double)h / w * (best == 2 ? 1.15 : 1.0); /* a triangle is 2.3 wide and 2 high */
    *radius = radii[best];
    bool good = (double)both[best] / any[best] >= MIN_OVERLAP && stretch < MAX_STRETCH && stretch > 1 / MAX_STRETCH;
    return good ? best : -1;
}

/* Colour and shape of an object; *radius as the painter means it. */
static ScoreFault judge_object(const Look *k, const Part *part, int colour, int shape, double *radius) {
    bool empty = false;
    *radius = 0;
    if (!has_colour(k, part, colour, &empty)) return empty ? SCORE_SHAPE : SCORE_COLOUR;
    return shape_of(k, part, radius) == shape ? SCORE_RIGHT : SCORE_SHAPE;
}

ScoreFault score_picture(const unsigned char *rgb, const ScoreScene *scene) {
    Look k;
    Part parts[MAX_PARTS], *at[SCORE_PLACES] = {NULL};
    look_at(&k, rgb, SCORE_SIDE);
    if (!find_background(&k, scene->background)) return SCORE_BACKGROUND;
    int count = find_parts(&k, parts);
    if (count != scene->count) return SCORE_NUMBER;
    for (int i = 0; i < count; i++) {
        int place = place_of(&parts[i]);
        if (place < 0 || at[place]) return SCORE_PLACE;
        at[place] = &parts[i];
    }
    for (int i = 0; i < count; i++)
        if (!at[scene->objects[i].place]) return SCORE_PLACE;
    for (int i = 0; i < count; i++) {
        const ScoreObject *want = &scene->objects[i];
        double radius;
        ScoreFault fault = judge_object(&k, at[want->place], want->colour, want->shape, &radius);
        if (fault != SCORE_RIGHT) return fault;
        if ((radius > RADIUS_SPLIT) != want->size) return SCORE_SIZE;
    }
    return SCORE_RIGHT;
}

ScoreFault score_single(const unsigned char *rgb, int side, int background, int colour, int shape, ScoreSeen *seen) {
    Look k;
    Part parts[MAX_PARTS];
    *seen = (ScoreSeen){0};
    look_at(&k, rgb, side);
    if (!find_background(&k, background < 0 ? background_of(&k) : background)) return SCORE_BACKGROUND;
    if (find_parts(&k, parts) != 1) return SCORE_NUMBER;
    *seen = (ScoreSeen){.single = true, .x = middle_x(parts), .y = middle_y(parts)};
    return judge_object(&k, parts, colour, shape, &seen->radius);
}

const char *score_fault_name(ScoreFault fault) {
    static const char *const NAMES[SCORE_FAULTS] = {"right", "background", "number", "place",
                                                   "colour", "shape", "size", "direction"};
    return fault >= 0 && fault < SCORE_FAULTS ? NAMES[fault] : "?";
}

bool score_take(const char **at, const char *word) {
    size_t n = strlen(word);
    if (strncmp(*at, word, n) != 0 || !strchr(" ;:", (*at)[n])) return false;
    *at += n + (**at && (*at)[n] == ' ');
    return true;
}

int score_word(const char **at, ScoreWord kind) {
    const char *const *plain = kind == SCORE_A_SIZE ? SIZE_NAME : kind == SCORE_A_SHAPE ? SHAPE_NAME : PLACE_NAME;
    const ScoreName *named = kind == SCORE_A_GROUND ? SCORE_GROUND : kind == SCORE_A_COLOUR ? SCORE_PAINT : NULL;
    static const int COUNT[] = {SCORE_BACKGROUNDS, SCORE_SIZES, SCORE_COLOURS, SCORE_SHAPES, SCORE_PLACES};
    for (int i = 0; i < COUNT[kind]; i++)
        if (score_take(at, named ? named[i].name : plain[i])) return i;
    return -1;
}

bool score_parse(const char *text, ScoreScene *out) {
    const char *at = text;
    unsigned seen = 0;
    *out = (ScoreScene){.background = score_word(&at, SCORE_A_GROUND)};
    if (out->background < 0 || strncmp(at, ": ", 2) != 0) return false;
    at += 2;
    for (;;) {
        if (out->count == SCORE_OBJECTS) return false;
        ScoreObject *o = &out->objects[out->count++];
        o->size = score_word(&at, SCORE_A_SIZE);
        o->colour = score_word(&at, SCORE_A_COLOUR);
        o->shape = score_word(&at, SCORE_A_SHAPE);
        o->place = score_word(&at, SCORE_A_PLACE);
        if (o->size < 0 || o->colour < 0 || o->shape < 0 || o->place < 0 || seen >> o->place & 1u) return false;
        seen |= 1u << o->place;
        if (!*at) return true;
        if (strncmp(at, "; ", 2) != 0) return false;
        at += 2;
    }
}
