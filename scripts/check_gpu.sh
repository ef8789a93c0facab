#!/bin/bash
# check_gpu.sh - the GPU's checks, for a machine with an NVIDIA driver, CUDA, cuDNN and PyTorch.
#
#   scripts/check_gpu.sh OUT [BIN]     BIN: folder with ditto and tests/checkop (default build/portable)
#
# ONLY=checkop, bench, torch or parity runs one of them; MODELS="flux zimage sana ltx2" says whose parity, CASES="NAME ..." which of
# its runs. TRACE=1 says of each at which op it parts from PyTorch (scripts/optrace.py; without fused ops, slow). WIDE=1 adds a run at the
# models' own widths with random weights, FULL=1 one at full size (FLUX.1-dev: 33 GB on disk, 60 GB of memory, streamed
# through less device memory too; Z-Image-Turbo: 33 GB on disk, ZDISK=bf16: 21; SANA-Video: 14; LTX-2: its text encoder with a
# transformer of one layer, 31, then its transformer with the contexts found there, 46). Each is deleted before the next
# is written; MODEL and ZMODEL name folders of FLUX.1 and Z-Image that are taken instead, and stay. TOKENIZERS: as
# scripts/random_checkpoint.py has it; without, SANA-Video's texts are of 1,352 tokens instead of 519.
# DEVICE=cpu: for trying this script where no GPU is.
# Writes OUT/checkop.txt (every op of the CUDA table), OUT/checkop-bench.txt (how long each takes at the models' shapes),
# OUT/ops-vs-torch.txt (its ops against eager PyTorch's), OUT/parity.txt (runs against diffusers on the same GPU, stage by
# stage; skipped by name when diffusers is missing) and prints a summary. Libraries are PyTorch's own copies, so that both
# sides call the same ones.
set -u
out=$1 bin=${2:-build/portable} device=${DEVICE:-cuda}
mkdir -p "$out"
work=$(mktemp -d)
libs=$(python3 scripts/torch_libs.py)
export LD_LIBRARY_PATH=$libs:${LD_LIBRARY_PATH:-}
head() {
    echo "# $(date -u +%F) $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | sed -n 1p)"
    python3 -c 'import torch; print("# torch", torch.__version__, "cuda", torch.version.cuda, "cudnn", torch.backends.cudnn.version())'
    echo "# commit ${COMMIT:-unknown}"
}
[ "${ONLY:-checkop}" = checkop ] && { head; timeout "${CHECKOP_SECONDS:-200}" "$bin/tests/checkop" --backend cuda ${CHECKOP_ARGS:-}; } >"$out/checkop.txt" 2>&1
[ "${ONLY:-bench}" = bench ] && { head; timeout "${BENCH_SECONDS:-300}" "$bin/tests/checkop" --bench --backend cuda ${BENCH_ARGS:-}; } >"$out/checkop-bench.txt" 2>&1
[ "${ONLY:-torch}" = torch ] && {
    head
    python3 scripts/compare_ops.py --checkop "$bin/tests/checkop" ${TORCH_ARGS:-}
    [ -n "${TORCH_ARGS:-}" ] || python3 scripts/compare_ops.py --checkop "$bin/tests/checkop" --small --f32
} >"$out/ops-vs-torch.txt" 2>&1
[ "${ONLY:-}" = torch ] && cat "$out/ops-vs-torch.txt"
[ "${ONLY:-}" = bench ] && cat "$out/checkop-bench.txt"
if [ -f "$out/checkop.txt" ]; then
    grep -E '^FAIL' "$out/checkop.txt" | sed -n 1,40p
    sed -n '$p' "$out/checkop.txt"
fi
[ "${ONLY:-parity}" = parity ] || exit 0

