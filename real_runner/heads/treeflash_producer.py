"""The channel of a TreeFlash head: transitions below the first tokens of its drafter."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from simlab.channels import Channel, TransitionRows
from simlab.policy import ChannelNeed
from simlab.real_runner.adapters.masked import OwnDrafter
from simlab.real_runner.drafters.dense import BlockStates, draft_states
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.drafters.ranked import blocks_per_pass
from simlab.real_runner.heads.base import base_candidates, base_of
from simlab.real_runner.heads.producer import Drafted, check_makes
from simlab.real_runner.heads.rows import HeadReach, HeadRows, head_rows, rows_of_depths
from simlab.real_runner.heads.treeflash import TreeFlashHead
from simlab.real_runner.targets.model import Target
from simlab.recorded import DraftRows
from simlab.traces.channels.columns import TransitionColumns

_NUMBERS_PER_PASS = 2**27
"""A pass holds a few copies of so many numbers between the head's matrices, or of its candidates' embeddings."""


@dataclass(frozen=True, slots=True, eq=False)
class TreeFlashProducer:
    """A head, the drafter and the target that it borrows from, and how far its rows reach.

    Attributes:
        head: and its drafter and target, whose embedding, norm and output head it borrows.
        drafter: see there; or the masks of a target that drafts for itself.
        target: see there.
        reach: as it was asked for; of a drafter with fewer tokens all are taken.
    """

    head: TreeFlashHead
    drafter: DFlashDrafter | OwnDrafter
    target: Target
    reach: HeadReach

    @property
    def kind(self) -> str:
        """The kind of a first-order head's channel."""
        return self.reach.kind

    @property
    def width(self) -> int:
        """Candidates of each depth of the drafter that it reads."""
        return self._own.width

    def within(self, need: ChannelNeed) -> "TreeFlashProducer":
        """This producer with no more rows, and no more tokens of a row, than a policy reads."""
        check_makes(need, self.kind, self.reach.settings(self.drafter.config.depth))
        least = dict(need.least)
        previous, top_k = least.get("previous", self.reach.previous), least.get("top_k", self.reach.top_k)
        return replace(self, reach=HeadReach(previous, top_k, self.reach.candidates))

    def at_root(self, drafted: Drafted) -> Channel:
        """The transitions at one root, in a round; see `Producer.at_root`."""
        root = np.array([drafted.root_token], np.int32)
        base = base_of(drafted.marginals, self.width)
        return head_rows(self.head, self.drafter, self.target, drafted.states, root, base, self._own).transitions.row(
            0, 0
        )

    def columns(self, features: Tensor, tokens: Tensor, rows: DraftRows) -> TransitionColumns:
        """The transitions at every root of one text; see `Producer.columns`."""
        return head_columns(self.head, self.drafter, self.target, features, tokens, rows, self._own)

    @property
    def _own(self) -> HeadReach:
        config = self.drafter.config
        return self.reach.within(config.draft_vocab_size or config.vocab_size)


def head_columns(
    head: TreeFlashHead,
    drafter: DFlashDrafter | OwnDrafter,
    target: Target,
    features: Tensor,
    tokens: Tensor,
    rows: DraftRows,
    reach: HeadReach,
) -> TransitionColumns:
    """What a head says below every root of one text.

    Args:
        head: and its drafter and target.
        drafter: see there.
        target: see there.
        features: ``[C, taps x H]``, tapped target states from position 0 on.
        tokens: int64 ``[P + T]``, prompt and text.
        rows: the recorded candidates at its ``T - 1`` roots, whose first ones stand above the head's rows.
        reach: tokens above, and of a row; no more than the drafter has.
    """
    num_roots, last, depth = len(rows.counts), len(tokens) - 1, drafter.config.depth
    if num_roots == 0:
        return _nothing(depth, reach)
    base = base_candidates(rows.ids, rows.log_probs, rows.counts, reach.width)
    roots = torch.arange(last - num_roots, last, device=tokens.device)
    ids = tokens.cpu().numpy().astype(np.int32)
    per_pass = min(
        blocks_per_pass(drafter.config.num_attention_heads, drafter.config.block_size, len(tokens)),
        _roots_per_pass(head, depth, reach),
    )
    parts, first = list[HeadRows](), 0
    for some, states in _states_at(drafter, target, features, tokens, roots, per_pass):
        part, place = base.part(first, first + len(some)), last - num_roots + first
        parts.append(head_rows(head, drafter, target, states, ids[place : place + len(some)], part, reach))
        first += len(some)
    return _joined(parts)


def _states_at(
    drafter: DFlashDrafter | OwnDrafter,
    target: Target,
    features: Tensor,
    tokens: Tensor,
    roots: Tensor,
    per_pass: int,
) -> Iterator[tuple[Tensor, BlockStates]]:
    if isinstance(drafter, OwnDrafter):
        return drafter.draft_states(tokens, roots, per_pass)
    return draft_states(drafter, target, features, tokens, roots, per_pass)


def _roots_per_pass(head: TreeFlashHead, depth: int, reach: HeadReach) -> int:
    between = sum(rows_of_depths(depth, reach)) * 2 * max(head.inner_size, head.hidden_size)
    embedded = depth * (reach.candidates or 0) * head.hidden_size
    return max(1, _NUMBERS_PER_PASS // max(between, embedded))


def _nothing(depth: int, reach: HeadReach) -> TransitionColumns:
    """The rows of a text of one token: none."""
    ids = np.empty((0, reach.top_k), np.int32)
    rows = TransitionRows(np.empty((0, depth), np.int32), np.empty(0, np.int32), ids, ids.astype(np.float32))
    return TransitionColumns(rows, np.empty(0, np.float32))


def _joined(parts: list[HeadRows]) -> TransitionColumns:
    names = ("num_rows", "previous", "ids", "log_probs")
    rows = [part.transitions for part in parts]
    joined = TransitionRows(*(np.concatenate([getattr(one, name) for one in rows]) for name in names))
    return TransitionColumns(joined, np.concatenate([part.outside_log_mass for part in parts]))
