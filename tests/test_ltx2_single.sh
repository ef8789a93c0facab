#!/bin/sh
# test_ltx2_single.sh - LTX-2 in one file of the original layout (scripts/single_ltx2.py writes it from test_ltx2's tiny folder):
# frames, sound and latents of the folder, bit for bit; what is missing is named in one line.
# Easy to get wrong: LTX-2 in one file has no perturbed attention (diffusers' converter leaves it off), the tiny folder has.
BUILD=$(realpath "${BUILD:-build/release}" 2>/dev/null || echo "${BUILD:-build/release}")
. "$(dirname "$0")/shell.sh"
WRITE=$BUILD/tests/test_ltx2
SCRIPT=$GOLDEN/../../scripts/single_ltx2.py
[ -x "$WRITE" ] || { echo "FAIL: $WRITE is not built"; echo "0 passed, 1 failed"; exit 1; }
python3 -c 'import json' 2>/dev/null || { echo "LTX-2 in one file: skipped: no python3"; finish; exit; }
(cd "$GOLDEN/../.." && "$WRITE" --write "$here/ltx2") || { echo "FAIL: no folder"; echo "0 passed, 1 failed"; exit 1; }
sed -i 's/\("perturbed_attn":[ \t]*\)true/\1false/' ltx2/transformer/config.json
grep -q 'perturbed_attn":[[:space:]]*false' ltx2/transformer/config.json
is $? "the folder's config is of LTX-2"

one() { python3 "$SCRIPT" ltx2 "$@"; }
draw() { # MODEL OUT [OPTION...]
    model=$1 out=$2
    shift 2
    "$DITTO" generate -m "$model" --device cpu -q -W 96 -H 64 --frames 9 --steps 2 --max-sequence-length 16 --stg-blocks 1 --seed 3 \
        -p "a cat" -o "$out%02d.png" --dump "$out" --no-metadata "$@"
}
same() { # NAME DIR DIR
    n=0
    for f in "$2"/*.safetensors; do
        n=$((n + 1))
        cmp -s "$f" "$3/$(basename "$f")" || bad "$1: $(basename "$f") differs"
    done
    [ "$n" -gt 4 ] && [ "$n" -eq "$(ls "$3"/*.safetensors | wc -l)" ]
    is $? "$1: $n stages"
    [ -f "$3/audio.safetensors" ]
    is $? "$1: sound"
    for f in "$2"??.png; do
        cmp -s "$f" "$3${f#"$2"}" || bad "$1: $f differs"
    done
    [ -f "${3}09.png" ]
    is $? "$1: frames"
}

mkdir -p apart
works "written" one apart/tiny.safetensors
works "the folder" draw ltx2 a
works "the file" draw apart/tiny.safetensors b --text-encoder ltx2
same "the file" a b
works "a picture: the folder" draw ltx2 c -i "$GOLDEN/photo.jpg:-1:0.5" --image-crf 0
works "a picture: the file" draw apart/tiny.safetensors d --text-encoder ltx2 -i "$GOLDEN/photo.jpg:-1:0.5" --image-crf 0
same "a picture" c d
works "two rounds: the folder" draw ltx2 f --upscale 2 -W 192 -H 128
works "two rounds: the file" draw apart/tiny.safetensors g --text-encoder ltx2 --upscale 2 -W 192 -H 128
same "two rounds" f g
works "another prefix" one ltx2/short.safetensors --prefix diffusion_model.
works "the text encoder beside the file" draw ltx2/short.safetensors e
same "another prefix" a e

cp apart/tiny.safetensors apart/tiny-distilled.safetensors
works "sigmas, dev" "$DITTO" sigmas -m apart/tiny.safetensors --text-encoder ltx2 --steps 5
grep -q "mu 2.78333" .out
is $? "dev's schedule shifts: $(head -c 300 .out)"
works "sigmas, distilled" "$DITTO" sigmas -m apart/tiny-distilled.safetensors --text-encoder ltx2
! grep -q "mu 2.78333" .out
is $? "the distilled one does not"
if "$DITTO" generate -m apart/tiny.safetensors --text-encoder ltx2 --device cpu -q -W 96 -H 64 --frames 9 --steps 2 \
    --max-sequence-length 16 --stg-blocks 1 --seed 3 -p x -o x.mp4 >.out 2>.err; then
    works "verify" "$DITTO" verify x.mp4 --text-encoder ltx2 --device cpu -q
else
    grep -q libav .err || bad "an MP4: $(head -c 400 .err)"
    echo "MP4 skipped: $(head -c 120 .err)"
fi
works "inspect" "$DITTO" inspect apart/tiny.safetensors
grep -q "model.diffusion_model.audio_patchify_proj.weight" .out
is $? "inspect lists it: $(head -c 300 .out)"

refused 3 "--text-encoder DIR" "no text encoder" draw apart/tiny.safetensors x
refused 2 "has its own text encoder" "of a folder" draw ltx2 x -y --text-encoder ltx2
one apart/bad.safetensors --drop model.diffusion_model.transformer_blocks.1.attn2.q_norm.weight
refused 3 "missing: model.diffusion_model.transformer_blocks.1.attn2.q_norm.weight" "a missing tensor" draw apart/bad.safetensors x -y --text-encoder ltx2
one apart/bad.safetensors --drop vae.decoder.up_blocks.3.conv.conv.bias
refused 3 "missing: vae.decoder.up_blocks.3.conv.conv.bias" "a missing tensor of the vae" draw apart/bad.safetensors x -y --text-encoder ltx2
one apart/bad.safetensors --drop vocoder.conv_pre.weight
refused 3 "vocoder.conv_pre.weight" "a missing tensor that says a width" draw apart/bad.safetensors x -y --text-encoder ltx2
one apart/bad.safetensors --no-config
refused 3 "no __metadata__.config" "no config" draw apart/bad.safetensors x -y --text-encoder ltx2
for case in 'vae.norm_layer="group_norm"|expected "pixel_norm"' 'vae.dims=2|vae.dims: found 2, expected 3' \
    'vocoder.resblock="2"|vocoder.resblock: found "2", expected "1"' 'vocoder.stereo=false|expected true' \
    'vocoder.use_tanh_at_final=false|use_tanh_at_final: found false'; do
    one apart/bad.safetensors --set "${case%%|*}"
    refused 3 "${case#*|}" "${case%%|*}" draw apart/bad.safetensors x -y --text-encoder ltx2
done
for key in preprocessing.mel.n_mel_channels variables.mel_bins; do
    one apart/bad.safetensors --set audio_vae.model.params.ddconfig.mel_bins=null --set audio_vae.$key=16
    works "rows of the sound from $key" draw apart/bad.safetensors y -y --text-encoder ltx2
    cmp -s a/audio.safetensors y/audio.safetensors
    is $? "the same sound, from $key"
done
one apart/bad.safetensors --dtype F8_E4M3
refused 3 "LTX-2 in fp8" "fp8" draw apart/bad.safetensors x -y --text-encoder ltx2
finish
