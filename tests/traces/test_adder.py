"""Channels and draft sets that are added to a finished trace: read back, killed and resumed, and what changes no id."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from depth import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from killed_writers import Killed, kill_after
from signed_files import signed
from synthetic_traces import (
    DRAFT,
    SyntheticChannels,
    synthetic_manifest,
    synthetic_sequences,
    write_synthetic_trace,
)

from simlab import ChannelNeed, Draft, DraftTree, Needs, Stateless, check_needs, replay_sequence
from simlab.channels import (
    BRANCHES,
    FEATURES,
    POOL,
    TRANSITIONS,
    BranchRows,
    FeatureRows,
    PoolRows,
    TransitionRows,
    Transitions,
)
from simlab.errors import InUseError, MissingChannelError, TraceError
from simlab.recorded import RecordedSequence
from simlab.testing.random_texts import (
    synthetic_branches,
    synthetic_features,
    synthetic_pools,
    synthetic_transitions,
)
from simlab.traces.adder import ChannelAdder, DraftAdder, add_channel, add_draft
from simlab.traces.channels.columns import ChannelColumns, PoolColumns, TransitionColumns, channel_digest
from simlab.traces.format.frames import DraftColumns
from simlab.traces.format.lock import exclusive_lock
from simlab.traces.format.manifest_entries import BASE_RANK, ChannelInfo, ModelInfo
from simlab.traces.inspect import check_trace
from simlab.traces.reader import open_trace
from simlab.traces.writer import TraceWriter

LENGTH, KEPT, DEPTH, VOCAB = 9, 6, 3, 61
RECORDS = synthetic_sequences(0, 4, LENGTH, DEPTH, KEPT, VOCAB)
MANIFEST = synthetic_manifest(LENGTH, DEPTH, KEPT, VOCAB)
PRODUCER = ModelInfo("a head", "", "its digest")
OTHER = replace(MANIFEST.draft_sets[DRAFT], model=PRODUCER)
"""Another draft set: the same rows under another name."""


def write_trace(folder: Path) -> Path:
    return write_synthetic_trace(folder, 0, 4, LENGTH, DEPTH, KEPT, VOCAB)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_trace(tmp_path / "trace")


def of_rows(folder: Path, previous: int = 3, top_k: int = 4) -> ChannelInfo:
    chosen = {"depth": DEPTH, "previous": previous, "top_k": top_k, "order": BASE_RANK}
    return ChannelInfo(TRANSITIONS, PRODUCER, DRAFT, open_trace(folder).draft_ids[DRAFT], chosen, "float32")


def of_nodes(depth: int = 4, beam: int = 2) -> ChannelInfo:
    return ChannelInfo(POOL, PRODUCER, None, None, {"depth": depth, "top_k": 3, "beam": beam}, "bfloat16")


def transitions(recorded: RecordedSequence, previous: int = 3, top_k: int = 4) -> TransitionColumns:
    return TransitionColumns(*synthetic_transitions(recorded, previous, top_k, VOCAB))


def pools(recorded: RecordedSequence, depth: int = 4, beam: int = 2) -> PoolColumns:
    """Every second root has the target's log-probabilities; the rows of a drafter come from the records."""
    rows = synthetic_pools(RECORDS[recorded.index].recorded(DRAFT), depth, 3, VOCAB, beam)
    labels = np.linspace(-3, 0, len(rows.tokens), dtype=np.float32)
    return PoolColumns(rows, labels, np.arange(len(rows)) % 2 == 0)


def drafted(recorded: RecordedSequence) -> DraftColumns:
    return RECORDS[recorded.index].drafts[DRAFT]


def add_everything(folder: Path, resume: bool = True) -> None:
    add_channel(folder, "flash", of_rows(folder), transitions, resume)
    add_channel(folder, "eagle", of_nodes(), pools, resume)
    add_draft(folder, "other", OTHER, drafted, resume)


