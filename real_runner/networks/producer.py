"""What the recorder and the runner ask of a network that makes a channel, beside a drafter or alone."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Generic, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from simlab.arrays import Ints
from simlab.channels import Channel
from simlab.channels.features import TRAINED_FOR
from simlab.draft import Marginals
from simlab.errors import MissingChannelError, ModelError
from simlab.policy import ChannelNeed
from simlab.real_runner.checkpoints.contents import checkpoint_digest
from simlab.real_runner.drafters.dense import BlockPasses, BlockStates, Outputs
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.execution.graph_models import GraphedModels
from simlab.real_runner.networks.candidates import BaseCandidates, base_candidates
from simlab.real_runner.networks.network import Reach
from simlab.real_runner.targets.model import Target
from simlab.recorded import DraftRows
from simlab.traces.channels.columns import ChannelColumns

Stage: TypeAlias = Outputs
"""What a network goes on from: a drafter's pass, or the target's own masks."""


@dataclass(frozen=True, slots=True, eq=False)
class Drafted:
    """What the draft of a round left: a producer goes on from it.

    Attributes:
        root_token: below which was drafted.
        position: of the root, absolute.
        marginals: the first candidates of each depth.
        states: ``[1, D, H]``, of the pass; none of a head that drafts token by token.
        passes: further ones of the drafter below this root; None: it is no drafter of blocks.
    """

    root_token: int
    position: int
    marginals: Marginals
    states: BlockStates = BlockStates(torch.empty(0), torch.empty(0))
    passes: BlockPasses | None = None

    @property
    def root(self) -> Ints:
        """The root's token, int32 ``[1]``."""
        return np.array([self.root_token], np.int32)


class _Makes(Protocol):
    """What makes a channel.

    A row is a function of the models and of the text up to its root, on the grid; so what is recorded at every root of
    a text is what a round has at that root, up to the last bits of the arithmetic. Where rows are made, a `ModelError`
    says that the network's numbers are none.
    """

    @property
    def kind(self) -> str:
        """The kind of its channel, one of `simlab.channels.KINDS`."""
        ...

    def within(self, need: ChannelNeed) -> Self:
        """This producer making no more than a policy reads.

        Raises:
            MissingChannelError: it cannot make as much, or makes it otherwise.
        """
        ...

    def captured(self, graphs: GraphedModels) -> Self:
        """This producer with its passes captured."""
        ...


class _OnDraft(_Makes, Protocol):
    """A network that goes on from what a drafter drafts."""

    @property
    def width(self) -> int:
        """Candidates of each depth of the drafter that it reads."""
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


class Producer(_OnDraft, Protocol):
    """A network on a drafter's pass."""

    def at_root(self, drafted: Drafted) -> Channel:
        """The channel at one root, in a round.

        Args:
            drafted: what the drafter's pass left, of candidates at least ``width`` a depth.
        """
        ...


class Reader(Protocol):
    """What reads states of the target along a text that is being written."""

    def read(self, features: Tensor) -> None:
        """Take in the tapped states ``[1, L, taps x H]`` of further tokens of the text."""

    def rewind(self, length: int) -> None:
        """Forget all but the first tokens of the text; of what was read, the last few states stay as they were."""


class TextChannel(Reader, Protocol):
    """What a network that needs no drafter keeps of one text that is being written."""

    def at_root(self, committed: Ints) -> Channel:
        """The channel at one root, in a round.

        Args:
            committed: int32, prompt and text up to the root; the states of all tokens before the root were read.
        """
        ...


class _Reads(Protocol):
    """What reads states of the target itself."""

    @property
    def taps(self) -> tuple[int, ...]:
        """The target's layers whose outputs it reads; those of a text are what `columns` is given."""
        ...


class _Alone(_Makes, _Reads, Protocol):
    """A network that reads the target alone."""

    def columns(self, features: Tensor, tokens: Tensor, num_roots: int) -> ChannelColumns:
        """The channel at the last ``num_roots`` roots of a text; other arguments as of a drafter's."""
        ...


@runtime_checkable
class TextProducer(_Alone, Protocol):
    """A network that goes on from the target's own states and needs no drafter."""

    @property
    def depth(self) -> int:
        """How many tokens deep its channel goes."""
        ...

    def begin(self) -> TextChannel:
        """A text of which nothing is read yet."""
        ...


@runtime_checkable
class RootProducer(_Alone, Protocol):
    """A network that says of a root what is known before anything is drafted; it reads the target's last layer."""

    def predict(self, state: Tensor, logits: Tensor, position: int) -> Channel:
        """The channel at one root, in a round.

        Args:
            state: ``[H]``, of the target behind its last norm, at the token before the root.
            logits: ``[V]``, of that state.
            position: of the root, absolute.
        """
        ...


