#!/usr/bin/env python3
"""Compares ditto's token ids with those of the reference libraries, string by string: zero differences.

For every tokenizer folder below VOCABS (tokenizer.json, or CLIP's vocab.json + merges.txt) it draws strings -
prompts in many scripts, emoji sequences, control characters, white space, special tokens typed as text, very
long prompts, random code points, pieces of the vocabulary - and sweeps every Unicode code point through a few
surroundings. The reference is Tokenizer.from_file, or for CLIP without tokenizer.json the backend of
transformers' CLIPTokenizer. Easy to get wrong: both sides must see the same text, so strings travel as JSON.

Needs Python with tokenizers and, for CLIP's older layout, transformers (the pinned versions).
Usage: check_tokenizers.py --tool PROGRAM VOCABS [--count 10000] [--seed 1] [--no-sweep] [--by-class]
PROGRAM is called as `PROGRAM FOLDER [--no-special]` with JSON strings on stdin. With --by-class the reference
is what transformers builds from the folder, and padding and truncation are compared, too (PROGRAM is then
"build/release/tests/test_tokenizers class", which opens the folder as that library does).
"""
import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time

os.environ["TOKENIZERS_PARALLELISM"] = "false"

from tokenizers import Tokenizer  # noqa: E402

SENTENCES = """
a photo of an astronaut riding a horse on the moon, 8k, highly detailed
Portrait of an old fisherman, dramatic rim light, 85mm f/1.4, it's the photographer's best work
I'll say we're done; they've left, you'd know, I'm sure, don't!
An isometric low-poly render (octane) of a ramen shop @ night -- neon, rain :: --ar 16:9 --v 5.2
Ein Gemälde von Füchsen im Schneegestöber, naß und müde, Öl auf Leinwand, Größe 40×60 cm
Une forêt enchantée à l'aube, où l'œil ne voit qu'ombres bleutées ; très détaillé, « éthéré »
Un niño con una piñata en la plaza mayor, ¿qué más?, ¡qué día!
Uma ilustração de um dragão sobrevoando São Paulo, coração, não é só isso
Ritratto di una città più bella del mondo, perché no?
Een prachtige zonsondergang boven de Friese meren, geïllustreerd
Zażółć gęślą jaźń, obraz olejny przedstawiający Kraków w deszczu
Příliš žluťoučký kůň úpěl ďábelské ódy, ilustrace
Árvíztűrő tükörfúrógép, akvarell
Pijamalı hasta yağız şoföre çabucak güvendi, İstanbul IŞIK ışık
Một bức ảnh chụp con mèo đang ngồi trên chiếc ghế dài, Hà Nội, nghệ thuật
Đường phố Sài Gòn về đêm, mưa, ánh đèn
Кошка сидит на подоконнике, за окном идёт снег, объёмный свет, ёлка
Їжак і Ґедзь у лісі, олійний живопис, п'ять кольорів
Στο βουνό ένας λύκος, ηλιοβασίλεμα, ΣΊΣΥΦΟΣ
Արևածագ Արարատ լեռան վրա, յուղաներկ
მთები და ზღვა, აკვარელი, ᲥᲐᲠᲗᲣᲚᲘ
צילום של חתול שָׁלוֹם על הגדר, אור רך
لوحة زيتية لقطة تجلس على السور، ضوء ناعم، مُحَمَّد ﷺ
یک گربهٔ ایرانی روی دیوار، نورپردازی سینمایی، می‌خواهم
एक बिल्ली की तस्वीर, सूर्यास्त, हिन्दी क्षत्रिय श्री
একটি বিড়ালের ছবি, সূর্যাস্ত, ক্ষুদ্র
ਇੱਕ ਬਿੱਲੀ ਦੀ ਤਸਵੀਰ
ஒரு பூனையின் படம், சூரிய அஸ்தமனம், கொள்கை
ఒక పిల్లి చిత్రం, సూర్యాస్తమయం
ಒಂದು ಬೆಕ್ಕಿನ ಚಿತ್ರ
ഒരു പൂച്ചയുടെ ചിത്രം
บ้านไม้ริมน้ำ ภาพถ่าย แสงสวย น้ำตก
ຮູບຖ່າຍຂອງແມວ
ကြောင်တစ်ကောင်၏ဓာတ်ပုံ
រូបថតឆ្មា
一只猫坐在窗台上，窗外下着雪，电影光效，8K
一隻貓坐在窗台上，電影感光線「傑作」
猫が窓辺に座っている写真、雪、ガラス、がき゚ハ゜ンﾊﾟﾝｶﾞ
고양이가 창가에 앉아 있는 사진, 눈 내리는 밤, 한글 각 ㄱㅏㄱ
የድመት ፎቶ
ᏣᎳᎩ ᎦᏬᏂᎯᏍᏗ ꮳꮃꭹ
ᐃᓄᒃᑎᑐᑦ ᖃᓂᐅᔮᖅᐸᐃᑦ
ߒߞߏ ߝߘߊߞߎ
Ａ ｆｕｌｌ－ｗｉｄｔｈ　ｐｒｏｍｐｔ， № ℡ ㎏ ㍿ ﬁ ﬂ ½ ² ™ © ® …
𝔄 𝕓𝕠𝕝𝕕 𝓢𝓬𝓻𝓲𝓹𝓽, 𝟙𝟚𝟛, ⅠⅡⅢ ⅳ, ①②③, ١٢٣, १२३, ௧௨௩
Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞͉͚̯̞̠͍A̴̵̜̰͔ͫ͗͢L̠ͨͧͩ͘G̴̻͈͍͔̹̑͗̎̅͛́Ǫ̵̹̻̝̳͂̌̌͘! e\u0301 n\u0303 A\u030a o\u0302\u0301
{"prompt": "a cat", 'w': [1, 2.5], <b>html</b> & C:\\path\\to, $HOME #tag 100% a_b *bold* ~x~ `code` ^2 |x|
3.14159 -273.15 1,000,000 0x1F 2024-05-17T12:00:00Z 12:30 50/50 v1.2.3-rc4
Ġ▁ģ ▁▁ ▁a </w> <unk> <0x0A> ##ing Ċ ĉ Â
""".strip().split("\n")

