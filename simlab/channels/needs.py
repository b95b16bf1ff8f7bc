"""The channels that policies need of a recording, against those it holds: decided before anything is replayed."""

import shlex
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from simlab.channels.features import TRAINED_FOR
from simlab.channels.root_rows import BRANCHES, KINDS, POOL
from simlab.channels.rows import EXACT_NODES, WHOLE_CHAIN
from simlab.errors import MissingChannelError, did_you_mean, enumerated
from simlab.policy import AnyPolicy, ChannelNeed


@dataclass(frozen=True, slots=True)
class RecordedChannel:
    """A channel of a recording, as far as it decides which policies can be replayed.

    Attributes:
        kind: of the channel; it may be one that this simlab does not read.
        extends: the draft set whose candidates it goes on from; None: it stands for itself.
        settings: all that bounded it.
        is_dense: whether it has a row for every root.
    """

    kind: str
    extends: str | None
    settings: Mapping[str, object]
    is_dense: bool = True


@dataclass(frozen=True, slots=True)
class TraceCapabilities:
    """What a recording holds for a replay of one of its draft sets.

    Attributes:
        exact_budget: best-first trees up to this budget are exact on the recorded candidates.
        min_width: candidates recorded at every depth at least.
        channels: by name.
        draft: the name of the draft set.
        location: the folder or address of the recording.
        root_seen: whether the drafter read the root's own token; False of a target that drafts for itself.
        imported_from: the engine whose dump it was made of, which holds candidates alone; empty: simlab recorded it.
    """

    exact_budget: int
    min_width: int
    channels: Mapping[str, RecordedChannel] = field(default_factory=dict)
    draft: str = "NAME"
    location: str = "DIR"
    root_seen: bool = True
    imported_from: str = ""


def check_channels(policy: AnyPolicy, held: TraceCapabilities) -> None:
    """Whether a recording determines what a policy would see of the channels it reads.

    Args:
        policy: the policy to be replayed.
        held: what the recording holds.
    """
    for need in policy.needs.made:
        _check_channel(policy, need, held)


def channels_read(policies: Iterable[AnyPolicy]) -> tuple[str, ...]:
    """The names of all channels that some policies read, each once; among them the target's own law."""
    return tuple(dict.fromkeys(need.name for policy in policies for need in policy.needs.channels))


def channels_made(policies: Iterable[AnyPolicy]) -> tuple[str, ...]:
    """The names of those channels that some network makes, which have an id of their own."""
    return tuple(dict.fromkeys(need.name for policy in policies for need in policy.needs.made))


def _check_channel(policy: AnyPolicy, need: ChannelNeed, held: TraceCapabilities) -> None:
    reads = f"{policy!r} reads the channel {need.name}"
    if need.kind not in KINDS:
        raise MissingChannelError(
            f"{reads} of the kind {need.kind!r}, and this simlab reads {enumerated(KINDS)}; with "
            f"one that reads it, record it: {_command(need, need.name, held)}"
        )
    channel = held.channels.get(need.name)
    if channel is None:
        holds = f"it holds {', '.join(held.channels) or 'no channel'}"
        raise MissingChannelError(
            f"{reads}, and {held.location} has none of that "
            f"name{did_you_mean(need.name, held.channels) or f': {holds}'}; record it: "
            f"{_command(need, need.name, held)}"
        )
    asked, branches = dict(need.least).get("branches", 0), channel.settings.get("branches")
    is_whole = WHOLE_CHAIN in channel.settings
    if channel.kind == need.kind == BRANCHES and not is_whole and isinstance(branches, int) and branches < asked:
        raise MissingChannelError(
            f"{reads} and asks for {asked} branches, where a root has {branches}, all of which were recorded; give it "
            "fewer"
        )
    reason = next(_reasons(need, channel, held.draft), None)
    if reason is not None:
        other = _free_name(need.name, held)
        raise MissingChannelError(
            f"{reads}, and {reason}; record it beside, under a name that you give to the policy: "
            f"{_command(need, other, held)}"
        )


def _reasons(need: ChannelNeed, channel: RecordedChannel, draft: str) -> Iterator[str]:
    """Why a recorded channel does not determine what a policy would see."""
    if channel.kind != need.kind:
        yield f"it was declared as {need.kind} and recorded as {channel.kind}"
        return
    if not channel.is_dense:
        yield "it was recorded at some positions only, for training"
    if channel.extends not in (None, draft):
        yield f"it goes on from the draft set {channel.extends}, where {draft} is replayed (choose with --draft-set)"
    if WHOLE_CHAIN in channel.settings and WHOLE_CHAIN not in dict(need.equal):
        yield "it was recorded behind the whole chain alone"
    yield from _reasons_of_settings(need, channel)


def _reasons_of_settings(need: ChannelNeed, channel: RecordedChannel) -> Iterator[str]:
    """Why a channel of the right kind and place holds something else than is read."""
    for key, value in need.equal:
        if channel.settings.get(key) != value:
            yield f"it wants {key} {value} exactly, where {_recorded_setting(channel, key)}"
    if need.trained_for and channel.settings.get(TRAINED_FOR) != need.trained_for:
        trained_for = channel.settings.get(TRAINED_FOR)
        yield f"its routes are {need.trained_for}, where its network was trained for {trained_for}"
    least = dict(need.least)
    for key, value in need.least:
        recorded = channel.settings.get(key)
        if not isinstance(recorded, int) or recorded < value:
            yield f"it wants {key} {value} at least, where {_recorded_setting(channel, key)}"
    depth, recorded = least.get("depth"), channel.settings.get("depth")
    if channel.kind == POOL and EXACT_NODES in least and depth not in (None, recorded):
        yield f"its exact_nodes were counted for trees of depth {recorded}, and the policy wants {depth}"


def _recorded_setting(channel: RecordedChannel, key: str) -> str:
    return f"{channel.settings[key]} was recorded" if key in channel.settings else "the recording does not say it"


def _free_name(name: str, held: TraceCapabilities) -> str:
    number = 2
    while f"{name}-{number}" in held.channels:
        number += 1
    return f"{name}-{number}"


def _command(need: ChannelNeed, name: str, held: TraceCapabilities) -> str:
    settings = "".join(f",{key}={value}" for key, value in (*need.least, *need.equal))
    return f"`simlab record --trace {shlex.quote(held.location)} --add-channel {name}=CHECKPOINT{settings}`"
