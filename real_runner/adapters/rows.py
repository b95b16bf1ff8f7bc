"""What masks say: the rows that a trace keeps of a text, and the candidates of a round."""

from collections.abc import Iterator

import torch
from torch import Tensor

from simlab.draft import Marginals
from simlab.real_runner.adapters.gated import GatedAdapter
from simlab.real_runner.adapters.masked import mask_states, read_texts
from simlab.real_runner.drafters.draft_rows import blocks_per_pass, columns_of
from simlab.real_runner.drafters.kept import KeptCandidates
from simlab.real_runner.drafters.ranked import CandidatesRead, first_marginals
from simlab.real_runner.targets.model import Target
from simlab.traces.format.records import DraftColumns


def mask_columns(
    adapter: GatedAdapter, target: Target, tokens: Tensor, prompt_length: int, kept: KeptCandidates
) -> DraftColumns:
    """The target's own rows at every root of one text, each made of the text before its root.

    Args:
        adapter: and its target.
        target: see there.
        tokens: int64 ``[P + T]``, prompt and text.
        prompt_length: P, at least 1.
        kept: how many candidates.

    Raises:
        ModelError: the logits are not numbers.
    """
    roots = torch.arange(prompt_length, len(tokens) - 1, device=tokens.device)
    return columns_of(_passes(adapter, target, tokens, roots), None, adapter.config.depth, tokens, kept)


@torch.inference_mode()
def _passes(adapter: GatedAdapter, target: Target, tokens: Tensor, roots: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The roots of each pass, and float32 logits ``[R, k, V]``."""
    if len(roots) == 0:
        return
    # Behind the last root's token there is nothing to be seen, and that token is not seen either.
    texts = read_texts(target, tokens[None, : int(roots[-1])])
    for some in roots.split(_roots_per_pass(adapter, target, len(tokens))):
        states = mask_states(target, adapter, texts, some[None] - 1)[0]
        yield some, mask_logits(target, states)


def _roots_per_pass(adapter: GatedAdapter, target: Target, num_tokens: int) -> int:
    return blocks_per_pass(target.config.num_attention_heads, adapter.config.num_masks, num_tokens)


def mask_logits(target: Target, states: Tensor) -> Tensor:
    """float32 logits ``[..., V]`` of the states of masks ``[..., H]``, after the final norm."""
    # One contiguous matrix: see `simlab.real_runner.drafters.dense.logits_of`.
    return target.logits(states.reshape(-1, states.shape[-1])).view(*states.shape[:-1], -1)


class LiveMasks:
    """The masks behind the last token before the root of one text that is being written.

    A round whose last token carries none leaves the next root without a draft.
    """

    def __init__(self, target: Target, read: CandidatesRead) -> None:
        """Begin without a draft.

        Args:
            target: that drafts for itself.
            read: what is given at each depth.
        """
        self._target, self._wanted = target, read
        self._states: Tensor | None = None
        self._is_drafted = False

    def take(self, states: Tensor | None) -> None:
        """Keep the states ``[k, H]`` of the masks behind the last token before the next root; None: it carries none."""
        self._is_drafted = states is not None
        self._states = self._states if states is None else states

    def rewind(self) -> None:
        """The next root has a draft: the last one that was made."""
        self._is_drafted = self._states is not None

    @torch.inference_mode()
    def marginals(self) -> Marginals | None:
        """The first candidates at each depth below the root; None where it has no draft.

        Raises:
            ModelError: the logits are not numbers.
        """
        if not self._is_drafted or self._states is None:
            return None
        return first_marginals(mask_logits(self._target, self._states), self._wanted)
