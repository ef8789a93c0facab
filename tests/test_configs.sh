#!/bin/sh
# test_configs.sh - every number in the configs of small checkpoints of all models (transformers, text encoders, autoencoders,
# vocoder, connectors, schedulers, tokenizers) made 0 and negative, one at a time: the program may go on, or refuse it in one line;
# it may not crash, say nothing or say more. With CHECK_FULL=1 fractions, small and huge numbers too.
# Not about pictures: what a number does when it is taken is the other tests'.
# Easy to get wrong: a folder inside a checkpoint may be a link to one that is not ours to change; numbers are found by their place in the file, whatever its layout; those of a vocabulary are left out.
BUILD=$(realpath "${BUILD:-build/release}" 2>/dev/null || echo "${BUILD:-build/release}")
. "$(dirname "$0")/shell.sh"
values="0 -1"
[ "$CHECK_FULL" = 1 ] && values="0 -1 -0.5 1 3 1e30"

# numbers MODEL OPTION...: a pass or a failure for each number of each config
numbers() {
    from=$1
    shift
    rm -rf bad && cp -rsL "$from" bad
    for config in $(cd bad && ls ./*/*config.json ./*.json | sed 's|^\./||'); do
        whole=$(realpath "bad/$config")
        # byte offset and text of each number with what stands before it; blanks as _
        for found in $(grep -obE '[,:[] *-?[0-9][0-9.eE+-]*' "$whole" | tr ' ' _); do
            text=${found#*:} number=$(echo "${found#*:}" | tr -d ',:[_')
            before=$((${found%%:*} + ${#text} - ${#number}))
            for value in $values; do
                rm -f "bad/$config" out*
                { head -c $before "$whole" && printf %s "$value" && tail -c +$((before + ${#number} + 1)) "$whole"; } >"bad/$config"
                "$DITTO" generate -m bad --device cpu -p "a cat" --seed 1 -q -o out%d.png "$@" >.out 2>.err </dev/null
                rc=$?
                name="$(basename "$from")/$config: $number at $before made $value"
                if [ $rc -gt 7 ]; then bad "$name: exit $rc: $(head -c 300 .err)"
                elif [ $rc -eq 0 ] && [ -s .err ]; then bad "$name: said $(head -c 300 .err)"
                elif [ $rc -ne 0 ] && { [ "$(wc -l <.err)" -ne 1 ] || ! grep -q '^ditto: ..' .err; }; then
                    bad "$name: exit $rc, not one line: $(head -c 300 .err)"
                else good; fi
            done
        done
        rm "bad/$config" && ln -s "$whole" "bad/$config"
    done
}

written() { # PROGRAM: the tiny folder that a test program writes, in ./$1
    [ -x "$BUILD/tests/$1" ] && (cd "$GOLDEN/../.." && "$BUILD/tests/$1" --write "$here/$1") >/dev/null && return
    bad "$1 wrote no folder"
    return 1
}

numbers "$MODEL" -W 32 -H 16 --steps 1 --max-sequence-length 16
numbers "$GOLDEN/tiny-zimage" -W 32 -H 32 --steps 1 --max-sequence-length 16
numbers "$(realpath "$GOLDEN/../../weights/demo-sana-video")" -W 32 -H 32 --frames 5 --steps 1 --max-sequence-length 16
written test_sana_720p && numbers "$here/test_sana_720p" -W 64 -H 64 --frames 9 --steps 1 --max-sequence-length 16
written test_ltx2 && numbers "$here/test_ltx2" -W 96 -H 64 --frames 9 --steps 2 --max-sequence-length 16 --stg-blocks 1
finish
