#!/usr/bin/env python3
"""Writes a diffusers folder of LTX-2 as one file in the original layout: names, order of blocks and __metadata__.config as
Lightricks publishes them. Standard library alone; tensors' bytes are copied.

    python3 scripts/single_ltx2.py FOLDER OUT.safetensors [--prefix model.diffusion_model.] [--drop NAME] [--no-config]

Each name is made from diffusers' by hand-written rules and then read back by the replacements that diffusers'
scripts/convert_ltx2_to_diffusers.py makes, in its order and by its substrings: what does not come back is an error. The
replacements are written here a second time on purpose: they share nothing with src/models/ltx2_single_names.c.

Easy to get wrong: the multiplier of an encoder's block is no ratio of the tiny folder's widths (8 of 16); ditto reads widths
from the tensors, so the config carries the published 2.
"""
import argparse
import json
import os
import re
import struct

CONNECTORS = {"video_embeddings_connector": "video_connector", "audio_embeddings_connector": "audio_connector",
              "transformer_1d_blocks": "transformer_blocks", "q_norm": "norm_q", "k_norm": "norm_k"}
TRANSFORMER = {"patchify_proj": "proj_in", "audio_patchify_proj": "audio_proj_in",
               "av_ca_video_scale_shift_adaln_single": "av_cross_attn_video_scale_shift",
               "av_ca_a2v_gate_adaln_single": "av_cross_attn_video_a2v_gate",
               "av_ca_audio_scale_shift_adaln_single": "av_cross_attn_audio_scale_shift",
               "av_ca_v2a_gate_adaln_single": "av_cross_attn_audio_v2a_gate",
               "scale_shift_table_a2v_ca_video": "video_a2v_cross_attn_scale_shift_table",
               "scale_shift_table_a2v_ca_audio": "audio_a2v_cross_attn_scale_shift_table", "q_norm": "norm_q", "k_norm": "norm_k"}
VAE = {"down_blocks.0": "down_blocks.0", "down_blocks.1": "down_blocks.0.downsamplers.0", "down_blocks.2": "down_blocks.1",
       "down_blocks.3": "down_blocks.1.downsamplers.0", "down_blocks.4": "down_blocks.2",
       "down_blocks.5": "down_blocks.2.downsamplers.0", "down_blocks.6": "down_blocks.3",
       "down_blocks.7": "down_blocks.3.downsamplers.0", "down_blocks.8": "mid_block", "up_blocks.0": "mid_block",
       "up_blocks.1": "up_blocks.0.upsamplers.0", "up_blocks.2": "up_blocks.0", "up_blocks.3": "up_blocks.1.upsamplers.0",
       "up_blocks.4": "up_blocks.1", "up_blocks.5": "up_blocks.2.upsamplers.0", "up_blocks.6": "up_blocks.2",
       "res_blocks": "resnets", "per_channel_statistics.mean-of-means": "latents_mean",
       "per_channel_statistics.std-of-means": "latents_std"}
VOCODER = {"ups": "upsamplers", "resblocks": "resnets", "conv_pre": "conv_in", "conv_post": "conv_out"}


def back(part, name):
    """As the converter reads the name of a file: text_embedding_projection is the pipeline's own rename."""
    if part == "connectors" and name.startswith("text_embedding_projection.aggregate_embed."):
        return "text_proj_in." + name.rsplit(".", 1)[1]
    name = name.removeprefix("vae.") if part == "vae" else name.removeprefix(part + ".")
    table = {"connectors": CONNECTORS, "transformer": TRANSFORMER, "vae": VAE, "audio_vae": {k: VAE[k] for k in list(VAE)[-2:]},
             "vocoder": VOCODER}[part]
    for old, new in table.items():
        name = name.replace(old, new)
    if part == "transformer" and name.startswith("adaln_single."):
        name = name.replace("adaln_single.", "time_embed.")
    if part == "transformer" and name.startswith("audio_adaln_single."):
        name = name.replace("audio_adaln_single.", "audio_time_embed.")
    return name


