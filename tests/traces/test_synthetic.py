"""Made-up traces: the same as ever for the same seed, in order, and with the ids of what a reader finds."""

from pathlib import Path

import numpy as np
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from synthetic_traces import (
    DRAFT,
    SyntheticHeads,
    shards_of,
    synthetic_manifest,
    synthetic_sequences,
    write_synthetic_trace,
)

from simlab.traces.inspect import check_trace
from simlab.traces.reader import open_trace
from simlab.traces.writer import TraceWriter


def test_the_same_seed_gives_the_trace_that_it_always_gave(tmp_path: Path) -> None:
    trace = open_trace(write_synthetic_trace(tmp_path / "trace"))
    assert (trace.text_id, trace.draft_ids[DRAFT]) == ("0c8047a5266cf257", "71a2ae6b3e76874e")
    assert trace.manifest.held().shards == (2, 3, 3)


@pytest.mark.parametrize("num_sequences", [0, 1, 5, 13])
def test_ids_are_of_what_a_reader_finds(tmp_path: Path, num_sequences: int) -> None:
    made = write_synthetic_trace(tmp_path / "made", num_sequences=num_sequences, length=15, kept=9)
    records = synthetic_sequences(num_sequences=num_sequences, length=15, kept=9)
    shards = list(shards_of(records, 2)) or [[]]
    writer = TraceWriter(tmp_path / "recorded", synthetic_manifest(length=15, kept=9), len(shards), resume=False)
    for shard, part in enumerate(shards):
        writer.write(shard, part)
    writer.finish({})
    found, expected = open_trace(made), open_trace(tmp_path / "recorded")
    assert (found.text_id, found.draft_ids) == (expected.text_id, expected.draft_ids)
    assert found.manifest.held().shards == expected.manifest.held().shards
    assert check_trace(made)["text_id"] == found.text_id


def test_a_made_up_trace_is_gone_on_with_by_reading_back(tmp_path: Path) -> None:
    shards = list(shards_of(synthetic_sequences(num_sequences=8, length=15, kept=9), 2))
    manifest, folder = synthetic_manifest(length=15, kept=9), tmp_path / "trace"
    TraceWriter(folder, manifest, len(shards), resume=False, is_made_up=True).write(1, shards[1])
    writer = TraceWriter(folder, manifest, len(shards), resume=True, is_made_up=True)
    for shard in (0, 2):
        writer.write(shard, shards[shard])
    writer.finish({})
    whole = open_trace(write_synthetic_trace(tmp_path / "whole", num_sequences=8, length=15, kept=9))
    assert (open_trace(folder).text_id, open_trace(folder).draft_ids) == (whole.text_id, whole.draft_ids)


@settings(max_examples=examples(40))
@given(
    seed=st.integers(0, 999), vocab_size=st.integers(2, 40), peak=st.floats(0, 3), ties=st.floats(0, 1), data=st.data()
)
def test_candidates_stand_in_order_and_true_ranks_are_theirs(
    seed: int, vocab_size: int, peak: float, ties: float, data: st.DataObject
) -> None:
    kept = data.draw(st.integers(1, vocab_size))
    heads = SyntheticHeads(peak=peak, tie_share=ties)
    for record in synthetic_sequences(seed, 2, 6, 3, kept, vocab_size, heads):
        draft, begin = record.drafts[DRAFT], 0
        for row, counts in enumerate(draft.counts):
            for depth, count in enumerate(counts.tolist()):
                ids, log_probs = draft.ids[begin : begin + count], draft.log_probs[begin : begin + count]
                begin += count
                assert np.lexsort((ids, -log_probs)).tolist() == list(range(count))
                assert len(set(ids.tolist())) == count
                rank = int(draft.true_rank[row, depth])
                if draft.valid[row, depth]:
                    truth = int(record.text[row + depth + 1])
                    assert (truth in ids.tolist()) == (rank < count)
                    assert rank >= count or (ids[rank], log_probs[rank]) == (truth, draft.true_log_prob[row, depth])
