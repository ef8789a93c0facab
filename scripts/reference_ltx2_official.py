#!/usr/bin/env python3
"""What --match official must give: the loop that Lightricks' own packages (ltx-core, ltx-pipelines 1.2) run around LTX-2, restated
from the description of their formulas, with diffusers' modules for the parts that are the same in both.

    python3 scripts/make_tiny_ltx2.py DIR
    python3 scripts/reference_ltx2_official.py DIR tests/golden        # ltx2_official_f32, _bf16, _single

Restated here: levels (their scheduler without a size), noise (of the model's dtype, token by token), rotations in the model's
dtype, clean samples and velocities rounded to it, the factor of the rescaling, latents kept in it.
Not restated, as ditto has it of diffusers: text encoder, connectors but for their rotations, blocks, decoding (not in the files).

Easy to get wrong: a number over a tensor is the tensor's reciprocal times the number; pictures draw from a GPU's generator there,
here from the CPU's.
"""
import argparse
import importlib
import math

import torch

import reference_ltx2
from reference import DTYPES, replaced, save, seeded
from refprofile import rounding
from reference_ltx2 import GUIDANCE, Settings

SEED, STEPS = 9, 3


def levels(n):
    """Evenly from 1 to 0, shifted as for 4096 tokens, stretched so that the last one before 0 is a tenth."""
    even = torch.linspace(1.0, 0.0, n + 1)[:-1]
    slope = (2.05 - 0.95) / (4096 - 1024)
    by = math.exp(4096 * slope + (0.95 - slope * 1024))
    left = 1.0 - by / (by + (1 / even - 1))
    return torch.cat([1.0 - left / (left[-1] / (1.0 - 0.1)), torch.zeros(1)])


def turned(x, tables):
    """Halves of each head, the plain product stored in x's dtype before the crossed one is added."""
    cosine, sine = (t.to(x.dtype) for t in tables)
    shape, heads = x.shape, cosine.shape[1]
    x = x.unflatten(-1, (heads, -1)).transpose(1, 2) if x.dim() == 3 else x
    low, high = x.chunk(2, dim=-1)
    y = torch.cat([torch.addcmul(low * cosine, -sine, high), torch.addcmul(high * cosine, sine, low)], dim=-1)
    return y.transpose(1, 2).flatten(-2) if len(shape) == 3 else y


def guided(clean, a, sound):
    """clean: the passes' x0 by name, of the model's dtype."""
    pre = "audio_" if sound else ""
    c = clean["text"].float()

    def away(scale, name):
        return scale * (c - clean[name].float()) if name in clean else 0.0
    y = c + away(getattr(a, pre + "cfg_scale") - 1, "negative") + away(getattr(a, pre + "stg_scale"), "perturbed") \
        + away(getattr(a, pre + "modality_scale") - 1, "isolated")
    phi = getattr(a, pre + "guidance_rescale")
    if phi:
        y = y * (phi * (c.std() / y.std()) + (1 - phi))
    return y.to(clean["text"].dtype)


def contexts(pipe, a):
    """[negative, positive] of both streams, and what the pipeline calls their mask."""
    pos, pos_mask, neg, neg_mask = pipe.encode_prompt(a.prompt, a.negative_prompt, do_classifier_free_guidance=True,
                                                      max_sequence_length=a.max_sequence_length, device="cpu")
    return pipe.connectors(torch.cat([neg, pos]), torch.cat([neg_mask, pos_mask]), padding_side="left")


