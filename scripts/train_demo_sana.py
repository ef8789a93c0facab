"""train_demo_sana.py - trains the demo checkpoint in SANA-Video's shape from nothing on one GPU and exports it.

usage:  train_demo_sana.py tokenizer --source GEMMA2_DIR --tokenizer DIR     cut from the published one
        train_demo_sana.py vae    --tokenizer DIR --work DIR --vae-seconds 65
        train_demo_sana.py dit    --tokenizer DIR --work DIR --dit-seconds 95   goes on where WORK has net.pt, decoder.pt
        train_demo_sana.py finish --tokenizer DIR --work DIR                 WORK/demo-sana-video, scored by diffusers
        train_demo_sana.py all    ...                                        vae, dit, finish in one process

Clips are demo_clips.py's, drawn on the GPU; loop, judge and optimiser are the other demos'. Every stage works by the clock and
writes what it has. The text encoder is random and frozen, so captions are encoded once; the autoencoder comes first, its
latents are cached, the transformer trains on them, and beside it the decoder goes on. Guidance is the pipeline's own: a tenth of the captions are empty.
Easy to get wrong: the empty caption is the negative prompt as the pipeline encodes it, without the instruction.
"""

import argparse
import copy
import json
import multiprocessing
import os
import random
import time

import numpy as np
import torch
import torch.nn.functional as F

import demo_clips as clips
import demo_sana as models
import demo_score
import demo_scenes as scenes
import train_demo as demo
from demo_muon import Graphed, Optimiser

say = demo.say
BLANKS = 0.1  # of the training captions


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("stage", choices=["tokenizer", "vae", "dit", "finish", "all"])
    p.add_argument("--source", help="folder of the published Gemma-2 tokenizer")
    p.add_argument("--tokenizer", required=True)
    p.add_argument("--work")
    p.add_argument("--vae-seconds", type=float, default=65)
    p.add_argument("--encode-seconds", type=float, default=8, help="of the next, at most")
    p.add_argument("--dit-seconds", type=float, default=95)
    p.add_argument("--until", type=float, help="instead: seconds from the start of the program at which dit ends")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--clips", type=int, default=clips.TRAIN_COUNT)
    p.add_argument("--captions", type=int, default=24, help="for every object on every background")
    p.add_argument("--batch", type=int, default=512)
    p.add_argument("--vae-batch", type=int, default=16)
    p.add_argument("--vae-lr", type=float, default=3e-3)
    p.add_argument("--vae-focus", type=float, default=4, help="how much more than the rest the object counts")
    p.add_argument("--decoder-every", type=int, default=2, help="the decoder makes a step beside every n-th of dit; 0: none")
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--test-prompts", type=int, default=100)
    p.add_argument("--look-every", type=float, default=1e9, help="seconds between scorings while training")
    p.add_argument("--steps", type=int, default=50, help="of the sampler")
    p.add_argument("--scales", type=float, nargs="+", default=[6.0, 1.0], help="guidance scales that finish scores")
    return p.parse_args()


def stage_options(a, stage, seconds, lr):
    """What run_steps() reads: it counts from the start of the program."""
    return argparse.Namespace(**{**vars(a), "stage": stage, "seconds": time.time() - demo.START + seconds, "lr": lr})


def tally(videos, test):
    jobs = [(v, b, c, bare) for v, (b, c, bare, _) in zip(videos, test)]
    with multiprocessing.get_context("fork").Pool(min(12, os.cpu_count())) as pool:  # they touch no GPU
        got = pool.starmap_async(demo_score.score_clip, jobs).get(60)
    return sum(g is None for g in got), {k: got.count(k) for k in sorted({g for g in got if g})}


def to_u8(y):
    return ((y.float() / 2 + 0.5).clamp(0, 1) * 255).round().byte().cpu().numpy()


