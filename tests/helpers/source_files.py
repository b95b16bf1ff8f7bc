"""The Python files of the product, for tests that read them."""

from pathlib import Path

from places import REPOSITORY

FOLDERS = ("traces", "policies", "analysis", "real_runner")
"""The top-level folders that are imported as parts of simlab."""


def source_files() -> list[Path]:
    """Every Python file of the product, relative to the repository, under its real folder."""
    folders = ("simlab", *FOLDERS)
    return sorted(path.relative_to(REPOSITORY) for folder in folders for path in (REPOSITORY / folder).rglob("*.py"))
