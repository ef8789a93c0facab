#!/bin/sh
# test_bad_input.sh - one spoilt thing at a time: exit code, one line that names it, no picture. Each case starts from a copy
# of the tiny checkpoint made of links; only the spoilt file is real.
# Easy to get wrong: headers are edited in place with replacements of the same length, since their length stands before
# them; where the length must change, the file is put together anew.
. "$(dirname "$0")/shell.sh"
LC_ALL=C
export LC_ALL

fresh() { rm -rf bad && cp -rs "$MODEL" bad; }
own() { [ ! -L "bad/$1" ] || cp --remove-destination "$(realpath "bad/$1")" "bad/$1"; }
render() { "$DITTO" -m bad -p "a cat" -W 32 -H 16 --steps 2 --max-sequence-length 16 --seed 1 -q -o out.png "$@"; }
# spoilt CODE TEXT NAME [OPTION...]
spoilt() {
    code=$1 text=$2 name=$3
    shift 3
    refused "$code" "$text" "$name" render "$@"
    [ ! -e out.png ] && [ "$(ls | grep -vxc 'bad\|out.latents.safetensors')" -eq 0 ]
    is $? "$name: nothing is written"
    rm -f out*
}

T=transformer/diffusion_pytorch_model.safetensors
header_size() { od -An -tu8 -N8 "$1" | tr -d ' '; }
header() { tail -c +9 "$1" | head -c "$(header_size "$1")"; }
# where the bytes of TENSOR begin in FILE
offset() { echo $(($(header "$1" | grep -o "\"$2\":{[^}]*}" | sed 's/.*data_offsets":\[\([0-9]*\),.*/\1/') + 8 + $(header_size "$1"))); }
# FILE from HEADER-TEXT and DATA
compose() {
    n=${#2}
    for i in 1 2 3 4 5 6 7 8; do
        printf "\\$(printf %03o $((n % 256)))"
        n=$((n / 256))
    done >"$1"
    printf %s "$2" >>"$1"
    cat "$3" >>"$1"
}
# one edit, which must change something
replace() {
    own "$1"
    sed "s/$2/$3/" "bad/$1" >edited
    if cmp -s edited "bad/$1"; then bad "$1: nothing matches $2"; fi
    mv edited "bad/$1"
}

fresh
works "the copy itself" render
[ -s out.png ]
is $? "renders"
rm -f out.png
works "an empty prompt" "$DITTO" -m bad -p "" -W 32 -H 16 --steps 1 --max-sequence-length 16 -q -o out.png
rm -f out.png

# --- files ---
for part in model_index.json scheduler/scheduler_config.json transformer/config.json vae/config.json text_encoder/config.json \
    text_encoder_2/config.json tokenizer/merges.txt tokenizer_2/tokenizer.json "$T" text_encoder/model.safetensors; do
    fresh
    rm "bad/$part"
    spoilt 3 "$(basename "$part" | sed 's/merges.txt/tokenizer/')" "missing $part"
    case $part in
    *.txt) ;;
    *)
        fresh
        own "$part"
        head -c "$(($(wc -c <"bad/$part") / 2))" "bad/$part" >half && cat half >"bad/$part" && rm half
        spoilt 3 "$(basename "$part")" "truncated $part"
        fresh
        own "$part"
        : >"bad/$part"
        spoilt 3 "$(basename "$part")" "empty $part"
        ;;
    esac
done
for part in model_index.json scheduler/scheduler_config.json transformer/config.json vae/config.json text_encoder/config.json \
    tokenizer/vocab.json tokenizer/merges.txt tokenizer_2/tokenizer.json "$T"; do
    fresh
    own "$part"
    printf 'version https://git-lfs.github.com/spec/v1\noid sha256:%064d\nsize 23802932552\n' 0 >"bad/$part"
    spoilt 3 "bad/$part: is a Git-LFS pointer, not the file itself: run \`git lfs pull\`" "Git-LFS pointer for $part"
