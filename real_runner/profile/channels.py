"""The channels of a profile: what makes them, and how much of each is timed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from simlab.arrays import Ints, read_only
from simlab.channels import BRANCHES
from simlab.channels.rows import WHOLE_CHAIN
from simlab.cost import StageSeconds
from simlab.errors import CostError, ModelError
from simlab.policy import DRAFTER, ChannelNeed, catch_up_name, counted_setting
from simlab.real_runner.checkpoints.contents import checkpoint_digest, config_file
from simlab.real_runner.decoding.drafting import Drafting
from simlab.real_runner.decoding.plain import Clock
from simlab.real_runner.models import Models
from simlab.real_runner.networks.drafter import find_drafter
from simlab.real_runner.networks.known import read_fields
from simlab.real_runner.networks.loading import load_producer, reach_of
from simlab.real_runner.networks.producer import AnyProducer, StagedProducer, TextProducer
from simlab.real_runner.profile.options import ProfileChannel
from simlab.real_runner.profile.rounds import MEASURED_ROUNDS, TreesOfSize, endless
from simlab.real_runner.targets.hub_files import repository_of
from simlab.real_runner.targets.model import features_of, tapped
from simlab.traces.artefacts.cost import CATCH_UP, CostChannel, CostFile, bounds_of
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


def load_channel(asked: ProfileChannel, models: Models) -> TimedChannel:
    """The network of a channel, on the models that it goes on from.

    Raises:
        ModelError: it cannot be loaded, belongs to another drafter, or has no such settings or units.
    """
    files = find_drafter(asked.checkpoint)
    own_digest, digest = checkpoint_digest(files.folder), checkpoint_digest(models.draft_folder)
    reach = reach_of(read_fields(config_file(files.folder)), asked.settings, own_digest == digest)
    settings = reach.settings(models.drafter.config.depth)
    key = counted_setting(reach.kind, settings)
    units = asked.units or (_default_units(settings, key),)
    if key is None and units != (1,):
        raise ModelError(f"{asked.checkpoint} makes a {reach.kind}, which is timed whole; leave --units out")
    widest = asked.settings if key is None else {**asked.settings, key: units[-1]}
    network = ModelInfo(repository_of(asked.checkpoint), files.revision, own_digest)
    entry = CostChannel(reach.kind, network, bounds_of(reach.kind, settings), units)
    stage, target = models.first_stage if reach.needs_drafter else None, models.target
    producer = load_producer(files.folder, widest, target.dtype, stage, digest)(stage, target)
    return TimedChannel(entry, producer, key)


def _default_units(settings: Mapping[str, object], key: str | None) -> int:
    value = 1 if key is None else settings[key]
    assert isinstance(value, int)
    return value


def with_channels(path: Path, earlier: CostFile, entries: Mapping[str, CostChannel]) -> CostFile:
    """A file that is gone on with, and what is to be timed besides: further channels, and further units."""
    channels = dict(earlier.channels)
    for name, entry in entries.items():
        before = channels.get(name, entry)
        difference = before.difference(entry.kind, entry.producer, entry.settings)
        if difference is not None:
            raise CostError(
                f"the channel {name} of {path} was measured with {difference}; samples of the two do not belong "
                f"together: give another --out, or another name in --channel {name}=CHECKPOINT"
            )
        channels[name] = replace(before, units=tuple(sorted({*before.units, *entry.units})))
    return replace(earlier, channels=channels)


# What drafting takes where more tokens than usual wait to be read: a drafter of a router that did not run for a while.
#
# The target's states of these tokens are there, since every pass keeps them for all drafters; what the drafter makes
# of them, keys and values of its own, is made when it next runs. So a round is timed whose drafter has so many tokens
# of the text still to read.


FEWEST_READ = 8
"""Tokens that were read before any were missed, at least."""


def catch_up_entries(
    missed: Sequence[int], draft: str, models: Models, channels: Mapping[str, TimedChannel]
) -> dict[str, CostChannel]:
    """What a cost file says of catching up: for the drafter, and for each channel whose network reads the text itself.

    Args:
        missed: numbers of tokens, rising; none: nothing is timed.
        draft: the drafter's name.
        models: of them the drafter.
        channels: that are timed.
    """
    if not missed:
        return {}
    drafter = ModelInfo(repository_of(draft), models.draft_revision, checkpoint_digest(models.draft_folder))
    readers = {
        name: channel
        for name, channel in channels.items()
        if isinstance(channel.producer, TextProducer | StagedProducer)
    }
    networks = {DRAFTER: drafter, **{name: reader.entry.producer for name, reader in readers.items()}}
    return {
        catch_up_name(name): CostChannel(CATCH_UP, network, {}, tuple(missed)) for name, network in networks.items()
    }


class CatchUpTimer:
    """Drafts of which some of the text is still to be read, at about one context."""

    @torch.inference_mode()
    def __init__(self, models: Models, need: ChannelNeed | None, token_ids: Ints, context: int, clock: Clock) -> None:
        """Read the text to its end once.

        Args:
            models: with what makes the channel.
            need: the channel whose network is timed; None: the drafter.
            token_ids: int32, at least ``context`` of them.
            context: tokens before the root; fewer than were missed and `FEWEST_READ` are not enough, and then it is as
                many as these.
            clock: of the models' device.
        """
        models = endless(models)
        graphs, self._need = models.graphs, need
        # Capturing belongs to no draft.
        self._clock = clock if graphs is None else lambda: clock() - graphs.graphs.seconds
        self._tokens = read_only(np.ascontiguousarray(token_ids, np.int32))
        self._context = context
        policy = TreesOfSize(0, 1, () if need is None else (need,))
        self._drafting = Drafting(models, policy, len(token_ids) + 1)
        self._served = policy.needs if need is None else replace(policy.needs, draft=False)
        ids = torch.from_numpy(self._tokens.astype(np.int64))[None].to(models.target.device)
        layer_ids = self._drafting.layer_ids
        with tapped(models.target, layer_ids) as taken:
            models.target.states(ids[:, :-1])
        self._features = features_of(taken, layer_ids)
        self._num_read = 0

    @torch.inference_mode()
    def visit(self, missed: int, num_unmeasured: int) -> list[StageSeconds]:
        """``MEASURED_ROUNDS`` drafts behind so many missed tokens, after some that are not measured."""
        end = max(self._context, missed + FEWEST_READ)
        if end >= len(self._tokens):
            raise ModelError(f"{missed} missed tokens want a text of more than {end}; give smaller --catch-up")
        rounds = [self._round(end - missed, end) for _ in range(num_unmeasured + MEASURED_ROUNDS)]
        return rounds[num_unmeasured:]

    def _round(self, start: int, end: int) -> StageSeconds:
        """Have the first tokens read, then the rest at once, timed."""
        if self._num_read > start:
            self._drafting.rewind(start)
        else:
            self._drafting.read(self._features[:, self._num_read : start])
        self._draft(start)
        self._drafting.read(self._features[:, start:end])
        began = self._clock()
        drafted = self._draft(end)
        self._num_read = end
        # The drafter's own part of a channel behind its pass is in the other entry.
        return StageSeconds(channel_s=self._clock() - (began if self._need is None else drafted))

    def _draft(self, end: int) -> float:
        """Draft below the last of so many tokens and one; when the channel was begun."""
        self._drafting.draft(self._tokens[: end + 1], self._served)
        drafted = self._clock()
        if self._need is not None:
            self._drafting.channels({self._need.name: (0,)} if self._need.kind == BRANCHES else {})
        return drafted
