/* registry.h - which implementations exist: every kernel file exports one array of Impls, registry.c puts them into a
 * table. Not for models: they see ops.h only. */
#ifndef KERNELS_REGISTRY_H
#define KERNELS_REGISTRY_H

#include "ops.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Variants that are mounted together or not at all (fusion.h). EXACT: the bits of the table's references, verified at
 * first sight; BOUNDED: fewer roundings or another order of sums, mounted at quality high only. */
typedef struct Family {
    const char *name;
    Promise promise;
    const Impl *impl; /* `count` of them, at most one an op */
    int count;
    const char *what; /* a few words for tables */
} Family;

/* In order of preference: where a BOUNDED family takes all of an EXACT one's ops, the EXACT one is not mounted. */
extern const Family FAMILIES_CPU[];
extern const int FAMILIES_CPU_COUNT;
/* The families of the CPU table or of the CUDA table (none in a build without CUDA). */
const Family *registry_families(bool cuda, int *count);

extern const Impl LN_MODULATE_FUSED_CPU[], LINEAR_GELU_FUSED_CPU[], LINEAR_GELU_F32_CPU[], VAE_KL_REWRITE_CPU[],
    CONV_ONCE_CPU[];
extern const int VAE_KL_REWRITE_CPU_COUNT;

extern const Impl CHAIN_CPU[];
extern const int CHAIN_CPU_COUNT;
extern const Impl ELEMENTWISE_CPU[];
extern const int ELEMENTWISE_CPU_COUNT;
extern const Impl DPM_CPU[];
extern const int DPM_CPU_COUNT;
extern const Impl GUIDE_CPU[];
extern const int GUIDE_CPU_COUNT;
extern const Impl NORM_CPU[];
extern const int NORM_CPU_COUNT;
extern const Impl MOVE_CPU[];
extern const int MOVE_CPU_COUNT;
extern const Impl LINEAR_CPU[];
extern const int LINEAR_CPU_COUNT;
extern const Impl ATTENTION_CPU[];
extern const int ATTENTION_CPU_COUNT;
extern const Impl CONV_CPU[];
extern const int CONV_CPU_COUNT;
extern const Impl GROUPNORM_CPU[];
extern const int GROUPNORM_CPU_COUNT;
extern const Impl SELF_ATTENTION_CPU[];
extern const int SELF_ATTENTION_CPU_COUNT;
extern const Impl CHAN_NORM_CPU[];
extern const int CHAN_NORM_CPU_COUNT;
extern const Impl WAN_NORM_CPU[];
extern const Impl LINEAR_ATTENTION_CPU[];
extern const int LINEAR_ATTENTION_CPU_COUNT;
extern const Impl LINEAR_ATTENTION_PARTS_CPU[];
extern const Impl DWCONV_CPU[];
extern const int DWCONV_CPU_COUNT;
extern const Impl RMS_MODULATE_CPU[];
extern const int RMS_MODULATE_CPU_COUNT;
extern const Impl HEAD_GATE_CPU[];
extern const int HEAD_GATE_CPU_COUNT;
extern const Impl ROPE_SPLIT_CPU[];
extern const int ROPE_SPLIT_CPU_COUNT;
extern const Impl STACK_NORM_CPU[];
extern const int STACK_NORM_CPU_COUNT;
extern const Impl WAVE_CPU[], WAVE_TRANSPOSE_CPU[];
extern const int WAVE_CPU_COUNT;
extern const Impl FRAMES_CPU[], LTX_NORM_CPU[];
extern const int FRAMES_CPU_COUNT;

#ifdef HAVE_CUDA
extern const Family FAMILIES_CUDA[];
extern const int FAMILIES_CUDA_COUNT;
extern const Impl LINEAR_PACKED_CUDA[], LINEAR_ROWS_CUDA[], LINEAR_GELU_CUDA[], LINEAR_GELU_F32_CUDA[];
extern const Impl LN_MODULATE_FAST_CUDA[], RESIDUAL_GATE_FAST_CUDA[], ACT_FAST_CUDA[], QK_NORM_ROPE_FAST_CUDA[];
extern const Impl NORM_RELU_ROPE_FAST_CUDA[], DWCONV_FAST_CUDA[], LINEAR_ATTENTION_FAST_CUDA[],
    LINEAR_ATTENTION_EXACT_CUDA[];
extern const Impl CHAIN_CUDA[];
extern const int CHAIN_CUDA_COUNT;
extern const Impl ELEMENTWISE_CUDA[];
extern const int ELEMENTWISE_CUDA_COUNT;
extern const Impl DPM_CUDA[];
extern const int DPM_CUDA_COUNT;
extern const Impl GUIDE_CUDA[];
extern const int GUIDE_CUDA_COUNT;
extern const Impl NORM_CUDA[];
extern const int NORM_CUDA_COUNT;
extern const Impl MOVE_CUDA[];
extern const int MOVE_CUDA_COUNT;
extern const Impl LINEAR_CUDA[];
extern const int LINEAR_CUDA_COUNT;
extern const Impl ATTENTION_CUDA[];
extern const int ATTENTION_CUDA_COUNT;
extern const Impl CONV_CUDA[];
extern const int CONV_CUDA_COUNT;
extern const Impl GROUPNORM_CUDA[];
extern const int GROUPNORM_CUDA_COUNT;
extern const Impl SELF_ATTENTION_CUDA[];
extern const int SELF_ATTENTION_CUDA_COUNT;
extern const Impl NORM_RELU_ROPE_CUDA[];
extern const int NORM_RELU_ROPE_CUDA_COUNT;
extern const Impl LINEAR_ATTENTION_CUDA[];
extern const int LINEAR_ATTENTION_CUDA_COUNT;
extern const Impl DWCONV_CUDA[];
extern const int DWCONV_CUDA_COUNT;
extern const Impl RMS_MODULATE_CUDA[];
extern const int RMS_MODULATE_CUDA_COUNT;
extern const Impl HEAD_GATE_CUDA[];
extern const int HEAD_GATE_CUDA_COUNT;
extern const Impl ROPE_SPLIT_CUDA[];
extern const int ROPE_SPLIT_CUDA_COUNT;
extern const Impl STACK_NORM_CUDA[];
extern const int STACK_NORM_CUDA_COUNT;
extern const Impl WAVE_CUDA[], WAVE_TRANSPOSE_CUDA[];
extern const int WAVE_CUDA_COUNT;
extern const Impl FRAMES_CUDA[], LTX_NORM_CUDA[];
extern const int FRAMES_CUDA_COUNT;
extern const Impl VAE_KL_REWRITE_CUDA[], CONV_FEW_CUDA[], CONV_ONCE_CUDA[];
extern const Impl NORM_MEAN_CUDA[];
extern const int NORM_MEAN_CUDA_COUNT;
extern const Impl GUIDANCE_CUDA[];
extern const int GUIDANCE_CUDA_COUNT;
extern const Impl CHAN_NORM_CUDA[], WAN_NORM_CUDA[];
extern const int CHAN_NORM_CUDA_COUNT;
extern const Impl MEAN_NORM_CUDA[], QK_MEAN_NORM_CUDA[], RMS_ROWS_CUDA[];
extern const Impl RMS_MODULATE_FUSED_CUDA[], NORM_ROPE_SPLIT_FUSED_CUDA[];
#endif

#ifdef __cplusplus
}
#endif

#endif
