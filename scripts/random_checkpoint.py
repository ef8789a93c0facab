#!/usr/bin/env python3
"""Writes a random checkpoint in a published model's folder layout and shapes, calibrated so that faults show.

    python3 scripts/random_checkpoint.py OUT --model flux-dev [--layers 19] [--single-layers 38] [--t5-layers 24]
                                             [--part transformer] [--seed 0] [--device cuda]
    python3 scripts/random_checkpoint.py OUT --model z-image-turbo [--layers 30] [--qwen-layers 36] [--disk-dtype f32] ...
    python3 scripts/random_checkpoint.py OUT --model sana-video|sana-video-720p [--layers 20] [--gemma-layers 26] ...
    python3 scripts/random_checkpoint.py OUT --model ltx2|ltx2-distilled|ltx2.3 [--layers 48] [--gemma-layers 48] [--part vae] ...

Calibrated (README, "How it is proved"): attention logits of a few units, gates of order one, non-zero modulation and
biases, norm weights spread around 1. Fewer layers give the same kernels at the same shapes in less memory. Weights
are drawn on --device, a tensor at a time, and written with the published names, in the published dtype (BF16; Z-Image-Turbo's
transformer, SANA-Video's transformer and autoencoder F32) or --disk-dtype: one file a part, or shards with an index where the
published part has them. All of LTX-2 is 67 GB: draw its parts in turns where that does not fit.
Tokenizers are those of the tests, whose texts are longer than with the published ones; TOKENIZERS names a folder with the real
ones in gemma2, gemma3 or qwen3 (tokenizer.json, tokenizer_config.json), from which the model's is copied.
Easy to get wrong: these weights draw noise, not pictures; time and compare with them, never judge quality.
"""
import argparse
import importlib
import json
import os
import shutil

import torch
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "..", "tests", "golden")
VAE = {"_class_name": "AutoencoderKL", "in_channels": 3, "out_channels": 3, "latent_channels": 16,
       "block_out_channels": [128, 256, 512, 512], "layers_per_block": 2, "norm_num_groups": 32,
       "down_block_types": ["DownEncoderBlock2D"] * 4, "up_block_types": ["UpDecoderBlock2D"] * 4,
       "act_fn": "silu", "sample_size": 1024, "scaling_factor": 0.3611, "shift_factor": 0.1159,
       "use_quant_conv": False, "use_post_quant_conv": False, "mid_block_add_attention": True}
WAN_MEAN = [-0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508, 0.4134, -0.0715, 0.5517, -0.3632, -0.1922, -0.9497,
            0.2503, -0.2921]
WAN_STD = [2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743, 3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253, 2.8251,
           1.9160]
F32_PARTS = {("z-image-turbo", "transformer"), ("sana-video", "transformer"), ("sana-video", "vae"),
             ("sana-video-720p", "transformer"), ("sana-video-720p", "vae")}
SANA_SHARD = 5_000_000_000
SHARDS = {"transformer": 10_000_000_000, "text_encoder": 4_000_000_000}   # bytes a file, as Z-Image is published


def zimage_config(model, a):
    return {
        "transformer": {"_class_name": "ZImageTransformer2DModel", "all_patch_size": [2], "all_f_patch_size": [1],
                        "in_channels": 16, "dim": 3840, "n_layers": a.layers or 30, "n_refiner_layers": 2, "n_heads": 30,
                        "n_kv_heads": 30, "norm_eps": 1e-5, "qk_norm": True, "cap_feat_dim": 2560, "rope_theta": 256.0,
                        "t_scale": 1000.0, "axes_dims": [32, 48, 48], "axes_lens": [1536, 512, 512]},
        "text_encoder": {"architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 2560,
                         "intermediate_size": 9728, "num_hidden_layers": a.qwen_layers, "num_attention_heads": 32,
                         "num_key_value_heads": 8, "head_dim": 128, "hidden_act": "silu", "rms_norm_eps": 1e-6,
                         "rope_theta": 1000000, "rope_scaling": None, "max_position_embeddings": 40960,
                         "attention_bias": False, "attention_dropout": 0.0, "tie_word_embeddings": True,
                         "vocab_size": 151936, "bos_token_id": 151643, "eos_token_id": 151645, "sliding_window": None,
                         "use_sliding_window": False, "max_window_layers": 36, "torch_dtype": "bfloat16"},
        "vae": VAE,
        "scheduler": {"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000,
                      "use_dynamic_shifting": False, "shift": 3.0 if model == "z-image-turbo" else 6.0},
    }


