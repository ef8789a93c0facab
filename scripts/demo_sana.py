"""demo_sana.py - the demo checkpoint in SANA-Video's shape: tokenizer, text encoder, transformer and autoencoder built with
the published classes, the forward passes that train them, and the export in the published layout.

A real SANA-Video in miniature: the instruction in front of the prompt, linear attention with one head of 112, axes 40/36/36,
gated convolutions, DPM-Solver++, the Wan autoencoder of f8 and t4. Gemma-2 is random and stays so: its output is a fixed
encoding of the prompt's tokens, which the transformer learns to read. rope_max_seq_len 5 is the most that the
model was trained for: 17 frames, and 64 pixels a side, the pipeline wanting multiples of 32.
The forward passes are the modules' own without caches, masks and chunks, channels last, so that a step can be captured
(`demo_sana.py GEMMA2_DIR` compares them with the modules'). Easy to get wrong: patches go in with the channel slowest and
come out with it fastest; Wan's first frame is not halved and not doubled in time, and is no history of the doubling.
"""

import json
import os
import shutil
import sys

import torch
import torch.nn.functional as F

import demo_clips
from make_tiny_zimage import merges_used, write, write_json

LENGTH = 300                                    # max_sequence_length of the pipeline
GRID, TIMES = demo_clips.SIDE // 16, (demo_clips.FRAMES + 3) // 4
TRANSFORMER = dict(in_channels=16, out_channels=16, num_attention_heads=1, attention_head_dim=112, num_layers=6,
                   num_cross_attention_heads=2, cross_attention_head_dim=56, cross_attention_dim=112, caption_channels=48,
                   mlp_ratio=2.0, dropout=0.0, attention_bias=False, sample_size=30, patch_size=[1, 2, 2],
                   norm_elementwise_affine=False, norm_eps=1e-6, interpolation_scale=None, guidance_embeds=False,
                   guidance_embeds_scale=0.1, qk_norm="rms_norm_across_heads", rope_max_seq_len=TIMES)
GEMMA2 = dict(hidden_size=48, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
              head_dim=256, hidden_activation="gelu_pytorch_tanh", max_position_embeddings=8192, rms_norm_eps=1e-6,
              sliding_window=4096, query_pre_attn_scalar=256, attn_logit_softcapping=50.0, final_logit_softcapping=30.0,
              attention_bias=False, attention_dropout=0.0, pad_token_id=0, eos_token_id=1, bos_token_id=2)
VAE = dict(base_dim=8, z_dim=16, dim_mult=[1, 2, 4, 4], num_res_blocks=1, attn_scales=[],
           temperal_downsample=[False, True, True], dropout=0.0)
SCHEDULER = dict(_class_name="DPMSolverMultistepScheduler", _diffusers_version="0.40.0", num_train_timesteps=1000,
                 algorithm_type="dpmsolver++", solver_order=2, solver_type="midpoint", lower_order_final=True,
                 euler_at_final=False, final_sigmas_type="zero", prediction_type="flow_prediction", use_flow_sigmas=True,
                 flow_shift=3.0)
# <pad> to <unk>, the turns, runs of line ends and of blanks
KEEP_ADDED = ["<pad>", "<eos>", "<bos>", "<unk>", "<start_of_turn>", "<end_of_turn>", "\n", "\n\n", "\u2581\u2581"]


# --- tokenizer and text encoder ---

def instruction():
    import inspect

    from diffusers import SanaVideoPipeline

    return "\n".join(inspect.signature(SanaVideoPipeline.__call__).parameters["complex_human_instruction"].default)


def tokenizer(folder):
    from tokenizers import Tokenizer

    return Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))


