"""The released rounds of DDTree++ in the form in which everything else is compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import polars as pl

from simlab.analysis.compare.averaging import BothMeans, both_means
from simlab.analysis.compare.comparisons import Comparison, compare_runs
from simlab.analysis.statistics.intervals import Interval, ratio_interval
from simlab.analysis.table.price_draws import DRAWS
from simlab.analysis.table.prompt_sums import PolicyRun, shared_runs
from simlab.analysis.table.summaries import STAGE_COLUMNS, Scalar
from simlab.errors import SimlabError

MOST_NODES, MOST_COMMITTED = 128, 16
"""Of a tree of theirs, and of a round with a block of 16."""

_FILE = Path(str(files("simlab.analysis"))) / "data" / "ddtreepp_rounds.parquet"


@dataclass(frozen=True, slots=True)
class RatioWithInterval:
    """A ratio of sums over rounds, with its interval over prompts."""

    value: float
    interval: Interval

    def row(self, name: str) -> dict[str, Scalar]:
        """The ratio and the ends of its interval, under a name."""
        return {name: self.value, f"{name}_ci_low": self.interval.low, f"{name}_ci_high": self.interval.high}


@dataclass(frozen=True, slots=True)
class ReleasedRounds:
    """What the rounds say.

    Attributes:
        rounds: how many.
        means: the acceptance length, both ways.
        whole_block: the share of rounds that committed as many tokens as a block allows.
        least_accepted_per_verified: accepted tokens per token verified if every tree were as large as allowed.
        tokens_per_s: by the logged times.
        profiles: both means by the width profile of the round.
        against_profile: the most frequent profile against each other one, on the prompts that have rounds of both.
    """

    rounds: int
    means: BothMeans
    whole_block: RatioWithInterval
    least_accepted_per_verified: RatioWithInterval
    tokens_per_s: RatioWithInterval
    profiles: tuple[tuple[int, BothMeans], ...]
    against_profile: tuple[Comparison, ...]


def read_released() -> pl.DataFrame:
    """A row per round, as released; see the README beside the file.

    Raises:
        SimlabError: this installation does not hold them.
    """
    if not _FILE.is_file():
        raise SimlabError(f"the released rounds are missing from {_FILE}; install simlab again")
    return pl.read_parquet(_FILE)


def run_of_rounds(rounds: pl.DataFrame, name: str) -> PolicyRun:
    """Rounds as result rows, one per prompt; the logged time counts as verification, since it is not split."""
    prompt = pl.format("{}", "sample_index").alias("prompt_id")
    rows = rounds.group_by(prompt).agg(
        pl.col("num_committed").cast(pl.Int64).sum().alias("committed"),
        pl.len().cast(pl.Int64).alias("rounds"),
        (pl.col("latency_ms").cast(pl.Float64).sum() / 1000).alias("verify_s"),
    )
    others = [pl.lit(0.0).alias(stage) for stage in STAGE_COLUMNS if stage != "verify_s"]
    texts = [pl.lit("gsm8k").alias("dataset"), pl.lit(0).alias("turn"), pl.lit(0).alias("sample")]
    unpriced = [
        pl.lit(None, dtype).alias(name) for name, dtype in (("cost_id", pl.String), (DRAWS, pl.List(pl.Float32)))
    ]
    table = rows.with_columns(*texts, *others, *unpriced).sort("prompt_id")
    return PolicyRun(name, table, table.clear())


def released_rounds(rounds: pl.DataFrame) -> ReleasedRounds:
    """The statistics of the rounds."""
    profiles = rounds["action_name"].value_counts().sort("count", "action_name", descending=[True, False])
    names = profiles["action_name"].to_list()
    runs = [run_of_rounds(rounds.filter(pl.col("action_name") == name), name) for name in names]
    counts = profiles["count"].to_list()
    return ReleasedRounds(
        rounds=rounds.height,
        means=both_means(run_of_rounds(rounds, "released")),
        whole_block=_share(rounds, pl.col("num_committed") == MOST_COMMITTED, pl.lit(1)),
        least_accepted_per_verified=_share(rounds, pl.col("num_committed") - 1, pl.lit(MOST_NODES + 1)),
        tokens_per_s=_share(rounds, pl.col("num_committed"), pl.col("latency_ms").cast(pl.Float64) / 1000),
        profiles=tuple((count, both_means(run)) for count, run in zip(counts, runs, strict=True)),
        against_profile=tuple(_against_first(runs)),
    )


def _share(rounds: pl.DataFrame, numerator: pl.Expr, denominator: pl.Expr) -> RatioWithInterval:
    cast = (numerator.cast(pl.Float64).alias("above"), denominator.cast(pl.Float64).alias("below"))
    sums = rounds.select("sample_index", *cast).group_by("sample_index").agg(pl.sum("above"), pl.sum("below"))
    above, below = (sums.sort("sample_index")[name].to_numpy() for name in ("above", "below"))
    return RatioWithInterval(float(above.sum() / below.sum()), ratio_interval(above, below))


def _against_first(runs: Sequence[PolicyRun]) -> list[Comparison]:
    """Each pair by itself, since hardly a prompt has rounds of all."""
    found = []
    for other in runs[1:]:
        shared, _ = shared_runs([runs[0], other])
        found += [one for one in compare_runs(shared, [(0, 1)]) if one.measure == "acceptance_length"]
    return found
