/* ab.h - two runs of a model, or a run and a reference, stage by stage: `ditto ab`.
 *
 * A side is a set of options, or a folder of stages that --dump or scripts/dump_reference.py wrote. Both sides of one model,
 * device and number format run in one pipeline, taking turns; else one pipeline after the other, with all of the first's
 * stages kept in memory meanwhile (of FLUX.1 at 1024x1024 and 28 steps 37 MiB a prompt).
 * Not a bench (bench.h): every stage is copied to the host as it passes.
 * Easy to get wrong: --min-psnr is held by the last latents and the pixels alone; a stage that only the reference has differs
 * whatever the limit. */
#ifndef AB_H
#define AB_H

#include "cli.h"
#include "hub.h"

/* Results to out, words for people to err. terminal: err is one. OK: equal, or within the limit; ERR_SOME: not; ERR_INTERRUPTED;
 * ERR_USAGE, whatever the cause, when there is no answer. These are the exit codes. tuned: the file of --tuned; NULL: none. */
Status ab_run(const Cli *cli, const HubEnv *env, FILE *out, FILE *err, bool terminal, const volatile int *interrupted, Error *e);

#endif
