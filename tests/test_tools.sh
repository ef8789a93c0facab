#!/bin/sh
# test_tools.sh - sigmas, noise, verify, completion and man as a user meets them. What a run will use must be what a run used:
# sigmas and noise are compared with the stages that generate --dump wrote.
# Easy to get wrong: the scripts and the page must hold every option of the table, so the list of options is taken from --help.
. "$(dirname "$0")/shell.sh"

ZIMAGE=$GOLDEN/tiny-zimage
small="-W 32 -H 48 --steps 3"
skipped=
skip() { skipped="$skipped $1"; echo "skipped: $1: $2"; }

# --- sigmas and noise against a run's own stages ---
for model in "$MODEL" "$ZIMAGE"; do
    for dtype in bf16 f32; do
        name="$(basename "$model"), $dtype"
        rm -rf stages n.safetensors
        works "$name: a run" "$DITTO" -m "$model" $small --max-sequence-length 32 --dtype $dtype -p x --seed 9 -q -o a.png -y --dump stages
        works "$name: noise" "$DITTO" noise -m "$model" -W 32 -H 48 --dtype $dtype --seed 9 -o n.safetensors
        works "$name: noise is the run's" "$DITTO" compare stages/noise.safetensors n.safetensors
        works "$name: sigmas" "$DITTO" sigmas -m "$model" $small --dtype $dtype
        grep -v '^#' .out | cut -f 2 | tr '\n' ' ' >ours
        "$DITTO" -m "$model" $small --dtype $dtype --max-sequence-length 32 -p x --dry-run -q | sed -n 's/^sigmas  *//p' | tr -d '\n' >theirs
        [ "$(cat ours)" = "$(cat theirs) " ] && [ "$(wc -w <ours)" -eq 4 ]
        is $? "$name: sigmas are the run's: $(cat ours)"
        works "$name: sigmas --json" "$DITTO" sigmas -m "$model" $small --dtype $dtype --json
        sed 's/.*"sigmas":\[\([^]]*\)\].*/\1/' .out | tr ',' ' ' >json
        [ "$(cat json) " = "$(cat ours)" ] && [ "$(wc -l <.out)" -eq 1 ]
        is $? "$name: sigmas, both forms alike"
    done
done
# Z-Image keeps its latents in F32: its dt is not rounded to the run's bf16
"$DITTO" sigmas -m "$ZIMAGE" $small --dtype bf16 | grep -v '^#' | cut -f 5 >bf16
"$DITTO" sigmas -m "$ZIMAGE" $small --dtype f32 | grep -v '^#' | cut -f 5 >f32
cmp -s bf16 f32
is $? "sigmas: dt is the model's own"
"$DITTO" sigmas -m "$MODEL" $small --dtype bf16 | grep -v '^#' | cut -f 5 >bf16
"$DITTO" sigmas -m "$MODEL" $small --dtype f32 | grep -v '^#' | cut -f 5 >f32
! cmp -s bf16 f32
is $? "sigmas: FLUX.1 rounds dt"
# the solver of SANA-Video: coefficients, the last step of first order
SANA=$(dirname "$GOLDEN")/../weights/demo-sana-video
works "sigmas of another solver" "$DITTO" sigmas -m "$SANA" --steps 3
grep -q '	k0	k1	k2	k3	k4$' .out && awk -F '\t' '$1 == 1 && $8 == 0 { bad = 1 } $1 == 2 && ($6 != 0 || $7 != -1) { bad = 1 } END { exit bad }' .out
is $? "sigmas: coefficients: $(tail -2 .out | head -1)"
"$DITTO" sigmas -m "$SANA" --steps 3 --json | grep -q '"k":\[\[[-0-9.,]*\],\[[-0-9.,]*\],\[[-0-9.,]*\]\]'
is $? "sigmas: coefficients in JSON"
rm -rf stages
works "noise of a shape" "$DITTO" noise --seed 9 --shape 1,6,6,4 --dtype bf16 -o s.safetensors
works "noise of the same model" "$DITTO" noise --seed 9 -m "$MODEL" -W 32 -H 48 -o m.safetensors
works "noise: the same draw" "$DITTO" compare s.safetensors m.safetensors
works "noise: json" "$DITTO" noise --seed 9 --shape 1,6,6,4 --json
grep -q '^{"dtype":"BF16","shape":\[1, 6, 6, 4\],"seed":9,"sha256":"[0-9a-f]\{64\}","mean":' .out
is $? "noise: json"
refused 2 "s.safetensors" "noise: an existing file" "$DITTO" noise --seed 9 --shape 4 -o s.safetensors
refused 2 "needs --seed" "noise: no seed" "$DITTO" noise --shape 4
refused 2 "--shape N,N,... or -m DIR" "noise: neither" "$DITTO" noise --seed 1
refused 2 "--shape N,N,... or -m DIR" "noise: both" "$DITTO" noise --seed 1 --shape 4 -m "$MODEL"
refused 2 "found \"4,0\"" "noise: an extent of 0" "$DITTO" noise --seed 1 --shape 4,0
refused 2 "found \"1,1,1,1,1,1\"" "noise: too many extents" "$DITTO" noise --seed 1 --shape 1,1,1,1,1,1
refused 4 "no memory for" "noise: more than there is" "$DITTO" noise --seed 1 --shape 2147483647,2147483647
refused 2 "go with -m DIR" "noise: a size for a shape" "$DITTO" noise --seed 1 --shape 4 -W 32
refused 2 "no model" "sigmas: no model" "$DITTO" sigmas

