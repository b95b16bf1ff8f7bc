"""Damaged inputs of all kinds, kills and races, five hundred in a thorough run: no wrong figure, nothing lost."""

import json
import os
import subprocess
import sys
from pathlib import Path

from attack_kinds import KINDS
from depth import examples
from places import REPOSITORY

CASES, SEED = examples(500, quick=60), 2026
WHOLE = 0.05
KILLS, RACES = examples(40, quick=1), examples(19, quick=1)
TESTS = REPOSITORY / "tests"
ONE_THREAD = dict.fromkeys(("POLARS_MAX_THREADS", "NUMBA_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")


def test_damaged_inputs(tmp_path: Path) -> None:
    path, bad = os.pathsep.join([str(REPOSITORY), str(TESTS / "helpers")]), tmp_path / "found.md"
    asked = ("--cases", CASES, "--seed", SEED, "--whole", WHOLE, "--kills", KILLS, "--races", RACES, "--json")
    done = subprocess.run(
        [sys.executable, TESTS / "attack" / "attack.py", *map(str, asked), "--folder", tmp_path, "--found", bad],
        env={**os.environ, **ONE_THREAD, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    found = json.loads(done.stdout)
    assert found["bad"] == [], bad.read_text(encoding="utf-8")
    assert found["disagreeing"] == 0
    assert [trial for trial in found["trials"] if trial["outcome"] != "fine"] == []
    assert sum(trial["kills"] for trial in found["trials"]) >= KILLS
    assert done.returncode == 0, done.stderr[-2000:]
    assert abs(found["cases"] - CASES) <= len(KINDS)  # shares are rounded
    assert set(found["counts"]) == set(KINDS)
