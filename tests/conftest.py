"""Profiles of hypothesis, tests that only a thorough run has, and where compiled kernels are kept.

A quick run tries the same examples every time: what fails in it was broken by the change at hand, and fails again for
whoever repeats it. New examples are looked for by thorough runs, each of which tries others. Compiled code makes
deadlines meaningless. The campaign of mutants (`make mutants`) wants to know that an example fails, not the smallest
that does.
Where tests run beside each other, each process and those that it starts have one thread: more would wait for one
another, and those of polars wait busily.
"""

import os

import pytest
from depth import THOROUGH, examples
from hypothesis import HealthCheck, Phase, settings
from kernel_cache import kernel_folder

EASY = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("quick", EASY, derandomize=True, max_examples=examples(100))
settings.register_profile("thorough", EASY, print_blob=True)
settings.register_profile("mutants", EASY, derandomize=True, database=None, phases=(Phase.explicit, Phase.generate))
settings.load_profile("thorough" if THOROUGH else "quick")

# Processes that tests start read it too. The campaign of mutants keeps kernels of its own.
if "NUMBA_CACHE_DIR" not in os.environ:
    os.environ.setdefault("SIMLAB_KERNELS", str(kernel_folder()))

if "PYTEST_XDIST_WORKER" in os.environ:
    for name in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS"):
        os.environ.setdefault(name, "1")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what only a thorough run has."""
    left_out = [] if THOROUGH else [item for item in items if item.get_closest_marker("thorough")]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if not item.get_closest_marker("thorough")]
