/* completion.c - see completion.h. What an argument stands for is read off its name in the table: lower-case words between
 * '|' are the values themselves, FILE and NAME are files, DIR a folder, anything else cannot be guessed. */
#include "completion.h"

#include "options.h"

#include <ctype.h>
#include <string.h>

typedef enum Values { VALUES_NONE, VALUES_UNKNOWN, VALUES_WORDS, VALUES_FILES, VALUES_FOLDERS } Values;

/* words: those to offer, separated by spaces. */
static Values values_of(const char *argument, char *words, size_t size) {
    words[0] = 0;
    if (!argument || !argument[0]) return VALUES_NONE;
    size_t used = 0;
    for (const char *a = argument; *a;) {
        size_t n = strcspn(a, "| ");
        bool word = n > 0;
        for (size_t i = 0; i < n; i++) word = word && (islower((unsigned char)a[i]) || isdigit((unsigned char)a[i]));
        if (word && used + n + 2 < size)
            used += (size_t)snprintf(words + used, size - used, "%s%.*s", used ? " " : "", (int)n, a);
        a += n;
        if (*a == ' ') break; /* a command's usage goes on with its options */
        a += *a == '|';
    }
    if (used) return VALUES_WORDS;
    if (!strncmp(argument, "DIR", 3) && !strchr(argument, '|')) return VALUES_FOLDERS;
    return strstr(argument, "FILE") || strstr(argument, "NAME") || strstr(argument, "DIR") ||
                   strstr(argument, "REFERENCE")
               ? VALUES_FILES
               : VALUES_UNKNOWN;
}

static Values values_of_option(const Option *o, char *words, size_t size) {
    return values_of(o->argument, words, size);
}

static Values values_of_command(Command c, char *words, size_t size) {
    const CommandInfo *info = options_command(c);
    return values_of(info->args_max ? info->usage : NULL, words, size);
}

static void put_commands(FILE *out) {
    for (int c = 0; c < COMMAND_COUNT; c++) fprintf(out, "%s%s", c ? " " : "", cli_command_name((Command)c));
}

/* Text with a backslash before each of `special`; line breaks become spaces; in shells' quotes '\'' ends and begins anew. */
static void put_quoted(const char *text, const char *special, FILE *out) {
    for (const char *c = text; *c; c++) {
        if (*c == '\'')
            fputs("'\\''", out);
        else if (*c == '\n')
            fputc(' ', out);
        else
            fprintf(out, strchr(special, *c) ? "\\%c" : "%c", *c);
    }
}

/* --- bash --- */

static void bash_values(Command c, FILE *out) {
    const Option *o;
    char words[200];
    for (int i = 0; (o = options_at(i)); i++) {
        if (!(o->commands & (1u << c)) || !o->argument) continue;
        if (o->brief)
            fprintf(out, "    %s:-%c|", cli_command_name(c), o->brief);
        else
            fputs("    ", out);
        fprintf(out, "%s:--%s) ", cli_command_name(c), o->name);
        switch (values_of_option(o, words, sizeof words)) {
        case VALUES_WORDS: fprintf(out, "COMPREPLY=($(compgen -W '%s' -- \"$cur\")); return ;;\n", words); break;
        case VALUES_FOLDERS: fputs("_ditto_names -d; return ;;\n", out); break;
        case VALUES_FILES: fputs("_ditto_names -f; return ;;\n", out); break;
        default: fputs("return ;;\n", out);
        }
    }
}

static void bash_options(Command c, FILE *out) {
    const Option *o;
    fprintf(out, "        %s) COMPREPLY=($(compgen -W '", cli_command_name(c));
    for (int i = 0, n = 0; (o = options_at(i)); i++) {
        if (!(o->commands & (1u << c))) continue;
        if (o->brief) fprintf(out, "%s-%c", n++ ? " " : "", o->brief);
        fprintf(out, "%s--%s", n++ ? " " : "", o->name);
    }
    fputs("' -- \"$cur\")) ;;\n", out);
}