def sana_config(model, a):
    large = model == "sana-video-720p"
    channels, patch = (128, 1) if large else (16, 2)
    return {
        "transformer": {"_class_name": "SanaVideoTransformer3DModel", "in_channels": channels, "out_channels": channels,
                        "num_layers": a.layers or 20, "num_attention_heads": 20, "attention_head_dim": 112,
                        "num_cross_attention_heads": 20, "cross_attention_head_dim": 112, "cross_attention_dim": 2240,
                        "caption_channels": 2304, "mlp_ratio": 3.0, "attention_bias": False, "dropout": 0.0,
                        "sample_size": 22 if large else 30, "patch_size": [1, patch, patch], "norm_elementwise_affine": False, "norm_eps": 1e-6,
                        "qk_norm": "rms_norm_across_heads", "rope_max_seq_len": 1024, "guidance_embeds": False},
        "text_encoder": {"architectures": ["Gemma2Model"], "model_type": "gemma2", "vocab_size": 256000, "hidden_size": 2304,
                         "intermediate_size": 9216, "num_hidden_layers": a.gemma_layers, "num_attention_heads": 8,
                         "num_key_value_heads": 4, "head_dim": 256, "hidden_activation": "gelu_pytorch_tanh",
                         "max_position_embeddings": 8192, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "sliding_window": 4096,
                         "query_pre_attn_scalar": 256, "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
                         "attention_bias": False, "attention_dropout": 0.0, "pad_token_id": 0, "bos_token_id": 2,
                         "eos_token_id": 1, "torch_dtype": "bfloat16"},
        "vae": ltx2_vae(False) if large else
               {"_class_name": "AutoencoderKLWan", "base_dim": 96, "z_dim": 16, "dim_mult": [1, 2, 4, 4], "num_res_blocks": 2,
                "attn_scales": [], "temperal_downsample": [False, True, True], "dropout": 0.0, "latents_mean": WAN_MEAN,
                "latents_std": WAN_STD},
        "scheduler": {"_class_name": "DPMSolverMultistepScheduler", "use_flow_sigmas": True, "flow_shift": 8.0,
                      "prediction_type": "flow_prediction"},
        "tokenizer": {"tokenizer_class": "GemmaTokenizerFast", "bos_token": "<bos>", "eos_token": "<eos>",
                      "pad_token": "<pad>", "unk_token": "<unk>"},
    }


def ltx2_vae(new):
    """2.0's, which SANA-Video's 720p checkpoint has too, or 2.3's."""
    ups = 4 if new else 3
    return {"_class_name": "AutoencoderKLLTX2Video", "in_channels": 3, "out_channels": 3, "latent_channels": 128,
            "block_out_channels": [256, 512, 1024, 1024 if new else 2048],
            "decoder_block_out_channels": [256, 512, 512, 1024] if new else [256, 512, 1024],
            "layers_per_block": [4, 6, 4, 2, 2] if new else [4, 6, 6, 2, 2],
            "decoder_layers_per_block": [4, 6, 4, 2, 2] if new else [5, 5, 5, 5],
            "spatio_temporal_scaling": [True] * 4, "decoder_spatio_temporal_scaling": [True] * ups,
            "decoder_inject_noise": [False] * (ups + 1),
            "downsample_type": ["spatial", "temporal", "spatiotemporal", "spatiotemporal"],
            "upsample_type": ["spatiotemporal", "spatiotemporal", "temporal", "spatial"] if new else ["spatiotemporal"] * 3,
            "upsample_residual": [not new] * ups, "upsample_factor": [2, 2, 1, 2] if new else [2, 2, 2],
            "timestep_conditioning": False, "patch_size": 4, "patch_size_t": 1, "resnet_norm_eps": 1e-6,
            "scaling_factor": 1.0, "encoder_causal": True, "decoder_causal": False, "encoder_spatial_padding_mode": "zeros",
            "decoder_spatial_padding_mode": "zeros" if new else "reflect", "spatial_compression_ratio": 32,
            "temporal_compression_ratio": 8}


