"""train_demo.py - trains the demo checkpoint from nothing on one or two GPUs and exports it.

usage:  train_demo.py vae     --tokenizers DIR --work DIR --seconds 240     encoder and decoder, then shift and scale
        train_demo.py decoder --tokenizers DIR --work DIR --seconds 240     decoder alone, on the frozen encoder
        train_demo.py dit     --tokenizers DIR --work DIR --seconds 480     DiT, T5 and CLIP jointly, on cached latents
        train_demo.py finish  --tokenizers DIR --work DIR                   WORK/export, scored by diffusers' pipeline

DIR of --tokenizers is what demo_tokenizers.py wrote. `decoder` and `dit` need what `vae` wrote and may run side by
side on two GPUs. Every stage works by the clock: its learning rate ends when its seconds do; `dit` goes on from
WORK/net.pt where that exists. Scenes are drawn on the GPU in bulk and latents cached, and a step is one CUDA graph.
Easy to get wrong: the pipeline pads T5 to 512 tokens and masks nothing, so some of the training must run at that
length; and a VAE that is not good enough fails the scorer however well the DiT draws.
"""

import argparse
import copy
import json
import math
import multiprocessing
import os
import random
import time

import numpy as np
import torch
import torch.nn.functional as F

import demo_models as models
import demo_scenes as scenes
import demo_score
import demo_text
from demo_muon import Graphed, Optimiser

SHORT = 56  # tokens; the longest caption of the grammar has 51 (T5) and 48 (CLIP)
LONG = 512
START = time.time()


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("stage", choices=["vae", "decoder", "dit", "finish"])
    p.add_argument("--tokenizers", required=True)
    p.add_argument("--work", required=True)
    p.add_argument("--seconds", type=float, default=240, help="of this stage, from the start of the program")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--scenes", type=int, default=scenes.TRAIN_COUNT)
    p.add_argument("--captions", type=int, default=4, help="per scene")
    p.add_argument("--pictures", type=int, default=60000, help="kept on the GPU for the VAE stages")
    p.add_argument("--batch", type=int, default=512)
    p.add_argument("--long-batch", type=int, default=128)
    p.add_argument("--long-every", type=int, default=6, help="every n-th step runs at 512 text tokens")
    p.add_argument("--vae-batch", type=int, default=64)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--workers", type=int, default=12)
    p.add_argument("--test-prompts", type=int, default=200)
    p.add_argument("--look-every", type=float, default=1e9, help="seconds between scorings while training the DiT")
    p.add_argument("--sampler-steps", type=int, default=28)
    return p.parse_args()


def say(*a):
    print(f"[{time.time() - START:6.1f}]", *a, flush=True)


def cosine(part, low=0.01):
    return low + (1 - low) * 0.5 * (1 + math.cos(math.pi * min(1.0, part)))


def save(thing, path):
    torch.save(thing, path + ".part")
    os.replace(path + ".part", path)


def test_set(a):
    rng = random.Random(7)
    background, codes = scenes.test_table(a.test_prompts)
    return background, codes, [scenes.caption(rng, background[i], codes[i], phrasing=i % scenes.PHRASINGS, full=True)
                               for i in range(len(codes))]


def to_u8(y):
    return ((y.float() / 2 + 0.5).clamp(0, 1) * 255).round().byte().permute(0, 2, 3, 1).cpu().numpy()


def tally(images, background, codes):
    got = [demo_score.score(im, b, c) for im, b, c in zip(images, background, codes)]
    return sum(g is None for g in got), {k: got.count(k) for k in sorted({str(g) for g in got if g})}


# --- VAE ----------------------------------------------------------------------------------------------------

def amp(dev):
    return torch.autocast(dev.type, dtype=torch.bfloat16, enabled=dev.type == "cuda")


def load_vae(a, dev, name="vae"):
    vae = models.build_vae()
    vae.load_state_dict(torch.load(os.path.join(a.work, name + ".pt"), map_location="cpu"))
    path = os.path.join(a.work, "vae.json")
    if os.path.exists(path):
        vae.register_to_config(**json.load(open(path)))
    return vae.to(dev, memory_format=torch.channels_last).eval()


@torch.no_grad()
def encode(dev, vae, background, codes, n=500):
    """Means of the latents of rendered scenes, f32 [N, 16, 16, 16], and the pictures as bytes, in batches."""
    for i in range(0, len(codes), n):
        x = scenes.render(background[i:i + n], codes[i:i + n])
        with amp(dev):
            z = vae.encode(x.to(memory_format=torch.channels_last)).latent_dist.mean.float()
        yield i, z, x


