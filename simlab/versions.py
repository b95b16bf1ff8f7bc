"""The version of simlab, and of what it runs on."""

from collections.abc import Iterable
from importlib import metadata

VERSION = "0.1.0"
"""Of the code that runs, installed or not: pyproject.toml takes it from here."""


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """The versions of some packages by name, in their order; simlab's is that of the code that runs."""
    return {name: VERSION if name == "simlab" else metadata.version(name) for name in packages}
