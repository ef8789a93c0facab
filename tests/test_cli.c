/* test_cli.c - the command line without a model: option table, values, refusals, output names, progress text, metadata.
 * Each row states the command line and what must come of it; the texts of refusals are checked in part, since users and
 * scripts read them. tests/test_cli.sh drives the program itself. */
#include "cli.h"
#include "core/json.h"
#include "meta.h"
#include "names.h"
#include "progress.h"

#include <cjson/cJSON.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

typedef struct Tally {
    int passed, failed;
} Tally;

static void check(Tally *t, bool good, const char *what, const char *found) {
    if (good)
        t->passed++;
    else
        t->failed++;
    if (!good) printf("FAIL: %s: found \"%s\"\n", what, found ? found : "(null)");
}

enum { MAX_WORDS = 24 };

/* Splits at '|' and parses; the words stay valid until the next call with the same buffer. */
static Status parse(const char *line, char *buffer, size_t size, Cli *cli, Error *e) {
    char *argv[MAX_WORDS] = {(char *)(uintptr_t) "ditto"};
    int argc = 1;
    *e = (Error){0};
    snprintf(buffer, size, "%s", line);
    for (char *word = buffer; *line && word && argc < MAX_WORDS;) {
        char *bar = strchr(word, '|');
        if (bar) *bar++ = 0;
        argv[argc++] = word;
        word = bar;
    }
    return cli_parse(argc, argv, cli, e);
}

typedef struct Refusal {
    const char *line, *text;
} Refusal;