def table(a, dev):
    background, codes = clips.train_table(a.clips)
    assert not clips.held_out(codes).any()
    say("training table", scenes.table_digest(background, codes))
    return torch.tensor(background, device=dev), torch.tensor(codes, device=dev)


# --- autoencoder ---

def load_vae(a, dev, name="vae"):
    values = json.load(open(os.path.join(a.work, "vae.json")))
    vae = models.build_vae(**values)
    vae.load_state_dict(torch.load(os.path.join(a.work, name + ".pt"), map_location="cpu"))
    return vae.to(dev).eval()


@torch.no_grad()
def judge_vae(dev, vae, test, n=20):
    right, squares = [], 0.0
    for i in range(0, len(test), n):
        b, c = (torch.tensor([t[k] for t in test[i:i + n]], device=dev) for k in (0, 1))
        x = clips.render(b, c, torch.Generator(dev).manual_seed(i))
        with demo.amp(dev):
            y = models.vae_decode(vae, models.vae_encode(vae, x)[0])
        squares += ((y.float() - x) ** 2).mean().item() * len(x)
        right.append(to_u8(y))
    return (f"vae round trip of held-out clips: PSNR {10 * np.log10(4 * len(test) / squares):.1f} dB, right, wrong:",
            *tally(np.concatenate(right), test))


def split(params):
    """Filters with eight rows and columns or more, for Muon; the other parameters."""
    filters = [p for p in params if p.ndim >= 4 and min(p.flatten(1).shape) >= 8]
    chosen = {id(p) for p in filters}
    return filters, [p for p in params if id(p) not in chosen]


class VaeTraining:
    """Steps of the autoencoder, or of its decoder alone on the frozen encoder, with averaged weights."""

    def __init__(self, a, dev, vae, background, codes, batch, frozen):
        self.vae, self.ema, self.lr, self.steps = vae, copy.deepcopy(vae).requires_grad_(False), a.vae_lr, 0
        trained = ("decoder.", "post_quant_conv.") if frozen else ("",)
        names = [n for n, p in vae.named_parameters() if n.startswith(trained)]
        self.params, self.averaged = ([dict(m.named_parameters())[n] for n in names] for m in (vae, self.ema))
        vae.requires_grad_(False)
        for p in self.params:
            p.requires_grad_(True)
        self.opt = Optimiser(*split(self.params))
        grads = [p.grad for p in self.params]

        def forward(b, c):
            """Latents are the means, as both pipelines take them: drawn ones drown what little the first steps find. A tenth of
            their spread goes in as noise, because the decoder must forgive what the transformer gets wrong. The object and its
            rim count more than the rest of a frame."""
            torch._foreach_zero_(grads)
            x = clips.render(b, c)
            rim = F.max_pool2d(((x - x[:, :, :1, :1]).abs().amax(-1) > 0).float(), 5, 1, 2)
            weight = (1 + a.vae_focus * rim)[..., None]
            with demo.amp(dev):
                mean, logvar = models.vae_encode(vae, x)
                z = mean + torch.randn_like(mean) * (0.1 * mean.detach().std())
                diff = models.vae_decode(vae, z) - x
            loss = (weight * (diff.abs() + 2 * diff ** 2)).mean() / weight.mean()
            loss = loss + 1e-4 * (mean ** 2 + (logvar + 6) ** 2).mean()
            loss.backward()
            return loss.detach()

        def draw():
            i = torch.randint(len(codes), (batch,), device=dev)
            return background[i], codes[i]

        graphed = Graphed(forward, draw(), say=say)
        self.next_loss = lambda step: graphed(*draw())
        self.step = Graphed(self.opt.step, [], undo=demo.undo(self.opt), say=say) if frozen else None
        say("vae step ready")

    def __call__(self, part):
        """One whole step at `part` of the time; run_steps() does the same itself."""
        self.next_loss(0)
        demo.advance(self.opt, self.step, self.params, self.averaged, self.lr, part, self.steps)
        self.steps += 1


