"""The records of slin-zhq/Domino-Tree as tables: a row for each turn, of each model, temperature and method.

Two forms: the released Domino decoder's own, with the acceptance length of each round, and that of their other two
programs, with the mean of each turn.

A speedup is sound where both speeds were measured in one session. Of Qwen3-8B above temperature 0 the reference program
ran without its autoregressive baseline, which was taken from an earlier session.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product

import polars as pl

from simlab.analysis.table.estimates import Estimate, prompt_ratio
from simlab.studies.reproduce.released import Quoted, ReleasedFiles, Row, Schema

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

PROGRAMS = OWN_PROGRAM, REFERENCE_PROGRAM = ("dominotree", "baseline_ddtree_caddtree")
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

SETTING = ["model", "temperature"]
TURN = ["dataset", "prompt", "turn"]
"""Columns that name a setting, and a turn of it."""

Figure = pl.Expr | Mapping[str, int] | Callable[[pl.DataFrame], Estimate | None]
"""What is worked out of some turns; a mapping: a product of powers of sums of columns."""

POOLED, MACRO = {"committed": 1, "rounds": -1}, {"mean": 1, "one": -1}
"""All tokens over all rounds; and the macro average (per response), the mean over turns of each turn's own mean."""


@dataclass(frozen=True, slots=True)
class Model:
    """One of their two targets, and where its files are.

    Attributes:
        name: as their tables have it.
        raw: the folder of records of the programs other than the Domino decoder.
        suffix: of the tables.
        domino_drops_first: whether their table leaves out the first prompt of the Domino decoder.
        tree_drops_first: whether it leaves out the first turn of DominoTree's program.
        summaries: by temperature, the folder with sums of the reference program, one for each session of measurement;
            empty where records say all.
    """

    name: str
    raw: str
    suffix: str
    domino_drops_first: bool
    tree_drops_first: bool
    summaries: Mapping[str, str] = field(default_factory=dict)

    def table(self, name: str, end: str = "csv") -> str:
        """The path of one of their tables: ``table1``, ``table1_cells`` or ``pairwise_ci``."""
        return f"results/tables_gpunative/{name}{self.suffix}.{end}"


_8B = "results/raw/8b"
_LATER = f"{_8B}/reference_8b_tgt0_20260707"
_SUMMARIES = {"0.0": f"{_8B}/collect_8b_2048_20260704/baseline_official", "0.5": _LATER, "1.0": _LATER}
MODELS = (
    Model("Qwen3-4B", "results/raw", "", domino_drops_first=False, tree_drops_first=True),
    Model("Qwen3-8B", _8B, "_8b", domino_drops_first=True, tree_drops_first=False, summaries=_SUMMARIES),
)
"""Their rules for warm-up rows are in their README and in make_latex_table.py."""

PROGRAM_FILES = (
    *(f"{model.raw}/{program}/" for model in MODELS for program in PROGRAMS),
    *(f"{folder}/" for model in MODELS for folder in model.summaries.values()),
)
"""Beginnings of paths: what `program_turns` and `program_sums` read."""

_OF_CHOICE: Schema = {
    "new_tokens": pl.List(pl.Int64),
    "decode_times": pl.List(pl.Float64),
    "acceptance_lengths": pl.List(pl.List(pl.Int64)),
}
_OF_TURN: Mapping[str, tuple[str, pl.DataType | type[pl.DataType]]] = {
    "method": ("method", pl.String),
    "sample_idx": ("prompt", pl.Int64),
    "turn_index": ("turn", pl.Int64),
    "num_output": ("tokens", pl.Int64),
    "decode_time": ("seconds", pl.Float64),
    "tps": ("tokens_per_s", pl.Float64),
    "mean_accept": ("mean", pl.Float64),
    "decode_rounds": ("rounds", pl.Int64),
    "ms_verify": ("verify_ms", pl.Float64),
    "out_head": ("head", pl.List(pl.Int64)),
    "out_sig": ("digest", pl.String),
}


