"""What is added to: a copy of the trace in a module's own folder, and the bytes of its files."""

import shutil
from pathlib import Path

import pytest


@pytest.fixture
def trace(made: Path, tmp_path: Path) -> Path:
    """A copy of the trace."""
    shutil.copytree(made / "trace", tmp_path / "trace")
    return tmp_path / "trace"
