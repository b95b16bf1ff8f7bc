"""Which network a checkpoint holds that makes a channel: the one place that decides and loads it."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from simlab.channels.rows import EXACT_NODES
from simlab.errors import ModelError, named_or_listed
from simlab.real_runner.checkpoints.files import load_head
from simlab.real_runner.checkpoints.layout import Fields
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.heads.producer import Producer, Reach
from simlab.real_runner.heads.rows import HeadReach
from simlab.real_runner.heads.treeflash_producer import TreeFlashProducer
from simlab.real_runner.targets.model import Target

WithModels = Callable[[DFlashDrafter, Target], Producer]
"""From a drafter and a target, on the device where they run, to the producer there."""

_OF_HEADS = ("previous", "top_k", "candidates")
_OF_DRAFTERS = ("depth", "order", EXACT_NODES)
"""Settings in a manifest that a network does not choose."""


def load_producer(
    place: Path, settings: Mapping[str, object], drafter: DFlashDrafter, digest: str, dtype: torch.dtype
) -> WithModels:
    """The network of a checkpoint, which waits for its models: it is checked before a large target is loaded.

    Args:
        place: as `load_drafter` takes it.
        settings: as typed behind the checkpoint, or as a manifest has them.
        drafter: which the network goes on from, on any device.
        digest: `checkpoint_digest` of that drafter's checkpoint.
        dtype: in which it runs.

    Raises:
        ModelError: there is no such network, it belongs to another drafter, or the settings are not its own.
    """
    head, reach = load_head(place, drafter, digest, dtype), head_reach(settings)
    return lambda its, target: TreeFlashProducer(head.to(target.device), its, target, reach)


def reach_of(_fields: Fields, settings: Mapping[str, object]) -> Reach:
    """How far a channel of a checkpoint reaches, without loading it.

    Args:
        _fields: of its ``config.json``, by which it would be told from others; heads are the only ones so far.
        settings: as typed behind the checkpoint, or as a manifest has them; what is not there is as its kind has it.

    Raises:
        ModelError: the settings are not those of its kind.
    """
    return head_reach(settings)


def head_reach(settings: Mapping[str, object]) -> HeadReach:
    """The reach of a TreeFlash head.

    Raises:
        ModelError: the settings are not those of a head.
    """
    own = {key: value for key, value in settings.items() if key not in _OF_DRAFTERS}
    for key in own:
        if key not in _OF_HEADS:
            asked = named_or_listed(key, _OF_HEADS, f"expected {', '.join(_OF_HEADS)}")
            raise ModelError(f"a TreeFlash head has no setting {key}{asked}")
    try:
        return HeadReach(**{key: value for key, value in own.items() if isinstance(value, int)})
    except ValueError as error:
        raise ModelError(str(error)) from error
