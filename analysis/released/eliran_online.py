"""A drafter of DFlash2's form on an A100: unary and pairwise trees of equal budgets, and what their passes take.

The drafter is mgoin/Qwen3-4B-speculator.dflash2, which their README calls experimental and no official reproduction of
DFlash2. A unary tree scores a node by its own probability; a pairwise one by that given the token before.

The files, of their step 6.3, have a row per round. Their digests are those that the repository lists; the files
themselves have not been seen here, so the columns are those that its export writes. A round matches some drafted tokens
and commits these and the bonus token, unless the text ends inside it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from simlab.analysis.compare.averaging import finite
from simlab.analysis.released.compared import ComparedFigure, Findings
from simlab.analysis.released.files import ReleasedFiles
from simlab.analysis.statistics.intervals import Interval, mean_interval, ratio_interval
from simlab.analysis.table.text import aligned, is_known
from simlab.errors import SimlabError

_RUNS, _ANALYSIS = "runs/2026-09-05_step63-wide-unary_a100-40gb", "analysis/2026-09-05_step63-wide-unary"

ROUNDS: Mapping[str, str] = {"GSM8K": f"{_RUNS}/gsm8k-rounds.csv", "MATH500": f"{_RUNS}/math500-rounds.csv"}
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


@dataclass(frozen=True, slots=True)
class TreeLengths:
    """What rounds of one method and budget commit.

    Attributes:
        method: without its budget.
        budget: drafted tokens.
        pooled: the acceptance length, with its interval over prompts.
        macro: the macro average (per response).
        verify_ms: the median of a pass.
    """

    dataset: str
    method: str
    budget: int
    rounds: int
    pooled: float
    pooled_interval: Interval
    macro: float
    verify_ms: float

    def row(self) -> dict[str, object]:
        """Flat scalars, as a script reads them; what is not known is None."""
        ends = self.pooled_interval
        return {
            "dataset": self.dataset,
            "method": self.method,
            "budget": self.budget,
            "rounds": self.rounds,
            "acceptance_length": finite(self.pooled),
            "acceptance_length_ci_low": finite(ends.low),
            "acceptance_length_ci_high": finite(ends.high),
            "acceptance_length_macro": finite(self.macro),
            "verify_ms": finite(self.verify_ms),
        }


def eliran_online(files: ReleasedFiles) -> Findings:
    """Acceptance lengths, paired gains, and the time of a pass, worked out again from rounds.

    Raises:
        SimlabError: a file cannot be had, or does not hold what it should.
    """
    compared: list[ComparedFigure] = []
    lengths: list[TreeLengths] = []
    curve: dict[str, list[tuple[int, float]]] = {}
    for dataset in ROUNDS:
        rounds = read_rounds(files, dataset)
        budgets = _shared_budgets(rounds, dataset)
        for budget in budgets:
            compared += _compared(files, rounds, dataset, budget)
        lengths += tree_lengths(rounds, dataset)
        curve[dataset] = verify_by_nodes(rounds)
    gains = [one for one in compared if one.what.endswith("over unary")]
    values = {
        "lengths": [one.row() for one in lengths],
        "verify_ms_by_nodes": {key: [list(one) for one in some] for key, some in curve.items()},
    }
    return Findings(tuple(compared), _follows(gains, curve), (_lengths_text(lengths), _curve_text(curve)), values)


def read_rounds(files: ReleasedFiles, dataset: str) -> pl.DataFrame:
    """A row per round: sample, method, budget, nodes, tokens and the milliseconds of the pass.

    Raises:
        SimlabError: a column is missing, or a cell is no number.
    """
    name = ROUNDS[dataset]
    try:
        table = pl.read_csv(files.path(name), columns=list(_COLUMNS), schema_overrides=_COLUMNS)
    except pl.exceptions.PolarsError as error:
        raise SimlabError(f"{name} has no rounds as the release exports them ({str(error).splitlines()[0]})") from error
    parts = pl.col("method_key").str.extract_groups(r"^(?<method>.+)_tb(?<budget>\d+)$")
    return (
        table.filter(pl.col("method_key").str.contains(r"_tb\d+$"))
        .with_columns(parts.struct.field("method"), parts.struct.field("budget").cast(pl.Int64))
        .sort("sample_index")
    )


def tree_lengths(rounds: pl.DataFrame, dataset: str) -> list[TreeLengths]:
    """Both means of each method and budget."""
    found = []
    for (method, budget), own in sorted(rounds.group_by("method", "budget")):
        each = own.group_by("sample_index", maintain_order=True).agg(
            pl.sum("committed_tokens_this_round").alias("committed"), pl.len().alias("rounds")
        )
        committed, number = (each[name].to_numpy() for name in ("committed", "rounds"))
        found.append(
            TreeLengths(
                dataset,
                str(method),
                int(budget),
                own.height,
                float(committed.sum() / number.sum()),
                ratio_interval(committed, number.astype(np.int64)),
                float((committed / number).mean()),
                float(np.median(own["target_verify_latency_ms"].to_numpy())),
            )
        )
    return found


def verify_by_nodes(rounds: pl.DataFrame) -> list[tuple[int, float]]:
    """Nodes of a tree, the root not counted, and the median milliseconds of their pass, by nodes."""
    table = rounds.group_by("tree_node_count").agg(pl.median("target_verify_latency_ms").alias("ms"))
    return [(int(nodes), float(ms)) for nodes, ms in table.sort("tree_node_count").rows()]


def paired_gain(rounds: pl.DataFrame, budget: int) -> tuple[float, Interval]:
    """What the pairwise tree matches more than the unary one: the mean over prompts, with Student's interval."""
    found = _matched(rounds, PAIRWISE, budget).join(_matched(rounds, UNARY, budget), on="sample_index", suffix="_unary")
    gains = (found["mean"] - found["mean_unary"]).to_numpy()
    return float(gains.mean()), mean_interval(gains)


