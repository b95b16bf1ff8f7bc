"""The campaign of damaged inputs: planted faults come into the right class, and a case is the same every time."""

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import attack_kills
import attack_run
import pytest
from attack import KINDS, shown
from attack_attempt import Place, attempt, damaged
from attack_cases import (
    GOOD,
    HANG,
    HARMLESS,
    LOST,
    MEMORY,
    OTHER,
    REFUSED,
    TRACEBACK,
    UNTIDY,
    WRONG,
    Damage,
    Finding,
    Kind,
)
from attack_inputs import make_missing
from attack_judge import judge
from attack_kills import KILLED, RACED, Writer, attempt_kill
from attack_run import Ran, apart, resident_bytes
from depth import examples

from simlab.cli.main import main

CHEAP = {"trace", "other", "cost.json", "timings.csv", "timings.json", "texts.parquet", "texts.jsonl", "policy.py"}


def stub(words: Sequence[str]) -> int:
    """A command line that reads one word of a file, and does what it says."""
    what = Path("input.txt").read_text()
    if what == "raise":
        raise KeyError("planted")
    if what == "sleep":
        time.sleep(600)
    if what == "hoard":
        hoard = bytearray(os.urandom(1 << 20)) * 600
        time.sleep(600)
        print(len(hoard))
    if what == "die":
        os.kill(os.getpid(), 9)
    if what == "exit":
        sys.exit(3)
    written = {"write half": "out/figures.json", "write over": words[-1], "write elsewhere": "input.txt"}
    if what in written:
        Path(written[what]).write_text("{")
    if what.startswith(("refuse", "write")):
        print("simlab: this cannot be used.", file=sys.stderr)
        return 2
    print(json.dumps({"figure": 2 if what == "change" else 1}))
    return 0


def planted(tmp_path: Path, word: str) -> tuple[Finding, Path]:
    """What comes of a case whose damage tells the stub what to do, and the folder in which it is kept."""

    def damage(folder: Path, _chance: object) -> Damage:
        (folder / "input.txt").write_text(word)
        return Damage("planted")

    place = Place(tmp_path, stub)
    place.inputs.mkdir()
    (place.inputs / "input.txt").write_text("fine")
    kind = Kind("planted", ("input.txt",), damage, ("stub --out out/old.json",))
    return apart(attempt, kind, 7, place), tmp_path / "cases/planted-7"


