/* cli.c - the parser and the help printer, both reading the option table (options.c). See cli.h.
 *
 * Not a getopt: no abbreviations of long names, no reordering rules to remember. "--opt value", "--opt=value", "-o value",
 * "-ovalue" and grouped switches ("-vy") are understood, "--" ends options, and '_' in a long name counts as '-'.
 * Easy to get wrong: an option takes the next argument whatever it looks like (prompts may begin with '-'), except when
 * that argument is itself the exact spelling of an option of this subcommand: then a value was most likely forgotten. */
#include "cli.h"

#include "options.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *cli_command_name(Command command) { return options_command(command)->name; }

int64_t cli_utf8_fault(const char *text) {
    const unsigned char *s = (const unsigned char *)text;
    for (size_t i = 0; s[i];) {
        unsigned char c = s[i];
        int more = c < 0x80                 ? 0
                   : c >= 0xc2 && c <= 0xdf ? 1
                   : c >= 0xe0 && c <= 0xef ? 2
                   : c >= 0xf0 && c <= 0xf4 ? 3
                                            : -1;
        if (more < 0) return (int64_t)i;
        for (int k = 1; k <= more; k++)
            if ((s[i + (size_t)k] & 0xc0) != 0x80) return (int64_t)i;
        if ((c == 0xe0 && s[i + 1] < 0xa0) || (c == 0xed && s[i + 1] > 0x9f) ||
            (c == 0xf0 && s[i + 1] < 0x90) || (c == 0xf4 && s[i + 1] > 0x8f))
            return (int64_t)i;
        i += (size_t)more + 1;
    }
    return -1;
}

/* Exactly an option as it would be typed: "--steps", "-y". */
static bool is_option(const char *arg, unsigned commands) {
    if (arg[0] != '-' || !arg[1]) return false;
    if (arg[1] == '-') return arg[2] && options_find(arg + 2, strlen(arg + 2), commands);
    return !arg[2] && options_find_brief(arg[1], commands);
}

/* --- values: whole text, in range, or a refusal that names the option as it was typed --- */

static Status read_int(const char *typed, const char *value, double low, double high, long long *out,
                       Error *e) {
    char *end = NULL;
    errno = 0;
    long long v = strtoll(value, &end, 10);
    bool number =
        (value[0] == '-' ? value[1] : value[0]) >= '0' && (value[0] == '-' ? value[1] : value[0]) <= '9';
    if (!number || *end)
        return fail(e, ERR_USAGE, "%s: found \"%s\", expected a whole number from %.0f to %.0f", typed, value,
                    low, high);
    if (errno || (double)v < low || (double)v > high)
        return fail(e, ERR_USAGE, "%s: %s is out of range, expected %.0f to %.0f", typed, value, low, high);
    *out = v;
    return OK;
}

static Status read_real(const char *typed, const char *value, double low, double high, double *out,
                        Error *e) {
    char *end = NULL;
    double v = strtod(value, &end);
    /* strtod also takes hexadecimal, "inf", "nan" and leading blanks */
    if (!value[0] || *end || value[strspn(value, "0123456789.eE+-")])
        return fail(e, ERR_USAGE, "%s: found \"%s\", expected a number from %g to %g", typed, value, low,
                    high);
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
        return fail(e, ERR_USAGE,
                    "%s: found \"%s\", expected 0 to 18446744073709551615, or -1 for a drawn seed", typed,
                    value);
    cli->seed = v;
    cli->seed_given = true;
    return OK;
}

