"""Texts served together: against a plain-Python server, and what must hold for any batch."""

from itertools import count

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simlab.arrays import Ints
from simlab.columns import TextRounds
from simlab.cost import PLAIN, STAGES, CostTable
from simlab.draft import Draft, Prompt
from simlab.errors import CostError
from simlab.policies.autoregressive import Autoregressive
from simlab.policies.best_first import DDTree
from simlab.policies.chain import Chain
from simlab.policies.engine import Replay
from simlab.policies.joint_budget import JointBudget, select_together, shared_composition, shared_sizes
from simlab.policies.lock_step import rounds_of_policy, serve, served_sums, with_company
from simlab.policy import AnyPolicy
from simlab.recorded import DraftRows, RecordedSequence, RecordedTexts, texts_of
from simlab.replay import draft_source

DEPTH, WIDTH, VOCAB = 3, 4, 9


def random_texts(seed: int, num: int, coarse: bool) -> RecordedTexts:
    """Texts of 1 to 14 tokens; coarse log-probabilities have many ties."""
    generator = np.random.default_rng(seed)
    found = []
    for number in range(num):
        text = generator.integers(VOCAB, size=int(generator.integers(1, 15))).astype(np.int32)
        prompt = generator.integers(VOCAB, size=int(generator.integers(1, 20))).astype(np.int32)
        found.append(
            RecordedSequence(
                number,
                Prompt(f"p{number}", "made-up", 0, 0, prompt),
                text,
                "length",
                _rows(generator, text, coarse),
            )
        )
    return texts_of(found)


def _rows(generator: np.random.Generator, text: Ints, coarse: bool) -> DraftRows:
    shape = (len(text) - 1, DEPTH)
    ids, log_probs, ranks = [], [], np.full(shape, -1, np.int32)
    for t in range(shape[0]):
        for d in range(DEPTH):
            row = generator.permutation(VOCAB)[:WIDTH]
            if t + 1 + d < len(text) and generator.random() < 0.6:
                row[int(generator.integers(WIDTH))] = text[t + 1 + d]
                row = np.array(list(dict.fromkeys(row.tolist() + list(range(VOCAB))))[:WIDTH])
            steps = generator.integers(1, 4, WIDTH) / 2 if coarse else generator.random(WIDTH) * 3
            scores = -np.sort(steps)
            order = np.lexsort((row, -scores))
            ids += row[order].tolist()
            log_probs += (np.round(scores[order] * 2**16) / 2**16).tolist()
            if t + 1 + d < len(text) and text[t + 1 + d] in row:
                ranks[t, d] = row[order].tolist().index(int(text[t + 1 + d]))
    counts = np.full(shape, WIDTH, np.int32)
    return DraftRows(np.array(ids, np.int32), np.array(log_probs, np.float32), counts, ranks)


def cost_table(most: int = 200) -> CostTable:
    """Prices that are no straight lines in anything but the context."""
    contexts, number = np.array([4, 16, 60]), np.arange(most + 1)
    seconds = {
        stage: np.sqrt(1 + number)[None] * (1 + contexts[:, None] / 50) * (place + 1)
        for place, stage in enumerate(STAGES)
    }
    return CostTable("made-up", contexts, {**seconds, PLAIN: (1 + contexts / 40.0)[:, None]})


# The oracle: nodes as tuples of ranks, sorted; a server in plain Python


def best_paths(one: RecordedSequence, t: int, most: int) -> list[tuple[float, tuple[int, ...]]]:
    """All nodes below root ``t``, best first: score, then the smaller tuple of ranks."""
    assert one.rows is not None
    row = one.rows.row(t, int(one.rows.starts()[t]))
    nodes: list[tuple[float, tuple[int, ...]]] = []
    level: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for depth in range(row.depth):
        log_probs = row.log_probs[row.offsets[depth] : row.offsets[depth + 1]].tolist()
        level = [(score + add, (*ranks, rank)) for score, ranks in level for rank, add in enumerate(log_probs)]
        nodes += level
    return sorted(nodes, key=lambda node: (-node[0], node[1]))[:most]


Listed = list[tuple[int, int, int]]
"""Root, drafted and accepted tokens of the rounds of a text."""


def num_true(true: list[int], mine: set[tuple[int, ...]]) -> int:
    """How many nodes of the true path are in a tree."""
    found = 0
    while found < DEPTH and true[found] >= 0 and tuple(true[: found + 1]) in mine:
        found += 1
    return found


