#!/bin/sh
# test_sanitize.sh - scripts/sanitize.sh reads logs of compute-sanitizer as it should: whose kernel is at fault, how many, what
# was counted. The logs here have the form of the tool's, since the tool itself needs a GPU.
# Easy to get wrong: a library's kernel launched by our code has our function in its host backtrace, and is no finding of ours.
. "$(dirname "$0")/shell.sh"
command -v bash >/dev/null || { echo "0 passed, 0 failed (bash is missing)"; exit 0; }
script=$(dirname "$DITTO")/scripts/sanitize.sh
[ -f "$script" ] || script=$GOLDEN/../../scripts/sanitize.sh
read_log() { bash "$script" --summarise "$@" >.out 2>.err; }
has() {
    grep -qE -- "$1" .out
    is $? "$2: $(cat .out)"
}

cat >clean.log <<'L'
========= COMPUTE-SANITIZER
copy                1 variant, 99 checks passed, 0 failed
========= ERROR SUMMARY: 0 errors
L
read_log memcheck clean.log
is $? "a clean log"
has '^memcheck: ours 0, in libraries 0, refused calls 0, notes of the tool 0$' "nothing found"
has 'counted by the tool: 0$' "the tool's own count"

cat >mem.log <<'L'
========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at void (anonymous namespace)::k_flash_rows<float>(T1 *, float *)+0x2a0
=========     by thread (0,0,0) in block (1,0,0)
=========     Access to 0x7f0000000400 is out of bounds
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: attention_cuda [0x12345] in checkop
=========
========= Invalid __global__ read of size 4 bytes
=========     at void (anonymous namespace)::k_flash_rows<float>(T1 *, float *)+0x2a0
=========     by thread (1,0,0) in block (1,0,0)
=========
========= Invalid __global__ write of size 16 bytes
=========     at sm90_xmma_gemm_bf16_kernel+0x1c0
=========     by thread (0,0,0) in block (0,0,0)
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: __device_stub__k_flash_rows(float*) [0x12345] in checkop
=========
========= Program hit cudaErrorInvalidValue (error 1) due to "invalid argument" on CUDA API call to cudaFoo.
=========     Saved host backtrace up to driver entry point at error
=========         Host Frame: k_copy_launch [0x1] in checkop
=========
========= ERROR SUMMARY: 3 errors
========= COMPUTE-SANITIZER
========= ERROR SUMMARY: 1 error
L
read_log memcheck mem.log
[ $? -eq 1 ]
is $? "a finding of ours fails"
has '^memcheck: ours 2, in libraries 1, refused calls 1, notes of the tool 0$' "three classes"
has '2 ours	Invalid __global__ read of size 4 bytes	k_flash_rows$' "ours, counted"
has '1 library	Invalid __global__ write of size 16 bytes	sm90_xmma_gemm_bf16_kernel$' "the library's"
has '1 call	Program hit cudaErrorInvalidValue' "the call"
has 'counted by the tool: 4$' "counted over processes"
grep -v k_flash_rows mem.log | sed '/read of size/,/^=========$/d; s/SUMMARY: 3 errors/SUMMARY: 1 error/' >lib.log
read_log memcheck lib.log
is $? "findings in libraries alone pass"

cat >race.log <<'L'
========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at void <unnamed>::k_softmax_rows<__nv_bfloat16>(T1 *, const T1 *)+0x560
=========     and Read access at void <unnamed>::k_softmax_rows<__nv_bfloat16>(T1 *, const T1 *)+0x680 [128 hazards]
=========
========= Warning: Race reported between Read access at 0x6360 in conv.cu:12:cudnn_kernel(float const*)
=========     and Write access at 0x1fe0 in conv.cu:20:cudnn_kernel(float const*) [8 hazards]
=========
========= RACECHECK SUMMARY: 2 hazards displayed (1 error, 1 warning)
L
read_log racecheck race.log
[ $? -eq 1 ]
is $? "a race of ours fails"
has '1 ours	Race reported between Write	k_softmax_rows$' "the kernel of a race"
has '^racecheck: ours 1, in libraries 1, refused calls 0, notes of the tool 0$' "two races"
has 'counted by the tool: 2$' "hazards"

