#!/bin/sh
# test_selftest.sh - ditto selftest on a copy of the tiny checkpoint: sums against sha256sum, both forms of manifest,
# recorded stages, one spoilt thing at a time, exit codes.
# Easy to get wrong: a byte of a weight that changes nothing visible must still be found, by its file's sum.
. "$(dirname "$0")/shell.sh"
LC_ALL=C
export LC_ALL
test() { "$DITTO" selftest -m m --device cpu "$@"; }
fresh() { rm -rf m && cp -r "$MODEL" m; }
# says CODE TEXT NAME [OPTION...]: as refused, but the files' sums may be on standard output
says() {
    want=$1 text=$2 name=$3
    shift 3
    test -q "$@" >.out 2>.err
    [ $? -eq "$want" ] && [ "$(wc -l <.err)" -eq 1 ] && grep -qF "$text" .err
    is $? "$name: $(cat .err)"
}

# --- nothing recorded ---
fresh
works "nothing recorded" test
grep -q 'no manifest' .err && grep -q '0 of 13 stages compared: m/ditto-selftest.tsv does not exist' .err
is $? "both are said"
(cd m && find . -type f | sed 's|^\./||' | sort | while read -r f; do
    echo "file	$f	$(stat -c %s "$f")	$(sha256sum <"$f" | cut -c1-64)	-"; done) >want
grep '^file' .out | cmp -s - want
is $? "sizes and sums of all files"
[ "$(grep -c '^stage' .out)" -eq 13 ] && [ "$(grep '^stage' .out | cut -f 6 | sort -u)" = - ]
is $? "13 stages, none judged"
works "a dump of the same job" "$DITTO" -m m --device cpu -q -W 256 -H 256 --steps 1 --seed 20 --max-sequence-length 128 --dump d \
    -o a.png -p "a lighthouse at dusk, waves breaking below, the beam cutting through mist"
works "again" test -q
[ ! -s .err ]
is $? "-q says nothing"
for stage in ids_2 noise prompt_embeds velocity_000 latents pixels; do # a stage file: 8 bytes, header, values
    size=$(od -An -tu8 -N8 d/$stage.safetensors | tr -d ' ')
    sum=$(tail -c +$((9 + size)) d/$stage.safetensors | sha256sum | cut -c1-64)
    [ "$(awk -F '\t' -v s=$stage '$1 == "stage" && $2 == s { print $5 }' .out)" = "$sum" ]
    is $? "$stage: the sum of what --dump writes"
done
[ "$(find m -name 'ditto-*' | wc -l)" -eq 0 ]
is $? "nothing is written without --record"

# --- record, then compare ---
works "--record" test --record
[ -f m/ditto-manifest.tsv ] && [ -f m/ditto-selftest.tsv ] && grep -q '	recorded$' .out
is $? "both files are written"
works "compare" test
[ "$(cut -f 1,5 .out | grep '^file' | sort -u)" = "file	ok" ] && grep -q 'all 13 stages as recorded' .err
is $? "everything as recorded"
says 2 "m/ditto-selftest.tsv: holds a record for \"cpu" "--record over a record" --record
works "-y" test -q --record -y
cp m/ditto-selftest.tsv record
cp m/ditto-manifest.tsv manifest

# --- stages ---
sed -i '/\t\(velocity_000\|pixels\)\t/s/..$/zz/' m/ditto-selftest.tsv
"$DITTO" selftest -m m --device cpu >.out 2>.err
[ $? -eq 1 ] && grep -q '^ditto: velocity_000 is the first of 2 stages that differ from m/ditto-selftest.tsv (cpu ' .err
is $? "stages that differ: exit 1, the first is named"
[ "$(awk -F '\t' '$6 == "differs" { print $2 }' .out | xargs)" = "velocity_000 pixels" ]
is $? "they are marked"
sed 's/^cpu [^\t]*/cuda sm_90 cuDNN 9.19 cuBLAS 13.1 bf16/' record >m/ditto-selftest.tsv
works "another profile's record" test
grep -q '7 of 13 stages compared: m/ditto-selftest.tsv has no record for "cpu OpenBLAS' .err
is $? "ids, masks, sigmas and noise are compared, the others not"
sed -i '/\tnoise\t/s/.\{2\}$/zz/' m/ditto-selftest.tsv
says 1 "noise is the first of 1" "noise must be everywhere the same"
works "--dtype f32 with a bf16 record" test --dtype f32 -q
sed 's/^cpu [^\t]*/cuda sm_90 cuDNN 9.19 cuBLAS 13.1 bf16/' record >m/ditto-selftest.tsv
works "a second profile" test -q --record
[ "$(cut -f 1 m/ditto-selftest.tsv | sort -u | grep -c .)" -eq 3 ] && [ "$(wc -l <m/ditto-selftest.tsv)" -eq 27 ]
is $? "both are kept"
echo "# ditto selftest 0" >m/ditto-selftest.tsv
says 3 "another version of the self-test" "a record of another version"
{ head -n 1 record; echo "cpu	ids_1"; } >m/ditto-selftest.tsv
says 3 "m/ditto-selftest.tsv:2: expected profile" "a short line"

# --- files; a fault is found before a step is run ---
spoilt() { # TEXT NAME [OPTION...]
    text=$1 name=$2
    shift 2
    says 3 "$text" "$name" "$@"
    ! grep -q '^stage' .out
    is $? "$name: no step"
}
fresh
cp manifest m/ditto-manifest.tsv
printf '\001' | dd of=m/transformer/diffusion_pytorch_model.safetensors bs=1 seek=500000 conv=notrunc 2>/dev/null
spoilt "transformer/diffusion_pytorch_model.safetensors: sum differs (m/ditto-manifest.tsv); 1 of 17" "one byte of a weight"
[ "$(grep -c '	ok$' .out)" -eq 16 ] && grep -q '	sum differs$' .out
is $? "the others are ok"
fresh
cp manifest m/ditto-manifest.tsv
echo >>m/vae/config.json
spoilt "vae/config.json: size differs" "a byte more"
fresh
sed 's|^model_index.json|absent.json|' manifest >m/ditto-manifest.tsv
spoilt "absent.json: missing" "a missing file"
grep -q '^file	model_index.json	.*	not listed$' .out
is $? "a file that is not listed is no fault of its own"
cp manifest m/ditto-manifest.tsv
works "a manifest elsewhere" test -q --manifest "$here/manifest"
awk -F '\t' '!/^#/ { print $3, $2, $1 }' manifest >sums
echo "- - vae/config.json" >>sums
spoilt "sums:18: vae/config.json is listed twice" "listed twice" --manifest sums
sed -i '$d; 1s/^[0-9a-f]* [0-9]*/- -/' sums
works "the other form, with unknown sums" test -q --manifest sums
sed -i '3s/^./g/' sums
spoilt 'sums:3: SHA-256: found "g' "a bad digit" --manifest sums
echo "a b" >sums
spoilt "sums:1: expected name, size and SHA-256" "two fields" --manifest sums
: >sums
spoilt "sums: lists no file" "an empty manifest" --manifest sums
refused 6 "nowhere: " "no such manifest" test --manifest nowhere -q
refused 2 "no model: give -m DIR" "no model" "$DITTO" selftest

finish
