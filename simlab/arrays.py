"""Names for the arrays that cross module borders, one for each dtype.

A name says the dtype; the shape is written beside it, in a docstring or a comment.
"""

from typing import TypeVar

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int32]
Shorts = npt.NDArray[np.uint16]
Longs = npt.NDArray[np.int64]
Keys = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float32]
Doubles = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]

Scalar = TypeVar("Scalar", bound=np.generic)


def read_only(array: npt.NDArray[Scalar]) -> npt.NDArray[Scalar]:
    """A view of an array through which nothing can be written.

    The memory is shared, not copied: whoever still holds the array itself can change it.

    Args:
        array: any dtype, any shape.

    Returns:
        The same dtype, shape and memory, with ``flags.writeable`` false.

    >>> read_only(np.zeros(2)).flags.writeable
    False
    """
    view = array.view()
    view.flags.writeable = False
    return view
