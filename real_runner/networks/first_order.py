"""Networks that score a token given the one above it: the rows of a channel of transitions, whatever makes the scores.

One arithmetic serves the dense record, with many roots, and a round, with one. The tokens above are the first ones of
the drafter's own rows, which the network does not change.

Letters: H hidden size of the drafter, N roots, D depths, M tokens above, R tokens of a row, C candidates of a depth,
S = 1 + (D - 1) M rows of a root.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Protocol, Self

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Doubles, Floats, Ints, Longs
from simlab.channels import Channel, TransitionRows
from simlab.errors import ModelError
from simlab.grid import STEPS_PER_NAT, to_grid
from simlab.policy import ChannelNeed
from simlab.real_runner.drafters.candidate_keys import NO_LAWS, sent
from simlab.real_runner.drafters.dense import BlockStates, draft_states
from simlab.real_runner.drafters.ranked import blocks_per_pass
from simlab.real_runner.execution.fixed_drafter import run
from simlab.real_runner.networks.adapter.masked import OwnDrafter
from simlab.real_runner.networks.candidates import (
    BaseCandidates,
    base_of,
    first_of,
    first_of_laws,
    first_on_host,
    outside_log_mass,
)
from simlab.real_runner.networks.network import HeadReach
from simlab.real_runner.networks.producer import Drafted, OnDrafter, Stage, block_stage
from simlab.recorded import DraftRows
from simlab.traces.channels.columns import TransitionColumns

_NUMBERS_PER_PASS = 2**27
"""A pass holds a few copies of so many numbers between the head's matrices, or of its candidates' embeddings."""


def candidates_by_numpy(scored: Tensor, ids: Ints, theirs: Floats, slots: Longs, top_k: int) -> tuple[Ints, Doubles]:
    """The first of the drafter's own candidates after some states, on a CPU.

    Args:
        scored: float64 ``[N, S, C]``, logits of the candidates.
        ids: int32 ``[N, S, C]``.
        theirs: float32 ``[N, D, C]``, the drafter's log-probabilities.
        slots: int64 ``[S]``, the depth of each state.
        top_k: R.

    Returns:
        int32 ``[N * S, R]``; float64 the same, log-probabilities.
    """
    logits = scored.numpy()
    if not np.isfinite(logits.max(-1)).all():
        raise ModelError(NO_LAWS)
    mass = np.minimum(np.exp(theirs.astype(np.float64)).sum(-1), 1.0)
    log_probs = logits - np.logaddexp.reduce(logits, axis=-1, keepdims=True) + np.log(mass)[:, slots, None]
    order = np.argsort(_places(log_probs, ids), axis=-1)[..., :top_k]
    first_ids = np.take_along_axis(ids, order, -1).reshape(-1, top_k)
    return first_ids, np.take_along_axis(log_probs, order, -1).reshape(-1, top_k)


def candidates_on_device(
    scored: Tensor, below: Tensor, theirs: Tensor, slots: Tensor, top_k: int
) -> tuple[Tensor, Tensor, Tensor]:
    """What `candidates_by_numpy` finds, as `simlab.real_runner.networks.candidates.first_of` gives it.

    Args:
        scored: as there.
        below: int64 ``[N, S, C]``, ids.
        theirs: as there.
        slots: as there.
        top_k: R.
    """
    mass = theirs.double().exp().sum(-1, keepdim=True).clamp(max=1.0)
    log_probs = scored.log_softmax(-1) + mass.log()[:, slots]
    return first_of(log_probs.flatten(0, 1), top_k, below.flatten(0, 1))


def _places(log_probs: Doubles, ids: Ints) -> Longs:
    """Each token's place in the order of its row as one integer: grid steps below 0, then the id."""
    steps = np.rint(to_grid(log_probs).astype(np.float64) * -STEPS_PER_NAT).astype(np.int64)
    keys: Longs = (steps << 31) | ids
    return keys


