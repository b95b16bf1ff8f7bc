"""Where two texts of one prompt part."""

import numpy as np

from simlab.arrays import Ints


def parting_of(text: Ints, other: Ints) -> int | None:
    """The first place at which two texts differ; None where they are equal.

    Args:
        text: int32 ``[T]``.
        other: int32, any length. Where one is the beginning of the other, they part behind it.
    """
    num = min(len(text), len(other))
    differing = np.flatnonzero(text[:num] != other[:num])
    if len(differing):
        return int(differing[0])
    return None if len(text) == len(other) else num
