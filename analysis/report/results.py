"""Result rows as a report reads them: predicted and measured, of the same texts, policy by policy."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import polars as pl

from simlab.analysis.statistics.intervals import UNKNOWN, Interval
from simlab.analysis.table.prompt_sums import PolicyRun
from simlab.analysis.table.summaries import BASELINE, Summary, summarise
from simlab.analysis.table.text import ends, is_known
from simlab.traces.results.rows import BOUNDS, settings_of

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

    @cached_property
    def found(self) -> list[Summary]:
        """What was predicted of each policy and bound; of those that were measured alone what was measured."""
        rows = self.predicted if self.predicted.height else self.measured
        return summarise(rows)

    @cached_property
    def ran(self) -> dict[str, Summary]:
        """What was measured, by policy id."""
        return {one.policy_id: one for one in summarise(self.measured)} if self.measured.height else {}

    @cached_property
    def policies(self) -> list[Summary]:
        """Those that can run: no bounds, not plain decoding."""
        return [one for one in self.found if one.name not in (*BOUNDS, BASELINE)]

    @property
    def has_speeds(self) -> bool:
        """Whether every policy has predicted seconds."""
        return all(one.speed.seconds is not None for one in self.found)

    def worth(self, one: Summary) -> float:
        """By what policies are ranked: tokens per second where they are known, else acceptance length."""
        return one.speed.tokens_per_s if self.has_speeds else one.totals.acceptance_length

    @cached_property
    def finalists(self) -> list[Summary]:
        """The best of each family, the best first."""
        best: dict[tuple[str, str], Summary] = {}
        for summary in self.policies:
            key = family_of(summary)
            if key not in best or self.worth(summary) > self.worth(best[key]):
                best[key] = summary
        return sorted(best.values(), key=lambda one: -self.worth(one))

    @cached_property
    def families(self) -> list[list[Summary]]:
        """Policies that differ in the size of the tree alone, from small to large; the chain's, then the fastest."""
        found: dict[tuple[str, str], list[Summary]] = {}
        chain = self.chain()
        for one in [*([chain] if chain else []), *self.finalists]:
            found.setdefault(family_of(one), [])
        for one in self.policies:
            found[family_of(one)].append(one)
        return [sorted(members, key=lambda one: one.totals.nodes_per_round) for members in found.values()]

    def chain(self) -> Summary | None:
        """The longest chain in the table."""
        chains = [one for one in self.policies if one.name == CHAIN]
        return max(chains, key=lambda one: one.totals.nodes_per_round, default=None)

    def run(self, summary: Summary, kind: str = "predicted") -> PolicyRun:
        """The rows of a policy, and those of plain decoding."""
        rows = self.predicted if kind == "predicted" and self.predicted.height else self.measured
        own = rows.filter(pl.col("policy_id") == summary.policy_id, pl.col("policy") == summary.policy)
        return PolicyRun(summary.policy, own, rows.filter(pl.col("name") == BASELINE))


def family_of(one: Summary) -> tuple[str, str]:
    """The name of a policy and its settings but for the size of the tree."""
    settings = {key: value for key, value in settings_of(one.settings).items() if key not in _SIZES}
    return one.name, json.dumps(settings, sort_keys=True)


def family_label(members: Sequence[Summary]) -> str:
    """What a family is called: its name, and the settings that its members share and that were typed."""
    first = members[0].policy
    name, _, typed = first.partition(":")
    kept = [part for part in typed.split(",") if part and part.partition("=")[0] not in _SIZES]
    return f"{name}:{','.join(kept)}" if kept else name


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
    found = f" [{over_prompts.low:.2f}, {over_prompts.high:.2f}]" if is_known(over_prompts) else ""
    return found + (f" (prices {ends(by_prices)})" if is_known(by_prices) and ends(by_prices) else "")
