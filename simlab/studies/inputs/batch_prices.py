"""Prices of several batch sizes: those of cost files, and what-ifs where there is none."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simlab.errors import CostError
from simlab.studies.inputs.prices import Prices, prices_for_trace, what_if_prices
from simlab.traces.artefacts.cost import read_cost_file
from simlab.traces.reader import Trace

HOW = (
    "Give a cost file of each batch size with --cost (`simlab profile` measures one text at a time; "
    "`simlab import-cost --batch N` takes timings of N texts), or ask for a what-if with --batches 1,2,4"
)


@dataclass(frozen=True, slots=True)
class BatchPricing:
    """Prices of one batch size.

    Attributes:
        batch: texts at a time.
        prices: of a round in which each of them goes one round further.
        what_if: whether they were worked out from those of one text.
    """

    batch: int
    prices: Prices
    what_if: bool


def priced_batches(
    costs: Sequence[Path], batches: Sequence[int] | None, trace: Trace, draft: str, limit: int | None
) -> list[BatchPricing]:
    """Prices by batch size, ascending; without batch sizes those of the cost files, which may be one.

    Args:
        costs: cost files; none: the shipped one.
        batches: batch sizes; None: those of the files.
        trace: whose texts are priced.
        draft: the draft set.
        limit: the first so many prompts only; None: all.
    """
    found = measured_prices(costs, trace, draft, limit)
    measured = {batch: BatchPricing(batch, prices, what_if=False) for batch, prices in found.items()}
    if batches is None:
        return [measured[batch] for batch in sorted(measured)]
    return [measured[batch] if batch in measured else _worked_out(batch, measured) for batch in batches]


def measured_prices(costs: Sequence[Path], trace: Trace, draft: str, limit: int | None) -> dict[int, Prices]:
    """Prices of cost files, by the number of texts at a time that they are of; without a file those shipped."""
    found: dict[int, Prices] = {}
    for path in costs or (None,):
        prices = prices_for_trace(path, trace, draft, limit)
        batch = _batch_of(path)
        if batch in found:
            raise CostError(
                f"two cost files have the latencies of {batch} texts at a time; give one of each batch size"
            )
        found[batch] = prices
    return found


def _batch_of(path: Path | None) -> int:
    return 1 if path is None else read_cost_file(path).batch


def _worked_out(batch: int, measured: dict[int, BatchPricing]) -> BatchPricing:
    if 1 not in measured:
        raise CostError(
            f"no latency profile of {batch} texts at a time, and none of one text to work it out from; give that with "
            "--cost"
        )
    if measured[1].prices.cost is None:
        raise CostError(f"a batch size needs a latency profile. {measured[1].prices.why_none}")
    return BatchPricing(batch, what_if_prices(measured[1].prices, f"batch={batch}"), what_if=True)