def judge_vae(dev, vae, test):
    background, codes, _ = test
    right, why, squares, n = 0, {}, 0.0, 100
    for i, z, x in encode(dev, vae, torch.tensor(background, device=dev), torch.tensor(codes, device=dev), n):
        with torch.no_grad(), amp(dev):
            y = vae.decode(z).sample.float()
        r, w = tally(to_u8(y), background[i:i + n], codes[i:i + n])
        right, squares = right + r, squares + ((y - x) ** 2).mean().item() * len(x)
        why = {k: why.get(k, 0) + w.get(k, 0) for k in {*why, *w}}
    say(f"vae round trip of held-out scenes: PSNR {10 * math.log10(4 * len(codes) / squares):.1f} dB, "
        f"{right} of {len(codes)} right, wrong: {why}")


def train_vae(a, dev, background, codes, test, frozen):
    """frozen: the encoder stays, the decoder trains on cached latents. Otherwise both train."""
    vae = load_vae(a, dev) if frozen else models.build_vae().to(dev, memory_format=torch.channels_last)
    background = torch.tensor(background[:a.pictures], device=dev)
    codes = torch.tensor(codes[:a.pictures], device=dev)
    pictures = torch.empty(len(codes), 3, 128, 128, dtype=torch.uint8, device=dev)
    latents = torch.empty(len(codes), 16, 16, 16, device=dev)
    for i, z, x in encode(dev, vae, background, codes):
        latents[i:i + len(z)], pictures[i:i + len(z)] = z, ((x + 1) * 127.5).round().byte()
    spread = latents.std()
    say("pictures drawn")
    params = list((vae.decoder if frozen else vae).parameters())
    opt, ema = Optimiser([], params), [p.detach().clone() for p in params]
    grads = [p.grad for p in params]

    def forward(x, z):
        """A tenth of the latents' spread goes in as noise: the decoder must forgive what the DiT gets wrong."""
        torch._foreach_zero_(grads)
        kl = 0.0
        with amp(dev):
            if not frozen:
                d = vae.encode(x.to(memory_format=torch.channels_last)).latent_dist
                mean, logvar = d.mean.float(), d.logvar.float()
                kl = 0.5 * (mean ** 2 + logvar.exp() - 1 - logvar).mean()
                z = mean + torch.exp(0.5 * logvar) * torch.randn_like(mean)
            z = z + torch.randn_like(z) * (0.1 * (spread if frozen else z.detach().std()))
            y = vae.decode(z).sample.float()
        diff = y - x
        loss = diff.abs().mean() + 2 * (diff ** 2).mean() + 2e-4 * kl
        loss.backward()
        return torch.stack([loss.detach(), diff.detach().abs().mean()])

    n = a.vae_batch
    step_graph = Graphed(forward, [torch.zeros(n, 3, 128, 128, device=dev), torch.zeros(n, 16, 16, 16, device=dev)],
                         say=say)
    opt_graph = Graphed(opt.step, [], undo=params + opt.m + opt.v, say=say)
    begin, step, told = time.time(), 0, time.time()
    total = max(1e-3, START + a.seconds - begin)
    top = 1.5e-3
    while True:
        part = (time.time() - begin) / total
        if part >= 1:
            break
        i = torch.randint(len(codes), (n,), device=dev)
        out = step_graph(pictures[i].float() / 127.5 - 1, latents[i])
        opt.set_lr(top * min(1, (step + 1) / 200) * cosine(part))
        opt_graph()
        step += 1
        torch._foreach_lerp_(ema, [p.detach() for p in params], 1 - min(0.998, (1 + step) / (10 + step)))
        if step % 20 == 0 and (time.time() - told > 20 or step == 100):
            loss, l1 = out.tolist()
            say(f"{a.stage} step {step} part {part:.2f} loss {loss:.4f} l1 {l1:.4f}, "
                f"{1000 * (time.time() - begin) / step:.1f} ms a step")
            told = time.time()
    with torch.no_grad():
        for p, e in zip(params, ema):
            p.copy_(e)
    say(f"{a.stage} done: {step} steps, {1000 * (time.time() - begin) / step:.1f} ms a step")
    if not frozen:
        z = torch.cat([z for _, z, _ in encode(dev, vae.eval(), background[:4000], codes[:4000])])
        json.dump({"shift_factor": round(float(z.mean()), 4), "scaling_factor": round(float(1 / z.std()), 4)},
                  open(os.path.join(a.work, "vae.json"), "w"))
        say(open(os.path.join(a.work, "vae.json")).read())
    save(vae.state_dict(), os.path.join(a.work, "decoder.pt" if frozen else "vae.pt"))
    judge_vae(dev, vae.eval(), test)


