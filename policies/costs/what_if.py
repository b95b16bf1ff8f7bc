"""Machines that nobody measured: the prices of a real one with something changed, said in a label and a content id.

What is asked for describes a machine, so it does not matter in which order it is typed. Stages are scaled first; then
passes fill whole tiles; then several texts share a pass; then the convex view is taken. A token of plain decoding is a
pass of the target as a verification is: what changes the one changes the other, or all speedups would change with it.
"""

import re
from dataclasses import dataclass, replace

import numpy as np

from simlab.arrays import Doubles
from simlab.cost import CHANNEL, PLAIN, STAGES, CostTable
from simlab.errors import CostError, named_or_listed
from simlab.ids import content_id
from simlab.limits import whole_number
from simlab.policies.costs.curves import CONVEX, convex_view

NEEDED = ("verify", PLAIN)
"""These cannot be free: a speed is a number of tokens over them."""

_RULES = 2
"""What changes mean, so that ids differ: under 1 factors of ``verify``, and tiles, left plain decoding as it was."""

_GRAMMAR = 'stages times a number, tile=N, batch=N and convex, separated by commas, such as "verify*0.5,tile=64"'


_LEAST_FACTOR, _MOST_FACTOR = 1e-9, 1e9
"""What is not free takes so many times as long; sums of such seconds are still numbers."""

_SHOWN = 120
"""So many letters of what was typed stand in a sentence."""

