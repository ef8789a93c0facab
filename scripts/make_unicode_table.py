#!/usr/bin/env python3
"""Writes src/text/tok_unicode_table.h: the Unicode facts that tokenizer ids depend on.

The reference tokenizers mix several Unicode versions: the letter and number classes come from one
library, lower case from another, NFC from a third (Unicode 9), grapheme clusters from a fourth. The
system's PCRE2 and utf8proc have versions of their own. So the facts are not taken from any Unicode file:
this script asks the reference library itself, one code point at a time, and prints what it does. What is
easy to get wrong: the library has no call that tells a grapheme property, so each is probed through the
Precompiled normaliser, which replaces a cluster of fewer than six bytes as a whole by the replacement of
its first character (a mark after it is lost) and longer ones character by character (the mark stays).

Needs tokenizers (the pinned reference version). Usage: make_unicode_table.py > src/text/tok_unicode_table.h
"""
import struct
import sys
import unicodedata

import tokenizers
from tokenizers import Regex, normalizers

CPS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
ACUTE, VIRAMA, KA, ZWJ = "\u0301", "\u094d", "\u0915", "\u200d"


def compile_map(pairs):
    """The Precompiled normaliser of {key: replacement}: a double array in which every node owns a block of
    256 units, children at base ^ byte, values at base ^ 0."""
    blocks, values, text = [{}], {}, b""
    for key, replacement in pairs.items():
        at = 0
        for byte in key.encode():
            if byte not in blocks[at]:
                blocks.append({})
                blocks[at][byte] = len(blocks) - 1
            at = blocks[at][byte]
        values[at] = len(text)
        text += replacement.encode() + b"\0"
    base = [256 * (i + 1) for i in range(len(blocks))]
    units = [0] * (256 * (len(blocks) + 1))

    def offset(value):
        if value < 1 << 21:
            return value << 10
        assert value & 255 == 0
        return (value >> 8 << 10) | (1 << 9)

    units[0] = offset(base[0])
    for b, children in enumerate(blocks):
        for byte, child in children.items():
            position = base[b] ^ byte
            units[position] = byte | (256 if child in values else 0) | offset(position ^ base[child])
        if b in values:
            units[base[b]] = values[b] | (1 << 31)
    raw = struct.pack("<%dI" % len(units), *units)
    return normalizers.Precompiled(struct.pack("<I", len(raw)) + raw + text)


def kept(pattern):
    """Code points that the regular expression class matches."""
    everything = "".join(map(chr, CPS))
    return set(map(ord, normalizers.Replace(Regex("[^" + pattern + "]"), "").normalize_str(everything)))


def probe(form, mapping, hit):
    """Code points c for which normalising form(c) under the map satisfies hit(c, result)."""
    precompiled = compile_map(mapping)
    return {c for c in CPS if hit(chr(c), precompiled.normalize_str(form(chr(c))))}


def graphemes():
    acute_kept = lambda c, out: out.endswith("!" + ACUTE)
    found = {}
    found["ATTACHES"] = probe(lambda c: "a" + c, {"a": "!"}, lambda c, out: out == "!")
    found["PREPEND"] = probe(lambda c: c + "a" + ACUTE, {"a": "!"}, acute_kept) - {ord("a")}
    found["CONTROL"] = probe(lambda c: c + "\u0344" + ACUTE, {"\u0344": "!"}, lambda c, out: not out.endswith(ACUTE))
    found["PICTOGRAPH"] = probe(lambda c: c + ZWJ + "\u2122" + ACUTE, {"\u2122": "!"}, acute_kept)
    found["EXTEND"] = probe(lambda c: "\u00a9" + c + ZWJ + "\u2122" + ACUTE, {"\u2122": "!"}, acute_kept)
    found["EXTEND"] -= found["PICTOGRAPH"]
    found["CONSONANT"] = probe(lambda c: c + VIRAMA + KA + ACUTE, {KA: "!"}, acute_kept)
    found["LINKER"] = probe(lambda c: KA + c + KA + ACUTE, {KA: "!"}, acute_kept)
    found["LINKED"] = probe(lambda c: KA + VIRAMA + c + KA + ACUTE, {KA: "!"}, acute_kept)
    for name in ("LINKER", "LINKED", "CONSONANT"):  # a Prepend keeps the mark for its own reason
        found[name] -= found["PREPEND"]
    # c itself may be KA or carry a virama's place: a consonant after a virama joins, but is no extender
    found["LINKED"] &= found["ATTACHES"]
    found["LINKER"] &= found["ATTACHES"]
    found["EXTEND"] &= found["ATTACHES"]
    return found


