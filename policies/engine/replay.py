"""Replays of many policies on many texts, without an object for each round.

What policies of one order share is worked out once: a `Layer`, or for fixed budgets only the roots that are met.
Budgets, prices and clipping then read whole numbers. A policy of another kind, such as one of your own, is replayed
round by round; that gives the same and takes longer.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from simlab.arrays import Bools, Doubles, Ints, Longs, Shorts
from simlab.columns import RoundColumns, TextRounds, columns_of, rounds_of_texts
from simlab.cost import NO_STAGES, PLAIN, STAGES, CostTable, StageTable, add_seconds
from simlab.jit import borrowing_kernel, kernel
from simlab.policies.composition import Composition, composition_of
from simlab.policies.costs.cell_prices import NUM_DRAWS
from simlab.policies.edges.correction import Correction
from simlab.policies.engine.routed import RouteLayers, can_walk, catch_ups
from simlab.policies.kernels.true_places import (
    EdgeScores,
    Workspace,
    find_corrected_true_places,
    find_mapped_true_places,
    find_true_places,
    num_kept_paths,
    workspace_for,
)
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.orders.node_order import NodeOrder, num_accepted
from simlab.policies.routing.routed_policy import RoutedPolicy
from simlab.policies.rules.budgets import FixedBudget
from simlab.policy import AnyPolicy, is_plain_decoding, routes_of
from simlab.recorded import RecordedSequence, RecordedTexts, Roots, texts_of
from simlab.sequence_replay import ACCEPTED, CLIPPED, COMMITTED, COUNTS, DRAFTED, ROUNDS, rounds, sum_columns

# Fixed budgets on many texts: only the roots that some budget comes to are looked at, each once.
#
# Rounds are added up as they are met, so that a thousand budgets take no more memory than one.


_NUM_COUNTS = len(COUNTS)


class KnownRoots(NamedTuple):
    """What is known of each root.

    Attributes:
        insertions: uint16 ``[R, D]``.
        num_available: int32 ``[R]``.
        is_known: bool ``[R]``.
    """

    insertions: Shorts
    num_available: Ints
    is_known: Bools


@kernel
def sum_budgets(
    roots: Roots,
    top_k: int,
    edge_map: Doubles | None,
    correction: Correction | None,
    most: int,
    budgets: Ints,
    known: KnownRoots,
    contexts: Longs,
    table: StageTable,
) -> tuple[Longs, Doubles]:
    """The sums over the rounds of trees of several budgets on each text; what is None is not even compiled.

    Args:
        roots: of all texts.
        top_k: as the next two a part of `EdgeScores`, without counts of the text; read where something is not known.
        edge_map: of the edges.
        correction: of the edges.
        most: places above it are not told apart; no budget that ever reads what is known is larger.
        budgets: int32 ``[B]``, drafted tokens.
        known: from roots that were met before; filled for those that are met.
        contexts: int64 ``[R]``, tokens before each root.
        table: what rounds cost, for every budget and context that there is; of no stage: nothing.

    Returns:
        int64 ``[B, S, C]``, the `simlab.sequence_replay.COUNTS`; float64 ``[B, S, P]``, seconds of each stage of the
        table.
    """
    shape = (budgets.size, roots.firsts.size - 1)
    sums, seconds = np.zeros((*shape, _NUM_COUNTS), np.int64), np.zeros((*shape, table.seconds.shape[2]), np.float64)
    workspace = workspace_for(roots, top_k, most)
    _sum_budgets(roots, top_k, edge_map, correction, most, budgets, known, contexts, table, workspace, sums, seconds)
    return sums, seconds


@borrowing_kernel
def _sum_budgets(
    roots: Roots,
    top_k: int,
    edge_map: Doubles | None,
    correction: Correction | None,
    most: int,
    budgets: Ints,
    known: KnownRoots,
    contexts: Longs,
    table: StageTable,
    workspace: Workspace,
    sums: Longs,
    seconds: Doubles,
) -> None:
    """`sum_budgets` in arrays that are there."""
    insertions, available, is_known, firsts = known.insertions, known.num_available, known.is_known, roots.firsts
    for text in range(firsts.size - 1):
        last = firsts[text + 1]
        for index in range(budgets.size):
            rounds, drafted, accepted, clipped, root = 0, 0, 0, 0, firsts[text]
            while root < last:
                if not is_known[root]:
                    is_known[root] = True
                    if correction is not None:
                        find_corrected_true_places(roots, top_k, correction, text, root, most, workspace, insertions)
                    elif edge_map is not None:
                        find_mapped_true_places(roots, top_k, edge_map, root, most, workspace, insertions)
                    else:
                        find_true_places(roots, top_k, root, most, workspace, insertions)
                    available[root] = num_kept_paths(roots.counts, root, top_k, most)
                now_drafted = int(min(available[root], budgets[index]))
                now_accepted = num_accepted(insertions, root, now_drafted)
                if table.seconds.shape[2] > 0:
                    add_seconds(table, int(contexts[root]), now_drafted, seconds[index, text])
                rounds, drafted, accepted = rounds + 1, drafted + now_drafted, accepted + now_accepted
                root += now_accepted + 1
                clipped += root > last
            row = sums[index, text]
            row[ROUNDS], row[DRAFTED], row[ACCEPTED] = rounds, drafted, accepted
            row[COMMITTED], row[CLIPPED] = last - firsts[text], clipped


@kernel
def _sum_rounds(roots: Longs, num_drafted: Longs, num_accepted: Longs, ends: Longs, firsts: Longs) -> Longs:
    """`counts_of_rounds`, from the columns of `TextRounds` and the first root of each text."""
    sums, start = np.zeros((ends.size, _NUM_COUNTS), np.int64), 0
    for text in range(ends.size):
        for index in range(start, ends[text]):
            left = firsts[text + 1] - roots[index]
            sums[text, ROUNDS] += 1
            sums[text, DRAFTED] += num_drafted[index]
            sums[text, ACCEPTED] += num_accepted[index]
            sums[text, COMMITTED] += min(num_accepted[index] + 1, left)
            sums[text, CLIPPED] += num_accepted[index] == left
        start = ends[text]
    return sums


_NO_EDGES = EdgeScores(0, None, None)


@dataclass(frozen=True, slots=True)
class ReplaySums:
    """The sums over the rounds of each policy on each text.

    Attributes:
        counts: int64 ``[P, S, C]``, the `simlab.sequence_replay.COUNTS`.
        seconds: float64 ``[P, S, 5]``, of each of `simlab.cost.STAGES`; NaN for a policy without prices.
        draws_s: float64 ``[P, S, B]``, all stages together at each of the ``draws`` of the prices; NaN where prices
            have none.
    """

    counts: Longs
    seconds: Doubles
    draws_s: Doubles

    def columns(self) -> dict[str, Longs | Doubles]:
        """Sums and seconds by the names of result columns, each ``[P, S]``, and ``draws_s`` ``[P, S, B]``."""
        stages = {f"{stage}_s": self.seconds[..., index] for index, stage in enumerate(STAGES)}
        return {**sum_columns(self.counts), **stages, "draws_s": self.draws_s}

    def fill(self, index: int, sums: "ReplaySums") -> None:
        """Set the sums of one policy to those of an instance that has one."""
        self.counts[index], self.seconds[index] = sums.counts[0], sums.seconds[0]
        self.draws_s[index] = sums.draws_s[0]


def empty_replay_sums(num_policies: int, num_texts: int) -> ReplaySums:
    """Sums of so many policies and texts, to be filled: no rounds, and seconds that are NaN."""
    shape = num_policies, num_texts
    seconds, draws = (np.full((*shape, num), np.nan) for num in (len(STAGES), NUM_DRAWS))
    return ReplaySums(np.zeros((*shape, len(COUNTS)), np.int64), seconds, draws)


TimedPolicy = tuple[AnyPolicy, CostTable | None]
"""A policy, and what its rounds cost."""


@dataclass(frozen=True, slots=True)
class _Group:
    """Compositions of one order.

    Attributes:
        most: their largest budget.
        scored: whether one of them reads scores.
        fixed: of those of fixed budgets whose rounds pay the same for channels and all have a draft, places and budgets
            by their prices.
        others: the places of all others.
    """

    order: NodeOrder
    most: int
    scored: bool
    fixed: dict[CostTable | None, tuple[Longs, Ints]]
    others: tuple[int, ...]


class Replay:
    """Some policies, made ready to be replayed on any texts.

    Args:
        priced: the policies.
    """

    def __init__(self, priced: Sequence[TimedPolicy]) -> None:
        self._priced = [(policy, None if cost is None else cost.charged(policy)) for policy, cost in priced]
        compositions = {index: composition_of(policy) for index, (policy, _) in enumerate(self._priced)}
        self._composed = {index: composition for index, composition in compositions.items() if composition is not None}
        routed = {index: policy for index, (policy, _) in enumerate(self._priced) if isinstance(policy, RoutedPolicy)}
        self._routed = {index: router for index, router in routed.items() if can_walk(router)}
        self._loose = [
            index for index, composition in compositions.items() if composition is None and index not in self._routed
        ]
        by_order: dict[str, dict[int, Composition]] = {}
        for index, composition in self._composed.items():
            by_order.setdefault(composition.order.key, {})[index] = composition
        self._groups = [self._group(group) for group in by_order.values()]

    def _group(self, group: dict[int, Composition]) -> _Group:
        fixed: dict[CostTable | None, list[int]] = {}
        for index, composition in group.items():
            cost = self._priced[index][1]
            is_priced = cost is None or composition.rule.most <= cost.most_drafted
            is_plain = composition.order.needs.billed_by_use is None and composition.masked is None
            if isinstance(composition.rule, FixedBudget) and is_priced and is_plain:
                fixed.setdefault(cost, []).append(index)
        budgets = {
            cost: (np.array(indices, np.int64), np.array([group[index].rule.most for index in indices], np.int32))
            for cost, indices in fixed.items()
        }
        listed = {index for indices in fixed.values() for index in indices}
        others = tuple(index for index in group if index not in listed)
        most = max(composition.rule.most for composition in group.values())
        scored = any(composition.rule.needs_scores for composition in group.values())
        return _Group(next(iter(group.values())).order, most, scored, budgets, others)

    def rounds(self, texts: RecordedTexts) -> list[TextRounds]:
        """The rounds of each policy, in their order.

        Raises:
            SimlabError: as `simlab.sequence_replay.rounds` does.
        """
        played: dict[int, TextRounds] = {}
        for group in self._groups:
            layer = group.order.layer(texts, group.most, group.scored)
            for index in (*group.others, *(index for indices, _ in group.fixed.values() for index in indices.tolist())):
                played[index] = self._composed[index].walk(layer, texts)
        layers = RouteLayers(texts)
        played |= {index: layers.rounds(policy) for index, policy in self._routed.items()}
        played |= {index: _one_by_one(self._priced[index][0], texts) for index in self._loose}
        return [played[index] for index in range(len(self._priced))]

    def sums(self, texts: RecordedTexts) -> ReplaySums:
        """The sums over the rounds of each policy, in their order."""
        sums = empty_replay_sums(len(self._priced), len(texts.sequences))
        longest = int(texts.contexts.max(initial=0))
        for group in self._groups:
            self._sum_group(group, texts, longest, sums)
        layers = RouteLayers(texts)
        for index, router in self._routed.items():
            sums.fill(index, sums_of_policy(router, layers.rounds(router), texts, self._priced[index][1]))
        for index in self._loose:
            policy, cost = self._priced[index]
            sums.fill(index, sums_of_policy(policy, _one_by_one(policy, texts), texts, cost))
        return sums

    def _sum_group(self, group: _Group, texts: RecordedTexts, longest: int, sums: ReplaySums) -> None:
        order = group.order
        roots = texts.drafted() if order.needs.draft else texts.roots
        # Where a text is longer than was measured the rounds tell whether one of them is.
        slow = [cost for cost in group.fixed if cost is not None and longest > cost.longest_context]
        if isinstance(order, BestFirst) and not (order.is_beam or order.edge.counts_text or group.others or slow):
            edges, layer, num = order.edge_scores(roots), None, len(roots.token_indices)
            nothing = np.empty(roots.counts.shape, np.uint16), np.zeros(num, np.int32)
            known = KnownRoots(*nothing, np.zeros(num, np.bool_))
        else:
            layer = order.layer(texts, group.most, group.scored)
            edges, every = _NO_EDGES, np.ones(len(roots.token_indices), np.bool_)
            known = KnownRoots(layer.insertions, layer.num_available, every)
        for cost, (indices, budgets) in group.fixed.items():
            if cost in slow:
                continue
            table = NO_STAGES if cost is None else cost.stages(STAGES).beside(cost.draw_stages(STAGES))
            counts, seconds = sum_budgets(roots, *edges, group.most, budgets, known, texts.contexts, table)
            sums.counts[indices] = counts
            if cost is not None:
                sums.seconds[indices] = seconds[..., : len(STAGES)]
            if cost is not None and cost.draws:
                sums.draws_s[indices] = seconds[..., len(STAGES) :]
        for index in (*group.others, *(index for cost in slow for index in group.fixed[cost][0].tolist())):
            assert layer is not None
            text_rounds = self._composed[index].walk(layer, texts)
            sums.fill(index, sums_of_rounds(text_rounds, texts, self._priced[index][1], STAGES))


def replay_policies(policies: Sequence[AnyPolicy], recorded: RecordedSequence) -> list[RoundColumns]:
    """The rounds of each policy on one text, in their order.

    Raises:
        SimlabError: as `simlab.sequence_replay.rounds` does.
    """
    texts = texts_of([recorded])
    played = Replay([(policy, None) for policy in policies]).rounds(texts)
    return [text_rounds.columns(texts)[0] for text_rounds in played]


def counts_of_rounds(played: TextRounds, texts: RecordedTexts) -> Longs:
    """The sums over the rounds of one policy on each text, int64 ``[S, C]``, the `simlab.sequence_replay.COUNTS`."""
    return _sum_rounds(played.roots, played.num_drafted, played.num_accepted, played.ends, texts.roots.firsts)


def sums_of_rounds(played: TextRounds, texts: RecordedTexts, cost: CostTable | None, paid: Sequence[str]) -> ReplaySums:
    """The sums over the rounds of one policy.

    Args:
        played: the rounds.
        texts: the texts.
        cost: what they cost, charged with the policy's channels; None: nothing is priced.
        paid: stages that are; plain decoding's seconds count as those of verifying.
    """
    sums = empty_replay_sums(1, len(texts.sequences))
    sums.counts[0] = counts_of_rounds(played, texts)
    if cost is not None:
        rounds = texts.contexts[played.roots], played.num_drafted, played.ends
        columns = [STAGES.index("verify" if stage == PLAIN else stage) for stage in paid]
        sums.seconds[0] = 0.0
        sums.seconds[0][:, columns] = cost.sums(paid, *rounds, played.num_requested)
        if cost.draws:
            sums.draws_s[0] = cost.draw_sums(paid, *rounds, played.num_requested)
    return sums


def sums_of_policy(policy: AnyPolicy, played: TextRounds, texts: RecordedTexts, cost: CostTable | None) -> ReplaySums:
    """The sums over the rounds of any policy; each round of a router pays what its route pays, and what it catches up.

    Plain decoding among routes pays a pass of the root alone, since its tokens are those of a speculative loop.

    Args:
        policy: whose rounds they are.
        played: the rounds.
        texts: the texts.
        cost: what they cost, charged with the policy's channels; None: nothing is priced.
    """
    routes = routes_of(policy)
    if not routes or cost is None:
        return sums_of_rounds(played, texts, cost, stages_paid(policy))
    sums = sums_of_rounds(played, texts, None, ())
    sums.seconds[0] = 0.0
    sums.draws_s[0] = 0.0 if cost.draws else np.nan
    for index, route in enumerate(routes):
        own = played.of_route(index)
        if route.needs.billed_by_use is None:
            own = replace(own, num_requested=None)
        part = sums_of_rounds(
            own, texts, cost.charged_route(policy, route), STAGES if route.needs.draft else STAGES[1:]
        )
        sums.seconds[0] += np.nan_to_num(part.seconds[0])
        sums.draws_s[0] += part.draws_s[0]
    for stage, seconds, draws in catch_ups(routes, played, texts, cost):
        sums.seconds[0][:, STAGES.index(stage)] += seconds
        if cost.draws:
            sums.draws_s[0] += draws
    return sums


def stages_paid(policy: AnyPolicy) -> tuple[str, ...]:
    """The stages that a policy's rounds pay: no drafter if it needs none, and plain decoding its own fastest path."""
    if is_plain_decoding(policy):
        return (PLAIN,)
    return STAGES if policy.needs.draft else STAGES[1:]


def _one_by_one(policy: AnyPolicy, texts: RecordedTexts) -> TextRounds:
    if is_plain_decoding(policy):
        everything = np.arange(len(texts.roots.token_indices))
        return TextRounds(everything, np.zeros_like(everything), np.zeros_like(everything), texts.roots.firsts[1:])
    return rounds_of_texts((columns_of(rounds(policy, sequence)) for sequence in texts.sequences), texts)
