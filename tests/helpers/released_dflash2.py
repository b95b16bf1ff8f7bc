"""Checkpoints of DFlash 2, made by the released class with random weights, for the tiny target."""

import json
from pathlib import Path
from typing import Any, Protocol, cast

import torch
from released_dflash import Released, model
from safetensors.torch import load_file, save_file
from tiny_models import drafter_config
from torch import Tensor, nn
from transformers import Qwen3Config

from simlab.real_runner.checkpoints.zlab import config_to_json

RANK, TOP_K = 6, 5
OWN = {
    "selector_rank": RANK,
    "selector_top_k": TOP_K,
    "conv_kernel_size": 3,
    "conv_group_size": 4,
    "input_embedding_scale": 1.5,
    "final_logit_softcapping": 3.0,
    "output_multiplier": 0.7,
}


@torch.no_grad()
def make_dflash2(folder: Path, seed: int = 0, own: dict[str, object] | None = None) -> Path:
    """A checkpoint as z-lab's are: codebooks under names without their last part."""
    fields = config_to_json(drafter_config())
    inner = cast(dict[str, object], fields["dflash_config"]) | (OWN if own is None else own)
    said: dict[str, Any] = fields | {"dflash_config": inner, "architectures": ["DFlash2DraftModel"]}
    config = Qwen3Config(**said)
    config._attn_implementation = "eager"
    made: nn.Module = model.DFlash2DraftModel(config)
    generator = torch.Generator().manual_seed(seed)
    for parameter in made.parameters():
        around, spread = (1.0, 0.3) if parameter.dim() == 1 else (0.0, 1.2 * parameter.shape[-1] ** -0.5)
        parameter.copy_(around + spread * torch.randn(parameter.shape, generator=generator))
    cast(Any, made).save_pretrained(folder)
    path = folder / "model.safetensors"
    tensors = load_file(path)
    save_file({name.replace("_codebook.weight", "_codebook"): one for name, one in tensors.items()}, path)
    assert json.loads((folder / "config.json").read_text())["dflash_config"]["selector_rank"] == RANK
    return folder


class Selecting(Released, Protocol):
    """What is used of the class with a selector."""

    def compute_logits(self, hidden: Tensor, head: nn.Module) -> Tensor: ...

    def propose(self, hidden: Tensor, anchors: Tensor, head: nn.Module, temperature: float) -> tuple[Tensor, ...]: ...


def released_dflash2(folder: Path) -> Selecting:
    """The released class, loaded the way its own script does."""
    found: Selecting = model.DFlash2DraftModel.from_pretrained(folder, dtype=torch.float32).eval()
    return found
