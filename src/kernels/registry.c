/* registry.c - fills the op tables. The CPU table is the meaning of every op: one implementation each, and families beside
 * it that fuse some of them.
 * The CUDA table's references call cuBLASLt and cuDNN where PyTorch does. */
#include "kernels/registry.h"

#include "kernels/cuda.h"
#include "kernels/gemm_cpu.h"
#include "kernels/unary.h"

void ops_cpu(Ops *ops) {
    *ops = (Ops){0};
    ops_append(ops, ELEMENTWISE_CPU, ELEMENTWISE_CPU_COUNT);
    ops_append(ops, DPM_CPU, DPM_CPU_COUNT);
    ops_append(ops, GUIDE_CPU, GUIDE_CPU_COUNT);
    ops_append(ops, NORM_CPU, NORM_CPU_COUNT);
    ops_append(ops, MOVE_CPU, MOVE_CPU_COUNT);
    ops_append(ops, LINEAR_CPU, LINEAR_CPU_COUNT);
    ops_append(ops, ATTENTION_CPU, ATTENTION_CPU_COUNT);
    ops_append(ops, CONV_CPU, CONV_CPU_COUNT);
    ops_append(ops, GROUPNORM_CPU, GROUPNORM_CPU_COUNT);
    ops_append(ops, SELF_ATTENTION_CPU, SELF_ATTENTION_CPU_COUNT);
    ops_append(ops, CHAN_NORM_CPU, CHAN_NORM_CPU_COUNT);
    ops_append(ops, CHAIN_CPU, CHAIN_CPU_COUNT);
    ops_append(ops, LINEAR_ATTENTION_CPU, LINEAR_ATTENTION_CPU_COUNT);
    ops_append(ops, DWCONV_CPU, DWCONV_CPU_COUNT);
    ops_append(ops, ROPE_SPLIT_CPU, ROPE_SPLIT_CPU_COUNT);
    ops_append(ops, STACK_NORM_CPU, STACK_NORM_CPU_COUNT);
    ops_append(ops, RMS_MODULATE_CPU, RMS_MODULATE_CPU_COUNT);
    ops_append(ops, HEAD_GATE_CPU, HEAD_GATE_CPU_COUNT);
    ops_append(ops, WAVE_CPU, WAVE_CPU_COUNT);
    ops_append(ops, WAVE_TRANSPOSE_CPU, 1);
    ops_append(ops, FRAMES_CPU, FRAMES_CPU_COUNT);
}

size_t ops_cpu_resident(void) {
    const size_t tables = (size_t)UNARY_COUNT * UNARY_ENTRIES * sizeof(uint16_t);
    const size_t packing = (size_t)1 << 20; /* what OpenBLAS' packing buffer and a stack come to, measured */
    return tables + (size_t)gemm_threads() * packing;
}

const Family FAMILIES_CPU[] = {
    {"linear-gelu-f32", BOUNDED, LINEAR_GELU_F32_CPU, 2, "linear + GELU, the product kept in f32"},
    {"vae-kl-rewrite", BOUNDED, VAE_KL_REWRITE_CPU, 3,
     "VAE decoders: GroupNorm + SiLU in f32, upsampling by phases, folded attention"},
    {"conv-once", BOUNDED, CONV_ONCE_CPU, 2, "convolutions, bias and other path with one rounding"},
    {"wan-norm", BOUNDED, WAN_NORM_CPU, 1, "Wan's VAE: RMS norm + SiLU in f32"},
    {"ltx-norm", BOUNDED, LTX_NORM_CPU, 1, "LTX-2's VAE: pixel norm + SiLU in f32"},
    {"linear-attention-bf16", BOUNDED, LINEAR_ATTENTION_PARTS_CPU, 1, "linear attention by products of BF16 numbers"},
    {"linear-gelu", EXACT, LINEAR_GELU_FUSED_CPU, 2, "linear + GELU in one pass"},
    {"ln-modulate", EXACT, LN_MODULATE_FUSED_CPU, 2, "LayerNorm + modulation in one pass"},
};
const int FAMILIES_CPU_COUNT = sizeof FAMILIES_CPU / sizeof *FAMILIES_CPU;

