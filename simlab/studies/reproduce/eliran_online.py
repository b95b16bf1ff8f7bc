"""A drafter of DFlash2's form on an A100: unary and pairwise trees of equal budgets, and what their passes take.

The drafter is mgoin/Qwen3-4B-speculator.dflash2, which their README calls experimental and no official reproduction of
DFlash2. A unary tree scores a node by its own probability; a pairwise tree by that given the token before.

The files, of their step 6.3, have a row per round. Their digests are those that the repository lists; the files
themselves have not been seen here, so the columns are those that its export writes. A round matches some drafted tokens
and commits these and the bonus token, unless the text ends inside it.
"""

from collections.abc import Sequence

import numpy as np
import polars as pl

from simlab.analysis.statistics.intervals import mean_interval, ratio_interval
from simlab.analysis.table.estimates import Estimate
from simlab.errors import SimlabError
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.released import ComparedFigure, Findings, ReleasedFiles, Row, flat, table

_RUNS, _ANALYSIS = "runs/2026-09-05_step63-wide-unary_a100-40gb", "analysis/2026-09-05_step63-wide-unary"

ROUNDS = {"GSM8K": f"{_RUNS}/gsm8k-rounds.csv", "MATH500": f"{_RUNS}/math500-rounds.csv"}
"""Rounds by data set, as their tables name it."""
METRICS, GAINS = f"{_ANALYSIS}/method_metrics.csv", f"{_ANALYSIS}/pairwise_comparisons.csv"
FILES = (*ROUNDS.values(), METRICS, GAINS)

UNARY, PAIRWISE = "dflash2_unary_k16", "dflash2_pairwise_k16"
"""The two that differ in nothing but the score; 16 candidates each."""

_LABELS = {UNARY: "Unary-K16", PAIRWISE: "Pairwise-K16"}

_COLUMNS = {
    "sample_index": pl.Int64,
    "method_key": pl.String,
    "tree_node_count": pl.Int64,
    "matched_draft_tokens": pl.Int64,
    "committed_tokens_this_round": pl.Int64,
    "target_verify_latency_ms": pl.Float64,
}
"""What is read of a round."""


def eliran_online(files: ReleasedFiles, options: ReproduceOptions) -> Findings:
    """Acceptance lengths, paired gains, and the time of a pass, worked out again from rounds."""
    files.have(FILES, options.progress)
    compared: list[ComparedFigure] = []
    lengths: list[Row] = []
    curve: dict[str, list[list[float]]] = {}
    for dataset in ROUNDS:
        rounds = _read_rounds(files, dataset)
        for budget in _shared_budgets(rounds, dataset):
            compared += _compared(files, rounds, dataset, budget)
        lengths += _lengths(rounds, dataset)
        by_nodes = rounds.group_by("tree_node_count").agg(pl.median("target_verify_latency_ms"))
        curve[dataset] = [list(row) for row in by_nodes.sort("tree_node_count").rows()]
    gains = [figure.ours.side_of(0) for figure in compared if figure.what.endswith("over unary")]
    times = [ms for some in curve.values() for _, ms in some]
    follows = (
        f"of {len(gains)} pairs of trees of equal budget the pairwise one matches more tokens in {gains.count(1)}, "
        f"fewer in {gains.count(-1)}, and {gains.count(0)} show no difference; the median pass takes {min(times):.1f} "
        f"to {max(times):.1f} ms over all sizes of a tree."
    )
    columns = [("drafted tokens, and median ms of their pass", "{dataset}"), ("", "{nodes}"), ("", "{ms:.2f}")]
    rows = [{"dataset": dataset, "nodes": nodes, "ms": ms} for dataset, some in curve.items() for nodes, ms in some]
    passes = table("lrr", columns, rows)
    values = {"lengths": [flat(row, digits=None) for row in lengths], "verify_ms_by_nodes": curve}
    return Findings(compared, follows, [_lengths_text(lengths), passes], values)


def _read_rounds(files: ReleasedFiles, dataset: str) -> pl.DataFrame:
    """A row per round: sample, method, budget, nodes, tokens and the milliseconds of the pass."""
    name, budgeted = ROUNDS[dataset], r"^(?<method>.+)_tb(?<budget>\d+)$"
    try:
        rows = pl.read_csv(files.path(name), glob=False, columns=list(_COLUMNS), schema_overrides=_COLUMNS)
    except pl.exceptions.PolarsError as error:
        raise SimlabError(f"{name} has no rounds as the release exports them ({str(error).splitlines()[0]})") from error
    parts = pl.col("method_key").str.extract_groups(budgeted).struct
    own = rows.filter(pl.col("method_key").str.contains(r"_tb\d+$"))
    return own.with_columns(parts.field("method"), parts.field("budget").cast(pl.Int64)).sort("sample_index")


