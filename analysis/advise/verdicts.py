"""Go or no-go at one batch size: the best chain and tree, paired comparisons, and what would make a tree pay."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import polars as pl

from simlab.analysis.compare.comparisons import Comparison, adjust_family, compare_pairs
from simlab.analysis.statistics.intervals import UNKNOWN, finite
from simlab.analysis.table.price_draws import BatchPrices
from simlab.analysis.table.prompt_sums import PolicyRun, prompt_sums
from simlab.analysis.table.summaries import BASELINE, Summary, summarise
from simlab.analysis.table.text import aligned, within_width
from simlab.errors import CostError

CHAIN = "chain"
MEASURE = "tokens_per_s"

WINNER, LOSER, UNDECIDED = "winner", "loser", "no winner"


@dataclass(frozen=True, slots=True)
class TreeNeeds:
    """What would make the tree as fast as the chain, all else as it is.

    With L the acceptance lengths, s the seconds of a round and n the drafted tokens of chain and tree, the tree pays
    where its L is above ``L_tree = L_chain s_tree / s_chain``, and where each drafted token that it has more than the
    chain costs less than ``s_chain (L_tree / L_chain - 1) / (n_tree - n_chain)``.

    Attributes:
        length: acceptance length of the tree; likewise ``needed_length``.
        token_s: what a drafted token more takes, for each of the texts; None where the tree drafts no more tokens.
        needed_token_s: below this the tree pays; below 0: no price of a token makes it pay.
    """

    length: float
    needed_length: float
    token_s: float | None
    needed_token_s: float | None


@dataclass(frozen=True, slots=True)
class BatchAdvice:
    """What to do at one batch size.

    Attributes:
        of: the batch size and its prices.
        chain: the best chain; None where none could be priced.
        tree: the best of the other policies, likewise.
        chain_gain: tokens per second of the chain over plain decoding, paired over prompts.
        tree_gain: likewise of the tree.
        tree_over_chain: of the tree over the chain.
        needs: what would make the tree pay; None where one of the two is missing.
    """

    of: BatchPrices
    chain: Summary | None
    tree: Summary | None
    chain_gain: Comparison | None
    tree_gain: Comparison | None
    tree_over_chain: Comparison | None
    needs: TreeNeeds | None

    @property
    def verdict(self) -> str:
        """What the comparison of tree and chain says."""
        return UNDECIDED if self.tree_over_chain is None else verdict_of(self.tree_over_chain)

    @property
    def best_gain(self) -> Comparison | None:
        """The faster of chain and tree over plain decoding."""
        found = [comparison for comparison in (self.chain_gain, self.tree_gain) if comparison is not None]
        return max(found, key=lambda comparison: comparison.ratio, default=None)

    @property
    def fastest(self) -> str:
        """The label of the fastest; plain decoding where nothing is faster than it."""
        best = self.best_gain
        return BASELINE if best is None or best.ratio <= 1 else best.first

    def row(self) -> dict[str, object]:
        """As a script reads it; what is not known is None."""
        found: dict[str, object] = {
            "batch": self.of.batch,
            "modelled": self.of.what_if,
            "prices": self.of.heading,
            "cost_id": self.of.cost_id,
            "fastest": self.fastest,
            "chain": None if self.chain is None else self.chain.policy,
            "tree": None if self.tree is None else self.tree.policy,
            "verdict": self.verdict,
        }
        gains = {
            "chain_speedup": self.chain_gain,
            "tree_speedup": self.tree_gain,
            "tree_over_chain": self.tree_over_chain,
        }
        for name, gain in gains.items():
            found[name] = None if gain is None else finite(gain.ratio)
            found |= (UNKNOWN if gain is None else gain.ratio_interval).row(f"{name}_ci")
            found[f"{name}_verdict"] = None if gain is None else verdict_of(gain)
            found |= (UNKNOWN if gain is None else gain.price_interval).row(f"{name}_price")
        names = TreeNeeds.__dataclass_fields__
        return found | {f"tree_{name}": None if self.needs is None else getattr(self.needs, name) for name in names}


def verdict_of(comparison: Comparison) -> str:
    """Whether the first is a winner or a loser; neither where prompts and prices cannot tell."""
    if not comparison.differs:
        return UNDECIDED
    return WINNER if comparison.ratio > 1 else LOSER


def batch_advice(of: BatchPrices, rows: pl.DataFrame, chosen_on: pl.DataFrame) -> BatchAdvice:
    """Choose the fastest chain and the fastest other policy on some rows, and judge them on others.

    Each batch size is a family of three comparisons, whose p-values are adjusted.

    Args:
        of: the batch size.
        rows: result rows of all policies at its prices, plain decoding among them.
        chosen_on: rows of the same policies that settings are chosen on; may be the same.
    """
    summaries = {summary.policy: summary for summary in summarise(rows)}
    choosing = chosen_on.filter(pl.col("policy").is_in(list(summaries)))
    chain, tree = (summaries.get(label) for label in _fastest_labels(of, choosing))
    plain = rows.filter(pl.col("name") == BASELINE)
    runs = [PolicyRun(BASELINE, plain, plain)]
    runs += [
        PolicyRun(summary.policy, rows.filter(pl.col("policy") == summary.policy), plain)
        for summary in (chain, tree)
        if summary is not None
    ]
    pairs = [(index, 0) for index in range(1, len(runs))] + [(2, 1)] * (len(runs) == 3)
    compared = adjust_family(compare_pairs(prompt_sums(runs), [run.name for run in runs], pairs, MEASURE))
    by_names = {(comparison.first, comparison.second): comparison for comparison in compared}
    gains = [None if summary is None else by_names[summary.policy, BASELINE] for summary in (chain, tree)]
    over, needs = None, None
    if chain is not None and tree is not None:
        over, needs = by_names[tree.policy, chain.policy], tree_needs(chain, tree)
    return BatchAdvice(of, chain, tree, gains[0], gains[1], over, needs)


def _fastest_labels(of: BatchPrices, rows: pl.DataFrame) -> tuple[str, str]:
    """Label of the fastest chain, and of the fastest other policy; empty where there is none."""
    found = [summary for summary in summarise(rows) if summary.name != BASELINE]
    if any(not summary.speed.tokens_per_s > 0 for summary in found):
        raise CostError(f"the latency profile {of.cost_id} gives no speed at batch size {of.batch}; measure it again")
    groups = [[summary for summary in found if (summary.name == CHAIN) is is_chain] for is_chain in (True, False)]
    best = [max(group, key=lambda summary: summary.speed.tokens_per_s, default=None) for group in groups]
    first, second = ("" if summary is None else summary.policy for summary in best)
    return first, second


def tree_needs(chain: Summary, tree: Summary) -> TreeNeeds:
    """What would make a tree as fast as a chain; see `TreeNeeds`."""
    (chain_s, chain_length, chain_nodes), (tree_s, tree_length, tree_nodes) = (
        _round(summary) for summary in (chain, tree)
    )
    more = tree_nodes - chain_nodes
    needed = chain_length * tree_s / chain_s
    if not more > 0:
        return TreeNeeds(tree_length, needed, None, None)
    return TreeNeeds(tree_length, needed, (tree_s - chain_s) / more, chain_s * (tree_length / chain_length - 1) / more)


def _round(summary: Summary) -> tuple[float, float, float]:
    """Mean seconds, committed and drafted tokens of a round."""
    totals = summary.totals
    return (
        totals.committed / summary.speed.tokens_per_s / totals.rounds,
        totals.acceptance_length,
        totals.nodes_per_round,
    )


def stops_from(batches: Sequence[int], ratios: Sequence[float]) -> int | None:
    """The first batch size from which on no ratio is above 1; None where the last one still is.

    Args:
        batches: ascending.
        ratios: of each, NaN where not known, which counts as not above.

    >>> stops_from([1, 2, 4], [1.5, 0.9, 0.8])
    2
    """
    found = None
    for batch, ratio in zip(reversed(batches), reversed(ratios), strict=True):
        if ratio > 1:
            break
        found = batch
    return found


# The page of ``simlab advise``: a table over batch sizes, verdicts, break-even, and what would have to change.


_HEADS = (
    "batch",
    "prices",
    "best chain",
    "speedup [95 %]",
    "best tree",
    "speedup [95 %]",
    "tree / chain [95 %]",
    "tree",
)


def advice_table(found: Sequence[BatchAdvice]) -> str:
    """A line for each batch size."""
    return aligned([_HEADS, *map(_cells, found)], [True] * len(_HEADS))


def _cells(advice: BatchAdvice) -> tuple[str, ...]:
    return (
        str(advice.of.batch),
        "modelled" if advice.of.what_if else "measured",
        "-" if advice.chain is None else advice.chain.policy,
        ratio_text(advice.chain_gain),
        "-" if advice.tree is None else advice.tree.policy,
        ratio_text(advice.tree_gain),
        ratio_text(advice.tree_over_chain),
        advice.verdict + (" (prices)" if within_prices(advice.tree_over_chain) else ""),
    )


def within_prices(comparison: Comparison | None) -> bool:
    """Whether prompts tell the two apart, and the noise of the prices does not let them."""
    return comparison is not None and comparison.differs_by_prompts and comparison.is_within_price_noise


def ratio_text(comparison: Comparison | None) -> str:
    """A ratio and its interval."""
    if comparison is None:
        return "-"
    interval = comparison.ratio_interval
    ends = "" if math.isnan(interval.low) else f" [{interval.low:.3f}, {interval.high:.3f}]"
    return f"{comparison.ratio:.3f}{ends}"


def advice_sentences(found: Sequence[BatchAdvice]) -> list[str]:
    """What to do, from where on it stops paying, and what would have to change."""
    return [
        *_to_do(found),
        *_break_evens(found),
        *(sentence for advice in found if (sentence := needs_sentence(advice))),
    ]


def _to_do(found: Sequence[BatchAdvice]) -> list[str]:
    lines = []
    for advice in found:
        gain = advice.best_gain
        if gain is None:
            lines.append(f"Batch {advice.of.batch}: no policy could be priced.")
            continue
        undecided = "no winner, within the noise of the prices" if within_prices(gain) else "no winner"
        told = {WINNER: "go", UNDECIDED: undecided}.get(verdict_of(gain), "no-go")
        fastest = "plain decoding" if gain.ratio <= 1 else gain.first
        lines.append(
            f"Batch {advice.of.batch}: fastest is {fastest}; {gain.first} over plain {ratio_text(gain)}: {told}."
        )
    return lines


def _break_evens(found: Sequence[BatchAdvice]) -> list[str]:
    batches = [advice.of.batch for advice in found]
    kinds = {
        "Speculation over plain decoding": [advice.best_gain for advice in found],
        "The tree over the best chain": [advice.tree_over_chain for advice in found],
    }
    return [
        break_even_sentence(name, batches, [math.nan if ratio is None else ratio.ratio for ratio in ratios])
        for name, ratios in kinds.items()
    ]


def break_even_sentence(name: str, batches: Sequence[int], ratios: Sequence[float]) -> str:
    """From which batch size on something stops paying, by its estimates, not their intervals."""
    stop = stops_from(batches, ratios)
    if stop is None:
        return f"{name}: still ahead at the largest batch size here, {batches[-1]}."
    if stop == batches[0]:
        return f"{name}: ahead at no batch size here."
    last = batches[batches.index(stop) - 1]
    return f"{name}: ahead up to a batch of {last}, behind from {stop} on; break-even lies between, by estimates."


def needs_sentence(advice: BatchAdvice) -> str:
    """What would make a tree pay that is not the winner; empty where it is, or there is none."""
    needs = advice.needs
    if needs is None or advice.tree is None or advice.verdict == WINNER:
        return ""
    start = f"Batch {advice.of.batch}: {advice.tree.policy} breaks even with the chain at an acceptance length of "
    length = f"{start}{needs.needed_length:.3f} (here {needs.length:.3f})"
    if needs.token_s is None or needs.needed_token_s is None:
        return f"{length}; it drafts no more tokens than the chain, so no price of a token decides."
    now = f"here {1e3 * needs.token_s:.4f} ms"
    if needs.needed_token_s <= 0:
        return f"{length}; no price of a drafted token makes it pay ({now}), since its rounds commit no more tokens."
    wanted = f"{1e3 * needs.needed_token_s:.4f} ms"
    return f"{length}, or where each drafted token that it has more adds {wanted} to a round ({now})."


def notes_text(notes: Sequence[str]) -> str:
    """Sentences, each within the width of a page."""
    return "\n".join(within_width(note) for note in notes)
