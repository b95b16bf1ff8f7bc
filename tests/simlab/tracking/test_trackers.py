"""The real trackers, each on this machine alone: what stands in their files after a run."""

import json
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from commands import json_of
from confirm_runs import make
from synthetic_traces import write_synthetic_trace
from training_runs import (
    arguments,
    eagle3_arguments,
    head_arguments,
    make_files,
    scorer_arguments,
    self_arguments,
    texts,
)

from simlab.cli.main import main

CAP = ("--objective", "acceptance_length", "--node-cap", "8")
SEARCH = ("optimize", *CAP, "-p", "ddtree:budget=2/4", "--json", "--threads", "1")


RANGE = "survival:threshold=0.01~0.5,budget=4"

Runs = Callable[[], list[dict[str, Any]]]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("traces") / "trace"
    write_synthetic_trace(folder, length=40, prompts_per_shard=100)
    return folder


@pytest.fixture
def mlflow_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Runs:
    """What MLflow keeps of all runs: of each its job, settings, numbers by name and step, files and state."""
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path}/mlflow.db")
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "ours")
    monkeypatch.chdir(tmp_path)

    def found() -> list[dict[str, Any]]:
        client = mlflow.MlflowClient(f"sqlite:///{tmp_path}/mlflow.db")
        experiment = client.get_experiment_by_name("ours")
        runs = [] if experiment is None else client.search_runs([experiment.experiment_id], order_by=["start_time ASC"])
        return [
            {
                "job": run.data.tags["mlflow.source.name"],
                "settings": run.data.params,
                "numbers": {
                    name: [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, name)]
                    for name in run.data.metrics
                },
                "files": {artifact.path for artifact in client.list_artifacts(run.info.run_id)},
                "state": run.info.status,
            }
            for run in runs
        ]

    return found


