"""What every read and the writer refuse of a channel is what plain Python refuses, number by number."""

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from row_oracle import candidates_are_broken, changed, pool_is_broken
from synthetic_traces import DRAFT, SyntheticHeads, synthetic_manifest, synthetic_sequences

from simlab.channels import BRANCHES, POOL, TRANSITIONS, PoolRows
from simlab.errors import TraceError
from simlab.recorded import RecordedSequence
from simlab.testing.random_texts import synthetic_branches, synthetic_pools, synthetic_transitions
from simlab.traces.channels import checks
from simlab.traces.channels.checks import (
    CHANNEL_WORDS,
    branch_fault,
    pool_fault,
    transition_fault,
    transition_shape,
)
from simlab.traces.channels.columns import BranchColumns, ChannelColumns, PoolColumns, TransitionColumns
from simlab.traces.format.checks import WHOLE, firsts_of, refuse
from simlab.traces.format.frames import DraftColumns
from simlab.traces.format.manifest import Manifest
from simlab.traces.format.manifest_entries import BASE_RANK, ChannelInfo, ModelInfo

KEPT, LENGTH, VOCAB, DEPTH = 5, 7, 29, 3
RECORDS = synthetic_sequences(3, 3, LENGTH, DEPTH, KEPT, VOCAB, SyntheticHeads(tie_share=0.5, extra=3))
TEXTS = [record.recorded(DRAFT) for record in RECORDS]
MANIFEST = synthetic_manifest(LENGTH, DEPTH, KEPT, VOCAB)
PRODUCER = ModelInfo("made up", "", "digest")
OF_ROWS = ChannelInfo(
    TRANSITIONS, PRODUCER, DRAFT, "id", {"depth": DEPTH, "previous": 4, "top_k": 6, "order": BASE_RANK}, "float32"
)
OF_NODES = ChannelInfo(POOL, PRODUCER, None, None, {"depth": 4, "top_k": 3, "beam": 2}, "float32")


def transitions_of(text: RecordedSequence, tied: bool) -> TransitionColumns:
    return TransitionColumns(*synthetic_transitions(text, 4, 6, VOCAB, tied))


BASE = DraftColumns.concatenated([record.drafts[DRAFT] for record in RECORDS]).rows()
COLUMNS = {tied: [transitions_of(text, tied) for text in TEXTS] for tied in (False, True)}
POOLS = {tied: [synthetic_pools(text, 4, 3, VOCAB, 2, 0, tied) for text in TEXTS] for tied in (False, True)}

OF_BRANCHES = ChannelInfo(BRANCHES, PRODUCER, DRAFT, "id", {"depth": DEPTH, "branches": DEPTH, "top_k": 6}, "float32")
BRANCHED = {
    tied: [BranchColumns(*synthetic_branches(text, DEPTH, 6, VOCAB, tied)) for text in TEXTS] for tied in (False, True)
}

FLOATS = [np.nan, -np.inf, 0.0, 2.0**-11, 1.0, -1.0, -255.0, -255.5, -1e-7, -0.5]
IDS = [-(2**31), -1, *range(VOCAB + 2), 2**31 - 1]
PLACES = st.integers(0, 10_000)


Faults = list[tuple[int, tuple[str, int, object]]]


def planted(rows: Sequence[object], names: Sequence[str], faults: Faults) -> list[dict[str, np.ndarray]]:
    """The arrays of each text, with faults in them, or what looks like one."""
    arrays = [{name: getattr(one, name) for name in names} for one in rows]
    for number, (name, index, value) in faults:
        if arrays[number][name].size:
            arrays[number][name] = changed(arrays[number][name], index, value)
    return arrays


def joined(arrays: list[dict[str, np.ndarray]]) -> dict[str, np.ndarray]:
    return {name: np.concatenate([array[name] for array in arrays]) for name in arrays[0]}


def rows_are_broken(array: dict[str, np.ndarray], vocab_size: int) -> bool:
    rows = zip(array["ids"], array["log_probs"], strict=True)
    return any(candidates_are_broken(ids.tolist(), log_probs, vocab_size) for ids, log_probs in rows)


