"""LTX-2 through diffusers: whole clips with sound, from text or from pictures.

Stages are reference.py's, and of the sound audio_prompt_embeds, audio_noise, audio_velocity_NNN, audio_latents_NNN,
audio_latents and audio (F32 [samples, channels]). prompt_embeds are the contexts that the connectors
make. noise [1,C,F,h,w] and audio_noise [1,C,L,M] are as drawn; velocities (after guidance, what the schedulers get) and
latents F32 and packed, [1,tokens,C]. A module of dump_reference.py, not a program.

Easy to get wrong: the pipeline copies its scheduler for the sound, so that taps belong to the class; diffusers' own numbers are
30 steps and four passes a step. On a CPU torch divides times by the rate, on a GPU it multiplies with the reciprocal, as ditto does
everywhere: the rotations' angles magnify the last bit, so that f32 runs on a CPU of more than two latent frames differ by some
1e-4 (measured: up to 7e-4 of a stage's peak, 7e-5 at most once the division is replaced).
"""
import contextlib
import importlib
import os

import numpy as np
import torch
from safetensors.torch import load_file

from reference import DTYPES, check_dtypes, hooked, replaced, save, seeded
from refprofile import rounding

GUIDANCE = {"cfg_scale": 3.0, "stg_scale": 1.0, "modality_scale": 3.0, "guidance_rescale": 0.7, "audio_cfg_scale": 7.0,
            "audio_stg_scale": 1.0, "audio_modality_scale": 3.0, "audio_guidance_rescale": 0.7}
VERSIONS = {"attention_text": "sdpa"}   # transformers' default for Gemma-3
FOLDER = {}   # of each pipeline that was loaded here


def distilled(model_dir):
    from diffusers import FlowMatchEulerDiscreteScheduler
    return not FlowMatchEulerDiscreteScheduler.from_pretrained(model_dir, subfolder="scheduler").config.use_dynamic_shifting


def defaults(model_dir, a):
    """The pipeline's own numbers; of the distilled weights its list of sigmas, and no guidance."""
    off = {k: 0.0 if "stg" in k or "rescale" in k else 1.0 for k in GUIDANCE}
    return {"steps": 8 if distilled(model_dir) else 30, "width": 768, "height": 512, "frames": 121, "guidance": None,
            "max_sequence_length": 1024, "fps": 24.0, "stg_blocks": "28", **(off if distilled(model_dir) else GUIDANCE)}


def load(model_dir, dtype, device, texts=True):
    """texts False: without the text encoder, for runs whose contexts are given."""
    from diffusers import LTX2Pipeline
    from transformers import Gemma3ForConditionalGeneration
    te = Gemma3ForConditionalGeneration.from_pretrained(model_dir, subfolder="text_encoder", dtype=dtype) if texts else None
    pipe = LTX2Pipeline.from_pretrained(model_dir, text_encoder=te, torch_dtype=dtype)
    check_dtypes(((te,) if texts else ()) + (pipe.transformer, pipe.connectors, pipe.vae, pipe.audio_vae, pipe.vocoder), dtype)
    pipe.set_progress_bar_config(disable=True)
    FOLDER[id(pipe)] = model_dir
    return pipe.to(device)


def enlarged(pipe, latents):
    """LTX2LatentUpsamplePipeline of the pipeline's folder and dtype."""
    from diffusers.pipelines.ltx2 import LTX2LatentUpsamplePipeline, LTX2LatentUpsamplerModel
    upsampler = LTX2LatentUpsamplerModel.from_pretrained(FOLDER[id(pipe)], subfolder="latent_upsampler",
                                                         torch_dtype=pipe.vae.dtype).to(latents.device)
    return LTX2LatentUpsamplePipeline(vae=pipe.vae, latent_upsampler=upsampler)(latents=latents, output_type="latent",
                                                                                return_dict=False)[0]


