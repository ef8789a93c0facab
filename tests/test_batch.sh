#!/bin/sh
# test_batch.sh - ditto batch as a user meets it: the bits of single runs in any order and company, resume after kill -9 at every
# call that changes a file and at random moments, a full disk, broken lines, names, shards, events. test_batch.c has the parts.
# Easy to get wrong: a picture counts as rendered once when the journal has one line of its name, and as whole when the
# file's sum stands in the journal.
. "$(dirname "$0")/shell.sh"
ZIMAGE=$GOLDEN/tiny-zimage
case ${BUILD:-} in *asan*) asan=1 ;; *) asan= ;; esac # preloading and the sanitizer do not go together
export OMP_NUM_THREADS=1

batch() { "$DITTO" batch "$@" -m "$MODEL" -W 32 -H 32 --steps 2 --max-sequence-length 16 --device cpu -q; }
single() { "$DITTO" generate -m "$MODEL" -W 32 -H 32 --steps 2 --max-sequence-length 16 --device cpu -q "$@" >/dev/null; }
same() { cmp -s "$1" "$2"; }
clean() { rm -rf "${here:?}"/*; }
pictures() { find "$1" -name '*.png' | wc -l; }
leftovers() { find "$1" -name '*.tmp-*' | wc -l; }
# every picture's sum stands in a journal of the folder
whole() {
    for png in "$1"/*.png; do
        [ -e "$png" ] || continue
        sum=$(sha256sum "$png" | cut -d' ' -f1)
        grep -qs "\"sha256\":\"$sum\"" "$1"/ditto-journal*.jsonl || { echo "$png is not what the journal says"; return 1; }
    done
}
# no name has two lines
once() { [ -z "$(sed -n 's/^{"name":"\([^"]*\)".*/\1/p' "$1"/ditto-journal*.jsonl | sort | uniq -d)" ]; }
# equal pictures in both folders
agree() {
    [ "$(pictures "$1")" -eq "$(pictures "$2")" ] || return 1
    for png in "$1"/*.png; do same "$png" "$2/${png##*/}" || return 1; done
}

cat >jobs.jsonl <<'J'
{"prompt":"a cat","seed":1}
{"prompt":"a dog","seed":2,"width":48,"output":"dog.png"}

{"prompt":"a cat","seed":3,"quality":"high","steps":1}
{"prompt":"a \"quoted\" cow, two lines\nof it","seed":"18446744073709551615","num_inference_steps":3,"no-metadata":true}
{"prompt":"a dog","seed":4,"negative_prompt":"a cat","cfg-scale":2.5,"count":2,"output":"pair-%02d.png"}
{"prompt":"","seed":5,"guidance":1.5,"dtype":"f32"}
J

# --- the bits of single runs, one result a picture ---
works "a batch" batch jobs.jsonl --out whole --report report.json
[ "$(grep -c '"event":"result".*"status":"done"' .out)" -eq 7 ] && [ ! -s .err ] && [ "$(pictures whole)" -eq 7 ]
is $? "seven results, seven pictures: $(cat .out)"
sum=$(sha256sum whole/dog.png | cut -d' ' -f1)
grep -q "\"job\":2,\"line\":2,\"status\":\"done\",\"seed\":2,\"path\":\"whole/dog.png\",\"sha256\":\"$sum\",\"seconds\":{\"plan\":" .out
is $? "a result has seed, path, sum and seconds"
grep -q '"seed":"18446744073709551615"' .out && grep -q '"picture":2,"line":6,.*"seed":5,' .out
is $? "large seeds, pictures of one job"
grep -q '^{"batch":{"seconds":.*"pictures":7,"done":7,"kept":0,"failed":0}' report.json && [ "$(grep -c '"residency"' report.json)" -ge 8 ]
is $? "a report has the batch and both number formats' pipelines"
mkdir alone
single -p "a cat" --seed 1 -o alone/0001.png
single -p "a dog" --seed 2 -W 48 -o alone/dog.png
single -p "a cat" --seed 3 --quality high --steps 1 -o alone/0003.png
single -p 'a "quoted" cow, two lines
of it' --seed 18446744073709551615 --steps 3 --no-metadata -o alone/0004.png
single -p "a dog" --seed 4 -n "a cat" --cfg-scale 2.5 --count 2 -o alone/pair-%02d.png
single -p "" --seed 5 --guidance 1.5 --dtype f32 -o alone/0006.png
agree whole alone
is $? "every file has the bytes of a run of its own"
works "shuffled" sh -c 'nl -ba jobs.jsonl | grep prompt | sed "s/^ *\([0-9]*\)[^{]*/\1 /" | while read -r n job; do
    case $n in 1) name=0001 ;; 4) name=0003 ;; 5) name=0004 ;; 7) name=0006 ;; *) name= ;; esac
    printf "%s\n" "$job" | { [ "$name" ] && sed "s/}\$/,\"output\":\"$name.png\"}/" || cat; }; done | tac >shuffled.jsonl'
