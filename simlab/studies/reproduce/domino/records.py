"""The records of slin-zhq/Domino-Tree as tables: a row for each turn, of each model, temperature and method.

Two forms: the released Domino decoder's own, with the acceptance length of each round, and that of their other two
programs, with the mean of each turn.

A speedup is sound where both speeds were measured in one session. Of Qwen3-8B above temperature 0 the reference program
ran without its autoregressive baseline, which was taken from an earlier session.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import polars as pl

from simlab.errors import SimlabError
from simlab.studies.reproduce.released import Quoted, ReleasedFiles, Row

DATASETS = {
    "gsm8k": "GSM8K",
    "math500": "MATH-500",
    "aime25": "AIME25",
    "humaneval": "HumanEval",
    "mbpp": "MBPP",
    "livecodebench": "LCB",
    "mt-bench": "MT-Bench",
    "alpaca": "Alpaca",
}
"""Their names in files, and in tables."""

TEMPERATURES = ("0.0", "0.5", "1.0")
ARMS = ("graph", "eager")
"""How the released Domino decoder was run, with and without CUDA graphs."""

OWN_PROGRAM, REFERENCE_PROGRAM = "dominotree", "baseline_ddtree_caddtree"
"""Folders of their own program, and of CaDDTree's, in which they ran DFlash, DDTree and CaDDTree."""

METHODS = {"baseline": "autoregressive", "dflash": "DFlash", "ddtree_tb16": "DDTree@16", "caddtree": "CaDDTree"}
"""Of the reference program, as its records and as tables name them. DDTree@16: a budget of 16 nodes."""

TREE = "dominotree@16"
"""DominoTree with 16 nodes, in records."""

BLOCK = 16
MOST_COMMITTED = BLOCK + 1
"""Tokens that a round of Domino commits at most: 16 drafted ones and the bonus token."""

ROUNDING = 5e-9
"""Means that differ by less are equal: sums are added in another order."""

TURN = ["dataset", "prompt", "turn"]
"""Columns that name a turn."""


@dataclass(frozen=True, slots=True)
class Model:
    """One of their two targets, and where its files are.

    Attributes:
        name: as their tables have it.
        folder: of the Domino decoder's files.
        raw: of the other records.
        suffix: of the tables.
        domino_drops_first: whether their table leaves out the first prompt of the Domino decoder.
        tree_drops_first: whether it leaves out the first turn of DominoTree's program.
        summaries: by temperature, the folder with sums of the reference program, one for each session of measurement;
            empty where records say all.
    """

    name: str
    folder: str
    raw: str
    suffix: str
    domino_drops_first: bool
    tree_drops_first: bool
    summaries: Mapping[str, str] = field(default_factory=dict)

    def table(self, name: str) -> str:
        """The path of one of their tables, such as ``table1_cells{}.csv``, its ``{}`` for the suffix."""
        return f"results/tables_gpunative/{name.format(self.suffix)}"

    @property
    def cells(self) -> str:
        """The file with the cells of their main table."""
        return self.table("table1_cells{}.csv")

    @property
    def pairwise(self) -> str:
        """The file with their paired comparisons."""
        return self.table("pairwise_ci{}.csv")


_8B = "results/raw/8b"
_LATER = f"{_8B}/reference_8b_tgt0_20260707"
MODELS = (
    Model("Qwen3-4B", "qwen3-4b", "results/raw", "", domino_drops_first=False, tree_drops_first=True),
    Model(
        "Qwen3-8B",
        "qwen3-8b",
        _8B,
        "_8b",
        domino_drops_first=True,
        tree_drops_first=False,
        summaries={"0.0": f"{_8B}/collect_8b_2048_20260704/baseline_official", "0.5": _LATER, "1.0": _LATER},
    ),
)
"""Their rules for warm-up rows are in their README and in make_latex_table.py."""

_CHOICE = {"new_tokens": pl.List(pl.Int64), "decode_times": pl.List(pl.Float64)}
_CHOICES = pl.List(pl.Struct({**_CHOICE, "acceptance_lengths": pl.List(pl.List(pl.Int64))}))
_OF_TURN = {
    "method": pl.String,
    "sample_idx": pl.Int64,
    "turn_index": pl.Int64,
    "num_output": pl.Int64,
    "decode_time": pl.Float64,
    "tps": pl.Float64,
    "mean_accept": pl.Float64,
    "decode_rounds": pl.Int64,
    "ms_verify": pl.Float64,
}


