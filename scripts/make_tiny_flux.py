#!/usr/bin/env python3
"""Writes the tiny calibrated FLUX.1 checkpoint of the golden tests (diffusers layout), from a seed.

Random weights at std 0.02 hide faults: attention is near uniform and gates near zero. Here every parameter is
drawn and scaled so that attention logits have a standard deviation of 3 to 5 in every layer, gates are of order
one, modulation is not zero, a few channels are outliers, and the picture has contrast without clipping. No two
of D, heads, head dim, layers, ffn, text length, height and width are equal. Not a model: pictures are noise.

Easy to get wrong: calibration must come before the rounding to bf16, and the check after it.

    python3 scripts/make_tiny_flux.py PUBLISHED_DIR OUT        # PUBLISHED_DIR: FLUX.1-dev's tokenizer folders
"""
import argparse
import json
import os

import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from torch.overrides import TorchFunctionMode

import make_tiny_tokenizers

SEED = 20240817
LOGIT_STD = 4.0
HEIGHT, WIDTH, TEXT = 80, 112, 19                # pixels and T5 tokens of the golden runs

TRANSFORMER = dict(patch_size=1, in_channels=24, num_layers=2, num_single_layers=3, attention_head_dim=16,
                   num_attention_heads=4, joint_attention_dim=60, pooled_projection_dim=56, guidance_embeds=True,
                   axes_dims_rope=[2, 6, 8])
VAE = dict(in_channels=3, out_channels=3, latent_channels=6, block_out_channels=[8, 16, 24, 32],
           down_block_types=["DownEncoderBlock2D"] * 4, up_block_types=["UpDecoderBlock2D"] * 4, act_fn="silu",
           layers_per_block=1, norm_num_groups=4, sample_size=64, scaling_factor=0.3611, shift_factor=0.1159,
           use_quant_conv=False, use_post_quant_conv=False, mid_block_add_attention=True, force_upcast=True)
SCHEDULER = {"_class_name": "FlowMatchEulerDiscreteScheduler", "_diffusers_version": "0.30.0.dev0",
             "base_image_seq_len": 256, "base_shift": 0.5, "max_image_seq_len": 4096, "max_shift": 1.15,
             "num_train_timesteps": 1000, "shift": 3.0, "use_dynamic_shifting": True}
CLIP = dict(vocab_size=0, hidden_size=56, intermediate_size=136, num_hidden_layers=3, num_attention_heads=4,
            max_position_embeddings=77, hidden_act="quick_gelu", layer_norm_eps=1e-5, projection_dim=56,
            bos_token_id=0, eos_token_id=2, pad_token_id=1)
T5 = dict(vocab_size=160, d_model=60, d_kv=18, d_ff=152, num_layers=3, num_heads=5, feed_forward_proj="gated-gelu",
          dense_act_fn="gelu_new", is_gated_act=True, layer_norm_epsilon=1e-6, relative_attention_num_buckets=32,
          relative_attention_max_distance=128, dropout_rate=0.1, tie_word_embeddings=False, pad_token_id=0,
          eos_token_id=1, decoder_start_token_id=0)
OUTLIERS = {                                     # row-scaled tensors: (rows, factor)
    "x_embedder.weight": ((5, 50), 6.0), "context_embedder.weight": ((11, 33), 6.0),
    "decoder.conv_in.weight": ((2,), 4.0), "encoder.conv_in.weight": ((2,), 4.0),
}
COLUMN_OUTLIERS = {"shared.weight": ((7, 41), 6.0), "token_embedding.weight": ((3, 30), 5.0)}


class Logits(TorchFunctionMode):
    """Collects the standard deviation of attention logits, one entry per attention call."""

    def __init__(self):
        super().__init__()
        self.std = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is F.scaled_dot_product_attention:
            q, k = args[:2] if len(args) > 1 else (kwargs["query"], kwargs["key"])
            self.std.append(float((q.float() @ k.float().transpose(-1, -2) * q.shape[-1] ** -0.5).std()))
        if func is F.softmax:
            s = args[0].float()
            self.std.append(float(s[s > -1e30].std()))
        return func(*args, **(kwargs or {}))


