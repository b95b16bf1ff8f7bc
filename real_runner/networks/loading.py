"""From the checkpoint of any network to what makes its channel, or drafts: the one place that decides and loads."""

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

import torch

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.contents import checkpoint_digest, config_file
from simlab.real_runner.checkpoints.layout import Fields
from simlab.real_runner.drafters.dense import check_fit
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.networks.adapter.config import ADAPTER
from simlab.real_runner.networks.adapter.masked import OwnDrafter
from simlab.real_runner.networks.drafter import AnyDrafter, Asked, BlockDrafts, Drafts
from simlab.real_runner.networks.drafter import load_drafter as load_block_drafter
from simlab.real_runner.networks.dspark.config import DSPARK
from simlab.real_runner.networks.known import NETWORKS, network_of, read_fields
from simlab.real_runner.networks.network import Network, Reach, Settings
from simlab.real_runner.networks.producer import ChannelAsked, Stage, WithModels
from simlab.real_runner.networks.redraft import REDRAFT
from simlab.real_runner.targets.model import Target

NO_NOISE = "tokens stand in place of masks with an adapter of UNO's kind alone, and this is none; leave --noise out"


class NetworkCode(Protocol):
    """What the module of a network has, see `Network.module`; the last two where a target drafts with it alone."""

    def load(self, asked: ChannelAsked, reach: Reach) -> WithModels:
        """Load what makes its channel, of a reach of its own; another target is refused in the second step."""
        ...

    def load_drafter(self, asked: Asked) -> Callable[[Target], AnyDrafter]:
        """Load it as a drafter, which waits for its target."""
        ...

    def drafts(self, drafter: AnyDrafter, target: Target) -> Drafts:
        """It and its target, as what drafts."""
        ...


def code_of(network: Network) -> NetworkCode:
    """The code of a network, loaded now."""
    return cast(NetworkCode, import_module(network.module))


def reach_of(fields: Fields, settings: Settings, is_base: bool) -> Reach:
    """How far a channel of a checkpoint reaches, without loading it.

    Args:
        fields: of its ``config.json``.
        settings: as typed behind the checkpoint, or as a manifest has them; what is not there is as its kind has it.
        is_base: whether it is the checkpoint of the drafter that it goes on from.
    """
    return (network_of(fields) or REDRAFT).reach(fields, settings, is_base)


def load_producer(
    location: Path, settings: Settings, dtype: torch.dtype, stage: Stage | None = None, digest: str = ""
) -> WithModels:
    """The network of a checkpoint, which waits for its models: it is checked before a large target is loaded.

    Args:
        location: as `simlab.real_runner.networks.drafter.load_drafter` takes it.
        settings: as typed behind the checkpoint, or as a manifest has them.
        dtype: in which it runs.
        stage: which the network goes on from, on any device; None: it needs no drafter.
        digest: `checkpoint_digest` of the checkpoint of that.

    Raises:
        ModelError: there is no such network, it belongs to another drafter, or the settings are not its own.
    """
    fields = read_fields(config_file(location))
    network = network_of(fields) or REDRAFT
    if isinstance(stage, OwnDrafter) and not network.on_masks:
        raise ModelError(
            f"on the own masks of {stage.target.name} a first-order head goes on alone, and {location} is another "
            "network; give a head of `simlab train treeflash --draft ADAPTER`, or a draft set of a DFlash drafter"
        )
    if isinstance(stage, DFlashDrafter) and stage.markov_head is not None and network is not DSPARK:
        raise ModelError(
            f"the drafter's rows stand behind the chain of its own Markov head, and {location} goes on from marginals; "
            "give the drafter's own checkpoint as the channel, or another drafter"
        )
    reach = network.reach(fields, settings, checkpoint_digest(location) == digest)
    return code_of(network).load(ChannelAsked(location, dtype, stage, digest), reach)


def load_drafter(asked: Asked) -> Callable[[Target], AnyDrafter]:
    """A drafter of its own, which waits for its target.

    Raises:
        ModelError: the checkpoint cannot be loaded, is a network beside a drafter, or cannot run so; of the second
            step, it belongs to another target.
    """
    network = network_of(read_fields(config_file(asked.location)))
    if network is not None and network.drafts_alone:
        if asked.noise is not None and network is not ADAPTER:
            raise ModelError(NO_NOISE)
        return code_of(network).load_drafter(asked)
    if asked.noise is not None:
        raise ModelError(NO_NOISE)
    drafter = load_block_drafter(asked.location, asked.dtype, asked.device, asked.tap_offset)
    drafter.config = drafter.config if asked.block is None else drafter.config.with_block(asked.block)

    def fitted(target: Target) -> DFlashDrafter:
        check_fit(target, drafter)
        return drafter.to(target.device)

    return fitted


def drafts_of(drafter: AnyDrafter, target: Target) -> Drafts:
    """A drafter and its target, as what drafts."""
    if isinstance(drafter, DFlashDrafter):
        return BlockDrafts(drafter, target)
    own = next(network for network in NETWORKS if network.draft_name == drafter.config.draft_name)
    return code_of(own).drafts(drafter, target)
