#!/usr/bin/env python3
"""Cuts the test vocabularies from real ones and records what the reference makes of test texts with them.

Writes OUT/clip and OUT/t5 (tokenizer folders of the published layout, under 300 kB each), OUT/clusters (made up),
JSON string a line), and for each tokenizer ids.txt (a line of ids for each text, special tokens included) and
sweep.txt (the CRC-32 of the ids of every block of 4,096 code points in test surroundings). T5 also gets
class.txt: the lines of ids.txt that differ when transformers' class builds the tokenizer. CLIP keeps the bytes
and the first merges; T5 keeps all single characters and runs of one, the best pieces, and the part of its character map that
is most used. Easy to get wrong: cut ids are renumbered, so the files' own consistency must survive.

Usage: cut_vocab.py FLUX_FOLDER OUT   (FLUX_FOLDER holds tokenizer and tokenizer_2)
       cut_vocab.py --qwen QWEN3_TOKENIZER_FOLDER OUT   (OUT/qwen: the bytes and first merges, over OUT/texts.jsonl)
"""
import base64
import json
import os
import random
import struct
import sys
import zlib

import check_tokenizers
from tokenizers import Tokenizer

CLIP_MERGES, QWEN_MERGES, T5_PIECES, TEXTS = 5000, 4000, 3000, 500


def dump(data, *path):
    with open(os.path.join(*path), "w") as f:
        json.dump(data, f, ensure_ascii=False, separators=(",", ":"))
        f.write("\n")


def cut_clip(source, out):
    os.makedirs(out, exist_ok=True)
    vocab = json.load(open(os.path.join(source, "vocab.json")))
    merges = open(os.path.join(source, "merges.txt")).read().split("\n")
    kept = sorted(vocab, key=vocab.get)[: 512 + CLIP_MERGES] + ["<|startoftext|>", "<|endoftext|>"]
    dump({piece: i for i, piece in enumerate(kept)}, out, "vocab.json")
    open(os.path.join(out, "merges.txt"), "w").write("\n".join(merges[: 1 + CLIP_MERGES]) + "\n")
    config = json.load(open(os.path.join(source, "tokenizer_config.json")))
    added = config["added_tokens_decoder"]
    config["added_tokens_decoder"] = {str(len(kept) - 2): added["49406"], str(len(kept) - 1): added["49407"]}
    dump(config, out, "tokenizer_config.json")


def cut_qwen(source, out):
    os.makedirs(out, exist_ok=True)
    j = json.load(open(os.path.join(source, "tokenizer.json")))
    model, config = j["model"], json.load(open(os.path.join(source, "tokenizer_config.json")))
    model["merges"] = model["merges"][:QWEN_MERGES]
    symbols = sorted((k for k in model["vocab"] if len(k) == 1), key=model["vocab"].get)
    kept = symbols + ["".join(m) for m in model["merges"]]
    model["vocab"] = {piece: i for i, piece in enumerate(kept)}
    assert len(symbols) == 256 and len(model["vocab"]) == len(kept)
    for i, token in enumerate(j["added_tokens"]):
        token["id"] = len(kept) + i
    config["added_tokens_decoder"] = {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in j["added_tokens"]}
    dump(j, out, "tokenizer.json")
    dump(config, out, "tokenizer_config.json")