static Status read_bytes(const char *typed, const char *value, size_t *out, Error *e) {
    static const char UNITS[] = "KkMmGgTt";
    char *end = NULL;
    size_t digits = strspn(value, "0123456789.");
    double v = strtod(value, &end);
    const char *unit = digits && end == value + digits && *end ? strchr(UNITS, *end) : NULL;
    if (!unit || (end[1] && strcmp(end + 1, "iB")))
        return fail(e, ERR_USAGE, "%s: found \"%s\", expected a size such as 24G or 800M", typed, value);
    for (long k = (unit - UNITS) / 2; k >= 0; k--) v *= 1024;
    if (!(v >= 0x1p20 && v <= 0x1p50))
        return fail(e, ERR_USAGE, "%s: %s is out of range, expected 1M to 1024T", typed, value);
    *out = (size_t)v;
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

static Status read_shape(const char *typed, const char *value, Cli *cli, Error *e) {
    const char *at = value;
    cli->shape_rank = 0;
    for (;;) {
        char *end = NULL;
        errno = 0;
        long long v = strtoll(at, &end, 10);
        bool number = *at >= '0' && *at <= '9' && (!*end || *end == ',') && !errno;
        if (!number || v < 1 || v > INT32_MAX || cli->shape_rank == TENSOR_MAX_RANK)
            return fail(e, ERR_USAGE, "%s: found \"%s\", expected 1 to %d extents such as 1,16,128,128", typed, value,
                        (int)TENSOR_MAX_RANK);
        cli->shape[cli->shape_rank++] = v;
        if (!*end) return OK;
        at = end + 1;
    }
}

/* "i/n", or "slurm": main.c knows the environment. */
static Status read_shard(const char *typed, const char *value, Cli *cli, Error *e) {
    char *end = NULL;
    cli->shard_slurm = !strcmp(value, "slurm");
    if (cli->shard_slurm) return OK;
    errno = 0;
    long i = strtol(value, &end, 10), n = *end == '/' && end[1] >= '0' && end[1] <= '9' ? strtol(end + 1, &end, 10) : 0;
    if (value[0] < '0' || value[0] > '9' || *end || errno || n < 1 || n > CLI_MAX_SHARDS || i >= n)
        return fail(e, ERR_USAGE, "%s: found \"%s\", expected I/N such as 0/4, I from 0 and below N, or slurm", typed, value);
    cli->shard = (int)i;
    cli->shards = (int)n;
    return OK;
}

Status cli_set(Cli *cli, const Option *o, const char *typed, const char *value, Error *e) {
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
            return fail(e, ERR_USAGE, "%s: invalid UTF-8 at byte %lld (0x%02x); prompts must be valid UTF-8",
                        typed, (long long)at, (unsigned char)value[at]);
        *(const char **)field = value;
        return OK;
    }
    case KIND_INT:
        TRY(read_int(typed, value, o->low, o->high, &v, e));
        *(int *)field = (int)v;
        return OK;
    case KIND_REAL: return read_real(typed, value, o->low, o->high, field, e);
    case KIND_SEED: return read_seed(typed, value, cli, e);
    case KIND_BYTES: return read_bytes(typed, value, field, e);
    case KIND_DEVICE:
        if (strcmp(value, "cpu") && strcmp(value, "cuda"))
            return fail(e, ERR_USAGE, "%s: found \"%s\", expected cpu or cuda", typed, value);
        cli->device = value;
        return OK;
    case KIND_DTYPE:
        *(DType *)field = !strcmp(value, "bf16") ? BF16 : !strcmp(value, "f32") ? F32 : DTYPE_NONE;
        return *(DType *)field ? OK : fail(e, ERR_USAGE, "%s: found \"%s\", expected bf16 or f32", typed, value);
    case KIND_QUALITY:
        if (strcmp(value, "lossless") && strcmp(value, "high"))
            return fail(e, ERR_USAGE, "%s: found \"%s\", expected lossless or high", typed, value);
        cli->quality = strcmp(value, "high") ? QUALITY_LOSSLESS : QUALITY_HIGH;
        return OK;
    case KIND_RNG:
        if (!strcmp(value, "cpu")) return OK;
        if (!strcmp(value, "cuda"))
            return fail(e, ERR_USAGE,
                        "%s cuda is not available: torch's CUDA noise depends on the GPU's number of "
                        "multiprocessors; save it from torch and give --inject noise=FILE",
                        typed);
        return fail(e, ERR_USAGE, "%s: found \"%s\", expected cpu", typed, value);
    case KIND_ON_OFF:
        if (strcmp(value, "on") && strcmp(value, "off"))
            return fail(e, ERR_USAGE, "%s: found \"%s\", expected on or off", typed, value);
        *(bool *)field = !strcmp(value, "off");
        return OK;
    case KIND_INJECT: return read_inject(typed, value, cli, e);
    case KIND_SET: *(const char **)field = value; return OK;
    case KIND_SHARD: return read_shard(typed, value, cli, e);
    case KIND_SHAPE: return read_shape(typed, value, cli, e);
    case KIND_RATE:
        if (rate_parse(value, field)) return OK;
        return fail(e, ERR_USAGE, "%s: found \"%s\", expected frames a second such as 24, 23.976 or 24000/1001", typed, value);
    case KIND_CODEC:
        if (mp4_codec_parse(value, field)) return OK;
        return fail(e, ERR_USAGE, "%s: found \"%s\", expected h264, x264rgb or ffv1", typed, value);
    }
    return OK;
}