EMOJI = ("😀 👍🏽 👨‍👩‍👧‍👦 🏳️‍🌈 🐈‍⬛ ❤️ ❤ ☺️ ☹ 🇫🇷🇩🇪🇯🇵 🧑🏿‍🚀 #️⃣ 1️⃣ ©️ ™️ 🫠 🫨 🪿 👩🏻‍❤️‍💋‍👨🏾 🏴󠁧󠁢󠁥󠁮󠁧󠁿 🤷‍♂️ ‼️ ⁉ 〰️ ㊗️ Ⓜ️ 🅰️").split(" ")
SPACES = [" ", "  ", "   ", "\t", "\n", "\r\n", "\r", "\x0b", "\x0c", "\x85", "\xa0", "\u1680", "\u2003", "\u2009", "\u200a",
          "\u2028", "\u2029", "\u202f", "\u205f", "\u3000", "\u200b", "\ufeff", "\u180e", "\u2060", "\n\n\n", " \n ", "\u00ad"]
CONTROLS = [chr(c) for c in list(range(32)) + list(range(0x7F, 0xA0))] + ["\u200c", "\u200d", "\u200e", "\u202e", "\u2066",
            "\ufff9", "\ufffd", "\ufffe", "\uffff", "\U000e0001", "\U000e0041", "\U0010ffff", "\ufe0f", "\u034f", "\u061c"]
BLOCKS = [(0x20, 0x7F), (0x80, 0x250), (0x250, 0x300), (0x300, 0x370), (0x370, 0x400), (0x400, 0x530), (0x530, 0x600), (0x600, 0x700),
          (0x700, 0x900), (0x900, 0xE00), (0xE00, 0x1100), (0x1100, 0x1200), (0x1200, 0x1400), (0x1400, 0x1700), (0x1700, 0x1AB0),
          (0x1AB0, 0x1E00), (0x1E00, 0x2000), (0x2000, 0x2100), (0x2100, 0x2200), (0x2200, 0x2C00), (0x2C00, 0x2E80), (0x2E80, 0x3100),
          (0x3100, 0x3400), (0x3400, 0x4E00), (0x4E00, 0xA000), (0xA000, 0xAC00), (0xAC00, 0xD7B0), (0xD7B0, 0xD800), (0xE000, 0xF900),
          (0xF900, 0xFB00), (0xFB00, 0xFE00), (0xFE00, 0xFF00), (0xFF00, 0x10000), (0x10000, 0x10A00), (0x10A00, 0x11000),
          (0x11000, 0x12000), (0x12000, 0x14000), (0x16000, 0x17000), (0x17000, 0x1B000), (0x1B000, 0x1D000), (0x1D000, 0x1D400),
          (0x1D400, 0x1E000), (0x1E000, 0x1F000), (0x1F000, 0x1FB00), (0x1FB00, 0x20000), (0x20000, 0x2FA20), (0x2FA20, 0x33480),
          (0xE0000, 0xE01F0)]
