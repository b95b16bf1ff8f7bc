"""Files of a trace that were changed so that only their content can tell."""

import json
from collections.abc import Callable
from pathlib import Path

import polars as pl
from signed_files import signed

from simlab.traces.format.files import file_sha256


def forge(folder: Path, name: str, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    """Change a file and make the manifest agree with its bytes."""
    change(pl.read_parquet(folder / name)).write_parquet(folder / name)
    mend(folder, name)


def mend(folder: Path, name: str) -> None:
    """Make the manifest agree with the bytes of a file."""
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["contents"]["files"][name] = {
        "num_bytes": (folder / name).stat().st_size,
        "sha256": file_sha256(folder / name),
    }
    (folder / "manifest.json").write_text(json.dumps(signed(manifest)))
