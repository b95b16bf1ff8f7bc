"""A recording on several devices has the bytes of one on one, is ended whole, and says what went wrong."""

import json
import os
import signal
import time
from dataclasses import replace
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

import pytest
import tiny_models
from forked_processes import forked_processes
from recording_processes import (
    dies,
    dies_holding_the_list,
    hold,
    options_of,
    others,
    refuses,
    run_the_others_only,
    stays,
    takes_nothing,
)

from simlab.cli.main import main
from simlab.errors import ModelError
from simlab.real_runner.record.devices import OtherDevices, check_devices
from simlab.real_runner.record.record import record
from simlab.traces.inspect import check_trace


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    return forked_processes()


@pytest.fixture(scope="module")
def folder(processes: ForkServerContext, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("devices")
    tiny_models.make_pair(made)
    tiny_models.write_prompts(made / "prompts.jsonl", 24, num_turns=2)
    record(options_of(made, made / "one"))
    return made


def command(folder: Path, out: Path, devices: str) -> list[str]:
    """The same recording, typed."""
    models = ["--target", str(folder / "target"), "--draft", str(folder / "drafter")]
    text = ["--prompts", str(folder / "prompts.jsonl"), "--max-new-tokens", "32", "--temperature", "0.8"]
    return ["record", *models, *text, "--out", str(out), "--batch-size", "2", "--resume", "--device", devices]


def bytes_of(folder: Path) -> dict[str, bytes]:
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    files.pop("recording.json")
    return files


def test_the_other_processes_write_the_same_bytes(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(OtherDevices, "taken", takes_nothing)
    options = replace(options_of(folder, tmp_path / "many"), more_devices=("cpu", "cpu"))
    check_trace(record(options))
    assert bytes_of(options.out) == bytes_of(folder / "one")
    said = json.loads((options.out / "recording.json").read_text())
    alone = json.loads((folder / "one" / "recording.json").read_text())
    assert said["devices"] == ["cpu", "cpu", "cpu"]
    assert said["positions"] == alone["positions"] > 0
    assert said["positions_per_s"] == pytest.approx(said["positions"] / said["seconds"], rel=0.01)


def test_the_command_takes_several_devices(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(command(folder, tmp_path / "two", "cpu,cpu")) == 0
    assert bytes_of(tmp_path / "two") == bytes_of(folder / "one")
    assert "positions/s)" in capsys.readouterr().out


@pytest.mark.parametrize("devices", ["cpu", "cpu,cpu,cpu"])
def test_killed_and_resumed_with_other_devices(
    devices: str, processes: ForkServerContext, folder: Path, tmp_path: Path
) -> None:
    """The processes that the killed one had started write nothing more."""
    out = tmp_path / "trace"
    process = processes.Process(target=run_the_others_only, args=(command(folder, out, "cpu,cpu,cpu"),))
    process.start()
    done = out / "unfinished" / "sequences-0003.parquet"
    wait_for(done, process)
    process.kill()
    process.join()
    time.sleep(0.5)
    left = sorted(path.name for path in out.rglob("*"))
    assert "manifest.json" not in {path.name for path in out.iterdir()}
    time.sleep(0.5)
    assert left == sorted(path.name for path in out.rglob("*"))
    assert main(command(folder, out, devices)) == 0
    assert bytes_of(out) == bytes_of(folder / "one")
    assert json.loads((out / "recording.json").read_text())["shards_from_an_earlier_run"] >= 1


def wait_for(path: Path, process: BaseProcess) -> None:
    while not path.exists():
        assert process.is_alive(), f"the recording ended before {path} was there"
        time.sleep(0.001)


def test_a_process_that_refuses_is_heard(folder: Path, tmp_path: Path) -> None:
    with (
        pytest.raises(ModelError, match=r"^on cpu: the prompts are others now$"),
        others(folder, tmp_path, refuses) as o,
    ):
        o.wait()


def test_a_process_that_dies_is_noticed(folder: Path, tmp_path: Path) -> None:
    said = r"the recording process 2 on cpu ended early \(exit code 9\); finished batches are kept: add --resume"
    with pytest.raises(ModelError, match=said), others(folder, tmp_path, dies) as o:
        o.wait()


def test_a_process_that_dies_with_the_list_in_its_hands_is_noticed(folder: Path, tmp_path: Path) -> None:
    """Killed just while it takes a shard, it never lets go of the list; who waits for it must see that."""
    with others(folder, tmp_path, dies_holding_the_list) as o:
        for process in o._processes.values():
            process.join()
        with pytest.raises(ModelError, match=r"process 2 on cpu ended early \(exit code 9\)"):
            list(o.taken())


def test_the_first_process_goes_on_seeing_interruptions(folder: Path, tmp_path: Path) -> None:
    with others(folder, tmp_path, stays):
        assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])


def test_processes_that_could_not_all_begin_are_ended(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    o = others(folder, tmp_path, stays)
    first = next(iter(o._processes.values()))
    o._processes["never"] = first  # a process begins once
    with pytest.raises(AssertionError, match="cannot start a process twice"), o:
        pass
    assert first.exitcode is not None


def test_no_more_processes_than_shards(folder: Path, tmp_path: Path) -> None:
    with others(folder, tmp_path, dies, num=1) as o:
        assert list(o.taken()) == [0]
        o.wait()


def test_each_shard_is_taken_once(folder: Path, tmp_path: Path) -> None:
    with others(folder, tmp_path, stays, num=5) as o:
        assert list(o.taken()) == [0, 1, 2, 3, 4]
        assert list(o.taken()) == []
        o.wait()


def test_the_others_see_no_interruption_and_end_with_a_killed_first(
    processes: ForkServerContext, folder: Path, tmp_path: Path
) -> None:
    """Not even while they load: what forks them is deaf to it too."""
    process = processes.Process(target=hold, args=(folder, tmp_path))
    process.start()
    wait_for(tmp_path / "who", process)
    time.sleep(0.1)
    other = int((tmp_path / "who").read_text())
    os.kill(other, 0)
    assert (tmp_path / "blocked").read_text() == "True"
    process.kill()
    process.join()
    for _ in range(100):
        try:
            os.kill(other, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    pytest.fail("the other process lives on")


def test_devices_of_two_kinds_are_refused() -> None:
    check_devices(("cpu", "cpu"))
    with pytest.raises(ModelError, match="must be of one kind, or its shards .* cpu is cpu, meta is meta"):
        check_devices(("cpu", "meta"))


def test_prompts_that_changed_are_refused(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The other processes read the prompts themselves, and see that they are those that the recording began with."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_bytes((folder / "prompts.jsonl").read_bytes())
    options = replace(options_of(folder, tmp_path / "trace"), prompts=prompts, more_devices=("cpu",))
    real = OtherDevices.__enter__

    def changed(self: OtherDevices) -> OtherDevices:
        prompts.write_text(prompts.read_text().replace("draft", "tree"))
        return real(self)

    monkeypatch.setattr(OtherDevices, "__enter__", changed)
    monkeypatch.setattr(OtherDevices, "taken", takes_nothing)
    with pytest.raises(ModelError, match="on cpu: .* holds a recording with another prompts_digest"):
        record(options)
