"""What the recorder and the runner ask of a network that makes a channel, beside a drafter or alone."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

from torch import Tensor

from simlab.arrays import Ints
from simlab.channels import Channel
from simlab.channels.branches import TRAINED_FOR
from simlab.draft import Marginals
from simlab.errors import MissingChannelError
from simlab.policy import ChannelNeed
from simlab.real_runner.drafters.dense import BlockStates
from simlab.real_runner.drafters.dflash import DrafterContext
from simlab.recorded import DraftRows
from simlab.traces.channels.columns import ChannelColumns


@dataclass(frozen=True, slots=True, eq=False)
class Drafted:
    """What the drafter's pass of a round left: a producer goes on from it.

    Attributes:
        root_token: below which was drafted.
        position: of the root, absolute.
        marginals: the first candidates of each depth.
        states: ``[1, D, H]``, of the pass.
        context: what the drafter keeps of the text before the root.
    """

    root_token: int
    position: int
    marginals: Marginals
    states: BlockStates
    context: DrafterContext


class Reach(Protocol):
    """How far a channel on a drafter reaches: what its settings say, before its network is loaded."""

    @property
    def kind(self) -> str:
        """The kind of its channel, one of `simlab.channels.KINDS`."""
        ...

    @property
    def width(self) -> int:
        """Candidates of each depth of the drafter that are read."""
        ...

    def within(self, num_tokens: int) -> "Reach":
        """This reach where a drafter has so many tokens."""
        ...

    def settings(self, depth: int) -> dict[str, object]:
        """What the manifest says of a channel with this reach on a drafter that looks ``depth`` tokens ahead."""
        ...

    def num_scores(self, depth: int) -> int:
        """Tokens that are scored and kept at each root."""
        ...

    def disk_bytes(self, depth: int) -> float:
        """Bytes that a root takes in a trace, foreseen."""
        ...

    def widest(self, width: int) -> str:
        """The settings, as typed behind a checkpoint, with which no more than ``width`` candidates are read."""
        ...


class Producer(Protocol):
    """A network, its drafter and its target, and how far its channel reaches.

    A row is a function of the models and of the text up to its root, on the grid; so what is recorded at every root of
    a text is what a round has at that root, up to the last bits of the arithmetic. One that needs no drafter is a
    `TextProducer`.
    """

    @property
    def kind(self) -> str:
        """The kind of its channel, one of `simlab.channels.KINDS`."""
        ...

    @property
    def width(self) -> int:
        """Candidates of each depth of the drafter that it reads."""
        ...

    def within(self, need: ChannelNeed) -> "Producer":
        """This producer making no more than a policy reads.

        Raises:
            MissingChannelError: it cannot make as much, or makes it otherwise.
        """
        ...

    def at_root(self, drafted: Drafted) -> Channel:
        """The channel at one root, in a round.

        Args:
            drafted: what the drafter's pass left, of candidates at least ``width`` a depth.

        Raises:
            ModelError: the marginals are too narrow, or the network's numbers are none.
        """
        ...

    def columns(self, features: Tensor, tokens: Tensor, rows: DraftRows) -> ChannelColumns:
        """The channel at every root of one text, to be recorded.

        Args:
            features: ``[C, taps x H]``, tapped states of the target from position 0 on.
            tokens: int64 ``[P + T]``, prompt and text.
            rows: the recorded candidates at the ``T - 1`` roots.

        Raises:
            ModelError: the rows keep fewer candidates than are read, or the network's numbers are none.
        """
        ...


class TextChannel(Protocol):
    """What a network that needs no drafter keeps of one text that is being written."""

    def read(self, features: Tensor) -> None:
        """Take in the tapped states ``[1, L, taps x H]`` of further tokens of the text."""

    def rewind(self, length: int) -> None:
        """Forget all but the first tokens of the text; of what was read, the last few states stay as they were."""

    def at_root(self, committed: Ints) -> Channel:
        """The channel at one root, in a round.

        Args:
            committed: int32, prompt and text up to the root; the states of all tokens before the root were read.

        Raises:
            ModelError: the network's numbers are none.
        """
        ...


@runtime_checkable
class TextProducer(Protocol):
    """A network that goes on from the target's own states and needs no drafter; rows are as those of a `Producer`."""

    @property
    def kind(self) -> str:
        """The kind of its channel, one of `simlab.channels.KINDS`."""
        ...

    @property
    def taps(self) -> tuple[int, ...]:
        """The target's layers whose outputs it reads."""
        ...

    @property
    def depth(self) -> int:
        """How many tokens deep its channel goes."""
        ...

    def within(self, need: ChannelNeed) -> "TextProducer":
        """This producer making no more than a policy reads; see `Producer.within`."""
        ...

    def begin(self) -> TextChannel:
        """A text of which nothing is read yet."""
        ...

    def columns(self, features: Tensor, tokens: Tensor, num_roots: int) -> ChannelColumns:
        """The channel at every root of one text, to be recorded.

        Args:
            features: ``[C, taps x H]``, tapped states of the target from position 0 on.
            tokens: int64 ``[P + T]``, prompt and text.
            num_roots: ``T - 1``.

        Raises:
            ModelError: the network's numbers are none.
        """
        ...


