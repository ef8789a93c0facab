#!/usr/bin/env python3
"""Writes the golden files of SANA-Video: of the transformer, tests/golden/sdit_{f32,bf16}.safetensors, and of whole clips,
tests/golden/sana_{t2v_f32,t2v_bf16,i2v_f32,euler_f32,720p_t2v_f32,720p_t2v_bf16,720p_i2v_f32}.safetensors.

    python3 scripts/dump_golden_sana.py tests/golden                # reads tests/golden/tiny-sana.json, the config
    python3 scripts/dump_golden_sana.py tests/golden --only 720p    # the clips whose names begin so, and nothing else
    python3 scripts/dump_golden_sana.py tests/golden --folder OUT   # the clips' model as a folder, and nothing else
    python3 scripts/dump_golden_sana.py tests/golden --folder OUT --ltx2    # the model of 720p: LTX-2's autoencoder

No weights and no inputs are stored: both sides draw them from a seed (tests/golden_sana.h does it in C), tensor by tensor in
the order of their names. Calibrated as the tiny checkpoints are: logits of the cross attention of standard deviation 3 to 5,
gates and scales of order one. Stages are the ones that the C code shows to its tap; in the bf16 file NAME@room is the
distance between the stage and its f32 twin from the same inputs (one number: the whole twin would be twice the stage).

Clips come out of the tiny text encoder, transformer and autoencoder, drawn likewise with other sizes (RUN; RUN_720 with LTX-2's
autoencoder, whose goldens' config is tests/golden/tiny-ltx2-vae/20.json). Stages as those of --dump: noise, velocity_NNN and latents_NNN F32 [1,C,F,h,w]; "grid" are the pixels at every eighth line and column of each frame.

Easy to get wrong: the rotary tables stay f32 in a model that is loaded in bf16, and do not when it is cast afterwards.
"""
import argparse
import copy
import inspect
import json
import os
import tempfile

import torch

import dump_golden_gemma2 as gemma2
import dump_golden_ltx2_vae as ltx2
import dump_golden_wan as wan
from reference import DTYPES, as_f32, save
from make_tiny_flux import Logits
from refprofile import rounding, versions

SEED, SEED_INPUTS = 20260301, 20260302
FRAMES, ROWS, COLS, TEXT, REAL, TIME = 3, 2, 3, 7, 5, 537


def draw(name, shape, g):
    """The rule of tests/golden_sana.h, in f32 as there."""
    n = torch.randn(shape, generator=g)
    if name.endswith("attn2.norm_q.weight"):
        return n * 1.2 + 4.0
    if name.endswith(("norm_q.weight", "norm_k.weight", "norm.weight")):
        return n * 0.3 + 1.0
    if name.endswith("scale_shift_table"):
        return n * 0.7
    if name.endswith("bias"):
        return n * 0.2
    return n * (1.0 / (n[0].numel() ** 0.5))


RUN = {"in_channels": 4, "out_channels": 4, "caption_channels": 48}      # of the transformer in whole clips
RUN_720 = {**RUN, "in_channels": 8, "out_channels": 8, "patch_size": [1, 1, 1], "sample_size": 22}
RUN_TEXT = {"vocab_size": 366, "max_position_embeddings": 4096}
PROMPT, NEGATIVE, MOTION = "A cat runs", "bad", 30
HEIGHT, WIDTH, CLIP, LENGTH = 32, 64, 5, 24
CLIPS = {"t2v": dict(steps=3, cfg=4.0, seed=5, motion_score=MOTION), "i2v": dict(steps=3, cfg=4.0, seed=6, image="drawing.png"),
         "euler": dict(steps=2, cfg=1.0, seed=7, frames=1),
         "720p_t2v": dict(steps=3, cfg=4.0, seed=8, motion_score=MOTION, size=(64, 96, 17)),
         "720p_i2v": dict(steps=2, cfg=4.0, seed=9, image="drawing.png", size=(96, 64, 9))}


def instruction():
    from diffusers import SanaVideoPipeline
    return inspect.signature(SanaVideoPipeline.__call__).parameters["complex_human_instruction"].default


def make(config):
    from diffusers import SanaVideoTransformer3DModel
    dit = SanaVideoTransformer3DModel(**{k: v for k, v in config.items() if not k.startswith("_")}).eval()
    g = torch.Generator().manual_seed(SEED)
    names = dit.state_dict()
    dit.load_state_dict({k: draw(k, names[k].shape, g) for k in sorted(names)})
    return dit


