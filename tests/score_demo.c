/* score_demo.c - draws held-out prompts with the ditto binary and a demo checkpoint, and scores the pictures or clips.
 *
 * usage: score_demo [--clips] [-n COUNT] [-m MODEL] [-f PROMPTS] [--below] [--bar PERCENT] [--keep DIR] [-- OPTIONS OF DITTO]
 * DITTO (default ./ditto) is run once a prompt, with the seed that stands in the file and 128x128; the rest are its
 * defaults. PROMPTS (tests/demo_prompts.tsv): seed, expected scene, prompt, apart by tabs. Prints a line a prompt, the
 * faults, the rate, and "1 passed, 0 failed" when the rate is at least the bar (90); with --below, when it is under
 * the bar (for checkpoints spoilt on purpose). A run that ditto refuses ends everything: it is no wrong picture.
 * --clips: of a checkpoint that makes clips (weights/demo-sana-video, tests/demo_clips.tsv, bar 85), in all its defaults,
 * judged by the frames, which it is asked for as PNG files.
 * Easy to get wrong: the bar is for all 100 prompts; over a few prompts the rate scatters. */
#include "core/clock.h"
#include "media/image.h"
#include "score_clip.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { LINE = 4096, MAX_EXTRA = 40, MAX_ARGS = 24 + MAX_EXTRA };

typedef struct Options {
    const char *ditto, *model, *prompts, *keep;
    int count, extra_count;
    double bar;
    bool below, clips;
    char *extra[MAX_EXTRA];
} Options;

static int usage(void) {
    fprintf(stderr, "usage: score_demo [--clips] [-n COUNT] [-m MODEL] [-f PROMPTS] [--below] [--bar PERCENT] "
                    "[--keep DIR] [-- OPTIONS OF DITTO]\n");
    return 2;
}

static bool parse(int argc, char **argv, Options *o) {
    const char *ditto = getenv("DITTO");
    *o = (Options){.ditto = ditto && *ditto ? ditto : "./ditto", .model = "weights/demo-flux",
                   .prompts = "tests/demo_prompts.tsv", .count = 100, .bar = 90};
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--") == 0) {
            o->extra_count = argc - i - 1;
            if (o->extra_count > MAX_EXTRA) return false;
            memcpy(o->extra, argv + i + 1, (size_t)o->extra_count * sizeof *argv);
            return true;
        }
        if (strcmp(argv[i], "--below") == 0) {
            o->below = true;
            continue;
        }
        if (strcmp(argv[i], "--clips") == 0 && i == 1) {
            o->clips = true;
            o->model = "weights/demo-sana-video", o->prompts = "tests/demo_clips.tsv", o->bar = 85;
            continue;
        }
        if (i + 1 == argc) return false;
        const char *value = argv[i + 1];
        char *end = NULL;
        if (strcmp(argv[i], "-m") == 0) o->model = value;
        else if (strcmp(argv[i], "-f") == 0) o->prompts = value;
        else if (strcmp(argv[i], "--keep") == 0) o->keep = value;
        else if (strcmp(argv[i], "-n") == 0) o->count = (int)strtol(value, &end, 10);
        else if (strcmp(argv[i], "--bar") == 0) o->bar = strtod(value, &end);
        else return false;
        if (end && *end) return false;
        i++;
    }
    return o->count > 0;
}

/* Runs ditto for one prompt; true when it ended well. */
static bool render(const Options *o, const char *prompt, const char *seed, const char *path) {
    const char *args[MAX_ARGS] = {o->ditto, "generate", "-m", o->model, "-p", prompt, "--seed", seed, "-o", path, "-y", "-q"};
    int n = 12;
    if (!o->clips)
        for (int i = 0; i < 4; i++) args[n++] = (const char *[]){"-W", "128", "-H", "128"}[i];
    for (int i = 0; i < o->extra_count; i++) args[n++] = o->extra[i];
    fflush(stdout);
    pid_t child = fork();
    if (child < 0) return false;
    if (child == 0) {
        if (!freopen("/dev/null", "w", stdout)) _exit(127);
        execv(o->ditto, (char **)args);
        fprintf(stderr, "score_demo: %s: %s\n", o->ditto, strerror(errno));
        _exit(127);
    }
    int status = 0;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR) return false;
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static bool read_sized(const char *path, int side, Image *image) {
    Error e = {OK, ""};
    if (image_read(path, image, &e) != OK) {
        fprintf(stderr, "score_demo: %s\n", e.text);
        return false;
    }
    if (image->width == side && image->height == side) return true;
    fprintf(stderr, "score_demo: %s: %d x %d, expected %d x %d\n", path, image->width, image->height, side, side);
    image_free(image);
    return false;
}

