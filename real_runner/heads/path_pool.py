"""Pools of a block drafter that is run again behind each path: what may follow a path, given all of it.

A reconstruction of what JetSpec's paper describes (2026, arXiv 2606.18394; the released builder has rows of one pass
alone): depth by depth, the most probable paths fill the first slots of a block, and the first mask behind says what
follows. That is a generator of pools as EAGLE-2's is (Li and others 2024, arXiv 2406.16858), of a block drafter. The
drafter should have learnt with filled slots (`simlab train dflash --variable-prefix`).

One arithmetic serves the dense record, with many roots, and a round, with one.

Letters: N roots, D depths, b paths that are looked behind at a depth, R tokens behind each, V tokens of the drafter.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Bools, Floats, Ints, Longs
from simlab.channels import POOL, Channel, PoolRows
from simlab.channels.rows import beam_sizes
from simlab.grid import STEPS_PER_NAT, to_grid
from simlab.policy import ChannelNeed
from simlab.real_runner.drafters.dense import block_states
from simlab.real_runner.drafters.dflash import DFlashDrafter, DrafterContext
from simlab.real_runner.drafters.ranked import blocks_per_pass
from simlab.real_runner.heads.base import BaseCandidates, base_candidates, base_of
from simlab.real_runner.heads.producer import Drafted, check_makes
from simlab.real_runner.heads.rows import first_of_all
from simlab.real_runner.heads.taps_rows import joined_pools
from simlab.real_runner.targets.model import Target
from simlab.recorded import DraftRows
from simlab.traces.channels.columns import PoolColumns

BYTES_OF_NODE = 4.51
"""On disk, of a node, as in pools of a TAPS scorer."""


@dataclass(frozen=True, slots=True)
class PathReach:
    """How many nodes a pool of paths has.

    Attributes:
        beam: b, paths of each depth that are looked behind.
        top_k: R, tokens that are kept behind each.
    """

    beam: int = 10
    top_k: int = 7

    def __post_init__(self) -> None:
        for name in ("beam", "top_k"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} of a pool must be at least 1; got {getattr(self, name)}")

    @property
    def kind(self) -> str:
        """What a beam walks through is a pool."""
        return POOL

    @property
    def width(self) -> int:
        """How many candidates of each depth of the drafter are read."""
        return self.top_k

    def within(self, num_tokens: int) -> "PathReach":
        """This reach where a drafter has so many tokens: it proposes no more."""
        return PathReach(self.beam, min(self.top_k, num_tokens))

    def settings(self, depth: int) -> dict[str, object]:
        """What the manifest says of the pools."""
        return {"depth": depth, "beam": self.beam, "top_k": self.top_k}

    def sizes(self, depth: int) -> list[int]:
        """Nodes of each depth: all that were looked at."""
        return beam_sizes(self.beam, self.top_k, depth - 1)

    def num_scores(self, depth: int) -> int:
        """Nodes of a pool."""
        return sum(self.sizes(depth))

    def disk_bytes(self, depth: int) -> float:
        """Bytes that the pool of a root takes in a trace."""
        return self.num_scores(depth) * BYTES_OF_NODE

    def widest(self, width: int) -> str:
        """The setting that must be smaller where a depth keeps so many candidates."""
        return f"top_k={width}"


@torch.inference_mode()
def path_pools(
    drafter: DFlashDrafter,
    target: Target,
    root_tokens: Tensor,
    positions: Tensor,
    context: DrafterContext,
    base: BaseCandidates,
    reach: PathReach,
) -> PoolRows:
    """The pools below some roots of one text: its own candidates of the first depth, then a pass a depth.

    Args:
        drafter: and its target, whose embedding and head it may borrow.
        target: see there.
        root_tokens: int64 ``[N]``.
        positions: int64 ``[N]``, absolute.
        context: of the text; a block sees what lies before its own root.
        base: the drafter's first candidates below these roots, at least R.
        reach: of the pools; no more than the drafter has.
    """
    paths = np.empty((len(positions), 1, 0), np.int64)

    def behind(tokens: Ints, above: Longs) -> tuple[Ints, Floats]:
        nonlocal paths
        before = np.take_along_axis(paths, above[:, :, None], 1)
        paths = np.concatenate([before, tokens[:, :, None]], axis=2, dtype=np.int64)
        return _behind(drafter, target, root_tokens, positions, context, paths, reach.top_k)

    first = base.ids[:, :1, : reach.top_k], base.log_probs[:, :1, : reach.top_k]
    return beam_pools(first, behind, reach.beam, drafter.config.depth - 1)


Behind = Callable[[Ints, Longs], tuple[Ints, Floats]]
"""What follows nodes that are looked behind: from their tokens, int32 ``[N, b]``, and the place of each one's parent
among the nodes of the pass before, int64 ``[N, b]``, to ids, int32 ``[N, b, R]``, and log-probabilities, float32
likewise, on the grid and in the order of `simlab.sampling.candidates`."""


def beam_pools(first: tuple[Ints, Floats], behind: Behind, beam: int, num_passes: int) -> PoolRows:
    """The pools of a beam: all that it looks at, pass by pass.

    The order within a pass is that of a parent's place, then of the place among its children; of nodes with equal
    scores the first ones are looked behind.

    Args:
        first: ids and log-probabilities of the root's children, ``[N, 1, R]``.
        behind: see `Behind`.
        beam: b, how many of the best nodes of a pass are looked behind.
        num_passes: how often.
    """
    (ids, log_probs), (num_roots, _, top_k) = first, first[0].shape
    numbers, costs = np.zeros((num_roots, 1), np.int32), np.zeros((num_roots, 1), np.int64)
    columns, num_nodes = list[tuple[Ints, Ints, Floats, Bools]](), 0
    for passes_left in reversed(range(num_passes + 1)):
        below = (costs[:, :, None] + np.rint(log_probs * -STEPS_PER_NAT).astype(np.int64)).reshape(num_roots, -1)
        chosen, tokens = _best(below, beam if passes_left else 0), ids.reshape(num_roots, -1)
        expanded = np.zeros(below.shape, np.bool_)
        np.put_along_axis(expanded, chosen, values=True, axis=1)
        columns.append((tokens, np.repeat(numbers, top_k, 1), log_probs.reshape(num_roots, -1), expanded))
        costs, numbers = np.take_along_axis(below, chosen, 1), (num_nodes + 1 + chosen).astype(np.int32)
        num_nodes += below.shape[1]
        if passes_left:
            ids, log_probs = behind(np.take_along_axis(tokens, chosen, 1), chosen // top_k)
    whole = [np.concatenate(column, axis=1).ravel() for column in zip(*columns, strict=True)]
    return PoolRows(np.full(num_roots, num_nodes, np.int64), *whole)


def _behind(
    drafter: DFlashDrafter,
    target: Target,
    root_tokens: Tensor,
    positions: Tensor,
    context: DrafterContext,
    paths: Longs,
    top_k: int,
) -> tuple[Ints, Floats]:
    """The first tokens behind each path ``[N, b, i]``: ids in the target's vocabulary, and log-probabilities.

    Returns:
        int32 and float32 ``[N, b, R]``, on the grid, in the order of `simlab.sampling.candidates`.
    """
    num_roots, num_paths, length = paths.shape
    filled = torch.from_numpy(paths.reshape(num_roots * num_paths, length)).to(positions.device)
    roots, places = (one.repeat_interleave(num_paths) for one in (root_tokens, positions))
    states = block_states(drafter, target, roots, places, context, filled)
    ids, log_probs = first_of_all(drafter, target, states.after[:, length : length + 1], top_k)
    return ids.reshape(num_roots, num_paths, -1), to_grid(log_probs).reshape(num_roots, num_paths, -1)


def _best(costs: Longs, count: int) -> Longs:
    """int64 ``[N, b]``, rising: places of the lowest costs ``[N, n]`` of each root, of equal ones the first."""
    first = np.argsort(costs, axis=1, kind="stable")[:, :count]
    return np.sort(first, axis=1)


# The channel of a block drafter that is run again behind each path: a pool of paths.


@dataclass(frozen=True, slots=True, eq=False)
class PathProducer:
    """A drafter that goes on from its own rows, the target that it borrows from, and how far its pools reach.

    Attributes:
        drafter: whose rows begin the pools, and which is run again.
        target: see there.
        reach: as it was asked for; of a drafter with fewer tokens all are taken.
    """

    drafter: DFlashDrafter
    target: Target
    reach: PathReach

    @property
    def kind(self) -> str:
        """The kind of this channel."""
        return self.reach.kind

    @property
    def width(self) -> int:
        """Candidates of each depth of the drafter that it reads."""
        return self._own.width

    def within(self, need: ChannelNeed) -> "PathProducer":
        """This producer: a smaller beam has other children, so nothing of a pool is left out."""
        check_makes(need, self.kind, self.reach.settings(self.drafter.config.depth))
        return self

    def at_root(self, drafted: Drafted) -> Channel:
        """The pool at one root, in a round; see `Producer.at_root`."""
        device = drafted.states.after.device
        root, position = (torch.tensor([one], device=device) for one in (drafted.root_token, drafted.position))
        base = base_of(drafted.marginals, self.width)
        pools = path_pools(self.drafter, self.target, root, position, drafted.context, base, self._own)
        return pools.row(0, 0)

    @torch.inference_mode()
    def columns(self, features: Tensor, tokens: Tensor, rows: DraftRows) -> PoolColumns:
        """The pools at every root of one text; see `Producer.columns`."""
        config, num_roots, last = self.drafter.config, len(rows.counts), len(tokens) - 1
        base = base_candidates(rows.ids, rows.log_probs, rows.counts, self.width)
        roots = torch.arange(last - num_roots, last, device=tokens.device)
        blocks = blocks_per_pass(config.num_attention_heads, config.block_size, len(tokens))
        per_pass = max(1, blocks // self._own.beam)
        context, parts = self.drafter.context(features[None]), list[PoolRows]()
        for first in range(0, num_roots, per_pass):
            some, part = roots[first : first + per_pass], base.part(first, first + per_pass)
            parts.append(path_pools(self.drafter, self.target, tokens[some], some, context, part, self._own))
        return PoolColumns.unlabelled(joined_pools(parts))

    @property
    def _own(self) -> PathReach:
        config = self.drafter.config
        return self.reach.within(config.draft_vocab_size or config.vocab_size)
