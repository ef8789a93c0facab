#!/bin/sh
# lint.sh - the house rules that a script can check, over every file that git tracks. Called by make lint and make check.
# Ends with "N passed, N failed", one count a rule. Not a parser: comments and strings are blanked first, the rest is
# patterns. Exceptions stand in the file, with their reason: "lint: allow-print", "lint: allow-static" on the line,
# "lint: allow-long" among the first lines (tables, generated code).
cd "$(dirname "$0")/.." || exit 2
BUILD=${BUILD:-build/release}
work=$(mktemp -d) || exit 2
trap 'rm -rf "$work"' EXIT
passed=0 failed=0

git ls-files 2>/dev/null >"$work/tracked" || true
[ -s "$work/tracked" ] || find . -type f -not -path './.git/*' -not -path './build/*' | sed 's|^\./||' >"$work/tracked"
while IFS= read -r f; do [ -f "$f" ] && printf '%s\n' "$f"; done <"$work/tracked" >"$work/all"
grep -E '\.(c|h|cu|cuh)$' "$work/all" >"$work/c"
grep -E '\.(c|h|cu|cuh|sh|py)$|(^|/)Makefile$|^\.ci/run$' "$work/all" >"$work/code"
grep -E '\.(c|h|cu|cuh|sh|py|md|txt|json|tsv)$|(^|/)Makefile$|^\.ci/run$' "$work/all" | grep -v '^weights/.*\.json$' \
    | grep -v '^tests/golden/' >"$work/text"

rule() { # NAME: counts the findings on standard input
    if [ -s "$work/found" ]; then
        failed=$((failed + 1))
        echo "FAIL $1"
        sed 's/^/    /' "$work/found" | head -n 40
    else
        passed=$((passed + 1))
    fi
    : >"$work/found"
}

# Blanks comments, strings and character constants; keeps line numbers and the "lint:" remarks.
blank() {
    awk '{
        out = ""; n = length($0); keep = match($0, /lint: allow-[a-z]+/) ? substr($0, RSTART, RLENGTH) : ""
        for (i = 1; i <= n; i++) {
            c = substr($0, i, 1); d = substr($0, i, 2)
            if (comment) { if (d == "*/") { comment = 0; i++ } }
            else if (quote != "") { if (c == "\\") i++; else if (c == quote) { quote = ""; out = out c } }
            else if (d == "/*") { comment = 1; i++ }
            else if (d == "//") break
            else { if (c == "\"" || c == "\047") quote = c; out = out c }
        }
        quote = ""
        print out (keep == "" ? "" : " " keep)
    }' "$1"
}

: >"$work/found"

# 1. Length: explain above 600 lines, split above 1,000.
while IFS= read -r f; do
    head -n 12 "$f" | grep -q 'lint: allow-long' && continue
    n=$(wc -l <"$f")
    if [ "$n" -gt 1000 ]; then echo "$f: $n lines, split above 1000" >>"$work/found"
    elif [ "$n" -gt 600 ]; then echo "note: $f: $n lines; above 600 wants a reason"; fi
done <"$work/code"
rule "file length"

# 2. Only main.c and cli.c print of their own accord, exit or read the environment; the others get a FILE *.
grep -E '^src/' "$work/c" | grep -vE '^src/(main|cli)\.[ch]$' | while IFS= read -r f; do
    blank "$f" | grep -nE '(^|[^A-Za-z0-9_>.])(printf|puts|putchar|vprintf|perror|exit|_exit|_Exit|abort|getenv|secure_getenv|setenv|putenv) *\(|(^|[^A-Za-z0-9_])(stdout|stderr|stdin)([^A-Za-z0-9_]|$)' \
        | grep -v 'lint: allow-print' | sed "s|^|$f:|"
done >"$work/found"
rule "prints, exits and the environment only in main.c and cli.c"

# 3. No mutable statics: what the compiler put into writable sections, by name.
if [ -d "$BUILD/src" ]; then
    grep -E '^src/.*\.c$' "$work/c" | while IFS= read -r f; do
        object=$BUILD/${f%.c}.o
        [ -f "$object" ] || continue
        objdump -t "$object" | awk '$0 ~ /[ \t]\.(data|bss|tdata|tbss)(\.[A-Za-z0-9_]+)?[ \t]/ && $0 !~ /\.data\.rel\.ro/ && $0 !~ / d / { print $NF }' \
            | grep -vE '^(__|_|\.|completed)' | while IFS= read -r symbol; do
            name=${symbol%%.*}
            grep -E "(^|[^A-Za-z0-9_])$name([^A-Za-z0-9_]|\$)" "$f" | grep -q 'lint: allow-static' || echo "$f: $name"
        done
    done >"$work/found"
    rule "no mutable statics"
else
    echo "note: no objects in $BUILD: mutable statics not checked"
fi

# 4. White space and line ends.
while IFS= read -r f; do
    [ -s "$f" ] || { echo "$f: empty" >>"$work/found"; continue; }
    [ -z "$(tail -c 1 "$f")" ] || echo "$f: no newline at the end"
    [ -n "$(tail -n 1 "$f")" ] || echo "$f: empty line at the end"
    grep -nE '[[:blank:]]$' "$f" | sed "s|^|$f:trailing blank:|" | head -n 3
    grep -n "$(printf '\r')" "$f" | sed "s|^|$f:carriage return:|" | head -n 3
done <"$work/text" >>"$work/found"
rule "white space and final newlines"
while IFS= read -r f; do grep -n "$(printf '\t')" "$f" | sed "s|^|$f:|" | head -n 3; done <"$work/c" >"$work/found"
rule "no tabs in C"
while IFS= read -r f; do
    awk -v f="$f" '{ s = $0; gsub(/[\200-\277]/, "", s); if (length(s) > 130) print f ":" NR ": " length(s) " columns" }' "$f" | head -n 3
done <"$work/c" >"$work/found"
rule "no line above 130 columns"

# 5. Every file opens with a paragraph about itself.
while IFS= read -r f; do
    case $f in
    *.c | *.h | *.cu | *.cuh) head -n 1 "$f" | grep -qE "^/\* $(basename "$f" | sed 's/\./\\./g')" || echo "$f: first line is not \"/* $(basename "$f") ...\"" ;;
    *.py) head -n 4 "$f" | grep -qE '^("""|#[^!]|r""")' || echo "$f: no opening paragraph" ;;
    *) head -n 3 "$f" | grep -qE '^#[^!]' || echo "$f: no opening paragraph" ;;
    esac
done <"$work/code" >"$work/found"
rule "opening paragraph"

# 6. Nothing left over, nothing of one person's machine.
while IFS= read -r f; do
    [ "$f" = scripts/lint.sh ] && continue
    grep -nE '(^|[^A-Za-z0-9_])(TODO|FIXME|XXX)([^A-Za-z0-9_]|$)' "$f" | sed "s|^|$f:|"
    grep -nE "(^|[^A-Za-z0-9_.~*}-])/(home|root|work|opt|mnt|Users)/[A-Za-z0-9]" "$f" | sed "s|^|$f:|"
done <"$work/text" >"$work/found"
rule "no left-over marks, no paths of one machine"

# 7. The README's figures are the recorded ones.
if command -v python3 >/dev/null; then
    python3 scripts/bench_table.py --check 2>"$work/found"
    rule "README: figures as recorded"
fi

echo "$passed passed, $failed failed"
[ "$failed" -eq 0 ]
