#!/bin/sh
# test_fetch_weights.sh - scripts/fetch_weights.sh on the tiny checkpoint: complete, with files missing, cut, stale or
# changed, as a plain folder and as a hub snapshot. Nothing is downloaded; a stand-in for hf records its arguments.
. "$(dirname "$0")/shell.sh"
FETCH=$GOLDEN/../../scripts/fetch_weights.sh
export DITTO

# says TEXT NAME: the last command's standard output contains the line TEXT
says() { grep -qxF -- "$1" .out; is $? "$2: found \"$(head -c 400 .out)\", expected \"$1\""; }
# fails NAME COMMAND...: exit 1
fails() {
    name=$1
    shift
    "$@" >.out 2>.err </dev/null
    [ $? -eq 1 ]
    is $? "$name: exit code"
}

cp -r "$MODEL" "my model"
works "complete" "$FETCH" "my model"
grep -q '^my model: complete: 4 components, [0-9]* tensors' .out
is $? "complete: $(cat .out)"
works "manifest is written" "$FETCH" --write-manifest list.txt "my model"
works "manifest holds" "$FETCH" --manifest list.txt "my model"
[ "$(wc -l <list.txt)" -ge 15 ]
is $? "manifest lists the files"

sed 's/^[0-9a-f]*/-/' list.txt >sizes.txt
echo >>"my model/tokenizer/special_tokens_map.json"
fails "size changed" "$FETCH" --manifest sizes.txt "my model"
grep -q '^wrong size: tokenizer/special_tokens_map.json has [0-9]* bytes, expected [0-9]*$' .out
is $? "wrong size is named"
works "without manifest it passes" "$FETCH" "my model"
cp "$MODEL/tokenizer/special_tokens_map.json" "my model/tokenizer/"
printf '\001' | dd of="my model/vae/diffusion_pytorch_model.safetensors" bs=1 seek=40000 conv=notrunc 2>/dev/null
cmp -s "my model/vae/diffusion_pytorch_model.safetensors" "$MODEL/vae/diffusion_pytorch_model.safetensors"
[ $? -eq 1 ]
is $? "the byte was changed"
works "sizes hold" "$FETCH" --manifest sizes.txt "my model"
fails "sum changed" "$FETCH" --manifest list.txt "my model"
says "wrong SHA-256: vae/diffusion_pytorch_model.safetensors" "sum"
cp "$MODEL/vae/diffusion_pytorch_model.safetensors" "my model/vae/"

rm "my model/tokenizer/vocab.json" "my model/transformer/diffusion_pytorch_model.safetensors"
fails "missing" "$FETCH" --manifest list.txt "my model"
says "missing: tokenizer/vocab.json" "missing vocab.json"
says "missing: transformer/diffusion_pytorch_model.safetensors" "missing weights"
says "fetch with: hf download black-forest-labs/FLUX.1-dev --include \"[mstv]*\" --local-dir 'my model'" "line"
cp "$MODEL/tokenizer/vocab.json" "my model/tokenizer/"
printf '{"weight_map":{"a":"x-1-of-2.safetensors","b":"x-2-of-2.safetensors"}}' \
    >"my model/transformer/diffusion_pytorch_model.safetensors.index.json"
cp "$MODEL/transformer/diffusion_pytorch_model.safetensors" "my model/transformer/x-1-of-2.safetensors"
fails "missing shard" "$FETCH" "my model"
says "missing: transformer/x-2-of-2.safetensors" "missing shard"
rm -r "my model"
cp -r "$MODEL" "my model"
size=$(stat -c %s "my model/transformer/diffusion_pytorch_model.safetensors")
truncate -s $((size - 1)) "my model/transformer/diffusion_pytorch_model.safetensors"
fails "truncated" "$FETCH" "my model"
grep -q '^inspect: .*truncated: ' .out
is $? "truncated: $(cat .out)"

# the hub cache, and a download
mkdir -p bin
printf '#!/bin/sh\nprintf "%%s|" "$@" >"%s/hf.args"\n' "$here" >bin/hf
chmod +x bin/hf
unset HF_HUB_CACHE
HF_HOME=$here/hf
PATH=$here/bin:$PATH
export HF_HOME PATH
fails "not in the cache" "$FETCH" black-forest-labs/FLUX.1-schnell
says 'fetch with: hf download black-forest-labs/FLUX.1-schnell --include "[mstv]*"' "line of a repository"
fails "download brings nothing" "$FETCH" --download black-forest-labs/FLUX.1-schnell
[ "$(cat hf.args)" = 'download|black-forest-labs/FLUX.1-schnell|--include|[mstv]*|' ]
is $? "hf was called with $(cat hf.args)"
repo=$HF_HOME/hub/models--black-forest-labs--FLUX.1-schnell
mkdir -p "$repo/refs" "$repo/snapshots"
cp -r "$MODEL" "$repo/snapshots/abc123"
printf abc123 >"$repo/refs/main"
works "snapshot" "$FETCH" black-forest-labs/FLUX.1-schnell
rm "$repo/snapshots/abc123/vae/config.json"
ln -s ../../../blobs/0 "$repo/snapshots/abc123/vae/config.json"
fails "dangling link" "$FETCH" "$repo/snapshots/abc123"
says "missing: vae/config.json" "dangling link"
says 'fetch with: hf download black-forest-labs/FLUX.1-schnell --include "[mstv]*"' "repository of a snapshot"
"$FETCH" >.out 2>.err
[ $? -eq 2 ] && grep -q '^scripts/fetch_weights.sh' .err
is $? "usage"
finish
