# shell.sh - what the shell tests share: a scratch folder, one expectation a line, the last line "N passed, N failed".
# Sourced, not run. DITTO is the binary under test; MODEL the tiny checkpoint with random weights.
# Easy to get wrong: an expectation about a failure also demands exactly one line on standard error and nothing from a
# sanitizer; the commands run in the scratch folder, so what a test leaves there is a finding.
cd "$(dirname "$0")/.." || exit 2
DITTO=$(realpath "${DITTO:-./ditto}")
MODEL=$(realpath tests/golden/tiny-flux)
GOLDEN=$(realpath tests/golden)
here=$(mktemp -d) || exit 2
trap 'rm -rf "$here" "$here.cache"' EXIT
export XDG_CACHE_HOME="$here.cache" # nothing of these runs is left in the user's
cd "$here" || exit 2
passed=0 failed=0

good() { passed=$((passed + 1)); }
bad() { failed=$((failed + 1)); printf 'FAIL: %s\n' "$1"; }
# is CONDITION-RESULT NAME: used as  [ -f x ]; is $? "x exists"
is() { if [ "$1" -eq 0 ]; then good; else bad "$2"; fi; }

# works NAME COMMAND...: exit 0; standard output is left in $here/.out, standard error in $here/.err
works() {
    name=$1
    shift
    "$@" >.out 2>.err </dev/null
    rc=$?
    if [ $rc -eq 0 ]; then good; else bad "$name: exit $rc: $(head -c 400 .err)"; fi
}

# refused CODE TEXT NAME COMMAND...: that exit code, one line "ditto: ..." that contains TEXT, nothing on standard output
refused() {
    want=$1 text=$2 name=$3
    shift 3
    "$@" >.out 2>.err </dev/null
    rc=$?
    lines=$(grep -c '^ditto: ' .err)
    others=$(grep -vc '^ditto: ' .err)
    if [ $rc -ne "$want" ]; then bad "$name: exit $rc, expected $want: $(head -c 400 .err)"
    elif [ "$lines" -ne 1 ] || ! grep '^ditto: ' .err | grep -qF -- "$text"; then
        bad "$name: found \"$(head -c 400 .err)\", expected \"$text\""
    elif [ -s .out ]; then bad "$name: wrote to standard output: $(head -c 200 .out)"
    elif grep -q 'Sanitizer\|runtime error' .err; then bad "$name: $(head -c 400 .err)"
    elif [ "$others" -gt 2 ]; then bad "$name: says too much: $(head -c 400 .err)"
    else good; fi
}

finish() {
    echo "$passed passed, $failed failed"
    [ "$failed" -eq 0 ]
    exit
}
