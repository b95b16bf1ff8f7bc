"""The first-order head of TreeFlash: a drafter's state of a depth, corrected for the token at the depth above.

Rheinboldt, Berdoz and Wattenhofer, "TreeFlash: Parallel AR-Approximation for Faster Speculative Decoding" (2026),
arXiv 2606.03819. The names of the weights and the arithmetic are those of the released checkpoints.

Letters: H hidden size of the drafter, I inner size of the head, N roots, D depths, M tokens above, R tokens of a row,
S = 1 + (D - 1) M rows of a root.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol, Self

import numpy as np
import torch
from torch import Tensor, nn

from simlab.arrays import Doubles, Floats, Ints, Longs
from simlab.channels import Channel, TransitionRows
from simlab.errors import ModelError
from simlab.grid import STEPS_PER_NAT, to_grid
from simlab.policy import ChannelNeed
from simlab.real_runner.checkpoints.files import loaded_tensors, write_checkpoint
from simlab.real_runner.drafters.dense import BlockStates, Outputs, draft_states, embedded_tokens, finished_logits
from simlab.real_runner.drafters.dflash import RMSNorm
from simlab.real_runner.drafters.places import NO_LAWS, sent
from simlab.real_runner.drafters.ranked import blocks_per_pass
from simlab.real_runner.execution.fixed_drafter import run
from simlab.real_runner.networks.adapter.masked import OwnDrafter
from simlab.real_runner.networks.candidates import (
    BaseCandidates,
    base_of,
    first_of,
    first_of_all,
    first_on_host,
    outside_log_mass,
)
from simlab.real_runner.networks.network import Reach
from simlab.real_runner.networks.parts import checked_parts
from simlab.real_runner.networks.producer import (
    ChannelAsked,
    Drafted,
    OnDrafter,
    Stage,
    WithModels,
    block_stage,
    check_belongs,
)
from simlab.real_runner.networks.treeflash.config import HEAD_PREFIX, HeadConfig, HeadReach, head_to_json
from simlab.real_runner.targets.model import Target
from simlab.recorded import DraftRows
from simlab.traces.channels.columns import TransitionColumns

_EPS = 1e-6


class TreeFlashHead(nn.Module):
    """What is added to a drafter's state once the token above is known; at its start, nothing.

    With g the state before the drafter's final norm, n the one after it and E y the embedding of the token above::

        z = [norm(E y); n]        g' = g + d(silu(G z) * (U z))

    The first half of ``ug`` is U, the second G.

    Attributes:
        dropout: of z, in training alone; without weights.
    """

    def __init__(self, hidden_size: int, inner_size: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.ug = nn.Linear(2 * hidden_size, 2 * inner_size)
        self.d = nn.Linear(inner_size, hidden_size, bias=False)
        self.norm = RMSNorm(hidden_size, _EPS)
        self.dropout = nn.Dropout(dropout)
        nn.init.zeros_(self.d.weight)

    @property
    def hidden_size(self) -> int:
        """H, the width of the drafter's states."""
        return self.d.out_features

    @property
    def inner_size(self) -> int:
        """I, the width between the head's matrices."""
        return self.d.in_features

    def forward(self, before: Tensor, after: Tensor, embedded: Tensor, slots: Tensor) -> Tensor:
        """The corrected states, before the drafter's final norm.

        Args:
            before: ``[N, D, H]``, states of D slots before the drafter's final norm.
            after: ``[N, D, H]``, the same after it.
            embedded: ``[N, S, H]``, embeddings of the tokens above, not scaled.
            slots: int64 ``[S]``, whose state each of them corrects.

        Returns:
            ``[N, S, H]``.
        """
        of_token, of_state = self.ug.weight.chunk(2, dim=1)
        token, state = self.dropout(self.norm(embedded)), self.dropout(after)
        # A state meets many tokens, so its half of the product is made once.
        half = nn.functional.linear(state, of_state, self.ug.bias)[:, slots]
        up, gate = (nn.functional.linear(token, of_token) + half).chunk(2, dim=-1)
        corrected: Tensor = before[:, slots] + self.d(nn.functional.silu(gate) * up)
        return corrected