def ltx2_config(model, a):
    """The published configs, 2.0 or 2.3; Gemma's vision tower is left out, which no prompt needs."""
    new = model == "ltx2.3"
    connector = {f"{s}_connector_{k}": v for s, heads, dim in (("video", 32 if new else 30, 128),
                                                               ("audio", 32 if new else 30, 64 if new else 128))
                 for k, v in (("num_attention_heads", heads), ("attention_head_dim", dim), ("num_layers", 8 if new else 2),
                              ("num_learnable_registers", 128))}
    vocoder = {"in_channels": 128, "out_channels": 2, "resnet_kernel_sizes": [3, 7, 11], "resnet_dilations": [[1, 3, 5]] * 3}
    if new:
        vocoder = {"_class_name": "LTX2VocoderWithBWE", **vocoder, "hidden_channels": 1536,
                   "upsample_kernel_sizes": [11, 4, 4, 4, 4, 4], "upsample_factors": [5, 2, 2, 2, 2, 2]}
    else:
        vocoder = {"_class_name": "LTX2Vocoder", **vocoder, "hidden_channels": 1024, "upsample_kernel_sizes": [16, 15, 8, 4, 4],
                   "upsample_factors": [6, 5, 2, 2, 2], "act_fn": "leaky_relu", "leaky_relu_negative_slope": 0.1,
                   "final_act_fn": "tanh", "final_bias": True, "output_sampling_rate": 24000}
    return {
        "transformer": {"_class_name": "LTX2VideoTransformer3DModel", "in_channels": 128, "out_channels": 128, "patch_size": 1,
                        "patch_size_t": 1, "num_attention_heads": 32, "attention_head_dim": 128, "cross_attention_dim": 4096,
                        "vae_scale_factors": [8, 32, 32], "pos_embed_max_pos": 20, "base_height": 2048, "base_width": 2048,
                        "gated_attn": new, "cross_attn_mod": new, "audio_in_channels": 128, "audio_out_channels": 128,
                        "audio_patch_size": 1, "audio_patch_size_t": 1, "audio_num_attention_heads": 32,
                        "audio_attention_head_dim": 64, "audio_cross_attention_dim": 2048, "audio_scale_factor": 4,
                        "audio_pos_embed_max_pos": 20, "audio_sampling_rate": 16000, "audio_hop_length": 160,
                        "audio_gated_attn": new, "audio_cross_attn_mod": new, "num_layers": a.layers or 48,
                        "activation_fn": "gelu-approximate", "qk_norm": "rms_norm_across_heads",
                        "norm_elementwise_affine": False, "norm_eps": 1e-6, "caption_channels": 3840, "attention_bias": True,
                        "attention_out_bias": True, "rope_theta": 10000.0, "rope_double_precision": True, "causal_offset": 1,
                        "timestep_scale_multiplier": 1000, "cross_attn_timestep_scale_multiplier": 1000, "rope_type": "split",
                        "use_prompt_embeddings": not new, "perturbed_attn": new},
        "connectors": {"_class_name": "LTX2TextConnectors", "caption_channels": 3840, "text_proj_in_factor": a.gemma_layers + 1,
                       **connector, "video_gated_attn": new, "audio_gated_attn": new, "connector_rope_base_seq_len": 4096,
                       "rope_theta": 10000.0, "rope_double_precision": True, "causal_temporal_positioning": False,
                       "rope_type": "split", "per_modality_projections": new, "video_hidden_dim": 4096, "audio_hidden_dim": 2048,
                       "proj_bias": new},
        "text_encoder": {"architectures": ["Gemma3ForConditionalGeneration"], "model_type": "gemma3",
                         "text_config": {"model_type": "gemma3_text", "vocab_size": 262208, "hidden_size": 3840,
                                         "intermediate_size": 15360, "num_hidden_layers": a.gemma_layers,
                                         "num_attention_heads": 16, "num_key_value_heads": 8, "head_dim": 256,
                                         "hidden_activation": "gelu_pytorch_tanh", "query_pre_attn_scalar": 256,
                                         "rms_norm_eps": 1e-6, "attention_bias": False, "attention_dropout": 0.0,
                                         "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0,
                                         "rope_scaling": {"rope_type": "linear", "factor": 8.0}, "sliding_window": 1024,
                                         "sliding_window_pattern": 6, "max_position_embeddings": 131072},
                         "vision_config": {"model_type": "siglip_vision_model", "hidden_size": 64, "intermediate_size": 64,
                                           "num_hidden_layers": 1, "num_attention_heads": 2, "image_size": 28, "patch_size": 14},
                         "mm_tokens_per_image": 4, "bos_token_id": 2, "eos_token_id": [1, 106], "pad_token_id": 0,
                         "torch_dtype": "bfloat16"},
        "vae": ltx2_vae(new),
        "audio_vae": {"_class_name": "AutoencoderKLLTX2Audio", "base_channels": 128, "output_channels": 2, "ch_mult": [1, 2, 4],
                      "num_res_blocks": 2, "attn_resolutions": None, "in_channels": 2, "resolution": 256, "latent_channels": 8,
                      "norm_type": "pixel", "causality_axis": "height", "dropout": 0.0, "mid_block_add_attention": False,
                      "sample_rate": 16000, "mel_hop_length": 160, "is_causal": True, "mel_bins": 64, "double_z": True},
        "vocoder": vocoder,
        "latent_upsampler": {"_class_name": "LTX2LatentUpsamplerModel", "in_channels": 128, "mid_channels": 1024,
                             "num_blocks_per_stage": 4, "dims": 3, "spatial_upsample": True, "temporal_upsample": False,
                             "rational_spatial_scale": 2.0, "use_rational_resampler": not new},
        "scheduler": {"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000, "shift": 1.0,
                      "use_dynamic_shifting": model != "ltx2-distilled", "base_shift": 0.95, "max_shift": 2.05,
                      "base_image_seq_len": 1024, "max_image_seq_len": 4096,
                      "shift_terminal": None if model == "ltx2-distilled" else 0.1},
        "tokenizer": {"tokenizer_class": "GemmaTokenizerFast", "bos_token": "<bos>", "eos_token": "<eos>",
                      "pad_token": "<pad>", "unk_token": "<unk>"},
    }


