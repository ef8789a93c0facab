/* manual.c - see manual.h.
 * Easy to get wrong: roff takes a '.' or ' at the beginning of a line for a request, a backslash for an escape, and sets a
 * plain '-' as a hyphen, which cannot be pasted into a shell. */
#include "manual.h"

#include "options.h"

#include <string.h>

/* Text for any place, also the beginning of a line; a line break of the table is one of roff's source only. */
static void put(const char *text, FILE *out) {
    bool begins = true;
    for (const char *c = text; *c; c++) {
        if (begins && (*c == '.' || *c == '\'')) fputs("\\&", out);
        begins = *c == '\n';
        switch (*c) {
        case '\\': fputs("\\e", out); break;
        case '-': fputs("\\-", out); break;
        case '"': fputs("\\(dq", out); break;
        default: fputc(*c, out);
        }
    }
}

static void put_options(FILE *out) {
    const Option *o;
    for (int i = 0; (o = options_at(i)); i++) {
        fputs(".TP\n\\fB", out);
        if (o->brief) fprintf(out, "\\-%c\\fR, \\fB", o->brief);
        fputs("\\-\\-", out);
        put(o->name, out);
        fputs("\\fR", out);
        if (o->argument) {
            fputs(" \\fI", out);
            put(o->argument, out);
            fputs("\\fR", out);
        }
        fputc('\n', out);
        put(o->help, out);
        fputs(".\n", out);
        if (o->aliases) {
            fputs("Also spelt ", out);
            for (const char *a = o->aliases; *a;) {
                size_t size = strcspn(a, " ");
                char name[64];
                snprintf(name, sizeof name, "--%.*s", (int)size, a);
                put(name, out);
                a += size + (a[size] == ' ');
                fputs(*a ? ", " : ".\n", out);
            }
        }
        if ((o->commands & OPTIONS_ALL) == OPTIONS_ALL) {
            fputs("For every command.\n", out);
            continue;
        }
        const char *before = "For ";
        for (int c = 0; c < COMMAND_COUNT; c++)
            if (o->commands & (1u << c)) {
                fprintf(out, "%s%s", before, cli_command_name((Command)c));
                before = ", ";
            }
        fputs(".\n", out);
    }
}

static void put_commands(FILE *out) {
    for (int c = 0; c < COMMAND_COUNT; c++) {
        const CommandInfo *info = options_command((Command)c);
        fputs(".TP\n\\fBditto ", out);
        put(info->name, out);
        fputs("\\fR", out);
        if (info->usage[0]) fputc(' ', out);
        put(info->usage, out);
        fputc('\n', out);
        put(info->summary, out);
        fputs(".\n", out);
        put(info->note, out);
        if (info->note[0]) fputc('\n', out);
    }
}

static void put_exit_codes(FILE *out) {
    const ExitCode *code;
    for (int i = 0; (code = options_exit_code(i)); i++) {
        fprintf(out, ".TP\n.B %d\n", code->code);
        put(code->meaning, out);
        fputs(".\n", out);
    }
}

static const char *const ENVIRONMENT[][2] = {
    {"HF_HUB_CACHE",
     "where OWNER/NAME is looked up; else HUGGINGFACE_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub, "
     "~/.cache/huggingface/hub. As huggingface_hub reads them: with ~ and $NAME replaced."},
    {"OMP_WAIT_POLICY", "whether threads of the CPU table spin while they wait; \"passive\" unless it is set."},
};

static const char *const EXAMPLES[][2] = {
    {"Draw a picture:", "ditto -m DIR -p \"a lighthouse at dusk\" -o out.png"},
    {"Is it the same as the reference, or at least close?", "ditto compare reference.png out.png --min-psnr 50"},
    {"Can it be made again here?", "ditto verify out.png"},
    {"The noise that both programs should begin from:", "ditto noise --seed 7 -m DIR -o noise.safetensors"},
};

void manual_print(FILE *out) {
    fprintf(out,
            ".\\\" Written by \"ditto man\" from the program's own tables.\n"
            ".TH DITTO 1 \"\" \"ditto %s\" \"User Commands\"\n"
            ".SH NAME\nditto \\- render pictures and clips from diffusion checkpoints, equal to the reference\n"
            ".SH SYNOPSIS\n.B ditto\n.I COMMAND\n[\\fIoptions\\fR]\n.br\n.B ditto\n",
            CLI_VERSION);
    put(options_command(COMMAND_GENERATE)->usage, out);
    fputs("\n.SH DESCRIPTION\n"
          "Turns a prompt into a picture, or a clip with its sound, with a checkpoint in the layout of the diffusers library: "
          "the same token ids, the same noise\n"
          "and the same rounding points as the reference implementation. Standard output carries results only; "
          "everything for\n"
          "people goes to standard error. Without a command, generate is meant.\n"
          ".SH COMMANDS\n",
          out);
    put_commands(out);
    fputs(".SH OPTIONS\n"
          "A value follows as the next argument or after \\(oq=\\(cq; \\(oq_\\(cq in a long name counts as "
          "\\(oq\\-\\(cq;\n"
          "\\(oq\\-\\-\\(cq ends the options.\n",
          out);
    put_options(out);
    fputs(".SH EXIT STATUS\n", out);
    put_exit_codes(out);
    fputs(".SH ENVIRONMENT\n", out);
    for (size_t i = 0; i < sizeof ENVIRONMENT / sizeof *ENVIRONMENT; i++) {
        fprintf(out, ".TP\n.B %s\n", ENVIRONMENT[i][0]);
        put(ENVIRONMENT[i][1], out);
        fputc('\n', out);
    }
    fputs(".SH EXAMPLES\n", out);
    for (size_t i = 0; i < sizeof EXAMPLES / sizeof *EXAMPLES; i++) {
        fputs(i ? ".PP\n" : "", out);
        put(EXAMPLES[i][0], out);
        fputs("\n.PP\n.RS\n.nf\n", out);
        put(EXAMPLES[i][1], out);
        fputs("\n.fi\n.RE\n", out);
    }
}
