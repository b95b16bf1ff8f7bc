"""How far predictions were from what was measured, and which part of a round explains how much of it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from simlab.analysis.statistics.intervals import Interval, finite, intervals_of, log_products
from simlab.analysis.statistics.significance import price_interval
from simlab.analysis.table.estimates import Estimate
from simlab.analysis.table.summaries import BASELINE, STAGE_COLUMNS, Scalar, log_seconds_at_draws
from simlab.arrays import Doubles, Longs
from simlab.cost import CHANNEL, PLAIN, STAGES, CostTable

# Whether a latency profile still holds: the seconds of rounds that ran, beside what it says of those very rounds.
# Other rounds than were expected play no part here, unlike in `prediction_errors`.

FEWEST_ROUNDS = 20
"""Of so many drafted tokens, below which their seconds say little."""

_MOST_SHOWN = 6


@dataclass(frozen=True, slots=True, eq=False)
class TimedRounds:
    """Rounds that ran, and what they took.

    Attributes:
        texts: int64 ``[R]``, of which text each is.
        contexts: int64 ``[R]``, tokens before the root.
        num_drafted: int64 ``[R]``.
        seconds: float64 ``[R, 5]``, of each of `simlab.cost.STAGES`; plain decoding has all in ``verify``.
    """

    texts: Longs
    contexts: Longs
    num_drafted: Longs
    seconds: Doubles


@dataclass(frozen=True, slots=True)
class Staleness:
    """How far a latency profile is from the rounds of a run.

    Attributes:
        plain: measured over priced seconds of plain decoding, less 1: how much slower the whole machine was.
        sizes: rounds of one number of drafted tokens each, ``num_drafted``, as JSON has them; those of `FEWEST_ROUNDS`
            rounds or more, from few drafted tokens to many; there is one. ``rounds`` is how many ran, ``error``
            measured over priced seconds, both beside plain decoding's on the same texts, less 1, and ``factors``
            measured over priced seconds of each stage; 1 where the profile has none.
        channel: measured over priced seconds of all channels together; 1 where none was made, or has a price.
    """

    plain: float
    sizes: tuple[Mapping[str, Any], ...]
    channel: float = 1.0

    @property
    def worst(self) -> Mapping[str, Any]:
        """The size whose rounds are furthest off beside plain decoding."""
        return max(self.sizes, key=lambda size: abs(size["error"]))

    def text(self) -> str:
        """In a sentence, with its full stop."""
        return (
            f"What ran over what the latency profile says of the same rounds: autoregressive decoding "
            f"{_signed(self.plain)} %;\nrounds beside it {self._listed()}."
        )

    def _listed(self) -> str:
        """A few sizes; of many the most frequent, and how far the furthest is."""
        most = sorted(self.sizes, key=lambda size: -size["rounds"])[:_MOST_SHOWN]
        shown = [_size_text(size) for size in self.sizes if size in most]
        more = len(self.sizes) - len(shown)
        rest = f", {more} more sizes up to {_size_text(self.worst)}"
        return ", ".join(shown) + (rest if more else "")

    def to_json(self) -> dict[str, object]:
        """The values of ``simlab confirm --json`` under ``stale``."""
        return {"plain": self.plain, "channel": self.channel, "rounds": list(self.sizes)}


def staleness(
    plain: TimedRounds, drafting: Sequence[tuple[TimedRounds, CostTable]], cost: CostTable
) -> Staleness | None:
    """Hold a latency profile against the rounds of a run.

    Args:
        plain: of plain decoding.
        drafting: of policies that draft, on some of the same texts; with each the profile, charged with its channels.
        cost: the profile; it reaches all of them.

    Returns:
        None where no number of drafted tokens has enough rounds.
    """
    rounds, priced = _joined(drafting)
    took, predicted = plain.seconds.sum(axis=1), cost.at(PLAIN, plain.contexts, np.zeros_like(plain.contexts))
    num_texts = int(max(plain.texts.max(initial=0), rounds.texts.max(initial=0))) + 1
    slower = np.bincount(plain.texts, took, num_texts) / np.maximum(
        np.bincount(plain.texts, predicted, num_texts), 1e-300
    )
    known = slower[rounds.texts] > 0
    sizes = []
    for num_drafted in np.unique(rounds.num_drafted[known]).tolist():
        own = known & (rounds.num_drafted == num_drafted)
        if int(own.sum()) < FEWEST_ROUNDS:
            continue
        measured, expected = rounds.seconds[own], priced[own]
        beside = (expected.sum(axis=1) * slower[rounds.texts[own]]).sum()
        sums = zip(STAGES, measured.sum(axis=0).tolist(), expected.sum(axis=0).tolist(), strict=True)
        factors = {stage: took / predicted if predicted > 0 and took > 0 else 1.0 for stage, took, predicted in sums}
        error = float(measured.sum() / beside - 1)
        sizes.append({"num_drafted": num_drafted, "rounds": int(own.sum()), "error": error, "factors": factors})
    if not sizes:
        return None
    channel = STAGES.index(CHANNEL)
    has_price = priced[:, channel] > 0
    made, expected = rounds.seconds[has_price, channel].sum(), priced[has_price, channel].sum()
    factor = float(made / expected) if made > 0 else 1.0
    return Staleness(float(took.sum() / predicted.sum() - 1), tuple(sizes), factor)


def _joined(drafting: Sequence[tuple[TimedRounds, CostTable]]) -> tuple[TimedRounds, Doubles]:
    """All rounds, and what the profile says of each of their stages, float64 ``[R, 5]``."""
    priced = [
        np.stack([cost.at(stage, rounds.contexts, rounds.num_drafted) for stage in STAGES], axis=1)
        for rounds, cost in drafting
    ]
    columns = [(rounds.texts, rounds.contexts, rounds.num_drafted, rounds.seconds) for rounds, _ in drafting]
    nothing = np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, len(STAGES)))
    joined = [np.concatenate(parts) for parts in zip(nothing, *columns, strict=True)]
    return TimedRounds(*joined), np.concatenate([nothing[3], *priced])


def _size_text(size: Mapping[str, Any]) -> str:
    return f"{_signed(size['error'])} % ({size['num_drafted']} drafted)"


def _signed(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-", "−")


TOLERANCE = 0.05
"""A prediction of a speedup is good when it is within this of the measured one."""

PARTS = ("rounds", *STAGES)
"""What the error of a speedup is split into: how many tokens a round commits, and the seconds of each stage."""

_SEQUENCE = ("dataset", "prompt_id", "turn", "sample", "sequence")
_COUNTS = ("rounds", "committed")
_OWN = (*_COUNTS, *STAGE_COLUMNS, "all_s")
_PLAIN = ("plain_committed", "plain_s")
_POWERS: dict[str, dict[str, int]] = {
    "acceptance_length": {"committed": 1, "rounds": -1},
    **{f"{stage}_per_round": {stage: 1, "rounds": -1} for stage in STAGE_COLUMNS},
    "round_s": {"all_s": 1, "rounds": -1},
    "tokens_per_s": {"committed": 1, "all_s": -1},
    "speedup": {"committed": 1, "all_s": -1, "plain_committed": -1, "plain_s": 1},
}


@dataclass(frozen=True, slots=True, eq=False)
class PredictionErrors:
    """Errors of the prediction of one policy, and the parts of its speedup's error.

    Attributes:
        errors: predicted over measured, less 1, each prompt's prediction paired with its measurement; of
            ``acceptance_length``, the seconds of each stage ``_per_round``, all of them (``round_s``), ``tokens_per_s``
            and ``speedup``; NaN where a number is not known.
        price_interval: of the error of the speedup, by the noise of the latency profile alone; unknown without it.
        machine: logarithm of predicted over measured tokens/s of plain decoding: what slowed everything alike.
        parts: by the names of ``PARTS``, logarithms that add up to that of predicted over measured speedup; with
            ``machine`` to that of tokens/s. NaN without prices.
    """

    policy: str
    policy_id: str
    is_plain: bool
    errors: Mapping[str, Estimate]
    price_interval: Interval
    machine: float
    parts: Mapping[str, float]

    @property
    def is_within(self) -> bool:
        """Whether the error of the speedup is no larger than ``TOLERANCE``."""
        return abs(self.errors["speedup"].value) <= TOLERANCE

    @property
    def is_surely_within(self) -> bool:
        """Whether its whole interval is."""
        interval = self.errors["speedup"].interval
        return interval.low >= -TOLERANCE and interval.high <= TOLERANCE

    @property
    def is_within_noise(self) -> bool | None:
        """Whether the measured speedup lies within the intervals over prompts and by prices together.

        The two are independent, so their reaches are added as squares. None where one is not known.
        """
        error = self.errors["speedup"]
        ends = [error.interval.low, error.interval.high, self.price_interval.low, self.price_interval.high]
        if self.is_plain or not all(map(math.isfinite, ends)):
            return None
        value, low, high, low_by_prices, high_by_prices = map(math.log1p, (error.value, *ends))
        reach = math.hypot(value - low, value - low_by_prices), math.hypot(high - value, high_by_prices - value)
        return value - reach[0] <= 0 <= value + reach[1]

    @property
    def shares(self) -> dict[str, float]:
        """Share of each part in the sum of their sizes; NaN where they are not known, or all zero."""
        whole = sum(map(abs, self.parts.values()))
        return {name: abs(part) / whole if whole else math.nan for name, part in self.parts.items()}

    def row(self) -> dict[str, Scalar]:
        """Flat scalars; what is not known is None."""
        row: dict[str, Scalar] = {}
        for name, error in self.errors.items():
            row |= error.row(f"error_{name}", digits=None)
        row |= self.price_interval.row("error_speedup_price")
        row |= {"log_error_machine": finite(self.machine)}
        row |= {f"log_error_{name}": finite(part) for name, part in self.parts.items()}
        row |= {f"error_share_{name}": finite(share) for name, share in self.shares.items()}
        known = not math.isnan(self.errors["speedup"].value)
        return row | {"within_tolerance": self.is_within if known else None, "within_noise": self.is_within_noise}


def prediction_errors(results: pl.DataFrame) -> list[PredictionErrors]:
    """Prediction errors of each policy that was measured, in the order of its first row.

    A text that was decoded several times counts as often in the prediction, so both sides are of the same prompts
    with the same weights.

    Args:
        results: result rows of both kinds; plain decoding among them.
    """
    measured = results.filter(pl.col("kind") == "measured")
    expected = results.filter(pl.col("kind") == "predicted").unique([*_SEQUENCE, "policy_id"], keep="first")
    plain_ids = measured.filter(pl.col("name") == BASELINE)["policy_id"].unique()
    if plain_ids.is_empty():
        return []
    plain_id = plain_ids[0]
    plain = _sums_of(plain_id, expected, measured)
    errors = []
    for policy, policy_id in measured.select("policy", "policy_id").unique(maintain_order=True).iter_rows():
        own, log_draws = plain if policy_id == plain_id else _sums_of(policy_id, expected, measured)
        if own.shape != plain[0].shape or not len(own):
            continue
        both = np.concatenate([own, plain[0][:, :, [_OWN.index("committed"), _OWN.index("all_s")]]], axis=2)
        errors.append(_errors(policy, policy_id, policy_id == plain_id, both, plain[1] - log_draws))
    return errors


def _errors(policy: str, policy_id: str, is_plain: bool, both: Doubles, log_draws: Doubles) -> PredictionErrors:
    """Errors by sums float64 ``[prompts, 2, len(_OWN) + 2]``, predicted and measured, plain decoding's last."""
    columns = (*_OWN, *_PLAIN)
    array = np.array([[powers.get(name, 0) for name in columns] for powers in _POWERS.values()], np.float64)
    spread = log_products(both.reshape(len(both), -1), np.concatenate([array, -array], axis=1))
    logs = dict(zip(_POWERS, spread.whole, strict=True))
    errors = {
        name: Estimate(float(np.expm1(log)), Interval(math.expm1(interval.low), math.expm1(interval.high)))
        for (name, log), interval in zip(logs.items(), intervals_of(spread), strict=True)
    }
    machine = logs["tokens_per_s"] - logs["speedup"]
    by_prices = price_interval(float(np.exp(logs["speedup"])), log_draws)
    return PredictionErrors(
        policy=policy,
        policy_id=policy_id,
        is_plain=is_plain,
        errors=errors,
        price_interval=Interval(by_prices.low - 1, by_prices.high - 1),
        machine=float(machine),
        parts=_parts(both.sum(axis=0), logs),
    )


