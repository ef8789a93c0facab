/* cli.h - the command line as a value: which subcommand, which options, with every value checked.
 *
 * One table (cli.c) describes each option once: spelling, aliases, range, help, and the subcommands it belongs to.
 * Parsing, --help and the "did you mean" suggestion all read that table. Knows no model: a value that only some models
 * accept (guidance, sequence length) passes here and is refused by pipeline_resolve.
 * Easy to get wrong: negative_prompt NULL means "not given", "" is a negative prompt; strings point into argv. */
#ifndef CLI_H
#define CLI_H

#include "media/mp4.h"
#include "pipeline.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#define CLI_VERSION "0.1.0"

typedef enum Command {
    COMMAND_GENERATE,
    COMMAND_BATCH,
    COMMAND_DECODE,
    COMMAND_COMPARE,
    COMMAND_AB,
    COMMAND_INSPECT,
    COMMAND_TOKENS,
    COMMAND_SELFTEST,
    COMMAND_BENCH,
    COMMAND_VERIFY,
    COMMAND_SIGMAS,
    COMMAND_NOISE,
    COMMAND_COMPLETION,
    COMMAND_MAN,
    COMMAND_COUNT
} Command;

enum { CLI_MAX_ARGS = 2, CLI_MAX_INJECT = 64, CLI_MAX_SHARDS = 100000 };

typedef struct Cli {
    Command command;
    bool help, version;             /* nothing else is set then */
    bool help_all;                  /* with help: the overview, not one subcommand */
    const char *args[CLI_MAX_ARGS]; /* positional arguments */
    int arg_count;

    /* generate; tokens takes model and prompt too */
    const char *model, *prompt, *negative_prompt, *output, *dump, *report, *trace, *image;
    const char *text_encoder;                      /* NULL: the folder that the model file lies in */
    int width, height, steps, max_sequence_length; /* 0: the model's default */
    int count;                                     /* 1 .. 100000 */
    int upscale;                                   /* 0: not */
    int frames;                                    /* 0: the model's default */
    double seconds;                                /* < 0: not given */
    Rate fps;                                      /* num 0: the model's default */
    Mp4Codec codec;                                /* MP4_AUTO: by the file's suffix */
    int crf;                                       /* -1: the codec's default */
    uint64_t seed;                                 /* valid when seed_given */
    bool seed_given;                               /* false also for --seed -1: one is drawn */
    double strength;                               /* < 0: not given */
    double guidance, cfg_scale, guidance_scale;    /* < 0: not given */
    double cfg_normalization, cfg_truncation;      /* < 0: not given */
    int image_crf;                                 /* -1: the model's default */
    double guide[GUIDE_KINDS];                     /* < 0: not given */
    const char *stg_blocks;                        /* NULL: not given */
    const char *device;                            /* NULL: chosen */
    DType dtype, vae_dtype;                        /* DTYPE_NONE: chosen */
    int motion_score;                              /* 0: none */
    const char *match;                             /* NULL: diffusers */
    const char *layout;                            /* NULL: the model's own */
    size_t vram;                                   /* bytes; 0: what is free */
    Quality quality;
    const char *families;                          /* NULL: all that the quality has */
    bool bin, dry_run, no_metadata, keep_latents, overwrite, json, explain, sync, no_graphs, taps;
    bool profile, tuned;           /* generate, bench */
    char *tuned_file;              /* of --tuned and --tune: not parsed, main.c finds it; malloc'd */
    bool no_verdicts;
    char *verdict_file;            /* main.c finds it; NULL: there is no place for it */
    int verbosity;                 /* -1 quiet, 0, 1 verbose */
    Inject inject[CLI_MAX_INJECT]; /* .name is malloc'd (cli_free), .file points into argv */
    int inject_count;

    /* batch; it takes what generate takes, as defaults of its jobs */
    const char *out, *gpus;
    int shard, shards;                /* of a file split over `shards` processes, this one does shard, from 0 */
    bool resume, keep_going, shard_slurm;

    /* compare; it takes json and overwrite too */
    double min_psnr, min_ssim, min_snr, max_abs; /* < 0: not given */
    const char *diff;                            /* NULL: none */
    /* ab; it takes what a picture takes, min_psnr, warmup, json, overwrite and verbosity too */
    const char *set[2], *reference, *prompts, *sheet; /* NULL: not given */
    /* tokens */
    bool no_special;
    /* selftest; it takes model, device, dtype, vram, overwrite and verbosity too */
    const char *manifest; /* NULL: the model folder's own */
    bool record;
    /* bench; it takes model, width, height, device, dtype and vram too */
    int runs, warmup; /* warmup < 0: not given */
    bool serve, tune;
    /* noise; it takes model, width, height, seed, dtype, output, overwrite and json too */
    int64_t shape[TENSOR_MAX_RANK];
    int shape_rank; /* 0: not given */
} Cli;

/* Parses argv[1..]. ERR_USAGE names the option, what was found and what was expected. cli_free in any case. */
Status cli_parse(int argc, char *const *argv, Cli *out, Error *e);
void cli_free(Cli *cli);
/* One option, as `typed` for messages; value NULL for options that take none. Strings point into value. */
struct Option;
Status cli_set(Cli *cli, const struct Option *o, const char *typed, const char *value, Error *e);
/* More words on top of what *cli holds, of the options that --a and --b of ab may hold. Strings point into argv. */
Status cli_parse_set(int argc, char *const *argv, Cli *cli, Error *e);
/* What generate demands of its options, and batch of each job's. */
Status cli_check_picture(const Cli *cli, Error *e);

/* Overview, or one subcommand's options, out of the option table. */
void cli_help_all(FILE *out);
void cli_help(Command command, FILE *out);
const char *cli_command_name(Command command);

/* Offset of the first byte that breaks UTF-8 (overlong forms, surrogates and values above U+10FFFF break it), or -1. */
int64_t cli_utf8_fault(const char *text);

#endif
