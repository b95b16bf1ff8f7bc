"""How many prompts a difference takes, and how far the prompts of a trace carry."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from simlab.analysis.compare.comparisons import Comparison, compare_pairs, headline_measure
from simlab.analysis.statistics.intervals import FEW_PROMPTS, finite
from simlab.analysis.statistics.significance import POWER, detectable_at, prompts_to_detect
from simlab.analysis.table.prompt_sums import PolicyRun, prompt_sums
from simlab.analysis.table.summaries import Summary, summarise
from simlab.analysis.table.text import aligned, within_width
from simlab.errors import UsageError
from simlab.limits import finite_number
from simlab.studies.inputs.trace import TraceSource
from simlab.studies.replay.replay import ReplayTable, replay
from simlab.studies.result import StudyResult

NUMBERS = (20, 40, 80, 160, 320, 640)
"""Of prompts, for which the table has a column."""

TYPICAL = (("chain", "ar"), ("ddtree:budget=16", "chain"), ("survival:budget=16,threshold=0.02", "ddtree:budget=16"))
"""Comparisons where no policy is named: of a drafter with none, of a tree with a chain, of two trees."""


def parse_percent(text: str) -> float:
    """A difference in percent, as a ratio above 1.

    >>> parse_percent("3%")
    1.03
    """
    try:
        value = finite_number(text.strip().removesuffix("%").strip())
    except ValueError:
        value = math.nan
    if not 0 < value <= 100:
        raise ValueError(f"expected a difference above 0 % and up to 100 %, such as 3%; got {text!r}")
    return 1 + value / 100


@dataclass(frozen=True, eq=False, repr=False)
class PromptNumbers(StudyResult):
    """How large a difference so many prompts find, if they are like those of a trace.

    Attributes:
        ratio: above 1, the difference that is asked for.
        replayed: the trace, and its policies on it.
        comparisons: of these policies on all prompts, each alone.
    """

    ratio: float
    replayed: ReplayTable
    comparisons: tuple[Comparison, ...]

    def detectable(self, comparison: Comparison) -> list[float]:
        """The ratio that each of `NUMBERS` prompts finds."""
        ratios = detectable_at(comparison.log_error, comparison.degrees, comparison.prompts, NUMBERS)
        return [float(ratio) for ratio in ratios]

    def needed(self, comparison: Comparison) -> int | None:
        """Prompts that the difference takes, no fewer than a verdict does; None: more than are worked out."""
        number = prompts_to_detect(comparison.log_error, comparison.degrees, comparison.prompts, self.ratio)
        return None if number is None else max(number, FEW_PROMPTS)

    def to_json(self) -> Mapping[str, object]:
        """The value that ``simlab prompts --for --json`` prints."""
        rows: list[dict[str, object]] = []
        for comparison in self.comparisons:
            by_number = {
                f"detectable_{n}": finite(ratio) for n, ratio in zip(NUMBERS, self.detectable(comparison), strict=True)
            }
            rows.append(
                {
                    "first": comparison.first,
                    "second": comparison.second,
                    "measure": comparison.measure,
                    "detectable": finite(comparison.detectable),
                    **by_number,
                    "prompts_needed": self.needed(comparison),
                }
            )
        return {"trace": self.replayed.trace.location, "prompts": self.prompts, "ratio": self.ratio, "rows": rows}

    @property
    def prompts(self) -> int:
        """Prompts of the trace."""
        return self.comparisons[0].prompts

    def text(self) -> str:
        """What ``simlab prompts --for`` prints."""
        first = (
            f"The smallest difference that so many prompts find in {100 * POWER:.0f} of 100 cases (95 %, paired, each "
            f"comparison alone), and the prompts that {_percent(self.ratio)} takes ({FEW_PROMPTS} or more: with fewer "
            "no winner is named):"
        )
        last = (
            f"This holds for prompts, target and drafter like those of {self.replayed.trace.label}, from whose "
            f"{self.prompts:,} prompts it is worked out, by the formulas of `simlab compare`. Several comparisons at "
            "once (Holm) and slices such as --by dataset take more."
        )
        return "\n\n".join([within_width(first), self._table(), within_width(last), within_width(self._carries())])

    def _table(self) -> str:
        cells = [("comparison", *(f"{number:,}" for number in NUMBERS), f"for {_percent(self.ratio)}")]
        for comparison in self.comparisons:
            needed = self.needed(comparison)
            shown = "-" if needed is None else f"{needed:,} prompts"
            cells.append(
                (f"{comparison.first} over {comparison.second}", *map(_percent, self.detectable(comparison)), shown)
            )
        measure = self.comparisons[0].measure.replace("_per_s", "/s").replace("_", " ")
        return f"of {measure}, by number of prompts\n{aligned(cells, [True] + [False] * (len(NUMBERS) + 1))}"

    def _carries(self) -> str:
        """How far the prompts of the trace itself carry."""
        number = f"{self.prompts:,} prompts"
        differences = [
            f"{_percent(comparison.detectable)} for {comparison.first} over {comparison.second}"
            for comparison in self.comparisons
        ]
        lines = [f"The {number} of {self.replayed.trace.label} find {', '.join(differences)}."]
        summary = self._first_tree()
        interval, length = summary.interval, f"{summary.totals.acceptance_length:.2f}"
        lines.append(f"Acceptance length of {summary.policy}: {length} [{interval.low:.2f}, {interval.high:.2f}].")
        if self.prompts < FEW_PROMPTS:
            lines.append(
                f"Fewer than {FEW_PROMPTS} prompts: no winner is named, and intervals and all numbers here are rough."
            )
        for comparison in self.comparisons:
            needed = self.needed(comparison)
            if needed is not None and needed > self.prompts:
                more = f"{needed - self.prompts:,} more prompts"
                lines.append(f"{comparison.first} over {comparison.second}: {_percent(self.ratio)} takes {more}.")
        return "\n".join(lines)

    def _first_tree(self) -> Summary:
        """What the first policy of the last comparison did on the trace; it is one that drafts."""
        summaries = {summary.policy: summary for summary in summarise(self.replayed.rows)}
        return summaries[self.comparisons[-1].first]


def how_many(
    ratio: float, trace: TraceSource | None, policies: Sequence[str], cost: str | Path | None, draft: str | None
) -> PromptNumbers:
    """How many prompts a ratio takes, for prompts like those of a trace.

    Args:
        ratio: above 1.
        trace: or where it is; None: the packaged one.
        policies: the first is compared with each other one; none: `TYPICAL` comparisons.
        cost: a cost file; without one those that come with simlab.
        draft: the draft set; None: the only one that fits.

    Raises:
        UsageError: one policy alone, or a trace of fewer than two prompts.
        SimlabError: policies cannot be replayed on the trace.
    """
    if len(policies) == 1:
        raise UsageError(f"a comparison takes two policies; got {policies[0]} alone: name another with -p")
    pairs = [(policies[0], other) for other in policies[1:]] or TYPICAL
    typed = dict.fromkeys(name for pair in pairs for name in pair)
    table = replay(trace, list(typed), cost=cost or (), draft_set=draft, progress=False)
    labels = {policy.label: policy.label for machine in table.machines for policy in machine.policies}
    labels["ar"] = "autoregressive"
    runs, indices = dict[str, PolicyRun](), list[tuple[int, int]]()
    plain = table.rows.filter(name="ar")
    for pair in pairs:
        for name in pair:
            label = labels[name]
            runs.setdefault(label, PolicyRun(label, table.rows.filter(policy=label), plain))
        indices.append((list(runs).index(labels[pair[0]]), list(runs).index(labels[pair[1]])))
    sums, names = prompt_sums(list(runs.values())), list(runs)
    by_measure = {
        measure: compare_pairs(sums, names, indices, measure) for measure in ("acceptance_length", "tokens_per_s")
    }
    comparisons = by_measure[
        headline_measure([comparison for of_measure in by_measure.values() for comparison in of_measure])
    ]
    if sum(not math.isnan(comparison.log_error) for comparison in comparisons) < len(comparisons):
        raise UsageError(
            f"{table.trace.label} has {comparisons[0].prompts:,} prompts, of which too few have rounds to say how they "
            "vary; record more"
        )
    return PromptNumbers(ratio, table, tuple(comparisons))


def _percent(ratio: float) -> str:
    return "-" if math.isnan(ratio) else f"{100 * (ratio - 1):.2g} %"