def domino_turns(files: ReleasedFiles, model: Model, temperature: str, arm: str) -> pl.DataFrame:
    """The turns of the released Domino decoder, all datasets.

    Columns: dataset, prompt, turn, tokens, seconds, lengths (of each round), rounds, committed (their sum),
    whole_block (rounds that commit `MOST_COMMITTED`), mean (of the turn's rounds), tokens_per_s, one.
    """
    parts, lengths = [], pl.col("lengths")
    for dataset, name in _by_dataset(files, f"results/raw/domino_official/{model.folder}/T{temperature}/{arm}_", ""):
        rows = files.frame(name, {"question_id": pl.Int64, "choices": _CHOICES})
        turns = rows.select(pl.col("question_id").alias("prompt"), pl.col("choices").list.get(1)).unnest("choices")
        turns = turns.with_columns(pl.int_ranges(pl.col("new_tokens").list.len()).alias("turn"))
        parts.append(
            turns.explode("new_tokens", "decode_times", "acceptance_lengths", "turn").select(
                pl.lit(dataset).alias("dataset"),
                "prompt",
                pl.col("turn").cast(pl.Int64),
                pl.col("new_tokens").alias("tokens"),
                pl.col("decode_times").alias("seconds"),
                pl.col("acceptance_lengths").alias("lengths"),
            )
        )
    return pl.concat(parts).with_columns(
        lengths.list.len().cast(pl.Int64).alias("rounds"),
        lengths.list.sum().alias("committed"),
        lengths.list.eval((pl.element() == MOST_COMMITTED).cast(pl.Int64)).list.sum().alias("whole_block"),
        lengths.list.mean().alias("mean"),
        (pl.col("tokens") / pl.col("seconds")).alias("tokens_per_s"),
        pl.lit(1).alias("one"),
    )


def program_turns(
    files: ReleasedFiles, model: Model, temperature: str, program: str, datasets: Collection[str] = DATASETS
) -> pl.DataFrame:
    """The turns of all methods of one of their other programs, `OWN_PROGRAM` or `REFERENCE_PROGRAM`.

    Columns: method, dataset, prompt, turn, place (in the order in which the method's turns were run), tokens, seconds,
    rounds, verify_ms (of a round), tokens_per_s, mean, one; tokens, seconds, rounds and verify_ms are null where they
    were not released. Files without turns number them through: a conversation there has as many as in the program that
    says them.
    """
    parts = [
        files.frame(name, _OF_TURN).select(
            "method",
            pl.lit(dataset).alias("dataset"),
            pl.col("sample_idx").alias("prompt"),
            pl.col("turn_index").alias("turn"),
            pl.int_range(pl.len()).over("method").cast(pl.Int64).alias("place"),
            pl.col("num_output").alias("tokens"),
            pl.col("decode_time").alias("seconds"),
            pl.col("decode_rounds").alias("rounds"),
            pl.col("ms_verify").alias("verify_ms"),
            pl.col("tps").alias("tokens_per_s"),
            pl.col("mean_accept").alias("mean"),
            pl.lit(1).alias("one"),
        )
        for dataset, name in _by_dataset(files, f"{model.raw}/{program}/", f"_T{temperature}")
        if dataset in datasets
    ]
    return pl.concat(parts)


