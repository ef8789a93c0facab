"""Z-Image through diffusers: whole runs from text or from an image, and the parts of the tiny checkpoint's golden files.

Stages are reference.py's, but ids_1 and mask_1 are the whole padded row, prompt_embeds [1,n,D] the n real tokens, and noise,
velocity_NNN and latents_NNN are F32 [1,C,h,w] in any dtype. velocity_NNN is what the scheduler gets: after guidance, with its
sign. A bf16 run's f32 twin starts from the same noise. A module of dump_reference.py, not a program.

Easy to get wrong: the model's output is minus the velocity; "zimage.out" is the output, not the velocity.
"""
import json
import os
import shutil
import tempfile

import torch
from PIL import Image
from safetensors import safe_open
from safetensors.torch import load_file

from img2img_taps import from_image, golden_runs as image_runs, start_stages
from make_tiny_zimage import empty_dit
from reference import DTYPES, NEGATIVE, PROMPT, check_dtypes, first, hooked, one, replaced, rooms, run_tapped, save, \
    save_run, seeded, tap, with_twin
from refprofile import rounding

HEIGHT, WIDTH, TEXT = 64, 80, 48


def defaults(model_dir, a):
    """What ditto takes where the command line says nothing: of the distilled model (shift 3, the base model has 6) the steps of
    its examples and no guidance, else the pipeline's own numbers. An image keeps its size."""
    with open(os.path.join(model_dir, "scheduler", "scheduler_config.json")) as f:
        distilled = json.load(f).get("shift", 1.0) < 4.5
    side = None if a.image else 1024
    return {"steps": 8 if distilled else 50, "width": side, "height": side, "cfg_scale": 0.0 if distilled else 5.0,
            "guidance": None, "max_sequence_length": 512, "strength": 0.6}


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
    check_dtypes((te, pipe.transformer, pipe.vae), dtype)
    pipe.set_progress_bar_config(disable=True)
    return pipe.to(device)


def image_pipeline(pipe):
    from diffusers import ZImageImg2ImgPipeline
    return from_image(ZImageImg2ImgPipeline, pipe)


