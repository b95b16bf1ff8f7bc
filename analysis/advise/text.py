"""Advice as an engineer reads it: the verdict, the table by batch size, break-even, and what a tree would need."""

import math
from collections.abc import Sequence

from simlab.analysis.advise.advice import CHAIN, PLAIN, TREE, BatchAdvice, Option
from simlab.analysis.compare.comparisons import Comparison
from simlab.analysis.statistics.intervals import Interval
from simlab.analysis.table.text import aligned, number


def advice_text(advice: Sequence[BatchAdvice]) -> str:
    """All of it but the heading: verdicts, the table, and what a tree would need."""
    parts = ["\n".join(verdicts(advice)), _table(advice), "\n".join(needs(advice))]
    return "\n\n".join(part for part in parts if part)


def verdicts(advice: Sequence[BatchAdvice]) -> list[str]:
    """Go or no-go, break-even and tree or chain, a sentence each."""
    runs = [(one.prices.batch, one.run) for one in advice]
    speculating = [batch for batch, run in runs if run != PLAIN]
    lines = []
    if not speculating:
        lines.append(
            f"NO GO: at batch {_listed([batch for batch, _ in runs])} nothing is faster than plain decoding beyond "
            "doubt. Decode plainly."
        )
    else:
        lines.append(f"GO at batch {_listed(speculating)}: {_each(advice, speculating)}.")
        plain = [batch for batch, run in runs if run == PLAIN]
        if plain:
            last, first = max(speculating), min((batch for batch in plain if batch > max(speculating)), default=None)
            between = f"Break-even lies between batch {last} and {first}. " if first is not None else ""
            lines.append(f"{between}At batch {_listed(plain)} decode plainly.")
        else:
            lines.append(f"No break-even up to batch {runs[-1][0]}: speculation pays at every batch size asked for.")
    lines += _trees(advice)
    return lines


def needs(advice: Sequence[BatchAdvice]) -> list[str]:
    """What would have to change for a tree to pay, where it is behind by prediction."""
    lines = []
    for one in advice:
        lacking, tree = one.needs, one.tree
        if lacking is None or tree is None:
            continue
        share = 100 * (1 - lacking.round_s / tree.round_s)
        lines.append(
            f"For {tree.label} to equal {lacking.rival} at batch {one.prices.batch}: a round may take "
            f"{1e3 * lacking.round_s:.4g} ms, {share:.1f} % less than its {1e3 * tree.round_s:.4g} ms; or it must "
            f"commit {lacking.acceptance_length:.2f} tokens a round instead of {tree.acceptance_length:.2f}."
        )
    return lines


def _each(advice: Sequence[BatchAdvice], batches: Sequence[int]) -> str:
    """What to run, one clause for each run of batch sizes that run the same policy."""
    clauses: list[tuple[str, list[int]]] = []
    for one in advice:
        if one.prices.batch not in batches:
            continue
        option = one.tree if one.run == TREE else one.chain
        assert option is not None
        if clauses and clauses[-1][0] == option.label:
            clauses[-1][1].append(one.prices.batch)
        else:
            clauses.append((option.label, [one.prices.batch]))
    return ", ".join(f"{label} ({_range(found)})" for label, found in clauses)


def _trees(advice: Sequence[BatchAdvice]) -> list[str]:
    groups: dict[str, list[int]] = {"tree": [], "chain": [], "open": []}
    for one in advice:
        comparison = one.tree_over_chain
        if comparison is not None:
            decided = ("tree" if comparison.ratio > 1 else "chain") if comparison.differs else "open"
            groups[decided].append(one.prices.batch)
    said = {
        "tree": "Tree over chain: the tree wins at batch {}.",
        "chain": "Tree over chain: the chain wins at batch {}.",
        "open": "Tree over chain: no winner at batch {}.",
    }
    return [said[name].format(_listed(batches)) for name, batches in groups.items() if batches]


def _table(advice: Sequence[BatchAdvice]) -> str:
    heads = ["batch", "prices", "plain", "chain", "speedup [95 %]", "prices", "tree", "speedup [95 %]", "prices",
             "tree over chain, %", "run"]  # fmt: skip
    under = ["", "", "tokens/s", "", "over plain", "[95 %]", "", "over plain", "[95 %]", "[95 %]", ""]
    rows = [
        [
            str(one.prices.batch),
            "what if" if one.prices.what_if else "measured",
            number(one.plain_tokens_per_s, 1),
            *_cells(one.chain),
            *_cells(one.tree),
            _percent(one.tree_over_chain),
            _run(one),
        ]
        for one in advice
    ]
    return aligned([heads, under, *rows], [False, True, False, True, True, True, True, True, True, True, True])


def _run(one: BatchAdvice) -> str:
    option = {TREE: one.tree, CHAIN: one.chain}.get(one.run)
    return one.run if option is None else option.label


def _cells(option: Option | None) -> list[str]:
    if option is None:
        return ["-", "-", "-"]
    return [option.label, f"{option.speedup:.2f}{_ends(option.interval)}", _ends(option.price_interval).strip()]


def _ends(interval: Interval) -> str:
    return "" if math.isnan(interval.low) else f" [{interval.low:.2f}, {interval.high:.2f}]"


def _percent(comparison: Comparison | None) -> str:
    if comparison is None or math.isnan(comparison.ratio):
        return "-"
    low, high = comparison.ratio_interval.low, comparison.ratio_interval.high
    ends = "" if math.isnan(low) else f" [{100 * (low - 1):+.1f}, {100 * (high - 1):+.1f}]"
    return f"{100 * (comparison.ratio - 1):+.1f}{ends}{' *' if comparison.differs else ''}"


def _listed(batches: Sequence[int]) -> str:
    return ", ".join(map(str, batches))


def _range(batches: Sequence[int]) -> str:
    return f"batch {batches[0]}" if len(batches) == 1 else f"batch {batches[0]} to {batches[-1]}"