static const Refusal REFUSALS[] = {
    {"", "no arguments"},
    {"-p|x", "no model"},
    {"-m|d", "no prompt"},
    {"genrate", "did you mean \"generate\""},
    {"painting", "unknown command \"painting\"; expected generate"},
    {"-m|d|-p|x|--stpes|3", "unknown option --stpes; did you mean --steps?"},
    {"-m|d|-p|x|--num-inference-step|3", "did you mean --num-inference-steps?"},
    {"-m|d|-p|x|--zzzzzz", "unknown option --zzzzzz; see ditto generate --help"},
    {"-m|d|-p|x|-Z", "unknown option -Z"},
    {"-m|d|-p|x|-vZ", "unknown option -Z in -vZ"},
    {"inspect|f|--steps|3", "--steps does not belong to \"ditto inspect\""},
    {"-m|d|-p|x|--min-psnr|3", "--min-psnr does not belong to \"ditto generate\""},
    {"-m|d|-p|x|extra", "unexpected argument \"extra\""},
    {"-m|d|-p|x|--|-y", "unexpected argument \"-y\""},
    {"-m||-p|x", "-m: the value is empty"},
    {"-m|d|-p", "-p: needs a value (TEXT)"},
    {"-m|d|-p|--steps",
     "-p: needs a value (TEXT), but --steps follows; to give that text itself write --prompt=--steps"},
    {"-m|d|-p|-y", "but -y follows"},
    {"-m|d|-p|x|--dry-run=1", "--dry-run: takes no value, found \"1\""},
    {"-m|d|-p|x|--width|0", "--width: 0 is out of range, expected 16 to 16384"},
    {"-m|d|-p|x|-W|-16", "-W: -16 is out of range"},
    {"-m|d|-p|x|-W|99999999999999999999", "is out of range"},
    {"-m|d|-p|x|-W|64px", "-W: found \"64px\", expected a whole number"},
    {"-m|d|-p|x|-W| 64", "found \" 64\""},
    {"-m|d|-p|x|-W|+64", "found \"+64\""},
    {"-m|d|-p|x|-W|0x40", "found \"0x40\""},
    {"-m|d|-p|x|-W|", "found \"\""},
    {"-m|d|-p|x|--steps|0", "--steps: 0 is out of range, expected 1 to 10000"},
    {"-m|d|-p|x|--steps|10001", "--steps: 10001 is out of range"},
    {"-m|d|-p|x|--num-inference-steps|-1", "--num-inference-steps: -1 is out of range"},
    {"-m|d|-p|x|--steps|4.5", "found \"4.5\""},
    {"-m|d|-p|x|--count|0", "--count: 0 is out of range"},
    {"-m|d|-p|x|--guidance|nan", "--guidance: found \"nan\""},
    {"-m|d|-p|x|--guidance|inf", "found \"inf\""},
    {"-m|d|-p|x|--guidance|-1", "--guidance: -1 is out of range"},
    {"-m|d|-p|x|--guidance|1e99", "--guidance: 1e99 is out of range"},
    {"-m|d|-p|x|--guidance|0x1p2", "found \"0x1p2\""},
    {"-m|d|-p|x|--guidance|", "found \"\""},
    {"-m|d|-p|x|--cfg-scale|3,5", "--cfg-scale: found \"3,5\""},
    {"-m|d|-p|x|--guidance|3|--guidance-scale|3", "expected one of them"},
    {"-m|d|-p|x|--seed|-2", "--seed: found \"-2\""},
    {"-m|d|-p|x|--seed|18446744073709551616", "--seed: found"},
    {"-m|d|-p|x|--seed|1e3", "--seed: found \"1e3\""},
    {"-m|d|-p|x|--seed|18446744073709551615|--count|2", "leaves no room for --count 2"},
    {"-m|d|-p|x|--device|gpu", "--device: found \"gpu\", expected cpu or cuda"},
    {"-m|d|-p|x|--quality|extra", "--quality: found \"extra\", expected lossless or high"},
    {"-m|d|-p|x|--families|", "--families: the value is empty, expected none|all|LIST"},
    {"-m|d|-p|x|--graphs|maybe", "--graphs: found \"maybe\", expected on or off"},
    {"-m|d|-p|x|--qualty|high", "did you mean --quality?"},
    {"-m|d|-p|x|--vram|24", "--vram: found \"24\", expected a size such as 24G or 800M"},
    {"-m|d|-p|x|--vram|24 G", "--vram: found \"24 G\""},
    {"-m|d|-p|x|--vram|-1G", "--vram: found \"-1G\""},
    {"-m|d|-p|x|--vram|0x1G", "--vram: found \"0x1G\""},
    {"-m|d|-p|x|--vram|G", "--vram: found \"G\""},
    {"-m|d|-p|x|--vram|1.5.2G", "--vram: found \"1.5.2G\""},
    {"-m|d|-p|x|--vram|12GB", "--vram: found \"12GB\""},
    {"-m|d|-p|x|--vram|1023K", "--vram: 1023K is out of range, expected 1M to 1024T"},
    {"-m|d|-p|x|--vram|9999T", "--vram: 9999T is out of range"},
    {"-m|d|-p|x|--dtype|fp16", "--dtype: found \"fp16\", expected bf16 or f32"},
    {"-m|d|-p|x|--rng|cuda", "--inject noise=FILE"},
    {"-m|d|-p|x|--rng|gpu", "--rng: found \"gpu\", expected cpu"},
    {"-m|d|-p|x|--inject|noise", "--inject: found \"noise\", expected NAME=FILE"},
    {"-m|d|-p|x|--inject|=f", "expected NAME=FILE"},
    {"-m|d|-p|x|--inject|noise=", "expected NAME=FILE"},
    {"-m|d|-p|x|--inject|noise=a|--inject|noise=b", "noise is given twice"},
    {"-m|d|-p|x|--dump|o|--count|2", "--dump: holds one picture's stages"},
    {"-m|d|-p|x|--dry-run|--json", "not with --dry-run"},
    {"-m|d|-p|caf\xe9", "-p: invalid UTF-8 at byte 3 (0xe9)"},
    {"-m|d|-p|x|--negative-prompt|\xc0\xaf", "--negative-prompt: invalid UTF-8 at byte 0"},
    {"-m|d|-p|a\xed\xa0\x80", "invalid UTF-8 at byte 1"},
    {"-m|d|-p|\xf4\x90\x80\x80", "invalid UTF-8 at byte 0"},
    {"-m|d|-p|ab\xe2\x82", "invalid UTF-8 at byte 2"},
    {"compare|a.png", "compare: needs 2 arguments"},
    {"compare|a.png|b.png|c.png", "unexpected argument \"c.png\""},
    {"compare|a|b|--max-abs|-1", "--max-abs: -1 is out of range, expected 0 to 1e+38"},
    {"inspect", "inspect: needs 1 argument ("},
    {"tokens", "needs TOKENIZER_DIR"},
    {"tokens|-m|d", "go together"},
    {"tokens|dir|-m|d|-p|x", "not both"},
    {"help|nothing", "unknown command \"nothing\""},
};