their_more=() our_more=() # options of one program
parity() { # name model dtype width height steps text prompt [option...]: options that both programs take
    local d=$work/$1 m=$2 p=$8
    case " ${CASES:-$1} " in *" $1 "*) ;; *) return ;; esac
    local -a same=(--device "$device" --dtype "$3" --steps "$6" --max-sequence-length "$7" --seed 5 -W "$4" -H "$5" "${@:9}") traced=()
    mkdir -p "$d"
    if [ -n "${TRACE:-}" ]; then same+=(--trace) traced=(--families none); fi
    echo "== $1: $m $3 $4x$5, $6 steps, $7 text tokens ${*:9}"
    python3 scripts/dump_reference.py "$m" "$d/ref" -p "$p" "${same[@]}" "${their_more[@]}" ${TRACE:+"$d/ref.tsv"} >"$d/ref.log" 2>&1 || { tail -3 "$d/ref.log"; return; }
    "$bin/ditto" generate -m "$m" -p "$p" "${same[@]}" "${our_more[@]}" ${TRACE:+"$d/ours.tsv"} "${traced[@]}" -o "$d/ours.$kind" -y -v --dump "$d/ours" || return
    "$bin/ditto" ab "$d/ref" "$d/ours"
    [ -z "${TRACE:-}" ] || python3 scripts/optrace.py "$d/ours.tsv" "$d/ref.tsv"
}
models=${MODELS:-flux zimage sana ltx2} kind=png
wants() { case " $models " in *" $1 "*) return 0 ;; *) return 1 ;; esac; }
flux_parity() {
    parity tiny-f32 tests/golden/tiny-flux f32 112 80 3 19 "a small red circle, and a large blue square on the left"
    parity tiny-bf16 tests/golden/tiny-flux bf16 112 80 3 19 "a small red circle, and a large blue square on the left"
    for dtype in f32 bf16; do
        parity tiny-image-$dtype tests/golden/tiny-flux $dtype 112 80 5 19 "a small red circle" -i tests/golden/photo.jpg
    done
    demo=${DEMO:-weights/demo-flux}
    if [ -d "$demo/transformer" ]; then
        parity demo-bf16 "$demo" bf16 128 128 28 512 "a large red circle in the centre on a white background"
    fi
    if [ -n "${WIDE:-}" ]; then # production widths, few layers
        python3 scripts/random_checkpoint.py "$work/wide" --layers 2 --single-layers 3 --t5-layers 2
        parity wide-bf16 "$work/wide" bf16 1024 1024 3 512 "a small red circle, and a large blue square on the left"
    fi
    if [ -n "${FULL:-}" ]; then
        local full=${MODEL:-$work/full}
        SECONDS=0
        [ -n "${MODEL:-}" ] || python3 scripts/random_checkpoint.py "$full"
        echo "written in $SECONDS s"
        prompt="a small red circle, and a large blue square on the left"
        parity full-bf16 "$full" bf16 1024 1024 3 512 "$prompt"
        for vram in 24G 12G; do
            echo "== full-bf16 with --vram $vram against the run without"
            "$bin/ditto" ab -m "$full" --reference "$work/full-bf16/ours" --device "$device" --vram $vram | tail -4
        done
        echo "== full-bf16, 28 steps"
        "$bin/ditto" generate -m "$full" -p "$prompt" --device "$device" -W 1024 -H 1024 --seed 5 -o "$work/v.png" -y -v
        [ -n "${MODEL:-}" ] || rm -rf "$full"
    fi
}
zimage_parity() {
    local tiny=tests/golden/tiny-zimage wide=$work/z-wide full=${ZMODEL:-$work/z-full}
    local p="a small red circle, and a large blue square on the left"
    parity z-tiny-f32 $tiny f32 80 64 3 48 "$p"
    parity z-tiny-bf16 $tiny bf16 80 64 3 48 "$p"
    parity z-tiny-short-bf16 $tiny bf16 64 64 2 512 "a"
    parity z-tiny-image-bf16 $tiny bf16 80 64 5 48 "$p" -i tests/golden/photo.jpg
    parity z-tiny-cfg-bf16 $tiny bf16 64 64 2 48 "$p" --cfg-scale 2.5 -n "a dark, blurry photo"
    # captions of 64 and 32 rows: one batch of two, the shorter item masked; then the last steps without guidance
    parity z-tiny-cfg-long-bf16 $tiny bf16 80 64 2 48 "$p; $p" --cfg-scale 2.5 -n "a dark, blurry photo"
    parity z-tiny-cfg-short-bf16 $tiny bf16 80 64 3 48 "a" --cfg-scale 2.5 -n "$p; $p" --cfg-truncation 0.4
    if [ -n "${WIDE:-}" ]; then # production widths, few layers, F32 on disk
        python3 scripts/random_checkpoint.py "$wide" --model z-image-turbo --layers 2 --qwen-layers 4
        parity z-wide-bf16 "$wide" bf16 1024 1024 2 512 "$p"
        parity z-wide-short-bf16 "$wide" bf16 1280 720 2 512 "a"
        parity z-wide-cfg-bf16 "$wide" bf16 1024 1024 2 512 "$p" --cfg-scale 4 -n ""
        parity z-wide-cfg-long-bf16 "$wide" bf16 1024 1024 2 512 "$p; $p; $p; $p" --cfg-scale 4 -n ""
        rm -rf "$wide"
    fi
    if [ -n "${FULL:-}" ]; then
        SECONDS=0
        [ -n "${ZMODEL:-}" ] || python3 scripts/random_checkpoint.py "$full" --model z-image-turbo ${ZDISK:+--disk-dtype "$ZDISK"}
        echo "written in $SECONDS s"
        parity z-full-bf16 "$full" bf16 1024 1024 8 512 "$p"
        parity z-full-large-bf16 "$full" bf16 2048 2048 2 512 "$p"
        parity z-full-odd-bf16 "$full" bf16 1360 784 2 512 "$p; $p; $p; $p; $p; $p"
        parity z-full-small-bf16 "$full" bf16 256 256 2 512 "a"
        echo "== z-full-bf16, families none, then high, against the run above"
        for o in "--families none" "--quality high"; do
            "$bin/ditto" ab -m "$full" --reference "$work/z-full-bf16/ours" --device "$device" --b "$o" \
                | grep -E "^(latents:|velocity_000|equal|first|PSNR|seconds)"
        done
        "$bin/ditto" generate -m "$full" -p "$p" --device "$device" -W 1024 -H 1024 --steps 8 --seed 5 -o "$work/v.png" -y -v --explain
        [ -n "${ZMODEL:-}" ] || rm -rf "$full"
    fi
}
sana_parity() {
    local tiny=$work/s-tiny wide=$work/s-wide full=$work/s-full p="A cat runs" kind=%03d.png
    python3 scripts/dump_golden_sana.py tests/golden --folder "$tiny"
    for dtype in f32 bf16; do
        parity s-tiny-$dtype "$tiny" $dtype 64 32 3 24 "$p" --frames 5 --cfg-scale 4 -n bad --motion-score 30
        parity s-tiny-image-$dtype "$tiny" $dtype 64 32 3 24 "$p" --frames 5 -i tests/golden/drawing.png
    done
    python3 scripts/dump_golden_sana.py tests/golden --folder "$tiny-720p" --ltx2 # of 720p: LTX-2's autoencoder
    for dtype in f32 bf16; do
        parity s-tiny-720p-$dtype "$tiny-720p" $dtype 96 64 3 24 "$p" --frames 17 --cfg-scale 4 -n bad --motion-score 30
        parity s-tiny-720p-image-$dtype "$tiny-720p" $dtype 96 64 3 24 "$p" --frames 9 -i tests/golden/drawing.png
    done
    if [ -n "${WIDE:-}" ]; then # production widths, few layers
        python3 scripts/random_checkpoint.py "$wide" --model sana-video --layers 2 --gemma-layers 3
        parity s-wide-bf16 "$wide" bf16 832 480 2 300 "$p" --frames 17
        parity s-wide-image-bf16 "$wide" bf16 832 480 2 300 "$p" --frames 17 -i tests/golden/photo.jpg
        rm -rf "$wide"
        python3 scripts/random_checkpoint.py "$wide" --model sana-video-720p --layers 2 --gemma-layers 3
        parity s-wide-720p-bf16 "$wide" bf16 1280 704 2 300 "$p" --frames 81
        parity s-wide-720p-image-bf16 "$wide" bf16 1280 704 2 300 "$p" --frames 17 -i tests/golden/photo.jpg
        rm -rf "$wide"
    fi
    if [ -n "${FULL:-}" ]; then
        SECONDS=0
        python3 scripts/random_checkpoint.py "$full" --model sana-video
        echo "written in $SECONDS s"
        parity s-full-bf16 "$full" bf16 832 480 3 300 "$p" --frames 81
        "$bin/ditto" generate -m "$full" -p "$p" --device "$device" --steps 8 --seed 5 -o "$work/v.%03d.png" -y -v --explain
        rm -rf "$full"
    fi
}
ltx2_parity() {
    local tiny=$work/l-tiny full=$work/l-full p="A cat runs" kind=%03d.png
    local two="--guidance-rescale 0 --audio-guidance-rescale 0 --stg-scale 0 --audio-stg-scale 0 --modality-scale 1 --audio-modality-scale 1"
    python3 scripts/make_tiny_ltx2.py "$tiny"
    for dtype in f32 bf16; do # two passes a step, then the pipeline's four
        # shellcheck disable=SC2086
        parity l-tiny-two-$dtype "$tiny" $dtype 64 64 3 1024 "$p" --frames 9 -n bad $two
        parity l-tiny-four-$dtype "$tiny" $dtype 64 64 3 1024 "$p" --frames 9 -n bad
    done
    if [ -n "${WIDE:-}" ]; then # published widths, few layers
        python3 scripts/random_checkpoint.py "$full" --model ltx2 --layers 2 --gemma-layers 2
        parity l-wide-bf16 "$full" bf16 768 512 2 1024 "$p" --frames 121 -n bad
        rm -rf "$full"
    fi
    if [ -n "${FULL:-}" ]; then
        ltx2_full
    fi
}
# All of LTX-2 is 67 GB. Its text encoder and connectors first, with one layer of the transformer behind them; what they made of
# the texts is then given to both programs in place of the texts.
ltx2_full() {
    local text=$work/l-text made=$work/l-text-bf16/ours name
    SECONDS=0
    python3 scripts/random_checkpoint.py "$text" --model ltx2 --layers "${LTX2_FEW:-1}" ${LTX2_GEMMA:+--gemma-layers "$LTX2_GEMMA"}
    echo "written in $SECONDS s"
    # shellcheck disable=SC2086
    parity l-text-bf16 "$text" bf16 256 128 2 1024 "$p" --frames 9 -n bad $two
    echo "$SECONDS s"
    rm -rf "$text"
    python3 scripts/random_checkpoint.py "$full" --model ltx2 --gemma-layers 2 ${LTX2_LAYERS:+--layers "$LTX2_LAYERS"}
    echo "written by $SECONDS s"
    their_more=(--contexts "$made")
    for name in prompt_embeds audio_prompt_embeds negative_prompt_embeds negative_audio_prompt_embeds; do
        our_more+=(--inject "$name=$made/$name.safetensors")
    done
    # shellcheck disable=SC2086
    {
        parity l-full-bf16 "$full" bf16 ${LTX2_SIZE:-768 512} 2 1024 "$p" --frames "${LTX2_FRAMES:-121}" -n bad $two
        echo "$SECONDS s"
        echo "== l-full-bf16 with --vram ${LTX2_VRAM:-24G} against the run without"
        "$bin/ditto" ab -m "$full" --reference "$work/l-full-bf16/ours" --device "$device" --vram "${LTX2_VRAM:-24G}" "${our_more[@]}" | tail -4
        rm -rf "$work/l-full-bf16"
        echo "$SECONDS s"
        parity l-full-upscale-bf16 "$full" bf16 ${LTX2_SIZE:-768 512} 2 1024 "$p" --frames "${LTX2_FRAMES:-121}" -n bad $two --upscale 2
        echo "$SECONDS s"
    }
    their_more=() our_more=()
    rm -rf "$full"
}
if python3 -c 'import diffusers' 2>/dev/null; then
    {
        head
        wants flux && flux_parity
        wants zimage && zimage_parity
        wants sana && sana_parity
        wants ltx2 && ltx2_parity
        true
    } >"$out/parity.txt" 2>&1
    rm -rf "$work"
    cat "$out/parity.txt"
else
    echo "parity: skipped, diffusers is not installed here"
fi
