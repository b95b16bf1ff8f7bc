"""At each batch size the fastest chain and the fastest tree, whether they win, and where the break-even lies."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import polars as pl

from simlab.analysis.compare.comparisons import Comparison, adjust_family, compare_pairs
from simlab.analysis.export.batch_choices import BatchPrices
from simlab.analysis.statistics.intervals import Interval
from simlab.analysis.table.prompt_sums import PolicyRun, prompt_sums
from simlab.analysis.table.summaries import BASELINE, Summary, summarise
from simlab.errors import CostError

MEASURE = "tokens_per_s"
PLAIN, CHAIN, TREE = "plain decoding", "chain", "tree"

Chosen = Mapping[str, str]
"""Label of the policy of each kind that was chosen, by the kind."""


@dataclass(frozen=True, slots=True)
class Option:
    """One policy at one batch size.

    Attributes:
        label: of the policy.
        tokens_per_s: of each of the texts, by prediction.
        speedup: over plain decoding at that batch size.
        interval: of the speedup, over prompts.
        price_interval: of the speedup, by the noise of the prices.
        acceptance_length: tokens a round.
        round_s: seconds of a round, on average.
    """

    label: str
    tokens_per_s: float
    speedup: float
    interval: Interval
    price_interval: Interval
    acceptance_length: float
    round_s: float


@dataclass(frozen=True, slots=True)
class TreeNeeds:
    """What would have to change for a tree to be as fast as what is fastest without it.

    Attributes:
        rival: the chain, or plain decoding.
        round_s: as long may a round of the tree take, its acceptance length as it is.
        acceptance_length: as long must it be, the tree's rounds as they are.
    """

    rival: str
    round_s: float
    acceptance_length: float


@dataclass(frozen=True, slots=True)
class BatchAdvice:
    """What to run at one batch size.

    Attributes:
        prices: of it.
        plain_tokens_per_s: of each text, decoded plainly.
        chain: the chosen chain; None: none has a price.
        tree: the chosen tree; likewise.
        chain_over_plain: the comparison; None where there is no chain, and so on.
        tree_over_plain: likewise.
        tree_over_chain: likewise.
        run: what to run: the kind that wins, or the simplest of those that are not told apart.
    """

    prices: BatchPrices
    plain_tokens_per_s: float
    chain: Option | None
    tree: Option | None
    chain_over_plain: Comparison | None
    tree_over_plain: Comparison | None
    tree_over_chain: Comparison | None
    run: str = PLAIN

    @property
    def needs(self) -> TreeNeeds | None:
        """What a tree lacks; None where it is the fastest by prediction, or there is none."""
        tree, chain = self.tree, self.chain
        if tree is None:
            return None
        rival, speed = "plain decoding", self.plain_tokens_per_s
        if chain is not None and chain.tokens_per_s > speed:
            rival, speed = chain.label, chain.tokens_per_s
        if tree.tokens_per_s >= speed:
            return None
        return TreeNeeds(rival, tree.acceptance_length / speed, tree.round_s * speed)


def chosen_policies(rows: pl.DataFrame, kinds: Mapping[str, str], prices: BatchPrices) -> Chosen:
    """The fastest chain and the fastest tree by prediction; of equally fast ones the first that was named.

    Args:
        rows: result rows of plain decoding, chains and trees, all at these prices.
        kinds: the kind of each policy, by its label.
        prices: of the batch size.

    Raises:
        CostError: the prices have no seconds.
    """
    found = {one.policy: one for one in summarise(rows)}
    best: dict[str, str] = {}
    for label, kind in kinds.items():
        speed = _speed(found[label], prices)
        if kind not in best or speed > found[best[kind]].speed.tokens_per_s:
            best[kind] = label
    return best


def batch_advice(rows: pl.DataFrame, chosen: Chosen, prices: BatchPrices) -> BatchAdvice:
    """Plain decoding, the chosen chain and the chosen tree on some prompts; comparisons each alone.

    Args:
        rows: result rows of these, all at these prices.
        chosen: their labels.
        prices: of the batch size.

    Raises:
        CostError: the prices have no seconds.
    """
    found = {one.policy: one for one in summarise(rows)}
    (plain,) = [one for one in found.values() if one.name == BASELINE]
    base = rows.filter(pl.col("name") == BASELINE)
    labels = [plain.policy, *(chosen[kind] for kind in (CHAIN, TREE) if kind in chosen)]
    sums = prompt_sums([PolicyRun(label, rows.filter(pl.col("policy") == label), base) for label in labels])

    def compared(first: str | None, second: str | None) -> Comparison | None:
        if first is None or second is None:
            return None
        pair = (labels.index(first), labels.index(second))
        (one,) = compare_pairs(sums, labels, [pair], MEASURE)
        return one

    chain, tree = chosen.get(CHAIN), chosen.get(TREE)
    return BatchAdvice(
        prices=prices,
        plain_tokens_per_s=_speed(plain, prices),
        chain=None if chain is None else _option(found[chain], prices),
        tree=None if tree is None else _option(found[tree], prices),
        chain_over_plain=compared(chain, plain.policy),
        tree_over_plain=compared(tree, plain.policy),
        tree_over_chain=compared(tree, chain),
    )


def judged(advice: Sequence[BatchAdvice]) -> tuple[BatchAdvice, ...]:
    """All batch sizes read together: p-values are adjusted for the number of comparisons (Holm).

    A tree is run where it beats both others, a chain where it beats plain decoding and no tree beats it.
    """
    triples = [(one.chain_over_plain, one.tree_over_plain, one.tree_over_chain) for one in advice]
    adjusted = iter(adjust_family([one for triple in triples for one in triple if one is not None]))
    found = []
    for one, triple in zip(advice, triples, strict=True):
        chain, tree, both = (None if comparison is None else next(adjusted) for comparison in triple)
        read = replace(one, chain_over_plain=chain, tree_over_plain=tree, tree_over_chain=both)
        found.append(replace(read, run=_run(read)))
    return tuple(found)


def _run(one: BatchAdvice) -> str:
    if _wins(one.tree_over_plain) and (one.chain is None or _wins(one.tree_over_chain)):
        return TREE
    return CHAIN if _wins(one.chain_over_plain) else PLAIN


def _wins(comparison: Comparison | None) -> bool:
    return comparison is not None and comparison.differs and comparison.ratio > 1


def _speed(summary: Summary, prices: BatchPrices) -> float:
    speed = summary.speed.tokens_per_s
    if not speed > 0 or math.isnan(speed):
        raise CostError(
            f"the latency profile {prices.cost_id} gives no speed at batch size {prices.batch}; measure it again"
        )
    return speed


def _option(summary: Summary, prices: BatchPrices) -> Option:
    speed, length = summary.speed, summary.totals.acceptance_length
    return Option(
        label=summary.policy,
        tokens_per_s=_speed(summary, prices),
        speedup=speed.speedup,
        interval=speed.interval,
        price_interval=speed.price_interval,
        acceptance_length=length,
        round_s=length / speed.tokens_per_s,
    )
