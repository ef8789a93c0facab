#!/bin/sh
# test_alloc.sh - each allocation of a render fails once: one line, exit code 4, no picture, no crash.
# Easy to get wrong: strdup and friends allocate inside the C library and are not reached (failmalloc.c).
. "$(dirname "$0")/shell.sh"
case ${BUILD:-} in *asan*) echo "0 passed, 0 failed"; exit 0 ;; esac # the sanitizer brings its own malloc
library=$here/failmalloc.so
cc -std=c11 -D_GNU_SOURCE -O1 -shared -fPIC -o "$library" "$GOLDEN/../failmalloc.c" -ldl || exit 2

render() { # FAIL_AT
    timeout 60 env OMP_WAIT_POLICY=passive OMP_NUM_THREADS=1 LD_PRELOAD="$library" FAIL_AT="$1" FAIL_COUNT="$here/count" \
        "$DITTO" generate -m "$MODEL" -p "a red circle" --device cpu --seed 1 -W 64 -H 64 --steps 1 --max-sequence-length 8 \
        --dump d -o x.png -y ${image:+-i "$image"} >.out 2>.err
}
every() { # POINTS: that many allocations, one after the other
    points=$1
    render 0
    is $? "nothing fails: $(head -c 300 .err)"
    total=$(cat count)
    [ "${total:-0}" -gt 100 ]
    is $? "allocations are counted: found ${total:-none}"
    rm -f x.png
    step=$((total / $points + 1))
    n=1
    while [ "$n" -le "$total" ]; do
        render "$n"
        rc=$?
        if [ $rc -eq 0 ]; then good # a cache or a hint that can be done without
        elif [ $rc -ne 4 ]; then bad "allocation $n of $total fails: exit $rc, expected 4: $(tail -n 1 .err | head -c 300)"
        elif [ "$(grep -c '^ditto: ' .err)" -ne 1 ]; then bad "allocation $n of $total fails: no single line: $(head -c 300 .err)"
        elif [ -e x.png ]; then bad "allocation $n of $total fails: a picture was written"
        else good; fi
        rm -rf x.png d
        n=$((n + step))
    done
}
every "${ALLOC_POINTS:-150}"
image=$GOLDEN/photo.jpg
every $((${ALLOC_POINTS:-150} / 2))
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
