"""Replays of texts that are served several at a time: each round is one round of all texts of the batch.

A server's batch is full: when a text ends, the next takes its place, and behind the last one texts from the beginning
run once more as filler requests, uncounted, until every counted text has ended. So each round has as many texts as
the prices are of.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, cycle, pairwise

import numpy as np

from simlab.arrays import Doubles, Ints, Longs
from simlab.columns import TextRounds
from simlab.cost import PLAIN, STAGES, CostTable
from simlab.policies.composition import Composition, check_batch, shared_composition, shared_tree_sizes
from simlab.policies.engine.replay import Replay, ReplaySums, counts_of_rounds, empty_replay_sums, stages_paid
from simlab.policies.orders.node_order import OrderLayer
from simlab.policies.rules.serving import ServingRule
from simlab.policy import AnyPolicy
from simlab.recorded import RecordedTexts

TreeChoice = Callable[[Longs, Longs], tuple[Longs, Longs]]
"""From the roots of a round, int64 ``[B]``, in the order in which their texts came, and the numbers under which these
came, to drafted and accepted tokens. It is asked about each round of a replay once, in their order."""


@dataclass(frozen=True, slots=True, eq=False)
class ServedRounds:
    """Rounds of texts that were served together; N of single texts, in M rounds of the batch.

    Attributes:
        roots: int64 ``[N]``, at which root of all texts each starts.
        num_drafted: int64 ``[N]``, the root not counted.
        num_accepted: int64 ``[N]``.
        of_batch: int64 ``[N]``, the round of the batch, from 0.
        mean_drafted: float64 ``[M]``, over all texts in the batch, filler requests too.
        mean_context: float64 ``[M]``, over the same.
    """

    roots: Longs
    num_drafted: Longs
    num_accepted: Longs
    of_batch: Longs
    mean_drafted: Doubles
    mean_context: Doubles

    def text_rounds(self, texts: RecordedTexts) -> TextRounds:
        """One text after the other."""
        order = self._by_text()
        ends = np.searchsorted(self.roots[order], texts.roots.firsts[1:])
        return TextRounds(self.roots[order], self.num_drafted[order], self.num_accepted[order], ends.astype(np.int64))

    def seconds(self, texts: RecordedTexts, cost: CostTable, paid: tuple[str, ...]) -> Doubles:
        """What each text waited, float64 ``[S, 5]``: the whole of each round of the batch that it was in.

        A round costs what one costs in which every text has the mean number of drafted tokens, linear between whole
        numbers, and the mean context.

        Args:
            texts: that were served.
            cost: prices of as many texts at a time.
            paid: stages that are; plain decoding's seconds count as those of verifying.
        """
        contexts = np.rint(self.mean_context).astype(np.int64)
        low = np.floor(self.mean_drafted).astype(np.int64)
        high, share = np.ceil(self.mean_drafted).astype(np.int64), self.mean_drafted - low
        order, waited = self._by_text(), np.zeros((len(texts.sequences), len(STAGES)))
        text_of = np.searchsorted(texts.roots.firsts, self.roots[order], side="right") - 1
        for stage in paid:
            of_rounds = cost.at(stage, contexts, low) * (1 - share) + cost.at(stage, contexts, high) * share
            column = waited[:, STAGES.index("verify" if stage == PLAIN else stage)]
            np.add.at(column, text_of, of_rounds[self.of_batch[order]])
        return waited

    def _by_text(self) -> Longs:
        return np.argsort(self.roots, kind="stable")


def served_sums(policy: AnyPolicy, texts: RecordedTexts, batch: int, cost: CostTable | None) -> ReplaySums:
    """The sums over a policy's rounds on each text, the texts served ``batch`` at a time.

    Args:
        policy: of each text, or of the batch.
        texts: in the order in which they come.
        batch: texts at a time.
        cost: prices of ``batch`` texts at a time; None: nothing is priced.
    """
    check_batch(policy, batch)
    served = serve(texts, batch, rounds_of_policy(policy, texts), with_filler_requests(len(texts.sequences)))
    sums, paid = empty_replay_sums(1, len(texts.sequences)), stages_paid(policy)
    sums.counts[0] = counts_of_rounds(served.text_rounds(texts), texts)
    if cost is not None:
        cost = cost.charged(policy)
        sums.seconds[0] = served.seconds(texts, cost, paid)
    if cost is not None and cost.draws:
        sums.draws_s[0] = np.stack([served.seconds(texts, draw, paid).sum(axis=1) for draw in cost.draws], axis=-1)
    return sums


def with_filler_requests(num_texts: int) -> Iterator[int]:
    """The numbers of all texts, and then the same again as filler requests, without end."""
    return chain(range(num_texts), cycle(range(num_texts)))


def rounds_of_policy(policy: AnyPolicy, texts: RecordedTexts) -> TreeChoice:
    """What a policy does at roots that are met together; a policy of single texts does there what it does alone."""
    shared = shared_composition(policy)
    if shared is not None:
        return _remembering(shared, texts) if isinstance(shared.rule, ServingRule) else _joint(shared, texts)
    (text_rounds,) = Replay([(policy, None)]).rounds(texts)
    num_roots = len(texts.roots.token_indices)
    drafted, accepted = np.zeros(num_roots, np.int64), np.zeros(num_roots, np.int64)
    drafted[text_rounds.roots], accepted[text_rounds.roots] = text_rounds.num_drafted, text_rounds.num_accepted
    return lambda roots, numbers: (drafted[roots], accepted[roots])


def _joint(shared: Composition, texts: RecordedTexts) -> TreeChoice:
    layer, contexts = shared.order.layer(texts, shared.budget, with_scores=True), texts.contexts
    scores = layer.scores
    assert scores is not None

    def choose(roots: Longs, numbers: Longs) -> tuple[Longs, Longs]:
        sizes = shared_tree_sizes(shared, scores[roots], contexts[roots])
        return sizes.astype(np.int64), accepted_of(layer, roots, sizes)

    return choose


def _remembering(shared: Composition, texts: RecordedTexts) -> TreeChoice:
    """A rule with a memory: what was accepted is told to it before the next round."""
    assert isinstance(shared.rule, ServingRule)
    layer, contexts, firsts = (
        shared.order.layer(texts, shared.budget, with_scores=True),
        texts.contexts,
        texts.roots.firsts,
    )
    memory, scores = shared.rule.memory(), layer.scores
    assert scores is not None

    def choose(roots: Longs, numbers: Longs) -> tuple[Longs, Longs]:
        sizes = memory.shares(numbers, scores[roots], contexts[roots])
        accepted = accepted_of(layer, roots, sizes)
        memory.observe(accepted, firsts[np.searchsorted(firsts, roots, side="right")] - roots)
        return sizes.astype(np.int64), accepted

    return choose


def accepted_of(layer: OrderLayer, roots: Longs, sizes: Ints) -> Longs:
    """How many tokens are accepted at some roots, int64 ``[B]``, of trees of the first ``sizes`` nodes of an order."""
    # Places of the true path rise, so those within the tree are its first.
    accepted: Longs = (layer.insertions[roots] <= sizes[:, None]).sum(axis=1).astype(np.int64)
    return accepted


def serve(texts: RecordedTexts, batch: int, choose: TreeChoice, queue: Iterable[int]) -> ServedRounds:
    """Go through texts, ``batch`` at a time, until each has ended once.

    Args:
        texts: all of them.
        batch: texts at a time, at least 1.
        choose: what happens at the roots of a round.
        queue: texts by number, each once and then filler requests, if any; where it ends the batch empties.
    """
    firsts, contexts = texts.roots.firsts.tolist(), texts.contexts
    coming, num_came = iter(queue), 0
    num_left = sum(first < last for first, last in pairwise(firsts))
    # Of each text in the batch the number under which it came, its root, and where it ends.
    running = np.empty((0, 3), np.int64)
    parts: list[tuple[Longs, Longs, Longs, Longs]] = []
    means: list[tuple[float, float]] = []
    while num_left:
        while len(running) < batch and (text := next(coming, None)) is not None:
            if firsts[text] < firsts[text + 1]:
                running = np.append(running, [[num_came, firsts[text], firsts[text + 1]]], axis=0)
            num_came += 1
        numbers, roots, ends = running.T.copy()
        drafted, accepted = choose(roots, numbers)
        counted = numbers < len(firsts) - 1
        here = np.full(int(counted.sum()), len(means), np.int64)
        parts.append((roots[counted], drafted[counted], accepted[counted], here))
        means.append((float(drafted.mean()), float(contexts[roots].mean())))
        running[:, 1] += accepted + 1
        has_ended = running[:, 1] >= ends
        num_left -= int((counted & has_ended).sum())
        running = running[~has_ended]
    nothing = np.empty(0, np.int64)
    all_roots, num_drafted, num_accepted, of_batch = (
        (np.concatenate(column) for column in zip(*parts, strict=True)) if parts else [nothing] * 4
    )
    table = np.array(means, np.float64).reshape(-1, 2)
    return ServedRounds(all_roots, num_drafted, num_accepted, of_batch, table[:, 0], table[:, 1])
