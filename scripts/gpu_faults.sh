#!/bin/sh
# gpu_faults.sh - what a run says and leaves when the GPU fails it. For a machine with a GPU, PyTorch and its CUDA libraries.
#
#   DITTO=build/portable/ditto scripts/gpu_faults.sh
#
# No GPU, a missing library, memory that another process holds, memory that the job does not get, a signal during a step: one
# line, its exit code, no picture and no part of one. Ends with "N passed, N failed".
# Easy to get wrong: a background job of a shell ignores SIGINT, so Python starts what is to be interrupted.
. "$(dirname "$0")/../tests/shell.sh"
DEMO=$(realpath "$OLDPWD/weights/demo-flux")
LIBS=${LD_LIBRARY_PATH:-$(python3 "$OLDPWD/scripts/torch_libs.py")}
export LD_LIBRARY_PATH="$LIBS"

run() { "$DITTO" generate -m "$DEMO" -p "a red circle" --device cuda -q "$@"; }
nothing() { [ "$(ls -A | grep -cv '^\.out$\|^\.err$')" -eq 0 ]; is $? "$1: nothing is left: $(ls -A | tr '\n' ' ')"; rm -rf "$here"/*; }

works "a picture" run --steps 2 -o a.png
rm -f a.png

# --- no GPU ---
refused 7 "" "no device" env CUDA_VISIBLE_DEVICES= "$DITTO" generate -m "$DEMO" -p x --device cuda -q -o a.png
nothing "no device"
works "without --device and without a GPU" env CUDA_VISIBLE_DEVICES= "$DITTO" generate -m "$DEMO" -p x --steps 1 -o a.png
grep -q ' on cpu in ' .err
is $? "it says that it takes the CPU: $(head -1 .err)"
rm -f a.png

# --- libraries: a folder with all but one of them in the path ---
for missing in libcudnn.so.9 libcublasLt.so.13 libcublas.so.13; do
    mkdir libs
    echo "$LIBS" | tr ':' '\n' | while read -r folder; do
        for file in "$folder"/*.so*; do
            case $(basename "$file") in "$missing") ;; *) ln -sf "$file" libs/ ;; esac
        done
    done
    LD_LIBRARY_PATH=$here/libs run --steps 1 -o a.png >.out 2>.err
    rc=$?
    if [ $rc -eq 0 ]; then echo "note: $missing is found elsewhere on this machine: $(ldconfig -p | grep -m1 "$missing")"
    else
        [ $rc -eq 7 ] && [ "$(wc -l <.err)" -eq 1 ] && grep -q "${missing%%.*}" .err
        is $? "without $missing: exit $rc: $(cat .err)"
    fi
    rm -rf libs a.png
done
nothing "libraries"

# --- memory ---
refused 4 "GiB" "a plan beyond --vram" "$DITTO" generate -m "$DEMO" -p x --device cuda --vram 64M -q -o a.png
nothing "a plan beyond --vram"
python3 - "$DITTO" "$DEMO" <<'END'
import subprocess, sys, torch
ditto, demo = sys.argv[1:]
free = torch.cuda.mem_get_info()[0]
held = torch.empty(free - (300 << 20), dtype=torch.uint8, device="cuda")
r = subprocess.run([ditto, "generate", "-m", demo, "-p", "x", "--device", "cuda", "-q", "-o", "held.png"], capture_output=True, text=True)
print("while another process holds the memory:", r.returncode, r.stderr.strip())
sys.exit(0 if r.returncode in (4, 7) and r.stderr.count("\n") == 1 and not r.stdout else 1)
END
is $? "memory held by another process"
nothing "memory held by another process"

# --- signals during a step ---
for signal in SIGINT SIGTERM SIGHUP; do
    python3 - "$DITTO" "$DEMO" $signal <<'END'
import signal, subprocess, sys, time
ditto, demo, name = sys.argv[1:]
p = subprocess.Popen([ditto, "generate", "-m", demo, "-p", "x", "--device", "cuda", "--steps", "5000", "-q", "-o", "cut.png"],
                     stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
time.sleep(4)
early = p.poll() is not None
sent = time.time()
p.send_signal(getattr(signal, name))
out, err = p.communicate(timeout=60)
print(f"{name}: exit {p.returncode} after {time.time() - sent:.2f} s: {err.strip()}")
sys.exit(0 if not early and p.returncode == 130 and err.count("\n") == 1 and "interrupted" in err and not out else 1)
END
    is $? "$signal during a step"
    nothing "$signal during a step"
done
finish
