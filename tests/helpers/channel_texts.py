"""Made-up channels beside texts, wide enough for all of some policies at once."""

from collections.abc import Iterable
from dataclasses import replace

from simlab.policy import AnyPolicy, ChannelNeed
from simlab.recorded import RecordedSequence
from simlab.testing.random_texts import synthetic_channel


def joint_needs(policies: Iterable[AnyPolicy]) -> list[ChannelNeed]:
    """Of each channel one need, with as much as the most demanding policy declares."""
    found: dict[str, ChannelNeed] = {}
    for need in (need for policy in policies for need in policy.needs.channels):
        least = dict(found[need.name].least) if need.name in found else {}
        for key, value in need.least:
            least[key] = max(value, least.get(key, 0))
        found[need.name] = replace(need, least=tuple(least.items()))
    return list(found.values())


def with_channels(
    recorded: RecordedSequence, policies: Iterable[AnyPolicy], tied: bool = False, vocab_size: int = 0
) -> RecordedSequence:
    """A text with the channels that policies read, over so many tokens; 0: over as many as it needs."""
    needs = joint_needs(policies)
    if not needs:
        return recorded
    ids = [] if recorded.rows is None else recorded.rows.ids.tolist()
    vocab_size = vocab_size or max([*ids, *recorded.text.tolist()]) + 2
    channels = {need.name: synthetic_channel(need, recorded, vocab_size, tied) for need in needs}
    return replace(recorded, channels=channels)