# --- captions: tokenised once, by worker processes ----------------------------------------------------------------

def caption_chunk(job):
    folder, background, codes, per_scene, seed = job
    one, two = models.tokenizers(folder)
    n = len(codes)
    texts = [scenes.caption(random.Random((seed * per_scene + k) * 1_000_003 + i), background[i], codes[i])
             for k in range(per_scene) for i in range(n)]
    clip = np.full((n * per_scene, SHORT), one.eos_token_id, np.int16)
    t5 = np.zeros((n * per_scene, SHORT), np.int16)
    for out, ids in ((clip, one(texts).input_ids), (t5, two(texts).input_ids)):
        for row, x in zip(out, ids):
            assert len(x) <= SHORT, len(x)
            row[:len(x)] = x
    return clip.reshape(per_scene, n, SHORT), t5.reshape(per_scene, n, SHORT)


def tokens(folder, texts, length, dev):
    one, two = models.tokenizers(folder)
    c = one(texts, padding="max_length", max_length=77, truncation=True, return_tensors="pt").input_ids
    t = two(texts, padding="max_length", max_length=length, truncation=True, return_tensors="pt").input_ids
    return c.to(dev), t.to(dev)


# --- DiT, T5, CLIP ------------------------------------------------------------------------------------------------

class Net(torch.nn.Module):
    def __init__(self, clip, t5, dit):
        super().__init__()
        self.clip, self.t5, self.dit = clip, t5, dit

    def forward(self, x, t, guidance, clip_ids, t5_ids, bucket, ids):
        """Velocity for tokens x [B, 64, 64] at sigma t [B]."""
        return self.dit(hidden_states=x, timestep=t, guidance=guidance,
                        pooled_projections=demo_text.clip_forward(self.clip, clip_ids),
                        encoder_hidden_states=demo_text.t5_forward(self.t5, t5_ids, bucket),
                        txt_ids=torch.zeros(t5_ids.shape[1], 3, device=x.device), img_ids=ids, return_dict=False)[0]


def shifted_sigmas(steps):
    """The sigmas of the pipeline for 64 image tokens, with the final zero."""
    m = (1.15 - 0.5) / (4096 - 256)
    e = math.exp(64 * m + 0.5 - m * 256)
    s = np.linspace(1.0, 1 / steps, steps)
    return [float(v) for v in e / (e + (1 / s - 1))] + [0.0]


@torch.no_grad()
def sample(a, net, vae, texts, length, dev, seed):
    """Pictures by a plain Euler loop: a look while training, not the judge."""
    clip_ids, t5_ids = tokens(a.tokenizers, texts, length, dev)
    bucket, ids = demo_text.buckets(net.t5, length, dev), models.image_ids(16, 16, dev)
    x = torch.randn(len(texts), 64, 64, device=dev, generator=torch.Generator(dev).manual_seed(seed))
    guidance = torch.full((len(x),), 3.5, device=dev)
    sigmas = shifted_sigmas(a.sampler_steps)
    with amp(dev):
        for s, n in zip(sigmas, sigmas[1:]):
            v = net(x, torch.full((len(x),), s, device=dev), guidance, clip_ids, t5_ids, bucket, ids)
            x = x + (n - s) * v.float()
        z = models.unpack(x, 16, 16) / vae.config.scaling_factor + vae.config.shift_factor
        return to_u8(vae.decode(z).sample)


def undo(opt):
    """What an optimiser's warm-up runs must give back."""
    return opt.all + opt.m + opt.v + [b for _, b in opt.groups]


def advance(opt, opt_step, params, averaged, lr, part, step):
    """After a loss left its gradients: an optimiser's step at `part` of the time, and the averages."""
    opt.set_lr(lr * min(1, (step + 1) / 200) * cosine(part))
    opt_step()
    torch._foreach_lerp_(averaged, [p.detach() for p in params], 1 - min(0.999, (2 + step) / (11 + step)))