class FirstOrder(Protocol):
    """A network of weights that scores a token given the one before it."""

    @property
    def inner_size(self) -> int:
        """The width of what it makes of a state and the token before."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class FirstOrderProducer(OnDrafter[Stage, HeadReach], ABC):
    """A network on a drafter, or on the masks of a target that drafts for itself: a law of each slot for tokens above.

    Attributes:
        head: its weights.
    """

    head: FirstOrder

    def within(self, need: ChannelNeed) -> Self:
        """This producer with no more rows, and no more tokens of a row, than a policy reads."""
        self.check_makes(need)
        least = dict(need.least)
        previous, top_k = least.get("previous", self.reach.previous), least.get("top_k", self.reach.top_k)
        return replace(self, reach=HeadReach(previous, top_k, self.reach.candidates))

    def at_root(self, drafted: Drafted) -> Channel:
        base = base_of(drafted.marginals, self.width)
        return self.rows(drafted.states, drafted.root, base).rows.row(0, 0)

    def columns(self, features: Tensor, tokens: Tensor, rows: DraftRows) -> TransitionColumns:
        depth, num_roots = self.drafter.config.depth, len(rows.counts)
        if num_roots == 0:
            return _nothing(depth, self.own)
        roots = torch.arange(len(tokens) - 1 - num_roots, len(tokens) - 1, device=tokens.device)
        per_pass = min(
            blocks_per_pass(self.drafter.config.num_attention_heads, self.drafter.config.block_size, len(tokens)),
            self._roots_per_pass(depth),
        )
        if isinstance(self.drafter, OwnDrafter):
            passes = self.drafter.draft_states(tokens, len(tokens) - 1 - num_roots, roots, per_pass)
        else:
            passes = draft_states(block_stage(self.drafter), self.target, features, tokens, roots, per_pass)
        return _joined([self.rows(*part) for part in self.along(passes, tokens, rows)])

    def _roots_per_pass(self, depth: int) -> int:
        reach, width = self.own, self.drafter.config.hidden_size
        between = sum(reach.rows_of_depths(depth)) * 2 * max(self.head.inner_size, width)
        return max(1, _NUMBERS_PER_PASS // max(between, depth * (reach.candidates or 0) * width))

    @torch.inference_mode()
    def rows(self, states: BlockStates, root_tokens: Ints, base: BaseCandidates) -> TransitionColumns:
        """What the head says below some roots.

        Args:
            states: of the drafter's pass, of N roots.
            root_tokens: int32 ``[N]``.
            base: the drafter's first candidates below these roots, at least `width` of each depth.
        """
        reach, sizes = self.own, self.own.rows_of_depths(base.depth)
        slots, tokens = np.repeat(np.arange(base.depth), sizes), base.ids[:, :-1, : reach.previous]
        above = np.concatenate([root_tokens[:, None], tokens.reshape(len(base), -1)], axis=1)
        device, key = states.after.device, ("first order", self.head, reach)
        where = [sent(torch.from_numpy(array.astype(np.int64)), device) for array in (above, slots)]

        def work(before: Tensor, after: Tensor, seen: Tensor, above: Tensor, slots: Tensor) -> tuple[Tensor]:
            return (self._of_rows(BlockStates(before, after, seen), above, slots),)

        (made,) = run(self.graphs, key, work, states.before, states.after, states.seen, *where)
        if reach.candidates is None:
            own = self.drafter.config.vocab_size, self.drafter.vocabulary, self.graphs
            ids, log_probs = first_of_laws(self._logits, self.drafter.norm, made, reach.top_k, *own)
        else:
            ids, log_probs = self._of_candidates(made, base, sizes, where[1])
        num_rows = np.tile(np.array(sizes, np.int32), (len(base), 1))
        previous = np.ascontiguousarray(above[:, 1:]).ravel()
        rows = TransitionRows(num_rows, previous, ids, to_grid(log_probs))
        return TransitionColumns(rows, outside_log_mass(log_probs))

    @abstractmethod
    def _of_rows(self, states: BlockStates, above: Tensor, slots: Tensor) -> Tensor:
        """What laws are made of: ``[N, S, any]``, a vector a row, or what `_candidate_logits` takes in its place.

        Args:
            states: of N roots.
            above: int64 ``[N, S]``, the tokens above.
            slots: int64 ``[S]``, the depth of each row.
        """

    def _logits(self, made: Tensor) -> Tensor:
        """float32 ``[n, V]`` of what `_of_rows` made, ``[n, any]``; of a network that scores the whole vocabulary."""
        # A network has this or `_candidate_logits`: its reach says which of the two is asked.
        raise NotImplementedError

    def _of_candidates(
        self, made: Tensor, base: BaseCandidates, sizes: list[int], slots: Tensor
    ) -> tuple[Ints, Doubles]:
        """The first of the drafter's own candidates after some states."""
        reach, own = self.own, self.drafter.vocabulary
        ids, theirs = base.ids[..., : reach.candidates], base.log_probs[..., : reach.candidates]
        rows = torch.from_numpy((ids if own is None else own.to_draft(ids)).astype(np.int64))
        if made.device.type == "cpu" and self.graphs is None:
            scored = self._candidate_logits(made, rows, torch.from_numpy(theirs), sizes, slots).double()
            depths = slots.numpy()
            return candidates_by_numpy(scored, ids[:, depths], theirs, depths, reach.top_k)

        def work(*tensors: Tensor) -> tuple[Tensor, ...]:
            states, rows, ids, theirs, slots = tensors
            scored = self._candidate_logits(states, rows, theirs, sizes, slots).double()
            return candidates_on_device(scored, ids[:, slots], theirs, slots, reach.top_k)

        beside = (rows, torch.from_numpy(ids.astype(np.int64)), torch.from_numpy(theirs))
        inputs = (made, *(tensor.to(made.device) for tensor in beside), slots)
        return first_on_host(run(self.graphs, ("candidates", self.head, reach), work, *inputs))

    def _candidate_logits(self, made: Tensor, rows: Tensor, theirs: Tensor, sizes: list[int], slots: Tensor) -> Tensor:
        """float32 ``[N, S, C]``: scores of the candidates, where these bound the rows.

        Args:
            made: by `_of_rows`.
            rows: int64 ``[N, D, C]``, the candidates, in the drafter's own numbering.
            theirs: float32 ``[N, D, C]``, the drafter's log-probabilities of them.
            sizes: rows of each depth.
            slots: int64 ``[S]``, the depth of each row.
        """
        # As for `_logits`.
        raise NotImplementedError


