"""Where texts of tree drafting diverge from those of autoregressive decoding, at temperature 0 in bfloat16.

Released are the first 128 token ids of each text, and a digest of the whole text. A difference is no fault by itself:
in reduced precision a near-tie of the target may fall the other way in a pass of another shape. To tell the two apart
takes the target's logits.
"""

from collections.abc import Iterator, Sequence

import polars as pl

from simlab.analysis.table.estimates import Estimate, mean_over_datasets, prompt_ratio, prompt_share
from simlab.analysis.table.text import within_width
from simlab.studies.reproduce.domino.records import BLOCK, DATASETS, TREE, TURN
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.released import ComparedFigure, Findings, ReleasedFiles, Row, Schema, flat, table

END_OF_TEXT = 151_645
"""The token that ends a turn of Qwen3."""

HEAD = 128
"""Token ids that were released of each text, or all of a shorter text."""

AUTOREGRESSIVE, CHAIN = "ar", "chain"

_LADDER = "results/conditioning_ladder"
_README = f"{_LADDER}/README.md"
_RUNGS = ("marg@16", "condstatic@16", TREE)
SOURCES = (
    (f"{_LADDER}/matched_builder", "Qwen3-4B", "ladder, one builder"),
    (f"{_LADDER}/best_builder", "Qwen3-4B", "ladder, best builders"),
    ("results/raw/dominotree", "Qwen3-4B", "main table"),
    ("results/raw/8b/dominotree", "Qwen3-8B", "main table"),
)
"""Folders with heads and digests, and models; the first is shown by dataset.

Their ladder compares three ways to score a tree's nodes; a builder is the code that makes the tree of the scores.
"""
_LABELS = {folder: f"{model}, {name}" for folder, model, name in SOURCES}
_MODELS = {folder: model for folder, model, _ in SOURCES}

_CURVE = tuple(range(0, HEAD + 1, 4))
_COUNTED = ("head_equal", "digest_equal", "surely_equal", "possibly_equal", "ends", "after_end")
_OF_TEXT: Schema = {
    "method": pl.String,
    "sample_idx": pl.Int64,
    "turn_index": pl.Int64,
    "out_head": pl.List(pl.Int64),
    "out_sig": pl.String,
    "num_output": pl.Int64,
    "mean_accept": pl.Float64,
}

_NEEDED = (
    "To tell a near-tie from a fault, these would have to be released: of both texts, all token ids; at each position "
    "of both the target's two largest log-probabilities with their ids, at least at the first position that differs, "
    "computed by one teacher-forced pass in float32; library versions of the runs; and whether ids after the "
    "end-of-sequence token are kept. `simlab confirm` does that pass over every emitted text itself and gives the "
    "verdict exact, ties(n) with the gap of each, or FAILED."
)


def domino_lossless(files: ReleasedFiles, options: ReproduceOptions) -> Findings:
    """How many texts have the first tokens of autoregressive decoding's, how many may be equal, where they diverge."""
    names = {folder: files.names(f"{folder}/", end="_T0.0.jsonl") for folder in _LABELS}
    files.have([*(name for listed in names.values() for name in listed), _README], options.progress)
    texts = pl.concat([_texts(files, folder, listed) for folder, listed in names.items() if listed])
    pairs = beside_autoregressive(texts)
    repeated, chain = repeated_texts(texts), chain_over_tree(pairs)
    parts = pairs.partition_by("folder", "method", maintain_order=True)
    rows = [_row(part) for part in parts]
    first = [part for part in parts if part["folder"][0] == texts["folder"][0]]
    by_dataset = [_row(own) for part in first for own in part.partition_by("dataset", maintain_order=True)]
    return Findings(
        list(_ladder(files, texts)),
        [_text(rows), _datasets_text(by_dataset), _repeated_text(repeated), within_width(_NEEDED)],
        {
            "sources": [_json_row(row) for row in rows],
            "datasets": [_json_row(row) for row in by_dataset],
            "repeated": repeated.to_dicts(),
            "chain_over_tree": chain.row("ratio"),
            "needed": _NEEDED,
            "curves": [
                {
                    "folder": row["folder"],
                    "method": row["method"],
                    "positions": list(_CURVE),
                    "head_equal": _curve(part),
                }
                for row, part in zip(rows, parts, strict=True)
            ],
        },
    )


