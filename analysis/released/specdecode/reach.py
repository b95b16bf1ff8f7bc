"""How much of the oracle's gain fixed and adaptive chains reach, and which of the two is faster."""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from simlab.analysis.released.prompt_ratios import PromptFigure, prompt_ratio
from simlab.analysis.released.specdecode.chain_records import ChainRecords
from simlab.analysis.released.specdecode.chain_replay import ADAPTIVE, PassCosts, adaptive_chain, oracle_chain
from simlab.analysis.released.specdecode.chain_seconds import BATCHES, ChainSeconds, Row, chain_seconds, with_ends
from simlab.analysis.statistics.intervals import LEVEL, Interval, intervals_of, prompt_spread
from simlab.analysis.statistics.significance import holm
from simlab.arrays import Doubles, Longs

FASTER, SLOWER, NOT_SHOWN = "+", "-", "="


def reach_of(records: ChainRecords, by_length: Mapping[int, ChainSeconds], costs: PassCosts) -> list[Row]:
    """What share of the oracle's gain a fixed length reaches that is chosen on other requests, and adaptive chains do.

    Requests at even places choose the length, those at odd places show what it brings.

    Args:
        records: of a dataset and a drafter.
        by_length: seconds of chains of each fixed length.
        costs: of passes.

    Returns:
        a row for each batch size; p-values are of equal seconds of the fixed and the adaptive chain.
    """
    places = np.arange(len(records.request_ids))
    choosing, shown = places[::2], places[1::2]
    oracle = chain_seconds(records, oracle_chain(records), costs)
    adaptive = {name: chain_seconds(records, adaptive_chain(records, rule), costs) for name, rule in ADAPTIVE.items()}
    rows: list[Row] = []
    for batch in BATCHES:
        chosen = _fastest_length(by_length, batch, choosing)
        fixed = by_length[chosen]
        row: Row = {"dataset": records.dataset, "drafter": records.drafter, "batch": batch, "chosen": chosen}
        row["oracle"] = oracle.speedup(batch, shown)[0]
        row["fixed"] = fixed.speedup(batch, shown)[0]
        for name, one in (("fixed", fixed), *adaptive.items()):
            row |= with_ends(f"{name}_reached", *_reached(one, oracle, batch, shown))
        for name, one in adaptive.items():
            over = paired_ratio(fixed.own[batch][shown], one.own[batch][shown])
            row |= with_ends(f"{name}_over_fixed", over.value, over.interval)
            row[f"{name}_p"] = over.p_value
            row[f"{name}_verdict"] = _verdict(over.value, over.p_value)
        rows.append(row)
    return rows


def with_corrected_verdicts(rows: Sequence[Row]) -> list[Row]:
    """Add verdicts that hold for all rows and adaptive rules at once, by Holm.

    Args:
        rows: of all datasets and drafters, as `reach_of` has them; p-values are left out of what is returned.
    """
    cells = [(place, name) for place in range(len(rows)) for name in ADAPTIVE]
    adjusted = holm(np.array([rows[place][f"{name}_p"] for place, name in cells], np.float64))
    found = [{key: value for key, value in row.items() if not key.endswith("_p")} for row in rows]
    for (place, name), p_value in zip(cells, adjusted.tolist(), strict=True):
        over = rows[place][f"{name}_over_fixed"]
        value = over if isinstance(over, float) else float("nan")
        found[place][f"{name}_verdict_corrected"] = _verdict(value, p_value)
    return found


def paired_ratio(above_s: Doubles, below_s: Doubles) -> PromptFigure:
    """Summed seconds over summed seconds of the same requests, paired.

    Args:
        above_s: float64 ``[R]``.
        below_s: float64 ``[R]``, of the same requests in the same order.
    """
    # Every request is a prompt of its own here.
    names = {"dataset": [""] * len(above_s), "prompt": list(range(len(above_s)))}
    return prompt_ratio(pl.DataFrame({**names, "above": above_s, "below": below_s}), above=1, below=-1)


def _fastest_length(by_length: Mapping[int, ChainSeconds], batch: int, places: Longs) -> int:
    """The shortest of the fastest lengths on some requests."""
    return -max((one.speedup(batch, places)[0], -length) for length, one in by_length.items())[1]


def _reached(one: ChainSeconds, oracle: ChainSeconds, batch: int, places: Longs) -> tuple[float, Interval]:
    """The share of the oracle's gain over autoregressive decoding that a policy reaches, paired by request.

    Student's interval may reach beyond all of the gain, and is cut there. Below 0 it is not cut: a chain may be slower
    than autoregressive decoding.
    """
    columns = [each[batch][places] for each in (oracle.base, one.own, oracle.own)]

    def shares(sums: Doubles) -> Doubles:
        gains = sums[..., 0] / sums[..., 1] - 1, sums[..., 0] / sums[..., 2] - 1
        return np.asarray(gains[0] / gains[1], np.float64)[..., None]

    spread = prompt_spread(np.stack(columns, axis=1), shares)
    value, (found,) = float(spread.whole[0]), intervals_of(spread)
    # np.minimum keeps an end that is not known.
    return value, Interval(found.low, float(np.minimum(found.high, max(1.0, value))))


def _verdict(over_fixed: float, p_value: float) -> str:
    if not p_value < 1 - LEVEL:
        return NOT_SHOWN
    return FASTER if over_fixed > 1 else SLOWER
