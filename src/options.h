/* options.h - the option table: every option of every subcommand, described once.
 *
 * Spelling, aliases, kind and range of the value, help text, the subcommands it belongs to, and the field of Cli that it
 * sets. cli.c parses by it and prints --help from it. Not the parser.
 * Easy to get wrong: ranges are inclusive, and KIND_TEXT refuses an empty value where KIND_PROMPT accepts one. */
#ifndef OPTIONS_H
#define OPTIONS_H

#include "cli.h"

typedef enum Kind {
    KIND_SWITCH, /* bool */
    KIND_QUIET,
    KIND_VERBOSE,
    KIND_TEXT,   /* const char *, not empty */
    KIND_PROMPT, /* const char *, valid UTF-8, may be empty */
    KIND_INT,    /* int, low..high */
    KIND_REAL,   /* double, low..high */
    KIND_SEED,
    KIND_BYTES,  /* size_t, a number with K, M, G or T: powers of 1024 */
    KIND_DTYPE,
    KIND_DEVICE,
    KIND_QUALITY,
    KIND_RNG,
    KIND_ON_OFF, /* bool: whether it is off */
    KIND_INJECT,
    KIND_SHARD,   /* int shard, shards */
    KIND_SET,     /* const char *, options; may be empty and look like one */
    KIND_RATE,
    KIND_CODEC,
    KIND_SHAPE,  /* 1 to 5 extents of at least 1 with commas between */
    KIND_HELP,
    KIND_VERSION,
} Kind;

typedef struct Option {
    const char *name;
    char brief; /* 0: none */
    Kind kind;
    unsigned commands;    /* bit per Command */
    const char *argument; /* NULL: takes none */
    const char *help;     /* '\n' breaks the line */
    size_t field;         /* offset in Cli */
    double low, high;
    const char *aliases; /* hidden long spellings, separated by spaces */
} Option;

typedef struct CommandInfo {
    const char *name, *usage, *summary, *note;
    int args_min, args_max;
} CommandInfo;

/* Exit codes of the program; NULL past the last. */
typedef struct ExitCode {
    int code;
    const char *meaning;
} ExitCode;

enum {
    OPTIONS_ALL = (1 << COMMAND_COUNT) - 1,
    OPTIONS_JOB = 1 << COMMAND_COUNT,       /* beside the commands' bits: may stand in a line of a jobs file */
    OPTIONS_SET = 1 << (COMMAND_COUNT + 1), /* may stand in --a and --b of ab */
};

/* The table; NULL past its end. */
const Option *options_at(int i);
const CommandInfo *options_command(Command command);
const ExitCode *options_exit_code(int i);
/* By long name or alias ('_' counts as '-') or by letter, among the options of these subcommands; NULL: none. */
const Option *options_find(const char *name, size_t size, unsigned commands);
const Option *options_find_brief(char brief, unsigned commands);

/* ERR_USAGE, with the nearest spelling when one is near enough to be meant. */
Status options_unknown(const char *name, size_t size, Command command, Error *e);
Status options_unknown_command(const char *word, Error *e);

#endif