def stage_vae(a, dev, test):
    background, codes = table(a, dev)
    t = VaeTraining(a, dev, models.build_vae().to(dev), background, codes, a.vae_batch, False)

    def keep():
        b, c = background[:500], codes[:500]
        z = torch.cat([latents(dev, t.ema, b[i:i + 50], c[i:i + 50]) for i in range(0, len(b), 50)]).flatten(0, 3)
        json.dump({"latents_mean": [round(float(v), 4) for v in z.mean(0)],
                   "latents_std": [round(float(v), 4) for v in z.std(0)]}, open(os.path.join(a.work, "vae.json"), "w"))
        demo.save(t.ema.state_dict(), os.path.join(a.work, "vae.pt"))

    demo.run_steps(stage_options(a, "vae", a.vae_seconds, a.vae_lr), t.next_loss, t.opt, t.params, t.averaged, keep,
                   lambda: judge_vae(dev, t.ema, test))
    say(open(os.path.join(a.work, "vae.json")).read())
    say(*judge_vae(dev, t.ema, test))


@torch.no_grad()
def latents(dev, vae, background, codes):
    with demo.amp(dev):
        return models.vae_encode(vae, clips.render(background, codes))[0]


def spread(vae, dev):
    return (torch.tensor(x, device=dev) for x in (vae.config.latents_mean, vae.config.latents_std))


# --- transformer ---

def caption_table(a, te, dev):
    """Embeddings [objects, backgrounds, captions, rows, 48], how many of the rows are real, and those of no prompt."""
    begin = time.time()
    rng = random.Random(a.seed + 1)
    texts = [clips.caption(rng, b, c) for c in range(clips.CODES) for b in range(4) for _ in range(a.captions)]
    for i in range(0, len(texts), 10):  # as the pipeline's examples end
        texts[i] += f" motion score: {rng.choice([10, 20, 30, 40, 50])}."
    e, used = models.encode_texts(te, a.tokenizer, texts)
    blank = models.encode_texts(te, a.tokenizer, [""], instruct=False)[0][0, 0]
    say(f"{len(texts)} captions, {len(set(texts))} different, of up to {e.shape[1]} rows, {time.time() - begin:.1f} s")
    return e.view(clips.CODES, 4, a.captions, *e.shape[1:]), used.view(clips.CODES, 4, a.captions).to(dev), blank


def cached(a, dev, vae, background, codes, n=64):
    """Patches of clips [N, T, P, 64], as many as the time allows."""
    mean, std = spread(vae, dev)

    def encode(b, c):
        z = (latents(dev, vae, b, c) - mean) / std
        return models.patches(z.permute(0, 4, 1, 2, 3)).bfloat16()

    step = Graphed(encode, [background[:n], codes[:n]], say=say)
    out, end = [], time.time() + a.encode_seconds
    for i in range(0, len(codes) - n + 1, n):
        out.append(step(background[i:i + n], codes[i:i + n]).clone())
        if i % (16 * n) == 0:
            float(out[-1][0, 0, 0, 0])  # waits for the device
            if time.time() > end:
                break
    out = torch.cat(out)
    say(f"{len(out)} clips cached, mean and spread", float(out.float().mean()), float(out.float().std()))
    return out


def best_vae(a):
    return "decoder" if os.path.exists(os.path.join(a.work, "decoder.pt")) else "vae"


def build_net(a):
    dit = models.build_transformer()
    path = os.path.join(a.work, "net.pt")
    if os.path.exists(path):
        dit.load_state_dict(torch.load(path, map_location="cpu"))
        say("going on from net.pt")
    return dit


def text_encoder(a, dev="cpu"):
    """In bf16 on a GPU, as the pipeline runs it there; its weights are bf16's anyway."""
    te = models.build_text(models.tokenizer(a.tokenizer).get_vocab_size())
    return te.to(dev, torch.bfloat16 if str(dev) == "cuda" else torch.float32)


