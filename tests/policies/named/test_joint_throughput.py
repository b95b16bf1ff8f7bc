"""The number of drafted tokens of a batch by expected throughput: against plain Python, ties, one text and refusals."""

import math

import numpy as np
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_artefacts import MadeUpArtefacts
from served_oracle import HowMany, random_texts, served_by_hand

from simlab.arrays import Doubles
from simlab.cost import GRID_STAGES, PLAIN, CostTable
from simlab.errors import PolicyError
from simlab.policies.composition import Composition, check_batch, shared_composition, shared_tree_sizes
from simlab.policies.engine.lock_step import ServedRounds, rounds_of_policy, serve, served_sums, with_filler_requests
from simlab.policies.engine.replay import Replay
from simlab.policies.named.caddtree import CaDDTree
from simlab.policies.named.ddtree import DDTree
from simlab.policies.named.joint_throughput import JointThroughput
from simlab.policies.parsing.parse import parse_policies
from simlab.policies.rules.budgets import shared_sizes


def priced(budget: int, cost: CostTable, look_ahead: int = 0) -> Composition:
    return JointThroughput(budget, look_ahead).compose(MadeUpArtefacts(cost))


def prices(seed: int, jagged: bool) -> CostTable:
    """Seconds that rise in a straight line with the number of drafted tokens, or about so, up and down."""
    numbers, contexts = np.arange(41), np.array([4, 16, 60])
    step = np.random.default_rng(seed).uniform(0.8, 1.2, (3, 41)) if jagged else 1.0
    rows = {
        stage: (1 + contexts / 90)[:, None] * (4 - index + numbers) * step for index, stage in enumerate(GRID_STAGES)
    }
    return CostTable("made-up", contexts, rows | {PLAIN: np.ones((3, 1))})


def flat_table(seconds: list[float]) -> CostTable:
    """Verification takes these seconds, whatever the context; all else takes none."""
    rows = {stage: np.zeros((1, len(seconds))) for stage in GRID_STAGES} | {PLAIN: np.ones((1, 1))}
    return CostTable("made-up", np.array([1000]), {**rows, "verify": np.array([seconds])})


# The oracle: the seconds of every number by hand


def seconds_of(cost: CostTable, mean_drafted: float, context: int) -> float:
    """What a round takes; both interpolations are linear."""
    low = math.floor(mean_drafted)
    found = 0.0
    for stage in GRID_STAGES:
        ends = [
            float(np.interp(context, cost.contexts, cost.seconds[stage][:, n])) for n in (low, math.ceil(mean_drafted))
        ]
        found += ends[0] + (mean_drafted - low) * (ends[1] - ends[0])
    return found


def by_throughput(cost: CostTable, look_ahead: int) -> HowMany:
    def how_many(scores: list[float], contexts: list[int]) -> int:
        num_texts, context = len(contexts), round(sum(contexts) / len(contexts))
        expected = [num_texts + sum(math.exp(score) for score in scores[:n]) for n in range(len(scores) + 1)]
        best, missed = 0, 0
        rates = [tokens / seconds_of(cost, n / num_texts, context) for n, tokens in enumerate(expected)]
        for n in range(1, len(rates)):
            # A hair more is rounding: the sums here are not exact.
            if rates[n] > rates[best] * (1 + 1e-12):
                best, missed = n, 0
            else:
                missed += 1
                if missed == look_ahead:
                    break
        return best

    return how_many


def check_served(seed: int, num: int, batch: int, budget: int, coarse: bool, cost: CostTable, look_ahead: int) -> int:
    """Compare with the server in plain Python; the number of different totals that were chosen."""
    texts = random_texts(seed, num, coarse)
    rounds, batches = served_by_hand(texts, batch, budget, by_throughput(cost, look_ahead))
    policy = priced(budget, cost, look_ahead)
    served = serve(texts, batch, rounds_of_policy(policy, texts), with_filler_requests(num))
    found = [
        list(zip(column.positions.tolist(), column.num_drafted.tolist(), column.num_accepted.tolist(), strict=True))
        for column in served.text_rounds(texts).columns(texts)
    ]
    assert found == rounds
    assert served.mean_drafted.tolist() == [sum(sizes) / len(sizes) for sizes, _ in batches]
    return len({sum(sizes) for sizes, _ in batches})


@settings(max_examples=examples(80, quick=40))
@given(
    seed=st.integers(0, 1 << 20),
    num=st.integers(1, 7),
    batch=st.integers(1, 5),
    budget=st.integers(1, 40),
    coarse=st.booleans(),
    jagged=st.booleans(),
    look_ahead=st.sampled_from([0, 1, 3]),
)
def test_the_number_is_the_servers(
    seed: int, num: int, batch: int, budget: int, coarse: bool, jagged: bool, look_ahead: int
) -> None:
    check_served(seed, num, batch, budget, coarse, prices(seed, jagged), look_ahead)


def test_the_number_differs_from_round_to_round() -> None:
    """Otherwise the comparison above says little."""
    for jagged in (False, True):
        assert max(check_served(seed, 6, 3, 40, False, prices(seed, jagged), 0) for seed in range(4)) > 4


