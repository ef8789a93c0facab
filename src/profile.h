/* profile.h - what a pipeline computes with: device, number format, library versions; and whether bits are promised on it.
 *
 * Not the reference profile itself (README, "Rounding"): profile_bits compares with it. Versions are those of the
 * libraries that were loaded, not those the program was built with.
 * Easy to get wrong: two machines with the same text give the same bits of every stage up to the last latents; that is
 * what `ditto selftest` takes the text for. */
#ifndef PROFILE_H
#define PROFILE_H

#include "core/device.h"
#include "core/tensor.h"

#include <stdbool.h>

struct Cuda;

typedef struct Profile {
    const char *device; /* "cpu", "cuda" */
    DType dtype;
    char blas[64];      /* cpu: "OpenBLAS 0.3.29 Haswell" */
    char gpu[128];      /* cuda: "NVIDIA H200" */
    int sm;             /* 90 for compute capability 9.0; 0 on the cpu, as all below */
    int driver, runtime; /* CUDA that the driver supports and that this ditto was built with: 13000 for 13.0 */
    int cublas, cudnn;  /* major * 10000 + minor * 100 + patch */
} Profile;

enum { PROFILE_TEXT = 128 };

/* cuda NULL: the CPU table's. Loads the libraries: ERR_DEVICE names a missing one. */
Status profile_make(const Device *d, struct Cuda *cuda, DType dtype, Profile *out, Error *e);
/* One line without tabs: "cuda sm_90 cuDNN 9.19 cuBLAS 13.1 bf16", "cpu OpenBLAS 0.3.29 Haswell f32". */
void profile_text(const Profile *p, char text[PROFILE_TEXT]);
/* The linker's build id of this program, lower-case hexadecimal; "" when it was linked without one. Any change of code,
 * compiler or flags gives another. */
enum { PROFILE_BUILD = 65 };
void profile_build(char text[PROFILE_BUILD]);
/* One line of all that the bits of a kernel of this program may depend on here: the GPU and its driver's own version (the cpu:
 * library and threads), libraries, build. False: part of it cannot be told, and `text` says which. */
enum { PROFILE_MACHINE = 400 };
bool profile_machine(const Profile *p, const Device *d, char text[PROFILE_MACHINE]);
/* Whether the latents' bits are promised to be the reference's; else `why` holds what is different: "cuDNN 9.14". */
bool profile_bits(const Profile *p, char *why, size_t size);

#endif