/* --- parsing --- */

typedef struct Reader {
    int argc, at; /* argv[at] is next */
    char *const *argv;
    Cli *cli;
    unsigned commands; /* whose options are read */
} Reader;

/* The option's value: the attached text, or the next argument. */
static Status value_of(Reader *r, const Option *o, const char *typed, const char *attached,
                       const char **value, Error *e) {
    *value = attached;
    if (attached) return OK;
    if (r->at >= r->argc) return fail(e, ERR_USAGE, "%s: needs a value (%s)", typed, o->argument);
    const char *next = r->argv[r->at];
    if (o->kind != KIND_SET && is_option(next, r->commands))
        return fail(e, ERR_USAGE,
                    "%s: needs a value (%s), but %s follows; to give that text itself write --%s=%s", typed,
                    o->argument, next, o->name, next);
    *value = next;
    r->at++;
    return OK;
}

static Status parse_long(Reader *r, const char *arg, Error *e) {
    const char *name = arg + 2, *equals = strchr(name, '=');
    size_t size = equals ? (size_t)(equals - name) : strlen(name);
    const Option *o = options_find(name, size, r->commands);
    if (!o && r->commands == OPTIONS_SET && options_find(name, size, 1u << r->cli->command))
        return fail(e, ERR_USAGE, "--%.*s belongs on the command line: it is not a side's own", (int)size, name);
    if (!o) return options_unknown(name, size, r->cli->command, e);
    char typed[64];
    snprintf(typed, sizeof typed, "--%.*s", (int)size, name);
    const char *value = NULL;
    if (o->argument)
        TRY(value_of(r, o, typed, equals ? equals + 1 : NULL, &value, e));
    else if (equals)
        return fail(e, ERR_USAGE, "%s: takes no value, found \"%s\"", typed, equals + 1);
    return cli_set(r->cli, o, typed, value, e);
}

static Status parse_brief(Reader *r, const char *arg, Error *e) {
    for (const char *c = arg + 1; *c; c++) {
        const Option *o = options_find_brief(*c, r->commands);
        char typed[4] = {'-', *c, 0, 0};
        if (!o)
            return fail(e, ERR_USAGE, "unknown option %s%s%s; see ditto %s --help",
                        (unsigned char)*c < 0x80 ? typed : arg,
                        arg[2] && (unsigned char)*c < 0x80 ? " in " : "",
                        arg[2] && (unsigned char)*c < 0x80 ? arg : "", cli_command_name(r->cli->command));
        const char *value = NULL;
        if (!o->argument) {
            TRY(cli_set(r->cli, o, typed, NULL, e));
            continue;
        }
        TRY(value_of(r, o, typed, c[1] ? c + 1 + (c[1] == '=') : NULL, &value, e));
        return cli_set(r->cli, o, typed, value, e);
    }
    return OK;
}

Status cli_check_picture(const Cli *cli, Error *e) {
    if (!cli->model) return fail(e, ERR_USAGE, "no model: give -m DIR");
    if (!cli->prompt) return fail(e, ERR_USAGE, "no prompt: give -p TEXT (it may be empty: -p \"\")");
    if (cli->seed_given && (uint64_t)cli->count - 1 > UINT64_MAX - cli->seed)
        return fail(e, ERR_USAGE, "--seed: %llu leaves no room for --count %d seeds below 2^64",
                    (unsigned long long)cli->seed, cli->count);
    if (cli->dump && cli->count > 1)
        return fail(e, ERR_USAGE, "--dump: holds one picture's stages, but --count is %d", cli->count);
    if (cli->frames && cli->seconds >= 0)
        return fail(e, ERR_USAGE, "--frames and --seconds are both given; expected one of them");
    if (cli->guidance >= 0 && cli->guidance_scale >= 0)
        return fail(e, ERR_USAGE, "--guidance and --guidance-scale are both given; expected one of them");
    return OK;
}

