"""How many tokens to draft at each batch size: the chain that is fastest by prediction, and those that may be as fast.

Engines read such a choice as a table over ranges of batch sizes. A batch size between two that have prices takes the
choice of the smaller one, as the engines themselves fill gaps.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import polars as pl

from simlab.analysis.compare.comparisons import Comparison, adjust_family, compare_pairs
from simlab.analysis.table.prompt_sums import PolicyRun, prompt_sums
from simlab.analysis.table.summaries import BASELINE, BatchPrices, Scalar, Speed, Summary, summarise
from simlab.errors import CostError

MEASURE = "tokens_per_s"


@dataclass(frozen=True, slots=True)
class BatchChoice:
    """The fastest chain at one batch size.

    Attributes:
        prices: of that batch size.
        length: drafted tokens; 0 is plain decoding.
        longest: the longest chain that was tried.
        speed: of each of the texts, by prediction, over plain decoding at the same batch size.
        equal_lengths: lengths whose speed these prompts and prices cannot tell from the best one's, itself among them.
    """

    prices: BatchPrices
    length: int
    longest: int
    speed: Speed
    equal_lengths: tuple[int, ...]

    def row(self) -> dict[str, Scalar | list[int]]:
        """As a script reads it; an interval that is not known is None."""
        return {
            "batch": self.prices.batch,
            "num_drafted": self.length,
            "longest_tried": self.longest,
            "tokens_per_s_of_each_text": self.speed.tokens_per_s,
            "speedup": self.speed.speedup,
            **self.speed.interval.row("speedup_ci"),
            **self.speed.price_interval.row("speedup_price"),
            "not_told_apart": list(self.equal_lengths),
            "what_if": self.prices.what_if,
            "cost_id": self.prices.cost_id,
            "prices": self.prices.heading,
        }


def batch_choice(rows: pl.DataFrame, lengths: Mapping[str, int], prices: BatchPrices) -> BatchChoice:
    """The fastest of plain decoding and some chains; of equally fast ones the shortest.

    Whether another length is as fast is asked of all lengths at once, so p-values are adjusted for their number.

    Args:
        rows: result rows of plain decoding and of the chains, all at these prices.
        lengths: drafted tokens of each, by policy id.
        prices: of the batch size.
    """
    by_length: dict[int, Summary] = {
        lengths[summary.policy_id]: summary for summary in summarise(rows) if summary.policy_id in lengths
    }
    if any(not summary.speed.tokens_per_s > 0 for summary in by_length.values()):
        raise CostError(
            f"the latency profile {prices.cost_id} gives no speed at batch size {prices.batch}; measure it again"
        )
    best = min(by_length, key=lambda length: (-by_length[length].speed.tokens_per_s, length))
    order = [best, *(length for length in by_length if length != best)]
    compared = against_first(rows, [by_length[length].policy for length in order], MEASURE)
    same = [length for length, comparison in zip(order[1:], compared, strict=True) if not comparison.differs]
    return BatchChoice(prices, best, max(by_length), by_length[best].speed, tuple(sorted([best, *same])))


def against_first(rows: pl.DataFrame, policies: Sequence[str], measure: str) -> list[Comparison]:
    """The first policy against each other one on the same prompts, as one family.

    Args:
        rows: result rows of all of them, at one latency profile.
        policies: their labels.
        measure: by which.
    """
    plain = rows.filter(pl.col("name") == BASELINE)
    runs = [PolicyRun(label, rows.filter(pl.col("policy") == label), plain) for label in policies]
    pairs = [(0, other) for other in range(1, len(runs))]
    return adjust_family(compare_pairs(prompt_sums(runs), policies, pairs, measure)) if pairs else []


def batch_ranges(lengths: Mapping[int, int]) -> list[tuple[int, int, int]]:
    """First and last batch size and drafted tokens of each range; neighbours of one length are one range.

    Ranges begin at 1 and leave no gap; the last one ends at the largest batch size with prices.

    Args:
        lengths: drafted tokens by batch size, at least one.
    """
    if not lengths:
        raise ValueError("expected the drafted tokens of at least one batch size; got none")
    batches = sorted(lengths)
    starts = [1, *batches[1:]]
    ends = [*(start - 1 for start in starts[1:]), batches[-1]]
    ranges = zip(starts, ends, (lengths[batch] for batch in batches), strict=True)
    merged = [list(group) for _, group in groupby(ranges, key=lambda entry: entry[2])]
    return [(group[0][0], group[-1][1], group[0][2]) for group in merged]