def products_by_depth(states: Tensor, weight: Tensor, rows: Tensor, sizes: list[int]) -> Tensor:
    """float32 ``[N, S, C]``: states ``[N, S, H]`` by those rows of a weight that their depth has.

    Args:
        states: as many of each depth as ``sizes`` say.
        weight: ``[V, H]``.
        rows: int64 ``[N, D, C]``.
        sizes: of each depth.
    """
    matrices = weight[rows.to(weight.device)].to(states.device).transpose(-1, -2)
    of_depths = zip(states.split(sizes, dim=1), matrices.unbind(1), strict=True)
    return torch.cat([part @ matrix for part, matrix in of_depths], dim=1).float()


def _nothing(depth: int, reach: HeadReach) -> TransitionColumns:
    """The rows of a text of one token: none."""
    ids = np.empty((0, reach.top_k), np.int32)
    rows = TransitionRows(np.empty((0, depth), np.int32), np.empty(0, np.int32), ids, ids.astype(np.float32))
    return TransitionColumns(rows, np.empty(0, np.float32))


def _joined(parts: list[TransitionColumns]) -> TransitionColumns:
    names = ("num_rows", "previous", "ids", "log_probs")
    joined = TransitionRows(*(np.concatenate([getattr(part.rows, name) for part in parts]) for name in names))
    return TransitionColumns(joined, np.concatenate([part.outside_log_mass for part in parts]))
