"""The records of slin-zhq/Domino-Tree as tables: a row for each turn, of each model, temperature and method.

Two forms: the released Domino decoder's own, with the acceptance length of each round, and that of their other two
programs, with the mean of each turn.
"""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import polars as pl

from simlab.analysis.released.files import Quoted, ReleasedFiles
from simlab.errors import SimlabError

DATASETS: Mapping[str, str] = MappingProxyType(
    {
        "gsm8k": "GSM8K",
        "math500": "MATH-500",
        "aime25": "AIME25",
        "humaneval": "HumanEval",
        "mbpp": "MBPP",
        "livecodebench": "LCB",
        "mt-bench": "MT-Bench",
        "alpaca": "Alpaca",
    }
)
"""Their names in files, and in tables."""

ROLLUPS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        **{label: (name,) for name, label in DATASETS.items()},
        "Math": ("gsm8k", "math500", "aime25"),
        "Code": ("humaneval", "mbpp", "livecodebench"),
        "Chat": ("mt-bench", "alpaca"),
        "Overall": tuple(DATASETS),
    }
)
"""The datasets of each row of their table of comparisons."""

TEMPERATURES = ("0.0", "0.5", "1.0")
ARMS = ("graph", "eager")
"""How the released Domino decoder was run, with and without CUDA graphs."""

OWN_PROGRAM, REFERENCE_PROGRAM = "dominotree", "baseline_ddtree_caddtree"
"""Folders of their own program, and of CaDDTree's, in which they ran DFlash, DDTree and CaDDTree."""

BLOCK = 16
MOST_COMMITTED = BLOCK + 1
"""Tokens that a round of Domino commits at most: 16 drafted ones and the bonus token."""

LENGTH_LIMIT = 2048
"""Tokens at which a text is cut."""

ROUNDING = 5e-9
"""Means that differ by less are equal: sums are added in another order."""


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

    @property
    def cells(self) -> str:
        """The file with the cells of their main table."""
        return f"results/tables_gpunative/table1_cells{self.suffix}.csv"

    @property
    def pairwise(self) -> str:
        """The file with their paired comparisons."""
        return f"results/tables_gpunative/pairwise_ci{self.suffix}.csv"


MODELS = (
    Model("Qwen3-4B", "qwen3-4b", "results/raw", "", domino_drops_first=False, tree_drops_first=True),
    Model(
        "Qwen3-8B",
        "qwen3-8b",
        "results/raw/8b",
        "_8b",
        domino_drops_first=True,
        tree_drops_first=False,
        summaries=MappingProxyType(
            {
                "0.0": "results/raw/8b/collect_8b_2048_20260704/baseline_official",
                "0.5": "results/raw/8b/reference_8b_tgt0_20260707",
                "1.0": "results/raw/8b/reference_8b_tgt0_20260707",
            }
        ),
    ),
)
"""Their rules for warm-up rows are in their README and in make_latex_table.py."""

