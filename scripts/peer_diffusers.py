#!/usr/bin/env python3
"""Times diffusers on PyTorch at production shapes, alone or in turns with ditto.

    python3 scripts/peer_diffusers.py OUT.json [SECTION ...]
        the published transformers and VAEs with random bf16 weights: env ceil elem flux zimage sana ltx2 vae
    python3 scripts/peer_diffusers.py --against DITTO --model DIR [NAME ...]
        figures as scripts/bench.sh keeps them, one JSON object a line on standard output; --list names them, those of
        another model than DIR's are passed over

In the second form both sides read the same checkpoint and take turns: a round of ours, of eager, of compiled, --rounds
times after one that does not count. The peers share their weights. Everything for people goes to standard error.
Easy to get wrong: what a GPU has in use counts every process, so figures with a peak come first, before PyTorch has
touched the GPU. Compiled modules are a second model on the same weights: compiling changes a model in place.
"""
import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import traceback

import torch
import torch.nn.functional as F

BF16 = torch.bfloat16
PROMPT = "a lighthouse at dusk, waves breaking below, the beam cutting through mist"


def say(*words):
    print(*words, file=sys.stderr, flush=True)


# --- timing ---

class Clock:
    """Milliseconds of calls: by CUDA events on a GPU, by the host's clock elsewhere."""

    def __init__(self, device):
        self.cuda = device.startswith("cuda")

    @torch.no_grad()
    def __call__(self, fn, reps, warm=0):
        for _ in range(warm):
            fn()
        if not self.cuda:
            out = []
            for _ in range(reps):
                start = time.perf_counter()
                fn()
                out.append((time.perf_counter() - start) * 1e3)
            return out
        torch.cuda.synchronize()
        marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(reps)]
        out = []
        for a, b in marks:
            a.record()
            fn()
            b.record()
            torch.cuda.synchronize()
            out.append(a.elapsed_time(b))
        return out


def clear():
    gc.collect()
    torch._dynamo.reset()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


# --- in turns with ditto ---

class Ours:
    """A `ditto bench WHAT --serve` that measures when told to."""

    def __init__(self, a, what, runs, warmup, quality="lossless", more=()):
        size = ["-W", str(a.width), "-H", str(a.height)] if a.width else []
        size += ["--quality", quality, *more]
        self.process = subprocess.Popen([a.against, "bench", what, "-m", a.model, "--device", a.device, "--runs", str(runs),
                                         "--warmup", str(warmup), "--serve", *size],
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.answer()

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"ditto bench ended with exit code {self.process.wait()}")
        return json.loads(line)

    def measure(self):
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return self.answer()

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def version(n):
    return f"{n // 10000}.{n % 10000 // 100}.{n % 100}" if n else ""


def figure(name, values, unit, peers, ours):
    """ours: an answer of ditto bench, or a report of ditto generate, for the versions."""
    said = ours.get("versions", {})
    row = {"name": name, "value": round(statistics.median(values), 3), "min": round(min(values), 3),
           "max": round(max(values), 3), "runs": len(values), "unit": unit, "peers": peers, "quality": ours.get("quality", "lossless"),
           "date": time.strftime("%Y-%m-%d", time.gmtime()), "gpu": ours.get("gpu", ""), "driver": os.environ.get("DRIVER", ""),
           "cuda": said.get("cuda_runtime") or (f"{ours['cuda'] // 1000}.{ours['cuda'] % 1000 // 10}" if ours.get("cuda") else ""),
           "cublas": said.get("cublas") or version(ours.get("cublas", 0)),
           "cudnn": said.get("cudnn") or version(ours.get("cudnn", 0)), "commit": os.environ.get("COMMIT", "unknown"),
           **({"end": ours["end"]} if "end" in ours else {})}
    print(json.dumps(row), flush=True)


def turns(a, what, reps, warmup, peers, wanted, more=(), first=3):
    """wanted: figures, one a quality. -> of each (name, ours in all rounds, the medians of the peers (name -> function), the last
    answer). more: other options of ditto bench; first: calls of a peer that only warm it up."""
    clock = Clock(a.device)
    ours = {name: Ours(a, what, reps, warmup, "high" if "high" in name else "lossless", more) for name in sorted(wanted)}
    values, answers, theirs = {name: [] for name in ours}, {}, {k: [] for k in peers}
    for name, fn in list(peers.items()):
        try:
            clock(fn, 1, warm=first - 1)
        except Exception as e:  # a peer that cannot run is left out, with its reason
            say(f"{name}: {type(e).__name__}: {str(e)[:300]}")
            del peers[name], theirs[name]
    for i in range(a.rounds + 1):
        answers = {name: o.measure() for name, o in ours.items()}
        times = {name: clock(fn, reps, warm=warmup) for name, fn in peers.items()}
        if not i:
            continue  # all of them warm
        for name, answer in answers.items():
            values[name] += answer["values"]
        for name, t in times.items():
            theirs[name] += t
        say(f"{what} round {i}:", *(f"{name} {x['value']:.3f}" for name, x in answers.items()),
            *(f"{name} {statistics.median(t):.3f}" for name, t in times.items()))
    for o in ours.values():
        o.close()
    medians = {k: round(statistics.median(v), 3) for k, v in theirs.items()}
    return [(name, values[name], medians, answers[name]) for name in ours]