static void test_refusals(Tally *t) {
    for (size_t i = 0; i < sizeof REFUSALS / sizeof REFUSALS[0]; i++) {
        char buffer[512];
        Cli cli;
        Error e;
        Status status = parse(REFUSALS[i].line, buffer, sizeof buffer, &cli, &e);
        check(t, status == ERR_USAGE && strstr(e.text, REFUSALS[i].text), REFUSALS[i].line, e.text);
        cli_free(&cli);
    }
}

/* Everything that a spelling can set, as one text: two spellings mean the same when the texts are equal. */
static void describe(const Cli *c, char *out, size_t size) {
    int n = snprintf(
        out, size,
        "%d m=%s p=%s n=%s o=%s %dx%d steps=%d count=%d seed=%d:%llu g=%g cfg=%g gs=%g msl=%d dev=%s vram=%zu dt=%d "
        "q=%d f=%s ex=%d gr=%d dump=%s %d%d%d%d v=%d psnr=%g abs=%g ns=%d help=%d%d ver=%d",
        (int)c->command, c->model ? c->model : "-", c->prompt ? c->prompt : "-",
        c->negative_prompt ? c->negative_prompt : "-", c->output ? c->output : "-", c->width, c->height,
        c->steps, c->count, c->seed_given, c->seed_given ? (unsigned long long)c->seed : 0, c->guidance,
        c->cfg_scale, c->guidance_scale, c->max_sequence_length, c->device ? c->device : "-", c->vram, (int)c->dtype,
        (int)c->quality, c->families ? c->families : "-", c->explain, !c->no_graphs,
        c->dump ? c->dump : "-", c->dry_run, c->no_metadata, c->overwrite, c->json, c->verbosity, c->min_psnr,
        c->max_abs, c->no_special, c->help, c->help_all, c->version);
    for (int i = 0; i < c->inject_count; i++)
        n += snprintf(out + n, size - (size_t)n, " %s<%s", c->inject[i].name, c->inject[i].file);
    for (int i = 0; i < c->arg_count; i++) n += snprintf(out + n, size - (size_t)n, " [%s]", c->args[i]);
}

typedef struct Meaning {
    const char *line, *same;
} Meaning;

/* Each pair of command lines means the same. */
static const Meaning SAME[] = {
    {"-m|d|-p|x", "-m|d|-p|x|--quality|high|--quality|lossless"},
    {"-m|d|-p|x", "-m|d|-p|x|--graphs|off|--graphs|on"},
    {"-m|d|-p|x", "generate|--model|d|--prompt|x"},
    {"-m|d|-p|x", "--model=d|--prompt=x"},
    {"-md|-px", "-m=d|-p=x"},
    {"-m|d|-p|x|--steps|9", "-m|d|-p|x|--num-inference-steps=9"},
    {"-m|d|-p|x|--steps|9", "-m|d|-p|x|--num_inference_steps|9"},
    {"-m|d|-p|x|--cfg-scale|4", "-m|d|-p|x|--true-cfg-scale|4.0"},
    {"-m|d|-p|x|--cfg-scale|4", "-m|d|-p|x|--true_cfg_scale=4e0"},
    {"-m|d|-p|x|-n|bad", "-m|d|-p|x|--negative-prompt|bad"},
    {"-m|d|-p|x|-W|64|-H|32", "-m|d|-p|x|--width|64|--height|32"},
    {"-m|d|-p|x|-W64|-H32", "-m|d|-p|x|--height=32|--width=64"},
    {"-m|d|-p|x|-y|-v", "-yv|-m|d|-p|x"},
    {"-m|d|-p|x|-yqo|f.png", "-m|d|-p|x|--overwrite|--quiet|--output|f.png"},
    {"-m|d|-p|x|-o|a|-o|b", "-m|d|-p|x|-o|b"},
    {"-m|d|-p|x|-q|-v", "-m|d|-p|x|-v"},
    {"-m|d|-p|x|--seed|-1", "-m|d|-p|x"},
    {"-m|d|-p|x|--seed|3|--seed|-1", "-m|d|-p|x"},
    {"-m|d|-p|x|--rng|cpu", "-m|d|-p|x"},
    {"-m|d|-p|x|--vram|12G", "-m|d|-p|x|--vram=12288m"},
    {"-m|d|-p|x|--vram|1.5GiB", "-m|d|-p|x|--vram|1536M"},
    {"-m|d|-p|x|--max-sequence-length|256", "-m|d|-p|x|--max_sequence_length=256"},
    {"-m|d|-p|x|--inject|noise=f=g", "-m|d|-p|x|--inject=noise=f=g"},
    {"compare|a|b|--min-psnr|40", "compare|--min-psnr=40|a|b"},
    {"compare|--|-a|b", "compare|--|-a|--|b"},
    {"help", "--help"},
    {"help|compare", "compare|-h"},
    {"--version|--nonsense", "--version"},
};

