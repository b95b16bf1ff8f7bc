"""A text as it was decoded against the same text as it was recorded: rows, trees, accepted paths.

Two passes of other shapes add in another order, so candidates that nearly tie may change places. Every
such difference is listed, with the gap that it met.
"""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any, TypeAlias

import numpy as np

from simlab.arrays import Doubles, Floats, Ints
from simlab.channels import Branches, Channel, Features, Pool, ScoredTokens, TargetLaw
from simlab.draft import Marginals
from simlab.policy import AnyPolicy
from simlab.real_runner.decoding.decoded import DecodedText, parting_of
from simlab.recorded import DraftRows, RecordedSequence
from simlab.sequence_replay import Round, draft_source, rounds
from simlab.tree import DraftTree

RecordDifference: TypeAlias = dict[str, Any]
"""One thing that differs, as flat values, ``says`` all of it in words. By ``kind``:

``text``: the decoded text leaves the recorded one at token ``position``: ``ran`` and ``recorded`` are the tokens there,
None behind the end, and ``gap`` is by how much the recorded choice had won, in units of a logit; NaN where not known.

``round``: at the root at ``position`` another tree was drafted, or another path accepted. ``num_nodes`` of the two
trees differ, all further nodes where one is larger. ``gap`` is the largest difference of path log-probability, under
the record's row, between two nodes that hold the same place in the two trees; 0 where only the paths differ, NaN where
it cannot be told: the trees differ in size, or a token is not in the record's row. ``ran_accepted`` and
``recorded_accepted`` are nodes of the accepted paths, counted up to where the texts part.

``row``: at a ``depth`` of the drafted row of the root at ``position``, counted from 1, ``num_ranks`` ranks hold other
candidates than in the record. ``gap`` is the largest difference of log-probability, in the record, between the two
candidates of a rank, NaN where one is not kept there; ``size`` that of one candidate, run against record.

``channel``: the same of a list of a ``channel``; ``below`` are the tokens above the list: of transitions the depth and
the single token, of a pool the whole path. All ranks differ where the record has no such list."""


# What a round saw against what was recorded at its root: ranks of candidates, and log-probabilities.


def compare_rows(position: int, ran: Marginals, recorded: Marginals) -> tuple[list[RecordDifference], float]:
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
    differences, largest = list[RecordDifference](), 0.0
    for depth in range(1, ran.depth + 1):
        num_ranks, gap, size = _compare_depth(*ran.at(depth), *recorded.at(depth))
        largest = max(largest, size)
        if num_ranks:
            where = {"kind": "row", "position": position, "depth": depth}
            differences.append(where | _of_ranks(f"row at {position}, depth {depth}", num_ranks, gap, size))
    return differences, largest


def _of_ranks(where: str, num_ranks: int, gap: float, size: float) -> RecordDifference:
    """What is told of ranks that differ somewhere."""
    says = f"{where}: {num_ranks} ranks differ (gap {gap:.3g}, log-probs by {size:.3g})"
    return {"num_ranks": num_ranks, "gap": gap, "size": size, "says": says}


def _compare_depth(ids: Ints, log_probs: Floats, ids_there: Ints, log_probs_there: Floats) -> tuple[int, float, float]:
    """Ranks that differ, the largest gap between their candidates, the largest difference of one candidate."""
    num = min(len(ids), len(ids_there))
    if num == 0:
        return 0, 0.0, 0.0
    order = np.argsort(ids_there)
    indices = order[np.minimum(np.searchsorted(ids_there, ids[:num], sorter=order), len(order) - 1)]
    matching = np.where(ids_there[indices] == ids[:num], log_probs_there[indices].astype(np.float64), np.nan)
    differing = ids[:num] != ids_there[:num]
    gap = np.abs(matching - log_probs_there[:num])[differing].max(initial=0.0)
    size = np.nan_to_num(np.abs(matching - log_probs[:num]), nan=0.0).max()
    return int(differing.sum()), float(gap), float(size)


