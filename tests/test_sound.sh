#!/bin/sh
# test_sound.sh - sound that ditto's code put beside pictures (test_sound make), as ffprobe and ffmpeg find it; `ditto inspect` and
# `ditto compare` of it and of ffmpeg's own files; every call of the sound's encoder failing once.
# Without libav, or ffprobe, the parts that need them are skipped by name, and the last line says so.
BUILD=$(realpath "${BUILD:-build/release}" 2>/dev/null || echo "${BUILD:-build/release}")
. "$(dirname "$0")/shell.sh"
SOUND=$BUILD/tests/test_sound
[ -x "$SOUND" ] || { echo "FAIL: $SOUND is not built"; echo "0 passed, 1 failed"; exit 1; }
skips=

printf 'RIFF\000\000\000\000WAVE' >probe.wav
why=
"$DITTO" compare probe.wav probe.wav 2>&1 | grep -q 'built without libav' && why="this ditto was built without libav"
rm probe.wav
if [ -n "$why" ]; then
    for part in ffprobe inspect compare encoders; do echo "skipped: $part: $why"; done
    echo "$passed passed, $failed failed (4 skipped: $why)"
    [ "$failed" -eq 0 ]
    exit
fi
works "files with sound" "$SOUND" make

# --- inspect ---
shows() { # FILE TEXT
    "$DITTO" inspect "$1" >.out 2>.err && grep -qF "$2" .out
    is $? "inspect $1: $2: $(tail -n 1 .out)"
}
shows aac24.mp4 "# sound: aac LC, 24000 Hz, 2 channels, 25000 samples, 1.041667 s, "
shows aac16.mp4 "# sound: aac LC, 16000 Hz, 1 channel, 13347 samples, "
shows pcm.mkv "# sound: pcm_f32le, 48000 Hz, 2 channels"
shows flac.mkv "# sound: flac, 24000 Hz, 2 channels"
shows pcm.mkv.wav "# sound: pcm_f32le, 48000 Hz, 2 channels, 50016 samples, 1.042000 s, 3072 kb/s"

