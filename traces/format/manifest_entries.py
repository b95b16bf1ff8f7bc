"""The models, draft sets and channels of a trace, as its manifest lists them."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from simlab.channels import BRANCHES, FEATURES, KINDS, POOL, TARGET, TRANSITIONS
from simlab.channels.features import MOST_FEATURES, TRAINED_FOR
from simlab.channels.rows import WHOLE_CHAIN
from simlab.limits import MOST_COUNT
from simlab.traces.format.documents import Json

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MOST_KEPT = 65_535
"""The largest ``min_width`` and ``exact_budget``: counts are stored as uint16."""

MOST_DEPTH = 1024
"""The most positions that a drafter drafts ahead; blocks are far smaller."""
MOST_TOKENS = 1 << 24
"""The most tokens of a vocabulary, far above any."""

_MOST = {
    TRANSITIONS: {"depth": MOST_DEPTH, "previous": 255, "top_k": MOST_KEPT},
    POOL: {"depth": MOST_DEPTH},
    BRANCHES: {"depth": 255, "branches": 255, "top_k": MOST_KEPT},
    FEATURES: {"size": MOST_FEATURES},
}
"""Settings that each channel of a kind has, and the largest value of each; ``previous`` and ``lengths`` are uint8."""

ALL = "all"
"""The positions of a channel that has a row for every root."""

BASE_RANK = "base-rank"
"""The order of transitions: rows of a depth stand in the order of the base draft set's ranks."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_.-]*")


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """A model by the name it was loaded under, its revision, and a digest of its weights.

    ``quantised`` says how its weights are stored, such as ``fp8, blocks of 128 x 128``; empty: as plain numbers.
    """

    name: str
    revision: str
    digest: str
    quantised: str = ""

    @property
    def label(self) -> str:
        """The name of a model, and how its weights are stored where that is not as plain numbers."""
        return f"{self.name} ({self.quantised})" if self.quantised else self.name

    def is_same(self, other: "ModelInfo") -> bool:
        """Whether both are the same weights: of one digest, or of one commit of the hub.

        The second, since a digest is of the files that were fetched, and not every command fetches all.
        """
        ours, theirs = ((info.name, info.revision) for info in (self, other))
        return self.digest == other.digest or (ours == theirs and self.revision != "")


def as_json(holder: "DataclassInstance") -> Json:
    """The fields of a dataclass that holds models, without those that say nothing and that older files do not have."""
    return asdict(
        holder, dict_factory=lambda pairs: {key: value for key, value in pairs if (key, value) not in _UNSAID}
    )


_NOISE = re.compile(r"(?:[a-z]+(?:,[a-z]+=[0-9.e+-]+)+)?")
_UNSAID = (("quantised", ""), ("digest", None))