def with_conversations(turns: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """Turns that were numbered through, under the prompts and turns of a program that says them, row by row.

    Args:
        turns: as `program_turns` has them; those that have turns remain as they are.
        other: turns of one method, in the same order.
    """
    if not turns["turn"].null_count():
        return turns
    prompts = other.select("dataset", "place", "prompt", "turn")
    return turns.drop("prompt", "turn").join(prompts, on=["dataset", "place"], how="inner", maintain_order="left")


def program_sums(
    files: ReleasedFiles, model: Model, temperature: str, datasets: Collection[str] = DATASETS
) -> pl.DataFrame:
    """Sums of the reference program: a row for each method and dataset.

    Columns: method, dataset, turns, tokens, seconds, rounds, committed, nodes, nodes_allowed. Committed: tokens of all
    acceptance lengths. Nodes: the mean budget that CaDDTree chose, by turns; null of other methods. Both are null where
    they were not released.
    """
    if not model.summaries:
        unknown = (pl.lit(None, pl.Float64).alias(name) for name in ("nodes", "nodes_allowed"))
        turns = program_turns(files, model, temperature, REFERENCE_PROGRAM, datasets)
        return turns.group_by("method", "dataset", maintain_order=True).agg(
            pl.len().alias("turns"),
            pl.col("tokens", "seconds", "rounds").sum(),
            (pl.col("mean") * pl.col("rounds")).round().sum().alias("committed"),
            *unknown,
        )
    names = {
        dataset: f"{model.summaries[temperature]}/{dataset}_T{temperature}.pt.summary.json" for dataset in datasets
    }
    rows = [
        row for dataset, name in names.items() if name in files.release.files for row in _summary(files, name, dataset)
    ]
    return pl.DataFrame(rows, schema_overrides={"nodes": pl.Float64, "nodes_allowed": pl.Float64})


def session_names(files: ReleasedFiles, model: Model) -> list[str]:
    """Paths of the files with sums, and of the lists of what each session was to do."""
    return files.names(*(f"{summary}/" for summary in model.summaries.values()))


def reuses_baseline(files: ReleasedFiles, model: Model, temperature: str) -> bool:
    """Whether the reference program's autoregressive baseline at this temperature is of another session."""
    if not model.summaries:
        return False
    return files.value(f"{model.summaries[temperature]}/MANIFEST.json").get("skip_baseline") is True


@dataclass(frozen=True, slots=True)
class Setting:
    """Turns and sums of a model at a temperature.

    Attributes:
        arms: turns of each arm of the Domino decoder: with CUDA graphs (``graph``) and without (``eager``).
        chosen: of these the turns that their table is of.
        best: arm of each dataset, by their rule the faster arm.
        own: turns of their own program.
        reference: turns of the program with DFlash, DDTree and CaDDTree.
        sums: of the latter, as `program_sums` has them.
        reuses_baseline: whether its autoregressive baseline is of another session.
    """

    model: Model
    temperature: str
    arms: Mapping[str, pl.DataFrame]
    chosen: pl.DataFrame
    best: Mapping[str, str]
    own: pl.DataFrame
    reference: pl.DataFrame
    sums: pl.DataFrame
    reuses_baseline: bool

    @property
    def name(self) -> str:
        """As tables name it."""
        return f"{self.model.name} T={self.temperature}"

    @property
    def key(self) -> Row:
        """As rows name it."""
        return {"model": self.model.name, "temperature": self.temperature}


def read_setting(files: ReleasedFiles, model: Model, temperature: str) -> Setting:
    """Everything of a model at a temperature; the chosen turns are, of each dataset, the faster arm's by their rule."""
    arms = {arm: domino_turns(files, model, temperature, arm) for arm in ARMS}
    warm = pl.concat([turns.with_columns(pl.lit(arm).alias("arm")) for arm, turns in arms.items()])
    warm = warm.filter(pl.col("prompt") != 0) if model.domino_drops_first else warm
    speeds = warm.group_by("dataset", "arm", maintain_order=True).agg(pl.mean("tokens_per_s"))
    # Of equal speeds the graph arm, which stands first.
    fastest = speeds.sort("tokens_per_s", descending=True, maintain_order=True)
    best = fastest.unique("dataset", keep="first", maintain_order=True).select("dataset", "arm")
    ordered = speeds.select(pl.col("dataset").unique(maintain_order=True)).join(
        best, on="dataset", maintain_order="left"
    )
    return Setting(
        model,
        temperature,
        arms,
        chosen=ordered.join(warm, on=["dataset", "arm"], maintain_order="left_right"),
        best=dict(ordered.iter_rows()),
        own=program_turns(files, model, temperature, OWN_PROGRAM),
        reference=program_turns(files, model, temperature, REFERENCE_PROGRAM),
        sums=program_sums(files, model, temperature),
        reuses_baseline=reuses_baseline(files, model, temperature),
    )


def printed_overall(files: ReleasedFiles, model: Model, temperature: str, method: str, what: str = "tau") -> Quoted:
    """A figure in the last column of their main table, as it is printed.

    Args:
        files: of the release.
        model: whose table.
        temperature: of the section.
        method: as the table has it.
        what: ``tau``, their acceptance length, or ``speedup``.
    """
    name, section = model.table("table1{}.md"), ""
    for number, line in enumerate(files.text(name).split("\n"), 1):
        section = line if line.startswith("## ") else section
        cells = [cell.strip() for cell in line.split("|")]
        if section == f"## Temperature = {temperature}" and cells[1:3] == [model.name, method]:
            matched = re.fullmatch(r"(?P<speedup>[\d.]+) / (?P<tau>[\d.]+)", cells[-2])
            if matched is not None:
                return files.quoted(name, float(matched[what]), f"line {number}, Overall Avg")
    raise SimlabError(f"{name} has no row of {model.name}, {method}, at temperature {temperature}")


def _by_dataset(files: ReleasedFiles, before: str, after: str) -> list[tuple[str, str]]:
    names = {dataset: f"{before}{dataset}{after}.jsonl" for dataset in DATASETS}
    return [(dataset, name) for dataset, name in names.items() if name in files.release.files]


def _summary(files: ReleasedFiles, name: str, dataset: str) -> list[Row]:
    """Sums of each method in a file of the reference program; its rounds are their mean over turns times the turns."""
    summary, rows = files.value(name), []
    for row in summary["rows"]:
        rounds = round(row["decode_rounds_mean"] * row["samples"])
        rows.append(
            {
                "method": row["method"],
                "dataset": dataset,
                "turns": row["samples"],
                "tokens": row["output_tokens"],
                "seconds": row["decode_seconds"],
                "rounds": rounds,
                "committed": round(row["accept_len_round_weighted"] * rounds),
                "nodes": row.get("budget_mean_unweighted"),
                "nodes_allowed": summary["args"].get("max_tree_budget"),
            }
        )
    return rows
