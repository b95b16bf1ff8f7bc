"""The choice of a search as people read it: the finalists, and what choosing did to the figures."""

import math
from collections.abc import Mapping

from simlab.analysis.table.text import aligned, number
from simlab.traces.artefacts.optimum import Optimum, Scalar

_UNITS = {"tokens_per_s": "tokens/s", "acceptance_length": "tokens a round", "worst_case": "x autoregressive"}
_COLUMNS = {"tokens_per_s": "tokens_per_s", "acceptance_length": "acceptance_length", "worst_case": "speedup"}
_DIGITS = {"tokens_per_s": 1, "acceptance_length": 3, "worst_case": 3}


def finalist_table(optimum: Optimum) -> str:
    """A row for each finalist and bound: its figure on both sets of prompts, and how the best is ahead of it."""
    unit, digits = _UNITS[optimum.objective], _DIGITS[optimum.objective]
    cells = [
        ["", "", unit, unit, "the best over this [95 %]", "prices", ""],
        ["policy", "", "dev", "evaluation", "evaluation", "[95 %]", "p"],
    ]
    for row, dev, evaluation in _figures(optimum):
        figures = number(dev, digits), number(evaluation, digits)
        ratio = _ratio(row), _ends(row, "best_over_this_price")
        cells.append([str(row.get("policy")), str(row.get("role")), *figures, *ratio, _p_value(row)])
    return aligned(cells, [True, True, False, False, True, True, False])


def price_text(optimum: Optimum) -> str:
    """In how many draws of the prices the choice would have been the same; empty where it is not known."""
    share = optimum.share_of_draws_best
    if share is None:
        return ""
    return (
        f"Prices: on dev prompts {optimum.best.policy} is the best of these policies in {100 * share:.0f} % of the "
        "draws of the latency profile."
    )


def optimism_text(optimum: Optimum) -> str:
    """What was lost between the prompts of the choice and the others, and what choosing on the others would claim."""
    found, unit, digits = optimum.optimism, _UNITS[optimum.objective], _DIGITS[optimum.objective]
    best, rival = optimum.best.policy, found.get("best_on_evaluation")
    chosen, there = _float(found.get("chosen_figure")), _float(found.get("best_on_evaluation_figure"))
    share = _percent(_float(found.get("optimism_share")))
    if rival == best:
        first = f"Chosen on the evaluation prompts instead it would have been {best} too: no optimism this time."
    else:
        first = (
            f"Optimism: chosen on the evaluation prompts instead it would have been {rival} with "
            f"{there:.{digits}f} {unit}, {share} more than is true of {best} there "
            f"({chosen:.{digits}f}); do not claim that."
        )
    second = (
        f"Shrinkage: {best} over the chain is {_float(found.get('dev_over_chain')):.3f} x on dev prompts and "
        f"{_float(found.get('evaluation_over_chain')):.3f} x on evaluation prompts; its figure went from "
        f"{_float(found.get('dev_figure')):.{digits}f} to {chosen:.{digits}f} {unit}, which is also how the prompts "
        "differ."
    )
    return f"{first}\n{second}"


def _figures(optimum: Optimum) -> list[tuple[Mapping[str, Scalar], float, float]]:
    """The first row of each policy, and the objective's figure on both; over machines the smallest."""
    column = _COLUMNS[optimum.objective]
    found: dict[str, tuple[Mapping[str, Scalar], float, float]] = {}
    for row in optimum.rows:
        values = _float(row.get(f"dev_{column}")), _float(row.get(f"evaluation_{column}"))
        first, *earlier = found.get(str(row.get("policy")), (row, *values))
        found[str(row.get("policy"))] = first, min(earlier[0], values[0]), min(earlier[1], values[1])
    return list(found.values())


def _float(value: Scalar) -> float:
    return math.nan if value is None else float(value)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 0.001 else f"{100 * share:.2g} %"


def _ratio(row: Mapping[str, Scalar]) -> str:
    if row.get("best_over_this") is None:
        return ""
    return f"{_float(row.get('best_over_this')):.3f} {_ends(row, 'best_over_this_ci')}".rstrip()


def _ends(row: Mapping[str, Scalar], name: str) -> str:
    """The interval of some name; empty where it is not known, or the file is of an older simlab."""
    low, high = (_float(row.get(f"{name}_{end}")) for end in ("low", "high"))
    return "" if math.isnan(low) else f"[{low:.3f}, {high:.3f}]"


def _p_value(row: Mapping[str, Scalar]) -> str:
    value = _float(row.get("p_adjusted"))
    return "" if math.isnan(value) else "<0.001" if value < 0.001 else f"{value:.3f}"