@pytest.mark.parametrize(
    ("word", "outcome"),
    [
        ("fine", HARMLESS),
        ("refuse", REFUSED),
        ("change", WRONG),
        ("raise", TRACEBACK),
        ("die", TRACEBACK),
        ("exit", TRACEBACK),
        ("sleep", HANG),
        ("hoard", MEMORY),
        ("write half", UNTIDY),
        ("write over", UNTIDY),
        ("write elsewhere", UNTIDY),
    ],
)
def test_a_planted_fault_comes_into_its_class(
    word: str, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A forked process begins with less than this one, by the files that are mapped here.
    begun = apart(lambda: resident_bytes(os.getpid()))
    monkeypatch.setattr(attack_run, "MOST_BYTES", begun + (256 << 20))
    if outcome == HANG:  # no other case may be held to that on a busy machine
        monkeypatch.setattr(attack_run, "MOST_SECONDS", 1.5)
    finding, kept = planted(tmp_path, word)
    assert (finding.outcome, finding.note) == (outcome, "planted")
    assert kept.is_dir() == (outcome not in GOOD)
    if kept.is_dir() and word != "write elsewhere":
        assert (kept / "run/input.txt").read_text() == word


def writing(words: Sequence[str]) -> int:
    """A command line that writes a file in two parts, or first under another name."""
    path = Path(words[-1])
    part = path.with_suffix(".part") if "careful" in words else path
    part.write_text("first half, ")
    time.sleep(0.3)
    part.write_text("first half, second half")
    part.replace(path)
    return 0


@pytest.mark.parametrize(("word", "is_lost"), [("careful", False), ("careless", True)])
def test_a_file_that_is_half_written_when_its_command_is_killed_is_lost(
    word: str, is_lost: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attack_kills, "WRITERS", (Writer(f"write {word} --out o.txt"),))
    place = Place(tmp_path, writing)
    findings = [apart(attempt_kill, KILLED, seed, place) for seed in range(4)]
    assert (LOST in {finding.outcome for finding in findings}) == is_lost, findings
    assert sum(finding.kills for finding in findings) > 0


def test_one_of_two_that_write_at_once_may_be_refused_and_none_may_fail(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attack_kills, "WRITERS", (Writer("write --out o.txt"),))

    def second_fails(words: Sequence[str]) -> int:
        is_second = Path(words[-1]).exists()
        writing(words)
        if is_second and Path("refuses").exists():
            print("simlab: another one writes here.", file=sys.stderr)
        return 0 if not is_second else 2

    assert apart(attempt_kill, RACED, 3, Place(tmp_path, second_fails)).outcome == LOST
    assert apart(attempt_kill, RACED, 3, Place(tmp_path / "well", writing)).outcome == HARMLESS


@pytest.mark.parametrize(
    ("ran", "outcome"),
    [
        (Ran(2, "", "simlab: one sentence.\n"), REFUSED),
        (Ran(2, "", "bar 10%|#   \nsimlab: one sentence.\n"), REFUSED),
        (Ran(2, "", "simlab: one\nsimlab: two\n"), UNTIDY),
        (Ran(2, "", "usage: simlab\n"), UNTIDY),
        (Ran(2, "", "simlab: \x1b[2J.\n"), UNTIDY),
        (Ran(2, "", "simlab: \u202e.\n"), UNTIDY),
        (Ran(2, "", f"simlab: {'x' * 5000}.\n"), UNTIDY),
        (Ran(2, "policy  speed\n", "simlab: one sentence.\n"), UNTIDY),
        (Ran(2, "", "simlab: one sentence.\n", files={"out/.a.part": "3"}), UNTIDY),
        (Ran(2, "", "thread 'a' panicked at src/x.rs:1\nsimlab: one sentence.\n"), UNTIDY),
        (Ran(1, "", "thread 'a' panicked at src/x.rs:1\n"), TRACEBACK),
        (Ran(70, "", "simlab: unforeseen.\n"), TRACEBACK),
        (Ran(-11, "", ""), TRACEBACK),
        (Ran(0, "1", "a\x1b[31m"), UNTIDY),
        (Ran(0, "1\x1b[31m", ""), UNTIDY),
        (Ran(0, "1", ""), HARMLESS),
        (Ran(0, "2", ""), WRONG),
        (Ran(0, "1", "", files={"out/more": ""}), WRONG),
        (Ran(0, "", "", seconds=31), HANG),
        (Ran(0, "", "", peak_bytes=3 << 30), MEMORY),
    ],
)
def test_a_class_is_told_from_what_a_command_leaves(ran: Ran, outcome: str) -> None:
    assert judge(ran, Damage("any"), "stub", Ran(0, "1", "")).outcome == outcome


@pytest.mark.parametrize(
    ("code", "figure", "damage", "outcome"),
    [
        (0, 2, Damage("another input", GOOD), OTHER),
        (0, 1, Damage("twice", (REFUSED,)), WRONG),
        (2, 1, Damage("twice", (REFUSED,)), REFUSED),
        (2, 1, Damage("a comment", (HARMLESS,)), WRONG),
        (0, 2, Damage("a number", GOOD, explained={"a.0": 2}), OTHER),
        (0, 2, Damage("a number", GOOD, explained={"a.0": 3}), WRONG),
        (0, 1, Damage("a number", GOOD, explained={"a.0": 3}), WRONG),
    ],
)
def test_what_must_come_of_a_change_is_held_against_it(code: int, figure: int, damage: Damage, outcome: str) -> None:
    ran = Ran(code, "" if code else json.dumps({"a": [figure]}), "simlab: no.\n" if code else "")
    assert judge(ran, damage, "stub", Ran(0, json.dumps({"a": [1]}), "")).outcome == outcome


def test_digests_that_were_mended_are_no_figures() -> None:
    ran, undamaged = (Ran(0, f'{{"sha256": "{digest}",\n "tokens": 3}}', "") for digest in ("ab", "cd"))
    assert judge(ran, Damage("any"), "stub", undamaged).outcome == WRONG
    assert judge(ran, Damage("any", mended=True), "stub", undamaged).outcome == HARMLESS


def test_a_file_that_is_whole_may_be_left_where_only_the_output_is_lost() -> None:
    damage, undamaged = Damage("none", setting="a full disk behind the output"), Ran(0, "", "", files={"r": "whole"})
    for text, outcome in (("whole", REFUSED), ("half", UNTIDY)):
        ran = Ran(2, "", "simlab: no space.\n", files={"r": text})
        assert judge(ran, damage, "stub", undamaged).outcome == outcome


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(tmp_path_factory.mktemp("attack"), main)
    place.inputs.mkdir()
    make_missing(place.inputs, CHEAP)  # here: a process that pytest forks may use no library with threads
    return place


@pytest.mark.parametrize(
    "name", [name for name, kind in KINDS.items() if set(kind.inputs) <= CHEAP and name != "bombs"]
)
def test_a_case_is_the_same_every_time(name: str, place: Place) -> None:
    for seed in range(examples(40, quick=8)):
        (first, *told), (second, *told_again) = (damaged(KINDS[name], seed, place, place.slot(slot)) for slot in "ab")
        assert told == told_again
        files = [path for path in first.rglob("*") if path.is_file() and not path.is_symlink()]
        assert all(path.read_bytes() == (second / path.relative_to(first)).read_bytes() for path in files)


def test_what_a_terminal_must_not_be_shown_is_written_out() -> None:
    assert shown("a\x1b[2J\u202e" + "b" * 400) == "a\\x1b[2J\\u202e" + "b" * 286 + " ..."
