"""Replay of the runner's own rows on its own text: it must give the runner's rounds, without tolerance."""

from collections.abc import Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, replace

import numpy as np

from simlab.arrays import Floats
from simlab.channels import (
    BRANCHES,
    FEATURES,
    POOL,
    TARGET,
    TRANSITIONS,
    Branches,
    Channel,
    ChannelRows,
    Features,
    Pool,
    TargetLaw,
    Transitions,
    join_channels,
)
from simlab.draft import Marginals
from simlab.grid import LOWEST
from simlab.policy import AnyPolicy, routes_of
from simlab.real_runner.decoding.decoded import DecodedText
from simlab.recorded import DraftRows, RecordedSequence
from simlab.sequence_replay import Round, rounds

_MOST_SHOWN = 60


@dataclass(frozen=True, slots=True)
class ReplayMismatch:
    """The first difference between the rounds that ran and their replay.

    Attributes:
        position: of the root, in the text.
        what: is different.
        ran: what the runner had.
        replayed: what the replay has.
    """

    position: int
    what: str
    _: KW_ONLY
    ran: str
    replayed: str

    def __str__(self) -> str:
        ran, replayed = _brief(self.ran), _brief(self.replayed)
        return f"round at {self.position}: {self.what} {ran} in the run, {replayed} in its replay"


def _brief(text: str) -> str:
    """The beginning of a long text: a tree may have hundreds of tokens."""
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]} ..."


def first_unequal(policy: AnyPolicy, decoded: DecodedText) -> ReplayMismatch | None:
    """Where the replay of a text's own rows leaves the rounds in which it was made; None where it does not.

    Roots, trees, accepted paths, committed tokens, clipping and routes are compared, one round after the other:
    behind a difference nothing is compared, since the replay would read rows that were never drafted.

    Args:
        policy: the one that ran.
        decoded: the text and its rounds.
    """
    unequal = _first_misplaced(decoded)
    if unequal is not None:
        return unequal
    replayed = rounds(policy, own_sequence(decoded, policy))
    for ran in decoded.rounds:
        expected = next(replayed)
        for what, ran_part, replayed_part in zip(_PARTS, parts_of(ran.round), parts_of(expected), strict=True):
            if ran_part != replayed_part:
                return ReplayMismatch(ran.round.position, what, ran=ran_part, replayed=replayed_part)
    return None


def _with_all_that_is_read(own: RecordedSequence, policy: AnyPolicy) -> RecordedSequence:
    """With empty rows of what no round of a router read: all its rounds took routes that do without."""
    if not routes_of(policy) or len(own.text) < 2:
        return own
    num_roots, rows, channels = len(own.text) - 1, own.rows, dict(own.channels)
    if rows is None and policy.needs.draft:
        nothing = np.zeros((num_roots, 1), np.int32)
        entropies = np.zeros((num_roots, 1), np.float32) if policy.needs.entropies else None
        rows = DraftRows(np.empty(0, np.int32), np.empty(0, np.float32), nothing, nothing - 1, entropies)
    for need in policy.needs.channels:
        if need.name not in channels:
            channels[need.name] = join_channels([_EMPTY[need.kind].as_rows()] * num_roots)
    return replace(own, rows=rows, channels=channels)


def own_sequence(decoded: DecodedText, policy: AnyPolicy | None = None) -> RecordedSequence:
    """The text, with rows and channels at the roots where the runner drafted; at every other root nothing is kept.

    Transitions have a row below every root; where the runner drafted nothing it holds token 0 alone, as improbable as
    the grid has it.

    Args:
        decoded: the text and its rounds.
        policy: a router that ran, for empty rows of what none of its rounds read; None: what was read alone.
    """
    by_position = {ran.round.position: ran.marginals for ran in decoded.rounds if ran.marginals is not None}
    num_roots = len(decoded.text) - 1
    rows = _rows(by_position, num_roots) if by_position else None
    names = dict.fromkeys(name for ran in decoded.rounds for name in ran.channels)
    channels = {name: _channel(decoded, name, num_roots) for name in names}
    own = RecordedSequence(0, decoded.prompt, decoded.text, decoded.stop_reason, rows, channels)
    return own if policy is None else _with_all_that_is_read(own, policy)