def normalisation():
    """Ranges over which the system's NFC may be used: every code point that the reference's NFC moves or
    changes, joined over gaps of code points that are assigned and inert. All others stay as they are."""
    nfd, nfc = normalizers.NFD().normalize_str, normalizers.NFC().normalize_str
    active = set()
    for c in CPS:
        s = chr(c)
        d = nfd(s)
        if d != s:
            active.add(c)
            if not 0xAC00 <= c <= 0xD7A3:
                active.update(map(ord, d))
        elif nfd(s + "\u0334") != s + "\u0334" or nfd("\u093c" + s) != "\u093c" + s:
            active.add(c)
        if nfc(s) != s:
            active.add(c)
    for lo, hi in ((0x1100, 0x1112), (0x1161, 0x1175), (0x11A8, 0x11C2)):
        active.update(range(lo, hi + 1))
    parts = set()
    for c in CPS:
        d = unicodedata.normalize("NFD", chr(c))
        if d != chr(c):
            parts.update(map(ord, d))
    inert = lambda c: (unicodedata.category(chr(c)) not in ("Cn", "Cs") and not unicodedata.combining(chr(c))
                       and unicodedata.normalize("NFD", chr(c)) == chr(c) and c not in parts)
    ranges, ordered = [], sorted(active)
    for c in ordered:
        if ranges and all(inert(x) for x in range(ranges[-1][1] + 1, c)) and c - ranges[-1][1] < 0x400:
            ranges[-1][1] = c
        else:
            ranges.append([c, c])
    # Of these, the ones whose presence can change anything: reordered, replaced, or joined to what precedes.
    moves = set(range(0x1161, 0x1176)) | set(range(0x11A8, 0x11C3))
    for c in CPS:
        s = chr(c)
        d = nfd(s)
        if nfc(s) != s or nfd(s + "\u0334") != d + "\u0334" or nfd("\u093c" + s) != "\u093c" + d:
            moves.add(c)
        elif d != s and not 0xAC00 <= c <= 0xD7A3:
            moves.update(map(ord, d[1:]))
    return {c for lo, hi in ranges for c in range(lo, hi + 1)}, moves


def lower():
    """Runs (first, last, step, delta) of single-character lower case."""
    f = normalizers.Lowercase().normalize_str
    runs = []
    for c in CPS:
        low = f(chr(c))
        if low == chr(c):
            continue
        if len(low) != 1:
            assert (c, low) == (0x130, "i\u0307"), hex(c)
            continue
        delta = ord(low) - c
        if runs and runs[-1][3] == delta:
            first, last, step, _ = runs[-1]
            gap = c - last
            if (step == 0 and gap <= 2) or gap == step:
                runs[-1] = (first, c, gap, delta)
                continue
        runs.append((c, c, 0, delta))
    return [(a, b, s or 1, d) for a, b, s, d in runs]


def wrap(items):
    line, out = "   ", []
    for item in items:
        if len(line) + len(item) + 2 > 110:
            out.append(line)
            line = "   "
        line += " " + item + ","
    return "\n".join(out + [line])


def main():
    sets = {"LETTER": kept("\\p{L}"), "NUMBER": kept("\\p{N}"), "SPACE": kept("\\s")}
    strip = normalizers.Strip().normalize_str
    rust = {c for c in CPS if strip("a" + chr(c)) == "a"}
    assert rust == sets["SPACE"], "white space of the two reference libraries differs"
    sets["COMPOSES"], sets["MOVES"] = normalisation()
    assert sets["MOVES"] <= sets["COMPOSES"]
    sets.update(graphemes())
    runs = lower()
    sets["CASED"] = {c for a, b, s, _ in runs for c in range(a, b + 1, s)} | {0x130}
    names = list(sets)
    flags = [0] * 0x110000
    for bit, name in enumerate(names):
        for c in sets[name]:
            flags[c] |= 1 << bit
    steps, last = [], 0
    for c in range(0x110000):
        if flags[c] != last:
            steps.append((c, flags[c]))
            last = flags[c]
    print("/* tok_unicode_table.h - generated by scripts/make_unicode_table.py from the behaviour of tokenizers %s;"
          % tokenizers.__version__)
    print(" * not written by hand, not meant to be read. Included by tok_unicode.c alone. lint: allow-long (a table)")
    print(" * What the flags mean stands in tok_unicode.h. */")
    print("#ifndef TOK_UNICODE_TABLE_H\n#define TOK_UNICODE_TABLE_H\n")
    print("/* {first code point, flags}: the flags hold until the next row. */")
    print("static const struct { uint32_t first; uint16_t flags; } STEPS[] = {")
    print(wrap("{0x%X,0x%X}" % s for s in steps))
    print("};\n\n/* {first, last, step, what to add}: lower case. U+0130 gives two characters and is left to the code. */")
    print("static const struct { uint32_t first, last, step; int32_t delta; } LOWER[] = {")
    print(wrap("{0x%X,0x%X,%d,%d}" % r for r in runs))
    print("};\n\n#endif")
    for name in names:
        print("%-10s bit %2d %7d code points" % (name, names.index(name), len(sets[name])), file=sys.stderr)
    print("%d steps, %d lower case runs" % (len(steps), len(runs)), file=sys.stderr)


if __name__ == "__main__":
    main()