def draw(model, g):
    """Every parameter: norm weights 1 + 0.3 N, biases 0.2 N, matrices N / sqrt(fan in), embeddings N."""
    with torch.no_grad():
        for name, p in model.named_parameters():
            n = torch.randn(p.shape, generator=g)
            norm = p.dim() == 1 and not name.endswith("bias")
            if norm:
                v = 1 + 0.3 * n
            elif p.dim() == 1:
                v = 0.2 * n
            elif "embedding" in name or name.startswith("shared") or "relative_attention_bias" in name:
                v = n
            else:
                v = n / p[0].numel() ** 0.5
            for key, (rows, f) in OUTLIERS.items():
                if name.endswith(key):
                    v[list(rows)] *= f
            for key, (cols, f) in COLUMN_OUTLIERS.items():
                if name.endswith(key):
                    v[:, list(cols)] *= f
            p.copy_(v)
            if ".norm1.linear" in name or ".norm1_context.linear" in name or ".norm.linear" in name:
                p.mul_(0.6).view(-1, 64, *p.shape[1:])[2::3].mul_(2.6)    # shift, scale about 0.4, gate about 1


def calibrate(run, groups):
    """Scales groups[i] (parameters of attention call i) until its logits have LOGIT_STD. -> stds."""
    for _ in range(6):
        for i in range(len(groups)):
            with torch.no_grad(), Logits() as log:
                run()
            with torch.no_grad():
                for p in groups[i]:
                    p.mul_(LOGIT_STD / log.std[i])
    with torch.no_grad(), Logits() as log:
        run()
    assert len(log.std) == len(groups), (len(log.std), len(groups))
    return log.std


def round_bf16(model):
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p.to(torch.bfloat16).float())


def write(out, folder, name, tensors, dtype, config):
    d = os.path.join(out, folder)
    os.makedirs(d, exist_ok=True)
    save_file({k: v.detach().to(dtype).contiguous() for k, v in tensors.items()}, os.path.join(d, name),
              metadata={"format": "pt"})
    os.chmod(os.path.join(d, name), 0o644)
    with open(os.path.join(d, "config.json"), "w") as f:
        json.dump(config, f, indent=2, sort_keys=True)
        f.write("\n")


