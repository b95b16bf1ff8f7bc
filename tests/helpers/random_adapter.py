"""Gated adapters of random weights, in memory and on disk, for the random and the tiny models of the tests."""

import json
from pathlib import Path

import torch

from simlab.real_runner.networks.adapter.config import AdapterConfig
from simlab.real_runner.networks.adapter.gated import GatedAdapter, MaskRows, adapted, config_for, save_adapter
from simlab.real_runner.networks.adapter.noise import Noise
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target


def adapter_config(target: Target, num_masks: int = 3, rank: int = 4, noise: Noise | None = None) -> AdapterConfig:
    """A small adapter of a target."""
    return config_for(target, num_masks, rank, 6.0, noise)


def random_adapter(target: Target, seed: int = 0, num_masks: int = 3, noise: Noise | None = None) -> GatedAdapter:
    """Every weight drawn anew, large enough that each of them matters; in the target's dtype."""
    generator = torch.Generator().manual_seed(seed)
    adapter = GatedAdapter(adapter_config(target, num_masks, 4, noise), target)
    for parameter in adapter.eval().requires_grad_(False).parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator) * parameter.shape[1] ** -0.5)
    return adapter.to(target.dtype)


@torch.no_grad()
def masks_alone(target: Target, adapter: GatedAdapter, text: torch.Tensor, anchor: int) -> torch.Tensor:
    """States ``[k, H]``: the text up to a token, and masks in the places behind it, in one causal pass."""
    num_masks = adapter.config.num_masks
    ids = torch.cat([text[: anchor + 1], torch.zeros(num_masks, dtype=torch.int64)])[None]
    masks = MaskRows(torch.arange(anchor + 1, anchor + 1 + num_masks), torch.arange(num_masks))
    with adapted(target, adapter, masks):
        return target.states(ids)[0, anchor + 1 :]


def make_adapter(folder: Path, target: Path, seed: int = 0, num_masks: int = 3, noise: Noise | None = None) -> Path:
    """An adapter for a target on disk."""
    loaded = load_target(str(target), torch.float32)
    save_adapter(random_adapter(loaded, seed, num_masks, noise=noise), loaded.name, folder, torch.float32)
    return folder


def as_released(place: Path) -> Path:
    """The same adapter as UNO's are released: without what simlab writes into its fields."""
    path = place / "adapter_config.json"
    fields = json.loads(path.read_text())
    released: dict[str, object] = {
        "megatron_core": "megatron.core",
        "loftq_config": {},
        "modules_to_save": None,
        "use_dora": False,
    }
    path.write_text(json.dumps({name: fields[name] for name in fields if not name.startswith("simlab")} | released))
    return place
