"""A trace gives back what was written, whole or in part, from a folder or an address."""

from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from depth import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from synthetic_traces import (
    DRAFT,
    SyntheticHeads,
    shards_of,
    synthetic_manifest,
    synthetic_sequences,
    write_synthetic_trace,
)

from simlab.errors import TraceError
from simlab.traces.format.frames import DraftColumns, SequenceRecord, draft_digest, text_digest
from simlab.traces.inspect import check_trace
from simlab.traces.reader import Trace, open_trace
from simlab.traces.writer import TraceWriter


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic_trace(tmp_path_factory.mktemp("traces") / "with [brackets] and space", length=20)


def assert_same(found: SequenceRecord, expected: SequenceRecord) -> None:
    assert text_digest(found) == text_digest(expected)
    assert list(found.drafts) == list(expected.drafts)
    for name, draft in found.drafts.items():
        assert draft_digest(draft) == draft_digest(expected.drafts[name])
    assert found.tokens is not None
    assert expected.tokens is not None
    for entry in fields(found.tokens):
        np.testing.assert_array_equal(getattr(found.tokens, entry.name), getattr(expected.tokens, entry.name))


def assert_reads_as_written(trace: Trace, length: int = 20) -> None:
    expected = synthetic_sequences(length=length)
    for found, record in zip(trace.records([DRAFT]), expected, strict=True):
        assert_same(found, record)
    for recorded, record in zip(trace.recorded(DRAFT), expected, strict=True):
        rows = record.drafts[DRAFT].rows()
        assert recorded.rows is not None
        assert recorded.text.tolist() == record.text.tolist()
        assert (recorded.index, recorded.stop_reason) == (record.index, record.stop_reason)
        for name in ("ids", "log_probs", "counts", "true_ranks"):
            np.testing.assert_array_equal(getattr(recorded.rows, name), getattr(rows, name))
            assert not getattr(recorded.rows, name).flags.writeable


def test_a_trace_reads_back_as_it_was_written(folder: Path) -> None:
    assert_reads_as_written(open_trace(folder))


def test_a_file_address_is_the_folder(folder: Path) -> None:
    assert_reads_as_written(open_trace(folder.resolve().as_uri()))


def test_some_sequences_in_the_order_of_the_trace(folder: Path) -> None:
    trace = open_trace(folder)
    assert [recorded.index for recorded in trace.recorded(DRAFT, [6, 1])] == [1, 6]
    assert [recorded.index for recorded in trace.recorded(None, [6, 1])] == [1, 6]
    assert [index for index, _ in trace.token_rows([3])] == [3]
    assert all(recorded.rows is None for recorded in trace.recorded())
    with pytest.raises(ValueError, match="sequences 0 ... 7"):
        next(trace.recorded(DRAFT, [8]))


def test_draft_sets_are_asked_for_by_name(folder: Path) -> None:
    trace = open_trace(folder)
    assert trace.draft_name() == DRAFT
    with pytest.raises(TraceError, match="no draft set 'other'; it holds synthetic"):
        next(trace.recorded("other"))


def test_plain_polars_reads_every_file(folder: Path) -> None:
    trace = open_trace(folder)
    rows = pl.read_parquet(sorted(folder.glob("draft-synthetic-*.parquet")), glob=False)
    assert rows.schema["log_probs"] == pl.List(pl.Float32)
    assert len(rows) == sum(len(record.text) - 1 for record in trace.sequences())
    assert trace.scan(DRAFT).select(pl.len()).collect().item() == len(rows)
    assert trace.scan("tokens").select(pl.len()).collect().item() == len(rows) + len(trace.sequences())
    assert trace.scan("sequences").select(pl.len()).collect().item() == len(trace.sequences())
    assert rows["true_rank"].explode().null_count() > 0


