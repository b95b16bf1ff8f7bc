"""A recording by several workers has the bytes of one by one process, whoever is killed, and says what went wrong."""

import json
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from commands import output_of, refusal_of
from forked_processes import begun, kill_at
from ray_jobs import random_kills, ray_of_tests
from tiny_recordings import bytes_of, make_models, options_of, typed

from simlab.cli.main import main
from simlab.errors import TraceError
from simlab.real_runner.record import record as module
from simlab.real_runner.record.record import load, plan_of, record
from simlab.traces.inspect import check_trace
from simlab.traces.writer import TraceWriter
from simlab.workers.threads import ignore_progress

NUM_SHARDS = 12


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Workers take as many threads as this process; those of several workers would fight for the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def ray(one_thread: None) -> Iterator[None]:
    with ray_of_tests(4):
        yield


@pytest.fixture(scope="module")
def folder(one_thread: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = make_models(tmp_path_factory.mktemp("workers"), 2 * NUM_SHARDS)
    record(options_of(made, made / "one"))
    return made


def command(folder: Path, out: Path, *more: str) -> list[str]:
    """The same recording, typed."""
    return typed(folder, out, "--resume", *more)


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_workers_write_the_same_bytes(workers: int, ray: None, folder: Path, tmp_path: Path) -> None:
    options = replace(options_of(folder, tmp_path / "many"), ray="local", workers=workers)
    check_trace(record(options))
    assert bytes_of(options.folder) == bytes_of(folder / "one")
    said = json.loads((options.folder / "recording.json").read_text())
    alone = json.loads((folder / "one" / "recording.json").read_text())
    assert said["positions"] == alone["positions"] > 0
    assert said["positions_per_s"] == pytest.approx(said["positions"] / said["seconds"], rel=0.01)


@pytest.mark.thorough
def test_the_command_takes_several_devices(ray: None, folder: Path, tmp_path: Path) -> None:
    said = output_of(*command(folder, tmp_path / "two", "--device", "cpu,cpu"))
    assert bytes_of(tmp_path / "two") == bytes_of(folder / "one")
    assert "positions/s)" in said
    assert json.loads((tmp_path / "two" / "recording.json").read_text())["devices"] == ["cpu", "cpu"]


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(2))
def test_workers_killed_at_random_lose_nothing(seed: int, ray: None, folder: Path, tmp_path: Path) -> None:
    options = replace(options_of(folder, tmp_path / "killed"), ray="local", workers=2)
    with random_kills(seed, most=4, seconds=2.0) as killed:
        record(options)
    assert killed
    assert bytes_of(options.folder) == bytes_of(folder / "one")


@pytest.mark.thorough
@pytest.mark.parametrize("more", [(), ("--ray", "local", "--workers", "2")])
def test_a_killed_driver_takes_its_workers_along_and_is_resumed(
    more: tuple[str, ...], folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "trace"
    process = begun(command(folder, out, "--ray", "local", "--workers", "2"))
    kill_at(out / "unfinished" / f"sequences-{random.Random(str(more)).randrange(4):04d}.parquet", process)
    left = still(out)
    assert "manifest.json" not in {path.name for path in out.iterdir()}
    time.sleep(1.0)
    assert left == sorted(path.name for path in out.rglob("*"))
    assert main(command(folder, out, *more)) == 0
    assert bytes_of(out) == bytes_of(folder / "one")
    assert json.loads((out / "recording.json").read_text())["shards_from_an_earlier_run"] >= 1


def still(out: Path) -> list[str]:
    """The names of all files, once no more are written."""
    before: list[str] = []
    for _ in range(60):
        now = sorted(path.name for path in out.rglob("*"))
        if now == before:
            return now
        before = now
        time.sleep(1.0)
    pytest.fail("workers go on without their driver")


@pytest.mark.thorough
def test_a_worker_that_finds_other_prompts_refuses(folder: Path, tmp_path: Path) -> None:
    """Workers read the prompts themselves, and see that they are those that the recording began with."""
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_bytes((folder / "prompts.jsonl").read_bytes())
    options = replace(options_of(folder, tmp_path / "trace"), prompts=prompts)
    manifest, num_texts = plan_of(options, *load(options))
    writer = TraceWriter(options.folder, manifest, len(num_texts), resume=False)
    prompts.write_text(prompts.read_text().replace("draft", "tree"))
    with pytest.raises(TraceError, match="holds a recording with another prompts_digest"):
        module._RecordingJob(options, writer, 1).open(ignore_progress)


def test_a_shard_that_a_lost_worker_had_written_is_not_recorded_again(folder: Path, tmp_path: Path) -> None:
    options = options_of(folder, tmp_path / "trace")
    manifest, num_texts = plan_of(options, *load(options))
    writer = TraceWriter(options.folder, manifest, len(num_texts), resume=False)
    opened = module._RecordingJob(options, writer, 1).open(ignore_progress)
    lengths = opened.work(3)
    written = {path: path.stat().st_mtime_ns for path in options.folder.rglob("*.parquet")}
    assert opened.work(3) == lengths
    assert written == {path: path.stat().st_mtime_ns for path in options.folder.rglob("*.parquet")}


def test_options_of_workers_that_say_nothing_are_refused(folder: Path) -> None:
    for more, said in (
        (("--workers", "2"), "--workers 2 are workers of Ray; add --ray local"),
        (("--ray", "local", "--device", "cpu,cpu"), "--ray places the workers itself"),
        (("--ray", "local", "--gpus-per-worker", "2"), "--gpus-per-worker is read with --ray and --device-map auto"),
    ):
        assert said in refusal_of(*command(folder, folder / "none", *more))
    assert not (folder / "none").exists()
