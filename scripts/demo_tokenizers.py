"""demo_tokenizers.py - cuts the demo checkpoint's two small tokenizers out of FLUX.1's published ones.

usage: demo_tokenizers.py FLUX_FOLDER OUT_FOLDER    (FLUX_FOLDER holds tokenizer/ and tokenizer_2/)

CLIP: the 512 byte symbols, every merge that the word list needs and the first COMMON_MERGES of the published list,
in published order, so that every kept word splits exactly as with the whole list. T5: the pieces that the word list
needs, the commonest COMMON_PIECES, all printable ASCII, each with its published score; normaliser and pre-tokeniser
are kept whole. Any English prompt therefore tokenises. Ids differ from the published ones.
Easy to get wrong: CLIP pools at the largest id (its config says eos_token_id 2), so <|endoftext|> must be last.
"""

import json
import os
import random
import sys

import demo_scenes as d

COMMON_MERGES, COMMON_PIECES = 200, 160


def words():
    """Every word, with punctuation, that the grammar can say: read off many captions of every phrasing."""
    rng = random.Random(1)
    background, codes = d.train_table(6000)
    texts = [d.caption(rng, background[i], codes[i], phrasing=i % d.PHRASINGS) for i in range(len(codes))]
    texts += [t.lower() for t in texts]
    return sorted({w for t in texts for w in t.split()}), texts


def cut_clip(source, out):
    merges = open(os.path.join(source, "merges.txt"), encoding="utf-8").read().split("\n")
    merges = [tuple(m.split()) for m in merges[1:] if len(m.split()) == 2]
    rank = {m: i for i, m in enumerate(merges)}
    vocab = json.load(open(os.path.join(source, "vocab.json"), encoding="utf-8"))
    symbols = sorted((t for t, i in vocab.items() if i < 512), key=vocab.get)
    need = set(range(COMMON_MERGES))
    plain = {"".join(c for c in w.lower() if c.isalpha()) for w in words()[0]}
    for word in sorted(plain - {""}):
        parts = list(word[:-1]) + [word[-1] + "</w>"]
        while len(parts) > 1:
            best = min(range(len(parts) - 1), key=lambda i: rank.get((parts[i], parts[i + 1]), 1 << 30))
            if (parts[best], parts[best + 1]) not in rank:
                break
            need.add(rank[(parts[best], parts[best + 1])])
            parts[best:best + 2] = [parts[best] + parts[best + 1]]
    kept = [merges[i] for i in sorted(need)]
    tokens = symbols + ["".join(m) for m in kept] + ["<|startoftext|>", "<|endoftext|>"]
    known = set(tokens)
    assert len(known) == len(tokens) and all(a in known and b in known for a, b in kept)
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "vocab.json"), "w", encoding="utf-8") as f:
        json.dump({t: i for i, t in enumerate(tokens)}, f, ensure_ascii=False, indent=0)
        f.write("\n")
    with open(os.path.join(out, "merges.txt"), "w", encoding="utf-8") as f:
        f.write("#version: 0.2\n" + "".join(f"{a} {b}\n" for a, b in kept))
    config = json.load(open(os.path.join(source, "tokenizer_config.json")))
    old = config["added_tokens_decoder"]
    config["added_tokens_decoder"] = {str(len(tokens) - 2): old["49406"], str(len(tokens) - 1): old["49407"]}
    json.dump(config, open(os.path.join(out, "tokenizer_config.json"), "w"), indent=2)
    special = json.load(open(os.path.join(source, "special_tokens_map.json")))
    json.dump(special, open(os.path.join(out, "special_tokens_map.json"), "w"), indent=2)
    return len(tokens)


def cut_t5(source, out):
    from tokenizers import Tokenizer

    path = os.path.join(source, "tokenizer.json")
    full = Tokenizer.from_file(path)
    j = json.load(open(path, encoding="utf-8"))
    vocab = j["model"]["vocab"]
    extra = [v for v in vocab if v[0].startswith("<extra_id_")]
    body = vocab[3:len(vocab) - len(extra)]
    keep = {p for text in words()[1] for p in full.encode(text, add_special_tokens=False).tokens}
    keep |= {p for p, _ in body[:COMMON_PIECES]}
    keep |= {p for p, _ in body if len(p) == 1 and (p == "\u2581" or 32 < ord(p) < 127)}
    kept = vocab[:3] + [v for v in body if v[0] in keep] + extra
    first_extra = len(kept) - len(extra)
    j["model"]["vocab"] = kept
    number = {p: first_extra + i for i, (p, _) in enumerate(extra)}
    for t in j["added_tokens"]:
        t["id"] = number.get(t["content"], t["id"])
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(j, f, ensure_ascii=False, indent=0)
    config = json.load(open(os.path.join(source, "tokenizer_config.json")))
    config["added_tokens_decoder"] = {str(number.get(v["content"], int(k))): v
                                      for k, v in config["added_tokens_decoder"].items()}
    json.dump(config, open(os.path.join(out, "tokenizer_config.json"), "w"), indent=1)
    special = json.load(open(os.path.join(source, "special_tokens_map.json")))
    json.dump(special, open(os.path.join(out, "special_tokens_map.json"), "w"), indent=1)
    cut = Tokenizer.from_file(os.path.join(out, "tokenizer.json"))
    for text in words()[1]:
        assert cut.encode(text).tokens == full.encode(text).tokens, text
    return len(kept)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    print("clip tokens:", cut_clip(os.path.join(sys.argv[1], "tokenizer"), os.path.join(sys.argv[2], "tokenizer")))
    print("t5 tokens:", cut_t5(os.path.join(sys.argv[1], "tokenizer_2"), os.path.join(sys.argv[2], "tokenizer_2")))