def simlab(folder: Path, typed: list[str], more: Mapping[str, str]) -> str:
    """Run a command in a process of its own, whose home and working folder are empty; what it printed."""
    folder.mkdir()
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("WANDB_", "TRACKIO_", "HF_"))}
    home = {"HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-m", "simlab", *typed]
    env = kept | home | dict(more)
    done = subprocess.run(command, env=env, cwd=folder, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    assert "takes no more" not in done.stderr
    return done.stdout


def test_a_search_in_mlflow(trace: Path, mlflow_runs: Runs) -> None:
    said = json_of(*SEARCH, "--trace", trace, "--track", "mlflow")
    (run,) = mlflow_runs()
    assert (run["job"], run["state"]) == ("optimize", "FINISHED")
    assert run["settings"]["dev.text_id"] == said["chosen_on"]["text_id"]
    assert run["settings"]["policies"] == "ddtree:budget=2/4"
    best = max(row["dev_acceptance_length"] for row in said["rows"] if row["role"] != "bound")
    ((step, figure),) = run["numbers"]["search/best_objective"]
    assert (step, figure) == (0, pytest.approx(best))
    (chain,) = (row for row in said["rows"] if row["policy"] == "chain")
    for name in ("acceptance_length", "acceptance_length_ci_low", "acceptance_length_ci_high"):
        ((_, value),) = run["numbers"][f"rows.chain.evaluation_{name}"]
        assert value == chain[f"evaluation_{name}"]
    assert run["files"] == {"optimize.json", "results.parquet"}


@pytest.mark.thorough
def test_trials_and_halving_in_mlflow(tmp_path: Path, mlflow_runs: Runs) -> None:
    trace = write_synthetic_trace(tmp_path / "many", num_sequences=96, length=12, prompts_per_shard=100)
    typed = [
        "optimize",
        *CAP,
        "-p",
        "spine-gap:budget=1..8",
        "-p",
        RANGE,
        "--trials",
        "3",
        "--threads",
        "1",
        "--halving",
    ]
    assert main([*typed, "--trace", str(trace), "--track", "mlflow"]) == 0
    (run,) = mlflow_runs()
    tried = [value for _, value in run["numbers"]["trials/objective"]]
    best = [value for _, value in run["numbers"]["trials/best_objective"]]
    assert best == [max(tried[: index + 1]) for index in range(3)]
    prompts = run["numbers"]["search/prompts"]
    assert [step for step, _ in prompts] == list(range(3, 3 + len(prompts)))
    assert len(prompts) > 1
    assert prompts[-1][1] == int(run["settings"]["dev.prompts"])
    policies = [value for _, value in run["numbers"]["search/policies"]]
    assert policies == sorted(policies, reverse=True)


@pytest.mark.thorough
def test_a_search_in_wandb_offline(trace: Path, tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    folder = tmp_path / "here"
    simlab(folder, [*SEARCH, "--trace", str(trace), "--track", "wandb"], {"WANDB_MODE": "offline"})
    (run,) = folder.glob("wandb/offline-run-*/run-*.wandb")
    kept = run.read_bytes()
    for wanted in (b"search/best_objective", b"rows.chain.evaluation_acceptance_length_ci_low", b"dev.text_id"):
        assert wanted in kept
    gathered = {path.name for path in run.parent.joinpath("files").rglob("*")}
    assert not gathered & {"requirements.txt", "wandb-metadata.json", "output.log", "diff.patch"}


@pytest.mark.thorough
def test_a_search_in_trackio(trace: Path, tmp_path: Path) -> None:
    pytest.importorskip("trackio")
    folder = tmp_path / "here"
    out = simlab(folder, [*SEARCH, "--trace", str(trace), "--track", "trackio"], {"TRACKIO_DIR": str(folder / "kept")})
    said = json.loads(out)
    with sqlite3.connect(folder / "kept" / "simlab.db") as kept:
        rows = [json.loads(row[0]) for row in kept.execute("select metrics from metrics order by id")]
        (settings,) = (json.loads(row[0]) for row in kept.execute("select config from configs"))
    assert settings["dev.text_id"] == said["chosen_on"]["text_id"]
    assert rows[0]["search/prompts"] == settings["dev.prompts"]
    (chain,) = (row for row in said["rows"] if row["policy"] == "chain")
    assert rows[-1]["rows.chain.evaluation_acceptance_length"] == chain["evaluation_acceptance_length"]
    assert any(folder.glob("kept/artifacts/simlab/blobs/**/*"))


@pytest.mark.thorough
def test_every_kind_of_training_in_mlflow(tmp_path: Path, mlflow_runs: Runs) -> None:
    folder, more = make_files(tmp_path), ("--track", "mlflow")
    kinds = {
        "dflash": arguments(
            folder / "target", folder / "dflash", *texts(folder), "--dev", str(folder / "dev.jsonl"), *more
        ),
        "treeflash": head_arguments(folder, folder / "treeflash", *more),
        "taps": scorer_arguments(folder, folder / "taps", *more),
        "eagle3": eagle3_arguments(folder, folder / "eagle3", *more),
        "self": self_arguments(folder, folder / "self", *more),
    }
    for typed in kinds.values():
        assert main(typed) == 0
    runs = mlflow_runs()
    assert [run["job"] for run in runs] == [f"train {kind}" for kind in kinds]
    for kind, run in zip(kinds, runs, strict=True):
        assert [step for step, _ in run["numbers"]["loss"]] == list(range(1, len(run["numbers"]["loss"]) + 1))
        curve = json.loads((folder / kind / "curve.json").read_text())
        losses = [value for _, value in run["numbers"]["loss"]]
        for before, point in pairwise(curve):
            mean = sum(losses[before["step"] : point["step"]]) / (point["step"] - before["step"])
            assert mean == pytest.approx(point["loss"], abs=1e-6)
        name = "evaluation/dev" if kind == "dflash" else "evaluation/held_out"
        assert [step for step, _ in run["numbers"][name]] == [point["step"] for point in curve]
        assert {"curve.json", "README.md"} <= run["files"]
        assert len(run["settings"]["target_digest"]) == 64
        assert run["settings"]["versions.simlab"]
        assert "track" not in run["settings"]


@pytest.mark.thorough
def test_a_tracked_run_is_the_same_run(tmp_path: Path, mlflow_runs: Runs) -> None:
    folder = make_files(tmp_path)
    assert main(eagle3_arguments(folder, folder / "one")) == 0
    assert main(eagle3_arguments(folder, folder / "other", "--track", "mlflow")) == 0
    assert (folder / "one" / "curve.json").read_bytes() == (folder / "other" / "curve.json").read_bytes()
    assert (folder / "one" / "model.safetensors").read_bytes() == (folder / "other" / "model.safetensors").read_bytes()
    assert len(mlflow_runs()) == 1


@pytest.mark.thorough
def test_a_confirmation_in_mlflow(tmp_path: Path, mlflow_runs: Runs) -> None:
    made = make(tmp_path)
    typed = ["confirm", "--trace", str(made.folder / "trace"), "-p", "ddtree:budget=8", "--out", str(tmp_path / "out")]
    said = json_of(*typed, "--json", "--track", "mlflow")
    (run,) = mlflow_runs()
    (row,) = (one for one in said["rows"] if one["policy"] == "ddtree:budget=8")
    for name in ("measured_speedup", "measured_speedup_ci_low", "measured_speedup_ci_high", "acceptance_length"):
        ((_, value),) = run["numbers"][f"rows.ddtree:budget_8.{name}"]
        assert value == row[name]
    assert run["settings"]["text_id"] == said["text_id"]
    assert run["settings"]["policies.ddtree:budget_8"] == row["policy_id"]
    assert run["settings"]["versions.torch"] == said["ran"]["versions"]["torch"]
    assert run["files"] == {"confirm.json", "results.parquet"}


def test_a_server_that_is_gone_costs_no_work(
    trace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    assert main([*SEARCH, "--trace", str(trace), "--out", str(tmp_path / "out.json"), "--track", "mlflow"]) == 0
    said = capsys.readouterr()
    assert said.err.count("mlflow takes no more of this run (") == 1
    assert json.loads(said.out)["rows"]
    assert (tmp_path / "out.json").is_file()
