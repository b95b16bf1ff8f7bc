"""A run in experiment trackers, opened with ``--track``: a tracker that fails is left, and the work goes on."""

import math
import os
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol

from simlab.errors import SimlabError, UsageError, enumerated, reason_of
from simlab.options import option

# One writer for each experiment tracker: the same four calls, in the tracker's own words.
#
# Each is set up as its own environment variables say, such as ``WANDB_MODE``, ``MLFLOW_TRACKING_URI`` and
# ``TRACKIO_DIR``. Switched off is what a tracker would gather by itself: the console, the source code, the state of
# git, the machine's load, and its maker's statistics of use.


PROJECT = "simlab"
"""The project or experiment of a run, where the tracker's environment variables name none."""

_MOST_AT_ONCE, _SECONDS_BETWEEN = 500, 5.0
_MOST_SETTINGS_AT_ONCE = 100
_NOT_IN_MLFLOW = re.compile(r"[^\w.\-/: ]", re.ASCII)
_INIT_S = 60.0

Scalar = str | int | float | bool | None
"""A setting or a fact, as every tracker takes it."""


class Writer(Protocol):
    """A run that was opened in a tracker; every call may raise whatever the tracker raises."""

    def numbers(self, values: Mapping[str, float], step: int) -> None:
        """Write numbers of a step; steps rise."""
        ...

    def results(self, values: Mapping[str, float]) -> None:
        """Write what came out at the end."""
        ...

    def files(self, paths: Sequence[Path]) -> None:
        """Keep copies of finished files."""
        ...

    def end(self, has_failed: bool) -> None:
        """Close the run; what was not sent yet is sent."""
        ...


class WandbRun:
    """A run of Weights & Biases."""

    def __init__(self, job: str, settings: Mapping[str, Scalar]) -> None:
        os.environ.setdefault("WANDB_ERROR_REPORTING", "false")
        import wandb  # noqa: PLC0415 - an extra of its own

        self._wandb = wandb
        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            job_type=job,
            config=dict(settings),
            settings=wandb.Settings(
                console="off",
                disable_code=True,
                disable_git=True,
                init_timeout=_INIT_S,
                quiet=True,
                x_disable_machine_info=True,
                x_disable_meta=True,
                x_disable_stats=True,
                x_save_requirements=False,
            ),
        )

    def numbers(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def results(self, values: Mapping[str, float]) -> None:
        self._run.summary.update(dict(values))

    def files(self, paths: Sequence[Path]) -> None:
        artifact = self._wandb.Artifact(f"run-{self._run.id}-results", type="results")
        for path in paths:
            artifact.add_file(str(path))
        self._run.log_artifact(artifact)

    def end(self, has_failed: bool) -> None:
        self._run.finish(exit_code=int(has_failed))


class MlflowRun:
    """A run of MLflow; numbers are sent some at a time, since each call may be a request to a server."""

    def __init__(self, job: str, settings: Mapping[str, Scalar]) -> None:
        os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
        from mlflow import MlflowClient, entities  # noqa: PLC0415 - an extra of its own

        self._client, self._entities = MlflowClient(), entities
        named = os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT)
        existing = self._client.get_experiment_by_name(named)
        experiment = self._client.create_experiment(named) if existing is None else existing.experiment_id
        experiment = os.environ.get("MLFLOW_EXPERIMENT_ID", experiment)
        self._id = self._client.create_run(experiment, tags={"mlflow.source.name": job}).info.run_id
        params = [entities.Param(_mlflow_name(key), str(value)) for key, value in settings.items()]
        for first in range(0, len(params), _MOST_SETTINGS_AT_ONCE):
            self._client.log_batch(self._id, params=params[first : first + _MOST_SETTINGS_AT_ONCE])
        self._waiting: list[entities.Metric] = []
        self._sent = time.monotonic()

    def numbers(self, values: Mapping[str, float], step: int) -> None:
        now = int(time.time() * 1000)
        self._waiting += [
            self._entities.Metric(_mlflow_name(key), value, timestamp=now, step=step) for key, value in values.items()
        ]
        if len(self._waiting) >= _MOST_AT_ONCE or time.monotonic() - self._sent > _SECONDS_BETWEEN:
            self._send()

    def results(self, values: Mapping[str, float]) -> None:
        self.numbers(values, 0)

    def files(self, paths: Sequence[Path]) -> None:
        for path in paths:
            self._client.log_artifact(self._id, str(path))

    def end(self, has_failed: bool) -> None:
        self._send()
        self._client.set_terminated(self._id, "FAILED" if has_failed else "FINISHED")

    def _send(self) -> None:
        waiting, self._waiting = self._waiting, []
        for first in range(0, len(waiting), _MOST_AT_ONCE):
            self._client.log_batch(self._id, metrics=waiting[first : first + _MOST_AT_ONCE])
        self._sent = time.monotonic()


