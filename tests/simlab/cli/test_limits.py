"""What is too large or no number is refused at the door: one sentence, exit code 2, before any work."""

import json
import shutil
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from commands import refusal_of
from signed_files import signed

from simlab.limits import MAX_GIB
from simlab.traces.artefacts.cost import PACKAGED
from simlab.traces.format.files import file_sha256
from simlab.traces.reader import packaged_trace
from simlab.traces.results.rows import results_schema


def refused(*typed: str) -> str:
    """The sentence with which a command line is refused."""
    said = refusal_of(*typed)
    assert len(said) < 600
    return said


def rewritten(folder: Path, name: str, rows: pl.DataFrame) -> None:
    """Write a file into a copy of the packaged trace and make the manifest agree with its bytes."""
    rows.write_parquet(folder / name)
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["contents"]["files"][name] = {
        "num_bytes": (folder / name).stat().st_size,
        "sha256": file_sha256(folder / name),
    }
    (folder / "manifest.json").write_text(json.dumps(signed(manifest)))


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    return Path(shutil.copytree(packaged_trace(), tmp_path / "trace"))


@pytest.mark.parametrize("command", ["replay", "inspect"])
def test_a_shard_that_holds_more_than_its_texts_is_refused(trace: Path, command: str) -> None:
    name = "draft-dflash-0000.parquet"
    rows = pl.read_parquet(trace / name)
    typed = ["replay", "--trace", str(trace), "-p", "chain"] if command == "replay" else ["inspect", str(trace)]
    nothing = [pl.Series(key, [None], dtype=dtype).new_from_index(0, 500_000) for key, dtype in rows.schema.items()]
    rewritten(trace, name, pl.DataFrame(nothing))
    assert "expected 5,856 rows; found 500,000" in refused(*typed)
    long = pl.Series("ids", np.zeros(20_000_000, np.int32)).implode()
    rewritten(trace, name, pl.concat([rows.head(1).with_columns(long).select(rows.columns), rows.tail(-1)]))
    assert "expected at most 2,806,484 values of ids; found 22,8" in refused(*typed)


def test_sequences_that_are_more_than_the_shards_are_refused(trace: Path) -> None:
    rows = pl.read_parquet(trace / "sequences.parquet")
    nothing = [pl.Series(key, [None], dtype=dtype).new_from_index(0, 500_000) for key, dtype in rows.schema.items()]
    rewritten(trace, "sequences.parquet", pl.DataFrame(nothing))
    assert "expected 48 rows; found 500,000" in refused("replay", "--trace", str(trace), "-p", "chain")


@pytest.mark.parametrize("value", [3 * 10**9, 2**63, 10**400, -1])
@pytest.mark.parametrize(
    "path",
    [
        ("contents", "shards", 0),
        ("vocab_size",),
        ("max_new_tokens",),
        ("stop_token_ids", 0),
        ("draft_sets", "dflash", "depth"),
        ("draft_sets", "dflash", "vocab_size"),
        ("draft_sets", "dflash", "min_width"),
        ("draft_sets", "dflash", "exact_budget"),
    ],
    ids=lambda path: ".".join(map(str, path)),
)
def test_absurd_sizes_in_a_manifest_are_refused(trace: Path, path: tuple[str | int, ...], value: int) -> None:
    manifest = json.loads((trace / "manifest.json").read_text())
    holder = manifest
    for step in path[:-1]:
        holder = holder[step]
    holder[path[-1]] = value
    (trace / "manifest.json").write_text(json.dumps(signed(manifest)))
    refused("replay", "--trace", str(trace), "-p", "chain")


def stretched(folder: Path, key: str, number: str, value: int) -> Path:
    """The packaged cost file with its last context, or its last node count, moved."""
    values = json.loads((PACKAGED / "smollm2-135m-epyc-bfloat16.json").read_text())
    last, values[key][-1] = values[key][-1], value
    for row in values["samples"]:
        row[number] = value if row[number] == last else row[number]
    path = folder / "cost.json"
    path.write_text(json.dumps(signed(values)))
    return path


@pytest.mark.parametrize("value", [3 * 10**8, 2**31, 2**63, 10**400])
def test_prices_of_too_many_tokens_are_refused(tmp_path: Path, value: int) -> None:
    cost = stretched(tmp_path, "node_counts", "num_drafted", value)
    assert str(cost) in refused("replay", "-p", "chain", "--cost", str(cost))
    if value > 2**31:
        cost = stretched(tmp_path, "contexts", "context", value)
        assert str(cost) in refused("replay", "-p", "chain", "--cost", str(cost))


def test_tables_that_do_not_fit_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cost = stretched(tmp_path, "node_counts", "num_drafted", 1_000_000)
    monkeypatch.setenv(MAX_GIB, "1")
    said = refused("replay", "-p", "chain", "--cost", str(cost))
    assert "up to 1,000,000, at 5 contexts, would take 6.1 GiB" in said
    assert "give a latency profile of fewer, or set the environment variable SIMLAB_MAX_GIB" in said
    monkeypatch.setenv(MAX_GIB, "0.02")
    results, texts, counts = (tmp_path / f"{name}.parquet" for name in ("results", "texts", "counts"))
    nothing = [
        pl.Series(key, [None], dtype=dtype).new_from_index(0, 300_000) for key, dtype in results_schema().items()
    ]
    pl.DataFrame(nothing).write_parquet(results)
    ids = pl.Series(np.zeros(2_000_000, np.int32)).implode()
    pl.DataFrame({"prompt_ids": ids, "text_ids": ids}).write_parquet(texts)
    one = pl.Series([1], dtype=pl.Int32()).new_from_index(0, 2_000_000)
    metadata = {"simlab": json.dumps({"format": "simlab-ngram", "format_version": 1})}
    pl.DataFrame(dict.fromkeys(("first", "second", "third", "count"), one)).write_parquet(counts, metadata=metadata)
    for typed in (["inspect", str(results)], ["compare", str(results), str(results)], ["inspect", str(counts)]):
        assert "would take" in refused(*typed)
    assert "would take" in refused("train", "ngram", "--text", str(texts), "--out", str(tmp_path / "n.parquet"))
    assert results.stat().st_size + texts.stat().st_size + counts.stat().st_size < 500_000
