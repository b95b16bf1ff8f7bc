"""A head's channel and a further drafter, added to a finished trace along its own texts."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_models
import torch
from commands import output_of, refusal_of
from random_heads import make_head
from safetensors.torch import load_file, save_file
from tiny_recordings import files_of, given_options, record_given

from simlab.channels import BranchRows, TransitionRows
from simlab.cli.main import main
from simlab.errors import MissingChannelError, ModelError, SimlabError, TraceError
from simlab.grid import STEPS_PER_NAT
from simlab.policies.named.d2sd import D2SD
from simlab.policies.named.jetspec_extended import JetSpecExtended
from simlab.real_runner.checkpoints.contents import checkpoint_digest
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.networks.drafter import save_drafter
from simlab.real_runner.networks.treeflash.head import TreeFlashHead, save_head
from simlab.real_runner.record.additions import ChannelOptions, DraftOptions, add
from simlab.real_runner.record.record import record
from simlab.recorded import RecordedSequence
from simlab.sequence_replay import check_needs, rounds
from simlab.traces.inspect import check_trace
from simlab.traces.reader import Trace, open_trace

WIDTH, DEPTH = 12, 3
INNER_SIZE = tiny_models.drafter_config().intermediate_size
SETTINGS = {"previous": 4, "top_k": 5}


def make_released(folder: Path, drafter: Path, head: Path) -> Path:
    """A drafter and its head in one checkpoint, in the released layout."""
    folder.mkdir()
    fields = json.loads((drafter / "config.json").read_text())
    fields |= {"architectures": ["TreeFlashDraftModel"], "treeflash_config": {"ar_approximation": "swiglu"}}
    (folder / "config.json").write_text(json.dumps(fields))
    tensors = {f"model.{name}": tensor for name, tensor in load_file(drafter / "model.safetensors").items()}
    save_file(tensors | load_file(head / "model.safetensors"), folder / "model.safetensors")
    return folder


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, and a trace of six prompts in three shards; one text is a single token."""
    folder = tmp_path_factory.mktemp("additions")
    _, drafter = record_given(folder, 6)
    tiny_models.make_drafter(folder / "other", block_size=3, seed=8)
    make_head(folder / "head", drafter, 3, INNER_SIZE)
    # A head as it is before training, when it corrects nothing.
    head = TreeFlashHead(tiny_models.HIDDEN_SIZE, INNER_SIZE)
    save_head(head, folder / "start", checkpoint_digest(drafter), torch.float32)
    return folder


def channel(
    made: Path, trace: Path, name: str = "flash", head: str = "head", settings: Mapping[str, int] | None = None
) -> Trace:
    """Add a channel, and prove the trace whole."""
    found = add(ChannelOptions(str(trace), name, str(made / head), settings=settings or SETTINGS))
    check_trace(trace)
    return found


def rows_of(trace: Trace, name: str, draft: str = "dflash") -> list[tuple[RecordedSequence, TransitionRows]]:
    found = []
    for sequence in trace.recorded(draft, channels=[name]):
        rows = sequence.channels[name]
        assert isinstance(rows, TransitionRows)
        found.append((sequence, rows))
    return found


def assert_same(one: object, other: object, names: Sequence[str]) -> None:
    for name in names:
        np.testing.assert_array_equal(getattr(one, name), getattr(other, name))


def test_a_head_that_corrects_nothing_says_what_was_recorded(made: Path, trace: Path) -> None:
    found = rows_of(channel(made, trace, head="start"), "flash")
    assert sum(len(rows) for _, rows in found) == sum(3 * i for i in range(6))
    for recorded, rows in found:
        assert recorded.rows is not None
        for base, row in zip(recorded.rows.rows(), rows.rows(), strict=True):
            assert row.num_rows.tolist() == [1, 4, 4]
            assert row.previous.tolist() == [*base.at(1)[0][:4], *base.at(2)[0][:4]]
            for number, depth in enumerate(np.repeat(np.arange(1, DEPTH + 1), row.num_rows)):
                ids, log_probs = base.at(int(depth))
                assert np.abs(row.log_probs[number] - log_probs[:5]).max() <= 2 / STEPS_PER_NAT
                tied = np.abs(np.diff(log_probs[:6])).min() <= 2 / STEPS_PER_NAT
                assert tied or row.ids[number].tolist() == ids[:5].tolist()