def original(part, name):
    if part == "connectors":
        name = re.sub(r"^text_proj_in", "text_embedding_projection.aggregate_embed", name)
        name = re.sub(r"^(video|audio)_connector\.", r"\1_embeddings_connector.", name)
        return re.sub(r"norm_([qk])\.", r"\1_norm.", name.replace(".transformer_blocks.", ".transformer_1d_blocks."))
    if part == "transformer":
        name = re.sub(r"^(audio_|)proj_in\.", r"\1patchify_proj.", name)
        name = re.sub(r"^(audio_|)time_embed\.", r"\1adaln_single.", name)
        name = re.sub(r"^av_cross_attn_(video|audio)_scale_shift\.", r"av_ca_\1_scale_shift_adaln_single.", name)
        name = re.sub(r"^av_cross_attn_(?:video|audio)_(a2v|v2a)_gate\.", r"av_ca_\1_gate_adaln_single.", name)
        name = re.sub(r"(video|audio)_a2v_cross_attn_scale_shift_table$", r"scale_shift_table_a2v_ca_\1", name)
        return re.sub(r"norm_([qk])\.", r"\1_norm.", name)
    if part == "vocoder":
        name = re.sub(r"^upsamplers", "ups", name)
        name = re.sub(r"^resnets", "resblocks", name)
        return "vocoder." + re.sub(r"^conv_out", "conv_post", re.sub(r"^conv_in", "conv_pre", name))
    name = re.sub(r"^latents_(mean|std)$", r"per_channel_statistics.\1-of-means", name)
    if part == "vae":
        odd = lambda m: f"{m[1]}_blocks.{2 * int(m[2]) + 1}."
        name = re.sub(r"(up|down)_blocks\.(\d+)\.(?:up|down)samplers\.0\.", odd, name)
        name = re.sub(r"up_blocks\.(\d+)\.resnets", lambda m: f"up_blocks.{2 * int(m[1]) + 2}.res_blocks", name)
        name = re.sub(r"down_blocks\.(\d+)\.resnets", lambda m: f"down_blocks.{2 * int(m[1])}.res_blocks", name)
        name = name.replace("decoder.mid_block.resnets", "decoder.up_blocks.0.res_blocks")
        name = name.replace("encoder.mid_block.resnets", "encoder.down_blocks.8.res_blocks")
    return part + "." + name


def config_of(c):
    """__metadata__.config, as section 2.0 of the published files has it."""
    t, v, a, o, n = c["transformer"], c["vae"], c["audio_vae"], c["vocoder"], c["connectors"]
    kinds = {"spatial": "compress_space", "temporal": "compress_time", "spatiotemporal": "compress_all"}
    blocks = lambda layers, between: [x for i, k in enumerate(layers) for x in
                                      [["res_x", {"num_layers": k}], *between[i:i + 1]]]
    down = [[kinds[k] + "_res", {"multiplier": 2}] for k in v["downsample_type"]]
    up = [[kinds[k], {"residual": r, "multiplier": f}] for k, r, f in
          zip(reversed(v["upsample_type"]), v["upsample_residual"], v["upsample_factor"])]
    same = ("num_layers in_channels out_channels num_attention_heads attention_head_dim cross_attention_dim caption_channels "
            "audio_out_channels audio_num_attention_heads audio_attention_head_dim audio_cross_attention_dim activation_fn "
            "norm_elementwise_affine norm_eps attention_bias rope_type timestep_scale_multiplier").split()
    return {
        "transformer": {**{k: t[k] for k in same}, "qk_norm": "rms_norm", "standardization_norm": "rms_norm",
                        "frequencies_precision": "float64", "positional_embedding_type": "rope",
                        "positional_embedding_theta": t["rope_theta"], "use_middle_indices_grid": True,
                        "positional_embedding_max_pos": [t["pos_embed_max_pos"], t["base_height"], t["base_width"]],
                        "audio_positional_embedding_max_pos": [t["audio_pos_embed_max_pos"]],
                        "av_ca_timestep_scale_multiplier": float(t["cross_attn_timestep_scale_multiplier"]),
                        "causal_temporal_positioning": True, "av_cross_ada_norm": True, "use_embeddings_connector": True,
                        "connector_num_attention_heads": n["video_connector_num_attention_heads"],
                        "connector_attention_head_dim": n["video_connector_attention_head_dim"],
                        "connector_num_layers": n["video_connector_num_layers"],
                        "connector_num_learnable_registers": n["video_connector_num_learnable_registers"],
                        "connector_positional_embedding_max_pos": [n["connector_rope_base_seq_len"]],
                        "connector_norm_output": True},
        "vae": {"_class_name": "CausalVideoAutoencoder", "dims": 3, "in_channels": v["in_channels"],
                "out_channels": v["out_channels"], "latent_channels": v["latent_channels"], "patch_size": v["patch_size"],
                "norm_layer": "pixel_norm", "causal_decoder": v["decoder_causal"],
                "spatial_padding_mode": v["decoder_spatial_padding_mode"],
                "encoder_blocks": blocks(v["layers_per_block"], down),
                "decoder_blocks": blocks(v["decoder_layers_per_block"], up)},
        "audio_vae": {"model": {"params": {"ddconfig": {
            "double_z": True, "mel_bins": a["mel_bins"], "z_channels": a["latent_channels"], "resolution": a["resolution"],
            "in_channels": a["in_channels"], "out_ch": a["output_channels"], "ch": a["base_channels"], "ch_mult": a["ch_mult"],
            "num_res_blocks": a["num_res_blocks"], "attn_resolutions": [], "dropout": 0.0, "mid_block_add_attention": False,
            "norm_type": a["norm_type"], "causality_axis": a["causality_axis"]}, "sampling_rate": a["sample_rate"]}},
            "preprocessing": {"stft": {"hop_length": a["mel_hop_length"]}}},
        "vocoder": {"upsample_initial_channel": o["hidden_channels"], "resblock": "1", "upsample_rates": o["upsample_factors"],
                    "upsample_kernel_sizes": o["upsample_kernel_sizes"], "resblock_kernel_sizes": o["resnet_kernel_sizes"],
                    "resblock_dilation_sizes": o["resnet_dilations"], "stereo": True,
                    "output_sample_rate": o["output_sampling_rate"]}}


