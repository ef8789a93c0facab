/* test_profile.c - profile.h: the one profile on which bits are promised, each single departure from it, and the texts
 * by which recorded stages are told apart. */
#include "profile.h"

#include "expect.h"

static const Profile PROVEN = {.device = "cuda", .dtype = BF16, .gpu = "NVIDIA H200", .sm = 90, .driver = 13000,
                               .runtime = 13000, .cublas = 130100, .cudnn = 91900};

static void departs(Profile p, const char *want) {
    char why[64] = "";
    expect(!profile_bits(&p, why, sizeof why));
    expect(!strcmp(why, want));
    if (strcmp(why, want)) printf("found \"%s\", expected \"%s\"\n", why, want);
}

int main(void) {
    char why[64] = "", text[PROFILE_TEXT];
    Profile p = PROVEN;
    expect(profile_bits(&p, why, sizeof why));
    p.cublas = 130103, p.cudnn = 91902, p.driver = 13010; /* patches and drivers do not choose kernels */
    expect(profile_bits(&p, why, sizeof why));
    profile_text(&p, text);
    expect(!strcmp(text, "cuda sm_90 cuDNN 9.19 cuBLAS 13.1 bf16"));
    p = PROVEN, p.cudnn = 91400;
    departs(p, "cuDNN 9.14");
    p = PROVEN, p.cudnn = 92000;
    departs(p, "cuDNN 9.20");
    p = PROVEN, p.cublas = 130000;
    departs(p, "cuBLAS 13.0");
    p = PROVEN, p.sm = 100;
    departs(p, "sm_100");
    p = PROVEN, p.dtype = F32;
    departs(p, "f32");
    profile_text(&p, text);
    expect(!strcmp(text, "cuda sm_90 cuDNN 9.19 cuBLAS 13.1 f32"));

    Device cpu = device_cpu();
    Error e = {0};
    expect_ok(profile_make(&cpu, NULL, BF16, &p, &e), &e);
    departs(p, "cpu");
    profile_text(&p, text);
    expect(!strncmp(text, "cpu OpenBLAS ", 13) && strlen(text) > 18 && !strcmp(text + strlen(text) - 5, " bf16"));
    expect(!strchr(text, '\t'));
    return expect_done();
}