_NONE, _NO_PROB = np.zeros((0, 1), np.int32), np.zeros((0, 1), np.float32)
_ONE, _LOWEST = np.zeros((1, 1), np.int32), np.full((1, 1), LOWEST, np.float32)

_EMPTY: Mapping[str, Channel] = {
    TRANSITIONS: Transitions(np.ones(1, np.int32), _NONE[:, 0], _ONE, _LOWEST),
    POOL: Pool(_NONE[:, 0], _NONE[:, 0], _NO_PROB[:, 0], np.zeros(0, np.bool_)),
    BRANCHES: Branches(_NONE[:, 0], 1, _NONE, _NO_PROB),
    FEATURES: Features(np.zeros(0, np.float32)),
    TARGET: TargetLaw(0.0),
}
"""A row of each kind that says nothing."""

_PARTS = ("root", "tree tokens", "tree parents", "accepted path", "committed tokens", "clipping", "route")


def parts_of(ran: Round) -> Iterator[str]:
    """What must be equal in two rounds, in words."""
    yield str(ran.position)
    yield str(ran.tree.tokens.tolist())
    yield str(ran.tree.parents.tolist())
    yield str(list(ran.path))
    yield str(ran.num_committed)
    yield str(ran.clipped)
    yield str(ran.route)


def _first_misplaced(decoded: DecodedText) -> ReplayMismatch | None:
    """The first round that does not begin where the one before it ends, the text's end included.

    So no root is visited at which the runner has no row.
    """
    expected, last = 0, len(decoded.text) - 1
    for ran in decoded.rounds:
        if ran.round.position != expected or expected >= last:
            root = str(expected) if expected < last else "none"
            return ReplayMismatch(expected, "root", ran=str(ran.round.position), replayed=root)
        expected += ran.round.num_committed
    if expected == last:
        return None
    return ReplayMismatch(expected, "end of the text", ran=str(expected), replayed=str(last))


def _rows(by_position: dict[int, Marginals], num_roots: int) -> DraftRows:
    """Rows ``[T - 1, D]`` that hold what was seen; where the true tokens stand is not asked."""
    depths = {marginals.depth for marginals in by_position.values()}
    if len(depths) != 1 or not set(by_position) <= set(range(num_roots)):
        raise ValueError(
            f"rows of one depth at roots 0 ... {num_roots - 1} are needed; got depths {depths} at {set(by_position)}"
        )
    counts = np.zeros((num_roots, depths.pop()), np.int32)
    for position, marginals in by_position.items():
        counts[position] = marginals.counts
    in_order = [by_position[position] for position in sorted(by_position)]
    ids = np.concatenate([marginals.ids for marginals in in_order])
    log_probs = np.concatenate([marginals.log_probs for marginals in in_order])
    return DraftRows(ids, log_probs, counts, np.full_like(counts, -1), _entropies(by_position, counts.shape))


def _entropies(by_position: dict[int, Marginals], shape: tuple[int, ...]) -> Floats | None:
    """float32 ``[T - 1, D]``, 0 at roots that were not seen; None if the policy read none."""
    entropies = np.zeros(shape, np.float32)
    for position, marginals in by_position.items():
        if marginals.entropies is None:
            return None
        entropies[position] = marginals.entropies
    return entropies


def _channel(decoded: DecodedText, name: str, num_roots: int) -> ChannelRows:
    """What the rounds saw of a channel, a row for each root."""
    seen = {ran.round.position: ran.channels[name] for ran in decoded.rounds if name in ran.channels}
    if not set(seen) <= set(range(num_roots)):
        raise ValueError(f"rows of the channel {name} at roots 0 ... {num_roots - 1} are needed; got {set(seen)}")
    nothing = next(iter(seen.values())).emptied()
    return join_channels([seen.get(t, nothing).as_rows() for t in range(num_roots)])