static Status check_ab(const Cli *cli, Error *e) {
    if (cli->arg_count == 1) return fail(e, ERR_USAGE, "ab: takes two folders of stages, found one; or give --reference DIR");
    if (cli->arg_count && (cli->model || cli->prompt || cli->set[0] || cli->set[1] || cli->reference))
        return fail(e, ERR_USAGE, "ab: two folders are compared as they are, without -m, -p, --a, --b and --reference");
    if (cli->prompt && cli->prompts) return fail(e, ERR_USAGE, "--prompt and --prompts are both given; expected one of them");
    if (cli->arg_count) return OK;
    if (cli->reference && cli->set[0]) return fail(e, ERR_USAGE, "--a and --reference are both given; expected one of them");
    if (!cli->reference && !cli->set[0] && !cli->set[1])
        return fail(e, ERR_USAGE, "ab: nothing to compare: give --a and --b, or --reference DIR, or two folders of stages");
    if (!cli->reference && !cli->prompt && !cli->prompts)
        return fail(e, ERR_USAGE, "no prompt: give -p TEXT (it may be empty: -p \"\") or --prompts FILE");
    return OK;
}

static Status check_required(const Cli *cli, Error *e) {
    const CommandInfo *c = options_command(cli->command);
    if (cli->arg_count < c->args_min)
        return fail(e, ERR_USAGE, "%s: needs %d argument%s (%s), found %d", c->name, c->args_min,
                    c->args_min == 1 ? "" : "s", c->usage, cli->arg_count);
    if (cli->command == COMMAND_GENERATE) TRY(cli_check_picture(cli, e));
    if (cli->command == COMMAND_BATCH && !cli->out)
        return fail(e, ERR_USAGE, "batch: no folder for the pictures: give --out DIR");
    if (cli->dry_run && cli->report) return fail(e, ERR_USAGE, "--report: describes a run, so not with --dry-run");
    if (cli->dry_run && cli->json) return fail(e, ERR_USAGE, "--json: describes pictures made, so not with --dry-run");
    if (cli->command == COMMAND_NOISE) {
        if (!cli->seed_given) return fail(e, ERR_USAGE, "noise: needs --seed N");
        if (!cli->model == !cli->shape_rank) return fail(e, ERR_USAGE, "noise: needs --shape N,N,... or -m DIR, one of them");
        if (!cli->model && (cli->width || cli->height))
            return fail(e, ERR_USAGE, "noise: --width and --height go with -m DIR, not with --shape");
    }
    if (cli->command == COMMAND_AB) TRY(check_ab(cli, e));
    if ((cli->command == COMMAND_SELFTEST || cli->command == COMMAND_BENCH || cli->command == COMMAND_SIGMAS) && !cli->model)
        return fail(e, ERR_USAGE, "no model: give -m DIR");
    if (cli->command == COMMAND_TOKENS) {
        bool whole = cli->model || cli->prompt;
        if (whole && cli->arg_count)
            return fail(e, ERR_USAGE, "tokens: takes TOKENIZER_DIR or -m DIR -p TEXT, not both");
        if (whole && !(cli->model && cli->prompt))
            return fail(e, ERR_USAGE, "tokens: -m DIR and -p TEXT go together");
        if (!whole && !cli->arg_count)
            return fail(e, ERR_USAGE, "tokens: needs TOKENIZER_DIR, or -m DIR -p TEXT");
        if (whole && cli->no_special)
            return fail(e, ERR_USAGE, "--no-special: goes with TOKENIZER_DIR, not with -m");
    }
    return OK;
}

static bool find_command(const char *word, Command *out) {
    for (int i = 0; i < COMMAND_COUNT; i++)
        if (!strcmp(word, cli_command_name((Command)i))) {
            *out = (Command)i;
            return true;
        }
    return false;
}

