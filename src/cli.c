/* cli.c - the option table and the one parser and help printer that read it. See cli.h.
 *
 * Not a getopt: no abbreviations of long names, no reordering rules to remember. "--opt value", "--opt=value", "-o value",
 * "-ovalue" and grouped switches ("-vy") are understood, "--" ends options, and '_' in a long name counts as '-'.
 * Easy to get wrong: an option takes the next argument whatever it looks like (prompts may begin with '-'), except when
 * that argument is itself the exact spelling of an option of this subcommand: then a value was most likely forgotten. */
#include "cli.h"

#include <errno.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>

typedef enum Kind {
    KIND_SWITCH, /* bool */
    KIND_QUIET, KIND_VERBOSE,
    KIND_TEXT,   /* const char *, not empty */
    KIND_PROMPT, /* const char *, valid UTF-8, may be empty */
    KIND_INT,    /* int, low..high */
    KIND_SIZE,   /* int, low..high, multiple of 16 */
    KIND_REAL,   /* double, low..high */
    KIND_SEED, KIND_DTYPE, KIND_DEVICE, KIND_RNG, KIND_INJECT, KIND_HELP, KIND_VERSION,
} Kind;

typedef struct Option {
    const char *name;
    char brief;           /* 0: none */
    Kind kind;
    unsigned commands;    /* bit per Command */
    const char *argument; /* NULL: takes none */
    const char *help;     /* '\n' breaks the line */
    size_t field;         /* offset in Cli */
    double low, high;
    const char *aliases;  /* hidden long spellings, separated by spaces */
} Option;

enum {
    GEN = 1 << COMMAND_GENERATE, CMP = 1 << COMMAND_COMPARE, INS = 1 << COMMAND_INSPECT, TOK = 1 << COMMAND_TOKENS,
    ALL = GEN | CMP | INS | TOK
};

#define AT(f) offsetof(Cli, f)