MARKS = [chr(c) for c in (0x300, 0x301, 0x302, 0x303, 0x307, 0x308, 0x30A, 0x315, 0x323, 0x327, 0x328, 0x334, 0x338, 0x340, 0x341,
         0x343, 0x344, 0x345, 0x93C, 0x94D, 0x9BE, 0xBBE, 0x1161, 0x11A8, 0x3099, 0x309A, 0x200D, 0xFE0F, 0x20E3, 0x1F3FD, 0x653, 0x5B4,
         0x5B8, 0xE38, 0xF71, 0xF72, 0x110BA, 0x1D165, 0x1D16E, 0xE0100, 0x600, 0x6DD, 0x110BD, 0x903, 0x1D9C, 0xFF9E)]


def any_point(r):
    while True:
        c = r.randrange(0x110000) if r.random() < 0.3 else r.randrange(0x10000) if r.random() < 0.3 else r.randrange(*r.choice(BLOCKS))
        if not 0xD800 <= c <= 0xDFFF:
            return chr(c)


def strings(count, seed, pieces, added):
    """A deterministic list of `count` strings, nine kinds in turn."""
    r = random.Random(seed)
    words = [w for s in SENTENCES for w in s.split(" ")]

    def prompt():
        text = " ".join(r.choice(words) if r.random() < 0.5 else r.choice(SENTENCES) for _ in range(r.randrange(1, 12)))
        return text.upper() if r.random() < 0.1 else text.title() if r.random() < 0.1 else text

    def special():
        out = ""
        for _ in range(r.randrange(1, 7)):
            token = r.choice(added)
            token = token.upper() if r.random() < 0.15 else token[:-1] if r.random() < 0.1 else token
            out += r.choice(["", " ", "  ", "x", r.choice(words), "\n", "<", "<|", "!"]) + token
        return out + r.choice(["", " ", "a", " b", "\n"])

    kinds = [
        prompt,
        prompt,
        lambda: "".join(r.choice(EMOJI) + r.choice(["", " ", "a", "\u200d", "\ufe0f"]) for _ in range(r.randrange(1, 12))),
        lambda: "".join(r.choice(CONTROLS + SPACES) if r.random() < 0.4 else r.choice(words) for _ in range(r.randrange(1, 20))),
        lambda: r.choice(SPACES).join(r.choice(words) + r.choice(SPACES) * r.randrange(4) for _ in range(r.randrange(1, 9))),
        special,
        lambda: "".join(any_point(r) + (r.choice(MARKS) * r.randrange(1, 3) if r.random() < 0.35 else "") for _ in range(r.randrange(1, 40))),
        lambda: "".join(r.choice(pieces) for _ in range(r.randrange(1, 14))),
        lambda: "".join(r.choice(["a", "A", "!", ".", "-", "ha", "é", "猫", "ก", "=", "0", "'s", "'", " ", "▁", "z", any_point(r)])
                        * r.randrange(1, 40) for _ in range(r.randrange(1, 6))),
    ]
    out = ["", " ", "\n", "\0", "a\0b", " a", "a ", "  a  b  "]
    out += SENTENCES + EMOJI + [w for w in added]
    out += [" ".join(r.choice(words) for _ in range(5000)) for _ in range(6)]
    out += ["a" * 20000, "ab" * 10000, "猫" * 5000, "e\u0301" * 3000, " " * 5000, "!?" * 4000]
    while len(out) < count:
        out.append(kinds[len(out) % len(kinds)]())
    return out


def sweep():
    """Every code point alone, between letters, before and after marks that compose or attach."""
    for c in range(0x110000):
        if not 0xD800 <= c <= 0xDFFF:
            s = chr(c)
            yield from (s, "a" + s + "b", "x " + s + " 1", s + "\u0301", "\u2122" + s + "\u0301", "'" + s,
                        "e" + s + "\u0323", s + "\u2122\u0301", s + "\u200d\u2122\u0301 \u00a9" + s + "\u200d\u2122\u0301",
                        "\u0915\u094d" + s + "\u0301 " + s + "\u094d\u0958\u0301 \u0915" + s + "\u0958\u0301")


