#!/usr/bin/env python3
"""Writes the golden files of SANA-Video's text encoder: tests/golden/gemma2_{f32,bf16}.safetensors and gemma2.txt.

    python3 scripts/dump_golden_gemma2.py tests/golden        # reads tests/golden/tiny-gemma2.json, the config

No weights are stored: both sides draw them from a seed (tests/golden_gemma2.h does it in C), tensor by tensor in the order of
their names. Calibrated as the tiny checkpoints are: attention logits of standard deviation 3 to 5 before the cap, which cuts
off some of them; a window shorter than the text; outlier channels; no two sizes equal. Eager attention: the others leave the
cap out.

gemma2.txt, for tests that need no weights:
    tokenizer JSON                   a tokenizer.json of Gemma's kind with few merges
    lower TEXT RESULT                JSON strings: str.lower().strip()
    prompt TEXT KIND TOTAL USED HASH ids as SanaVideoPipeline makes them (KIND: positive, negative): how many, how many before
                                     the padding, FNV-1a (64 bits) over all as int32
    kept KIND N ROWS                 which rows of the encoder's output it keeps of N tokens

Easy to get wrong: a model that is cast to bf16 after loading has its frequencies cast too; one that is loaded in bf16 has not.
"""
import argparse
import json
import os
import tempfile

import numpy as np
import torch

from dump_sigmas import fnv1a
from make_tiny_flux import Logits
from reference import DTYPES, one, rooms, save, tap
from refprofile import rounding, versions

SEED, SEED_IDS, TOKENS, PADDING = 20260311, 20260312, 13, 5
OUTLIERS = (5, 29)


def draw(name, shape, g):
    """The rule of tests/golden_gemma2.h, in f32 as there."""
    n = torch.randn(shape, generator=g)
    if name.endswith("norm.weight"):
        return n * 0.3
    if name == "embed_tokens.weight":
        n = n * 0.3
        n[:, list(OUTLIERS)] *= 4.0
        return n
    by = 1.0 / (n[0].numel() ** 0.5)
    return n * (by * 5.0 if name.endswith("q_proj.weight") else by)


def make(config):
    from transformers import Gemma2Config, Gemma2Model
    te = Gemma2Model(Gemma2Config(**config, attn_implementation="eager")).eval()
    g = torch.Generator().manual_seed(SEED)
    names = te.state_dict()
    te.load_state_dict({k: draw(k, names[k].shape, g) for k in sorted(names)})
    return te