static const Option OPTIONS[] = {
    {"model", 'm', KIND_TEXT, GEN | TOK, "DIR", "model: diffusers folder, hub snapshot folder, or OWNER/NAME in the hub cache",
     AT(model), 0, 0, NULL},
    {"prompt", 'p', KIND_PROMPT, GEN | TOK, "TEXT", "what to draw (UTF-8; may be empty)", AT(prompt), 0, 0, NULL},
    {"negative-prompt", 'n', KIND_PROMPT, GEN, "TEXT", "what to avoid; used when --cfg-scale is above 1", AT(negative_prompt),
     0, 0, NULL},
    {"output", 'o', KIND_TEXT, GEN, "NAME", "PNG file, or a folder; %d or %03d becomes the picture's number\n"
     "(default: ./TITLE-SEED.png)", AT(output), 0, 0, NULL},
    {"width", 'W', KIND_SIZE, GEN, "N", "pixels, a multiple of 16 (default: the model's)", AT(width), 16, 16384, NULL},
    {"height", 'H', KIND_SIZE, GEN, "N", "pixels, a multiple of 16 (default: the model's)", AT(height), 16, 16384, NULL},
    {"steps", 0, KIND_INT, GEN, "N", "denoising steps, 1 to 10000 (default: the model's)", AT(steps), 1, 10000,
     "num-inference-steps"},
    {"seed", 0, KIND_SEED, GEN, "N", "0 to 2^64-1; -1 or none: drawn, printed and stored", AT(seed), 0, 0, NULL},
    {"count", 0, KIND_INT, GEN, "N", "pictures to make, with seeds SEED, SEED+1, ...", AT(count), 1, 100000, NULL},
    {"guidance", 0, KIND_REAL, GEN, "X", "distilled guidance, for models that take it as an input", AT(guidance), 0, 1000, NULL},
    {"cfg-scale", 0, KIND_REAL, GEN, "X", "classifier-free guidance; above 1 with -n: two passes a step", AT(cfg_scale), 0, 1000,
     "true-cfg-scale"},
    {"guidance-scale", 0, KIND_REAL, GEN, "X", "what the model's diffusers pipeline calls guidance_scale\n(FLUX: --guidance)",
     AT(guidance_scale), 0, 1000, NULL},
    {"max-sequence-length", 0, KIND_INT, GEN, "N", "tokens of the long text encoder (default: the model's)",
     AT(max_sequence_length), 1, 8192, NULL},
    {"device", 0, KIND_DEVICE, GEN, "cpu|cuda", "where to compute (default: chosen)", AT(device), 0, 0, NULL},
    {"dtype", 0, KIND_DTYPE, GEN, "bf16|f32", "number format of the computation (default: bf16)", AT(dtype), 0, 0, NULL},
    {"rng", 0, KIND_RNG, GEN, "cpu", "whose noise: torch's CPU generator, bit for bit", 0, 0, 0, NULL},
    {"dump", 0, KIND_TEXT, GEN, "DIR", "write every stage's tensor to DIR/NAME.safetensors", AT(dump), 0, 0, NULL},
    {"inject", 0, KIND_INJECT, GEN, "NAME=FILE", "take the stage NAME from FILE (as --dump wrote it); repeatable", 0, 0, 0, NULL},
    {"dry-run", 0, KIND_SWITCH, GEN, NULL, "show parameters, tokens, sigmas and the memory plan; render nothing", AT(dry_run),
     0, 0, NULL},
    {"no-metadata", 0, KIND_SWITCH, GEN, NULL, "leave prompt, seed and parameters out of the PNG", AT(no_metadata), 0, 0, NULL},
    {"overwrite", 'y', KIND_SWITCH, GEN, NULL, "replace existing files", AT(overwrite), 0, 0, "yes"},
    {"min-psnr", 0, KIND_REAL, CMP, "X", "same enough when the PSNR is at least X dB", AT(min_psnr), 0, 1000, NULL},
    {"max-abs", 0, KIND_REAL, CMP, "X", "same enough when no value differs by more than X", AT(max_abs), 0, 1e30, NULL},
    {"no-special", 0, KIND_SWITCH, TOK, NULL, "leave out the special tokens that the tokenizer adds", AT(no_special), 0, 0, NULL},
    {"json", 0, KIND_SWITCH, GEN, NULL, "print one JSON object a picture instead of its path", AT(json), 0, 0, NULL},
    {"verbose", 'v', KIND_VERBOSE, GEN, NULL, "say more on standard error", AT(verbosity), 0, 0, NULL},
    {"quiet", 'q', KIND_QUIET, GEN, NULL, "say nothing on standard error but errors", AT(verbosity), 0, 0, NULL},
    {"help", 'h', KIND_HELP, ALL, NULL, "this text", 0, 0, 0, NULL},
    {"version", 0, KIND_VERSION, ALL, NULL, "print the version", 0, 0, 0, NULL},
};
enum { OPTION_COUNT = (int)(sizeof OPTIONS / sizeof OPTIONS[0]) };

typedef struct CommandInfo {
    const char *name, *usage, *summary, *note;
    int args_min, args_max;
} CommandInfo;

static const CommandInfo COMMANDS[COMMAND_COUNT] = {
    [COMMAND_GENERATE] = {"generate", "-m DIR -p TEXT [-o NAME.png] [options]", "render pictures from a prompt (the default)",
                          "One path a line on standard output; everything else goes to standard error.", 0, 0},
    [COMMAND_COMPARE] = {"compare", "REFERENCE OUTPUT [options]", "compare two pictures: equal, largest difference, PSNR",
                         "Exit code: 0 equal (or within the limits given), 1 different, 2 not comparable.", 2, 2},
    [COMMAND_INSPECT] = {"inspect", "DIR|FILE", "list a model's or a file's tensors, or a PNG's metadata", "", 1, 1},
    [COMMAND_TOKENS] = {"tokens", "TOKENIZER_DIR [--no-special] | -m DIR -p TEXT",
                        "token ids of JSON strings, or what each encoder of a model will see",
                        "With TOKENIZER_DIR: one JSON string a line on standard input, one JSON array of ids a line on output.",
                        0, 1},
};

const char *cli_command_name(Command command) { return COMMANDS[command].name; }

