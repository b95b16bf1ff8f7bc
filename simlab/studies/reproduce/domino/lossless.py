"""Where texts of tree drafting diverge from those of autoregressive decoding, at temperature 0 in bfloat16.

Released are the first 128 token ids of each text, and a digest of the whole text. A difference is no fault by itself:
in reduced precision a near-tie of the target may fall the other way in a pass of another shape. To tell the two apart
takes the target's logits.
"""

from collections.abc import Iterator, Sequence
from functools import partial
from itertools import product

import polars as pl

from simlab.analysis.table.estimates import Estimate, mean_over_datasets, prompt_ratio, prompt_share
from simlab.analysis.table.text import within_width
from simlab.studies.reproduce.domino.records import BLOCK, DATASETS, TREE, TURN, Figure, read_turns, rows_by
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.released import ComparedFigure, Findings, ReleasedFiles, Row, flat, table

END_OF_TEXT = 151_645
"""The token that ends a turn of Qwen3."""

HEAD = 128
"""Token ids that were released of each text, or all of a shorter text."""

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

_CURVE = tuple(range(0, HEAD + 1, 4))
_COUNTED = ("head_equal", "digest_equal", "surely_equal", "possibly_equal", "ends", "after_end")
_FIGURES: dict[str, Figure] = {
    **{name: pl.sum(name) for name in _COUNTED},
    "head_equal_share": partial(prompt_share, part="head_equal", whole="one"),
    # First differences per 1,000 tokens that could have been the first.
    "diverges_per_1000_tokens": {"diverges": 1, "thousands_at_risk": -1},
    "median_diverges_at": pl.col("diverges_at").filter(pl.col("diverges") == 1).median(),
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
    names = {
        f"{folder}/{dataset}_T0.0.jsonl": {"folder": folder, "model": model, "dataset": dataset}
        for (folder, model, _), dataset in product(SOURCES, DATASETS)
    }
    files.have([*(name for name in names if name in files.release.files), _README], options.progress)
    texts = read_turns(files, names)
    pairs = beside_autoregressive(texts)
    key, repeated = ["folder", "method", "dataset"], repeated_texts(texts)
    rows = [dict.fromkeys(key) | row for row in rows_by(pairs, key[:2], _FIGURES)]
    first = pairs.filter(pl.col("folder") == SOURCES[0][0]).partition_by("method", maintain_order=True)
    by_dataset = rows_by(pl.concat(first), key, _FIGURES)
    values = {
        "sources": [flat(row) for row in rows],
        "datasets": [flat(row) for row in by_dataset],
        "repeated": repeated.to_dicts(),
        "chain_over_tree": chain_over_tree(pairs).row("ratio"),
        "needed": _NEEDED,
        "curves": _curves(pairs),
    }
    tables = [_text(rows), _datasets_text(by_dataset), _repeated_text(repeated), within_width(_NEEDED)]
    return Findings(list(_ladder(files, texts)), tables, values)


def beside_autoregressive(texts: pl.DataFrame) -> pl.DataFrame:
    """Each method's texts beside autoregressive decoding's, a row for each turn.

    ``diverges_at``: the first position that differs, or as many as were released and are equal. ``head_equal``: no
    difference in what was released, tokens after the end left out. ``surely_equal``: as a whole; ``possibly_equal``:
    not excluded. A digest is of the tokens after the end too, of which autoregressive decoding has none and a round at
    most a block: a longer text that ends beyond what was released may be equal up to its end.
    """
    ids, head, key = pl.col("head"), pl.col("head").list.len(), ["folder", *TURN]
    end = ids.list.eval((pl.element() == END_OF_TEXT).arg_max()).list.first()
    texts = texts.with_columns(ends=ids.list.contains(END_OF_TEXT))
    texts = texts.with_columns(head=pl.when("ends").then(ids.list.head(end + 1)).otherwise(ids))
    is_plain = pl.col("method") == "ar"
    paired = texts.filter(~is_plain).join(texts.filter(is_plain), on=key, suffix="_plain", maintain_order="left")
    longer_by, neither_ends = pl.col("tokens") - pl.col("tokens_plain"), ~pl.col("ends") & ~pl.col("ends_plain")
    paired = paired.with_columns(
        diverges_at=pl.struct("head", "head_plain").map_elements(_first_difference, return_dtype=pl.Int64),
        head_equal=ids == pl.col("head_plain"),
        digest_equal=pl.col("digest") == pl.col("digest_plain"),
        after_end=pl.col("ends") & (pl.col("tokens") > head),
    )
    equal, diverges = pl.col("head_equal"), ~pl.col("head_equal")
    surely = pl.col("digest_equal") | (equal & pl.col("ends") & pl.col("ends_plain"))
    return paired.with_columns(
        diverges=diverges.cast(pl.Int64),
        thousands_at_risk=(pl.col("diverges_at") + diverges.cast(pl.Int64)) / 1000,
        surely_equal=surely,
        possibly_equal=surely | (equal & longer_by.is_between(1, BLOCK) & neither_ends),
    )


def _first_difference(heads: Row) -> int:
    """Where two lists differ first; the length of the shorter where they do not."""
    shared = list(zip(heads["head"], heads["head_plain"], strict=False))
    return next((at for at, (own, other) in enumerate(shared) if own != other), len(shared))


def _curves(pairs: pl.DataFrame) -> list[Row]:
    """Share of the texts without a difference up to each position; a text that ended so remains so."""
    first = pl.when("head_equal").then(HEAD + 1).otherwise("diverges_at")
    shares = pl.concat_list((first >= position).mean().round(4) for position in _CURVE)
    return [
        {"folder": folder, "method": method, "positions": list(_CURVE), "head_equal": equal}
        for folder, method, equal in pairs.group_by("folder", "method", maintain_order=True).agg(shares).iter_rows()
    ]


def repeated_texts(texts: pl.DataFrame) -> pl.DataFrame:
    """How many digests of a method's texts are equal in the first folder of a model that has it and in each later one.

    Columns: first, second, method, turns, equal.
    """
    is_first = pl.col("folder") == pl.col("folder").first().over("model", "method")
    key = ["model", "method", *TURN]
    both = texts.filter(is_first).join(texts.filter(~is_first), on=key, suffix="_later", maintain_order="left_right")
    folders = (pl.col("folder").alias("first"), pl.col("folder_later").alias("second"))
    is_equal = pl.col("digest") == pl.col("digest_later")
    return both.group_by(*folders, "method", maintain_order=True).agg(turns=pl.len(), equal=is_equal.sum())


def chain_over_tree(pairs: pl.DataFrame) -> Estimate:
    """Texts of the chain with equal first tokens, over those of DominoTree, paired, of the first folder with both."""
    chain, tree = (pairs.filter(pl.col("method") == method) for method in ("chain", TREE))
    both = chain.join(tree, on=["folder", *TURN], suffix="_tree", maintain_order="left")
    return prompt_ratio(both.filter(pl.col("folder") == pl.col("folder").first()), head_equal=1, head_equal_tree=-1)


def _ladder(files: ReleasedFiles, texts: pl.DataFrame) -> Iterator[ComparedFigure]:
    """The acceptance lengths that their ladder states, of both builders."""
    for folder in (folder for folder in _LABELS if folder.startswith(_LADDER)):
        for rung, method in enumerate(_RUNGS):
            own = texts.filter(pl.col("folder") == folder, pl.col("method") == method)
            pattern = r"both configurations — " + r"\d+\.\d+ → " * rung + r"(\d+\.\d+)"
            name = f"{method}, {folder.rpartition('/')[2]}: mean of datasets' macro averages"
            theirs = files.quoted_pattern(_README, pattern)
            yield ComparedFigure(name, mean_over_datasets(own, "mean", "one"), theirs)


def _text(rows: Sequence[Row]) -> str:
    labelled = [row | {"label": _LABELS[row["folder"]]} for row in rows]
    after_end = {row["label"]: "{label} {after_end} of {ends}".format_map(row) for row in labelled}
    return table(
        "llr",
        "as autoregressive decoding = {label} | = {method} | turns = {turns} | "
        "first tokens equal = {head_equal} | % [95 %] = {head_equal_share:0%} | "
        "digest = {digest_equal} | equal, at least = {surely_equal} | at most = {possibly_equal} | "
        "diverge per 1,000 = {diverges_per_1000_tokens:1}",
        labelled,
        f"First tokens equal: no difference in the first {HEAD}, or in all of a shorter text up to its end. Digest: "
        "of the whole text. Their digests count a token after the end-of-sequence token where a round committed one; "
        f"of texts that end within {HEAD} tokens (last method of each): {'; '.join(after_end.values())}. So digests "
        "differ of texts that are equal: at least and at most say how many whole texts are. Diverge: first differences "
        "per 1,000 tokens before which none was. Ladder: three ways to score nodes; builder: the code that makes the "
        "tree of the scores.",
    )


def _datasets_text(rows: Sequence[Row]) -> str:
    """Texts with equal first tokens by dataset and method, of the first folder."""
    counts = pl.DataFrame([{name: row[name] for name in ("dataset", "turns", "method", "head_equal")} for row in rows])
    wide = counts.pivot("method", index=["dataset", "turns"], values="head_equal")
    first = f"first tokens equal, {_LABELS[rows[0]['folder']]}"
    columns = [(first if name == "dataset" else name, f"{{{name}}}") for name in wide.columns]
    return table("lr", columns, wide.to_dicts())


def _repeated_text(repeated: pl.DataFrame) -> str:
    rows = [row | {"folders": f"{_LABELS[row['first']]} and {_LABELS[row['second']]}"} for row in repeated.to_dicts()]
    return table("llr", "equal digests in two folders = {folders} | = {method} | = {equal} of {turns}", rows)