def config(model, a):
    if model.startswith("ltx2"):
        return ltx2_config(model, a)
    if model.startswith("z-image"):
        return zimage_config(model, a)
    if model.startswith("sana-video"):
        return sana_config(model, a)
    dev = model == "flux-dev"
    return {
        "transformer": {"_class_name": "FluxTransformer2DModel", "patch_size": 1, "in_channels": 64,
                        "num_layers": a.layers or 19, "num_single_layers": a.single_layers, "attention_head_dim": 128,
                        "num_attention_heads": 24, "joint_attention_dim": 4096, "pooled_projection_dim": 768,
                        "guidance_embeds": dev, "axes_dims_rope": [16, 56, 56]},
        "text_encoder": {"architectures": ["CLIPTextModel"], "model_type": "clip_text_model", "hidden_size": 768,
                         "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12,
                         "max_position_embeddings": 77, "vocab_size": 49408, "hidden_act": "quick_gelu",
                         "layer_norm_eps": 1e-5, "projection_dim": 768, "bos_token_id": 0, "eos_token_id": 2,
                         "pad_token_id": 1},
        "text_encoder_2": {"architectures": ["T5EncoderModel"], "model_type": "t5", "d_model": 4096, "d_kv": 64,
                           "num_heads": 64, "d_ff": 10240, "num_layers": a.t5_layers, "vocab_size": 32128,
                           "feed_forward_proj": "gated-gelu", "dense_act_fn": "gelu_new", "is_gated_act": True,
                           "layer_norm_epsilon": 1e-6, "relative_attention_num_buckets": 32,
                           "relative_attention_max_distance": 128, "pad_token_id": 0, "eos_token_id": 1,
                           "decoder_start_token_id": 0, "tie_word_embeddings": False},
        "vae": VAE,
        "scheduler": {"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000,
                      "shift": 3.0 if dev else 1.0, "use_dynamic_shifting": dev, "base_shift": 0.5, "max_shift": 1.15,
                      "base_image_seq_len": 256, "max_image_seq_len": 4096},
    }