def _parts(totals: Doubles, logs: Mapping[str, float]) -> dict[str, float]:
    """How much of the logarithm of predicted over measured speedup each part explains; the parts add up to it.

    Predicted seconds are first stretched by as much as plain decoding was slower than predicted. What is left of a
    stage is weighed by the logarithmic mean of the whole rounds, which leaves no remainder (Ang 2005, Energy Policy
    33:867-871, the LMDI decomposition).

    Args:
        totals: float64 ``[2, len(_OWN) + 2]``, predicted and measured.
        logs: of predicted over measured.
    """
    if math.isnan(logs["speedup"]):
        return dict.fromkeys(PARTS, math.nan)
    stretch = math.exp(logs["tokens_per_s"] - logs["speedup"])
    per_round = totals / totals[:, :1]
    expected, seen = stretch * per_round[0], per_round[1]
    mean = _logarithmic_mean(expected[_OWN.index("all_s")], seen[_OWN.index("all_s")])
    stages = {
        name.removesuffix("_s"): float(seen[_OWN.index(name)] - expected[_OWN.index(name)]) / mean
        for name in STAGE_COLUMNS
    }
    return {"rounds": float(logs["acceptance_length"]), **stages}


def _logarithmic_mean(value: float, other: float) -> float:
    """Between the two; their common value where they are nearly equal."""
    ratio = math.log(value / other)
    return float(value if abs(ratio) < 1e-9 else (value - other) / ratio)