/* Up to the end, or to --help or --version. */
static Status read_all(Reader *r, Error *e) {
    Cli *cli = r->cli;
    bool options = true;
    while (r->at < r->argc && !cli->help && !cli->version) {
        const char *arg = r->argv[r->at++];
        if (options && !strcmp(arg, "--")) {
            options = false;
        } else if (options && arg[0] == '-' && arg[1] == '-') {
            TRY(parse_long(r, arg, e));
        } else if (options && arg[0] == '-' && arg[1]) {
            TRY(parse_brief(r, arg, e));
        } else if (cli->arg_count == options_command(cli->command)->args_max) {
            return fail(e, ERR_USAGE, "%s: unexpected argument \"%s\"%s", cli_command_name(cli->command), arg,
                        cli->command == COMMAND_GENERATE ? " (a prompt with spaces needs quotes)" : "");
        } else {
            cli->args[cli->arg_count++] = arg;
        }
    }
    return OK;
}

Status cli_parse(int argc, char *const *argv, Cli *cli, Error *e) {
    *cli = (Cli){
        .count = 1, .shards = 1, .runs = 5, .warmup = -1, .guidance = -1, .cfg_scale = -1, .guidance_scale = -1,
        .cfg_normalization = -1, .cfg_truncation = -1, .strength = -1, .seconds = -1, .crf = -1, .image_crf = -1, .min_psnr = -1,
        .min_ssim = -1, .min_snr = -1, .max_abs = -1};
    for (int k = 0; k < GUIDE_KINDS; k++) cli->guide[k] = -1;
    bool named = argc > 1 && find_command(argv[1], &cli->command);
    if (argc < 2) return fail(e, ERR_USAGE, "no arguments; see ditto --help");
    if (!named && !strcmp(argv[1], "help")) {
        cli->help = true;
        cli->help_all = argc < 3;
        if (argc > 2 && !find_command(argv[2], &cli->command)) return options_unknown_command(argv[2], e);
        return OK;
    }
    if (!named && argv[1][0] != '-') return options_unknown_command(argv[1], e);
    Reader r = {argc, 1 + named, argv, cli, 1u << cli->command};
    TRY(read_all(&r, e));
    if (cli->help || cli->version) cli->help_all = !named;
    return cli->help || cli->version ? OK : check_required(cli, e);
}

Status cli_parse_set(int argc, char *const *argv, Cli *cli, Error *e) {
    Reader r = {argc, 0, argv, cli, OPTIONS_SET};
    int before = cli->arg_count;
    TRY(read_all(&r, e));
    return cli->arg_count == before ? OK : fail(e, ERR_USAGE, "found \"%s\", expected options only", cli->args[before]);
}

void cli_free(Cli *cli) {
    for (int i = 0; i < cli->inject_count; i++) free((void *)(uintptr_t)cli->inject[i].name);
    cli->inject_count = 0;
    free(cli->tuned_file);
    cli->tuned_file = NULL;
    free(cli->verdict_file);
    cli->verdict_file = NULL;
}

/* --- help --- */

static void print_options(unsigned command, FILE *out) {
    enum { COLUMN = 32 };
    const Option *o;
    for (int i = 0; (o = options_at(i)); i++) {
        if (!(o->commands & command)) continue;
        char left[64];
        int n =
            snprintf(left, sizeof left, "  %c%c%c --%s%s%s", o->brief ? '-' : ' ', o->brief ? o->brief : ' ',
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
    const CommandInfo *c = &(*options_command(command));
    fprintf(out, "usage: ditto %s%s%s %s\n\n%s\n", command == COMMAND_GENERATE ? "[" : "", c->name,
            command == COMMAND_GENERATE ? "]" : "", c->usage, c->summary);
    if (c->note[0]) fprintf(out, "%s\n", c->note);
    fprintf(out, "\noptions:\n");
    print_options(1u << command, out);
}

void cli_help_all(FILE *out) {
    fprintf(out,
            "ditto %s - renders FLUX, Z-Image, SANA-Video and LTX-2 checkpoints, equal to diffusers\n\n"
            "usage: ditto COMMAND [options]\n\n"
            "commands:\n",
            CLI_VERSION);
    for (int i = 0; i < COMMAND_COUNT; i++)
        fprintf(out, "  %-10s %s\n", cli_command_name((Command)i), options_command((Command)i)->summary);
    fprintf(out, "\n\"ditto COMMAND --help\" lists a command's options. Without a command, generate:\n\n");
    cli_help(COMMAND_GENERATE, out);
    fputs("\nexit codes:\n", out);
    const ExitCode *code;
    for (int i = 0; (code = options_exit_code(i)); i++) fprintf(out, "  %-4d %s\n", code->code, code->meaning);
}
