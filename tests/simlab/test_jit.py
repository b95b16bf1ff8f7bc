"""Compiled functions: one machine code for a number, whether it is written in the caller or worked out there."""

from typing import Any

import numba
import numpy as np

from simlab.arrays import Longs
from simlab.jit import borrowing_kernel


@borrowing_kernel
def _plus(values: Longs, place: int) -> int:
    return int(values[place]) + place


def _sum(values: Longs) -> int:
    total, place = _plus(values, 0), 0
    while place < values.size:
        total += _plus(values, place)
        place += 1
    return total


def test_a_number_in_the_callers_text_is_compiled_for_as_any_other() -> None:
    # Compiled anew: what is kept on disk asks for nothing.
    compiled: Any = numba.njit(_sum)
    assert compiled(np.array([3, 5], np.int64)) == 3 + 3 + 5 + 1
    assert len(_plus.signatures) == 1  # type: ignore[attr-defined]
