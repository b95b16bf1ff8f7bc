"""The few of many searched policies that are reported, and how the chosen one stands among them."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simlab.analysis.compare.comparisons import (
    POWERS,
    Comparison,
    adjust_family,
    compare_logs,
    compare_pairs,
    logs_of_runs,
    price_spread,
)
from simlab.analysis.compare.verdicts import standing_sentence
from simlab.analysis.optimize.candidate_sums import (
    ACCEPTANCE_LENGTH,
    TOKENS_PER_S,
    WORST_CASE,
    CandidateSums,
    best_indices,
)
from simlab.analysis.statistics.intervals import Spread
from simlab.analysis.statistics.significance import PriceSpread
from simlab.analysis.table.prompt_sums import COLUMNS, PolicyRun, PromptSums, prompt_sums
from simlab.analysis.table.summaries import BASELINE
from simlab.analysis.table.text import aligned, number
from simlab.arrays import Doubles
from simlab.errors import enumerated
from simlab.traces.artefacts.optimum import Optimum, Scalar

# The choice of a search as people read it: the finalists, and what choosing did to the figures.


_UNITS = {"tokens_per_s": "tokens/s", "acceptance_length": "tokens a round", "worst_case": "x autoregressive"}
_COLUMNS = {"tokens_per_s": "tokens_per_s", "acceptance_length": "acceptance_length", "worst_case": "speedup"}
_DIGITS = {"tokens_per_s": 1, "acceptance_length": 3, "worst_case": 3}


def policy_to_take(optimum: Optimum) -> str | None:
    """The simplest of those that no comparison tells from the chosen policy; None: another is significantly better.

    The simplest drafts the fewest tokens a round, then has the fewest settings, then the fewest letters. What is better
    than the chosen one is not taken: that would be a choice on the evaluation prompts.
    """
    rows, ahead, level = _standing(optimum)
    return None if ahead else min(level, key=lambda label: _plainness(label, rows[label]))


def _standing(optimum: Optimum) -> tuple[dict[str, Mapping[str, Scalar]], list[str], list[str]]:
    """Rows of policies, those that are better than the chosen one, and those that are as good, itself first."""
    rows = {str(row.get("policy")): row for row in reversed(optimum.rows)}
    known = {label: row for label, row in rows.items() if row.get("best_over_this_ci_low") is not None}
    ahead = [label for label, row in known.items() if row.get("differs") and _float(row.get("best_over_this")) < 1]
    return rows, ahead, [optimum.best.policy, *(label for label, row in known.items() if row.get("differs") is False)]


def take_sentence(optimum: Optimum) -> str:
    """Which policy to take, and its speedup on the evaluation prompts; see `policy_to_take`."""
    rows, ahead, level = _standing(optimum)
    best, take = optimum.best.policy, policy_to_take(optimum)
    if take is None:
        return (
            f"Do not take {best}, which was chosen on the dev prompts: {enumerated(list(map(_shown, ahead)))} "
            f"{'is' if len(ahead) == 1 else 'are'} significantly better on the evaluation prompts. Choose among them "
            "on other prompts."
        )
    if take == BASELINE:
        return f"Take {_shown(take)}: no policy is significantly faster."
    row, why = rows[take], ""
    if len(level) > 1:
        others = enumerated([_shown(label) for label in level if label != take])
        why = f" {others} {'is' if len(level) == 2 else 'are'} as good within the noise; {take} is the simplest."
    speedup = _float(row.get("evaluation_speedup"))
    if math.isnan(speedup):
        return f"Take {take}.{why}"
    ends = _ends(row, "evaluation_speedup_ci", 2)
    return f"Take {take}: {speedup:.2f} times as fast as autoregressive decoding {ends}".rstrip() + f".{why}"


def _shown(label: str) -> str:
    return "autoregressive decoding" if label == BASELINE else label


def _plainness(label: str, row: Mapping[str, Scalar]) -> tuple[float, int, int, str]:
    return round(_float(row.get("evaluation_nodes_per_round")), 1), label.count("="), len(label), label


def finalist_table(optimum: Optimum) -> str:
    """A row for each finalist and bound: its figure on both sets of prompts, and how the best is ahead of it."""
    unit, digits = _UNITS[optimum.objective], _DIGITS[optimum.objective]
    cells = [
        ["", "", "nodes", unit, unit, "the best over this", ""],
        ["policy", "", "/round", "dev", "evaluation", "[95 %]", "p"],
    ]
    for row, dev, evaluation in _figures(optimum):
        nodes = number(_float(row.get("evaluation_nodes_per_round")), 1)
        figures = number(dev, digits), number(evaluation, digits)
        label = "autoregressive" if row.get("policy") == BASELINE else str(row.get("policy"))
        cells.append([label, str(row.get("role")), nodes, *figures, _ratio(row), _p_value(row)])
    return aligned(cells, [True, True, False, False, False, True, False])


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
    optimism, unit, digits = optimum.optimism, _UNITS[optimum.objective], _DIGITS[optimum.objective]
    best, rival = optimum.best.policy, optimism.get("best_on_evaluation")
    chosen, best_possible = _float(optimism.get("chosen_figure")), _float(optimism.get("best_on_evaluation_figure"))
    share = _percent(_float(optimism.get("optimism_share")))
    if rival == best:
        first = f"Chosen on the evaluation prompts it would have been {best} too: no optimism."
    else:
        first = (
            f"Optimism: the best on the evaluation prompts would have been {rival} with {best_possible:.{digits}f} "
            f"{unit}, {share} above {best} ({chosen:.{digits}f}); do not claim it."
        )
    second = (
        f"Shrinkage: {best} over the chain: {_float(optimism.get('dev_over_chain')):.3f} on dev prompts, "
        f"{_float(optimism.get('evaluation_over_chain')):.3f} on evaluation prompts."
    )
    return f"{first}\n{second}"


def _figures(optimum: Optimum) -> list[tuple[Mapping[str, Scalar], float, float]]:
    """The first row of each policy, and the objective's figure on both; over machines the smallest."""
    column = _COLUMNS[optimum.objective]
    figures: dict[str, tuple[Mapping[str, Scalar], float, float]] = {}
    for row in optimum.rows:
        values = _float(row.get(f"dev_{column}")), _float(row.get(f"evaluation_{column}"))
        first, *earlier = figures.get(str(row.get("policy")), (row, *values))
        figures[str(row.get("policy"))] = first, min(earlier[0], values[0]), min(earlier[1], values[1])
    return list(figures.values())


