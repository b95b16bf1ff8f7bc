"""Networks of EAGLE-3, D²SD and JetSpec at the command line: killed recordings, and checkpoints that do not fit."""

import json
import shutil
import socket
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import tiny_models
import torch
from commands import output_of, refusal_of
from depth import some
from killed_writers import Killed, kill_after
from random_eagle3 import make_eagle3
from safetensors.torch import load_file, save_file
from tiny_recordings import files_of, record_given

from simlab.real_runner.record.additions import ChannelOptions, add
from simlab.traces.inspect import check_trace
from simlab.traces.reader import packaged_trace

Tensors = dict[str, torch.Tensor]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target, drafters and a head, and a trace of four texts in two shards; one text is a single token."""
    folder = tmp_path_factory.mktemp("networks")
    record_given(folder, 4)
    tiny_models.make_drafter(folder / "second", block_size=5, seed=8)
    make_eagle3(folder / "head")
    return folder


@pytest.mark.parametrize(
    ("network", "settings"),
    [
        ("head", {"beam": 3, "top_k": 4, "steps": 3}),
        ("drafter", {"beam": 3, "top_k": 2}),
        ("second", {"top_k": 3}),
    ],
    ids=["pools of an EAGLE-3 head", "pools of paths", "branches"],
)
def test_killed_and_resumed_it_has_the_same_bytes(
    made: Path, trace: Path, network: str, settings: dict[str, int]
) -> None:
    options = ChannelOptions(str(trace), "added", str(made / network), settings=settings, resume=True)
    before = files_of(trace)
    with pytest.MonkeyPatch.context() as patch:
        count = kill_after(patch, 10**9)
        add(options)
        num_events = count()
    expected = files_of(trace)
    assert num_events > 8
    for point in some(range(1, num_events + 1), quick=4):
        folder = trace.parent / f"killed-{point}"
        shutil.copytree(made / "trace", folder)
        there = replace(options, trace=str(folder))
        with pytest.MonkeyPatch.context() as patch:
            kill_after(patch, point)
            with pytest.raises(Killed):
                add(there)
        now = files_of(folder)
        assert all(now[name] == data for name, data in before.items() if name != "manifest.json")
        check_trace(folder)
        add(there)
        assert files_of(folder) == expected, f"killed at event {point}"


def spoilt(head: Path, folder: Path, change: Callable[[Tensors], Tensors]) -> Path:
    """The head with other tensors."""
    shutil.copytree(head, folder)
    save_file(change(load_file(head / "model.safetensors")), folder / "model.safetensors")
    return folder


def prefixed(made: Path, folder: Path) -> Path:
    return spoilt(made / "head", folder, lambda all_: {f"model.{key}": one for key, one in all_.items()})


def pickled(made: Path, folder: Path) -> Path:
    shutil.copytree(made / "head", folder)
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    return folder


def wider(made: Path, folder: Path) -> Path:
    return make_eagle3(folder, wide=8)


def of_speculators(made: Path, folder: Path) -> Path:
    shutil.copytree(made / "head", folder)
    fields = {"speculators_model_type": "eagle3", "draft_vocab_size": 40, "transformer_layer_config": {}}
    (folder / "config.json").write_text(json.dumps(fields))
    return folder


BAD: dict[str, tuple[Callable[[Path, Path], Path], str]] = {
    "of another target": (wider, "was made for a target with hidden size 40"),
    "names with a prefix": (prefixed, "the released names, which have no `model.` before them"),
    "pickled": (pickled, "has its weights in pytorch_model.bin and no model.safetensors"),
    "of speculators": (
        of_speculators,
        "lacks this layout of EAGLE-3, but reads that of its authors",
    ),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("more", [[], ["--dry-run", "sample"]], ids=["recorded", "predicted"])
def test_a_head_that_does_not_fit_is_refused_in_a_sentence(made: Path, trace: Path, name: str, more: list[str]) -> None:
    make, words = BAD[name]
    before, head = files_of(trace), make(made, trace.parent / "bad")
    assert words in refusal_of("record", "--trace", trace, "--add-channel", f"eagle3={head},steps=2", *more)
    left = files_of(trace)
    assert {key: left[key] for key in before} == before
    assert all(not data for key, data in left.items() if key not in before), "more than a lock was left"


# What comes with simlab, predicted on the packaged trace: no model is loaded and nothing is fetched


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("--add-channel d2sd=jetspec-smollm2-135m", "224 scored tokens at each"),
        ("--add-channel eagle3=eagle3-smollm2-135m,steps=7", "710 scored tokens at each"),
        ("--add-channel pools=dflash-smollm2-135m,beam=10,top_k=7", "406 scored tokens at each"),
        ("--add-channel flash=treeflash-smollm2-135m,previous=6,top_k=6", "222 scored tokens at each"),
        ("--add-channel scored=taps-smollm2-135m", "168 scored tokens at each"),
        ("--add-draft jetspec=jetspec-smollm2-135m", "7 depths of 64 candidates"),
    ],
)
def test_it_is_foreseen_by_its_name(typed: str, words: str) -> None:
    said = output_of("record", "--trace", packaged_trace(), *typed.split(), "--dry-run")
    assert words in said
    assert "roots           5,856" in said


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        (
            "jetspec=jetspec-smollm2-135m,beam=10,top_k=7",
            "jetspec-smollm2-135m is a drafter, which goes on from its own rows alone where a beam is set",
        ),
        (
            "eagle3=eagle3-smollm2-135m,branches=4",
            "an EAGLE-3 head has no setting branches; expected beam, top_k",
        ),
        ("pools=dflash-smollm2-135m,beam=4,branches=2", "has no setting branches; expected beam, top_k"),
        ("d2sd=jetspec-smollm2-135m,steps=4", "a drafter that redrafts behind a chain has no setting steps"),
    ],
)
def test_what_would_be_refused_is_not_foreseen(typed: str, words: str) -> None:
    assert words in refusal_of("record", "--trace", packaged_trace(), "--add-channel", typed, "--dry-run")