def test_the_manifest_says_what_was_added(made: Path, trace: Path) -> None:
    before = open_trace(trace)
    after = channel(made, trace, settings={**SETTINGS, "candidates": 9})
    info = after.manifest.channels["flash"]
    assert dict(info.settings) == {"depth": 3, "previous": 4, "top_k": 5, "order": "base-rank", "candidates": 9}
    assert info.producer.name == str(made / "head")
    assert info.producer.digest == checkpoint_digest(made / "head")
    assert (info.extends, info.extends_id, info.dtype) == ("dflash", before.draft_ids["dflash"], "float32")
    assert (after.text_id, after.draft_ids) == (before.text_id, before.draft_ids)
    assert "candidates" not in channel(made, trace, "all").manifest.channels["all"].settings


def test_an_added_drafter_is_what_recording_it_gives(made: Path, trace: Path) -> None:
    again = replace(given_options(made, trace.parent / "again"), draft=str(made / "other"))
    alone = open_trace(record(again))
    added = add(DraftOptions(str(trace), "other", str(made / "other"), min_width=WIDTH, exact_budget=20))
    check_trace(trace)
    assert added.text_id == alone.text_id
    assert added.draft_ids["other"] == alone.draft_ids["dflash"]
    assert added.manifest.draft_sets["other"] == alone.manifest.draft_sets["dflash"]
    name = "draft-{}-0001.parquet"
    assert (trace / name.format("other")).read_bytes() == (again.folder / name.format("dflash")).read_bytes()
    with pytest.raises(TraceError, match="holds dflash, other; choose with --draft-set dflash"):
        channel(made, trace)
    with pytest.raises(ModelError, match="or train a head for this one"):
        add(ChannelOptions(str(trace), "flash", str(made / "head"), settings=SETTINGS, draft_set="other"))
    add(ChannelOptions(str(trace), "flash", str(made / "head"), settings=SETTINGS, draft_set="dflash"))


def test_a_released_checkpoint_is_a_drafter_and_a_channel_of_it(made: Path, trace: Path) -> None:
    released = make_released(trace.parent / "released", made / "drafter", made / "head")
    with pytest.raises(ModelError, match="belongs to the drafter beside it"):
        add(ChannelOptions(str(trace), "flash", str(released), settings=SETTINGS))
    add(DraftOptions(str(trace), "released", str(released), min_width=WIDTH, exact_budget=20))
    both = add(ChannelOptions(str(trace), "flash", str(released), settings=SETTINGS, draft_set="released"))
    check_trace(trace)
    assert both.manifest.channels["flash"].extends == "released"
    add(ChannelOptions(str(trace), "same", str(made / "head"), settings=SETTINGS, draft_set="dflash"))
    ours, theirs = (rows_of(open_trace(trace), *names) for names in (("same", "dflash"), ("flash", "released")))
    for (_, rows), (_, other) in zip(ours, theirs, strict=True):
        assert_same(rows, other, ("num_rows", "previous", "ids", "log_probs"))


def refused(options: ChannelOptions | DraftOptions, error: type[SimlabError], said: str) -> None:
    """Refused in one sentence, and the trace is as it was."""
    before = files_of(Path(options.trace))
    with pytest.raises(error, match=said) as caught:
        add(options)
    assert "\n" not in str(caught.value)
    assert files_of(Path(options.trace)) == before


