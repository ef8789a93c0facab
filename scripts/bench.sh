#!/bin/bash
# bench.sh - figures of this machine's GPU, ours and diffusers' in the same run; the only writer of tests/gpu-results/bench.jsonl.
#
#   scripts/bench.sh [NAME...]     (default: all; scripts/peer_diffusers.py --list names them)
#
# Appends one JSON object a figure: name, value (median), min, max, runs, unit, peers, quality, date, gpu, driver, cuda,
# cublas, cudnn, commit. Peers run in turns with ours after a common warm-up; without diffusers here there are none.
# BIN: folder with ditto (build/portable, else .). MODEL: a FLUX.1-dev folder; by default a random one is written to
# $TMPDIR (33 GB, kept). RESULTS: another file to append to. COMMIT where git cannot tell. ROUNDS (5), PEER_ARGS.
# Easy to get wrong: the card is power-limited, so a figure counts as its ratio to the peers of the same line. Nothing
# else may run on the GPU. CUDA libraries are PyTorch's own copies, so that both sides call the same ones.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${BIN:-build/portable}
[ -x "$bin/ditto" ] || bin=.
[ -x "$bin/ditto" ] || { echo "bench.sh: no ditto in ${BIN:-build/portable} or here: build it first" >&2; exit 2; }
results=${RESULTS:-tests/gpu-results/bench.jsonl}
model=${MODEL:-${TMPDIR:-/tmp}/ditto-random-flux-dev}
libs=$(python3 - <<'P'
import glob, os, torch
top = os.path.join(os.path.dirname(os.path.dirname(torch.__file__)), "nvidia")
print(":".join(sorted(glob.glob(top + "/*/lib"))))
P
)
LD_LIBRARY_PATH=$libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export LD_LIBRARY_PATH
[ "${1:-}" = --list ] && exec python3 scripts/peer_diffusers.py --list
if [ ! -f "$model/model_index.json" ]; then
    [ -z "${MODEL:-}" ] || { echo "bench.sh: MODEL=$MODEL is no model folder" >&2; exit 2; }
    python3 scripts/random_checkpoint.py "$model" --model flux-dev >&2
fi
COMMIT=${COMMIT:-$(git describe --always --dirty --abbrev=9 2>/dev/null || echo unknown)}
DRIVER=$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2>/dev/null | sed -n 1p) || true
export COMMIT DRIVER
mkdir -p "$(dirname "$results")"
# shellcheck disable=SC2086
python3 scripts/peer_diffusers.py --against "$bin/ditto" --model "$model" --rounds "${ROUNDS:-5}" ${PEER_ARGS:-} "$@" | tee -a "$results"