# --- verify: -m, and the model that the picture names ---
ln -s "$MODEL" here
works "a picture" "$DITTO" -m here -W 32 -H 16 --steps 1 --max-sequence-length 16 -p x --seed 2 -q -o v.png
works "verify" "$DITTO" verify v.png
[ "$(cat .out)" = "equal pixels: yes" ] && grep -q '^making v.png again' .err
is $? "verify: results to standard output, words to standard error"
rm here
refused 3 "v.png names its model; if it lies elsewhere give -m DIR" "verify: the model is gone" "$DITTO" verify v.png
works "verify -m" "$DITTO" verify v.png -m "$MODEL" -q
[ "$(cat .out)" = "equal pixels: yes" ] && [ ! -s .err ]
is $? "verify -m: equal, quiet"
head -c 200 v.png >cut.png
refused 6 "cut.png" "verify: a truncated picture" "$DITTO" verify cut.png -m "$MODEL"
refused 2 "no parameters" "verify: a foreign picture" "$DITTO" verify "$GOLDEN/pil.png" -m "$MODEL"

# --- completion and man ---
commands=$("$DITTO" --help | sed -n '/^commands:/,/^$/s/^  \([a-z]*\) .*/\1/p')
[ "$(echo "$commands" | wc -w)" -ge 11 ]
is $? "commands: $(echo $commands)"
options() { "$DITTO" "$1" --help | sed -n '/^options:/,$s/^  \(-.\)\{0,1\},\{0,1\} *--\([a-z-]*\).*/\2/p'; }
"$DITTO" man >page
for shell in bash zsh fish; do works "completion $shell" "$DITTO" completion $shell && mv .out completion.$shell; done
missing=
for command in $commands; do
    # what each script offers for this command
    sed -n "s/^        $command) COMPREPLY=.*-W '\([^']*\)'.*/\1/p" completion.bash >in.bash
    sed -n "/^    $command)\$/,/;;\$/p" completion.zsh >in.zsh
    grep -q "^.B.* $command\$\|^\\\\fBditto $command\\\\fR" page || missing="$missing man:$command"
    grep -q "'$command:" completion.zsh || missing="$missing zsh:$command"
    grep -q "__fish_use_subcommand -a $command " completion.fish || missing="$missing fish:$command"
    for option in $(options "$command"); do
        grep -q -- "--$option\( \|\$\)" in.bash || missing="$missing bash:$command:$option"
        grep -q -- "--$option[[}']\|,--$option}" in.zsh || missing="$missing zsh:$command:$option"
        awk -v option="-l $option " -v command=" $command " 'index($0, option) {
            list = match($0, /from[a-z ]*/) ? substr($0, RSTART + 4, RLENGTH - 4) " " : ""
            if (list == "" || (/not __fish/ ? !index(list, command) : index(list, command))) found = 1
        } END { exit !found }' completion.fish || missing="$missing fish:$command:$option"
        grep -qF -- "\\-\\-$(echo "$option" | sed 's/-/\\-/g')\\fR" page || missing="$missing man:$option"
    done