int64_t cli_utf8_fault(const char *text) {
    const unsigned char *s = (const unsigned char *)text;
    for (size_t i = 0; s[i];) {
        unsigned char c = s[i];
        int more = c < 0x80 ? 0 : c >= 0xc2 && c <= 0xdf ? 1 : c >= 0xe0 && c <= 0xef ? 2 : c >= 0xf0 && c <= 0xf4 ? 3 : -1;
        if (more < 0) return (int64_t)i;
        for (int k = 1; k <= more; k++)
            if ((s[i + (size_t)k] & 0xc0) != 0x80) return (int64_t)i;
        if ((c == 0xe0 && s[i + 1] < 0xa0) || (c == 0xed && s[i + 1] > 0x9f) || (c == 0xf0 && s[i + 1] < 0x90) ||
            (c == 0xf4 && s[i + 1] > 0x8f))
            return (int64_t)i;
        i += (size_t)more + 1;
    }
    return -1;
}

/* --- finding options --- */

static bool same_name(const char *a, size_t size, const char *name, size_t name_size) {
    if (size != name_size) return false;
    for (size_t i = 0; i < size; i++)
        if ((a[i] == '_' ? '-' : a[i]) != name[i]) return false;
    return true;
}

/* Calls for the main name first, then each alias; true stops. */
static bool each_spelling(const Option *o, bool (*visit)(const char *name, size_t size, void *user), void *user) {
    if (visit(o->name, strlen(o->name), user)) return true;
    for (const char *a = o->aliases; a && *a;) {
        size_t size = strcspn(a, " ");
        if (visit(a, size, user)) return true;
        a += size + (a[size] == ' ');
    }
    return false;
}

typedef struct Wanted { const char *name; size_t size; } Wanted;

static bool matches(const char *name, size_t size, void *user) {
    const Wanted *w = user;
    return same_name(w->name, w->size, name, size);
}

static const Option *find_long(const char *name, size_t size, unsigned commands) {
    for (int i = 0; i < OPTION_COUNT; i++)
        if ((OPTIONS[i].commands & commands) && each_spelling(&OPTIONS[i], matches, &(Wanted){name, size})) return &OPTIONS[i];
    return NULL;
}

static const Option *find_brief(char brief, unsigned commands) {
    for (int i = 0; i < OPTION_COUNT; i++)
        if (OPTIONS[i].brief && OPTIONS[i].brief == brief && (OPTIONS[i].commands & commands)) return &OPTIONS[i];
    return NULL;
}

/* Exactly an option as it would be typed: "--steps", "-y". */
static bool is_option(const char *arg, unsigned commands) {
    if (arg[0] != '-' || !arg[1]) return false;
    if (arg[1] == '-') return arg[2] && find_long(arg + 2, strlen(arg + 2), commands);
    return !arg[2] && find_brief(arg[1], commands);
}

/* Edit distance (insert, delete, replace, exchange of neighbours); names longer than the rows count as far. */
static int distance(const char *a, size_t n, const char *b, size_t m) {
    enum { LONGEST = 40 };
    int row[3][LONGEST + 1];
    if (n > LONGEST || m > LONGEST) return LONGEST;
    for (size_t i = 0; i <= n; i++) {
        int *now = row[i % 3], *last = row[(i + 2) % 3], *before = row[(i + 1) % 3];
        for (size_t j = 0; j <= m; j++) {
            if (!i || !j) {
                now[j] = (int)(i + j);
                continue;
            }
            int d = last[j - 1] + (a[i - 1] != b[j - 1]);
            if (last[j] + 1 < d) d = last[j] + 1;
            if (now[j - 1] + 1 < d) d = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < d) d = before[j - 2] + 1;
            now[j] = d;
        }
    }
    return row[n % 3][m];
}

typedef struct Nearest {
    const char *typed;
    size_t typed_size;
    char best[48];
    int best_distance;
} Nearest;

static bool nearer(const char *name, size_t size, void *user) {
    Nearest *n = user;
    int d = distance(n->typed, n->typed_size, name, size);
    if (d < n->best_distance && size < sizeof n->best) {
        n->best_distance = d;
        memcpy(n->best, name, size);
        n->best[size] = 0;
    }
    return false;
}

