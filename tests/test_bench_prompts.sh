#!/bin/sh
# test_bench_prompts.sh - scripts/bench_prompts.py on the tiny Z-Image: a table of three figures, captions of the lengths that it says,
# and an exit code by its goals. The figures themselves mean something on a GPU only.
. "$(dirname "$0")/shell.sh"
command -v python3 >/dev/null || { echo "0 passed, 0 failed (python3 is missing)"; exit 0; }
script=$GOLDEN/../../scripts/bench_prompts.py
table() { python3 "$script" -m "$GOLDEN/tiny-zimage" --bin "$DITTO" --device cpu -W 64 -H 64 --steps 2 "$@" >.out 2>.err; }

table --jobs 5 --rounds 1 --text-runs 2 --quality-prompts 3 --out t.txt
rc=$?
[ $rc -le 1 ] && cmp -s .out t.txt && [ "$(wc -l <t.txt)" -eq 6 ]
is $? "a table, kept too: exit $rc, $(head -c 300 .err)"
grep -qE '^mixed    5 prompts of 32, 64, 96, 128, 160 rows: [0-9.]+ s; of 96: [0-9.]+ s; ratio [0-9.]+ ' t.txt
is $? "mixed lengths: $(cat t.txt)"
grep -qE '^text     encoder alone, 64 tokens: [0-9.]+ ms \(.*, 2 runs' t.txt
is $? "text"
grep -q '^quality  high against lossless, latents: equal in all; 3 of 3 equal' t.txt && # this transformer has no gated family on the cpu
    grep -qE '^quality  high against lossless, pixels: [4-6][0-9]\.[0-9] dB at least' t.txt
is $? "quality"

# what it takes for a caption of so many rows is one, by the model's own tokenizer
cat >rows.py <<'P'
import sys
sys.path.insert(0, sys.argv[1])
import bench_prompts as b
class A: bin, model = sys.argv[2:4]
b.prompts("p.jsonl", [b.words_for(A, r) for r in b.ROWS], 10)
import json
texts = [json.loads(line)["prompt"] for line in open("p.jsonl")]
print(len(set(texts)), [-(-b.tokens(A, t) // 32) * 32 for t in texts])
P
works "prompts of a length" python3 rows.py "$(dirname "$script")" "$DITTO" "$GOLDEN/tiny-zimage"
grep -qF '10 [32, 64, 96, 128, 160, 32, 64, 96, 128, 160]' .out
is $? "distinct prompts of the lengths wanted: $(cat .out)"
rm -rf "$(dirname "$script")/__pycache__"

python3 "$script" -m nowhere --bin "$DITTO" --device cpu >.out 2>.err
[ $? -eq 1 ] && grep -q 'nowhere' .err && [ ! -s .out ]
is $? "no model"

finish
