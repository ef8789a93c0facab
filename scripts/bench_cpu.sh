#!/bin/sh
# bench_cpu.sh - what is measured on the machine at hand: the CPU table, the time of one picture, peak memory against the plan.
# Called by make bench. Prints numbers and judges only the plan (within 10 % of the peak, in both directions).
# Easy to get wrong: another process on the same cores shows up in every number; the picture is the best of three runs.
cd "$(dirname "$0")/.." || exit 2
BUILD=${BUILD:-build/release}
model=weights/demo-flux size="-W 128 -H 128"
[ -d "$model" ] || { model=tests/golden/tiny-flux size="-W 256 -H 256"; }
out=$(mktemp -d) || exit 2
trap 'rm -rf "$out"' EXIT

"$BUILD/tests/bench_cpu"

echo "picture with $model $size at its default steps:"
# shellcheck disable=SC2086
set -- -m "$model" -p "a big red circle in the middle" --seed 1 $size
for run in 1 2 3; do
    start=$(date +%s%N)
    ./ditto generate "$@" -v -y -o "$out/a.png" 2>"$out/err" >/dev/null || { cat "$out/err" >&2; exit 1; }
    echo "run $run: $(awk "BEGIN { print ($(date +%s%N) - $start) / 1e9 }") s from start to PNG;$(grep -o 'text .*' "$out/err" | tail -n 1)"
done
plan=$(./ditto generate "$@" --dry-run -y -o "$out/a.png" | awk '$1 == "peak" { print $2 }')
peak=$(grep -o 'peak memory [0-9.]*' "$out/err" | awk '{ print $3 }')
awk "BEGIN { r = $peak / $plan; good = (r >= 0.9 && r <= 1.1)
    printf \"peak memory %.1f MiB, plan %.1f MiB, ratio %.3f (%s)\\n\", $peak, $plan, r, (good ? \"within\" : \"NOT within\") \" 10 %\"
    exit !good }"