def domino_turns(files: ReleasedFiles) -> pl.DataFrame:
    """The turns of the released Domino decoder.

    Columns: model, temperature, dataset, arm, prompt, turn, tokens, seconds, lengths (of each round), rounds, committed
    (their sum), whole_block (rounds that commit `MOST_COMMITTED`), mean (of the turn's rounds), tokens_per_s, one,
    drops_first (whether their table leaves out the first prompt), kept (whether it has this one), best_arm (which of
    the arms it has of the dataset, by their rule the faster).
    """
    names = {
        f"results/raw/domino_official/{model.name.lower()}/T{temperature}/{arm}_{dataset}.jsonl": (
            _key(model, temperature, dataset) | {"arm": arm, "drops_first": model.domino_drops_first}
        )
        for model, temperature, dataset, arm in product(MODELS, TEMPERATURES, DATASETS, ARMS)
    }
    choices, lengths = pl.col("choices"), pl.col("lengths")
    read = _stacked(files, names, {"question_id": pl.Int64, "choices": pl.List(pl.Struct(_OF_CHOICE))})
    read = read.with_columns(choices.list.get(1)).unnest("choices")
    read = read.rename(dict(zip(("question_id", *_OF_CHOICE), ("prompt", "tokens", "seconds", "lengths"), strict=True)))
    read = read.with_columns(turn=pl.int_ranges(pl.col("tokens").list.len()))
    turns = read.explode("tokens", "seconds", "lengths", "turn").with_columns(
        rounds=lengths.list.len().cast(pl.Int64),
        committed=lengths.list.sum(),
        whole_block=lengths.list.eval((pl.element() == MOST_COMMITTED).cast(pl.Int64)).list.sum(),
        mean=lengths.list.mean(),
        tokens_per_s=pl.col("tokens") / pl.col("seconds"),
        one=1,
        kept=(pl.col("prompt") != 0) | ~pl.col("drops_first"),
    )
    cell = [*SETTING, "dataset"]
    speeds = turns.filter("kept").group_by(*cell, "arm", maintain_order=True).agg(pl.mean("tokens_per_s"))
    # Of equal speeds the graph arm, which stands first.
    best_arm = pl.col("arm").get(pl.col("tokens_per_s").arg_max()).alias("best_arm")
    return turns.join(speeds.group_by(cell, maintain_order=True).agg(best_arm), on=cell, maintain_order="left")


def program_turns(files: ReleasedFiles) -> pl.DataFrame:
    """The turns of all methods of their other two programs.

    Columns: model, temperature, those of `read_turns`, and kept (whether their table has it of DominoTree, by place in
    the order in which turns were run). Files without turns number them through: a conversation there has as many as in
    the program that says them, in the same order.
    """
    names = {
        f"{model.raw}/{program}/{dataset}_T{temperature}.jsonl": (
            _key(model, temperature, dataset) | {"drops_first": model.tree_drops_first}
        )
        for model, temperature, dataset, program in product(MODELS, TEMPERATURES, DATASETS, PROGRAMS)
    }
    place, by_place = pl.int_range(pl.len()).over(*SETTING, "dataset", "method"), [*SETTING, "dataset", "place"]
    turns = read_turns(files, names).with_columns(place=place, kept=(place > 0) | ~pl.col("drops_first"))
    named = turns.filter(pl.col("method") == "ar").select(*by_place, named_prompt="prompt", named_turn="turn")
    return turns.join(named, on=by_place, how="left", maintain_order="left").with_columns(
        prompt=pl.when(pl.col("turn").is_null()).then("named_prompt").otherwise("prompt"),
        turn=pl.coalesce("turn", "named_turn"),
    )


def read_turns(files: ReleasedFiles, names: Mapping[str, Row]) -> pl.DataFrame:
    """Turns in files of their other programs, below each other; those that were not released are left out.

    Columns: what names say; method, prompt, turn, tokens, seconds, tokens_per_s, mean, rounds, verify_ms (of a round),
    head (the first token ids), digest (of all), each null where it was not released; committed, one.
    """
    turns = _stacked(files, names, {theirs: kind for theirs, (_, kind) in _OF_TURN.items()})
    turns = turns.rename({theirs: ours for theirs, (ours, _) in _OF_TURN.items()})
    return turns.with_columns(committed=(pl.col("mean") * pl.col("rounds")).round(), one=1)


