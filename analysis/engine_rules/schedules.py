"""What is admitted to verification round by round: rules that are watched, and the schedule of hindsight."""

from dataclasses import dataclass, field

import numpy as np

from simlab.arrays import Bools, Doubles, Floats, Longs
from simlab.cost import CostTable
from simlab.policies.composition import Composition
from simlab.policies.costs.pass_tables import pass_seconds
from simlab.policies.costs.round_costs import ALL_STAGES
from simlab.policies.engine.lock_step import TreeChoice, accepted_of
from simlab.policies.named.chain import SpineOrder
from simlab.policies.named.vllm_adaptive import AdaptiveMemory, AdaptiveVerification
from simlab.policies.rules.serving import best_total, first_of_chains, log_probs_of
from simlab.recorded import RecordedTexts


@dataclass(slots=True)
class Watched:
    """Drafts of the counted texts and what a rule thought of them, round after round.

    Attributes:
        roots: int64 ``[S]`` of each round.
        confidences: float32 ``[S, D]``, the rule's.
        drafter: float64 ``[S, D]``, the drafter's own probabilities.
        admitted: int64 ``[S]``.
        follows: int64 ``[S]``, drafted tokens with which the target agrees, admitted or not.
        known: int64 ``[S]``, tokens of the text behind each root.
    """

    roots: list[Longs] = field(default_factory=list)
    confidences: list[Floats] = field(default_factory=list)
    drafter: list[Doubles] = field(default_factory=list)
    admitted: list[Longs] = field(default_factory=list)
    follows: list[Longs] = field(default_factory=list)
    known: list[Longs] = field(default_factory=list)


def watched(shared: Composition, texts: RecordedTexts, all_labels: bool) -> tuple[TreeChoice, Watched]:
    """vLLM's rule as `simlab.policies.engine.lock_step` replays it, watched.

    Args:
        shared: with that rule.
        texts: that are served.
        all_labels: whether it learns from what the target says of every drafted token up to the first rejected one,
            also of those that it did not admit, which a server does not hear.
    """
    assert isinstance(shared.rule, AdaptiveVerification)
    memory, seen = AdaptiveMemory(shared.rule, shared.rule.staleness), Watched()
    layer, firsts = shared.order.layer(texts, shared.budget, with_scores=True), texts.roots.firsts
    scores = layer.scores
    assert scores is not None
    num_texts, depth = len(texts.sequences), scores.shape[1] - 1

    def choose(roots: Longs, numbers: Longs) -> tuple[Longs, Longs]:
        sizes = memory.shares(numbers, scores[roots], texts.contexts[roots])
        accepted, admitted = accepted_of(layer, roots, sizes), memory.admitted
        follows = accepted_of(layer, roots, layer.num_available[roots])
        known = np.minimum(firsts[np.searchsorted(firsts, roots, side="right")] - roots, depth)
        if all_labels:
            memory.admitted = known
        memory.observe(follows if all_labels else accepted, known)
        counted = numbers < num_texts
        drafter = np.exp(log_probs_of(scores[roots]))
        seen.roots.append(roots[counted])
        seen.confidences.append(memory.confidences[counted])
        seen.drafter.append(drafter[counted])
        seen.admitted.append(admitted[counted])
        seen.follows.append(follows[counted])
        seen.known.append(known[counted])
        return sizes.astype(np.int64), accepted

    return choose, seen


def hindsight(texts: RecordedTexts, cost: CostTable) -> TreeChoice:
    """Each round the number of accepted tokens of chains with the most tokens per second.

    It knows the target's text, so it verifies no token that is rejected, and it pays what the replay pays, not an
    engine's profile. Of equal ones the earlier position comes first. A round is looked at by itself, so another
    schedule of a whole text may be a little faster.
    """
    depth = texts.drafted().counts.shape[1]
    layer, contexts = SpineOrder().layer(texts, depth, with_scores=False), texts.contexts

    def choose(roots: Longs, numbers: Longs) -> tuple[Longs, Longs]:
        num, follows = len(roots), accepted_of(layer, roots, layer.num_available[roots])
        sizes = tuple(range(num * (depth + 1) + 1))
        seconds = pass_seconds(cost, ALL_STAGES, num, depth, int(np.rint(contexts[roots].mean())), sizes)
        eligible: Bools = np.arange(depth) < follows[:, None]
        budget = best_total(np.ones(int(follows.sum())), num, seconds)
        chosen = first_of_chains(np.ones(eligible.shape, np.float32), eligible, budget, by_position=True)
        return chosen.astype(np.int64), chosen.astype(np.int64)

    return choose