/* A suggestion is worth printing when less than half of the typed name had to change. */
static bool worth_saying(const Nearest *n) {
    return n->best[0] && n->best_distance <= 3 && (size_t)n->best_distance * 2 <= n->typed_size;
}

static Status unknown_option(const char *arg, size_t size, Command command, Error *e) {
    const char *dashes = "--";
    if (find_long(arg, size, ALL))
        return fail(e, ERR_USAGE, "option %s%.*s does not belong to \"ditto %s\"; see ditto %s --help", dashes, (int)size, arg,
                    COMMANDS[command].name, COMMANDS[command].name);
    Nearest n = {.typed = arg, .typed_size = size, .best_distance = 1000};
    for (int i = 0; i < OPTION_COUNT; i++)
        if (OPTIONS[i].commands & (1u << command)) each_spelling(&OPTIONS[i], nearer, &n);
    if (worth_saying(&n))
        return fail(e, ERR_USAGE, "unknown option %s%.*s; did you mean --%s?", dashes, (int)size, arg, n.best);
    return fail(e, ERR_USAGE, "unknown option %s%.*s; see ditto %s --help", dashes, (int)size, arg, COMMANDS[command].name);
}

static Status unknown_command(const char *word, Error *e) {
    Nearest n = {.typed = word, .typed_size = strlen(word), .best_distance = 1000};
    for (int i = 0; i < COMMAND_COUNT; i++) nearer(COMMANDS[i].name, strlen(COMMANDS[i].name), &n);
    if (worth_saying(&n)) return fail(e, ERR_USAGE, "unknown command \"%s\"; did you mean \"%s\"?", word, n.best);
    return fail(e, ERR_USAGE, "unknown command \"%s\"; expected generate, compare, inspect or tokens", word);
}

/* --- values: whole text, in range, or a refusal that names the option as it was typed --- */

static Status read_int(const char *typed, const char *value, double low, double high, long long *out, Error *e) {
    char *end = NULL;
    errno = 0;
    long long v = strtoll(value, &end, 10);
    bool number = (value[0] == '-' ? value[1] : value[0]) >= '0' && (value[0] == '-' ? value[1] : value[0]) <= '9';
    if (!number || *end)
        return fail(e, ERR_USAGE, "%s: found \"%s\", expected a whole number from %.0f to %.0f", typed, value, low, high);
    if (errno || (double)v < low || (double)v > high)
        return fail(e, ERR_USAGE, "%s: %s is out of range, expected %.0f to %.0f", typed, value, low, high);
    *out = v;
    return OK;
}

static Status read_real(const char *typed, const char *value, double low, double high, double *out, Error *e) {
    char *end = NULL;
    double v = strtod(value, &end);
    /* strtod also takes hexadecimal, "inf", "nan" and leading blanks */
    if (!value[0] || *end || value[strspn(value, "0123456789.eE+-")])
        return fail(e, ERR_USAGE, "%s: found \"%s\", expected a number from %g to %g", typed, value, low, high);
    if (!isfinite(v) || v < low || v > high)
        return fail(e, ERR_USAGE, "%s: %s is out of range, expected %g to %g", typed, value, low, high);
    *out = v;
    return OK;
}

static Status read_seed(const char *typed, const char *value, Cli *cli, Error *e) {
    cli->seed_given = false;
    if (!strcmp(value, "-1")) return OK;
    char *end = NULL;
    errno = 0;
    unsigned long long v = strtoull(value, &end, 10);
    if (value[0] < '0' || value[0] > '9' || *end || errno)
        return fail(e, ERR_USAGE, "%s: found \"%s\", expected 0 to 18446744073709551615, or -1 for a drawn seed", typed, value);
    cli->seed = v;
    cli->seed_given = true;
    return OK;
}