sed 's/and Read access.*/&\n=========\n========= Warning: Cannot track the async copies of k_ring/; s/: 2 hazards/: 17 hazards/' race.log | sed '/^========= Error/,/hazards]/d' >notes.log
read_log racecheck notes.log
[ $? -eq 1 ]
is $? "hazards that are counted and not shown fail"
has 'notes of the tool 1$' "what the tool says beside them is counted"
has '1 other	Warning: Cannot track the async copies of k_ring	-$' "and shown"
has 'racecheck: 17 counted, 1 read$' "how many are missing"

cat >init.log <<'L'
========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 2 bytes
=========     at void (anonymous namespace)::k_map<(int)2>(View, View)+0x90 in elementwise.cu:44
=========     by thread (0,0,0) in block (0,0,0)
=========     Address 0x7f00
=========
========= Barrier error detected. Divergent thread(s) in block
=========     at k_groupnorm_partial+0x90
=========
========= ERROR SUMMARY: 2 errors
L
read_log initcheck init.log
[ $? -eq 1 ]
is $? "initcheck and synccheck"
has '1 ours	Uninitialized __global__ memory read of size 2 bytes	k_map$' "uninitialised"
has '1 ours	Barrier error detected. Divergent thread\(s\) in block	k_groupnorm_partial$' "barrier"

head -n 2 clean.log >cut.log
read_log memcheck cut.log
[ $? -eq 1 ]
is $? "a log without its end is no success"
has 'the tool did not finish' "and is said"

# a stand-in for the tool: the whole script without a GPU
mkdir -p bin/tests
cat >tool <<'L'
#!/bin/sh
[ "$1" = --version ] && { echo "NVIDIA Compute Sanitizer, Version 0"; exit; }
while [ $# -gt 0 ]; do
    case $1 in --log-file) log=$(echo "$2" | sed "s/%p/$$/"); shift ;; --tool) tool=$2; shift ;; */checkop) break ;; esac
    shift
done
case "$*" in *"--op $BAD "*) cp "$LOGS/bad.log" "$log" ;; *) cp "$LOGS/$tool.log" "$log" ;; esac
case "$*" in *"--op $SLOW "*) sleep 20 ;; esac
exec "$@"
L
cat >bin/tests/checkop <<'L'
#!/bin/sh
[ "$1" = --list ] && { printf 'copy EXACT\nlinear BOUNDED\nadd EXACT\n'; exit; }
echo "$*"
echo "5 passed, 0 failed"
L
chmod +x tool bin/tests/checkop
mkdir logs && cp clean.log logs/synccheck.log && cp mem.log logs/memcheck.log && cp cut.log logs/bad.log
sanitize() { LOGS=$here/logs BIN=$here/bin COMPUTE_SANITIZER=$here/tool JOBS=3 BAD=${BAD:-none} SLOW=${SLOW:-none} bash "$script" "$here/res" "$@" >.out 2>.err; }
OP=copy sanitize synccheck
is $? "one tool, clean"
grep -q -- '^--small --backend cuda --op copy --shard 0/1$' res/synccheck.log
is $? "checkop's options"
has '^synccheck: checkop says: 5 passed, 0 failed \(1 processes\)$' "checkop's own result"
sanitize synccheck memcheck
[ $? -eq 1 ] && [ "$(ls res | xargs)" = "memcheck.log sanitize.txt synccheck.log" ]
is $? "one of two fails: $(ls res | xargs)"
has '^synccheck: checkop says: 30 passed, 0 failed \(6 processes\)$' "an op of many cases in four parts, the others whole"
has '^memcheck: ours 12, in libraries 6, refused calls 6, notes of the tool 0$' "what all processes found, together"
for i in 0 1 2 3; do grep -q -- "--op linear --shard $i/4$" res/synccheck.log || bad "part $i of linear"; done
BAD=add sanitize synccheck
[ $? -eq 1 ]
is $? "a process without its end fails"
has '^synccheck: [0-9]* add 0/1 0 did not finish$' "and is named"
LIMIT=1 SLOW=add sanitize synccheck
[ $? -eq 1 ]
is $? "a process that is stopped fails"
has '^synccheck: [0-9]* add 0/1 124 stopped after 1 s$' "and is named"
TOTAL=0 sanitize synccheck
[ $? -eq 1 ]
is $? "no time for any process"
has '^synccheck: 0 add 0/1 - not begun: 0 s were over$' "and they are named"

finish
