"""What many policies came to on each prompt, as arrays, and the numbers by which a search ranks them."""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from simlab.analysis.table.prompt_sums import Prompt
from simlab.arrays import Bools, Doubles, Longs

TOKENS_PER_S, ACCEPTANCE_LENGTH, WORST_CASE = "tokens_per_s", "acceptance_length", "worst_case"


_BY_POLICY = ("rounds", "drafted", "seconds")
"""The sums whose second axis is the policies."""
_BY_PROMPT = ("committed", "rounds", "drafted", "seconds", "plain_seconds")
"""The sums whose last axis is the prompts."""


@dataclass(frozen=True, slots=True, eq=False)
class CandidateSums:
    """Sums over the texts of each prompt, of P policies at the prices of M machines.

    Attributes:
        prompts: dataset and name of each.
        committed: float64 ``[prompts]``; every policy commits the same text.
        rounds: float64 ``[M, P, prompts]``; a rule that reads prices has other rounds at other prices.
        drafted: float64 ``[M, P, prompts]``.
        seconds: float64 ``[M, P, prompts]``; nan without prices.
        plain_seconds: float64 ``[M, prompts]``, of plain decoding.
    """

    prompts: tuple[Prompt, ...]
    committed: Doubles
    rounds: Doubles
    drafted: Doubles
    seconds: Doubles
    plain_seconds: Doubles

    def __post_init__(self) -> None:
        machines, policies, prompts = self.rounds.shape
        if len(self.prompts) != prompts or self.committed.shape != (prompts,):
            raise ValueError(f"expected sums of {prompts} prompts; got {len(self.prompts)}")
        if self.drafted.shape != self.rounds.shape or self.seconds.shape != self.rounds.shape:
            raise ValueError(f"expected [{machines}, {policies}, {prompts}] of each; got {self.seconds.shape}")
        if self.plain_seconds.shape != (machines, prompts):
            raise ValueError(f"plain_seconds must be [{machines}, {prompts}]; got {self.plain_seconds.shape}")

    @property
    def num_policies(self) -> int:
        """Number of policies, the second axis of the sums."""
        return int(self.rounds.shape[1])

    def take(self, indices: Sequence[int]) -> "CandidateSums":
        """Some of the policies."""
        return replace(self, **{name: getattr(self, name)[:, list(indices)] for name in _BY_POLICY})

    def on(self, indices: Sequence[int]) -> "CandidateSums":
        """Sums of these policies on some of the prompts, in this order."""
        sums = {name: getattr(self, name)[..., list(indices)] for name in _BY_PROMPT}
        return replace(self, prompts=tuple(self.prompts[index] for index in indices), **sums)

    def beside(self, more: "CandidateSums") -> "CandidateSums":
        """These policies and others on the same prompts."""
        rounds, drafted, seconds = (
            np.concatenate([getattr(self, name), getattr(more, name)], axis=1) for name in _BY_POLICY
        )
        return replace(self, rounds=rounds, drafted=drafted, seconds=seconds)

    def same(self, first: int, second: int) -> bool:
        """Whether two policies have the same sums on every prompt."""
        parts = (getattr(self, name) for name in _BY_POLICY)
        return all(np.array_equal(part[:, first], part[:, second], equal_nan=True) for part in parts)

    def followed_by(self, more: "CandidateSums") -> "CandidateSums":
        """Sums of these policies on these prompts and then on others."""
        sums = {name: np.concatenate([getattr(self, name), getattr(more, name)], axis=-1) for name in _BY_PROMPT}
        return replace(self, prompts=self.prompts + more.prompts, **sums)


def objective_figures(candidates: CandidateSums, objective: str) -> Doubles:
    """What is to be large, of each policy on all prompts, float64 ``[P]``.

    Tokens per second at the first machine's prices; the acceptance length there, pooled; or the smallest speedup over
    plain decoding among all machines.
    """
    return np.asarray(
        np.exp(_worst(candidates)[0] if objective == WORST_CASE else _log_ratios(candidates, objective)), np.float64
    )