def inputs(config):
    g = torch.Generator().manual_seed(SEED_INPUTS)
    latents = torch.randn(config["in_channels"], FRAMES, 2 * ROWS, 2 * COLS, generator=g)
    return latents, torch.randn(TEXT, config["caption_channels"], generator=g) * 3.0


def stages(dit, config):
    """-> {stage: tensor}, {stage: its f32 twin}."""
    dtype, seen = next(dit.parameters()).dtype, {}
    latents, embeds = inputs(config)

    def keep(name):
        def hook(module, args, kwargs, out):
            seen[name] = (copy.deepcopy(args), copy.deepcopy(kwargs), copy.deepcopy(out))
        return hook
    mods = {"x": dit.patch_embedding, "time": dit.time_embed, "text": dit.caption_projection, "norm": dit.caption_norm,
            "last": dit.norm_out, **{i: b for i, b in enumerate(dit.transformer_blocks)}}
    hooks = [m.register_forward_hook(keep(n), with_kwargs=True) for n, m in mods.items()]
    with torch.no_grad(), rounding(dtype, "cpu"):
        out = dit(latents.to(dtype)[None], encoder_hidden_states=embeds.to(dtype)[None],
                  encoder_attention_mask=(torch.arange(TEXT) < REAL).long()[None], timestep=torch.tensor([TIME]),
                  return_dict=False)[0]
    for h in hooks:
        h.remove()
    twin = copy.deepcopy(dit).float()

    def again(name, module):
        args, kwargs, _ = seen[name]
        return module(*as_f32(args), **as_f32({k: torch.float32 if v is dtype else v for k, v in kwargs.items()}))

    def tokens(x):
        return x[0].flatten(1).t()

    def pictures(x):
        p = config["patch_size"][1]
        x = x[0].view(FRAMES, ROWS, COLS, p, p, config["out_channels"])
        return x.permute(5, 0, 1, 3, 2, 4).reshape(config["out_channels"], FRAMES, ROWS * p, COLS * p)
    got = {"sana.time": seen["time"][2][0][0], "sana.embedded": seen["time"][2][1][0], "sana.caption": seen["norm"][2][0],
           "sana.x_embedder": tokens(seen["x"][2]), "sana.out": out[0]}
    with torch.no_grad():
        time, embedded = again("time", twin.time_embed)
        want = {"sana.time": time[0], "sana.embedded": embedded[0],
                "sana.caption": twin.caption_norm(again("text", twin.caption_projection))[0],
                "sana.x_embedder": tokens(again("x", twin.patch_embedding)),
                "sana.out": pictures(twin.proj_out(again("last", twin.norm_out)))}
        for i, b in enumerate(twin.transformer_blocks):
            got[f"sana.block.{i}"], want[f"sana.block.{i}"] = seen[i][2][0], again(i, b)[0]
    return {k: v.contiguous() for k, v in got.items()}, want


# --- whole clips ---

def autoencoder(folder, kind):
    """In f32, weights drawn."""
    if not kind.startswith("720p"):
        with open(f"{folder}/tiny-wan/config.json") as f:
            return wan.model(json.load(f), torch.float32)
    with open(f"{folder}/tiny-ltx2-vae/20.json") as f:
        return ltx2.vae_of(json.load(f), torch.float32)