done
[ -z "$missing" ]
is $? "every option of every command is everywhere, but not:$missing"
[ "$(for command in $commands; do options "$command"; done | sort -u | wc -l)" -ge 40 ]
is $? "the list of options is not empty"
for code in 0 1 2 3 4 5 6 7 130; do grep -q "^\.B $code\$" page || bad "man: exit code $code"; done
refused 2 "expected bash, zsh or fish" "completion of another shell" "$DITTO" completion tcsh

bash -n completion.bash
is $? "bash accepts the script"
try() { # EXPECTED WORD...: what bash completes for this command line
    want=$1
    shift
    got=$(bash -c '. ./completion.bash; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _ditto; echo "${COMPREPLY[*]}"' x "$@")
    [ "$got" = "$want" ]
    is $? "bash: $*: found \"$got\", expected \"$want\""
}
mkdir "a folder"
try "compare completion" ditto com
try "--min-psnr --min-ssim --min-snr" ditto compare --min
try "cpu cuda" ditto generate --device ""
try "lossless" ditto --quality l
try "bash zsh fish" ditto completion ""
try "decode" ditto bench d
try "a folder" ditto -m a
try "" ditto --steps ""
if command -v zsh >/dev/null; then
    zsh -n completion.zsh
    is $? "zsh accepts the script"
else skip zsh "not installed"; fi
if command -v fish >/dev/null; then
    fish -n completion.fish
    is $? "fish accepts the script"
    fish -c 'source completion.fish; complete -C "ditto compare --min"' | cut -f 1 | tr '\n' ' ' >.out
    [ "$(cat .out)" = "--min-psnr --min-snr --min-ssim " ]
    is $? "fish: compare --min: $(cat .out)"
    fish -c 'source completion.fish; complete -C "ditto --quality "' | cut -f 1 | tr '\n' ' ' >.out
    [ "$(cat .out)" = "high lossless " ]
    is $? "fish: --quality: $(cat .out)"
    fish -c 'source completion.fish; complete -C "ditto sigmas --co"' >.out
    [ ! -s .out ]
    is $? "fish: options of other commands are not offered: $(cat .out)"
else skip fish "not installed"; fi
if command -v groff >/dev/null; then
    groff -man -Tutf8 -ww -b page >text 2>warnings
    [ ! -s warnings ] && [ "$(wc -l <text)" -gt 150 ]
    is $? "groff sets the page without a warning: $(head -n 3 warnings)"
    grep -q 'min-psnr' text && grep -q 'a lighthouse at dusk' text
    is $? "the page as set"
else skip groff "not installed"; fi
if command -v man >/dev/null && command -v groff >/dev/null; then
    MANWIDTH=80 man --warnings -l page >text 2>warnings </dev/null
    [ $? -eq 0 ] && [ ! -s warnings ] && [ "$(wc -l <text)" -gt 150 ]
    is $? "man shows the page: $(head -n 3 warnings)"
else skip man "not installed"; fi

[ -z "$skipped" ] && finish
echo "$passed passed, $failed failed ($(echo "$skipped" | wc -w) skipped:$skipped)"
[ "$failed" -eq 0 ]