done
refused 3 "bad/$T: is a Git-LFS pointer" "Git-LFS pointer for a model in one file" render -m "bad/$T"
refused 3 "bad/$T: is a Git-LFS pointer" "Git-LFS pointer for a picture" render -m "$MODEL" -i "bad/$T"
refused 3 "bad/$T: is a Git-LFS pointer" "Git-LFS pointer for jobs" "$DITTO" batch "bad/$T" -m "$MODEL" --out bad -q
printf '<!DOCTYPE html>\n<html><head><title>Access denied</title></head></html>\n' >"bad/$T"
spoilt 3 "HTML" "HTML page"
fresh
rm "bad/$T" && ln -s nowhere "bad/$T"
spoilt 3 "$(basename $T)" "dangling link"
rm -rf bad
spoilt 3 "bad" "no folder at all"
mkdir bad
spoilt 3 "bad" "empty folder"
fresh
rm "bad/$T"
printf '{"metadata":{},"weight_map":{"x_embedder.weight":"diffusion_pytorch_model-00001-of-00002.safetensors"}}' \
    >bad/transformer/diffusion_pytorch_model.safetensors.index.json
spoilt 3 "diffusion_pytorch_model-00001-of-00002.safetensors" "index without its shards"
fresh
mv "bad/$T" bad/transformer/diffusion_pytorch_model-00001-of-00001.safetensors
header bad/transformer/diffusion_pytorch_model-00001-of-00001.safetensors | grep -o '"[^"]*":{"dtype' | sed 's/:{"dtype//' |
    sed 's/.*/&:"diffusion_pytorch_model-00001-of-00001.safetensors"/' | paste -sd, | sed 's/.*/{"metadata":{},"weight_map":{&}}/' >index
cp index bad/transformer/diffusion_pytorch_model.safetensors.index.json
rm index
works "one shard with its index" render
rm -f out.png
sed -i 's/"x_embedder.bias"/"x_embedder.was"/' bad/transformer/diffusion_pytorch_model.safetensors.index.json
spoilt 3 "x_embedder" "stale index"

# --- tensors ---
fresh
replace "$T" '"x_embedder.bias"' '"x_embedder.bia5"'
spoilt 3 "x_embedder.bias" "missing tensor, another one too many"
grep -q 'x_embedder.bia5' .err
is $? "the surplus one is named too: $(cat .err)"
fresh
own "$T"
data=$(($(wc -c <"bad/$T") - 8 - $(header_size "bad/$T")))
{ tail -c "$data" "bad/$T" && printf '\0\0\0\0'; } >data
text=$(header "bad/$T" | sed 's/ *$//; s/}$//')
compose "bad/$T" "$text,\"surplus.weight\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[$data,$((data + 4))]}}" data
rm data
spoilt 3 "surplus.weight" "extra tensor"
fresh
own "$T"
shape=$(header "bad/$T" | grep -o '"context_embedder.weight":{[^}]*}' | sed 's/.*"shape":\[\([0-9]*\),\([0-9]*\)\].*/\1 \2/')
replace "$T" "\(\"context_embedder.weight\":{[^}]*\"shape\":\[\)${shape% *},${shape#* }" "\1${shape#* },${shape% *}"
spoilt 3 "context_embedder.weight" "wrong shape"
fresh
replace "$T" '\("x_embedder.bias":{"dtype":"\)BF16' '\1BOOL'
spoilt 3 "x_embedder.bias" "wrong dtype"
for tensor in x_embedder.bias single_transformer_blocks.0.proj_out.bias; do
    fresh
    own "$T"
    printf '\300\177' | dd of="bad/$T" bs=1 seek="$(offset "bad/$T" $tensor)" conv=notrunc 2>/dev/null
    spoilt 5 "velocity_000" "NaN in $tensor"
