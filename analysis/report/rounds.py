"""Figures of a report about rounds: how deep drafted tokens are accepted, and what ends a round."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import plotly.graph_objects as go

from simlab.analysis.figure_style import band, figure, height_of_rows, line, marker
from simlab.analysis.report.page import Chart, stacked_bars
from simlab.analysis.statistics.intervals import ratio_interval
from simlab.arrays import Longs
from simlab.columns import TextRounds
from simlab.recorded import RecordedTexts

ENDS = (
    "every depth accepted",
    "text ended",
    "target's token ranked 1st",
    "ranked 2nd-4th",
    "ranked 5th-16th",
    "ranked 17th-64th",
    "ranked lower, or not in the vocabulary",
)
"""What ends a round. From the third on: which of the drafter's candidates the target's token was at the first depth
that was not accepted; the tree did not hold it."""

_RANKS = np.array([0, 1, 4, 16, 64])


@dataclass(slots=True)
class RoundCounts:
    """Rounds of one policy, counted prompt by prompt.

    Attributes:
        depth: D, the drafter's.
        reached: of each prompt int64 ``[D + 1]``, rounds that accepted at least so many drafted tokens.
        ends: int64 ``[len(ENDS)]``.
    """

    depth: int
    reached: dict[tuple[str, str], Longs] = field(default_factory=dict)
    ends: Longs = field(default_factory=lambda: np.zeros(len(ENDS), np.int64))

    def add(self, texts: RecordedTexts, rounds: TextRounds) -> None:
        """Count the rounds of some texts."""
        ranks = texts.drafted().true_ranks
        for sequence, first, columns in zip(
            texts.sequences, texts.roots.firsts[:-1], rounds.columns(texts), strict=True
        ):
            prompt = (sequence.prompt.dataset, sequence.prompt.prompt_id)
            accepted = columns.num_accepted
            counts = self.reached.setdefault(prompt, np.zeros(self.depth + 1, np.int64))
            counts += (accepted[:, None] >= np.arange(self.depth + 1)).sum(axis=0)
            self.ends += np.bincount(
                _ends(accepted, columns.clipped, ranks[first + columns.positions], self.depth), minlength=len(ENDS)
            )


def _ends(accepted: Longs, clipped: np.ndarray, ranks: np.ndarray, depth: int) -> Longs:
    """Places in `ENDS`, one for each round."""
    missed = ranks[np.arange(len(accepted)), np.minimum(accepted, depth - 1)]
    array = 1 + np.searchsorted(_RANKS, missed, side="right")
    array = np.where(missed < 0, len(ENDS) - 1, array)
    return np.asarray(np.where(clipped, 1, np.where(accepted == depth, 0, array)), np.int64)


def depth_chart(labels: Sequence[str], counts: Sequence[RoundCounts]) -> Chart:
    """The share of rounds that accept at least so many drafted tokens."""
    drawn = figure("drafted tokens accepted, at least", "share of rounds")
    for index, (label, counted) in enumerate(zip(labels, counts, strict=True)):
        by_prompt = np.array(list(counted.reached.values()))
        depths = list(range(1, counted.depth + 1))
        total = by_prompt[:, 0]
        share = [float(by_prompt[:, depth].sum() / total.sum()) for depth in depths]
        ends = [ratio_interval(by_prompt[:, depth], total) for depth in depths]
        if all(np.isfinite(end.low) for end in ends):
            drawn.add_trace(band(depths, [end.low for end in ends], [min(end.high, 1) for end in ends], index, label))
        drawn.add_trace(
            go.Scatter(
                x=depths,
                y=share,
                name=label,
                legendgroup=label,
                mode="lines+markers",
                line=line(index),
                marker=marker(index),
                hovertemplate=f"{label}<br>%{{y:.1%}} accept at least %{{x}}",
            )
        )
    drawn.update_xaxes(dtick=1)
    drawn.update_yaxes(tickformat=".0%", rangemode="tozero")
    caption = (
        "The sum over depths, plus the bonus token, is the acceptance length, but for rounds that the end of a text "
        "cut short. Bands are 95 % intervals over prompts."
    )
    return Chart("depths", drawn, "Acceptance by depth", caption)


def ends_chart(labels: Sequence[str], counts: Sequence[RoundCounts]) -> Chart:
    """Shares of rounds by what ended them."""
    shares = [count.ends / max(count.ends.sum(), 1) for count in counts]
    parts = {name: [float(share[index]) for share in shares] for index, name in enumerate(ENDS)}
    drawn = stacked_bars("share of rounds", labels, parts, ": %{x:.1%}")
    drawn.update_xaxes(tickformat=".0%")
    caption = (
        "Of the target's token at the first depth that was not accepted: its rank among the drafter's candidates. "
        "Where it ranked high, another tree of the same size could have held it; where it ranked low, only that of a "
        "better drafter."
    )
    return Chart("ends", drawn, "Where rounds end", caption, height_of_rows(labels, 200))
