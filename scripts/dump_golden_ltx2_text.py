#!/usr/bin/env python3
"""Writes the golden files of LTX-2's text side: tests/golden/gemma3_{f32,bf16}.safetensors of the text encoder, and
tests/golden/ltx2text_{20,23}_{f32,bf16}.safetensors of the connectors.

    python3 scripts/dump_golden_ltx2_text.py tests/golden     # reads tests/golden/tiny-gemma3.json, tiny-ltx2-connectors.json

No weights and no inputs are stored: both sides draw them from a seed (tests/golden_ltx2_text.h does it in C), tensor by tensor
in the order of their names. Calibrated as the tiny checkpoints are: attention logits of standard deviation 3 to 5; a window
shorter than the text; outlier channels; no two sizes equal. The encoder runs as LTX2Pipeline runs it: the whole
Gemma3ForConditionalGeneration, its default attention, SLOTS slots padded on the left. Only real rows are kept; gemma3.states is
every STEP-th channel of all hidden states, the layer fastest. The connectors see two texts as one batch.

Easy to get wrong: a model that is cast to bf16 after loading has its frequencies cast too; one that is loaded in bf16 has not.
"""
import argparse
import json
import os
import tempfile

import torch

from dump_golden_gemma2 import OUTLIERS
from make_tiny_flux import Logits
from reference import DTYPES, first, one, rooms, save, tap
from refprofile import versions

SEED, SEED_IDS, SEED_CONNECTORS, SEED_STATES = 20261130, 20261131, 20261132, 20261133
SLOTS, TOKENS, STEP = 300, 11, 8
LENGTH, REAL = 16, (11, 3)


# --- the text encoder ---

def draw(name, shape, g):
    """The rule of tests/golden_ltx2_text.h, in f32 as there."""
    n = torch.randn(shape, generator=g)
    if name.endswith(("q_norm.weight", "k_norm.weight")):
        return n * 0.3 + 1.2
    if name.endswith("norm.weight"):
        return n * 0.3
    if name.endswith("embed_tokens.weight"):
        n = n * 0.3
        n[:, list(OUTLIERS)] *= 4.0
        return n
    return n * (1.0 / (n[0].numel() ** 0.5))


def make(config):
    from transformers import Gemma3Config, Gemma3ForConditionalGeneration, SiglipVisionConfig
    vision = SiglipVisionConfig(hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1,
                                image_size=28, patch_size=14)
    te = Gemma3ForConditionalGeneration(Gemma3Config(text_config=config["text_config"], vision_config=vision,
                                                     image_token_index=config["image_token_index"], mm_tokens_per_image=4)).eval()
    assert te.config.get_text_config()._attn_implementation == "sdpa"
    g = torch.Generator().manual_seed(SEED)
    names = {k: v for k, v in te.state_dict().items() if k.startswith("model.language_model.")}
    te.load_state_dict({k: draw(k, names[k].shape, g) for k in sorted(names)}, strict=False)
    return te


def stages(te, ids):
    text, seen = te.model.language_model, {}

    def real(t):
        return {"": t[0, SLOTS - TOKENS:]}
    mods = {"gemma3.embed": (text.embed_tokens, real), "gemma3.norm": (text.norm, real)}
    for i, layer in enumerate(text.layers):
        mods[f"gemma3.layer.{i}"] = (layer, lambda r: real(first(r)[""]))
    padded = torch.cat([torch.zeros(1, SLOTS - TOKENS, dtype=ids.dtype), ids], 1)
    mask = (torch.arange(SLOTS) >= SLOTS - TOKENS).long()[None]

    def call(**kwargs):
        r = te(input_ids=padded, attention_mask=mask, output_hidden_states=True, **kwargs)
        seen["states"] = torch.stack(r.hidden_states, dim=-1)
    out = tap(te, mods, lambda: call(use_cache=False))       # layers run twice: the twin must not find its keys in a cache
    if te.dtype == torch.float32:
        without = seen["states"][:, SLOTS - TOKENS:]
        with torch.no_grad():
            call()                                           # as the pipeline
        assert torch.equal(without, seen["states"][:, SLOTS - TOKENS:])
    states = seen["states"][0, SLOTS - TOKENS:]
    assert states.shape[-1] == len(text.layers) + 1 and states.isfinite().all()
    return {"ids_1": ids.to(torch.int32), "gemma3.states": states[:, ::STEP].contiguous(), **out}


