"""What the reference runs of all models share: the pipeline's taps, the taps of single parts, and files.

A run's stages: ids_1, ids_2 (I32 [B,T]), mask_1 where the pipeline shows one, pooled, prompt_embeds, negative_..., noise,
sigmas, timesteps (F32), velocity_NNN (what the scheduler gets, after guidance), latents_NNN (after step NNN), latents (the
last), pixels (U8 [H,W,3]); img2img_taps.py has those of runs that begin from an image. Shapes are diffusers'.

Parts hold the tensors that the C code shows to its tap, by the tap's names. In bf16 files NAME@f32 is the f32 result from the
SAME (bf16) inputs: for a block, its bf16 inputs; for a run, the bf16 noise. The weights are then the bf16 values in f32.
Golden files of parts keep NAME@room of it, the distance between NAME and NAME@f32.

Easy to get wrong: a pre-hook's value would replace the module's input; a tensor that is made here lies on the CPU until it is
moved to the model's device.
"""
import contextlib
import copy
import json

import numpy as np
import torch

from refprofile import rounding

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
PROMPT = "a small red circle, and a large blue square on the left"
NEGATIVE = "a dark, blurry photo"


def check_dtypes(parts, dtype):
    for part in parts:
        assert {p.dtype for p in part.parameters()} == {dtype}, type(part).__name__


@contextlib.contextmanager
def replaced(owner, **functions):
    """While open, owner's methods are others."""
    before = {name: getattr(owner, name) for name in functions}
    for name, f in functions.items():
        setattr(owner, name, f)
    try:
        yield
    finally:
        for name, f in before.items():
            setattr(owner, name, f)


@contextlib.contextmanager
def hooked(hooks):
    """Takes the hooks off at the end."""
    try:
        yield
    finally:
        for h in hooks:
            h.remove()


def run_tapped(pipe, out, call):
    """call() renders with pipe -> PIL picture; adds velocities, latents, sigmas, timesteps and pixels to out."""
    seen, step = [], pipe.scheduler.step

    def step_tap(v, t, x, **kwargs):
        r = step(v, t, x, **kwargs)
        n = (pipe.scheduler.begin_index or 0) + len(seen)
        out[f"velocity_{n:03d}"], out[f"latents_{n:03d}"] = v, r[0]
        seen.append(n)
        return r
    with replaced(pipe.scheduler, step=step_tap):
        picture = call()
    out["sigmas"], out["timesteps"] = pipe.scheduler.sigmas.float(), pipe.scheduler.timesteps.float()
    out["latents"] = out[f"latents_{seen[-1]:03d}"]
    out["pixels"] = torch.from_numpy(np.array(picture))
    return out


def seeded(seed):
    return torch.Generator("cpu").manual_seed(seed)


def as_f32(x):
    if torch.is_tensor(x):
        return x.float() if x.is_floating_point() else x
    if isinstance(x, (list, tuple)):
        return type(x)(as_f32(v) for v in x)
    if isinstance(x, dict):
        return {k: as_f32(v) for k, v in x.items()}
    return x


def tap(model, modules, call):
    """Runs call(); -> {name: output}; for bf16 also {name@f32}: the f32 twin of the module on the same inputs.
    modules: name -> (module, pick) where pick maps the module's output to {suffix: tensor}."""
    out, f32 = {}, {}
    bf16 = next(model.parameters()).dtype == torch.bfloat16
    stack = []

    def hook(name, pick):
        def run(module, args, kwargs, result):
            for suffix, t in pick(result).items():
                out[name + suffix] = t.clone()
            if bf16:
                stack.append((name, pick, module, copy.deepcopy(args), copy.deepcopy(kwargs)))
        return run
    hooks = [m.register_forward_hook(hook(n, pick), with_kwargs=True) for n, (m, pick) in modules.items()]
    with hooked(hooks), torch.no_grad(), rounding(next(model.parameters()).dtype, str(next(model.parameters()).device)):
        call()
    for name, pick, module, args, kwargs in stack:
        twin = copy.deepcopy(module).float()
        with torch.no_grad():
            for suffix, t in pick(twin(*as_f32(args), **as_f32(kwargs))).items():
                f32[name + suffix + "@f32"] = t
    return {**out, **f32}


def one(x):
    return {"": x}


def first(x):
    """Of a layer that may return a tuple."""
    return {"": x[0] if isinstance(x, tuple) else x}


def with_twin(run, parts, twin_noise, twin_stages):
    """A bf16 run's stages, and NAME@f32 of its twin: the same run with the parts in f32 from the same noise.
    run(noise or None) -> stages; twin_noise(stages) -> what the twin starts from."""
    r = run(None)
    for part in parts:
        part.float()
    twin = run(twin_noise(r))
    r.update({k + "@f32": v for k, v in twin.items() if k.startswith(twin_stages)})
    return r


def rooms(tensors):
    """Of a part's stages (one item) NAME@f32 becomes NAME@room, its distance from NAME: all that a test asks of the twin."""
    out = {}
    for k, v in tensors.items():
        name = k.removesuffix("@f32")
        if name == k:
            out[k] = v
        else:
            out[name + "@room"] = (v.double() - tensors[name].double()).norm().float().reshape(1)
    return out


def save_run(path, r, meta, label):
    """A golden file of a whole run; the last latents are those of the last step, so they are left out."""
    r = {k: v for k, v in r.items() if k not in ("latents", "latents@f32")}
    save(path, r, meta)
    px = r["pixels"].float()
    clipped = ((px == 0) | (px == 255)).float().mean()
    print(f"{label}: pixel std {px.std():.1f}, clipped {clipped:.4f}")
    assert px.std() >= 20 and clipped < 0.05


def save(path, tensors, meta):
    """A safetensors file whose bytes depend on nothing but the contents (the library orders metadata at random)."""
    names = {torch.float32: "F32", torch.bfloat16: "BF16", torch.int32: "I32", torch.uint8: "U8"}
    header, payload = {"__metadata__": {k: str(v) for k, v in sorted(meta.items())}}, []
    at = 0
    for k in sorted(tensors):
        t = tensors[k].detach().cpu().contiguous()
        raw = t.flatten().view(torch.uint8).numpy().tobytes()
        header[k] = {"dtype": names[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + len(raw)]}
        at += len(raw)
        payload.append(raw)
    head = json.dumps(header, separators=(",", ":")).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as f:
        f.write(len(head).to_bytes(8, "little") + head + b"".join(payload))