class StagedText(Reader, Protocol):
    """What a network that goes on from the drafter's chain keeps of one text that is being written."""

    def at_root(self, drafted: Drafted, lengths: Sequence[int] | None) -> Channel:
        """The branches at one root that a round asks for.

        Args:
            drafted: what the first drafter's pass left.
            lengths: behind how many tokens of its chain; None: behind every beginning.
        """
        ...


@runtime_checkable
class StagedProducer(_OnDraft, _Reads, Protocol):
    """A network that reads states of the target itself, goes on from the drafter's chain, and makes what is asked."""

    @property
    def depth(self) -> int:
        """How many tokens deep its channel goes."""
        ...

    def begin_behind(self, room: int) -> StagedText:
        """A text of which nothing is read yet, with room for so many tokens."""
        ...


AnyProducer: TypeAlias = Producer | TextProducer | StagedProducer | RootProducer
"""What makes a channel: beside a drafter's pass, without a drafter, behind the drafter's chain, or before any draft."""

WithModels: TypeAlias = Callable[[Stage | None, Target], AnyProducer]
"""From what a network goes on from (None: it needs no drafter) and a target to the producer where these are."""


@dataclass(frozen=True, slots=True)
class ChannelAsked:
    """A network that is to be loaded for its channel.

    Attributes:
        location: of its checkpoint.
        dtype: in which it runs.
        stage: what it goes on from, on any device; None where it needs no drafter.
        digest: `checkpoint_digest` of the checkpoint of that.
    """

    location: Path
    dtype: torch.dtype
    stage: Stage | None
    digest: str


SomeDrafter = TypeVar("SomeDrafter", bound=Outputs)
SomeReach = TypeVar("SomeReach", bound=Reach)


@dataclass(frozen=True, slots=True, eq=False)
class OnDrafter(Generic[SomeDrafter, SomeReach]):
    """What all networks on a drafter's pass share; see `Producer`.

    Attributes:
        drafter: which it goes on from.
        target: from which both may borrow.
        reach: as it was asked for.
        graphs: which capture its passes; None: these are run as they come.
    """

    drafter: SomeDrafter
    target: Target
    reach: SomeReach
    graphs: GraphedModels | None = field(default=None, kw_only=True)

    @property
    def own(self) -> SomeReach:
        """The reach that it has: of a drafter with fewer tokens all are taken."""
        config = self.drafter.config
        return self.reach.within(config.draft_vocab_size or config.vocab_size)

    @property
    def kind(self) -> str:
        return self.reach.kind

    @property
    def width(self) -> int:
        return self.own.width

    def check_makes(self, need: ChannelNeed) -> None:
        """Refuse what a policy reads and this network does not make."""
        check_makes(need, self.kind, self.reach.settings(self.drafter.config.depth))

    def captured(self, graphs: GraphedModels) -> Self:
        """This producer with its passes captured."""
        return replace(self, graphs=graphs)

    def within(self, need: ChannelNeed) -> Self:
        """This producer: of a row nothing is left out."""
        self.check_makes(need)
        return self

    def along(
        self, passes: Iterable[tuple[Tensor, BlockStates]], tokens: Tensor, rows: DraftRows
    ) -> Iterator[tuple[BlockStates, Ints, BaseCandidates]]:
        """The states of each pass over a text, the tokens of its roots, and the drafter's first candidates there."""
        base = base_candidates(rows.ids, rows.log_probs, rows.counts, self.width)
        ids, first = tokens.cpu().numpy().astype(np.int32), 0
        start = len(tokens) - 1 - len(base)
        for part, states in passes:
            last = first + len(part)
            yield states, ids[start + first : start + last], base.part(first, last)
            first = last


def block_stage(stage: Stage | None) -> DFlashDrafter:
    """A drafter of blocks, where a network goes on from nothing else."""
    if not isinstance(stage, DFlashDrafter):
        raise TypeError(f"the network goes on from a drafter of blocks; got {stage!r}")
    return stage


def check_belongs(what: str, location: Path, extends: str | None, digest: str) -> None:
    """Refuse a network of another drafter than the one whose checkpoint has a digest.

    Args:
        what: it is, in words.
        location: where it lies.
        extends: sha256 of its drafter's checkpoint; None: it lies beside its drafter.
        digest: `checkpoint_digest` of the drafter that is here.
    """
    if (extends or checkpoint_digest(location)) != digest:
        own = "the drafter beside it" if extends is None else f"the drafter of sha256 {extends}"
        raise ModelError(
            f"the {what} in {location} belongs to {own}, and the drafter here has the sha256 {digest}; give that "
            f"drafter, or train a {what} for this one"
        )


def check_makes(need: ChannelNeed, kind: str, settings: Mapping[str, object]) -> None:
    """Refuse what a policy reads of a channel and a network with these settings does not make."""
    wanted: list[tuple[str, int | str, str]]
    wanted = [*((key, value, " at least") for key, value in need.least), *((*pair, "") for pair in need.equal)]
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