def meta_shapes(part, cfg):
    """name -> shape, from the reference's own classes on the meta device."""
    import diffusers
    import transformers
    rest = {k: v for k, v in cfg.items() if k != "architectures"}
    kind = cfg.get("model_type", "")
    with torch.device("meta"):
        if kind == "gemma3":
            m = transformers.Gemma3ForConditionalGeneration(transformers.Gemma3Config(**rest)).model.language_model
        elif cfg.get("_class_name") in ("LTX2TextConnectors", "LTX2Vocoder", "LTX2VocoderWithBWE", "LTX2LatentUpsamplerModel"):
            m = getattr(importlib.import_module("diffusers.pipelines.ltx2"), cfg["_class_name"]).from_config(cfg)
        elif kind == "qwen3":
            m = transformers.Qwen3Model(transformers.Qwen3Config(**rest))
        elif kind == "gemma2":
            m = transformers.Gemma2Model(transformers.Gemma2Config(**rest))
        elif kind == "clip_text_model":
            m = transformers.CLIPTextModel(transformers.CLIPTextConfig(**rest))
        elif kind == "t5":
            m = transformers.T5EncoderModel(transformers.T5Config(**rest))
        else:
            m = getattr(diffusers, cfg["_class_name"]).from_config(cfg)
    shapes = {k: tuple(v.shape) for k, v in m.state_dict().items() if "position_ids" not in k}
    if kind == "qwen3":
        return {"model." + k: v for k, v in shapes.items()}
    if kind == "gemma2" or cfg.get("_class_name", "").startswith(("LTX2", "AutoencoderKLLTX2")):
        return shapes
    if kind == "gemma3":                                 # as older releases of transformers write them
        return {"language_model.model." + k: v for k, v in shapes.items()}
    shapes = {k: v for k, v in shapes.items() if "embed_tokens" not in k}
    if kind == "clip_text_model" and not any(k.startswith("text_model.") for k in shapes):
        shapes = {"text_model." + k: v for k, v in shapes.items()}
    return shapes


def draw(name, shape, g, device):
    x = torch.randn(shape, generator=g, device=device)
    leaf = name.rsplit(".", 1)[-1]
    if len(shape) == 1:
        norm = leaf == "weight"
        return 1 + 0.3 * x if norm else 0.2 * x
    if "embedding" in name or name.startswith("shared"):
        return x * (1.0 if "shared" in name else 0.02)
    fan = x[0].numel()
    gain = 1.0
    if "norm" in name or "mod" in name:      # adaLN: modulation of order one half
        gain = 0.5
    if "SelfAttention.q" in name:            # T5 does not scale its scores
        gain = 0.125
    return x * (gain / fan ** 0.5)


def draw_zimage(name, shape, g, device):
    """Scores have the size of the product of both norms' weights; the time embedding has an rms of about 0.45."""
    if len(shape) == 1:
        x = draw(name, shape, g, device)
        return 2 * x if name.endswith(("norm_q.weight", "norm_k.weight", "q_norm.weight", "k_norm.weight")) else x
    x = torch.randn(shape, generator=g, device=device)
    if name.endswith("_pad_token"):
        return x
    if name.endswith("embed_tokens.weight"):
        return 0.5 * x
    x /= x[0].numel() ** 0.5
    if name.endswith("adaLN_modulation.0.weight"):       # scale, gate, scale, gate: 0.4 and, before the tanh, 1
        d = shape[0] // 4
        for k in range(4):
            x[k * d:(k + 1) * d] *= (0.9, 2.2)[k % 2]
    if name.startswith(("all_x_embedder", "cap_embedder")):
        x[[5, 40]] *= 6                                  # outlier channels
    return x


def draw_sana(name, shape, g, device):
    """By the rules of the tiny checkpoints (dump_golden_sana.py, dump_golden_gemma2.py, dump_golden_wan.py); the embedding is as
    large as what a few layers add to it."""
    x = torch.randn(shape, generator=g, device=device)
    if name.endswith("attn2.norm_q.weight"):
        return 4 + 1.2 * x
    if name.endswith("layernorm.weight") or name == "norm.weight":   # Gemma's, from 0
        return 0.3 * x
    if name.endswith(("norm_q.weight", "norm_k.weight", "norm.weight", "gamma")):
        return 1 + 0.3 * x
    if name.endswith("scale_shift_table"):
        return 0.7 * x
    if name.endswith("bias"):
        return 0.2 * x
    if name == "embed_tokens.weight":
        return 0.05 * x
    gain = 5.0 if name.endswith("q_proj.weight") else 2.0 if "to_qkv" in name else 1.0
    return x * (gain / x[0].numel() ** 0.5)