done
fresh
V=vae/diffusion_pytorch_model.safetensors
own $V
printf '\300\177' | dd of=bad/$V bs=1 seek="$(offset bad/$V decoder.conv_in.bias)" conv=notrunc 2>/dev/null
refused 5 "decode" "NaN in the VAE" render
[ ! -e out.png ] && [ -s out.latents.safetensors ] && grep -q 'out.latents.safetensors' .err
is $? "NaN in the VAE: the latents are kept and named"
works "they can be listed" "$DITTO" inspect out.latents.safetensors
rm -f out*
fresh
E=text_encoder_2/model.safetensors
own $E
printf '\300\177' | dd of=bad/$E bs=1 seek="$(offset bad/$E encoder.final_layer_norm.weight)" conv=notrunc 2>/dev/null
spoilt 5 "prompt_embeds" "NaN in T5"

# --- configs ---
fresh
replace model_index.json FluxPipeline FlixPipeline
spoilt 3 "FlixPipeline" "unknown pipeline class"
replace model_index.json FlixPipeline FluxFillPipeline
spoilt 3 "FluxFillPipeline" "a pipeline of another kind"
fresh
replace transformer/config.json '"num_layers": [0-9]*' '"num_layers": 9'
spoilt 3 "transformer_blocks." "more layers than tensors"
fresh
replace transformer/config.json '"num_layers": ' '"num_layers": -'
spoilt 3 "num_layers" "negative layers"
fresh
replace transformer/config.json '"num_attention_heads": \([0-9]*\)' '"num_attention_heads": "\1"'
spoilt 3 "num_attention_heads" "text where a number belongs"
fresh
replace vae/config.json '"scaling_factor": [0-9.]*' '"scaling_factor": 0'
spoilt 3 "scaling_factor" "scaling factor 0"

# --- options and outputs ---
fresh
spoilt 2 "--width 100: expected a multiple of 16; the nearest are 96 and 112" "width 100" --width 100
spoilt 2 "--height 1080: expected a multiple of 16; the nearest are 1072 and 1088" "height 1080" -H 1080
spoilt 2 "--steps: 0 is out of range" "no steps" --steps 0
spoilt 2 "--steps: 1000000 is out of range" "absurd steps" --steps 1000000
spoilt 2 "--width: 0 is out of range" "width 0" --width 0
spoilt 2 "--width: 1000000 is out of range" "absurd width" --width 1000000
spoilt 2 "invalid UTF-8 at byte 3 (0xe9)" "Latin-1 prompt" -p "$(printf 'caf\351')"
spoilt 2 "--max-sequence-length" "too long a sequence" --max-sequence-length 513
spoilt 2 "expected .png" "JPEG" -o out.jpg
spoilt 6 "no such folder" "missing folder" -o nowhere/out.png
spoilt 6 "/proc/out.png" "folder that takes no files" -o /proc/out.png
if [ "$(id -u)" != 0 ]; then
    mkdir bad/locked && chmod 555 bad/locked
    spoilt 6 "Permission denied" "read-only folder" -o bad/locked/out.png
fi
spoilt 7 "--device cuda" "no such device" --device cuda

fresh
rm bad/$T && mkfifo bad/$T
spoilt 6 "not a regular file" "a pipe in place of weights"
fresh
own model_index.json
sed -i 's/"AutoencoderKL"/"AutoencoderTiny"/' bad/model_index.json
spoilt 3 "vae: found class AutoencoderTiny" "another class for a component"
fresh
own tokenizer/tokenizer_config.json
sed -i 's/"model_max_length": *[0-9]*/"model_max_length": 9/' bad/tokenizer/tokenizer_config.json
render -p "one two three four five six seven eight nine ten" --dry-run | grep -q "encoder 1: 9 of 9"
is $? "the CLIP tokenizer's own limit holds"
D=tokenizer/tokenizer_config.json
fresh
own $D
sed -i 's/"added_tokens_decoder": *{/"added_tokens_decoder": [1], "other": {/' bad/$D
spoilt 3 "$D: added_tokens_decoder: expected an object" "a list of added tokens"
fresh
own $D
sed -i 's/"added_tokens_decoder": *{/"added_tokens_decoder": {"7": 0,/' bad/$D
spoilt 3 "$D: added_tokens_decoder: 7: expected an object with content" "an added token that is a number"
fresh
own $D
sed -i 's/"content": "[^"]*"/"content": 0/' bad/$D
spoilt 3 "expected an object with content" "an added token without text"
# setting KEY FOUND EXPECTED: of a tokenizer's config, which the reference heeds and ditto does not
setting() {
    for D in tokenizer/tokenizer_config.json tokenizer_2/tokenizer_config.json; do
        fresh
        own $D
        sed -i "s/^{/{\"$1\": $2,/" bad/$D
        spoilt 3 "$D: $1: found $2, expected $3" "$1 $2 in $D"
    done
}
setting truncation_side '"left"' '"right"'
setting padding_side '"left"' '"right"'
setting padding_side '"middle"' '"left" or "right"'
setting split_special_tokens true false
fresh
replace vae/config.json '"mid_block_add_attention": true' '"mid_block_add_attention": null'
spoilt 3 "not part of the model: decoder.mid_block.attentions.0" "a null where true or false belongs is false, as in Python"