def make_tokenizer(source, out, texts):
    """The published file cut to bytes, printable ASCII and the merges that the instruction and `texts` need. Merges that a
    text needs are needed whatever stands before it, up to the blank: a merge over one would show in the assertion."""
    full, front = tokenizer(source), instruction()
    with open(os.path.join(source, "tokenizer.json"), encoding="utf-8") as f:
        j = json.load(f)
    # A merge never joins what follows a blank to what precedes it, but for runs of blanks.
    words = {w for t in [front, *texts] for line in t.split("\n") for w in ("\u2581" + line.replace(" ", " \u2581")).split(" ")}
    words |= {w[1:] for w in words}
    pair = lambda m: m.split(" ") if isinstance(m, str) else m  # the file's older form is a string
    merges = merges_used(sorted(words), [pair(m) for m in j["model"]["merges"]])
    vocab = j["model"]["vocab"]
    single = [t for t in vocab if len(t) == 1 and (t == "\u2581" or 32 <= ord(t) < 127 or t == "\t")]
    bytes_ = [t for t in vocab if len(t) == 6 and t.startswith("<0x")]
    assert len(bytes_) == 255  # the tab is itself
    kept = KEEP_ADDED + sorted(set(bytes_ + single + ["".join(m) for m in merges]) - set(KEEP_ADDED), key=vocab.get)
    j["model"]["vocab"], j["model"]["merges"] = {t: i for i, t in enumerate(kept)}, merges
    j["added_tokens"] = [{**t, "id": kept.index(t["content"])} for t in j["added_tokens"] if t["content"] in KEEP_ADDED]
    assert len(j["added_tokens"]) == len(KEEP_ADDED) and kept[:4] == list(vocab)[:4]
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "tokenizer.json"), "w", encoding="utf-8") as f:
        json.dump(j, f, ensure_ascii=False)
        f.write("\n")
    with open(os.path.join(source, "tokenizer_config.json"), encoding="utf-8") as f:
        c = json.load(f)
    c["added_tokens_decoder"] = {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in j["added_tokens"]}
    c.pop("chat_template", None)
    with open(os.path.join(out, "tokenizer_config.json"), "w", encoding="utf-8") as f:
        json.dump(c, f, indent=1)
        f.write("\n")
    cut = tokenizer(out)
    for text in texts:
        for t in (text, front + text):
            assert cut.encode(t).tokens == full.encode(t).tokens, t
    return len(kept)


def build_text(vocab, seed=5):
    """Embeddings of standard deviation 2 behind Gemma's factor, so that each layer adds as much as a token holds."""
    from transformers import Gemma2Config, Gemma2Model

    te = Gemma2Model(Gemma2Config(vocab_size=vocab, **GEMMA2, rope_parameters={"rope_type": "default", "rope_theta": 10000.0},
                                  attn_implementation="eager")).eval()
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in te.named_parameters():
            scale = 2 / GEMMA2["hidden_size"] ** 0.5 if "embed" in name else p.shape[-1] ** -0.5 if p.ndim == 2 else 0.1
            p.copy_((torch.randn(p.shape, generator=g) * scale).bfloat16())
    return te


@torch.no_grad()
def encode_texts(te, folder, texts, instruct=True, batch=512):
    """What the pipeline gives the transformer: the first row and the last LENGTH - 1, of which the real ones come first.
    -> embeddings bf16 [N, R, 48] on te's device, zeros behind the real rows, and their numbers int64 [N]."""
    t, dev = tokenizer(folder), te.embed_tokens.weight.device
    front = instruction() if instruct else ""
    skip = len(t.encode(front).ids) - 1 if instruct else 1  # rows between the first and the prompt's
    rows = [e.ids for e in t.encode_batch([front + text for text in texts])]
    used = torch.tensor([max(1, len(r) - skip + 1) for r in rows])
    out = torch.zeros(len(rows), int(used.max()), GEMMA2["hidden_size"], dtype=torch.bfloat16, device=dev)
    for i in range(0, len(rows), batch):
        part = rows[i:i + batch]
        n = max(len(r) for r in part)
        ids = torch.tensor([r + [0] * (n - len(r)) for r in part], device=dev)
        mask = torch.tensor([[1] * len(r) + [0] * (n - len(r)) for r in part], device=dev)
        x = te(input_ids=ids, attention_mask=mask).last_hidden_state
        x = torch.cat([x[:, :1], x[:, skip:]], 1)[:, :out.shape[1]].to(torch.bfloat16)
        x = x * (torch.arange(x.shape[1]) < used[i:i + batch, None])[..., None].to(dev)
        out[i:i + len(part), :x.shape[1]] = x
    return out, used


# --- transformer ---

