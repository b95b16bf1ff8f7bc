"""The campaign of damaged inputs: planted faults come into the right class, and a case is the same every time."""

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import attack_judge
import attack_run
import attack_watch
import pytest
from attack_cases import BEFORE, Case, Command, Damage, Kind
from attack_inputs import MAKERS
from attack_judge import HANG, HARMLESS, MEMORY, OTHER, REFUSED, TRACEBACK, UNTIDY, WRONG, Ran, judge
from attack_kinds import KINDS
from attack_run import resident_bytes
from attack_watch import Watch
from attack_worker import Place, Worker, made_ready
from depth import examples

CHEAP = ("trace", "other", "cost.json", "timings.csv", "timings.json")
CHEAP_TOO = ("texts.parquet", "texts.jsonl", "policy.py")


def stub(words: Sequence[str]) -> int:
    """A command line that reads one word of a file, and does what it says."""
    what = Path("input.txt").read_text()
    if what == "traceback":
        raise KeyError("planted")
    if what == "sleep":
        time.sleep(600)
    if what == "memory":
        hoard = bytearray(os.urandom(1 << 20)) * 600
        time.sleep(600)
        print(len(hoard))
    if what in ("refuse", "half", "over"):
        if what != "refuse":
            Path("out/figures.json").write_text("{")
        print("simlab: this cannot be used.", file=sys.stderr)
        return 2
    if what == "die":
        os.kill(os.getpid(), 9)
    if what == "another exit":
        sys.exit(3)
    print(json.dumps({"figure": 2 if what == "figure" else 1}))
    return 0


def planted(folder: Path, _chance: Random) -> Damage:
    (folder / "input.txt").write_text(WORDS[int((folder / "number").read_text())])
    return Damage("planted")


WORDS = ("fine", "figure", "traceback", "sleep", "memory", "refuse", "half", "over", "die", "another exit")


@pytest.fixture
def few_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a planted hoard stays small."""
    for module in (attack_judge, attack_watch, attack_run):
        monkeypatch.setattr(module, "MOST_BYTES", resident_bytes(os.getpid()) + (256 << 20))


def be_impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a planted hang takes a second or two: no other case may be held to that on a busy machine."""
    for module in (attack_judge, attack_watch, attack_run):
        monkeypatch.setattr(module, "MOST_SECONDS", 1.5)


def watched(tmp_path: Path, word: str, command: Command) -> tuple[str, Path]:
    """The class of a case in which the stub does something, and the folder of kept inputs."""
    inputs = tmp_path / "inputs"
    inputs.mkdir()
    (inputs / "input.txt").write_text("fine")
    (inputs / "number").write_text(str(WORDS.index(word)))
    (tmp_path / "baselines").mkdir()
    kind = Kind("planted", ("input.txt", "number"), planted, (command,))
    place = Place(inputs, tmp_path / "baselines", tmp_path / "slot")
    watch = Watch(lambda _: Worker({"planted": kind}, place, stub), 1, tmp_path / "failed")
    (found,) = watch.run([Case("planted", 7)], lambda _: False)
    assert found.note == "planted"
    return found.outcome, tmp_path / "failed" / "planted-7"


