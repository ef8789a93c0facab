#!/bin/sh
# fuzz.sh - runs each fuzz target for FUZZ_SECONDS and ends with "N passed, N failed". Called by make fuzz.
# Seeds lie in tests/corpus/NAME (read only); what is found grows in build/corpus/NAME. A crash leaves its input in
# build/crash-NAME-*, and the line printed reproduces it.
cd "$(dirname "$0")/.." || exit 2
BUILD=${BUILD:-build/fuzz}
passed=0 failed=0
for source in tests/fuzz_*.c; do
    [ -e "$source" ] || continue
    name=$(basename "$source" .c)
    grown=build/corpus/$name
    mkdir -p "$grown"
    seeds=
    [ -d "tests/corpus/$name" ] && seeds=tests/corpus/$name
    if "$BUILD/tests/$name" -max_total_time="${FUZZ_SECONDS:-60}" -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
        -artifact_prefix="build/crash-$name-" "$grown" $seeds >"build/$name.log" 2>&1; then
        passed=$((passed + 1))
        echo "ok   $name: $(grep -a number_of_executed_units "build/$name.log" | tr -dc 0-9) inputs"
    else
        failed=$((failed + 1))
        tail -n 30 "build/$name.log" | sed 's/^/    /'
        echo "FAIL $name: reproduce with $BUILD/tests/$name build/crash-$name-..."
    fi
done
echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
