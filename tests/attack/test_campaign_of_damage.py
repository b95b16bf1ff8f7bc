"""Damaged inputs of all kinds, kills and races, five hundred in a thorough run: no wrong figure, nothing lost."""

import os
import subprocess
import sys

import pytest
from attack import KINDS
from depth import THOROUGH, examples
from places import REPOSITORY

CASES, SEED = examples(500, quick=30), 2026  # at least one of each kind
WHOLE = 0.05 if THOROUGH else 0.0
KILLS, RACES = examples(20, quick=1), examples(20, quick=1)
ONE_THREAD = dict.fromkeys(("POLARS_MAX_THREADS", "NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


@pytest.mark.timeout(3600)
def test_damaged_inputs() -> None:
    path = os.pathsep.join([str(REPOSITORY), str(REPOSITORY / "tests" / "helpers")])
    asked = ("--cases", CASES, "--seed", SEED, "--whole", WHOLE, "--kills", KILLS, "--races", RACES)
    # A program of its own: pytest has threads, and is not to be forked.
    done = subprocess.run(
        [sys.executable, REPOSITORY / "tests/attack/attack.py", *map(str, asked), *(["--sound"] if THOROUGH else [])],
        env={**os.environ, **ONE_THREAD, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    rows = [line.split(" | ") for line in done.stdout.splitlines() if line.startswith("| ")]
    numbers = {row[0].strip("| "): row[1] for row in rows}
    assert numbers.keys() >= KINDS.keys() | {"killed", "two-at-once"}
    assert abs(int(numbers["all"]) - CASES - KILLS - RACES) <= len(KINDS)  # shares are rounded