@settings(max_examples=examples(15, quick=5), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 1000),
    num_sequences=st.integers(0, 5),
    length=st.integers(1, 6),
    depth=st.integers(1, 4),
    kept=st.integers(1, 8),
    vocab_size=st.sampled_from([8, 9, 40]),
    tie_share=st.sampled_from([0.0, 1.0]),
)
def test_odd_shapes_are_whole(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    num_sequences: int,
    length: int,
    depth: int,
    kept: int,
    vocab_size: int,
    tie_share: float,
) -> None:
    folder = tmp_path_factory.mktemp("odd") / "trace"
    heads = SyntheticHeads(tie_share=tie_share, peak=0.5)
    write_synthetic_trace(folder, seed, num_sequences, length, depth, kept, vocab_size, heads)
    assert check_trace(folder)["sequences"] == num_sequences


def test_ids_do_not_depend_on_the_shards(tmp_path: Path) -> None:
    trace = open_trace(write_synthetic_trace(tmp_path / "one", prompts_per_shard=1))
    many = open_trace(write_synthetic_trace(tmp_path / "many", prompts_per_shard=100))
    assert len(trace.manifest.held().shards) == 6
    assert len(many.manifest.held().shards) == 1
    assert (trace.text_id, trace.draft_ids) == (many.text_id, many.draft_ids)


def test_ids_depend_on_the_content(tmp_path: Path) -> None:
    trace = open_trace(write_synthetic_trace(tmp_path / "one", length=12))
    other = open_trace(write_synthetic_trace(tmp_path / "other", length=12, seed=1))
    assert trace.text_id != other.text_id
    assert trace.draft_ids != other.draft_ids


def test_texts_without_a_drafter(tmp_path: Path) -> None:
    records = [replace(record, drafts={}) for record in synthetic_sequences(num_sequences=4)]
    writer = TraceWriter(tmp_path / "trace", replace(synthetic_manifest(), draft_sets={}), 1, resume=False)
    writer.write(0, records)
    writer.finish({"seconds": 1.5})
    trace = open_trace(tmp_path / "trace")
    assert trace.draft_ids == {}
    assert trace.text_id == open_trace(write_synthetic_trace(tmp_path / "drafted", num_sequences=4)).text_id
    with pytest.raises(TraceError, match="0 draft sets"):
        trace.draft_name()


def test_turns_of_a_prompt_share_a_shard() -> None:
    shards = list(shards_of(synthetic_sequences(num_sequences=8), prompts_per_shard=1))
    assert [[record.prompt.turn for record in part] for part in shards] == [[0], [0], [0, 1]] * 2


# Columns of a drafter's rows put together from parts, and without a row


COLUMNS = synthetic_sequences(length=12)[0].drafts[DRAFT]


def part(first: int, last: int) -> DraftColumns:
    """Some rows of `COLUMNS`."""
    kept = COLUMNS.rows().part(first, last, COLUMNS.rows().starts())
    rows = {
        entry.name: getattr(COLUMNS, entry.name)[first:last]
        for entry in fields(COLUMNS)
        if entry.name not in ("ids", "log_probs")
    }
    return DraftColumns(ids=kept.ids, log_probs=kept.log_probs, **rows)


def assert_equal(found: DraftColumns, expected: DraftColumns) -> None:
    for entry in fields(DraftColumns):
        column = getattr(found, entry.name)
        np.testing.assert_array_equal(column, getattr(expected, entry.name))
        assert column.dtype == getattr(expected, entry.name).dtype
        assert not column.flags.writeable


def test_parts_of_a_text_give_the_whole_again() -> None:
    num = len(COLUMNS.counts)
    assert_equal(DraftColumns.concatenated([part(0, 3), part(3, 4), part(4, num)]), COLUMNS)
    assert_equal(DraftColumns.concatenated([COLUMNS]), COLUMNS)


def test_columns_without_a_row_add_nothing() -> None:
    depth = COLUMNS.counts.shape[1]
    none = DraftColumns.empty(depth)
    assert none.counts.shape == (0, depth)
    assert_equal(DraftColumns.concatenated([none, COLUMNS, none]), COLUMNS)
    assert_equal(DraftColumns.concatenated([none, none]), none)


def test_parts_that_do_not_fit_are_refused() -> None:
    with pytest.raises(ValueError, match="need at least one array"):
        DraftColumns.concatenated([])
    with pytest.raises(ValueError, match="dimension"):
        DraftColumns.concatenated([COLUMNS, DraftColumns.empty(COLUMNS.counts.shape[1] + 1)])
