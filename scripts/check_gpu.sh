#!/bin/bash
# check_gpu.sh - the GPU's checks, for a machine with an NVIDIA driver, CUDA, cuDNN and PyTorch.
#
#   scripts/check_gpu.sh OUT [BIN]     BIN: folder with ditto and tests/checkop (default build/portable)
#
# ONLY=checkop or ONLY=parity runs one half; WIDE=1 adds a run at FLUX.1's own widths with random weights, FULL=1 one
# at FLUX.1-dev's full size (33 GB on disk, 60 GB of memory), streamed through less device memory too.
# Writes OUT/checkop.txt (every op of the CUDA table), OUT/parity.txt (runs against diffusers on the same GPU, stage
# by stage; skipped by name when diffusers is missing) and prints a summary. Libraries are PyTorch's own copies, so
# that both sides call the same ones.
set -u
out=$1 bin=${2:-build/portable}
mkdir -p "$out"
work=$(mktemp -d)
libs=$(python3 - <<'P'
import glob, os, torch
top = os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), "nvidia")
print(":".join(sorted(glob.glob(top + "/*/lib"))))
P
)
export LD_LIBRARY_PATH=$libs:${LD_LIBRARY_PATH:-}
head() {
    echo "# $(date -u +%F) $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader | sed -n 1p)"
    python3 -c 'import torch; print("# torch", torch.__version__, "cuda", torch.version.cuda, "cudnn", torch.backends.cudnn.version())'
    echo "# commit ${COMMIT:-unknown}"
}
[ "${ONLY:-checkop}" = checkop ] && { head; timeout "${CHECKOP_SECONDS:-200}" "$bin/tests/checkop" --backend cuda ${CHECKOP_ARGS:-}; } >"$out/checkop.txt" 2>&1
if [ -f "$out/checkop.txt" ]; then
    grep -E '^FAIL' "$out/checkop.txt" | sed -n 1,40p
    sed -n '$p' "$out/checkop.txt"
fi
[ "${ONLY:-parity}" = parity ] || exit 0

parity() { # name model dtype width height steps text prompt [option...]: options that both programs take
    local d=$work/$1 more=("${@:9}")
    mkdir -p "$d"
    echo "== $1: $2 $3 $4x$5, $6 steps, $7 text tokens"
    python3 scripts/dump_golden.py "$2" "$d/ref" -p "$8" --device cuda --dtype "$3" --width "$4" --height "$5" --steps "$6" \
        --max-sequence-length "$7" --seed 5 "${more[@]}" >"$d/ref.log" 2>&1 || { tail -3 "$d/ref.log"; return; }
    "$bin/ditto" generate -m "$2" -p "$8" --device cuda --dtype "$3" -W "$4" -H "$5" --steps "$6" --max-sequence-length "$7" \
        --seed 5 "${more[@]}" -o "$d/ours.png" -y -v --dump "$d/ours" || return
    python3 scripts/parity.py "$d/ref" "$d/ours"
}
if python3 -c 'import diffusers' 2>/dev/null; then
    {
        head
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
            SECONDS=0
            python3 scripts/random_checkpoint.py "$work/full"
            echo "written in $SECONDS s"
            prompt="a small red circle, and a large blue square on the left"
            parity full-bf16 "$work/full" bf16 1024 1024 3 512 "$prompt"
            for vram in 24G 12G; do
                echo "== full-bf16 with --vram $vram against the run without"
                "$bin/ditto" generate -m "$work/full" -p "$prompt" --device cuda -W 1024 -H 1024 --steps 3 --seed 5 \
                    --vram $vram -o "$work/v.png" -y -v --dump "$work/full-$vram" 2>&1 | tr '\r' '\n' | tail -3
                python3 scripts/parity.py "$work/full-bf16/ours" "$work/full-$vram" | tail -1
                rm -rf "$work/full-$vram"
            done
            echo "== full-bf16, 28 steps"
            "$bin/ditto" generate -m "$work/full" -p "$prompt" --device cuda -W 1024 -H 1024 --seed 5 -o "$work/v.png" -y -v
        fi
    } >"$out/parity.txt" 2>&1
    rm -rf "$work"
    cat "$out/parity.txt"
else
    echo "parity: skipped, diffusers is not installed here"
fi
