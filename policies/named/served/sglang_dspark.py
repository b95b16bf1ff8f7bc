"""SGLang's DSpark planner: how many tokens of each request's chain are verified, by a table of passes per second.

From SGLang 0.5.23, ``sglang/srt/speculative/dspark_components/`` (``dspark_planner.py``, ``dspark_sps.py``,
``dspark_sts.py``) and ``sglang/kernels/ops/speculative/dspark/dspark_schedule.py``.
"""

from dataclasses import dataclass

import numpy as np

from simlab.arrays import Doubles, Floats, Ints, Longs
from simlab.cost import CostTable
from simlab.errors import PolicyError
from simlab.policies.artefacts import AUTO, Artefacts
from simlab.policies.composition import Composed, Composition
from simlab.policies.costs.curves import ALL_STAGES, probed_seconds
from simlab.policies.named.chain import LONGEST_BLOCK
from simlab.policies.orders.chain_orders import GreedyPathOrder
from simlab.policies.orders.node_order import OrderLayer
from simlab.policies.rules.budgets import ReadsFallingPaths
from simlab.policies.rules.serving import (
    LateConfidences,
    best_lengths,
    best_total,
    first_of_chains,
    log_odds,
    log_probs_of,
    sigmoid,
)
from simlab.policies.settings import at_least

LEAST_SURVIVAL = 1e-6
"""Tokens that are less probable than this are not verified."""

PROFILED_CONTEXT = 1024


@dataclass(frozen=True)
class SglangDSpark(Composed):
    """The DSpark planner as SGLang ships it: chains, cut where tokens of the whole batch bring the most per second.

    The number of drafted tokens of a pass maximises expected tokens times passes per second, all numbers tried, with
    confidences that are ``staleness`` drafts old; a new request counts as certain, and an engine's first rounds verify
    all. It is then split by the present confidences. A confidence is the drafter's probability, its log-odds divided by
    ``temperatures``, one for each position as in "1.1,0.9", or one for all; without them as it is. Passes per second
    are known at multiples of ``probe`` tokens, by default of a block's, and taken from the next smaller one.
    ``context`` is that of the profile; ``budget`` caps the drafted tokens of a pass, which SGLang does not. The memory
    is of texts served together, so it takes ``--batch``; a text alone gets present confidences.
    """

    budget: int = at_least(1, LONGEST_BLOCK)
    staleness: int = at_least(0, 2, "must be 0 or more drafts")
    temperatures: str = ""
    probe: int | None = at_least(1, None, "must be at least 1 token")
    context: int = at_least(1, PROFILED_CONTEXT, "must be at least 1 token")
    cost: str = AUTO

    source = "SGLang 0.5.23, DSpark planner"
    exactness = (
        "exact (from sglang 0.5.23's released code) but for the drafter's first probability in place of its confidence "
        "head, passes without prefills, and a table read from simlab's latencies in place of its profile"
    )
    reads = "the first candidate at each depth; a latency profile"
    variants = ("", "probe=1,budget=5,temperatures=1.25")

    def __post_init__(self) -> None:
        super().__post_init__()
        _ = self._temperatures

    @property
    def _temperatures(self) -> tuple[float, ...]:
        try:
            temperatures = tuple(float(part) for part in self.temperatures.split(",")) if self.temperatures else ()
        except ValueError:
            temperatures = (0.0,)
        if not all(np.isfinite(value) and value > 0 for value in temperatures):
            raise ValueError(f'temperatures must be numbers above 0 with commas, as "1.1,0.9"; got {self.temperatures}')
        return temperatures

    def compose(self, artefacts: Artefacts) -> Composition:
        """The drafter's chain, cut by SGLang's rule."""
        table, cost_id = artefacts.cost(self.cost)
        rule = DSparkPlanner(self.budget, table, self.staleness, self._temperatures, self.probe, self.context)
        return Composition(GreedyPathOrder(), rule, {"cost": cost_id})


@dataclass(frozen=True, slots=True, eq=False)
class DSparkPlanner(ReadsFallingPaths):
    """SGLang's rule; see `SglangDSpark`.

    Attributes:
        most: drafted tokens of a pass, of all texts together.
        cost: of rounds of as many texts.
        staleness: drafts between the confidences that make the budget and the present ones.
        temperatures: of each position, one of all, or none.
        probe: tokens from one measured size of a pass to the next; None: those of a block.
        context: tokens before the roots of the profile.
        stages: that count.
    """

    most: int
    cost: CostTable
    staleness: int
    temperatures: tuple[float, ...]
    probe: int | None
    context: int
    stages: tuple[str, ...] = ALL_STAGES

    def seconds(self, num_texts: int, depth: int) -> Doubles:
        """The profile, float64 ``[S * (D + 1) + 1]``: seconds of passes by tokens."""
        step = self.probe or depth + 1
        probes = range(step, max(num_texts * (depth + 1), step) + 1, step)
        return probed_seconds(self.cost, self.stages, num_texts, depth, self.context, probes)

    def confidences(self, log_probs: Doubles) -> Floats:
        """Calibrated probabilities, float32 ``[S, D]``."""
        depth = log_probs.shape[1]
        if 1 < len(self.temperatures) < depth:
            raise PolicyError(
                f"temperatures must be one for each of {depth} positions; got {len(self.temperatures)}, add the others"
            )
        scale = np.array(self.temperatures[:depth] or (1.0,))
        return sigmoid(log_odds(log_probs) / scale)

    def memory(self) -> "DSparkMemory":
        return DSparkMemory(self, self.staleness)

    def shares(self, scores: Doubles, contexts: Longs) -> Ints:
        return DSparkMemory(self, 0).shares(np.arange(len(scores)), scores, contexts)

    def sizes(self, layer: OrderLayer, contexts: Longs) -> Ints:
        assert layer.scores is not None
        log_probs = log_probs_of(layer.scores)
        survival = np.cumprod(self.confidences(log_probs), axis=1, dtype=np.float32)
        eligible = np.isfinite(log_probs) & (survival >= LEAST_SURVIVAL)
        return best_lengths(survival.astype(np.float64), eligible, self.seconds(1, log_probs.shape[1]))

    def check_batch(self, batch: int) -> None:
        pass


class DSparkMemory:
    """Confidences of earlier drafts; see `simlab.policies.rules.serving.ServingMemory`."""

    def __init__(self, rule: DSparkPlanner, staleness: int) -> None:
        self._rule, self._late, self._num_rounds = rule, LateConfidences(staleness), 0

    def shares(self, requests: Longs, scores: Doubles, contexts: Longs) -> Ints:
        log_probs = log_probs_of(scores)
        num_texts, depth = log_probs.shape
        confidences = self._rule.confidences(log_probs)
        known = np.isfinite(log_probs)
        late = np.cumprod(self._late.after(requests, confidences), axis=1, dtype=np.float32)
        survival = np.sort(late[known & (late >= LEAST_SURVIVAL)].astype(np.float64))[::-1][: self._rule.most]
        self._num_rounds += 1
        if self._num_rounds <= self._late.staleness and self._rule.most >= known.sum():
            # Nothing has come from the device yet, and SGLang verifies whole blocks.
            whole: Ints = known.sum(axis=1).astype(np.int32)
            return whole
        budget = best_total(survival, num_texts, self._rule.seconds(num_texts, depth))
        present = np.cumprod(confidences, axis=1, dtype=np.float32)
        return first_of_chains(present, known & (present >= LEAST_SURVIVAL), budget, by_position=True)

    def observe(self, num_accepted: Longs, num_known: Longs) -> None:
        """Do nothing: this rule does not learn from what was accepted."""
