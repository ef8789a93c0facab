"""demo_zimage.py - the demo checkpoint in Z-Image's shape: tokenizer, text encoder and transformer built with the
published classes, the forward passes that train them, and the export in the published layout.

A real Z-Image in miniature: head dim 128 with axes 32/48/48, QK norm, refiners, the chat template, captions padded to
multiples of 32. Its VAE is demo-flux's: both families share the class, so the folder links to it.
The forward passes are the modules' own, a batch of equal padded lengths at a time, without lists and masks, so that a
step can be captured (`demo_zimage.py QWEN3_DIR` compares them with the modules'). Easy to get wrong: the encoder's
output is the input of its last layer, so one layer of two works; the transformer gets 1 - sigma and answers with minus
the velocity; pad tokens attend.
"""

import os
import shutil
import sys

import torch
import torch.nn.functional as F

import demo_text
from make_tiny_zimage import cut_tokenizer, write, write_frame

GRID = 8  # image tokens a side at 128 x 128
STEP = 32
TRANSFORMER = dict(all_patch_size=[2], all_f_patch_size=[1], in_channels=16, dim=128, n_layers=5, n_refiner_layers=1,
                   n_heads=1, n_kv_heads=1, norm_eps=1e-5, qk_norm=True, cap_feat_dim=64, rope_theta=256.0,
                   t_scale=1000.0, axes_dims=[32, 48, 48], axes_lens=[1536, 512, 512])
QWEN3 = dict(hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
             head_dim=128, hidden_act="silu", rms_norm_eps=1e-6, max_position_embeddings=4096, attention_bias=False,
             tie_word_embeddings=True, use_sliding_window=False)


# --- tokenizer ---

def make_tokenizer(source, out, texts):
    """The published file cut to what `texts` need."""
    full = tokenizer(source)
    words = {w for t in texts for w, _ in full.pre_tokenizer.pre_tokenize_str(full.normalizer.normalize_str(t))}
    cut_tokenizer(source, out, sorted(words | {"user", "assistant", "\u010a\u010a"}))
    cut = tokenizer(out)
    for text in texts:
        assert cut.encode(text).tokens == full.encode(text).tokens, text


def template(text):
    return f"<|im_start|>user\n{text}<|im_end|>\n<|im_start|>assistant\n"


def tokenizer(folder):
    from tokenizers import Tokenizer

    return Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))


# --- modules ---

def build_text(vocab):
    from transformers import Qwen3Config, Qwen3Model

    te = Qwen3Model(Qwen3Config(vocab_size=vocab, **QWEN3, rope_parameters={"rope_type": "default", "rope_theta": 1e6},
                                attn_implementation="eager")).eval()
    with torch.no_grad():
        te.embed_tokens.weight.normal_()
    return te


def build_transformer():
    from diffusers import ZImageTransformer2DModel

    dit = ZImageTransformer2DModel(**TRANSFORMER)
    for name, m in dit.named_modules():  # every modulated block starts as the identity
        if isinstance(m, torch.nn.Linear):
            if m.bias is not None:
                torch.nn.init.zeros_(m.bias)
            if "adaLN" in name or "final_layer" in name:
                torch.nn.init.zeros_(m.weight)
            elif name.startswith("t_embedder"):
                torch.nn.init.normal_(m.weight, std=0.02)
            else:
                torch.nn.init.xavier_uniform_(m.weight)
    return dit


def rope_tables(te, dit, length, device):
    """What does not depend on the prompt: the encoder's cos and sin [L, 128], the transformer's angles of the caption
    [1, L, 64] and of the picture [1, 64, 64], complex."""
    at = torch.arange(length, device=device)
    inverse = 1.0 / 1e6 ** (torch.arange(0, QWEN3["head_dim"], 2, device=device).float() / QWEN3["head_dim"])
    angle = torch.cat([at[:, None] * inverse] * 2, -1)
    zero = torch.zeros_like(at)
    caption = dit.rope_embedder(torch.stack([at + 1, zero, zero], -1))
    y, x = torch.meshgrid(torch.arange(GRID, device=device), torch.arange(GRID, device=device), indexing="ij")
    picture = dit.rope_embedder(torch.stack([torch.full_like(y, length + 1), y, x], -1).view(-1, 3))
    return angle.cos(), angle.sin(), caption[None], picture[None]


def turn(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def text_forward(te, ids, tables):
    """Input of the last layer [B, L, 64]; causal, so what stands after a caption does not matter to it."""
    b, n = ids.shape
    x = demo_text.look_up(ids, te.embed_tokens.weight)
    for layer in te.layers[:-1]:
        a = layer.self_attn
        h = layer.input_layernorm(x)
        q, k = (norm(w(h).view(b, n, -1, QWEN3["head_dim"])).transpose(1, 2)
                for w, norm in ((a.q_proj, a.q_norm), (a.k_proj, a.k_norm)))
        v = a.v_proj(h).view(b, n, -1, QWEN3["head_dim"]).transpose(1, 2)
        q, k = (turn(t.float(), *tables[:2]).to(v.dtype) for t in (q, k))
        repeat = QWEN3["num_attention_heads"] // QWEN3["num_key_value_heads"]
        o = F.scaled_dot_product_attention(q, k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1), is_causal=True)
        x = x + a.o_proj(o.transpose(1, 2).reshape(b, n, -1)).float()
        x = x + layer.mlp(layer.post_attention_layernorm(x)).float()
    return x