# --- what ffprobe and ffmpeg say, and compare of their files with ours ---
if command -v ffprobe >/dev/null && command -v ffmpeg >/dev/null; then
    av() { ffmpeg -hide_banner -loglevel error -nostdin -y "$@" || bad "ffmpeg $*"; }
    told() { ffprobe -v error -select_streams "$1" -show_entries "stream=$3" -of default=nk=1:nw=1 "$2" | tr '\n' ' '; }
    for f in "aac24.mp4 aac LC 24000 2 " "aac48.mp4 aac LC 48000 2 " "aac16.mp4 aac LC 16000 1 " "long.mp4 aac LC 24000 2 "; do
        set -- $f
        said=$(told a "$1" codec_name,profile,sample_rate,channels)
        [ "$1 $said" = "$f" ]
        is $? "ffprobe $1: $said"
        # both streams begin at 0 and end within a sample of each other
        said="$(told v "$1" start_time,duration)$(told a "$1" start_time,duration)"
        echo "$said" | awk -v rate="$4" '{d = $2 - $4; exit !($1 == 0 && $3 == 0 && d * rate < 1.1 && d * rate > -1.1)}'
        is $? "ffprobe $1: begins and ends of picture and sound: $said"
        moov=$(grep -abo moov "$1" | head -n 1 | cut -d: -f1)
        mdat=$(grep -abo mdat "$1" | head -n 1 | cut -d: -f1)
        [ "${moov:-9999999}" -lt "${mdat:-0}" ]
        is $? "$1: the index comes first: moov $moov, mdat $mdat"
        # sound and pictures lie side by side, not one behind the other
        ffprobe -v error -show_entries packet=stream_index,pos -of csv=p=0 "$1" | sort -t, -k2n | cut -d, -f1 | uniq | wc -l |
            awk '{exit !($1 > 4)}'
        is $? "$1: interleaved"
        av -i "$1" -c copy copy.mp4
        works "$1: ffmpeg's copy of it" "$DITTO" compare "$1" copy.mp4
        av -i "$1" -vn -c:a pcm_f32le out.wav
        "$DITTO" compare "$1.wav" out.wav --min-snr 25 >.out 2>.err
        code=$?
        [ "$1" = long.mp4 ] || is $code "$1: its sound, decoded by ffmpeg: $(grep SNR .out) $(cat .err)"
    done
    for f in pcm.mkv mono.mkv; do
        av -i $f -vn -c:a pcm_f32le out.wav
        "$DITTO" compare $f.wav out.wav --min-snr 200 >.out 2>.err
        is $? "$f: the samples themselves: $(cat .out)"
    done
    "$DITTO" compare pcm.mkv.wav out.wav >.out 2>.err
    [ $? -eq 2 ] && grep -q '48000 Hz, 2 channels and out.wav 16000 Hz, 1 channels' .err
    is $? "another rate: $(cat .err)"
    av -i flac.mkv -vn -c:a pcm_f32le out.wav
    works "flac.mkv: 24 bits of them" "$DITTO" compare flac.mkv.wav out.wav --min-snr 130
    av -i pcm.mkv.wav -c:a pcm_f32le again.wav
    works "our WAV, read and written by ffmpeg" "$DITTO" compare pcm.mkv.wav again.wav
    # the video's end is silence behind the sound's: 50050 samples for 50016
    av -i pcm.mkv -vn -c:a pcm_f32le out.wav
    "$DITTO" compare pcm.mkv.wav out.wav >.out 2>.err
    [ $? -eq 1 ] && grep -q '^sound length: 50016 | 50050 samples, difference 34 ' .out && grep -q '^sound SNR: inf dB' .out
    is $? "silence up to the video's end: $(cat .out)"
    # a clip by ffmpeg from the same samples: pictures and sound side by side
    av -i pcm.mkv -i pcm.mkv.wav -map 0:v -map 1:a -c:v libx264rgb -crf 0 -c:a aac -b:a 192k theirs.mp4
    "$DITTO" compare pcm.mkv theirs.mp4 --min-snr 25 >.out 2>.err
    is $? "a clip by ffmpeg: $(cat .out .err)"
    av -i pcm.mkv -af volume=0.9 -c:v copy -c:a pcm_f32le -channel_layout stereo quiet.mkv
    "$DITTO" compare pcm.mkv quiet.mkv >.out 2>.err
    [ $? -eq 1 ] && grep -q '^equal sound: no$' .out && grep -q '^sound SNR: 20.0000 dB$' .out
    is $? "a tenth quieter: $(grep sound .out)"
    rm -f ./*.wav copy.mp4 theirs.mp4 quiet.mkv
else
    echo "skipped: ffprobe, compare: ffmpeg is not installed"
    skips="$skips ffprobe compare"
fi
rm -f ./*.mp4 ./*.mkv ./*.wav

# --- the sound's encoder fails ---
left() { ls -A | grep -v '^\.out$\|^\.err$\|\.so$' | tr '\n' ' '; }
why="no C compiler"
case $BUILD in *asan*) why="a sanitizer wants to be the first library" ;; esac
if [ "$why" = "no C compiler" ] && cc -std=c11 -D_GNU_SOURCE -O1 -shared -fPIC -o failav.so "$GOLDEN/../failav.c" -ldl 2>.err; then
    library=$here/failav.so
    failing() { LD_PRELOAD="$library" FAIL_SYMBOL=$1 FAIL_AT=$2 FAIL_CODE=$3 "$SOUND" make aac24.mp4; }
    fails() { # EXIT TEXT SYMBOL AT CODE
        refused "$1" "$2" "$3 fails" failing "$3" "$4" "$5"
        [ -z "$(left)" ]
        is $? "$3: left are \"$(left)\""
        rm -f ./*.mp4 ./*.wav
    }
    fails 6 "aac24.mp4: sound: the installed libav (libavcodec " avcodec_find_encoder_by_name 2 0
    fails 6 "aac24.mp4: aac: cannot begin: Input/output error" avcodec_open2 2 -5
    fails 4 "out of memory" avformat_new_stream 2 0
    fails 4 "aac: frame: out of memory" av_frame_get_buffer 2 -12
    fails 6 "aac24.mp4: aac: cannot encode: Input/output error" avcodec_send_frame 2 -5
    fails 6 "aac24.mp4: aac: cannot write: Input/output error" av_interleaved_write_frame 1 -5
    fails 6 "aac24.mp4: aac: gave " avcodec_send_frame 50 0
    refused 6 "aac24.mp4: aac: cannot end: Input/output error" "the end" failing avcodec_send_frame 51 -5
    [ -z "$(left)" ]
    is $? "the end: left are \"$(left)\""
    rm -f failav.so
else
    echo "skipped: encoders: $why"
    skips="$skips encoders"
fi

echo "$passed passed, $failed failed${skips:+ ($(echo $skips | wc -w) skipped:$skips)}"
[ "$failed" -eq 0 ]