def build(published, out):
    from diffusers import AutoencoderKL, FluxTransformer2DModel
    from transformers import CLIPTextConfig, CLIPTextModel, T5Config, T5EncoderModel
    g = torch.Generator().manual_seed(SEED)
    clip_vocab = make_tiny_tokenizers.make_clip(os.path.join(published, "tokenizer"), os.path.join(out, "tokenizer"))
    t5_vocab = make_tiny_tokenizers.make_t5(os.path.join(published, "tokenizer_2"), os.path.join(out, "tokenizer_2"))
    assert t5_vocab < T5["vocab_size"]
    report = {}

    clip_cfg = dict(CLIP, vocab_size=clip_vocab)
    clip = CLIPTextModel(CLIPTextConfig(**clip_cfg, attn_implementation="eager")).eval()
    draw(clip, g)
    ids = torch.randint(0, clip_vocab - 2, (2, 77), generator=g)
    ids[:, 0], ids[0, 40:], ids[1, 76] = clip_vocab - 2, clip_vocab - 1, clip_vocab - 1
    layers = [m.self_attn for n, m in clip.named_modules() if hasattr(m, "self_attn")]
    report["clip logits"] = calibrate(lambda: clip(ids), [(a.q_proj.weight, a.q_proj.bias) for a in layers])
    # Published folders carry the text_model. level; stored in F32 with values that bf16 cannot hold, so that
    # the loader's cast is tested.
    names = {("text_model." + k if not k.startswith("text_model.") else k): v for k, v in clip.state_dict().items()
             if "position_ids" not in k}
    write(out, "text_encoder", "model.safetensors", names, torch.float32,
          dict(clip_cfg, architectures=["CLIPTextModel"], model_type="clip_text_model", torch_dtype="float32"))

    t5 = T5EncoderModel(T5Config(**T5, attn_implementation="eager")).eval()
    draw(t5, g)
    ids = torch.randint(3, t5_vocab, (1, 61), generator=g)
    report["t5 logits"] = calibrate(lambda: t5(ids), [
        (b.layer[0].SelfAttention.q.weight,) for b in t5.encoder.block])
    round_bf16(t5)
    names = {k: v for k, v in t5.state_dict().items() if k != "encoder.embed_tokens.weight"}
    write(out, "text_encoder_2", "model.safetensors", names, torch.bfloat16,
          dict(T5, architectures=["T5EncoderModel"], model_type="t5", torch_dtype="bfloat16"))

    dit = FluxTransformer2DModel(**TRANSFORMER).eval()
    draw(dit, g)
    h, w = HEIGHT // 16, WIDTH // 16
    img_ids = torch.stack([torch.zeros(h * w), torch.arange(h).repeat_interleave(w), torch.arange(w).repeat(h)], 1)
    x = torch.randn(1, h * w, TRANSFORMER["in_channels"], generator=g)
    c = torch.randn(1, TEXT, T5["d_model"], generator=g)
    pooled = torch.randn(1, CLIP["hidden_size"], generator=g)

    def run():
        return dit(hidden_states=x, encoder_hidden_states=c, pooled_projections=pooled, timestep=torch.tensor([0.7]),
                   img_ids=img_ids, txt_ids=torch.zeros(TEXT, 3), guidance=torch.tensor([3.5]), return_dict=False)[0]
    groups = [(b.attn.norm_q.weight, b.attn.norm_added_q.weight) for b in dit.transformer_blocks]
    groups += [(b.attn.norm_q.weight,) for b in dit.single_transformer_blocks]
    report["dit logits"] = calibrate(run, groups)
    gates = []
    hooks = [m.linear.register_forward_hook(
        lambda m, i, o: gates.append(o.view(-1, 64)[2::3].square().mean().sqrt().item()))
             for n, m in dit.named_modules()
             if n.endswith((".norm1", ".norm1_context", ".norm")) and hasattr(m, "linear")]
    with torch.no_grad():
        v = run()
        dit.proj_out.weight.mul_(1 / v.std())    # velocity of order one
    for hook in hooks:
        hook.remove()
    report["dit gate rms"] = gates
    round_bf16(dit)
    write(out, "transformer", "diffusion_pytorch_model.safetensors", dit.state_dict(), torch.bfloat16,
          {"_class_name": "FluxTransformer2DModel", "_diffusers_version": "0.30.0.dev0", **TRANSFORMER})

    vae = AutoencoderKL(**VAE).eval()
    draw(vae, g)
    z = torch.randn(1, 6, 2 * h, 2 * w, generator=g) / 0.3611 + 0.1159
    attn = vae.decoder.mid_block.attentions[0]
    report["vae logits"] = calibrate(lambda: vae.decode(z), [(attn.to_q.weight, attn.to_q.bias)])
    with torch.no_grad():
        y = vae.decode(z)[0]
        vae.decoder.conv_out.weight.mul_(0.36 / y.std())
        y = vae.decode(z)[0]
        vae.decoder.conv_out.bias.sub_(y.mean((0, 2, 3)) - torch.tensor([0.1, -0.05, 0.02]))
        y = vae.decode(z)[0]
    report["picture std (of 255), clipped"] = [float(y.std() * 127.5), float((y.abs() > 1).float().mean())]
    round_bf16(vae)
    write(out, "vae", "diffusion_pytorch_model.safetensors", vae.state_dict(), torch.bfloat16,
          {"_class_name": "AutoencoderKL", "_diffusers_version": "0.30.0.dev0", "latents_mean": None,
           "latents_std": None, **VAE})

    os.makedirs(os.path.join(out, "scheduler"), exist_ok=True)
    with open(os.path.join(out, "scheduler", "scheduler_config.json"), "w") as f:
        json.dump(SCHEDULER, f, indent=2, sort_keys=True)
        f.write("\n")
    with open(os.path.join(published, "model_index.json")) as f:
        index = json.load(f)
    with open(os.path.join(out, "model_index.json"), "w") as f:
        json.dump(index, f, indent=2)
        f.write("\n")
    for key, values in report.items():
        print(f"{key}: " + " ".join(f"{v:.3g}" for v in values))
        if key.endswith("logits"):
            assert all(3 <= v <= 5 for v in values), key
        if key.endswith("gate rms"):
            assert all(0.5 <= v <= 2 for v in values), key


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("published")
    p.add_argument("out")
    a = p.parse_args()
    build(a.published, a.out)
