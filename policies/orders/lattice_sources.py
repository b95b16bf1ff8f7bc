"""What fills the lattice at a root: the channel that a policy reads, and how much of it."""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from simlab.arrays import Floats, Ints, Longs, Scalar, read_only
from simlab.channels import (
    BRANCHES,
    POOL,
    TRANSITIONS,
    Branches,
    BranchRows,
    Channel,
    ChannelRows,
    Pool,
    PoolRows,
    TransitionRows,
    Transitions,
)
from simlab.channels.rows import NO_BRANCH
from simlab.draft import Draft, Marginals
from simlab.errors import MissingChannelError
from simlab.jit import kernel
from simlab.policies.edges.channel_lattice import ChannelLists, empty_lattice, fill_lattice
from simlab.policies.edges.lattice import PoolLists, TransitionLists
from simlab.policies.edges.redrafts import NO_TOKEN, BranchLists, likely_rejections, rows_read, true_branch_reach
from simlab.policies.kernels.take_lattice import true_reach
from simlab.policy import Asked, ChannelNeed, Needs
from simlab.recorded import RecordedTexts, Roots

Kind = TypeVar("Kind")

_EVERY_DEPTH = 1 << 30
"""More depths, rows or candidates than there are."""


class LatticeSource(Protocol):
    """Where the lists of candidates come from.

    Attributes:
        key: equal keys give equal lists.
        needs: what is read.
        has_probabilities: whether exp(score) of a candidate is meant as a probability, given its path.
    """

    @property
    def key(self) -> str: ...

    @property
    def needs(self) -> Needs: ...

    @property
    def has_probabilities(self) -> bool: ...

    def at_root(self, draft: Draft) -> ChannelLists:
        """The lists of one root.

        Raises:
            MissingChannelError: the draft does not hold the channel.
        """
        ...

    def at_roots(self, texts: RecordedTexts) -> ChannelLists:
        """The lists of all roots of some texts.

        Raises:
            MissingChannelError: the texts do not hold the channel.
        """
        ...


@dataclass(frozen=True, slots=True)
class TransitionSource:
    """A first-order drafter: rows of candidates below single tokens of the depth above.

    Attributes:
        channel: its name.
        previous: tokens of each depth that rows are read below; a token beyond them is a leaf.
        top_k: candidates that are read of each row.
    """

    channel: str
    _: KW_ONLY
    previous: int = 16
    top_k: int = 16
    has_probabilities: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        if min(self.previous, self.top_k) < 1:
            raise ValueError(f"previous and top_k must be at least 1; got {self.previous} and {self.top_k}")

    @property
    def key(self) -> str:
        """The channel and the settings of this source."""
        return f"transitions:{self.channel}:{self.previous}:{self.top_k}"

    @property
    def needs(self) -> Needs:
        """The channel, with as many rows and candidates; and the drafter's candidates that rows stand below."""
        least = (("previous", self.previous), ("top_k", self.top_k))
        return Needs(top_k=self.previous, channels=(ChannelNeed(self.channel, TRANSITIONS, least=least),))

    def at_root(self, draft: Draft) -> ChannelLists:
        """The lists of one root."""
        transitions = _channel(draft.channels, self.channel, Transitions, TRANSITIONS)
        return self._lists(transitions, transitions.num_rows[None], np.array([0, len(transitions.ids)], np.int64))

    def at_roots(self, texts: RecordedTexts) -> ChannelLists:
        """The lists of all roots of some texts."""
        rows = _channel(texts.channels, self.channel, TransitionRows, TRANSITIONS)
        return self._lists(rows, rows.num_rows, rows.starts())

    def _lists(self, rows: Transitions | TransitionRows, num_rows: Ints, starts: Longs) -> ChannelLists:
        arrays = _shared(num_rows), _shared(rows.previous), _shared(rows.ids), _shared(rows.log_probs)
        return ChannelLists(TransitionLists(*arrays, starts, self.previous, self.top_k))


