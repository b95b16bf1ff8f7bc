"""Damaged, truncated, foreign and future traces: one sentence each; broken invariants are named."""

import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from forged_files import forge
from signed_files import signed
from synthetic_traces import (
    DRAFT,
    SyntheticHeads,
    synthetic_manifest,
    synthetic_sequences,
    write_synthetic_trace,
)

from simlab.errors import TraceError
from simlab.traces.format.checks import find_problem
from simlab.traces.format.frames import DraftColumns, SequenceRecord, TokenRows
from simlab.traces.inspect import check_trace
from simlab.traces.reader import packaged_trace
from simlab.traces.writer import TraceWriter


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "trace"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic_trace(tmp_path_factory.mktemp("whole") / "trace", num_sequences=4, length=12, kept=8)


def sentence(place: Path) -> str:
    """What a person is told about a trace that cannot be used."""
    with pytest.raises(TraceError) as error:
        check_trace(place)
    assert "\n" not in str(error.value)
    assert str(error.value).endswith(".")
    return str(error.value)


@pytest.mark.parametrize("name", ["sequences.parquet", "tokens-0000.parquet", "draft-synthetic-0001.parquet"])
def test_a_flipped_byte_is_found_wherever_it_is(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    rng = random.Random(name)
    for index in [0, len(content) - 1, *(rng.randrange(len(content)) for _ in range(5))]:
        damaged = bytearray(content)
        damaged[index] ^= 1 << rng.randrange(8)
        (folder / name).write_bytes(damaged)
        assert name in sentence(folder)
        assert "damaged" in sentence(folder)


@pytest.mark.parametrize("name", ["sequences.parquet", "tokens-0001.parquet", "draft-synthetic-0000.parquet"])
def test_a_file_cut_short_or_missing_is_named(folder: Path, name: str) -> None:
    content = (folder / name).read_bytes()
    (folder / name).write_bytes(content[: len(content) // 2])
    assert f"{name} in {folder} has {len(content) // 2} bytes" in sentence(folder)
    (folder / name).unlink()
    assert f"{name} is missing" in sentence(folder)


def test_no_trace(tmp_path: Path, folder: Path) -> None:
    assert "there is nothing" in sentence(tmp_path / "nowhere")
    assert "is a file" in sentence(folder / "tokens-0000.parquet")
    (folder / "manifest.json").unlink()
    assert "holds no manifest.json, so it is no trace" in sentence(folder)


def test_an_unfinished_recording(tmp_path: Path) -> None:
    TraceWriter(tmp_path / "trace", synthetic_manifest(), 1, resume=False)
    assert "is not finished; finish it with" in sentence(tmp_path / "trace")


def test_manifests_of_others(folder: Path) -> None:
    path = folder / "manifest.json"
    ours = json.loads(path.read_text())

    def told(values: object) -> str:
        path.write_text(json.dumps(signed(values)))
        return sentence(folder)

    future = "has format version 2; this simlab reads up to 1. Upgrade simlab, or make it again"
    assert future in told(ours | {"format_version": 2, "target": "a name"})
    assert "is not of a simlab trace" in told({"name": "an extension of a browser"})
    assert "is not of a simlab trace" in told([1, 2])
    assert "lists no contents" in told(ours | {"contents": None})
    assert "'vocab_size' must be an integer; got 'many'" in told(ours | {"vocab_size": "many"})
    assert "gt_mode must be one of" in told(ours | {"gt_mode": "guessed"})
    without = {key: value for key, value in ours.items() if key != "sampling"}
    assert "expected the key 'sampling'" in told(without)
    path.write_text(json.dumps(ours)[:300])
    assert "is not JSON" in sentence(folder)
    path.write_bytes(b"\xff\xfe\x00" * 50)
    assert "manifest.json" in sentence(folder)
    path.write_bytes(b"")
    assert "manifest.json" in sentence(folder)


@pytest.mark.parametrize(
    ("column", "value", "said"),
    [
        ("stop_reason", pl.lit("bored"), "stop_reason must be one of"),
        ("text_token_ids", pl.lit([], pl.List(pl.Int32)), "at least one token"),
        ("seed", pl.lit(None, pl.Int64), "the column seed must not be null"),
        ("text_token_ids", pl.lit(None, pl.List(pl.Int32)), ""),
        ("prompt_token_ids", pl.lit([1, None], pl.List(pl.Int32)), ""),
    ],
)
def test_texts_that_are_none(folder: Path, column: str, value: pl.Expr, said: str) -> None:
    forge(folder, "sequences.parquet", lambda rows: rows.with_columns(value.alias(column)))
    told = sentence(folder)
    assert told.startswith(f"sequences.parquet in {folder} is damaged (")
    assert said in told
    assert told.endswith("; copy it again, or record again.")


def test_columns_of_another_format(folder: Path) -> None:
    forge(folder, "draft-synthetic-0000.parquet", lambda rows: rows.drop("ids"))
    assert "expected the column ids as List(Int32); found none" in sentence(folder)
    forge(folder, "draft-synthetic-0000.parquet", lambda rows: rows.with_columns(ids=pl.lit("a")))
    assert "expected the column ids as List(Int32); found String" in sentence(folder)


RECORD = synthetic_sequences(num_sequences=2, length=12, kept=8, heads=SyntheticHeads(tie_share=0.0))[0]
MANIFEST = synthetic_manifest(length=12, kept=8)


def draft_with(**changes: object) -> SequenceRecord:
    """The first record with changed draft columns."""
    return replace(RECORD, drafts={DRAFT: replace(RECORD.drafts[DRAFT], **changes)})  # type: ignore[arg-type]


def tokens_with(**changes: object) -> SequenceRecord:
    assert RECORD.tokens is not None
    return replace(RECORD, tokens=replace(RECORD.tokens, **changes))  # type: ignore[arg-type]


def swapped(values: np.ndarray) -> np.ndarray:
    """The first two elements exchanged."""
    return np.concatenate([values[[1, 0]], values[2:]])


DRAFT_COLUMNS: DraftColumns = RECORD.drafts[DRAFT]
TOKENS: TokenRows = RECORD.tokens  # type: ignore[assignment]
FEWER = np.concatenate([[7], DRAFT_COLUMNS.counts.ravel()[1:]]).reshape(DRAFT_COLUMNS.counts.shape).astype(np.int32)
FEW = slice(DRAFT_COLUMNS.counts[0, 0] - 7, None)


@pytest.mark.parametrize(
    ("record", "words"),
    [
        (replace(RECORD, text=np.where(np.arange(12) == 5, 0, RECORD.text).astype(np.int32)), "before the end"),
        (replace(RECORD, stop_reason="stop"), "stop_reason is 'stop'"),
        (replace(RECORD, text=(RECORD.text + 990).astype(np.int32)), "ids outside 0 ... 996"),
        (replace(RECORD, tokens=None), "token rows are missing"),
        (replace(RECORD, drafts={}), "disagree on the draft set"),
        (tokens_with(top_log_probs=TOKENS.top_log_probs[:, ::-1]), "not the one among the top"),
        (tokens_with(top_ids=np.zeros_like(TOKENS.top_ids)), "listed twice"),
        (tokens_with(decision_gap=-TOKENS.decision_gap), "decision_gap must not be negative"),
        (tokens_with(log_prob=TOKENS.log_prob - 1), "not the one among the top"),
        (tokens_with(entropy=TOKENS.entropy * np.float32("nan")), "must be finite"),
        (draft_with(context_length=DRAFT_COLUMNS.context_length + 1), "prompt length + position"),
        (draft_with(valid=np.ones_like(DRAFT_COLUMNS.valid)), "null past the end"),
        (draft_with(ids=DRAFT_COLUMNS.ids + 990), "outside the vocabulary"),
        (
            draft_with(counts=FEWER, ids=DRAFT_COLUMNS.ids[FEW], log_probs=DRAFT_COLUMNS.log_probs[FEW]),
            "from min_width",
        ),
        (draft_with(log_probs=swapped(DRAFT_COLUMNS.log_probs)), "in the order of log-prob descending"),
        (draft_with(ids=np.concatenate([DRAFT_COLUMNS.ids[[0, 1, 0]], DRAFT_COLUMNS.ids[3:]])), "listed twice"),
        (draft_with(log_probs=DRAFT_COLUMNS.log_probs - np.float32(1e-6)), "on the grid"),
        (draft_with(outside_log_mass=DRAFT_COLUMNS.outside_log_mass * 0), "must add up to 1"),
        (draft_with(outside_log_mass=DRAFT_COLUMNS.outside_log_mass - np.inf), "from -255 to 0"),
        (draft_with(true_rank=DRAFT_COLUMNS.true_rank + 1), "not the place of the true token"),
        (draft_with(true_rank=np.where(DRAFT_COLUMNS.true_rank < 14, DRAFT_COLUMNS.true_rank, -1)), "exactly where"),
        (draft_with(true_log_prob=np.full_like(DRAFT_COLUMNS.true_log_prob, -0.5)), "true_log_prob of a kept token"),
    ],
)
def test_a_broken_invariant_is_named_and_not_written(tmp_path: Path, record: SequenceRecord, words: str) -> None:
    assert find_problem(RECORD, MANIFEST) is None
    assert words in str(find_problem(record, MANIFEST))
    writer = TraceWriter(tmp_path / "trace", MANIFEST, 1, resume=False)
    with pytest.raises(ValueError, match="sequence 0"):
        writer.write(0, [record])
    assert not list(tmp_path.glob("trace/*.parquet"))


def test_arrays_are_checked_where_they_enter() -> None:
    with pytest.raises(ValueError, match="ids must be int32"):
        draft_with(ids=DRAFT_COLUMNS.ids.astype(np.int64))
    with pytest.raises(ValueError, match="top_log_probs must be float32"):
        tokens_with(top_log_probs=TOKENS.top_log_probs[1:])
    with pytest.raises(ValueError, match="at least one candidate"):
        draft_with(counts=DRAFT_COLUMNS.counts * 0, ids=DRAFT_COLUMNS.ids[:0], log_probs=DRAFT_COLUMNS.log_probs[:0])
    with pytest.raises(ValueError, match="at least one token"):
        replace(RECORD, text=RECORD.text[:0])
    with pytest.raises(ValueError, match="stop_reason"):
        replace(RECORD, stop_reason="bored")


def test_the_packaged_trace_is_whole() -> None:
    report = check_trace(packaged_trace())
    assert report["prompts"] >= 32
    assert report["bytes"] <= 28 * 2**20


STRANGE_NAMES = (
    "../victim.txt",
    "/etc/hostname",
    "deeper/tokens-0000.parquet",
    "tokens-0000.parquet/../../victim.txt",
    "draft-../../victim-0000.parquet",
    "draft-other-0000.parquet",
    "channel-other-0000.parquet",
    "tokens-0009.parquet",
    "tokens-00000.parquet",
    "tokens-synthetic-0000.parquet",
    "draft-0000.parquet",
    "manifest.json",
    "",
)


@pytest.mark.parametrize("name", STRANGE_NAMES)
def test_a_manifest_names_only_files_that_its_sets_and_shards_call_for(folder: Path, name: str) -> None:
    def listed(manifest: dict[str, Any]) -> None:
        manifest["contents"]["files"][name] = manifest["contents"]["files"]["tokens-0000.parquet"]

    resign(folder, listed)
    assert "is no file of its draft sets, channels and shards" in sentence(folder)


def resign(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a manifest, and sign it again."""
    manifest = json.loads((folder / "manifest.json").read_text())
    change(manifest)
    (folder / "manifest.json").write_text(json.dumps(signed(manifest)))