@runtime_checkable
class RootProducer(Protocol):
    """A network that says of a root what is known before anything is drafted; rows are as those of a `Producer`."""

    @property
    def kind(self) -> str:
        """The kind of its channel, one of `simlab.channels.KINDS`."""
        ...

    @property
    def taps(self) -> tuple[int, ...]:
        """The target's layers whose outputs it reads to be recorded: the last one."""
        ...

    def within(self, need: ChannelNeed) -> "RootProducer":
        """This producer making no more than a policy reads; see `Producer.within`."""
        ...

    def foresee(self, state: Tensor, logits: Tensor, position: int) -> Channel:
        """The channel at one root, in a round.

        Args:
            state: ``[H]``, of the target behind its last norm, at the token before the root.
            logits: ``[V]``, of that state.
            position: of the root, absolute.

        Raises:
            ModelError: the network's numbers are none.
        """
        ...

    def columns(self, features: Tensor, tokens: Tensor, num_roots: int) -> ChannelColumns:
        """The channel at every root of one text, to be recorded; as of `TextProducer.columns`."""
        ...


class StagedText(Protocol):
    """What a network that goes on from the drafter's chain keeps of one text that is being written."""

    def read(self, features: Tensor) -> None:
        """Take in the tapped states ``[1, L, taps x H]`` of further tokens of the text."""

    def rewind(self, length: int) -> None:
        """Forget all but the first tokens of the text; of what was read, the last few states stay as they were."""

    def at_root(self, drafted: Drafted, lengths: Sequence[int] | None) -> Channel:
        """The branches at one root that a round asks for.

        Args:
            drafted: what the first drafter's pass left.
            lengths: behind how many tokens of its chain; None: behind every beginning.

        Raises:
            ModelError: the network's numbers are none.
        """
        ...


@runtime_checkable
class StagedProducer(Protocol):
    """A network that reads states of the target itself, goes on from the drafter's chain, and makes what is asked."""

    @property
    def kind(self) -> str:
        """The kind of its channel, one of `simlab.channels.KINDS`."""
        ...

    @property
    def width(self) -> int:
        """Candidates of each depth of the drafter that it reads."""
        ...

    @property
    def taps(self) -> tuple[int, ...]:
        """The target's layers whose outputs it reads."""
        ...

    @property
    def depth(self) -> int:
        """How many tokens deep its channel goes."""
        ...

    @property
    def base_depth(self) -> int:
        """How many tokens the drafter's chain has."""
        ...

    def within(self, need: ChannelNeed) -> "StagedProducer":
        """This producer making no more than a policy reads; see `Producer.within`."""
        ...

    def begin_behind(self, room: int) -> StagedText:
        """A text of which nothing is read yet, with room for so many tokens."""
        ...

    def columns(self, features: Tensor, tokens: Tensor, rows: DraftRows) -> ChannelColumns:
        """The channel at every root of one text, to be recorded; ``features`` behind its own taps.

        Other arguments and errors as of `Producer.columns`.
        """
        ...


AnyProducer: TypeAlias = Producer | TextProducer | StagedProducer | RootProducer
"""What makes a channel: beside a drafter's pass, without a drafter, behind the drafter's chain, or before any draft."""


def check_makes(need: ChannelNeed, kind: str, settings: Mapping[str, object]) -> None:
    """Refuse what a policy reads of a channel and a network with these settings does not make."""
    wanted: list[tuple[str, int | str, str]]
    wanted = [*((key, value, " at least") for key, value in need.least), *((*one, "") for one in need.equal)]
    wanted += [(TRAINED_FOR, need.trained_for, "")] if need.trained_for else []
    unmet = [f"of the kind {need.kind}, and its network makes {kind}"] if need.kind != kind else []
    for key, value, at_least in wanted:
        made = settings.get(key)
        is_met = made == value or (bool(at_least) and isinstance(made, int) and made >= int(value))
        if not is_met:
            unmet.append(f"with {key} {value}{at_least}, and its network makes it with {made or 'no such setting'}")
    if unmet:
        raise MissingChannelError(
            f"the policy reads the channel {need.name} {unmet[0]}; give the policy less, or the network more"
        )
