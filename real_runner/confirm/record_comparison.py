"""A text as it was decoded against the same text as it was recorded: rows, trees, accepted paths.

Two passes of other shapes add in another order, so candidates that nearly tie may change places. Every
such difference is listed, with the gap that it met.
"""

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from simlab.arrays import Doubles, Floats
from simlab.draft import Marginals
from simlab.policy import AnyPolicy
from simlab.real_runner.confirm.row_comparison import (
    ChannelDifference,
    RowDifference,
    compare_channels,
    compare_rows,
)
from simlab.real_runner.decoding.decoded import DecodedText, parting_of
from simlab.recorded import DraftRows, RecordedSequence
from simlab.sequence_replay import Round, draft_source, rounds
from simlab.tree import DraftTree


@dataclass(frozen=True, slots=True)
class TextParting:
    """Where the decoded text leaves the recorded one.

    Attributes:
        position: in the text.
        ran: the token decoded there; None behind the end.
        recorded: the token recorded there; None behind the end.
        gap: by how much the recorded choice had won there, in units of a logit; NaN where not known.
    """

    position: int
    ran: int | None
    recorded: int | None
    gap: float

    def __str__(self) -> str:
        return f"token {self.position}: {self.ran} in the run, {self.recorded} in the record (gap {self.gap:.3g})"


@dataclass(frozen=True, slots=True)
class RoundDifference:
    """A root at which another tree was drafted, or another path accepted.

    Attributes:
        position: of the root.
        num_nodes: of the two trees, at which they differ; all further nodes where one is larger.
        gap: the largest difference of path log-probability, under the record's row, between two nodes
            that hold the same place in the two trees; 0 where only the paths differ, NaN where it
            cannot be told: the trees differ in size, or a token is not in the record's row.
        ran_accepted: nodes of the accepted path.
        recorded_accepted: as above; both counted up to where the texts part.
    """

    position: int
    num_nodes: int
    gap: float
    ran_accepted: int
    recorded_accepted: int

    def __str__(self) -> str:
        return (
            f"round at {self.position}: {self.num_nodes} nodes differ (gap {self.gap:.3g}), "
            f"{self.ran_accepted} accepted in the run, {self.recorded_accepted} in the record"
        )


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

    parting: TextParting | None
    num_rounds: int
    num_unpaired: int
    round_differences: tuple[RoundDifference, ...]
    num_rows: int
    row_differences: tuple[RowDifference, ...]
    largest_size: float
    num_channel_rows: int = 0
    channel_differences: tuple[ChannelDifference, ...] = ()
    largest_channel_size: float = 0.0

    @property
    def rounds_equal(self) -> bool:
        """Whether all rounds before a parting are the same."""
        return not self.round_differences and not self.num_unpaired

    def differences(self) -> list[str]:
        """Every difference in words."""
        differences = [*self.round_differences, *self.row_differences, *self.channel_differences]
        return [*([str(self.parting)] if self.parting else []), *map(str, differences)]


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
    ran = {one.round.position: one.round for one in decoded.rounds if one.round.position < last}
    replayed = {one.position: one for one in _before(last, rounds(policy, recorded))}
    common = sorted(ran.keys() & replayed.keys())
    rows = _rows_at(recorded.rows, ran.keys())
    drafted = [(one.round.position, one.marginals) for one in decoded.rounds if one.round.position in rows]
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
        channel_differences=tuple(difference for found, _ in in_channels for difference in found),
        largest_channel_size=max((size for _, size in in_channels), default=0.0),
    )


def _channels_compared(
    policy: AnyPolicy, decoded: DecodedText, recorded: RecordedSequence, last: int
) -> Iterator[tuple[list[ChannelDifference], float]]:
    """Each channel at each root that was visited, beside what the policy sees of its record there."""
    seen = draft_source(policy.needs, recorded)
    for ran in decoded.rounds:
        if ran.channels and ran.round.position < last:
            there = seen(ran.round.position).channels
            for name, channel in ran.channels.items():
                yield compare_channels(ran.round.position, name, channel, there[name])


def _before(end: int, replayed: Iterator[Round]) -> Iterator[Round]:
    """The rounds whose roots lie before ``end``."""
    for coming in replayed:
        if coming.position >= end:
            return
        yield coming


def _text_parting(
    parting: int | None, decoded: DecodedText, recorded: RecordedSequence, decision_gaps: Floats | None
) -> TextParting | None:
    if parting is None:
        return None
    here, there = (int(text[parting]) if parting < len(text) else None for text in (decoded.text, recorded.text))
    gap = math.nan if decision_gaps is None or there is None else float(decision_gaps[parting])
    return TextParting(parting, here, there, gap)


def _rows_at(rows: DraftRows | None, roots: Collection[int]) -> dict[int, Marginals]:
    """The record's rows at some roots; none where it holds none."""
    if rows is None:
        return {}
    starts = rows.starts()
    return {t: rows.row(t, int(starts[t])) for t in roots}


def _compare_round(ran: Round, replayed: Round, end: int, row: Marginals | None) -> RoundDifference | None:
    num_common = end - ran.position - 1
    here, there = len(ran.path[:num_common]), len(replayed.path[:num_common])
    places = _differing_nodes(ran.tree, replayed.tree)
    if not places and ran.path[:num_common] == replayed.path[:num_common]:
        return None
    gap = _tree_gap(ran.tree, replayed.tree, places, row)
    return RoundDifference(ran.position, len(places), gap, here, there)


def _differing_nodes(ran: DraftTree, replayed: DraftTree) -> list[int]:
    """Places at which two trees hold different nodes, or one of them none."""
    num = min(ran.num_nodes, replayed.num_nodes)
    differ = (ran.tokens[:num] != replayed.tokens[:num]) | (ran.parents[:num] != replayed.parents[:num])
    return [*np.flatnonzero(differ).tolist(), *range(num, max(ran.num_nodes, replayed.num_nodes))]


def _tree_gap(ran: DraftTree, replayed: DraftTree, places: list[int], row: Marginals | None) -> float:
    if not places:
        return 0.0
    if row is None or ran.num_nodes != replayed.num_nodes:
        return math.nan
    return float(np.abs(_path_log_probs(ran, row) - _path_log_probs(replayed, row))[places].max())


def _path_log_probs(tree: DraftTree, row: Marginals) -> Doubles:
    """float64 ``[N + 1]``; NaN from a token on that the row does not hold, or that lies deeper than it."""
    tables = [dict(zip(*map(np.ndarray.tolist, row.at(depth)), strict=True)) for depth in range(1, row.depth + 1)]
    sums, depths = np.zeros(tree.num_nodes), tree.depths()
    for node in range(1, tree.num_nodes):
        table = tables[depths[node] - 1] if depths[node] <= row.depth else {}
        own = table.get(int(tree.tokens[node]), math.nan)
        sums[node] = sums[tree.parents[node]] + own
    return sums
