/* device_code.c - see device_code.h: the words. The probe is in device_code.cu. */
#include "core/device_code.h"

Status device_code_judge(int code, const char *reason, const char *gpu, int sm, const char *built, Error *e) {
    if (!code) return OK;
    return fail(e, ERR_DEVICE, "--device cuda: no code for this card, %s (sm_%d): this ditto was built for %s; rebuild with "
                "CUDA_ARCH=%d (%s)", gpu, sm, built, sm, reason);
}
