"""The released rounds of DDTree++, which come with simlab, in the form in which everything else is compared."""

from dataclasses import asdict
from importlib.resources import files
from pathlib import Path

import polars as pl

from simlab.analysis.compare.averaging import BothMeans, both_means
from simlab.analysis.compare.comparisons import Comparison, compare_runs
from simlab.analysis.table.estimates import Estimate, prompt_ratio
from simlab.analysis.table.prompt_sums import PolicyRun, shared_runs
from simlab.analysis.table.summaries import DRAWS, STAGE_COLUMNS
from simlab.analysis.table.text import aligned, with_interval
from simlab.errors import SimlabError
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.published import PublishedStudy
from simlab.studies.reproduce.released import Row, flat, table

MOST_NODES, MOST_COMMITTED = 128, 16
"""Of a tree of theirs, and of a round with a block of 16."""

_FILE = Path(str(files("simlab.analysis"))) / "data" / "ddtreepp_rounds.parquet"

_UNPAIRED = """It is of other rounds, which are not released, and which mean it is, is not
said: no paired comparison can be made, and the intervals are of one side alone."""
_PROFILES = """\
Profiles are no experiment: the policy chose each after it had seen the draft, so a long acceptance length
says when a profile is chosen, not what it brings. Tree sizes are not released, so waste has a bound only."""
_MUST_BE_EQUAL = """\
Must be equal: nothing; these are their own rounds. Not known: what a logged time holds, and whether tokens
past the end of a text were counted in its last round."""


def read_released() -> pl.DataFrame:
    """A row per round, as released; see the README beside the file."""
    if not _FILE.is_file():
        raise SimlabError(f"the released rounds are missing from {_FILE}; install simlab again")
    return pl.read_parquet(_FILE, glob=False)


def run_of_rounds(rounds: pl.DataFrame, name: str) -> PolicyRun:
    """Rounds as result rows, a row per prompt; the logged time counts as verification, since it is not split."""
    rows = rounds.group_by(pl.format("{}", "sample_index").alias("prompt_id"), maintain_order=True).agg(
        pl.col("num_committed").cast(pl.Int64).sum().alias("committed"),
        pl.len().cast(pl.Int64).alias("rounds"),
        (pl.col("latency_ms").cast(pl.Float64).sum() / 1000).alias("verify_s"),
    )
    others = [pl.lit(0.0).alias(stage) for stage in STAGE_COLUMNS if stage != "verify_s"]
    texts = [pl.lit("gsm8k").alias("dataset"), pl.lit(0).alias("turn"), pl.lit(0).alias("sample")]
    unpriced = [pl.lit(None, pl.String).alias("cost_id"), pl.lit(None, pl.List(pl.Float32)).alias(DRAWS)]
    run = rows.with_columns(*texts, *others, *unpriced).sort("prompt_id")
    return PolicyRun(name, run, run.clear())


