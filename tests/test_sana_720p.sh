#!/bin/sh
# test_sana_720p.sh - SANA-Video's 720p checkpoint as a user meets it, with a tiny folder that test_sana_720p writes: frames, what
# --dry-run, sigmas and noise say, decode of kept latents, a batch, ab against a run's stages, pictures, MP4 and verify, refusals.
# Without libav the parts that write MP4 are skipped by name, and the last line says so.
# Easy to get wrong: decode must be told the size that the latents came from.
BUILD=$(realpath "${BUILD:-build/release}" 2>/dev/null || echo "${BUILD:-build/release}")
. "$(dirname "$0")/shell.sh"
WRITE=$BUILD/tests/test_sana_720p
[ -x "$WRITE" ] || { echo "FAIL: $WRITE is not built"; echo "0 passed, 1 failed"; exit 1; }
(cd "$GOLDEN/../.." && "$WRITE" --write "$here/sana") || { echo "FAIL: no folder"; echo "0 passed, 1 failed"; exit 1; }

size="-W 96 -H 64 --frames 9"
sana() { # shellcheck disable=SC2086
    "$DITTO" generate -m sana --device cpu -q $size --steps 2 --max-sequence-length 24 --seed 3 "$@"
}
says() { # NAME TEXT: of the command before
    grep -qF -- "$2" .out
    is $? "$1: \"$2\" is not in \"$(head -c 600 .out)\""
}
same() { # NAME A B: two series of frames
    for i in 1 5 9; do
        cmp -s "$2$i.png" "$3$i.png"
        is $? "$1: frame $i"
    done
}

works "a dry run" "$DITTO" generate -m sana --device cpu -p x --dry-run
says "a dry run" "1280 x 704"
says "a dry run" "81 frames"
works "sigmas" "$DITTO" sigmas -m sana --steps 2
says "sigmas" "999"
# shellcheck disable=SC2086
works "noise" "$DITTO" noise -m sana --seed 3 $size
says "noise" "noise      F32 [1, 8, 2, 2, 3], seed 3"
works "frames" sana -p "a cat" -o "a%d.png" --no-metadata --dump all
[ -f a9.png ] && [ -f all/latents_001.safetensors ]
is $? "frames and stages are there"
# shellcheck disable=SC2086
works "decode" "$DITTO" decode all/latents.safetensors -m sana --device cpu -q $size -o "b%d.png" --no-metadata
same "decode" a b
works "ab" "$DITTO" ab -m sana --reference all --device cpu
says "ab" "equal bits: yes"
works "a picture" sana -p "a cat" -i "$GOLDEN/drawing.png" -o "e%d.png"
! cmp -s a1.png e1.png
is $? "a picture changes nothing"
works "f32" sana -p "a cat" --vae-dtype f32 -o "f%d.png"
! cmp -s a1.png f1.png
is $? "--vae-dtype changes nothing"

refused 2 "--width 112: expected a multiple of 32, at least 64; the nearest are 96 and 128" "a width" sana -p x -o "x%d.png" -W 112
refused 2 "--frames 10: expected 1 and a multiple of 8; the nearest are 9 and 17" "frames" sana -p x -o "x%d.png" --frames 10
sed 's/AutoencoderKLLTX2Video/AutoencoderDC/' sana/model_index.json >index && cp index sana/model_index.json
refused 3 "found class AutoencoderDC, expected AutoencoderKLWan or AutoencoderKLLTX2Video" "another autoencoder" sana -p x -o "x%d.png"
sed 's/AutoencoderDC/AutoencoderKLLTX2Video/' index >sana/model_index.json
mv sana/vae sana/away
refused 3 "missing vae" "no autoencoder" sana -p x -o "x%d.png"
mv sana/away sana/vae

if sana -p "a cat" -o a.mp4 >.out 2>.err; then
    good
    works "inspect" "$DITTO" inspect a.mp4
    says "inspect" '"vae_dtype":"bf16"'
    works "verify" "$DITTO" verify a.mp4 -m sana --device cpu -q
    printf '{"prompt": "a cat", "output": "c.mp4", "seed": 3}\n{"prompt": "a dog", "output": "d.mp4", "seed": 4}\n' >jobs.jsonl
    # shellcheck disable=SC2086
    works "batch" "$DITTO" batch jobs.jsonl --out . -m sana --device cpu -q $size --steps 2 --max-sequence-length 24
    works "compare" "$DITTO" compare a.mp4 c.mp4
    ! "$DITTO" compare a.mp4 d.mp4 >.out 2>.err
    is $? "two prompts, one clip"
    works "a clip from a picture" sana -p "a cat" -i "$GOLDEN/drawing.png" -o b.mp4
    works "verify" "$DITTO" verify b.mp4 -m sana --device cpu -q -i "$GOLDEN/drawing.png"
else
    grep -q libav .err || bad "an MP4: $(head -c 400 .err)"
    skipped=", MP4 skipped: $(head -c 120 .err)"
fi
echo "SANA-Video 720p$skipped"
finish
