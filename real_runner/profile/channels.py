"""The channels of a profile: what makes them, and how much of each is timed."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from simlab.channels.rows import WHOLE_CHAIN
from simlab.errors import CostError, ModelError
from simlab.policy import ChannelNeed, counted_setting
from simlab.real_runner.checkpoints.contents import checkpoint_digest, config_file, read_fields
from simlab.real_runner.checkpoints.files import find_drafter
from simlab.real_runner.checkpoints.networks.producers import (
    ReachAlone,
    load_text_producer,
    producer_on,
    reach_of,
)
from simlab.real_runner.heads.producer import AnyProducer
from simlab.real_runner.models import Models
from simlab.real_runner.profile.options import ProfileChannel
from simlab.real_runner.targets.hub_files import repository_of
from simlab.traces.artefacts.cost import CostFile
from simlab.traces.artefacts.cost_channel import CostChannel, bounds_of
from simlab.traces.format.manifest_entries import ModelInfo


@dataclass(frozen=True, slots=True, eq=False)
class TimedChannel:
    """A channel whose making is timed.

    Attributes:
        entry: what the cost file says of it.
        producer: makes it, with as many units as the most that are timed.
        counted: the setting that its units are; None: it is timed whole.
    """

    entry: CostChannel
    producer: AnyProducer
    counted: str | None

    def need(self, name: str, units: int) -> ChannelNeed:
        """What a round reads in which so many units are made."""
        least = () if self.counted is None else ((self.counted, units),)
        equal = ((WHOLE_CHAIN, 1),) if self.entry.settings.get(WHOLE_CHAIN) == 1 else ()
        return ChannelNeed(name, self.entry.kind, least, equal)


def load_channels(channels: Mapping[str, ProfileChannel], models: Models) -> dict[str, TimedChannel]:
    """The networks of some channels, on the models that they go on from.

    Raises:
        ModelError: a network cannot be loaded, belongs to another drafter, or has no such settings or units.
    """
    return {name: _loaded(one, models) for name, one in channels.items()}


def _loaded(asked: ProfileChannel, models: Models) -> TimedChannel:
    files = find_drafter(asked.checkpoint)
    own_digest, digest = checkpoint_digest(files.folder), checkpoint_digest(models.draft_folder)
    reach = reach_of(read_fields(config_file(files.folder)), asked.settings, own_digest == digest)
    settings = reach.settings if isinstance(reach, ReachAlone) else reach.settings(models.drafter.config.depth)
    key = counted_setting(reach.kind, settings)
    units = asked.units or (_default_units(settings, key),)
    if key is None and units != (1,):
        raise ModelError(f"{asked.checkpoint} makes a {reach.kind}, which is timed whole; leave --units out")
    widest = asked.settings if key is None else {**asked.settings, key: units[-1]}
    network = ModelInfo(repository_of(asked.checkpoint), files.revision, own_digest)
    entry = CostChannel(reach.kind, network, bounds_of(reach.kind, settings), units)
    if isinstance(reach, ReachAlone):
        return TimedChannel(entry, load_text_producer(files.folder, widest, models.target.dtype)(models.target), key)
    target = models.target
    return TimedChannel(entry, producer_on(files.folder, widest, models.first_stage, target, digest, target.dtype), key)


def _default_units(settings: Mapping[str, object], key: str | None) -> int:
    value = 1 if key is None else settings[key]
    assert isinstance(value, int)
    return value


def with_channels(path: Path, earlier: CostFile, entries: Mapping[str, CostChannel]) -> CostFile:
    """A file that is gone on with, and what is to be timed besides: further channels, and further units."""
    found = dict(earlier.channels)
    for name, one in entries.items():
        before = found.get(name, one)
        difference = before.difference(one.kind, one.producer, one.settings)
        if difference is not None:
            raise CostError(
                f"the channel {name} of {path} was measured with {difference}; samples of the two do not belong "
                f"together: give another --out, or another name in --channel {name}=CHECKPOINT"
            )
        found[name] = replace(before, units=tuple(sorted({*before.units, *one.units})))
    return replace(earlier, channels=found)
