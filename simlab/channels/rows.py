"""Transitions and pools, at one root and at many, one root after the other; and all kinds of channels."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from simlab.arrays import Bools, Floats, Ints, Longs, read_only
from simlab.channels.branches import Branches, BranchRows, FeatureRows, Features, join_branches, join_features
from simlab.channels.law import TARGET, TargetLaw, TargetLawRows, join_laws
from simlab.jit import kernel

TRANSITIONS, POOL, BRANCHES, FEATURES = KINDS = ("transitions", "pool", "branches", "features")

EXACT_NODES = "exact_nodes"
"""The setting of a pool that is counted once all of it is recorded: see `PoolRows.exact_nodes`."""

WHOLE_CHAIN = "whole"
"""The setting, 1, of branches of which a root has one: the one behind the whole chain of the draft set."""

MOST_EXACT = 65_535
"""Where no node of a pool is left unexpanded, its trees are exact up to this budget, the largest that is recorded."""


@dataclass(frozen=True, slots=True, eq=False)
class Transitions:
    """At one root, scores of tokens after single tokens of the depth above.

    Depth 1 has one row, below the root. A row of depth d > 1 stands below one token of depth d - 1, wherever that token
    is in the tree; where a token has no row, nothing is known of what follows it, and the tree ends there.

    Attributes:
        num_rows: int32 ``[D]``, rows of each depth; 1 at the first.
        previous: int32 ``[S - 1]``, the token above each row of depths 2 to D, S the number of all rows; within a depth
            in the order of the base drafter's ranks.
        ids: int32 ``[S, R]``, tokens of each row, the most probable first.
        log_probs: float32 ``[S, R]``, on the grid.
    """

    num_rows: Ints
    previous: Ints
    ids: Ints
    log_probs: Floats

    def __post_init__(self) -> None:
        _check_transitions(self.num_rows[None], self.previous, self.ids, self.log_probs)

    @property
    def depth(self) -> int:
        """D, the positions drafted ahead."""
        return len(self.num_rows)

    def first(self, previous: int, top_k: int) -> "Transitions":
        """Below the first ``previous`` tokens of each depth alone, and of each row the first ``top_k``."""
        num_rows, rows = _first_rows(self.num_rows, previous)
        return Transitions(num_rows, self.previous[rows[1:] - 1], self.ids[rows, :top_k], self.log_probs[rows, :top_k])


@dataclass(frozen=True, slots=True, eq=False)
class Pool:
    """At one root, the nodes of a tree that a model walked through, each scored given its path.

    Attributes:
        tokens: int32 ``[N]``.
        parents: int32 ``[N]``; node i has the number i + 1, the root 0, and a parent comes before its children, which
            stand together, the most probable first.
        log_probs: float32 ``[N]``, of a token given its path, on the grid.
        expanded: bool ``[N]``, whether the node's children are in the pool.
    """

    tokens: Ints
    parents: Ints
    log_probs: Floats
    expanded: Bools

    def __post_init__(self) -> None:
        sizes = np.array([len(self.tokens)], np.int64)
        _check_pool(sizes, self.tokens, self.parents, self.log_probs, self.expanded)

    @property
    def depth(self) -> int:
        """The depth of its deepest node; 0 for a pool without any."""
        return int(node_depths(self.parents).max(initial=0))

    def first(self, depth: int) -> "Pool":
        """The nodes of the first depths alone; those of the last one are not expanded."""
        depths = node_depths(self.parents)
        kept = depths <= depth
        numbers = np.concatenate([[0], np.cumsum(kept)]).astype(np.int32)
        return Pool(
            self.tokens[kept],
            numbers[self.parents[kept]],
            self.log_probs[kept],
            self.expanded[kept] & (depths[kept] < depth),
        )


@dataclass(frozen=True, slots=True, eq=False)
class TransitionRows:
    """The transitions at some roots, one after the other.

    Attributes:
        num_rows: int32 ``[N, D]``, of each root.
        previous: int32 ``[sum (S - 1)]``.
        ids: int32 ``[sum S, R]``.
        log_probs: float32 ``[sum S, R]``.
    """

    num_rows: Ints
    previous: Ints
    ids: Ints
    log_probs: Floats

    def __post_init__(self) -> None:
        _check_transitions(self.num_rows, self.previous, self.ids, self.log_probs)

    def __len__(self) -> int:
        return len(self.num_rows)

    def starts(self) -> Longs:
        """int64 ``[N + 1]``, the first row of each root, and the number of all."""
        return _ends(self.num_rows.sum(axis=1, dtype=np.int64))

    def row(self, t: int, start: int) -> Transitions:
        """The transitions at root ``t``, whose rows begin at ``start``."""
        num = int(self.num_rows[t].sum())
        rows = slice(start, start + num)
        above = slice(start - t, start - t + num - 1)
        return Transitions(self.num_rows[t], self.previous[above], self.ids[rows], self.log_probs[rows])

    def rows(self) -> Iterator[Transitions]:
        """Those of each root in turn."""
        starts = self.starts()
        return (self.row(t, int(starts[t])) for t in range(len(self)))

    def part(self, first: int, last: int, starts: Longs) -> "TransitionRows":
        """Those from one root up to another, without copying; ``starts`` as `starts` gives them."""
        rows = slice(int(starts[first]), int(starts[last]))
        above = slice(rows.start - first, rows.stop - last)
        return TransitionRows(self.num_rows[first:last], self.previous[above], self.ids[rows], self.log_probs[rows])


@dataclass(frozen=True, slots=True, eq=False)
class PoolRows:
    """The pools at some roots, one after the other.

    Attributes:
        sizes: int64 ``[N]``, nodes of each.
        tokens: int32 ``[sum n]``.
        parents: int32 ``[sum n]``, numbers within the pool of the root.
        log_probs: float32 ``[sum n]``.
        expanded: bool ``[sum n]``.
    """

    sizes: Longs
    tokens: Ints
    parents: Ints
    log_probs: Floats
    expanded: Bools

    def __post_init__(self) -> None:
        _check_pool(self.sizes, self.tokens, self.parents, self.log_probs, self.expanded)

    def __len__(self) -> int:
        return len(self.sizes)

    def starts(self) -> Longs:
        """int64 ``[N + 1]``, the first node of each root, and the number of all."""
        return _ends(self.sizes)

    def row(self, t: int, start: int) -> Pool:
        """The pool at root ``t``, which begins at ``start``."""
        nodes = slice(start, start + int(self.sizes[t]))
        return Pool(self.tokens[nodes], self.parents[nodes], self.log_probs[nodes], self.expanded[nodes])

    def rows(self) -> Iterator[Pool]:
        """Those of each root in turn."""
        starts = self.starts()
        return (self.row(t, int(starts[t])) for t in range(len(self)))

    def part(self, first: int, last: int, starts: Longs) -> "PoolRows":
        """Those from one root up to another, without copying; ``starts`` as `starts` gives them."""
        nodes = slice(int(starts[first]), int(starts[last]))
        arrays = (self.tokens[nodes], self.parents[nodes], self.log_probs[nodes], self.expanded[nodes])
        return PoolRows(self.sizes[first:last], *arrays)

    def exact_nodes(self, depth: int) -> int:
        """The largest budget at which the most probable nodes of each pool are those of the whole tree.

        A node above the last depth that is not expanded has children that nobody scored. Each is at most as probable
        as the node itself, so all that are more probable than the node are known, and one more.

        Args:
            depth: of the tree; its leaves need no children.
        """
        return int(_exact_nodes(self.sizes, self.parents, self.log_probs, self.expanded, depth))


ScoredTokens: TypeAlias = Transitions | Pool | Branches
"""What a channel says at one root that trees may be made of."""

MadeChannel: TypeAlias = ScoredTokens | Features
"""What a channel that some network makes says at one root."""

MadeRows: TypeAlias = TransitionRows | PoolRows | BranchRows | FeatureRows
"""What a channel that some network makes says at some roots, as it is recorded."""

Channel: TypeAlias = MadeChannel | TargetLaw
"""What a channel says at one root."""

ChannelRows: TypeAlias = MadeRows | TargetLawRows
"""What a channel says at some roots."""


def kind_of(rows: ChannelRows | Channel) -> str:
    """The kind of a channel, by what holds it."""
    if isinstance(rows, BranchRows | Branches):
        return BRANCHES
    if isinstance(rows, TargetLawRows | TargetLaw):
        return TARGET
    if isinstance(rows, FeatureRows | Features):
        return FEATURES
    return TRANSITIONS if isinstance(rows, TransitionRows | Transitions) else POOL


def join_channels(parts: Sequence[ChannelRows]) -> ChannelRows:
    """The rows of several texts, one after the other; those of more than one are copied."""
    if len(parts) == 1:
        return parts[0]
    transitions = [part for part in parts if isinstance(part, TransitionRows)]
    pools = [part for part in parts if isinstance(part, PoolRows)]
    if len({(transition.num_rows.shape[1], transition.ids.shape[1]) for transition in transitions}) > 1:
        raise ValueError("expected transitions of one depth and width")
    if transitions and len(transitions) == len(parts):
        of_rows = ("num_rows", "previous", "ids", "log_probs")
        return TransitionRows(*(_joined([getattr(transition, name) for transition in transitions]) for name in of_rows))
    if pools and len(pools) == len(parts):
        of_nodes = ("sizes", "tokens", "parents", "log_probs", "expanded")
        return PoolRows(*(_joined([getattr(pool, name) for pool in pools]) for name in of_nodes))
    branches = [part for part in parts if isinstance(part, BranchRows)]
    if branches and len(branches) == len(parts):
        return join_branches(branches)
    features = [part for part in parts if isinstance(part, FeatureRows)]
    if features and len(features) == len(parts):
        return join_features(features)
    laws = [part for part in parts if isinstance(part, TargetLawRows)]
    if laws and len(laws) == len(parts):
        return join_laws(laws)
    raise ValueError("expected rows of one channel")


def _joined(parts: "list[npt.NDArray[Any]]") -> npt.NDArray[Any]:
    return read_only(np.concatenate(parts))


def _ends(sizes: Ints | Longs) -> Longs:
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


def _first_rows(num_rows: Ints, previous: int) -> tuple[Ints, Longs]:
    """Rows of each depth when each has at most so many, and which these are."""
    starts = _ends(num_rows)[:-1]
    kept = np.minimum(num_rows, previous).astype(np.int32)
    kept[:1] = num_rows[:1]
    rows = [np.arange(start, start + num) for start, num in zip(starts.tolist(), kept.tolist(), strict=True)]
    return kept, np.concatenate(rows)


def _check_transitions(num_rows: Ints, previous: Ints, ids: Ints, log_probs: Floats) -> None:
    _check_dtypes((num_rows, previous, ids, log_probs), ("int32", "int32", "int32", "float32"))
    if num_rows.ndim != 2 or ids.ndim != 2 or ids.shape != log_probs.shape:
        raise ValueError(f"num_rows, ids and log_probs do not fit: {num_rows.shape}, {ids.shape}, {log_probs.shape}")
    if num_rows.shape[1] == 0 or (num_rows < 0).any() or (num_rows[:, 0] != 1).any():
        raise ValueError("the first depth has one row, and none has fewer than 0")
    num = int(num_rows.sum(dtype=np.int64))
    if len(ids) != num or previous.shape != (num - len(num_rows),):
        raise ValueError(f"num_rows promises {num} rows; got {len(ids)}, below {len(previous)} tokens and the roots")
    if not _in_order(log_probs):
        raise ValueError("the log-probabilities of a row must be at most 0 and must not rise")


def _check_pool(sizes: Longs, tokens: Ints, parents: Ints, log_probs: Floats, expanded: Bools) -> None:
    _check_dtypes((sizes, tokens, parents, log_probs, expanded), ("int64", "int32", "int32", "float32", "bool"))
    shapes = {array.shape for array in (tokens, parents, log_probs, expanded)}
    if sizes.ndim != 1 or (sizes < 0).any() or shapes != {(int(sizes.sum()),)}:
        raise ValueError(f"the arrays of a pool must be flat and of {int(sizes.sum())} nodes; got {sorted(shapes)}")
    if not _are_pools(sizes, parents, log_probs, expanded):
        raise ValueError(
            "parents must come before children and be expanded, children stand together, and their log-probabilities "
            "be at most 0 and not rise"
        )


def _check_dtypes(arrays: Sequence[npt.NDArray[np.generic]], expected: Sequence[str]) -> None:
    dtypes = [str(array.dtype) for array in arrays]
    if dtypes != list(expected):
        raise ValueError(f"the arrays of a channel must be {', '.join(expected)}; got {', '.join(dtypes)}")


def beam_sizes(beam: int, top_k: int, num_passes: int) -> list[int]:
    """Nodes of a pool that each pass of a beam adds; the first are the root's children.

    Args:
        beam: nodes of a pass whose children are looked at in the next one.
        top_k: children of each.
        num_passes: below the root's own.
    """
    sizes = [top_k]
    for _ in range(num_passes):
        sizes.append(min(beam, sizes[-1]) * top_k)
    return sizes


def num_beam_nodes(beam: int, top_k: int, num_passes: int) -> int:
    """The sum of `beam_sizes`, without a list as long as there are passes."""
    size = total = top_k
    for done in range(num_passes):
        following = min(beam, size) * top_k
        if following == size:
            return total + (num_passes - done) * size
        size = following
        total += size
    return total


@kernel
def _in_order(log_probs: Floats) -> bool:
    for row in range(log_probs.shape[0]):
        highest = np.float32(0.0)
        for index in range(log_probs.shape[1]):
            if not log_probs[row, index] <= highest:
                return False
            highest = log_probs[row, index]
    return True


@kernel
def _are_pools(sizes: Longs, parents: Ints, log_probs: Floats, expanded: Bools) -> bool:
    start = 0
    for size in sizes:
        seen = np.zeros(size + 1, np.bool_)
        before, highest = -1, np.float32(0.0)
        for node in range(size):
            parent, log_prob = parents[start + node], log_probs[start + node]
            if parent < 0 or parent > node or (parent > 0 and not expanded[start + parent - 1]):
                return False
            if parent != before:
                if seen[parent]:
                    return False
                seen[parent], before, highest = True, parent, np.float32(0.0)
            if not log_prob <= highest:
                return False
            highest = log_prob
        start += size
    return True


@kernel
def node_depths(parents: Ints) -> Ints:
    """int32 ``[N]``, the depth of each node of one pool; a child of the root stands at depth 1."""
    depths = np.zeros(parents.size, np.int32)
    for node in range(parents.size):
        parent = parents[node]
        depths[node] = 1 if parent == 0 else depths[parent - 1] + 1
    return depths


@kernel
def _exact_nodes(sizes: Longs, parents: Ints, log_probs: Floats, expanded: Bools, depth: int) -> int:
    start, exact = 0, MOST_EXACT
    for size in sizes:
        depths = node_depths(parents[start : start + size])
        scores = np.zeros(size + 1)
        first = -np.inf
        for node in range(size):
            scores[node + 1] = scores[parents[start + node]] + log_probs[start + node]
            if depths[node] < depth and not expanded[start + node]:
                first = max(first, scores[node + 1])
        if first > -np.inf:
            exact = min(exact, 1 + int((scores[1:] > first).sum()))
        start += size
    return exact