works "other order" batch shuffled.jsonl --out other
agree whole other
is $? "the same bytes in another order"
works "resumed" batch jobs.jsonl --out whole --resume
[ "$(grep -c '"status":"kept".*"sha256"' .out)" -eq 7 ] && once whole
is $? "nothing is done twice"
refused 2 ".png: exists; give -y to overwrite, or --resume" "again without --resume" batch jobs.jsonl --out whole

# --- resume after an edit, after a change from outside ---
sed -i '2s/a dog/a hen/' jobs.jsonl
works "one job edited" batch jobs.jsonl --out whole --resume
[ "$(grep -c '"status":"kept"' .out)" -eq 6 ] && grep -q '"job":2,.*"status":"done"' .out && ! same whole/dog.png other/dog.png && whole whole
is $? "the edited one alone is done again"
sed -i '2s/a hen/a dog/' jobs.jsonl
works "edited back" batch jobs.jsonl --out whole --resume
agree whole alone
is $? "and back"
echo spoilt >whole/0001.png
refused_twice=$(batch jobs.jsonl --out whole --resume 2>&1 >/dev/null)
case $refused_twice in *"whole/0001.png: exists and is not what the journal recorded; give -y"*) good ;; *) bad "a foreign file: $refused_twice" ;; esac
works "-y" batch jobs.jsonl --out whole --resume -y
agree whole alone
is $? "-y replaces what is not ours"
clean

# --- names and lines ---
printf '%s\n' '{"prompt":"a","output":"x.png"}' '{"prompt":"b"}' '{"prompt":"c","output":"x.png"}' >twice.jsonl
refused 2 "lines 1 and 3: both would be o/x.png" "one name twice" batch twice.jsonl --out o --keep-going
printf '%s\n' '{"prompt":"a","count":2,"output":"x.png"}' '{"prompt":"c","output":"x-2.png"}' >twice.jsonl
refused 2 "lines 1 and 2: both would be o/x-2.png" "a name of a pair twice" batch twice.jsonl --out o
printf '%s\n' '{"prompt":"a","dump":"d"}' '{"prompt":"b","dump":"d"}' >twice.jsonl
refused 2 "lines 1 and 2: --dump: d holds one picture's stages" "one dump folder twice" batch twice.jsonl --out o
refused 2 "both would be o/x.png" "-o without a counter" batch twice.jsonl --out o -o x.png
[ ! -e o ]
is $? "refused before anything is made"
one() { printf '%s\n' "$1" >one.jsonl; }
for case in '../x.png|leads out of the folder' '/x.png|expected a name below the folder' 'x/|expected a file' 'x.jpg|ends with .jpg'; do
    one "{\"prompt\":\"a\",\"output\":\"${case%%|*}\"}"
    refused 2 "${case#*|}" "output ${case%%|*}" batch one.jsonl --out o
done
for case in '{"prompt":"a","stepz":3}|unknown option --stepz; did you mean --steps?' '{"prompt":"a","resume":true}|--resume belongs on the command line' \
    '{"prompt":"a","steps":"x"}|--steps: found "x", expected a whole number' '{"prompt":"a","steps":2.5}|--steps: found "2.5"' \
    '{"prompt":5}|--prompt: expected a string' '{"prompt":"a","sync":"yes"}|--sync: expected true or false' '[1]|expected a JSON object' \
    '{"prompt":"a"|one.jsonl: line 1: ' '{"steps":1}|no prompt' '{"prompt":"a","seed":18446744073709551615}|write it as a string' \
    '{"prompt":"a","width":40}|--width 40: expected a multiple of 16' '{"prompt":"a","inject":["x"]}|expected NAME=FILE' \
    '{"prompt":"a","families":"nope"}|--families: found "nope"' '{"prompt":"a","max_sequence_length":600}|expected 1 to 512'; do
    one "${case%|*}"
    refused 2 "${case##*|}" "${case%|*}" batch one.jsonl --out o
