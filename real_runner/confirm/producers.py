"""The producers of a confirmation's channels: the networks that a trace names, where they are now."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from simlab.channels.needs import channels_made
from simlab.errors import ModelError, TraceError, UsageError, did_you_mean
from simlab.policies.parsing.parse import NamedPolicy
from simlab.real_runner.checkpoints.contents import checkpoint_digest
from simlab.real_runner.checkpoints.files import find_drafter
from simlab.real_runner.checkpoints.networks.producers import load_text_producer, producer_on
from simlab.real_runner.confirm.options import ConfirmOptions
from simlab.real_runner.heads.producer import AnyProducer
from simlab.real_runner.models import Models
from simlab.real_runner.targets.hub_files import at_revision
from simlab.traces.format.manifest_entries import ChannelInfo
from simlab.traces.reader import Trace


def with_producers(models: Models, options: ConfirmOptions, trace: Trace, policies: Sequence[NamedPolicy]) -> Models:
    """The models, and what makes the channels that the policies read.

    Args:
        models: the trace's own.
        options: where checkpoints are now.
        trace: holds the channels; see `simlab.sequence_replay.check_needs`.
        policies: that run.
    """
    names = channels_made(one.policy for one in policies)
    for name in options.channels:
        if name not in names:
            read = did_you_mean(name, names) or f"; they read {', '.join(names) or 'none'}"
            raise UsageError(f"no policy reads the channel {name}{read}; leave --channel {name}=CHECKPOINT out")
    found = trace.manifest.channels
    channels = {name: _producer(models, options, trace, name, found[name]) for name in names}
    return replace(models, channels=channels)


def _producer(models: Models, options: ConfirmOptions, trace: Trace, name: str, info: ChannelInfo) -> AnyProducer:
    place = _place_of(options, name, info)
    digest = checkpoint_digest(place)
    if digest != info.producer.digest:
        raise TraceError(
            f"the channel {name} of {trace.place} was recorded with {info.producer.name} (sha256 "
            f"{info.producer.digest[:12]}), and {place} has the sha256 {digest[:12]}; give that checkpoint with "
            f"--channel {name}=CHECKPOINT, or record a channel with this one"
        )
    dtype = models.target.dtype
    if info.extends is None:
        return load_text_producer(place, info.settings, dtype)(models.target)
    digest = checkpoint_digest(models.draft_folder)
    return producer_on(place, info.settings, models.first_stage, models.target, digest, dtype)


def _place_of(options: ConfirmOptions, name: str, info: ChannelInfo) -> Path:
    """Where the checkpoint of a channel is."""
    if name in options.channels:
        return find_drafter(options.channels[name]).folder
    try:
        return find_drafter(at_revision(info.producer.name, info.producer.revision)).folder
    except ModelError as error:
        raise ModelError(
            f"{error}; the trace names the network of the channel {name} so, and --channel {name}=CHECKPOINT says "
            "where it is now"
        ) from error