def bytes_of(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_was_added_is_read_back(folder: Path) -> None:
    before = open_trace(folder)
    add_everything(folder)
    trace = open_trace(folder)
    assert (trace.text_id, trace.draft_ids[DRAFT]) == (before.text_id, before.draft_ids[DRAFT])
    assert list(trace.channel_ids) == ["flash", "eagle"]
    for name, made in (("flash", transitions), ("eagle", pools)):
        for recorded, columns in trace.channel_columns(name):
            expected = made(RECORDS[recorded.index].recorded(DRAFT))
            assert channel_digest(columns) == channel_digest(expected)
    both = trace.recorded(DRAFT, channels=["eagle", "flash"])
    for recorded, record in zip(both, RECORDS, strict=True):
        assert list(recorded.channels) == ["eagle", "flash"]
        for name, made in (("flash", transitions), ("eagle", pools)):
            rows, wanted = recorded.channels[name], made(record.recorded(DRAFT)).rows
            assert type(rows) is type(wanted)
            for column in type(rows).__slots__:
                np.testing.assert_array_equal(getattr(rows, column), getattr(wanted, column))
                assert not getattr(rows, column).flags.writeable
    assert all(not recorded.channels for recorded in trace.recorded(DRAFT))
    for recorded, record in zip(trace.recorded("other"), RECORDS, strict=True):
        assert recorded.rows is not None
        np.testing.assert_array_equal(recorded.rows.ids, record.drafts[DRAFT].ids)
    report = check_trace(folder)
    num = sum(len(record.text) - 1 for record in RECORDS)
    assert [report["channels"][name]["num_rows"] for name in ("flash", "eagle")] == [num, num]
    assert report["channels"]["flash"]["num_scored"] == num * 7 * 4
    assert report["drafts"]["other"]["draft_id"] != report["drafts"][DRAFT]["draft_id"]
    assert trace.manifest.channels["eagle"].settings["exact_nodes"] == min(
        pools(record.recorded(DRAFT)).rows.exact_nodes(4) for record in RECORDS
    )


@settings(max_examples=examples(12, quick=5), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 1000),
    num_sequences=st.integers(0, 3),
    length=st.integers(1, 5),
    depth=st.integers(1, 3),
    channels=st.builds(SyntheticChannels, st.integers(1, 4), st.integers(1, 12), st.integers(1, 3)),
    vocab_size=st.sampled_from([9, 40]),
)
def test_odd_shapes_are_whole(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    num_sequences: int,
    length: int,
    depth: int,
    channels: SyntheticChannels,
    vocab_size: int,
) -> None:
    folder = tmp_path_factory.mktemp("odd") / "trace"
    channels = replace(channels, top_k=min(channels.top_k, vocab_size))
    write_synthetic_trace(folder, seed, num_sequences, length, depth, 4, vocab_size, channels=channels)
    report = check_trace(folder)
    names = [TRANSITIONS, POOL, BRANCHES, FEATURES]
    assert list(report["channels"]) == names
    texts = [sequence for sequence in open_trace(folder).recorded(DRAFT, channels=names) if len(sequence.text) > 1]
    for text in texts:
        made, rows = synthetic_branches(text, depth, channels.top_k, vocab_size)[0], text.channels[BRANCHES]
        assert isinstance(rows, BranchRows)
        assert rows.depth == made.depth
        for name in ("lengths", "ids", "log_probs"):
            np.testing.assert_array_equal(getattr(rows, name), getattr(made, name))
        features = text.channels[FEATURES]
        assert isinstance(features, FeatureRows)
        np.testing.assert_array_equal(features.values, synthetic_features(text, 2).values)
    assert all(isinstance(text.channels[POOL], PoolRows) for text in texts)
    assert all(isinstance(text.channels[TRANSITIONS], TransitionRows) for text in texts)


@pytest.mark.parametrize("add", [add_everything], ids=["all"])
def test_killed_anywhere_and_resumed_gives_the_same_bytes(tmp_path: Path, add: Callable[[Path], None]) -> None:
    whole = write_trace(tmp_path / "whole")
    plain = open_trace(whole)
    with pytest.MonkeyPatch.context() as patch:
        num_events = kill_after(patch, -1)
        add(whole)
    expected = bytes_of(whole)
    assert num_events() > 20
    assert not any(name.startswith(("unfinished", ".")) for name in expected)
    for point in range(1, num_events() + 1):
        folder = write_trace(tmp_path / f"killed-{point}")
        with pytest.MonkeyPatch.context() as patch:
            kill_after(patch, point)
            with pytest.raises(Killed):
                add(folder)
        found = open_trace(folder)
        assert (found.text_id, found.draft_ids[DRAFT]) == (plain.text_id, plain.draft_ids[DRAFT])
        assert len(list(found.recorded(DRAFT))) == len(RECORDS)
        add(folder)
        assert bytes_of(folder) == expected, f"killed at event {point}"
        shutil.rmtree(folder)


def test_a_finished_shard_is_not_made_again(folder: Path) -> None:
    adder = ChannelAdder(folder, "eagle", of_nodes(), resume=False)
    assert adder.missing() == [0, 1]
    adder.write(1, [pools(sequence) for sequence in adder.sequences(1)])
    with pytest.raises(TraceError, match="holds an unfinished channel-eagle; add --resume"):
        ChannelAdder(folder, "eagle", of_nodes(), resume=False)
    with pytest.raises(TraceError, match=r"unfinished channel-eagle with another settings.beam \(2 there, 1 here\)"):
        ChannelAdder(folder, "eagle", of_nodes(beam=1), resume=True)
    again = ChannelAdder(folder, "eagle", of_nodes(), resume=True)
    assert again.missing() == [0]
    with pytest.raises(ValueError, match=r"shards \[0\] are not written yet"):
        again.finish()
    with pytest.raises(ValueError, match="shard 1 is done"):
        again.write(1, [pools(sequence) for sequence in again.sequences(1)])
    assert open_trace(folder).channel_ids == {}


def test_a_name_is_taken_once(folder: Path) -> None:
    add_everything(folder, resume=False)
    before = bytes_of(folder)
    add_everything(folder, resume=True)
    assert bytes_of(folder) == before
    with pytest.raises(TraceError, match="holds channel-eagle; it is complete, so choose another name"):
        add_channel(folder, "eagle", of_nodes(), pools)
    with pytest.raises(TraceError, match="holds draft-other; it is complete"):
        add_draft(folder, "other", OTHER, drafted)
    with pytest.raises(TraceError, match=r"holds channel-eagle with another settings.depth \(4 there, 3 here\)"):
        add_channel(folder, "eagle", of_nodes(depth=3), pools, resume=True)
    with pytest.raises(TraceError, match="holds draft-other with another model.name"):
        add_draft(folder, "other", replace(OTHER, model=ModelInfo("third", "", "third")), drafted, resume=True)


def test_two_at_once_are_refused(folder: Path) -> None:
    with exclusive_lock(folder / "manifest.json"), pytest.raises(InUseError, match="another simlab is writing"):
        add_channel(folder, "eagle", of_nodes(), pools)


def test_a_recording_with_additions_is_repeated_without_them(folder: Path) -> None:
    add_everything(folder)
    ChannelAdder(folder, "half", of_nodes(), resume=False)
    before = bytes_of(folder)
    assert TraceWriter(folder, MANIFEST, 2, resume=True).is_complete
    assert bytes_of(folder) == before
    with pytest.raises(TraceError, match="another target.name"):
        TraceWriter(folder, replace(MANIFEST, target=PRODUCER), 2, resume=True)


def test_rows_that_break_an_invariant_are_not_written(folder: Path) -> None:
    def heavy(recorded: RecordedSequence) -> ChannelColumns:
        found = transitions(recorded)
        return replace(found, outside_log_mass=found.outside_log_mass * 0)

    before = open_trace(folder)
    with pytest.raises(ValueError, match="sequence 0: kept and outside mass of a row must add up to 1"):
        add_channel(folder, "flash", of_rows(folder), heavy)
    with pytest.raises(ValueError, match="expected transitions; got pool"):
        add_channel(folder, "flash", of_rows(folder), pools, resume=True)
    with pytest.raises(ValueError, match="other: context_length must be"):
        add_draft(
            folder,
            "other",
            OTHER,
            lambda sequence: replace(drafted(sequence), context_length=drafted(sequence).context_length + 1),
        )
    adder = DraftAdder(folder, "third", OTHER, resume=False)
    with pytest.raises(ValueError, match="a shard of 2 texts needs the rows of each; got 1"):
        adder.write(0, [RECORDS[0].drafts[DRAFT]])
    assert open_trace(folder).channel_ids == {}
    assert open_trace(folder).draft_ids == before.draft_ids


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"settings": {"depth": 3, "previous": 3, "order": BASE_RANK}}, "transitions need the setting top_k"),
        ({"settings": {"depth": 3, "previous": 256, "top_k": 4, "order": BASE_RANK}}, "from 1 to 255; got 256"),
        ({"settings": {"depth": 3, "previous": True, "top_k": 4, "order": BASE_RANK}}, "from 1 to 255; got True"),
        ({"settings": {"depth": 3, "previous": 3, "top_k": 4, "order": "mine"}}, "must be 'base-rank'; got 'mine'"),
        ({"settings": {"depth": 4, "previous": 3, "top_k": 4, "order": BASE_RANK}}, "its draft set has 3"),
        ({"settings": {"depth": 3, "previous": 7, "top_k": 4, "order": BASE_RANK}}, "keeps 6 for certain"),
        ({"extends": None, "extends_id": None}, "transitions extend a draft set"),
        ({"extends": None}, "extends_id exactly where"),
        ({"extends_id": "another"}, "extends the draft set synthetic with another id"),
        ({"extends": "unknown"}, "extends the draft set unknown with another id"),
        ({"positions": {"every": 10, "seed": 0}}, "at all positions"),
        ({"kind": "sketches"}, "of a kind that is known"),
    ],
    ids=str,
)
def test_what_cannot_be_added(folder: Path, changes: dict[str, object], words: str) -> None:
    info = of_rows(folder)
    with pytest.raises(ValueError, match=words):
        add_channel(folder, "flash", replace(info, **changes), transitions)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="name of a channel is lower-case"):
        add_channel(folder, "No Name", info, transitions)
    assert bytes_of(folder) == bytes_of(write_trace(folder.parent / "again"))


def test_kinds_of_a_newer_simlab_are_left_alone(folder: Path) -> None:
    """They are named, their files are compared with the manifest, and a policy that asks for one is refused."""
    add_channel(folder, "eagle", of_nodes(), pools)
    path = folder / "manifest.json"
    values = json.loads(path.read_text())
    values["channels"]["eagle"] |= {"kind": "routes", "settings": {"ways": [0, 1]}}
    path.write_text(json.dumps(signed(values)))
    trace = open_trace(folder)
    assert len(list(trace.recorded(DRAFT))) == len(RECORDS)
    assert not check_trace(folder)["channels"]["eagle"]["was_read"]
    with pytest.raises(MissingChannelError, match="is of the kind 'routes'"):
        next(trace.recorded(DRAFT, channels=["eagle"]))
    with pytest.raises(MissingChannelError, match="was declared as pool and recorded as routes"):
        check_needs(Wanting(("eagle", "pool")), trace.holds(DRAFT))
    known = "'routes', and this simlab reads transitions, pool, branches and features"
    with pytest.raises(MissingChannelError, match=known):
        check_needs(Wanting(("eagle", "routes")), trace.holds(DRAFT))
    (folder / "channel-eagle-0000.parquet").write_bytes(b"PAR1 nonsense")
    with pytest.raises(TraceError, match="cut short"):
        check_trace(folder)


class Wanting(Stateless):
    """A policy that reads one channel and follows its first rows."""

    budget = 3

    def __init__(self, need: tuple[str, str], **least: int) -> None:
        self.needs = Needs(top_k=1, channels=(ChannelNeed(*need, tuple(least.items())),))

    def __repr__(self) -> str:
        return "Wanting"

    def select(self, draft: Draft, state: None = None) -> DraftTree:
        (need,) = self.needs.channels
        channel = draft.channel(need.name)
        assert isinstance(channel, Transitions)
        token = channel.ids[0, 0]
        return DraftTree.chain(draft.root_token, [int(token)])


def test_narrower_settings_are_cut_from_a_recording(tmp_path: Path) -> None:
    """A replay of a wide recording is that of one that was recorded with what is declared."""
    wide, narrow = write_trace(tmp_path / "wide"), write_trace(tmp_path / "narrow")
    add_channel(wide, "flash", of_rows(wide, 4, 6), lambda sequence: transitions(sequence, 4, 6))
    add_channel(narrow, "flash", of_rows(narrow, 2, 3), lambda sequence: transitions(sequence, 2, 3))
    policy = Wanting(("flash", TRANSITIONS), previous=2, top_k=3)
    totals = []
    for folder in (wide, narrow):
        trace = open_trace(folder)
        check_needs(policy, trace.holds(DRAFT))
        totals.append([replay_sequence(policy, sequence) for sequence in trace.recorded(DRAFT, channels=["flash"])])
    assert totals[0] == totals[1]
    assert sum(total.accepted for total in totals[0]) > 0
    with pytest.raises(MissingChannelError, match=r"--add-channel flash-2=CHECKPOINT,previous=3,top_k=3`$"):
        check_needs(Wanting(("flash", TRANSITIONS), previous=3, top_k=3), open_trace(narrow).holds(DRAFT))