def run(pipe, a, noise=None, texts=None):
    module, dtype, out = importlib.import_module(type(pipe.transformer).__module__), pipe.transformer.dtype, {}
    frames = (a.frames - 1) // pipe.vae_temporal_compression_ratio + 1
    rows, cols = (n // pipe.vae_spatial_compression_ratio for n in (a.height, a.width))
    sound = round(a.frames / a.fps * 16000 / 160 / 4)
    c = pipe.transformer.config
    generator = seeded(a.seed)
    shapes = ((1, frames * rows * cols, c.in_channels), (1, sound, c.audio_in_channels))
    latents = [n.to(dtype) for n in noise] if noise else [torch.randn(s, dtype=dtype, generator=generator) for s in shapes]
    out["noise"], out["audio_noise"] = latents
    sigmas = levels(a.steps)
    out["sigmas"], out["timesteps"] = sigmas, sigmas[:-1] * 1000
    with torch.no_grad(), replaced(module, apply_split_rotary_emb=turned):
        video, audio, mask = texts or contexts(pipe, a)
        for i, pre in enumerate(["negative_", ""]):
            out[pre + "prompt_embeds"], out[pre + "audio_prompt_embeds"] = video[i:i + 1], audio[i:i + 1]
        places = (pipe.transformer.rope.prepare_video_coords(1, frames, rows, cols, "cpu", fps=a.fps),
                  pipe.transformer.audio_rope.prepare_audio_coords(1, sound, "cpu"))

        def predict(which, **more):
            n = which.stop - which.start
            t = sigmas[step].expand(n) * 1000
            v = pipe.transformer(
                hidden_states=latents[0].expand(n, -1, -1), audio_hidden_states=latents[1].expand(n, -1, -1),
                encoder_hidden_states=video[which], audio_encoder_hidden_states=audio[which], timestep=t, sigma=t,
                encoder_attention_mask=mask[which], audio_encoder_attention_mask=mask[which], num_frames=frames, height=rows,
                width=cols, fps=a.fps, audio_num_frames=sound, video_coords=places[0].expand(n, -1, -1, -1),
                audio_coords=places[1].expand(n, -1, -1, -1), return_dict=False, **more)
            return [(x.float() - p.float() * sigmas[step]).to(dtype) for x, p in zip(latents, v)]
        for step in range(a.steps):
            text = predict(slice(0, 2))
            passes = {"perturbed": predict(slice(1, 2), spatio_temporal_guidance_blocks=[int(a.stg_blocks)]),
                      "isolated": predict(slice(1, 2), isolate_modalities=True)}
            for k, pre in enumerate(["", "audio_"]):
                clean = {"negative": text[k][:1], "text": text[k][1:], **{name: p[k] for name, p in passes.items()}}
                v = ((latents[k].float() - guided(clean, a, k).float()) / sigmas[step].item()).to(dtype)
                latents[k] = (latents[k].float() + v.float() * (sigmas[step + 1] - sigmas[step])).to(dtype)
                out[f"{pre}velocity_{step:03d}"], out[f"{pre}latents_{step:03d}"] = v.float(), latents[k].float()
    out["latents"], out["audio_latents"] = (x.float() for x in latents)
    return out


def singles():
    """A rotation and a step on their own, whose values have one order of roundings."""
    g, bf16 = seeded(SEED), torch.bfloat16

    def normal(*shape, by=1.0):
        return (torch.randn(shape, generator=g) * by).to(bf16)
    angles = torch.randn(1, 2, 6, 8, generator=g) * 40
    x, tables = normal(1, 6, 32, by=2.0), (angles.cos(), angles.sin())
    out = {"x": x, "cos": tables[0].to(bf16).float(), "sin": tables[1].to(bf16).float(), "turned": turned(x, tables)}
    a, sigma, after, latents = Settings(), torch.tensor(0.7341793), torch.tensor(0.1), normal(5, 16)
    v = {name: normal(5, 16, by=1.5) for name in ("text", "negative", "perturbed", "isolated")}
    clean = {k: (latents.float() - p.float() * sigma).to(bf16) for k, p in v.items()}
    velocity = ((latents.float() - guided(clean, a, False).float()) / sigma.item()).to(bf16)
    out |= {"latents": latents, "sigma": sigma[None], "dt": (after - sigma)[None], **v, "velocity": velocity,
            "next": (latents.float() + velocity.float() * (after - sigma)).to(bf16)}
    return {k: t.reshape(t.shape[1:]).contiguous() if t.dim() > 2 else t for k, t in out.items()}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("model")
    p.add_argument("out")
    o = p.parse_args()
    torch.set_num_threads(1)
    a = Settings(seed=SEED, steps=STEPS)
    keep = ["velocity_000", "audio_velocity_000", "latents", "audio_latents"]
    save(f"{o.out}/ltx2_official_single.safetensors", singles(), {"guidance": "of scripts/reference_ltx2.py, the clip's"})
    for name, dtype in DTYPES.items():
        pipe = reference_ltx2.load(o.model, dtype, "cpu")
        with rounding(dtype, "cpu"):
            r = run(pipe, a)
        texts = [k for k in r if k.endswith("prompt_embeds")]
        kept = {k: r[k] for k in keep + ["noise", "audio_noise", "timesteps"] + (texts if name == "bf16" else texts[:1])}
        if name == "bf16":
            for part in (pipe.text_encoder, pipe.connectors, pipe.transformer):
                part.float()
            both = [torch.cat([r["negative_" + k], r[k]]).float() for k in ("prompt_embeds", "audio_prompt_embeds")]
            twin = run(pipe, a, (r["noise"], r["audio_noise"]), (*both, torch.ones(2, a.max_sequence_length)))
            kept |= {k + "@f32": twin[k] for k in keep}
        print(name, "timesteps", r["timesteps"].tolist(), "latents std", r["latents"].std().item(), r["audio_latents"].std().item())
        settings = {k: f"{v:g}" if isinstance(v := getattr(a, k), float) else str(v)
                    for k in ("width", "height", "frames", "fps", "steps", "seed", "max_sequence_length", "stg_blocks", *GUIDANCE)}
        save(f"{o.out}/ltx2_official_{name}.safetensors", {k: v.contiguous() for k, v in kept.items()},
             {**settings, "prompt": a.prompt, "negative": a.negative_prompt, "dtype": name, "match": "official",
              **({"injected": ", ".join(texts)} if name == "bf16" else {})})


if __name__ == "__main__":
    main()
