"""What a log of one policy's rounds would predict for other policies.

Such a log holds the drafter's rows at the roots where the rounds of its policy began, and nothing between. Another
policy's rounds begin elsewhere. Two things can be made of the rows that there are, and both are exact for the policy
whose rounds they are.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simlab.arrays import Longs
from simlab.columns import TextRounds
from simlab.policies.composition import Composition, composition_of, rule_of
from simlab.policies.rules.online_price import OnlinePrice
from simlab.policy import AnyPolicy
from simlab.recorded import RecordedTexts

MEAN, NEAREST = "mean", "nearest"
"""The mean over the rows that there are; a walk that reads the nearest of them."""

ESTIMATORS = (MEAN, NEAREST)


@dataclass(frozen=True, slots=True, eq=False)
class EveryRoot:
    """What a round of a policy would do at each root of some texts.

    Attributes:
        num_drafted: int64 ``[R]``, the root not counted.
        num_accepted: int64 ``[R]``.
    """

    num_drafted: Longs
    num_accepted: Longs


def depends_on_root_alone(policy: AnyPolicy) -> bool:
    """Whether a policy's tree at a root is known without the rounds before it."""
    rule = rule_of(policy)
    return rule is not None and not isinstance(rule, OnlinePrice) and policy.needs.masked is None


def at_every_root(policies: Sequence[AnyPolicy], texts: RecordedTexts) -> list[EveryRoot]:
    """The rounds of each policy at each root; what policies of one order share is worked out once.

    Args:
        policies: of which `depends_on_root_alone` is true.
        texts: recorded at every root.

    Raises:
        ValueError: a policy is of another kind.
    """
    orders: dict[str, list[int]] = {}
    composed: list[Composition] = []
    for place, one in enumerate(policies):
        composition = composition_of(one)
        if composition is None or not depends_on_root_alone(one):
            raise ValueError(f"what {one!r} does at a root depends on its earlier rounds, or on code of its own")
        composed.append(composition)
        orders.setdefault(composition.order.key, []).append(place)
    found: dict[int, EveryRoot] = {}
    for places in orders.values():
        alike = [composed[place] for place in places]
        most, scored = max(one.rule.most for one in alike), any(one.rule.needs_scores for one in alike)
        layer = alike[0].order.layer(texts, most, scored)
        for place, one in zip(places, alike, strict=True):
            assert not isinstance(one.rule, OnlinePrice)
            drafted = one.rule.sizes(layer, texts.contexts)
            accepted = (layer.insertions <= drafted[:, None]).sum(axis=1)
            found[place] = EveryRoot(drafted.astype(np.int64), accepted.astype(np.int64))
    return [found[place] for place in range(len(composed))]


def mean_over_rows(every: EveryRoot, recorded: TextRounds) -> TextRounds:
    """Rounds of a policy as if each began where one of the recorded policy did, so that tokens are met twice or never.

    Args:
        every: of the policy that is to be predicted.
        recorded: the rounds of the policy that was recorded.
    """
    roots = recorded.roots
    return TextRounds(roots, every.num_drafted[roots], every.num_accepted[roots], recorded.ends)


def nearest_rows(recorded: TextRounds, firsts: Longs) -> Longs:
    """The recorded root that is nearest to each root in its text, the earlier of two; int64 ``[R]``.

    Args:
        recorded: the rounds of the policy that was recorded.
        firsts: int64 ``[S + 1]``, the first root of each text, and R.
    """
    found = np.empty(int(firsts[-1]), np.int64)
    starts = [0, *recorded.ends[:-1].tolist()]
    bounds = zip(firsts[:-1].tolist(), firsts[1:].tolist(), starts, recorded.ends.tolist(), strict=True)
    for first, last, start, end in bounds:
        rows, wanted = recorded.roots[start:end], np.arange(first, last)
        if not len(wanted):
            continue
        after = np.minimum(np.searchsorted(rows, wanted), len(rows) - 1)
        before = np.maximum(after - 1, 0)
        is_after = np.abs(rows[after] - wanted) < np.abs(wanted - rows[before])
        found[first:last] = np.where(is_after, rows[after], rows[before])
    return found


def nearest_row_walk(every: EveryRoot, recorded: TextRounds, firsts: Longs) -> TextRounds:
    """Rounds of a policy from the first token to the last, each with what the nearest recorded root would give.

    Args:
        every: of the policy that is to be predicted.
        recorded: the rounds of the policy that was recorded.
        firsts: int64 ``[S + 1]``, the first root of each text, and R.
    """
    read = nearest_rows(recorded, firsts)
    roots, ends = [], []
    accepted_at = every.num_accepted[read].tolist()
    for first, last in zip(firsts[:-1].tolist(), firsts[1:].tolist(), strict=True):
        root = first
        while root < last:
            roots.append(root)
            root += accepted_at[root] + 1
        ends.append(len(roots))
    visited = np.array(roots, np.int64)
    lasts = np.repeat(firsts[1:], np.diff([0, *ends]))
    accepted = np.minimum(every.num_accepted[read[visited]], lasts - visited)
    return TextRounds(visited, every.num_drafted[read[visited]], accepted, np.array(ends, np.int64))


def estimated(name: str, every: EveryRoot, recorded: TextRounds, firsts: Longs) -> TextRounds:
    """The rounds that one of ``ESTIMATORS`` predicts."""
    return mean_over_rows(every, recorded) if name == MEAN else nearest_row_walk(every, recorded, firsts)


def borrowed_rows(every: EveryRoot, own: TextRounds, recorded: TextRounds, firsts: Longs) -> Longs:
    """What the rounds of a policy that begin at no recorded root would borrow from the nearest row, and what they have.

    Args:
        every: of the policy.
        own: its rounds.
        recorded: the rounds of the policy that was recorded.
        firsts: int64 ``[S + 1]``, the first root of each text, and R.

    Returns:
        int64 ``[2, 3]``: of rounds whose nearest row lies before them, and behind them, how many there are, the tokens
        that they would commit by that row, and those that they commit.
    """
    read = nearest_rows(recorded, firsts)[own.roots]
    left = np.repeat(firsts[1:], np.diff([0, *own.ends])) - own.roots
    by_row, by_own = (np.minimum(accepted + 1, left) for accepted in (every.num_accepted[read], own.num_accepted))
    places = (read < own.roots, read > own.roots)
    return np.array([[some.sum(), by_row[some].sum(), by_own[some].sum()] for some in places], np.int64)