@torch.no_grad()
def sample(a, dit, vae, te, test, scale, dev):
    """Videos by a plain Euler loop over flow sigmas: a look while training, not the judge."""
    e, used = models.encode_texts(te, a.tokenizer, [t[3] for t in test])
    blank = models.encode_texts(te, a.tokenizer, [""], instruct=False)[0]
    bias, none = models.text_bias(used.to(dev), e.shape[1]), torch.zeros(1, 1, 1, 1, device=dev)
    tab = models.tables(dit, dev)
    mean, std = spread(vae, dev)
    shape = (len(test), 16, models.TIMES, 2 * models.GRID, 2 * models.GRID)
    x = models.patches(torch.randn(shape, device=dev, generator=torch.Generator(dev).manual_seed(1)))
    t = torch.linspace(1, 0, a.steps + 1)
    shift = models.SCHEDULER["flow_shift"]
    sigmas = (shift * t / (1 + (shift - 1) * t)).tolist()
    with demo.amp(dev):
        for s, n in zip(sigmas, sigmas[1:]):
            at = torch.full((len(x),), s, device=dev)
            v = models.dit_forward(dit, x, at, e.float(), bias, tab).float()
            if scale > 1:
                u = models.dit_forward(dit, x, at, blank.float().expand(len(x), -1, -1), none, tab).float()
                v = u + scale * (v - u)
            x = x + (n - s) * v
        z = models.unpatches(x, 2 * models.GRID, 2 * models.GRID).permute(0, 2, 3, 4, 1) * std + mean
        return np.concatenate([to_u8(models.vae_decode(vae, z[i:i + 20])) for i in range(0, len(z), 20)])


def stage_dit(a, dev, test):
    te, vae = text_encoder(a, dev), load_vae(a, dev)
    background, codes = table(a, dev)
    texts, used, blank = caption_table(a, te, dev)
    x0 = cached(a, dev, vae, background, codes)
    background, codes = background[:len(x0)].long(), codes[:len(x0)].long()
    dit = build_net(a).to(dev)
    ema = copy.deepcopy(dit).requires_grad_(False)
    params, averaged = list(dit.parameters()), list(ema.parameters())
    opt = Optimiser(*models.matrices(dit), weight_decay=0.02)
    grads = [p.grad for p in params]
    tab = models.tables(dit, dev)
    say("parameters:", {n: sum(p.numel() for p in m.parameters()) for n, m in (("dit", dit), ("text", te), ("vae", vae))})

    def forward(x, e, n):
        torch._foreach_zero_(grads)
        b = x.shape[0]
        r = torch.rand(3, b, device=dev)
        none = r[0] < BLANKS
        e = torch.where(none[:, None, None], blank, e).float()
        n = torch.where(none, 1, n)
        s = torch.sigmoid(0.7 + 1.2 * torch.randn(b, device=dev))
        s = torch.where(r[1] < 0.2, r[2], s)
        x = x.float()
        noise = torch.randn_like(x)
        with demo.amp(dev):
            v = models.dit_forward(dit, x + s[:, None, None, None] * (noise - x), s, e, models.text_bias(n, e.shape[1]), tab)
        loss = F.mse_loss(v.float(), noise - x)
        loss.backward()
        return loss.detach()

    def draw():
        i = torch.randint(len(x0), (a.batch,), device=dev)
        k = torch.randint(a.captions, (a.batch,), device=dev)
        return x0[i], texts[codes[i], background[i], k], used[codes[i], background[i], k]

    step = Graphed(forward, draw(), say=say)
    say("dit step ready")
    decoder = Beside(a, dev, background, codes) if a.decoder_every else None
    seconds = a.until - (time.time() - demo.START) if a.until else a.dit_seconds
    options = stage_options(a, "dit", seconds, a.lr)
    if decoder:
        decoder.end = demo.START + options.seconds

    def next_loss(n):
        if decoder and n % a.decoder_every == 0:
            decoder.step()
        return step(*draw())

    demo.run_steps(options, next_loss, opt, params, averaged,
                   lambda: demo.save(ema.state_dict(), os.path.join(a.work, "net.pt")),
                   lambda: tally(sample(a, ema, vae, te, test, a.scales[0], dev), test))
    if decoder:
        demo.save(decoder.training.ema.state_dict(), os.path.join(a.work, "decoder.pt"))
        say(f"decoder: {decoder.training.steps} steps,", *judge_vae(dev, decoder.training.ema, test))