WHAT_IF = "what-if-"
"""How the ids of hypothetical machines begin."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """What is to be changed.

    Attributes:
        factors: stage and factor, in the order of ``STAGES`` and ``PLAIN``; each at most once. Where ``verify`` has one
            and ``PLAIN`` none, ``PLAIN`` takes that of ``verify``.
        tile: a pass costs what one that fills whole tiles of so many tokens costs; 1: as measured.
        batch: so many texts share each pass, all with equal trees; 1: as measured.
        convex: whether the convex view is taken.
    """

    factors: tuple[tuple[str, float], ...] = ()
    tile: int = 1
    batch: int = 1
    convex: bool = False

    def __post_init__(self) -> None:
        order = (*STAGES, PLAIN)
        for stage, factor in self.factors:
            if stage not in order:
                listed = f"stages are {', '.join(order)}"
                raise CostError(f"{stage!r} is no stage of a round{named_or_listed(stage, order, listed)}")
            if not (factor == 0 or _LEAST_FACTOR <= factor <= _MOST_FACTOR) or (factor == 0 and stage in NEEDED):
                raise CostError(
                    f"{stage} is to take {factor:g} times as long; the factor must be a number above 0, from "
                    f"{_LEAST_FACTOR:g} to {_MOST_FACTOR:g}"
                )
        if len(dict(self.factors)) < len(self.factors):
            raise CostError(f"a stage is scaled twice in {self.label}; give it one factor")
        if min(self.tile, self.batch) < 1:
            raise CostError(f"tile and batch must be at least 1; got {self.tile} and {self.batch}")
        factors = dict(self.factors)
        if "verify" in factors:
            factors.setdefault(PLAIN, factors["verify"])
        object.__setattr__(self, "factors", tuple(sorted(factors.items(), key=lambda pair: order.index(pair[0]))))

    @property
    def label(self) -> str:
        """All that is changed, as it could be typed, always in one order."""
        parts = [f"{stage}*{_typed(factor)}" for stage, factor in self.factors]
        parts += [f"tile={self.tile}"] * (self.tile > 1) + [f"batch={self.batch}"] * (self.batch > 1)
        return ",".join([*parts, *[CONVEX] * self.convex])


def parse_what_if(text: str) -> WhatIf:
    """A machine as it was typed.

    >>> parse_what_if("tile=64, verify*.5").label
    'verify*0.5,plain*0.5,tile=64'

    Raises:
        CostError: it cannot be read, or makes no sense.
    """
    factors: list[tuple[str, float]] = []
    sizes: dict[str, int] = {}
    convex = False
    for part in (piece.strip() for piece in text.split(",")):
        scaled = re.fullmatch(r"(\w+)\s*\*\s*([0-9]+\.?[0-9]*|\.[0-9]+)(e[+-]?[0-9]+)?", part)
        sized = re.fullmatch(r"(tile|batch)\s*=\s*([0-9]+)", part)
        if scaled is not None:
            factors.append((scaled[1], float(scaled[2] + (scaled[3] or ""))))
        elif sized is not None and sized[1] not in sizes:
            sizes[sized[1]] = _size(text, sized[1], sized[2])
        elif part == CONVEX and not convex:
            convex = True
        else:
            raise CostError(f"--what-if {text!r}: cannot read {part!r}; expected, each once, {_GRAMMAR}")
    return WhatIf(tuple(factors), sizes.get("tile", 1), sizes.get("batch", 1), convex)


def _size(text: str, name: str, typed: str) -> int:
    try:
        return whole_number(typed, 1)
    except ValueError as error:
        raise CostError(f"--what-if {text[:_SHOWN]!r}: {name}: {error}") from error


def what_if(cost: CostTable, change: WhatIf) -> CostTable:
    """The prices of a machine with something changed, under an id that begins with ``what-if-``.

    Nothing changed gives the same table.

    A tile changes the target's passes: n drafted tokens cost what a pass of the next multiple of ``tile`` costs, the
    root counted, and in a last tile that the prices do not fill, what their longest pass costs. With ``batch`` a
    round's seconds are those in which each of so many texts goes one round further: its pass runs ``batch`` times as
    many tokens. A pass of plain decoding, of one token for each text, costs as many seconds more as a verification of
    as many tokens, in tiles, does over one of 1 token without. What a text's own context adds to a shared pass is not
    in it, and drafting, making channels, selecting and committing take as long as for one text: scale them where that
    is too kind. A factor of ``CHANNEL`` is that of every channel, whatever its units.
    """
    if not change.label:
        return cost
    draws = () if change.convex else tuple(_changed(draw, change) for draw in cost.draws)
    changed = replace(_changed(cost, change), draws=draws)
    return replace(changed, seconds=convex_view(changed).seconds) if change.convex else changed


def _changed(cost: CostTable, change: WhatIf) -> CostTable:
    """With all but the convex view, and without draws."""
    factors = dict(change.factors)
    seconds = {stage: values * factors.get(stage, 1.0) for stage, values in cost.seconds.items()}
    untiled = seconds["verify"]
    seconds["verify"] = in_tiles(untiled, change.tile)
    seconds = _shared(seconds, change.batch, cost.how_to_reach())
    more = np.maximum(seconds["verify"][:, :1] - untiled[:, :1], 0.0)
    seconds[PLAIN] = seconds[PLAIN] + more
    # Result rows, tables and comparisons name a machine by its id alone, so the id says that there is none.
    content = {"cost": cost.cost_id, "what_if": change.label, "rules": _RULES}
    channels = {name: channel.times(factors.get(CHANNEL, 1.0)) for name, channel in cost.channels.items()}
    what_if_id = f"{WHAT_IF}{content_id(content)}"
    name = f"{cost.name} with {change.label}" if cost.name else ""
    return CostTable(what_if_id, cost.contexts, seconds, channels=channels, origin=cost.origin, name=name)


def in_tiles(verify: Doubles, tile: int) -> Doubles:
    """Seconds of passes that fill whole tiles.

    Args:
        verify: float64 ``[C, n_max + 1]``.
        tile: tokens, the root counted.
    """
    width = verify.shape[1]
    filled = -(-np.arange(1, width + 1) // tile) * tile
    return verify[:, np.minimum(filled, width) - 1]


def _shared(seconds: dict[str, Doubles], batch: int, how_to_reach: str) -> dict[str, Doubles]:
    verify = seconds["verify"]
    width = verify.shape[1] // batch
    if width < 1:
        raise CostError(
            f"a pass of {batch} texts has at least {batch} tokens, and this latency profile ends at "
            f"{verify.shape[1]}; take a smaller batch, or {how_to_reach}"
        )
    shared = {stage: seconds[stage][:, :width] for stage in STAGES}
    return shared | {"verify": verify[:, batch - 1 : batch * width : batch], PLAIN: seconds[PLAIN]}


def _typed(factor: float) -> str:
    return str(int(factor)) if factor == int(factor) and factor < 1e15 else repr(factor)