static bool judge_picture(const Options *o, const char *seed, const ScoreScene *scene, const char *prompt, const char *folder,
                          ScoreFault *fault) {
    char path[LINE];
    Image image;
    if (snprintf(path, sizeof path, "%s/%s.png", folder, seed) >= (int)sizeof path) return false;
    if (!render(o, prompt, seed, path) || !read_sized(path, SCORE_SIDE, &image)) return false;
    *fault = score_picture(image.rgb, scene);
    image_free(&image);
    if (!o->keep) unlink(path);
    return true;
}

static bool judge_clip(const Options *o, const char *seed, const ScoreClip *clip, const char *prompt, const char *folder,
                       ScoreFault *fault) {
    enum { FRAME = SCORE_CLIP_SIDE * SCORE_CLIP_SIDE * 3 };
    char path[LINE];
    if (snprintf(path, sizeof path, "%s/%s-%%02d.png", folder, seed) >= (int)sizeof path) return false;
    unsigned char *rgb = malloc((size_t)SCORE_CLIP_FRAMES * FRAME);
    bool good = rgb && render(o, prompt, seed, path);
    for (int i = 0; good && i < SCORE_CLIP_FRAMES; i++) {
        Image image;
        snprintf(path, sizeof path, "%s/%s-%02d.png", folder, seed, i + 1);
        good = read_sized(path, SCORE_CLIP_SIDE, &image);
        if (!good) break;
        memcpy(rgb + (size_t)i * FRAME, image.rgb, FRAME);
        image_free(&image);
        if (!o->keep) unlink(path);
    }
    if (good) *fault = score_clip(rgb, SCORE_CLIP_FRAMES, clip);
    free(rgb);
    return good;
}

/* Draws and scores one line of the file. False when the line, ditto or its files are no good. */
static bool judge(const Options *o, char *line, const char *folder, ScoreFault *fault) {
    char *seed = strtok(line, "\t\n"), *scene_text = strtok(NULL, "\t\n"), *prompt = strtok(NULL, "\t\n");
    ScoreScene scene;
    ScoreClip clip;
    if (!prompt || !(o->clips ? score_clip_parse(scene_text, &clip) : score_parse(scene_text, &scene))) {
        fprintf(stderr, "score_demo: %s: found \"%s\", expected seed, scene and prompt\n", o->prompts,
                scene_text ? scene_text : line);
        return false;
    }
    bool good = o->clips ? judge_clip(o, seed, &clip, prompt, folder, fault)
                         : judge_picture(o, seed, &scene, prompt, folder, fault);
    if (good) printf("%4s  %-10s %s\n", seed, score_fault_name(*fault), prompt);
    return good;
}

int main(int argc, char **argv) {
    Options o;
    char scratch[] = "/tmp/score_demo_XXXXXX", line[LINE];
    int faults[SCORE_FAULTS] = {0}, drawn = 0;
    if (!parse(argc, argv, &o)) return usage();
    const char *folder = o.keep ? o.keep : mkdtemp(scratch);
    FILE *f = fopen(o.prompts, "r");
    if (!f || !folder) {
        fprintf(stderr, "score_demo: %s: %s\n", f ? "scratch folder" : o.prompts, strerror(errno));
        if (f) fclose(f);
        return 2;
    }
    /* Where other programs use the cores too, threads that spin at barriers cost ten times the work itself. */
    setenv("OMP_WAIT_POLICY", "passive", 0);
    double begin = clock_now();
    bool good = true;
    while (good && drawn < o.count && fgets(line, sizeof line, f)) {
        ScoreFault fault = SCORE_RIGHT;
        if (line[0] == '#') continue;
        good = judge(&o, line, folder, &fault);
        if (good) faults[fault]++, drawn++;
    }
    double seconds = clock_now() - begin;
    fclose(f);
    if (!o.keep) rmdir(folder);
    if (drawn == 0) good = false;
    double rate = drawn ? 100.0 * faults[SCORE_RIGHT] / drawn : 0;
    for (int i = SCORE_RIGHT + 1; i < SCORE_FAULTS; i++)
        if (faults[i]) printf("wrong %s: %d\n", score_fault_name((ScoreFault)i), faults[i]);
    const char *what = o.clips ? "clip" : "picture";
    printf("%d of %d %ss right in all attributes: %.1f %%, bar %s %.1f %%, %.2f s a %s\n", faults[SCORE_RIGHT], drawn, what,
           rate, o.below ? "below" : "at least", o.bar, drawn ? seconds / drawn : 0, what);
    good = good && (o.below ? rate < o.bar : rate >= o.bar);
    printf("%d passed, %d failed\n", good, !good);
    return !good;
}
