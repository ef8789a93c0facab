#!/usr/bin/env python3
"""Writes the tiny calibrated Z-Image checkpoint of the golden tests (diffusers layout), from a seed.

Calibrated like make_tiny_flux.py: attention logits of standard deviation 3 to 5 in every layer, gates of order one
before their tanh, scales of 0.4, outlier channels. The VAE is tiny-flux's (a link): both families share the class.
noise_refiner.0.attention and the embedders are stored as F32 with values that bf16 cannot hold, so that the loader's cast is
tested; the rest is BF16. The time MLP's hidden width, 1024 in the class, is 64 here: it would be most of the file.

Easy to get wrong: calibration must come before the rounding to bf16, and the check after it.

    python3 scripts/make_tiny_zimage.py QWEN3_TOKENIZER_DIR OUT     # beside OUT lies tiny-flux
"""
import argparse
import json
import os

import torch
from safetensors.torch import save_file

from make_tiny_flux import Logits, LOGIT_STD, calibrate, draw
from make_tiny_tokenizers import WORDS

SEED = 20251127                                  # one whose template tokens put no sum onto a rounding tie
TIME_HIDDEN = 64
TRANSFORMER = dict(all_patch_size=[2], all_f_patch_size=[1], in_channels=6, dim=48, n_layers=2, n_refiner_layers=2,
                   n_heads=3, n_kv_heads=3, norm_eps=1e-5, qk_norm=True, cap_feat_dim=40, rope_theta=256.0,
                   t_scale=1000.0, axes_dims=[4, 6, 6], axes_lens=[1536, 512, 512])
QWEN3 = dict(hidden_size=40, intermediate_size=104, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
             head_dim=16, hidden_act="silu", rms_norm_eps=1e-6, max_position_embeddings=4096, attention_bias=False,
             tie_word_embeddings=True, use_sliding_window=False)
KEEP_ADDED = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>")
F32_PARTS = ("noise_refiner.0.attention.", "all_x_embedder.", "cap_embedder.", "x_pad_token", "cap_pad_token")


def merges_used(words, merges):
    rank = {tuple(m): i for i, m in enumerate(merges)}
    used = set()
    for w in words:
        s = list(w)
        while len(s) > 1:
            best = min((rank.get((a, b), 1 << 30), i) for i, (a, b) in enumerate(zip(s, s[1:])))
            if best[0] == 1 << 30:
                break
            used.add(best[0])
            s[best[1]:best[1] + 2] = [s[best[1]] + s[best[1] + 1]]
    return [merges[i] for i in sorted(used)]


