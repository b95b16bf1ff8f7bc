"""How deep the tests look: a quick run by default, everything at night (`make test-thorough`, or SIMLAB_THOROUGH=1)."""

import os
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

THOROUGH = os.environ.get("SIMLAB_THOROUGH") == "1"


def examples(thorough: int, quick: int = 20) -> int:
    """How many examples a property is given; 40 in a quick run where kernels are compared with an oracle."""
    return thorough if THOROUGH else min(quick, thorough)


def some(cases: Sequence[T], quick: int = 1) -> Sequence[T]:
    """All cases of a parametrised test, or a few in a quick run, spread over the list: the first is among them."""
    if THOROUGH or quick >= len(cases):
        return cases
    return [cases[number * len(cases) // quick] for number in range(quick)]
