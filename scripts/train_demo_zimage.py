"""train_demo_zimage.py - trains the demo checkpoint in Z-Image's shape from nothing on one GPU and exports it.

usage:  train_demo_zimage.py tokenizer --source QWEN3_DIR --tokenizer DIR      cut from the published one
        train_demo_zimage.py dit       --tokenizer DIR --vae DIR --work DIR --seconds 400
        train_demo_zimage.py finish    --tokenizer DIR --vae DIR --work DIR    WORK/demo-zimage, scored by diffusers

Same scenes, captions, held-out rule and judge as train_demo.py, whose helpers it uses; --vae is demo-flux's. Encoder and
transformer train jointly. Captions are sorted by padded length, 32 or 64, each with a graph of its own.
Easy to get wrong: export links the VAE, so `finish` scores with --vae in that place; no guidance is trained, prompts
that are empty now and then keep `-n ""` meaningful.
"""

import argparse
import copy
import os
import random
import shutil

import numpy as np
import torch
import torch.nn.functional as F

import demo_scenes as scenes
import demo_zimage as models
import train_demo as demo
from demo_muon import Graphed, Optimiser

LENGTHS = (32, 64, 96)
say = demo.say


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("stage", choices=["tokenizer", "dit", "finish"])
    p.add_argument("--source", help="folder of the published Qwen3 tokenizer")
    p.add_argument("--tokenizer", required=True)
    p.add_argument("--vae", default="weights/demo-flux/vae")
    p.add_argument("--work")
    p.add_argument("--seconds", type=float, default=400, help="of this stage, from the start of the program")
    p.add_argument("--seed", type=int, default=0)
    p.add_argument("--scenes", type=int, default=scenes.TRAIN_COUNT)
    p.add_argument("--captions", type=int, default=4, help="per scene")
    p.add_argument("--batch", type=int, default=512)
    p.add_argument("--lr", type=float, default=2e-3)
    p.add_argument("--workers", type=int, default=12)
    p.add_argument("--test-prompts", type=int, default=200)
    p.add_argument("--look-every", type=float, default=1e9, help="seconds between scorings")
    p.add_argument("--sampler-steps", type=int, default=8)
    return p.parse_args()


def encode_texts(t, texts):
    """-> ids int16 [N, 96], used int16 [N]."""
    ids, used = np.zeros((len(texts), LENGTHS[-1]), np.int16), np.zeros(len(texts), np.int16)
    for row, (i, e) in zip(ids, enumerate(t.encode_batch([models.template(x) for x in texts]))):
        assert len(e.ids) <= LENGTHS[-1], len(e.ids)
        row[:len(e.ids)], used[i] = e.ids, len(e.ids)
    return ids, used


def caption_chunk(job):
    folder, background, codes, per_scene, seed = job
    n = len(codes)
    texts = [scenes.caption(random.Random((seed * per_scene + k) * 1_000_003 + i), background[i], codes[i])
             for k in range(per_scene) for i in range(n)]
    ids, used = encode_texts(models.tokenizer(folder), texts)
    return ids.reshape(per_scene, n, -1), used.reshape(per_scene, n)


def load_vae(a, dev):
    from diffusers import AutoencoderKL

    return AutoencoderKL.from_pretrained(a.vae).to(dev, memory_format=torch.channels_last).eval()


def sigmas(steps):
    from diffusers import FlowMatchEulerDiscreteScheduler

    s = FlowMatchEulerDiscreteScheduler(shift=3.0)
    s.sigma_min = 0.0  # as the pipeline sets it
    s.set_timesteps(steps)
    return [float(v) for v in s.sigmas]


@torch.no_grad()
def sample(a, net, vae, texts, dev, seed):
    """Pictures by a plain Euler loop: a look while training, not the judge."""
    ids, used = (torch.from_numpy(x).to(dev).int() for x in encode_texts(models.tokenizer(a.tokenizer), texts))
    noise = torch.randn(len(texts), 64, 64, device=dev, generator=torch.Generator(dev).manual_seed(seed))
    out = [None] * len(texts)
    for length in LENGTHS:
        at = [i for i, n in enumerate(used.tolist()) if length - models.STEP < n <= length]
        if not at:
            continue
        tables, x = models.rope_tables(net.te, net.dit, length, dev), noise[at]
        with demo.amp(dev):
            for s, n in zip(sigmas(a.sampler_steps), sigmas(a.sampler_steps)[1:]):
                v = net(x, torch.full((len(at),), s, device=dev), ids[at][:, :length], used[at], tables)
                x = x + (n - s) * v.float()
            z = models.unpack(x, 16, 16) / vae.config.scaling_factor + vae.config.shift_factor
            for i, picture in zip(at, demo.to_u8(vae.decode(z).sample)):
                out[i] = picture
    return np.stack(out)


