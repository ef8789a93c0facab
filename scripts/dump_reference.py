#!/usr/bin/env python3
"""Runs a model folder through diffusers on the reference profile and writes every stage: what `ditto ab --reference` compares
with, and the goldens.

    python3 scripts/dump_reference.py MODEL_DIR OUT_DIR -p TEXT [--dtype bf16] [--device cuda] ...
        OUT_DIR/NAME.safetensors per stage, as ./ditto generate --dump writes them, and OUT_DIR/meta.json: parameters as
        there, and versions
    python3 scripts/dump_reference.py MODEL_DIR OUT_DIR --prompts FILE ...
        the same of every prompt, a line each: OUT_DIR/0001, OUT_DIR/0002, ...
    python3 scripts/dump_reference.py MODEL_DIR OUT_DIR --golden
        the golden files of a tiny checkpoint (tests/golden/README.md)

The pipeline is found by model_index.json. On a GPU PyTorch runs as it is; on a CPU in bf16 with CUDA's rounding points
(refprofile.py), so the bits there are not the profile's.

Easy to get wrong: what is not given is diffusers' default, not the model card's advice, but for Z-Image what ditto takes.
"""
import argparse
import contextlib
import hashlib
import json
import os

import torch

import reference_flux
import reference_ltx2
import reference_sana
import reference_zimage
from optrace import Trace
from reference import DTYPES, save
from refprofile import rounding, versions

MODELS = {"FluxPipeline": reference_flux, "ZImagePipeline": reference_zimage, "SanaVideoPipeline": reference_sana,
          "LTX2Pipeline": reference_ltx2}


def model_of(folder):
    with open(os.path.join(folder, "model_index.json")) as f:
        name = json.load(f)["_class_name"]
    if name not in MODELS:
        raise SystemExit(f"{folder}: {name} is not among {', '.join(MODELS)}")
    return MODELS[name]


def arguments():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("out")
    what = p.add_mutually_exclusive_group(required=True)
    what.add_argument("-p", "--prompt")
    what.add_argument("--prompts", help="file with a prompt a line")
    what.add_argument("--golden", action="store_true")
    p.add_argument("-n", "--negative-prompt")
    p.add_argument("--cfg-scale", type=float, help="classifier-free: true_cfg_scale of FLUX.1, guidance_scale of the others")
    p.add_argument("--cfg-normalization", type=float, help="Z-Image")
    p.add_argument("--cfg-truncation", type=float, help="Z-Image")
    p.add_argument("--guidance", type=float, help="distilled: guidance_scale of FLUX.1")
    p.add_argument("--steps", type=int)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("-W", "--width", type=int)
    p.add_argument("-H", "--height", type=int)
    p.add_argument("-i", "--image", help="begin from this picture: the image-to-image pipeline of the same components")
    p.add_argument("--strength", type=float)
    p.add_argument("--max-sequence-length", type=int)
    p.add_argument("--frames", type=int, help="of a clip")
    p.add_argument("--fps", type=float, help="LTX-2")
    p.add_argument("--motion-score", type=int, help="SANA-Video")
    for name in ("stg-scale", "modality-scale", "guidance-rescale"):
        p.add_argument("--" + name, type=float, help="LTX-2")
        p.add_argument("--audio-" + name, type=float)
    p.add_argument("--audio-cfg-scale", type=float, help="LTX-2")
    p.add_argument("--stg-blocks", help="LTX-2: numbers with commas between")
    p.add_argument("--upscale", type=int, choices=[2], help="LTX-2: in two rounds")
    p.add_argument("--image-crf", type=int, help="LTX-2")
    p.add_argument("--contexts", metavar="DIR", help="LTX-2: another run's stages, whose contexts take the place of the texts'")
    p.add_argument("--trace", help="file: what every function of PyTorch's made (optrace.py; slow)")
    p.add_argument("--dtype", choices=DTYPES, default="bf16")
    p.add_argument("--device", default="cpu")
    return p.parse_args()


def parameters(a, stages):
    """What meta.json says of a run, under the names of ditto's."""
    height, width = stages["pixels"].shape[-3:-1]
    m = {"model": os.path.basename(os.path.abspath(a.model)), "prompt": a.prompt, "seed": a.seed, "width": width,
         "height": height,
         "steps": a.steps, "guidance": a.guidance or 0.0, "cfg_scale": a.cfg_scale, "max_sequence_length": a.max_sequence_length,
         "dtype": a.dtype.upper()}
    for name in ("negative_prompt", "cfg_normalization", "cfg_truncation", "frames", "motion_score", "stg_scale",
                 "modality_scale", "guidance_rescale", "audio_cfg_scale", "audio_stg_scale", "audio_modality_scale",
                 "audio_guidance_rescale", "stg_blocks", "upscale"):
        if getattr(a, name) is not None:
            m[name] = getattr(a, name)
    if a.fps is not None:
        m["fps"] = f"{a.fps:g}"
    if a.image:
        path = a.image if os.path.exists(a.image) else a.image.split(":")[0]   # LTX-2: FILE[:FRAME[:STRENGTH]]
        with open(path, "rb") as f:
            m["image_sha256"] = hashlib.sha256(f.read()).hexdigest()
        if a.strength is not None:
            m["strength"] = a.strength
    return m


def read_prompts(path):
    """As ditto reads a file of prompts: lines without characters are skipped."""
    with open(path, encoding="utf-8-sig", newline="") as f:
        lines = [line.removesuffix("\r") for line in f.read().split("\n")]
    return [line for line in lines if line]


def dump(model, pipe, a, out, meta):
    os.makedirs(out, exist_ok=True)
    with rounding(DTYPES[a.dtype], a.device), Trace(a.trace) if a.trace else contextlib.nullcontext():
        stages = model.run(pipe, a)
    for name, tensor in stages.items():
        save(os.path.join(out, name + ".safetensors"), {name: tensor}, meta)
    with open(os.path.join(out, "meta.json"), "w") as f:
        json.dump({**meta, **parameters(a, stages)}, f, indent=1, sort_keys=True)


def main():
    a = arguments()
    torch.set_num_threads(min(2, torch.get_num_threads()))
    os.makedirs(a.out, exist_ok=True)
    model = model_of(a.model)
    meta = {**versions(a.device), **getattr(model, "VERSIONS", {})}
    if a.golden:
        model.golden(a.model, a.out, a.device, meta)
        return
    for name, value in model.defaults(a.model, a).items():
        if getattr(a, name) is None:
            setattr(a, name, value)
    if a.contexts and model is not reference_ltx2:
        raise SystemExit("--contexts: for LTX-2 alone")
    pipe = model.load(a.model, DTYPES[a.dtype], a.device, **({"texts": False} if a.contexts else {}))
    if a.image:
        pipe = model.image_pipeline(pipe)
    if a.prompts is None:
        dump(model, pipe, a, a.out, meta)
        return
    for k, a.prompt in enumerate(read_prompts(a.prompts)):
        dump(model, pipe, a, os.path.join(a.out, f"{k + 1:04d}"), meta)


if __name__ == "__main__":
    main()
