"""How much of the way from the chain to the hindsight bound a policy goes, and what its nodes are spent on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from simlab.analysis.statistics.intervals import prompt_spread
from simlab.analysis.table.estimates import Estimate, estimates, share_estimates
from simlab.arrays import Doubles, Longs
from simlab.sequence_replay import Round
from simlab.totals import ACCEPTED, COMMITTED, COUNTS, DRAFTED, ROUNDS

NUM_SUMS = len(COUNTS) + 4

SIBLINGS, SECONDS, MEANS, RESPONSES = range(len(COUNTS), NUM_SUMS)
"""What is summed over the rounds of a prompt behind `simlab.totals.COUNTS`. ``SIBLINGS`` are wrong tokens below a
true parent, ``SECONDS`` are nan without prices, ``MEANS`` are the acceptance lengths of its ``RESPONSES`` that have
rounds."""


@dataclass(frozen=True, slots=True, eq=False)
class RoundSums:
    """The rounds of one policy or bound.

    Attributes:
        policy: its label.
        budget: the most tokens that it drafts.
        sums: float64 ``[P, NUM_SUMS]``, of each prompt.
    """

    policy: str
    budget: int
    sums: Doubles

    @staticmethod
    def joined(parts: "Sequence[RoundSums]") -> "RoundSums":
        """One policy on different prompts, one behind the other."""
        return replace(parts[0], sums=np.concatenate([part.sums for part in parts]))


@dataclass(frozen=True, slots=True, eq=False)
class ScoredRounds:
    """Policies between two references.

    Attributes:
        chain: the whole chain.
        policies: in the order asked.
        bounds: for each policy the fewest rounds that any policy of its budget can have, told the answer.
    """

    chain: RoundSums
    policies: tuple[RoundSums, ...]
    bounds: tuple[RoundSums, ...]

    @staticmethod
    def joined(parts: "Sequence[ScoredRounds]") -> "ScoredRounds":
        """The rounds of all of them on different prompts, one behind the other."""
        return ScoredRounds(
            RoundSums.joined([part.chain for part in parts]),
            tuple(map(RoundSums.joined, zip(*(part.policies for part in parts), strict=True))),
            tuple(map(RoundSums.joined, zip(*(part.bounds for part in parts), strict=True))),
        )

    def take(self, prompts: Longs) -> "ScoredRounds":
        """The rounds of all of them on some prompts."""

        def some(sums: RoundSums) -> RoundSums:
            return RoundSums(sums.policy, sums.budget, sums.sums[prompts])

        return ScoredRounds(some(self.chain), tuple(map(some, self.policies)), tuple(map(some, self.bounds)))


@dataclass(frozen=True, slots=True)
class PolicyFigures:
    """What a policy came to.

    Attributes:
        policy: its label.
        budget: the most tokens that it drafts; the hindsight bound has no more.
        acceptance_length: bonus token included, pooled.
        acceptance_length_macro: mean over responses.
        chain: the chain's.
        hindsight: the bound's.
        closed: (policy - chain) / (hindsight - chain), paired.
        against_first: ``closed`` less that of the first policy of the same budget, paired; None for that policy itself.
        tokens_per_s, chain_tokens_per_s, hindsight_tokens_per_s: by the prices; None without.
        speed_closed: ``closed`` in tokens per second; None without prices.
        drafted: tokens a round.
        accepted_share: of the drafted tokens.
        sibling_share: of the drafted tokens, wrong ones below a true parent, the root or an accepted token.
        below_wrong_share: of the drafted tokens, those whose parent is wrong already.
    """

    policy: str
    budget: int
    acceptance_length: float
    acceptance_length_macro: float
    chain: float
    hindsight: float
    closed: Estimate
    against_first: Estimate | None
    tokens_per_s: float | None
    chain_tokens_per_s: float | None
    hindsight_tokens_per_s: float | None
    speed_closed: Estimate | None
    drafted: float
    accepted_share: Estimate
    sibling_share: Estimate
    below_wrong_share: Estimate


def wrong_siblings(rounds: Iterable[Round]) -> int:
    """Drafted tokens that are wrong and whose parent is the root or was accepted."""
    found = 0
    for round_ in rounds:
        is_true = np.zeros(round_.num_drafted + 1, np.bool_)
        is_true[[0, *round_.path]] = True
        found += int(is_true[round_.tree.parents[1:]].sum()) - round_.num_accepted
    return found


def policy_figures(rounds: ScoredRounds) -> list[PolicyFigures]:
    """Figures of each policy between the chain and the bound of its budget."""
    firsts: dict[int, RoundSums] = {}
    for one in rounds.policies:
        firsts.setdefault(one.budget, one)
    pairs = zip(rounds.policies, rounds.bounds, strict=True)
    return [_figures(rounds.chain, policy, bound, firsts[policy.budget]) for policy, bound in pairs]


def macro_acceptance_length(run: RoundSums) -> float:
    """The acceptance length as a mean over responses; nan where there is none."""
    responses = run.sums[:, RESPONSES].sum()
    return float(run.sums[:, MEANS].sum() / responses) if responses else float("nan")


def _figures(chain: RoundSums, policy: RoundSums, bound: RoundSums, first: RoundSums) -> PolicyFigures:
    runs = chain, policy, bound
    lengths, closed = _closed(runs, ROUNDS)
    speeds, speed_closed = _closed(runs, SECONDS)
    is_priced = not np.isnan(speeds).any()
    sums = policy.sums

    def shares(some: Doubles) -> Doubles:
        drafted, accepted, siblings = some[..., 1:2], some[..., 2:3], some[..., 3:4]
        found: Doubles = np.concatenate([accepted, siblings, drafted - accepted - siblings], axis=-1) / drafted
        return found

    spread = prompt_spread(sums[:, [ROUNDS, DRAFTED, ACCEPTED, SIBLINGS]], shares)
    accepted, siblings, below = share_estimates(spread)
    return PolicyFigures(
        policy=policy.policy,
        budget=policy.budget,
        acceptance_length=lengths[1],
        acceptance_length_macro=macro_acceptance_length(policy),
        chain=lengths[0],
        hindsight=lengths[2],
        closed=closed,
        against_first=None if first is policy else _against(chain, policy, bound, first),
        tokens_per_s=speeds[1] if is_priced else None,
        chain_tokens_per_s=speeds[0] if is_priced else None,
        hindsight_tokens_per_s=speeds[2] if is_priced else None,
        speed_closed=speed_closed if is_priced else None,
        drafted=float(sums[:, DRAFTED].sum() / sums[:, ROUNDS].sum()),
        accepted_share=accepted,
        sibling_share=siblings,
        below_wrong_share=below,
    )


def _closed(runs: Sequence[RoundSums], below: int) -> tuple[list[float], Estimate]:
    """Committed tokens over rounds or seconds of chain, policy and bound, and how far the second is from first to last.

    The same prompts are drawn for all three.
    """
    sums = np.concatenate([run.sums[:, [COMMITTED, below]] for run in runs], axis=1)

    def figures(some: Doubles) -> Doubles:
        rates = some[..., 0::2] / some[..., 1::2]
        far = (rates[..., 1:2] - rates[..., 0:1]) / (rates[..., 2:3] - rates[..., 0:1])
        found: Doubles = np.concatenate([rates, far], axis=-1)
        return found

    *rates, far = estimates(prompt_spread(sums, figures))
    return [rate.value for rate in rates], far


def _against(chain: RoundSums, policy: RoundSums, bound: RoundSums, first: RoundSums) -> Estimate:
    """How much more of the gap a policy closes than another of the same bound."""
    sums = np.concatenate([one.sums[:, [COMMITTED, ROUNDS]] for one in (chain, policy, bound, first)], axis=1)

    def figures(some: Doubles) -> Doubles:
        rates = some[..., 0::2] / some[..., 1::2]
        found: Doubles = (rates[..., 1:2] - rates[..., 3:4]) / (rates[..., 2:3] - rates[..., 0:1])
        return found

    return estimates(prompt_spread(sums, figures))[0]