def run_steps(a, next_loss, opt, params, averaged, keep, look):
    """Trains by the clock: next_loss(step) leaves gradients and gives the loss; params are averaged into `averaged`; keep()
    writes what there is; look() judges it: what is right, what is wrong, every --look-every seconds."""
    opt_graph = Graphed(opt.step, [], undo=undo(opt), say=say)
    begin, step, told, looked = time.time(), 0, time.time(), time.time()
    total = max(1e-3, START + a.seconds - begin)
    since, loss_sum = 0, torch.zeros((), device=params[0].device)
    while True:
        part = (time.time() - begin) / total
        if part >= 1:
            break
        loss_sum += next_loss(step)
        advance(opt, opt_graph, params, averaged, a.lr, part, step)
        step += 1
        since += 1
        if step % 25 == 0 and (time.time() - told > 20 or step == 100):
            mean = (loss_sum / since).item()
            say(f"{a.stage} step {step} part {part:.3f} loss {mean:.4f}, {1000 * (time.time() - told) / since:.1f} ms a step")
            told, since = time.time(), 0
            loss_sum.zero_()
            if not math.isfinite(mean):
                raise SystemExit("loss is not finite")
        if time.time() - looked > a.look_every:
            say(f"  step {step}: right, wrong:", *look())
            keep()
            told, looked, since = time.time(), time.time(), 0
            loss_sum.zero_()
    keep()
    say(f"{a.stage} done: {step} steps, {1000 * (time.time() - begin) / max(1, step):.1f} ms a step")


def train_dit(a, dev, latents, clip_ids, t5_ids, vae, test):
    """clip_ids, t5_ids [K, N, SHORT] int16. Writes WORK/net.pt: the averaged Net."""
    one, two = models.tokenizers(a.tokenizers)
    clip, t5 = models.build_text(len(one), len(two))
    net = Net(clip, t5, models.build_transformer()).to(dev)
    path = os.path.join(a.work, "net.pt")
    if os.path.exists(path):
        net.load_state_dict({k: v.float() for k, v in torch.load(path, map_location="cpu").items()})
        say("going on from net.pt")
    ema = copy.deepcopy(net).requires_grad_(False)
    params, averaged = list(net.parameters()), list(ema.parameters())
    matrices = [p for n, p in net.named_parameters() if p.ndim == 2 and
                ("blocks." in n or "layers." in n or ".block." in n) and ".norm" not in n and "relative" not in n]
    chosen = {id(p) for p in matrices}
    opt = Optimiser(matrices, [p for p in params if id(p) not in chosen], weight_decay=0.02)
    grads = [p.grad for p in params]
    say("parameters:", {n: sum(p.numel() for p in m.parameters()) for n, m in
                        (("dit", net.dit), ("t5", t5), ("clip", clip), ("vae", vae))})
    ids = models.image_ids(16, 16, dev)
    empty = [x[0, :SHORT].int() for x in tokens(a.tokenizers, [""], SHORT, dev)]

    def make(batch, length):
        bucket = demo_text.buckets(t5, length, dev)

        def forward(x0, c, e):
            torch._foreach_zero_(grads)
            b = x0.shape[0]
            r = torch.rand(4, b, device=dev)
            blank = (r[0] < 0.02)[:, None]
            c = torch.where(blank, empty[0], c.int())
            e = F.pad(torch.where(blank, empty[1], e.int()), (0, length - SHORT))
            t = torch.sigmoid(0.7 + 1.2 * torch.randn(b, device=dev))
            t = torch.where(r[1] < 0.2, r[2], t)
            guidance = torch.where(r[3] < 0.5, 3.5, 1 + 14 * (r[3] - 0.5))
            x0 = x0.float()
            noise = torch.randn_like(x0)
            with amp(dev):
                v = net(x0 + t[:, None, None] * (noise - x0), t, guidance, c, e, bucket, ids)
            loss = F.mse_loss(v.float(), noise - x0)
            loss.backward()
            return loss.detach()

        def draw():
            i = torch.randint(latents.shape[0], (batch,), device=dev)
            k = torch.randint(clip_ids.shape[0], (batch,), device=dev)
            return latents[i], clip_ids[k, i], t5_ids[k, i]

        graphed = Graphed(forward, draw(), say=say)
        say(f"captured {batch} x {length}")
        return lambda: graphed(*draw())

    short, long = make(a.batch, SHORT), make(a.long_batch, LONG)

    def next_loss(step):
        return (long if step % a.long_every == a.long_every - 1 else short)()

    look = lambda n=100: tally(sample(a, ema, vae, test[2][:n], LONG, dev, 1), test[0][:n], test[1][:n])
    run_steps(a, next_loss, opt, params, averaged, lambda: save(ema.state_dict(), path), look)
    say("  right, wrong of 64:", *look(64))


