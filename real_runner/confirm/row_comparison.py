"""What a round saw against what was recorded at its root: ranks of candidates, and log-probabilities."""

import math
from dataclasses import dataclass

import numpy as np

from simlab.arrays import Floats, Ints
from simlab.channels import Branches, Channel, Features, Pool, ScoredTokens, TargetLaw, kind_of
from simlab.draft import Marginals


@dataclass(frozen=True, slots=True)
class RowDifference:
    """A depth of a drafted row at which ranks hold other candidates than in the record.

    Attributes:
        position: of the root.
        depth: counted from 1.
        num_ranks: how many.
        gap: the largest difference of log-probability, in the record, between the two candidates of a
            rank; NaN where one is not kept there.
        size: the largest difference of log-probability of one candidate, run against record.
    """

    position: int
    depth: int
    num_ranks: int
    gap: float
    size: float

    def __str__(self) -> str:
        return (
            f"row at {self.position}, depth {self.depth}: {self.num_ranks} ranks differ "
            f"(gap {self.gap:.3g}, log-probs by {self.size:.3g})"
        )


def compare_rows(position: int, ran: Marginals, recorded: Marginals) -> tuple[list[RowDifference], float]:
    """The depths at which ranks differ, and the largest difference of one candidate's log-probability.

    As many ranks of a depth are compared as both rows hold.

    Args:
        position: of the root, for the result.
        ran: what the policy saw.
        recorded: the record's row.

    Raises:
        ValueError: they look ahead differently far.
    """
    if recorded.depth != ran.depth:
        raise ValueError(f"the run drafts {ran.depth} tokens ahead, and the record holds {recorded.depth}")
    differences, largest = [], 0.0
    for depth in range(1, ran.depth + 1):
        num_ranks, gap, size = _compare_depth(*ran.at(depth), *recorded.at(depth))
        largest = max(largest, size)
        if num_ranks:
            differences.append(RowDifference(position, depth, num_ranks, gap, size))
    return differences, largest


def _compare_depth(ids: Ints, log_probs: Floats, ids_there: Ints, log_probs_there: Floats) -> tuple[int, float, float]:
    """Ranks that differ, the largest gap between their candidates, the largest difference of one candidate."""
    num = min(len(ids), len(ids_there))
    if num == 0:
        return 0, 0.0, 0.0
    order = np.argsort(ids_there)
    places = order[np.minimum(np.searchsorted(ids_there, ids[:num], sorter=order), len(order) - 1)]
    there = np.where(ids_there[places] == ids[:num], log_probs_there[places].astype(np.float64), np.nan)
    differing = ids[:num] != ids_there[:num]
    gap = np.abs(there - log_probs_there[:num])[differing].max(initial=0.0)
    size = np.nan_to_num(np.abs(there - log_probs[:num]), nan=0.0).max()
    return int(differing.sum()), float(gap), float(size)


@dataclass(frozen=True, slots=True)
class ChannelDifference:
    """A list of a channel in which ranks hold other candidates than in the record.

    Attributes:
        position: of the root.
        channel: its name.
        below: the tokens above the list: of transitions the depth and the single token, of a pool the whole path.
        num_ranks: how many; all of them where the record has no such list.
        gap: the largest difference of log-probability, in the record, between the two candidates of a
            rank; NaN where one is not there.
        size: the largest difference of log-probability of one candidate, run against record.
    """

    position: int
    channel: str
    below: str
    num_ranks: int
    gap: float
    size: float

    def __str__(self) -> str:
        return (
            f"{self.channel} at {self.position}, {self.below}: {self.num_ranks} ranks differ "
            f"(gap {self.gap:.3g}, log-probs by {self.size:.3g})"
        )


def compare_channels(
    position: int, name: str, ran: Channel, recorded: Channel
) -> tuple[list[ChannelDifference], float]:
    """The lists in which ranks differ, and the largest difference of one candidate's log-probability.

    Lists are paired by the tokens above them, not by their places: two tokens of the drafter that nearly tie may have
    changed places. Of a list that only one of the two has, all ranks differ.

    Args:
        position: of the root, for the result.
        name: of the channel, likewise.
        ran: what the policy saw.
        recorded: what it sees of the record.

    Raises:
        ValueError: they are of two kinds.
    """
    if kind_of(ran) != kind_of(recorded):
        raise ValueError(f"the channel {name} is of another kind in the record")
    if isinstance(ran, TargetLaw) and isinstance(recorded, TargetLaw):
        return [], abs(ran.entropy - recorded.entropy)
    if isinstance(ran, Features) and isinstance(recorded, Features):
        return [], float(np.abs(ran.values - recorded.values).max(initial=0.0))
    if isinstance(ran, Branches) and isinstance(recorded, Branches):
        # A round makes those alone that its policy asks for.
        recorded = recorded.only(ran.lengths.tolist())
    assert isinstance(ran, ScoredTokens)
    assert isinstance(recorded, ScoredTokens)
    here, there = _lists(ran), _lists(recorded)
    differences, largest = list[ChannelDifference](), 0.0
    for below in [*here, *(one for one in there if one not in here)]:
        if below in here and below in there:
            num_ranks, gap, size = _compare_depth(*here[below], *there[below])
            # A list may be longer in one of the two: what only one holds differs.
            num_ranks += abs(len(here[below][0]) - len(there[below][0]))
        else:
            num_ranks, gap, size = len((here.get(below) or there[below])[0]), math.nan, 0.0
        largest = max(largest, size)
        if num_ranks:
            differences.append(ChannelDifference(position, name, below, num_ranks, gap, size))
    return differences, largest


def _lists(channel: ScoredTokens) -> dict[str, tuple[Ints, Floats]]:
    """Ids and log-probs of each list of a channel, by the tokens above it, in words."""
    if isinstance(channel, Pool):
        return _families(channel)
    if isinstance(channel, Branches):
        return _branch_rows(channel)
    depths = np.repeat(np.arange(1, channel.depth + 1), channel.num_rows).tolist()
    above = [
        "the root",
        *(f"depth {depth} below {token}" for depth, token in zip(depths[1:], channel.previous.tolist(), strict=True)),
    ]
    return {below: (channel.ids[row], channel.log_probs[row]) for row, below in enumerate(above)}


def _branch_rows(channel: Branches) -> dict[str, tuple[Ints, Floats]]:
    """The rows of each branch."""
    above = [
        f"depth {depth} behind {length} tokens of the chain"
        for length in channel.lengths.tolist()
        for depth in range(length + 1, channel.depth + 1)
    ]
    return {below: (channel.ids[row], channel.log_probs[row]) for row, below in enumerate(above)}


def _families(pool: Pool) -> dict[str, tuple[Ints, Floats]]:
    """The children of each node of a pool."""
    paths = ["the root"]
    for token, parent in zip(pool.tokens.tolist(), pool.parents.tolist(), strict=True):
        paths.append(f"{paths[parent]} {token}")
    children = {parent: pool.parents == parent for parent in dict.fromkeys(pool.parents.tolist())}
    return {paths[parent]: (pool.tokens[which], pool.log_probs[which]) for parent, which in children.items()}
