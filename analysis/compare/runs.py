"""Runs held against each other: every pair, by every measure that is known, slice by slice."""

import math
from collections.abc import Sequence

from simlab.analysis.compare.comparisons import POWERS, Comparison, compared, in_family
from simlab.analysis.table.prompt_sums import Run, prompt_sums, runs_by_slice


def compare_runs(
    runs: Sequence[Run], pairs: Sequence[tuple[int, int]], by: str | None = None, correction: str = "holm"
) -> list[Comparison]:
    """Comparisons of pairs of runs; with ``by`` those of the slices first.

    All pairs on everything are one family for each measure, and all pairs on all slices another: who looks at slices
    too pays for it in the slices alone.

    Args:
        runs: of the same prompts; see `simlab.analysis.table.prompt_sums.shared_runs`.
        pairs: places of two runs each.
        by: as for `simlab.analysis.statistics.slices.sliced`.
        correction: one of `simlab.analysis.statistics.families.CORRECTIONS`.
    """
    if not runs[0].rows.height:
        return []
    families = [] if by is None else [runs_by_slice(runs, by)]
    names = [run.name for run in runs]
    found = []
    for family in [*families, runs_by_slice(runs, None)]:
        parts = [(value, prompt_sums(some)) for value, some in family]
        for measure in POWERS:
            alone = [one for value, sums in parts for one in compared(sums, names, pairs, measure, value)]
            found += in_family(alone, correction)
    known = {one.measure for one in found if not math.isnan(one.ratio)}
    return [one for one in found if one.measure in known]


def headline(found: Sequence[Comparison]) -> str:
    """What a verdict is about: tokens per second where these are known of every pair, else the acceptance length."""
    pairs = {(one.first, one.second) for one in found}
    timed = {(one.first, one.second) for one in found if one.measure == "tokens_per_s" and not math.isnan(one.ratio)}
    return "tokens_per_s" if timed == pairs else "acceptance_length"
