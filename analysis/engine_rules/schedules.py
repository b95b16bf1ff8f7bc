"""What is admitted to verification round by round: rules that are watched, and the schedule of hindsight."""

from dataclasses import dataclass, field

import numpy as np

from simlab.arrays import Bools, Doubles, Floats, Longs
from simlab.policies.composition import Composition
from simlab.policies.engine.lock_step import TreeChoice, accepted_of
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


def hindsight(shared: Composition, texts: RecordedTexts) -> TreeChoice:
    """Each round the number of accepted tokens with the most tokens per second of the rule's own profile.

    It knows the target's text, so it verifies no token that is rejected. Of equal ones the earlier position comes
    first. A round is looked at by itself, so another schedule of a whole text may be faster.
    """
    assert isinstance(shared.rule, AdaptiveVerification)
    rule, layer = shared.rule, shared.order.layer(texts, shared.budget, with_scores=True)
    assert layer.scores is not None
    depth = layer.scores.shape[1] - 1

    def choose(roots: Longs, numbers: Longs) -> tuple[Longs, Longs]:
        follows = accepted_of(layer, roots, layer.num_available[roots])
        certain = np.ones(min(int(follows.sum()), rule.most))
        budget = best_total(certain, len(roots), rule.seconds(len(roots), depth))
        eligible: Bools = np.arange(depth) < follows[:, None]
        sizes = first_of_chains(np.ones(eligible.shape, np.float32), eligible, budget, by_position=True)
        return sizes.astype(np.int64), sizes.astype(np.int64)

    return choose
