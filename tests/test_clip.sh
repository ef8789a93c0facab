#!/bin/sh
# test_clip.sh - clips as a user meets them, made by ditto with a model that needs no weights (clip_model.c): names and kinds of
# files, what ffprobe finds in them, frame counts and rates, latents that outlive a failed decode, interrupts, full disks, and
# every call into libav failing once. Latents of pictures too, with the tiny checkpoint.
# Without libav, or ffprobe, the parts that need them are skipped by name, and the last line says so.
# Easy to get wrong: a failure must leave no file under a final or temporary name, and one line that says where the latents are.
BUILD=$(realpath "${BUILD:-build/release}" 2>/dev/null || echo "${BUILD:-build/release}")
. "$(dirname "$0")/shell.sh"
CLIPS=$BUILD/tests/ditto_clips
[ -x "$CLIPS" ] || { echo "FAIL: $CLIPS is not built"; echo "0 passed, 1 failed"; exit 1; }
skips=

mkdir shapes
for part in "$MODEL"/*/; do ln -s "$part" shapes/; done
sed '0,/{/s//{"moving_shapes": true,/' "$MODEL/model_index.json" >shapes/model_index.json

clip() { "$CLIPS" generate -m shapes -q "$@"; }
decode() { "$CLIPS" decode -q "$@"; }
left() { ls -A | grep -v '^\.out$\|^\.err$\|^shapes$\|\.so$' | tr '\n' ' '; }
is_left() { # NAME FILES
    [ "$(left)" = "$2" ]
    is $? "$1: left are \"$(left)\", expected \"$2\""
    for f in $(left); do rm -rf "$f"; done
}

# --- what needs no libav: refusals, frames, lengths ---
refused 2 "--frames 80: expected 1 and a multiple of 4; the nearest are 77 and 81" "80 frames" clip -p x -o "%04d.png" --frames 80
refused 2 "--frames 402: at most 401 can be made" "too many frames" clip -p x -o "%04d.png" --frames 402
refused 2 "--frames and --seconds are both given" "both" clip -p x -o "%04d.png" --frames 9 --seconds 1
refused 2 "--seconds: 26 at 16/1 frames a second are too many frames; at most 401" "too long" clip -p x -o "%04d.png" --seconds 26
refused 2 '--fps: found "24fps", expected frames a second' "a bad rate" clip -p x -o "%04d.png" --fps 24fps
refused 2 "x.png: shapes makes clips: expected .mp4, .mkv, or a counter" "a clip as a picture" clip -p x -o x.png
refused 2 "ends with .mp4, expected .png: tiny-flux makes pictures" "a picture as a clip" "$DITTO" -m "$MODEL" -p x -o x.mp4 -q
refused 2 "--frames: FluxPipeline makes pictures" "frames of a picture" "$DITTO" -m "$MODEL" -p x -o x.png -q --frames 9
refused 2 "--fps: FluxPipeline makes pictures" "the rate of a picture" "$DITTO" -m "$MODEL" -p x -o x.png -q --fps 9
refused 2 "--codec: is for .mp4 and .mkv files" "a codec of frames" clip -p x -o "%04d.png" --codec h264
refused 2 "--crf: is for .mp4 and .mkv files" "a crf of a picture" "$DITTO" -m "$MODEL" -p x -o x.png -q --crf 3
refused 2 "x.mp4: --codec ffv1: is written to .mkv files" "ffv1 in MP4" clip -p x -o x.mp4 --codec ffv1
refused 2 "x.mkv: --crf: ffv1 has none" "a crf of ffv1" clip -p x -o x.mkv --crf 3
refused 2 'found "vp9", expected h264, x264rgb or ffv1' "another codec" clip -p x -o x.mkv --codec vp9
refused 2 "counts the frames of one clip, but --count is 2" "frames of two clips" clip -p x -o "%04d.png" --count 2
refused 6 "no such folder to write to" "no folder" clip -p x -o "no/%04d.png"
is_left "refusals" ""
"$CLIPS" generate -m shapes -p x --seconds 5 --dry-run -o "%03d.png" >.out 2>.err
grep -q '^clip  *81 frames at 16 a second, 5.0625 s$' .out && grep -q '5 s at 16 frames a second are 80 frames; made are 81' .out
is $? "seconds are rounded openly: $(grep clip .out)"
"$CLIPS" generate -m shapes -p x --seconds 1 --fps 23.976 -o "%03d.png" >.out 2>.err
grep -q '25 frames at 24000/1001 a second (1 s at 24000/1001 frames a second are 24 frames; made are 25' .err
is $? "and said before it begins: $(cat .err)"
[ "$(cat .out)" = "%03d.png" ] && [ -e 025.png ] && [ ! -e 026.png ]
is $? "25 frames, one result"
rm -f ???.png
works "a frame alone is a picture" clip -p x --frames 1 -o x.png
is_left "a frame alone" "x.png "
mkdir f
works "frames" clip -p "café" --seed 5 -o "f/%02d.png"
[ "$(ls f | tr '\n' ' ')" = "01.png 02.png 03.png 04.png 05.png 06.png 07.png 08.png 09.png " ]
is $? "nine frames and nothing else"
works "inspect a frame" "$CLIPS" inspect f/03.png
grep -q '"frames":9,"fps":"16","frame":3,' .out
is $? "its number is in it"
works "verify a frame" "$CLIPS" verify -q f/03.png
cp f/04.png f/05.png
"$CLIPS" compare f/03.png f/04.png >.out 2>.err
[ $? -eq 1 ]
is $? "frames differ"
refused 2 "f/01.png: exists; give -y" "frames that exist" clip -p x -o "f/%02d.png"
rm f/01.png
refused 2 "f/02.png: exists; give -y" "any of them" clip -p x -o "f/%02d.png"
(ulimit -f 4; clip -p x -o "f/a%02d.png" -W 128 -H 128 >/dev/null 2>&1)
[ $? -eq 6 ] && ! ls f | grep -q '^a.*png$' && [ -e f/a01.latents.safetensors ]
is $? "no room for a frame: none is left, the latents are: $(ls f | tr '\n' ' ')"
works "decoded later" decode f/a01.latents.safetensors -o "f/a%02d.png"
[ "$(ls f/a*.png | wc -l)" -eq 9 ]
is $? "all nine"
is_left "frames" "f "

# --- latents ---
mkdir f
works "the whole job" clip -p "café 猫" --seed 5 -o "f/%02d.png"
for kind in error nan exit; do
    want=7
    [ $kind = nan ] && want=5
    [ $kind = exit ] && want=9
    CLIP_FAULT=$kind clip -p "café 猫" --seed 5 -o "g%02d.png" >.out 2>.err
    [ $? -eq $want ] && [ "$(left)" = "f g01.latents.safetensors " ]
    is $? "decode fails ($kind): the latents are left: $(left) $(cat .err)"
    [ $kind = exit ] || grep -q 'all steps are done: ditto decode g01.latents.safetensors finishes the job$' .err
    is $? "decode fails ($kind): and named: $(cat .err)"
    refused 2 "g01.latents.safetensors: latents of an earlier run; give them to ditto decode" "run again ($kind)" \
        clip -p x -o "g%02d.png"
    works "decode them ($kind)" decode g01.latents.safetensors -o "f/a%02d.png" --keep-latents
    same=0
    for i in 01 02 03 04 05 06 07 08 09; do cmp -s f/$i.png f/a$i.png || same=1; done
    is $same "the same bytes as of the run that did not fail ($kind)"
    [ -e g01.latents.safetensors ]
    is $? "decode --keep-latents leaves them ($kind)"
    rm -f f/a*.png
    mkdir h
    mv g01.latents.safetensors h
    works "decode them as the run would have ($kind)" decode h/g01.latents.safetensors
    [ "$(cat .out)" = "h/g%02d.png" ] && [ "$(ls h | wc -l)" -eq 9 ] && cmp -s f/09.png h/g09.png
    is $? "its names, beside the latents, which are gone ($kind): $(cat .out) $(ls h | tr '\n' ' ')"
    rm -r h
done
rm -rf f
CLIP_FAULT=wait "$CLIPS" generate -m shapes -q -p x --seed 5 -o "g%02d.png" >.out 2>.err &
pid=$!
for i in $(seq 100); do [ -e g01.latents.safetensors ] && break; sleep 0.1; done
kill -TERM $pid # a shell lets what it starts beside itself ignore INT
wait $pid
[ $? -eq 130 ] && grep -q '^ditto: interrupted; all steps are done: ditto decode g01' .err
is $? "interrupted: $(cat .err)"
CLIP_FAULT=stay "$CLIPS" generate -m shapes -q -p x --seed 5 -o "s%02d.png" >.out 2>.err &
pid=$!
for i in $(seq 100); do [ -e s01.latents.safetensors ] && break; sleep 0.1; done
kill -TERM $pid
sleep 0.3
kill -TERM $pid
wait $pid
[ $? -eq 130 ] && [ "$(cat .err)" = "ditto: interrupted, at once" ] && [ -e s01.latents.safetensors ] && [ ! -e s01.png ]
is $? "interrupted twice: $(cat .err)"
rm -f s01.latents.safetensors
refused 2 "says its sizes and rate itself" "other sizes" decode g01.latents.safetensors -W 32 -o "h%02d.png"
refused 2 "latents of a clip, but tiny-flux makes pictures" "another model" \
    "$DITTO" decode g01.latents.safetensors -m "$MODEL" -o h.png -q
is_left "interrupted" "g01.latents.safetensors "
clip -p x --seed 5 --dump d -o "g%02d.png" >.out 2>.err
refused 2 "carries no parameters of ditto's" "latents without a job, no -m" decode d/latents.safetensors -o "h%02d.png"
works "latents without a job" decode d/latents.safetensors -m shapes -o "h%02d.png"
[ -e d/latents.safetensors ]
is $? "which stay"
"$CLIPS" compare g07.png h07.png >.out && "$CLIPS" inspect h07.png >.out && grep -q 'carries no texts' .out
is $? "the same pixels, and no parameters made up"
refused 3 "latents has shape [1, 1, 3, 3, 4], expected" "latents of another length" decode d/latents.safetensors -m shapes \
    --frames 17 -o "i%02d.png"
for f in $(left); do rm -rf "$f"; done
picture() { "$DITTO" generate -m "$MODEL" -W 32 -H 16 --steps 1 --max-sequence-length 16 -q "$@"; }
works "a picture's latents" picture -p x --dump d -o a.png
works "a picture from its latents" "$DITTO" decode d/latents.safetensors -m "$MODEL" -W 32 -H 16 -o b.png -q
works "the same picture" "$DITTO" compare a.png b.png
for f in $(left); do rm -rf "$f"; done

# --- video files ---
printf 'RIFF\000\000\000\000WAVE' >probe.wav
why=
"$DITTO" compare probe.wav probe.wav 2>&1 | grep -q 'built without libav' && why="this ditto was built without libav"
rm probe.wav
if [ -n "$why" ]; then
    refused 6 "built without libav, which writes video files" "a video file" clip -p x -o x.mp4
    refused 6 "by default (-o %04d.png writes a PNG a frame): ./shapes-9.mp4: this ditto" "no name" clip -p x --seed 9
    is_left "no libav" ""
    for part in files verify rooms libav encoders ffprobe; do echo "skipped: $part: $why"; done
    echo "$passed passed, $failed failed (6 skipped: $why)"
    [ "$failed" -eq 0 ]
    exit
fi
for file in x.mp4 x.mkv; do
    works "$file" clip -p "café 猫 \"q\"" --seed 5 --fps 24000/1001 -o $file
    [ "$(cat .out)" = $file ] && [ -s $file ] && ! left | grep -q 'latents\|tmp'
    is $? "$file: one path, one file: $(left)"
    works "inspect $file" "$CLIPS" inspect $file
    grep -qF '"prompt":"café 猫 \"q\"","seed":5,' .out && grep -q '"frames":9,"fps":"24000/1001","codec":' .out
    is $? "inspect $file: $(cat .out)"
    works "inspect $file --json" "$CLIPS" inspect $file --json
    works "verify $file" "$CLIPS" verify -q $file
    grep -q '^equal pixels: yes$' .out
    is $? "verify $file: $(cat .out)"
done
grep -q 'ffv1 bgr0, 64x48' .err || "$CLIPS" inspect x.mkv | grep -q '# matroska, ffv1 bgr0, 64x48'
is $? "MKV is lossless by default"
works "no texts" clip -p secret -o y.mp4 --no-metadata
! grep -q secret y.mp4 && ! "$CLIPS" inspect y.mp4 | grep -q '\[ditto\]'
is $? "--no-metadata: nothing of the prompt"
refused 2 "y.mp4: carries no parameters of ditto's" "verify without parameters" "$CLIPS" verify y.mp4 -m shapes
works "two clips" clip -p x -o "z.mp4" --count 2 --frames 5
[ -e z-1.mp4 ] && [ -e z-2.mp4 ]
is $? "two names"
refused 2 "x.mp4: exists; give -y" "an existing file" clip -p x -o x.mp4
works "other crf" clip -p x --seed 9 --crf 40 -o q.mp4
works "verify keeps the crf" "$CLIPS" verify -q q.mp4
works "x264rgb" clip -p x --seed 9 --codec x264rgb -o r.mp4
works "ffv1" clip -p x --seed 9 -o r.mkv
"$CLIPS" compare r.mp4 r.mkv >.out 2>.err
is $? "two lossless codecs, the same pixels: $(cat .err)"
works "a default name" clip -p x --seed 9
[ "$(cat .out)" = ./shapes-9.mp4 ]
is $? "TITLE-SEED.mp4"
for f in $(left); do rm -rf "$f"; done
works "a whole run" clip -p secret --seed 9 --codec x264rgb --crf 12 --no-metadata -o r.mp4
mv r.mp4 whole.mp4
CLIP_FAULT=error clip -p secret --seed 9 --codec x264rgb --crf 12 --no-metadata -o r.mp4 >.out 2>.err
: >r.mp4
refused 2 "r.mp4: exists; give -y" "a name that was taken meanwhile" decode r.latents.safetensors
[ -e r.latents.safetensors ]
is $? "and the latents are there"
cp r.latents.safetensors kept
works "over it" decode r.latents.safetensors -y
[ "$(left)" = "kept r.mp4 whole.mp4 " ] && cmp -s r.mp4 whole.mp4
is $? "the bytes of the run that did not fail, its codec and no texts: $(left)"
cp kept s.latents.safetensors
works "to another kind of file" decode s.latents.safetensors -o s.mkv
[ "$(left)" = "kept r.mp4 s.mkv whole.mp4 " ] && "$CLIPS" inspect s.mkv | grep -q '^# matroska, ffv1'
is $? "by its own codec: $(left)"
mkdir d
sed 's/"r\.mp4\\"/"..\/rr\\"/' kept >d/t.latents.safetensors
refused 2 "output: its name is no file's" "a name that leads elsewhere" decode d/t.latents.safetensors
for f in $(left); do rm -rf "$f"; done

# --- sound ---
CLIP_SOUND=24000
export CLIP_SOUND
for file in x.mp4 x.mkv; do
    works "$file with sound" clip -p x --seed 5 --frames 25 --fps 24 -o $file
    works "inspect $file" "$CLIPS" inspect $file
done
grep -q '^# sound: pcm_f32le, 24000 Hz, 2 channels' .out && grep -q '"codec":"ffv1","sound":"pcm"' .out
is $? "the samples themselves beside lossless pictures: $(grep sound .out)"
"$CLIPS" inspect x.mp4 >.out && grep -q '^# sound: aac LC, 24000 Hz, 2 channels, 25000 samples, 1.041667 s' .out && grep -q '"sound":"aac"' .out
is $? "AAC, as long as 25 frames at 24: $(grep '# sound' .out)"
"$CLIPS" compare x.mkv x.mp4 --min-snr 25 >.out 2>.err
grep -q '^sound SNR: ' .out && ! grep -q 'sound: SNR' .err
is $? "AAC's sound is the samples': $(grep SNR .out)"
works "verify with sound" "$CLIPS" verify -q x.mp4
grep -q '^equal sound: yes$' .out
is $? "verify with sound: $(cat .out)"
works "verify the samples" "$CLIPS" verify -q x.mkv
if command -v ffmpeg >/dev/null; then
    ffmpeg -v error -y -i x.mkv -c:v copy -af volume=0.999 -c:a pcm_f32le -map_metadata 0 y.mkv </dev/null
    "$CLIPS" verify y.mkv -q >.out 2>.err
    [ $? -eq 1 ] && grep -q '^equal pixels: yes$' .out && grep -q '^equal sound: no$' .out
    is $? "a changed sound is not verified: $(cat .out .err)"
    rm -f y.mkv
fi
mkdir f
works "frames with sound" clip -p x --seed 5 --frames 25 --fps 24 -o "f/a-%02d.png"
[ -e f/a.wav ] && [ "$(ls f | wc -l)" -eq 26 ] && [ "$(od -An -tu4 -j24 -N4 f/a.wav | tr -d ' ')" = 24000 ]
is $? "a WAV beside them: $(ls f | tr '\n' ' ')"
# 24,760 samples of the model's, 25,000 of the video's
[ "$(wc -c <f/a.wav)" -eq $((58 + 8 * 24760)) ]
is $? "of the model's own length: $(wc -c <f/a.wav)"
rm f/*.png
refused 2 "f/a.wav: exists; give -y" "a WAV that exists" clip -p x -o "f/a-%02d.png"
refused 6 "x2.mp4: sound of 23456 Hz: aac: cannot begin" "a rate that AAC has not, before the work" \
    env CLIP_SOUND=23456 "$CLIPS" generate -m shapes -q -p x -o x2.mp4
CLIP_FAULT=error clip -p x --seed 5 --frames 25 --fps 24 -o y.mkv >.out 2>.err
[ $? -eq 7 ] && [ -e y.latents.safetensors ]
is $? "a failed decode leaves the latents of both: $(cat .err)"
works "decoded later" decode y.latents.safetensors -o y.mkv
"$CLIPS" compare x.mkv y.mkv >.out 2>.err && grep -q '^equal sound: yes$' .out && grep -q '^equal pixels: yes$' .out
is $? "the same pictures and sound: $(cat .out .err)"
printf '{"prompt": "x", "seed": 5, "frames": 25, "fps": "24", "output": "z.mkv"}\n' >one.jsonl
works "in a batch" "$CLIPS" batch one.jsonl -m shapes --out p -q
cmp -s x.mkv p/z.mkv
is $? "the same bytes as alone"
(ulimit -f 20; clip -p x --seed 5 --frames 25 --fps 24 -o w.mkv >.out 2>.err)
[ $? -eq 6 ] && [ ! -e w.mkv ]
is $? "no room: no file: $(cat .err)"
unset CLIP_SOUND
for f in $(left); do rm -rf "$f"; done

# --- batch ---
cat >jobs.jsonl <<'END'
{"prompt": "a", "seed": 1, "output": "a.mp4", "frames": 5}
{"prompt": "b", "seed": 2, "output": "b.mkv", "count": 2, "fps": "23.976"}
{"prompt": "c", "seed": 3, "output": "c.mp4", "codec": "x264rgb", "seconds": 1}
END
works "a batch of clips" "$CLIPS" batch jobs.jsonl -m shapes --out o -q
[ "$(ls o | grep -v journal | tr '\n' ' ')" = "a.mp4 b-1.mkv b-2.mkv c.mp4 " ]
is $? "its files and nothing else: $(ls o | tr '\n' ' ')"
for file in a.mp4 b-1.mkv b-2.mkv c.mp4; do works "verify o/$file" "$CLIPS" verify -q o/$file; done
"$CLIPS" inspect o/c.mp4 >.out && grep -q '"frames":17,"fps":"16","codec":"x264rgb","crf":0' .out
is $? "a job's own codec and length: $(grep -o '"frames.*crf":[0-9]*' .out)"
works "the same alone" clip -p b --seed 3 --fps 23.976 -o b.mkv
cmp -s b.mkv o/b-2.mkv
is $? "the same bytes as alone"
printf '{"prompt": "a"}\n{"prompt": "b", "codec": "ffv1"}\n' >unnamed.jsonl
works "clips without names" "$CLIPS" batch unnamed.jsonl -m shapes --out u -q --report r.json
[ "$(ls u | grep -v journal | tr '\n' ' ')" = "0001.mp4 0002.mkv " ]
is $? "their suffix is a clip's: $(ls u | tr '\n' ' ')"
works "a report of a clip" clip -p b -o r.mp4 --report r.json -y
said() { sed 's/,"families".*//; s/.*"fps"/"fps"/' | tr -d '\\ \t\n'; } # what a file, or a report, says from the rate on
file=$("$CLIPS" inspect r.mp4 | grep '^{' | said)
report=$(tr -d '\n' <r.json | sed 's/},[ \t]*"seconds".*//; s/.*"parameters":[ \t]*//' | said)
[ -n "$file" ] && case $report in "$file"*) true ;; *) false ;; esac && tr -d ' \t\n' <r.json | grep -q '"frames":9,"fps":"16","codec":"h264","crf":17'
is $? "what the file says of itself is in it: $file, $report"
printf '{"prompt": "a", "output": "a.png"}\n' >one.jsonl
refused 2 "a.png: expected .mp4 or .mkv: shapes makes clips" "a clip as a picture" "$CLIPS" batch one.jsonl -m shapes --out p -q
printf '{"prompt": "a", "output": "a.mp4", "codec": "ffv1"}\n' >one.jsonl
refused 2 "a.mp4: --codec ffv1: is written to .mkv" "ffv1 in MP4" "$CLIPS" batch one.jsonl -m shapes --out p -q
printf '{"prompt": "a", "output": "a.mp4", "seed": 4}\n' >one.jsonl
refused 2 "expected .png: tiny-flux makes pictures" "a picture as a clip" "$DITTO" batch one.jsonl -m "$MODEL" --out p -q
CLIP_FAULT=error "$CLIPS" batch one.jsonl -m shapes --out p -q >.out 2>.err
[ -e p/a.latents.safetensors ] && [ ! -e p/a.mp4 ] && cat .out .err | grep -q 'ditto decode p/a.latents.safetensors finishes the job'
is $? "a failed decode: $(cat .out .err)"
refused 2 "p/a.latents.safetensors: latents of an earlier run" "again" "$CLIPS" batch one.jsonl -m shapes --out p -q
works "resumed" "$CLIPS" batch one.jsonl -m shapes --out p -q --resume
[ -e p/a.mp4 ] && [ ! -e p/a.latents.safetensors ]
is $? "resumed: $(ls p | tr '\n' ' ')"
for f in $(left); do rm -rf "$f"; done