def _sums_of(policy_id: str, expected: pl.DataFrame, measured: pl.DataFrame) -> tuple[Doubles, Doubles]:
    """What is summed up for a policy that was measured.

    Returns:
        float64 ``[prompts, 2, len(_OWN)]``, predicted and measured, unknown seconds as 0; and float64 ``[B]``,
        logarithms of predicted seconds at each draw of the prices, nan where not known.
    """
    ran = measured.filter(pl.col("policy_id") == policy_id)
    ours = expected.filter(pl.col("policy_id") == policy_id)
    predicted = ran.select(_SEQUENCE).join(ours, on=list(_SEQUENCE), how="left", maintain_order="left")
    parts = [_by_prompt(frame) for frame in (predicted, ran)]
    of_prompts = np.stack(parts, axis=1) if len(parts[0]) == len(parts[1]) else parts[0][:0, None, :]
    return of_prompts, log_seconds_at_draws(predicted)


def _by_prompt(rows: pl.DataFrame) -> Doubles:
    seconds = [
        pl.when(pl.col(name).is_null().any()).then(0.0).otherwise(pl.col(name).sum()).alias(name)
        for name in STAGE_COLUMNS
    ]
    table = rows.group_by("dataset", "prompt_id", maintain_order=True).agg(
        pl.col(_COUNTS).cast(pl.Int64).sum(), *seconds
    )
    table = table.sort("dataset", "prompt_id").with_columns(pl.sum_horizontal(STAGE_COLUMNS).alias("all_s"))
    return table.select(_OWN).to_numpy().astype(np.float64)