static Status read_inject(const char *typed, const char *value, Cli *cli, Error *e) {
    const char *equals = strchr(value, '=');
    if (!equals || equals == value || !equals[1])
        return fail(e, ERR_USAGE, "%s: found \"%s\", expected NAME=FILE", typed, value);
    if (cli->inject_count == CLI_MAX_INJECT)
        return fail(e, ERR_USAGE, "%s: given more than %d times", typed, (int)CLI_MAX_INJECT);
    size_t size = (size_t)(equals - value);
    for (int i = 0; i < cli->inject_count; i++)
        if (strlen(cli->inject[i].name) == size && !memcmp(cli->inject[i].name, value, size))
            return fail(e, ERR_USAGE, "%s: %s is given twice", typed, cli->inject[i].name);
    char *name = strndup(value, size);
    if (!name) return fail(e, ERR_MEMORY, "%s: out of memory", typed);
    cli->inject[cli->inject_count++] = (Inject){name, equals + 1};
    return OK;
}

static Status set(Cli *cli, const Option *o, const char *typed, const char *value, Error *e) {
    void *field = (char *)cli + o->field;
    long long v = 0;
    switch (o->kind) {
    case KIND_SWITCH: *(bool *)field = true; return OK;
    case KIND_QUIET: cli->verbosity = -1; return OK;
    case KIND_VERBOSE: cli->verbosity = 1; return OK;
    case KIND_HELP: cli->help = true; return OK;
    case KIND_VERSION: cli->version = true; return OK;
    case KIND_TEXT:
        if (!value[0]) return fail(e, ERR_USAGE, "%s: the value is empty, expected %s", typed, o->argument);
        *(const char **)field = value;
        return OK;
    case KIND_PROMPT: {
        int64_t at = cli_utf8_fault(value);
        if (at >= 0)
            return fail(e, ERR_USAGE, "%s: invalid UTF-8 at byte %lld (0x%02x); prompts must be valid UTF-8", typed,
                        (long long)at, (unsigned char)value[at]);
        *(const char **)field = value;
        return OK;
    }
    case KIND_INT:
    case KIND_SIZE:
        TRY(read_int(typed, value, o->low, o->high, &v, e));
        if (o->kind == KIND_SIZE && v % 16)
            return fail(e, ERR_USAGE, "%s: %lld is not a multiple of 16; the nearest are %lld and %lld", typed, v, v / 16 * 16,
                        v / 16 * 16 + 16);
        *(int *)field = (int)v;
        return OK;
    case KIND_REAL: return read_real(typed, value, o->low, o->high, field, e);
    case KIND_SEED: return read_seed(typed, value, cli, e);
    case KIND_DEVICE:
        if (strcmp(value, "cpu") && strcmp(value, "cuda"))
            return fail(e, ERR_USAGE, "%s: found \"%s\", expected cpu or cuda", typed, value);
        cli->device = value;
        return OK;
    case KIND_DTYPE:
        cli->dtype = !strcmp(value, "bf16") ? BF16 : !strcmp(value, "f32") ? F32 : DTYPE_NONE;
        return cli->dtype ? OK : fail(e, ERR_USAGE, "%s: found \"%s\", expected bf16 or f32", typed, value);
    case KIND_RNG:
        if (!strcmp(value, "cpu")) return OK;
        if (!strcmp(value, "cuda"))
            return fail(e, ERR_USAGE, "%s cuda is not available: torch's CUDA noise depends on the GPU's number of "
                        "multiprocessors; save it from torch and give --inject noise=FILE", typed);
        return fail(e, ERR_USAGE, "%s: found \"%s\", expected cpu", typed, value);
    case KIND_INJECT: return read_inject(typed, value, cli, e);
    }
    return OK;
}

/* --- parsing --- */

typedef struct Reader {
    int argc, at; /* argv[at] is next */
    char *const *argv;
    Cli *cli;
} Reader;

/* The option's value: the attached text, or the next argument. */
static Status value_of(Reader *r, const Option *o, const char *typed, const char *attached, const char **value, Error *e) {
    *value = attached;
    if (attached) return OK;
    if (r->at >= r->argc) return fail(e, ERR_USAGE, "%s: needs a value (%s)", typed, o->argument);
    const char *next = r->argv[r->at];
    if (is_option(next, 1u << r->cli->command))
        return fail(e, ERR_USAGE, "%s: needs a value (%s), but %s follows; to give that text itself write --%s=%s", typed,
                    o->argument, next, o->name, next);
    *value = next;
    r->at++;
    return OK;
}