# --- no room ---
(ulimit -f 20; clip -p x --seed 5 -W 128 -H 128 --frames 41 --crf 0 -o x.mp4 >.out 2>.err)
[ $? -eq 6 ] && grep -q '^ditto: x.mp4: cannot write: .*; all steps are done: ditto decode x.latents.safetensors ' .err
is $? "no room for the file: $(cat .err)"
[ "$(left)" = "x.latents.safetensors " ]
is $? "no room for the file: $(left)"
works "with room" decode x.latents.safetensors --crf 0 -o x.mp4
works "which verifies" "$CLIPS" verify -q x.mp4
for f in $(left); do rm -rf "$f"; done

# --- libav fails ---
why="no C compiler"
case $BUILD in *asan*) why="a sanitizer wants to be the first library" ;; esac
if [ "$why" = "no C compiler" ] && cc -std=c11 -D_GNU_SOURCE -O1 -shared -fPIC -o failav.so "$GOLDEN/../failav.c" -ldl 2>.err; then
    library=$here/failav.so
    failing() { # SYMBOL AT CODE
        LD_PRELOAD="$library" FAIL_SYMBOL=$1 FAIL_AT=$2 FAIL_CODE=$3 clip -p x --seed 5 -o x.mp4
    }
    fails() { # EXIT TEXT SYMBOL AT CODE
        refused "$1" "$2" "$3 fails" failing "$3" "$4" "$5"
        grep -q 'all steps are done: ditto decode x.latents' .err
        is $? "$3: the latents are named: $(cat .err)"
        is_left "$3" "x.latents.safetensors "
    }
    fails 6 "x.mp4: libx264: cannot encode: Input/output error" avcodec_send_frame 1 -5
    fails 6 "x.mp4: libx264: cannot encode: Input/output error" avcodec_send_frame 9 -5
    fails 6 "x.mp4: libx264: cannot end: Input/output error" avcodec_send_frame 10 -5
    fails 6 "x.mp4: libx264: gave 8 frames for 9" avcodec_send_frame 4 0
    fails 6 "x.mp4: libx264: cannot encode: Input/output error" avcodec_receive_packet 10 -5
    fails 6 "x.mp4: libx264: cannot write: Input/output error" av_interleaved_write_frame 3 -5
    fails 6 "x.mp4: libx264: cannot end the file: Input/output error" av_write_trailer 1 -5
    # an interrupt while the encoder, which has all frames, gives its packets
    FAIL_SIGNAL=15
    export FAIL_SIGNAL
    fails 130 "interrupted" avcodec_receive_packet 11 0
    unset FAIL_SIGNAL
    fails 6 "x.mp4: libx264: cannot begin the file: Input/output error" avformat_write_header 1 -5
    fails 6 "x.mp4: libx264: cannot begin: Input/output error" avcodec_open2 1 -5
    fails 4 "out of memory" av_frame_get_buffer 1 -12
    fails 4 "out of memory" avformat_new_stream 1 0
    fails 4 "out of memory" av_frame_make_writable 2 -12
    refused 6 "x.mp4: --codec h264: the installed libav (libavcodec " "no encoder" failing avcodec_find_encoder_by_name 0 0
    grep -q 'has no encoder libx264$' .err
    is $? "no encoder: its name: $(cat .err)"
    refused 6 "by default (-o %04d.png writes a PNG a frame): ./shapes-9.mp4: --codec h264" "no encoder, no name" env \
        LD_PRELOAD="$library" FAIL_SYMBOL=avcodec_find_encoder_by_name FAIL_AT=0 FAIL_CODE=0 "$CLIPS" -m shapes -q -p x --seed 9
    is_left "no encoder: found before the work" ""
    picture() { "$CLIPS" bench picture -m shapes --device cpu --runs 1 --warmup 1; }
    works "a clip timed" picture
    grep -q '"end":"mp4"' .out && [ ! -s .err ]
    is $? "to its file: $(cat .out .err)"
    LD_PRELOAD="$library" FAIL_SYMBOL=avcodec_find_encoder_by_name FAIL_AT=0 FAIL_CODE=0 picture >.out 2>.err
    [ $? -eq 0 ] && grep -q '"end":"frames"' .out && [ "$(grep -c '^note: the time ends with the frames: .*libx264' .err)" -eq 1 ]
    is $? "a clip timed without an encoder: $(cat .out .err)"
    rm -f failav.so
