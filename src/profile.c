/* profile.c - see profile.h. The promise is for one profile: everything that was measured was measured there. */
#include "profile.h"

#include "core/device_cuda.h"
#include "kernels/cuda.h"
#include "kernels/gemm_cpu.h"

#include <stdio.h>

enum { PROVEN_SM = 90, PROVEN_CUDNN = 919, PROVEN_CUBLAS = 1301 }; /* versions without their patch */

static int major_of(int version) { return version / 10000; }
static int minor_of(int version) { return version % 10000 / 100; }
static const char *word(DType t) { return t == F32 ? "f32" : "bf16"; }

Status profile_make(const Device *d, Cuda *cuda, DType dtype, Profile *out, Error *e) {
    *out = (Profile){.device = d->name, .dtype = dtype};
    if (!cuda) {
        gemm_library(out->blas, sizeof out->blas);
        return OK;
    }
    CudaInfo info;
    CudaVersions versions;
    if (!device_cuda_info(d, &info)) return fail(e, ERR_DEVICE, "cuda: the device does not answer");
    TRY(cuda_versions(cuda, &versions, e));
    snprintf(out->gpu, sizeof out->gpu, "%s", info.name);
    out->sm = info.sm, out->driver = info.driver, out->runtime = info.runtime;
    out->cublas = versions.cublas, out->cudnn = versions.cudnn;
    return OK;
}

void profile_text(const Profile *p, char text[PROFILE_TEXT]) {
    if (!p->sm) snprintf(text, PROFILE_TEXT, "%s %s %s", p->device, p->blas, word(p->dtype));
    else
        snprintf(text, PROFILE_TEXT, "%s sm_%d cuDNN %d.%d cuBLAS %d.%d %s", p->device, p->sm, major_of(p->cudnn),
                 minor_of(p->cudnn), major_of(p->cublas), minor_of(p->cublas), word(p->dtype));
}

bool profile_bits(const Profile *p, char *why, size_t size) {
    if (!p->sm) snprintf(why, size, "%s", p->device);
    else if (p->sm != PROVEN_SM) snprintf(why, size, "sm_%d", p->sm);
    else if (p->cudnn / 100 != PROVEN_CUDNN)
        snprintf(why, size, "cuDNN %d.%d", major_of(p->cudnn), minor_of(p->cudnn));
    else if (p->cublas / 100 != PROVEN_CUBLAS)
        snprintf(why, size, "cuBLAS %d.%d", major_of(p->cublas), minor_of(p->cublas));
    else if (p->dtype != BF16) snprintf(why, size, "%s", word(p->dtype));
    else return true;
    return false;
}
