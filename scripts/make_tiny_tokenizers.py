"""Cuts very small CLIP and T5 tokenizers out of the published ones (for the tiny golden checkpoint).

Same file layout and structure as the published folders, so the same loader reads them: CLIP keeps the 512 byte
symbols, the merges that WORDS need (in their order) and the two special tokens; T5 keeps single characters, the
pieces that WORDS need with their scores, three extra ids, and a charsmap of a few rules instead of nmt_nfkc.

Easy to get wrong: CLIP's <|endoftext|> must stay the largest id (the pooled row is argmax(ids)).
"""
import base64
import io
import json
import os
import tempfile

WORDS = ("a the small large red blue green yellow circle square triangle and on of in photo blurry left right "
         "above below background two three with bright dark painting cat sky near").split()


def clip_merges_used(words, merges):
    rank = {m: i for i, m in enumerate(merges)}
    used = set()
    for w in words:
        s = list(w[:-1]) + [w[-1] + "</w>"]      # ASCII words: byte symbols are the letters
        while len(s) > 1:
            best = min(((rank.get((a, b), 1 << 30), i) for i, (a, b) in enumerate(zip(s, s[1:]))))
            if best[0] == 1 << 30:
                break
            used.add(best[0])
            i = best[1]
            s[i:i + 2] = [s[i] + s[i + 1]]
    return [merges[i] for i in sorted(used)]


def make_clip(source, out):
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(source, "merges.txt"), encoding="utf-8") as f:
        lines = f.read().split("\n")
    merges = [tuple(x.split(" ")) for x in lines[1:48895]]
    with open(os.path.join(source, "vocab.json"), encoding="utf-8") as f:
        vocab = json.load(f)
    symbols = [k for k, v in sorted(vocab.items(), key=lambda kv: kv[1]) if v < 512]
    used = clip_merges_used(WORDS, merges)
    tokens = symbols + [a + b for a, b in used] + ["<|startoftext|>", "<|endoftext|>"]
    assert len(set(tokens)) == len(tokens)
    with open(os.path.join(out, "vocab.json"), "w", encoding="utf-8") as f:
        json.dump({t: i for i, t in enumerate(tokens)}, f, ensure_ascii=False)
    with open(os.path.join(out, "merges.txt"), "w", encoding="utf-8") as f:
        f.write(lines[0] + "\n" + "\n".join(" ".join(m) for m in used) + "\n")
    for name in ("special_tokens_map.json", "tokenizer_config.json"):
        with open(os.path.join(source, name), encoding="utf-8") as f:
            j = json.load(f)
        if "added_tokens_decoder" in j:
            j["added_tokens_decoder"] = {str(len(tokens) - 2 + i): v for i, v in
                                         enumerate(j["added_tokens_decoder"].values())}
        with open(os.path.join(out, name), "w", encoding="utf-8") as f:
            json.dump(j, f, indent=1)
    return len(tokens)


def tiny_charsmap():
    """A charsmap in SentencePiece's own format: line breaks and tabs to a space, a few full-width letters."""
    import sentencepiece as spm
    from sentencepiece import sentencepiece_model_pb2 as pb
    rules = [("9", "20"), ("A", "20"), ("D", "20"), ("A0", "20"), ("3000", "20"), ("FF01", "21"),
             ("FB01", "66 69"), ("65 301", "E9")]
    rules += [(f"{0xFF21 + i:X}", f"{0x41 + i:X}") for i in range(26)]
    rules += [(f"{0xFF41 + i:X}", f"{0x61 + i:X}") for i in range(26)]
    with tempfile.TemporaryDirectory() as d:
        tsv = os.path.join(d, "rules.tsv")
        with open(tsv, "w") as f:
            f.write("".join(f"{a}\t{b}\n" for a, b in rules))
        model = io.BytesIO()
        spm.SentencePieceTrainer.train(sentence_iterator=iter(WORDS * 20), model_writer=model, vocab_size=60,
                                       normalization_rule_tsv=tsv, model_type="unigram", minloglevel=2,
                                       hard_vocab_limit=False)
    proto = pb.ModelProto()
    proto.ParseFromString(model.getvalue())
    return base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()


def make_t5(source, out):
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(source, "tokenizer.json"), encoding="utf-8") as f:
        j = json.load(f)
    from tokenizers import Tokenizer
    real = Tokenizer.from_file(os.path.join(source, "tokenizer.json"))
    keep = {0, 1, 2}
    for w in WORDS:
        keep |= set(real.encode(w).ids)
        keep |= set(real.encode("a, " + w + "s.").ids)
    vocab = j["model"]["vocab"]
    keep |= {i for i, (p, _) in enumerate(vocab[:32000]) if len(p) == 1 and ord(p) < 128 or p == "\u2581"}
    pieces = [vocab[i] for i in sorted(keep)]
    extra = ["<extra_id_2>", "<extra_id_1>", "<extra_id_0>"]
    special = [t for t in j["added_tokens"] if t["id"] < 3]
    model = dict(j["added_tokens"][-1])
    for i, name in enumerate(extra):
        special.append({**model, "id": len(pieces) + i, "content": name})
    j["model"]["vocab"] = pieces + [[e, 0.0] for e in extra]
    j["added_tokens"] = special
    j["normalizer"]["normalizers"][0]["precompiled_charsmap"] = tiny_charsmap()
    with open(os.path.join(out, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(j, f, ensure_ascii=False, indent=1)
    names = ["<extra_id_0>", "<extra_id_1>", "<extra_id_2>"]
    with open(os.path.join(source, "tokenizer_config.json"), encoding="utf-8") as f:
        c = json.load(f)
    c["added_tokens_decoder"] = {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in special}
    c["additional_special_tokens"], c["extra_ids"] = names, 3
    with open(os.path.join(source, "special_tokens_map.json"), encoding="utf-8") as f:
        m = json.load(f)
    m["additional_special_tokens"] = names
    for name, value in (("tokenizer_config.json", c), ("special_tokens_map.json", m)):
        with open(os.path.join(out, name), "w", encoding="utf-8") as f:
            json.dump(value, f, indent=1)
    return len(j["model"]["vocab"])