def pipeline(folder, kind, dtype, tmp):
    """From the tiny parts, saved and loaded in dtype; Wan's autoencoder stays f32."""
    from diffusers import (DPMSolverMultistepScheduler, FlowMatchEulerDiscreteScheduler,
                           SanaImageToVideoPipeline, SanaVideoPipeline)
    from transformers import Gemma2Model, PreTrainedTokenizerFast
    with open(f"{folder}/tiny-sana.json") as f:
        dit = make({**json.load(f), **(RUN_720 if kind.startswith("720p") else RUN)})
    with open(f"{folder}/tiny-gemma2.json") as f:
        te = gemma2.make({**json.load(f), **RUN_TEXT})
    vae = autoencoder(folder, kind)
    with open(f"{tmp}/tokenizer.json", "w") as f:
        json.dump(gemma2.tokenizer(), f)
    for part, where in ((dit, "dit"), (te, "te"), (vae, "vae")):
        part.save_pretrained(f"{tmp}/{where}")
    tok = PreTrainedTokenizerFast(tokenizer_file=f"{tmp}/tokenizer.json", bos_token="<bos>", eos_token="<eos>",
                                  unk_token="<unk>", pad_token="<pad>")
    te = Gemma2Model.from_pretrained(f"{tmp}/te", dtype=dtype, attn_implementation="eager")
    dit = type(dit).from_pretrained(f"{tmp}/dit", torch_dtype=dtype)
    vae = type(vae).from_pretrained(f"{tmp}/vae", torch_dtype=dtype if kind.startswith("720p") else torch.float32)
    if kind == "euler":
        scheduler = FlowMatchEulerDiscreteScheduler(shift=3.0)
    else:
        scheduler = DPMSolverMultistepScheduler(use_flow_sigmas=True, flow_shift=8.0, prediction_type="flow_prediction")
    cls = SanaImageToVideoPipeline if kind.endswith("i2v") else SanaVideoPipeline
    pipe = cls(tokenizer=tok, text_encoder=te, vae=vae, transformer=dit, scheduler=scheduler)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def real_rows(embeds, mask):
    """Without padding; None where there is no such text."""
    return None if embeds is None else embeds[:, :int(mask.sum())]


def clip(pipe, folder, steps, cfg, seed, motion_score=0, image=None, frames=CLIP, size=None):
    from PIL import Image
    out, seen = {}, []
    height, width, frames = size or (HEIGHT, WIDTH, frames)
    step, prepare, encode = pipe.scheduler.step, pipe.prepare_latents, pipe.encode_prompt

    def encode_tap(*args, **kwargs):
        r = encode(*args, **kwargs)
        out["prompt_embeds"], out["negative_prompt_embeds"] = real_rows(r[0], r[1]), real_rows(r[2], r[3])
        return r

    def prepare_tap(*args, **kwargs):
        z = prepare(*args, **kwargs)
        out["start"] = z.clone()
        return z

    def step_tap(v, t, x, **kwargs):
        r = step(v, t, x, **kwargs)
        out[f"velocity_{len(seen):03d}"], out[f"latents_{len(seen):03d}"] = v.clone(), r[0].clone()
        seen.append(float(t))
        return r
    pipe.scheduler.step, pipe.prepare_latents, pipe.encode_prompt = step_tap, prepare_tap, encode_tap
    more = {"image": Image.open(f"{folder}/{image}").convert("RGB")} if image else {}
    prompt = PROMPT + (f" motion score: {motion_score}." if motion_score else "")
    try:
        video = pipe(prompt=prompt, negative_prompt=NEGATIVE, guidance_scale=cfg, num_inference_steps=steps, height=height,
                     width=width, frames=frames, max_sequence_length=LENGTH, use_resolution_binning=False, output_type="np",
                     generator=torch.Generator("cpu").manual_seed(seed), **more).frames[0]
    finally:
        pipe.scheduler.step, pipe.prepare_latents, pipe.encode_prompt = step, prepare, encode
    last = out[f"latents_{steps - 1:03d}"]
    if image:  # the solver sees the frames behind the image alone
        last = torch.cat([out["start"][:, :, :1], last], dim=2)
    out["latents"], out["timesteps"] = last, torch.tensor(seen)
    out["grid"] = torch.from_numpy((video * 255).round().astype("uint8"))[:, ::8, ::8].contiguous()
    return out


def texts_of(pipe, r):
    """What encode_prompt gave, in f32, padding zeros: the twin of a clip begins behind the encoder, as the test does."""
    masks = pipe.encode_prompt(PROMPT + f" motion score: {MOTION}.", True, NEGATIVE, max_sequence_length=LENGTH,
                               device=torch.device("cpu"), complex_human_instruction=instruction())
    padded = [torch.nn.functional.pad(r[k].float(), (0, 0, 0, LENGTH - r[k].shape[1]))
              for k in ("prompt_embeds", "negative_prompt_embeds")]
    return padded[0], masks[1], padded[1], masks[3]