static Status parse_long(Reader *r, const char *arg, Error *e) {
    const char *name = arg + 2, *equals = strchr(name, '=');
    size_t size = equals ? (size_t)(equals - name) : strlen(name);
    const Option *o = find_long(name, size, 1u << r->cli->command);
    if (!o) return unknown_option(name, size, r->cli->command, e);
    char typed[64];
    snprintf(typed, sizeof typed, "--%.*s", (int)size, name);
    const char *value = NULL;
    if (o->argument) TRY(value_of(r, o, typed, equals ? equals + 1 : NULL, &value, e));
    else if (equals) return fail(e, ERR_USAGE, "%s: takes no value, found \"%s\"", typed, equals + 1);
    return set(r->cli, o, typed, value, e);
}

static Status parse_brief(Reader *r, const char *arg, Error *e) {
    for (const char *c = arg + 1; *c; c++) {
        const Option *o = find_brief(*c, 1u << r->cli->command);
        char typed[4] = {'-', *c, 0, 0};
        if (!o)
            return fail(e, ERR_USAGE, "unknown option %s%s%s; see ditto %s --help", (unsigned char)*c < 0x80 ? typed : arg,
                        arg[2] && (unsigned char)*c < 0x80 ? " in " : "", arg[2] && (unsigned char)*c < 0x80 ? arg : "",
                        COMMANDS[r->cli->command].name);
        const char *value = NULL;
        if (!o->argument) {
            TRY(set(r->cli, o, typed, NULL, e));
            continue;
        }
        TRY(value_of(r, o, typed, c[1] ? c + 1 + (c[1] == '=') : NULL, &value, e));
        return set(r->cli, o, typed, value, e);
    }
    return OK;
}

static Status check_required(const Cli *cli, Error *e) {
    const CommandInfo *c = &COMMANDS[cli->command];
    if (cli->arg_count < c->args_min)
        return fail(e, ERR_USAGE, "%s: needs %d argument%s (%s), found %d", c->name, c->args_min,
                    c->args_min == 1 ? "" : "s", c->usage, cli->arg_count);
    if (cli->command == COMMAND_GENERATE) {
        if (!cli->model) return fail(e, ERR_USAGE, "no model: give -m DIR");
        if (!cli->prompt) return fail(e, ERR_USAGE, "no prompt: give -p TEXT (it may be empty: -p \"\")");
        if (cli->seed_given && (uint64_t)cli->count - 1 > UINT64_MAX - cli->seed)
            return fail(e, ERR_USAGE, "--seed: %llu leaves no room for --count %d seeds below 2^64", (unsigned long long)cli->seed,
                        cli->count);
        if (cli->dump && cli->count > 1)
            return fail(e, ERR_USAGE, "--dump: holds one picture's stages, but --count is %d", cli->count);
        if (cli->dry_run && cli->json) return fail(e, ERR_USAGE, "--json: describes pictures made, so not with --dry-run");
        if (cli->guidance >= 0 && cli->guidance_scale >= 0)
            return fail(e, ERR_USAGE, "--guidance and --guidance-scale are both given; expected one of them");
    }
    if (cli->command == COMMAND_TOKENS) {
        bool whole = cli->model || cli->prompt;
        if (whole && cli->arg_count) return fail(e, ERR_USAGE, "tokens: takes TOKENIZER_DIR or -m DIR -p TEXT, not both");
        if (whole && !(cli->model && cli->prompt)) return fail(e, ERR_USAGE, "tokens: -m DIR and -p TEXT go together");
        if (!whole && !cli->arg_count) return fail(e, ERR_USAGE, "tokens: needs TOKENIZER_DIR, or -m DIR -p TEXT");
        if (whole && cli->no_special) return fail(e, ERR_USAGE, "--no-special: goes with TOKENIZER_DIR, not with -m");
    }
    return OK;
}

static bool find_command(const char *word, Command *out) {
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (!strcmp(word, COMMANDS[i].name)) {
            *out = (Command)i;
            return true;
        }
    return false;
}

