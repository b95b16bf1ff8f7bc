"""Rows that are no masks are the target's own, bit for bit, whatever the adapter; and a fault in that is seen."""

import inspect
from dataclasses import replace

import numpy as np
import pytest
import random_trees
import torch
from random_adapter import random_adapter

from simlab.errors import ModelError
from simlab.real_runner.execution.fused_layers import Adapter
from simlab.real_runner.networks.adapter.config import AdapterConfig
from simlab.real_runner.networks.adapter.gated import GatedAdapter, MaskRows, adapted, config_for
from simlab.real_runner.targets.model import Target

VOCAB_SIZE, NUM_TEXT, NUM_GROUPS, NUM_MASKS = 23, 14, 4, 3
DTYPES = (torch.float32, torch.bfloat16)


def target_of(family: str, dtype: torch.dtype) -> Target:
    return random_trees.random_models(family, 1, VOCAB_SIZE, dtype).target


def masks_of() -> MaskRows:
    """Behind the text."""
    rows = torch.arange(NUM_TEXT, NUM_TEXT + NUM_GROUPS * NUM_MASKS)
    return MaskRows(rows, torch.arange(len(rows)) % NUM_MASKS)


def visible() -> torch.Tensor:
    """A text that sees itself alone, and groups of masks at some of its places."""
    num = NUM_TEXT + NUM_GROUPS * NUM_MASKS
    seen = torch.ones(num, num, dtype=torch.bool).tril()
    for group in range(NUM_GROUPS):
        first = NUM_TEXT + group * NUM_MASKS
        seen[first : first + NUM_MASKS, 3 * group + 1 : first] = False
    return seen[None, None]


def run(target: Target, adapter: GatedAdapter | None, masks: MaskRows, seen: torch.Tensor) -> torch.Tensor:
    """States of a pass of two texts, each with the masks behind it."""
    num = NUM_TEXT + NUM_GROUPS * NUM_MASKS
    ids = torch.from_numpy(np.random.default_rng(0).integers(0, VOCAB_SIZE, (2, num)))
    positions = torch.cat([torch.arange(NUM_TEXT), torch.arange(NUM_GROUPS * NUM_MASKS)])[None].expand(2, -1)
    with torch.no_grad():
        if adapter is None:
            return target.states(ids, None, seen, positions)
        with adapted(target, adapter, masks):
            return target.states(ids, None, seen, positions)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("family", random_trees.FAMILIES)
def test_text_rows_are_bit_for_bit_those_without_an_adapter(family: str, dtype: torch.dtype) -> None:
    target = target_of(family, dtype)
    without = run(target, None, masks_of(), visible())
    for seed in range(3):
        within = run(target, random_adapter(target, seed), masks_of(), visible())
        assert torch.equal(without[:, :NUM_TEXT], within[:, :NUM_TEXT])
        moved = (without[:, NUM_TEXT:] - within[:, NUM_TEXT:]).float().abs().amax(-1)
        assert float(moved.min()) > 1e-2, "a mask row was not changed"
    again = run(target, None, masks_of(), visible())
    assert torch.equal(again, without), "an adapter was left behind"


def test_what_stands_at_a_mask_as_a_token_is_not_read() -> None:
    target = target_of("qwen3", torch.float32)
    adapter = random_adapter(target)
    num = NUM_TEXT + NUM_GROUPS * NUM_MASKS
    found = []
    for token in (0, 7):
        ids = torch.full((1, num), 5)
        ids[:, NUM_TEXT:] = token
        with torch.no_grad(), adapted(target, adapter, masks_of()):
            found.append(target.states(ids, None, visible(), torch.arange(num)[None]))
    assert torch.equal(*found)


def test_a_new_adapter_changes_nothing_but_the_embeddings_of_masks() -> None:
    target = target_of("llama", torch.float32)
    fresh = GatedAdapter(config_for(target, NUM_MASKS, 4, 4.0), target)
    plain = [run(target, fresh, masks_of(), visible())]
    with torch.no_grad():
        for name, parameter in fresh.named_parameters():
            if "lora_A" in name:
                parameter.mul_(100)
    plain.append(run(target, fresh, masks_of(), visible()))
    assert torch.equal(*plain)


def test_another_target_is_refused() -> None:
    target = target_of("llama", torch.float32)
    config = config_for(target, NUM_MASKS, 4, 4.0)
    with pytest.raises(ModelError, match=r"digest of-another.*choose the target that it was trained for"):
        GatedAdapter(replace(config, target_digest="of-another"), target)
    for field, said in (("num_layers", "layers"), ("hidden_size", "hidden size"), ("vocab_size", "vocabulary")):
        with pytest.raises(ModelError, match=f"with {said} "):
            GatedAdapter(replace(config, **{field: 5}), target)  # type: ignore[arg-type]


def test_fewer_masks_are_the_first_ones() -> None:
    config = config_for(target_of("llama", torch.float32), NUM_MASKS, 4, 4.0)
    assert (config.with_block(2).num_masks, config.block_size) == (1, NUM_MASKS + 1)
    for size in (1, NUM_MASKS + 2):
        with pytest.raises(ModelError, match=f"blocks of 2 to {NUM_MASKS + 1}"):
            config.with_block(size)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"rank": 0}, "rank must be at least 1"),
        ({"num_masks": 65}, "num_masks must be at least 1 and at most 64"),
        ({"alpha": 0.0}, "alpha must be above 0"),
        ({"alpha": float("inf")}, "alpha must be above 0"),
    ],
)
def test_sizes_that_cannot_be_are_refused(changed: dict[str, float], said: str) -> None:
    sizes = {
        "rank": 4,
        "alpha": 4.0,
        "num_masks": 3,
        "target_digest": "x",
        "num_layers": 2,
        "hidden_size": 8,
        "vocab_size": 9,
    }
    with pytest.raises(ModelError, match=said):
        AdapterConfig(**(sizes | changed))  # type: ignore[arg-type]


def test_passes_that_are_captured_know_it_in_every_python() -> None:
    """From Python 3.12 on ``isinstance`` looks up without ``__getattr__``, behind which a module has its weights."""
    adapter = random_adapter(target_of("llama", torch.float32))
    members = [name for name in vars(Adapter) if not name.startswith("_")]
    assert {"masks", "change"} <= set(members)
    assert not getattr(Adapter, "__annotations__", {})
    assert all(callable(inspect.getattr_static(adapter, name)) for name in members)