def tensors(folder):
    """name -> (entry, bytes), of the one file that a tiny part has."""
    names = [f for f in os.listdir(folder) if f.endswith(".safetensors")]
    with open(os.path.join(folder, names[0]), "rb") as f:
        size, = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(size)), f.read()
    return {k: (v, data[slice(*v["data_offsets"])]) for k, v in header.items() if k != "__metadata__"}


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("folder")
    p.add_argument("out")
    p.add_argument("--prefix", default="model.diffusion_model.")
    p.add_argument("--drop", help="leave this tensor out")
    p.add_argument("--set", action="append", default=[], metavar="SECTION.KEY=JSON", help="in __metadata__.config; null removes it")
    p.add_argument("--no-config", action="store_true")
    p.add_argument("--dtype", help="of one tensor more: F8_E4M3 makes a file that ditto refuses")
    a = p.parse_args()
    configs, header, data = {}, {}, []
    for part in ("connectors", "transformer", "vae", "audio_vae", "vocoder"):
        with open(os.path.join(a.folder, part, "config.json")) as f:
            configs[part] = json.load(f)
        for name, (entry, content) in tensors(os.path.join(a.folder, part)).items():
            own = original(part, name)
            if back(part, own) != name:
                raise SystemExit(f"{part}: {name} becomes {own}, which diffusers reads as {back(part, own)}")
            if part in ("connectors", "transformer") and not own.startswith("text_embedding_projection."):
                own = a.prefix + own
            if own in header:
                raise SystemExit(f"{own}: twice")
            if own == a.drop:
                continue
            at = sum(map(len, data[-1:])) + (header[list(header)[-1]]["data_offsets"][0] if header else 0)
            header[own] = {"dtype": entry["dtype"], "shape": entry["shape"], "data_offsets": [at, at + len(content)]}
            data.append(content)
    at = sum(map(len, data))                    # statistics that the published files hold and nobody reads
    header["vae.per_channel_statistics.channel"] = {"dtype": "BF16", "shape": [2], "data_offsets": [at, at + 4]}
    data.append(bytes(4))
    if a.dtype:
        header["vae.per_channel_statistics.channel"] = {"dtype": a.dtype, "shape": [4], "data_offsets": [at, at + 4]}
    config = config_of(configs)
    for text in a.set:
        path, value = text.split("=", 1)
        at, (*way, key) = config, path.split(".")
        for k in way:
            at = at.setdefault(k, {})
        at[key] = json.loads(value)
        if at[key] is None:
            del at[key]
    meta = {} if a.no_config else {"config": json.dumps(config), "model_version": "2.0"}
    text = json.dumps({"__metadata__": meta, **header}).encode()
    text += b" " * (-len(text) % 8)
    with open(a.out, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + b"".join(data))


if __name__ == "__main__":
    main()
