"""demo_text.py - the forward passes of the demo's T5 and CLIP written out for training.

The same arithmetic as transformers' modules on the same parameters (checked by `python demo_text.py DIR`, DIR being the
cut tokenizers), without their masks, caches and hooks, so that a training step holds no host work. Embeddings are
one-hot products: their gradient is then a product too. Used for training only; scoring uses transformers' own code.
"""

import torch
import torch.nn.functional as F


def one_hot(ids, count):
    return (ids[..., None] == torch.arange(count, device=ids.device)).to(torch.float32)


def look_up(ids, table):
    return (one_hot(ids, table.shape[0]).to(torch.bfloat16 if ids.is_cuda else torch.float32) @ table).float()


def buckets(t5, length, device):
    """T5's relative position buckets [L, L]."""
    at = torch.arange(length, device=device)
    attention = t5.encoder.block[0].layer[0].SelfAttention
    return attention._relative_position_bucket(at[None, :] - at[:, None], bidirectional=True, num_buckets=32,
                                               max_distance=128)


def _rms(x, norm):
    return norm.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def t5_forward(t5, ids, bucket):
    b, n = ids.shape
    x = look_up(ids, t5.shared.weight)
    bias = None
    for block in t5.encoder.block:
        a, f = block.layer[0].SelfAttention, block.layer[1].DenseReluDense
        if bias is None:
            bias = look_up(bucket, a.relative_attention_bias.weight).permute(2, 0, 1)[None]
        h = _rms(x, block.layer[0].layer_norm)
        q, k, v = (w(h).view(b, n, a.n_heads, -1).transpose(1, 2) for w in (a.q, a.k, a.v))
        p = torch.softmax((q @ k.mT).float() + bias, -1)
        x = x + a.o((p.to(v.dtype) @ v).transpose(1, 2).reshape(b, n, -1)).float()
        h = _rms(x, block.layer[1].layer_norm)
        x = x + f.wo(F.gelu(f.wi_0(h), approximate="tanh") * f.wi_1(h)).float()
    return _rms(x, t5.encoder.final_layer_norm)


def clip_forward(clip, ids):
    m = getattr(clip, "text_model", clip)
    b, n = ids.shape
    x = look_up(ids, m.embeddings.token_embedding.weight) + m.embeddings.position_embedding.weight[:n]
    for layer in m.encoder.layers:
        a = layer.self_attn
        h = layer.layer_norm1(x)
        q, k, v = (w(h).view(b, n, a.num_heads, -1).transpose(1, 2) for w in (a.q_proj, a.k_proj, a.v_proj))
        o = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + a.out_proj(o.transpose(1, 2).reshape(b, n, -1)).float()
        h = layer.mlp.fc1(layer.layer_norm2(x))
        x = x + layer.mlp.fc2(h * torch.sigmoid(1.702 * h)).float()
    x = m.final_layer_norm(x)
    end = ids.argmax(1)  # the first <|endoftext|>, the largest id
    return x.gather(1, end[:, None, None].expand(b, 1, x.shape[2]))[:, 0]


if __name__ == "__main__":
    import sys

    import demo_models as models

    one, two = models.tokenizers(sys.argv[1])
    clip, t5 = models.build_text(len(one), len(two))
    with torch.no_grad():
        for p in list(clip.parameters()) + list(t5.parameters()):
            p.add_(0.1 * torch.randn_like(p))
        texts = ["a small red circle in the top left on a white background", "Black; cyan box large centre"]
        c = one(texts, padding="max_length", max_length=56, return_tensors="pt").input_ids
        e = two(texts, padding="max_length", max_length=128, return_tensors="pt").input_ids
        for name, x, y in (("t5", t5(input_ids=e)[0], t5_forward(t5, e, buckets(t5, 128, "cpu"))),
                           ("clip", clip(input_ids=c).pooler_output, clip_forward(clip, c))):
            print(name, float((x - y).abs().max() / x.abs().max()))
            assert (x - y).abs().max() < 1e-4 * x.abs().max()
