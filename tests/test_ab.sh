#!/bin/sh
# test_ab.sh - ditto ab as a user meets it: exit codes, streams, and, where diffusers is installed for PYTHON (python3), its own
# stages of the tiny checkpoints as the reference. What is compared how is in test_ab.c.
# Easy to get wrong: in f32 the reference differs in the last bits, so limits stand here, far above and below what is right.
. "$(dirname "$0")/shell.sh"

ZIMAGE=$GOLDEN/tiny-zimage
SCRIPT=$(realpath "$OLDPWD/scripts/dump_reference.py" 2>/dev/null)
skipped=
small="-p cat -W 32 -H 32 --steps 2 --max-sequence-length 32 --seed 3"
ab() { "$DITTO" ab "$@"; }

works "equal" ab -m "$MODEL" $small --b "--families none"
[ "$(tail -n 1 .out)" = "equal bits: yes" ] && [ "$(grep -c '^[ab]: tiny-flux on .* seed 3$' .err)" -eq 2 ]
is $? "equal: results to standard output, words to standard error"
works "quiet" ab -m "$MODEL" $small -q --b "--families none"
[ ! -s .err ]
is $? "quiet: silent"
ab -m "$MODEL" $small -q --b "--quality high" >.out 2>.err
[ $? -eq 1 ] && [ "$(grep -c '' .err)" -eq 1 ] && grep -q '^ditto: a and b differ: first velocity_000: ' .err
is $? "different: exit 1, one line"
refused 2 "a has 2 steps and b has 3" "not comparable" ab -m "$MODEL" $small -q --b "--steps 3"
refused 2 "nowhere" "no model" ab -m nowhere $small -q --b ""
refused 2 "--b: --inject: needs a value" "a set that ends early" ab -m "$MODEL" $small -q --b "--inject"
if [ -w /dev/full ]; then
    refused 2 "standard output: cannot write" "full disk" sh -c '"$0" ab -m "$1" -p x -W 32 -H 32 --steps 1 -q --b "" >/dev/full' "$DITTO" "$MODEL"
fi
refused 2 "--sheet: none: no such folder" "a sheet in no folder" ab -m "$MODEL" $small -q --b "" --sheet none/sheet.png
works "--sheet" ab -m "$MODEL" $small -q --b "--quality high" --min-psnr 10 --sheet sheet.png --json
"$DITTO" inspect sheet.png >/dev/null && [ "$(grep -c '' .out)" -eq 1 ] && grep -q '"sheet":"sheet.png","sheet_factor":[0-9]*,' .out
is $? "--sheet, --json: one line"

# --- diffusers ---
python=${PYTHON:-python3}
if "$python" -c 'import diffusers, transformers' 2>/dev/null; then
    dump() { OMP_NUM_THREADS=1 "$python" "$SCRIPT" "$@"; }
    printf 'a cat\na small red circle\n' >p.txt
    works "dump_reference.py: FLUX.1" dump "$MODEL" flux --prompts p.txt --dtype f32 --steps 2 -W 32 -H 48 --max-sequence-length 19
    works "ab: FLUX.1" ab -m "$MODEL" --reference flux --min-psnr 90
    grep -q '^equal bits: 0 of 2 prompts$' .out && [ "$(grep -c '^first stage that differs: pooled ' .out)" -eq 2 ] && ! grep -q '^other ' .out
    is $? "ab: FLUX.1, of both prompts the embeddings are the first"
    works "dump_reference.py: Z-Image from a picture" dump "$ZIMAGE" zimage -p "a cat" --dtype f32 --steps 4 \
        --max-sequence-length 32 --cfg-scale 2.5 -n dark -i "$GOLDEN/drawing.png"
    works "ab: Z-Image from a picture" ab -m "$ZIMAGE" --reference zimage -i "$GOLDEN/drawing.png" --min-psnr 70
    grep -q '^image: .* equal bits$' .out && grep -q '^latents_001: ' .out && ! grep -q '^other \|^only in the reference' .out
    is $? "ab: Z-Image, the same image, the same steps"
    works "dump_reference.py: bf16" dump "$ZIMAGE" bf16 -p "a cat" --steps 2 -W 64 -H 64 --max-sequence-length 32
    works "ab: bf16" ab -m "$ZIMAGE" --reference bf16 --min-psnr 30
    grep -q '^b: tiny-zimage on [a-z]* in bf16: 64x64, 2 steps, seed 0$' .err && grep -q '^ids_1: I32 \[32\]: equal bits$' .out
    is $? "ab: the reference's number format and parameters"
    ! "$DITTO" ab -m "$ZIMAGE" --reference bf16 --min-psnr 30 -q --seed 1 >.out 2>.err
    is $? "ab: another seed is not near"
else skipped=dump_reference; echo "skipped: dump_reference.py: diffusers is not installed for $python"; fi
[ -z "$skipped" ] && finish
echo "$passed passed, $failed failed (1 skipped: $skipped)"
[ "$failed" -eq 0 ]