for part in transformer/config.json vae/config.json text_encoder/config.json text_encoder_2/config.json \
    scheduler/scheduler_config.json tokenizer/tokenizer_config.json tokenizer_2/tokenizer_config.json; do
    fresh
    own $part
    echo '[1]' >bad/$part
    spoilt 3 "$part: expected a JSON object" "$part is a list"
done

# --- Z-Image's prompts ---
chat() {
    rm -rf bad && cp -rs "$GOLDEN/tiny-zimage" bad
    D=tokenizer/tokenizer_config.json
    own $D
}
render_z() { "$DITTO" -m bad -p "a cat" --dry-run -q; }
chat
works "its own chat template" render_z
sed -i "s/message.role + '/message.role + ': /" bad/$D
refused 3 "$D: chat template: is not Qwen3's" "another chat template" render_z
chat
cat >bad/tokenizer/chat_template.jinja <<'END'
{%- for message in messages %}
    {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
END
works "another chat template that does the same" render_z
sed -i "1i {{- '<|im_start|>system\\\\nYou are a cat.<|im_end|>\\\\n' }}" bad/tokenizer/chat_template.jinja
refused 3 "tokenizer/chat_template.jinja: chat template: is not Qwen3's" "a chat template that puts words in front" render_z
chat
printf %s "{{ messages[0].content }}" >bad/tokenizer/chat_template.jinja
refused 3 "tokenizer/chat_template.jinja: chat template: is not Qwen3's" "another chat template in a file of its own" render_z
chat
sed -i 's/"add_prefix_space": false/"add_prefix_space": true/' bad/$D
refused 3 "$D: add_prefix_space: found true, expected false" "a space in front" render_z
chat
own text_encoder/config.json
sed -i 's/"hidden_act": "silu"/"hidden_act": "gelu"/' bad/text_encoder/config.json
refused 3 "no use_sliding_window, found gelu, false and false" "an encoder's activation: what was found" render_z
chat
own transformer/config.json
sed -i 's/"n_kv_heads": 3/"n_kv_heads": 1/' bad/transformer/config.json
refused 3 "expected n_kv_heads equal to n_heads 3, and qk_norm, found 1 and true" "fewer heads of keys: what was found" render_z
fresh

# no address space for a plan that reserves what it does not need
cramped() { (ulimit -v 3000000 && render -o cramped.png); }
case ${BUILD:-} in *asan*) ;; *) works "an address space limit" cramped ;; esac # a sanitizer reserves more than that
rm -f cramped.png

# a file size limit stands for a full disk everywhere; a real one where a small one can be mounted
limited() { (ulimit -f 1 && render); }
refused 6 "out.png: cannot write" "file size limit" limited
[ "$(ls)" = bad ]
is $? "file size limit: nothing is written"
mkdir small
if mount -t tmpfs -o size=4k none small 2>/dev/null; then
    head -c 4096 /dev/zero >small/filler
    refused 6 "No space left on device" "full disk" render -o small/out.png
    [ "$(ls small)" = filler ]
    is $? "full disk: nothing is written"
    umount small
fi

finish
