#!/bin/sh
# test_compare_av.sh - compare on files made by ffmpeg, against the numbers of ffmpeg's own psnr and ssim filters.
# Without ffmpeg, or with a ditto that was built without libav, every part is skipped by name and the last line says so.
# Easy to get wrong: the filters print rounded numbers, so agreement means half a unit of their last digit; the ssim filter
# works in f32, of which a sum over blocks may be off by a few 1e-7 more.
. "$(dirname "$0")/shell.sh"

PARTS="yuv420p yuv422p10le gray pictures containers sound mixed truncated damaged refusals"
why=
command -v ffmpeg >/dev/null || why="ffmpeg is not installed"
printf 'RIFF\000\000\000\000WAVE' >probe.wav
"$DITTO" compare probe.wav probe.wav 2>&1 | grep -q 'built without libav' && why="this ditto was built without libav"
if [ -n "$why" ]; then
    "$DITTO" compare probe.wav probe.wav >.out 2>.err
    [ $? -eq 2 ]
    is $? "an unreadable file: exit 2"
    for part in $PARTS; do echo "skipped: $part: $why"; done
    echo "$passed passed, $failed failed ($(echo "$PARTS" | wc -w) skipped: $why)"
    [ "$failed" -eq 0 ]
    exit
fi

av() { ffmpeg -hide_banner -loglevel error -nostdin -y "$@" || bad "ffmpeg $*"; }
filter() { ffmpeg -hide_banner -nostdin -i "$2" -i "$1" -lavfi "[0:v][1:v]$3=stats_file=$3.log" -f null - 2>&1; }
# numbers of a member of the JSON in .out, one a line: every frame's, then that of all together
member() { sed 's/,"first_difference":{[^}]*}//; s/,"sound":.*//' .out | grep -o "\"$1\":[-0-9.e]*" | cut -d: -f2; }
# near TOLERANCE A B: two files of numbers, line by line
near() {
    [ "$(wc -l <"$2")" -eq "$(wc -l <"$3")" ] && [ -s "$2" ] &&
        paste "$2" "$3" | awk -v t="$1" '{ d = $1 - $2; if (d < 0) d = -d; if (!(d <= t)) { print "differ:", $0; bad = 1 } } END { exit bad }'
}

# filters NAME A B PLANES: PSNR and SSIM of all planes together and of each, frame by frame and in all
filters() {
    "$DITTO" compare "$2" "$3" --json >.out 2>.err
    [ $? -eq 1 ]
    is $? "$1: exit 1"
    filter "$2" "$3" psnr | sed -n 's/.* average:\([0-9.]*\) .*/\1/p' >psnr.all
    filter "$2" "$3" ssim | sed -n 's/.* All:\([0-9.]*\) .*/\1/p' >ssim.all
    sed 's/.*mse_avg:\([0-9.]*\).*psnr_avg:\([0-9.]*\).*/\2/' psnr.log >theirs
    member psnr | sed '$d' >ours
    near 0.005001 ours theirs
    is $? "$1: PSNR of each frame (two decimals)"
    member psnr | tail -n 1 >ours
    near 0.0000006 ours psnr.all
    is $? "$1: PSNR in all (six decimals): $(cat ours psnr.all | tr '\n' ' ')"
    sed 's/.*All:\([0-9.]*\).*/\1/' ssim.log >theirs
    cat ssim.all >>theirs
    member ssim >ours
    near 0.000001 ours theirs
    is $? "$1: SSIM of each frame and in all (six decimals)"
    for plane in $4; do
        key=$(echo "$plane" | tr 'YUV' 'yuv')
        sed "s/.*psnr_$key:\([0-9.]*\).*/\1/" psnr.log >theirs
        member "$key" | awk 'NR % 2 == 1' | sed '$d' >ours
        near 0.005001 ours theirs
        is $? "$1: PSNR of $plane"
        sed "s/.*$plane:\([0-9.]*\).*/\1/" ssim.log >theirs
        member "$key" | awk 'NR % 2 == 0' | sed '$d' >ours
        near 0.000001 ours theirs
        is $? "$1: SSIM of $plane"
    done
}

