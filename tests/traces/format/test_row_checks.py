"""What every read and the writer refuse of rows is what plain Python refuses, number by number."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from row_oracle import changed, draft_is_broken, text_is_broken, tokens_are_broken
from synthetic_traces import DRAFT, SyntheticHeads, synthetic_manifest, synthetic_sequences

from simlab.errors import TraceError
from simlab.limits import MOST_SEED
from simlab.traces.format.checks import (
    WHOLE,
    check_texts,
    draft_fault,
    draft_problems,
    firsts_of,
    refuse,
    token_fault,
)
from simlab.traces.format.frames import SequenceRecord
from simlab.traces.format.manifest import Manifest
from simlab.traces.reader import open_trace
from simlab.traces.writer import TraceWriter

KEPT, LENGTH, VOCAB = 5, 9, 29
RECORDS = synthetic_sequences(3, 3, LENGTH, 3, KEPT, VOCAB, SyntheticHeads(tie_share=0.5, extra=3))
MANIFEST = synthetic_manifest(LENGTH, 3, KEPT, VOCAB)


def manifests() -> list[Manifest]:
    """The manifest; a target with more tokens than the drafter; a drafter that cannot propose all; texts cut short."""
    kept = MANIFEST.draft_sets[DRAFT]
    reduced = {DRAFT: replace(kept, draft_vocab_size=VOCAB - 2)}
    wide = {DRAFT: replace(kept, min_width=200)}
    return [
        MANIFEST,
        replace(MANIFEST, vocab_size=VOCAB + 8),
        replace(MANIFEST, draft_sets=reduced),
        replace(MANIFEST, draft_sets=wide),
        replace(MANIFEST, gt_mode="generated", max_new_tokens=LENGTH - 1),
        replace(MANIFEST, stop_token_ids=(0, 1)),
    ]


def is_refused(records: Sequence[SequenceRecord], manifest: Manifest) -> bool:
    """Whether a read of these rows would be refused."""
    columns = [record.drafts[DRAFT] for record in records]
    joined = type(columns[0]).concatenated(columns)
    try:
        check_texts(records, manifest, "here")
    except TraceError:
        return True
    rows = replace(joined.rows(), true_ranks=joined.true_rank)
    faults = [draft_fault(rows, joined.valid, records, manifest.draft_sets[DRAFT])]
    faults += [token_fault(one.tokens, one.text, manifest.vocab_size) for one in records if one.tokens is not None]
    return any(fault != WHOLE for fault, _ in faults)


def is_broken(records: Sequence[SequenceRecord], manifest: Manifest) -> bool:
    """Whether plain Python finds a fault in what a read is held to."""
    kept = manifest.draft_sets[DRAFT]
    return any(
        text_is_broken(one, manifest)
        or draft_is_broken(one, one.drafts[DRAFT], kept)
        or (one.tokens is not None and tokens_are_broken(one.tokens, one.text, manifest.vocab_size))
        for one in records
    )


FLOATS = [np.nan, np.inf, -np.inf, 0.0, -0.0, 2.0**-11, 1.0, -1.0, -255.0, -255.5, -300.0, -1e-7, -5e-4, -0.5]
RANKS = [-(2**31), -2, -1, 0, 1, KEPT - 1, KEPT, KEPT + 3, VOCAB - 3, VOCAB - 1, VOCAB, 2**31 - 1]
IDS = [-(2**31), -1, *range(VOCAB + 9), 2**31 - 1]
PLACES = st.integers(0, 10_000)
FAULTS = st.one_of(
    st.tuples(st.sampled_from(["ids"]), PLACES, st.sampled_from(IDS)),
    st.tuples(st.sampled_from(["ids", "log_probs"]), PLACES, st.just("next")),
    st.tuples(st.sampled_from(["log_probs", "entropy"]), PLACES, st.sampled_from(FLOATS)),
    st.tuples(st.just("true_rank"), PLACES, st.sampled_from(RANKS)),
    st.tuples(st.just("valid"), PLACES, st.booleans()),
    st.tuples(st.just("counts"), PLACES, st.just("moved")),
    st.tuples(st.sampled_from(["text", "prompt"]), PLACES, st.sampled_from(IDS)),
    st.tuples(st.just("stop_reason"), PLACES, st.sampled_from(["stop", "length"])),
    st.tuples(st.just("top_ids"), PLACES, st.sampled_from(IDS)),
    st.tuples(
        st.sampled_from(["top_log_probs", "log_prob", "tokens.entropy", "log_normaliser", "decision_gap"]),
        PLACES,
        st.sampled_from(FLOATS),
    ),
    st.tuples(st.sampled_from(["top_ids", "top_log_probs"]), PLACES, st.just("next")),
)


def planted(record: SequenceRecord, column: str, place: int, value: object) -> SequenceRecord:
    """A record with one fault, or with what looks like one."""
    draft, tokens = record.drafts[DRAFT], record.tokens
    name = column.removeprefix("tokens.")
    if column == "stop_reason":
        return replace(record, stop_reason=str(value))
    if column == "text":
        return replace(record, text=changed(record.text, place, value))
    if column == "prompt":
        return replace(record, prompt=replace(record.prompt, token_ids=changed(record.prompt.token_ids, place, value)))
    if column == name and hasattr(draft, name):
        if getattr(draft, name).size == 0:
            return record
        return replace(record, drafts={DRAFT: replace(draft, **{name: changed(getattr(draft, name), place, value)})})
    assert tokens is not None
    return replace(record, tokens=replace(tokens, **{name: changed(getattr(tokens, name), place, value)}))


@settings(max_examples=examples(800))
@given(
    manifest=st.one_of(
        st.sampled_from(manifests()[:2]), st.sampled_from(manifests()[:2]), st.sampled_from(manifests())
    ),
    faults=st.lists(st.tuples(st.integers(0, len(RECORDS) - 1), FAULTS), max_size=2),
)
def test_a_read_refuses_what_the_whole_check_refuses(
    manifest: Manifest, faults: list[tuple[int, tuple[str, int, object]]]
) -> None:
    records = list(RECORDS)
    for number, fault in faults:
        records[number] = planted(records[number], *fault)
    assert is_refused(records, manifest) == is_broken(records, manifest)


def test_what_is_whole_is_read() -> None:
    assert [is_broken(RECORDS, manifest) for manifest in manifests()][:2] == [False, False]
    assert [is_refused(RECORDS, manifest) for manifest in manifests()][:2] == [False, False]


@pytest.mark.parametrize("kept", [1, 2, 3, 64, 300])
def test_equal_ids_far_from_each_other_are_found(kept: int) -> None:
    records = synthetic_sequences(1, 2, 4, 2, kept, 997, SyntheticHeads(tie_share=0.0))
    manifest = synthetic_manifest(4, 2, kept, 997)
    assert not is_refused(records, manifest)
    draft = records[0].drafts[DRAFT]
    ids = draft.ids.copy()
    ids[int(draft.counts[0, 0]) - 1] = ids[0]
    twice = replace(records[0], drafts={DRAFT: replace(draft, ids=ids)})
    assert is_refused([twice, records[1]], manifest) == is_broken([twice], manifest) == (draft.counts[0, 0] > 1)


def test_the_sentence_says_where() -> None:
    draft = RECORDS[2].drafts[DRAFT]
    worse = replace(RECORDS[2], drafts={DRAFT: replace(draft, entropy=changed(draft.entropy, 3 * 3, np.nan))})
    columns = [*(record.drafts[DRAFT] for record in RECORDS[:2]), worse.drafts[DRAFT]]
    joined = type(draft).concatenated(columns)
    with pytest.raises(
        TraceError,
        match="here: sequence 2, position 3: entropy must be a number that is not negative. The trace is damaged",
    ):
        refuse(
            draft_fault(joined.rows(), joined.valid, [*RECORDS[:2], worse], MANIFEST.draft_sets[DRAFT]),
            firsts_of(RECORDS),
            RECORDS,
            "here",
        )
    said = list(draft_problems(worse, DRAFT, worse.drafts[DRAFT], MANIFEST.draft_sets[DRAFT]))
    assert said == ["sequence 2, synthetic: position 3: entropy must be a number that is not negative"]


def test_the_largest_seed_is_written_and_read(tmp_path: Path) -> None:
    """A seed that could not be stored would be met only when the first shard is written."""
    records = [replace(record, seed=MOST_SEED) for record in RECORDS]
    sampling = replace(MANIFEST.sampling, seed=MOST_SEED)
    writer = TraceWriter(tmp_path / "trace", replace(MANIFEST, sampling=sampling), 1, resume=False)
    writer.write(0, records)
    writer.finish({})
    trace = open_trace(tmp_path / "trace")
    assert [text.seed for text in trace.texts] == [MOST_SEED] * len(RECORDS)
    assert trace.manifest.sampling.seed == MOST_SEED
    for seed in (2**63, -(2**63), 10**400):
        with pytest.raises(ValueError, match="seed must be from"):
            replace(sampling, seed=seed)
