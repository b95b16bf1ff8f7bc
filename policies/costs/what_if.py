"""Machines that nobody measured: the prices of a real one with something changed, said in a label and a content id.

What is asked for describes a machine, so it does not matter in which order it is typed. Stages are scaled first; then
passes fill whole tiles; then several texts share a pass; then the convex view is taken.
"""

import re
from dataclasses import dataclass, replace
from math import isfinite

import numpy as np

from simlab.arrays import Doubles
from simlab.cost import PLAIN, STAGES, CostTable
from simlab.errors import CostError
from simlab.ids import content_id
from simlab.policies.costs.views import CONVEX, convex_view

NEEDED = ("verify", PLAIN)
"""These cannot be free: a speed is a number of tokens over them."""

_GRAMMAR = 'stages times a number, tile=N, batch=N and convex, separated by commas, such as "verify*0.5,tile=64"'


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What is to be changed.

    Attributes:
        factors: stage and factor, in the order of ``STAGES`` and ``PLAIN``; each at most once.
        tile: a pass costs what one that fills whole tiles of so many tokens costs; 1: as measured.
        batch: so many texts share each pass, all with equal trees; 1: as measured.
        convex: whether the convex view is taken.

    Raises:
        CostError: a stage is unknown, comes twice or cannot be free, a factor is no number from 0, or tile or batch is
            below 1.
    """

    factors: tuple[tuple[str, float], ...] = ()
    tile: int = 1
    batch: int = 1
    convex: bool = False

    def __post_init__(self) -> None:
        order = (*STAGES, PLAIN)
        for stage, factor in self.factors:
            if stage not in order:
                raise CostError(f"{stage!r} is no stage of a round; stages are {', '.join(order)}")
            if not (isfinite(factor) and factor >= 0) or (factor == 0 and stage in NEEDED):
                raise CostError(f"{stage} is to take {factor:g} times as long; the factor must be a number above 0")
        if len(dict(self.factors)) < len(self.factors):
            raise CostError(f"a stage is scaled twice in {self.label}; give it one factor")
        if min(self.tile, self.batch) < 1:
            raise CostError(f"tile and batch must be at least 1; got {self.tile} and {self.batch}")
        object.__setattr__(self, "factors", tuple(sorted(self.factors, key=lambda pair: order.index(pair[0]))))

    @property
    def label(self) -> str:
        """As it is typed, always in one order."""
        parts = [f"{stage}*{_typed(factor)}" for stage, factor in self.factors]
        parts += [f"tile={self.tile}"] * (self.tile > 1) + [f"batch={self.batch}"] * (self.batch > 1)
        return ",".join([*parts, *[CONVEX] * self.convex])


def parse_what_if(text: str) -> WhatIf:
    """A machine as it was typed.

    >>> parse_what_if("tile=64, verify*.5").label
    'verify*0.5,tile=64'

    Raises:
        CostError: it cannot be read, or makes no sense.
    """
    factors: list[tuple[str, float]] = []
    sizes: dict[str, int] = {}
    convex = False
    for part in (one.strip() for one in text.split(",")):
        scaled = re.fullmatch(r"(\w+)\s*\*\s*(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", part)
        sized = re.fullmatch(r"(tile|batch)\s*=\s*(\d+)", part)
        if scaled is not None:
            factors.append((scaled[1], float(scaled[2] + (scaled[3] or ""))))
        elif sized is not None and sized[1] not in sizes and int(sized[2]) >= 1:
            sizes[sized[1]] = int(sized[2])
        elif part == CONVEX and not convex:
            convex = True
        else:
            raise CostError(f"--what-if {text!r}: cannot read {part!r}; expected, each once, {_GRAMMAR}")
    return WhatIf(tuple(factors), sizes.get("tile", 1), sizes.get("batch", 1), convex)


def what_if(cost: CostTable, change: WhatIf) -> CostTable:
    """The prices of a machine with something changed; nothing changed gives the same table.

    A tile changes ``verify`` alone: n drafted tokens cost what a pass of the next multiple of ``tile`` costs, the root
    counted, and in a last tile that the prices do not fill, what their longest pass costs. With ``batch`` a round's
    seconds are those in which each of so many texts goes one round further: its pass runs ``batch`` times as many
    tokens, and one of plain decoding costs as many seconds more as a pass of ``batch`` tokens does over one of 1. What
    a text's own context adds to a shared pass is not in it, and drafting, selecting and committing take as long as for
    one text: scale them where that is too kind.

    Raises:
        CostError: the prices do not reach as many tokens as the texts of a batch have together.
    """
    if not change.label:
        return cost
    draws = () if change.convex else tuple(_changed(one, change) for one in cost.draws)
    changed = replace(_changed(cost, change), draws=draws)
    return replace(changed, seconds=convex_view(changed).seconds) if change.convex else changed


def _changed(cost: CostTable, change: WhatIf) -> CostTable:
    """With all but the convex view."""
    factors = dict(change.factors)
    seconds = {stage: values * factors.get(stage, 1.0) for stage, values in cost.seconds.items()}
    seconds["verify"] = in_tiles(seconds["verify"], change.tile)
    if change.batch > 1:
        seconds = _shared(seconds, change.batch)
    return CostTable(content_id({"cost": cost.cost_id, "what_if": change.label}), cost.contexts, seconds)


def in_tiles(verify: Doubles, tile: int) -> Doubles:
    """Seconds of passes that fill whole tiles.

    Args:
        verify: float64 ``[C, n_max + 1]``.
        tile: tokens, the root counted.
    """
    width = verify.shape[1]
    filled = -(-np.arange(1, width + 1) // tile) * tile
    return verify[:, np.minimum(filled, width) - 1]


def _shared(seconds: dict[str, Doubles], batch: int) -> dict[str, Doubles]:
    verify = seconds["verify"]
    width = verify.shape[1] // batch
    if width < 1:
        raise CostError(
            f"a pass of {batch} texts has at least {batch} tokens, and this latency profile ends at "
            f"{verify.shape[1]}; take a smaller batch, or measure more with `simlab profile --node-counts`"
        )
    shared = {stage: seconds[stage][:, :width] for stage in STAGES}
    shared["verify"] = verify[:, batch - 1 : batch * width : batch]
    more = np.maximum(verify[:, batch - 1] - verify[:, 0], 0.0)
    return shared | {PLAIN: seconds[PLAIN] + more[:, None]}


def _typed(factor: float) -> str:
    return str(int(factor)) if factor == int(factor) and factor < 1e15 else repr(factor)