def _lengths(rounds: pl.DataFrame, dataset: str) -> list[Row]:
    """Both means of each method and budget, and the median of its passes."""
    found = []
    for (method, budget), own in sorted(rounds.group_by("method", "budget")):
        committed = pl.sum("committed_tokens_this_round").alias("committed")
        each = own.group_by("sample_index", maintain_order=True).agg(committed, pl.len().alias("rounds"))
        tokens, number = each["committed"].to_numpy(), each["rounds"].to_numpy().astype(np.int64)
        pooled = Estimate(float(tokens.sum() / number.sum()), ratio_interval(tokens, number))
        found.append(
            {
                "dataset": dataset,
                "method": method,
                "budget": budget,
                "rounds": own.height,
                "acceptance_length": pooled,
                "acceptance_length_macro": float((tokens / number).mean()),
                "verify_ms": float(np.median(own["target_verify_latency_ms"].to_numpy())),
            }
        )
    return found


def _matched(rounds: pl.DataFrame, method: str, budget: int) -> pl.DataFrame:
    """The mean of each response's rounds, as their analysis takes it."""
    own = rounds.filter((pl.col("method") == method) & (pl.col("budget") == budget))
    return own.group_by("sample_index").agg(pl.mean("matched_draft_tokens").alias("mean")).sort("sample_index")


def _compared(files: ReleasedFiles, rounds: pl.DataFrame, dataset: str, budget: int) -> list[ComparedFigure]:
    """Tokens that each tree matches, and what the pairwise tree matches more: means over prompts."""
    found, means = [], {method: _matched(rounds, method, budget) for method in (UNARY, PAIRWISE)}
    for method, own in means.items():
        row = {"dataset": dataset, "budget": str(budget), "method": _LABELS[method]}
        theirs = files.quoted_cell(METRICS, "mean_matched_draft_tokens", **row)
        what = f"{dataset}, budget {budget}, tokens matched, {_LABELS[method]}"
        found.append(ComparedFigure(what, _mean(own["mean"]), theirs, 3))
    both = means[PAIRWISE].join(means[UNARY], on="sample_index", suffix="_unary")
    theirs = files.quoted_cell(GAINS, "matched_gain", dataset=dataset, budget=str(budget), unary_k="16")
    gain = _mean(both["mean"] - both["mean_unary"])
    return [*found, ComparedFigure(f"{dataset}, budget {budget}, pairwise over unary", gain, theirs, 3)]


def _mean(values: pl.Series) -> Estimate:
    """The mean of some values, with Student's interval."""
    return Estimate(float(values.to_numpy().mean()), mean_interval(values.to_numpy()))


def _shared_budgets(rounds: pl.DataFrame, dataset: str) -> list[int]:
    """Budgets of both trees, on the same prompts."""
    own = rounds.filter(pl.col("method").is_in([UNARY, PAIRWISE]))
    counts = own.group_by("budget").agg(pl.struct("sample_index", "method").n_unique().alias("pairs"))
    prompts = rounds["sample_index"].n_unique()
    if counts.is_empty() or (counts["pairs"] != 2 * prompts).any():
        raise SimlabError(f"the rounds of {dataset} are not of both trees on each prompt, so they cannot be paired")
    return sorted(counts["budget"].to_list())


def _lengths_text(lengths: Sequence[Row]) -> str:
    columns = [
        ("", "{dataset} {method}"),
        ("budget", "{budget}"),
        ("rounds", "{rounds:,}"),
        ("pooled", "{acceptance_length:v3}"),
        ("[95 %]", "{ends}"),
        ("macro avg", "{acceptance_length_macro:.3f}"),
        ("verify ms", "{verify_ms:.2f}"),
    ]
    rows = [row | {"ends": f"{row['acceptance_length']:i3}" or "-"} for row in lengths]
    return f"Acceptance length, bonus token included; [95 %] over prompts:\n\n{table('lrrrlrr', columns, rows)}"