def load_part(a, cls, part):
    return cls.from_pretrained(a.model, subfolder=part, torch_dtype=BF16).to(a.device).eval().requires_grad_(False)


def twin(model):
    """A second model on the same weights."""
    with torch.device("meta"):
        other = type(model).from_config(model.config)
    other.load_state_dict(model.state_dict(), assign=True)
    for name, module in model.named_modules():  # buffers that no file has: rotary tables
        other.get_submodule(name)._buffers.update(module._buffers)
    return other.eval().requires_grad_(False)


def flux_inputs(config, width, height, text, device):
    rows, cols = height // 16, width // 16
    ids = torch.zeros(rows, cols, 3, device=device)
    ids[..., 1] += torch.arange(rows, device=device)[:, None]
    ids[..., 2] += torch.arange(cols, device=device)[None]
    return dict(hidden_states=torch.randn(1, rows * cols, config.in_channels, device=device, dtype=BF16),
                encoder_hidden_states=torch.randn(1, text, config.joint_attention_dim, device=device, dtype=BF16),
                pooled_projections=torch.randn(1, config.pooled_projection_dim, device=device, dtype=BF16),
                timestep=torch.tensor([0.5], device=device, dtype=BF16), img_ids=ids.reshape(-1, 3),
                txt_ids=torch.zeros(text, 3, device=device),
                guidance=torch.tensor([3.5], device=device) if config.guidance_embeds else None, return_dict=False)


def attention_backend(heads, tokens, dim, device):
    q = torch.randn(1, heads, tokens, dim, device=device, dtype=BF16)
    return torch.nn.attention.SDPBackend(torch._fused_sdp_choice(q, q, q)).name.lower()


def size_of(a):
    return (a.width or 1024, a.height or 1024)


def flux_step(a, wanted):
    width, height = size_of(a)
    peers, more = {}, {}
    if a.peers:
        from diffusers import FluxTransformer2DModel
        eager = load_part(a, FluxTransformer2DModel, "transformer")
        c = eager.config
        x = flux_inputs(c, width, height, 512, a.device)
        tokens = x["hidden_states"].shape[1] + 512
        more["attention"] = attention_backend(c.num_attention_heads, tokens, c.attention_head_dim, a.device)
        peers["diffusers_eager"] = lambda: eager(**x)
        if a.compile:
            compiled = twin(eager)
            compiled.compile_repeated_blocks(fullgraph=False)
            peers["diffusers_compiled"] = lambda: compiled(**x)
    for name, values, theirs, answer in turns(a, "step", 5, 1, peers, wanted):
        figure(name, values, "ms", {**theirs, **more}, answer)


