"""A recording that was killed loses nothing that was finished, and resumes to the same bytes."""

import json
import random
import time
from pathlib import Path

import pytest
from depth import examples, some
from forked_processes import begun, kill_at, wait_for
from tiny_recordings import bytes_of, make_models, typed

from simlab.cli.main import main

NUM_KILLS, NUM_SHARDS = 10, examples(12, quick=6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_models(tmp_path_factory.mktemp("killed"), 2 * NUM_SHARDS)


def command(folder: Path, out: Path) -> list[str]:
    """Shards of two prompts, two turns each, some decided by noise."""
    return typed(folder, out, "--resume")


@pytest.fixture(scope="module")
def unbroken(folder: Path) -> tuple[dict[str, bytes], float]:
    """The files of a recording that nobody killed, and the seconds from its first file to its last."""
    out = folder / "unbroken"
    process = begun(command(folder, out))
    began = wait_for(out / "unfinished", process)
    process.join()
    seconds = time.monotonic() - began
    assert process.exitcode == 0
    files = bytes_of(out)
    assert sum(name.startswith("tokens") for name in files) == NUM_SHARDS
    return files, seconds


@pytest.mark.parametrize("number", some([6, 7, 8, 9, *range(6)]))
def test_a_killed_recording_resumes_to_the_same_bytes(
    number: int, folder: Path, tmp_path: Path, unbroken: tuple[dict[str, bytes], float]
) -> None:
    files, seconds = unbroken
    out = tmp_path / "trace"
    after_s = seconds * (number + random.Random(number).random()) / NUM_KILLS
    kill_at(out / "unfinished", begun(command(folder, out)), after_s)
    finished = sorted((out / "unfinished").glob("sequences-*.parquet"))
    kept = [out / path.name.replace("sequences", "tokens") for path in finished]
    written = {path: path.stat().st_mtime_ns for path in kept}
    assert main(command(folder, out)) == 0
    assert bytes_of(out) == files
    assert written == {path: path.stat().st_mtime_ns for path in kept}


@pytest.mark.thorough
def test_killed_again_and_again_it_still_ends(
    folder: Path, tmp_path: Path, unbroken: tuple[dict[str, bytes], float]
) -> None:
    files, _ = unbroken
    out = tmp_path / "trace"
    for shard in (1, 4, 8):
        kill_at(out / "unfinished" / f"sequences-{shard:04d}.parquet", begun(command(folder, out)))
    assert main(command(folder, out)) == 0
    assert bytes_of(out) == files
    said = json.loads((out / "recording.json").read_text())
    assert said["shards_from_an_earlier_run"] >= 9
    assert said["positions_per_s"] > 0
