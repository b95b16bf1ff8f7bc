"""Processes that have the imports behind them, which would take ten times as long as what the tests do in them."""

import importlib
import multiprocessing
import time
from collections.abc import Sequence
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext
from multiprocessing.process import BaseProcess
from pathlib import Path

import tiny_models

LOADED = (
    "simlab.cli.record",
    "simlab.real_runner.profile.profile",
    "simlab.studies.record",
    "transformers.models.llama.modeling_llama",
)
"""The server that forks the processes has no path to the helpers of the tests; what these import stands here."""


def forked_processes() -> ForkServerContext:
    """How such a process is begun; their server runs until the tests end."""
    for name in LOADED:
        importlib.import_module(name)  # the server itself says nothing of a module that is gone
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(list(LOADED))
    forkserver.ensure_running()
    return context


def begun(arguments: Sequence[str]) -> BaseProcess:
    """The command line in such a process."""
    process = forked_processes().Process(target=tiny_models.run_simlab, args=(arguments,))
    process.start()
    return process


def wait_for(path: Path, process: BaseProcess) -> float:
    """The moment at which a file is there."""
    while not path.exists():
        assert process.is_alive(), f"the command ended before {path} was there"
        time.sleep(0.001)
    return time.monotonic()


def kill_at(path: Path, process: BaseProcess, after_s: float = 0.0) -> None:
    """Kill it when a file is there, or so long afterwards."""
    wait_for(path, process)
    time.sleep(after_s)
    process.kill()
    process.join()