def check_writer(
    text: RecordedSequence,
    whole: ChannelColumns,
    array: dict[str, np.ndarray],
    info: ChannelInfo,
    broken: bool,
    manifest: Manifest = MANIFEST,
) -> None:
    """The writer says where, if plain Python finds a fault; arrays that cannot be rows have one."""
    try:
        columns = replace(whole, rows=replace(whole.rows, **array))  # type: ignore[arg-type]
    except ValueError:
        assert broken
        return
    assert ("position" in str(checks.find_channel_problem(text, columns, info, manifest))) == broken


FAULTS_OF_BRANCHES = st.one_of(
    st.tuples(st.just("ids"), PLACES, st.sampled_from(IDS)),
    st.tuples(st.sampled_from(["ids", "log_probs"]), PLACES, st.just("next")),
    st.tuples(st.just("log_probs"), PLACES, st.sampled_from(FLOATS)),
)
FAULTS_OF_ROWS = st.one_of(
    FAULTS_OF_BRANCHES, st.tuples(st.just("previous"), PLACES, st.one_of(st.sampled_from(IDS), st.just("next")))
)
FAULTS_OF_NODES = st.one_of(
    st.tuples(st.sampled_from(["tokens", "parents"]), PLACES, st.sampled_from(IDS)),
    st.tuples(st.sampled_from(["tokens", "parents", "log_probs"]), PLACES, st.just("next")),
    st.tuples(st.just("log_probs"), PLACES, st.sampled_from(FLOATS)),
    st.tuples(st.just("expanded"), PLACES, st.just("turned")),
)


def some_of(faults: st.SearchStrategy[tuple[str, int, object]]) -> st.SearchStrategy[Faults]:
    return st.lists(st.tuples(st.integers(0, len(TEXTS) - 1), faults), max_size=2)


@settings(max_examples=examples(300))
@given(tied=st.booleans(), size=st.sampled_from([VOCAB, VOCAB - 3]), faults=some_of(FAULTS_OF_ROWS))
def test_a_read_of_transitions_refuses_what_the_whole_check_refuses(tied: bool, size: int, faults: Faults) -> None:
    manifest = replace(MANIFEST, draft_sets={DRAFT: replace(MANIFEST.draft_sets[DRAFT], vocab_size=size)})
    arrays, broken = planted([one.rows for one in COLUMNS[tied]], ("previous", "ids", "log_probs"), faults), []
    for text, array, whole in zip(TEXTS, arrays, COLUMNS[tied], strict=True):
        broken.append(not np.array_equal(array["previous"], whole.rows.previous) or rows_are_broken(array, size))
        check_writer(text, whole, array, OF_ROWS, broken[-1], manifest)
    shape = transition_shape(OF_ROWS, manifest)
    assert (transition_fault(**joined(arrays), base=BASE, shape=shape)[0] != WHOLE) == any(broken)
    if not any(broken):
        assert transition_fault(**joined(arrays), base=None, shape=shape)[0] == WHOLE


@settings(max_examples=examples(300))
@given(
    tied=st.booleans(),
    info=st.sampled_from(
        [
            OF_NODES,
            replace(OF_NODES, settings={"depth": 3, "top_k": 3}),
            replace(OF_NODES, settings={"depth": 4, "top_k": 2}),
            replace(OF_NODES, settings={"depth": 5}),
        ]
    ),
    faults=some_of(FAULTS_OF_NODES),
)
def test_a_read_of_pools_refuses_what_the_whole_check_refuses(tied: bool, info: ChannelInfo, faults: Faults) -> None:
    arrays = planted(POOLS[tied], PoolRows.__slots__, faults)
    limits = info.setting("depth"), info.setting("top_k"), VOCAB
    broken = [pool_is_broken(SimpleNamespace(**array), *limits) for array in arrays]  # type: ignore[arg-type]
    for text, pool, array, own in zip(TEXTS, POOLS[tied], arrays, broken, strict=True):
        check_writer(text, PoolColumns.unlabelled(pool), array, info, own)
    assert (pool_fault(tuple(joined(arrays).values()), info, VOCAB)[0] != WHOLE) == any(broken)  # type: ignore[arg-type]


