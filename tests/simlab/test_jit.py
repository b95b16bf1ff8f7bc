"""Compiled functions: one machine code for a number, whether it is written in the caller or worked out there."""

import os
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
    total, place = _plus(values, 0) + _plus(values, places[0]), 0
    while place < values.size:
        total += _plus(values, place)
        place += 1
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
    one, other = (_KernelFiles(str(tmp_path), "plus", "stamp") for _ in range(2))
    one.save("bools", "code for bools")
    unaware = other._load_index()
    one.save("ints", "code for ints")
    monkeypatch.setattr(other, "_load_index", lambda: unaware)
    other.save("floats", "code for floats")
    assert len(list(tmp_path.glob("*.nbc"))) == 3
    late = _KernelFiles(str(tmp_path), "plus", "stamp")
    assert [late.load(key) for key in ("bools", "ints", "floats")] == ["code for bools", None, "code for floats"]
    _KernelFiles(str(tmp_path), "plus", "another stamp").save("bools", "newer code")
    assert len(list(tmp_path.glob("*.nbc"))) == 1


def test_kernels_are_kept_by_the_name_of_their_module_where_the_tests_say_so() -> None:
    kept = cast(Any, _plus)._cache._cache_file
    assert Path(kept._cache_path) == Path(os.environ["SIMLAB_KERNELS"], __name__)