def compare_channels(position: int, name: str, ran: Channel, recorded: Channel) -> tuple[list[RecordDifference], float]:
    """The lists in which ranks differ, and the largest difference of one candidate's log-probability.

    Lists are paired by the tokens above them, not by their places: two tokens of the drafter that nearly tie may have
    changed places. Of a list that only one of the two has, all ranks differ.

    Args:
        position: of the root, for the result.
        name: of the channel, the same.
        ran: what the policy saw.
        recorded: what it sees of the record.

    Raises:
        ValueError: they are of two kinds.
    """
    if ran.kind != recorded.kind:
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
    ours, theirs = _lists(ran), _lists(recorded)
    differences, largest = list[RecordDifference](), 0.0
    for below in [*ours, *(key for key in theirs if key not in ours)]:
        if below in ours and below in theirs:
            num_ranks, gap, size = _compare_depth(*ours[below], *theirs[below])
            # A list may be longer in one of the two: what only one holds differs.
            num_ranks += abs(len(ours[below][0]) - len(theirs[below][0]))
        else:
            num_ranks, gap, size = len((ours.get(below) or theirs[below])[0]), math.nan, 0.0
        largest = max(largest, size)
        if num_ranks:
            where = {"kind": "channel", "position": position, "channel": name, "below": below}
            differences.append(where | _of_ranks(f"{name} at {position}, {below}", num_ranks, gap, size))
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
    return {paths[parent]: (pool.tokens[nodes], pool.log_probs[nodes]) for parent, nodes in children.items()}


@dataclass(frozen=True, slots=True)
class RecordComparison:
    """All that differs, up to where the two texts part; behind that nothing can be compared.

    Attributes:
        parting: None where the texts are equal.
        num_rounds: roots compared.
        num_unpaired: rounds before the parting, of run or record, at a root where the other has none;
            they follow from a difference before them.
        round_differences: in order.
        num_rows: drafted rows compared.
        row_differences: in order.
        largest_size: the largest difference of log-probability of one candidate in any row; 0 without rows.
        num_channel_rows: roots at which a channel was compared, counted once for each channel.
        channel_differences: in order.
        largest_channel_size: as ``largest_size``, of one candidate of a channel.
    """

    parting: RecordDifference | None
    num_rounds: int
    num_unpaired: int
    round_differences: tuple[RecordDifference, ...]
    num_rows: int
    row_differences: tuple[RecordDifference, ...]
    largest_size: float
    num_channel_rows: int = 0
    channel_differences: tuple[RecordDifference, ...] = ()
    largest_channel_size: float = 0.0

    @property
    def rounds_equal(self) -> bool:
        """Whether all rounds before a parting are the same."""
        return not self.round_differences and not self.num_unpaired

    def differences(self) -> list[RecordDifference]:
        """All that differs: the texts, then rounds, drafted rows and channels, each in order."""
        parting = [] if self.parting is None else [self.parting]
        return [*parting, *self.round_differences, *self.row_differences, *self.channel_differences]


def compare_with_record(
    policy: AnyPolicy, decoded: DecodedText, recorded: RecordedSequence, decision_gaps: Floats | None = None
) -> RecordComparison:
    """Hold the rounds and the rows of a run against the replay of a record of the same prompt.

    Args:
        policy: the one that ran; replayed on the record.
        decoded: the run.
        recorded: with the drafter's rows, where the policy reads them, and its channels.
        decision_gaps: float32 ``[T]``, of the record's target rows, for the gap of a parting.

    Raises:
        SimlabError: the policy cannot be replayed on this record.
        ValueError: they are of different prompts, or the drafters look ahead differently far.
    """
    if not np.array_equal(decoded.prompt.token_ids, recorded.prompt.token_ids):
        raise ValueError(f"{decoded.prompt.prompt_id!r} and {recorded.prompt.prompt_id!r} are not the same prompt")
    parting = parting_of(decoded.text, recorded.text)
    end = len(decoded.text) if parting is None else parting
    # At the last token of the shorter text no round begins, though the longer one may go on there.
    last = min(end, len(decoded.text) - 1, len(recorded.text) - 1)
    ran = {round_.round.position: round_.round for round_ in decoded.rounds if round_.round.position < last}
    replayed = {
        round_.position: round_ for round_ in takewhile(lambda round_: round_.position < last, rounds(policy, recorded))
    }
    common = sorted(ran.keys() & replayed.keys())
    rows = _rows_at(recorded.rows, ran.keys())
    drafted = [(round_.round.position, round_.marginals) for round_ in decoded.rounds if round_.round.position in rows]
    compared = [compare_rows(t, marginals, rows[t]) for t, marginals in drafted if marginals is not None]
    in_channels = list(_channels_compared(policy, decoded, recorded, last))
    of_rounds = [_compare_round(ran[t], replayed[t], end, rows.get(t)) for t in common]
    return RecordComparison(
        parting=_text_parting(parting, decoded, recorded, decision_gaps),
        num_rounds=len(common),
        num_unpaired=len(ran.keys() ^ replayed.keys()),
        round_differences=tuple(difference for difference in of_rounds if difference is not None),
        num_rows=len(compared),
        row_differences=tuple(difference for row, _ in compared for difference in row),
        largest_size=max((size for _, size in compared), default=0.0),
        num_channel_rows=len(in_channels),
        channel_differences=tuple(difference for differences, _ in in_channels for difference in differences),
        largest_channel_size=max((size for _, size in in_channels), default=0.0),
    )