def start_captions(a, folder, chunk_of, background, codes):
    """Tokenises captions of all scenes in worker processes, to be called before the GPU is touched. -> a function that waits
    for chunk_of's arrays, each put together."""
    pool = multiprocessing.get_context("fork").Pool(a.workers)
    chunk = max(1, min(4000, a.scenes // a.workers))
    jobs = [(folder, background[i:i + chunk], codes[i:i + chunk], a.captions, a.seed * 1000 + i // chunk)
            for i in range(0, len(codes), chunk)]
    parts = pool.map_async(chunk_of, jobs, chunksize=1)

    def collect(dev):
        arrays = [torch.from_numpy(np.concatenate(x, 1)).to(dev) for x in zip(*parts.get())]
        pool.terminate()
        say("captions", tuple(arrays[0].shape))
        return arrays

    return collect


def cached_latents(dev, vae, pack, background, codes):
    latents = torch.empty(len(codes), 64, 64, dtype=torch.bfloat16, device=dev)
    for i, z, _ in encode(dev, vae, torch.tensor(background, device=dev), torch.tensor(codes, device=dev)):
        latents[i:i + len(z)] = pack((z - vae.config.shift_factor) * vae.config.scaling_factor)
    say("latents cached, mean and spread", float(latents.float().mean()), float(latents.float().std()))
    return latents


def stage_dit(a, dev, background, codes, test):
    collect = start_captions(a, a.tokenizers, caption_chunk, background, codes)
    vae = load_vae(a, dev)
    latents = cached_latents(dev, vae, models.pack, background, codes)
    train_dit(a, dev, latents, *collect(dev), vae, test)


# --- export and scoring ---------------------------------------------------------------------------------------------

def sheet(images, path, columns=8):
    from PIL import Image

    rows = [np.concatenate(list(images[i:i + columns]), 1) for i in range(0, len(images) // columns * columns, columns)]
    Image.fromarray(np.concatenate(rows, 0)).save(path, optimize=True)


def judge(folder, test, dev, path, batch=100, dtype=torch.bfloat16, **options):
    """Draws the held-out prompts with diffusers' own pipeline and default settings and scores them."""
    from diffusers import FluxPipeline

    pipe = FluxPipeline.from_pretrained(folder, torch_dtype=dtype).to(dev)
    pipe.set_progress_bar_config(disable=True)
    background, codes, texts = test
    images = []
    for i in range(0, len(texts), batch):
        n = min(batch, len(texts) - i)
        g = [torch.Generator("cpu").manual_seed(i + k) for k in range(n)]
        images += [np.array(im) for im in pipe(texts[i:i + n], width=128, height=128, generator=g, **options).images]
        say(f"{len(images)} drawn:", *tally(images, background[:len(images)], codes[:len(images)]))
        sheet(images, path)
    return tally(images, background, codes)


def finish(a, dev, test):
    one, two = models.tokenizers(a.tokenizers)
    net = Net(*models.build_text(len(one), len(two)), models.build_transformer())
    net.load_state_dict({k: v.float() for k, v in torch.load(os.path.join(a.work, "net.pt"), map_location="cpu").items()})
    name = "decoder" if os.path.exists(os.path.join(a.work, "decoder.pt")) else "vae"
    vae = load_vae(a, torch.device("cpu"), name).to(memory_format=torch.contiguous_format)
    folder = os.path.join(a.work, "export")
    say("exported", models.export(folder, a.tokenizers, vae, net.clip, net.t5, net.dit), "bytes")
    right, why = judge(folder, test, dev, os.path.join(a.work, "sheet.png"), num_inference_steps=a.sampler_steps)
    say(f"RESULT: {right} of {len(test[1])} held-out prompts right in bf16 on {dev}, wrong: {why}")


def main():
    a = arguments()
    os.makedirs(a.work, exist_ok=True)
    random.seed(a.seed)
    torch.manual_seed(a.seed)
    background, codes = scenes.train_table(a.scenes)
    assert not scenes.held_out(codes).any()
    say(a.stage, "training table", scenes.table_digest(background, codes))
    test = test_set(a)
    dev = torch.device("cpu" if not torch.cuda.is_available() else "cuda")
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.matmul.allow_tf32 = True
    if a.stage in ("vae", "decoder"):
        train_vae(a, dev, background, codes, test, a.stage == "decoder")
    elif a.stage == "dit":
        stage_dit(a, dev, background, codes, test)
    else:
        finish(a, dev, test)
    say("all done")


if __name__ == "__main__":
    main()
