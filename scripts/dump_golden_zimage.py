#!/usr/bin/env python3
"""Runs a Z-Image folder through diffusers and writes every stage; the golden files of the tiny checkpoint.

    python3 scripts/dump_golden_zimage.py MODEL_DIR OUT_DIR -p TEXT [--dtype bf16] [--device cuda] ...
        one NAME.safetensors per stage, as ./ditto generate --dump writes them
    python3 scripts/dump_golden_zimage.py --golden MODEL_DIR tests/golden
        all golden files of the tiny checkpoint (scripts/make_tiny_zimage.py)

Stages as in dump_golden.py, but ids_1 and mask_1 are the whole padded row, prompt_embeds [1,n,D] the n real tokens, and
noise, velocity_NNN and latents_NNN are F32 [1,C,h,w] in any dtype. velocity_NNN is what the scheduler gets: after
guidance, with its sign. NAME@f32 in bf16 files: see dump_golden.py; a run's twin starts from the same noise.

Easy to get wrong: the model's output is minus the velocity; "zimage.out" is the output, not the velocity.
"""
import argparse
import contextlib
import json
import os
import shutil
import tempfile

import numpy as np
import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file

from dump_golden import DTYPES, NEGATIVE, PROMPT, one, save, tap
from img2img_taps import from_image, start_stages
from img2img_taps import golden_runs as image_runs
from make_tiny_zimage import empty_dit
from refprofile import rounding, versions

HEIGHT, WIDTH, TEXT = 64, 80, 48


def narrow_time(folder):
    """Is it the tiny checkpoint, whose time MLP the class cannot make from a config?"""
    path = os.path.join(folder, "diffusion_pytorch_model.safetensors")
    if not os.path.exists(path):
        return False
    with safe_open(path, "pt") as f:
        return f.get_slice("t_embedder.mlp.0.weight").get_shape()[0] != 1024


def load(model_dir, dtype, device):
    from diffusers import ZImagePipeline
    from transformers import Qwen3Model
    te = Qwen3Model.from_pretrained(model_dir, subfolder="text_encoder", dtype=dtype, attn_implementation="eager")
    extra, folder = {}, os.path.join(model_dir, "transformer")
    if narrow_time(folder):
        with open(os.path.join(folder, "config.json")) as f:
            dit = empty_dit(json.load(f))
        dit.load_state_dict(load_file(os.path.join(folder, "diffusion_pytorch_model.safetensors")))
        extra["transformer"] = dit.to(dtype)
    pipe = ZImagePipeline.from_pretrained(model_dir, text_encoder=te, torch_dtype=dtype, **extra)
    for part in (te, pipe.transformer, pipe.vae):
        assert {p.dtype for p in part.parameters()} == {dtype}, type(part).__name__
    pipe.set_progress_bar_config(disable=True)
    return pipe.to(device)


