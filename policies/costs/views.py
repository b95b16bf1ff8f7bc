"""Prices as they were measured, or their convex view: the closest curves whose every further token costs no less.

CaDDTree (2026, arXiv 2606.01813) fits its prices by least squares to curves that never fall and are convex, since the
first size that brings no more is then the best of all. Machines need not be so: passes come in tiles, and kernels
change with the shape. So the raw curves stay what rounds are priced with, and a policy may choose to see the view.

The release asks for convexity by the place in its list of sizes, which is that of the seconds only where the sizes
are evenly spaced. Here every number of drafted tokens counts, one as much as another. A convex curve that does not
fall is a constant plus hinges max(0, n - k) with weights of at least 0, so that the fit is one of least squares with
weights that are not negative (Lawson and Hanson 1974, chapter 23).
"""

from functools import lru_cache
from pathlib import Path

import numpy as np

from simlab.arrays import Doubles, read_only
from simlab.cost import CHANNEL, PLAIN, CostTable
from simlab.errors import PolicyError
from simlab.ids import content_id
from simlab.limits.memory import check_memory

_BASES = 4
"""So many squares of numbers are in memory while one is made."""

RAW, CONVEX = "raw", "convex"
VIEWS = (RAW, CONVEX)


@lru_cache(maxsize=64)
def convex_view(cost: CostTable) -> CostTable:
    """The convex view of each stage at each context; plain decoding and channels keep their prices.

    A sum of convex curves is convex, and so is what lies between two contexts: whatever stages count and wherever a
    root is, a round's seconds are convex in the drafted tokens. Its content id names the prices and the view.
    """
    seconds = {
        stage: values if stage in (CHANNEL, PLAIN) else np.stack([closest_convex(row) for row in values])
        for stage, values in cost.seconds.items()
    }
    cost_id = content_id({"cost": cost.cost_id, "view": CONVEX})
    return CostTable(cost_id, cost.contexts, seconds, channels=cost.channels, is_example=cost.is_example)


def closest_convex(seconds: Doubles) -> Doubles:
    """The curve nearest to another, by the sum of squares, that is convex, never falls and is nowhere below 0.

    Args:
        seconds: float64 ``[n_max + 1]``, not negative.

    Returns:
        float64 ``[n_max + 1]``; up to rounding.
    """
    # Half a second to load, and most commands take prices as they were measured.
    from scipy.optimize import nnls  # noqa: PLC0415

    scale = float(seconds.max())
    if scale == 0 or len(seconds) == 1:
        return seconds.copy()
    basis, lengths = _basis(len(seconds))
    weights, _ = nnls(basis, seconds / scale)
    slopes = np.cumsum(weights[1:] / lengths[1:])
    convex: Doubles = scale * (weights[0] / lengths[0] + np.concatenate([[0.0], np.cumsum(slopes)]))
    return convex


@lru_cache(maxsize=2)  # 2 MB for 512 drafted tokens; all rows of a table have the same
def _basis(number: int) -> tuple[Doubles, Doubles]:
    """A constant and all hinges over so many sizes, float64 ``[number, number]``, and how long the columns were.

    Columns of one length: the first hinge is hundreds of times as long as the last, and both may be wanted.
    """
    check_memory(
        _BASES * 8 * number * number,
        f"the convex view of a latency profile up to {number - 1:,} drafted tokens",
        "take the prices as they were measured",
    )
    numbers = np.arange(number, dtype=np.float64)
    basis = np.column_stack([np.ones(number), np.maximum(numbers[:, None] - numbers[:-1], 0.0)])
    lengths = np.linalg.norm(basis, axis=0)
    return read_only(basis / lengths), read_only(lengths)


def name_and_view(name: str) -> tuple[str, str]:
    """A file's name, and the view that a policy asks for: ``auto:convex``, ``cost.json:convex``; without one ``raw``."""
    file, colon, view = name.rpartition(":")
    if not colon or Path(name).exists():
        return name, RAW
    if view not in VIEWS:
        raise PolicyError(
            f"{view!r} is no view of a latency profile; write cost=FILE, cost={file}:{CONVEX}, or for a roofline the "
            "setting cost_model=roofline of bastion"
        )
    return file, view


def cost_in_view(cost: CostTable, view: str) -> CostTable:
    """Prices as a view has them."""
    return convex_view(cost) if view == CONVEX else cost