def _texts(files: ReleasedFiles, folder: str, names: list[str]) -> pl.DataFrame:
    """Texts as far as they were released.

    Columns: folder, method, dataset, prompt, turn, head (first tokens, up to the first `END_OF_TEXT`), ends (whether
    that was found), digest, tokens (of the whole text, as they count), mean, one.
    """
    ids, parts = pl.col("out_head"), {}
    for name in names:
        dataset = name.rpartition("/")[2].removesuffix("_T0.0.jsonl")
        rows = files.frame(name, _OF_TEXT)
        end = ids.list.eval((pl.element() == END_OF_TEXT).arg_max()).list.first()
        ends = ids.list.contains(END_OF_TEXT)
        parts[dataset] = rows.select(
            pl.lit(folder).alias("folder"),
            "method",
            pl.lit(dataset).alias("dataset"),
            pl.col("sample_idx").alias("prompt"),
            pl.col("turn_index").alias("turn"),
            pl.when(ends).then(ids.list.head(end + 1)).otherwise(ids).alias("head"),
            ends.alias("ends"),
            pl.col("out_sig").alias("digest"),
            pl.col("num_output").alias("tokens"),
            pl.col("mean_accept").alias("mean"),
            pl.lit(1).alias("one"),
        )
    ordered = sorted(parts, key=lambda name: list(DATASETS).index(name) if name in DATASETS else -1)
    return pl.concat([parts[dataset] for dataset in ordered])


def beside_autoregressive(texts: pl.DataFrame) -> pl.DataFrame:
    """Each method's texts beside autoregressive decoding's, a row for each turn.

    ``diverges_at``: the first position that differs, or as many as were released and are equal. ``head_equal``: no
    difference in what was released, tokens after the end left out. ``surely_equal``: as a whole; ``possibly_equal``:
    not excluded. A digest is of the tokens after the end too, of which autoregressive decoding has none and a round at
    most a block: a longer text that ends beyond what was released may be equal up to its end.
    """
    plain = texts.filter(pl.col("method") == AUTOREGRESSIVE)
    own = texts.filter(pl.col("method") != AUTOREGRESSIVE)
    paired = own.join(plain, on=["folder", *TURN], suffix="_plain", maintain_order="left")
    differs_at = pl.struct("head", "head_plain").map_elements(_first_difference, return_dtype=pl.Int64)
    head_equal, both_end = pl.col("head") == pl.col("head_plain"), pl.col("ends") & pl.col("ends_plain")
    digest_equal = pl.col("digest") == pl.col("digest_plain")
    is_longer = (pl.col("tokens") - pl.col("tokens_plain")).is_between(1, BLOCK)
    surely = digest_equal | (head_equal & both_end)
    possibly = surely | (head_equal & is_longer & ~pl.col("ends") & ~pl.col("ends_plain"))
    after_end = pl.col("ends") & (pl.col("tokens") > pl.col("head").list.len())
    return paired.select(
        "folder",
        "method",
        *TURN,
        "one",
        head_equal.cast(pl.Int64).alias("head_equal"),
        (~head_equal).cast(pl.Int64).alias("diverges"),
        differs_at.alias("diverges_at"),
        (differs_at + (~head_equal).cast(pl.Int64)).alias("at_risk"),
        digest_equal.cast(pl.Int64).alias("digest_equal"),
        surely.cast(pl.Int64).alias("surely_equal"),
        possibly.cast(pl.Int64).alias("possibly_equal"),
        after_end.cast(pl.Int64).alias("after_end"),
        pl.col("ends").cast(pl.Int64),
    )


def _first_difference(heads: Row) -> int:
    """Where two lists differ first; the length of the shorter where they do not."""
    shared = list(zip(heads["head"], heads["head_plain"], strict=False))
    return next((at for at, (own, other) in enumerate(shared) if own != other), len(shared))


def _row(part: pl.DataFrame) -> Row:
    datasets = part["dataset"].unique(maintain_order=True).to_list()
    return {
        "folder": part["folder"][0],
        "method": part["method"][0],
        "dataset": datasets[0] if len(datasets) == 1 else None,
        "turns": part.height,
        **part.select(pl.sum(*_COUNTED)).row(0, named=True),
        "head_equal_share": prompt_share(part, "head_equal", "one"),
        # First differences per token that could have been the first.
        "diverges": prompt_ratio(part, diverges=1, at_risk=-1),
        "median_diverges_at": part.filter(pl.col("diverges") == 1)["diverges_at"].median(),
    }


def _json_row(row: Row) -> Row:
    rate = row["diverges"].row("diverges_per_1000_tokens", factor=1000)
    return flat(
        {key: value for name in row for key, value in (rate if name == "diverges" else {name: row[name]}).items()}
    )


def _curve(part: pl.DataFrame) -> list[float]:
    """Share of the texts without a difference up to each position; a text that ended so remains so."""
    first = part.select(pl.when(pl.col("diverges") == 1).then("diverges_at").otherwise(HEAD + 1)).to_series().to_numpy()
    return [round(float((first >= position).mean()), 4) for position in _CURVE]