@dataclass(frozen=True, slots=True)
class PoolSource:
    """Nodes of a tree that a model walked through, each scored given its path.

    With a depth price c, a path of d tokens scores log(1 + c * d) less, on the grid: TAPS's utility, the product of
    its probabilities over 1 + c * d. Scores still fall along every path, and are no probabilities any more.

    Attributes:
        need: the channel, and how it must have been made; a ``depth``, or ``steps``, that it has at least bound the
            tree's.
        depth_price: c.
        reads_draft: whether a drafter's pass comes before, from which the pool was made.
    """

    need: ChannelNeed
    _: KW_ONLY
    depth_price: float = 0.0
    reads_draft: bool = True

    def __post_init__(self) -> None:
        if self.need.kind != POOL:
            raise ValueError(f"expected the need of a pool; got one of {self.need.kind}")
        if not 0.0 <= self.depth_price < np.inf:
            raise ValueError(f"depth_price must be a number that is at least 0; got {self.depth_price}")

    @property
    def key(self) -> str:
        """The channel and the settings of this source."""
        return f"pool:{self.need}:{self.depth_price}:{self.reads_draft}"

    @property
    def needs(self) -> Needs:
        """The channel; of the drafter's own candidates nothing, and the least that can be asked for is one."""
        return Needs(draft=self.reads_draft, top_k=1, channels=(self.need,))

    @property
    def has_probabilities(self) -> bool:
        """Not with a price on depths."""
        return self.depth_price == 0.0

    def at_root(self, draft: Draft) -> ChannelLists:
        """The lists of one root."""
        pool = _channel(draft.channels, self.need.name, Pool, POOL)
        return self._lists(pool, np.array([0, len(pool.tokens)], np.int64))

    def at_roots(self, texts: RecordedTexts) -> ChannelLists:
        """The lists of all roots of some texts."""
        rows = _channel(texts.channels, self.need.name, PoolRows, POOL)
        return self._lists(rows, rows.starts())

    def _lists(self, rows: Pool | PoolRows, starts: Longs) -> ChannelLists:
        arrays = _shared(rows.tokens), _shared(rows.parents), _shared(rows.log_probs)
        deepest = self.need.deepest
        most = _EVERY_DEPTH if deepest is None else deepest
        return ChannelLists(pools=PoolLists(*arrays, starts, most, float(self.depth_price)))


def eagle3_source(channel: str, beam: int, top_k: int, steps: int) -> PoolSource:
    """The pools of an EAGLE-3 head, for which no drafter runs."""
    need = ChannelNeed(channel, POOL, least=(("steps", steps),), equal=(("beam", beam), ("top_k", top_k)))
    return PoolSource(need, reads_draft=False)


@dataclass(frozen=True, slots=True)
class BranchSource:
    """A second drafter's candidates where the first one's chain is most probably rejected.

    Attributes:
        channel: its name.
        count: at so many boundaries a branch is read.
        whole: whether the branch behind the whole chain is read besides.
        top_k: candidates that are read of each row.
    """

    channel: str
    _: KW_ONLY
    count: int = 4
    whole: bool = False
    top_k: int = 8
    has_probabilities: bool = field(default=True, init=False)

    def __post_init__(self) -> None:
        if self.count < 0 or self.top_k < 1:
            raise ValueError(f"count must be at least 0, top_k at least 1; got {self.count} and {self.top_k}")

    @property
    def key(self) -> str:
        """The channel and the settings of this source."""
        return f"branches:{self.channel}:{self.count}:{self.whole}:{self.top_k}"

    @property
    def needs(self) -> Needs:
        """The channel, as many branches and candidates of it; and the first candidate of each depth, the chain."""
        num = self.count + self.whole
        least = (("branches", num), ("top_k", self.top_k))
        return Needs(top_k=1, channels=(ChannelNeed(self.channel, BRANCHES, least=least),) if num else ())

    def asked(self, draft: Draft) -> Asked:
        """The branches of one root that are read."""
        _, log_probs = _chain_of(draft.drafted())
        depths = likely_rejections(log_probs, self.count, self.whole)
        return {self.channel: tuple(depths.tolist())} if self.count + self.whole else {}

    def at_root(self, draft: Draft) -> ChannelLists:
        """The lists of one root."""
        ids, log_probs = _chain_of(draft.drafted())
        rows = None
        if self.count + self.whole:
            branches = _channel(draft.channels, self.channel, Branches, BRANCHES)
            rows = BranchRows(branches.lengths[None], branches.depth, branches.ids, branches.log_probs)
        return self._lists(ids[None], log_probs[None], rows)

    def at_roots(self, texts: RecordedTexts) -> ChannelLists:
        """The lists of all roots of some texts."""
        reads = self.count + self.whole > 0
        rows = _channel(texts.channels, self.channel, BranchRows, BRANCHES) if reads else None
        return self._lists(*_chains(texts.drafted()), rows)

    def _lists(self, ids: Ints, log_probs: Floats, rows: BranchRows | None) -> ChannelLists:
        """The lists; without any branch where there are no rows."""
        if rows is None:
            nothing = np.zeros((0, 1), np.int32), np.zeros((0, 1), np.float32)
            rows = BranchRows(np.full((len(ids), 1), NO_BRANCH, np.int32), 1, *nothing)
        chain = _shared(ids), _shared(log_probs)
        read = rows_read(*chain, _shared(rows.lengths), rows.starts(), rows.depth, self.count, self.whole)
        branches = BranchLists(*chain, *read, _shared(rows.ids), _shared(rows.log_probs), rows.depth, self.top_k)
        return ChannelLists(branches=branches)