def _float(value: Scalar) -> float:
    return math.nan if value is None else float(value)


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %" if share >= 0.001 else f"{100 * share:.2g} %"


def _ratio(row: Mapping[str, Scalar]) -> str:
    if row.get("best_over_this") is None:
        return ""
    return f"{_float(row.get('best_over_this')):.3f} {_ends(row, 'best_over_this_ci')}".rstrip()


def _ends(row: Mapping[str, Scalar], name: str, digits: int = 3) -> str:
    """The interval of some name; empty where it is not known or a point, or the file is of an older simlab."""
    low, high = (_float(row.get(f"{name}_{end}")) for end in ("low", "high"))
    return "" if math.isnan(low) or low == high else f"[{low:.{digits}f}, {high:.{digits}f}]"


def _p_value(row: Mapping[str, Scalar]) -> str:
    value = _float(row.get("p_adjusted"))
    return "" if math.isnan(value) else "<0.001" if value < 0.001 else f"{value:.3f}"


MOST_RIVALS = 4
"""Each more makes every comparison harder to resolve."""

WORST_SPEEDUP = "worst_speedup"
"""The smallest speedup of a policy over several machines."""


def choose_finalists(
    candidates: CandidateSums,
    values: Doubles,
    entries: Sequence[int],
    references: Sequence[int],
    barred: Collection[int] = (),
) -> list[int]:
    """Places of the best policy, its rivals, and the references, in this order.

    A rival is the best setting of another entry; neighbours of the best among its own settings are none, since they
    do nearly the same. Who does on every prompt just what another finalist does is left out.

    Args:
        candidates: sums on the prompts of the choice.
        values: float64 ``[P]``, figures there.
        entries: of each policy, which of the things that were asked for it belongs to.
        references: places of policies that are always reported, such as the chain.
        barred: places of policies that are neither chosen nor rivals.
    """
    order = [index for index in best_indices(candidates, values) if index not in barred]
    chosen = [order[0]]
    seen = {entries[order[0]]}
    for index in order[1:]:
        if len(chosen) > MOST_RIVALS:
            break
        if entries[index] not in seen:
            seen.add(entries[index])
            if index not in references and not any(candidates.same(index, other) for other in (*chosen, *references)):
                chosen.append(index)
    return chosen + [
        reference for reference in references if not any(candidates.same(reference, other) for other in chosen)
    ]


@dataclass(frozen=True, slots=True)
class FinalistVerdict:
    """How the chosen policy stands on prompts on which it was not chosen.

    Attributes:
        comparisons: of it with each other finalist, of one family.
        verdict: in a sentence.
        wins: whether it is ahead of all of them for sure.
    """

    comparisons: tuple[Comparison, ...]
    verdict: str
    wins: bool