class TrackioRun:
    """A run of trackio, which prints what it does; standard output is the command's own."""

    def __init__(self, job: str, settings: Mapping[str, Scalar]) -> None:
        with redirect_stdout(sys.stderr):
            import trackio  # noqa: PLC0415 - an extra of its own

            self._finish: Callable[[], None] = trackio.finish
            self._run = trackio.init(
                project=os.environ.get("TRACKIO_PROJECT", PROJECT),
                group=job,
                config=dict(settings),
                embed=False,
                auto_log_cpu=False,
                auto_log_gpu=False,
            )

    def numbers(self, values: Mapping[str, float], step: int) -> None:
        self._run.log(dict(values), step=step)

    def results(self, values: Mapping[str, float]) -> None:
        self._run.log(dict(values))

    def files(self, paths: Sequence[Path]) -> None:
        with redirect_stdout(sys.stderr):
            for path in paths:
                self._run.log_artifact(path, type="results")

    def end(self, has_failed: bool) -> None:
        with redirect_stdout(sys.stderr):
            self._finish()  # not the run's own, which is then closed again, and said to be, at exit


WRITERS: Mapping[str, Callable[[str, Mapping[str, Scalar]], Writer]] = {
    "wandb": WandbRun,
    "mlflow": MlflowRun,
    "trackio": TrackioRun,
}
"""How a run is opened in each tracker, from the job's name and its settings."""


def _mlflow_name(name: str) -> str:
    """A name of the signs that MLflow takes."""
    return _NOT_IN_MLFLOW.sub("_", name)


TRACKERS = tuple(WRITERS)
"""What ``--track`` takes."""


def track_option() -> Sequence[str]:
    """``--track``, which may be repeated."""
    help_text = "write settings, numbers and results to an experiment tracker too; may be repeated"
    return option((), help_text, choices=TRACKERS, repeats=True)


_MOST_OF_A_REASON = 200