def build_transformer(layers=None):
    from diffusers import SanaVideoTransformer3DModel

    dit = SanaVideoTransformer3DModel(**{**TRANSFORMER, **({"num_layers": layers} if layers else {})})
    with torch.no_grad():
        for name, p in dit.named_parameters():  # every block starts as the identity
            if name.endswith("bias") or name.startswith(("time_embed.linear", "proj_out")) or "attn2.to_out" in name or \
                    "scale_shift_table" in name:
                p.zero_()
            elif name.startswith("time_embed") and p.ndim == 2:
                p.normal_(std=0.02)
            elif p.ndim >= 2 and "conv_depth" not in name and "conv_temp" not in name:
                torch.nn.init.xavier_uniform_(p.flatten(1))
            elif "conv_temp" in name:
                p.mul_(0.3)
    return dit


def matrices(dit):
    """Hidden matrices, for Muon; the other parameters."""
    hidden = [p for n, p in dit.named_parameters() if p.ndim >= 2 and "transformer_blocks" in n and
              "table" not in n and "conv_depth" not in n]
    chosen = {id(p) for p in hidden}
    return hidden, [p for p in dit.parameters() if id(p) not in chosen]


def patches(z):
    """Latents [B, C, T, Y, X] -> [B, T, Y/2 * X/2, C * 4], the channel slowest."""
    b, c, t, y, x = z.shape
    return z.reshape(b, c, t, y // 2, 2, x // 2, 2).permute(0, 2, 3, 5, 1, 4, 6).reshape(b, t, y * x // 4, c * 4)


def unpatches(p, y, x):
    b, t = p.shape[:2]
    return p.view(b, t, y // 2, x // 2, -1, 2, 2).permute(0, 4, 1, 2, 5, 3, 6).reshape(b, -1, t, y, x)


def rms(x, weight, eps=1e-5):
    x = x.float()
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def turn(x, cos, sin):
    a, b = x.unflatten(-1, (-1, 2)).unbind(-1)
    return torch.stack([a * cos - b * sin, a * sin + b * cos], -1).flatten(-2)


def tables(dit, device, t=TIMES, y=GRID, x=GRID):
    """What does not depend on the prompt: cos and sin [N, 1, head dim / 2], and the nine taps of a 3 x 3 convolution with zeros
    around y x x places, each as a matrix [9, places to, places from]."""
    cos, sin = dit.rope(torch.zeros(1, 1, t, 2 * y, 2 * x, device=device))
    places = torch.arange(y * x, device=device)
    row, col = places // x, places % x
    taps = [((row[None] - row[:, None] == dy) & (col[None] - col[:, None] == dx)).float()
            for dy in (-1, 0, 1) for dx in (-1, 0, 1)]
    return cos[0, :, :, 0::2].to(device), sin[0, :, :, 1::2].to(device), torch.stack(taps)


def linear_attention(a, x, cos, sin):
    b, n, _ = x.shape
    q, k = (F.relu(rms(w(x), norm.weight)).view(b, n, a.heads, -1) for w, norm in ((a.to_q, a.norm_q), (a.to_k, a.norm_k)))
    v = a.to_v(x).view(b, n, a.heads, -1)
    with torch.autocast(x.device.type, enabled=False):
        qr, kr = turn(q, cos, sin).transpose(1, 2), turn(k, cos, sin).transpose(1, 2)
        z = 1 / ((q * k.sum(1, keepdim=True)).sum(-1, keepdim=True) + 1e-15)
        o = (qr @ (kr.mT @ v.float().transpose(1, 2))).transpose(1, 2) * z
    return a.to_out[0](o.flatten(2))


def cross_attention(a, x, text, bias):
    b, n, _ = x.shape
    head = lambda t: t.view(b, t.shape[1], a.heads, -1).transpose(1, 2)
    q, k = head(rms(a.to_q(x), a.norm_q.weight)), head(rms(a.to_k(text), a.norm_k.weight))
    p = torch.softmax((q @ k.mT).float() * q.shape[-1] ** -0.5 + bias, -1)
    return a.to_out[0]((p @ head(a.to_v(text))).transpose(1, 2).flatten(2))


def gated_convolution(f, x, taps, frames):
    b, n, c = x.shape
    places = n // frames
    h = F.silu(F.linear(x, f.conv_inverted.weight.flatten(1), f.conv_inverted.bias))
    filters = (f.conv_depth.weight.flatten(1) @ taps.flatten(1)).view(-1, places, places)
    h = h.view(b * frames, places, -1).permute(2, 1, 0)          # [channels, places, pictures]
    h = torch.baddbmm(f.conv_depth.bias.to(h.dtype)[:, None, None], filters.to(h.dtype), h).permute(2, 1, 0)
    h, gate = h.chunk(2, -1)
    h = F.linear(h * F.silu(gate), f.conv_point.weight.flatten(1)).view(b, frames, places, c)
    before, after = F.pad(h[:, :-1], (0, 0, 0, 0, 1, 0)), F.pad(h[:, 1:], (0, 0, 0, 0, 0, 1))
    taps3 = f.conv_temp.weight[..., 0].permute(0, 2, 1).flatten(1)
    return (h + F.linear(torch.cat([before, h, after], -1), taps3)).flatten(1, 2)


def dit_forward(dit, x, sigma, text, bias, table):
    """Velocity of patches x [B, T, P, 4 C] at sigma [B], in their order. text [B, L, 48]; bias [B, 1, 1, L]: 0, or a large
    negative number behind the caption."""
    cos, sin, taps = table
    b, frames = x.shape[:2]
    norm = lambda t, eps=1e-6: F.layer_norm(t.float(), t.shape[-1:], eps=eps)
    h = F.linear(x.flatten(1, 2), dit.patch_embedding.weight.flatten(1), dit.patch_embedding.bias).float()
    mods, embedded = dit.time_embed(sigma * 1000, batch_size=b, hidden_dtype=torch.float32)
    mods, embedded = mods.float().view(b, 6, -1), embedded.float()
    text = rms(dit.caption_projection(text), dit.caption_norm.weight)
    for block in dit.transformer_blocks:
        m = (block.scale_shift_table + mods)[:, :, None].unbind(1)
        h = h + m[2] * linear_attention(block.attn1, norm(h) * (1 + m[1]) + m[0], cos, sin)
        h = h + cross_attention(block.attn2, h, text, bias)
        h = h + m[5] * gated_convolution(block.ff, norm(h) * (1 + m[4]) + m[3], taps, frames)
    m = (dit.scale_shift_table + embedded[:, None])[:, :, None].unbind(1)
    order = lambda p: p.unflatten(0, (4, -1)).transpose(0, 1).flatten(0, 1)
    v = F.linear(norm(h) * (1 + m[1]) + m[0], order(dit.proj_out.weight), order(dit.proj_out.bias))
    return v.view(x.shape)


def text_bias(used, rows):
    return ((torch.arange(rows, device=used.device) >= used[:, None]) * -10000.0)[:, None, None]


# --- autoencoder ---

def build_vae(**values):
    from diffusers import AutoencoderKLWan

    return AutoencoderKLWan(**{**VAE, "latents_mean": [0.0] * VAE["z_dim"], "latents_std": [1.0] * VAE["z_dim"], **values})


def pictures(x, weight, bias=None, **options):
    """A convolution of every frame of x [B, T, Y, X, C]."""
    y = F.conv2d(x.flatten(0, 1).permute(0, 3, 1, 2), weight.contiguous(memory_format=torch.channels_last), bias, **options)
    return y.permute(0, 2, 3, 1).unflatten(0, x.shape[:2])


def over_time(m, stacked):
    """A convolution over three frames, which lie behind each other in the channels."""
    w = m.weight.permute(0, 2, 1, 3, 4).flatten(1, 2)
    return pictures(stacked, w, m.bias, padding=w.shape[-1] // 2)


def causal(m, x):
    if m.weight.shape[2] == 1:
        return pictures(x, m.weight[:, :, 0], m.bias, padding=m.weight.shape[-1] // 2)
    p = F.pad(x, (0, 0, 0, 0, 0, 0, 2, 0))
    return over_time(m, torch.cat([p[:, :-2], p[:, 1:-1], x], -1))


def wan_norm(m, x):
    return F.normalize(x.float(), dim=-1).to(x.dtype) * (m.scale * m.gamma.flatten()).to(x.dtype)


def resnet(m, x):
    y = causal(m.conv1, F.silu(wan_norm(m.norm1, x)))
    y = causal(m.conv2, F.silu(wan_norm(m.norm2, y)))
    return y + (causal(m.conv_shortcut, x) if hasattr(m.conv_shortcut, "weight") else x)


def middle(m, x):
    x = resnet(m.resnets[0], x)
    a = m.attentions[0]
    h = wan_norm(a.norm, x)
    q, k, v = pictures(h, a.to_qkv.weight, a.to_qkv.bias).flatten(2, 3).chunk(3, -1)
    p = torch.softmax((q @ k.mT).float() * q.shape[-1] ** -0.5, -1)
    x = x + pictures((p.to(v.dtype) @ v).view(h.shape), a.proj.weight, a.proj.bias)
    return resnet(m.resnets[1], x)


def down(m, x):
    x = pictures(F.pad(x, (0, 0, 0, 1, 0, 1)), m.resample[1].weight, m.resample[1].bias, stride=2)
    if m.mode != "downsample3d":
        return x
    halved = over_time(m.time_conv, torch.cat([x[:, :-2:2], x[:, 1:-1:2], x[:, 2::2]], -1))
    return torch.cat([x[:, :1], halved.to(x.dtype)], 1)


def up(m, x):
    if m.mode == "upsample3d":
        doubled = causal(m.time_conv, x[:, 1:]).unflatten(-1, (2, -1)).permute(0, 1, 4, 2, 3, 5).flatten(1, 2)
        x = torch.cat([x[:, :1], doubled.to(x.dtype)], 1)
    b, t, h, w, c = x.shape
    x = x[:, :, :, None, :, None].expand(b, t, h, 2, w, 2, c).reshape(b, t, 2 * h, 2 * w, c)
    return pictures(x, m.resample[1].weight, m.resample[1].bias, padding=1)


def vae_encode(vae, video):
    """video [B, F, Y, X, 3] -> mean, log variance f32 [B, T, Y/8, X/8, C]."""
    e = vae.encoder
    x = causal(e.conv_in, video)
    for m in e.down_blocks:
        x = resnet(m, x) if hasattr(m, "conv1") else down(m, x)
    x = causal(e.conv_out, F.silu(wan_norm(e.norm_out, middle(e.mid_block, x))))
    mean, logvar = causal(vae.quant_conv, x).float().chunk(2, -1)
    return mean, logvar.clamp(-30, 20)


def vae_decode(vae, z):
    d = vae.decoder
    x = middle(d.mid_block, causal(d.conv_in, causal(vae.post_quant_conv, z)))
    for block in d.up_blocks:
        for m in block.resnets:
            x = resnet(m, x)
        for m in block.upsamplers or []:
            x = up(m, x)
    return causal(d.conv_out, F.silu(wan_norm(d.norm_out, x))).float()


# --- export ---

def export(folder, tokenizer_folder, te, dit, vae):
    """Writes the published layout in BF16. -> bytes."""
    shutil.rmtree(folder, ignore_errors=True)
    bf16 = lambda m: {k: v.to("cpu", torch.bfloat16) for k, v in m.state_dict().items()}
    shutil.copytree(tokenizer_folder, os.path.join(folder, "tokenizer"))
    write(folder, "text_encoder", "model.safetensors", bf16(te),
          dict(GEMMA2, vocab_size=te.config.vocab_size, architectures=["Gemma2Model"], model_type="gemma2", rope_theta=10000.0,
               torch_dtype="bfloat16"))
    write(folder, "transformer", "diffusion_pytorch_model.safetensors", bf16(dit),
          {"_class_name": "SanaVideoTransformer3DModel", "_diffusers_version": "0.40.0", **TRANSFORMER,
           "num_layers": len(dit.transformer_blocks)})
    write(folder, "vae", "diffusion_pytorch_model.safetensors", bf16(vae),
          {"_class_name": "AutoencoderKLWan", "_diffusers_version": "0.40.0", **VAE,
           "latents_mean": list(vae.config.latents_mean), "latents_std": list(vae.config.latents_std)})
    write_json(os.path.join(folder, "scheduler"), "scheduler_config.json", SCHEDULER)
    write_json(folder, "model_index.json",
               {"_class_name": "SanaVideoPipeline", "_diffusers_version": "0.40.0",
                "scheduler": ["diffusers", "DPMSolverMultistepScheduler"], "text_encoder": ["transformers", "Gemma2Model"],
                "tokenizer": ["transformers", "GemmaTokenizerFast"],
                "transformer": ["diffusers", "SanaVideoTransformer3DModel"], "vae": ["diffusers", "AutoencoderKLWan"]})
    return sum(os.path.getsize(os.path.join(r, f)) for r, _, fs in os.walk(folder) for f in fs)


def load_pipeline(folder, dtype, device="cpu"):
    """diffusers' own pipeline, the autoencoder in f32 as documented."""
    from diffusers import AutoencoderKLWan, SanaVideoPipeline

    vae = AutoencoderKLWan.from_pretrained(folder, subfolder="vae", torch_dtype=torch.float32)
    pipe = SanaVideoPipeline.from_pretrained(folder, vae=vae, torch_dtype=dtype).to(device)
    pipe.set_progress_bar_config(disable=True)
    return pipe


def check(source):
    """The written-out passes against the modules' own, and the texts against the pipeline's."""
    import tempfile

    texts = ["a red circle moves right", "On a gray background a big cyan disc drifts upwards.".lower()]
    with tempfile.TemporaryDirectory() as tmp, torch.no_grad():
        tok, folder = os.path.join(tmp, "tok"), os.path.join(tmp, "out")
        te = build_text(make_tokenizer(source, tok, texts))
        dit, vae = build_transformer().eval(), build_vae().eval()
        for p in [*dit.parameters(), *vae.parameters()]:
            p.add_(0.1 * torch.randn_like(p))
        shown = {m: sum(p.numel() for p in v.parameters()) for m, v in (("text", te), ("dit", dit), ("vae", vae))}
        print("parameters:", shown, "bytes:", export(folder, tok, te, dit, vae))
        pipe = load_pipeline(folder, torch.float32)
        mine, used = encode_texts(te, tok, texts)
        blank, blank_used = encode_texts(te, tok, [""], instruct=False)
        e, m, ne, nm = pipe.encode_prompt(texts, True, negative_prompt=[""] * 2, complex_human_instruction=instruction().split("\n"), device="cpu")
        assert used.tolist() == m.sum(1).tolist() and blank_used.tolist() == nm[:1].sum(1).tolist(), (used, m.sum(1))
        compare = []
        for i, n in enumerate(used.tolist()):
            compare.append(("text", mine[i, :n].float(), e[i, :n]))
        compare.append(("blank", blank[0, :1].float(), ne[0, :1]))
        z, sigma = torch.randn(2, 16, TIMES, 2 * GRID, 2 * GRID), torch.tensor([0.3, 0.9])
        v = dit_forward(dit, patches(z), sigma, e[:, :30], text_bias(m.sum(1), 30), tables(dit, "cpu"))
        w = dit(z, encoder_hidden_states=e, timestep=sigma * 1000, encoder_attention_mask=m, return_dict=False)[0]
        compare.append(("velocity", unpatches(v, 2 * GRID, 2 * GRID), w))
        video = demo_clips.render(torch.tensor([0, 1]), torch.tensor([30, 99]))
        mean = vae_encode(vae, video)[0]
        compare.append(("encode", mean.permute(0, 4, 1, 2, 3), vae.encode(video.permute(0, 4, 1, 2, 3)).latent_dist.mean))
        y = vae.decode(mean.permute(0, 4, 1, 2, 3)).sample.permute(0, 2, 3, 4, 1)
        compare.append(("decode", vae_decode(vae, mean).clamp(-1, 1), y))
        for name, a, b in compare:
            bar = 0.02 if name in ("text", "blank") else 1e-4  # texts are kept in bf16
            print(name, tuple(a.shape), float((a - b).abs().max() / b.abs().max()))
            assert (a - b).abs().max() < bar * b.abs().max(), name


if __name__ == "__main__":
    check(sys.argv[1])