def judge_finalists(machines: Sequence[Sequence[PolicyRun]], objective: str) -> FinalistVerdict:
    """How the first run stands among the others.

    Args:
        machines: the chosen policy and the other finalists, at each machine's prices.
        objective: the number by which it was chosen.
    """
    runs = machines[0]
    pairs = [(0, other) for other in range(1, len(runs))]
    if not pairs:
        return FinalistVerdict((), f"no winner: every policy does the same as {runs[0].name}.", False)
    if objective == WORST_CASE:
        alone = compare_worst_speedups(machines, pairs)
    else:
        alone = compare_pairs(prompt_sums(runs), [run.name for run in runs], pairs, objective)
    comparisons = adjust_family(alone)
    wins = all(comparison.differs and comparison.ratio > 1 for comparison in comparisons)
    return FinalistVerdict(tuple(comparisons), f"{standing_sentence(comparisons)}.", wins)


def optimism_figures(
    dev: Sequence[float], evaluation: Sequence[float], best_there: str, best_figure: float
) -> Mapping[str, str | float]:
    """What choosing on the prompts of the report would have claimed, and what of the choice was lost on the way.

    Args:
        dev: figures on dev prompts: of the policy that was chosen there, and of the chain, which was not chosen at all
            and so tells how much harder the other prompts are.
        evaluation: of these two on the evaluation prompts.
        best_there: the policy that is the best on the evaluation prompts, chosen there by the same search.
        best_figure: its figure there.
    """
    (before, chain_before), (chosen, chain) = dev, evaluation
    ahead, kept = before / chain_before, chosen / chain
    return {
        "best_on_evaluation": best_there,
        "best_on_evaluation_figure": best_figure,
        "chosen_figure": chosen,
        "optimism": best_figure - chosen,
        "optimism_share": best_figure / chosen - 1,
        "dev_figure": before,
        "shrinkage": before - chosen,
        "shrinkage_share": 1 - chosen / before,
        "dev_over_chain": ahead,
        "evaluation_over_chain": kept,
        "shrinkage_over_chain_share": 1 - kept / ahead,
    }


def compare_worst_speedups(
    machines: Sequence[Sequence[PolicyRun]], pairs: Sequence[tuple[int, int]]
) -> list[Comparison]:
    """Each pair of runs by their worst speedups, each alone; the worst machine is found again for each resample.

    Args:
        machines: the same runs, on the same prompts, at the prices of each machine.
        pairs: places of two runs each.
    """
    of_machines = [prompt_sums(runs) for runs in machines]
    columns = [COLUMNS.index(name) for name in POWERS["speedup"]]
    powers = np.array(list(POWERS["speedup"].values()), np.float64)
    sums = [np.asarray(machine.sums[:, :, columns], np.float64) for machine in of_machines]
    equal = [all(np.array_equal(part[:, first], part[:, second]) for part in sums) for first, second in pairs]
    logs = _least([logs_of_runs(part, powers) for part in sums])
    return compare_logs(
        logs, _worst_at_draws(of_machines), equal, [run.name for run in machines[0]], pairs, WORST_SPEEDUP
    )


def share_of_draws_best(machines: Sequence[Sequence[PolicyRun]], objective: str) -> float | None:
    """The share of price draws in which the first run has the largest figure of all; None where it is not known.

    Rounds are held fixed: a rule that reads prices would choose others at other prices.

    Args:
        machines: the same runs at each machine's prices, on the prompts of the choice.
        objective: the number by which the first was chosen.
    """
    if objective == ACCEPTANCE_LENGTH:
        return None
    of_machines = [prompt_sums(runs) for runs in machines]
    spread = _worst_at_draws(of_machines) if objective == WORST_CASE else price_spread(of_machines[0], TOKENS_PER_S)
    if np.isnan(spread.logs).any():
        return None
    committed = np.log(of_machines[0].sums[:, :, COLUMNS.index("committed")].sum(axis=0))[:, None]
    figures = spread.logs + committed if objective == TOKENS_PER_S else spread.logs
    return float(np.mean(figures[0] >= figures.max(axis=0)))


def _worst_at_draws(of_machines: Sequence[PromptSums]) -> PriceSpread:
    """Logarithms of the worst speedups at each draw of every machine's prices, of which each has its own noise."""
    logs = np.min([price_spread(sums, "speedup").logs for sums in of_machines], axis=0)
    return PriceSpread(np.asarray(logs, np.float64), (None,) * len(logs))


def _least(spreads: Sequence[Spread]) -> Spread:
    """The smallest of each number; with the fewest effective prompts of any."""
    parts = (np.min([getattr(spread, name) for spread in spreads], axis=0) for name in Spread.__slots__)
    return Spread(*parts)
