/* profile.c - see profile.h. The promise is for one profile: everything that was measured was measured there. */
#include "profile.h"

#include "core/device_cuda.h"
#include "kernels/cuda.h"
#include "kernels/gemm_cpu.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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

/* Called for the program first, then for its libraries; 1 stops. Notes: sizes of name and payload, type, both padded to 4. */
static int read_build_id(struct dl_phdr_info *info, size_t size, void *user) {
    (void)size;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *h = &info->dlpi_phdr[i];
        if (h->p_type != PT_NOTE) continue;
        const unsigned char *p = (const unsigned char *)(info->dlpi_addr + h->p_vaddr), *end = p + h->p_memsz;
        while (end - p >= (ptrdiff_t)sizeof(ElfW(Nhdr))) {
            ElfW(Nhdr) n;
            memcpy(&n, p, sizeof n);
            const unsigned char *payload = p + sizeof n + (n.n_namesz + 3) / 4 * 4;
            if (n.n_type == NT_GNU_BUILD_ID && n.n_namesz == 4 && n.n_descsz < PROFILE_BUILD / 2)
                for (unsigned k = 0; k < n.n_descsz; k++) snprintf((char *)user + 2 * k, 3, "%02x", payload[k]);
            p = payload + (n.n_descsz + 3) / 4 * 4;
        }
    }
    return 1;
}

void profile_build(char text[PROFILE_BUILD]) {
    text[0] = 0;
    dl_iterate_phdr(read_build_id, text);
}

/* "580.82.07" of libcuda.so.580.82.07, which libcuda.so.1 is a link to. */
static bool driver_file(char *text, size_t size) {
    struct link_map *map = NULL;
    void *driver = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!driver) return false;
    char *path = !dlinfo(driver, RTLD_DI_LINKMAP, &map) && map ? realpath(map->l_name, NULL) : NULL;
    dlclose(driver);
    const char *at = path ? strstr(path, "libcuda.so.") : NULL;
    bool good = at && strchr(at + 11, '.');
    if (good) snprintf(text, size, "%s", at + 11);
    free(path);
    return good;
}

/* The driver's own version: cudaDriverGetVersion says CUDA's alone, which many drivers share. */
static bool driver_build(char *text, size_t size) {
    FILE *f = fopen("/sys/module/nvidia/version", "re");
    if (!f) return driver_file(text, size);
    size_t n = fread(text, 1, size - 1, f);
    fclose(f);
    text[n] = 0;
    text[strcspn(text, " \t\r\n")] = 0;
    return text[0] != 0;
}

bool profile_machine(const Profile *p, const Device *d, char text[PROFILE_MACHINE]) {
    char build[PROFILE_BUILD], driver[48];
    CudaInfo info;
    profile_build(build);
    if (!build[0]) {
        snprintf(text, PROFILE_MACHINE, "the build of this program is not known");
        return false;
    }
    if (!p->sm) {
        snprintf(text, PROFILE_MACHINE, "cpu, %s, %d threads, build %s", p->blas, gemm_threads(), build);
        return true;
    }
    if (!device_cuda_info(d, &info) || !driver_build(driver, sizeof driver)) {
        snprintf(text, PROFILE_MACHINE, "the version of the driver is not known");
        return false;
    }
    snprintf(text, PROFILE_MACHINE, "%s sm_%d %d SMs, driver %s, CUDA %d on %d, cuBLAS %d, cuDNN %d, build %s", p->gpu, p->sm,
             info.sm_count, driver, p->runtime, p->driver, p->cublas, p->cudnn, build);
    return true;
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
