/* test_device_code.c - device_code.h: the line for a card without code, and that a build with CUDA knows what it was built
 * for. The probe itself runs where there is a GPU only: a build for another card, run there, must print this line. */
#include "core/device_code.h"

#include "core/device_cuda.h"
#include "expect.h"

int main(void) {
    Error e = {0};
    expect_ok(device_code_judge(0, "no error", "NVIDIA H200", 90, "sm_90a", &e), &e);
    expect_status(device_code_judge(209, "no kernel image is available for execution on the device", "NVIDIA B200", 100,
                                    "sm_90a,sm_80", &e),
                  ERR_DEVICE,
                  "--device cuda: no code for this card, NVIDIA B200 (sm_100): this ditto was built for sm_90a,sm_80; rebuild "
                  "with CUDA_ARCH=100 (no kernel image",
                  &e);
    expect(strlen(device_cuda_built()) > 0);
#ifdef HAVE_CUDA
    expect(strstr(device_cuda_built(), "sm_") || strstr(device_cuda_built(), "compute_"));
#else
    expect(!strcmp(device_cuda_built(), "no GPU"));
#endif
    return expect_done();
}
