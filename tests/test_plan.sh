#!/bin/sh
# test_plan.sh - the memory plan that --dry-run prints against the peak that the run reaches: within 10 %, both ways.
# Nothing to say under a sanitizer, whose shadow memory counts as ours.
. "$(dirname "$0")/shell.sh"
case ${BUILD:-} in *asan*) echo "0 passed, 0 failed"; exit 0 ;; esac
DEMO=$GOLDEN/../../weights/demo-flux

planned() { # NAME, options of generate
    name=$1
    shift
    plan=$("$DITTO" generate "$@" -p "a red circle" --device cpu --seed 1 -o x.png -y --dry-run | awk '$1 == "peak" { print $2 }')
    works "$name" "$DITTO" generate "$@" -p "a red circle" --device cpu --seed 1 -o x.png -y -v
    peak=$(tr '\r' '\n' <.err | sed -n 's/.*peak memory \([0-9.]*\) MiB.*/\1/p')
    awk "BEGIN { r = ${peak:-0} / ${plan:-1}; exit !(r >= 0.9 && r <= 1.1) }"
    is $? "$name: peak ${peak:-none} MiB, plan ${plan:-none} MiB"
}
for side in 128 256 512; do planned "demo, $side, bf16" -m "$DEMO" -W $side -H $side --steps 2; done
planned "demo, 384x256, f32" -m "$DEMO" -W 384 -H 256 --steps 2 --dtype f32
planned "demo, CFG" -m "$DEMO" -W 128 -H 128 --steps 2 -n "" --cfg-scale 2
planned "tiny, 256" -m "$MODEL" -W 256 -H 256 --steps 2
planned "tiny, 512, from a picture" -m "$MODEL" -W 512 -H 512 --steps 2 -i "$GOLDEN/photo.jpg" --strength 0.5
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