def draw_ltx2(part):
    """By the rule of the tiny folder (make_tiny_ltx2.py): no names seed anything here, but the sizes of things are its."""
    def one(name, shape, g, device):
        x = torch.randn(shape, generator=g, device=device)
        if "blur" in name or name.endswith("filter"):    # fixed ones: binomial, and a plain low pass
            return torch.full(shape, 1 / torch.Size(shape).numel(), device=device)
        if name.endswith("latents_std"):
            return x.abs() * 0.2 + 0.8
        if part == "text_encoder" and name.endswith("norm.weight"):
            return 0.3 * x + (0.5 if name.endswith(("q_norm.weight", "k_norm.weight")) else 0)
        if name.endswith("norm_q.weight"):
            return 3.5 + x
        if name.endswith((".alpha", ".beta")):
            return 0.3 * x
        if len(shape) == 1:
            return 1 + 0.3 * x if name.endswith("weight") else 0.2 * x
        if name.endswith("learnable_registers"):
            return x
        if name.endswith("scale_shift_table"):
            return 0.7 * x
        if name.endswith("embed_tokens.weight"):
            return 0.3 * x
        gain = 0.6 if part == "vae" and name.startswith("decoder.conv_out") else 1.0
        return x * (gain / x[0].numel() ** 0.5)
    return one


def write_shards(folder, stem, shapes, make, size, limit):
    """Files of at most `limit` bytes, filled in order. One shard's tensors are in memory at a time."""
    shards, used = [[]], 0
    for name, shape in shapes.items():
        n = size
        for d in shape:
            n *= d
        if used + n > limit and shards[-1]:
            shards.append([])
            used = 0
        shards[-1].append(name)
        used += n
    where = {}
    for i, names in enumerate(shards):
        file = f"{stem}.safetensors" if len(shards) == 1 else f"{stem}-{i + 1:05d}-of-{len(shards):05d}.safetensors"
        save_file({k: make(k) for k in names}, os.path.join(folder, file), metadata={"format": "pt"})
        where.update({k: file for k in names})
    if len(shards) > 1:
        total = size * sum(torch.Size(s).numel() for s in shapes.values())
        with open(os.path.join(folder, stem + ".safetensors.index.json"), "w") as f:
            json.dump({"metadata": {"total_size": total}, "weight_map": where}, f, indent=1)


def write_part(a, part, cfg, seed):
    folder = os.path.join(a.out, part)
    os.makedirs(folder, exist_ok=True)
    name = {"scheduler": "scheduler_config.json", "tokenizer": "tokenizer_config.json"}.get(part, "config.json")
    with open(os.path.join(folder, name), "w") as f:
        json.dump(cfg, f, indent=1)
    if part in ("scheduler", "tokenizer"):
        return
    g = torch.Generator(a.device).manual_seed(seed)
    zimage, sana, ltx2 = a.model.startswith("z-image"), a.model.startswith("sana-video"), a.model.startswith("ltx2")
    published = "f32" if (a.model, part) in F32_PARTS else "bf16"
    dtype = {"f32": torch.float32, "bf16": torch.bfloat16}[a.disk_dtype if a.disk_dtype and part == "transformer" else published]
    shapes, drawer = meta_shapes(part, cfg), draw_sana if sana else draw_zimage if zimage and part != "vae" else draw
    drawer = draw_ltx2(part) if ltx2 or (part, a.model) == ("vae", "sana-video-720p") else drawer
    stem = "model" if part.startswith("text") else "diffusion_pytorch_model"
    write_shards(folder, stem, shapes, lambda k: drawer(k, shapes[k], g, a.device).to(dtype).cpu(), dtype.itemsize,
                 SANA_SHARD if sana or ltx2 else SHARDS.get(part, 1 << 60) if zimage else 1 << 60)
    print(part, len(shapes), "tensors", sum(torch.Size(s).numel() for s in shapes.values()), "parameters", str(dtype)[6:],
          flush=True)


