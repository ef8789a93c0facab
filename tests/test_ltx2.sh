#!/bin/sh
# test_ltx2.sh - LTX-2 as a user meets it, with a tiny folder that test_ltx2 writes: from a prompt to an MP4 with sound and back
# (verify, decode), what --dry-run, sigmas and noise say, pictures through H.264, two rounds, refusals.
# Without libav the parts that write MP4 are skipped by name, and the last line says so.
# Easy to get wrong: ditto must not leave latents behind when all is well.
BUILD=$(realpath "${BUILD:-build/release}" 2>/dev/null || echo "${BUILD:-build/release}")
. "$(dirname "$0")/shell.sh"
WRITE=$BUILD/tests/test_ltx2
[ -x "$WRITE" ] || { echo "FAIL: $WRITE is not built"; echo "0 passed, 1 failed"; exit 1; }
(cd "$GOLDEN/../.." && "$WRITE" --write "$here/ltx2") || { echo "FAIL: no folder"; echo "0 passed, 1 failed"; exit 1; }

ltx2() {
    "$DITTO" generate -m ltx2 --device cpu -q -W 96 -H 64 --frames 9 --steps 2 --max-sequence-length 16 --stg-blocks 1 --seed 3 "$@"
}
says() { # NAME TEXT: of the command before
    grep -qF -- "$2" .out
    is $? "$1: \"$2\" is not in \"$(head -c 600 .out)\""
}

works "a dry run" ltx2 -p x --dry-run --upscale 2 -W 192 -H 128
says "a dry run" "4 passes a step: stg 1 (blocks 1), modality 3, rescale 0.7; sound: cfg 7"
says "a dry run" "two: 96 x 64, then 192 x 128"
says "a dry run" "tokens         encoder 1: 2 of 16"
works "passes that are off" ltx2 -p x --dry-run --cfg-scale 1 --audio-cfg-scale 1 --stg-scale 0 --audio-stg-scale 0 \
    --modality-scale 1
says "passes that are off" "2 passes a step: stg 0"
works "sigmas" "$DITTO" sigmas -m ltx2 --steps 5
says "sigmas" "mu 2.78333"
works "another profile" ltx2 -p x --dry-run --match official
says "another profile" "profile        official"
works "sigmas of another profile" "$DITTO" sigmas -m ltx2 --match official
says "sigmas of another profile" "40 steps, bf16, mu 2.05"
refused 2 "--match official: tiny-flux has no second profile, only diffusers'" "another model" \
    "$DITTO" -m "$MODEL" -p x -o x.png -q --match official
works "noise" "$DITTO" noise -m ltx2 --seed 3 -W 96 -H 64 --frames 9
says "noise" "noise      F32 [1, 16, 2, 2, 3], seed 3"

works "frames" ltx2 -p "a cat" -o "f%02d.png" --dump all
[ -f f09.png ] && [ -f all/audio.safetensors ] && [ -f all/audio_latents_001.safetensors ]
is $? "frames and stages are there"
refused 2 "--stg-scale: tiny-flux has no such guidance" "another model" "$DITTO" -m "$MODEL" -p x -o x.png -q --stg-scale 1
refused 2 "--image-crf: tiny-flux encodes no picture as video" "another model" "$DITTO" -m "$MODEL" -p x -o x.png -q --image-crf 20
refused 2 "--upscale: tiny-flux has no second round" "another model" "$DITTO" -m "$MODEL" -p x -o x.png -q --upscale 2
refused 2 "--width 112: expected a multiple of 32" "a width" ltx2 -p x -o "x%02d.png" -W 112
refused 2 "--height 100: expected a multiple of 32, at least 64; the nearest are 96 and 128" "a height" ltx2 -p x -o "x%02d.png" -H 100
refused 2 "--frames 10: expected 1 and a multiple of 8; the nearest are 9 and 17" "frames" ltx2 -p x -o "x%02d.png" --frames 10
mv ltx2/latent_upsampler ltx2/away
refused 2 "this folder has no latent_upsampler" "no upsampler" ltx2 -p x -o "x%02d.png" --upscale 2 -W 192 -H 128
mv ltx2/away ltx2/latent_upsampler
mv ltx2/vocoder ltx2/away
refused 3 "missing vocoder" "no vocoder" ltx2 -p x -o "x%02d.png"
mv ltx2/away ltx2/vocoder
cp ltx2/transformer/config.json kept
sed 's/"num_layers":[^,]*,/"num_layers": 257,/' kept >ltx2/transformer/config.json
refused 3 "num_layers 257: expected at most 256" "too many blocks" ltx2 -p x -o "x%02d.png"
cp kept ltx2/transformer/config.json
cp ltx2/model_index.json kept
sed 's/"_class_name"/"duration_head": ["ltx2", "LTX2DurationHead"], "_class_name"/' kept >index
cp index ltx2/model_index.json
refused 3 "LTX-2.5, which has another text encoder" "2.5" ltx2 -p x -o "x%02d.png"
cp kept ltx2/model_index.json

