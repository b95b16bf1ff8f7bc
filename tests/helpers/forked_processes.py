"""Processes that have the imports behind them, which would take ten times as long as what the tests do in them."""

import importlib
import multiprocessing
from multiprocessing import forkserver
from multiprocessing.context import ForkServerContext

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