#ifdef HAVE_CUDA
const Family FAMILIES_CUDA[] = {
    {"linear-gelu-f32", BOUNDED, LINEAR_GELU_F32_CUDA, 2, "linear + GELU, the product kept in f32"},
    {"conv-few", BOUNDED, CONV_FEW_CUDA, 2, "VAE decoders: convolutions from 16 channels and to 3 read a picture once"},
    {"vae-kl-rewrite", BOUNDED, VAE_KL_REWRITE_CUDA, 3,
     "VAE decoders: GroupNorm + SiLU in f32, upsampling by phases, folded attention"},
    {"conv-once", BOUNDED, CONV_ONCE_CUDA, 2, "3x3 convolutions, bias and other path in one pass with one rounding"},
    {"wan-norm", BOUNDED, WAN_NORM_CUDA, 1, "Wan's VAE: RMS norm + SiLU in f32"},
    {"ltx-norm", BOUNDED, LTX_NORM_CUDA, 1, "LTX-2's VAE: pixel norm + SiLU in f32"},
    {"linear-attention-bf16", BOUNDED, LINEAR_ATTENTION_FAST_CUDA, 1, "linear attention by products of BF16 numbers"},
    {"linear-gelu", EXACT, LINEAR_GELU_CUDA, 1, "linear + GELU, the activation by wide rows"},
    {"linear-packed", EXACT, LINEAR_PACKED_CUDA, 2, "products of one input as one"},
    {"linear-rows", EXACT, LINEAR_ROWS_CUDA, 1, "rows of all steps in one product"},
    {"mean-norm", EXACT, MEAN_NORM_CUDA, 3, "RMS norm, scale, gate and residual in one pass"},
    {"rms-rows", EXACT, RMS_ROWS_CUDA, 1, "RMS norm of rows that stay in registers"},
    {"qk-mean-norm-rope", EXACT, QK_MEAN_NORM_CUDA, 1, "QK norm in two roundings + RoPE in one pass"},
    {"rms-modulate", EXACT, RMS_MODULATE_FUSED_CUDA, 2, "RMS norm + modulations, with the gated residual before it, in one pass"},
    {"norm-rope-split", EXACT, NORM_ROPE_SPLIT_FUSED_CUDA, 1, "norm of whole rows + RoPE of their heads in one pass"},
    {"ln-modulate", EXACT, LN_MODULATE_FAST_CUDA, 2, "LayerNorm + modulation, with the gated residual before it, in one pass"},
    {"residual-gate", EXACT, RESIDUAL_GATE_FAST_CUDA, 2, "gated residual, transposed too, and modulation by wide rows"},
    {"qk-norm-rope", EXACT, QK_NORM_ROPE_FAST_CUDA, 1, "QK norm + RoPE of whole heads in registers"},
    {"activation", EXACT, ACT_FAST_CUDA, 2, "SiLU and GELU, with a product or alone, by wide rows"},
    {"norm-relu-rope", EXACT, NORM_RELU_ROPE_FAST_CUDA, 1, "QK norm over whole rows, ReLU and RoPE in one pass"},
    {"linear-attention", EXACT, LINEAR_ATTENTION_EXACT_CUDA, 1, "linear attention without copies in F32"},
    {"gated-conv", EXACT, DWCONV_FAST_CUDA, 1, "depthwise convolution, bias and GLU in one pass"},
};
const int FAMILIES_CUDA_COUNT = sizeof FAMILIES_CUDA / sizeof *FAMILIES_CUDA;
#endif

const Family *registry_families(bool cuda, int *count) {
#ifdef HAVE_CUDA
    if (cuda) {
        *count = FAMILIES_CUDA_COUNT;
        return FAMILIES_CUDA;
    }
#endif
    *count = cuda ? 0 : FAMILIES_CPU_COUNT;
    return FAMILIES_CPU;
}

void ops_cuda(Ops *ops) {
    *ops = (Ops){0};
#ifdef HAVE_CUDA
    ops_append(ops, ELEMENTWISE_CUDA, ELEMENTWISE_CUDA_COUNT);
    ops_append(ops, DPM_CUDA, DPM_CUDA_COUNT);
    ops_append(ops, GUIDE_CUDA, GUIDE_CUDA_COUNT);
    ops_append(ops, NORM_CUDA, NORM_CUDA_COUNT);
    ops_append(ops, MOVE_CUDA, MOVE_CUDA_COUNT);
    ops_append(ops, LINEAR_CUDA, LINEAR_CUDA_COUNT);
    ops_append(ops, ATTENTION_CUDA, ATTENTION_CUDA_COUNT);
    ops_append(ops, CONV_CUDA, CONV_CUDA_COUNT);
    ops_append(ops, GROUPNORM_CUDA, GROUPNORM_CUDA_COUNT);
    ops_append(ops, SELF_ATTENTION_CUDA, SELF_ATTENTION_CUDA_COUNT);
    ops_append(ops, NORM_RELU_ROPE_CUDA, NORM_RELU_ROPE_CUDA_COUNT);
    ops_append(ops, LINEAR_ATTENTION_CUDA, LINEAR_ATTENTION_CUDA_COUNT);
    ops_append(ops, DWCONV_CUDA, DWCONV_CUDA_COUNT);
    ops_append(ops, ROPE_SPLIT_CUDA, ROPE_SPLIT_CUDA_COUNT);
    ops_append(ops, STACK_NORM_CUDA, STACK_NORM_CUDA_COUNT);
    ops_append(ops, RMS_MODULATE_CUDA, RMS_MODULATE_CUDA_COUNT);
    ops_append(ops, HEAD_GATE_CUDA, HEAD_GATE_CUDA_COUNT);
    ops_append(ops, FRAMES_CUDA, FRAMES_CUDA_COUNT);
    ops_append(ops, NORM_MEAN_CUDA, NORM_MEAN_CUDA_COUNT);
    ops_append(ops, GUIDANCE_CUDA, GUIDANCE_CUDA_COUNT);
    ops_append(ops, CHAIN_CUDA, CHAIN_CUDA_COUNT);
    ops_append(ops, CHAN_NORM_CUDA, CHAN_NORM_CUDA_COUNT);
    ops_append(ops, WAVE_CUDA, WAVE_CUDA_COUNT);
    ops_append(ops, WAVE_TRANSPOSE_CUDA, 1);
    ops->row_bits = true;
#endif
}