def open_image(path, height, width):
    """In the size wanted: the image-to-image pipeline takes no other size than the image's. Sides None: the image's own."""
    from diffusers.utils import load_image
    picture = load_image(path)
    if height or width:
        picture = picture.resize((width or picture.width // 16 * 16, height or picture.height // 16 * 16), Image.LANCZOS)
    return picture


def run_pipeline(pipe, prompt, negative=None, cfg=0.0, steps=8, seed=5, height=HEIGHT, width=WIDTH, text=512,
                 normalization=0.0, truncation=1.0, noise=None, image=None, strength=0.6):
    """One picture; -> dict of stages in pipeline order. image: path; pipe is then the image-to-image pipeline."""
    out = {}
    encode, prepare = pipe.encode_prompt, pipe.prepare_latents

    def encode_tap(*args, **kwargs):
        r = encode(*args, **kwargs)
        out["prompt_embeds"] = r[0][0][None]
        if r[1]:
            out["negative_prompt_embeds"] = r[1][0][None]
        return r

    def prepare_tap(*args, **kwargs):
        out["noise"] = prepare(*args, **kwargs)
        return out["noise"]

    def ids_tap(module, args, kwargs):
        pre = "negative_" if "ids_1" in out else ""
        out[pre + "ids_1"] = kwargs["input_ids"].to(torch.int32)
        out[pre + "mask_1"] = kwargs["attention_mask"].to(torch.int32)
    if image is None:
        start, stages = {"latents": noise}, replaced(pipe, prepare_latents=prepare_tap)
    else:
        start, stages = {"image": open_image(image, height, width), "strength": strength}, start_stages(pipe, out)
    hooks = [pipe.text_encoder.register_forward_pre_hook(ids_tap, with_kwargs=True)]
    with hooked(hooks), replaced(pipe, encode_prompt=encode_tap), stages:
        return run_tapped(pipe, out, lambda: pipe(
            prompt=prompt, negative_prompt=negative, guidance_scale=cfg, num_inference_steps=steps, height=height, width=width,
            max_sequence_length=text, cfg_normalization=normalization, cfg_truncation=truncation, generator=seeded(seed),
            **start).images[0])


def run(pipe, a):
    """The command line's run."""
    return run_pipeline(pipe, a.prompt, a.negative_prompt, a.cfg_scale, a.steps, a.seed, a.height, a.width,
                        a.max_sequence_length, a.cfg_normalization or 0.0,
                        1.0 if a.cfg_truncation is None else a.cfg_truncation, image=a.image, strength=a.strength)


# --- parts ---

def tap_qwen3(te, ids):
    mods = {"qwen3.embed": (te.embed_tokens, one)}
    for i, layer in enumerate(te.layers[:-1]):
        mods[f"qwen3.layer.{i}"] = (layer, first)
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
        save(f"{out}/qwen3_{name}.safetensors", rooms(tap_qwen3(pipe.text_encoder, ids.to(device))), {**meta, "dtype": name})
        for key, (n, h, w, t) in cases.items():
            latents, embeds = drawn[key]
            r = tap_dit(pipe.transformer, latents.to(device), embeds.to(torch.bfloat16).to(dtype).to(device),
                        torch.tensor([t]).to(device))
            if key:                              # the edges of the padding: inputs and output
                if name == "bf16":
                    continue
                r = {k: r[k] for k in ("latents", "embeds", "t", "zimage.out")}
            save(f"{out}/zdit{key}_{name}.safetensors", rooms(r), {**meta, "dtype": name})


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
            "norm": dict(prompt="", cfg=4.0, steps=3, seed=7, normalization=0.9, truncation=0.2),
            # captions of 64 and 32 rows: the shorter one of the batch is masked; the last step runs alone
            "long": dict(prompt=f"{PROMPT}; {PROMPT}", negative=NEGATIVE, cfg=2.5, steps=3, seed=8, truncation=0.2),
            "short": dict(prompt=NEGATIVE, negative=f"{PROMPT}; {PROMPT}", cfg=2.5, steps=2, seed=9)}
    with tempfile.TemporaryDirectory() as tmp:
        base = os.path.join(tmp, "base")
        base_variant(model_dir, base)
        for key, args in runs.items():
            for name, dtype in DTYPES.items():
                if key in ("norm", "short") and name == "bf16":
                    continue
                pipe = load(model_dir if key == "turbo" else base, dtype, device)

                def once(noise):
                    with rounding(next(pipe.transformer.parameters()).dtype, device):
                        return run_pipeline(pipe, text=TEXT, noise=noise, **args)
                r = once(None) if name == "f32" else with_twin(
                    once, (pipe.text_encoder, pipe.transformer, pipe.vae), lambda r: r["noise"],
                    ("velocity", "latents", "prompt_embeds", "negative_prompt", "pixels"))
                path, label = os.path.join(out, f"zimage_{key}_{name}.safetensors"), f"{key} {name}, {int(r['mask_1'].sum())} tokens"
                args_meta = {**meta, **args, "height": HEIGHT, "width": WIDTH, "max_sequence_length": TEXT, "dtype": name}
                if key in ("long", "short"):     # all but the transformer is in the others
                    save(path, {k: v for k, v in r.items() if k.startswith(("velocity", "latents_"))}, args_meta)
                    print(label)
                else:
                    save_run(path, r, args_meta, label)


def golden_img2img(model_dir, out, device, meta):
    """Whole runs from drawing.png in f32, in the drawing's own size."""
    args = dict(prompt=PROMPT, cfg=2.5, steps=5, seed=9)
    pipe = image_pipeline(load(model_dir, torch.float32, device))
    runs, more = image_runs(lambda s: run_pipeline(pipe, text=TEXT, image=f"{out}/drawing.png", strength=s, height=None,
                                                   width=None, **args), (0.6,))
    save(f"{out}/img2img_zimage_f32.safetensors", runs, {**meta, **more, **args, "image": "drawing.png", "dtype": "f32",
                                                         "max_sequence_length": TEXT})


def golden(model_dir, out, device, meta):
    golden_prompts(model_dir, out)
    golden_parts(model_dir, out, device, meta)
    golden_runs(model_dir, out, device, meta)
    golden_img2img(model_dir, out, device, meta)