class Scores(Logits):
    """Logits before the cap and the mask: softmax sees them after both."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.tanh:
            self.std.append(float(args[0].float().std()))
        return func(*args, **(kwargs or {}))


def stages(te, ids):
    mods = {"gemma2.embed": (te.embed_tokens, one), "gemma2.norm": (te.norm, one)}
    for i, layer in enumerate(te.layers):
        mods[f"gemma2.layer.{i}"] = (layer, lambda r: {"": r[0] if isinstance(r, tuple) else r})
    return {"ids_1": ids.to(torch.int32), **tap(te, mods, lambda: te(ids, use_cache=False))}


def padding_changes_nothing(te, ids):
    mask = torch.cat([torch.ones_like(ids), torch.zeros(1, PADDING, dtype=ids.dtype)], 1)
    padded = torch.cat([ids, torch.zeros(1, PADDING, dtype=ids.dtype)], 1)
    with torch.no_grad():
        a = te(ids, use_cache=False).last_hidden_state
        b = te(padded, attention_mask=mask, use_cache=False).last_hidden_state[:, :TOKENS]
    assert (a - b).abs().max() <= 1e-5 * a.abs().max()


def parts(config, out):
    te = make(config)
    ids = torch.randint(0, config["vocab_size"], (1, TOKENS), generator=torch.Generator().manual_seed(SEED_IDS))
    meta = {k: str(v) for k, v in versions("cpu").items()}
    with torch.no_grad(), Scores() as log:
        te(ids, use_cache=False)
    std = [v * config["attn_logit_softcapping"] for v in log.std]
    print("logits:", *(f"{v:.2f}" for v in std))
    assert len(std) == config["num_hidden_layers"] and all(3 <= v <= 5 for v in std)
    padding_changes_nothing(te, ids)
    f32 = stages(te, ids)
    save(f"{out}/gemma2_f32.safetensors", {k: f32[k] for k in ("ids_1", "gemma2.layer.0", "gemma2.norm")}, meta)
    with tempfile.TemporaryDirectory() as tmp:
        te.save_pretrained(tmp)
        half = type(te).from_pretrained(tmp, dtype=DTYPES["bf16"], attn_implementation="eager").eval()
    assert half.rotary_emb.inv_freq.dtype == torch.float32 and {p.dtype for p in half.parameters()} == {torch.bfloat16}
    r = rooms(stages(half, ids))
    for k in sorted(r):
        if k.endswith("@room"):
            print(f"{k}: {float(r[k]):.4f} of {float(r[k[:-5]].float().norm()):.2f}")
    save(f"{out}/gemma2_bf16.safetensors", r, meta)


# --- prompts ---

TEXTS = ["A cat sleeping", "", "  \t\n", "3 Cats\u00a0", "\u1680A red CIRCLE moves right, motion score: 30.\u2003", "\u0130stanbul \u00c9T\u00c9",
         "\u039f\u0394\u039f\u03a3 \u03a3 \u039f\u0394\u039f\u03a3. \u03a3\u0391\u03a3'\u03a3", "a\u03a3\u00ad\u0301b \u03a3\u00aa \u00b9\u03a3 A\u03a3\u02b0 \u2160\u03a3",
         "\x1c a \x1f\u0085", "\U00010400\U0001f600 STRASSE \u1e9e \u01c5", "<bos> User Prompt: <unused1>\n\n\n", "3 " * 160]


def tokenizer():
    pieces = ["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{b:02X}>" for b in range(256)]
    words, merges = ["\u2581", "a", "s", "t", "e", "r", "\u2581a", "\u2581s", "er", "\u2581t", "in", "n", "i", "c", "\u2581c", "\u2581ca", "\u2581cat"], []
    for a, b in (("e", "r"), ("i", "n"), ("\u2581", "a"), ("\u2581", "s"), ("\u2581", "t"), ("\u2581", "c"), ("\u2581c", "a"), ("\u2581ca", "t")):
        merges.append([a, b])
    tokens = pieces + [w for w in words] + [chr(c) for c in range(33, 127) if chr(c) not in words]
    special = [{"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
                "special": True} for i, t in enumerate(pieces[:4])]
    n = len(tokens)
    special += [{**special[0], "id": n + i, "content": "\n" * (i + 1), "special": False} for i in range(3)]
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": special,
            "normalizer": {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"},
            "pre_tokenizer": {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False},
            "post_processor": {"type": "TemplateProcessing",
                               "single": [{"SpecialToken": {"id": "<bos>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                               "pair": [{"SpecialToken": {"id": "<bos>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                                        {"SpecialToken": {"id": "<bos>", "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}],
                               "special_tokens": {"<bos>": {"id": "<bos>", "ids": [2], "tokens": ["<bos>"]}}},
            "decoder": None,
            "model": {"type": "BPE", "dropout": None, "unk_token": "<unk>", "continuing_subword_prefix": None,
                      "end_of_word_suffix": None, "fuse_unk": True, "byte_fallback": True, "ignore_merges": False,
                      "vocab": {t: i for i, t in enumerate(tokens)}, "merges": merges}}


class Rows:
    """Stands for the encoder: row i of its output is i."""
    dtype = torch.float32

    def __call__(self, ids, attention_mask):
        self.ids, self.mask = ids, attention_mask
        return (torch.arange(ids.shape[1], dtype=torch.float32)[None, :, None],)


def prompts(out, folder, length=300):
    """folder: a tokenizer to use, or None for the small one."""
    from diffusers import SanaVideoPipeline
    from transformers import PreTrainedTokenizerFast
    import inspect
    chi = inspect.signature(SanaVideoPipeline.__call__).parameters["complex_human_instruction"].default
    lines = []
    with tempfile.TemporaryDirectory() as tmp:
        path = os.path.join(tmp, "tokenizer.json")
        if folder is None:
            with open(path, "w") as f:
                json.dump(tokenizer(), f)
            lines.append("tokenizer " + json.dumps(tokenizer(), ensure_ascii=False, separators=(",", ":")))
        tok = PreTrainedTokenizerFast(tokenizer_file=path if folder is None else os.path.join(folder, "tokenizer.json"),
                                      bos_token="<bos>", eos_token="<eos>", unk_token="<unk>", pad_token="<pad>")
    pipe = SanaVideoPipeline.__new__(SanaVideoPipeline)
    object.__setattr__(pipe, "_internal_dict", {})
    pipe.__dict__["tokenizer"], pipe.__dict__["text_encoder"] = tok, Rows()
    for text in TEXTS:
        lines.append(f"lower {json.dumps(text)} {json.dumps(text.lower().strip())}")
        for kind, instruction in (("positive", chi), ("negative", False)):
            embeds, mask = pipe._get_gemma_prompt_embeds(text, torch.device("cpu"), torch.float32, max_sequence_length=length,
                                                         complex_human_instruction=instruction)
            ids, used = pipe.text_encoder.ids[0], int(mask.sum())
            assert mask[0].tolist() == [1] * used + [0] * (len(ids) - used)
            lines.append(f"prompt {json.dumps(text)} {kind} {len(ids)} {used} {fnv1a(ids.numpy().astype(np.int32).tobytes()):016x}")
    for kind, args in (("positive", {"prompt": "a", "complex_human_instruction": chi}),
                       ("negative", {"prompt": "", "negative_prompt": "a", "do_classifier_free_guidance": True})):
        r = pipe.encode_prompt(max_sequence_length=length, device=torch.device("cpu"), **{"do_classifier_free_guidance": False, **args})
        rows = r[0 if kind == "positive" else 2][0, :, 0].long().tolist()
        assert rows[1:] == list(range(rows[1], rows[1] + length - 1))
        lines.append(f"kept {kind} {pipe.text_encoder.ids.shape[1]} {rows[0]} {rows[1]} {len(rows)}")
    with open(os.path.join(out, "gemma2.txt"), "w") as f:
        f.write("\n".join(lines) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("--tokenizer", help="a folder with the published tokenizer.json: its prompts alone, into OUT/gemma2.txt")
    a = p.parse_args()
    torch.set_num_threads(1)
    if a.tokenizer:
        return prompts(a.out, a.tokenizer)
    with open(os.path.join(a.out, "tiny-gemma2.json")) as f:
        parts(json.load(f), a.out)
    prompts(a.out, None)


if __name__ == "__main__":
    main()
