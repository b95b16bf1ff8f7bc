"""What a kind of network says of itself before it is loaded: how it is known, and how far its channel reaches.

Nothing here needs torch, so that the command line can list and explain checkpoints.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol, Self, TypeAlias, TypeVar

from simlab.channels.root_rows import TRANSITIONS
from simlab.channels.rows import EXACT_NODES
from simlab.errors import ModelError, named_or_listed
from simlab.real_runner.checkpoints.layout import Fields, Layout
from simlab.real_runner.checkpoints.weights import StoredTensor
from simlab.traces.format.manifest_entries import BASE_RANK

Tensors: TypeAlias = Mapping[str, StoredTensor]
"""Tensors of a checkpoint by name, not yet loaded."""

Settings: TypeAlias = Mapping[str, object]
"""How far a channel is to reach: as typed behind a checkpoint, or as a manifest has it."""


BYTES_OF_NODE = 4.51
"""On disk, of a node of a pool: measured of a TAPS scorer, at 5,856 roots of 7 depths and 24 nodes each."""


class Reach(ABC):
    """How far a channel reaches: what its settings say, before its network is loaded.

    Attributes:
        kind: of its channel, one of `simlab.channels.KINDS`.
        needs_drafter: whether it goes on from a drafter's rows, or from the target alone.
        score_bytes: that a scored token takes in a trace, with its share of the rest.
    """

    __slots__ = ()

    kind: ClassVar[str]
    needs_drafter: ClassVar[bool] = True
    score_bytes: ClassVar[float]

    @property
    def width(self) -> int:
        """Candidates of each depth of the drafter that are read."""
        return 0

    def within(self, num_tokens: int) -> Self:
        """This reach where a drafter has so many tokens."""
        return self

    @abstractmethod
    def settings(self, depth: int) -> dict[str, object]:
        """What the manifest says of the channel; ``depth`` is that of the drafter, where there is one."""

    @abstractmethod
    def num_scores(self, depth: int) -> int:
        """Numbers that are kept at each root."""

    def held(self, depth: int) -> str:
        """What a root holds, in words."""
        return f"{self.num_scores(depth)} scored tokens at each"

    def disk_bytes(self, depth: int) -> float:
        """Bytes that a root takes in a trace, estimated."""
        return self.num_scores(depth) * self.score_bytes

    def widest(self, width: int) -> str:
        """The settings, as typed behind a checkpoint, with which no more than ``width`` candidates are read."""
        # Asked only of a reach that reads candidates, and each of these has its own.
        raise NotImplementedError


def check_settings(of: Reach, what: str, *names: str) -> None:
    """Refuse a setting below 1; one that is None is left out."""
    for name in names:
        value = getattr(of, name)
        if value is not None and value < 1:
            raise ValueError(f"{name} of {what} must be at least 1; got {value}")


_OF_DRAFTERS = ("depth", "order", EXACT_NODES)
"""Settings in a manifest that a network does not choose."""

SomeReach = TypeVar("SomeReach", bound=Reach)


def reach_with(what: str, settings: Settings, names: Sequence[str], make: Callable[..., SomeReach]) -> SomeReach:
    """A reach, made with those of the settings that a network of this kind chooses.

    Args:
        what: the network, in words.
        settings: see `Settings`.
        names: of those that it has.
        make: from them to the reach.
    """
    own = {key: value for key, value in settings.items() if key not in _OF_DRAFTERS}
    for key in own:
        if key not in names:
            asked = named_or_listed(key, names, f"expected {', '.join(names)}")
            raise ModelError(f"{what} has no setting {key}{asked}")
    try:
        return make(**{key: value for key, value in own.items() if isinstance(value, int)})
    except ValueError as error:
        raise ModelError(str(error)) from error


@dataclass(frozen=True, slots=True)
class HeadReach(Reach):
    """How far the rows of a network reach that scores a token given the one above it.

    On disk a token of a row takes 4.49 and 4.47 bytes in those of 4,764 and 4,644 roots, 7 depths, 16 rows and 16
    tokens, along answers of SmolLM2-135M to GSM8K and MBPP.

    Attributes:
        previous: M, tokens of each depth that have a row below them.
        top_k: R, tokens of a row.
        candidates: None scores a row over the whole vocabulary, as published. Else C (ours): over the drafter's own
            first C candidates of the row's depth alone, whose probabilities share what the drafter gave to all of
            them; C products with a state then take the place of V.
    """

    kind: ClassVar[str] = TRANSITIONS
    score_bytes: ClassVar[float] = 4.48

    previous: int = 16
    top_k: int = 16
    candidates: int | None = None

    def __post_init__(self) -> None:
        check_settings(self, "a head", "previous", "top_k", "candidates")
        if self.candidates is not None and self.top_k > self.candidates:
            raise ValueError(f"top_k of a head must be at most its {self.candidates} candidates; got {self.top_k}")

    @property
    def width(self) -> int:
        return max(self.previous, self.candidates or 1)

    def within(self, num_tokens: int) -> Self:
        candidates = None if self.candidates is None else min(self.candidates, num_tokens)
        previous, top_k = min(self.previous, num_tokens), min(self.top_k, num_tokens)
        return replace(self, previous=previous, top_k=top_k, candidates=candidates)

    def settings(self, depth: int) -> dict[str, object]:
        """What the manifest says of the rows; ``candidates`` only where they bound them."""
        bounded = {} if self.candidates is None else {"candidates": self.candidates}
        return {"depth": depth, "previous": self.previous, "top_k": self.top_k, "order": BASE_RANK, **bounded}

    def rows_of_depths(self, depth: int) -> list[int]:
        """Rows of each depth: one below the root, then one below each token above."""
        return [1] + [self.previous] * (depth - 1)

    def num_scores(self, depth: int) -> int:
        return sum(self.rows_of_depths(depth)) * self.top_k

    def widest(self, width: int) -> str:
        return f"{'previous' if self.previous > width else 'candidates'}={width}"


def reach_of_all(what: str, top_k: int, settings: Settings) -> HeadReach:
    """The reach of a network that chooses among so many candidates of each depth: all of them, below all of them."""
    own = {"previous": top_k, "top_k": top_k, "candidates": top_k}
    if wrong := [name for name in own if settings.get(name) not in (None, own[name])]:
        raise ModelError(f"{what} chooses among its {top_k} candidates, so {wrong[0]} is {own[wrong[0]]}; leave it out")
    return HeadReach(**own)


class NetworkConfig(Protocol):
    """The configuration of a network, as a checkpoint has it."""

    def check(self, tensors: Tensors, location: object) -> None:
        """Refuse tensors with which it cannot be built; ``location`` is where they lie, for the message."""

    def lines(self) -> list[tuple[str, str]]:
        """What to tell people of it, each with a heading."""
        ...


@dataclass(frozen=True, slots=True)
class Network:
    """One kind of network: all that is asked before a checkpoint of it is loaded, and where its code is.

    Attributes:
        what: it is, in words.
        layout: of its ``config.json``; refuses where a DFlash drafter is wanted.
        reads: its configuration; None where the fields are of another network.
        reach: of its channel, from the fields, the settings, and whether the checkpoint is that of the drafter itself.
        module: has its code, see `simlab.real_runner.networks.loading.NetworkCode`.
        needs_drafter: whether its channel goes on from a drafter.
        on_masks: whether it goes on from the target's own masks too.
        draft_name: what its draft set is called, where a target drafts with it, alone or with the drafter that it is
            part of; None: it is beside a drafter.
        first_policies: for a first replay of such a draft set, as options.
        prefix: what stands before the names of its tensors, where they may lie beside those of its drafter.
        tensor_name: the name within the network of a tensor on disk.
        is_alone: whether the fields are of such a network without its drafter, where they may lie together.
    """

    what: str
    layout: Layout
    reads: Callable[[Fields], NetworkConfig | None]
    reach: Callable[[Fields, Settings, bool], Reach]
    module: str
    needs_drafter: bool = True
    on_masks: bool = False
    draft_name: str | None = None
    first_policies: str = ""
    prefix: str | None = None
    tensor_name: Callable[[str], str] = str
    is_alone: Callable[[Fields], bool] = lambda fields: False

    @property
    def drafts_alone(self) -> bool:
        """Whether a target drafts with it and no drafter of blocks."""
        return self.draft_name is not None and self.prefix is None