# --- yuv420p: odd chroma planes, a size that is no multiple of the windows ---
av -f lavfi -i testsrc2=s=98x66:r=10:d=1.2 -f lavfi -i sine=f=440:r=48000:d=1.2 -c:v libx264 -pix_fmt yuv420p -crf 10 \
    -c:a aac a.mp4
av -i a.mp4 -vf noise=alls=12:allf=t -c:v libx264 -crf 28 -pix_fmt yuv420p -c:a copy b.mp4
filters yuv420p a.mp4 b.mp4 "Y U V"
grep -q '"pixels":"yuv420p"' .out && grep -q '"sound":{"equal":true' .out
is $? "yuv420p: planes as stored, and the sound"
works "the same video" "$DITTO" compare a.mp4 a.mp4
grep -q '^equal pixels: yes$' .out && grep -q '^equal sound: yes$' .out
is $? "the same video: equal"

# --- yuv422p10le ---
av -f lavfi -i testsrc2=s=70x52:r=10:d=0.5 -pix_fmt yuv422p10le -c:v ffv1 a.mkv
av -i a.mkv -vf noise=alls=20:allf=t,format=yuv422p10le -c:v ffv1 b.mkv
filters yuv422p10le a.mkv b.mkv "Y U V"
grep -q '"pixels":"yuv422p10le"' .out
is $? "yuv422p10le: planes as stored"

# --- gray: the frame's numbers are the plane's ---
av -i a.mkv -pix_fmt gray -c:v ffv1 g.mkv
av -i b.mkv -pix_fmt gray -c:v ffv1 h.mkv
filters gray g.mkv h.mkv ""

# --- pictures: ffmpeg's average over R, G and B; its ssim is another definition ---
av -i a.mp4 -frames:v 1 x.png
av -i x.png -vf noise=alls=30 y.png
"$DITTO" compare x.png y.png --json >.out 2>.err
filter x.png y.png psnr | sed -n 's/.* average:\([0-9.]*\) .*/\1/p' >theirs
member psnr >ours
near 0.0000006 ours theirs
is $? "pictures: PSNR (six decimals)"
av -i x.png x.bmp
works "a picture that libav reads" "$DITTO" compare x.png x.bmp
grep -q '^output: bmp_pipe, ' .out
is $? "a picture that libav reads"

# --- containers: the same stream ---
for kind in mkv mov avi ts; do
    av -i a.mp4 -c copy -bsf:v h264_mp4toannexb c.$kind
    "$DITTO" compare a.mp4 c.$kind --min-snr 20 >.out 2>.err
    grep -q '^equal pixels: yes$' .out && grep -q '^frames: 12 compared, 0 differ; 0 only' .out
    is $? "containers: $kind: $(cat .err)"
done
av -i a.mp4 -c copy -an mute.mp4
"$DITTO" compare a.mp4 mute.mp4 >.out 2>.err
[ $? -eq 1 ] && grep -q 'sound is only in the reference' .err
is $? "containers: the sound is missing"
av -i a.mp4 -t 0.8 -c:v ffv1 -an short.mkv
"$DITTO" compare mute.mp4 short.mkv >.out 2>.err
[ $? -eq 1 ] && grep -q 'the reference has more frames' .err && grep -q '8 compared, 0 differ; 4 only in the reference' .out
is $? "containers: frames are missing"

# --- sound ---
av -i a.mp4 -vn -c:a pcm_s16le s.wav
av -i s.wav -af volume=0.5 -c:a pcm_f32le half.wav
"$DITTO" compare s.wav half.wav --json >.out 2>.err
[ $? -eq 1 ] && grep -q '"snr":6.0205999132796' .out
is $? "sound: half as loud is 20 log10(2) dB"
works "sound: --min-snr" "$DITTO" compare s.wav half.wav --min-snr 6.02
"$DITTO" compare s.wav half.wav --min-snr 6.03 >.out 2>.err
[ $? -eq 1 ]
is $? "sound: below --min-snr"
for codec in pcm_s24le pcm_f32le flac; do
    suffix=wav
    [ $codec = flac ] && suffix=flac
    av -i s.wav -c:a $codec copy.$suffix
    works "sound: $codec keeps 16 bits" "$DITTO" compare s.wav copy.$suffix