done
one '{"prompt":"a","model":"nowhere"}'
refused 3 "line 1: nowhere" "a model that is not there" batch one.jsonl --out o
: >empty.jsonl
refused 2 "empty.jsonl: holds no job" "an empty file" batch empty.jsonl --out o
refused 6 "nowhere.jsonl: cannot open" "a missing file" batch nowhere.jsonl --out o
refused 2 "give --out DIR" "no folder" batch one.jsonl
clean
{
    printf '{"prompt":"a","seed":1}\n{"prompt":"b","seed":2,\n{"prompt":"'
    awk 'BEGIN { for (i = 0; i < 5000; i++) printf "word%d ", i }'
    printf '","seed":3}\n{"prompt":"d","seed":4,"width":24}\n{"prompt":"e","seed":5}\n'
} >jobs.jsonl
refused 2 "jobs.jsonl: line 2: " "a broken line stops everything" batch jobs.jsonl --out o
[ "$(pictures o)" -eq 0 ]
is $? "before anything runs"
"$DITTO" batch jobs.jsonl --out o -m "$MODEL" -W 32 -H 32 --steps 2 --max-sequence-length 16 --device cpu --keep-going >.out 2>.err
rc=$?
[ $rc -eq 1 ] && [ "$(grep -c '^ditto: ' .err)" -eq 1 ] && grep -q '^ditto: 2 of 5 pictures failed; the first: ' .err
is $? "--keep-going: exit $rc, $(cat .err)"
[ "$(grep -c '"status":"done"' .out)" -eq 3 ] && grep -q '"job":2,"line":2,"status":"failed","code":2,"error":"jobs.jsonl: line 2: ' .out &&
    grep -q '"job":4,.*"status":"failed".*"path"' .out || grep -q '"job":4,.*"status":"failed"' .out
is $? "the others are done: $(cut -c 1-200 .out)"
grep -q '^line 3: note: encoder 2 reads 16 tokens of the prompt; cut: ' .err
is $? "a prompt of 5,000 words is cut, and that is said"
single -p e --seed 5 -o e.png && same e.png o/0005.png
is $? "what comes after it has its own bits"
clean
printf '\357\273\277a cat\r\n\r\n# 100%% "red", {not JSON}\n-p\nlast' >prompts.txt
works "a file of prompts" batch prompts.txt --out o --seed 1 -o shot-%02d.png
single -p '# 100% "red", {not JSON}' --seed 1 -o x.png && same x.png o/shot-02.png && single -p last --seed 1 -o y.png && same y.png o/shot-04.png
is $? "lines as they stand"
[ "$(pictures o)" -eq 4 ]
is $? "four prompts"
works "--dry-run" batch prompts.txt --out p --seed 1 --dry-run
[ "$(grep -c '"status":"planned"' .out)" -eq 4 ] && [ ! -e p ]
is $? "plans, and makes nothing"
clean

# --- what one job says is not what another one gets ---
single -p "a dog" --seed 1 --dump dog -o dog.png
single -p "a cat" --seed 1 -o cat.png
printf '%s\n' '{"prompt":"a cat","seed":1,"inject":["ids_2=dog/ids_2.safetensors","ids_1=dog/ids_1.safetensors"],"output":"a.png"}' \
    '{"prompt":"a cat","seed":1,"output":"b.png"}' '{"prompt":"a cat","seed":1,"dump":"c","output":"c.png"}' >jobs.jsonl
works "injected tokens" batch jobs.jsonl --out o
same o/b.png cat.png && same o/c.png cat.png && [ -f c/prompt_embeds.safetensors ] &&
    "$DITTO" compare o/a.png dog.png >.out && grep -q '^equal pixels: yes' .out
is $? "stay in their job"
long="a long text about a cat, its hat, the hat of the dog, the dog, the house, a tree, the sun and the moon, and once more the cat"
for z in "1:a cat" "2:$long" "3:a dog"; do
    printf '{"prompt":"%s","seed":1,"max_sequence_length":96,"model":"%s","output":"z%s.png"}\n' "${z#?:}" "$ZIMAGE" "${z%%:*}"
done >z.jsonl
{ sed -n 1p z.jsonl; echo '{"prompt":"a cat","seed":1,"output":"f1.png"}'; sed 1d z.jsonl; } >jobs.jsonl
works "two models" batch jobs.jsonl --out m
MODEL=$ZIMAGE single -p "a cat" --seed 1 --max-sequence-length 96 -o z1.png && MODEL=$ZIMAGE single -p "$long" --seed 1 \
    --max-sequence-length 96 -o z2.png
