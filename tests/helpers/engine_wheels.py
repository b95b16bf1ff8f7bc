"""Files of engines' wheels, which are fetched and not imported."""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

SGLANG, TRITON = "sglang==0.5.23", "triton==3.9.0"


def wheel_files(folder: Path, requirements: tuple[str, ...], starts: tuple[str, ...]) -> Path:
    """Those files of some wheels whose names start so, in a folder; the test is skipped where they cannot be had."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", *requirements, "--dest", str(folder)]
    done = subprocess.run(pip, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"{', '.join(requirements)} cannot be had here: {done.stderr.strip()[-200:]}")
    for wheel in folder.glob("*.whl"):
        with zipfile.ZipFile(wheel) as files:
            files.extractall(folder, [one for one in files.namelist() if one.startswith(starts)])
    return folder