Status cli_parse(int argc, char *const *argv, Cli *cli, Error *e) {
    *cli = (Cli){.count = 1, .guidance = -1, .cfg_scale = -1, .guidance_scale = -1, .min_psnr = -1, .max_abs = -1};
    Reader r = {argc, 1, argv, cli};
    bool named = argc > 1 && find_command(argv[1], &cli->command);
    if (argc < 2) return fail(e, ERR_USAGE, "no arguments; see ditto --help");
    if (!named && !strcmp(argv[1], "help")) {
        cli->help = true;
        cli->help_all = argc < 3;
        if (argc > 2 && !find_command(argv[2], &cli->command)) return unknown_command(argv[2], e);
        return OK;
    }
    if (!named && argv[1][0] != '-') return unknown_command(argv[1], e);
    r.at += named;
    bool options = true;
    while (r.at < argc) {
        const char *arg = argv[r.at++];
        if (options && !strcmp(arg, "--")) {
            options = false;
        } else if (options && arg[0] == '-' && arg[1] == '-') {
            TRY(parse_long(&r, arg, e));
        } else if (options && arg[0] == '-' && arg[1]) {
            TRY(parse_brief(&r, arg, e));
        } else if (cli->arg_count == COMMANDS[cli->command].args_max) {
            return fail(e, ERR_USAGE, "%s: unexpected argument \"%s\"%s", COMMANDS[cli->command].name, arg,
                        cli->command == COMMAND_GENERATE ? " (a prompt with spaces needs quotes)" : "");
        } else {
            cli->args[cli->arg_count++] = arg;
        }
        if (cli->help || cli->version) {
            cli->help_all = !named;
            return OK;
        }
    }
    return check_required(cli, e);
}

void cli_free(Cli *cli) {
    for (int i = 0; i < cli->inject_count; i++) free((void *)(uintptr_t)cli->inject[i].name);
    cli->inject_count = 0;
}

/* --- help --- */

static void print_options(unsigned command, FILE *out) {
    enum { COLUMN = 32 };
    for (int i = 0; i < OPTION_COUNT; i++) {
        const Option *o = &OPTIONS[i];
        if (!(o->commands & command)) continue;
        char left[64];
        int n = snprintf(left, sizeof left, "  %c%c%c --%s%s%s", o->brief ? '-' : ' ', o->brief ? o->brief : ' ',
                         o->brief ? ',' : ' ', o->name, o->argument ? " " : "", o->argument ? o->argument : "");
        fprintf(out, "%s%*s", left, n < COLUMN ? COLUMN - n : 1, "");
        for (const char *c = o->help; *c; c++) {
            putc(*c, out);
            if (*c == '\n') fprintf(out, "%*s", COLUMN, "");
        }
        putc('\n', out);
    }
}

void cli_help(Command command, FILE *out) {
    const CommandInfo *c = &COMMANDS[command];
    fprintf(out, "usage: ditto %s%s%s %s\n\n%s\n", command == COMMAND_GENERATE ? "[" : "", c->name,
            command == COMMAND_GENERATE ? "]" : "", c->usage, c->summary);
    if (c->note[0]) fprintf(out, "%s\n", c->note);
    fprintf(out, "\noptions:\n");
    print_options(1u << command, out);
}

void cli_help_all(FILE *out) {
    fprintf(out, "ditto %s - renders images from FLUX checkpoints, equal to diffusers\n\nusage: ditto COMMAND [options]\n\n"
                 "commands:\n", CLI_VERSION);
    for (int i = 0; i < COMMAND_COUNT; i++) fprintf(out, "  %-10s %s\n", COMMANDS[i].name, COMMANDS[i].summary);
    fprintf(out, "\n\"ditto COMMAND --help\" lists a command's options. Without a command, generate:\n\n");
    cli_help(COMMAND_GENERATE, out);
    fprintf(out, "\nexit codes: 0 done, 1 compare found a difference, 2 usage, 3 bad weights, config or tokenizer,\n"
                 "  4 out of memory, 5 NaN or Inf, 6 input/output, 7 device or driver, 130 interrupted\n");
}