def reference(folder, by_class):
    path = os.path.join(folder, "tokenizer.json")
    if by_class:
        from transformers import AutoTokenizer

        return AutoTokenizer.from_pretrained(folder).backend_tokenizer
    if os.path.exists(path):
        return Tokenizer.from_file(path)
    from transformers import CLIPTokenizer

    return CLIPTokenizer.from_pretrained(folder).backend_tokenizer


def ours(tool, folder, texts, specials):
    with tempfile.TemporaryFile("w+") as lines:
        for text in texts:
            lines.write(json.dumps(text, ensure_ascii=len(text) % 2 == 0) + "\n")
        lines.seek(0)
        command = tool.split() + [folder] + ([] if specials else ["--no-special"])
        done = subprocess.run(command, stdin=lines, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit("%s failed with exit code %d" % (" ".join(command), done.returncode))
    return done.stdout.split("\n")[:-1]


def compare(name, tool, folder, hf, texts, specials):
    """Number of strings whose ids differ; the first few are printed."""
    mine = ours(tool, folder, texts, specials)
    if len(mine) != len(texts):
        sys.exit("%s: %d lines for %d strings" % (name, len(mine), len(texts)))
    wrong = 0
    for text, line in zip(texts, mine):
        want = hf.encode(text, add_special_tokens=specials).ids
        if line != "[" + ",".join(map(str, want)) + "]":
            wrong += 1
            if wrong <= 5:
                print("  %s: %s\n    reference %s\n    ditto     %s" % (name, json.dumps(text)[:300], str(want)[:300], line[:300]))
    return wrong


def compare_fixed(name, tool, folder, texts):
    """The pipelines' call, padding and truncation included, at the model's own length and a short one."""
    from transformers import AutoTokenizer

    hf, wrong = AutoTokenizer.from_pretrained(folder), 0
    texts = [t for t in texts if "\n" not in t]
    for length in (min(hf.model_max_length, 512), 9):
        command = tool.split()[:1] + ["fixed", folder, str(length)]
        done = subprocess.run(command, input="".join(t + "\n" for t in texts).encode(), stdout=subprocess.PIPE, check=True)
        for text, line in zip(texts, done.stdout.decode().split("\n")[:-1], strict=True):
            want = hf(text, padding="max_length", max_length=length, truncation=True).input_ids
            if line != "[" + ",".join(map(str, want)) + "]":
                wrong += 1
                if wrong <= 5:
                    print("  %s at %d: %s\n    reference %s\n    ditto     %s" % (name, length, json.dumps(text)[:300], str(want)[:300], line[:300]))
    return wrong


def folders(root):
    for at, _, files in sorted(os.walk(root, followlinks=True)):
        if "tokenizer.json" in files or {"vocab.json", "merges.txt"} <= set(files):
            yield at


def main():
    p = argparse.ArgumentParser()
    p.add_argument("vocabs")
    p.add_argument("--tool", required=True)
    p.add_argument("--count", type=int, default=10000)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--by-class", action="store_true", help="compare with what transformers builds (PROGRAM: tok_open_class)")
    p.add_argument("--no-sweep", action="store_true")
    a = p.parse_args()
    total = checked = 0
    for folder in folders(a.vocabs):
        began = time.time()
        hf = reference(folder, a.by_class)
        vocab = sorted(hf.get_vocab())
        added = sorted(t.content for t in hf.get_added_tokens_decoder().values())
        texts = strings(a.count, a.seed, vocab, added[:: max(1, len(added) // 100)] or ["</s>"])
        wrong = compare(folder, a.tool, folder, hf, texts, True) + compare(folder, a.tool, folder, hf, texts[:2000], False)
        if a.by_class:
            wrong += compare_fixed(folder, a.tool, folder, texts[:3000])
        swept = 0
        if not a.no_sweep:
            batch = []
            for text in sweep():
                batch.append(text)
                if len(batch) == 200000:
                    wrong += compare(folder, a.tool, folder, hf, batch, False)
                    swept, batch = swept + len(batch), []
            wrong += compare(folder, a.tool, folder, hf, batch, False)
            swept += len(batch)
        print("%s: %d strings and %d of the sweep compared, %d differ (%.0f s)" % (folder, len(texts), swept, wrong, time.time() - began))
        total, checked = total + wrong, checked + 1
    if not checked:
        sys.exit("%s: no tokenizer folder below it" % a.vocabs)
    sys.exit(total != 0)


if __name__ == "__main__":
    main()
