"""Work on Ray: workers on this machine or on all machines of a cluster.

The driver, the process that was started by hand, hands out units and takes in values; it alone writes manifests and
result files. A unit whose worker is lost, with its machine or alone, is done again by another one.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import dataclass

from simlab.errors import SimlabError, UsageError
from simlab.limits import shown
from simlab.workers.threads import Threads, Workers

LOCAL = "local"
"""In place of an address: a Ray of its own on this machine, ended with the command."""


class WorkerError(SimlabError):
    """Workers that cannot be had, differ from the driver, or end again and again."""


@dataclass(frozen=True, slots=True)
class RayOptions:
    """Which Ray does the work, and how many workers there are.

    Attributes:
        address: ``local``, or that of a running cluster: ``auto``, ``HOST:PORT``, ``ray://HOST:PORT``.
        workers: None: as many as there are cores, or GPUs where a worker needs some.
        gpus: that one worker needs; they are of one machine.
        visible_gpus: those that a local Ray may use, as ``CUDA_VISIBLE_DEVICES`` names them; None: all.
        units_ahead: units that a worker has at a time; with 2 it never waits for the driver.
    """

    address: str = LOCAL
    workers: int | None = None
    gpus: int = 0
    visible_gpus: tuple[str, ...] | None = None
    units_ahead: int = 2

    def __post_init__(self) -> None:
        if not self.address or self.address != self.address.strip():
            raise UsageError(f"expected --ray local or an address such as HOST:6379; got {shown(self.address)}")


def ray_options(ray: str | None, workers: int | None) -> RayOptions | None:
    """What was asked for: ``local``, an address, or None, where threads do the work."""
    if ray is None and workers is not None:
        raise UsageError(f"--workers {workers} are workers of Ray; add --ray local, or leave it out")
    return None if ray is None else RayOptions(ray, workers)


@contextmanager
def workers_on(options: RayOptions | None, threads: int | None = None) -> Iterator[Workers]:
    """What does the work: workers of Ray, or where none was asked for the threads of this process."""
    if options is None:
        yield Threads(threads)
        return
    # Ray tells its makers how it is used, unless it is told not to.
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Where a worker needs no GPU it sees none, and Ray warns of it otherwise.
    os.environ.setdefault("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
    try:
        from simlab.workers.ray_pool import connected  # noqa: PLC0415 - imports ray, an extra of its own
    except ModuleNotFoundError as error:
        raise SimlabError(
            f'--ray needs the package {error.name}, which is not installed; install it with: pip install "simlab[ray]"'
        ) from error
    # Ray says on standard output that a worker was lost; that is where results go.
    with connected(options) as workers, redirect_stdout(sys.stderr):
        yield workers
