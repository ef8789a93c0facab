/* decode.h - a job finished from its latents: `ditto decode LATENTS.safetensors`.
 *
 * The file says what it is of when generate kept it (output.h); one from --dump says nothing, and sizes are the command line's.
 * The former become the file that was to be written, beside them, and are removed when it is there, as generate does it; the
 * latter stay. Prints through the two streams it is given and nowhere else.
 * Easy to get wrong: the picture that a job began from is not needed any more, but what is written still names it. */
#ifndef DECODE_H
#define DECODE_H

#include "cli.h"

/* folder: the model's resolved folder. ERR_MODEL: another model's latents, as their shape tells. */
Status decode_run(const Cli *cli, const char *folder, FILE *out, FILE *err, bool terminal,
                  const volatile int *interrupted, Error *e);

#endif