def oracle(texts: RecordedTexts, batch: int, budget: int) -> tuple[list[Listed], list[tuple[list[int], list[int]]]]:
    """Of each text its rounds (root, drafted, accepted); and of each batch round tree sizes and contexts."""
    waiting, numbers = list(range(len(texts.sequences))), count()
    running: list[tuple[int, int, int]] = []
    rounds: list[list[tuple[int, int, int]]] = [[] for _ in waiting]
    batches: list[tuple[list[int], list[int]]] = []
    left = {n for n, one in enumerate(texts.sequences) if len(one.text) > 1}
    first_pass = len(waiting)
    while left:
        while len(running) < batch:
            number = next(numbers)
            text = number % first_pass
            if len(texts.sequences[text].text) > 1:
                running.append((number, text, 0))
        offers = []
        for place, (_, text, t) in enumerate(running):
            for index, (score, ranks) in enumerate(best_paths(texts.sequences[text], t, budget)):
                offers.append((-score, place, index, ranks))
        taken = sorted(offers)[:budget]
        going, sizes = [], []
        for place, (number, text, t) in enumerate(running):
            mine = {ranks for _, owner, _, ranks in taken if owner == place}
            one = texts.sequences[text]
            assert one.rows is not None
            accepted = num_true(one.rows.true_ranks[t].tolist(), mine)
            sizes.append(len(mine))
            if number < first_pass:
                rounds[text].append((t, len(mine), accepted))
            if t + accepted + 1 < len(one.text) - 1:
                going.append((number, text, t + accepted + 1))
            elif number < first_pass:
                left.remove(text)
        places = [len(texts.sequences[text].prompt.token_ids) + t for _, text, t in running]
        batches.append((sizes, places))
        running = going
    return rounds, batches


def listed(found: TextRounds, texts: RecordedTexts) -> list[list[tuple[int, int, int]]]:
    return [
        list(
            zip(one.positions.tolist(), one.num_drafted.tolist(), one.num_accepted.tolist(), strict=True),
        )
        for one in found.columns(texts)
    ]


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1 << 20),
    num=st.integers(1, 7),
    batch=st.integers(1, 5),
    budget=st.integers(1, 40),
    coarse=st.booleans(),
)
def test_a_joint_budget_is_the_servers(seed: int, num: int, batch: int, budget: int, coarse: bool) -> None:
    texts = random_texts(seed, num, coarse)
    rounds, batches = oracle(texts, batch, budget)
    served = serve(texts, batch, rounds_of_policy(JointBudget(budget), texts), with_company(num))
    assert listed(served.text_rounds(texts), texts) == rounds
    assert served.mean_drafted.tolist() == [sum(sizes) / len(sizes) for sizes, _ in batches]
    assert served.mean_context.tolist() == pytest.approx([sum(places) / len(places) for _, places in batches])
    assert all(sum(sizes) == min(budget, len(sizes) * 84) for sizes, _ in batches)


POLICIES: tuple[AnyPolicy, ...] = (Autoregressive(), Chain(2), DDTree(5), JointBudget(6))


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 1 << 20), num=st.integers(1, 6), coarse=st.booleans(), policy=st.sampled_from(POLICIES))
def test_one_text_at_a_time_is_the_replay_of_each_alone(seed: int, num: int, coarse: bool, policy: AnyPolicy) -> None:
    texts, cost = random_texts(seed, num, coarse), cost_table()
    found = served_sums(policy, texts, 1, cost)
    single = DDTree(policy.budget) if isinstance(policy, JointBudget) else policy
    expected = Replay([(single, cost)]).sums(texts)
    assert found.counts.tolist() == expected.counts.tolist()
    assert np.allclose(found.seconds, expected.seconds)
    assert Replay([(policy, cost)]).sums(texts).counts.tolist() == expected.counts.tolist()


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 1 << 20),
    num=st.integers(1, 6),
    batch=st.integers(1, 5),
    policy=st.sampled_from(POLICIES[:3]),
)
def test_policies_of_single_texts_have_the_same_rounds_in_any_batch(
    seed: int, num: int, batch: int, policy: AnyPolicy
) -> None:
    texts = random_texts(seed, num, coarse=False)
    assert (
        served_sums(policy, texts, batch, None).counts.tolist() == Replay([(policy, None)]).sums(texts).counts.tolist()
    )


