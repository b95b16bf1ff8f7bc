"""The layouts of drafters' checkpoints that simlab reads: a new one has its own module, and a line in `LAYOUTS`.

Nothing here imports torch, so that the command line can list and explain them.
"""

from itertools import groupby
from operator import itemgetter

from simlab.errors import enumerated
from simlab.real_runner.checkpoints.layout import Fields, Layout
from simlab.real_runner.checkpoints.networks.adapter import ADAPTER
from simlab.real_runner.checkpoints.networks.eagle3 import EAGLE3
from simlab.real_runner.checkpoints.networks.router import ROUTER
from simlab.real_runner.checkpoints.networks.taps import TAPS
from simlab.real_runner.checkpoints.networks.treeflash import TREEFLASH
from simlab.real_runner.checkpoints.speculators import SPECULATORS
from simlab.real_runner.checkpoints.zlab import ZLAB
from simlab.real_runner.drafters.config import DFlashConfig

LAYOUTS: tuple[Layout, ...] = (SPECULATORS, TREEFLASH, TAPS, EAGLE3, ADAPTER, ROUTER, ZLAB)
"""The first that recognises a ``config.json`` reads it. z-lab's has no mark of its own, so it comes last."""

_ANY_LAYOUT = ("block_size",)


def layout_of(fields: Fields) -> Layout:
    """The layout in which a drafter's ``config.json`` is written."""
    return next(layout for layout in LAYOUTS if layout.recognises(fields))


def read_config(fields: Fields) -> DFlashConfig:
    """A drafter's configuration, in whichever layout it is written.

    Raises:
        ModelError: it is of another kind of drafter, asks for a variant that this runner does not carry, or
            contradicts itself.
    """
    return layout_of(fields).reads(fields)


def drafter_fields() -> tuple[str, ...]:
    """Fields by which a ``config.json`` is known to be a drafter's: one of them is enough."""
    return *sorted(layout.field for layout in LAYOUTS), *_ANY_LAYOUT


def is_drafter(fields: Fields) -> bool:
    """Whether a ``config.json`` is of a drafter of any kind."""
    return any(name in fields for name in drafter_fields())


def tap_offset_help() -> str:
    """How each layout numbers the target's layers, for the help of an option."""
    counted = [(layout.tap_offset, layout.counting, layout.name) for layout in LAYOUTS if layout.tap_offset is not None]
    ways = groupby(sorted(counted), key=itemgetter(0, 1))
    names = [(offset, counting, [name for *_, name in some]) for (offset, counting), some in ways]
    return ", ".join(
        f"{offset} {counting}, as {enumerated(some)} {'do' if len(some) > 1 else 'does'}"
        for offset, counting, some in names
    )