@kernel
def _chains(roots: Roots) -> tuple[Ints, Floats]:
    """The first candidate of each depth of all roots, int32 and float32 ``[R, D]``."""
    num_roots, num_depths = roots.counts.shape
    ids, log_probs = np.full((num_roots, num_depths), NO_TOKEN, np.int32), np.zeros((num_roots, num_depths), np.float32)
    for root in range(num_roots):
        index = roots.starts[root]
        for depth in range(num_depths):
            if roots.counts[root, depth] > 0:
                ids[root, depth], log_probs[root, depth] = roots.ids[index], roots.log_probs[index]
            index += roots.counts[root, depth]
    return ids, log_probs


def _chain_of(marginals: Marginals) -> tuple[Ints, Floats]:
    """The first candidate of each depth, int32 and float32 ``[D]``; as long as there are any."""
    length = len(marginals.top_tokens(marginals.depth))
    firsts = marginals.offsets[:length]
    return marginals.ids[firsts], marginals.log_probs[firsts]


def source_of(need: ChannelNeed) -> LatticeSource:
    """All lists that a policy can read of a channel."""
    least = dict(need.least)
    if need.kind == BRANCHES:
        return BranchSource(need.name, count=_EVERY_DEPTH, whole=True, top_k=least.get("top_k", _EVERY_DEPTH))
    if need.kind == POOL:
        return PoolSource(need)
    return TransitionSource(
        need.name, previous=least.get("previous", _EVERY_DEPTH), top_k=least.get("top_k", _EVERY_DEPTH)
    )


def true_reaches(source: LatticeSource, texts: RecordedTexts) -> Ints:
    """How many true tokens behind each root lie on one path of its lists, whatever the budget.

    No tree of this source holds more of them, so that hindsight on it is bounded by these numbers.

    Returns:
        int32 ``[R]``.
    """
    lists, reaches = source.at_roots(texts), np.empty(len(texts.roots.token_indices), np.int32)
    if lists.branches is not None:
        _fill_branch_reaches(texts.roots, lists.branches, reaches)
        return reaches
    _fill_reaches(texts.roots, *lists, reaches)
    return reaches


@kernel
def _fill_reaches(
    roots: Roots,
    transitions: TransitionLists | None,
    pools: PoolLists | None,
    branches: BranchLists | None,
    reaches: Ints,
) -> None:
    lattice = empty_lattice(transitions, pools, branches)
    for text in range(roots.firsts.size - 1):
        for root in range(roots.firsts[text], roots.firsts[text + 1]):
            fill_lattice(lattice, transitions, pools, branches, root)
            reaches[root] = true_reach(lattice, roots.tokens[roots.token_indices[root] + 1 : roots.begins[text + 1]])


@kernel
def _fill_branch_reaches(roots: Roots, branches: BranchLists, reaches: Ints) -> None:
    """On the branches themselves: they hold more paths than the lists of one policy do."""
    for text in range(roots.firsts.size - 1):
        for root in range(roots.firsts[text], roots.firsts[text + 1]):
            behind = roots.tokens[roots.token_indices[root] + 1 : roots.begins[text + 1]]
            reaches[root] = true_branch_reach(branches, root, behind)


def _shared(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """As kernels read what was recorded: they are compiled once more for arrays of another layout."""
    return read_only(np.ascontiguousarray(array))


def _channel(
    channels: Mapping[str, Channel] | Mapping[str, ChannelRows], name: str, wanted: type[Kind], kind: str
) -> Kind:
    """The channel of a name, which must be there and of a kind."""
    if name not in channels:
        raise MissingChannelError(
            f"the policy reads the channel {name}, and there is {', '.join(channels) or 'none'} here; read it with the "
            "texts, or declare it in the policy's needs"
        )
    channel = channels[name]
    if not isinstance(channel, wanted):
        raise MissingChannelError(f"the policy reads {kind} in the channel {name}, and it holds another kind")
    return channel