static void bash_arguments(Command c, FILE *out) {
    char words[200];
    Values v = values_of_command(c, words, sizeof words);
    if (v == VALUES_WORDS)
        fprintf(out, "    %s) COMPREPLY=($(compgen -W '%s' -- \"$cur\")) ;;\n", cli_command_name(c), words);
    else if (v != VALUES_NONE)
        fprintf(out, "    %s) _ditto_names %s ;;\n", cli_command_name(c), v == VALUES_FOLDERS ? "-d" : "-f");
}

static void print_bash(FILE *out) {
    fputs("# Completion of ditto for bash, written by \"ditto completion bash\" from the program's own tables.\n"
          "_ditto_names() {\n"
          "    local IFS=$'\\n'\n"
          "    compopt -o filenames 2>/dev/null\n"
          "    COMPREPLY=($(compgen \"$1\" -- \"$cur\"))\n"
          "}\n"
          "_ditto() {\n"
          "    local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} command=generate\n"
          "    COMPREPLY=()\n"
          "    if [ \"$COMP_CWORD\" -gt 1 ]; then case ${COMP_WORDS[1]} in\n    ",
          out);
    for (int c = 0; c < COMMAND_COUNT; c++) fprintf(out, "%s%s", c ? "|" : "", cli_command_name((Command)c));
    fputs(") command=${COMP_WORDS[1]} ;;\n    esac; fi\n    case $command:$prev in\n", out);
    for (int c = 0; c < COMMAND_COUNT; c++) bash_values((Command)c, out);
    fputs("    esac\n    case $cur in\n    -*)\n        case $command in\n", out);
    for (int c = 0; c < COMMAND_COUNT; c++) bash_options((Command)c, out);
    fputs("        esac\n        return ;;\n    esac\n"
          "    if [ \"$COMP_CWORD\" = 1 ]; then COMPREPLY=($(compgen -W '",
          out);
    put_commands(out);
    fputs(" help' -- \"$cur\")); return; fi\n    case $command in\n", out);
    for (int c = 0; c < COMMAND_COUNT; c++) bash_arguments((Command)c, out);
    fputs("    esac\n}\ncomplete -F _ditto ditto\n", out);
}

/* --- zsh --- */

static const char *zsh_action(Values v) {
    return v == VALUES_FOLDERS ? "_files -/" : v == VALUES_FILES ? "_files" : " ";
}

static void zsh_option(const Option *o, FILE *out) {
    static const char SPECIAL[] = "[]:\\";
    char words[200];
    Values v = values_of_option(o, words, sizeof words);
    fputs(" \\\n            ", out);
    if (o->brief)
        fprintf(out, "'(-%c --%s)'{-%c,--%s}'[", o->brief, o->name, o->brief, o->name);
    else
        fprintf(out, "'--%s[", o->name);
    put_quoted(o->help, SPECIAL, out);
    fputc(']', out);
    if (v != VALUES_NONE) {
        fputc(':', out);
        put_quoted(o->argument, SPECIAL, out);
        if (v == VALUES_WORDS)
            fprintf(out, ":(%s)", words);
        else
            fprintf(out, ":%s", zsh_action(v));
    }
    fputc('\'', out);
}

static void zsh_command(Command c, FILE *out) {
    const Option *o;
    char words[200];
    Values v = values_of_command(c, words, sizeof words);
    fprintf(out, "    %s)\n        _arguments -s", cli_command_name(c));
    for (int i = 0; (o = options_at(i)); i++)
        if (o->commands & (1u << c)) zsh_option(o, out);
    for (int i = 0; i < options_command(c)->args_max; i++) {
        if (v == VALUES_WORDS)
            fprintf(out, " \\\n            ':argument:(%s)'", words);
        else
            fprintf(out, " \\\n            ':argument:%s'", zsh_action(v));
    }
    fputs(" ;;\n", out);
}