def cut_tokenizer(source, out, words):
    """The published file with all bytes, the merges that `words` (spelt in byte letters) need and the added tokens that are
    kept. -> vocabulary size."""
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(source, "tokenizer.json"), encoding="utf-8") as f:
        j = json.load(f)
    merges = merges_used(words, j["model"]["merges"])
    symbols = sorted((k for k in j["model"]["vocab"] if len(k) == 1), key=j["model"]["vocab"].get)
    assert len(symbols) == 256
    tokens = symbols + ["".join(m) for m in merges]
    assert len(set(tokens)) == len(tokens)
    j["model"]["vocab"], j["model"]["merges"] = {t: i for i, t in enumerate(tokens)}, merges
    j["added_tokens"] = [{**t, "id": len(tokens) + i} for i, t in
                         enumerate(t for t in j["added_tokens"] if t["content"] in KEEP_ADDED)]
    assert len(j["added_tokens"]) == len(KEEP_ADDED)
    with open(os.path.join(out, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(j, f, ensure_ascii=False)
        f.write("\n")
    with open(os.path.join(source, "tokenizer_config.json"), encoding="utf-8") as f:
        c = json.load(f)
    c["added_tokens_decoder"] = {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in j["added_tokens"]}
    c["additional_special_tokens"] = ["<|im_start|>", "<|im_end|>"]
    with open(os.path.join(out, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump(c, f, indent=1)
        f.write("\n")
    return len(tokens) + len(KEEP_ADDED)


def make_tokenizer(source, out):
    words = [p + w for w in WORDS + ["user", "assistant", "cats"] for p in ("", "\u0120")] + ["\u010a\u010a"]
    return cut_tokenizer(source, out, words)


def write(out, folder, name, tensors, config):
    d = os.path.join(out, folder)
    os.makedirs(d, exist_ok=True)
    save_file({k: v.detach().contiguous() for k, v in tensors.items()}, os.path.join(d, name), metadata={"format": "pt"})
    os.chmod(os.path.join(d, name), 0o644)
    write_json(d, "config.json", config)


def write_json(folder, name, value):
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, name), "w") as f:
        json.dump(value, f, indent=2, sort_keys=True)
        f.write("\n")


def make_qwen3(out, vocab, g, report):
    from transformers import Qwen3Config, Qwen3Model
    cfg = dict(QWEN3, vocab_size=vocab)
    te = Qwen3Model(Qwen3Config(**cfg, rope_parameters={"rope_type": "default", "rope_theta": 1e6},
                                attn_implementation="eager")).eval()
    draw(te, g)
    with torch.no_grad():
        te.embed_tokens.weight.mul_(QWEN3["hidden_size"] ** 0.5)
        te.embed_tokens.weight[:, [5, 29]] *= 6.0
    ids = torch.randint(0, vocab, (1, 61), generator=g)
    report["qwen3 logits"] = calibrate(lambda: te(ids), [(m.self_attn.q_norm.weight,) for m in te.layers])
    names = {"model." + k: v.to(torch.bfloat16) for k, v in te.state_dict().items()}
    write(out, "text_encoder", "model.safetensors", names,
          dict(cfg, architectures=["Qwen3ForCausalLM"], model_type="qwen3", rope_theta=1000000, rope_scaling=None,
               sliding_window=None, torch_dtype="bfloat16"))


def calibrate_gates(dit, run):
    """Scale chunks to rms 0.4, gate chunks to 1. -> the gates' rms afterwards."""
    d, seen = TRANSFORMER["dim"], []
    mods = [b.adaLN_modulation[0] for b in [*dit.noise_refiner, *dit.layers]]
    hooks = [m.register_forward_hook(lambda m, i, o: seen.append((m, o.detach().view(4, d).square().mean(1).sqrt())))
             for m in mods]
    run()
    for m, rms in seen:
        for k in range(4):
            f = (0.4, 1.0)[k % 2] / rms[k]
            m.weight[k * d:(k + 1) * d] *= f
            m.bias[k * d:(k + 1) * d] *= f
    seen.clear()
    run()
    for h in hooks:
        h.remove()
    return [float(r[k]) for _, r in seen for k in (1, 3)]


def empty_dit(config):
    """The class with the narrow time MLP: what the tiny checkpoint's tensors fit."""
    from diffusers import ZImageTransformer2DModel
    from diffusers.models.transformers.transformer_z_image import TimestepEmbedder
    dit = ZImageTransformer2DModel(**{k: v for k, v in config.items() if not k.startswith("_")}).eval()
    dit.t_embedder = TimestepEmbedder(min(config["dim"], 256), mid_size=TIME_HIDDEN)
    return dit


def make_dit(out, g, report):
    dit = empty_dit(TRANSFORMER)
    draw(dit, g)
    x = [torch.randn(TRANSFORMER["in_channels"], 1, 8, 10, generator=g)]
    cap = [torch.randn(19, TRANSFORMER["cap_feat_dim"], generator=g) * 3]
    with torch.no_grad():
        for p in (dit.x_pad_token, dit.cap_pad_token):
            p.mul_(TRANSFORMER["dim"] ** 0.5)
        dit.all_x_embedder["2-1"].weight[[5, 40]] *= 6.0
        dit.cap_embedder[1].weight[[11, 33]] *= 6.0

        def run():
            return dit(x, torch.tensor([0.3]), cap, return_dict=False)[0][0]
        blocks = [*dit.noise_refiner, *dit.context_refiner, *dit.layers]
        report["dit gate rms"] = calibrate_gates(dit, run)
        report["dit logits"] = calibrate(run, [(b.attention.norm_q.weight,) for b in blocks])
        dit.all_final_layer["2-1"].linear.weight.mul_(1 / run().std())
        names = {k: v if k.startswith(F32_PARTS) else v.to(torch.bfloat16) for k, v in dit.state_dict().items()}
        dit.load_state_dict(names)
        with Logits() as log:
            run()
        report["dit logits, rounded"] = log.std
    write(out, "transformer", "diffusion_pytorch_model.safetensors", names,
          {"_class_name": "ZImageTransformer2DModel", "_diffusers_version": "0.36.0.dev0", **TRANSFORMER})


def write_frame(out, vae):
    """What holds the parts of a Turbo folder together: scheduler, model_index.json, and the VAE as a link."""
    if not os.path.islink(os.path.join(out, "vae")):
        os.symlink(vae, os.path.join(out, "vae"))
    write_json(os.path.join(out, "scheduler"), "scheduler_config.json",
               {"_class_name": "FlowMatchEulerDiscreteScheduler", "_diffusers_version": "0.36.0.dev0",
                "num_train_timesteps": 1000, "use_dynamic_shifting": False, "shift": 3.0})
    write_json(out, "model_index.json",
               {"_class_name": "ZImagePipeline", "_diffusers_version": "0.36.0.dev0",
                "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
                "text_encoder": ["transformers", "Qwen3Model"], "tokenizer": ["transformers", "Qwen2Tokenizer"],
                "transformer": ["diffusers", "ZImageTransformer2DModel"], "vae": ["diffusers", "AutoencoderKL"]})


def build(tokenizer, out):
    g = torch.Generator().manual_seed(SEED)
    report = {}
    vocab = make_tokenizer(tokenizer, os.path.join(out, "tokenizer"))
    make_qwen3(out, vocab, g, report)
    make_dit(out, g, report)
    write_frame(out, "../tiny-flux/vae")
    for key, values in report.items():
        print(f"{key}: " + " ".join(f"{v:.3g}" for v in values))
        if "logits" in key:
            assert all(LOGIT_STD - 1 <= v <= LOGIT_STD + 1 for v in values), key
        if key.endswith("gate rms"):
            assert all(0.5 <= v <= 2 for v in values), key


if __name__ == "__main__":
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("tokenizer")
    p.add_argument("out")
    a = p.parse_args()
    torch.set_num_threads(2)
    build(a.tokenizer, a.out)
