"""What workers of Ray find is what threads of one process find, byte for byte."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from depth import some
from ray_jobs import random_kills, ray_of_tests
from synthetic_traces import write_synthetic_trace

import simlab
from simlab.errors import TraceError
from simlab.studies.inputs.trace import open_handle, sample_trace, whole_prompts
from simlab.studies.optimize.optimize import OptimizeResult

POLICIES = ("ddtree:budget=4/16", "presto:budget=8", "calibrated:budget=8", "caddtree:budget=32")
PRICES = "smollm2-135m-epyc-float32"


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[None]:
    with ray_of_tests(4):
        yield


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A replay by threads: result rows and rounds."""
    made = tmp_path_factory.mktemp("alone")
    replayed(made)
    return made


def replayed(folder: Path, **more: object) -> None:
    files = {"out": folder / "results.parquet", "rounds": folder / "rounds.parquet"}
    simlab.replay(policies=POLICIES, cost=PRICES, **files, **more)  # type: ignore[arg-type]


def same(path: Path, other: Path) -> bool:
    return all(
        (path / name).read_bytes() == (other / name).read_bytes() for name in ("results.parquet", "rounds.parquet")
    )


@pytest.mark.parametrize("workers", some([2, 1, 4]))
def test_replay_with_workers_writes_the_same_bytes(workers: int, alone: Path, tmp_path: Path) -> None:
    replayed(tmp_path, ray="local", workers=workers)
    assert same(tmp_path, alone)


@pytest.mark.thorough
def test_replay_with_killed_workers_writes_the_same_bytes(alone: Path, tmp_path: Path) -> None:
    with random_kills(5, most=3, seconds=0.7) as killed:
        replayed(tmp_path, ray="local", workers=2)
    assert killed
    assert same(tmp_path, alone)


@pytest.mark.thorough
@pytest.mark.parametrize("halving", [False, True])
def test_optimize_with_workers_writes_the_same_bytes(halving: bool, tmp_path: Path) -> None:
    policies = ("ddtree:budget=1..24", "presto:budget=4/8", "presto:ngram_weight=0.1~0.4,budget=8")

    def found(**more: object) -> OptimizeResult:
        return simlab.optimize(policies=policies, cost=PRICES, halving=halving, trials=3, **more)  # type: ignore[arg-type]

    found().write(tmp_path / "threads.json")
    result = found(ray="local", workers=2)
    result.write(tmp_path / "workers.json")
    assert (tmp_path / "threads.json").read_bytes() == (tmp_path / "workers.json").read_bytes()


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("study", "asked"),
    [
        (simlab.curves, {"policy": "ddtree:budget=16", "limit": 6}),
        (simlab.scoring, {"policies": POLICIES[:3], "limit": 9, "by": "dataset"}),
    ],
)
def test_studies_with_workers_write_the_same_bytes(
    study: Callable[..., Any], asked: dict[str, object], tmp_path: Path
) -> None:
    values = []
    for name, more in (("threads", {}), ("workers", {"ray": "local", "workers": 2})):
        table = study(cost=PRICES, **asked, **more)
        table.write(tmp_path / f"{name}.parquet")
        values.append(table.to_json())
    assert values[0] == values[1]
    assert (tmp_path / "threads.parquet").read_bytes() == (tmp_path / "workers.parquet").read_bytes()


def test_units_of_whole_prompts_hold_every_sequence_once() -> None:
    trace = sample_trace()
    units = whole_prompts(trace, range(len(trace.sequences())))
    assert [index for unit in units for index in unit] == list(range(len(trace.sequences())))
    prompts = [{trace.sequences()[index].prompt.prompt_id for index in unit} for unit in units]
    assert sum(map(len, prompts)) == len(set().union(*prompts))


@pytest.mark.thorough
def test_a_worker_that_finds_another_trace_refuses(tmp_path: Path) -> None:
    write_synthetic_trace(tmp_path / "one", num_sequences=2)
    with pytest.raises(TraceError, match="on a worker, and .* all machines must see the same files"):
        open_handle((str(tmp_path / "one"), sample_trace().text_id))


@pytest.mark.thorough
def test_an_address_where_no_ray_is_gets_a_sentence(tmp_path: Path) -> None:
    """In a process that is connected to none."""
    typed = [sys.executable, "-m", "simlab", "replay", "--ray", "127.0.0.1:9", "-p", "chain"]
    ended = subprocess.run(typed, capture_output=True, text=True, check=False, timeout=240)
    assert ended.returncode == 2
    assert "no Ray at 127.0.0.1:9" in ended.stderr
    assert "Traceback" not in ended.stderr
