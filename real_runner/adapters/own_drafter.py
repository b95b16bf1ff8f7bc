"""A target that drafts for itself, as a network that goes on from a drafter's states sees it."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from simlab.real_runner.adapters.gated import GatedAdapter
from simlab.real_runner.adapters.masked import final_norm, mask_block_states, read_texts
from simlab.real_runner.drafters.dense import BlockStates
from simlab.real_runner.targets.model import Target


@dataclass(frozen=True, slots=True)
class OwnConfig:
    """Sizes of a target that drafts for itself, see `simlab.real_runner.drafters.dense.OutputConfig`."""

    hidden_size: int
    num_attention_heads: int
    block_size: int
    vocab_size: int
    draft_vocab_size: int | None = None
    output_multiplier: float = 1.0
    final_logit_softcapping: float | None = None

    @property
    def depth(self) -> int:
        """D, a position for each mask."""
        return self.block_size - 1


@dataclass(frozen=True, slots=True, eq=False)
class OwnDrafter:
    """The masks of a target, whose norm, embedding and output head are the target's own.

    Attributes:
        adapter: of the target.
        target: that drafts for itself.
    """

    adapter: GatedAdapter
    target: Target

    @property
    def config(self) -> OwnConfig:
        """The sizes of the target and the adapter."""
        sizes = self.target.config
        block_size = self.adapter.config.block_size
        return OwnConfig(sizes.hidden_size, sizes.num_attention_heads, block_size, self.target.vocab_size)

    @property
    def norm(self) -> nn.Module:
        """The norm behind the target's last layer."""
        return final_norm(self.target)

    @property
    def embed_tokens(self) -> None:
        """None: the embedding is the target's."""

    @property
    def lm_head(self) -> None:
        """None: the output head is the target's."""

    @property
    def vocabulary(self) -> None:
        """None: that of the target."""

    def states(self, tokens: Tensor, roots: Tensor) -> BlockStates:
        """States ``[S G, k, H]`` of the masks behind the token before each root.

        Args:
            tokens: int64 ``[S, C]``, texts; what stands at a root and behind it is not read.
            roots: int64 ``[S, G]``, absolute positions, at least 1.
        """
        return mask_block_states(self.target, self.adapter, read_texts(self.target, tokens), roots - 1)

    @torch.inference_mode()
    def draft_states(self, tokens: Tensor, roots: Tensor, per_pass: int) -> Iterator[tuple[Tensor, BlockStates]]:
        """The states at many roots of one text, as `simlab.real_runner.drafters.dense.draft_states` yields them.

        Args:
            tokens: int64 ``[L]``, the whole text.
            roots: int64 ``[R]``, rising, at least one.
            per_pass: bounds the memory of a pass.
        """
        texts = read_texts(self.target, tokens[None, : int(roots[-1])])
        for some in roots.split(per_pass):
            yield some, mask_block_states(self.target, self.adapter, texts, some[None] - 1)