def test_a_text_waits_for_the_whole_round_of_its_batch() -> None:
    texts, cost, batch, budget = random_texts(3, 5, coarse=False), cost_table(), 3, 7
    served = serve(texts, batch, rounds_of_policy(JointBudget(budget), texts), with_company(5))
    expected = np.zeros((5, 4))
    for root, number in zip(served.roots.tolist(), served.of_batch.tolist(), strict=True):
        text = int(np.searchsorted(texts.roots.firsts, root, side="right")) - 1
        context, mean = round(float(served.mean_context[number])), budget / batch
        for place, stage in enumerate(STAGES):
            curve = cost.curve(stage, context)
            expected[text, place] += curve[2] + (mean - 2) * (curve[3] - curve[2])
    assert np.allclose(served.seconds(texts, cost, STAGES), expected)
    assert np.allclose(served_sums(JointBudget(budget), texts, batch, cost).seconds[0], expected)


def test_plain_decoding_pays_its_own_path_and_too_large_a_tree_is_refused() -> None:
    texts, cost = random_texts(4, 4, coarse=False), cost_table(2)
    plain = served_sums(Autoregressive(), texts, 2, cost).seconds[0]
    assert (plain[:, [0, 1, 3]] == 0).all()
    assert (plain[:, 2] > 0).any()
    assert np.isnan(served_sums(DDTree(3), texts, 2, None).seconds).all()
    with pytest.raises(CostError, match="prices up to 2"):
        served_sums(DDTree(3), texts, 2, cost)
    # Two texts share them, so each has two.
    served_sums(JointBudget(4), texts, 2, cost)


def test_texts_without_rounds_are_no_company() -> None:
    texts = texts_of([random_texts(0, 1, coarse=False).sequences[0]])
    one = texts.sequences[0]
    assert one.rows is not None
    empty = one.rows.part(0, 0, one.rows.starts())
    short = RecordedSequence(0, one.prompt, one.text[:1], "stop", empty)
    served = serve(texts_of([short]), 3, rounds_of_policy(JointBudget(2), texts_of([short])), with_company(1))
    assert len(served.roots) == len(served.mean_drafted) == 0


# Sharing out


@given(st.lists(st.lists(st.integers(-6, 0), max_size=8), min_size=1, max_size=5), st.integers(1, 12))
def test_the_best_of_all_texts_enter_and_the_first_text_wins_a_tie(rows: list[list[int]], budget: int) -> None:
    scores = np.full((len(rows), 13), -np.inf)
    for row, values in zip(scores, rows, strict=True):
        row[0], row[1 : len(values) + 1] = 0.0, sorted(values, reverse=True)
    nodes = sorted((-score, text) for text, values in enumerate(rows) for score in values)[:budget]
    assert shared_sizes(scores, budget).tolist() == [sum(text == n for _, text in nodes) for n in range(len(rows))]


def test_live_trees_are_those_of_the_replay() -> None:
    texts = random_texts(11, 3, coarse=True)
    long = [one for one in texts.sequences if len(one.text) > 2]
    assert len(long) > 1
    shared = shared_composition(JointBudget(10))
    assert shared is not None
    drafts: list[Draft] = [draft_source(shared.needs, one)(1) for one in long]
    trees = select_together(shared, drafts)
    assert sum(tree.num_drafted for tree in trees) == 10
    whole = texts_of(long)
    roots = whole.roots.firsts[:-1] + 1
    sizes, _ = rounds_of_policy(JointBudget(10), whole)(roots)
    assert [tree.num_drafted for tree in trees] == sizes.tolist()
    for tree, draft in zip(trees, drafts, strict=True):
        alone = DDTree(10).select(draft)
        assert tree.tokens.tolist() == alone.tokens[: tree.num_nodes].tolist()
        assert tree.parents.tolist() == alone.parents[: tree.num_nodes].tolist()


def test_which_policies_are_of_the_batch() -> None:
    assert shared_composition(JointBudget(3)) is not None
    assert shared_composition(JointBudget(3).own) is not None
    assert shared_composition(DDTree(3)) is None
    assert shared_composition(Autoregressive()) is None
    with pytest.raises(ValueError, match="at least 1"):
        JointBudget(0)
