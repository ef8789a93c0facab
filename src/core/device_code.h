/* device_code.h - whether this program holds code that a GPU can run, and the one line that says that it does not.
 *
 * CUDA reports a missing image only when a kernel is first launched, by a number that names neither the card nor the build;
 * so one kernel is asked about when a device is opened. Not a list of supported cards: the driver decides.
 * Easy to get wrong: code for sm_90a runs on 9.0 alone, code for sm_80 on every 8.x, and compute_80 is compiled by the driver
 * for whatever is newer. */
#ifndef DEVICE_CODE_H
#define DEVICE_CODE_H

#include "core/status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The cudaError_t that CUDA has for a kernel of ours on the current device; 0: it would run. */
int device_code_probe(void);

/* ERR_DEVICE for a probe that found no code. gpu: "NVIDIA H200"; sm: 90 for compute capability 9.0; built: as the Makefile
 * passes it, "sm_90a,sm_80,compute_80"; reason: CUDA's own words for the code. */
Status device_code_judge(int code, const char *reason, const char *gpu, int sm, const char *built, Error *e);

#ifdef __cplusplus
}
#endif

#endif