def _matched(rounds: pl.DataFrame, method: str, budget: int) -> pl.DataFrame:
    """The mean of each response's rounds, as their analysis takes it."""
    own = rounds.filter((pl.col("method") == method) & (pl.col("budget") == budget))
    return own.group_by("sample_index").agg(pl.mean("matched_draft_tokens").alias("mean")).sort("sample_index")


def _compared(files: ReleasedFiles, rounds: pl.DataFrame, dataset: str, budget: int) -> list[ComparedFigure]:
    gain, ends = paired_gain(rounds, budget)
    found = []
    for method in (UNARY, PAIRWISE):
        means = _matched(rounds, method, budget)["mean"].to_numpy()
        row = {"dataset": dataset, "budget": str(budget), "method": _LABELS[method]}
        theirs = files.quoted_cell(METRICS, "mean_matched_draft_tokens", **row)
        what = f"{dataset}, budget {budget}, tokens matched, {_LABELS[method]}"
        found.append(ComparedFigure(what, float(means.mean()), theirs, mean_interval(means), 3))
    theirs = files.quoted_cell(GAINS, "matched_gain", dataset=dataset, budget=str(budget), unary_k="16")
    return [*found, ComparedFigure(f"{dataset}, budget {budget}, pairwise over unary", gain, theirs, ends, 3)]


def _shared_budgets(rounds: pl.DataFrame, dataset: str) -> list[int]:
    """Budgets of both trees, on the same prompts.

    Raises:
        SimlabError: there are none, or a prompt lacks one of the two.
    """
    own = rounds.filter(pl.col("method").is_in([UNARY, PAIRWISE]))
    counts = own.group_by("budget").agg(pl.struct("sample_index", "method").n_unique().alias("pairs"))
    prompts = rounds["sample_index"].n_unique()
    if counts.is_empty() or (counts["pairs"] != 2 * prompts).any():
        raise SimlabError(f"the rounds of {dataset} are not of both trees on each prompt, so they cannot be paired")
    return sorted(counts["budget"].to_list())


def _follows(gains: Sequence[ComparedFigure], curve: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    more, fewer = (sum(one.interval.low > 0 for one in gains), sum(one.interval.high < 0 for one in gains))
    times = [ms for some in curve.values() for _, ms in some]
    said = f"the pairwise one matches more tokens in {more}, fewer in {fewer}, and {len(gains) - more - fewer} show no "
    return (
        f"of {len(gains)} pairs of trees of equal budget {said}difference; the median pass takes {min(times):.1f} to "
        f"{max(times):.1f} ms over all sizes of a tree."
    )


def _lengths_text(lengths: Sequence[TreeLengths]) -> str:
    heading = ["", "budget", "rounds", "pooled", "[95 %]", "macro avg", "verify ms"]
    cells = [
        [
            f"{one.dataset} {one.method}",
            str(one.budget),
            f"{one.rounds:,}",
            f"{one.pooled:.3f}",
            _ends_text(one.pooled_interval),
            f"{one.macro:.3f}",
            f"{one.verify_ms:.2f}",
        ]
        for one in lengths
    ]
    table = aligned([heading, *cells], [True, False, False, False, True, False, False])
    return f"Acceptance length, bonus token included; [95 %] over prompts:\n\n{table}"


def _ends_text(ends: Interval) -> str:
    return f"[{ends.low:.3f}, {ends.high:.3f}]" if is_known(ends) else "-"


def _curve_text(curve: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    cells = [
        ["drafted tokens, and median ms of their pass", "", ""],
        *([dataset, str(nodes), f"{ms:.2f}"] for dataset, some in curve.items() for nodes, ms in some),
    ]
    return aligned(cells, [True, False, False])