class Visible(Logits):
    """Logits that the mask leaves."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.nn.functional.scaled_dot_product_attention:
            s = args[0].float() @ args[1].float().transpose(-1, -2) * kwargs["scale"]
            self.std.append(float(s[kwargs["attn_mask"].expand(s.shape)].std()))
        return func(*args, **(kwargs or {}))


def encoder(config, out, meta):
    te = make(config)
    vocab = config["text_config"]["vocab_size"]
    ids = torch.randint(3, vocab - 1, (1, TOKENS), generator=torch.Generator().manual_seed(SEED_IDS))
    ids[0, 0] = 2
    with Visible() as log:
        f32 = stages(te, ids)
    print("gemma3 logits:", *(f"{v:.2f}" for v in log.std))
    assert all(3 <= v <= 5 for v in log.std)
    keep = ("ids_1", "gemma3.norm", "gemma3.states")
    save(f"{out}/gemma3_f32.safetensors", {k: f32[k] for k in keep}, meta)
    with tempfile.TemporaryDirectory() as tmp:
        te.save_pretrained(tmp)
        half = type(te).from_pretrained(tmp, dtype=DTYPES["bf16"]).eval()
    rope = half.model.language_model.rotary_emb
    assert rope.full_attention_inv_freq.dtype == torch.float32 and {p.dtype for p in half.parameters()} == {torch.bfloat16}
    save(f"{out}/gemma3_bf16.safetensors", rooms(stages(half, ids)), meta)


# --- the connectors ---

def draw_connector(name, shape, g):
    n = torch.randn(shape, generator=g)
    if name.endswith("norm_q.weight"):
        return n * 1.2 + 3.7
    if name.endswith("norm_k.weight"):
        return n * 0.3 + 1.0
    if name.endswith("learnable_registers"):
        return n
    if name.endswith("bias"):
        return n * 0.2
    return n * (1.0 / (n[0].numel() ** 0.5))


def states_of(channels, layers):
    """As of an encoder: each layer with a mean and width of its own, one channel that stands out, padding too."""
    n = torch.randn(len(REAL), LENGTH, channels, layers, generator=torch.Generator().manual_seed(SEED_STATES))
    layer = torch.arange(layers, dtype=torch.float32)
    n = n * (layer * 0.5 + 0.5) + layer * 0.2
    n[:, :, 3] *= 5.0
    return n


def connector_stages(m, dtype):
    states = states_of(m.config.caption_channels, m.config.text_proj_in_factor).to(dtype)
    mask = torch.stack([(torch.arange(LENGTH) >= LENGTH - n).long() for n in REAL])

    def real(r):
        return {f".{i}": r[i, LENGTH - n:] for i, n in enumerate(REAL)}

    def rows(r):
        return one(r.flatten(0, 1))
    mods = {}
    for name in ("video", "audio"):
        part = getattr(m, f"{name}_connector")
        if m.config.per_modality_projections:
            mods[f"connectors.text.{name}"] = (getattr(m, f"{name}_text_proj_in"), real)
        for i, block in enumerate(part.transformer_blocks):
            mods[f"connectors.{name}.{i}"] = (block, rows)
        mods[f"connectors.{name}"] = (part.norm_out, rows)
    if not m.config.per_modality_projections:
        mods["connectors.text"] = (m.text_proj_in, real)
    seen = {}

    def call():
        seen["out"] = m(states, mask)
    out = tap(m, mods, call)
    video, audio, left = seen["out"]
    assert torch.equal(video.flatten(0, 1), out["connectors.video"]) and torch.equal(audio.flatten(0, 1), out["connectors.audio"])
    assert left.min() == 1
    return out


def connectors(config, name, out, meta):
    from diffusers.pipelines.ltx2 import LTX2TextConnectors
    m = LTX2TextConnectors(**{k: v for k, v in config.items() if not k.startswith("_")}).eval()
    g = torch.Generator().manual_seed(SEED_CONNECTORS)
    names = m.state_dict()
    m.load_state_dict({k: draw_connector(k, names[k].shape, g) for k in sorted(names)})
    with Logits() as log:
        f32 = connector_stages(m, torch.float32)
    print(name, "logits:", *(f"{v:.2f}" for v in log.std))
    assert all(3 <= v <= 5 for v in log.std)
    save(f"{out}/ltx2text_{name}_f32.safetensors", {k: f32[k] for k in ("connectors.video", "connectors.audio")}, meta)
    save(f"{out}/ltx2text_{name}_bf16.safetensors", rooms(connector_stages(m.to(torch.bfloat16), torch.bfloat16)), meta)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    a = p.parse_args()
    torch.set_num_threads(1)
    meta = {**{k: str(v) for k, v in versions("cpu").items()}, "attention_text": "sdpa"}
    with open(os.path.join(a.out, "tiny-gemma3.json")) as f:
        encoder(json.load(f), a.out, meta)
    with open(os.path.join(a.out, "tiny-ltx2-connectors.json")) as f:
        for version, config in json.load(f).items():
            connectors(config, version.replace(".", ""), a.out, meta)


if __name__ == "__main__":
    main()