def ddtreepp_rounds(_options: ReproduceOptions, study: PublishedStudy) -> tuple[str, Row]:
    """Both means of the rounds, their speed, and both means by the width profile of a round, as text and as values."""
    rounds, committed = read_released(), pl.col("num_committed")
    means = both_means(run_of_rounds(rounds, "released"))
    shares = {
        "tokens_per_s": _ratio(rounds, committed, pl.col("latency_ms").cast(pl.Float64) / 1000),
        "whole_block_share": _ratio(rounds, committed == MOST_COMMITTED, pl.lit(1)),
        # As if every tree were as large as allowed.
        "least_accepted_per_verified": _ratio(rounds, committed - 1, pl.lit(MOST_NODES + 1)),
    }
    counts = rounds["action_name"].value_counts().sort("count", "action_name", descending=[True, False])
    runs = [run_of_rounds(rounds.filter(action_name=name), name) for name in counts["action_name"]]
    profiles = list(zip(counts["count"].to_list(), map(both_means, runs), strict=True))
    against = [_acceptance_lengths(runs[0], other) for other in runs[1:]]
    values = {
        "theirs": [asdict(figure) for figure in study.figures],
        "rounds": rounds.height,
        **means.row(),
        **flat(shares, digits=None),
        "rows": [{"rounds": number_of, **own.row()} for number_of, own in profiles],
        "comparisons": [comparison.row() for comparison in against],
    }
    quoted, baseline = (figure.value for figure in study.figures)
    pooled, macro = (_shown(estimate) for estimate in (means.pooled, means.macro))
    both = [
        ("acceptance length", "theirs", "ours [95 %]", "difference"),
        ("pooled", f"{quoted:.2f}", pooled, f"{means.pooled.value - quoted:+.3f}"),
        ("macro average (per response)", "", macro, f"{means.macro.value - quoted:+.3f}"),
        ("fixed budget of 128, as quoted", f"{baseline:.2f}", "its rounds are not released", ""),
    ]
    named = {
        "tokens/s by their logged round times": f"{shares['tokens_per_s']:1}",
        f"rounds that commit all {MOST_COMMITTED} tokens, %": f"{shares['whole_block_share']:1%}",
        f"accepted per verified, if all trees had {MOST_NODES} nodes, at least": (
            f"{shares['least_accepted_per_verified']:4}"
        ),
    }
    intervals, ends = (means.pooled.interval, means.macro.interval), means.over.interval
    over = f"{100 * (means.over.value - 1):.1f} % [{100 * (ends.low - 1):.1f}, {100 * (ends.high - 1):.1f}]"
    is_within = any(interval.low <= baseline <= interval.high for interval in intervals)
    is_above = all(baseline > interval.high for interval in intervals)
    side = "above both intervals" if is_above else "within an interval" if is_within else "outside"
    parts = [
        study.heading,
        f"{rounds.height:,} rounds of {means.prompts} prompts",
        aligned(both, [True, False, True, False]),
        f"{quoted} is the pooled mean. The macro average (per response) is {over} larger, paired over prompts.",
        f"{baseline} lies {side}. {_UNPAIRED}",
        aligned(list(named.items()), [True, True]),
        _profiles_text(profiles, against),
        _PROFILES,
        _MUST_BE_EQUAL,
    ]
    return "\n\n".join(parts), values


def _shown(estimate: Estimate) -> str:
    return with_interval(estimate.value, estimate.interval).rstrip()


def _ratio(rounds: pl.DataFrame, above: pl.Expr, below: pl.Expr) -> Estimate:
    """A ratio of sums over rounds, with its interval over prompts."""
    turns = rounds.select(dataset=pl.lit("gsm8k"), prompt="sample_index", above=above, below=below)
    return prompt_ratio(turns, above=1, below=-1)


def _acceptance_lengths(first: PolicyRun, other: PolicyRun) -> Comparison:
    """Each pair by itself, on the prompts that have rounds of both, since hardly a prompt has rounds of all."""
    shared, _ = shared_runs([first, other])
    return next(run for run in compare_runs(shared, [(0, 1)]) if run.measure == "acceptance_length")


def _profiles_text(profiles: list[tuple[int, BothMeans]], against: list[Comparison]) -> str:
    """Both means by width profile, and the most frequent profile against each other."""
    ratios = ["", *(f"{_shown(Estimate(pair.ratio, pair.ratio_interval))} on {pair.prompts}" for pair in against)]
    rows = [
        {"means": means, "rounds": number_of, "pooled": _shown(means.pooled), "ratio": ratio}
        for (number_of, means), ratio in zip(profiles, ratios, strict=True)
    ]
    shown = (
        "width profile = {means.run} | rounds = {rounds:,} | prompts = {means.prompts} | pooled [95 %] = {pooled} | "
        "macro avg = {means.macro:v} | " + f"{profiles[0][1].run} over it, paired [95 %] = {{ratio}}"
    )
    return table("lrrlrl", shown, rows)
