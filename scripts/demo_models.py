"""demo_models.py - the demo checkpoint's five parts, built with diffusers' and transformers' own classes, and exported.

A real FLUX.1-dev in miniature: one head of 128 with axes 16/56/56, guidance embedding, dynamic shifting. Not a
training script. Easy to get wrong: save_pretrained writes today's tokenizer files and class names, the published
folders hold older ones; export() puts back the published form, which is what ditto reads.
"""

import json
import os
import shutil

import torch


def tokenizers(folder):
    from transformers import CLIPTokenizer, T5TokenizerFast

    return (CLIPTokenizer.from_pretrained(os.path.join(folder, "tokenizer")),
            T5TokenizerFast.from_pretrained(os.path.join(folder, "tokenizer_2")))


def build_vae():
    from diffusers import AutoencoderKL

    return AutoencoderKL(
        in_channels=3, out_channels=3, down_block_types=["DownEncoderBlock2D"] * 4,
        up_block_types=["UpDecoderBlock2D"] * 4, block_out_channels=(32, 32, 64, 64), layers_per_block=1,
        latent_channels=16, norm_num_groups=32, sample_size=128, use_quant_conv=False, use_post_quant_conv=False,
        force_upcast=True, scaling_factor=1.0, shift_factor=0.0)


def build_text(clip_tokens, t5_tokens):
    from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel

    clip = CLIPTextModel(CLIPTextConfig(
        vocab_size=clip_tokens, hidden_size=128, intermediate_size=256, projection_dim=128, num_hidden_layers=2,
        num_attention_heads=2, max_position_embeddings=77, hidden_act="quick_gelu", layer_norm_eps=1e-5,
        bos_token_id=0, eos_token_id=2, pad_token_id=1))
    t5 = T5EncoderModel(T5Config(
        vocab_size=(t5_tokens + 31) // 32 * 32, d_model=128, d_kv=64, num_heads=2, d_ff=256, num_layers=2,
        feed_forward_proj="gated-gelu", relative_attention_num_buckets=32, relative_attention_max_distance=128,
        layer_norm_epsilon=1e-6, dropout_rate=0.1, pad_token_id=0, eos_token_id=1, decoder_start_token_id=0,
        tie_word_embeddings=False, attn_implementation="eager"))
    return clip.eval(), t5.eval()  # eval: no dropout; gradients flow all the same


def build_transformer(double=3, single=6):
    from diffusers import FluxTransformer2DModel

    dit = FluxTransformer2DModel(
        patch_size=1, in_channels=64, num_layers=double, num_single_layers=single, attention_head_dim=128,
        num_attention_heads=1, joint_attention_dim=128, pooled_projection_dim=128, guidance_embeds=True,
        axes_dims_rope=(16, 56, 56))
    for name, m in dit.named_modules():  # adaLN-zero: every block starts as the identity
        if isinstance(m, torch.nn.Linear):
            torch.nn.init.zeros_(m.bias)
            if ".norm" in name or name.startswith("norm_out") or name == "proj_out":
                torch.nn.init.zeros_(m.weight)
            elif name.startswith("time_text_embed"):
                torch.nn.init.normal_(m.weight, std=0.02)
            else:
                torch.nn.init.xavier_uniform_(m.weight)
    return dit


def build_scheduler():
    from diffusers import FlowMatchEulerDiscreteScheduler

    return FlowMatchEulerDiscreteScheduler(
        num_train_timesteps=1000, shift=3.0, use_dynamic_shifting=True, base_shift=0.5, max_shift=1.15,
        base_image_seq_len=256, max_image_seq_len=4096)


def pack(z):
    """Latents [B, 16, Y, X] -> tokens [B, Y/2 * X/2, 64], the pipeline's order."""
    b, c, y, x = z.shape
    return z.view(b, c, y // 2, 2, x // 2, 2).permute(0, 2, 4, 1, 3, 5).reshape(b, y * x // 4, c * 4)


def unpack(tokens, y, x):
    b = tokens.shape[0]
    return tokens.view(b, y // 2, x // 2, 16, 2, 2).permute(0, 3, 1, 4, 2, 5).reshape(b, 16, y, x)


def image_ids(y, x, device):
    """(0, row, column) of every token of a y x x latent."""
    ids = torch.zeros(y // 2, x // 2, 3, device=device)
    ids[..., 1] += torch.arange(y // 2, device=device)[:, None]
    ids[..., 2] += torch.arange(x // 2, device=device)[None, :]
    return ids.view(-1, 3)


def export(folder, tokenizer_folder, vae, clip, t5, dit):
    """Writes the diffusers layout in BF16, as the published folders have it."""
    import safetensors.torch as st
    from diffusers import FluxPipeline

    shutil.rmtree(folder, ignore_errors=True)
    one, two = tokenizers(tokenizer_folder)
    cast = lambda m: m.to(device="cpu", dtype=torch.bfloat16)
    pipe = FluxPipeline(scheduler=build_scheduler(), vae=cast(vae), text_encoder=cast(clip), tokenizer=one,
                        text_encoder_2=cast(t5), tokenizer_2=two, transformer=cast(dit))
    pipe.save_pretrained(folder)
    for name in ("tokenizer", "tokenizer_2"):
        shutil.rmtree(os.path.join(folder, name))
        shutil.copytree(os.path.join(tokenizer_folder, name), os.path.join(folder, name))
    path = os.path.join(folder, "model_index.json")
    index = json.load(open(path))
    index["tokenizer"], index["tokenizer_2"] = ["transformers", "CLIPTokenizer"], ["transformers", "T5TokenizerFast"]
    index = {k: v for k, v in index.items() if v != [None, None] and k not in ("_name_or_path",)}
    json.dump(index, open(path, "w"), indent=2)
    for part in ("text_encoder", "text_encoder_2", "transformer", "vae"):
        sub = os.path.join(folder, part)
        path = os.path.join(sub, "config.json")
        config = json.load(open(path))
        config.pop("_name_or_path", None)
        if part.startswith("text"):
            config["torch_dtype"] = config.pop("dtype", "bfloat16")
        json.dump(config, open(path, "w"), indent=2)
        for name in os.listdir(sub):
            if name.endswith(".safetensors"):
                file = os.path.join(sub, name)
                tensors = {k: v.to(torch.bfloat16).contiguous() for k, v in st.load_file(file).items()}
                if part == "text_encoder":  # the level that published files have
                    tensors = {k if k.startswith("text_model.") else "text_model." + k: v
                               for k, v in tensors.items()}
                st.save_file(tensors, file, metadata={"format": "pt"})
                os.chmod(file, 0o644)
    size = sum(os.path.getsize(os.path.join(r, f)) for r, _, fs in os.walk(folder) for f in fs)
    return size
