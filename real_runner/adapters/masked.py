"""Masks behind tokens of texts that are known, in passes of their own: how a target drafts at many places at once.

A mask behind an anchor sees the text up to that anchor, and the masks between the two; it stands where the token stands
that it is in place of, and predicts the one behind. So the k masks behind the token at position p say what follows the
token at p + 1, without having seen that token: they are the draft below it as a root.

Letters: S sequences, C tokens of each, G anchors of each, k masks behind each, H hidden size, E key-value heads, F head
size.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from transformers.cache_utils import Cache, DynamicLayer

from simlab.real_runner.adapters.gated import GatedAdapter, MaskRows, adapted
from simlab.real_runner.targets.model import Target


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
    layers: Sequence[_ReadLayer] = [_ReadLayer() for _ in range(len(target.layers))]
    cache = Cache(layers=list(layers))
    return ReadTexts(target.states(ids, cache), cache)


def mask_states(target: Target, adapter: GatedAdapter, texts: ReadTexts, anchors: Tensor) -> Tensor:
    """States ``[S, G, k, H]``, after the final norm, of the masks behind some tokens of each text.

    Args:
        target: and its adapter.
        adapter: see there.
        texts: that it has read.
        anchors: int64 ``[S, G]``, absolute positions.
    """
    s, g = anchors.shape
    k, device = adapter.config.num_masks, anchors.device
    num_rows = g * k
    masks = MaskRows(torch.arange(num_rows, device=device), torch.arange(k, device=device).repeat(g))
    behind = anchors.repeat_interleave(k, dim=1)
    sees_text = torch.arange(texts.states.shape[1], device=device) <= behind[..., None]
    sees_masks = groups_visible(g, k, device).expand(s, -1, -1)
    visible = torch.cat([sees_text, sees_masks], dim=-1)[:, None]
    with adapted(target, adapter, masks):
        states = target.states(
            torch.zeros(s, num_rows, dtype=torch.int64, device=device),
            texts.cache,
            visible,
            behind + 1 + masks.slots,
        )
    return states.view(s, g, k, -1)


def groups_visible(num_groups: int, size: int, device: torch.device) -> Tensor:
    """bool ``[G k, G k]``: each mask sees those of its own group up to itself."""
    own = torch.ones(size, size, dtype=torch.bool, device=device).tril()
    return torch.block_diag(*[own] * num_groups)