@given(
    rows=st.lists(st.lists(st.integers(0, 5), max_size=8), min_size=1, max_size=5),
    seed=st.integers(0, 1 << 20),
    budget=st.integers(1, 30),
)
def test_no_fixed_number_has_more_tokens_per_second_at_the_prices_of_the_replay(
    rows: list[list[int]], seed: int, budget: int
) -> None:
    """Priced by `ServedRounds.seconds`, as rounds are in the table."""
    scores = np.full((len(rows), 31), -np.inf)
    for row, values in zip(scores, rows, strict=True):
        row[0], row[1 : len(values) + 1] = 0.0, -np.sort(values) / 2
    cost, texts = prices(seed, jagged=True), random_texts(1, 1, coarse=False)
    contexts = np.arange(len(rows), dtype=np.int64) * 7
    nothing = np.zeros(1, np.int64)

    def rate(sizes: list[int]) -> float:
        tokens = sum(np.exp(row[: n + 1]).sum() for row, n in zip(scores, sizes, strict=True))
        mean = np.array([sum(sizes) / len(sizes)])
        rounds = ServedRounds(nothing, nothing, nothing, nothing, mean, np.array([contexts.mean()]))
        return float(tokens / rounds.seconds(texts, cost, GRID_STAGES).sum())

    chosen = shared_tree_sizes(priced(budget, cost), scores, contexts).tolist()
    fixed = [shared_sizes(scores, n).tolist() for n in range(budget + 1)]
    assert chosen in fixed
    assert rate(chosen) >= max(rate(sizes) for sizes in fixed) * (1 - 1e-12)


# Ties


def certain(num_texts: int, num: int) -> Doubles:
    """Nodes that are all reached for sure."""
    return np.zeros((num_texts, num + 1))


@pytest.mark.parametrize("num_texts", [1, 2, 4])
@pytest.mark.parametrize("look_ahead", [0, 1])
def test_of_equal_numbers_the_smallest_is_taken(num_texts: int, look_ahead: int) -> None:
    """Each certain token costs what it brings: n of them are expected to take (S + n) / S seconds."""
    contexts = np.zeros(num_texts, np.int64)
    policy = priced(16, flat_table([1.0 + n for n in range(17)]), look_ahead)
    assert shared_tree_sizes(policy, certain(num_texts, 16), contexts).sum() == 0
    # Better up to one token of each, and from there on as good.
    cheaper = priced(16, flat_table([1.0, *(0.75 * (1 + n) for n in range(1, 17))]), look_ahead)
    assert shared_tree_sizes(cheaper, certain(num_texts, 16), contexts).sum() == num_texts


def test_every_number_is_tried_unless_it_stops_at_the_first() -> None:
    """A step in the prices hides a better number behind a worse one."""
    table = flat_table([1.0, 3.0, 1.1])
    scores, contexts = certain(1, 2), np.zeros(1, np.int64)
    assert shared_tree_sizes(priced(2, table), scores, contexts).tolist() == [2]
    assert shared_tree_sizes(priced(2, table, look_ahead=1), scores, contexts).tolist() == [0]
    assert shared_tree_sizes(priced(2, table, look_ahead=2), scores, contexts).tolist() == [2]


# One text


@settings(max_examples=examples(40))
@given(
    seed=st.integers(0, 1 << 20),
    num=st.integers(1, 5),
    coarse=st.booleans(),
    jagged=st.booleans(),
    look_ahead=st.sampled_from([0, 1, 2]),
)
def test_one_text_at_a_time_is_caddtree(seed: int, num: int, coarse: bool, jagged: bool, look_ahead: int) -> None:
    texts, cost = random_texts(seed, num, coarse), prices(seed, jagged)
    policy = priced(30, cost, look_ahead)
    alone = CaDDTree(30, look_ahead, overhead=True).compose(MadeUpArtefacts(cost))
    expected = Replay([(alone, cost)]).sums(texts)
    for found in (served_sums(policy, texts, 1, cost), Replay([(policy, cost)]).sums(texts)):
        assert found.counts.tolist() == expected.counts.tolist()
        assert np.allclose(found.seconds, expected.seconds)


# Prices that are not there


def test_numbers_without_a_price_are_refused_for_a_full_batch_and_not_tried_for_fewer_texts() -> None:
    policy = priced(8, flat_table([1.0, 1.0, 1.0]))
    check_batch(policy, 4)
    with pytest.raises(
        PolicyError, match="with 3 texts at a time: the latency profile ends at 2 .* at most 6, or measure more"
    ):
        check_batch(policy, 3)
    with pytest.raises(PolicyError, match="with 1 text: .* at most 2"):
        served_sums(policy, random_texts(0, 2, coarse=False), 1, None)
    with pytest.raises(PolicyError, match="with 1 text"):
        Replay([(policy, None)]).sums(random_texts(0, 2, coarse=False))
    for num_texts, total in ((4, 8), (3, 6), (1, 2)):
        assert shared_tree_sizes(policy, certain(num_texts, 8), np.zeros(num_texts, np.int64)).sum() == total
    check_batch(DDTree(900), 1)


def test_it_is_a_policy_of_the_batch_and_needs_prices() -> None:
    (named,) = parse_policies(["joint-throughput:budget=50"], MadeUpArtefacts(flat_table([1.0] * 17)))
    assert shared_composition(named.policy) is named.policy
    assert named.policy.budget == 50
    with pytest.raises(PolicyError, match="weighs tokens against latency and needs a latency profile"):
        parse_policies(["joint-throughput:budget=8"])
    with pytest.raises(PolicyError, match="needs a budget"):
        parse_policies(["joint-throughput"])
    for wrong in ("budget=0", "budget=3,look_ahead=-1"):
        with pytest.raises(PolicyError, match="at least 1"):
            parse_policies([f"joint-throughput:{wrong}"], MadeUpArtefacts(flat_table([1.0])))


# A planted fault
