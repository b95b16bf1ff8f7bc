"""From result rows, one per policy and sequence, to one summary per policy and slice."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import KW_ONLY, dataclass
from functools import cached_property

import numpy as np
import polars as pl

from simlab.analysis.statistics.intervals import UNKNOWN, Interval, finite, ratio_interval, speedup_interval
from simlab.analysis.statistics.significance import price_interval
from simlab.analysis.statistics.slices import split_by_slice
from simlab.arrays import Doubles, Longs
from simlab.columns import RoundColumns
from simlab.cost import StageSeconds
from simlab.draft import Prompt
from simlab.errors import SimlabError
from simlab.policies.costs.cell_prices import NUM_DRAWS
from simlab.sequence_replay import SUMS, Totals
from simlab.traces.results.rows import SECONDS

# Whose prices result rows have, and their seconds at prices drawn again, added up.

DRAWS = "draws_s"
"""The column of result rows that holds them, a list for each row."""


@dataclass(frozen=True, slots=True)
class BatchPrices:
    """Whose prices a batch size has.

    Attributes:
        batch: texts at a time.
        cost_id: of the prices.
        heading: whose they are, in one line.
        what_if: whether they were worked out from those of another batch size.
        caveats: what nobody stated or timed of them, a sentence each.
    """

    batch: int
    cost_id: str
    heading: str
    what_if: bool
    caveats: tuple[str, ...] = ()


def seconds_at_draws(rows: pl.DataFrame) -> Doubles:
    """Seconds of all stages of all rows together, at each draw of the prices of one latency profile.

    Args:
        rows: result rows, all at the prices of one profile.

    Returns:
        float64 ``[NUM_DRAWS]``; nan without rows, or where one has none, as measured rows, or another number of them.
    """
    lists = rows[DRAWS]
    if rows.is_empty() or lists.null_count() or (lists.list.len() != NUM_DRAWS).any():
        return np.full(NUM_DRAWS, np.nan)
    flat = lists.explode().to_numpy().reshape(len(lists), NUM_DRAWS)
    return np.asarray(flat.sum(axis=0, dtype=np.float64), np.float64)


def log_seconds_at_draws(rows: pl.DataFrame) -> Doubles:
    """Their logarithms; nan too where rows take no time."""
    seconds = seconds_at_draws(rows)
    return np.asarray(np.log(np.where(seconds > 0, seconds, np.nan)), np.float64)


# How many tokens rounds commit, counted: what serving engines call acceptance rates and acceptance length.
#
# All follows from one count, rounds by committed tokens, so that nothing is rounded on the way and
# ``1 + sum(marginal_rates)`` is the acceptance length. A round in which the text ended at an accepted token counts with
# the tokens that it committed: the last of them takes the place of the bonus token.


@dataclass(frozen=True, slots=True)
class LengthCounts:
    """Rounds by the number of tokens that they committed.

    Attributes:
        counts: entry ``n`` is how many rounds committed ``n`` tokens, bonus token included; entry 0 is 0, and the last
            entry is not.
    """

    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        if len(self.counts) < 2 or self.counts[0] != 0 or min(self.counts) < 0 or self.counts[-1] == 0:
            raise ValueError(f"expected rounds that committed at least one token each; got the counts {self.counts}")

    @property
    def rounds(self) -> int:
        """Number of rounds, each one verification pass."""
        return sum(self.counts)

    @property
    def committed(self) -> int:
        """Tokens added to the texts."""
        return sum(length * count for length, count in enumerate(self.counts))

    @property
    def longest(self) -> int:
        """The most tokens that a round committed."""
        return len(self.counts) - 1

    @property
    def acceptance_length(self) -> float:
        """Tokens committed per round, bonus token included."""
        return self.committed / self.rounds

    def marginal_rates(self, positions: int) -> tuple[float, ...]:
        """Share of all rounds that kept the drafted tokens up to each drafted position.

        Position ``i``, from 1, is kept by the rounds that committed at least ``i + 1`` tokens.
        """
        if positions + 1 < self.longest:
            raise ValueError(f"{positions} positions would cut off rounds that committed {self.longest} tokens")
        reached = np.cumsum(self.counts[::-1])[::-1].tolist()
        padded = [*reached, *[0] * (positions + 2 - len(reached))]
        return tuple(number / self.rounds for number in padded[2 : positions + 2])

    def conditional_rates(self, positions: int) -> tuple[float, ...]:
        """Share of the rounds that kept all before a drafted position that kept it too, for each; 0 of none."""
        marginal = self.marginal_rates(positions)
        pairs = zip((1.0, *marginal), marginal, strict=False)
        return tuple(rate / before if before else 0.0 for before, rate in pairs)


@dataclass(frozen=True, slots=True)
class Acceptance:
    """What one policy's rounds on some texts committed.

    Attributes:
        pooled: all rounds.
        interval: of the pooled acceptance length, over prompts.
        by_dataset: the rounds of each data set's texts.
        acceptance_length_macro: mean of the means of each response.
        clipped: rounds whose bonus token was dropped because the text ended at an accepted token.
    """

    pooled: LengthCounts
    interval: Interval
    by_dataset: Mapping[str, LengthCounts]
    acceptance_length_macro: float
    clipped: int


def acceptance_of(texts: Iterable[tuple[Prompt, RoundColumns]]) -> Acceptance:
    """What the rounds of some texts committed; texts without a round are left out.

    Args:
        texts: prompt and rounds of each.
    """
    counts: dict[str, Longs] = {}
    prompts: dict[tuple[str, str], Longs] = {}
    means, clipped = [], 0
    for prompt, rounds in texts:
        if rounds.num_rounds == 0:
            continue
        name, key = prompt.dataset, (prompt.dataset, prompt.prompt_id)
        counts[name] = _added(counts.get(name, np.zeros(0, np.int64)), np.bincount(rounds.num_committed))
        sums = np.array([rounds.num_committed.sum(), rounds.num_rounds], np.int64)
        prompts[key] = prompts.get(key, np.zeros(2, np.int64)) + sums
        means.append(float(rounds.num_committed.mean()))
        clipped += int(rounds.clipped.sum())
    if not counts:
        raise SimlabError("the texts hold no rounds, so there are no acceptance rates to write; take a longer trace")
    whole = np.zeros(0, np.int64)
    for count in counts.values():
        whole = _added(whole, count)
    by_dataset = {dataset: LengthCounts(tuple(count.tolist())) for dataset, count in counts.items()}
    committed, passes = np.stack([prompts[key] for key in sorted(prompts)], axis=1)
    interval = ratio_interval(committed, passes)
    return Acceptance(LengthCounts(tuple(whole.tolist())), interval, by_dataset, float(np.mean(means)), clipped)


def _added(array: Longs, other: Longs) -> Longs:
    total = np.zeros(max(len(array), len(other)), np.int64)
    total[: len(array)] += array
    total[: len(other)] += other
    return total


# Seconds, tokens per second and speedup out of the result rows of a policy and of plain decoding.


STAGE_COLUMNS = SECONDS
"""The columns of result rows that are summed, a stage each."""

_SEQUENCE = ("dataset", "prompt_id", "turn", "sample", "sequence")


@dataclass(frozen=True, slots=True)
class Speed:
    """How fast a policy was, pooled over its sequences; prefill is not in it.

    Attributes:
        seconds: summed by stage; None where some row has none.
        tokens_per_s: committed tokens per second; NaN where it is not known.
        speedup: over plain decoding on the same sequences; NaN where it is not known.
        interval: of the speedup, over prompts, paired.
        price_interval: of the speedup, by the noise of the latency profile alone; unknown where rows do not tell.
        tokens_per_s_price_interval: of ``tokens_per_s``, the same.
    """

    seconds: StageSeconds | None
    _: KW_ONLY
    tokens_per_s: float = math.nan
    speedup: float = math.nan
    interval: Interval = UNKNOWN
    price_interval: Interval = UNKNOWN
    tokens_per_s_price_interval: Interval = UNKNOWN


NO_SPEED = Speed(None)


class PlainRows:
    """The rows of plain decoding, beside which policies stand; what is read of them is worked out once.

    Args:
        rows: result rows; there may be none.
    """

    def __init__(self, rows: pl.DataFrame) -> None:
        self.rows = rows

    @cached_property
    def seconds(self) -> StageSeconds | None:
        """Summed over the rows; None without rows, or where one has no seconds."""
        return _seconds(self.rows)

    @cached_property
    def log_draws(self) -> Doubles:
        """Logarithms of the seconds at each draw of the prices, float64 ``[B]``; nan where not known."""
        return log_seconds_at_draws(self.rows)

    @cached_property
    def prompts(self) -> pl.DataFrame:
        """Tokens and seconds of each prompt."""
        return _by_prompt(self.rows)


def speed_of(rows: pl.DataFrame, plain: pl.DataFrame | PlainRows) -> Speed:
    """The speed of a policy beside plain decoding's.

    Args:
        rows: the result rows of one policy.
        plain: those of plain decoding; without speedup if they are not of the same sequences.
    """
    seconds = _seconds(rows)
    if seconds is None:
        return NO_SPEED
    tokens_per_s, log_draws = _tokens_per_s(rows, seconds), log_seconds_at_draws(rows)
    alone = price_interval(tokens_per_s, log_draws)
    plain = PlainRows(plain) if isinstance(plain, pl.DataFrame) else plain
    if plain.seconds is None or not _same_sequences(rows, plain.rows):
        return Speed(seconds, tokens_per_s=tokens_per_s, tokens_per_s_price_interval=alone)
    speedup = tokens_per_s / _tokens_per_s(plain.rows, plain.seconds)
    ours, base = _by_prompt(rows), plain.prompts
    interval = speedup_interval(
        ours["committed"].to_numpy(),
        ours["total_s"].to_numpy(),
        base["committed"].to_numpy(),
        base["total_s"].to_numpy(),
    )
    return Speed(
        seconds,
        tokens_per_s=tokens_per_s,
        speedup=speedup,
        interval=interval,
        price_interval=price_interval(speedup, plain.log_draws - log_draws),
        tokens_per_s_price_interval=alone,
    )


def _seconds(rows: pl.DataFrame) -> StageSeconds | None:
    """Summed over the rows; None without rows, or where one has no seconds."""
    stages = [rows[name] for name in STAGE_COLUMNS]
    if rows.is_empty() or any(stage.null_count() for stage in stages):
        return None
    return StageSeconds(*(float(stage.sum()) for stage in stages))


def _tokens_per_s(rows: pl.DataFrame, seconds: StageSeconds) -> float:
    committed = int(rows["committed"].cast(pl.Int64).sum())
    return committed / seconds.total_s if seconds.total_s > 0 else math.nan


def _same_sequences(rows: pl.DataFrame, plain: pl.DataFrame) -> bool:
    ours, base = rows[list(_SEQUENCE)], plain[list(_SEQUENCE)]
    return ours.equals(base) or ours.sort(_SEQUENCE).equals(base.sort(_SEQUENCE))


def _by_prompt(rows: pl.DataFrame) -> pl.DataFrame:
    """Tokens and seconds of each prompt, in an order that depends on the prompts alone."""
    sums = (pl.col("committed").cast(pl.Int64).sum(), pl.sum_horizontal(STAGE_COLUMNS).sum().alias("total_s"))
    return rows.group_by("dataset", "prompt_id", maintain_order=True).agg(sums).sort("dataset", "prompt_id")


BASELINE = "ar"
"""The name of the policy whose speed is the reference."""

_UNREAD = ("text_id", "draft_id", "channel_ids", "context_length", "stop_reason", "simlab_version")
"""Columns that no summary reads."""

Scalar = str | int | float | bool | None


@dataclass(frozen=True, slots=True)
class Summary:
    """What one policy did on all sequences of a slice.

    Attributes:
        slice: the dataset, turn or range of contexts; None for everything.
        kind: ``predicted`` or ``measured``.
        settings: JSON text.
        totals: sums over all sequences; the summaries of disjoint slices add up.
        acceptance_length_macro: mean of the per-response means, responses without a round left out.
        interval: of the pooled acceptance length, over prompts.
        speed: seconds, tokens per second and speedup, as far as they are known.
    """

    slice: Scalar
    kind: str
    policy: str
    policy_id: str
    name: str
    settings: str
    prompts: int
    sequences: int
    totals: Totals
    acceptance_length_macro: float
    interval: Interval
    speed: Speed

    def row(self) -> dict[str, Scalar]:
        """Flat scalars, as a script reads them; what is not known is None."""
        first: dict[str, Scalar] = {} if self.slice is None else {"slice": self.slice}
        stages = self.speed.seconds
        values: dict[str, Scalar] = {
            "policy": self.policy,
            "policy_id": self.policy_id,
            "name": self.name,
            "settings": self.settings,
            "prompts": self.prompts,
            "sequences": self.sequences,
            **{name: getattr(self.totals, name) for name in SUMS},
            "acceptance_length": self.totals.acceptance_length,
            "acceptance_length_macro": self.acceptance_length_macro,
            **self.interval.row("acceptance_length_ci"),
            "nodes_per_round": self.totals.nodes_per_round,
            "accepted_per_verified": self.totals.accepted_per_verified,
            **{name: None if stages is None else getattr(stages, name) for name in STAGE_COLUMNS},
            "tokens_per_s": self.speed.tokens_per_s,
            "speedup": self.speed.speedup,
            **self.speed.interval.row("speedup_ci"),
            **self.speed.price_interval.row("speedup_price"),
        }
        return first | known_values(values)


def summarise(results: pl.DataFrame, by: str | None = None) -> list[Summary]:
    """One summary per policy, policies in the order of their first row; with ``by``, slice by slice.

    The speedup of a policy is over the rows of plain decoding among these results, if they are of
    the same sequences.

    Args:
        results: result rows, one per policy and sequence; all predicted under the same prices, or
            all measured.
        by: one of `simlab.analysis.statistics.slices.SLICES`; slices come in the order of their first row, contexts
            from short to long.
    """
    if results.n_unique(["kind", "cost_id"]) > 1:
        raise ValueError("results of several kinds or latency profiles do not add up; summarise each by itself")
    return [summary for value, part in split_by_slice(results, by) for summary in _of_slice(part, value)]


def _of_slice(results: pl.DataFrame, value: Scalar) -> list[Summary]:
    plain, prompts = PlainRows(results.filter(pl.col("name") == BASELINE)), _Prompts()
    # All columns of many rows are much to move.
    parts = results.drop(_UNREAD, strict=False).partition_by("policy", "policy_id", maintain_order=True)
    return [_summary(part, prompts, plain, value) for part in parts]


class _Prompts:
    """Which prompt each row is of; worked out once for all policies with rows of the same sequences."""

    def __init__(self) -> None:
        self._names = pl.DataFrame()
        self._places, self._num = np.zeros(0, np.uint32), 0

    def sums(self, part: pl.DataFrame, name: str) -> Longs:
        """A column summed over the rows of each prompt, in an order that depends on the prompts alone; int64."""
        names = part.select("dataset", "prompt_id")
        if not names.equals(self._names):
            distinct = names.unique().sort("dataset", "prompt_id").with_row_index("place")
            joined = names.join(distinct, on=["dataset", "prompt_id"], how="left", maintain_order="left")
            self._names, self._places, self._num = names, joined["place"].to_numpy(), distinct.height
        sums = np.zeros(self._num, np.int64)
        np.add.at(sums, self._places, part[name].to_numpy())
        return sums


def _summary(part: pl.DataFrame, of_prompts: _Prompts, plain: PlainRows, value: Scalar) -> Summary:
    """Summary of the rows of one policy in one slice, beside plain decoding's rows of the same slice."""
    by_prompt = [of_prompts.sums(part, name) for name in ("committed", "rounds")]
    sums = {name: int(part[name].cast(pl.Int64).sum()) for name in SUMS}
    committed, rounds = part["committed"].to_numpy(), part["rounds"].to_numpy()
    means = committed[rounds > 0] / rounds[rounds > 0]
    first = part.row(0, named=True)
    return Summary(
        slice=value,
        kind=first["kind"],
        policy=first["policy"],
        policy_id=first["policy_id"],
        name=first["name"],
        settings=first["settings"],
        prompts=len(by_prompt[0]),
        sequences=part.height,
        totals=Totals(**sums),
        acceptance_length_macro=float(np.mean(means)) if len(means) else math.nan,
        interval=ratio_interval(*by_prompt),
        speed=speed_of(part, plain),
    )


def known_values(values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Flat scalars in which a number that is not known is None."""
    return {key: finite(value) if isinstance(value, float) else value for key, value in values.items()}