def repeated_texts(texts: pl.DataFrame) -> pl.DataFrame:
    """How many digests of a method's texts are equal in the first folder of a model that has it and in each later one.

    Columns: first, second, method, turns, equal.
    """
    key, model = ["method", *TURN], pl.col("folder").replace_strict(_MODELS)
    methods = texts.group_by(model.alias("model"), "method", maintain_order=True).agg(
        pl.col("folder").unique(maintain_order=True)
    )
    rows = []
    for _, method, (first, *later) in methods.iter_rows():
        own = {
            folder: texts.filter((pl.col("folder") == folder) & (pl.col("method") == method))
            for folder in (first, *later)
        }
        for second in later:
            shared = own[first].join(own[second], on=key, suffix="_second", maintain_order="left")
            equal = int((shared["digest"] == shared["digest_second"]).sum())
            rows.append({"first": first, "second": second, "method": method, "turns": shared.height, "equal": equal})
    columns = {"first": pl.String, "second": pl.String, "method": pl.String, "turns": pl.Int64, "equal": pl.Int64}
    return pl.DataFrame(rows, schema=columns)


def chain_over_tree(pairs: pl.DataFrame) -> Estimate:
    """Texts of the chain with equal first tokens, over those of DominoTree, paired, of the first folder with both."""
    chain, tree = (pairs.filter(pl.col("method") == method) for method in (CHAIN, TREE))
    folders = chain.join(tree, on="folder", how="semi", maintain_order="left")["folder"]
    own, other = (frame.filter(pl.col("folder") == folders[0]) for frame in (chain, tree))
    return prompt_ratio(
        own.join(other, on=TURN, suffix="_tree", maintain_order="left"), head_equal=1, head_equal_tree=-1
    )


def _ladder(files: ReleasedFiles, texts: pl.DataFrame) -> Iterator[ComparedFigure]:
    """The acceptance lengths that their ladder states, of both builders."""
    for folder in texts["folder"].unique(maintain_order=True):
        for rung, method in enumerate(_RUNGS if folder.startswith(_LADDER) else ()):
            own = texts.filter((pl.col("folder") == folder) & (pl.col("method") == method))
            pattern = r"both configurations — " + r"\d+\.\d+ → " * rung + r"(\d+\.\d+)"
            name = f"{method}, {folder.rpartition('/')[2]}: mean of datasets' macro averages"
            theirs = files.quoted_pattern(_README, pattern)
            yield ComparedFigure(name, mean_over_datasets(own, "mean", "one"), theirs)


def _text(rows: Sequence[Row]) -> str:
    columns = [
        ("as autoregressive decoding", "{label}"),
        ("", "{method}"),
        ("turns", "{turns}"),
        ("first tokens equal", "{head_equal}"),
        ("% [95 %]", "{head_equal_share:0%}"),
        ("digest", "{digest_equal}"),
        ("equal, at least", "{surely_equal}"),
        ("at most", "{possibly_equal}"),
        ("diverge per 1,000", "{diverges:1k}"),
    ]
    labelled = [row | {"label": _LABELS[row["folder"]]} for row in rows]
    after_end = {row["label"]: "{label} {after_end} of {ends}".format_map(row) for row in labelled}
    note = (
        f"First tokens equal: no difference in the first {HEAD}, or in all of a shorter text up to its end. Digest: "
        "of the whole text. Their digests count a token after the end-of-sequence token where a round committed one; "
        f"of texts that end within {HEAD} tokens (last method of each): {'; '.join(after_end.values())}. So digests "
        "differ of texts that are equal: at least and at most say how many whole texts are. Diverge: first differences "
        "per 1,000 tokens before which none was. Ladder: three ways to score nodes; builder: the code that makes the "
        "tree of the scores."
    )
    return f"{table('llr', columns, labelled)}\n{within_width(note)}"


def _datasets_text(rows: Sequence[Row]) -> str:
    """Texts with equal first tokens by dataset and method, of the first folder."""
    equal: dict[str, Row] = {}
    for row in rows:
        equal.setdefault(row["dataset"], row | {"equal": []})["equal"].append(row["head_equal"])
    methods = dict.fromkeys(row["method"] for row in rows)
    columns = [(f"first tokens equal, {_LABELS[rows[0]['folder']]}", "{dataset}"), ("turns", "{turns}")]
    columns += [(method, f"{{equal[{at}]}}") for at, method in enumerate(methods)]
    return table("lr", columns, equal.values())


def _repeated_text(repeated: pl.DataFrame) -> str:
    rows = [row | {"folders": f"{_LABELS[row['first']]} and {_LABELS[row['second']]}"} for row in repeated.to_dicts()]
    columns = [("equal digests in two folders", "{folders}"), ("", "{method}"), ("", "{equal} of {turns}")]
    return table("llr", columns, rows)