same m/z1.png z1.png && same m/z2.png z2.png && same m/f1.png cat.png
is $? "each with its own bits"
[ "$(sed -n 's/.*"job":\([0-9]*\),.*/\1/p' .out | tr '\n' ' ')" = "1 4 3 2 " ]
is $? "grouped by model, then by length of text: $(cat .out)"
clean

# --- from an image ---
one "{\"prompt\":\"a cat\",\"seed\":1,\"image\":\"$GOLDEN/drawing.png\",\"strength\":0.5,\"steps\":4,\"output\":\"i.png\"}"
printf '{"prompt":"a cat","seed":1,"steps":4,"output":"t.png"}\n' >>one.jsonl
works "image and text" batch one.jsonl --out i
single -p "a cat" --seed 1 -i "$GOLDEN/drawing.png" --strength 0.5 --steps 4 -o i.png && single -p "a cat" --seed 1 --steps 4 -o t.png
same i/i.png i.png && same i/t.png t.png && ! same i.png t.png
is $? "the same bytes as alone"
clean

# --- shards ---
awk 'BEGIN { for (i = 1; i <= 7; i++) printf "{\"prompt\":\"cat %d\",\"seed\":%d,\"steps\":1}\n", i, i }' >jobs.jsonl
works "whole" batch jobs.jsonl --out a
for i in 0 1 2; do works "shard $i of 3" batch jobs.jsonl --out b --shard $i/3; done
agree a b && once b && [ "$(ls b | grep -c ditto-journal-)" -eq 3 ]
is $? "three parts are the whole"
works "resumed as one" batch jobs.jsonl --out b --resume
[ "$(grep -c '"status":"kept"' .out)" -eq 7 ]
is $? "the journals of all parts count"
works "shards of a job array" env SLURM_ARRAY_TASK_ID=5 SLURM_ARRAY_TASK_MIN=1 SLURM_ARRAY_TASK_COUNT=3 SLURM_ARRAY_TASK_STEP=2 \
    "$DITTO" batch jobs.jsonl --out c -m "$MODEL" -W 32 -H 32 --max-sequence-length 16 --device cpu -q --shard slurm
[ "$(sed -n 's/.*"job":\([0-9]*\),.*/\1/p' .out | tr '\n' ' ')" = "3 6 " ]
is $? "the third of three: $(cat .out)"
refused 2 "--shard slurm: expected SLURM_ARRAY_TASK_ID" "no job array" batch jobs.jsonl --out d --shard slurm
refused 2 'found "3/3", expected I/N' "a shard that is none" batch jobs.jsonl --out d --shard 3/3
refused 7 "--gpus: --device cuda: " "--gpus without one" env CUDA_VISIBLE_DEVICES= "$DITTO" batch jobs.jsonl --out d -m "$MODEL" --gpus 0,1
clean

# --- streams ---
printf '{"prompt":"a","seed":1}\n{"prompt":"b","seed":2}\n' >jobs.jsonl
works "--json" batch jobs.jsonl --out o --json
grep -q '^{"event":"progress","job":2,"phase":"denoise","done":1,"total":2,"seconds":[0-9.]*,"remaining":[0-9.]*}$' .out && [ "$(grep -c '"event":"result"' .out)" -eq 2 ] &&
    [ "$(grep -vc '^{"event":"\(progress\|result\)".*}$' .out)" -eq 0 ]
is $? "events and results, whole lines"
if [ -w /dev/full ]; then
    batch jobs.jsonl --out p >/dev/full 2>.err
    rc=$?
    [ $rc -eq 6 ] && grep -q '^ditto: standard output: cannot write' .err && [ "$(pictures p)" -eq 2 ]
    is $? "a full standard output: exit $rc, the pictures are there"
fi
awk 'BEGIN { for (i = 1; i <= 400; i++) printf "{\"prompt\":\"cat\",\"seed\":%d}\n", i }' >many.jsonl
"$DITTO" batch many.jsonl --out q -m "$MODEL" -W 32 -H 32 --steps 2 --max-sequence-length 16 --device cpu -q >many.out 2>many.err &
pid=$!
while [ "$(ls q 2>/dev/null | grep -c png)" -lt 3 ]; do sleep 0.02; done
refused 2 "another ditto batch is at work there" "a second batch in the folder" batch many.jsonl --out q --resume
kill -TERM $pid # a shell's background jobs ignore SIGINT
wait $pid
rc=$?
[ $rc -eq 130 ] && whole q && [ "$(leftovers q)" -eq 0 ] && [ "$(grep -c '"status":"done"' many.out)" -eq "$(pictures q)" ]
is $? "interrupt: exit $rc, $(pictures q) pictures, $(leftovers q) left over"
clean

