"""Sessions of Domino-Tree's measurements: seconds of a round in each; and an ablation of how Domino's chain drafts.

Rounds of a method need equally long at every temperature, so their seconds say whether the machine was the same. The
ablation is of temperatures above 0: the chain takes the most probable candidate, or a sampled one (`--sample-draft`).
"""

import re
from collections.abc import Sequence

import polars as pl

from simlab.analysis.table.estimates import Estimate, prompt_ratio
from simlab.analysis.table.text import within_width
from simlab.studies.reproduce.domino.records import DATASETS, METHODS, TREE, TURN, Setting
from simlab.studies.reproduce.released import ReleasedFiles, Row, table

BASELINE_SESSION = "results/raw/8b/collect_8b_2048_20260704/our"
"""Where the autoregressive baseline of their own program was measured, of Qwen3-8B, with the same trees."""

ABLATION = "results/raw/draft_sampling_ablation"
_ABLATED = re.compile(rf"{ABLATION}/draftsample_(?P<dataset>[\w-]+)_T(?P<temperature>[\d.]+)_on\.jsonl")

_ROUNDS = (pl.col("tokens") / pl.col("mean")).round()
"""Rounds of a turn, of its tokens and its mean; a text that is cut counts one fewer at most."""

_OF_TURN = {"method": pl.String, "sample_idx": pl.Int64, "turn_index": pl.Int64, "mean_accept": pl.Float64}


def round_times(setting: Setting) -> pl.DataFrame:
    """All seconds over all rounds of each method, at one temperature.

    Columns: model, temperature, method, session (of the rounds, where more than one is known; else empty),
    ms_per_round.
    """
    session = setting.model.summaries.get(setting.temperature, "").removeprefix(f"{setting.model.raw}/")
    labels = pl.DataFrame({"method": list(METHODS), "label": list(METHODS.values())})
    reference = setting.sums.group_by("method", maintain_order=True).agg(pl.sum("seconds", "rounds"))
    tree = setting.own.filter(pl.col("method") == TREE)
    named = labels.join(reference, on="method", how="inner", maintain_order="left").drop("method")
    times = [(label, session, seconds, rounds) for label, seconds, rounds in named.iter_rows()]
    times.append(("DominoTree", "", tree["seconds"].sum(), tree.select(_ROUNDS.sum()).item()))
    times.append(
        ("Domino, graph arm", "", setting.arms["graph"]["seconds"].sum(), setting.arms["graph"]["rounds"].sum())
    )
    return pl.DataFrame(
        [
            (setting.model.name, setting.temperature, label, where, 1000 * seconds / rounds)
            for label, where, seconds, rounds in times
        ],
        schema=["model", "temperature", "method", "session", "ms_per_round"],
        orient="row",
    )


def session_changes(times: pl.DataFrame) -> dict[str, float]:
    """Seconds of a round in the session without a baseline over those in the session with it, by method.

    Of a method at several temperatures in a session, all: the mean.
    """
    sessions = times.filter(pl.col("session") != "")["session"].unique(maintain_order=True).to_list()
    first, second = (
        times.filter(pl.col("session") == name).group_by("method", maintain_order=True).agg(pl.mean("ms_per_round"))
        for name in sessions[:2]
    )
    both = first.join(second, on="method", suffix="_later", maintain_order="left")
    return {method: later / before for method, before, later in both.iter_rows()}


def verification_ratio(files: ReleasedFiles, own: pl.DataFrame) -> Estimate:
    """Milliseconds of DominoTree's verifications in the session of its baseline, over those in its own; paired.

    Of the turns with equal acceptance lengths in both, which verified the same trees.

    Args:
        files: of the release.
        own: turns of their own program, Qwen3-8B at temperature 0.
    """
    names = {dataset: f"{BASELINE_SESSION}/{dataset}_T0.0.jsonl" for dataset in DATASETS}
    parts = [
        _records(files, name, dataset, "cond@16", ms_verify=pl.Float64)
        for dataset, name in names.items()
        if name in files.release.files
    ]
    other = pl.concat(parts)
    tree = own.filter(pl.col("method") == TREE)
    both = tree.join(other, on=TURN, suffix="_there", maintain_order="left").filter(
        (pl.col("mean") - pl.col("mean_there")).abs() < 1e-9
    )
    summed = both.with_columns(
        (pl.col("ms_verify") * _ROUNDS).alias("there"), (pl.col("verify_ms") * _ROUNDS).alias("here")
    )
    return prompt_ratio(summed, there=1, here=-1)


def times_text(times: pl.DataFrame, verification: Estimate) -> str:
    """Milliseconds of a round, a row for each model and method."""
    temperatures, rows = times["temperature"].unique(maintain_order=True).to_list(), []
    for (model, method), group in times.group_by("model", "method", maintain_order=True):
        ms = {at: f"{value:.1f}" for at, value in group.select("temperature", "ms_per_round").iter_rows()}
        rows.append({"model": model, "method": method, "ms": [ms.get(at, "-") for at in temperatures]})
    columns = [("milliseconds of a round", "{model}"), ("", "{method}")]
    text = table(
        "llr", [*columns, *((f"T={temperature}", f"{{ms[{at}]}}") for at, temperature in enumerate(temperatures))], rows
    )
    note = (
        "DominoTree's own autoregressive baseline of Qwen3-8B is of an earlier session too, at every temperature: the "
        f"same trees took {verification:3} times as long to verify there, so its speedups are off by as much."
    )
    return f"{text}\n{within_width(note)}"


def draft_sampling(files: ReleasedFiles) -> list[Row]:
    """Macro averages of the chain with greedy and with sampled candidates, and their ratio, paired by prompt."""
    rows: list[Row] = []
    for matched in filter(None, map(_ABLATED.fullmatch, files.names(f"{ABLATION}/"))):
        dataset, states = matched["dataset"], (matched[0].replace("_on.jsonl", "_off.jsonl"), matched[0])
        greedy, sampled = (_records(files, name, dataset, "chain") for name in states)
        both = greedy.join(sampled, on=TURN, suffix="_sampled", maintain_order="left").with_columns(
            pl.lit(1).alias("one")
        )
        rows.append(
            {
                "dataset": dataset,
                "temperature": matched["temperature"],
                "turns": both.height,
                "greedy_macro": prompt_ratio(both, mean=1, one=-1),
                "sampled_macro": prompt_ratio(both, mean_sampled=1, one=-1),
                "ratio": prompt_ratio(both, mean=1, mean_sampled=-1),
            }
        )
    return sorted(rows, key=lambda row: (row["temperature"], row["dataset"]))


def draft_sampling_text(rows: Sequence[Row]) -> str:
    """The rows as a table."""
    columns = [
        ("their ablation, Qwen3-4B, chain", "T={temperature}"),
        ("", "{label}"),
        ("greedy", "{greedy_macro:v}"),
        ("sampled", "{sampled_macro:v}"),
        ("greedy over sampled [95 %]", "{ratio:3}"),
    ]
    return table("llr", columns, [row | {"label": DATASETS.get(row["dataset"], row["dataset"])} for row in rows])


def _records(files: ReleasedFiles, name: str, dataset: str, method: str, **further: type[pl.DataType]) -> pl.DataFrame:
    """Records of a method: dataset, prompt, turn, mean and what is asked for besides."""
    rows = files.frame(name, _OF_TURN | further).filter(pl.col("method") == method)
    renamed = {"sample_idx": "prompt", "turn_index": "turn", "mean_accept": "mean"}
    return rows.rename(renamed).select(pl.lit(dataset).alias("dataset"), "prompt", "turn", "mean", *further)
