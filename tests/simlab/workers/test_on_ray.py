"""Workers of Ray: values in order whatever is lost, one sentence for what cannot go on."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import RayActorError
from ray_jobs import Squares, ray_of_tests

from simlab.errors import SimlabError, UsageError
from simlab.workers import ray_pool
from simlab.workers.on_ray import RayOptions, WorkerError, ray_options, workers_on
from simlab.workers.ray_pool import MOST_LOSSES
from simlab.workers.threads import Threads, Workers, ignore_progress, kind_of_this_process

NUM_UNITS = 12
EXPECTED = [number * number for unit in range(NUM_UNITS) for number in range(unit + 1)]


@pytest.fixture(scope="module", autouse=True)
def ray() -> Iterator[None]:
    with ray_of_tests(4):
        yield


@pytest.fixture
def two() -> Iterator[Workers]:
    with workers_on(RayOptions(workers=2)) as workers:
        yield workers


def found(workers: Workers, job: Squares, units: range = range(NUM_UNITS)) -> list[int]:
    return list(workers.results(job, units, ignore_progress))


@pytest.mark.parametrize(("asked", "cores"), [(None, 4), (1, 4), (4, 4), (7, 7)])
def test_a_ray_of_ones_own_has_room_for_every_worker(
    asked: int | None, cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray waits for ever with a worker for which it counts no core."""
    begun: list[object] = []
    monkeypatch.setattr(ray_pool, "num_cores", lambda: 4)
    monkeypatch.setattr("ray.init", lambda **options: begun.append(options["num_cpus"]))
    ray_pool._begin(RayOptions(workers=asked))
    assert begun == [cores]


def test_as_many_workers_are_lost_as_the_sentence_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """While they begin, and over one unit of work."""

    def lost(_: object) -> object:
        raise RayActorError

    monkeypatch.setattr("ray.get", lost)
    job: Any = SimpleNamespace()
    run: Any = ray_pool._Run(job, {}, job, ignore_progress, 1, 1, [])
    worker: Any = SimpleNamespace(kind=None)
    task: Any = SimpleNamespace(number=0, losses=0)

    def begin() -> None:
        run.workers.append(worker)
        run._meet(worker)

    def work() -> None:
        run._running["ref"] = task, worker
        run._take_in("ref")

    for lose in (begin, work):
        for _ in range(MOST_LOSSES - 1):
            lose()
        with pytest.raises(WorkerError, match=f"^{MOST_LOSSES} workers "):
            lose()


@pytest.mark.thorough
def test_threads_and_workers_give_the_same_in_the_same_order(two: Workers, tmp_path: Path) -> None:
    assert found(Threads(2), Squares(tmp_path)) == found(two, Squares(tmp_path)) == EXPECTED


@pytest.mark.thorough
def test_a_job_is_opened_once_in_each_worker_and_workers_are_kept(two: Workers, tmp_path: Path) -> None:
    assert found(two, Squares(tmp_path, wait_s=0.01)) == EXPECTED
    first = set(tmp_path.glob("opened-*"))
    assert 1 <= len(first) <= 2
    for path in first:
        path.unlink()
    assert found(two, Squares(tmp_path, wait_s=0.01)) == EXPECTED
    assert set(tmp_path.glob("opened-*")) <= first


@pytest.mark.thorough
def test_units_of_lost_workers_are_done_again(two: Workers, tmp_path: Path) -> None:
    assert found(two, Squares(tmp_path, dies_at=(0, 3, 4, 11))) == EXPECTED
    assert len(list(tmp_path.glob("died-*"))) == 4


@pytest.mark.thorough
def test_a_unit_that_ends_every_worker_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_pool, "MOST_LOSSES", 2)
    with (
        workers_on(RayOptions(workers=1)) as workers,
        pytest.raises(WorkerError, match=r"2 workers ended .* same unit of work: .*; finished units are kept"),
    ):
        found(workers, Squares(tmp_path, dies_at=(1,), always=True))
    assert MOST_LOSSES > 2


@pytest.mark.thorough
def test_what_a_job_says_comes_to_the_driver_and_the_workers_do_the_next_one(two: Workers, tmp_path: Path) -> None:
    with pytest.raises(SimlabError, match="^no square of 5$"):
        found(two, Squares(tmp_path, fails_at=5))
    with pytest.raises(ZeroDivisionError, match="at 5"):
        found(two, Squares(tmp_path, breaks_at=5))
    assert found(two, Squares(tmp_path)) == EXPECTED


@pytest.mark.thorough
def test_few_units_are_taken_before_their_values_are_asked_for(two: Workers, tmp_path: Path) -> None:
    taken: list[int] = []

    def units() -> Iterator[int]:
        for number in range(10_000):
            taken.append(number)
            yield number % 3

    values = two.results(Squares(tmp_path), units(), ignore_progress)
    for _ in range(4):
        next(values)
    time.sleep(0.5)
    assert len(taken) < 40
    values.close()  # type: ignore[attr-defined]
    assert found(two, Squares(tmp_path)) == EXPECTED


@pytest.mark.thorough
def test_a_worker_of_another_version_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = dict(kind_of_this_process())
    monkeypatch.setattr(ray_pool, "kind_of_this_process", lambda: here | {"numba": "0.1"})
    with (
        workers_on(RayOptions(workers=1)) as workers,
        pytest.raises(WorkerError, match=rf"a worker has numba {here['numba']}, and the driver has numba 0\.1"),
    ):
        found(workers, Squares(tmp_path))


@pytest.mark.thorough
def test_options_that_say_nothing_are_refused() -> None:
    assert ray_options(None, None) is None
    assert ray_options("local", 3) == RayOptions("local", 3)
    with pytest.raises(UsageError, match="--workers 2 are workers of Ray; add --ray local"):
        ray_options(None, 2)
    with pytest.raises(UsageError, match="expected --ray local or an address"):
        ray_options(" ", None)


def test_without_ray_a_sentence_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "simlab.workers.ray_pool")
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(SimlabError, match=r'install it with: pip install "simlab\[ray\]"'), workers_on(RayOptions()):
        pass
