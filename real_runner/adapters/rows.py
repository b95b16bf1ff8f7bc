"""What masks say: the rows that a trace keeps of a text, and the candidates of a round."""

from collections.abc import Iterator

import torch
from torch import Tensor

from simlab.draft import Marginals
from simlab.real_runner.adapters.gated import GatedAdapter
from simlab.real_runner.adapters.own_drafter import OwnDrafter
from simlab.real_runner.drafters.dense import BlockStates, logits_of
from simlab.real_runner.drafters.kept import KeptCandidates
from simlab.real_runner.drafters.ranked import CandidatesRead, blocks_per_pass, columns_of, first_marginals
from simlab.real_runner.targets.model import Target
from simlab.traces.format.frames import DraftColumns


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
    """
    roots = torch.arange(prompt_length, len(tokens) - 1, device=tokens.device)
    return columns_of(_passes(adapter, target, tokens, roots), None, adapter.config.depth, tokens, kept)


def _passes(adapter: GatedAdapter, target: Target, tokens: Tensor, roots: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
    """The roots of each pass, and float32 logits ``[R, k, V]``."""
    own, per_pass = OwnDrafter(adapter, target), _roots_per_pass(adapter, target, len(tokens))
    for some, states in own.draft_states(tokens, roots, per_pass) if len(roots) else ():
        yield some, logits_of(own, target, states.after)


def _roots_per_pass(adapter: GatedAdapter, target: Target, num_tokens: int) -> int:
    return blocks_per_pass(target.config.num_attention_heads, adapter.config.num_masks, num_tokens)


class LiveMasks:
    """The masks behind the last token before the root of one text that is being written.

    A round whose last token carries none leaves the next root without a draft.
    """

    def __init__(self, own: OwnDrafter, read: CandidatesRead) -> None:
        """Begin without a draft.

        Args:
            own: the target that drafts for itself.
            read: what is given at each depth.
        """
        self._own, self._wanted = own, read
        self._states: BlockStates | None = None
        self._is_drafted = False

    def take(self, states: BlockStates | None) -> None:
        """Keep the states ``[1, k, H]`` of the masks behind the last token before the next root; None: it has none."""
        self._is_drafted = states is not None
        self._states = self._states if states is None else states

    def rewind(self) -> None:
        """The next root has a draft: the last one that was made."""
        self._is_drafted = self._states is not None

    @property
    def states(self) -> BlockStates | None:
        """Those of the draft below the root; None where it has none."""
        return self._states if self._is_drafted else None

    @torch.inference_mode()
    def marginals(self) -> Marginals | None:
        """The first candidates at each depth below the root; None where it has no draft."""
        if self.states is None:
            return None
        return first_marginals(logits_of(self._own, self._own.target, self.states.after)[0], self._wanted)
