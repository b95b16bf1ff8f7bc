"""How much of the way from the chain to the hindsight bound a policy goes, and what its nodes are spent on."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from simlab.analysis.statistics.intervals import prompt_spread
from simlab.analysis.table.estimates import NO_FIGURE, Estimate, Figures, estimates, share_estimates
from simlab.arrays import Doubles, Longs
from simlab.sequence_replay import ACCEPTED, COMMITTED, COUNTS, DRAFTED, ROUNDS, Round

NUM_SUMS = len(COUNTS) + 4

SIBLINGS, SECONDS, MEANS, RESPONSES = range(len(COUNTS), NUM_SUMS)
"""What is summed over the rounds of a prompt behind `simlab.sequence_replay.COUNTS`. ``SIBLINGS`` are wrong tokens
below a true parent, ``SECONDS`` are nan without prices, ``MEANS`` are the acceptance lengths of its ``RESPONSES`` that
have rounds."""


@dataclass(frozen=True, slots=True, eq=False)
class ScoredRounds:
    """The rounds of policies between two references.

    Attributes:
        policies: labels, in the order asked.
        budgets: the most tokens that each drafts.
        sums: float64 ``[1 + 2 K, P, NUM_SUMS]``, of each prompt: of the whole chain; of each policy; and for each
            policy of the fewest rounds that any policy of its budget can have, told the answer.
    """

    policies: tuple[str, ...]
    budgets: tuple[int, ...]
    sums: Doubles

    @staticmethod
    def joined(parts: "Sequence[ScoredRounds]") -> "ScoredRounds":
        """The rounds of all of them on different prompts, one behind the other."""
        return replace(parts[0], sums=np.concatenate([part.sums for part in parts], axis=1))

    def take(self, prompts: Longs) -> "ScoredRounds":
        """The rounds of all of them on some prompts."""
        return replace(self, sums=self.sums[:, prompts])

    def between(self, index: int) -> Doubles:
        """Sums of the chain, of the policy at a place, and of its bound, float64 ``[3, P, NUM_SUMS]``."""
        return self.sums[[0, 1 + index, 1 + len(self.policies) + index]]


def wrong_siblings(rounds: Iterable[Round]) -> int:
    """Drafted tokens that are wrong and whose parent is the root or was accepted."""
    num_wrong = 0
    for round_ in rounds:
        is_true = np.zeros(round_.num_drafted + 1, np.bool_)
        is_true[[0, *round_.path]] = True
        num_wrong += int(is_true[round_.tree.parents[1:]].sum()) - round_.num_accepted
    return num_wrong


def policy_figures(rounds: ScoredRounds) -> list[Figures]:
    """Figures of each policy between the chain and the bound of its budget.

    ``gap_closed_share`` is (policy - chain) / (hindsight - chain) in acceptance length, paired;
    ``gap_closed_against_first`` is that less the one of the first policy of the same budget, paired. Of the drafted
    tokens ``sibling_share`` are wrong ones below a true parent, the root or an accepted token, ``below_wrong_share``
    those whose parent is wrong already. Speeds are not known without prices.
    """
    firsts = {budget: index for index, budget in reversed(list(enumerate(rounds.budgets)))}
    return [_figures(rounds, index, firsts[budget]) for index, budget in enumerate(rounds.budgets)]


def _figures(rounds: ScoredRounds, index: int, first: int) -> Figures:
    runs = rounds.between(index)
    sums = runs[1]
    (chain, length, hindsight), closed = _closed(runs, ROUNDS)
    speeds, speed_closed = _closed(runs, SECONDS)
    is_priced = not np.isnan(speeds).any()
    chain_speed, speed, hindsight_speed = speeds if is_priced else [None] * 3

    def shares(part: Doubles) -> Doubles:
        drafted, accepted, siblings = part[..., 1:2], part[..., 2:3], part[..., 3:4]
        parts: Doubles = np.concatenate([accepted, siblings, drafted - accepted - siblings], axis=-1) / drafted
        return parts

    spread = prompt_spread(sums[:, [ROUNDS, DRAFTED, ACCEPTED, SIBLINGS]], shares)
    accepted, siblings, below = share_estimates(spread)
    responses = sums[:, RESPONSES].sum()
    return {
        "policy": rounds.policies[index],
        "budget": rounds.budgets[index],
        "acceptance_length": length,
        "acceptance_length_macro": float(sums[:, MEANS].sum() / responses) if responses else math.nan,
        "chain_acceptance_length": chain,
        "hindsight_acceptance_length": hindsight,
        "gap_closed_share": closed,
        "gap_closed_against_first": NO_FIGURE if index == first else _against(runs, rounds.sums[1 + first]),
        "tokens_per_s": speed,
        "chain_tokens_per_s": chain_speed,
        "hindsight_tokens_per_s": hindsight_speed,
        "speed_gap_closed_share": speed_closed if is_priced else NO_FIGURE,
        "num_drafted": float(sums[:, DRAFTED].sum() / sums[:, ROUNDS].sum()),
        "accepted_share": accepted,
        "sibling_share": siblings,
        "below_wrong_share": below,
    }


def _closed(runs: Doubles, below: int) -> tuple[list[float], Estimate]:
    """Committed tokens over rounds or seconds of chain, policy and bound, and how far the second is from first to last.

    The same prompts are drawn for all three.
    """
    sums = np.concatenate(list(runs[:, :, [COMMITTED, below]]), axis=1)

    def figures(part: Doubles) -> Doubles:
        rates = part[..., 0::2] / part[..., 1::2]
        far = (rates[..., 1:2] - rates[..., 0:1]) / (rates[..., 2:3] - rates[..., 0:1])
        values: Doubles = np.concatenate([rates, far], axis=-1)
        return values

    *rates, far = estimates(prompt_spread(sums, figures))
    return [rate.value for rate in rates], far


def _against(runs: Doubles, first: Doubles) -> Estimate:
    """How much more of the gap a policy closes than another of the same bound."""
    sums = np.concatenate([run[:, [COMMITTED, ROUNDS]] for run in (*runs, first)], axis=1)

    def figures(part: Doubles) -> Doubles:
        rates = part[..., 0::2] / part[..., 1::2]
        values: Doubles = (rates[..., 1:2] - rates[..., 3:4]) / (rates[..., 2:3] - rates[..., 0:1])
        return values

    return estimates(prompt_spread(sums, figures))[0]