single() { # DTYPE: a file of one tensor of the original layout
    header="{\"model.diffusion_model.audio_patchify_proj.weight\":{\"dtype\":\"$1\",\"shape\":[8],\"data_offsets\":[0,$2]}}"
    { printf "\\$(printf %o ${#header})\\0\\0\\0\\0\\0\\0\\0%s" "$header"; head -c "$2" /dev/zero; } >one.safetensors
}
single BF16 16
refused 3 "a part of LTX-2 in the original layout" "a single file" "$DITTO" -m one.safetensors -p x -o x.mp4
single F8_E4M3 8
refused 3 "single-file LTX-2 in fp8" "a single file in fp8" "$DITTO" -m one.safetensors -p x -o x.mp4

# no room for the frames: the second round's latents are left, and need no upsampler any more
(ulimit -f 24; ltx2 -p "a cat" --upscale 2 -W 192 -H 128 -o "u%02d.png" --verdicts off) >.out 2>.err
[ -e u01.latents.safetensors ]
is $? "latents of two rounds: $(cat .err)"
cp u01.latents.safetensors kept.latents.safetensors
works "two rounds' latents" "$DITTO" decode u01.latents.safetensors -m ltx2 --device cpu -q -o "v%02d.png"
cp kept.latents.safetensors u01.latents.safetensors
mv ltx2/latent_upsampler ltx2/away
works "two rounds' latents without an upsampler" "$DITTO" decode u01.latents.safetensors -m ltx2 --device cpu -q -o "w%02d.png"
mv ltx2/away ltx2/latent_upsampler
ltx2 -p "a cat" --upscale 2 -W 192 -H 128 -o "u%02d.png" -y >.out
for later in v w; do for at in 01 09; do works "frame $at, decoded later" "$DITTO" compare u$at.png $later$at.png; done; done
rm kept.latents.safetensors

if ltx2 -p "a cat" -o a.mp4 >.out 2>.err; then
    good
    works "inspect" "$DITTO" inspect a.mp4
    says "inspect" '"audio_modality_scale":3'
    says "inspect" "# sound: aac"
    [ "$(ls | grep -c latents)" -eq 0 ]
    is $? "latents stay behind"
    works "verify" "$DITTO" verify a.mp4 -m ltx2 --device cpu -q
    works "another profile" ltx2 -p "a cat" --match official -o o.mp4
    works "inspect" "$DITTO" inspect o.mp4
    says "inspect" '"match":"official"'
    works "verify" "$DITTO" verify o.mp4 -m ltx2 --device cpu -q
    works "a picture" ltx2 -p "a cat" -i "$GOLDEN/photo.jpg:-1:0.5" -o b.mp4
    works "inspect" "$DITTO" inspect b.mp4
    says "inspect" '"image_frame":1,"image_crf":33'
    works "two rounds" ltx2 -p "a cat" --upscale 2 -W 192 -H 128 -o c.mp4
    works "decode" "$DITTO" decode all/latents.safetensors -m ltx2 --device cpu -q -W 96 -H 64 --frames 9 -o d.mp4
else
    grep -q libav .err || bad "an MP4: $(head -c 400 .err)"
    skipped=", MP4 skipped: $(head -c 120 .err)"
fi
echo "LTX-2$skipped"
finish