@pytest.mark.usefixtures("few_bytes")
@pytest.mark.parametrize(
    ("word", "outcome"),
    [
        ("fine", HARMLESS),
        ("figure", WRONG),
        ("traceback", TRACEBACK),
        ("sleep", HANG),
        ("memory", MEMORY),
        ("refuse", REFUSED),
        ("half", UNTIDY),
        ("die", TRACEBACK),
        ("another exit", TRACEBACK),
    ],
)
def test_a_planted_fault_comes_into_its_class(
    word: str, outcome: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if outcome == HANG:
        be_impatient(monkeypatch)
    found, kept = watched(tmp_path, word, Command(("stub",), ("out/figures.json",)))
    assert found == outcome
    assert kept.is_dir() == (outcome not in (HARMLESS, REFUSED))
    if kept.is_dir():
        assert (kept / "input.txt").read_text() == word
        assert (kept / "case.txt").read_text().splitlines()[:2] == ["planted:7", outcome]


def test_what_stood_there_before_must_be_left_alone(tmp_path: Path) -> None:
    command = Command(("stub",), ("out/figures.json",), overwrites=True)
    assert watched(tmp_path, "over", command)[0] == UNTIDY
    assert (tmp_path / "slot/run/out/figures.json").read_bytes() != BEFORE


SAID = Command(("stub",))


@pytest.mark.parametrize(
    ("ran", "outcome"),
    [
        (Ran(2, "", "simlab: one sentence.\n"), REFUSED),
        (Ran(2, "", "bar 10%|#   \nsimlab: one sentence.\n"), REFUSED),
        (Ran(2, "", "simlab: one\nsimlab: two\n"), UNTIDY),
        (Ran(2, "", "usage: simlab\n"), UNTIDY),
        (Ran(2, "", "simlab: \x1b[2J.\n"), UNTIDY),
        (Ran(2, "", "simlab: \u202e.\n"), UNTIDY),
        (Ran(2, "policy  speed\n", "simlab: one sentence.\n"), UNTIDY),
        (Ran(2, "", "simlab: one sentence.\n", left={"out/.a.part": "3"}), UNTIDY),
        (Ran(2, "", "thread 'a' panicked at src/x.rs:1\nsimlab: one sentence.\n"), UNTIDY),
        (Ran(1, "", "thread 'a' panicked at src/x.rs:1\n"), TRACEBACK),
        (Ran(70, "", "simlab: unforeseen.\n"), TRACEBACK),
        (Ran(-11, "", ""), TRACEBACK),
        (Ran(0, "a\x1b[31m", "", figures={"stdout": "1"}), UNTIDY),
        (Ran(0, '{"a": 1}', "", figures={"stdout": "1"}), HARMLESS),
        (Ran(0, "", "", figures={"stdout": "2"}), WRONG),
        (Ran(0, "", "", seconds=31), HANG),
        (Ran(0, "", "", peak_bytes=3 << 30), MEMORY),
    ],
)
def test_a_class_is_told_from_what_a_command_leaves(ran: Ran, outcome: str) -> None:
    assert judge(ran, Damage("any"), SAID, {"stdout": "1"}).outcome == outcome


def test_other_figures_are_right_where_the_input_may_be_another_one() -> None:
    ran = Ran(0, "", "", figures={"stdout": "2"})
    assert judge(ran, Damage("any", possible=True), SAID, {"stdout": "1"}).outcome == OTHER
    sizes = Ran(0, "", "", figures={"stdout": ' "sha256": "ab",\n "tokens": 3'})
    undamaged = {"stdout": ' "sha256": "cd",\n "tokens": 3'}
    assert judge(sizes, Damage("any"), SAID, undamaged).outcome == WRONG
    assert judge(sizes, Damage("any", mended=True), SAID, undamaged).outcome == HARMLESS


@pytest.mark.parametrize(
    ("code", "figure", "damage", "outcome"),
    [
        (0, 1, Damage("twice", expected=REFUSED), WRONG),
        (2, 1, Damage("twice", expected=REFUSED), REFUSED),
        (2, 1, Damage("a comment", expected=HARMLESS), WRONG),
        (0, 2, Damage("a number", explained={"a.0": 2}), OTHER),
        (0, 2, Damage("a number", explained={"a.0": 3}), WRONG),
        (0, 1, Damage("a number", explained={"a.0": 3}), WRONG),
    ],
)
def test_what_must_come_of_a_change_is_held_against_it(code: int, figure: int, damage: Damage, outcome: str) -> None:
    out = json.dumps({"a": [figure]})
    ran = Ran(code, "" if code else out, "simlab: no.\n" if code else "", figures={"stdout": out})
    assert judge(ran, damage, SAID, {"stdout": json.dumps({"a": [1]})}).outcome == outcome


def test_a_file_that_is_whole_may_be_left_where_only_the_output_is_lost() -> None:
    somewhere = Command(("stub",), setting="a full disk behind the output")
    for said, outcome in (("whole", REFUSED), ("half", UNTIDY)):
        ran = Ran(2, "", "simlab: no space.\n", figures={"out/r": said}, left={"out/r": "5"})
        assert judge(ran, Damage("none"), somewhere, {"out/r": "whole"}).outcome == outcome


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    for name in (*CHEAP, *CHEAP_TOO):
        MAKERS[name](folder / name)
    return folder


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if set(kind.inputs) <= {*CHEAP, *CHEAP_TOO}])
def test_a_case_is_the_same_every_time(name: str, inputs: Path, tmp_path: Path) -> None:
    for seed in range(examples(40, quick=8)):
        first, second = (
            made_ready(Case(name, seed), KINDS[name], Place(inputs, tmp_path, tmp_path / slot)) for slot in "ab"
        )
        assert (first.damage, first.command) == (second.damage, second.command)
        files = [path for path in first.folder.rglob("*") if path.is_file() and not path.is_symlink()]
        assert all(path.read_bytes() == (second.folder / path.relative_to(first.folder)).read_bytes() for path in files)