def train(a, dev, latents, ids, used, vae, test):
    """ids [K, N, 96], used [K, N] int16. Writes WORK/net.pt: the averaged Net."""
    net = models.Net(models.build_text(models.tokenizer(a.tokenizer).get_vocab_size()), models.build_transformer()).to(dev)
    path = os.path.join(a.work, "net.pt")
    if os.path.exists(path):
        net.load_state_dict(torch.load(path, map_location="cpu"))
        say("going on from net.pt")
    idle = {id(p) for p in [*net.te.layers[-1].parameters(), *net.te.norm.parameters(), net.dit.x_pad_token]}
    params = [p for p in net.parameters() if id(p) not in idle]
    ema = copy.deepcopy(net).requires_grad_(False)
    averaged = [e for p, e in zip(net.parameters(), ema.parameters()) if id(p) not in idle]
    matrices = [p for n, p in net.named_parameters() if p.ndim == 2 and id(p) not in idle and "adaLN" not in n and
                ("layers." in n or "_refiner." in n)]
    chosen = {id(p) for p in matrices}
    opt = Optimiser(matrices, [p for p in params if id(p) not in chosen], weight_decay=0.02)
    grads = [p.grad for p in params]
    say("parameters:", {"text": sum(p.numel() for p in net.te.parameters()), "dit": sum(p.numel() for p in net.dit.parameters())})
    blank_ids, blank_used = encode_texts(models.tokenizer(a.tokenizer), [""])
    blank_ids, blank_used = torch.from_numpy(blank_ids[0]).to(dev).int(), int(blank_used[0])

    def make(length):
        where = ((used > length - models.STEP) & (used <= length)).view(-1).nonzero()[:, 0]
        share = len(where) / used.numel()
        if not len(where):
            return share, None
        tables = models.rope_tables(net.te, net.dit, length, dev)

        def forward(x0, c, n):
            torch._foreach_zero_(grads)
            b = x0.shape[0]
            r = torch.rand(3, b, device=dev)
            c, n = c.int(), n.int()
            if length == LENGTHS[0]:
                blank = r[0] < 0.05
                c, n = torch.where(blank[:, None], blank_ids[:length], c), torch.where(blank, blank_used, n)
            t = torch.sigmoid(0.7 + 1.2 * torch.randn(b, device=dev))
            t = torch.where(r[1] < 0.2, r[2], t)
            x0 = x0.float()
            noise = torch.randn_like(x0)
            with demo.amp(dev):
                v = net(x0 + t[:, None, None] * (noise - x0), t, c, n, tables)
            loss = F.mse_loss(v.float(), noise - x0)
            loss.backward()
            return loss.detach()

        flat_ids, flat_used, scenes_count = ids.view(-1, ids.shape[2]), used.view(-1), latents.shape[0]

        def draw():
            i = where[torch.randint(len(where), (a.batch,), device=dev)]
            return latents[i % scenes_count], flat_ids[i][:, :length], flat_used[i]

        graphed = Graphed(forward, draw(), say=say)
        say(f"captured {a.batch} x {length}, {100 * share:.1f} % of the captions")
        return share, lambda: graphed(*draw())

    made = [m for m in map(make, LENGTHS) if m[1]]
    weights, steps_of = [m[0] for m in made], [m[1] for m in made]
    rng = random.Random(a.seed)
    look = lambda n=100: demo.tally(sample(a, ema, vae, test[2][:n], dev, 1), test[0][:n], test[1][:n])
    demo.run_steps(a, lambda step: rng.choices(steps_of, weights)[0](), opt, params, averaged,
                   lambda: demo.save(ema.state_dict(), path), look)


def stage_dit(a, dev, background, codes, test):
    collect = demo.start_captions(a, a.tokenizer, caption_chunk, background, codes)
    vae = load_vae(a, dev)
    latents = demo.cached_latents(dev, vae, models.pack, background, codes)
    train(a, dev, latents, *collect(dev), vae, test)


def finish(a, dev, test):
    from diffusers import ZImagePipeline

    net = models.Net(models.build_text(models.tokenizer(a.tokenizer).get_vocab_size()), models.build_transformer())
    net.load_state_dict(torch.load(os.path.join(a.work, "net.pt"), map_location="cpu"))
    folder = os.path.join(a.work, "demo-zimage")
    say("exported", models.export(folder, a.tokenizer, net), "bytes")
    os.makedirs(os.path.join(a.work, "demo-flux"), exist_ok=True)  # where the export's link points
    shutil.copytree(a.vae, os.path.join(a.work, "demo-flux", "vae"), dirs_exist_ok=True)
    pipe = ZImagePipeline.from_pretrained(folder, torch_dtype=torch.bfloat16).to(dev)
    pipe.set_progress_bar_config(disable=True)
    background, codes, texts = test
    images = []
    for i in range(0, len(texts), 50):
        n = min(50, len(texts) - i)
        g = [torch.Generator("cpu").manual_seed(i + k) for k in range(n)]
        images += [np.array(im) for im in pipe(list(texts[i:i + n]), width=128, height=128, generator=g, guidance_scale=0.0,
                                               num_inference_steps=a.sampler_steps).images]
        demo.sheet(images, os.path.join(a.work, "sheet-zimage.png"))
    right, why = demo.tally(images, background, codes)
    say(f"RESULT: {right} of {len(texts)} held-out prompts right in bf16 on {dev}, {a.sampler_steps} steps, wrong: {why}")


def main():
    a = arguments()
    if a.stage == "tokenizer":
        rng = random.Random(1)
        background, codes = scenes.train_table(6000)
        texts = [scenes.caption(rng, background[i], codes[i], phrasing=i % scenes.PHRASINGS) for i in range(len(codes))]
        return models.make_tokenizer(a.source, a.tokenizer, [models.template(t) for t in texts + [t.lower() for t in texts]])
    os.makedirs(a.work, exist_ok=True)
    random.seed(a.seed)
    torch.manual_seed(a.seed)
    background, codes = scenes.train_table(a.scenes)
    assert not scenes.held_out(codes).any()
    say(a.stage, "training table", scenes.table_digest(background, codes))
    test = demo.test_set(a)
    dev = torch.device("cpu" if not torch.cuda.is_available() else "cuda")
    torch.backends.cuda.enable_cudnn_sdp(False)
    torch.backends.cuda.matmul.allow_tf32 = True
    (stage_dit if a.stage == "dit" else finish)(*((a, dev, background, codes, test) if a.stage == "dit" else (a, dev, test)))
    say("all done")


if __name__ == "__main__":
    main()
