"""demo_spoil.py - copies of a demo checkpoint that are wrong on purpose: a scorer that still likes them is no test.

usage: demo_spoil.py OUT [weights/demo-flux | weights/demo-zimage | weights/demo-sana-video]
                                                            then: SPOILT=OUT tests/test_demo.sh

Writes OUT/NAME/ per fault, the faults of the checkpoint's own class; tensors keep names, shapes and dtypes, so that every one loads. Needs torch and safetensors.
Easy to get wrong: exchanging q with k only transposes the attention logits; it must go through all blocks to be a
fault that shows, and the RMS norms' weights stay where they are (their product is symmetric anyway).
"""

import json
import os
import shutil
import sys

import safetensors.torch as st
import torch


def edit(folder, part, change):
    sub = os.path.join(folder, part)
    path = os.path.join(sub, next(f for f in os.listdir(sub) if f.endswith(".safetensors")))
    tensors = st.load_file(path)
    change(tensors)
    st.save_file({k: v.contiguous() for k, v in tensors.items()}, path, metadata={"format": "pt"})


def edit_config(folder, part, **values):
    path = os.path.join(folder, part, "config.json")
    config = json.load(open(path))
    config.update(values)
    json.dump(config, open(path, "w"), indent=2)


def swap_qk(t):
    for name in list(t):
        for q, k in ((".to_q.", ".to_k."), (".add_q_proj.", ".add_k_proj.")):
            if q in name:
                t[name], t[name.replace(q, k)] = t[name.replace(q, k)], t[name]


def swap_halves(t):
    for name in ("norm_out.linear.weight", "norm_out.linear.bias"):
        t[name] = torch.cat(t[name].chunk(2)[::-1])


def zero_block(t):
    for name in t:
        if ".block.0." in name:
            t[name] = torch.zeros_like(t[name])


def negate_velocity(t):
    for name in ("all_final_layer.2-1.linear.weight", "all_final_layer.2-1.linear.bias"):
        t[name] = -t[name]


def zero_text(t):
    for name in t:
        if ".layers.0." in name and "norm" not in name:
            t[name] = torch.zeros_like(t[name])


def zero_gates(t):
    for name in t:
        if "adaLN_modulation" in name and name.startswith("layers."):
            t[name] = torch.zeros_like(t[name])


ZIMAGE = {
    "z_qk_swapped": lambda d: edit(d, "transformer", swap_qk),
    "z_velocity_negated": lambda d: edit(d, "transformer", negate_velocity),
    "z_gates_zeroed": lambda d: edit(d, "transformer", zero_gates),
    "z_text_layer_zeroed": lambda d: edit(d, "text_encoder", zero_text),
    "z_rope_axes_swapped": lambda d: edit_config(d, "transformer", axes_dims=[48, 48, 32]),
    "z_rope_theta": lambda d: edit_config(d, "transformer", rope_theta=10000.0),
}
def negate_out(t):
    for name in ("proj_out.weight", "proj_out.bias"):
        t[name] = -t[name]


def zero_gate_rows(t):
    """Of attention and of the convolution, in every block: rows 2 and 5 of six."""
    for name in t:
        if name.endswith("scale_shift_table") and t[name].shape[0] == 6 or name.startswith("time_embed.linear"):
            t[name].view(6, -1)[[2, 5]] = 0


def zero(*parts):
    def change(t):
        found = [name for name in t if any(p in name for p in parts)]
        assert found, parts
        for name in found:
            t[name] = torch.zeros_like(t[name])
    return change


SANA = {
    "s_velocity_negated": lambda d: edit(d, "transformer", negate_out),
    "s_gates_zeroed": lambda d: edit(d, "transformer", zero_gate_rows),
    "s_time_convolution_zeroed": lambda d: edit(d, "transformer", zero("conv_temp")),
    "s_caption_zeroed": lambda d: edit(d, "transformer", zero("caption_projection")),
    "s_embeddings_zeroed": lambda d: edit(d, "text_encoder", zero("embed_tokens")),
    "s_vae_time_zeroed": lambda d: edit(d, "vae", zero("time_conv")),
    "s_latents_published": lambda d: edit_config(d, "vae", latents_mean=WAN_MEAN, latents_std=WAN_STD),  # Wan 2.1's
}
WAN_MEAN = [-0.7571, -0.7089, -0.9113, 0.1075, -0.1745, 0.9653, -0.1517, 1.5508, 0.4134, -0.0715, 0.5517, -0.3632, -0.1922,
            -0.9497, 0.2503, -0.2921]
WAN_STD = [2.8184, 1.4541, 2.3275, 2.6558, 1.2196, 1.7708, 2.6052, 2.0743, 3.2687, 2.1526, 2.8652, 1.5579, 1.6382, 1.1253,
           2.8251, 1.9160]
FLUX = {
    "qk_swapped": lambda d: edit(d, "transformer", swap_qk),
    "norm_out_halves_swapped": lambda d: edit(d, "transformer", swap_halves),
    "t5_block_zeroed": lambda d: edit(d, "text_encoder_2", zero_block),
    "scaling_factor_published": lambda d: edit_config(d, "vae", scaling_factor=0.3611),  # FLUX.1's, not this VAE's
    "rope_axes_swapped": lambda d: edit_config(d, "transformer", axes_dims_rope=[56, 56, 16]),
}


def main():
    if len(sys.argv) not in (2, 3):
        sys.exit(__doc__)
    out, source = sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else "weights/demo-flux"
    pipeline = json.load(open(os.path.join(source, "model_index.json")))["_class_name"]
    for name, spoil in {"ZImagePipeline": ZIMAGE, "SanaVideoPipeline": SANA, "FluxPipeline": FLUX}[pipeline].items():
        folder = os.path.join(out, name)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(source, folder)
        spoil(folder)
        print(folder)


if __name__ == "__main__":
    main()
