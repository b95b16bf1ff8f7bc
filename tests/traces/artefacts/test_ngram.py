"""Counts on disk: what is written is read back, and nothing else is."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from counted_texts import probability

from simlab.arrays import Ints
from simlab.errors import TraceError
from simlab.policies.edges.ngram import counts_from_rows
from simlab.traces.artefacts.ngram import (
    NGramFile,
    find_packaged_ngram,
    packaged_ngram_files,
    read_ngram_file,
    write_ngram_file,
)
from simlab.traces.reader import open_trace, packaged_trace


def ints(*values: int) -> Ints:
    return np.array(values, np.int32)


def example() -> NGramFile:
    return NGramFile(
        tokenizer_digest="tokenizer",
        vocab_size=9,
        min_count=2,
        num_texts=3,
        num_tokens=40,
        source="source",
        firsts=ints(-1, -1, -1, 4),
        seconds=ints(-1, 2, 2, 2),
        thirds=ints(8, -1, 8, 0),
        counts=ints(30, 4, 3, 2),
    )


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "counts.parquet"
    write_ngram_file(path, example())
    found = read_ngram_file(path)
    assert found.facts() == example().facts()
    for name in ("firsts", "seconds", "thirds", "counts"):
        assert getattr(found, name).tolist() == getattr(example(), name).tolist()
    table = pl.read_parquet(path)
    assert table.columns == ["first", "second", "third", "count"]
    assert table.row(1) == (None, 2, None, 4)
    assert [one.name for one in path.parent.iterdir()] == ["counts.parquet"]


def test_equal_counts_give_equal_bytes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_ngram_file(tmp_path / name, example())
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_the_id_is_that_of_tokenizer_and_counts() -> None:
    one = example()
    others = [
        replace(one, tokenizer_digest="other"),
        replace(one, vocab_size=10),
        replace(one, counts=ints(30, 4, 3, 3)),
        replace(one, thirds=ints(8, -1, 7, 0)),
    ]
    assert len({file.ngram_id for file in [one, *others]}) == 5
    assert replace(one, source="elsewhere").ngram_id == one.ngram_id


@pytest.mark.parametrize(
    "wrong",
    [
        {"vocab_size": 8},
        {"counts": ints(30, 4, 0, 2)},
        {"counts": ints(30, 4, 3)},
        {"counts": np.array([30, 4, 3, 2])},
        {"thirds": ints(-1, -1, 8, 0)},
        {"thirds": ints(8, 8, 8, 0)},
        {"seconds": ints(-1, 2, -1, -1)},
        {"firsts": ints(-1, -1, 5, 4)},
        {"firsts": ints(-2, -1, -1, 4)},
    ],
)
def test_columns_that_do_not_fit_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"counts|ids|row"):
        replace(example(), **wrong)  # type: ignore[arg-type]


def altered(path: Path, table: pl.DataFrame | None = None, **facts: object) -> None:
    """Write a file whose facts, or whose columns, are others than they should be."""
    held = pl.read_parquet_metadata(path)["simlab"]
    for key, value in facts.items():
        held = held.replace(f'"{key}": {value[0]}', f'"{key}": {value[1]}')  # type: ignore[index]
    (pl.read_parquet(path) if table is None else table).write_parquet(path, metadata={"simlab": held})


def test_a_foreign_or_damaged_file_is_refused_in_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "counts.parquet"

    def refused(pattern: str) -> None:
        with pytest.raises(TraceError, match=pattern) as caught:
            read_ngram_file(path)
        assert "\n" not in str(caught.value)
        write_ngram_file(path, example())

    refused("there is no such file")
    path.write_bytes(path.read_bytes()[:-9])
    refused("damaged or does not hold")
    path.write_bytes(b"no parquet")
    refused("damaged or does not hold")
    path.write_bytes(b"")
    refused("damaged or does not hold")
    pl.DataFrame({"first": [1]}).write_parquet(path)
    refused("does not hold the counts")
    altered(path, format_version=(1, 2))
    refused("format version 2")
    altered(path, smoothing=('"witten-bell"', '"kneser-ney"'))
    refused("kneser-ney")
    altered(path, vocab_size=(9, 8))
    refused("ids must be below 8")
    altered(path, vocab_size=(9, 10))
    refused("not the ones it was written with")
    altered(path, vocab_size=(9, '"many"'))
    refused("vocab_size")
    altered(path, pl.read_parquet(path).with_columns(pl.col("count") + 1))
    refused("not the ones it was written with")
    altered(path, pl.read_parquet(path).with_columns(pl.col("count").cast(pl.Int64)))
    refused("int32 columns")
    altered(path, pl.read_parquet(path).reverse())
    refused("in the order")
    altered(path, pl.read_parquet(path).drop("first"))
    refused("int32 columns")


def test_the_shipped_counts_are_of_the_packaged_trace() -> None:
    manifest = open_trace(packaged_trace()).manifest
    file = find_packaged_ngram(manifest.tokenizer_digest)
    assert file is not None
    assert file.vocab_size == manifest.vocab_size
    assert file.ngram_id == read_ngram_file("smollm2-135m").ngram_id
    assert all(path.stat().st_size <= 3_000_000 for path in packaged_ngram_files())
    assert find_packaged_ngram("another") is None
    counts = counts_from_rows(file.firsts, file.seconds, file.thirds, file.counts, file.vocab_size)
    total = sum(probability(counts, 28, 253, token) for token in range(file.vocab_size))
    assert total == pytest.approx(1.0)