def vae_decode(a, wanted):
    width, height = size_of(a)
    peers = {}
    if a.peers:
        from diffusers import AutoencoderKL
        eager = load_part(a, AutoencoderKL, "vae")
        scale = 2 ** (len(eager.config.block_out_channels) - 1)
        z = torch.randn(1, eager.config.latent_channels, height // scale, width // scale, device=a.device, dtype=BF16)
        last = load_part(a, AutoencoderKL, "vae").to(memory_format=torch.channels_last)
        zl = z.to(memory_format=torch.channels_last)
        peers["diffusers_eager"] = lambda: eager.decode(z, return_dict=False)
        peers["diffusers_channels_last"] = lambda: last.decode(zl, return_dict=False)
    for name, values, theirs, answer in turns(a, "decode", 5, 1, peers, wanted):
        figure(name, values, "ms", theirs, answer)


def flux_load(a, wanted):
    ours, peers = Ours(a, "load", 1, 0), {}
    answers = [ours.measure() for _ in range(a.rounds)]
    ours.close()
    if a.device.startswith("cuda"):
        n = 1 << 30
        host, there = torch.empty(n, dtype=torch.uint8, pin_memory=True), torch.empty(n, dtype=torch.uint8, device=a.device)
        ms = statistics.median(Clock(a.device)(lambda: there.copy_(host, non_blocking=True), 9, warm=2))
        peers["pinned_copy"] = round(answers[-1]["bytes"] / n * ms * 1e-3, 3)
    if a.peers:
        from diffusers import FluxTransformer2DModel
        times = []
        for _ in range(2):
            start = time.perf_counter()
            model = load_part(a, FluxTransformer2DModel, "transformer")
            if a.device.startswith("cuda"):
                torch.cuda.synchronize()
            times.append(time.perf_counter() - start)
            del model
            clear()
        peers["diffusers_from_pretrained"] = round(min(times), 3)
    for name in wanted:
        figure(name, [v for x in answers for v in x["values"]], "s", peers, answers[-1])


def flux_whole(a, names):
    """28 steps from the start of the process to the PNG, and the peak of the same runs."""
    width, height = size_of(a)
    seconds, reports = [], []
    with tempfile.TemporaryDirectory() as folder:
        for i in range(a.rounds + 1):
            start = time.perf_counter()
            subprocess.run([a.against, "generate", "-m", a.model, "-p", PROMPT, "-W", str(width), "-H", str(height),
                            "--steps", str(a.steps), "--seed", "1", "--device", a.device, "-q", "-y", "-o", folder + "/a.png",
                            "--report", folder + "/r.json"], check=True, stdout=subprocess.DEVNULL)
            took = time.perf_counter() - start
            with open(folder + "/r.json") as f:
                reports.append(json.load(f))
            phases = {"open": reports[-1]["seconds"]["open"], **reports[-1]["pictures"][0]["seconds"]}
            say(f"{'first run' if not i else f'run {i}'}: {took:.2f} s:", *(f"{k} {v:.2f}" for k, v in phases.items()))
            if i:
                seconds.append(took)
    peers, peaks = {}, {}
    if a.peers:
        from diffusers import FluxPipeline
        start = time.perf_counter()
        pipe = FluxPipeline.from_pretrained(a.model, torch_dtype=BF16).to(a.device)
        pipe.set_progress_bar_config(disable=True)
        pipe(prompt=PROMPT, width=width, height=height, num_inference_steps=a.steps, guidance_scale=3.5,
             generator=torch.Generator("cpu").manual_seed(1)).images[0].save(os.devnull, format="PNG")
        peers["diffusers_eager"] = round(time.perf_counter() - start, 3)
        if a.device.startswith("cuda"):
            peaks["diffusers_eager"] = round(torch.cuda.max_memory_allocated() / 2 ** 30, 3)
        del pipe
        clear()
    last = reports[-1]
    if "flux_e2e28_s" in names:
        figure("flux_e2e28_s", seconds, "s", peers, last)
    if "flux_peak_gib" in names:
        on_gpu = "device_peak" in last["memory"]["measured"]
        peak = [r["memory"]["measured"]["device_peak" if on_gpu else "host_peak"] / 2 ** 30 for r in reports[1:]]
        figure("flux_peak_gib", peak, "GiB", {"plan": round(last["memory"]["plan"]["peak"] / 2 ** 30, 3), **peaks}, last)


# --- Z-Image ---

def tokens_of(a, prompt):
    """As ditto counts them, the template's included: the caption is padded to the next multiple of 32."""
    done = subprocess.run([a.against, "tokens", "-m", a.model, "-p", prompt], check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[0])["used"]


def zimage_peers(a):
    """-> peers, notes. One forward of the transformer as the pipeline calls it without guidance."""
    from diffusers import ZImageTransformer2DModel
    width, height = size_of(a)
    eager = load_part(a, ZImageTransformer2DModel, "transformer")
    c, text = eager.config, tokens_of(a, PROMPT)
    r = dict(device=a.device, dtype=BF16)
    x, e = [torch.randn(c.in_channels, 1, height // 8, width // 8, **r)], [torch.randn(text, c.cap_feat_dim, **r)]
    t = torch.tensor([0.5], device=a.device)
    tokens = (height // 16) * (width // 16) + -(-text // 32) * 32
    notes = {"text_tokens": text, "attention": attention_backend(c.n_heads, tokens, c.dim // c.n_heads, a.device)}
    peers = {"diffusers_eager": lambda: eager(x, t, e, return_dict=False)}
    if a.compile:
        compiled = twin(eager)
        compiled.compile_repeated_blocks(fullgraph=False)
        peers["diffusers_compiled"] = lambda: compiled(x, t, e, return_dict=False)
    return peers, notes


def zimage_step(a, wanted):
    peers, notes = zimage_peers(a) if a.peers else ({}, {})
    for name, values, theirs, answer in turns(a, "step", 5, 1, peers, wanted):
        figure(name, values, "ms", {**theirs, **notes}, answer)


def zimage_picture(a, wanted):
    """From the prompt to a PNG in memory, weights in place; the pipelines' own sizes of 8 steps and no guidance."""
    import io
    peers = {}
    width, height = size_of(a)
    if a.peers:
        from diffusers import ZImagePipeline
        pipe = ZImagePipeline.from_pretrained(a.model, torch_dtype=BF16).to(a.device)
        pipe.set_progress_bar_config(disable=True)

        def one():
            pipe(prompt=PROMPT, width=width, height=height, num_inference_steps=8, guidance_scale=0.0,
                 generator=torch.Generator("cpu").manual_seed(1)).images[0].save(io.BytesIO(), format="PNG")
        peers["diffusers_eager"] = one
    for name, values, theirs, answer in turns(a, "picture", 2, 0, peers, wanted, first=1):
        figure(name, values, "ms", theirs, answer)


# --- SANA-Video ---

def sana_size(a):
    return (a.width or 832, a.height or 480)


def sana_step(a, wanted):
    """One step with guidance: two forwards of ours, one of a batch of two of diffusers', as its pipeline has it."""
    frames = 17 if min(wanted).startswith("sana17") else 81
    width, height = sana_size(a)
    peers = {}
    if a.peers:
        from diffusers import SanaVideoTransformer3DModel
        eager = load_part(a, SanaVideoTransformer3DModel, "transformer")
        c, r = eager.config, dict(device=a.device, dtype=BF16)
        x = torch.randn(2, c.in_channels, (frames - 1) // 4 + 1, height // 8, width // 8, **r)
        e, mask = torch.randn(2, 300, c.caption_channels, **r), torch.ones(2, 300, **r)
        t = torch.tensor([500.0, 500.0], device=a.device)
        peers["diffusers_eager"] = lambda: eager(x, e, timestep=t, encoder_attention_mask=mask, return_dict=False)
        if a.compile:
            compiled = twin(eager)
            for block in compiled.transformer_blocks:
                block.compile(fullgraph=False)
            peers["diffusers_compiled"] = lambda: compiled(x, e, timestep=t, encoder_attention_mask=mask, return_dict=False)
    for name, values, theirs, answer in turns(a, "step", 3, 1, peers, wanted, ["--frames", str(frames)]):
        figure(name, values, "ms", theirs, answer)


def sana17_step(a, wanted):
    sana_step(a, wanted)


def wan_decode(a, wanted):
    """81 frames from their latents. f32: diffusers multiplies in TF32 there, as PyTorch's convolutions do by default."""
    dtype = torch.float32 if "vae_wan_81_f32_ms" in wanted else BF16
    width, height = sana_size(a)
    peers = {}
    if a.peers:
        from diffusers import AutoencoderKLWan
        eager = load_part(a, AutoencoderKLWan, "vae").to(dtype)
        z = torch.randn(1, eager.config.z_dim, 21, height // 8, width // 8, device=a.device, dtype=dtype)
        peers["diffusers_eager"] = lambda: eager.decode(z, return_dict=False)
    more = ["--frames", "81", "--vae-dtype", "bf16" if dtype == BF16 else "f32"]
    for name, values, theirs, answer in turns(a, "decode", 2, 1, peers, wanted, more, first=1):
        figure(name, values, "ms", theirs, answer)


def wan_decode_f32(a, wanted):
    wan_decode(a, wanted)


def sana_clip(a, wanted):
    """From a new prompt to an MP4 in memory (without libav: to frames): 81 frames, 8 steps, the decoder in bf16, weights in place.
    Peers end at frames."""
    width, height = sana_size(a)
    peers = {}
    if a.peers:
        from diffusers import SanaVideoPipeline
        pipe = SanaVideoPipeline.from_pretrained(a.model, torch_dtype=BF16).to(a.device)
        pipe.set_progress_bar_config(disable=True)
        peers["diffusers_eager"] = lambda: pipe(
            prompt=PROMPT, width=width, height=height, frames=81, num_inference_steps=8, guidance_scale=6.0,
            use_resolution_binning=False, generator=torch.Generator("cpu").manual_seed(1))
    more = ["--frames", "81", "--vae-dtype", "bf16", "--steps", "8"]
    for name, values, theirs, answer in turns(a, "picture", 1, 0, peers, wanted, more, first=1):
        figure(name, values, "ms", theirs, answer)


# --- LTX-2 ---

TWO_PASSES = ["--stg-scale", "0", "--audio-stg-scale", "0", "--modality-scale", "1", "--audio-modality-scale", "1",
              "--guidance-rescale", "0", "--audio-guidance-rescale", "0"]


def ltx2_size(a):
    return (a.width or 768, a.height or 512)


def ltx2_step(a, wanted):
    """One step with guidance alone, 121 frames and their sound: a batch of two for both, as the pipeline has it."""
    width, height = ltx2_size(a)
    peers = {}
    if a.peers:
        from diffusers import LTX2VideoTransformer3DModel
        eager = load_part(a, LTX2VideoTransformer3DModel, "transformer")
        c, r, frames, audio = eager.config, dict(device=a.device, dtype=BF16), 16, 126
        x = torch.randn(2, frames * (height // 32) * (width // 32), c.in_channels, **r)
        s = torch.randn(2, audio, c.audio_in_channels, **r)
        e = torch.randn(2, 1024, c.caption_channels, **r)
        t, mask = torch.tensor([500.0, 500.0], device=a.device), torch.ones(2, 1024, device=a.device, dtype=torch.int64)
        given = dict(encoder_attention_mask=mask, audio_encoder_attention_mask=mask, num_frames=frames, height=height // 32,
                     width=width // 32, fps=24.0, audio_num_frames=audio, return_dict=False)
        peers["diffusers_eager"] = lambda: eager(x, s, e, e, t, **given)
        if a.compile:
            compiled = twin(eager)
            for block in compiled.transformer_blocks:
                block.compile(fullgraph=False)
            peers["diffusers_compiled"] = lambda: compiled(x, s, e, e, t, **given)
    for one in sorted(wanted):  # not both at once: each of ours holds all of the weights
        for name, values, theirs, answer in turns(a, "step", 3, 1, dict(peers), {one}, ["--frames", "121", *TWO_PASSES]):
            figure(name, values, "ms", theirs, answer)


def ltx2_decode(a, wanted):
    """121 frames from their latents; ours with the sound's decoders behind them, which are small."""
    width, height = ltx2_size(a)
    peers = {}
    if a.peers:
        from diffusers import AutoencoderKLLTX2Video
        eager = load_part(a, AutoencoderKLLTX2Video, "vae")
        z = torch.randn(1, eager.config.latent_channels, 16, height // 32, width // 32, device=a.device, dtype=BF16)
        peers["diffusers_eager"] = lambda: eager.decode(z, return_dict=False)
    for name, values, theirs, answer in turns(a, "decode", 2, 1, peers, wanted, ["--frames", "121", *TWO_PASSES],
                                              first=1):
        figure(name, values, "ms", theirs, answer)


def ltx2_two(a, wanted):
    """Two rounds, 40 steps of two passes and 3 of one, from a new prompt to an MP4 in memory (without libav: to frames and sound),
    weights in place. No peers. Of a folder whose text encoder is cut short, ltx2_text_ms of a whole one belongs to it."""
    more = ["--frames", "121", "--steps", "40", "--upscale", "2", *TWO_PASSES]
    for name, values, theirs, answer in turns(a, "picture", 1, 0, {}, wanted, more):
        figure(name, values, "ms", theirs, answer)


def ltx2_text(a, wanted):
    """The text encoder and the connectors on a prompt and the empty negative one, 1024 rows each."""
    for name, values, theirs, answer in turns(a, "text", 5, 1, {}, wanted, ["--frames", "9", *TWO_PASSES]):
        figure(name, values, "ms", theirs, answer)


LONGER = ("a lighthouse on a cliff at dusk, waves breaking far below, the beam cutting through mist, gulls above the lamp, a small boat "
          "with a lantern coming home, wet rocks, long exposure, muted blue and orange, a wide empty sky, take 123")


def zimage_text(a, wanted):
    """The text encoder alone on 64 tokens, padded to 512 as the pipeline has it: encode_prompt, the embeddings to the host."""
    peers = {}
    if a.peers:
        from diffusers import ZImagePipeline
        pipe = ZImagePipeline.from_pretrained(a.model, torch_dtype=BF16, transformer=None, vae=None).to(a.device)
        peers["diffusers_eager"] = lambda: [e.cpu() for e in pipe.encode_prompt(
            prompt=LONGER, device=a.device, do_classifier_free_guidance=False, max_sequence_length=512)[0]]
    notes = {"text_tokens": tokens_of(a, LONGER)}
    for name, values, theirs, answer in turns(a, "text", 5, 1, peers, wanted):
        figure(name, values, "ms", {**theirs, **notes}, answer)


def eager_chains(device):
    """What PyTorch runs for the figures of single kernels."""
    r = dict(device=device, dtype=BF16)
    n, d = 7800, 2240
    base, u, g = torch.randn(1, d, n, **r).transpose(1, 2), torch.randn(1, n, d, **r), torch.randn(1, 1, d, **r)
    x, y = (torch.randn(1, 4096, 3072, **r) for _ in range(2))
    a, scale, shift = (torch.randn(1, 1, 3072, **r) for _ in range(3))
    return {"resgate_t_us": lambda: base + u * g, "resgate_us": lambda: x + y * a,
            "ln_mod_us": lambda: F.layer_norm(x, (3072,), eps=1e-6) * (1 + scale) + shift}


KERNELS = {"resgate_t_us": ("residual_gate", "sana video, transposed:"), "resgate_us": ("residual_gate", "flux.double image:"),
           "ln_mod_us": ("ln_modulate", "flux.double image:")}


def kernels(a, wanted):
    """Single kernels by checkop --bench, which lies beside ditto. peers: our reference, PyTorch's chain of kernels."""
    program = os.path.join(os.path.dirname(os.path.abspath(a.against)), "tests", "checkop")
    answer = Ours(a, "decode", 1, 0)
    said = answer.measure()  # for the versions
    answer.close()
    chains = eager_chains(a.device) if a.peers else {}
    for name in sorted(wanted):
        op, place = KERNELS[name]
        lines = []
        for _ in range(3):
            text = subprocess.run([program, "--bench", "--backend", "cuda" if a.device.startswith("cuda") else "cpu", "--op", op],
                                  check=True, capture_output=True, text=True).stdout
            lines += [x.split() for x in text.splitlines() if f"  {place}" in x and x.startswith(op + " ")]
        of = {v: [float(x[2]) for x in lines if x[1] == v] for v in {x[1] for x in lines}}
        fused = [v for v in of if v not in ("cuda", "cpu")]
        ours = of[fused[0] if fused else "cuda"]
        peers = {"reference": round(statistics.median(of.get("cuda", of.get("cpu"))), 2)}
        if name in chains:
            peers["diffusers_eager"] = round(1e3 * statistics.median(Clock(a.device)(chains[name], 31, warm=5)), 2)
        figure(name, ours, "us", peers, said)


ZIMAGE = {"zimage_step_lossless_ms": zimage_step, "zimage_step_high_ms": zimage_step, "zimage_e2e8_ms": zimage_picture,
          "zimage_text_ms": zimage_text}
SANA = {"sana81_step_lossless_ms": sana_step, "sana81_step_high_ms": sana_step, "sana17_step_lossless_ms": sana17_step,
        "sana17_step_high_ms": sana17_step, "vae_wan_81_lossless_ms": wan_decode, "vae_wan_81_high_ms": wan_decode,
        "vae_wan_81_f32_ms": wan_decode_f32, "sana81_e2e8_lossless_ms": sana_clip, "sana81_e2e8_high_ms": sana_clip}
LTX2 = {"ltx2_step_lossless_ms": ltx2_step, "ltx2_step_high_ms": ltx2_step, "vae_ltx2_121_lossless_ms": ltx2_decode,
        "vae_ltx2_121_high_ms": ltx2_decode, "ltx2_two40_lossless_ms": ltx2_two, "ltx2_two40_high_ms": ltx2_two,
        "ltx2_text_ms": ltx2_text}
# Those with a peak first: nothing of PyTorch's may be on the GPU then.
OF = {"flux_e2e28_s": flux_whole, "flux_peak_gib": flux_whole, "flux_load_s": flux_load, "flux_step_lossless_ms": flux_step,
      "flux_step_high_ms": flux_step, "vae_kl_1024_lossless_ms": vae_decode, "vae_kl_1024_high_ms": vae_decode,
      **{name: kernels for name in KERNELS}, **ZIMAGE, **SANA, **LTX2}
FIGURES = list(OF)


def of_model(a, name):
    """Does the figure belong to the checkpoint at hand?"""
    with open(os.path.join(a.model, "model_index.json")) as f:
        cls = json.load(f)["_class_name"]
    for start, names in (("ZImage", ZIMAGE), ("Sana", SANA), ("LTX2", LTX2)):
        if cls.startswith(start) or name in names:
            return cls.startswith(start) and name in names
    return True


def against(a):
    names = [n for n in a.names or FIGURES if of_model(a, n)]
    if a.peers:
        try:
            import diffusers  # noqa: F401
        except ImportError:
            a.peers = False
            say("diffusers is not installed here: no peers")
    runs = [({n for n in names if OF[n] is run}, lambda wanted, run=run: run(a, wanted)) for run in dict.fromkeys(OF.values())]
    failed = False
    for wanted, run in runs:
        try:
            if wanted:
                run(wanted)
        except Exception as e:
            failed = True
            say(f"{', '.join(sorted(wanted))}: FAILED: {type(e).__name__}: {e}")
            say(traceback.format_exc()[-1500:])
        clear()
    sys.exit(failed)


# --- alone: published shapes, random weights ---

class Alone:
    def __init__(self, out, sections):
        self.out, self.sections, self.results, self.start = out, sections, {}, time.time()
        self.clock = Clock("cuda")

    def note(self, key, value):
        self.results[key] = value
        print(f"[{time.time() - self.start:6.1f}s] {key}: {value}", flush=True)
        with open(self.out, "w") as f:
            json.dump(self.results, f, indent=1)

    def timed(self, fn, warm=2, reps=7):
        return round(statistics.median(self.clock(fn, reps, warm)), 3)

    def attempt(self, key, fn):
        try:
            fn()
        except Exception as e:
            self.note(key, repr(e)[:300])

    def build(self, cls, **config):
        torch.set_default_dtype(BF16)
        try:
            with torch.device("cuda"):
                model = cls(**config)
        finally:
            torch.set_default_dtype(torch.float32)
        return model.to("cuda", BF16).eval().requires_grad_(False)

    def graph_ms(self, fn):
        stream = torch.cuda.Stream()
        with torch.no_grad():
            with torch.cuda.stream(stream):
                fn()
                fn()
            torch.cuda.synchronize()
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                fn()
        return self.timed(graph.replay)

    def cudnn_first(self):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        return sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH], set_priority=True)

    def sweep(self, name, model, fn):
        """Eager, eager with cuDNN attention, as a CUDA graph, with compiled blocks."""
        def pinned(key, warm):
            with self.cudnn_first():
                self.note(key, self.timed(fn, warm=warm))

        def compiled():
            start = time.time()
            if getattr(model, "_repeated_blocks", None):
                model.compile_repeated_blocks(fullgraph=False)
            else:
                for block in model.transformer_blocks:
                    block.compile(fullgraph=False)
            self.note(name + ".compiled_ms", self.timed(fn, warm=3))
            pinned(name + ".compiled_cudnn_ms", 3)
            self.note(name + ".compile_s", round(time.time() - start, 1))
        self.note(name + ".params", sum(p.numel() for p in model.parameters()))
        self.note(name + ".eager_ms", self.timed(fn))
        self.attempt(name + ".eager_cudnn_err", lambda: pinned(name + ".eager_cudnn_ms", 2))
        self.attempt(name + ".graph_err", lambda: self.note(name + ".graph_ms", self.graph_ms(fn)))
        self.attempt(name + ".compile_err", compiled)
        self.note(name + ".peak_GiB", round(torch.cuda.max_memory_allocated() / 2 ** 30, 2))

    def env(self):
        self.note("torch", torch.__version__)
        self.note("cudnn", torch.backends.cudnn.version())
        self.note("gpu", torch.cuda.get_device_name())

    def ceil(self):
        from torch.nn.attention import SDPBackend, sdpa_kernel
        r = dict(device="cuda", dtype=BF16)
        for m, k, n in [(8192, 8192, 8192), (4096, 3072, 12288), (4608, 3072, 21504), (4608, 15360, 3072),
                        (65520, 2240, 6720), (4128, 3840, 10240)]:
            x, w = torch.randn(m, k, **r), torch.randn(n, k, **r)
            ms = self.timed(lambda: F.linear(x, w), 3, 15)
            self.note(f"ceil.linear_{m}x{k}x{n}_tflops", round(2 * m * k * n / ms / 1e9, 1))
        x = torch.empty(2 ** 31, device="cuda", dtype=torch.uint8)
        y = torch.empty_like(x)
        self.note("ceil.copy_TBps", round(2 * 2 ** 31 / self.timed(lambda: y.copy_(x), 3, 15) / 1e9, 3))
        for b, h, s, d in [(1, 24, 4608, 128), (1, 30, 4128, 128), (2, 32, 6144, 128), (1, 24, 17408, 128)]:
            q, k, v = (torch.randn(b, h, s, d, **r) for _ in range(3))
            for name, backend in (("flash", SDPBackend.FLASH_ATTENTION), ("cudnn", SDPBackend.CUDNN_ATTENTION)):
                def one():
                    with sdpa_kernel(backend):
                        ms = self.timed(lambda: F.scaled_dot_product_attention(q, k, v), 3, 15)
                    self.note(f"ceil.sdpa_{name}_{b}x{h}x{s}x{d}_tflops", round(4 * b * h * s * s * d / ms / 1e9, 1))
                self.attempt(f"ceil.sdpa_{name}_err", one)

    def elem(self):
        """Eager chains."""
        r = dict(device="cuda", dtype=BF16)
        s, d = 7800, 2240
        base, u, g = torch.randn(1, d, s, **r).transpose(1, 2), torch.randn(1, s, d, **r), torch.randn(1, 1, d, **r)
        self.note(f"elem.resgate_T_{s}x{d}_us", round(1e3 * self.timed(lambda: base + u * g, 5, 31), 2))
        for s, d in ((4096, 3072), (32760, 2240), (6144, 4096)):
            x, u = (torch.randn(1, s, d, **r) for _ in range(2))
            g, scale, shift = (torch.randn(1, 1, d, **r) for _ in range(3))
            self.note(f"elem.resgate_{s}x{d}_us", round(1e3 * self.timed(lambda: x + u * g, 5, 31), 2))
            self.note(f"elem.ln_mod_{s}x{d}_us",
                      round(1e3 * self.timed(lambda: F.layer_norm(x, (d,), eps=1e-6) * (1 + scale) + shift, 5, 31), 2))

    def flux(self):
        from diffusers import FluxTransformer2DModel
        model = self.build(FluxTransformer2DModel, guidance_embeds=True)
        x = flux_inputs(model.config, 1024, 1024, 512, "cuda")
        self.sweep("flux1024", model, lambda: model(**x))

    def zimage(self):
        from diffusers import ZImageTransformer2DModel
        model = self.build(ZImageTransformer2DModel)
        x = [torch.randn(16, 1, 128, 128, device="cuda", dtype=BF16)]
        c = [torch.randn(64, 2560, device="cuda", dtype=BF16)]
        t = torch.tensor([0.5], device="cuda", dtype=BF16)
        self.sweep("zimage1024", model, lambda: model(x, t, c, return_dict=False))

    def sana(self):
        from diffusers import SanaVideoTransformer3DModel
        r = dict(device="cuda", dtype=BF16)
        for frames, latent in ((81, 21), (17, 5)):
            model = self.build(SanaVideoTransformer3DModel)
            x, e = torch.randn(2, 16, latent, 60, 104, **r), torch.randn(2, 300, 2304, **r)
            t, mask = torch.tensor([500.0, 500.0], device="cuda"), torch.ones(2, 300, **r)
            self.sweep(f"sana480p{frames}_cfg2", model,
                       lambda: model(x, e, timestep=t, encoder_attention_mask=mask, return_dict=False))
            self.note(f"sana480p{frames}_b1.compiled_or_eager_ms", self.timed(
                lambda: model(x[:1], e[:1], timestep=t[:1], encoder_attention_mask=mask[:1], return_dict=False)))
            del model
            clear()

    def ltx2(self):
        from diffusers import LTX2VideoTransformer3DModel
        model = self.build(LTX2VideoTransformer3DModel, rope_type="split")
        frames, height, width, audio, b = 16, 16, 24, 126, 2
        r = dict(device="cuda", dtype=BF16)
        x, a = torch.randn(b, frames * height * width, 128, **r), torch.randn(b, audio, 128, **r)
        e = torch.randn(b, 1024, 3840, **r)
        t = torch.tensor([500.0] * b, device="cuda")
        mask = torch.ones(b, 1024, device="cuda", dtype=torch.int64)
        self.sweep(f"ltx2_768x512x121_b{b}", model, lambda: model(
            x, a, e, e, t, encoder_attention_mask=mask, audio_encoder_attention_mask=mask, num_frames=frames,
            height=height, width=width, fps=24.0, audio_num_frames=audio, return_dict=False))

    def vae(self):
        from diffusers import AutoencoderKL, AutoencoderKLLTX2Video, AutoencoderKLWan
        r = dict(device="cuda", dtype=BF16)
        v = self.build(AutoencoderKL, in_channels=3, out_channels=3, down_block_types=["DownEncoderBlock2D"] * 4,
                       up_block_types=["UpDecoderBlock2D"] * 4, block_out_channels=[128, 256, 512, 512], layers_per_block=2,
                       latent_channels=16, norm_num_groups=32, use_quant_conv=False, use_post_quant_conv=False)
        z = torch.randn(1, 16, 128, 128, **r)
        self.note("vae_kl_1024.eager_ms", self.timed(lambda: v.decode(z, return_dict=False)))
        v.to(memory_format=torch.channels_last)
        zl = z.to(memory_format=torch.channels_last)
        self.note("vae_kl_1024.channels_last_ms", self.timed(lambda: v.decode(zl, return_dict=False)))
        self.note("vae_kl_1024.peak_GiB", round(torch.cuda.max_memory_allocated() / 2 ** 30, 2))
        del v
        clear()

        def wan():
            w, z = self.build(AutoencoderKLWan), torch.randn(1, 16, 21, 60, 104, **r)
            self.note("vae_wan_832x480x81.eager_ms", self.timed(lambda: w.decode(z, return_dict=False), 1, 3))
            self.note("vae_wan.peak_GiB", round(torch.cuda.max_memory_allocated() / 2 ** 30, 2))
            w.float()
            z = z.float()
            self.note("vae_wan_832x480x81_f32.eager_ms", self.timed(lambda: w.decode(z, return_dict=False), 1, 2))
        self.attempt("vae_wan_err", wan)
        clear()

        def ltx():
            w, z = self.build(AutoencoderKLLTX2Video, decoder_causal=False), torch.randn(1, 128, 16, 16, 24, **r)
            self.note("vae_ltx2_768x512x121.eager_ms", self.timed(lambda: w.decode(z, return_dict=False), 1, 3))
            self.note("vae_ltx2.peak_GiB", round(torch.cuda.max_memory_allocated() / 2 ** 30, 2))
        self.attempt("vae_ltx2_err", ltx)

    def run(self):
        for section in self.sections or ["env", "ceil", "flux", "zimage", "sana", "ltx2", "vae"]:
            clear()
            try:
                getattr(self, section)()
            except Exception:
                self.note(section + ".FAILED", traceback.format_exc()[-900:])
        self.note("total_s", round(time.time() - self.start, 1))


SECTIONS = ["env", "ceil", "elem", "flux", "zimage", "sana", "ltx2", "vae"]


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("names", nargs="*", help="figures; alone: OUT.json, then sections")
    p.add_argument("--against", metavar="DITTO")
    p.add_argument("--model")
    p.add_argument("--device", default="cuda")
    p.add_argument("--width", type=int, default=0)
    p.add_argument("--height", type=int, default=0)
    p.add_argument("--steps", type=int, default=28)
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--no-peers", dest="peers", action="store_false")
    p.add_argument("--no-compile", dest="compile", action="store_false")
    p.add_argument("--list", action="store_true")
    a = p.parse_args()
    if a.list:
        print("\n".join(FIGURES))
    elif a.against:
        unknown = [n for n in a.names if n not in FIGURES]
        if unknown or not a.model or bool(a.width) != bool(a.height) or a.rounds < 1:
            p.error(f"unknown figure {unknown[0]}: expected {', '.join(FIGURES)}" if unknown
                    else "--against needs --model, --width with --height, at least one round")
        against(a)
    else:
        unknown = [n for n in a.names[1:] if n not in SECTIONS]
        if not a.names or unknown:
            p.error(f"unknown section {unknown[0]}: expected {' '.join(SECTIONS)}" if unknown else "give OUT.json, or --against")
        Alone(a.names[0], a.names[1:]).run()


if __name__ == "__main__":
    main()
