"""Sessions of Domino-Tree's measurements: seconds of a round in each; and an ablation of how Domino's chain drafts.

Rounds of a method need equally long at every temperature, so their seconds say whether the machine was the same. The
ablation is of temperatures above 0: the chain takes the most probable candidate, or a sampled one (`--sample-draft`).
"""

import re
from collections.abc import Sequence

import polars as pl

from simlab.analysis.table.estimates import Estimate, prompt_ratio
from simlab.studies.reproduce.domino.records import DATASETS, MACRO, METHODS, SETTING, TREE, TURN, read_turns, rows_by
from simlab.studies.reproduce.released import ReleasedFiles, Row, table

BASELINE_SESSION = "results/raw/8b/collect_8b_2048_20260704/our"
"""Where the autoregressive baseline of their own program was measured, of Qwen3-8B, with the same trees."""

ABLATION = "results/raw/draft_sampling_ablation"
_ABLATED = re.compile(r".*/draftsample_(?P<dataset>[\w-]+)_T(?P<temperature>[\d.]+)_(?P<sampled>on|off)\.jsonl")

_ROUNDS = (pl.col("tokens") / pl.col("mean")).round()
"""Rounds of a turn, of its tokens and its mean; a text that is cut counts one fewer at most."""


def round_times(domino: pl.DataFrame, turns: pl.DataFrame, sums: pl.DataFrame) -> pl.DataFrame:
    """All seconds over all rounds of each method.

    Columns: model, temperature, method, session (of the rounds, where more than one is known; else empty),
    ms_per_round.
    """
    summed = {"seconds": pl.sum("seconds"), "rounds": pl.sum("rounds")}
    tree = turns.filter(pl.col("method") == TREE).with_columns(method=pl.lit("DominoTree"), rounds=_ROUNDS)
    graph = domino.filter(pl.col("arm") == "graph").with_columns(method=pl.lit("Domino, graph arm"))
    others = [frame.group_by(*SETTING, "method", maintain_order=True).agg(**summed) for frame in (tree, graph)]
    named = sums.with_columns(pl.col("method").replace_strict(METHODS))
    times = pl.concat([named, *others], how="diagonal_relaxed").sort(SETTING, maintain_order=True)
    ms_per_round = 1000 * pl.col("seconds") / pl.col("rounds")
    return times.select(*SETTING, "method", pl.col("session").fill_null(""), ms_per_round=ms_per_round)


def session_changes(times: pl.DataFrame) -> dict[str, float]:
    """Seconds of a round in the session without a baseline over those in the session with it, by method.

    Of a method at several temperatures in a session, all: the mean.
    """
    sessions = times.filter(pl.col("session") != "").group_by("method", "session", maintain_order=True)
    by_session = sessions.agg(pl.mean("ms_per_round")).group_by("method", maintain_order=True)
    change = pl.col("ms_per_round").last() / pl.col("ms_per_round").first()
    return dict(by_session.agg(change, sessions=pl.len()).filter(pl.col("sessions") > 1).drop("sessions").iter_rows())


def verification_ratio(files: ReleasedFiles, turns: pl.DataFrame) -> Estimate:
    """Milliseconds of DominoTree's verifications in the session of its baseline, over those in its own; paired.

    Of the turns of Qwen3-8B at temperature 0 with equal acceptance lengths in both, which verified the same trees.
    """
    names = {f"{BASELINE_SESSION}/{dataset}_T0.0.jsonl": {"dataset": dataset} for dataset in DATASETS}
    there = read_turns(files, names).filter(pl.col("method") == "cond@16")
    tree = turns.filter(pl.col("method") == TREE, pl.col("model") == "Qwen3-8B", pl.col("temperature") == "0.0")
    both = tree.join(there, on=TURN, suffix="_there", maintain_order="left")
    same = both.filter((pl.col("mean") - pl.col("mean_there")).abs() < 1e-9)
    summed = same.with_columns(there=pl.col("verify_ms_there") * _ROUNDS, here=pl.col("verify_ms") * _ROUNDS)
    return prompt_ratio(summed, there=1, here=-1)


def times_text(times: pl.DataFrame, verification: Estimate) -> str:
    """Milliseconds of a round, a row for each model and method."""
    shown = times.with_columns(pl.col("ms_per_round").map_elements("{:.1f}".format, return_dtype=pl.String))
    wide = shown.pivot("temperature", index=["model", "method"], values="ms_per_round").fill_null("-")
    temperatures = wide.columns[2:]
    return table(
        "llr",
        "milliseconds of a round = {model} | = {method} | "
        + " | ".join(f"T={temperature} = {{ms[{at}]}}" for at, temperature in enumerate(temperatures)),
        wide.select("model", "method", ms=pl.concat_list(temperatures)).to_dicts(),
        "DominoTree's own autoregressive baseline of Qwen3-8B is of an earlier session too, at every temperature: the "
        f"same trees took {verification:3} times as long to verify there, so its speedups are off by as much.",
    )


def draft_sampling(files: ReleasedFiles) -> list[Row]:
    """Macro averages of the chain with greedy and with sampled candidates, and their ratio, paired by prompt."""
    matched = {name: _ABLATED.fullmatch(name) for name in files.names(f"{ABLATION}/")}
    turns = read_turns(files, {name: match.groupdict() for name, match in matched.items() if match is not None})
    chain = turns.filter(pl.col("method") == "chain").sort("temperature", "dataset", maintain_order=True)
    greedy, sampled = (chain.filter(pl.col("sampled") == state) for state in ("off", "on"))
    both = greedy.join(sampled, on=["temperature", *TURN], suffix="_sampled", maintain_order="left")
    sampled_macro, ratio = {"mean_sampled": 1, "one": -1}, {"mean": 1, "mean_sampled": -1}
    figures = {"greedy_macro": MACRO, "sampled_macro": sampled_macro, "ratio": ratio}
    return rows_by(both, ["dataset", "temperature"], figures)


def draft_sampling_text(rows: Sequence[Row]) -> str:
    """The rows as a table."""
    return table(
        "llr",
        "their ablation, Qwen3-4B, chain = T={temperature} | = {label} | greedy = {greedy_macro:v} | "
        "sampled = {sampled_macro:v} | greedy over sampled [95 %] = {ratio:3}",
        [row | {"label": DATASETS[row["dataset"]]} for row in rows],
    )