class Tracker:
    """A run in some trackers, or in none.

    Its calls never raise what a tracker raises: the first failure is said once, on standard error, and this tracker
    gets no more.

    Attributes:
        is_asked: whether anybody asked for a tracker.
    """

    def __init__(self, names: Iterable[str], job: str, settings: Mapping[str, object]) -> None:
        """Open a run in each tracker.

        Args:
            names: of the trackers.
            job: what is run, such as ``optimize``.
            settings: of it, with ids of what it reads and versions; nested ones get names such as ``plan.steps``.
        """
        self._writers: dict[str, Writer] = {}
        flat = flat_settings(settings)
        for name in dict.fromkeys(names):
            self._guarded(name, partial(self._open, name, job, flat))
        self.is_asked = bool(self._writers)

    def numbers(self, values: Mapping[str, float | None], step: int) -> None:
        """Write numbers of a step; those that are None or not finite are left out."""
        known = finite_numbers(values)
        if known:
            self._to_all(lambda writer: writer.numbers(known, step))

    def results(self, values: Mapping[str, object]) -> None:
        """Write what came out: the numbers of a JSON value, however deep, named by their keys with dots between."""
        known = finite_numbers(flat_values(values))
        if known:
            self._to_all(lambda writer: writer.results(known))

    def files(self, *paths: str | Path | None) -> None:
        """Keep copies of result files; None, and what is not there, is left out."""
        existing = [Path(path) for path in paths if path is not None and Path(path).is_file()]
        if existing:
            self._to_all(lambda writer: writer.files(existing))

    def end(self, has_failed: bool) -> None:
        """Close the run; what was not sent yet is sent."""
        self._to_all(lambda writer: writer.end(has_failed))
        self._writers.clear()

    def _open(self, name: str, job: str, settings: Mapping[str, Scalar]) -> None:
        self._writers[name] = WRITERS[name](job, settings)

    def _to_all(self, call: Callable[[Writer], None]) -> None:
        for name, writer in list(self._writers.items()):
            self._guarded(name, partial(call, writer))

    def _guarded(self, name: str, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - whatever a tracker raises, the work goes on
            self._writers.pop(name, None)
            reason = reason_of(error)[:_MOST_OF_A_REASON]
            # A bar may be on the screen; it takes a tenth of a second to import, which `--help` should not wait for.
            from tqdm import tqdm  # noqa: PLC0415

            tqdm.write(f"{name} takes no more of this run ({reason}); the work goes on without it", file=sys.stderr)


def check_trackers(names: Iterable[str]) -> tuple[str, ...]:
    """Refuse, before any work, a tracker that is unknown or not installed; returns the names, each once."""
    trackers = tuple(dict.fromkeys(names))
    for name in trackers:
        if name not in WRITERS:
            raise UsageError(f"trackers are {enumerated(TRACKERS)}; got {name!r}")
        if find_spec(name) is None:
            raise SimlabError(
                f"--track {name} needs the package {name}, which is not installed; install it with: "
                f'pip install "simlab[{name}]"'
            )
    return trackers


@contextmanager
def tracking(names: Sequence[str], job: str, settings: Callable[[], Mapping[str, object]]) -> Iterator[Tracker]:
    """Open a run in trackers, and close it however the work ends.

    Args:
        names: of the trackers; empty: nothing is written anywhere.
        job: what is run, such as ``optimize``.
        settings: of it, asked for only where there is a tracker.
    """
    known = check_trackers(names)
    tracker, has_failed = Tracker(known, job, settings() if known else {}), True
    try:
        yield tracker
        has_failed = False
    finally:
        tracker.end(has_failed)


def flat_settings(values: Mapping[str, object]) -> dict[str, Scalar]:
    """Settings by names with dots between; a list of plain values becomes a text.

    >>> flat_settings({"plan": {"steps": 5}, "dev": ["a", "b"]})
    {'plan.steps': 5, 'dev': 'a, b'}
    """
    return flat_values({key: _with_texts(value) for key, value in values.items()})


def _with_texts(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _with_texts(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset) and not any(isinstance(item, Mapping) for item in value):
        return ", ".join(map(str, value))
    return value


def flat_values(values: Mapping[str, object]) -> dict[str, Scalar]:
    """Nested values by names with dots between; what is in a list is named by its policy, or by its place.

    >>> flat_values({"rows": [{"policy": "chain", "speedup": 1.5}], "shares": [0.5, 0.25]})
    {'rows.chain.policy': 'chain', 'rows.chain.speedup': 1.5, 'shares.0': 0.5, 'shares.1': 0.25}
    """
    flat: dict[str, Scalar] = {}
    for key, value in values.items():
        named = _by_name(value) if isinstance(value, list | tuple) else value
        if isinstance(named, Mapping):
            flat |= {f"{key}.{inner}": item for inner, item in flat_values(named).items()}
        elif value is None or isinstance(value, str | int | float | bool):
            flat[str(key)] = value
        else:
            flat[str(key)] = str(value)
    return flat


def _by_name(values: Sequence[object]) -> dict[str, object]:
    """Give each of a list a name: a row's policy, where no other row has it, else its place."""
    names = [str(value.get("policy", "")) if isinstance(value, Mapping) else "" for value in values]
    return {
        name if name and names.count(name) == 1 else str(index): value
        for index, (name, value) in enumerate(zip(names, values, strict=True))
    }


def finite_numbers(values: Mapping[str, object]) -> dict[str, float]:
    """The numbers among values, as floats; truth values, and what is not finite, are none.

    >>> finite_numbers({"loss": 1, "name": "a", "won": True, "dev": None, "nan": float("nan")})
    {'loss': 1.0}
    """
    return {
        key: float(value)
        for key, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }
