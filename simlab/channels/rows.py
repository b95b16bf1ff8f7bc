"""Scored tokens, at one root and at many: transitions, pools and branches; and all kinds of channels."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias, cast

import numpy as np
import numpy.typing as npt

from simlab.arrays import Bools, Floats, Ints, Longs
from simlab.channels.features import FeatureRows, Features, TargetLaw, TargetLawRows
from simlab.channels.root_rows import BRANCHES, POOL, TRANSITIONS, AtRoot, RootRows, concatenated, starts_of
from simlab.grid import LOWEST
from simlab.jit import kernel

EXACT_NODES = "exact_nodes"
"""The setting of a pool that is counted once all of it is recorded: see `PoolRows.exact_nodes`."""

WHOLE_CHAIN = "whole"
"""The setting, 1, of branches of which a root has one: the one behind the whole chain of the draft set."""

MOST_EXACT = 65_535
"""Where no node of a pool is left unexpanded, its trees are exact up to this budget, the largest that is recorded."""


@dataclass(frozen=True, slots=True, eq=False)
class Transitions(AtRoot):
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

    kind: ClassVar = TRANSITIONS
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

    def as_rows(self) -> "TransitionRows":
        """The rows of this root alone."""
        return TransitionRows(self.num_rows[None], self.previous, self.ids, self.log_probs)

    def emptied(self) -> "Transitions":
        """One row, below the root, that holds token 0 alone, as improbable as the grid has it."""
        num_rows, shape = np.zeros(self.depth, np.int32), (1, self.ids.shape[1])
        num_rows[0] = 1
        return Transitions(num_rows, self.previous[:0], np.zeros(shape, np.int32), np.full(shape, LOWEST, np.float32))


@dataclass(frozen=True, slots=True, eq=False)
class Pool(AtRoot):
    """At one root, the nodes of a tree that a model walked through, each scored given its path.

    Attributes:
        tokens: int32 ``[N]``.
        parents: int32 ``[N]``; node i has the number i + 1, the root 0, and a parent comes before its children, which
            stand together, the most probable first.
        log_probs: float32 ``[N]``, of a token given its path, on the grid.
        expanded: bool ``[N]``, whether the node's children are in the pool.
    """

    kind: ClassVar = POOL
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

    def as_rows(self) -> "PoolRows":
        """The nodes of this root alone."""
        size = np.array([len(self.tokens)], np.int64)
        return PoolRows(size, self.tokens, self.parents, self.log_probs, self.expanded)

    def emptied(self) -> "Pool":
        """A pool without nodes."""
        return self.first(0)


@dataclass(frozen=True, slots=True, eq=False)
class TransitionRows(RootRows[Transitions]):
    """The transitions at some roots, one after the other.

    Attributes:
        num_rows: int32 ``[N, D]``, of each root.
        previous: int32 ``[sum (S - 1)]``.
        ids: int32 ``[sum S, R]``.
        log_probs: float32 ``[sum S, R]``.
    """

    kind: ClassVar = TRANSITIONS
    num_rows: Ints
    previous: Ints
    ids: Ints
    log_probs: Floats

    def __post_init__(self) -> None:
        _check_transitions(self.num_rows, self.previous, self.ids, self.log_probs)

    def starts(self) -> Longs:
        """int64 ``[N + 1]``, the first row of each root, and the number of all."""
        return starts_of(self.num_rows.sum(axis=1, dtype=np.int64))

    def row(self, t: int, start: int) -> Transitions:
        """The transitions at root ``t``, whose rows begin at ``start``."""
        num = int(self.num_rows[t].sum())
        rows = slice(start, start + num)
        above = slice(start - t, start - t + num - 1)
        return Transitions(self.num_rows[t], self.previous[above], self.ids[rows], self.log_probs[rows])

    def part(self, first: int, last: int, starts: Longs) -> "TransitionRows":
        """Those from one root up to another, without copying; ``starts`` as `starts` gives them."""
        rows = slice(int(starts[first]), int(starts[last]))
        above = slice(rows.start - first, rows.stop - last)
        return TransitionRows(self.num_rows[first:last], self.previous[above], self.ids[rows], self.log_probs[rows])


@dataclass(frozen=True, slots=True, eq=False)
class PoolRows(RootRows[Pool]):
    """The pools at some roots, one after the other.

    Attributes:
        sizes: int64 ``[N]``, nodes of each.
        tokens: int32 ``[sum n]``.
        parents: int32 ``[sum n]``, numbers within the pool of the root.
        log_probs: float32 ``[sum n]``.
        expanded: bool ``[sum n]``.
    """

    kind: ClassVar = POOL
    sizes: Longs
    tokens: Ints
    parents: Ints
    log_probs: Floats
    expanded: Bools

    def __post_init__(self) -> None:
        _check_pool(self.sizes, self.tokens, self.parents, self.log_probs, self.expanded)

    def starts(self) -> Longs:
        """int64 ``[N + 1]``, the first node of each root, and the number of all."""
        return starts_of(self.sizes)

    def row(self, t: int, start: int) -> Pool:
        """The pool at root ``t``, which begins at ``start``."""
        nodes = slice(start, start + int(self.sizes[t]))
        return Pool(self.tokens[nodes], self.parents[nodes], self.log_probs[nodes], self.expanded[nodes])

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


NO_BRANCH = -1
"""In place of a length, where a root has fewer branches than another."""


@dataclass(frozen=True, slots=True, eq=False)
class Branches(AtRoot):
    """At one root, a second drafter's candidates behind the first i tokens of the chain, for some lengths i.

    The chain is the first candidate of each depth of the draft set that is gone on from; its tokens stand there. A
    branch of length i has one row for each of the depths i + 1 to ``depth``.

    Attributes:
        lengths: int32 ``[B]``, rising.
        depth: the last depth of every branch.
        ids: int32 ``[S, K]``, S the sum of ``depth - i``, branch after branch; the most probable first.
        log_probs: float32 ``[S, K]``, on the grid.
    """

    kind: ClassVar = BRANCHES
    lengths: Ints
    depth: int
    ids: Ints
    log_probs: Floats

    def __post_init__(self) -> None:
        _check_branches(self.lengths[None], self.depth, self.ids, self.log_probs)
        if (self.lengths < 0).any():
            raise ValueError("the length of a branch must be at least 0")

    def first(self, top_k: int) -> "Branches":
        """The first candidates of each row alone."""
        return Branches(self.lengths, self.depth, self.ids[:, :top_k], self.log_probs[:, :top_k])

    def only(self, lengths: Sequence[int]) -> "Branches":
        """The branches of these lengths alone, in any order; one as long as ``depth`` has no rows and is left out."""
        wanted = np.unique(np.array([length for length in lengths if length < self.depth], np.int32))
        missing = np.setdiff1d(wanted, self.lengths)
        if missing.size:
            raise ValueError(f"there is no branch behind {missing[0]} tokens; there are {self.lengths.tolist()}")
        kept = np.repeat(np.isin(self.lengths, wanted), self.depth - self.lengths)
        return Branches(wanted, self.depth, self.ids[kept], self.log_probs[kept])

    def as_rows(self) -> "BranchRows":
        """The branches of this root alone."""
        return BranchRows(self.lengths[None], self.depth, self.ids, self.log_probs)

    def emptied(self) -> "Branches":
        """Without branches, as deep and as wide."""
        return self.only([])


@dataclass(frozen=True, slots=True, eq=False)
class BranchRows(RootRows[Branches]):
    """The branches at some roots, one after the other.

    Attributes:
        lengths: int32 ``[N, B]``, of each root, rising; `NO_BRANCH` behind the last where a root has fewer.
        depth: the last depth of every branch.
        ids: int32 ``[sum S, K]``.
        log_probs: float32 ``[sum S, K]``.
    """

    kind: ClassVar = BRANCHES
    lengths: Ints
    depth: int
    ids: Ints
    log_probs: Floats

    def __post_init__(self) -> None:
        _check_branches(self.lengths, self.depth, self.ids, self.log_probs)

    def starts(self) -> Longs:
        """int64 ``[N + 1]``, the first row of each root, and the number of all."""
        return starts_of(_num_rows(self.lengths, self.depth))

    def row(self, t: int, start: int) -> Branches:
        """The branches at root ``t``, whose rows begin at ``start``."""
        lengths = self.lengths[t]
        lengths = lengths[lengths >= 0]
        rows = slice(start, start + int((self.depth - lengths).sum()))
        return Branches(lengths, self.depth, self.ids[rows], self.log_probs[rows])

    def part(self, first: int, last: int, starts: Longs) -> "BranchRows":
        """Those from one root up to another, without copying; ``starts`` as `starts` gives them."""
        rows = slice(int(starts[first]), int(starts[last]))
        return BranchRows(self.lengths[first:last], self.depth, self.ids[rows], self.log_probs[rows])

    @classmethod
    def joined(cls, parts: Sequence["BranchRows"]) -> "BranchRows":
        """The branches of several texts, copied one after the other; where a root has fewer, `NO_BRANCH` behind."""
        if len({(part.depth, part.ids.shape[1]) for part in parts}) != 1:
            raise ValueError("expected branches of one depth and width")
        most = max(part.lengths.shape[1] for part in parts)
        lengths = [
            np.pad(part.lengths, ((0, 0), (0, most - part.lengths.shape[1])), constant_values=NO_BRANCH)
            for part in parts
        ]
        ids, log_probs = concatenated([part.ids for part in parts]), concatenated([part.log_probs for part in parts])
        return BranchRows(concatenated(lengths), parts[0].depth, ids, log_probs)


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


def join_channels(parts: Sequence[ChannelRows]) -> ChannelRows:
    """The rows of several texts, one after the other; those of more than one are copied."""
    if len({type(part) for part in parts}) != 1:
        raise ValueError("expected rows of one channel")
    joined: Any = parts[0]
    return cast(ChannelRows, parts[0] if len(parts) == 1 else joined.joined(parts))


def _first_rows(num_rows: Ints, previous: int) -> tuple[Ints, Longs]:
    """Rows of each depth when each has at most so many, and which these are."""
    starts = starts_of(num_rows)[:-1]
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
    if not _falls(log_probs):
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


def _num_rows(lengths: Ints, depth: int) -> Longs:
    return np.asarray(np.where(lengths >= 0, depth - lengths, 0).sum(axis=1), np.int64)


def _check_branches(lengths: Ints, depth: int, ids: Ints, log_probs: Floats) -> None:
    _check_dtypes((lengths, ids, log_probs), ("int32", "int32", "float32"))
    if lengths.ndim != 2 or ids.ndim != 2 or ids.shape != log_probs.shape:
        raise ValueError(f"lengths, ids and log_probs do not fit: {lengths.shape}, {ids.shape}, {log_probs.shape}")
    before, after = lengths[:, :-1], lengths[:, 1:]
    if (lengths >= depth).any() or (lengths < NO_BRANCH).any() or not ((after > before) | (after == NO_BRANCH)).all():
        raise ValueError(f"the lengths of branches must rise from 0 to below their depth {depth}")
    num = int(_num_rows(lengths, depth).sum())
    if len(ids) != num:
        raise ValueError(f"branches of these lengths have {num} rows; got {len(ids)}")
    if not _falls(log_probs):
        raise ValueError("the log-probabilities of a row must be at most 0 and must not rise")


def _falls(log_probs: npt.NDArray[np.float32]) -> bool:
    return bool((log_probs[:, :1] <= 0).all() and (log_probs[:, 1:] <= log_probs[:, :-1]).all())


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