@dataclass(frozen=True, slots=True)
class DraftSet:
    """What one drafter recorded.

    Attributes:
        block_size: positions of the drafter's block, the root's included.
        depth: D, positions drafted ahead.
        min_width: ranks that are kept at every depth; policies with ``top_k`` up to it are exact.
        exact_budget: largest budget at which uncapped best-first trees are exact.
        vocab_size: of the drafter; its candidates' ids are below it.
        draft_vocab_size: how many of these it can propose; None: all of them.
        tap_offset: what was added to the checkpoint's numbers of the target's layers to find the states that the
            drafter read, where state 0 is the embedding; None: not written down.
        is_chain: whether a depth's candidates stand behind the first ones of the depths above, as a drafter that goes
            token by token says them; otherwise they are those of one pass over all depths.
        root_seen: whether the drafter read the root's own token; False of a target that drafts for itself, whose masks
            stand behind the token before it: a row is then a function of the text before its root.
        noise: tokens that stood in place of these masks, as ``--noise`` is typed; empty: masks did, or there are none.
        candidates_only: whether nothing is known of the drafter's laws beside the kept candidates: there are no
            entropies, and a true token that is not kept has the rank -1.
    """

    model: ModelInfo
    block_size: int
    depth: int
    min_width: int
    exact_budget: int
    vocab_size: int
    mask_token_id: int | None
    draft_vocab_size: int | None = None
    tap_offset: int | None = None
    is_chain: bool = False
    root_seen: bool = True
    noise: str = ""
    candidates_only: bool = False

    def __post_init__(self) -> None:
        if not (1 <= self.depth <= MOST_DEPTH and 1 <= self.vocab_size <= MOST_TOKENS):
            raise ValueError(
                f"depth must be from 1 to {MOST_DEPTH:,} and vocab_size from 1 to {MOST_TOKENS:,}; got {self.depth} "
                f"and {self.vocab_size}"
            )
        if not 1 <= self.block_size <= MOST_COUNT:
            raise ValueError(f"block_size must be from 1 to {MOST_COUNT:,}; got {self.block_size}")
        if not 1 <= self.num_proposable <= self.vocab_size:
            raise ValueError(f"draft_vocab_size must be from 1 to {self.vocab_size}; got {self.draft_vocab_size}")
        if not _NOISE.fullmatch(self.noise):
            raise ValueError(f"noise must be as --noise is typed, or empty; got {self.noise!r:.60}")
        check_kept(self.min_width, self.exact_budget)

    @property
    def is_head(self) -> bool:
        """Whether a head made the chain in a pass a token, as EAGLE-3's does; without masks, which a block has."""
        return self.is_chain and self.mask_token_id is None

    @property
    def num_proposable(self) -> int:
        """Tokens that the drafter can propose."""
        return self.vocab_size if self.draft_vocab_size is None else self.draft_vocab_size

    @property
    def has_open_ranks(self) -> bool:
        """Whether a rank of -1 can stand at any token that is not kept: which tokens it has is not in the trace."""
        return self.draft_vocab_size is not None or self.candidates_only

    def to_json(self) -> Json:
        """The entry of this drafter in the manifest; what does not concern it is left out."""
        absent = {"draft_vocab_size": None, "tap_offset": None, "is_chain": False, "root_seen": True, "noise": ""}
        absent["candidates_only"] = False
        return {key: value for key, value in as_json(self).items() if key not in absent or value != absent[key]}


@dataclass(frozen=True, slots=True)
class ChannelInfo:
    """What one channel recorded, beside the draft sets.

    Attributes:
        kind: ``transitions``, ``pool``, ``branches``, ``features``, or one that this simlab does not read yet.
        producer: the model that made it.
        extends: the draft set whose candidates or states it goes on from; None: it stands for itself.
        extends_id: the id of that draft set.
        settings: all that bounded it; names to integers, for the kinds that this simlab reads, but for an ``order`` and
            the ``routes`` that features were trained for.
        dtype: of the run that recorded it.
        positions: ``all``; otherwise, as a JSON object, which roots have a row.
    """

    kind: str
    producer: ModelInfo
    extends: str | None
    extends_id: str | None
    settings: Mapping[str, object]
    dtype: str
    positions: str | Mapping[str, object] = ALL

    def __post_init__(self) -> None:
        if (self.extends is None) != (self.extends_id is None):
            raise ValueError("a channel has extends_id exactly where it extends a draft set")
        if isinstance(self.positions, str) and self.positions != ALL:
            raise ValueError(f"positions must be {ALL!r} or an object; got {self.positions!r}")
        if self.kind in KINDS:
            _check_settings(self.kind, self.settings)
        if self.kind == TRANSITIONS and self.extends is None:
            raise ValueError("transitions extend a draft set, whose first tokens they stand below")
        if self.kind == BRANCHES and self.extends is None:
            raise ValueError("branches extend a draft set, behind whose chain they stand")

    @property
    def is_read(self) -> bool:
        """Whether this simlab reads it: it knows the kind, and every root has a row."""
        return self.kind in KINDS and self.positions == ALL

    @property
    def width(self) -> int:
        """What its columns are as wide as: the numbers of a root where these are features, else its depth."""
        return self.setting("size" if self.kind == FEATURES else "depth")

    def setting(self, name: str, default: int = 0) -> int:
        """The value of a setting; ``default`` where it is not set, or is no integer."""
        value = self.settings.get(name)
        return value if isinstance(value, int) else default

    def to_json(self) -> Json:
        """The entry of this channel in the manifest."""
        positions = self.positions if isinstance(self.positions, str) else dict(self.positions)
        return {**as_json(self), "settings": dict(self.settings), "positions": positions}


