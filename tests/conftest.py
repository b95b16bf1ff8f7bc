"""Hypothesis profiles: CI tries the same examples every time; compiled code makes deadlines meaningless.

The campaign of mutants (`make mutants`) wants to know that an example fails, not the smallest that does.
Where tests run beside each other, each process and those that it starts have one thread: more would wait for one
another, and those of polars wait busily.
"""

import os

from hypothesis import Phase, settings

settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("dev", deadline=None)
settings.register_profile(
    "mutants", derandomize=True, deadline=None, database=None, phases=(Phase.explicit, Phase.generate)
)
settings.load_profile("ci" if os.environ.get("CI") else "dev")

if "PYTEST_XDIST_WORKER" in os.environ:
    for name in ("OMP_NUM_THREADS", "POLARS_MAX_THREADS"):
        os.environ.setdefault(name, "1")
