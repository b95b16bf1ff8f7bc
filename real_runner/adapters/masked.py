"""Masks behind tokens of texts that are known, in passes of their own: how a target drafts at many places at once.

A mask behind an anchor sees the text up to that anchor, and the masks between the two; it stands where the token stands
that it is in place of, and predicts the one behind. So the k masks behind the token at position p say what follows the
token at p + 1, without having seen that token: they are the draft below it as a root.

Letters: S sequences, C tokens of each, G anchors of each, k masks behind each, H hidden size, E key-value heads, F head
size.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn
from transformers.cache_utils import Cache, DynamicLayer

from simlab.real_runner.adapters.gated import GatedAdapter, MaskRows, adapted
from simlab.real_runner.drafters.dense import BlockStates
from simlab.real_runner.targets.model import Target
from simlab.tree import DraftTree

MASK = -1
"""Stands for the token of a mask in a tree: no token of any text, so that it is no sibling of one."""


class _ReadLayer(DynamicLayer):
    """One layer's keys and values of texts; what a pass adds to them is gone with the pass."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.length = 0
        self.text: tuple[Tensor, Tensor] | None = None

    def get_seq_length(self) -> int:
        return self.length

    def update(
        self, key_states: Tensor, value_states: Tensor, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        if self.text is None:
            self.text, self.length = (key_states, value_states), key_states.shape[2]
            return self.text
        keys, values = self.text
        return torch.cat([keys, key_states], dim=2), torch.cat([values, value_states], dim=2)


@dataclass(frozen=True, slots=True, eq=False)
class ReadTexts:
    """Texts that the target has read.

    Attributes:
        states: ``[S, C, H]``, after the final norm.
        cache: keys and values of all of their tokens, which no pass changes any more.
    """

    states: Tensor
    cache: Cache


def read_texts(target: Target, ids: Tensor) -> ReadTexts:
    """Read texts, int64 ``[S, C]``, right-padded with any token."""
    cache = Cache(layers=[_ReadLayer() for _ in range(len(target.layers))])
    return ReadTexts(target.states(ids, cache), cache)


def mask_states(target: Target, adapter: GatedAdapter, texts: ReadTexts, anchors: Tensor) -> Tensor:
    """States ``[S, G, k, H]``, after the final norm, of masks; arguments as of `mask_block_states`."""
    return mask_block_states(target, adapter, texts, anchors).after.view(*anchors.shape, adapter.config.num_masks, -1)


def mask_block_states(target: Target, adapter: GatedAdapter, texts: ReadTexts, anchors: Tensor) -> BlockStates:
    """States ``[S G, k, H]`` of the masks behind some tokens of each text, before and after the final norm.

    Args:
        target: and its adapter.
        adapter: see there.
        texts: that it has read.
        anchors: int64 ``[S, G]``, absolute positions.
    """
    s, g = anchors.shape
    k, device = adapter.config.num_masks, anchors.device
    num_rows = g * k
    masks = mask_rows(0, g, k).to(device)
    behind = anchors.repeat_interleave(k, dim=1)
    sees_text = torch.arange(texts.states.shape[1], device=device) <= behind[..., None]
    sees_masks = groups_visible(g, k, device).expand(s, -1, -1)
    visible = torch.cat([sees_text, sees_masks], dim=-1)[:, None]
    with adapted(target, adapter, masks), before_norm(target) as before:
        after = target.states(
            torch.zeros(s, num_rows, dtype=torch.int64, device=device),
            texts.cache,
            visible,
            behind + 1 + masks.slots,
        )
    return BlockStates(*(states.reshape(s * g, k, -1) for states in (before[-1], after)))


@contextmanager
def before_norm(target: Target) -> Iterator[list[Tensor]]:
    """Collect the states ``[S, L, H]`` of passes before the final norm, one for each pass."""
    taken: list[Tensor] = []

    def keep(_module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        taken.append(inputs[0].to(target.device))

    handle = final_norm(target).register_forward_pre_hook(keep)
    try:
        yield taken
    finally:
        handle.remove()


def final_norm(target: Target) -> nn.Module:
    """What stands behind the target's last layer."""
    norm: nn.Module = target.model.get_decoder().get_submodule("norm")
    return norm


def with_masks(tree: DraftTree, num_carriers: int, num_masks: int) -> DraftTree:
    """A tree with masks below its first nodes, a chain below each: they see the node, those above it and each other.

    Args:
        tree: of N + 1 nodes, which stay as they are.
        num_carriers: so many of them, the root first, carry masks.
        num_masks: k, behind each.

    Returns:
        N + 1 + num_carriers x k nodes; masks stand behind all others, node by node, with the token `MASK`.
    """
    first, num_rows = tree.num_nodes, num_carriers * num_masks
    parents = np.arange(first - 1, first + num_rows - 1, dtype=np.int32)
    parents[::num_masks] = np.arange(num_carriers)
    tokens = np.full(num_rows, MASK, np.int32)
    return DraftTree(np.concatenate([tree.tokens, tokens]), np.concatenate([tree.parents, parents]))


def mask_rows(first: int, num_groups: int, num_masks: int) -> MaskRows:
    """The rows of groups of k masks that stand one behind the other, from a row on."""
    rows = torch.arange(first, first + num_groups * num_masks)
    return MaskRows(rows, torch.arange(num_masks).repeat(num_groups))


def groups_visible(num_groups: int, size: int, device: torch.device) -> Tensor:
    """bool ``[G k, G k]``: each mask sees those of its own group up to itself."""
    own = torch.ones(size, size, dtype=torch.bool, device=device).tril()
    visible: Tensor = torch.block_diag(*[own] * num_groups)
    return visible