/* And each of these does not. */
static const Meaning DIFFERENT[] = {
    {"-m|d|-p|x|--quality|high", "-m|d|-p|x"},
    {"-m|d|-p|x|--families|none", "-m|d|-p|x|--families|all"},
    {"-m|d|-p|x|--explain", "-m|d|-p|x"},
    {"-m|d|-p|x|--graphs|off", "-m|d|-p|x"},
    {"-m|d|-p|x|--guidance|4", "-m|d|-p|x|--guidance-scale|4"},
    {"-m|d|-p|x|--guidance|4", "-m|d|-p|x|--cfg-scale|4"},
    {"-m|d|-p|x|-n|", "-m|d|-p|x"},
    {"-m|d|-p|x|--seed|0", "-m|d|-p|x"},
    {"-m|d|-p|x|--guidance|0", "-m|d|-p|x"},
    {"-m|d|-p|x|--vram|1G", "-m|d|-p|x|--vram|1T"},
    {"-m|d|-p|x|--vram|1G", "-m|d|-p|x"},
    {"-m|d|-p|x|--dtype|f32", "-m|d|-p|x|--dtype|bf16"},
    {"-m|d|-p|", "-m|d|-p|x"},
    {"help", "help|generate"},
};

static void test_meanings(Tally *t, const Meaning *rows, size_t count, bool same) {
    for (size_t i = 0; i < count; i++) {
        char words[2][512], text[2][1024] = {"", ""};
        Cli cli[2];
        Error e[2];
        Status a = parse(rows[i].line, words[0], sizeof words[0], &cli[0], &e[0]);
        Status b = parse(rows[i].same, words[1], sizeof words[1], &cli[1], &e[1]);
        for (int k = 0; k < 2; k++) describe(&cli[k], text[k], sizeof text[k]);
        bool equal = !strcmp(text[0], text[1]);
        /* "compare -- -a -- b" has one argument too many: after "--" everything is one */
        bool refused = strstr(rows[i].same, "--|-a|--|b") != NULL;
        if (refused)
            check(t, a == OK && b == ERR_USAGE, rows[i].same, e[1].text);
        else
            check(t, a == OK && b == OK && equal == same, rows[i].same,
                  a   ? e[0].text
                  : b ? e[1].text
                      : text[1]);
        cli_free(&cli[0]);
        cli_free(&cli[1]);
    }
}

static void test_values(Tally *t) {
    char buffer[512];
    Cli c;
    Error e;
    Status status =
        parse("-m|d|-p|-x \"q\" 100% "
              "\xe7\x8c\xab|--seed|18446744073709551615|-W|16384|-H|16|--steps|10000|--guidance|3.5",
              buffer, sizeof buffer, &c, &e);
    check(t, status == OK && !strcmp(c.prompt, "-x \"q\" 100% \xe7\x8c\xab"), "prompt is taken as it is",
          e.text);
    check(t, c.seed_given && c.seed == UINT64_MAX, "largest seed", NULL);
    check(t, c.width == 16384 && c.height == 16 && c.steps == 10000 && c.guidance == 3.5,
          "limits are inclusive", NULL);
    check(t,
          c.count == 1 && c.cfg_scale < 0 && c.guidance_scale < 0 && !c.negative_prompt && !c.dtype &&
              !c.device,
          "what is not given", NULL);
    cli_free(&c);
    status = parse("-m|d|-p||--seed|7|--count|3", buffer, sizeof buffer, &c, &e);
    check(t, status == OK && c.prompt && !c.prompt[0], "empty prompt", e.text);
    cli_free(&c);
}