def image_pipeline(pipe):
    from diffusers import LTX2ConditionPipeline
    return LTX2ConditionPipeline(**{k: v for k, v in pipe.components.items() if v is not None})


def given_contexts(folder, device, dtype):
    """What another run's stages say of its texts, as the connectors hand it on: (video, sound, mask), the negative text first."""
    def stage(name):
        path = os.path.join(folder, name + ".safetensors")
        return load_file(path)[name].to(device, dtype) if os.path.exists(path) else None
    both = [[t for t in (stage(pre + name) for pre in ("negative_", "")) if t is not None]
            for name in ("prompt_embeds", "audio_prompt_embeds")]
    video, sound = (torch.cat(b) for b in both)
    return video, sound, torch.ones(video.shape[:2], dtype=torch.int64, device=device)


def no_texts(*args, do_classifier_free_guidance=True, device=None, **kwargs):
    """As encode_prompt; nobody looks at what it says but for the first dimension and the dtype."""
    nothing = [torch.zeros(1, 1, 1, dtype=torch.bfloat16, device=device), torch.ones(1, 1, dtype=torch.int64, device=device)]
    return (*nothing, *(nothing if do_classifier_free_guidance else (None, None)))


@contextlib.contextmanager
def stepping(pipe, out):
    """While open, every scheduler's steps are stages: video first, then sound, in turn."""
    cls, seen = type(pipe.scheduler), []
    step = cls.step

    def tap(self, v, t, x, **kwargs):
        r = step(self, v, t, x, **kwargs)
        first = int(out["steps"])
        n, pre = len(seen) // 2, "audio_" if len(seen) % 2 else ""
        pre, n = ("stage2_" + pre, n - first) if n >= first else (pre, n)
        out[f"{pre}velocity_{n:03d}"], out[f"{pre}latents_{n:03d}"] = v.clone(), r[0].clone()
        seen.append(pre)
        return r
    cls.step = tap
    try:
        yield seen
    finally:
        cls.step = step


def conditions(a):
    """FILE[:FRAME[:STRENGTH]] as ditto reads them."""
    from diffusers.pipelines.ltx2.pipeline_ltx2_condition import LTX2VideoCondition
    from diffusers.utils import load_image
    made = []
    for text in a.image if isinstance(a.image, list) else [a.image]:
        parts = text.split(":")
        made.append(LTX2VideoCondition(frames=load_image(parts[0]), index=int(parts[1]) if len(parts) > 1 else 0,
                                       strength=float(parts[2]) if len(parts) > 2 else 1.0,
                                       crf=0 if a.image_crf is None else a.image_crf))
    return made


