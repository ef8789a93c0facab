#!/usr/bin/env python3
"""Writes a random checkpoint in a published model's folder layout and shapes, calibrated so that faults show.

    python3 scripts/random_checkpoint.py OUT --model flux-dev [--layers 19] [--single-layers 38] [--t5-layers 24]
                                             [--part transformer] [--seed 0] [--device cuda]

Calibrated (README, "How it is proved"): attention logits of a few units, gates of order one, non-zero modulation and
biases, norm weights spread around 1. Fewer layers give the same kernels at the same shapes in less memory. Weights
are drawn on --device, a tensor at a time, and written in BF16 in one file per part with the published names.
Easy to get wrong: these weights draw noise, not pictures; time and compare with them, never judge quality.
"""
import argparse
import json
import os
import shutil

import torch
from safetensors.torch import save_file

HERE = os.path.dirname(os.path.abspath(__file__))
TINY = os.path.join(HERE, "..", "tests", "golden", "tiny-flux")


def config(model, a):
    dev = model == "flux-dev"
    return {
        "transformer": {"_class_name": "FluxTransformer2DModel", "patch_size": 1, "in_channels": 64,
                        "num_layers": a.layers, "num_single_layers": a.single_layers, "attention_head_dim": 128,
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
        "vae": {"_class_name": "AutoencoderKL", "in_channels": 3, "out_channels": 3, "latent_channels": 16,
                "block_out_channels": [128, 256, 512, 512], "layers_per_block": 2, "norm_num_groups": 32,
                "down_block_types": ["DownEncoderBlock2D"] * 4, "up_block_types": ["UpDecoderBlock2D"] * 4,
                "act_fn": "silu", "sample_size": 1024, "scaling_factor": 0.3611, "shift_factor": 0.1159,
                "use_quant_conv": False, "use_post_quant_conv": False, "mid_block_add_attention": True},
        "scheduler": {"_class_name": "FlowMatchEulerDiscreteScheduler", "num_train_timesteps": 1000,
                      "shift": 3.0 if dev else 1.0, "use_dynamic_shifting": dev, "base_shift": 0.5, "max_shift": 1.15,
                      "base_image_seq_len": 256, "max_image_seq_len": 4096},
    }


def meta_shapes(part, cfg):
    """name -> shape, from the reference's own classes on the meta device."""
    import diffusers
    import transformers
    with torch.device("meta"):
        if part == "text_encoder":
            m = transformers.CLIPTextModel(transformers.CLIPTextConfig(**{k: v for k, v in cfg.items() if k != "architectures"}))
        elif part == "text_encoder_2":
            m = transformers.T5EncoderModel(transformers.T5Config(**{k: v for k, v in cfg.items() if k != "architectures"}))
        else:
            m = getattr(diffusers, cfg["_class_name"]).from_config(cfg)
    shapes = {k: tuple(v.shape) for k, v in m.state_dict().items() if "position_ids" not in k and "embed_tokens" not in k}
    if part == "text_encoder" and not any(k.startswith("text_model.") for k in shapes):
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


def write_part(out, part, cfg, seed, device):
    folder = os.path.join(out, part)
    os.makedirs(folder, exist_ok=True)
    name = "scheduler_config.json" if part == "scheduler" else "config.json"
    with open(os.path.join(folder, name), "w") as f:
        json.dump(cfg, f, indent=1)
    if part == "scheduler":
        return
    g = torch.Generator(device).manual_seed(seed)
    tensors = {k: draw(k, s, g, device).to(torch.bfloat16).cpu() for k, s in meta_shapes(part, cfg).items()}
    stem = "model" if part.startswith("text") else "diffusion_pytorch_model"
    save_file(tensors, os.path.join(folder, stem + ".safetensors"), metadata={"format": "pt"})
    print(part, len(tensors), "tensors", sum(t.numel() for t in tensors.values()), "parameters", flush=True)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("out")
    p.add_argument("--model", choices=["flux-dev", "flux-schnell"], default="flux-dev")
    p.add_argument("--part", action="append", help="only this part; may be repeated")
    p.add_argument("--layers", type=int, default=19)
    p.add_argument("--single-layers", type=int, default=38)
    p.add_argument("--t5-layers", type=int, default=24)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    a = p.parse_args()
    os.makedirs(a.out, exist_ok=True)
    for i, (part, cfg) in enumerate(config(a.model, a).items()):
        if not a.part or part in a.part:
            write_part(a.out, part, cfg, a.seed * 10 + i, a.device)
    for folder in ("tokenizer", "tokenizer_2"):
        shutil.copytree(os.path.join(TINY, folder), os.path.join(a.out, folder), dirs_exist_ok=True)
    shutil.copy(os.path.join(TINY, "model_index.json"), a.out)


if __name__ == "__main__":
    main()