def finish_gemma(model, out):
    """The tests' tokenizer: a token for most characters, so texts are longer than with the published one."""
    from dump_golden_gemma2 import tokenizer
    os.makedirs(os.path.join(out, "tokenizer"), exist_ok=True)
    parts = {"tokenizer": "GemmaTokenizerFast", "text_encoder": "Gemma2Model", "transformer": "SanaVideoTransformer3DModel",
             "vae": "AutoencoderKLLTX2Video" if model == "sana-video-720p" else "AutoencoderKLWan",
             "scheduler": "DPMSolverMultistepScheduler"}
    pipeline, own = "SanaVideoPipeline", ()
    if model.startswith("ltx2"):
        pipeline, own = "LTX2Pipeline", ("connectors", "vocoder")
        parts = {"tokenizer": "GemmaTokenizerFast", "text_encoder": "Gemma3ForConditionalGeneration",
                 "transformer": "LTX2VideoTransformer3DModel", "vae": "AutoencoderKLLTX2Video",
                 "audio_vae": "AutoencoderKLLTX2Audio", "connectors": "LTX2TextConnectors",
                 "vocoder": "LTX2VocoderWithBWE" if model == "ltx2.3" else "LTX2Vocoder",
                 "scheduler": "FlowMatchEulerDiscreteScheduler"}
    index = {k: ["transformers" if k in ("tokenizer", "text_encoder") else "ltx2" if k in own else "diffusers", v]
             for k, v in parts.items()}
    for name, content in (("tokenizer/tokenizer.json", tokenizer()), ("model_index.json", {"_class_name": pipeline, **index})):
        with open(os.path.join(out, name), "w") as f:
            json.dump(content, f, indent=1)


def real_tokenizer(model, out):
    """From the folder TOKENIZERS, where it is said: in place of the tests'."""
    kind = {"z": "qwen3", "s": "gemma2", "l": "gemma3"}.get(model[0])
    if os.environ.get("TOKENIZERS") and kind:
        shutil.rmtree(os.path.join(out, "tokenizer"), ignore_errors=True)
        shutil.copytree(os.path.join(os.environ["TOKENIZERS"], kind), os.path.join(out, "tokenizer"))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--model", choices=["flux-dev", "flux-schnell", "z-image-turbo", "z-image", "sana-video",
                                       "sana-video-720p", "ltx2", "ltx2-distilled", "ltx2.3"], default="flux-dev")
    p.add_argument("--part", action="append", help="only this part; may be repeated")
    p.add_argument("--layers", type=int, help="of the transformer: 19 double blocks, or 30 layers beside the refiners, or 20")
    p.add_argument("--single-layers", type=int, default=38)
    p.add_argument("--t5-layers", type=int, default=24)
    p.add_argument("--qwen-layers", type=int, default=36)
    p.add_argument("--gemma-layers", type=int, help="26, or 48")
    p.add_argument("--disk-dtype", choices=["f32", "bf16"], help="of the transformer; by default as it is published")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a = p.parse_args()
    a.gemma_layers = a.gemma_layers or (48 if a.model.startswith("ltx2") else 26)
    os.makedirs(a.out, exist_ok=True)
    for i, (part, cfg) in enumerate(config(a.model, a).items()):
        if not a.part or part in a.part:
            write_part(a, part, cfg, a.seed * 10 + i)
    if a.model.startswith(("sana-video", "ltx2")):
        finish_gemma(a.model, a.out)
        real_tokenizer(a.model, a.out)
        return
    tiny = os.path.join(GOLDEN, "tiny-zimage" if a.model.startswith("z-image") else "tiny-flux")
    for folder in ("tokenizer", "tokenizer_2"):
        if os.path.isdir(os.path.join(tiny, folder)):
            shutil.copytree(os.path.join(tiny, folder), os.path.join(a.out, folder), dirs_exist_ok=True)
    shutil.copy(os.path.join(tiny, "model_index.json"), a.out)
    real_tokenizer(a.model, a.out)


if __name__ == "__main__":
    main()
