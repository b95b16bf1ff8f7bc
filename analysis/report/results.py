"""Result rows as a report reads them: predicted and measured, of the same texts, policy by policy."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from simlab.analysis.crosscheck.rounds import percent_off
from simlab.analysis.crosscheck.summary import CrosscheckSummary
from simlab.analysis.figure_style import height_of_rows, on_page
from simlab.analysis.optimize.candidate_sums import ACCEPTANCE_LENGTH, TOKENS_PER_S
from simlab.analysis.report.page import Chart, Grid, Part
from simlab.analysis.scoring.reliability import OFF_SPINE, ON_SPINE
from simlab.analysis.scoring.score import Scoring, without_budget
from simlab.analysis.scoring.text import first_candidates_figure, gap_figure, reliability_figure, waste_figure
from simlab.analysis.statistics.intervals import UNKNOWN, Interval
from simlab.analysis.table.estimates import Row
from simlab.analysis.table.prompt_sums import PolicyRun
from simlab.analysis.table.summaries import BASELINE, Summary, summarise
from simlab.analysis.table.text import ends, is_known, number
from simlab.traces.results.rows import BOUNDS, settings_of

# What live engines did beside the trace, as a table of a report.


_HEADS = ("engine", "verdict", "texts equal", "rounds equal", "acceptance length", "predicted", "predicted over it, %")


def crosscheck_grid(summaries: Sequence[CrosscheckSummary]) -> Grid:
    """A row for each crosscheck, and its reason below."""
    rows = [
        [
            summary.engine,
            summary.verdict.name,
            f"{summary.texts[0]:,} of {summary.texts[1]:,}",
            f"{summary.rounds[0]:,} of {summary.rounds[1]:,}" if summary.rounds[1] else "not reported",
            number(summary.measured, 3),
            number(summary.predicted, 3),
            percent_off(summary.error) or "-",
        ]
        for summary in summaries
    ]
    caption = [
        f"{summary.engine}, {summary.verdict.name} ({summary.verdict.level}): {summary.verdict.reason}."
        for summary in summaries
    ]
    strong = frozenset(index for index, summary in enumerate(summaries) if not summary.verdict.is_good)
    return Grid(_HEADS, rows, caption, strong)


# Figures of a report about scoring: whether edge models say the truth, and what their trees are spent on.


def scoring_parts(scored: Scoring, labels: Sequence[str]) -> list[Part]:
    """Charts and a table of what was scored.

    Args:
        scored: policies of one budget.
        labels: of the policies.
    """
    edges = [without_budget(label) for label in labels]
    rows = scored.rows()
    calibration, policies = rows["calibration"], rows["policies"]
    return [
        Chart(
            "reliability",
            on_page(reliability_figure(rows["reliability"], edges)),
            "Reliability: probabilities against observed frequencies",
            "Of candidates below a prefix that is the target's own. On the grey line predicted and observed are equal. "
            "Spine (the greedy path): every token before is the drafter's first candidate. Bars are 95 % intervals "
            "over prompts.",
        ),
        _errors(calibration, edges),
        Chart(
            "first-candidates",
            on_page(first_candidates_figure(calibration, edges)),
            "First candidates by depth",
            "Bars: how often the first candidate is right. Lines: what edge models say.",
        ),
        Chart(
            "gap",
            on_page(gap_figure(policies)),
            "From the chain to the oracle upper bound",
            "How much of the gap in acceptance length between the chain and the oracle upper bound a policy closes.",
            height_of_rows(edges),
        ),
        Chart(
            "waste",
            on_page(waste_figure(policies)),
            "What drafted tokens are spent on",
            "Accepted; wrong although the token before was the target's; or below a token that was already wrong.",
            height_of_rows([str(row["policy"]) for row in policies]),
        ),
    ]


def _errors(rows: Sequence[Row], edges: Sequence[str]) -> Grid:
    """The calibration error of each edge model, on the greedy path and off it."""
    cells = []
    for label in edges:
        whole = [row for row in rows if row["edges"] == label and row["depth"] is None and row["rank"] is None]
        own = {str(row["place"]): row for row in whole}
        cells.append([label, *(_with_ends(own.get(place)) for place in (ON_SPINE, OFF_SPINE))])
    heads = ["edge model", "calibration error (ECE) on the greedy path [95 %]", "off it [95 %]"]
    return Grid(heads, cells, ["Per node: the sum over candidates of how far probability and frequency lie apart."])


def _with_ends(row: Row | None) -> str:
    if row is None or row["ece_per_node"] is None:
        return "-"
    value, low, high = (row[f"ece_per_node{end}"] for end in ("", "_ci_low", "_ci_high"))
    return f"{value:.3f}" if low is None else f"{value:.3f} [{low:.3f}, {high:.3f}]"


CHAIN = "chain"
_SIZES = ("budget", "length", "max_budget")
"""Settings that say how large a tree may be; policies that differ in nothing else are of one family."""


@dataclass(frozen=True)
class ReportResults:
    """What was predicted and what was measured.

    Attributes:
        predicted: result rows at one machine's prices, or without prices.
        measured: result rows; may be empty.
    """

    predicted: pl.DataFrame
    measured: pl.DataFrame

    @property
    def rows(self) -> pl.DataFrame:
        """What was predicted; where nothing was, what was measured."""
        return self.predicted if self.predicted.height else self.measured

    @cached_property
    def summaries(self) -> list[Summary]:
        """What was predicted of each policy and bound; of those that were measured alone what was measured."""
        return summarise(self.rows)

    @cached_property
    def ran(self) -> dict[str, Summary]:
        """What was measured, by policy id."""
        return {summary.policy_id: summary for summary in summarise(self.measured)} if self.measured.height else {}

    @cached_property
    def policies(self) -> list[Summary]:
        """Those that can run: no bounds, not plain decoding."""
        return [summary for summary in self.summaries if summary.name not in (*BOUNDS, BASELINE)]

    @property
    def has_speeds(self) -> bool:
        """Whether every policy has seconds, and autoregressive decoding too, so that there are speedups."""
        return all(summary.speed.seconds is not None for summary in self.summaries)

    @property
    def has_seconds(self) -> bool:
        """Whether every policy has seconds, autoregressive decoding aside."""
        return all(summary.speed.seconds is not None for summary in self.summaries if summary.name != BASELINE)

    @property
    def measure(self) -> str:
        """By what policies are ranked: tokens per second where they are known, else acceptance length."""
        return TOKENS_PER_S if self.has_seconds else ACCEPTANCE_LENGTH

    def worth(self, summary: Summary) -> float:
        """The figure by which policies are ranked."""
        return summary.speed.tokens_per_s if self.has_seconds else summary.totals.acceptance_length

    @cached_property
    def finalists(self) -> list[Summary]:
        """The best of each family, the best first."""
        best: dict[tuple[str, str], Summary] = {}
        for summary in self.policies:
            key = family_of(summary)
            if key not in best or self.worth(summary) > self.worth(best[key]):
                best[key] = summary
        return sorted(best.values(), key=lambda summary: -self.worth(summary))

    @cached_property
    def families(self) -> list[list[Summary]]:
        """Policies that differ in the size of the tree alone, from small to large; the chain's, then the fastest."""
        families: dict[tuple[str, str], list[Summary]] = {}
        chain = self.chain()
        for summary in [*([chain] if chain else []), *self.finalists]:
            families.setdefault(family_of(summary), [])
        for policy in self.policies:
            families[family_of(policy)].append(policy)
        return [sorted(members, key=lambda summary: summary.totals.nodes_per_round) for members in families.values()]

    def chain(self) -> Summary | None:
        """The longest chain in the table."""
        chains = [policy for policy in self.policies if policy.name == CHAIN]
        return max(chains, key=lambda summary: summary.totals.nodes_per_round, default=None)

    def run(self, summary: Summary) -> PolicyRun:
        """The rows of a policy, and those of plain decoding."""
        own = self.rows.filter(policy_id=summary.policy_id, policy=summary.policy)
        return PolicyRun(summary.policy, own, self.rows.filter(name=BASELINE))

    @property
    def what(self) -> str:
        """What is drawn of each policy."""
        return "speedup over baseline" if self.has_speeds else "acceptance length"

    def drawn(self, summary: Summary) -> tuple[float, Interval]:
        """The speedup of a policy, or its acceptance length, with its interval."""
        if self.has_speeds:
            return summary.speed.speedup, summary.speed.interval
        return summary.totals.acceptance_length, summary.interval