def run_pipeline(pipe, prompt, negative=None, cfg=0.0, steps=8, seed=5, height=HEIGHT, width=WIDTH, text=512,
                 normalization=0.0, truncation=1.0, noise=None, image=None, strength=0.6):
    """One picture; -> dict of stages in pipeline order. image: path; pipe is then the image-to-image pipeline, which takes
    no other size than the image's: it is given the image in the size wanted. Sides None: the image's own."""
    from diffusers.utils import load_image
    out, seen = {}, []
    encode, prepare, step = pipe.encode_prompt, pipe.prepare_latents, pipe.scheduler.step

    def encode_tap(*args, **kwargs):
        r = encode(*args, **kwargs)
        out["prompt_embeds"] = r[0][0][None]
        if r[1]:
            out["negative_prompt_embeds"] = r[1][0][None]
        return r

    def prepare_tap(*args, **kwargs):
        out["noise"] = prepare(*args, **kwargs)
        return out["noise"]

    def step_tap(v, t, x, **kwargs):
        r = step(v, t, x, **kwargs)
        n = (pipe.scheduler.begin_index or 0) + len(seen)
        out[f"velocity_{n:03d}"], out[f"latents_{n:03d}"] = v, r[0]
        seen.append(n)
        return r

    def ids_tap(module, args, kwargs):
        pre = "negative_" if "ids_1" in out else ""
        out[pre + "ids_1"] = kwargs["input_ids"].to(torch.int32)
        out[pre + "mask_1"] = kwargs["attention_mask"].to(torch.int32)
    pipe.encode_prompt, pipe.scheduler.step = encode_tap, step_tap
    if image is None:
        pipe.prepare_latents = prepare_tap
        start, stages = {"latents": noise}, contextlib.nullcontext()
    else:
        picture = load_image(image)
        if height or width:
            picture = picture.resize((width or picture.width // 16 * 16, height or picture.height // 16 * 16), Image.LANCZOS)
        start, stages = {"image": picture, "strength": strength}, start_stages(pipe, out)
    hook = pipe.text_encoder.register_forward_pre_hook(ids_tap, with_kwargs=True)
    try:
        with stages:
            picture = pipe(prompt=prompt, negative_prompt=negative, guidance_scale=cfg, num_inference_steps=steps,
                           height=height, width=width, max_sequence_length=text, cfg_normalization=normalization,
                           cfg_truncation=truncation, generator=torch.Generator("cpu").manual_seed(seed), **start).images[0]
    finally:
        hook.remove()
        pipe.encode_prompt, pipe.prepare_latents, pipe.scheduler.step = encode, prepare, step
    out["sigmas"], out["timesteps"] = pipe.scheduler.sigmas.float(), pipe.scheduler.timesteps.float()
    out["latents"] = out[f"latents_{seen[-1]:03d}"]
    out["pixels"] = torch.from_numpy(np.array(picture))
    return out


# --- parts ---

def tap_qwen3(te, ids):
    mods = {"qwen3.embed": (te.embed_tokens, one)}
    for i, layer in enumerate(te.layers[:-1]):
        mods[f"qwen3.layer.{i}"] = (layer, lambda r: {"": r[0] if isinstance(r, tuple) else r})
    return {"ids_1": ids.to(torch.int32), **tap(te, mods, lambda: te(ids, use_cache=False))}


def tap_dit(dit, latents, embeds, time):
    """latents [C,h,w] F32, embeds [n,D], time F32 [1] as the pipeline gives it: (1000 - timestep) / 1000."""
    dtype = embeds.dtype
    n, tokens = len(embeds), latents.shape[1] * latents.shape[2] // 4
    mods = {"zimage.time": (dit.t_embedder, one),
            "zimage.x_embedder": (dit.all_x_embedder["2-1"], lambda r: {"": r[:tokens]}),
            "zimage.cap_embedder": (dit.cap_embedder, lambda r: {"": r[:n]}),
            "zimage.final": (dit.all_final_layer["2-1"], lambda r: {"": r[0, :tokens]})}
    for name, blocks in (("noise", dit.noise_refiner), ("context", dit.context_refiner), ("layer", dit.layers)):
        for i, b in enumerate(blocks):
            mods[f"zimage.{name}.{i}"] = (b, lambda r: {"": r[0]})
    out = {"latents": latents, "embeds": embeds, "t": time * 1000.0}

    def call():
        out["zimage.out"] = dit([latents.to(dtype)[:, None]], time, [embeds], return_dict=False)[0][0][:, 0].float()
    stages = tap(dit, mods, call)
    return {**out, **stages}


def golden_parts(model_dir, out, device, meta):
    g = torch.Generator().manual_seed(12)
    ids = torch.randint(0, 300, (1, 61), generator=g)
    cases = {"": (19, 8, 10, 0.25), "_n33": (33, 8, 16, 0.7), "_n32": (32, 2, 2, 0.0), "_n1": (1, 12, 12, 0.9545454)}
    drawn = {k: (torch.randn(6, h, w, generator=g), torch.randn(n, 40, generator=g) * 3) for k, (n, h, w, _) in cases.items()}
    for name, dtype in DTYPES.items():
        pipe = load(model_dir, dtype, device)
        save(f"{out}/qwen3_{name}.safetensors", tap_qwen3(pipe.text_encoder, ids.to(device)), {**meta, "dtype": name})
        for key, (n, h, w, t) in cases.items():
            latents, embeds = drawn[key]
            r = tap_dit(pipe.transformer, latents.to(device), embeds.to(torch.bfloat16).to(dtype).to(device),
                        torch.tensor([t]).to(device))
            if key:                              # the edges of the padding: inputs and output
                if name == "bf16":
                    continue
                r = {k: r[k] for k in ("latents", "embeds", "t", "zimage.out")}
            save(f"{out}/zdit{key}_{name}.safetensors", r, {**meta, "dtype": name})


def golden_prompts(model_dir, out):
    """Ids of whole prompts, as the pipeline's tokenizer makes them: a JSON string, a tab, the ids before the padding."""
    from transformers import AutoTokenizer
    tok = AutoTokenizer.from_pretrained(os.path.join(model_dir, "tokenizer"))
    words = lambda n: "a" + " cat" * (n - 1)                       # n tokens
    prompts = ["", "a", " a", "\na cat", "\n\n a cat \n\n", "a cat\n", "<|im_end|>", "a <|endoftext|> cat <think>\n",
               "<tool_response>a</tool_response>", "caf\u00e9 cafe\u0301 \u732b \U0001f469\u200d\U0001f680 \u0418\u0306",
               "x" * 700, "3 cats, 1024x768; it's the user's: `<b>'&amp;'</b>` {{ x }} {% y %}"]
    prompts += [words(n - 8) for n in (31, 32, 33, 511, 512, 513, 600)]
    with open(os.path.join(out, "zimage_prompts.txt"), "w") as f:
        for p in prompts:
            text = tok.apply_chat_template([{"role": "user", "content": p}], tokenize=False, add_generation_prompt=True,
                                           enable_thinking=True)
            r = tok([text], padding="max_length", max_length=512, truncation=True)
            n = sum(r["attention_mask"][0])
            assert len(r["input_ids"][0]) == 512 and r["attention_mask"][0] == [1] * n + [0] * (512 - n)
            f.write(json.dumps(p) + "\t" + ",".join(map(str, r["input_ids"][0][:n])) + "\n")


def base_variant(model_dir, out):
    """Static shift 6: what tests/test_zimage.c makes in C."""
    shutil.copytree(model_dir, out)
    path = os.path.join(out, "scheduler", "scheduler_config.json")
    with open(path) as f:
        j = {**json.load(f), "shift": 6.0}
    with open(path, "w") as f:
        json.dump(j, f, indent=2, sort_keys=True)


def golden_runs(model_dir, out, device, meta):
    runs = {"turbo": dict(prompt=PROMPT, steps=3, seed=5),
            "base": dict(prompt=PROMPT, negative=NEGATIVE, cfg=2.5, steps=2, seed=6),
            "norm": dict(prompt="", cfg=4.0, steps=3, seed=7, normalization=0.9, truncation=0.2)}
    with tempfile.TemporaryDirectory() as tmp:
        base = os.path.join(tmp, "base")
        base_variant(model_dir, base)
        for key, args in runs.items():
            for name, dtype in DTYPES.items():
                if key == "norm" and name == "bf16":
                    continue
                pipe = load(model_dir if key == "turbo" else base, dtype, device)
                with rounding(dtype, device):
                    r = run_pipeline(pipe, text=TEXT, **args)
                if name == "bf16":
                    for part in (pipe.text_encoder, pipe.transformer, pipe.vae):
                        part.float()
                    twin = run_pipeline(pipe, text=TEXT, noise=r["noise"], **args)
                    r.update({k + "@f32": v for k, v in twin.items()
                              if k.startswith(("velocity", "latents", "prompt_embeds", "negative_prompt", "pixels"))})
                r.pop("latents")
                r.pop("latents@f32", None)
                save(os.path.join(out, f"zimage_{key}_{name}.safetensors"), r,
                     {**meta, **args, "height": HEIGHT, "width": WIDTH, "max_sequence_length": TEXT, "dtype": name})
                px = r["pixels"].float()
                clipped = ((px == 0) | (px == 255)).float().mean()
                print(f"{key} {name}: {int(r['mask_1'].sum())} tokens, pixel std {px.std():.1f}, clipped {clipped:.4f}")
                assert px.std() >= 20 and clipped < 0.05


def golden_img2img(model_dir, out, device, meta):
    """Whole runs from drawing.png in f32, in the drawing's own size."""
    from diffusers import ZImageImg2ImgPipeline
    args = dict(prompt=PROMPT, cfg=2.5, steps=5, seed=9)
    pipe = from_image(ZImageImg2ImgPipeline, load(model_dir, torch.float32, device))
    runs, more = image_runs(lambda s: run_pipeline(pipe, text=TEXT, image=f"{out}/drawing.png", strength=s, height=None,
                                                   width=None, **args), (0.6,))
    save(f"{out}/img2img_zimage_f32.safetensors", runs, {**meta, **more, **args, "image": "drawing.png", "dtype": "f32",
                                                         "max_sequence_length": TEXT})


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("out")
    p.add_argument("--golden", action="store_true")
    p.add_argument("-p", "--prompt")
    p.add_argument("-n", "--negative-prompt")
    p.add_argument("--cfg-scale", type=float, default=0.0)
    p.add_argument("--steps", type=int, default=8)
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("-W", "--width", type=int, help="default: 1024, with an image its own")
    p.add_argument("-H", "--height", type=int, help="default: 1024, with an image its own")
    p.add_argument("-i", "--image", help="begin from this picture (ZImageImg2ImgPipeline)")
    p.add_argument("--strength", type=float, default=0.6)
    p.add_argument("--max-sequence-length", type=int, default=512)
    p.add_argument("--dtype", choices=DTYPES, default="bf16")
    p.add_argument("--device", default="cpu")
    a = p.parse_args()
    torch.set_num_threads(min(2, torch.get_num_threads()))
    os.makedirs(a.out, exist_ok=True)
    meta = versions(a.device)
    if a.golden:
        golden_prompts(a.model, a.out)
        golden_parts(a.model, a.out, a.device, meta)
        golden_runs(a.model, a.out, a.device, meta)
        golden_img2img(a.model, a.out, a.device, meta)
        return
    pipe = load(a.model, DTYPES[a.dtype], a.device)
    if a.image:
        from diffusers import ZImageImg2ImgPipeline
        pipe = from_image(ZImageImg2ImgPipeline, pipe)
    own = None if a.image else 1024
    with rounding(DTYPES[a.dtype], a.device):
        r = run_pipeline(pipe, a.prompt, a.negative_prompt, a.cfg_scale, a.steps, a.seed, a.height or own, a.width or own,
                         a.max_sequence_length, image=a.image, strength=a.strength)
    for k, v in r.items():
        save(os.path.join(a.out, k + ".safetensors"), {k: v}, meta)


if __name__ == "__main__":
    main()
