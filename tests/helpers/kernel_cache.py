"""Where compiled kernels are kept between runs of the tests, whatever the path of the checkout."""

import hashlib
import re
import shutil
from importlib.metadata import version
from pathlib import Path

import platformdirs
from places import REPOSITORY
from source_files import FOLDERS, source_files

MOST_KEPT = 4
"""Folders of other sources that are left."""


def _path_of(module: str) -> Path:
    folder, _, rest = module.removeprefix("simlab.").partition(".")
    name = f"{folder}/{rest}" if folder in FOLDERS else module
    return REPOSITORY / f"{name.replace('.', '/')}.py"


def kernel_sources() -> list[Path]:
    """The modules with kernels, and those whose constants and types they import: what a compiled kernel may hold."""
    texts = {path: (REPOSITORY / path).read_text(encoding="utf-8") for path in source_files()}
    kernels = {path: text for path, text in texts.items() if "from simlab.jit import" in text}
    named = {
        name for text in kernels.values() for name in re.findall(r"^from (simlab[\w.]*) import", text, re.MULTILINE)
    }
    return sorted({REPOSITORY / path for path in kernels} | {path for path in map(_path_of, named) if path.is_file()})


def kernel_folder() -> Path:
    """A folder for the kernels of these sources; those of the oldest other sources are deleted.

    numba keeps a kernel until its own module changes. Here a changed module makes a folder of its own, so no kernel
    holds an older version of another one that it calls.
    """
    digest = hashlib.sha256(version("numba").encode())
    for path in kernel_sources():
        digest.update(path.read_bytes())
    root = platformdirs.user_cache_path("simlab") / "test-kernels"
    folder = root / digest.hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    folder.touch()
    for old in sorted(root.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)[MOST_KEPT:]:
        shutil.rmtree(old, ignore_errors=True)
    return folder
