"""What a policy needs of channels: what is refused, with the command that would record it, and what it sees."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from simlab import (
    ChannelNeed,
    Draft,
    DraftTree,
    Needs,
    Stateless,
    TraceCapabilities,
    check_needs,
    replay_sequence,
    texts_of,
)
from simlab.channels import ChannelRows, Pool, Transitions
from simlab.channels.needs import RecordedChannel
from simlab.errors import MissingChannelError
from simlab.recorded import RecordedSequence
from simlab.sequence_replay import draft_source
from simlab.testing.random_texts import random_sequence, synthetic_pools, synthetic_transitions

VOCAB = 14
TRANSITIONS = {"depth": 7, "previous": 16, "top_k": 8, "order": "base-rank"}
POOL = {"depth": 6, "beam": 10, "top_k": 10, "exact_nodes": 40}
HELD = TraceCapabilities(
    exact_budget=64,
    min_width=64,
    channels={
        "flash": RecordedChannel("transitions", "dflash", TRANSITIONS),
        "eagle": RecordedChannel("pool", None, POOL),
        "some": RecordedChannel("pool", None, POOL, is_dense=False),
        "states": RecordedChannel("sketches", None, {"size": 64}),
        "whi": RecordedChannel("features", None, {"size": 2, "routes": "chain|ar"}),
    },
    draft="dflash",
    location="a trace",
)


@dataclass(frozen=True, slots=True)
class Reading(Stateless):
    """A policy that reads channels, and drafts nothing."""

    channels: tuple[ChannelNeed, ...] = ()
    budget: int = 4
    seen: list[Mapping[str, object]] = field(default_factory=list, compare=False, repr=False)

    @property
    def needs(self) -> Needs:
        return Needs(top_k=1, channels=self.channels)

    def select(self, draft: Draft, state: None = None) -> DraftTree:
        self.seen.append(draft.channels)
        return DraftTree.root_only(draft.root_token)


def settings(**values: int) -> tuple[tuple[str, int], ...]:
    return tuple(values.items())


@pytest.mark.parametrize(
    "need",
    [
        ChannelNeed("whi", "features"),
        ChannelNeed("whi", "features", trained_for="chain|ar"),
        ChannelNeed("flash", "transitions", settings(previous=16, top_k=8)),
        ChannelNeed("flash", "transitions", settings(previous=3), settings(top_k=8)),
        ChannelNeed("flash", "transitions"),
        ChannelNeed("eagle", "pool", settings(depth=4), settings(beam=10, top_k=10)),
        ChannelNeed("eagle", "pool", settings(exact_nodes=40), settings(depth=6, top_k=10)),
        ChannelNeed("eagle", "pool", settings(exact_nodes=40, depth=6), settings(top_k=10)),
    ],
    ids=str,
)
def test_what_the_recording_determines_is_replayed(need: ChannelNeed) -> None:
    check_needs(Reading((need,)), HELD)


@pytest.mark.parametrize(
    ("need", "reason", "command"),
    [
        (
            ChannelNeed("flash", "transitions", settings(previous=17, top_k=8)),
            "wants previous 17 at least, where 16 was recorded",
            "flash-2=CHECKPOINT,previous=17,top_k=8",
        ),
        (ChannelNeed("flash", "transitions", settings(top_k=9)), "wants top_k 9", "flash-2=CHECKPOINT,top_k=9"),
        (ChannelNeed("flash", "pool"), "declared as pool and recorded as transitions", "flash-2=CHECKPOINT"),
        (
            ChannelNeed("eagle", "pool", settings(depth=7), settings(beam=10)),
            "wants depth 7 at least, where 6 was recorded",
            "eagle-2=CHECKPOINT,depth=7,beam=10",
        ),
        (
            ChannelNeed("eagle", "pool", settings(depth=5), settings(beam=8)),
            "wants beam 8 exactly, where 10 was recorded",
            "eagle-2=CHECKPOINT,depth=5,beam=8",
        ),
        (ChannelNeed("eagle", "pool", (), settings(top_k=5)), "wants top_k 5 exactly", "eagle-2=CHECKPOINT,top_k=5"),
        (ChannelNeed("eagle", "pool", (), settings(width=5)), "does not say it", "eagle-2=CHECKPOINT,width=5"),
        (
            ChannelNeed("eagle", "pool", settings(exact_nodes=41)),
            "wants exact_nodes 41 at least, where 40 was recorded",
            "eagle-2=CHECKPOINT,exact_nodes=41",
        ),
        (
            ChannelNeed("eagle", "pool", settings(exact_nodes=20, depth=5)),
            "exact_nodes were counted for trees of depth 6",
            "eagle-2=CHECKPOINT,exact_nodes=20,depth=5",
        ),
        (ChannelNeed("some", "pool"), "recorded at some positions only", "some-2=CHECKPOINT"),
        (ChannelNeed("eagel", "pool"), "none of that name; did you mean `eagle`?", "eagel=CHECKPOINT"),
        (ChannelNeed("other", "pool"), "it holds flash, eagle, some, states, whi", "other=CHECKPOINT"),
        (ChannelNeed("states", "sketches"), "reads transitions, pool, branches and features", "states=CHECKPOINT"),
        (ChannelNeed("states", "pool"), "declared as pool and recorded as sketches", "states-2=CHECKPOINT"),
        (
            ChannelNeed("whi", "features", trained_for="ar|chain"),
            "its routes are ar|chain, where its network was trained for chain|ar",
            "whi-2=CHECKPOINT",
        ),
    ],
    ids=str,
)
def test_what_it_does_not_is_refused_with_the_command(need: ChannelNeed, reason: str, command: str) -> None:
    with pytest.raises(MissingChannelError) as error:
        check_needs(Reading((need,)), HELD)
    said = str(error.value)
    assert reason in said
    assert "\n" not in said
    assert said.endswith(f"`simlab record --trace 'a trace' --add-channel {command}`")


def test_a_channel_of_another_draft_set_is_refused() -> None:
    need = ChannelNeed("flash", "transitions")
    with pytest.raises(
        MissingChannelError, match=r"goes on from the draft set dflash, where other is replayed .*--draft"
    ):
        check_needs(Reading((need,)), replace(HELD, draft="other"))


def test_declarations_that_cannot_be_right() -> None:
    with pytest.raises(ValueError, match="more beam do not hold those with less; declare it as equal"):
        ChannelNeed("eagle", "pool", settings(beam=10))
    with pytest.raises(ValueError, match="more depth do not hold"):
        ChannelNeed("flash", "transitions", settings(depth=3))
    with pytest.raises(ValueError, match="stands there once"):
        ChannelNeed("eagle", "pool", settings(depth=3), settings(depth=3))
    with pytest.raises(ValueError, match=r"declared as ChannelNeed"):
        Needs(channels=("eagle",))  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="declared once"):
        Needs(channels=(ChannelNeed("eagle", "pool"), ChannelNeed("eagle", "transitions")))


def with_channels(seed: int = 4) -> RecordedSequence:
    generator = np.random.default_rng(seed)
    text = random_sequence(generator, VOCAB - 2)
    while len(text.text) < 3:
        text = random_sequence(generator, VOCAB - 2)
    channels: dict[str, ChannelRows] = {
        "flash": synthetic_transitions(text, 5, 6, VOCAB)[0],
        "eagle": synthetic_pools(text, 4, 3, VOCAB, 2),
    }
    return replace(text, channels=channels)


def test_a_policy_sees_what_it_declares_and_no_more() -> None:
    text = with_channels()
    bare = Reading()
    replay_sequence(bare, text)
    assert all(not seen for seen in bare.seen)
    least = (
        ChannelNeed("flash", "transitions", settings(previous=2, top_k=3)),
        ChannelNeed("eagle", "pool", settings(depth=2)),
    )
    reading = Reading(least)
    replay_sequence(reading, text)
    for seen in reading.seen:
        assert set(seen) == {"flash", "eagle"}
        transitions, pool = seen["flash"], seen["eagle"]
        assert isinstance(transitions, Transitions)
        assert isinstance(pool, Pool)
        assert transitions.ids.shape[1] == 3
        assert transitions.num_rows.max() <= 2
        assert not pool.expanded[pool.parents > 0].any()
    whole = draft_source(Needs(channels=(ChannelNeed("flash", "transitions"),)), text)(0)
    assert set(whole.channels) == {"flash"}
    assert whole.channel("flash") is whole.channels["flash"]
    with pytest.raises(ValueError, match="holds no channel 'eagle'; declare the need"):
        whole.channel("eagle")


def test_texts_without_the_channel_are_refused() -> None:
    text = with_channels()
    for need, found in (
        (ChannelNeed("other", "pool"), "none of that name"),
        (ChannelNeed("flash", "pool"), "hold trans"),
    ):
        with pytest.raises(MissingChannelError, match=f"{found}.*--add-channel {need.name}=CHECKPOINT`"):
            replay_sequence(Reading((need,)), text)


def test_rows_must_be_as_many_as_roots() -> None:
    text = with_channels()
    with pytest.raises(ValueError, match="needs a row of the channel flash for all but the last"):
        replace(text, text=text.text[:-1], rows=None)


def test_texts_are_put_together_with_their_channels() -> None:
    text = with_channels()
    both = texts_of([text, text])
    assert set(both.channels) == {"flash", "eagle"}
    assert len(both.channels["eagle"]) == 2 * (len(text.text) - 1)
    assert texts_of([text]).channels["eagle"] is text.channels["eagle"]
    with pytest.raises(ValueError, match="same channels"):
        texts_of([text, replace(text, channels={})])