def family_of(summary: Summary) -> tuple[str, str]:
    """The name of a policy and its settings but for the size of the tree."""
    settings = {key: value for key, value in settings_of(summary.settings).items() if key not in _SIZES}
    return summary.name, json.dumps(settings, sort_keys=True)


def family_label(members: Sequence[Summary]) -> str:
    """What a family is called: its name, and the settings that its members share and that were typed."""
    first = members[0].policy
    name, _, typed = first.partition(":")
    settings = [part for part in typed.split(",") if part and part.partition("=")[0] not in _SIZES]
    return f"{name}:{','.join(settings)}" if settings else name


def split_rows(rows: pl.DataFrame, cost_id: str | None) -> ReportResults:
    """Predicted rows at some prices and measured rows; what stands there twice is taken once."""
    key = ["policy_id", "policy", "sequence"]
    predicted = rows.filter(pl.col("kind") == "predicted", pl.col("cost_id").eq_missing(pl.lit(cost_id, pl.String)))
    measured = rows.filter(pl.col("kind") == "measured")
    return ReportResults(predicted.unique(key, keep="first", maintain_order=True), measured)


def interval_text(over_prompts: Interval, by_prices: Interval = UNKNOWN) -> str:
    """Intervals behind their figure; empty where none is known.

    >>> interval_text(Interval(1.33, 1.587), Interval(1.45, 1.55))
    ' [1.33, 1.59] (prices [1.45, 1.55])'
    """
    text = f" [{over_prompts.low:.2f}, {over_prompts.high:.2f}]" if is_known(over_prompts) else ""
    return text + (f" (prices {ends(by_prices)})" if is_known(by_prices) and ends(by_prices) else "")
