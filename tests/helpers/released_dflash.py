"""The released DFlash class beside ours, with random weights."""

from pathlib import Path
from typing import Protocol, cast

import pytest
import torch
from torch import Tensor
from transformers import DynamicCache

from simlab.real_runner.drafters.config import DFlashConfig
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.networks.drafter import load_drafter

model = pytest.importorskip("dflash.model", reason="dflash 0.1.0 is not installed: pip install --no-deps dflash==0.1.0")


ALLOWED = 1e-4


def random_drafter(config: DFlashConfig, seed: int = 0) -> DFlashDrafter:
    """Every weight drawn anew, norms too, large enough that each of them matters."""
    generator = torch.Generator().manual_seed(seed)
    drafter = DFlashDrafter(config).eval().requires_grad_(False)
    for parameter in drafter.parameters():
        around, spread = (1.0, 0.3) if parameter.dim() == 1 else (0.0, 1.5 * parameter.shape[1] ** -0.5)
        parameter.copy_(around + spread * torch.randn(parameter.shape, generator=generator))
    return drafter


class Released(Protocol):
    """What is used of the authors' class, which comes without types."""

    config: object
    block_size: int
    mask_token_id: int
    target_layer_ids: list[int]

    def save_pretrained(self, folder: Path) -> None: ...

    def __call__(
        self,
        *,
        target_hidden: Tensor,
        noise_embedding: Tensor,
        position_ids: Tensor,
        past_key_values: DynamicCache | None,
        use_cache: bool,
    ) -> Tensor: ...


def theirs(folder: Path) -> Released:
    """The authors' class, loaded the way their own script does."""
    return cast(Released, model.DFlashDraftModel.from_pretrained(folder, dtype=torch.float32).eval())


def their_block(
    drafter: Released, features: Tensor, embedded: Tensor, start: int, cache: DynamicCache | None = None
) -> Tensor:
    """One block of theirs: features that are not in the cache yet, then root and masks at ``start``."""
    positions = torch.arange(start - features.shape[1], start + embedded.shape[1])[None]
    with torch.inference_mode():
        return drafter(
            target_hidden=features,
            noise_embedding=embedded,
            position_ids=positions,
            past_key_values=cache,
            use_cache=cache is not None,
        )


def check_growing_cache(folder: Path, committed: tuple[int, ...]) -> None:
    """Blocks of a text that grows by so many tokens a round are theirs, with their cache and its protocol."""
    ours, released = load_drafter(folder, torch.float32), theirs(folder)
    cache = model._make_cache(released.config)
    features = drawn(1, 60, 3 * ours.config.hidden_size, seed=3)
    known, start, context = 0, 9, None
    for number, num in enumerate(committed):
        new = features[:, known:start]
        embedded = drawn(1, 1, ours.config.block_size, ours.config.hidden_size, seed=10 + number)
        added = ours.context(new, known)
        context = added if context is None else context.extended(added)
        mine = ours(embedded, torch.tensor([[start]]), context)
        assert context.length == start
        assert_close(mine[0], their_block(released, new, embedded[0], start, cache))
        model._crop_to(cache, start)
        known, start = start, start + num


def drawn(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def assert_close(ours: Tensor, other: Tensor) -> None:
    assert (ours - other).abs().max().item() < ALLOWED