@settings(max_examples=examples(300))
@given(tied=st.booleans(), faults=some_of(FAULTS_OF_BRANCHES))
def test_a_read_of_branches_refuses_what_the_whole_check_refuses(tied: bool, faults: Faults) -> None:
    arrays = planted([one.rows for one in BRANCHED[tied]], ("ids", "log_probs"), faults)
    broken = [rows_are_broken(array, VOCAB) for array in arrays]
    for text, whole, array, own in zip(TEXTS, BRANCHED[tied], arrays, broken, strict=True):
        check_writer(text, whole, array, OF_BRANCHES, own)
    assert (branch_fault(**joined(arrays), num_rows=DEPTH * (DEPTH + 1) // 2, vocab_size=VOCAB)[0] != WHOLE) == any(
        broken
    )


def test_what_only_the_whole_check_refuses_of_branches() -> None:
    columns = BRANCHED[False][0]
    assert problem(columns, OF_BRANCHES) == "None"
    assert "must add up to 1" in problem(replace(columns, outside_log_mass=columns.outside_log_mass * 0), OF_BRANCHES)
    assert "from -255 to 0" in problem(replace(columns, outside_log_mass=columns.outside_log_mass + 9), OF_BRANCHES)
    fewer = replace(OF_BRANCHES, settings={"depth": DEPTH, "branches": 2, "top_k": 6})
    assert "every root has branches behind 0 to 1 tokens" in problem(columns, fewer)
    wider = replace(OF_BRANCHES, settings={"depth": DEPTH, "branches": 3, "top_k": 7})
    assert "with 7 candidates a row; got 3 and 6" in problem(columns, wider)
    assert "expected branches; got transitions" in problem(COLUMNS[False][0], OF_BRANCHES)


def test_the_sentence_says_where() -> None:
    arrays = planted([one.rows for one in COLUMNS[False]], ("previous", "ids", "log_probs"), [])
    arrays[2]["ids"] = changed(arrays[2]["ids"], 3 * 9 * 6 + 1, VOCAB)
    fault = transition_fault(**joined(arrays), base=BASE, shape=transition_shape(OF_ROWS, MANIFEST))
    with pytest.raises(TraceError, match="here: sequence 2, position 3: an id lies outside the vocabulary"):
        refuse(fault, firsts_of(RECORDS), RECORDS, "here", CHANNEL_WORDS)


def problem(columns: ChannelColumns, info: ChannelInfo) -> str:
    return str(checks.find_channel_problem(TEXTS[0], columns, info, MANIFEST))


def test_what_only_the_whole_check_refuses() -> None:
    columns, pools = COLUMNS[False][0], POOLS[False][0]
    labelled = np.ones(len(pools), np.bool_)
    assert problem(columns, OF_ROWS) == problem(PoolColumns.unlabelled(pools), OF_NODES) == "None"
    assert "must add up to 1" in problem(replace(columns, outside_log_mass=columns.outside_log_mass * 0), OF_ROWS)
    assert "from -255 to 0" in problem(replace(columns, outside_log_mass=columns.outside_log_mass + 9), OF_ROWS)
    heavy = PoolColumns.unlabelled(replace(pools, log_probs=pools.log_probs * 0, tokens=ascending(pools)))
    assert "more than the whole mass" in problem(heavy, OF_NODES)
    above = PoolColumns(pools, np.ones(len(pools.tokens), np.float32), labelled)
    assert "target_log_probs must lie from -255 to 0" in problem(above, OF_NODES)
    assert "expected pool; got transitions" in problem(columns, OF_NODES)
    assert "expected 6 rows" in problem(COLUMNS[False][1], OF_ROWS)
    fewer = TransitionColumns(*synthetic_transitions(TEXTS[0], 3, 6, VOCAB))
    assert "every root has 1 + 4 + 4 rows" in problem(fewer, OF_ROWS)
    narrower = TransitionColumns(*synthetic_transitions(TEXTS[0], 4, 5, VOCAB))
    assert "every row has 6 candidates; got 5" in problem(narrower, OF_ROWS)
    with pytest.raises(ValueError, match="beside the rows of the draft set"):
        checks.find_channel_problem(replace(TEXTS[0], rows=None), columns, OF_ROWS, MANIFEST)


def ascending(pools: PoolRows) -> np.ndarray:
    """Tokens that rise within each run of siblings."""
    return (np.arange(len(pools.tokens)) % 3).astype(np.int32)
