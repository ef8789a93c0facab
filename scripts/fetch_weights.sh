#!/bin/sh
# fetch_weights.sh - checks that a downloaded model is complete and undamaged, and prints the line that brings the rest.
#
#   scripts/fetch_weights.sh [--download] [--manifest FILE | --write-manifest FILE] DIR|OWNER/NAME
#
# Three checks, each naming every file at fault: all files that the model and its index files ask for are there; every
# safetensors file is consistent with its own header and index to the byte (`ditto inspect`); with --manifest, sizes and
# SHA-256 sums too. Manifest lines: SUM SIZE PATH, "-" for an unknown SUM or SIZE; --write-manifest makes one from DIR.
# Nothing is fetched unless --download is given, which runs the `hf` tool (pip install huggingface_hub) as printed.
# Easy to get wrong: SHA-256 of 34 GB takes minutes; without a manifest only headers are read.
# Exit: 0 complete, 1 something is missing or wrong, 2 usage.
DITTO=${DITTO:-$(dirname "$0")/../ditto}
usage() { sed -n '4s/^# *//p' "$0" >&2; exit 2; }
download= manifest= write=
while [ $# -gt 0 ]; do
    case $1 in
    --download) download=1 ;;
    --manifest) [ $# -gt 1 ] || usage; manifest=$2; shift ;;
    --write-manifest) [ $# -gt 1 ] || usage; write=$2; shift ;;
    -*) usage ;;
    *) break ;;
    esac
    shift
done
[ $# -eq 1 ] && [ -n "$1" ] || usage
model=$1
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

cache=${HF_HUB_CACHE:-${HUGGINGFACE_HUB_CACHE:-${HF_HOME:+$HF_HOME/hub}}}
cache=${cache:-${XDG_CACHE_HOME:-$HOME/.cache}/huggingface/hub}
case $cache in "~" | "~/"*) cache=$HOME${cache#"~"} ;; esac

# Sets $dir to the model's folder, empty when there is none.
locate() {
    dir=
    if [ -d "$model" ]; then
        dir=$model
    else
        repo=$cache/models--$(printf %s "$model" | sed 's|/|--|')
        commit=$(cat "$repo/refs/main" 2>/dev/null)
        [ -n "$commit" ] && [ -d "$repo/snapshots/$commit" ] && dir=$repo/snapshots/$commit
    fi
}

# The repository a folder came from, else the base model it looks like.
repository() {
    case $model in /* | .* | *//* | */*/*) ;; */*) [ -d "$model" ] || { echo "$model"; return; } ;; esac
    real=$(realpath "$dir" 2>/dev/null)
    case $real in
    */models--*--*) echo "$real" | sed 's|.*/models--\([^/]*\).*|\1|; s|--|/|' ;;
    *) if grep -q '"guidance_embeds": *false' "$dir/transformer/config.json" 2>/dev/null; then
           echo black-forest-labs/FLUX.1-schnell
       else
           echo black-forest-labs/FLUX.1-dev
       fi ;;
    esac
}

line() {
    to=
    case $dir in '' | */models--*) ;; *) to=" --local-dir '$dir'" ;; esac
    echo "hf download $(repository) --include \"[mstv]*\"$to"
}

# Names, one a line, of what the folder must hold. A part's weights: what its index lists, else one file.
expected() {
    printf '%s\n' model_index.json scheduler/scheduler_config.json
    if [ -e "$dir/tokenizer/tokenizer.json" ]; then echo tokenizer/tokenizer.json
    else printf '%s\n' tokenizer/vocab.json tokenizer/merges.txt; fi
    echo tokenizer_2/tokenizer.json
    for part in text_encoder text_encoder_2 transformer vae; do
        echo $part/config.json
        found=
        for f in "$dir/$part"/*.safetensors.index*.json; do
            [ -e "$f" ] || continue
            found=1
            grep -o '"[^"/]*\.safetensors"' "$f" | tr -d '"' | sort -u | sed "s|^|$part/|"
        done
        [ -n "$found" ] && continue
        for f in "$dir/$part"/*.safetensors; do [ -e "$f" ] && found=1; done
        [ -n "$found" ] && continue
        case $part in
        text_*) echo $part/model.safetensors ;;
        *) echo $part/diffusion_pytorch_model.safetensors ;;
        esac
    done
}

check_manifest() {
    while read -r sum size path; do
        case $sum in '' | \#*) continue ;; esac
        if [ ! -e "$dir/$path" ]; then echo "missing: $path"; continue; fi
        have=$(stat -L -c %s "$dir/$path")
        if [ "$size" != - ] && [ "$have" != "$size" ]; then
            echo "wrong size: $path has $have bytes, expected $size"
        elif [ "$sum" != - ] && [ "$(sha256sum <"$dir/$path" | cut -c1-64)" != "$sum" ]; then
            echo "wrong SHA-256: $path"
        fi
    done <"$manifest"
}

locate
if [ -n "$download" ]; then
    command -v hf >/dev/null || { echo "hf is not installed: pip install huggingface_hub" >&2; exit 2; }
    echo "$(line)" >&2
    case $dir in
    '' | */models--*) hf download "$(repository)" --include "[mstv]*" >&2 || exit 1 ;;
    *) hf download "$(repository)" --include "[mstv]*" --local-dir "$dir" >&2 || exit 1 ;;
    esac
    locate
fi
if [ -z "$dir" ]; then
    echo "$model: neither a folder nor in the hub cache ($cache)"
    echo "fetch with: $(line)"
    exit 1
fi

expected >"$work/expected"
{
    while IFS= read -r f; do [ -e "$dir/$f" ] || echo "missing: $f"; done <"$work/expected"
    if [ -x "$DITTO" ]; then
        "$DITTO" inspect "$dir" >"$work/listing" 2>"$work/err" || sed 's/^ditto: /inspect: /' "$work/err"
    else
        echo "no ditto at $DITTO: build it first (make)"
    fi
    [ -z "$manifest" ] || check_manifest
} >"$work/faults"

if [ -s "$work/faults" ]; then
    cat "$work/faults"
    echo "fetch with: $(line)"
    exit 1
fi
if [ -n "$write" ]; then
    (cd "$dir" && find -L . -type f ! -path './.cache/*' ! -name .gitattributes | sed 's|^\./||' | LC_ALL=C sort |
        while IFS= read -r f; do echo "$(sha256sum <"$f" | cut -c1-64) $(stat -L -c %s "$f") $f"; done) >"$write" || exit 1
fi
grep '^# total:' "$work/listing" | sed "s|^# total:|$dir: complete:|"
