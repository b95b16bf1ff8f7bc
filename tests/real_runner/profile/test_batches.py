"""Profiles of several texts at a time with tiny models."""

import json
import platform
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from commands import output_of
from systems import GREEDY

from simlab.arrays import Ints
from simlab.cli.main import main
from simlab.errors import CostError, ModelError
from simlab.policies.named.ddtree import DDTree
from simlab.real_runner.decoding.decoded import DecodedRound
from simlab.real_runner.models import Models
from simlab.real_runner.profile import machine
from simlab.real_runner.profile.options import ProfileOptions, settings_of
from simlab.real_runner.profile.profile import profile
from simlab.real_runner.profile.rounds import MEASURED_ROUNDS, MEASURED_STEPS, PlainStepTimer, RoundTimer, TreesOfSize
from simlab.traces.artefacts.cost import read_cost_file

BATCH = 3


@pytest.fixture
def options(options: ProfileOptions) -> ProfileOptions:
    return replace(options, node_counts=(0, 1, 9), repeats=2, batch=BATCH)


def test_a_file_of_batches_has_every_cell_and_says_so(options: ProfileOptions) -> None:
    file = profile(options).file
    assert file == read_cost_file(options.out)
    assert file.is_complete
    assert file.batch == BATCH
    assert settings_of(file)["batch"] == BATCH
    assert profile(replace(options, resume=True)).num_visits == 0
    with pytest.raises(CostError, match="batch 3, and this run has 1"):
        profile(replace(options, resume=True, batch=1))
    alone = profile(replace(options, out=options.out.with_name("one.json"), batch=1)).file
    assert alone.batch == 1
    assert alone.verify_key() != file.verify_key()


@pytest.mark.parametrize("context", [24, 60, 200])
def test_rounds_of_all_texts_stay_about_their_context(
    models: Models, token_ids: Ints, context: int, ran: list[list[tuple[int, DecodedRound]]]
) -> None:
    rounds = RoundTimer(models, 9, token_ids, context, GREEDY, lambda: 0.0, batch=BATCH)
    for num_drafted in (9, 0, 1, 9, 9, 1, 0, 9):
        before = len(ran)
        found = rounds.visit(num_drafted, 1)
        assert len(found) == MEASURED_ROUNDS
        visited = ran[before:]
        assert len(visited) == 1 + MEASURED_ROUNDS
        for each in visited:
            assert len(each) == BATCH
            assert {round_.round.num_drafted for _, round_ in each} == {num_drafted}
            assert all(context - 17 <= index <= context + 17 for index, _ in each)
    texts = {tuple(round_.round.tree.tokens.tolist()) for each in ran for _, round_ in each}
    assert len(texts) > BATCH


def test_plain_steps_are_of_all_texts_without_a_drafter(
    models: Models, token_ids: Ints, ran: list[list[tuple[int, DecodedRound]]]
) -> None:
    ticks = iter(range(10_000))
    plain = PlainStepTimer(models, token_ids, 60, GREEDY, lambda: float(next(ticks)), BATCH)
    for context in (60, 24):
        before = len(ran)
        # The clock is read five times a round: four stages.
        assert plain.visit(context, 2) == [4.0] * MEASURED_STEPS
        for each in ran[before:]:
            assert [round_.marginals for _, round_ in each] == [None] * BATCH
            assert all(abs(index - context) <= MEASURED_STEPS for index, _ in each)


def test_a_tree_that_comes_out_smaller_is_refused(
    models: Models, token_ids: Ints, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounds = RoundTimer(models, 9, token_ids, 24, GREEDY, lambda: 0.0, batch=BATCH)
    monkeypatch.setattr(TreesOfSize, "select", lambda self, draft, state=None: DDTree(1).select(draft))
    with pytest.raises(ModelError, match="candidates fill 1; give smaller"):
        rounds.visit(9, 0)


def test_the_command_measures_batches(pair: tuple[Path, Path], tmp_path: Path) -> None:
    target, draft = map(str, pair)
    out = tmp_path / "cost.json"
    command = ["profile", "--target", target, "--draft", draft, "--out", str(out), "--node-counts", "1,4"]
    shown = output_of(*command, "--contexts", "24", "--repeats", "2", "--batch", "2")
    assert "in each of 2 texts at a time" in shown
    assert f"simlab replay --batch 2 --cost {out}" in shown
    assert json.loads(out.read_text())["batch"] == 2
    assert main(["profile", "--out", str(out), "--resume"]) == 0
    assert read_cost_file(out).batch == 2


# What a measurement says of the machine


def test_the_cpu_is_named_as_linux_names_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = tmp_path / "cpuinfo"
    info.write_text("processor\t: 0\nmodel\t\t: 17\nmodel name\t: Fast  CPU 9000 @ 3 GHz\n\nmodel name\t: another\n")
    monkeypatch.setattr(machine, "_CPUINFO", info)
    assert machine.cpu_name() == machine.hardware_name("cpu") == "Fast CPU 9000 @ 3 GHz"


@pytest.mark.parametrize(("processor", "named"), [("arm", "arm"), ("", "arm64")])
def test_without_cpuinfo_the_architecture_names_it(
    processor: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_CPUINFO", tmp_path / "none")
    monkeypatch.setattr(platform, "system", lambda: "Windows")
    monkeypatch.setattr(platform, "processor", lambda: processor)
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    assert machine.cpu_name() == named
    assert machine.system_name() == "Windows arm64"


def test_macos_is_asked_for_the_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_CPUINFO", tmp_path / "none")
    monkeypatch.setattr(platform, "system", lambda: "Darwin")
    asked: list[list[str]] = []

    def run(command: list[str], **_settings: object) -> object:
        asked.append(command)
        return subprocess.CompletedProcess(command, 0, stdout="Apple M9\n")

    monkeypatch.setattr(subprocess, "run", run)
    assert machine.cpu_name() == "Apple M9"
    assert asked[0][1:] == ["-n", "machdep.cpu.brand_string"]
    monkeypatch.setattr(subprocess, "run", lambda *_a, **_s: (_ for _ in ()).throw(OSError()))
    assert machine.cpu_name() == (platform.processor() or platform.machine())