static void print_zsh(FILE *out) {
    fputs("#compdef ditto\n# Completion of ditto for zsh, written by \"ditto completion zsh\" from the program's own "
          "tables.\n"
          "_ditto() {\n    local command=generate\n    local -a commands\n    commands=(\n",
          out);
    for (int c = 0; c < COMMAND_COUNT; c++) {
        fprintf(out, "        '%s:", cli_command_name((Command)c));
        put_quoted(options_command((Command)c)->summary, ":\\", out);
        fputs("'\n", out);
    }
    fputs("    )\n"
          "    if (( CURRENT == 2 )) && [[ $words[2] != -* ]]; then\n"
          "        _describe command commands\n        return\n    fi\n"
          "    if (( CURRENT > 2 )) && [[ $words[2] != -* ]]; then\n"
          "        command=$words[2]\n        shift words\n        (( CURRENT-- ))\n    fi\n"
          "    case $command in\n",
          out);
    for (int c = 0; c < COMMAND_COUNT; c++) zsh_command((Command)c, out);
    fputs("    esac\n}\n_ditto \"$@\"\n", out);
}

/* --- fish --- */

static void fish_condition(unsigned commands, FILE *out) {
    if ((commands & OPTIONS_ALL) == OPTIONS_ALL) return;
    fputs(" -n '", out);
    if (commands & (1u << COMMAND_GENERATE)) { /* which may be left out */
        fputs("not __fish_seen_subcommand_from", out);
        commands = ~commands & OPTIONS_ALL;
    } else {
        fputs("__fish_seen_subcommand_from", out);
    }
    for (int c = 0; c < COMMAND_COUNT; c++)
        if (commands & (1u << c)) fprintf(out, " %s", cli_command_name((Command)c));
    fputc('\'', out);
}

static void fish_values(Values v, const char *words, FILE *out) {
    if (v == VALUES_WORDS)
        fprintf(out, " -x -a '%s'", words);
    else if (v == VALUES_FOLDERS)
        fputs(" -x -a '(__fish_complete_directories)'", out);
    else if (v == VALUES_FILES)
        fputs(" -r -F", out);
    else if (v == VALUES_UNKNOWN)
        fputs(" -x", out);
}

static void print_fish(FILE *out) {
    const Option *o;
    char words[200];
    fputs("# Completion of ditto for fish, written by \"ditto completion fish\" from the program's own tables.\n", out);
    for (int c = 0; c < COMMAND_COUNT; c++) {
        fprintf(out, "complete -c ditto -f -n __fish_use_subcommand -a %s -d '", cli_command_name((Command)c));
        put_quoted(options_command((Command)c)->summary, "\\", out);
        fputs("'\n", out);
        Values v = values_of_command((Command)c, words, sizeof words);
        if (v != VALUES_WORDS && v != VALUES_FOLDERS) continue;
        fputs("complete -c ditto", out);
        fish_condition(1u << c, out);
        if (v == VALUES_WORDS)
            fprintf(out, " -f -a '%s'\n", words);
        else
            fputs(" -f -a '(__fish_complete_directories)'\n", out);
    }
    for (int i = 0; (o = options_at(i)); i++) {
        fputs("complete -c ditto", out);
        fish_condition(o->commands, out);
        if (o->brief) fprintf(out, " -s %c", o->brief);
        fprintf(out, " -l %s", o->name);
        fish_values(values_of_option(o, words, sizeof words), words, out);
        fputs(" -d '", out);
        put_quoted(o->help, "\\", out);
        fputs("'\n", out);
    }
}

Status completion_print(const char *shell, FILE *out, Error *e) {
    if (!strcmp(shell, "bash"))
        print_bash(out);
    else if (!strcmp(shell, "zsh"))
        print_zsh(out);
    else if (!strcmp(shell, "fish"))
        print_fish(out);
    else
        return fail(e, ERR_USAGE, "completion: found \"%s\", expected bash, zsh or fish", shell);
    return OK;
}