def program_sums(files: ReleasedFiles, turns: pl.DataFrame) -> pl.DataFrame:
    """Sums over all datasets of the reference program: a row for each model, temperature and method.

    Columns: model, temperature, method, session (a folder; null where records say all), tokens, seconds, rounds,
    committed, nodes (the mean budget that CaDDTree chose, by turns; NaN where not released), nodes_allowed.
    """
    released = [
        {**_key(model, temperature, dataset), "session": folder.removeprefix(f"{model.raw}/"), **row}
        for model in MODELS
        for temperature, folder in model.summaries.items()
        for dataset in DATASETS
        for row in summary_rows(files, f"{folder}/{dataset}_T{temperature}.pt.summary.json")
    ]
    schema = {"nodes": pl.Float64, "nodes_allowed": pl.Float64, "committed": pl.Float64}
    whole = turns.filter(pl.col("rounds").is_not_null())
    parts = pl.concat([whole, pl.DataFrame(released, schema_overrides=schema)], how="diagonal")
    chose = pl.col("turns").filter(pl.col("nodes").is_not_null())
    return parts.group_by(*SETTING, "method", maintain_order=True).agg(
        pl.first("session"),
        pl.sum("tokens", "seconds", "rounds", "committed"),
        nodes=(pl.col("nodes") * pl.col("turns")).sum() / chose.sum(),
        nodes_allowed=pl.max("nodes_allowed"),
    )


def summary_rows(files: ReleasedFiles, name: str) -> list[Row]:
    """Sums of each method in a file of the reference program; its rounds are their mean over turns times the turns.

    Empty where it was not released. Committed: tokens of all acceptance lengths.
    """
    summary: Row = files.value(name) if name in files.release.files else {"rows": []}
    return [
        {
            "method": row["method"],
            "turns": row["samples"],
            "tokens": row["output_tokens"],
            "seconds": row["decode_seconds"],
            "rounds": (rounds := round(row["decode_rounds_mean"] * row["samples"])),
            "committed": round(row["accept_len_round_weighted"] * rounds),
            "nodes": row.get("budget_mean_unweighted"),
            "nodes_allowed": summary["args"].get("max_tree_budget"),
        }
        for row in summary["rows"]
    ]


def rows_by(turns: pl.DataFrame, by: Sequence[str], figures: Mapping[str, Figure]) -> list[Row]:
    """A row for each group of some turns: what names the group, how many turns it has, and figures of it."""
    return [
        {**dict(zip(by, key, strict=True)), "turns": group.height}
        | {name: _worked_out(figure, group) for name, figure in figures.items()}
        for key, group in turns.group_by(by, maintain_order=True)
    ]


def _worked_out(figure: Figure, turns: pl.DataFrame) -> object:
    if isinstance(figure, pl.Expr):
        return turns.select(figure).item()
    return prompt_ratio(turns, **figure) if isinstance(figure, Mapping) else figure(turns)


def printed_overall(files: ReleasedFiles, model: str, temperature: str, method: str, what: str = "tau") -> Quoted:
    """A figure in the last column of their main table, as printed: ``tau``, the acceptance length, or ``speedup``."""
    section = rf"^## Temperature = {re.escape(temperature)}$(?:\n(?!## ).*)*?\n"
    last = {"speedup": r"([\d.]+) / [\d.]+", "tau": r"[\d.]+ / ([\d.]+)"}[what]
    pattern = rf"{section}\| *{model} *\| *{re.escape(method)} *\|.*\| *{last} *\|$"
    (name,) = [target.table("table1", "md") for target in MODELS if target.name == model]
    quoted = files.quoted_pattern(name, pattern)
    return replace(quoted, where=f"{quoted.where}, Overall Avg")


def _key(model: Model, temperature: str, dataset: str) -> Row:
    return {"model": model.name, "temperature": temperature, "dataset": dataset}


def _stacked(files: ReleasedFiles, names: Mapping[str, Row], schema: Schema) -> pl.DataFrame:
    """Files of JSON lines below each other, with what is known of each as columns."""
    return pl.concat(
        files.frame(name, schema).select(*(pl.lit(value).alias(key) for key, value in row.items()), pl.all())
        for name, row in names.items()
        if name in files.release.files
    )
