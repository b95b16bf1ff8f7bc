"""Releases for tests: made up in a folder, or the real files where a machine has them."""

import hashlib
import json
import os
from pathlib import Path, PurePosixPath
from typing import Any

import pytest
from places import SHARED

from simlab.studies.reproduce.released import Findings, Release, ReleasedFiles, read_release


def made_up_release(folder: Path, contents: dict[str, str], name: str = "made-up") -> ReleasedFiles:
    """Files with these contents, and a release that lists them."""
    listed = {}
    for path, text in contents.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
        data = text.encode()
        listed[path] = (len(data), hashlib.sha256(data).hexdigest())
    return ReleasedFiles(Release(name, "someone/something", "0" * 40, "made up", listed), folder)


def real_release(name: str) -> ReleasedFiles:
    """The real files, where this machine has a clone of them; the test is skipped where it has none."""
    places = [SHARED / "data" / "released" / name]
    if "SIMLAB_RELEASED" in os.environ:
        places.insert(0, Path(os.environ["SIMLAB_RELEASED"]) / name)
    for path in places:
        if path.is_dir():
            return ReleasedFiles(read_release(name), path)
    pytest.skip(f"there is no clone of {name}; set SIMLAB_RELEASED to the folder with one")


def values_of(found: Findings) -> dict[str, Any]:
    """What ``--json`` prints, read again."""
    value: dict[str, Any] = json.loads(json.dumps(found.to_json(), allow_nan=False))
    return value


def names_like(files: ReleasedFiles, pattern: str) -> list[str]:
    """Paths of a release that match a pattern such as ``results/*/gsm8k_*.jsonl``, in order."""
    return sorted(name for name in files.release.files if PurePosixPath(name).match(pattern))