def test_what_does_not_belong_together_is_refused(made: Path, trace: Path) -> None:
    head = ChannelOptions(str(trace), "flash", str(made / "head"), settings=SETTINGS)
    another = make_head(trace.parent / "another", made / "other", 3)
    refused(replace(head, checkpoint=str(another)), ModelError, "or train a head for this one")
    refused(replace(head, draft=str(made / "other")), ModelError, "give that drafter with --draft")
    alone = replace(head, checkpoint=str(made / "drafter"))
    refused(alone, ModelError, "no setting previous; expected beam, top_k")
    refused(replace(alone, checkpoint=str(made / "other"), settings={"beam": 2}), ModelError, "--add-draft NAME=")
    target = tiny_models.make_target(trace.parent / "target", seed=5)
    refused(replace(head, target=str(target)), TraceError, "give that target with --target")
    wide = replace(head, settings={"previous": WIDTH + 1, "top_k": 4})
    refused(wide, TraceError, f"add previous={WIDTH} behind .* --min-width {WIDTH + 1}")
    wide = replace(head, settings={"previous": 4, "top_k": 4, "candidates": WIDTH + 1})
    refused(wide, TraceError, f"add candidates={WIDTH}")
    refused(replace(head, settings={"beam": 4}), ModelError, "no setting beam; expected previous, top_k, candidates")
    refused(replace(head, draft_set="dflsh"), TraceError, "did you mean `dflash`")
    other = DraftOptions(str(trace), "other", str(made / "other"))
    refused(replace(other, target=str(target)), TraceError, "give that target with --target")
    refused(replace(other, dtype="bfloat16"), TraceError, "leave --dtype out, or record anew with --text-from")
    refused(replace(other, name="dflash"), TraceError, "holds the draft set dflash already; choose another name")
    refused(
        replace(other, checkpoint=str(made / "head")),
        ModelError,
        "a TreeFlash head alone, which drafts beside the drafter",
    )


def test_the_command_adds_and_estimates(made: Path, trace: Path) -> None:
    typed = ("--trace", str(trace), "--add-channel", f"flash={made / 'head'},previous=4,top_k=5")
    before = files_of(trace)
    estimated = output_of("record", *typed, "--dry-run")
    assert "45 scored tokens at each" in estimated
    assert "roots           45" in estimated
    measured = output_of("record", *typed, "--dry-run", "sample")
    assert "expected size" in measured
    assert "expected time" in measured
    other = ("--trace", str(trace), "--add-draft", f"other={made / 'other'}", "--min-width", str(WIDTH))
    assert f"2 depths of {WIDTH} candidates or more" in output_of("record", *other, "--dry-run")
    assert "expected time" in output_of("record", *other, "--dry-run", "sample")
    assert files_of(trace) == before
    assert "Added: the channel flash" in output_of("record", *typed)
    assert "choose another name" in refusal_of("record", *typed)
    assert "Added" in output_of("record", *typed, "--resume")
    assert "--draft-set other -p ddtree" in output_of("record", *other)
    assert list(open_trace(trace).channel_ids) == ["flash"]
    assert main(["inspect", str(trace)]) == 0


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (("--trace", "t"), "say what with --add-channel or --add-draft"),
        (("--trace", "t", "--add-channel", "flash"), "expected NAME=CHECKPOINT"),
        (("--trace", "t", "--add-channel", "flash=h,topk=4"), "no setting 'topk'; did you mean `top_k`?"),
        (("--trace", "t", "--add-channel", "flash=h,top_k=0"), "at least 1"),
        (("--trace", "t", "--add-channel", "flash=h,top_k=4,top_k=5"), "is there twice"),
        (("--trace", "t", "--add-channel", "f=h", "--min-width", "8"), "--min-width can change nothing about --add-ch"),
        (("--trace", "t", "--add-channel", "f=h", "--batch-size", "32"), "--batch-size can change nothing about --add"),
        (("--trace", "t", "--add-draft", "f=h", "--draft", "d"), "--draft can change nothing about --add-draft"),
        (("--trace", "t", "--add-draft", "f=h", "--seed", "0", "--out", "o"), "--out, --seed can change nothing"),
        (("--trace", "t", "--add-draft", "f=h", "--device", "cpu,cpu"), "an addition runs on one device"),
        (("--trace", "t", "--add-draft", "F=h"), "the name of a draft set is lower-case"),
        (("--trace", "t", "--add-draft", "f=h", "--add-channel", "f=h"), "not allowed with"),
        (("--prompts", "p", "--add-draft", "f=h", "--out", "o"), "--add-draft adds to a finished trace"),
        (("--prompts", "p"), "required: --out"),
        (("--trace", "nowhere", "--add-draft", "f=h"), "nowhere"),
    ],
    ids=str,
)
def test_a_mistake_is_one_sentence(typed: tuple[str, ...], words: str) -> None:
    assert words in refusal_of("record", *typed)


def branch_rows(trace: Trace, name: str) -> list[BranchRows]:
    found = []
    for sequence in trace.recorded("dflash", channels=[name]):
        rows = sequence.channels[name]
        assert isinstance(rows, BranchRows)
        found.append(rows)
    return found