def run(pipe, a, noise=None, texts=None):
    """The command line's run. noise: (video, sound) to begin from instead of drawing; texts: contexts and mask instead of the
    connectors' own."""
    from diffusers.pipelines.ltx2.utils import DISTILLED_SIGMA_VALUES, STAGE_2_DISTILLED_SIGMA_VALUES
    out, drawn = {"steps": a.steps}, []
    module = importlib.import_module(type(pipe).__module__)
    randn, vocoder, connectors = module.randn_tensor, pipe.vocoder.forward, pipe.connectors.forward
    two = a.cfg_scale > 1 or a.audio_cfg_scale > 1
    blocks = [int(b) for b in str(a.stg_blocks).split(",")]

    def ids_tap(model, args, kwargs):
        if "negative_ids_1" in out or ("ids_1" in out and not two):
            return
        pre = "negative_" if "ids_1" in out else ""
        out[pre + "ids_1"] = (args[0] if args else kwargs["input_ids"]).to(torch.int32)
        out[pre + "mask_1"] = kwargs["attention_mask"].to(torch.int32)

    def text_tap(*args, **kwargs):
        r = texts or connectors(*args, **kwargs)
        if len(r[0]) == 2 and not two:
            r = tuple(t[1:] for t in r)
        for i, pre in enumerate(["negative_", ""] if two else [""]):
            out.setdefault(pre + "prompt_embeds", r[0][i:i + 1])          # a second round's are the first one's
            out.setdefault(pre + "audio_prompt_embeds", r[1][i:i + 1])
        return r

    def draw_tap(shape, **kwargs):
        name = ("noise", "audio_noise", "stage2_noise", "stage2_audio_noise")[len(drawn)]
        n = randn(shape, **kwargs)
        out[name] = (n if noise is None else noise[len(drawn)].to(n)).clone()
        drawn.append(name)
        return out[name].clone()

    def sound_tap(*args, **kwargs):
        r = vocoder(*args, **kwargs)
        out["audio"] = r[0].float().t().contiguous()
        return r
    sigmas = DISTILLED_SIGMA_VALUES if not pipe.scheduler.config.use_dynamic_shifting and a.steps == 8 else None
    more = {"conditions": conditions(a)} if a.image else {}
    silent = {}
    if a.contexts:
        texts, silent = given_contexts(a.contexts, pipe.device, pipe.transformer.dtype), {"encode_prompt": no_texts}
    hooks = [] if a.contexts else [pipe.text_encoder.register_forward_pre_hook(ids_tap, with_kwargs=True)]
    with hooked(hooks), replaced(pipe, **silent), replaced(pipe.connectors, forward=text_tap), replaced(module, randn_tensor=draw_tap), \
            replaced(pipe.vocoder, forward=sound_tap), stepping(pipe, out) as seen:
        def call(**kwargs):
            return pipe(prompt=a.prompt, negative_prompt=a.negative_prompt or "", num_frames=a.frames, frame_rate=float(a.fps),
                        spatio_temporal_guidance_blocks=blocks, max_sequence_length=a.max_sequence_length, generator=generator,
                        return_dict=False, **kwargs, **more)
        generator, half = seeded(a.seed), 2 if a.upscale else 1
        guidance = {"guidance_scale": a.cfg_scale, "audio_guidance_scale": a.audio_cfg_scale,
                    **{k: getattr(a, k) for k in GUIDANCE if "cfg" not in k}}
        video, sound = call(height=a.height // half, width=a.width // half, num_inference_steps=a.steps, sigmas=sigmas,
                            **guidance, output_type="latent" if a.upscale else "np")
        out["sigmas"], out["timesteps"] = pipe.scheduler.sigmas.float(), pipe.scheduler.timesteps.float()
        if a.upscale:
            two, schedule = False, pipe.scheduler
            pipe.scheduler = type(schedule).from_config(schedule.config, use_dynamic_shifting=False, shift_terminal=None)
            off = {k: 0.0 if "stg" in k or "rescale" in k else 1.0 for k in guidance}
            video, _ = call(height=a.height, width=a.width, num_inference_steps=len(STAGE_2_DISTILLED_SIGMA_VALUES),
                            sigmas=STAGE_2_DISTILLED_SIGMA_VALUES, noise_scale=STAGE_2_DISTILLED_SIGMA_VALUES[0],
                            latents=enlarged(pipe, video), audio_latents=sound, **off, output_type="np")
            out["stage2_sigmas"], out["stage2_timesteps"] = pipe.scheduler.sigmas.float(), pipe.scheduler.timesteps.float()
            pipe.scheduler = schedule
    video = video[0]
    del out["steps"]
    last = len(seen) // 2 - 1 - (a.steps if a.upscale else 0)
    pre = "stage2_" if a.upscale else ""
    tokens = ((a.frames - 1) // pipe.vae_temporal_compression_ratio + 1) * (a.height // pipe.vae_spatial_compression_ratio) \
        * (a.width // pipe.vae_spatial_compression_ratio)          # without those of a picture beside the clip
    out["latents"], out["audio_latents"] = out[f"{pre}latents_{last:03d}"][:, :tokens], out[f"{pre}audio_latents_{last:03d}"]
    out["pixels"] = torch.from_numpy((np.asarray(video) * 255).round().astype("uint8"))
    return out


# --- golden files ---

RUNS = {  # of scripts/make_tiny_ltx2.py's folder
    "four": {"seed": 5},
    "two": {"seed": 6, "stg_scale": 0.0, "modality_scale": 1.0, "guidance_rescale": 0.0, "audio_stg_scale": 0.0,
            "audio_modality_scale": 1.0, "audio_guidance_rescale": 0.0, "fps": 16.0},
    "image": {"seed": 7, "image": "photo.jpg:1:0.7"},   # the last of its two latent frames; with H.264 the bits would be libav's
    "upscale": {"seed": 8, "upscale": 2, "width": 192, "height": 128, "steps": 2},
}


class Settings:
    """As dump_reference.py's arguments."""
    prompt, negative_prompt, image, image_crf, upscale, contexts = "A cat runs", "bad", None, None, None, None
    width, height, frames, fps, steps, max_sequence_length, stg_blocks = 96, 64, 9, 24.0, 3, 16, "1"

    def __init__(self, **more):
        self.__dict__.update({**GUIDANCE, **more})


def sampled(r):
    """Every eighth line and column of each frame; every sixteenth sample."""
    return {"grid": r["pixels"][:, ::8, ::8].contiguous(), "wave": r["audio"][::16].contiguous()}


def golden(model_dir, out, device, meta):
    keep = ["velocity_000", "audio_velocity_000", "latents", "audio_latents", "timesteps"]
    for kind, more in RUNS.items():
        a, small = Settings(**more), kind != "four"
        if a.image:
            a.image = os.path.join(out, a.image)
        for name, dtype in DTYPES.items():
            if name == "bf16" and kind != "four":
                continue
            pipe = load(model_dir, dtype, device)
            if a.image:
                pipe = image_pipeline(pipe)
            with rounding(dtype, device):
                r = run(pipe, a)
            second = ["stage2_velocity_000", "stage2_audio_velocity_000"]
            kept = {k: r[k] for k in keep + second * (kind == "upscale") + ["ids_1", "noise", "audio_noise"] * (kind == "four")}
            texts = [k for k in r if k.endswith("prompt_embeds")]
            kept |= {k: r[k] for k in texts} if name == "bf16" else {} if small else sampled(r) | {k: r[k] for k in texts[-2:]}
            if name == "bf16":
                for part in (pipe.text_encoder, pipe.connectors, pipe.transformer, pipe.vae, pipe.audio_vae, pipe.vocoder):
                    part.float()
                batch = [torch.cat([r["negative_" + k], r[k]]).float() for k in ("prompt_embeds", "audio_prompt_embeds")]
                twin = run(pipe, a, (r["noise"], r["audio_noise"]), (*batch, torch.ones(2, a.max_sequence_length)))
                kept |= {k + "@f32": twin[k] for k in keep[:4]}
            px, wave = r["pixels"].float(), r["audio"]
            print(f"{kind} {name}: timesteps {r['timesteps'].tolist()}, latents std {r['latents'].std():.3f}, "
                  f"{r['audio_latents'].std():.3f}, pixels std {px.std():.1f}, clipped "
                  f"{((px == 0) | (px == 255)).float().mean():.3f}, wave rms {wave.square().mean().sqrt():.3f}")
            assert px.std() >= 20 and 0.02 < wave.square().mean().sqrt() < 0.9
            settings = {k: f"{v:g}" if isinstance(v := getattr(a, k), float) else str(v)
                        for k in ("width", "height", "frames", "fps", "steps", "seed", "max_sequence_length",
                                  "stg_blocks", *GUIDANCE)}
            save(f"{out}/ltx2_{kind}_{name}.safetensors", kept,
                 {**meta, **settings, "prompt": a.prompt, "negative": a.negative_prompt, "dtype": name,
                  **({"image": more["image"]} if a.image else {}), **({"upscale": "2"} if a.upscale else {}),
                  **({"injected": ", ".join(texts)} if name == "bf16" else {})})