def _check_settings(kind: str, settings: Mapping[str, object]) -> None:
    missing = [name for name in _MOST[kind] if name not in settings]
    if missing:
        raise ValueError(f"{kind} need the setting {missing[0]}; got {', '.join(settings) or 'none'}")
    for name, value in settings.items():
        if (kind, name) == (TRANSITIONS, "order"):
            continue
        if (kind, name) == (FEATURES, TRAINED_FOR):
            _check_routes(value, settings)
            continue
        least, most = (1, _MOST[kind][name]) if name in _MOST[kind] else (0, MOST_COUNT)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise ValueError(f"the setting {name} of {kind} must be an integer from {least} to {most:,}; got {value!r}")
    if kind == TRANSITIONS and settings.get("order") != BASE_RANK:
        raise ValueError(f"the setting order of transitions must be {BASE_RANK!r}; got {settings.get('order')!r}")


def _check_routes(routes: object, settings: Mapping[str, object]) -> None:
    if not isinstance(routes, str) or len(routes.split("|")) != settings.get("size"):
        raise ValueError(f"the setting {TRAINED_FOR} of {FEATURES} must be as many routes as there are; got {routes!r}")


def check_name(kind: str, name: str) -> None:
    """Refuse a name that files cannot have.

    Args:
        kind: of what it names, in words.
        name: of a draft set or channel.
    """
    if kind == "channel" and name == TARGET:
        raise ValueError(f"{TARGET!r} names the target's own law, which every trace has; give the channel another name")
    if not _NAME.fullmatch(name):
        raise ValueError(f"the name of a {kind} is lower-case letters, digits, '_', '.', '-'; got {name!r}")


def check_kept(min_width: int, exact_budget: int) -> None:
    """Refuse numbers of candidates that the format cannot hold."""
    for name, value in (("min_width", min_width), ("exact_budget", exact_budget)):
        if not 1 <= value <= MOST_KEPT:
            raise ValueError(f"{name} must be from 1 to {MOST_KEPT:,}; got {value:,}")


def check_base(name: str, info: ChannelInfo, base: DraftSet) -> None:
    """Refuse a channel that does not fit the draft set that it extends."""
    if info.kind == TRANSITIONS:
        _check_transitions(name, info, base)
    if info.kind == BRANCHES:
        _check_branches(name, info, base)


def _check_transitions(name: str, info: ChannelInfo, base: DraftSet) -> None:
    if info.setting("depth") != base.depth:
        raise ValueError(f"the channel {name} has depth {info.setting('depth')}; its draft set has {base.depth}")
    if min(info.setting("previous"), base.num_proposable) > base.min_width:
        raise ValueError(
            f"the channel {name} stands below {info.setting('previous')} tokens of each depth; its draft set keeps "
            f"{base.min_width} for certain"
        )


def branch_lengths(base_depth: int, depth: int, is_whole: bool = False) -> range:
    """Behind how many tokens of the chain a root has branches: behind each beginning that leaves a depth.

    Args:
        base_depth: of the draft set whose chain it is.
        depth: the last one of the second drafter.
        is_whole: whether there is the one behind the whole chain alone; there is none where that leaves no depth.
    """
    last = min(base_depth, depth - 1)
    return range(base_depth if is_whole else 0, last + 1)


def _check_branches(name: str, info: ChannelInfo, base: DraftSet) -> None:
    is_whole = info.setting(WHOLE_CHAIN) == 1
    expected = len(branch_lengths(base.depth, info.setting("depth"), is_whole))
    if info.setting("branches") != expected:
        raise ValueError(
            f"the channel {name} has {info.setting('branches')} branches; behind {'the whole of ' if is_whole else ''}"
            f"a chain of {base.depth} tokens, to the depth {info.setting('depth')}, there are {expected}"
        )
