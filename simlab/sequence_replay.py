"""The walk over a recorded text: which rounds a policy would have had, exactly."""

import math
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields, replace

import numpy as np

from simlab.arrays import Longs, read_only
from simlab.channels import TARGET, Branches, Channel, Pool, Transitions
from simlab.channels.needs import TraceCapabilities, check_channels
from simlab.draft import Draft
from simlab.errors import MissingChannelError, PolicyError
from simlab.limits import MOST_COUNT
from simlab.policy import (
    AnyPolicy,
    ChannelNeed,
    Needs,
    Outcome,
    before_drafting,
    branches_asked,
    modelled_s,
    route_taken,
    routes_of,
)
from simlab.recorded import NO_ENTROPIES, DraftRows, RecordedSequence
from simlab.tree import DraftTree

# Sums over rounds and their names; the ratios of a table are derived from them.
#
# A new sum is a field of `Totals` and a name beside `ROUNDS`, and is filled where rounds are added up: in
# `simlab.sequence_replay.totals_of`, in `simlab.columns` and in `simlab.policies.engine.replay`. A result column that
# follows from other sums is a field of `Totals` and a line of `sum_columns`. Either stands in the schema of
# `simlab.traces.results.rows`.


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the rounds of one text or of many; the sums of disjoint parts add up.

    Attributes:
        rounds: verification passes.
        drafted: tokens drafted, the roots not counted.
        verified: tokens that went through the target, the roots counted: ``drafted + rounds``.
        accepted: drafted tokens the target agreed with.
        committed: tokens added to the text.
        clipped: rounds whose bonus token was dropped because the text ended at an accepted token.

    >>> (Totals(rounds=10, committed=20) + Totals(rounds=90, committed=450)).acceptance_length
    4.7
    """

    rounds: int = 0
    drafted: int = 0
    verified: int = 0
    accepted: int = 0
    committed: int = 0
    clipped: int = 0

    def __add__(self, other: "Totals") -> "Totals":
        return Totals(**{name: getattr(self, name) + getattr(other, name) for name in SUMS})

    @property
    def acceptance_length(self) -> float:
        """Tokens committed per round, bonus token included; NaN without a round."""
        return _ratio(self.committed, self.rounds)

    @property
    def nodes_per_round(self) -> float:
        """Tokens drafted per round, the root not counted; NaN without a round."""
        return _ratio(self.drafted, self.rounds)

    @property
    def accepted_per_verified(self) -> float:
        """Accepted tokens per token that went through the target; NaN without a round."""
        return _ratio(self.accepted, self.verified)


SUMS = tuple(field.name for field in fields(Totals))
"""The names of all sums, as result rows have them."""

COUNTS = tuple(name for name in SUMS if name != "verified")
"""The names of the sums that a replay counts, in the order in which arrays hold them; the others follow from them."""

ROUNDS, DRAFTED, ACCEPTED, COMMITTED, CLIPPED = range(len(COUNTS))
"""Places in `COUNTS`. Kernels read them as constants: after a change delete ``__pycache__/*.nb*``."""


def sum_columns(counts: Longs) -> dict[str, Longs]:
    """Every sum of `SUMS` by its name, int64 ``[...]``.

    Args:
        counts: int64 ``[..., C]``, the last axis as `COUNTS` has it.
    """
    columns = {name: counts[..., index] for index, name in enumerate(COUNTS)}
    columns["verified"] = counts[..., DRAFTED] + counts[..., ROUNDS]
    return {name: columns[name] for name in SUMS}


def _ratio(part: int, whole: int) -> float:
    return part / whole if whole else math.nan


@dataclass(frozen=True, slots=True, eq=False)
class Round:
    """One draft and one verification.

    Attributes:
        position: ``t``, the place of the root in the text.
        tree: what was drafted.
        path: accepted nodes from the root down, the root left out.
        num_committed: tokens the round added.
        clipped: whether the text ended at an accepted token, so that the bonus token was dropped.
        num_requested: branches that were asked for, where the round pays for those; None: it pays what is declared.
        route: of a router, which of its routes served the round; None: the policy is no router.
    """

    position: int
    tree: DraftTree
    path: tuple[int, ...]
    num_committed: int
    clipped: bool
    num_requested: int | None = None
    route: int | None = None

    @property
    def num_drafted(self) -> int:
        """Drafted tokens, the root not counted; all of them are charged."""
        return self.tree.num_drafted

    @property
    def num_accepted(self) -> int:
        """Drafted tokens the target agreed with."""
        return len(self.path)


def draft_source(needs: Needs, recorded: RecordedSequence) -> Callable[[int], Draft]:
    """A function from root ``t`` to what a policy with these needs may see there."""
    if needs.draft and recorded.rows is None:
        raise MissingChannelError(
            "the policy needs a drafter's rows, and none were read; name a draft set of the trace"
        )
    rows = recorded.rows if needs.draft else None
    if rows is not None and needs.entropies and rows.entropies is None:
        raise MissingChannelError(NO_ENTROPIES)
    if rows is not None and not needs.entropies:
        rows = replace(rows, entropies=None)
    starts = None if rows is None else rows.starts()
    channels = {need.name: _channel_source(need, recorded) for need in needs.channels}
    prompt = recorded.prompt.token_ids
    tokens = read_only(np.concatenate([prompt, recorded.text]).astype(np.int32, copy=False))

    def draft(t: int) -> Draft:
        marginals = None if rows is None or starts is None else rows.row(t, int(starts[t]))
        context_length = len(prompt) + t
        seen = {name: at(t) for name, at in channels.items()}
        whole = Draft(marginals, int(recorded.text[t]), tokens[: context_length + 1], context_length, seen)
        return as_declared(whole, needs)

    return draft


def as_declared(draft: Draft, needs: Needs) -> Draft:
    """A draft cut to what a policy declares."""
    marginals = draft.drafted() if needs.draft else None
    if marginals is not None and needs.top_k is not None:
        marginals = marginals.first_ranks(needs.top_k)
    if marginals is not None and not needs.entropies and marginals.entropies is not None:
        marginals = replace(marginals, entropies=None)
    channels = {need.name: _channel_as_declared(draft.channel(need.name), need) for need in needs.channels}
    return replace(draft, marginals=marginals, channels=channels)


def _channel_as_declared(channel: Channel, need: ChannelNeed) -> Channel:
    least = dict(need.least)
    if isinstance(channel, Transitions):
        return channel.first(least.get("previous", MOST_COUNT), least.get("top_k", MOST_COUNT))
    if isinstance(channel, Branches):
        return channel.first(least.get("top_k", MOST_COUNT))
    if isinstance(channel, Pool) and need.deepest is not None:
        return channel.first(need.deepest)
    return channel


def staged(policy: AnyPolicy, draft: Draft, state: object) -> Draft:
    """What ``select`` is given of a draft: of branches those alone that the policy asks for.

    Args:
        policy: any.
        draft: with all that was recorded of what the policy declares.
        state: the policy's memory.
    """
    if not any(isinstance(channel, Branches) for channel in draft.channels.values()):
        return draft
    asked, channels = branches_asked(policy, before_drafting(draft), state), dict(draft.channels)
    for name, lengths in asked.items():
        whole = channels[name]
        assert isinstance(whole, Branches)
        try:
            channels[name] = whole.only(lengths)
        except ValueError as error:
            raise MissingChannelError(f"{policy!r} reads the channel {name}, and {error}") from error
    return replace(draft, channels=channels)


def num_requested(needs: Needs, seen: Draft) -> int | None:
    """How many branches a round asked for, where it pays for those; None: it pays what is declared.

    Args:
        needs: of the policy.
        seen: what its ``select`` is given, see `staged`.
    """
    need = needs.billed_by_use
    if need is None:
        return None
    branches = seen.channels[need.name]
    assert isinstance(branches, Branches)
    return len(branches.lengths)


def _channel_source(need: ChannelNeed, recorded: RecordedSequence) -> Callable[[int], Channel]:
    """From root ``t`` to all that was recorded of a channel there."""
    rows = recorded.channels.get(need.name)
    kind = "none of that name" if rows is None else rows.kind
    if rows is None or kind != need.kind:
        raise MissingChannelError(
            f"the policy reads the channel {need.name} of the kind {need.kind}, and these texts hold {kind}; read it "
            f"with them, recorded_texts(..., channels=[{need.name!r}]), or record it: "
            f"`simlab record --trace DIR --add-channel {need.name}=CHECKPOINT`"
        )
    starts = rows.starts()
    return lambda t: rows.row(t, int(starts[t]))


def rounds(policy: AnyPolicy, recorded: RecordedSequence) -> Iterator[Round]:
    """The rounds that a policy has on a recorded text; none for a text of one token.

    Raises:
        MissingChannelError: the sequence does not hold what the policy needs.
        PolicyError: a tree above the policy's own budget, or below another root.
    """
    draft = draft_source(policy.needs, recorded)
    text, last = read_only(recorded.text), len(recorded.text) - 1
    state = policy.start(recorded.prompt)
    t = 0
    while t < last:
        whole = draft(t)
        route, seen = route_taken(policy, whole, state), staged(policy, whole, state)
        tree = policy.select(seen, state)
        check_tree(policy, tree, int(text[t]))
        path = tree.accepted_path(text[t + 1 :])
        num_committed = min(len(path) + 1, last - t)
        clipped, asked = len(path) == last - t, num_requested(policy.needs, seen)
        yield Round(t, tree, path, num_committed, clipped, asked, route)
        committed = tuple(text[t + 1 : t + 1 + num_committed].tolist())
        seconds = modelled_s(policy, len(recorded.prompt.token_ids) + t, tree.num_drafted)
        t += num_committed
        state = policy.update(state, Outcome(path, committed, t == last, seconds))


def replay_sequence(policy: AnyPolicy, recorded: RecordedSequence) -> Totals:
    """The sums over a policy's rounds on one recorded text."""
    return totals_of(rounds(policy, recorded))


def hindsight_rounds(recorded: RecordedSequence, budget: int) -> Iterator[Round]:
    """The fewest rounds that any policy can have, if it knew the text: an oracle upper bound.

    Each tree is a chain of true tokens, as far as they are among the kept candidates and at most
    ``budget`` of them. The longest chain is not always best: stopping earlier may lead to a root
    from which the drafter sees further. So each round goes to the next root whose own reach is
    furthest (the later one of two), and drafts no more than it needs for that; no choice of trees
    on the same candidates, within the same budget, needs fewer rounds.

    Raises:
        MissingChannelError: the sequence holds no draft rows.
    """
    if recorded.rows is None:
        raise MissingChannelError("the oracle upper bound needs a drafter's rows, and none were read; name a draft set")
    text, last = recorded.text, len(recorded.text) - 1
    reach = _reach(recorded.rows, budget, last)
    t = 0
    while t < last:
        choices = reach[t + 1 : reach[t] + 1]
        committed = len(choices) - int(np.argmax(choices[::-1]))
        tree = DraftTree.chain(int(text[t]), text[t + 1 : t + committed])
        yield Round(t, tree, tuple(range(1, committed)), committed, clipped=False)
        t += committed


def hindsight_sequence(recorded: RecordedSequence, budget: int) -> Totals:
    """The sums over the rounds of the oracle upper bound on one recorded text."""
    return totals_of(hindsight_rounds(recorded, budget))


def check_needs(policy: AnyPolicy, held: TraceCapabilities) -> None:
    """Whether a recording holds all that a policy reads.

    Args:
        policy: the policy to be replayed.
        held: what the recording holds.
    """
    needs = policy.needs
    unknown = ["the drafter's entropies"] * needs.entropies
    unknown += ["what the target says of the root"] * any(need.name == TARGET for need in needs.channels)
    if held.imported_from and unknown:
        raise MissingChannelError(
            f"{policy!r} reads {' and '.join(unknown)}, and {held.location} was imported from {held.imported_from}, "
            "which wrote candidates alone; name a policy that reads those, or record the models with `simlab record`"
        )
    check_channels(policy, held)
    if needs.masked is not None and held.root_seen:
        raise MissingChannelError(
            f"{policy!r} says which nodes carry masks, which is of a target that drafts for itself, and the draft set "
            f"{held.draft} is a drafter's; leave `masked` out, or record an adapter of the target: `simlab record "
            f"--trace {shlex.quote(held.location)} --add-draft self=ADAPTER`"
        )
    for route in routes_of(policy):
        check_needs(route, held)
    if not needs.draft or routes_of(policy):
        return
    if needs.top_k is None and policy.budget > held.exact_budget:
        again = _again(held, "--exact-budget", _doubled(held.exact_budget, policy.budget))
        raise MissingChannelError(
            f"{policy!r} drafts up to {policy.budget} tokens, and the trace is exact up to {held.exact_budget}; "
            f"choose a smaller budget or {again}"
        )
    if needs.top_k is not None and needs.top_k > held.min_width:
        again = _again(held, "--min-width", _doubled(held.min_width, needs.top_k))
        raise MissingChannelError(
            f"{policy!r} reads the first {needs.top_k} candidates, and the trace holds {held.min_width} at every "
            f"depth; choose fewer or {again}"
        )


def _again(held: TraceCapabilities, option: str, number: int) -> str:
    """What gives a recording that is large enough."""
    if held.imported_from:
        return f"have {held.imported_from} write {number} candidates a depth, and import that"
    return f"record again with `simlab record {option} {number}`"


def _doubled(recorded: int, wanted: int) -> int:
    """The first of 2, 4, 8, ... times what was recorded that is enough."""
    recorded = max(recorded, 1)
    while recorded < wanted:
        recorded *= 2
    return recorded


def check_tree(policy: AnyPolicy, tree: DraftTree, root_token: int) -> None:
    """Refuse a tree that the policy said it would not choose."""
    if not _is_tree(tree):
        raise PolicyError(f"{policy!r} chose {type(tree).__name__}; `select` returns a DraftTree")
    if tree.num_drafted > policy.budget:
        raise PolicyError(f"{policy!r} drafted {tree.num_drafted} tokens; its budget is {policy.budget}")
    if tree.tokens[0] != root_token:
        raise PolicyError(f"{policy!r} put its tree below token {tree.tokens[0]}; the root is {root_token}")


def _is_tree(tree: object) -> bool:
    """Whether code of a user's returned a tree that was made as one."""
    return isinstance(tree, DraftTree) and hasattr(tree, "tokens")


def _reach(rows: DraftRows, budget: int, last: int) -> Longs:
    """int64 ``[T]``, the furthest next root from each root; the end of the text reaches itself."""
    kept = (rows.true_ranks >= 0) & (rows.true_ranks < rows.counts)
    run = np.minimum(np.cumprod(kept, axis=1).sum(axis=1), budget)
    reach = np.append(np.arange(last) + run + 1, last)
    return np.asarray(np.minimum(reach, last), dtype=np.int64)


def totals_of(all_rounds: Iterable[Round]) -> Totals:
    """The sums over some rounds."""
    num, drafted, accepted, committed, clipped = 0, 0, 0, 0, 0
    for played in all_rounds:
        num += 1
        drafted += played.num_drafted
        accepted += played.num_accepted
        committed += played.num_committed
        clipped += played.clipped
    return Totals(
        rounds=num,
        drafted=drafted,
        verified=drafted + num,
        accepted=accepted,
        committed=committed,
        clipped=clipped,
    )
