#!/bin/sh
# check.sh - runs every test program and sums their "N passed, N failed" lines into one last line. Called by make check.
# Not a test framework: a program is one process that ends with that line and exits non-zero on failure. A program that
# crashes, or ends without the line, counts as one failure.
# BUILD is the folder of the built programs, DITTO the binary (./ditto), CHECK_FULL=1 also runs what is slow,
# CHECK_LINT=0 leaves lint out.
cd "$(dirname "$0")/.." || exit 2
BUILD=${BUILD:-build/release}
DITTO=${DITTO:-./ditto}
export BUILD DITTO CHECK_FULL
passed=0 failed=0
log=$(mktemp) || exit 2
trap 'rm -f "$log"' EXIT

run() { # NAME COMMAND...
    name=$1
    shift
    start=$(date +%s)
    "$@" >"$log" 2>&1 </dev/null
    rc=$?
    line=$(grep -aE '^[0-9]+ passed, [0-9]+ failed( \(.*\))?$' "$log" | tail -n 1)
    p=${line%% passed*}
    f=${line#*passed, }
    f=${f%% failed*}
    if [ -z "$line" ]; then
        p=0 f=1 line="no result line"
    elif [ "$rc" -ne 0 ] && [ "$f" -eq 0 ]; then
        f=1 # crashed after its last line, or a leak report
    fi
    passed=$((passed + p)) failed=$((failed + f))
    word=ok
    if [ "$f" -ne 0 ]; then
        word=FAIL
        tail -n 40 "$log" | sed 's/^/    /'
    fi
    printf '%-4s %-24s %s (exit %d, %d s)\n' "$word" "$name" "$line" "$rc" $(($(date +%s) - start))
}

for source in tests/test_*.c tests/checkop.c; do
    [ -e "$source" ] || continue
    name=$(basename "$source" .c)
    run "$name" "$BUILD/tests/$name"
done
for script in tests/test_*.sh; do
    [ -e "$script" ] && run "$(basename "$script")" sh "$script"
done
[ "$CHECK_LINT" = 0 ] || run lint scripts/lint.sh

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