def log_influences(candidates: CandidateSums, objective: str) -> Doubles:
    """How far each prompt moves the logarithm of a policy's figure, float64 ``[P, prompts]``.

    The differences of two rows, squared and summed, are the variance of the logarithm of the policies' ratio.
    """
    share = candidates.committed / candidates.committed.sum()
    if objective == ACCEPTANCE_LENGTH:
        return np.asarray(share - _shares(candidates.rounds[0]), np.float64)
    if objective == TOKENS_PER_S:
        return np.asarray(share - _shares(candidates.seconds[0]), np.float64)
    machines = _worst(candidates)[1]
    seconds = candidates.seconds[machines, np.arange(candidates.num_policies)]
    return np.asarray(_shares(candidates.plain_seconds[machines]) - _shares(seconds), np.float64)


def best_indices(candidates: CandidateSums, values: Doubles) -> list[int]:
    """Policies from the largest figure to the smallest; of equal ones the one that drafts less, then the earlier.

    Args:
        candidates: the sums.
        values: float64 ``[P]``, their figures; policies without one are left out.
    """
    known = np.flatnonzero(np.isfinite(values))
    drafted = candidates.drafted.sum(axis=(0, 2))
    order = np.lexsort((known, drafted[known], -values[known]))
    return [int(index) for index in known[order]]


def _log_ratios(candidates: CandidateSums, objective: str) -> Doubles:
    """Logarithms of committed tokens over rounds or over seconds, ``[P]``."""
    by = {ACCEPTANCE_LENGTH: candidates.rounds, TOKENS_PER_S: candidates.seconds}
    if objective not in by:
        raise ValueError(f"expected one of {TOKENS_PER_S}, {ACCEPTANCE_LENGTH}, {WORST_CASE}; got {objective!r}")
    return np.asarray(np.log(candidates.committed.sum()) - np.log(by[objective][0].sum(axis=1)), np.float64)


def _worst(candidates: CandidateSums) -> tuple[Doubles, np.ndarray[tuple[int], np.dtype[np.intp]]]:
    """Logarithms of the smallest speedups, ``[P]``, and the machines on which they are."""
    logs = np.log(candidates.plain_seconds.sum(axis=1))[:, None] - np.log(candidates.seconds.sum(axis=2))
    return logs.min(axis=0), logs.argmin(axis=0)


def _shares(parts: Doubles) -> Doubles:
    return np.asarray(parts / parts.sum(axis=-1, keepdims=True), np.float64)


# Successive halving over prompts: many policies on few prompts, those that are left on more.


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
    by_dataset: dict[str, list[int]] = {}
    for index in sorted(range(len(prompts)), key=lambda index: prompt_hash(prompts[index])):
        by_dataset.setdefault(prompts[index][0], []).append(index)
    turns = [(turn / len(members), index) for members in by_dataset.values() for turn, index in enumerate(members)]
    return [index for _, index in sorted(turns, key=lambda entry: (entry[0], prompt_hash(prompts[entry[1]])))]


def halving_steps(num_prompts: int) -> list[int]:
    """On how many prompts the policies are that are left, step by step; the last is all of them.

    >>> halving_steps(80)
    [10, 20, 40, 80]
    """
    steps = [num_prompts]
    while steps[0] // 2 >= LEAST_PROMPTS and len(steps) < 4:
        steps.insert(0, -(-steps[0] // 2))
    return steps


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
    sums: CandidateSums | None = None
    start, done = 0, []
    for end in halving_steps(len(order)):
        more = measure(left.tolist(), order[start:end])
        sums = more if sums is None else sums.followed_by(more)
        done.append((len(left), end))
        note(len(left), sums)
        start = end
        if end < len(order):
            kept = _kept(sums, units[left], entries[left], objective)
            left, sums = left[kept], sums.take(np.flatnonzero(kept).tolist())
    assert sums is not None
    return left.tolist(), sums, done


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