_CHOICE = pl.Struct(
    {
        "new_tokens": pl.List(pl.Int64),
        "decode_times": pl.List(pl.Float64),
        "acceptance_lengths": pl.List(pl.List(pl.Int64)),
    }
)
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

    Raises:
        SimlabError: a file holds something else, or a round commits more than a block allows.
    """
    parts = []
    for dataset, name in _by_dataset(files, f"results/raw/domino_official/{model.folder}/T{temperature}/{arm}_", ""):
        table = _table(files, name, {"question_id": pl.Int64, "choices": pl.List(_CHOICE)})
        turns = table.select(pl.col("question_id").alias("prompt"), pl.col("choices").list.get(1)).unnest("choices")
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
    lengths = pl.col("lengths")
    found = _concatenated(parts, f"{model.name} at {temperature}, {arm}").with_columns(
        lengths.list.len().cast(pl.Int64).alias("rounds"),
        lengths.list.sum().alias("committed"),
        lengths.list.eval((pl.element() == MOST_COMMITTED).cast(pl.Int64)).list.sum().alias("whole_block"),
        lengths.list.mean().alias("mean"),
        (pl.col("tokens") / pl.col("seconds")).alias("tokens_per_s"),
        pl.lit(1).alias("one"),
    )
    least, most = found.select(lengths.list.min().min().alias("least"), lengths.list.max().max().alias("most")).row(0)
    if least is None or least < 1 or most > MOST_COMMITTED:
        raise SimlabError(
            f"{model.name} at {temperature}, {arm}: a round commits {least} to {most} tokens; expected 1 to "
            f"{MOST_COMMITTED}, with a block of {BLOCK}"
        )
    return found


def program_turns(
    files: ReleasedFiles, model: Model, temperature: str, program: str, datasets: Collection[str] = DATASETS
) -> pl.DataFrame:
    """The turns of all methods of one of their other programs.

    Columns: method, dataset, prompt, turn, place (in the order in which the method's turns were run), tokens, seconds,
    rounds, verify_ms (of a round), tokens_per_s, mean, one; tokens, seconds, rounds and verify_ms are null where they
    were not released. Files without turns number them through: a conversation there has as many as in the program that
    says them.

    Args:
        files: of the release.
        model: whose.
        temperature: one of `TEMPERATURES`.
        program: the folder, `OWN_PROGRAM` or `REFERENCE_PROGRAM`.
        datasets: which.

    Raises:
        SimlabError: a file holds something else.
    """
    parts = []
    for dataset, name in _by_dataset(files, f"{model.raw}/{program}/", f"_T{temperature}"):
        if dataset not in datasets:
            continue
        table = _table(files, name, _OF_TURN)
        parts.append(
            table.select(
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
        )
    return _concatenated(parts, f"{model.name} at {temperature}, {program}")


def with_conversations(turns: pl.DataFrame, other: pl.DataFrame) -> pl.DataFrame:
    """Turns that were numbered through, under the prompts and turns of a program that says them, place by place.

    Args:
        turns: as `program_turns` has them; those that have turns remain as they are.
        other: turns of one method, in the same order.
    """
    if not turns["turn"].null_count():
        return turns
    said = other.select("dataset", "place", "prompt", "turn")
    return turns.drop("prompt", "turn").join(said, on=["dataset", "place"], how="inner", maintain_order="left")


def printed_overall(files: ReleasedFiles, model: Model, temperature: str, method: str, what: str = "tau") -> Quoted:
    """A figure in the last column of their main table, as it is printed.

    Args:
        files: of the release.
        model: whose table.
        temperature: of the section.
        method: as the table has it.
        what: ``tau``, their acceptance length, or ``speedup``.

    Raises:
        SimlabError: there is no such row.
    """
    name = f"results/tables_gpunative/table1{model.suffix}.md"
    section = ""
    for number, line in enumerate(files.text(name).split("\n"), 1):
        section = line if line.startswith("## ") else section
        cells = [cell.strip() for cell in line.split("|")]
        if section == f"## Temperature = {temperature}" and cells[1:3] == [model.name, method]:
            found = re.fullmatch(r"(?P<speedup>[\d.]+) / (?P<tau>[\d.]+)", cells[-2])
            if found is not None:
                return files.quoted(name, float(found[what]), f"line {number}, Overall Avg")
    raise SimlabError(f"{name} has no row of {model.name}, {method}, at temperature {temperature}")


def record_names(files: ReleasedFiles, *folders: str) -> list[str]:
    """Paths of the files below some folders, such as are to be fetched."""
    return sorted(name for name in files.release.files if name.startswith(folders))


def _by_dataset(files: ReleasedFiles, before: str, after: str) -> list[tuple[str, str]]:
    names = {dataset: f"{before}{dataset}{after}.jsonl" for dataset in DATASETS}
    return [(dataset, name) for dataset, name in names.items() if name in files.release.files]


def _table(files: ReleasedFiles, name: str, schema: Mapping[str, pl.DataType | type[pl.DataType]]) -> pl.DataFrame:
    try:
        return pl.DataFrame(list(files.objects(name)), schema=dict(schema))
    except (pl.exceptions.PolarsError, TypeError) as error:
        raise SimlabError(f"{name} is not in the form that was released: {error}") from error


def _concatenated(parts: Sequence[pl.DataFrame], what: str) -> pl.DataFrame:
    if not parts:
        raise SimlabError(f"the release has no files of {what}")
    return pl.concat(parts)
