"""Seconds of a policy beside those of autoregressive decoding, request by request and by batch size."""

from collections.abc import Mapping
from dataclasses import dataclass

from simlab.analysis.compare.averaging import finite
from simlab.analysis.released.specdecode.chain_records import ChainRecords
from simlab.analysis.released.specdecode.chain_replay import PassCosts, Replay, autoregressive, fixed_chain
from simlab.analysis.statistics.intervals import Interval, ratio_interval
from simlab.arrays import Doubles, Longs

BATCHES = (1, 8, 16, 32, 64, 128)

Row = dict[str, object]


@dataclass(frozen=True, slots=True, eq=False)
class ChainSeconds:
    """One policy on R requests.

    Attributes:
        base: seconds of autoregressive decoding, float64 ``[R]`` for each batch size.
        own: of the policy, likewise.
    """

    base: Mapping[int, Doubles]
    own: Mapping[int, Doubles]

    def speedup(self, batch: int, places: Longs | slice = slice(None)) -> tuple[float, Interval]:
        """Seconds of autoregressive decoding over the policy's, both summed, with its interval over requests.

        Args:
            batch: its size.
            places: of the requests that count; all unless given.
        """
        base, own = self.base[batch][places], self.own[batch][places]
        return float(base.sum() / own.sum()), ratio_interval(base, own)

    def total_s(self, batch: int) -> float:
        """Seconds of all requests together."""
        return float(self.own[batch].sum())


def chain_seconds(records: ChainRecords, replay: Replay, costs: PassCosts) -> ChainSeconds:
    """What the rounds of a replay take, and autoregressive decoding of the same texts.

    Args:
        records: of the texts.
        replay: of a policy on them.
        costs: of passes.
    """
    base, own = ({batch: one.seconds(costs, batch) for batch in BATCHES} for one in (autoregressive(records), replay))
    return ChainSeconds(base, own)


def seconds_by_length(records: ChainRecords, costs: PassCosts) -> dict[int, ChainSeconds]:
    """Seconds of chains of each fixed length that was recorded."""
    lengths = range(1, records.longest + 1)
    return {length: chain_seconds(records, fixed_chain(records, length), costs) for length in lengths}


def with_ends(name: str, value: float, interval: Interval) -> Row:
    """A figure and the ends of its interval as columns of a row; None where not known."""
    ends = {name: value, f"{name}_ci_low": interval.low, f"{name}_ci_high": interval.high}
    return {key: finite(one) for key, one in ends.items()}
