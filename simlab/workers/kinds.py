"""What a worker runs on: one that differs from the driver is refused, since its last bits might differ too."""

import platform
from collections.abc import Iterable, Mapping
from importlib import metadata

REPLAYING = ("simlab", "numpy", "numba", "llvmlite", "polars", "scipy")
"""The packages that result rows depend on. A recording's manifest names its own."""

Kind = Mapping[str, str]
"""By name: the versions of packages and of Python, and the processor's architecture."""


def kind_of_this_process(packages: Iterable[str] = REPLAYING) -> Kind:
    """What this process runs on."""
    versions = {name: metadata.version(name) for name in packages}
    major, minor, _ = platform.python_version_tuple()
    return versions | {"python": f"{major}.{minor}", "architecture": platform.machine()}


def difference(driver: Kind, worker: Kind) -> str | None:
    """In what a worker differs from the driver, in words; None: in nothing.

    >>> difference({"numba": "0.68.1"}, {"numba": "0.67.0"})
    'numba 0.67.0, and the driver has numba 0.68.1'
    """
    for name, here in driver.items():
        there = worker.get(name, "none")
        if there != here:
            return f"{name} {there}, and the driver has {name} {here}"
    return None