/* --- output names --- */

typedef struct NameRow {
    const char *output; /* NULL: none */
    int count;
    const char *want; /* '|' between names; a refusal's text after '!' */
    int frames;
} NameRow;

static const NameRow NAMES[] = {
    {NULL, 1, "./T-7.png", 0},
    {NULL, 2, "./T-7.png|./T-8.png", 0},
    {"a.png", 1, "a.png", 0},
    {"a.png", 3, "a-1.png|a-2.png|a-3.png", 0},
    {"a.PNG", 2, "a-1.PNG|a-2.PNG", 0},
    {"a-%d.png", 1, "a-1.png", 0},
    {"a-%03d.png", 2, "a-001.png|a-002.png", 0},
    {"%02d%%.png", 1, "01%%.png", 0},
    {"100%.png", 1, "100%.png", 0},
    {"%s %5d %x %0d %00d.png", 1, "%s %5d %x %0d %00d.png", 0},
    {"x/%d/a.png", 2, "x/%d/a-1.png|x/%d/a-2.png", 0},
    {"x.y/a.b.png", 2, "x.y/a.b-1.png|x.y/a.b-2.png", 0},
    {"\xc3\x9c b 'q'.png", 2, "\xc3\x9c b 'q'-1.png|\xc3\x9c b 'q'-2.png", 0},
    {"/", 1, "/T-7.png", 0},
    {".", 2, "./T-7.png|./T-8.png", 0},
    {"nowhere/", 1, "nowhere/T-7.png", 0},
    {"%d-%03d.png", 1, "!two counters", 0},
    {"a.jpg", 1, "!ends with .jpg, expected .png", 0},
    {"a.png.tmp", 1, "!ends with .tmp", 0},
    {"a", 1, "!has no .png suffix", 0},
    {".png", 1, "!has no .png suffix", 0},
    {"a.d/b", 1, "!has no .png suffix", 0},
    {"", 1, "!empty", 0},
    {"a.mp4", 1, "!ends with .mp4, expected .png: T makes pictures", 0},
    {NULL, 2, "./T-7.mp4|./T-8.mp4", 9},
    {"a.mp4", 1, "a.mp4", 9},
    {"a.MKV", 2, "a-1.MKV|a-2.MKV", 9},
    {"a-%02d.mp4", 2, "a-01.mp4|a-02.mp4", 9},
    {"f/%04d.png", 1, "f/%04d.png", 9},
    {"f/%04d.png", 2, "!counts the frames of one clip", 9},
    {"a.png", 1, "!T makes clips: expected .mp4, .mkv, or a counter for the frames", 9},
    {"a.png", 1, "a.png", 1},
    {"%d.png", 1, "%d.png", 1},
    {"%d-%d.png", 1, "!two counters", 9},
    {"a.gif", 1, "!ends with .gif, expected .mp4, .mkv or .png", 9},
    {"a", 1, "!has no .mp4, .mkv or .png suffix", 9},
};

/* frames 0: of a model that makes pictures. */
static Status made(const char *output, const char *title, uint64_t seed, int count, int frames, Names *names, Error *e) {
    const NamesWanted wanted = {.title = title, .seed = seed, .count = count, .frames = frames ? frames : 1,
                                .of = frames ? NAMES_OF_CLIPS : NAMES_OF_PICTURES};
    return names_make(output, &wanted, names, e);
}