else
    echo "skipped: libav, encoders: $why"
    skips="$skips libav encoders"
fi

# --- what ffprobe says ---
if command -v ffprobe >/dev/null && command -v ffmpeg >/dev/null; then
    told() { ffprobe -v error -select_streams v -count_frames -show_entries "stream=$2" -of default=nw=1 "$1" | tr '\n' ' '; }
    works "a file for ffprobe" clip -p x --seed 5 --frames 41 --fps 29.97 -o x.mp4
    said=$(told x.mp4 codec_name,pix_fmt,color_range,color_space,color_transfer,color_primaries,chroma_location)
    for want in codec_name=h264 pix_fmt=yuv420p color_range=tv color_space=bt709 color_transfer=bt709 color_primaries=bt709 \
        chroma_location=left; do
        case " $said" in *" $want "*) good ;; *) bad "ffprobe: $want: $said" ;; esac
    done
    said=$(told x.mp4 r_frame_rate,avg_frame_rate,nb_read_frames,nb_frames,duration_ts,time_base,start_pts)
    for want in r_frame_rate=30000/1001 avg_frame_rate=30000/1001 nb_read_frames=41 nb_frames=41 start_pts=0 time_base=1/30000 \
        duration_ts=41041; do
        case " $said" in *" $want "*) good ;; *) bad "ffprobe: $want: $said" ;; esac
    done
    ffprobe -v error -show_entries format_tags=comment -of default=nk=1:nw=1 x.mp4 | grep -q '^{"ditto":.*"prompt":"x"'
    is $? "ffprobe: the comment"
    moov=$(grep -abo moov x.mp4 | head -n 1 | cut -d: -f1)
    mdat=$(grep -abo mdat x.mp4 | head -n 1 | cut -d: -f1)
    [ "${moov:-9999999}" -lt "${mdat:-0}" ]
    is $? "the index comes first: moov $moov, mdat $mdat"
    # the colr box too, for players that do not look into the stream
    grep -aq colr x.mp4 && [ "$(grep -abo 'colrnclx' x.mp4 | wc -l)" -eq 1 ]
    is $? "colour tags in the container"
    mkdir f g
    works "its frames" clip -p x --seed 5 --frames 41 -o "f/%04d.png"
    works "lossless" clip -p x --seed 5 --frames 41 -o x.mkv
    ffmpeg -v error -i x.mkv -pix_fmt rgb24 g/%04d.png </dev/null
    works "FFV1 decoded by ffmpeg: the PNG frames" "$CLIPS" compare f g
    # spoilt on the way: verify must see it
    ffmpeg -v error -y -i x.mp4 -vf "drawbox=0:0:8:8:white:fill" -c:v libx264 -crf 17 -map_metadata 0 y.mp4 </dev/null
    "$CLIPS" verify y.mp4 -q >.out 2>.err
    [ $? -eq 1 ] && grep -q '^equal pixels: no$' .out
    is $? "a changed clip is not verified: $(cat .err)"
    ffmpeg -v error -y -i x.mp4 -c copy -t 0.5 -map_metadata 0 z.mp4 </dev/null
    refused 2 "but its parameters say 41" "a clip cut short" "$CLIPS" verify z.mp4 -q
else
    echo "skipped: ffprobe: ffmpeg is not installed"
    skips="$skips ffprobe"
fi

echo "$passed passed, $failed failed${skips:+ ($(echo $skips | wc -w) skipped:$skips)}"
[ "$failed" -eq 0 ]
