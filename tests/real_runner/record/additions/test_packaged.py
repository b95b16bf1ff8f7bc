"""What comes with simlab, foreseen on the packaged trace: no model is loaded and nothing is fetched."""

import socket

import pytest

from simlab.cli.main import main
from simlab.traces.reader import packaged_trace


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("--add-channel d2sd=d2sd-smollm2-135m", "224 scored tokens at each"),
        ("--add-channel eagle3=eagle3-smollm2-135m,steps=7", "710 scored tokens at each"),
        ("--add-channel pools=dflash-smollm2-135m,beam=10,top_k=7", "406 scored tokens at each"),
        ("--add-channel flash=treeflash-smollm2-135m,previous=6,top_k=6", "222 scored tokens at each"),
        ("--add-channel scored=taps-smollm2-135m", "168 scored tokens at each"),
        ("--add-draft jetspec=jetspec-smollm2-135m", "7 depths of 64 candidates"),
    ],
)
def test_it_is_foreseen_by_its_name(typed: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "--trace", str(packaged_trace()), *typed.split(), "--dry-run"]) == 0
    said = capsys.readouterr().out
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
        ("d2sd=d2sd-smollm2-135m,steps=4", "a drafter that redrafts behind a chain has no setting steps"),
    ],
)
def test_what_would_be_refused_is_not_foreseen(typed: str, words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["record", "--trace", str(packaged_trace()), "--add-channel", typed, "--dry-run"]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert said.count("\n") == 1