def read_rules(blob):
    """All key -> replacement rules of a Precompiled character map."""
    size = struct.unpack("<I", blob[:4])[0]
    units, text = struct.unpack("<%dI" % (size // 4), blob[4 : 4 + size]), blob[4 + size :]
    offset = lambda u: (u >> 10) << ((u & 512) >> 6)
    rules, stack = {}, [(offset(units[0]), b"")]
    while stack:
        at, key = stack.pop()
        for byte in range(1, 256):
            child = at ^ byte
            if child < len(units) and units[child] & 0x800000FF == byte:
                below = child ^ offset(units[child])
                if units[child] >> 8 & 1:
                    value = units[below] & 0x7FFFFFFF
                    rules[key + bytes([byte])] = text[value : text.index(b"\0", value)]
                stack.append((below, key + bytes([byte])))
    return rules


def write_rules(rules):
    """A double array of the rules, first fit."""
    root = {}
    for key, value in sorted(rules.items()):
        node = root
        for byte in key:
            node = node.setdefault(byte, {})
        node[0] = value
    text, places = b"", {}
    for value in sorted(set(rules.values())):
        places[value] = len(text)
        text += value + b"\0"
    units, used, bases, free = {}, set(), set(), 1

    def fit(labels):
        nonlocal free
        while free in used:
            free += 1
        base = free & ~255
        while True:
            for low in range(256):
                b = base | low
                if b and b not in bases and all((b ^ x) not in used and b ^ x for x in labels):
                    return b
            base += 256

    stack = [(root, 0, 0)]
    while stack:
        node, position, unit = stack.pop()
        base = fit(list(node))
        bases.add(base)
        used.update(base ^ x for x in node)
        relative = base ^ position
        assert relative < 1 << 21
        units[position] = unit | relative << 10 | (256 if 0 in node and position else 0)
        for label, child in node.items():
            if label == 0:
                units[base] = places[child] | 1 << 31
            else:
                stack.append((child, base ^ label, label))
        used.add(position)
    raw = b"".join(struct.pack("<I", units.get(i, 0)) for i in range((max(units) | 255) + 1))
    blob = struct.pack("<I", len(raw)) + raw + text
    assert read_rules(blob) == rules
    return blob


def cut_t5(source, out):
    os.makedirs(out, exist_ok=True)
    j = json.load(open(os.path.join(source, "tokenizer.json")))
    vocab = j["model"]["vocab"]
    extra = [row for row in vocab if row[0].startswith("<extra_id_")]
    body = [row for row in vocab[3:] if not row[0].startswith("<extra_id_")]
    body = [row for i, row in enumerate(body) if i < T5_PIECES or len(set(row[0])) == 1]
    j["model"]["vocab"] = vocab[:3] + body + extra
    ids = {row[0]: i for i, row in enumerate(j["model"]["vocab"])}
    for token in j["added_tokens"]:
        token["id"] = ids[token["content"]]
    for step in j["normalizer"]["normalizers"]:
        if step["type"] == "Precompiled":
            rules = read_rules(base64.b64decode(step["precompiled_charsmap"]))
            kept = {k: v for k, v in rules.items() if len(k) < 6}  # longer keys are never asked for
            print("character map: %d of %d rules" % (len(kept), len(rules)))
            step["precompiled_charsmap"] = base64.b64encode(write_rules(kept)).decode()
    dump(j, out, "tokenizer.json")
    config = json.load(open(os.path.join(source, "tokenizer_config.json")))
    config["added_tokens_decoder"] = {str(ids[t["content"]]): {k: v for k, v in t.items() if k != "id"} for t in j["added_tokens"]}
    dump(config, out, "tokenizer_config.json")


def make_clusters(out):
    """A tokenizer that shows grapheme clusters and nothing else: T5 knows neither Indic letters nor marks."""
    os.makedirs(out, exist_ok=True)
    rules = {"a": "b", "\u0915": "k", "\u0958": "q", "\u2122": "t", "\u0344": "x", "\u1161": "v", "\n": " "}
    blob = write_rules({k.encode(): v.encode() for k, v in rules.items()})
    pieces = ["<unk>", "\u2581", "a", "b", "k", "q", "t", "x", "v", "e", "\u0301", "\u0323", "\u200d", "\u094d", "\u00a9"]
    j = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "decoder": None, "post_processor": None,
         "normalizer": {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(blob).decode()},
         "pre_tokenizer": {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True},
         "model": {"type": "Unigram", "unk_id": 0, "vocab": [[p, -2.0] for p in pieces], "byte_fallback": False}}
    dump(j, out, "tokenizer.json")


def texts_for(tokenizers):
    pieces = sorted(set().union(*(t.get_vocab() for t in tokenizers)))
    added = ["<|startoftext|>", "<|endoftext|>", "<pad>", "</s>", "<unk>", "<extra_id_0>", "<extra_id_7>", "<extra_id_99>"]
    r = random.Random(11)
    found = check_tokenizers.strings(40000, 11, pieces, added)
    fixed = [t for t in found[: len(check_tokenizers.SENTENCES) + 60]]
    fixed += [c * n for c in ("-", ".", "!", "=", "0", "a", "ha", "e\u0301", "\u732b") for n in (13, 31, 60)]
    fixed += ["\u0915\u094d\u0915\u0958\u0301", "\u0958\u0301", "\U0001f468\u200d\u2122\u0301 \u2122\u0301", "\ufb01\u0308x"]
    short = [t for t in found if len(t) < 120]
    return [t for t in fixed + r.sample(short, TEXTS) if len(t) < 1000]


def surroundings(c):
    """Places where a code point's class, case, composition and grapheme cluster show in the ids."""
    return ("a%b %\u0301 \u2122%\u0301 e%\u0323 %\u2122\u0301 %\u200d\u2122\u0301 \u0915\u094d%\u0301 "
            "\u0915\u094d\u0915%\u0301 %\u094d\u0958\u0301 \u00a9%\u200d\u2122\u0301").replace("%", c)


def record(tokenizer, texts, out):
    rows = [" ".join(map(str, tokenizer.encode(t).ids)) for t in texts]
    open(os.path.join(out, "ids.txt"), "w").write("\n".join(rows) + "\n")
    hashes = []
    for block in range(0, 0x110000, 4096):
        h = 0
        for c in range(block, block + 4096):
            if not 0xD800 <= c <= 0xDFFF:
                ids = tokenizer.encode(surroundings(chr(c)), add_special_tokens=False).ids
                h = zlib.crc32(struct.pack("<%di" % len(ids), *ids), h)
        hashes.append("%08x" % h)
    open(os.path.join(out, "sweep.txt"), "w").write("\n".join(hashes) + "\n")
    return rows


def main():
    if sys.argv[1] == "--qwen":
        source, qwen = sys.argv[2], os.path.join(sys.argv[3], "qwen")
        cut_qwen(source, qwen)
        texts = [json.loads(line) for line in open(os.path.join(sys.argv[3], "texts.jsonl"))]
        record(Tokenizer.from_file(os.path.join(qwen, "tokenizer.json")), texts, qwen)
        return
    source, out = sys.argv[1:]
    clip, t5 = os.path.join(out, "clip"), os.path.join(out, "t5")
    cut_clip(os.path.join(source, "tokenizer"), clip)
    cut_t5(os.path.join(source, "tokenizer_2"), t5)
    from transformers import CLIPTokenizer, T5TokenizerFast

    hf_clip = CLIPTokenizer.from_pretrained(clip).backend_tokenizer
    hf_t5 = Tokenizer.from_file(os.path.join(t5, "tokenizer.json"))
    hf_class = T5TokenizerFast.from_pretrained(t5).backend_tokenizer
    texts = texts_for([hf_clip, hf_t5])
    with open(os.path.join(out, "texts.jsonl"), "w") as f:
        f.writelines(json.dumps(t, ensure_ascii="\u2028" in t or "\x85" in t or i % 3 == 0) + "\n" for i, t in enumerate(texts))
    record(hf_clip, texts, clip)
    clusters = os.path.join(out, "clusters")
    make_clusters(clusters)
    record(Tokenizer.from_file(os.path.join(clusters, "tokenizer.json")), texts, clusters)
    rows = record(hf_t5, texts, t5)
    with open(os.path.join(t5, "class.txt"), "w") as f:
        for i, t in enumerate(texts):
            row = " ".join(map(str, hf_class.encode(t).ids))
            if row != rows[i]:
                f.write("%d: %s\n" % (i, row))


if __name__ == "__main__":
    main()
