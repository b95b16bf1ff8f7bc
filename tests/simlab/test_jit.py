"""Compiled functions: one machine code for a number, whether it is written in the caller or worked out there."""

import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numba
import numpy as np
import pytest

from simlab.arrays import Ints, Longs
from simlab.jit import _KernelFiles, borrowing_kernel


@borrowing_kernel
def _plus(values: Longs, place: int) -> int:
    return int(values[place]) + place


def _sum(values: Longs, places: Ints) -> int:
    total, index = _plus(values, 0) + _plus(values, places[0]), 0
    while index < values.size:
        total += _plus(values, index)
        index += 1
    return total


def test_a_number_is_compiled_for_once_written_in_the_callers_text_or_of_32_bits() -> None:
    # Compiled anew: what is kept on disk asks for nothing.
    compiled: Any = numba.njit(_sum)
    assert compiled(np.array([3, 5], np.int64), np.array([1], np.int32)) == 3 + 5 + 1 + 3 + 5 + 1
    assert len(cast(Any, _plus).within().signatures) == 1


def test_two_processes_that_keep_a_kernel_at_once_write_two_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each read the index before the other wrote it; whose entry is lost compiles again."""
    files, other = (_KernelFiles(str(tmp_path), "plus", "stamp") for _ in range(2))
    files.save("bools", "code for bools")
    unaware = other._load_index()
    files.save("ints", "code for ints")
    monkeypatch.setattr(other, "_load_index", lambda: unaware)
    other.save("floats", "code for floats")
    assert len(list(tmp_path.glob("*.nbc"))) == 3
    late = _KernelFiles(str(tmp_path), "plus", "stamp")
    assert [late.load(key) for key in ("bools", "ints", "floats")] == ["code for bools", None, "code for floats"]
    _KernelFiles(str(tmp_path), "plus", "another stamp").save("bools", "newer code")
    assert len(list(tmp_path.glob("*.nbc"))) == 1


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_terminal_is_told_once_that_much_is_compiled(
    is_terminal: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = _KernelFiles(str(tmp_path), "plus", "stamp")
    files.save("kept", "code")
    monkeypatch.setattr("simlab.jit._num_missing", [0])
    monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
    said = []
    for key in ["kept"] * 9 + [f"missing {number}" for number in range(9)]:
        files.load(key)
        said.append(capsys.readouterr().err)
    assert [index for index, text in enumerate(said) if text] == ([13] if is_terminal else [])


def test_kernels_are_kept_by_the_name_of_their_module_where_the_tests_say_so() -> None:
    kept = cast(Any, _plus)._cache._cache_file
    assert Path(kept._cache_path) == Path(os.environ["SIMLAB_KERNELS"], __name__)


PLUS_ONE = """
import sys
from pathlib import Path
import numba.core.caching as caching
if sys.argv[1] == "no folder":
    caching.CompileResultCacheImpl._locator_classes = []
from simlab.grid import weight_scalar
print(weight_scalar(-1.0))
"""


@pytest.mark.parametrize("how", ["no folder", "a file in its place"])
def test_where_nothing_can_be_kept_kernels_run_and_one_sentence_says_so(how: str, tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PLUS_ONE)
    (tmp_path / "file").write_text("")
    environment = {name: value for name, value in os.environ.items() if name != "NUMBA_CACHE_DIR"}
    environment["SIMLAB_KERNELS"] = "" if how == "no folder" else str(tmp_path / "file")
    command = [sys.executable, str(tmp_path / "program.py"), how]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
    assert float(done.stdout) == pytest.approx(math.exp(-1.0))
    assert done.stderr.startswith("simlab: compiled functions cannot be kept (")
    assert done.stderr.endswith("set NUMBA_CACHE_DIR to a folder that can be written\n")
    assert done.stderr.count("\n") == 1


def test_a_damaged_file_of_a_kernel_is_compiled_again(tmp_path: Path) -> None:
    kept = _KernelFiles(str(tmp_path), "plus", "stamp")
    kept.save("ints", "code for ints")
    for path in tmp_path.glob("*.nbc"):
        path.write_bytes(b"damaged")
    assert kept.load("ints") is None
