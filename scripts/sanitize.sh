#!/bin/bash
# sanitize.sh - compute-sanitizer over checkop's small cases on the CUDA table: memcheck, racecheck, initcheck, synccheck.
#
#   scripts/sanitize.sh OUT [TOOL...]            runs the tools; OUT/TOOL.log keeps everything, OUT/sanitize.txt the summary
#   scripts/sanitize.sh --summarise TOOL LOG...  reads logs only
#
# A process a tool, op and part of its cases, JOBS at once (the number of cores), the ops of many cases first and in PARTS (4)
# parts. A finding is ours when the kernel at fault is called k_*; those fail (exit 1), and so does what a tool counted and did
# not show. Findings in the kernels of libraries, and refused CUDA calls, are listed with their number. BIN: folder with tests/checkop (build/portable, else build/release).
# OP: one op only. LIMIT: seconds a process (300); TOTAL: seconds of all: what has not begun by then does not, is named and fails. OURS=1 leaves other kernels uninstrumented, which is quicker.
# COMPUTE_SANITIZER: the program, if not on the path. CUDA libraries are PyTorch's own copies where it is installed.
# Easy to get wrong: an arena is one range of mapped memory, so memcheck sees an access beside the arena only; that an
# op stays within its own tensors is what checkop's guard bands show. A process that did not come to its end has shown nothing:
# it is named and fails.
set -u