def load_head(place: Path, drafter: Outputs, digest: str, dtype: torch.dtype, device: str = "cpu") -> TreeFlashHead:
    """Read the first-order head of a drafter whose checkpoint has a digest; it lies alone, or beside that drafter.

    What is refused says `checked_network`; a head of another drafter is, too.
    """
    parts = checked_parts(place)
    if not isinstance(parts.head, HeadConfig):
        raise ModelError(f"{place} has no head: it is a drafter alone, whose candidates stand in its draft set")
    check_belongs("head", place, parts.head.extends, digest)
    if parts.head.hidden_size != drafter.config.hidden_size:
        raise ModelError(
            f"the head in {place} is {parts.head.hidden_size} wide and its drafter {drafter.config.hidden_size}; train "
            "it again"
        )
    head = TreeFlashHead(parts.head.hidden_size, parts.head.inner_size)
    head.load_state_dict(loaded_tensors(place, parts.head_tensors))
    return head.to(device, dtype).eval().requires_grad_(False)


def save_head(head: TreeFlashHead, folder: Path, digest: str, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write a head alone, with its drafter's digest and weights of a dtype."""
    tensors = {HEAD_PREFIX + name: tensor for name, tensor in head.state_dict().items()}
    config = HeadConfig(head.hidden_size, head.inner_size, digest)
    write_checkpoint(folder, tensors, dtype, head_to_json(config))


# The rows of a head: what may follow each of the first tokens of the depth above.
#
# One arithmetic serves the dense record, with many roots, and a round, with one. The tokens above are those of the
# drafter's own marginals, which the head does not change.


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
    places: Longs = (steps << 31) | ids
    return places


# The channel of a TreeFlash head: transitions below the first tokens of its drafter.


class FirstOrder(Protocol):
    """A network of weights that scores a token given the one before it."""

    @property
    def hidden_size(self) -> int:
        """H, the width of the drafter's states."""
        ...

    @property
    def inner_size(self) -> int:
        """The width of what it makes of a state and the token before."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class TreeFlashProducer(OnDrafter[Stage, HeadReach]):
    """A head on a drafter, or on the masks of a target that drafts for itself.

    Attributes:
        head: whose embedding, norm and output head are the drafter's and the target's.
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
            _roots_per_pass(self.head, depth, self.own),
        )
        if isinstance(self.drafter, OwnDrafter):
            passes = self.drafter.draft_states(tokens, len(tokens) - 1 - num_roots, roots, per_pass)
        else:
            passes = draft_states(block_stage(self.drafter), self.target, features, tokens, roots, per_pass)
        return _joined([self.rows(*one) for one in self.along(passes, tokens, rows)])

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
        device, key = states.before.device, ("treeflash", self.head, reach)
        where = [sent(torch.from_numpy(array.astype(np.int64)), device) for array in (above, slots)]
        (corrected,) = run(self.graphs, key, self._corrected, states.before, states.after, *where)
        if reach.candidates is None:
            ids, log_probs = first_of_all(self.drafter, self.target, corrected, reach.top_k, self.graphs)
        else:
            ids, log_probs = self._of_candidates(corrected, base, sizes, where[1])
        num_rows = np.tile(np.array(sizes, np.int32), (len(base), 1))
        previous = np.ascontiguousarray(above[:, 1:]).ravel()
        rows = TransitionRows(num_rows, previous, ids, to_grid(log_probs))
        return TransitionColumns(rows, outside_log_mass(log_probs))

    def _corrected(self, before: Tensor, after: Tensor, above: Tensor, slots: Tensor) -> tuple[Tensor]:
        """States ``[N, S, H]`` behind the final norm, of tokens above."""
        embedded = embedded_tokens(self.drafter, self.target, above).to(before.dtype)
        assert isinstance(self.head, TreeFlashHead)
        return (self.drafter.norm(self.head(before, after, embedded, slots)),)

    def _of_candidates(
        self, corrected: Tensor, base: BaseCandidates, sizes: list[int], slots: Tensor
    ) -> tuple[Ints, Doubles]:
        """The first of the drafter's own candidates after some states."""
        reach, own = self.own, self.drafter.vocabulary
        ids, theirs = base.ids[..., : reach.candidates], base.log_probs[..., : reach.candidates]
        rows = torch.from_numpy((ids if own is None else own.to_draft(ids)).astype(np.int64))
        if corrected.device.type == "cpu" and self.graphs is None:
            scored = self._candidate_logits(corrected, rows, torch.from_numpy(theirs), sizes, slots).double()
            depths = slots.numpy()
            return candidates_by_numpy(scored, ids[:, depths], theirs, depths, reach.top_k)

        def work(*found: Tensor) -> tuple[Tensor, ...]:
            states, rows, ids, theirs, slots = found
            scored = self._candidate_logits(states, rows, theirs, sizes, slots).double()
            return candidates_on_device(scored, ids[:, slots], theirs, slots, reach.top_k)

        beside = (rows, torch.from_numpy(ids.astype(np.int64)), torch.from_numpy(theirs))
        inputs = (corrected, *(one.to(corrected.device) for one in beside), slots)
        return first_on_host(run(self.graphs, ("candidates", self.head, reach), work, *inputs))

    def _candidate_logits(
        self, states: Tensor, rows: Tensor, theirs: Tensor, sizes: list[int], slots: Tensor
    ) -> Tensor:
        """float32 ``[N, S, C]``: the head's own candidates, int64 ``[N, D, C]``, by the states ``[N, S, H]``.

        ``theirs``, float32 ``[N, D, C]``, are the drafter's log-probabilities of these.
        """
        head = self.drafter.lm_head or self.target.head
        weight, bias = head.weight, getattr(head, "bias", None)
        assert isinstance(weight, Tensor)
        logits = products_by_depth(states, weight, rows, sizes)
        if isinstance(bias, Tensor):
            logits = logits + bias[rows.to(bias.device)].to(states.device).float()[:, slots]
        return finished_logits(self.drafter, logits)


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
    return torch.cat([some @ matrix for some, matrix in of_depths], dim=1).float()


