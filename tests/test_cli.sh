#!/bin/sh
# test_cli.sh - the program as a user meets it: exit codes, streams, names, seeds, metadata, interrupts. Uses the tiny
# checkpoint with random weights, so nothing is said about pictures here beyond their bytes being equal or not.
. "$(dirname "$0")/shell.sh"

# small, quick, quiet
ditto() { "$DITTO" generate -m "$MODEL" -W 32 -H 16 --steps 1 --max-sequence-length 16 -q "$@"; }
same() { cmp -s "$1" "$2"; }
left() { ls -A | grep -v '^\.out$\|^\.err$' | wc -l; }
clean() { rm -rf "$here"/*; }

# --- help, version, streams ---
works "--help" "$DITTO" --help
grep -q '^usage: ditto' .out && [ ! -s .err ]
is $? "--help goes to standard output"
works "--version" "$DITTO" --version
grep -qE '^ditto [0-9]+\.[0-9]+\.[0-9]+$' .out
is $? "--version"
refused 2 "see ditto --help" "no arguments" "$DITTO"
refused 2 "did you mean --steps?" "unknown option" ditto -p x --stepz 3
for command in generate compare inspect tokens; do
    works "$command --help" "$DITTO" $command --help
    grep -q "^usage: ditto \[*$command" .out
    is $? "$command --help names it"
done
if [ -w /dev/full ]; then
    refused 6 "standard output: cannot write: No space left" "--help into a full disk" sh -c '"$0" --help >/dev/full' "$DITTO"
    refused 6 "standard output: cannot write" "a path into a full disk" sh -c '"$0" generate -m "$1" -p x -W 32 -H 16 --steps 1 \
        --max-sequence-length 16 -q -o full.png >/dev/full' "$DITTO" "$MODEL"
    [ -s full.png ]
    is $? "the picture before it is kept"
fi
refused 6 "standard output: cannot write" "closed standard output" sh -c '"$0" --help >&-' "$DITTO"
clean

# --- report ---
works "--report" ditto -p "a cat" -o a.png --report r.json --count 2 --seed 4
[ "$(grep -c '"path"' r.json)" -eq 2 ] && grep -q '"why_not":.*"there are no graphs on the cpu"' r.json && grep -q '"bits":.*"not proven (cpu)"' r.json
is $? "two pictures in it"
refused 2 "--report: r.json exists; give -y" "existing report" ditto -p "a cat" -o b.png --report r.json
refused 6 "--report: $here is a folder" "a folder as report" ditto -p "a cat" -o b.png --report "$here"
refused 6 "--report: nowhere: no such folder to write to" "a report's folder that is not there" ditto -p "a cat" -o b.png --report nowhere/r.json
refused 6 "--report: /proc/r.json: cannot create" "a report's folder that takes no files" ditto -p "a cat" -o b.png --report /proc/r.json
refused 6 "--trace: nowhere: no such folder to write to" "a trace's folder" ditto -p "a cat" -o b.png --trace nowhere/t.tsv
refused 2 "--output: -: results are files" "standard output as a file" ditto -p "a cat" -o -
refused 2 "--output and --report are both b.png" "a report in the picture's place" ditto -p "a cat" -o b.png --report b.png
refused 2 "--report and --trace are both r" "a report in the trace's place" ditto -p "a cat" -o b.png --report r --trace r
printf '{"prompt":"x"}\n' >"$here.jobs"
refused 6 "--report: nowhere: no such folder to write to" "a batch's report" "$DITTO" batch "$here.jobs" -m "$MODEL" --out b -q --report nowhere/r.json
rm "$here.jobs"
refused 2 "not with --dry-run" "--report with --dry-run" ditto -p "a cat" -o b.png --report s.json --dry-run

[ "$(left)" -eq 3 ]
is $? "nothing else is written"

# --- a file that is none ---
printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 23802932552\n' 0 >pointer.safetensors
"$DITTO" inspect pointer.safetensors >.out 2>.err
[ $? -eq 3 ] && [ ! -s .out ] && [ "$(wc -l <.err)" -eq 1 ] && grep -q '^ditto: pointer.safetensors: is a Git-LFS pointer' .err
is $? "inspect says what it is, once: $(cat .out .err)"
clean

# --- trace ---
works "--trace" ditto -p "a cat" -o t.png --seed 4 --trace t.tsv
works "--trace again" ditto -p "a cat" -o t.png -y --seed 4 --trace u.tsv
works "--trace of another seed" ditto -p "a cat" -o t.png -y --seed 5 --trace v.tsv
works "--trace without fused ops" ditto -p "a cat" -o t.png -y --seed 4 --families none --trace w.tsv
same t.tsv u.tsv
is $? "traces of one job are equal"
differs=$(diff t.tsv v.tsv | sed -n 's/^< //p' | sed -n 1p | cut -f 2)
[ "$differs" = pack ]
is $? "of another seed the text is equal, the noise is not"
[ "$(sed -n '$p' t.tsv | cut -f 7)" = "$(sed -n '$p' w.tsv | cut -f 7)" ] && ! same t.tsv w.tsv
is $? "without fused ops other lines end in the same pixels"
awk -F '\t' 'NF != 8 || length($7) != 16 { bad = 1 } $6 ~ /^77x/ && length($8) == 77 * 12 { rows = 1 } END { exit bad || !rows }' t.tsv
is $? "eight columns, rows of up to 2,048 with hashes of their own"
refused 2 "--trace: t.tsv exists; give -y" "existing trace" ditto -p "a cat" -o b.png --trace t.tsv
refused 2 "--trace: does not go with --profile" "--trace with --profile" ditto -p "a cat" -o b.png --trace x.tsv --profile
refused 6 "--trace: $here is a folder" "a folder as trace" ditto -p "a cat" -o b.png --trace "$here"
clean
works "--explain" ditto -p "a cat" -o b.png --explain
grep -q '^bits  *not proven (cpu)$' .err && grep -q '^  transformer  *attention  *cpu ' .err && [ "$(cat .out)" = b.png ]
is $? "--explain goes to standard error"
clean

# --- the hub's cache ---
mkdir -p "hf/hub/models--some--one/snapshots/0123" hf/hub/models--some--one/refs hf/hub/models--some--one/snapshots/4567
ln -s "$MODEL"/* hf/hub/models--some--one/snapshots/0123
printf 0123 >hf/hub/models--some--one/refs/main
looked() { env -u HF_HUB_CACHE -u HUGGINGFACE_HUB_CACHE -u HF_HOME HOME="$here" "$@" "$DITTO" -m some/one -p x -W 32 -H 16 --dry-run; }
works "HF_HOME with ~, refs/main" looked HF_HOME="~/hf"
grep -q "^model .*($here/hf/hub/models--some--one/snapshots/0123)" .out
is $? "the snapshot that refs/main names: $(head -n 1 .out)"
works "HUGGINGFACE_HUB_CACHE" looked HUGGINGFACE_HUB_CACHE="$here/hf/hub" HF_HOME=/nowhere
works "HF_HUB_CACHE before it" looked HF_HUB_CACHE='$HOME/hf/hub' HUGGINGFACE_HUB_CACHE=/nowhere
refused 3 "not in the hub cache (/nowhere/hub)" "the cache is named" looked HF_HOME=/nowhere
clean

# --- one picture: path on standard output, words on standard error ---
works "a picture" ditto -p "a cat" -o a.png --seed 7
[ "$(cat .out)" = a.png ] && [ ! -s .err ] && [ "$(left)" -eq 1 ]
is $? "one path, quiet, one file"
works "not quiet" "$DITTO" -m "$MODEL" -W 32 -H 16 --steps 1 --max-sequence-length 16 -p "a cat" -o b.png --seed 7
[ "$(cat .out)" = b.png ] && grep -q 'seed 7$' .err
is $? "the seed is printed"
same a.png b.png
is $? "same command, same file, with and without the word generate"
works "another seed" ditto -p "a cat" -o c.png --seed 8
works "compare" "$DITTO" compare a.png b.png
grep -q '^equal pixels: yes' .out
is $? "compare: equal"
"$DITTO" compare a.png c.png >.out 2>.err
[ $? -eq 1 ] && grep -q '^equal pixels: no' .out
is $? "compare: exit 1 for different pictures"
works "compare with a limit" "$DITTO" compare a.png c.png --min-psnr 0
refused 2 "nowhere.png" "compare with a missing file" "$DITTO" compare a.png nowhere.png
refused 2 "a.png: exists; give -y to overwrite" "existing file" ditto -p x -o a.png
same a.png b.png
is $? "it is left alone"
works "-y" ditto -p "a cat" -o a.png -y --seed 8
same a.png c.png
is $? "-y replaces it"
clean

# --- seeds and counts ---
works "drawn seed" ditto -p x -o d.png --json
seed=$(sed -n 's/.*"seed":\([0-9]*\),.*/\1/p' .out)
works "the drawn seed again" ditto -p x -o e.png --seed "$seed"
same d.png e.png
is $? "a drawn seed is stored and gives the picture again"
works "--seed -1" ditto -p x -o f.png --seed -1
same d.png f.png
[ $? -eq 1 ]
is $? "another run draws another seed"
works "--count" ditto -p x -o g.png --seed 5 --count 3
[ "$(cat .out)" = "$(printf 'g-1.png\ng-2.png\ng-3.png')" ]
is $? "three paths in order"
works "single" ditto -p x -o h.png --seed 7
same g-3.png h.png
is $? "picture 3 of seed 5 is the picture of seed 7"
works "pattern" ditto -p x -o 'i-%03d%.png' --seed 5 --count 2
[ -f i-001%.png ] && [ -f i-002%.png ] && same i-002%.png g-2.png
is $? "pattern names"
mkdir folder
works "folder" ditto -p x -o folder --seed 5 --count 2
[ "$(ls folder | wc -l)" -eq 2 ] && same "$(sed -n 2p .out)" g-2.png && sed -n 1p .out | grep -q -- '^folder/.*-5\.png$'
is $? "names in a folder carry the seed"
works "no -o" ditto -p x --seed 6
sed -n 1p .out | grep -q '^\./.*-6\.png$' && same "$(cat .out)" g-2.png
is $? "./TITLE-SEED.png"
clean

# --- names that scripts get wrong ---
mkdir -p "Übung 猫/'q' 100%d"
works "odd names" ditto -p 'say "hi" %s $HOME' -o "Übung 猫/'q' 100%d/ä b.png" --seed 1
[ -f "Übung 猫/'q' 100%d/ä b.png" ]
is $? "odd names are taken literally"
works "odd names are inspected" "$DITTO" inspect "Übung 猫/'q' 100%d/ä b.png"
grep -qF 'say "hi" %s $HOME' .out
is $? "the prompt comes back"
ln -s "$MODEL" "Übung 猫/mödel %s"
works "odd model folder" "$DITTO" -m "Übung 猫/mödel %s" -W 32 -H 16 --steps 1 --max-sequence-length 16 -q -p x -o m.png
clean

# --- metadata ---
works "metadata" ditto -p 'größe' -n 'dull' --cfg-scale 2 -o a.png --seed 18446744073709551615 --guidance 2.5
works "inspect" "$DITTO" inspect a.png
grep -q '^größe$' .out && grep -q '^Negative prompt: dull$' .out &&
    grep -q '^Steps: 1, .*CFG scale: 2, Distilled CFG Scale: 2.5, Seed: 18446744073709551615, Size: 32x16, Model: ' .out
is $? "the web UIs' lines"
grep -q '"prompt":"größe","negative_prompt":"dull","seed":"18446744073709551615"' .out
is $? "the JSON text"
works "--no-metadata" ditto -p 'größe' -n 'dull' --cfg-scale 2 -o b.png --seed 18446744073709551615 --guidance 2.5 --no-metadata
works "inspect" "$DITTO" inspect b.png
grep -q 'carries no texts' .out
is $? "--no-metadata leaves nothing"
works "same pixels" "$DITTO" compare a.png b.png
works "--json" ditto -p 'größe' -o c.png --seed 4294967296 --json
tail -n 1 .out | grep -q '^{"event":"result","status":"done","path":"c.png",.*"seed":4294967296,.*"seconds":{"text":'
is $? "--json: the result comes last"
works "--json of two" ditto -p x -o d.png --steps 3 --count 2 --json
[ "$(grep -c '^{"event":"result","status":"done",' .out)" -eq 2 ] && tail -n 1 .out | grep -q '"path":"d-2.png"' &&
    [ "$(grep -vc '^{"event":"\(progress\|result\)",.*}$' .out)" -eq 0 ]
is $? "--json: events and results, whole lines"
[ "$(grep -c '"picture":1,"of":2,"phase":"denoise","done":[0-3],"total":3,"seconds":[0-9]*\.[0-9]\{3\}' .out)" -eq 4 ] &&
    [ "$(grep -c '"picture":2,"of":2,"phase":"denoise"' .out)" -eq 4 ]
is $? "--json: an event a step"
grep '"denoise","done":0,' .out | grep -qv remaining && [ "$(grep -c '"denoise","done":[12],.*"remaining":' .out)" -eq 4 ] &&
    [ "$(grep -c '"denoise","done":3,.*"remaining":0.000}' .out)" -eq 2 ]
is $? "--json: what remains is said once a step is done"
[ "$(sed -n 's/.*"phase":"\([a-z]*\)".*/\1/p' .out | uniq | tr '\n' ' ')" = "text denoise decode text denoise decode " ]
is $? "--json: the phases in their order"
works "a dump" ditto -p x -o e.png --dump st --seed 1
printf 'x' | dd of=st/noise.safetensors bs=1 seek=3 conv=notrunc 2>/dev/null
ditto -p x -o f.png --seed 1 --inject noise=st/noise.safetensors --json >.out 2>.err
rc=$?
[ $rc -ne 0 ] && [ ! -e f.png ] && tail -n 1 .out | grep -q "^{\"event\":\"result\",\"status\":\"failed\",\"code\":$rc,\"error\":\".*noise"
is $? "--json: a failure is a result"
clean

# --- dry run ---
works "--dry-run" ditto -p "a cat" -o a.png --seed 3 --dry-run
grep -q 'sigmas' .out && grep -q '^output a.png$' .out && [ "$(left)" -eq 0 ]
is $? "a dry run tells and writes nothing"

# --- what earlier runs found out ---
looked() { tr -d ' \n\t' <r.json | grep -q "\"first_sight\":{\"looked\":$1,\"believed\":$2,\"written\":$3[,}]"; }
file=$XDG_CACHE_HOME/ditto/verdicts.tsv
rm -f "$file"
works "--verdicts off" ditto -p "a cat" -o a.png --seed 3 --verdicts off --report r.json
looked '[1-9][0-9]*' 0 0 && [ ! -e "$file" ]
is $? "every fused kernel is compared, nothing is written"
works "a first run" ditto -p "a cat" -o b.png --seed 3 --report r.json -y
n=$(tr -d ' \n\t' <r.json | sed 's/.*"looked":\([0-9]*\).*/\1/')
looked "$n" 0 "$n" && [ "$(grep -c ' bits' "$file")" -eq "$n" ]
is $? "and kept"
works "a second run" ditto -p "a cat" -o c.png --seed 3 --report r.json -y
looked 0 "$n" 0 && same a.png b.png && same b.png c.png
is $? "is believed, with the same picture"
echo nonsense >>"$file"
works "a damaged file" "$DITTO" -m "$MODEL" -W 32 -H 16 --steps 1 --max-sequence-length 16 -p "a cat" -o d.png --seed 3 --report r.json -y
[ "$(grep -c 'verdicts.tsv: damaged .*; it is not used$' .err)" -eq 1 ] && looked "$n" 0 "$n.*" && same a.png d.png
is $? "is said in one line and not used"
works "no place for it" env XDG_CACHE_HOME=/proc/none "$DITTO" -m "$MODEL" -W 32 -H 16 --steps 1 --max-sequence-length 16 -q -p "a cat" \
    -o e.png --seed 3 --report r.json -y
looked "$n" 0 0 && grep -q '"unsaved":.*/proc/none' r.json && same a.png e.png
is $? "nothing is kept, and nothing fails"
clean

# --- quality and families ---
works "--families none" ditto -p "a cat" -o a.png --seed 3 --families none
works "lossless" ditto -p "a cat" -o b.png --seed 3 --explain
grep -q ' ln-modulate: mounted on transformer (' .err
is $? "--explain"
works "families of lossless keep the bits" "$DITTO" compare a.png b.png
works "high" ditto -p "a cat" -o c.png --seed 3 --quality high --json
grep -q '"quality":"high","families":{"transformer":{"linear-gelu-f32":.*"vae":{"vae-kl-rewrite":' .out &&
    grep -q '"linear_gelu":{"cpu_f32":[0-9]*}' .out && grep -q '"groupnorm_silu":{"cpu_f32":[0-9]*}' .out
is $? "the fused kernels and no others ran"
works "--report of high" ditto -p "a cat" -o f.png --seed 3 --quality high --count 2 --report r.json
tr -d ' \n\t' <r.json | grep -q '"bits":"notproven(qualityhigh:linear-gelu-f32)"' &&
    tr -d ' \n\t' <r.json | grep -q '"part":"vae","family":"vae-kl-rewrite","promise":"BOUNDED","mounted":true}'
is $? "a report names the families, and no bits are promised"
"$DITTO" compare a.png c.png >.out 2>.err
[ $? -eq 1 ] && grep -q '^metadata "quality": "lossless" | "high"' .out
is $? "high has other bits and says so"
works "high in f32" "$DITTO" -m "$MODEL" -W 32 -H 16 --steps 1 --max-sequence-length 16 -p "a cat" -o d.png --seed 3 \
    --quality high --dtype f32
grep -q '^note: linear-gelu-f32 stays on the reference path in transformer: flux.double.txt_ff_in: linear_gelu: ' .err
is $? "a refusal names site and reason"
works "--dry-run" ditto -p "a cat" -o e.png --quality high --dry-run
grep -q '^quality        high$' .out && grep -q ' vae-kl-rewrite: mounted on vae (' .out
is $? "a dry run says what will be mounted"
refused 2 "linear-gelu-f32 does not keep the reference's bits; it needs --quality high" "a family of high" \
    ditto -p x -o e.png --families linear-gelu-f32
refused 2 'found "gelu", expected none, all, linear-gelu, ln-modulate, or several' "unknown family" \
    ditto -p x -o e.png --families ln-modulate,gelu
clean

# --- dump and inject ---
works "--dump" ditto -p "a cat" -o a.png --seed 3 --dump stages
[ -f stages/meta.json ] && [ -f stages/noise.safetensors ] && [ -f stages/latents.safetensors ]
is $? "stages are written"
refused 2 "holds a dump; give -y" "a second dump" ditto -p "a cat" -o b.png --seed 3 --dump stages
refused 2 "needs --dump" "--taps alone" ditto -p "a cat" -o d.png --seed 3 --taps
works "--taps" ditto -p "a cat" -o taps.png --seed 3 --dump inner --taps
[ -s inner/vae.mid.attention.out.safetensors ] && [ ! -e stages/vae.picture.safetensors ] && cmp -s a.png taps.png
is $? "--taps: the decoder's tensors beside the stages, and the same picture"
works "--inject" ditto -p "a cat" -o b.png --seed 4 --inject noise=stages/noise.safetensors --no-metadata
works "injected noise gives the picture" "$DITTO" compare a.png b.png
refused 6 "no such file: nowhere.safetensors" "missing file to inject" ditto -p x -o c.png --inject noise=nowhere.safetensors
refused 2 "noize" "unknown stage" ditto -p x -o c.png --inject noize=stages/noise.safetensors
clean

# --- from a picture ---
PHOTO=$GOLDEN/photo.jpg
works "-i" ditto -p "a cat" -o a.png --seed 3 -i "$PHOTO" --strength 0.5 --steps 3 --dump stages -v
grep -q '3 steps, 2 of them run (strength 0.5)' .err
is $? "says how many steps run: $(head -n 1 .err)"
[ -f stages/image_latents.safetensors ] && [ -f stages/velocity_001.safetensors ] && [ ! -f stages/velocity_000.safetensors ]
is $? "stages carry the step's own number"
works "inspect" "$DITTO" inspect a.png --json
grep -q '"image[^:]*:[^a-z]*photo.jpg.*image_sha256.*strength.*:0.5.*steps_run.*:2' .out
is $? "the picture says what it began from, without its folder"
sum=$(sha256sum "$GOLDEN/photo.jpg" | cut -d ' ' -f 1)
refused 2 "began from the picture \"photo.jpg\" (SHA-256 \"$sum\"): give it with -i" "verify" "$DITTO" verify a.png -m "$MODEL"
works "--image" ditto -p "a cat" -o b.png --seed 3 --image "$PHOTO" --strength=0.5 --steps 3
works "the same picture" "$DITTO" compare a.png b.png
works "--dry-run" ditto -p "a cat" -o c.png -i "$PHOTO" --steps 3 --dry-run
grep -q '^image .*photo.jpg, 39 x 61; strength 0.6: 2 of 3 steps run$' .out && grep -q '^  vae_encoder ' .out
is $? "a dry run counts the encoder"
works "--dry-run" ditto -p "a cat" -o c.png --dry-run
! grep -q 'vae_encoder' .out
is $? "without a picture it is not counted"
refused 6 "--image: nowhere.png" "missing picture" ditto -p x -o c.png -i nowhere.png
refused 6 "is neither a PNG nor a JPEG file" "not a picture" ditto -p x -o c.png -i "$GOLDEN/images.txt"
refused 2 "--strength: 1.5 is out of range, expected 0 to 1" "strength" ditto -p x -o c.png -i "$PHOTO" --strength 1.5
refused 2 "--strength: 0 of 1 steps leaves none to run" "no steps" ditto -p x -o c.png -i "$PHOTO" --strength 0
refused 2 "give --image FILE" "strength alone" ditto -p x -o c.png --strength 0.5
clean

# --- tokens ---
works "tokens -m" "$DITTO" tokens -m "$MODEL" -p "a cat"
[ "$(grep -c '"ids":\[' .out)" -eq 2 ]
is $? "one line an encoder"

# --- interrupts: exit 130, one line, no file ---
for signal in INT TERM; do
    # timeout reports 124 whatever the program says: ask for its own code; -k ends one that does not listen; without
    # --foreground the signal comes twice, and a second one ends the program at once, without a text
    timeout --foreground --preserve-status -k 30 -s $signal 1 \
        "$DITTO" -m "$MODEL" -W 64 -H 64 --steps 10000 -p x -q -o slow.png >.out 2>.err </dev/null
    rc=$?
    [ $rc -eq 130 ] && grep -q '^ditto: .*interrupted' .err && [ "$(left)" -eq 0 ]
    is $? "SIG$signal: exit $rc, $(cat .err), $(left) files left"
done

finish