class Beside:
    """The decoder's training on a stream of its own: alone, both it and the transformer's leave much of the GPU idle."""

    def __init__(self, a, dev, background, codes):
        torch.backends.cudnn.benchmark = True
        self.training = VaeTraining(a, dev, load_vae(a, dev, best_vae(a)), background, codes, a.vae_batch, True)
        torch.backends.cudnn.benchmark = False
        self.training.lr = a.vae_lr / 2
        self.stream = torch.cuda.Stream() if dev.type == "cuda" else None
        self.begin, self.end = time.time(), None

    def step(self):
        part = (time.time() - self.begin) / (self.end - self.begin)
        if not self.stream:
            return self.training(part)
        torch.cuda.current_stream().wait_stream(self.stream)  # nobody runs ahead of the other
        self.stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(self.stream):
            self.training(part)


# --- export and scoring ---

def sheet(videos, path, shown=(0, 8, 16), columns=4):
    """Three frames of each of the first clips, `columns` clips a row."""
    demo.sheet([np.concatenate([v[f] for f in shown], 1) for v in videos[:6 * columns]], path, columns)


def finish(a, dev, test):
    te, dit, vae = text_encoder(a), build_net(a), load_vae(a, torch.device("cpu"), best_vae(a))
    folder = os.path.join(a.work, "demo-sana-video")
    say("exported", models.export(folder, a.tokenizer, te, dit, vae), "bytes")
    pipe = models.load_pipeline(folder, torch.bfloat16, dev)
    for scale in a.scales:
        videos = []
        for i in range(0, len(test), 50):
            part = test[i:i + 50]
            g = [torch.Generator("cpu").manual_seed(i + k) for k in range(len(part))]
            out = pipe([t[3] for t in part], negative_prompt="", guidance_scale=scale, num_inference_steps=a.steps,
                       height=clips.SIDE, width=clips.SIDE, frames=clips.FRAMES, generator=g, use_resolution_binning=False,
                       output_type="np").frames
            videos += list((np.asarray(out) * 255).round().astype(np.uint8))
        sheet(videos, os.path.join(a.work, f"sheet-{scale:g}.png"))
        right, why = tally(videos, test)
        say(f"RESULT: scale {scale:g}: {right} of {len(test)} held-out prompts right in bf16 on {dev}, {a.steps} steps, "
            f"wrong: {why}")


def main():
    a = arguments()
    if a.stage == "tokenizer":
        rng = random.Random(1)
        texts = [clips.caption(rng, b, c) for c in range(clips.CODES) for b in range(4) for _ in range(4)]
        texts += [t + f" motion score: {n}." for t, n in zip(texts[::7], range(100))]
        return print(models.make_tokenizer(a.source, a.tokenizer, texts), "tokens")
    os.makedirs(a.work, exist_ok=True)
    random.seed(a.seed)
    torch.manual_seed(a.seed)
    test = clips.test_prompts(a.test_prompts)
    dev = torch.device("cpu" if not torch.cuda.is_available() else "cuda")
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cuda.enable_mem_efficient_sdp(False)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.benchmark_limit = 4
    for stage, run in (("vae", stage_vae), ("dit", stage_dit), ("finish", finish)):
        if a.stage in (stage, "all"):
            torch.backends.cudnn.benchmark = stage == "vae"
            run(a, dev, test)
    say("all done")


if __name__ == "__main__":
    main()
