#!/usr/bin/env python3
"""Writes a tiny LTX-2 folder, every part drawn from the names of its tensors: what the whole clips of the tests come from.

    python3 scripts/make_tiny_ltx2.py OUT [--golden tests/golden]        # configs: tests/golden/tiny-ltx2-model.json
    python3 scripts/dump_reference.py OUT tests/golden --golden

No weights are stored: tests/golden_ltx2_model.h draws the same numbers in C. Each tensor has a generator of its own, seeded by
the name that it has in its part's file, so neither side needs to know which tensors the other one uses. Calibrated as the
other tiny checkpoints are: attention logits of a few units, gates and scales of order one.

Easy to get wrong: Gemma's tensors are hashed without their prefixes, which differ between releases of transformers.
"""
import argparse
import json
import os

import torch

from dump_golden_gemma2 import tokenizer

HERE = os.path.dirname(os.path.abspath(__file__))
CLASSES = {"transformer": "LTX2VideoTransformer3DModel", "vae": "AutoencoderKLLTX2Video", "audio_vae": "AutoencoderKLLTX2Audio",
           "latent_upsampler": "LTX2LatentUpsamplerModel"}


def seed_of(name):
    h = 0x811C9DC5
    for b in name.encode():
        h = ((h ^ b) * 0x01000193) & 0xFFFFFFFF
    return h


def plain(name):
    for prefix in ("model.", "language_model.", "model."):
        name = name.removeprefix(prefix)
    return name


def draw(part, name, shape):
    """The rule of tests/golden_ltx2_model.h, in f32 as there."""
    name = plain(name) if part == "text_encoder" else name
    n = torch.randn(shape, generator=torch.Generator().manual_seed(seed_of(name)))
    if name.endswith("latents_std"):
        return n.abs() * 0.2 + 0.8
    if part == "text_encoder" and name.endswith("norm.weight"):
        return n * 0.3
    if name.endswith("norm_q.weight"):
        return n * 1.0 + 3.5
    if len(shape) == 1 and name.endswith("weight"):
        return n * 0.3 + 1.0
    if name.endswith("learnable_registers"):
        return n
    if name.endswith("scale_shift_table"):
        return n * 0.7
    if len(shape) == 1 or name.endswith("embed_tokens.weight"):
        return n * (0.03 if part == "vocoder" else 0.3)
    gain = 0.6 if part == "vae" and name.startswith("decoder.conv_out") else 1.0
    if part == "vocoder":                   # no norm on the way: what comes in must reach the end
        gain = 2.5 if name.startswith("upsamplers") else 1.0
    return n * (gain / n[0].numel() ** 0.5)


def gemma3(config):
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration
    return Gemma3ForConditionalGeneration(Gemma3Config(**config))


def parts(configs):
    """part -> module, weights drawn."""
    import diffusers
    from diffusers.pipelines.ltx2 import LTX2LatentUpsamplerModel, LTX2TextConnectors, LTX2Vocoder
    own = {"connectors": LTX2TextConnectors, "vocoder": LTX2Vocoder, "latent_upsampler": LTX2LatentUpsamplerModel}
    out = {}
    for part, config in configs.items():
        if part == "scheduler":
            continue
        if part == "text_encoder":
            m = gemma3(config)
        else:
            cls = own.get(part) or getattr(diffusers, CLASSES[part])
            m = cls(**{k: v for k, v in config.items() if not k.startswith("_")})
        names = m.state_dict()
        with torch.no_grad():
            for k, v in names.items():
                if "blur" not in k and k != "lm_head.weight":   # fixed; tied
                    v.copy_(draw(part, k, v.shape))
        out[part] = m.eval()
    return out


def write(configs, out):
    from diffusers import FlowMatchEulerDiscreteScheduler
    for part, m in parts(configs).items():
        m.save_pretrained(os.path.join(out, part))
    FlowMatchEulerDiscreteScheduler(**configs["scheduler"]).save_pretrained(os.path.join(out, "scheduler"))
    os.makedirs(os.path.join(out, "tokenizer"), exist_ok=True)
    index = {"_class_name": "LTX2Pipeline", "scheduler": ["diffusers", "FlowMatchEulerDiscreteScheduler"],
             "text_encoder": ["transformers", "Gemma3ForConditionalGeneration"],
             "tokenizer": ["transformers", "GemmaTokenizerFast"],
             "connectors": ["ltx2", "LTX2TextConnectors"], "vocoder": ["ltx2", "LTX2Vocoder"],
             **{k: ["diffusers", v] for k, v in CLASSES.items() if k != "latent_upsampler"}}
    names = {"bos_token": "<bos>", "eos_token": "<eos>", "pad_token": "<pad>", "unk_token": "<unk>"}
    for name, content in (("model_index.json", index), ("tokenizer/tokenizer.json", tokenizer()),
                          ("tokenizer/tokenizer_config.json", {"tokenizer_class": "PreTrainedTokenizerFast", **names})):
        with open(os.path.join(out, name), "w") as f:
            json.dump(content, f, indent=1)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("--golden", default=os.path.join(HERE, "..", "tests", "golden"))
    a = p.parse_args()
    torch.set_num_threads(1)
    with open(os.path.join(a.golden, "tiny-ltx2-model.json")) as f:
        write(json.load(f), a.out)


if __name__ == "__main__":
    main()