static void test_names(Tally *t) {
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++) {
        const NameRow *r = &NAMES[i];
        Names names;
        Error e = {0};
        char got[512] = "";
        Status status = made(r->output, "T", 7, r->count, r->frames, &names, &e);
        for (int k = 0; k < names.count; k++)
            snprintf(got + strlen(got), sizeof got - strlen(got), "%s%s", k ? "|" : "", names.path[k]);
        bool good = r->want[0] == '!' ? status == ERR_USAGE && strstr(e.text, r->want + 1)
                                      : status == OK && !strcmp(got, r->want);
        check(t, good, r->output ? r->output : "(no -o)", status ? e.text : got);
        names_free(&names);
    }
    const char *titles[][2] = {{"FLUX.1-dev", "./FLUX.1-dev-1.png"},
                               {"a/b c%d:*", "./a-b-c-d---1.png"},
                               {"", "./_-1.png"},
                               {".hidden", "./_.hidden-1.png"},
                               {"\xe7\x8c\xab", "./\xe7\x8c\xab-1.png"}};
    for (size_t i = 0; i < sizeof titles / sizeof titles[0]; i++) {
        Names names;
        Error e = {0};
        Status status = made(NULL, titles[i][0], 1, 1, 0, &names, &e);
        check(t, status == OK && !strcmp(names.path[0], titles[i][1]), titles[i][0],
              names.count ? names.path[0] : e.text);
        names_free(&names);
    }
    char title[300],
        want[200] = "./"; /* 99 letters, then a 3-byte character across the limit of 100: it goes whole */
    memset(title, 'x', 99);
    strcpy(title + 99, "\xe7\x8c\xab\xe7\x8c\xab");
    memset(want + 2, 'x', 99);
    strcpy(want + 101, "-1.png");
    Names names;
    Error e = {0};
    Status status = made(NULL, title, 1, 1, 0, &names, &e);
    check(t, status == OK && !strcmp(names.path[0], want), "long title",
          names.count ? names.path[0] : e.text);
    names_free(&names);
}

static Status checked(const char *output, int count, bool overwrite, Error *e) {
    Names names;
    *e = (Error){0};
    Status status = made(output, "T", 7, count, 0, &names, e);
    if (status == OK) status = names_check(&names, overwrite, e);
    names_free(&names);
    return status;
}

static void test_name_checks(Tally *t) {
    char folder[] = "/tmp/ditto-names-XXXXXX", path[600];
    Error e = {0};
    if (!mkdtemp(folder)) {
        check(t, false, "mkdtemp", folder);
        return;
    }
    snprintf(path, sizeof path, "%s/a.png", folder);
    check(t, checked(path, 1, false, &e) == OK && access(path, F_OK), "free name; nothing is left behind",
          e.text);
    check(t, rmdir(folder) == 0 && mkdir(folder, 0700) == 0, "the probe is removed", folder);
    snprintf(path, sizeof path, "%s/a-2.png", folder);
    check(t, symlink("nowhere", path) == 0, "symlink", path);
    snprintf(path, sizeof path, "%s/a.png", folder);
    check(t, checked(path, 3, false, &e) == ERR_USAGE && strstr(e.text, "a-2.png: exists; give -y"),
          "second name exists", e.text);
    check(t, checked(path, 3, true, &e) == OK, "overwrite", e.text);
    check(t, checked(path, 1, false, &e) == OK, "another name exists", e.text);
    check(t, mkdir(path, 0700) == 0, "mkdir", path);
    snprintf(path, sizeof path, "%s/a-%%d.png", folder);
    check(t, checked(path, 2, false, &e) == ERR_USAGE, "counter meets it", e.text);
    snprintf(path, sizeof path, "%s/no/", folder);
    check(t, checked(path, 1, false, &e) == ERR_IO && strstr(e.text, "no such folder"), "missing folder",
          e.text);
    snprintf(path, sizeof path, "%s/", folder);
    check(t, checked(path, 1, false, &e) == OK, "folder", e.text);
    int n = snprintf(path, sizeof path, "%s/", folder);
    memset(path + n, 'x', 252);
    strcpy(path + n + 251, ".png");
    check(t, checked(path, 1, false, &e) == ERR_IO, "name too long", e.text);
    snprintf(path, sizeof path, "/proc/a.png");
    check(t, checked(path, 1, false, &e) == ERR_IO, "unwritable folder", e.text);
    snprintf(path, sizeof path, "%s/a-2.png", folder);
    unlink(path);
    snprintf(path, sizeof path, "%s/a.png", folder);
    rmdir(path);
    check(t, rmdir(folder) == 0, "checks leave nothing behind", folder);
}