def _channels_compared(
    policy: AnyPolicy, decoded: DecodedText, recorded: RecordedSequence, last: int
) -> Iterator[tuple[list[RecordDifference], float]]:
    """Each channel at each root that was visited, beside what the policy sees of its record there."""
    seen = draft_source(policy.needs, recorded)
    for ran in decoded.rounds:
        if ran.channels and ran.round.position < last:
            on_record = seen(ran.round.position).channels
            for name, channel in ran.channels.items():
                yield compare_channels(ran.round.position, name, channel, on_record[name])


def _text_parting(
    parting: int | None, decoded: DecodedText, recorded: RecordedSequence, decision_gaps: Floats | None
) -> RecordDifference | None:
    if parting is None:
        return None
    ours, theirs = (int(text[parting]) if parting < len(text) else None for text in (decoded.text, recorded.text))
    gap = math.nan if decision_gaps is None or theirs is None else float(decision_gaps[parting])
    says = f"token {parting}: {ours} in the run, {theirs} in the record (gap {gap:.3g})"
    return {"kind": "text", "position": parting, "ran": ours, "recorded": theirs, "gap": gap, "says": says}


def _rows_at(rows: DraftRows | None, roots: Collection[int]) -> dict[int, Marginals]:
    """The record's rows at some roots; none where it holds none."""
    if rows is None:
        return {}
    starts = rows.starts()
    return {t: rows.row(t, int(starts[t])) for t in roots}


def _compare_round(ran: Round, replayed: Round, end: int, row: Marginals | None) -> RecordDifference | None:
    num_common = end - ran.position - 1
    ours, theirs = len(ran.path[:num_common]), len(replayed.path[:num_common])
    nodes = _differing_nodes(ran.tree, replayed.tree)
    if not nodes and ran.path[:num_common] == replayed.path[:num_common]:
        return None
    gap = _tree_gap(ran.tree, replayed.tree, nodes, row)
    says = (
        f"round at {ran.position}: {len(nodes)} nodes differ (gap {gap:.3g}), {ours} accepted in the run, {theirs} in "
        "the record"
    )
    values = {"position": ran.position, "num_nodes": len(nodes), "gap": gap}
    return {"kind": "round", **values, "ran_accepted": ours, "recorded_accepted": theirs, "says": says}


def _differing_nodes(ran: DraftTree, replayed: DraftTree) -> list[int]:
    """Places at which two trees hold different nodes, or one of them none."""
    num = min(ran.num_nodes, replayed.num_nodes)
    differ = (ran.tokens[:num] != replayed.tokens[:num]) | (ran.parents[:num] != replayed.parents[:num])
    return [*np.flatnonzero(differ).tolist(), *range(num, max(ran.num_nodes, replayed.num_nodes))]


def _tree_gap(ran: DraftTree, replayed: DraftTree, nodes: list[int], row: Marginals | None) -> float:
    if not nodes:
        return 0.0
    if row is None or ran.num_nodes != replayed.num_nodes:
        return math.nan
    return float(np.abs(_path_log_probs(ran, row) - _path_log_probs(replayed, row))[nodes].max())


def _path_log_probs(tree: DraftTree, row: Marginals) -> Doubles:
    """float64 ``[N + 1]``; NaN from a token on that the row does not hold, or that lies deeper than it."""
    tables = [dict(zip(*map(np.ndarray.tolist, row.at(depth)), strict=True)) for depth in range(1, row.depth + 1)]
    sums, depths = np.zeros(tree.num_nodes), tree.depths()
    for node in range(1, tree.num_nodes):
        table = tables[depths[node] - 1] if depths[node] <= row.depth else {}
        own = table.get(int(tree.tokens[node]), math.nan)
        sums[node] = sums[tree.parents[node]] + own
    return sums