# --- kill -9 right before every call that changes a file ---
printf '{"prompt":"a","seed":1}\n{"prompt":"b","seed":2,"steps":1}\n' >jobs.jsonl
if [ -z "$asan" ]; then
    cc -std=c11 -D_GNU_SOURCE -O1 -shared -fPIC -o failfile.so "$GOLDEN/../failfile.c" -ldl || exit 2
    works "reference" batch jobs.jsonl --out ref
    LD_PRELOAD=./failfile.so FILE_COUNT=count batch jobs.jsonl --out o >/dev/null
    read -r calls bytes <count
    [ "${calls:-0}" -ge 12 ] && [ "${bytes:-0}" -gt 1000 ]
    is $? "calls are counted: ${calls:-none}"
    n=1
    while [ "$n" -le "$calls" ]; do
        rm -rf o
        LD_PRELOAD=./failfile.so KILL_AT=$n batch jobs.jsonl --out o >/dev/null 2>&1
        rc=$?
        [ $rc -eq 137 ] && whole o
        is $? "killed before call $n of $calls: exit $rc"
        batch jobs.jsonl --out o --resume >.out 2>.err && agree o ref && once o && [ "$(leftovers o)" -eq 0 ]
        is $? "resumed after it: $(cat .err) $(cut -c 1-150 .out) $(ls o)"
        n=$((n + 1))
    done

    # --- a disk that fills ---
    for full in 10 100 $((bytes / 3)) $((bytes / 2)) $((bytes * 2 / 3)) $((bytes - 10)); do
        rm -rf o
        LD_PRELOAD=./failfile.so FULL_AFTER=$full batch jobs.jsonl --out o >.out 2>.err
        rc=$?
        [ $rc -eq 6 ] && [ "$(grep -c '^ditto: .*No space left on device' .err)" -eq 1 ] && whole o && [ "$(leftovers o)" -eq 0 ] &&
            [ "$(grep -c '"status":"failed","path":.*"code":6' .out)" -ge 1 ] && [ "$(grep -c '"status":"done"' .out)" -eq "$(pictures o)" ]
        is $? "full after $full bytes: exit $rc, $(cat .err), $(ls o)"
        rm -rf p
        LD_PRELOAD=./failfile.so FULL_AFTER=$full batch jobs.jsonl --out p --keep-going >.out 2>.err
        [ $? -eq 1 ] && whole p
        is $? "with --keep-going: $(cat .err)"
        batch jobs.jsonl --out o --resume >.out 2>.err && agree o ref && once o
        is $? "resumed when there is room: $(cat .err)"
    done
fi
clean

# --- kill -9 at random moments ---
awk 'BEGIN { for (i = 1; i <= 60; i++) printf "{\"prompt\":\"cat %d\",\"seed\":%d,\"steps\":%d}\n", i % 5, i, 2 + i % 2 }' >jobs.jsonl
begun=$(date +%s%N)
works "reference" batch jobs.jsonl --out ref
whole_ms=$((($(date +%s%N) - begun) / 1000000))
seed=${BATCH_SEED:-$(date +%s)}
kills=0
# parts of what the whole takes here: a quick machine is through with it in less than any fixed number of seconds
for wait in $(awk -v s="$seed" -v t="$whole_ms" 'BEGIN { srand(s); for (i = 0; i < 12; i++) printf "%.3f ", t / 1000 * (0.1 + rand() * 0.4) }'); do
    "$DITTO" batch jobs.jsonl --out o -m "$MODEL" -W 32 -H 32 --max-sequence-length 16 --device cpu -q --resume >.out 2>.err &
    pid=$!
    sleep "$wait"
    kill -9 $pid 2>.kill && kills=$((kills + 1))
    wait $pid 2>/dev/null
    whole o || { bad "half a file after kill -9 (BATCH_SEED=$seed)"; break; }
done
works "the rest" batch jobs.jsonl --out o --resume
agree o ref && once o && [ "$(leftovers o)" -eq 0 ] && [ "$kills" -gt 0 ]
is $? "every job exactly once after $kills kills (BATCH_SEED=$seed)"

finish
