"""One writer for each experiment tracker: the same four calls, in the tracker's own words.

Each is set up as its own environment variables say, such as ``WANDB_MODE``, ``MLFLOW_TRACKING_URI`` and
``TRACKIO_DIR``. Switched off is what a tracker would gather by itself: the console, the source code, the state of git,
the machine's load, and its maker's statistics of use.
"""

import os
import re
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Protocol

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
        found = self._client.get_experiment_by_name(named)
        experiment = self._client.create_experiment(named) if found is None else found.experiment_id
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