def test_another_drafter_redrafts_behind_every_beginning(made: Path, trace: Path) -> None:
    found = channel(made, trace, "d2sd", "other", {"top_k": 3})
    info, base = found.manifest.channels["d2sd"], found.manifest.draft_sets["dflash"]
    depth = 2
    assert info.kind == "branches"
    assert info.extends == "dflash"
    assert info.settings == {"depth": depth, "branches": min(base.depth, depth - 1) + 1, "top_k": 3}
    for rows in branch_rows(found, "d2sd"):
        assert (rows.lengths == np.arange(info.setting("branches"))).all()
        assert rows.ids.shape[1] == 3
    narrow = channel(made, trace, "narrow", "other", {"top_k": 1})
    for wide, row in zip(branch_rows(narrow, "d2sd"), branch_rows(narrow, "narrow"), strict=True):
        assert np.array_equal(wide.ids[:, :1], row.ids)
    policy = D2SD(10, branches=2, channel="d2sd")
    check_needs(policy, narrow.holds("dflash"))
    assert all(
        list(rounds(policy, sequence))
        for sequence in narrow.recorded("dflash", channels=["d2sd"])
        if len(sequence.text) > 1
    )
    for wrong, words in (
        (D2SD(10, branches=9), "asks for 9 branches, where a root has 2, all of which were recorded; give it fewer"),
        (D2SD(10, branches=2, width=4), "wants top_k 4 at least, where 3 was recorded; record it beside"),
    ):
        with pytest.raises(MissingChannelError, match=words):
            check_needs(wrong, narrow.holds("dflash"))


def test_a_second_drafter_that_does_not_fit_is_refused(made: Path, trace: Path) -> None:
    second = ChannelOptions(str(trace), "d2sd", str(made / "other"), settings={"top_k": 3})
    refused(replace(second, settings={"beam": 2}), ModelError, "or leave beam out: then it redrafts")
    refused(replace(second, settings={"top_k": 10**6}), ModelError, "give a smaller top_k")
    wider = trace.parent / "wider"
    save_drafter(DFlashDrafter(replace(tiny_models.drafter_config(), vocab_size=7777)), wider, torch.float32)
    refused(replace(second, checkpoint=str(wider)), ModelError, "made for a target with vocabulary 7777")


def test_the_branch_behind_the_whole_chain_is_added_alone_in_a_longer_block(made: Path, trace: Path) -> None:
    """It is the same as among those behind all beginnings; a drafter of its own block has nothing to say there."""
    depth = open_trace(trace).manifest.draft_sets["dflash"].depth
    block = 2 * depth + 1
    alone = channel(made, trace, "alone", "drafter", {"block": block, "whole": 1, "top_k": 3})
    every = channel(made, trace, "every", "drafter", {"block": block, "top_k": 3})
    info = alone.manifest.channels["alone"]
    assert info.settings == {"depth": 2 * depth, "branches": 1, "top_k": 3, "block": block, "whole": 1}
    assert every.manifest.channels["every"].setting("branches") == depth + 1
    for row, other in zip(branch_rows(alone, "alone"), branch_rows(every, "every"), strict=True):
        assert (row.lengths == depth).all()
        for own, beside in zip(row.rows(), other.rows(), strict=True):
            assert own.ids.tolist() == beside.only([depth]).ids.tolist()
    policy = JetSpecExtended(10, 2, gap=-1.0, channel="alone")
    check_needs(policy, alone.holds("dflash"))
    extended = [list(rounds(policy, sequence)) for sequence in alone.recorded("dflash", channels=["alone"])]
    assert any(played.num_requested for one in extended for played in one)
    with pytest.raises(MissingChannelError, match="it was recorded behind the whole chain alone"):
        check_needs(D2SD(10, branches=1, channel="alone"), alone.holds("dflash"))
    bare = ChannelOptions(str(trace), "none", str(made / "drafter"), settings={"whole": 1})
    refused(bare, ModelError, rf"says nothing behind a whole chain of {depth}; .*block={block}")
    refused(replace(bare, settings={"whole": 2}), ModelError, "whole=1 is the branch behind the whole chain alone")
