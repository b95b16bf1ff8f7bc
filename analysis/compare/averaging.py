"""The two means of the acceptance length side by side, and whether they rank policies alike.

Pooled: all tokens over all rounds. Per response: the mean of each text's own mean. A long text counts for more in the
first; where texts of easy rounds are short, the second is larger.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from simlab.analysis.compare.comparisons import POWERS, Comparison, compare_runs
from simlab.analysis.statistics.intervals import log_products
from simlab.analysis.table.estimates import Estimate, ratio_estimates
from simlab.analysis.table.prompt_sums import COLUMNS, PolicyRun, prompt_sums
from simlab.analysis.table.summaries import Scalar

POOLED, MACRO = "acceptance_length", "acceptance_length_macro"


@dataclass(frozen=True, slots=True)
class BothMeans:
    """Acceptance length of one policy on one set of prompts, pooled and averaged per response.

    Attributes:
        run: what it is of.
        over: the mean per response over the pooled one, on the same prompts.
    """

    run: str
    prompts: int
    pooled: Estimate
    macro: Estimate
    over: Estimate

    def row(self) -> dict[str, Scalar]:
        """Flat scalars, as a script reads them; what is not known is None."""
        row: dict[str, Scalar] = {"run": self.run, "prompts": self.prompts}
        for name, estimate in ((POOLED, self.pooled), (MACRO, self.macro), ("macro_over_pooled", self.over)):
            row |= estimate.row(name, digits=None)
        return row


@dataclass(frozen=True, slots=True)
class RankingFlip:
    """Two policies that the two means rank differently.

    Attributes:
        pooled: the comparison by the pooled mean.
        macro: by the mean per response.
    """

    pooled: Comparison
    macro: Comparison

    @property
    def is_certain(self) -> bool:
        """Whether both means tell the two apart, each in its own direction: no chance ranking."""
        return self.pooled.differs and self.macro.differs

    def row(self) -> dict[str, Scalar]:
        """The comparison by both means as flat scalars, as a script reads them."""
        row: dict[str, Scalar] = {"first": self.pooled.first, "second": self.pooled.second, "told": self.is_certain}
        for name, comparison in (("pooled", self.pooled), ("macro", self.macro)):
            row |= {f"{name}_ratio": comparison.ratio, f"{name}_differs": comparison.differs}
            row |= comparison.ratio_interval.row(f"{name}_ci")
        return row


def both_means(run: PolicyRun) -> BothMeans:
    """The two means of a run's result rows, with intervals over prompts."""
    names = [name for measure in (POOLED, MACRO) for name in POWERS[measure]]
    sums = prompt_sums([run]).sums[:, 0, [COLUMNS.index(name) for name in names]]
    powers = np.array([[POWERS[measure].get(name, 0) for name in names] for measure in (POOLED, MACRO)], np.float64)
    spread = log_products(sums, np.stack([*powers, powers[1] - powers[0]]))
    return BothMeans(run.name, len(sums), *ratio_estimates(spread))


def find_ranking_flips(runs: Sequence[PolicyRun]) -> list[RankingFlip]:
    """The pairs of runs that the two means rank differently; all pairs are one family for each mean.

    Args:
        runs: of the same prompts.
    """
    pairs = list(combinations(range(len(runs)), 2))
    if not pairs:
        return []
    comparisons = {(run.measure, run.first, run.second): run for run in compare_runs(runs, pairs)}
    both = [
        RankingFlip(
            comparisons[POOLED, runs[first].name, runs[second].name],
            comparisons[MACRO, runs[first].name, runs[second].name],
        )
        for first, second in pairs
        if (POOLED, runs[first].name, runs[second].name) in comparisons
    ]
    return [flip for flip in both if (flip.pooled.ratio - 1) * (flip.macro.ratio - 1) < 0]
