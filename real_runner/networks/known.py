"""The networks that simlab knows, and the layouts of checkpoints: a new one has a folder or module, and a line here.

Nothing here imports torch, so that the command line can list and explain them.
"""

from collections.abc import Sequence
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import TypeAlias

from simlab.errors import ModelError, enumerated
from simlab.real_runner.checkpoints.layout import Fields, Layout
from simlab.real_runner.checkpoints.speculators import SPECULATORS
from simlab.real_runner.checkpoints.weights import lacking
from simlab.real_runner.checkpoints.zlab import ZLAB
from simlab.real_runner.drafters.config import DFlashConfig
from simlab.real_runner.networks.adapter.config import ADAPTER, AdapterConfig
from simlab.real_runner.networks.dflash2.config import DFLASH2
from simlab.real_runner.networks.dspark.config import DSPARK
from simlab.real_runner.networks.eagle3.config import EAGLE3, Eagle3Config
from simlab.real_runner.networks.lilicorr.config import LILICORR
from simlab.real_runner.networks.network import Network
from simlab.real_runner.networks.router.config import ROUTER
from simlab.real_runner.networks.taps.config import TAPS
from simlab.real_runner.networks.treeflash.config import TREEFLASH
from simlab.real_runner.targets.quantised import quantisation_of
from simlab.untrusted.json_text import file_bytes, parse_json

DraftConfig: TypeAlias = DFlashConfig | Eagle3Config | AdapterConfig
"""What drafts without a network beside it, and so what a draft set is recorded from; a new one joins them here."""

NETWORKS: tuple[Network, ...] = (TREEFLASH, LILICORR, DFLASH2, DSPARK, TAPS, EAGLE3, ADAPTER, ROUTER)
"""The first that reads a ``config.json`` is the one that the checkpoint holds; a drafter alone is none of them."""

LAYOUTS: tuple[Layout, ...] = (SPECULATORS, *(network.layout for network in NETWORKS), ZLAB)
"""The first that recognises a ``config.json`` reads it. z-lab's has no mark of its own, so it comes last."""

_ANY_LAYOUT = ("block_size",)


def network_of(fields: Fields) -> Network | None:
    """The network that a checkpoint holds, beside a drafter or alone; None where it is a drafter alone.

    Raises:
        ModelError: its weights are quantised, or its fields are of such a network that simlab does not run.
    """
    method = quantisation_of(fields)
    if method:
        raise ModelError(
            f"the weights of this checkpoint are quantised ({method}), and simlab runs drafters of F32, BF16, F16 or "
            "F64 alone; give the release of this drafter that is not quantised"
        )
    return next((network for network in NETWORKS if network.reads(fields) is not None), None)


def trees_bytes(draft_name: str, depth: int) -> float:
    """Bytes of what is recorded at a root beside a chain of so many tokens; 0 of drafters that draft none."""
    heads = (network for network in NETWORKS if network.draft_name == draft_name and network is not ADAPTER)
    return sum(head.reach({}, {}, False).disk_bytes(depth) for head in heads)


def first_policies(draft_names: Sequence[str]) -> str:
    """Policies for a first replay of a trace with these draft sets, as options."""
    own = [network.first_policies for network in NETWORKS if list(draft_names) == [network.draft_name]]
    return own[0] if own else "-p ddtree:budget=16/32/64"


def layout_of(fields: Fields) -> Layout:
    """The layout in which a drafter's ``config.json`` is written."""
    return next(layout for layout in LAYOUTS if layout.recognises(fields))


def read_config(fields: Fields) -> DFlashConfig:
    """A drafter's configuration, in whichever layout it is written.

    Raises:
        ModelError: it is of another kind of drafter, asks for a variant that this runner does not carry, or
            contradicts itself.
    """
    layout = layout_of(fields)
    network_of(fields)
    return layout.reads(fields)


def drafter_fields() -> tuple[str, ...]:
    """Fields by which a ``config.json`` is known to be a drafter's: one of them is enough."""
    return *sorted({layout.field for layout in LAYOUTS}), *_ANY_LAYOUT


def is_drafter(fields: Fields) -> bool:
    """Whether a ``config.json`` is of a drafter of any kind."""
    *layouts, _ = LAYOUTS
    return any(name in fields for name in drafter_fields()) or any(layout.recognises(fields) for layout in layouts)


def tap_offset_help() -> str:
    """How each layout numbers the target's layers, for the help of an option."""
    counted = [(layout.tap_offset, layout.counting, layout.name) for layout in LAYOUTS if layout.tap_offset is not None]
    ways = groupby(sorted(counted), key=itemgetter(0, 1))
    names = [(offset, counting, [name for *_, name in group]) for (offset, counting), group in ways]
    return ", ".join(
        f"{offset} {counting}, as {enumerated(group)} {'do' if len(group) > 1 else 'does'}"
        for offset, counting, group in names
    )


def read_fields(config: Path) -> dict[str, object]:
    """The JSON object of a drafter's ``config.json``.

    Raises:
        ModelError: it is missing, no JSON object, or of no drafter.
    """
    try:
        fields = parse_json(file_bytes(config))
    except FileNotFoundError as error:
        raise lacking(config) from error
    except OSError as error:
        raise ModelError(f"{config} cannot be read ({error.strerror or error}); fetch or train it again") from error
    except ValueError as error:
        raise ModelError(f"{config} is not JSON ({error}); fetch the checkpoint again") from error
    if not isinstance(fields, dict):
        raise ModelError(f"{config} is not a JSON object; fetch the checkpoint again")
    if not is_drafter(fields):
        raise ModelError(f"the drafter's {config} is not of a drafter: it has no {', no '.join(drafter_fields())}")
    return fields