# One line a finding: class, what, kernel; between tabs. Device frames alone decide: host backtraces name our code too.
findings() {
    cat "$@" | awk -v OFS='\t' '
        function flush() {
            if (what != "") print class == "" ? "call" : class, what, kernel == "" ? "-" : kernel
            what = ""
        }
        function take(text) { # a kernel name out of a device frame
            if (match(text, /(^|[^A-Za-z0-9_])k_[A-Za-z0-9_]+/)) {
                class = "ours"; kernel = substr(text, RSTART, RLENGTH); sub(/^[^k]*/, "", kernel)
            } else if (class == "") {
                class = "library"; kernel = text
                sub(/^.*( at | in |access at )/, "", kernel); sub(/^0x[0-9a-f]+ in /, "", kernel); sub(/\+0x.*/, "", kernel)
                gsub(/[<(].*/, "", kernel); sub(/^void /, "", kernel)
            }
        }
        !/^=========/ { next }
        /^========= (COMPUTE-SANITIZER|.* SUMMARY:|Target application returned|Error: process|Internal Sanitizer)/ { flush(); next }
        /^========= (No |Warning: )/ && !/[Rr]ace reported/ { flush(); if (!/^========= No /) print "other", substr($0, 11), "-"; next }
        /^========= ?$/ { flush(); next }
        /^========= [^ ]/ {
            flush()
            what = substr($0, 11); class = ""; kernel = ""; host = 0
            sub(/^(ERROR|Error|Warning|WARN): /, "", what)
            if (what ~ /Race reported/) { take(what); sub(/ at .*/, "", what); sub(/ access$/, "", what) }
            sub(/ on address 0x[0-9a-f]+.*/, "", what)
            next
        }
        /Saved host backtrace|Host Frame/ { host = 1 }
        !host && /^=========  +(at|in|and) .*|Device Frame/ && what != "" { take($0) }
        END { flush() }'
}

# TOOL LOG...: prints the summary; 1 when a finding is ours
summarise() {
    tool=$1
    shift
    rows=$(findings "$@")
    count() { printf '%s' "$rows" | grep -c "^$1	"; }
    ours=$(count ours)
    echo "$tool: ours $ours, in libraries $(count library), refused calls $(count call), notes of the tool $(count other)"
    # what the tool counted itself, over all processes: more than ours when it stopped printing
    counted=$(cat "$@" | awk '/SUMMARY: / && match($0, /[0-9]+ (error|hazard)/) { n += substr($0, RSTART, RLENGTH) + 0 } END { print n + 0 }')
    echo "$tool: counted by the tool: $counted"
    printf '%s\n' "$rows" | grep . | cut -c1-160 | sort | uniq -c | sort -rn | awk -F '\t' '{ print "    " $0 }' | sed -n 1,60p
    cat "$@" | grep -q 'SUMMARY: ' || { echo "$tool: no summary line: the tool did not finish"; return 1; }
    read=$(($(count ours) + $(count library) + $(count call)))
    [ "$counted" -le $read ] || { echo "$tool: $counted counted, $read read"; return 1; }
    [ "$ours" -eq 0 ] && ! { cat "$@" | grep -q 'Internal Sanitizer Error'; }
}

if [ "${1:-}" = --summarise ]; then
    [ $# -ge 3 ] || { sed -n 5p "$0" >&2; exit 2; }
    shift
    summarise "$@"
    exit
fi
if [ "${1:-}" = --job ]; then # TOOL OP PART PARTS: one process; $program, $bin and $out are the parent's
    tool=$2 name=$out/$2/$3.$4
    start=$(date +%s)
    left=$((${deadline:-start + 100000} - start))
    [ $left -gt 0 ] || { echo "0 $3 $4/$5 - not begun: ${TOTAL:-} s were over" >"$name.end"; exit 0; }
    limit=${LIMIT:-300}
    [ "$limit" -le $left ] || limit=$left
    timeout "$limit" "$program" --tool "$tool" --target-processes all --print-limit 2000 --log-file "$name.%p.part" \
        ${OURS:+--kernel-regex kns=k_} "$bin/tests/checkop" --small --backend cuda --op "$3" --shard "$4/$5" >"$name.checkop" 2>&1
    rc=$?
    cat "$name".*.part >"$name.tool" 2>/dev/null
    rm -f "$name".*.part
    word=ended
    grep -q 'SUMMARY: ' "$name.tool" || word="did not finish"
    [ $rc -ne 124 ] || word="stopped after $limit s"
    echo "$(($(date +%s) - start)) $3 $4/$5 $rc $word" >"$name.end"
    exit 0
fi
[ $# -ge 1 ] || { sed -n 4,5p "$0" >&2; exit 2; }
mkdir -p "$1" || exit 2
out=$(realpath "$1")
shift
cd "$(dirname "$0")/.." || exit 2
[ $# -gt 0 ] || set -- memcheck racecheck initcheck synccheck
bin=${BIN:-build/portable}
[ -x "$bin/tests/checkop" ] || bin=build/release
[ -x "$bin/tests/checkop" ] || { echo "sanitize.sh: no tests/checkop in ${BIN:-build/portable}: make portable" >&2; exit 2; }
program=${COMPUTE_SANITIZER:-$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)}
[ -n "$program" ] || { echo "sanitize.sh: compute-sanitizer is not here; it comes with the CUDA toolkit" >&2; exit 2; }
libs=$(python3 scripts/torch_libs.py 2>/dev/null)
[ -z "$libs" ] || export LD_LIBRARY_PATH="$libs${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
export OMP_WAIT_POLICY=passive # checkop would start itself again to set it
# Ops whose cases take longest, by their number and size: their processes begin first.
long=" attention attention_eager self_attention conv2d conv3d upsample_conv linear linear_many linear_many_gelu groupnorm groupnorm_silu "
ops=${OP:-$("$bin/tests/checkop" --list --backend cuda | cut -d ' ' -f 1)}
jobs() { # begin with what takes long
    for pass in long short; do
        for tool in "$@"; do
            for op in $ops; do
                case $long in *" $op "*) parts=${PARTS:-4} kind=long ;; *) parts=1 kind=short ;; esac
                [ $kind = $pass ] || continue
                for ((i = 0; i < parts; i++)); do echo "$tool $op $i $parts"; done
            done
        done
    done
}
failed=0
{
    echo "# $(date -u +%F) $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | sed -n 1p)"
    echo "# $("$program" --version 2>&1 | grep -i version | sed -n 1p); commit ${COMMIT:-$(git describe --always 2>/dev/null || echo unknown)}"
} >"$out/sanitize.txt"
deadline=$(($(date +%s) + ${TOTAL:-100000}))
export program bin out deadline
for tool in "$@"; do
    rm -rf "${out:?}/$tool"
    mkdir -p "$out/$tool"
done
SECONDS=0
jobs "$@" | xargs -P "${JOBS:-$(nproc)}" -L 1 bash "$(realpath scripts/sanitize.sh)" --job
for tool in "$@"; do
    cat "$out/$tool"/*.tool "$out/$tool"/*.checkop >"$out/$tool.log"
    {
        summarise "$tool" "$out/$tool.log" || failed=1
        [ "$(cat "$out/$tool"/*.end | wc -l)" -eq "$(jobs "$tool" | wc -l)" ] || { echo "$tool: some processes left nothing behind"; failed=1; }
        grep -hv ' ended$' "$out/$tool"/*.end | sed "s/^/$tool: /" | grep . && failed=1
        cat "$out/$tool"/*.checkop | awk -v t="$tool" '/^[0-9]+ passed, [0-9]+ failed/ { p += $1; f += $3; n++ }
            END { print t ": checkop says: " p + 0 " passed, " f + 0 " failed (" n + 0 " processes)" }'
        grep -h '^FAIL' "$out/$tool"/*.checkop | cut -c1-200 | sed -n 1,12p
        echo "$tool: longest processes (s): $(cat "$out/$tool"/*.end | sort -rn | awk '{ printf "%s%s %s %s", (NR > 1 ? ", " : ""), $1, $2, $3 }
            NR == 3 { exit }')"
    } >>"$out/sanitize.txt"
    rm -rf "${out:?}/$tool"
done
echo "# $SECONDS s, ${JOBS:-$(nproc)} processes at once" >>"$out/sanitize.txt"
cat "$out/sanitize.txt"
exit $failed