def clips(folder, only=""):
    meta = {k: str(v) for k, v in versions("cpu").items()}
    for kind, args in CLIPS.items():
        height, width, frames = args.get("size", (HEIGHT, WIDTH, args.get("frames", CLIP)))
        for name, dtype in DTYPES.items():
            if not kind.startswith(only) or (name == "bf16" and not kind.endswith("t2v")):
                continue
            with tempfile.TemporaryDirectory() as tmp:
                pipe = pipeline(folder, kind, dtype, tmp)
                with rounding(dtype, "cpu"):
                    r = clip(pipe, folder, **args)
                if name == "bf16":
                    pipe.text_encoder.float(), pipe.transformer.float()
                    pipe.encode_prompt = lambda *a, texts=texts_of(pipe, r), **k: texts
                    twin = clip(pipe, folder, **args)
            keep = ["timesteps", "latents", "grid"] + ["velocity_000", "noise"] * kind.endswith("t2v")
            r["noise"] = r["start"]
            kept = {k: r[k] for k in keep}
            if name == "bf16":
                kept = {k: r[k] for k in ("latents", "velocity_000", "prompt_embeds", "negative_prompt_embeds")}
                kept |= {k + "@f32": twin[k] for k in ("latents", "velocity_000")}
            px = r["grid"].float()
            print(f"{kind} {name}: timesteps {r['timesteps'].tolist()}, latents std {r['latents'].std():.3f}, "
                  f"pixels std {px.std():.1f}, clipped {((px == 0) | (px == 255)).float().mean():.3f}")
            assert px.std() > 20
            save(f"{folder}/sana_{kind}_{name}.safetensors", kept,
                        {**meta, **({"injected": "prompt_embeds, negative_prompt_embeds"} if name == "bf16" else {}),
                         **{k: str(v) for k, v in args.items() if k != "size"}, "prompt": PROMPT, "negative": NEGATIVE,
                         "height": str(height), "width": str(width), "frames": str(frames),
                         "max_sequence_length": str(LENGTH), "dtype": name})


def folder(golden, out, kind):
    with tempfile.TemporaryDirectory() as tmp:
        pipeline(golden, kind, DTYPES["f32"], tmp).save_pretrained(out)
    path = os.path.join(out, "model_index.json")
    with open(path) as f:
        index = json.load(f)
    index["tokenizer"] = ["transformers", "GemmaTokenizerFast"]   # as the published folder has it
    with open(path, "w") as f:
        json.dump(index, f, indent=2)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("out")
    p.add_argument("--folder")
    p.add_argument("--ltx2", action="store_true")
    p.add_argument("--only")
    a = p.parse_args()
    torch.set_num_threads(1)
    if a.folder:
        folder(a.out, a.folder, "720p_t2v" if a.ltx2 else "t2v")
        return
    if a.only:
        clips(a.out, a.only)
        return
    with open(os.path.join(a.out, "tiny-sana.json")) as f:
        config = json.load(f)
    dit = make(config)
    with Logits() as log:
        f32, _ = stages(dit, config)
    print("logits:", *(f"{v:.2f}" for v in log.std))
    assert all(3 <= v <= 5 for v in log.std)
    for i, b in enumerate(dit.transformer_blocks):
        mod = (b.scale_shift_table + f32["sana.time"].view(6, -1)).square().mean(1).sqrt()
        print(f"block {i}: rms of shift, scale, gate:", *(f"{v:.2f}" for v in mod))
        assert all(0.4 <= v <= 2 for v in mod)
    meta = {k: str(v) for k, v in versions("cpu").items()}
    kept = {k: f32[k] for k in ("sana.out",)}
    save(f"{a.out}/sdit_f32.safetensors", kept, meta)
    with tempfile.TemporaryDirectory() as tmp:
        dit.save_pretrained(tmp)
        half = type(dit).from_pretrained(tmp, torch_dtype=DTYPES["bf16"]).eval()
    assert half.rope.freqs_cos.dtype == torch.float32 and {p.dtype for p in half.parameters()} == {torch.bfloat16}
    bf16, twin = stages(half, config)
    for k in sorted(bf16):
        room = (twin[k] - bf16[k].float()).norm()
        print(f"{k}: {tuple(bf16[k].shape)}, rms {bf16[k].float().square().mean().sqrt():.3f}, room {room:.4f}")
        bf16[k + "@room"] = room.reshape(1)
    save(f"{a.out}/sdit_bf16.safetensors", bf16, meta)
    clips(a.out)


if __name__ == "__main__":
    main()
