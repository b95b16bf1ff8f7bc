"""Successive halving over prompts: many policies on few prompts, those that are left on more."""

import hashlib
from collections.abc import Callable, Sequence

import numpy as np

from simlab.analysis.optimize.candidate_sums import CandidateSums, log_influences, objective_figures
from simlab.analysis.table.prompt_sums import Prompt
from simlab.arrays import Bools, Doubles, Longs

LEAST_PROMPTS = 8
"""On the first step."""
SAFE_ERRORS = 3.0
"""A policy that is behind the best by fewer standard errors of their paired difference is not dropped."""

Measure = Callable[[Sequence[int], Sequence[int]], CandidateSums]
"""From places of policies and of prompts to their sums."""


def prompt_hash(prompt: Prompt) -> int:
    """A number that depends on dataset and name alone, from 0 to 2^64 - 1."""
    return int.from_bytes(hashlib.sha256("\0".join(prompt).encode()).digest()[:8], "big")


def mixed_order(prompts: Sequence[Prompt]) -> list[int]:
    """Places of the prompts, so that the first of them are of all datasets alike; the same on every machine."""
    places: dict[str, list[int]] = {}
    for place in sorted(range(len(prompts)), key=lambda place: prompt_hash(prompts[place])):
        places.setdefault(prompts[place][0], []).append(place)
    turns = [(turn / len(some), place) for some in places.values() for turn, place in enumerate(some)]
    return [place for _, place in sorted(turns, key=lambda one: (one[0], prompt_hash(prompts[one[1]])))]


def halving_steps(num_prompts: int) -> list[int]:
    """On how many prompts the policies are that are left, step by step; the last is all of them.

    >>> halving_steps(80)
    [10, 20, 40, 80]
    """
    found = [num_prompts]
    while found[0] // 2 >= LEAST_PROMPTS and len(found) < 4:
        found.insert(0, -(-found[0] // 2))
    return found


def halve_candidates(
    measure: Measure,
    units: Longs,
    entries: Longs,
    order: Sequence[int],
    objective: str,
    note: Callable[[int, CandidateSums], object] = lambda _num, _found: None,
) -> tuple[list[int], CandidateSums, list[tuple[int, int]]]:
    """The policies that are left, and their sums on all prompts.

    Policies that are worked out together, such as all budgets of one order of nodes, are a unit and stay or go
    together. At each step the better half of the units stays, every unit whose best policy is not behind the best of
    all by `SAFE_ERRORS` standard errors, and that of the best policy of each entry, which may be a rival. After
    Jamieson and Talwalkar (2016), AISTATS 51:240-248, where the worse half goes always.

    Args:
        measure: what is asked for sums; each policy is measured once on each prompt at most.
        units: int64 ``[P]``, the unit of each policy.
        entries: int64 ``[P]``, which of the things that were asked for it belongs to.
        order: places of all prompts, as `mixed_order` gives them.
        objective: as for `simlab.analysis.optimize.candidate_sums.objective_figures`.
        note: is told how many policies a step measured, and their sums on all prompts so far.

    Returns:
        places of the policies that are left; their sums on all prompts; policies and prompts of each step.
    """
    left = np.arange(len(units))
    found: CandidateSums | None = None
    start, done = 0, []
    for end in halving_steps(len(order)):
        more = measure(left.tolist(), order[start:end])
        found = more if found is None else found.followed_by(more)
        done.append((len(left), end))
        note(len(left), found)
        start = end
        if end < len(order):
            kept = _kept(found, units[left], entries[left], objective)
            left, found = left[kept], found.take(np.flatnonzero(kept).tolist())
    assert found is not None
    return left.tolist(), found, done


def _kept(candidates: CandidateSums, units: Longs, entries: Longs, objective: str) -> Bools:
    """Which policies stay, ``[P]``."""
    logs = np.log(objective_figures(candidates, objective))
    unit_of, best = _best_of_each(units, logs)
    ranked = np.argsort(-logs[best], kind="stable")
    stay = _within_noise(logs, log_influences(candidates, objective), best, int(best[ranked[0]]))
    stay[ranked[: -(-len(best) // 2)]] = True
    stay[unit_of[_best_of_each(entries, logs)[1]]] = True
    return np.asarray(stay[unit_of], np.bool_)


def _best_of_each(groups: Longs, logs: Doubles) -> tuple[Longs, Longs]:
    """The number of each policy's group, ``[P]``, and the place of the best policy of each group."""
    names, group_of = np.unique(groups, return_inverse=True)
    best = np.zeros(len(names), np.int64)
    order = np.argsort(logs, kind="stable")
    best[group_of[order]] = order
    return group_of, best


def _within_noise(logs: Doubles, influences: Doubles, best: Longs, leader: int) -> Bools:
    """Whether the best policy of each unit may be as good as the leader, bool ``[units]``."""
    moved = influences[best] - influences[leader]
    num = influences.shape[1]
    errors = np.sqrt((moved**2).sum(axis=1) * num / max(num - 1, 1))
    return np.asarray(logs[best] + SAFE_ERRORS * errors >= logs[leader], np.bool_)
