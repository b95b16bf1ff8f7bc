"""The pool that a TAPS scorer scores, and its sizes: a beam over a drafter's marginals, depth by depth.

The nodes are chosen by marginals alone, in grid steps, so that every machine chooses the same ones; the scores that the
scorer then gives only order siblings.
"""

from dataclasses import dataclass

import numpy as np

from simlab.arrays import Floats, Ints, Longs
from simlab.channels import POOL, PoolRows
from simlab.grid import STEPS_PER_NAT
from simlab.jit import kernel
from simlab.real_runner.heads.base import BaseCandidates

NUM_PLACE = 7
"""Numbers that tell a node's place: log-probability, the depth's entropy, top gap, mass, depth, path weight (two)."""

_BYTES_OF_NODE = 4.51
"""On disk, of a node: measured at 5,856 roots of 7 depths and 24 nodes each, along answers of SmolLM2-135M."""


@dataclass(frozen=True, slots=True)
class PoolReach:
    """How many nodes a pool has.

    Attributes:
        beam: nodes that are kept of each depth, and looked below.
        extensions: the drafter's first candidates of the next depth that are looked at below each.
    """

    beam: int = 48
    extensions: int = 64

    def __post_init__(self) -> None:
        for name in ("beam", "extensions"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} of a pool must be at least 1; got {getattr(self, name)}")

    @property
    def width(self) -> int:
        """How many candidates of each depth of the drafter are read."""
        return self.extensions

    def within(self, num_tokens: int) -> "PoolReach":
        """This reach where a drafter has so many tokens: it proposes no more."""
        return PoolReach(self.beam, min(self.extensions, num_tokens))

    @property
    def kind(self) -> str:
        """What a beam walks through is a pool."""
        return POOL

    def settings(self, depth: int) -> dict[str, object]:
        """What the manifest says of the pools."""
        return {"depth": depth, "beam": self.beam, "extensions": self.extensions}

    def num_scores(self, depth: int) -> int:
        """Nodes of a pool."""
        return sum(self.sizes(depth))

    def disk_bytes(self, depth: int) -> float:
        """Bytes that the pool of a root takes in a trace, from those of a measured one."""
        return self.num_scores(depth) * _BYTES_OF_NODE

    def widest(self, width: int) -> str:
        """The setting that must be smaller where a depth keeps so many candidates."""
        return f"extensions={width}"

    def sizes(self, depth: int) -> list[int]:
        """Nodes of each depth."""
        sizes = [1]
        for _ in range(depth):
            sizes.append(min(self.beam, sizes[-1] * self.extensions))
        return sizes[1:]


@dataclass(frozen=True, slots=True)
class ScorerSizes:
    """The sizes of a scorer.

    Attributes:
        hidden_size: H, of the drafter.
        depth: D, the positions drafted ahead.
        rank: of the projections of tokens and states.
        depth_size: numbers that stand for a depth.
        inner_size: of the two networks.
    """

    hidden_size: int
    depth: int
    rank: int = 32
    depth_size: int = 8
    inner_size: int = 64


@dataclass(frozen=True, slots=True, eq=False)
class BeamNodes:
    """The nodes of the pools at some roots: n at each, depth by depth, in a depth from the most to the least probable.

    Attributes:
        sizes: nodes of each depth.
        parents: int32 ``[N, n]``, 0 the root, else the parent's place, from 1.
        ranks: int32 ``[N, n]``, the drafter's of the node's token at its depth.
        tokens: int32 ``[N, n]``.
        log_probs: float32 ``[N, n]``, of the token at its depth by the marginals, on the grid.
    """

    sizes: tuple[int, ...]
    parents: Ints
    ranks: Ints
    tokens: Ints
    log_probs: Floats

    @property
    def depths(self) -> Longs:
        """int64 ``[n]``, from 1."""
        return np.repeat(np.arange(1, len(self.sizes) + 1), self.sizes)


def beam_nodes(base: BaseCandidates, reach: PoolReach) -> BeamNodes:
    """The nodes of each depth with the largest path probabilities by marginals, below those of the depth above.

    Of equal ones those of the earlier parent are first, of one parent those of the smaller rank.

    Args:
        base: at least as many candidates as ``reach`` extends by.
        reach: of the pools; no more than the drafter has.
    """
    sizes = reach.sizes(base.depth)
    parents, ranks = _beam(base.log_probs[:, :, : reach.extensions], np.array(sizes))
    depths = np.repeat(np.arange(base.depth), sizes)
    roots = np.arange(len(base))[:, None]
    chosen = roots, depths[None], ranks
    return BeamNodes(tuple(sizes), parents, ranks, base.ids[chosen], base.log_probs[chosen])


def pools_of(nodes: BeamNodes, log_probs: Floats) -> PoolRows:
    """The nodes as a channel has them: by parent, the most probable first, of equal ones the smaller id.

    Args:
        nodes: of the pools.
        log_probs: float32 ``[N, n]``, of each token given its path, on the grid.
    """
    num_roots, num = nodes.parents.shape
    rows, first = np.arange(num_roots)[:, None], 0
    numbers = np.zeros((num_roots, num + 1), np.int32)
    orders = []
    for size in nodes.sizes:
        some = slice(first, first + size)
        above = np.take_along_axis(numbers, nodes.parents[:, some], 1)
        order = first + np.lexsort((nodes.tokens[:, some], -log_probs[:, some], above), axis=-1)
        numbers[rows, order + 1] = np.arange(first + 1, first + size + 1)
        orders.append(order)
        first += size
    order = np.concatenate([np.empty((num_roots, 0), np.int64), *orders], axis=1)
    parents = np.take_along_axis(numbers, np.take_along_axis(nodes.parents, order, 1), 1)
    expanded = np.zeros((num_roots, num + 1), np.bool_)
    np.put_along_axis(expanded, parents, values=True, axis=1)
    return PoolRows(
        np.full(num_roots, num, np.int64),
        np.take_along_axis(nodes.tokens, order, 1).ravel(),
        parents.ravel(),
        np.take_along_axis(log_probs, order, 1).ravel(),
        np.ascontiguousarray(expanded[:, 1:]).ravel(),
    )


@kernel
def _beam(log_probs: Floats, sizes: Longs) -> tuple[Ints, Ints]:
    """Parents and ranks, int32 ``[N, n]`` each, of log-probabilities ``[N, D, W]``."""
    num_roots, num_depths, width = log_probs.shape
    num, widest = 0, 1
    for size in sizes:
        num, widest = num + size, max(widest, size)
    parents, ranks = np.empty((num_roots, num), np.int32), np.empty((num_roots, num), np.int32)
    above, costs = np.zeros(widest, np.int64), np.zeros(widest, np.int64)
    taken = np.zeros(widest, np.int32)
    for root in range(num_roots):
        above[0], num_above, first_above, first = 0, 1, -1, 0
        for depth in range(num_depths):
            row = log_probs[root, depth]
            taken[:num_above] = 0
            for place in range(sizes[depth]):
                best, lowest = -1, np.int64(0)
                for parent in range(num_above):
                    if taken[parent] < width:
                        cost = above[parent] + np.int64(-row[taken[parent]] * STEPS_PER_NAT)
                        if best < 0 or cost < lowest:
                            best, lowest = parent, cost
                parents[root, first + place] = 0 if depth == 0 else first_above + best + 1
                ranks[root, first + place] = taken[best]
                costs[place] = lowest
                taken[best] += 1
            above[: sizes[depth]] = costs[: sizes[depth]]
            num_above, first_above = sizes[depth], first
            first += sizes[depth]
    return parents, ranks
