"""The scripts of the page on many machines, run as each scheduler would run them, lead to the bytes of one process."""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import tiny_models
from places import DOCS
from synthetic_traces import write_synthetic_trace

from simlab.cli.main import main

PAGE = (DOCS / "how_to" / "many_machines.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def loaded(text: str) -> dict[str, Any]:
    found: dict[str, Any] = pytest.importorskip("yaml").safe_load(text)
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with tiny models, prompts, a trace, and what one process makes of them."""
    made = tmp_path_factory.mktemp("machines")
    tiny_models.make_pair(made)
    tiny_models.write_prompts(made / "prompts.jsonl", 20)
    typed = ["--target", str(made / "target"), "--draft", str(made / "drafter"), "--batch-size", "8"]
    assert main(["record", *typed, "--prompts", str(made / "prompts.jsonl"), "--out", str(made / "one")]) == 0
    write_synthetic_trace(made / "mine", num_sequences=12, length=20)
    asked = ["replay", "--trace", str(made / "mine"), "-p", "ddtree:budget=4..16"]
    assert main([*asked, "--out", str(made / "one.parquet")]) == 0
    return made


def run(script: str, place: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, **variables: object) -> None:
    """Run a script whose one ``simlab`` is told what a shell makes of its words, and does it in this process."""
    told, programs = folder / "told", folder / "programs"
    programs.mkdir(parents=True, exist_ok=True)
    (programs / "simlab").write_text(f"#!/bin/sh\nprintf '%s\\n' \"$@\" > {told}\n")
    (programs / "simlab").chmod(0o755)
    if not (folder / "prompts.jsonl").exists():
        (folder / "prompts.jsonl").symlink_to(place / "prompts.jsonl")
        (folder / "mine").symlink_to(place / "mine")
    models = {"TARGET": place / "target", "DRAFT": place / "drafter", "DEVICE": "cpu"}
    given = {"PATH": f"{programs}:{os.environ['PATH']}", **models, **variables}
    environment = {**os.environ, **{name: str(value) for name, value in given.items()}}
    subprocess.run(["bash", "-e", "-c", script.partition("\ncp ")[0]], cwd=folder, env=environment, check=True)
    with monkeypatch.context() as patch:
        patch.chdir(folder)
        assert main(told.read_text().splitlines()) == 0
    # What stands behind it, with the variables that were set before; the program is told again, and does nothing.
    subprocess.run(["bash", "-e", "-c", script], cwd=folder, env=environment, check=True)


def bytes_of(folder: Path) -> dict[str, bytes]:
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    files.pop("recording.json")
    return files


@pytest.mark.thorough
def test_the_slurm_array(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (script,) = (block for block in blocks("bash") if block.startswith("#!"))
    for task in (1, 0):
        run(script, place, tmp_path, monkeypatch, SLURM_ARRAY_TASK_ID=task, SLURM_ARRAY_TASK_COUNT=2)
    assert bytes_of(tmp_path / "runs" / "mine") == bytes_of(place / "one")


@pytest.mark.thorough
def test_the_indexed_job(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = loaded(next(block for block in blocks("yaml") if "kind: Job" in block))
    assert (job["apiVersion"], job["kind"], job["spec"]["completionMode"]) == ("batch/v1", "Job", "Indexed")
    pod = job["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert container["command"] == ["bash", "-c"]
    (script,) = container["args"]
    for index in range(job["spec"]["completions"]):
        run(script, place, tmp_path, monkeypatch, JOB_COMPLETION_INDEX=index)
    merge = next(block for block in blocks("sh") if "--shard" in block and "simlab replay" in block).splitlines()[-1]
    run(merge, place, tmp_path, monkeypatch)
    assert (tmp_path / "all.parquet").read_bytes() == (place / "one.parquet").read_bytes()


@pytest.mark.thorough
def test_the_skypilot_task(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    task = loaded(next(block for block in blocks("yaml") if "num_nodes" in block))
    assert set(task) == {"name", "num_nodes", "resources", "envs", "file_mounts", "setup", "workdir", "run"}
    assert task["num_nodes"] == 4
    bucket = tmp_path / "bucket"
    bucket.mkdir()
    for rank in range(4):
        node = {"SKYPILOT_NODE_RANK": rank, "SKYPILOT_NUM_NODES": 4}
        run(task["run"], place, tmp_path / str(rank), monkeypatch, BUCKET=bucket, **node)
    merge = re.search(r"`(simlab merge /bucket[^`]*)`", PAGE)
    assert merge is not None
    run(merge[1].replace("/bucket", str(bucket)).replace("--out mine", "--out made"), place, tmp_path, monkeypatch)
    assert bytes_of(tmp_path / "made") == bytes_of(place / "one")


def test_ranks(place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What torchrun starts; torchrun itself asks for ports, and is not run here."""
    (line,) = (block for block in blocks("bash") if block.startswith("torchrun"))
    script = re.fullmatch(r"torchrun --nproc-per-node 2 --no-python bash -c '(.*)'\n", line, re.DOTALL)
    assert script is not None
    for rank in range(2):
        run(script[1], place, tmp_path, monkeypatch, RANK=rank, WORLD_SIZE=2, LOCAL_RANK=rank)
    assert bytes_of(tmp_path / "runs" / "mine") == bytes_of(place / "one")