def _roots_per_pass(head: FirstOrder, depth: int, reach: HeadReach) -> int:
    between = sum(reach.rows_of_depths(depth)) * 2 * max(head.inner_size, head.hidden_size)
    embedded = depth * (reach.candidates or 0) * head.hidden_size
    return max(1, _NUMBERS_PER_PASS // max(between, embedded))


def _nothing(depth: int, reach: HeadReach) -> TransitionColumns:
    """The rows of a text of one token: none."""
    ids = np.empty((0, reach.top_k), np.int32)
    rows = TransitionRows(np.empty((0, depth), np.int32), np.empty(0, np.int32), ids, ids.astype(np.float32))
    return TransitionColumns(rows, np.empty(0, np.float32))


def _joined(parts: list[TransitionColumns]) -> TransitionColumns:
    names = ("num_rows", "previous", "ids", "log_probs")
    joined = TransitionRows(*(np.concatenate([getattr(part.rows, name) for part in parts]) for name in names))
    return TransitionColumns(joined, np.concatenate([part.outside_log_mass for part in parts]))


def load(asked: ChannelAsked, reach: Reach) -> WithModels:
    """The head of a checkpoint; see `simlab.real_runner.networks.loading.NetworkCode.load`."""
    assert isinstance(reach, HeadReach)
    assert asked.stage is not None
    head = load_head(asked.place, asked.stage, asked.digest, asked.dtype)

    def on(its: Stage | None, target: Target) -> TreeFlashProducer:
        assert its is not None
        return TreeFlashProducer(its, target, reach, head.to(target.device))

    return on