static void test_progress(Tally *t) {
    char text[80];
    progress_text(text, sizeof text, "", "denoise", 0, 28, 0);
    check(t, !strcmp(text, "denoise [....................] 0/28"), "no rate yet", text);
    progress_text(text, sizeof text, "2/4 ", "denoise", 7, 28, 14);
    check(t, !strcmp(text, "2/4 denoise [#####...............] 7/28  2.00 s/step  ETA 0:42"), "rate", text);
    progress_text(text, sizeof text, "", "denoise", 1, 100, 100);
    check(t, strstr(text, "100.00 s/step  ETA 2:45:00") != NULL, "hours", text);
    progress_text(text, sizeof text, "", "denoise", 28, 28, 28);
    check(t, strstr(text, "[####################] 28/28  1.00 s/step  ETA 0:00") != NULL, "end", text);
    progress_text(text, sizeof text, "", "text", 0, 1, 0);
    check(t, !strcmp(text, "text"), "single step", text);
    progress_text(text, sizeof text, "100000/100000 ", "denoise", 9999, 10000, 1e7);
    check(t, strlen(text) < 80, "fits", text);
    static const struct { int done, total; double seconds; const char *event; } EVENTS[] = {
        {0, 28, 0.25, "{\"phase\":\"denoise\",\"done\":0,\"total\":28,\"seconds\":0.250}"},
        {7, 28, 14, "{\"phase\":\"denoise\",\"done\":7,\"total\":28,\"seconds\":14.000,\"remaining\":42.000}"},
        {28, 28, 56, "{\"phase\":\"denoise\",\"done\":28,\"total\":28,\"seconds\":56.000,\"remaining\":0.000}"}};
    for (size_t i = 0; i < sizeof EVENTS / sizeof *EVENTS; i++) {
        cJSON *o = cJSON_CreateObject();
        progress_event(o, "denoise", EVENTS[i].done, EVENTS[i].total, EVENTS[i].seconds);
        char *line = cJSON_PrintUnformatted(o);
        check(t, !strcmp(line, EVENTS[i].event), "event", line);
        cJSON_free(line);
        cJSON_Delete(o);
    }
    ProgressClock clock = {0};
    progress_seconds(&clock, "text");
    nanosleep(&(struct timespec){.tv_nsec = 20 * 1000 * 1000}, NULL);
    double text_ran = progress_seconds(&clock, "text"), denoise = progress_seconds(&clock, "denoise");
    check(t, text_ran >= 0.02 && denoise == 0, "each phase has its own time", "");
}

static void test_meta(Tally *t) {
    Job job = {.prompt = "a \"red\"\n\xe7\x8c\xab",
               .negative_prompt = "dull, grey",
               .width = 64,
               .height = 32,
               .steps = 28,
               .guidance = 3.5,
               .cfg_scale = 2,
               .max_sequence_length = 512,
               .seed = UINT64_MAX};
    Meta meta = {.job = &job, .title = "a, b", .device = "cpu", .dtype = BF16};
    char *text = meta_parameters(&meta);
    check(t,
          text && !strcmp(text, "a \"red\"\n\xe7\x8c\xab\nNegative prompt: dull, grey\nSteps: 28, Sampler: "
                                "Euler, Schedule type: Simple, "
                                "CFG scale: 2, Distilled CFG Scale: 3.5, Seed: 18446744073709551615, Size: "
                                "64x32, Model: \"a, b\", "
                                "RNG: CPU, Version: ditto " CLI_VERSION),
          "parameters", text);
    free(text);
    text = meta_json(&meta, NULL, NULL);
    check(t, text && strstr(text, "\"seed\":\"18446744073709551615\"") && !strchr(text, '\n'),
          "exact seed, one line", text);
    Error e = {0};
    Json *j = NULL;
    job.seed = 4294967296;
    free(text);
    text = meta_json(&meta, "x y.png", &(Media){.seconds_text = 1});
    const char *prompt = NULL, *path = NULL;
    Status status = text ? json_parse(text, strlen(text), "meta", &j, &e) : ERR_MEMORY;
    if (status == OK) status = json_string(j, "prompt", &prompt, "meta", &e);
    int64_t seed = 0;
    if (status == OK) status = json_int(j, "seed", &seed, "meta", &e);
    check(t, seed == 4294967296, "seed as a number", text);
    if (status == OK) status = json_string(j, "path", &path, "meta", &e);
    check(t, status == OK && prompt && !strcmp(prompt, job.prompt) && path && !strcmp(path, "x y.png"),
          "read back", e.text);
    json_free(j);
    free(text);
    FamilyUse uses[] = {{.part = "a", .family = "f", .mounted = true, .count = 3},
                        {.part = "b", .family = "f", .refused = true, .why = "b: no"},
                        {.part = "a", .family = "g", .mounted = true, .count = 4},
                        {.part = "a", .family = "h"}};
    Dispatch runs[] = {{"a", "add", "cpu", NULL, 5}, {"a", "act", "cpu", NULL, 1}, {"a", "add", "fused", "f", 3}};
    Media media = {.family = uses, .families = 4, .dispatch = runs, .dispatches = 3, .warning = "careful"};
    job.quality = QUALITY_HIGH;
    text = meta_json(&meta, NULL, &media); /* as it stands in the picture */
    check(t, text && strstr(text, "\"quality\":\"high\",\"families\":{\"a\":{\"f\":true,\"g\":true}}}"), "families", text);
    free(text);
    text = meta_json(&meta, "x.png", &media);
    check(t,
          text && strstr(text, "\"families\":{\"a\":{\"f\":3,\"g\":4}}") &&
              strstr(text, "\"refused\":[\"b: no\"],\"warning\":\"careful\",\"dispatch\":{\"a\":{\"add\":"
                               "{\"cpu\":5,\"fused\":3},\"act\":{\"cpu\":1}}},\"seconds\""),
          "dispatch", text);
    free(text);
    job.guidance = 0; /* as resolved for a model without the input */
    job.negative_prompt = NULL;
    meta.title = "bad \xff name";
    text = meta_json(&meta, NULL, NULL);
    check(t, text && !strstr(text, "guidance") && !strstr(text, "negative") && cli_utf8_fault(text) < 0,
          "what is absent", text);
    free(text);
}