def dit_forward(dit, x, sigma, text, used, tables):
    """Velocity of tokens x [B, 64, 64] at sigma [B]; text [B, L, 64], of which the first used [B] are the caption."""
    c = dit.t_embedder((1 - sigma) * dit.t_scale).float()
    x = dit.all_x_embedder["2-1"](x).float()
    for block in dit.noise_refiner:
        x = block(x, None, tables[3], c)
    e = dit.cap_embedder(text).float()
    pad = torch.arange(e.shape[1], device=e.device)[None] >= used[:, None]
    e = torch.where(pad[..., None], dit.cap_pad_token, e)
    for block in dit.context_refiner:
        e = block(e, None, tables[2])
    u, angles = torch.cat([x, e], 1), torch.cat([tables[3], tables[2]], 1)
    for block in dit.layers:
        u = block(u, None, angles, c)
    return -dit.all_final_layer["2-1"](u[:, :x.shape[1]], c=c)


class Net(torch.nn.Module):
    def __init__(self, te, dit):
        super().__init__()
        self.te, self.dit = te, dit

    def forward(self, x, sigma, ids, used, tables):
        return dit_forward(self.dit, x, sigma, text_forward(self.te, ids, tables), used, tables)


def pack(z):
    """Latents [B, 16, Y, X] -> tokens [B, Y/2 * X/2, 64], the transformer's order: the channel runs fastest."""
    b, c, y, x = z.shape
    return z.view(b, c, y // 2, 2, x // 2, 2).permute(0, 2, 4, 3, 5, 1).reshape(b, y * x // 4, c * 4)


def unpack(tokens, y, x):
    b = tokens.shape[0]
    return tokens.view(b, y // 2, x // 2, 2, 2, 16).permute(0, 5, 1, 3, 2, 4).reshape(b, 16, y, x)


# --- export ---

def export(folder, tokenizer_folder, net):
    """Writes the published layout in BF16, with the VAE as a link. Returns bytes without it."""
    shutil.rmtree(folder, ignore_errors=True)
    bf16 = lambda m, prefix="": {prefix + k: v.to("cpu", torch.bfloat16) for k, v in m.state_dict().items()}
    shutil.copytree(tokenizer_folder, os.path.join(folder, "tokenizer"))
    write(folder, "text_encoder", "model.safetensors", bf16(net.te, "model."),
          dict(QWEN3, vocab_size=net.te.config.vocab_size, architectures=["Qwen3ForCausalLM"], model_type="qwen3",
               rope_theta=1000000, rope_scaling=None, sliding_window=None, torch_dtype="bfloat16"))
    write(folder, "transformer", "diffusion_pytorch_model.safetensors", bf16(net.dit),
          {"_class_name": "ZImageTransformer2DModel", "_diffusers_version": "0.36.0.dev0", **TRANSFORMER})
    write_frame(folder, "../demo-flux/vae")
    files = [os.path.join(r, f) for r, _, fs in os.walk(folder) for f in fs]
    return sum(os.path.getsize(f) for f in files if not os.path.islink(f))


def check(source):
    """The written-out passes against the modules' own."""
    import tempfile

    texts = ["a small red circle in the centre on white", "On a gray background: a big cyan disc, a tiny box at the top left."]
    with tempfile.TemporaryDirectory() as d, torch.no_grad():
        make_tokenizer(source, d, texts)
        t = tokenizer(d)
        te, dit = build_text(t.get_vocab_size()), build_transformer().eval()
        for p in list(te.parameters()) + list(dit.parameters()):
            p.add_(0.1 * torch.randn_like(p))
        rows = [t.encode(template(x)).ids for x in texts]
        z, sigma = torch.randn(len(texts), 16, 2 * GRID, 2 * GRID), torch.tensor([0.3, 0.9])
        for i, ids in enumerate(rows):
            length = (len(ids) + STEP - 1) // STEP * STEP
            tables = rope_tables(te, dit, length, "cpu")
            mine = text_forward(te, torch.tensor([ids + [0] * (length - len(ids))]), tables)
            theirs = te(torch.tensor([ids]), output_hidden_states=True).hidden_states[-2]
            v = unpack(dit_forward(dit, pack(z[i:i + 1]), sigma[i:i + 1], mine, torch.tensor([len(ids)]), tables), 16, 16)[0]
            w = -dit([z[i][:, None]], 1 - sigma[i:i + 1], [theirs[0]], return_dict=False)[0][0][:, 0]
            for name, a, b in (("text", mine[:, :len(ids)], theirs), ("velocity", v, w)):
                print(name, float((a - b).abs().max() / b.abs().max()))
                assert (a - b).abs().max() < 1e-4 * b.abs().max(), name
    print("parameters:", {"text": sum(p.numel() for p in te.parameters()), "dit": sum(p.numel() for p in dit.parameters())})


if __name__ == "__main__":
    check(sys.argv[1])