done
ffmpeg -loglevel error -nostdin -i s.wav -f wav - 2>/dev/null | cat >pipe.wav # its length is not known
works "sound: a WAV of unknown length" "$DITTO" compare s.wav pipe.wav
av -i s.wav -t 1 end.wav
"$DITTO" compare s.wav end.wav >.out 2>.err
[ $? -eq 1 ] && grep -q '^sound length: 5[0-9]* | 48000 samples, difference -' .out && grep -q '^first different sample: 480' .out
is $? "sound: its end is missing"
"$DITTO" compare s.wav end.wav --min-snr 20 >.out 2>.err
[ $? -eq 1 ]
is $? "sound: a missing end counts as noise"

# --- a video against a folder of its frames: libswscale's RGB, as ffmpeg makes it with these flags ---
mkdir frames
av -i a.mp4 -vf scale=flags=bicubic+accurate_rnd+full_chroma_int+full_chroma_inp,format=rgb24 frames/%d.png
works "mixed: a video and its frames" "$DITTO" compare a.mp4 frames
grep -q '^compared in: rgb, 8 bits$' .out && grep -q '^frames: 12 compared, 0 differ; 0 only' .out && grep -q '^sound: not compared' .out
is $? "mixed: a video and its frames"
works "mixed: --diff" "$DITTO" compare a.mp4 b.mp4 --min-psnr 20 --diff d.png
works "mixed: the difference picture" "$DITTO" compare d.png d.png
grep -q '^size: 98x66$' .out
is $? "mixed: the difference picture has the video's size"

# --- truncated: an error wherever the file ends, whatever it is compared with ---
av -i a.mp4 -c copy -movflags +faststart fast.mp4
av -i a.mp4 -c copy all.mkv
av -i a.mp4 -c copy -bsf:v h264_mp4toannexb all.avi
for file in a.mp4 fast.mp4 all.mkv all.avi s.wav; do
    size=$(stat -c %s $file)
    for part in 0 3 10 30 50 70 90 97; do
        cut=cut.${file##*.}
        head -c $((size * part / 100)) $file >$cut
        refused 2 "$cut: " "truncated: $file at $part %" "$DITTO" compare $cut $cut
    done
done

# --- damaged: bytes inside the video overwritten; an error or a difference, never a crash, never "equal" pixels with exit 0 ---
size=$(stat -c %s fast.mp4)
for k in 8 11 14 17 20 23 26 29; do
    cp fast.mp4 hurt.mp4
    printf '\377\000\377\252\125\377\000\377' | dd of=hurt.mp4 bs=1 seek=$((size * k / 31)) conv=notrunc 2>/dev/null
    "$DITTO" compare fast.mp4 hurt.mp4 >.out 2>.err
    rc=$?
    { [ $rc -eq 1 ] || [ $rc -eq 2 ]; } && [ "$(grep -c '^ditto: ' .err)" -eq 1 ]
    is $? "damaged: at $k of 31: exit $rc: $(head -c 200 .err)"
done

# --- refusals ---
av -i a.mp4 -vf scale=64:48 -an -c:v ffv1 small.mkv
refused 2 "a.mp4 holds frames" "refusals: kinds" "$DITTO" compare s.wav a.mp4
"$DITTO" compare mute.mp4 small.mkv >.out 2>.err
[ $? -eq 2 ] && grep -q 'mute.mp4 is 98x66 and small.mkv is 64x48' .err
is $? "refusals: sizes"
av -i s.wav -ar 44100 rate.wav
refused 2 "48000 Hz, 1 channels and rate.wav 44100 Hz" "refusals: rates" "$DITTO" compare s.wav rate.wav
echo "plain text, which libav would draw as video" >text.txt
refused 2 "text.txt: cannot open" "refusals: text" "$DITTO" compare text.txt text.txt
printf '#EXTM3U\n#EXTINF:1,\na.mp4\n' >list.m3u8
refused 2 "list.m3u8: cannot open" "refusals: a playlist" "$DITTO" compare list.m3u8 list.m3u8
refused 2 "sound alone is held to --min-snr" "refusals: --max-abs" "$DITTO" compare s.wav half.wav --max-abs 1
refused 2 "these files hold no pictures" "refusals: --diff" "$DITTO" compare s.wav half.wav --diff e.png

finish
