#!/bin/bash
# bench.sh - figures of this machine's GPU, ours and diffusers' in the same run; the only writer of tests/gpu-results/bench.jsonl.
#
#   scripts/bench.sh [NAME...]     (default: all; scripts/peer_diffusers.py --list names them)
#
# Appends one JSON object a figure: name, value (median), min, max, runs, unit, peers, quality, date, gpu, driver, cuda,
# cublas, cudnn, commit. Peers run in turns with ours after a common warm-up; without diffusers here there are none.
# BIN: folder with ditto (build/portable, else .). MODEL: a FLUX.1-dev folder, ZMODEL: a Z-Image-Turbo folder, for the figures
# that begin with zimage_, SMODEL: a SANA-Video folder, for sana and vae_wan_, LMODEL: an LTX-2 folder, for ltx2 and vae_ltx2_; by
# default random ones are written to $TMPDIR (33, 21, 10 and 70 GB, kept), LTX-2's only when a figure of it is named. RESULTS: another file to
# append to. COMMIT where git cannot tell. ROUNDS (5), PEER_ARGS.
# Easy to get wrong: the card is power-limited, so a figure counts as its ratio to the peers of the same line. Nothing
# else may run on the GPU. CUDA libraries are PyTorch's own copies, so that both sides call the same ones.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${BIN:-build/portable}
[ -x "$bin/ditto" ] || bin=.
[ -x "$bin/ditto" ] || { echo "bench.sh: no ditto in ${BIN:-build/portable} or here: build it first" >&2; exit 2; }
results=${RESULTS:-tests/gpu-results/bench.jsonl}
model=${MODEL:-${TMPDIR:-/tmp}/ditto-random-flux-dev}
zmodel=${ZMODEL:-${TMPDIR:-/tmp}/ditto-random-z-image-turbo}
smodel=${SMODEL:-${TMPDIR:-/tmp}/ditto-random-sana-video}
lmodel=${LMODEL:-${TMPDIR:-/tmp}/ditto-random-ltx2}
libs=$(python3 scripts/torch_libs.py)
LD_LIBRARY_PATH=$libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
[ "${1:-}" = --list ] && exec python3 scripts/peer_diffusers.py --list
flux=() zimage=() sana=() ltx2=()
for name in "$@"; do
    case $name in zimage_*) zimage+=("$name") ;; sana* | vae_wan_*) sana+=("$name") ;; ltx2* | vae_ltx2_*) ltx2+=("$name") ;; *) flux+=("$name") ;; esac
done
need() { # variable folder model
    [ -f "$2/model_index.json" ] && return
    [ -z "${!1:-}" ] || { echo "bench.sh: $1=$2 is no model folder" >&2; exit 2; }
    python3 scripts/random_checkpoint.py "$2" --model "$3" --disk-dtype bf16 >&2
}
COMMIT=${COMMIT:-$(git describe --always --dirty --abbrev=9 2>/dev/null || echo unknown)}
DRIVER=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | sed -n 1p) || true
export COMMIT DRIVER
mkdir -p "$(dirname "$results")"
run() { # folder figure...
    # shellcheck disable=SC2086
    python3 scripts/peer_diffusers.py --against "$bin/ditto" --model "$1" --rounds "${ROUNDS:-5}" ${PEER_ARGS:-} "${@:2}" | tee -a "$results"
}
status=0
if [ $# = 0 ] || [ ${#flux[@]} -gt 0 ]; then
    need MODEL "$model" flux-dev
    run "$model" "${flux[@]}" || status=1
fi
if [ $# = 0 ] || [ ${#zimage[@]} -gt 0 ]; then
    need ZMODEL "$zmodel" z-image-turbo
    run "$zmodel" "${zimage[@]}" || status=1
fi
if [ $# = 0 ] || [ ${#sana[@]} -gt 0 ]; then
    need SMODEL "$smodel" sana-video
    run "$smodel" "${sana[@]}" || status=1
fi
if [ ${#ltx2[@]} -gt 0 ]; then # by name only: 70 GB
    need LMODEL "$lmodel" ltx2
    run "$lmodel" "${ltx2[@]}" || status=1
fi
exit $status
