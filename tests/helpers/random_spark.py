"""Checkpoints of DSpark with random weights, in the layout of released ones, for the tiny target."""

import json
from pathlib import Path

import torch
from safetensors.torch import save_file
from tiny_models import HIDDEN_SIZE, drafter_config

from simlab.real_runner.checkpoints.zlab import config_to_json
from simlab.real_runner.drafters.config import Markov

RANK = 6


def make_spark(folder: Path, kind: str = "gated", seed: int = 0, *, confidence: bool = True, **own: object) -> Path:
    """A drafter and its heads; ``own`` are further fields of ``config.json``, None leaves one out."""
    plain = drafter_config()
    fields = config_to_json(plain) | {"architectures": ["Qwen3DSparkModel"]} | own
    said = {"markov_rank": RANK, "markov_head_type": kind}
    inner = fields["dflash_config"]
    assert isinstance(inner, dict)
    fields["dflash_config"] = {**inner, **{name: one for name, one in said.items() if name not in own}}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({name: one for name, one in fields.items() if one is not None}))
    rank, size = Markov(RANK, kind == "gated"), HIDDEN_SIZE
    shapes = dict(plain.shapes())
    shapes |= {f"markov_head.markov_w{number}.weight": (plain.vocab_size, RANK) for number in (1, 2)}
    if rank.is_gated:
        shapes |= {"markov_head.gate_proj.weight": (RANK, size + RANK), "markov_head.gate_proj.bias": (RANK,)}
    if confidence:
        shapes |= {"confidence_head.proj.weight": (1, size + RANK), "confidence_head.proj.bias": (1,)}
    generator = torch.Generator().manual_seed(seed)
    tensors = {}
    for name, shape in shapes.items():
        around, spread = (1.0, 0.3) if name.endswith("norm.weight") else (0.0, 1.2 * shape[-1] ** -0.5)
        tensors[name] = around + spread * torch.randn(shape, generator=generator)
    for number in (1, 2):
        tensors[f"markov_head.markov_w{number}.weight"] *= 3
    save_file(tensors, folder / "model.safetensors")
    return folder