static void test_utf8(Tally *t) {
    const struct {
        const char *text;
        int fault;
    } rows[] = {
        {"", -1},
        {"abc", -1},
        {"\xc2\x80\xdf\xbf", -1},
        {"\xe0\xa0\x80\xed\x9f\xbf\xef\xbf\xbf", -1},
        {"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", -1},
        {"\x80", 0},
        {"a\xc1\xbf", 1},
        {"\xe0\x9f\xbf", 0},
        {"\xed\xa0\x80", 0},
        {"\xf0\x8f\xbf\xbf", 0},
        {"\xf4\x90\x80\x80", 0},
        {"\xf5\x80\x80\x80", 0},
        {"ok\xc3", 2},
        {"\xe2\x82", 0},
        {"\xf0\x9f\x90", 0},
        {"\xff", 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
        check(t, cli_utf8_fault(rows[i].text) == rows[i].fault, "utf-8", rows[i].text);
}

/* Whatever the table says must be in the help, and the help must fit. */
static void test_help(Tally *t) {
    char *text = NULL;
    size_t size = 0;
    for (int c = -1; c < COMMAND_COUNT; c++) {
        FILE *f = open_memstream(&text, &size);
        if (!f) return;
        if (c < 0)
            cli_help_all(f);
        else
            cli_help((Command)c, f);
        fclose(f);
        size_t longest = 0;
        for (char *line = text; *line;) {
            size_t n = strcspn(line, "\n");
            longest = n > longest ? n : longest;
            line += n + (line[n] == '\n');
        }
        check(t, longest <= 110 && strstr(text, "--help"), "help", text);
        if (c == COMMAND_GENERATE)
            check(t, strstr(text, "-W, --width N") && !strstr(text, "num-inference"), "aliases are hidden",
                  text);
        if (c == COMMAND_COMPARE)
            check(t, strstr(text, "--min-psnr X") && !strstr(text, "--width"), "own options only", text);
        free(text);
        text = NULL;
    }
}

int main(void) {
    Tally t = {0};
    test_refusals(&t);
    test_meanings(&t, SAME, sizeof SAME / sizeof SAME[0], true);
    test_meanings(&t, DIFFERENT, sizeof DIFFERENT / sizeof DIFFERENT[0], false);
    test_values(&t);
    test_names(&t);
    test_name_checks(&t);
    test_progress(&t);
    test_meta(&t);
    test_utf8(&t);
    test_help(&t);
    printf("%d passed, %d failed\n", t.passed, t.failed);
    return t.failed != 0;
}
