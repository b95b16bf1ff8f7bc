"""Pools of a TAPS scorer: against a plain beam, against the drafter's own trees, dense and one by one."""

import heapq
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from marginals import token_paths
from random_heads import VOCAB_SIZE, base_at, drafted, random_scorer
from random_trees import random_models

from simlab.channels import POOL, Pool, PoolRows
from simlab.draft import Draft
from simlab.errors import MissingChannelError, ModelError
from simlab.grid import STEPS_PER_NAT, to_grid
from simlab.policies.edges.models import Marginal
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.orders.lattice_order import LatticeOrder
from simlab.policies.orders.lattice_sources import PoolSource
from simlab.policy import ChannelNeed
from simlab.real_runner.drafters.dense import BlockStates
from simlab.real_runner.models import Models
from simlab.real_runner.networks.candidates import BaseCandidates, base_of
from simlab.real_runner.networks.producer import Drafted
from simlab.real_runner.networks.taps.config import PoolReach, ScorerSizes
from simlab.real_runner.networks.taps.pool import TapsProducer, beam_nodes, pools_of, scorer_inputs
from simlab.real_runner.networks.taps.scorer import ScorerInputs, TapsScorer

REACHES = [PoolReach(4, 6), PoolReach(9, 3), PoolReach(1, 1), PoolReach(40, 23)]
NEED = ChannelNeed("pool", POOL)


def random_base(seed: int, depth: int, width: int, tied: bool) -> BaseCandidates:
    generator = np.random.default_rng(seed)
    if tied:
        values = generator.integers(0, 4, (3, depth, width)) * -0.5
    else:
        values = -np.abs(generator.normal(size=(3, depth, width)) * 2) - 0.7
    ids = np.stack([[generator.permutation(50)[:width] for _ in range(depth)] for _ in range(3)])
    return BaseCandidates(ids.astype(np.int32), to_grid(-np.sort(-values)))


def plain_beam(log_probs: np.ndarray, beam: int) -> list[list[tuple[int, ...]]]:
    """The paths of ranks that are kept of each depth, by all extensions of those above, sorted."""
    kept: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    depths = []
    for row in log_probs.tolist():
        steps = [round(-value * STEPS_PER_NAT) for value in row]
        found = [
            (cost + step, index, rank, path)
            for index, (cost, path) in enumerate(kept)
            for rank, (step, path) in enumerate((step, path) for step in steps)
        ]
        kept = [(cost, (*path, rank)) for cost, _, rank, path in heapq.nsmallest(beam, found)]
        depths.append([path for _, path in kept])
    return depths


@settings(max_examples=examples(60))
@given(
    st.integers(0, 1 << 30), st.integers(1, 4), st.integers(1, 6), st.integers(1, 6), st.integers(1, 9), st.booleans()
)
def test_the_pool_is_the_plain_beam(seed: int, depth: int, width: int, extensions: int, beam: int, tied: bool) -> None:
    base = random_base(seed, depth, width, tied)
    reach = PoolReach(beam, min(extensions, width))
    nodes = beam_nodes(base, reach)
    for root in range(len(base)):
        expected = plain_beam(base.log_probs[root, :, : reach.extensions], beam)
        assert list(nodes.sizes) == [len(paths) for paths in expected] == reach.sizes(depth)
        paths = token_paths(nodes.ranks[root].tolist(), nodes.parents[root].tolist())
        assert paths == [path for some in expected for path in some]
        ids = [int(base.ids[root, len(path) - 1, path[-1]]) for path in paths]
        assert nodes.tokens[root].tolist() == ids
        assert nodes.depths.tolist() == [len(path) for path in paths]


@settings(max_examples=examples(40))
@given(st.integers(0, 1 << 30), st.integers(1, 4), st.integers(1, 9), st.booleans())
def test_a_pool_holds_the_same_paths_in_the_order_of_the_format(seed: int, depth: int, beam: int, tied: bool) -> None:
    """Whatever the scores are; `PoolRows` checks the order."""
    base = random_base(seed, depth, 5, tied)
    nodes = beam_nodes(base, PoolReach(beam, 5))
    generator = np.random.default_rng(seed)
    scores = to_grid(
        generator.integers(-3, 1, nodes.tokens.shape) * 0.5 if tied else -generator.random(nodes.tokens.shape)
    )
    for root, pool in enumerate(pools_of(nodes, scores).rows()):
        paths = token_paths(nodes.tokens[root].tolist(), nodes.parents[root].tolist())
        assert scored_paths(pool) == dict(zip(paths, scores[root].tolist(), strict=True))
        assert pool.expanded.tolist() == [number + 1 in pool.parents for number in range(len(pool.tokens))]
        keys = list(zip(pool.parents.tolist(), (-pool.log_probs).tolist(), pool.tokens.tolist(), strict=True))
        assert keys == sorted(keys)


def scored_paths(pool: Pool) -> dict[tuple[int, ...], float]:
    return dict(zip(token_paths(pool.tokens.tolist(), pool.parents.tolist()), pool.log_probs.tolist(), strict=True))


def models_of(dtype: torch.dtype = torch.float64) -> Models:
    return random_models("qwen3", 1, VOCAB_SIZE, dtype)


def pools_for(models: Models, scorer: TapsScorer, reach: PoolReach) -> PoolRows:
    states, marginals, roots = drafted(models)
    producer = TapsProducer(models.block_drafter, models.target, reach, scorer)
    return producer.pools(states, roots, base_at(marginals, reach.width))


def untrained(models: Models) -> TapsScorer:
    config = models.drafter.config
    return TapsScorer(ScorerSizes(config.hidden_size, config.depth, inner_size=9)).eval()


@pytest.mark.parametrize("reach", REACHES, ids=str)
def test_an_untrained_scorer_says_what_the_marginals_say(reach: PoolReach) -> None:
    """Integer for integer; and where the beam is as wide as the tree, the tree is that of the marginals."""
    models = models_of()
    _, marginals, roots = drafted(models)
    found = list(pools_for(models, untrained(models), reach).rows())
    assert len(found) == len(roots)
    for root, (pool, base) in enumerate(zip(found, marginals, strict=True)):
        own = [dict(zip(*(values.tolist() for values in base.at(depth)), strict=True)) for depth in range(1, 5)]
        assert all(score == own[len(path) - 1][path[-1]] for path, score in scored_paths(pool).items())
        draft = Draft(base, int(roots[root]), np.array([5, int(roots[root])], np.int32), 1, {"pool": pool})
        most = min(reach.beam, 12)
        ours = LatticeOrder(PoolSource(NEED)).nodes(draft, most)
        theirs = BestFirst(Marginal(reach.extensions)).nodes(draft, most)
        assert ours.tokens.tolist() == theirs.tokens.tolist()
        assert ours.parents.tolist() == theirs.parents.tolist()
        assert ours.scores.tolist() == theirs.scores.tolist()


@torch.inference_mode()
def inputs_of(models: Models, reach: PoolReach) -> ScorerInputs:
    states, marginals, roots = drafted(models)
    base = base_at(marginals, reach.width)
    return scorer_inputs(models.block_drafter, models.target, states, roots, base, beam_nodes(base, reach))


def test_the_outcomes_below_a_node_add_up_to_what_the_marginals_have() -> None:
    models = models_of()
    inputs = inputs_of(models, PoolReach(5, 7))
    with torch.inference_mode():
        children, others = random_scorer(models)(inputs)
    assert (children.exp() > 0).all()
    # The marginals lie on the grid, so they add up to 1 as nearly as that allows.
    sums = others.exp().scatter_add(1, inputs.parents, children.exp())
    assert sums.sub(1).abs().max() < 1e-4
    corrected = children - inputs.log_probs.double()
    assert corrected.abs().max() > 0.1


def test_a_scorer_is_plain_arithmetic() -> None:
    """One pool in plain Python: features, both networks, and the law below each node."""
    models = models_of()
    scorer, inputs = random_scorer(models), inputs_of(models, PoolReach(3, 5))
    with torch.inference_mode():
        children, _ = scorer(inputs)
        tokens, states = scorer.token(inputs.embedded[0]), scorer.state(inputs.states[0])
        parents, depths = inputs.parents[0].tolist(), inputs.depths.tolist()
        logs = inputs.log_probs[0].tolist()
        for node, (parent, depth) in enumerate(zip(parents, depths, strict=True)):
            path, above = logs[node], parent
            while above:
                path, above = path + logs[above - 1], parents[above - 1]
            siblings = [one for one, its in enumerate(parents) if its == parent]
            rest = max(1 - sum(math.exp(logs[sibling]) for sibling in siblings), 0.0)

            def said(log_prob: float, weight: float, *rows: torch.Tensor, at: int = depth) -> float:
                place = [log_prob, *inputs.spread[0, at - 1].tolist(), at / scorer.sizes.depth, weight, weight / at]
                parts = (*rows, states[at - 1], scorer.depth.weight[at - 1], torch.tensor(place))
                network = scorer.edge if len(rows) == 2 else scorer.other
                return float(network(torch.cat(parts)))

            corrections = {
                sibling: said(logs[sibling], path - logs[node] + logs[sibling], tokens[1 + sibling], tokens[parent])
                for sibling in siblings
            }
            other = said(math.log(max(rest, 1e-9)), path - logs[node], tokens[parent])
            total = sum(math.exp(logs[sibling] + corrections[sibling]) for sibling in siblings) + rest * math.exp(other)
            assert float(children[0, node]) == pytest.approx(logs[node] + corrections[node] - math.log(total), abs=2e-4)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_dense_pools_are_those_of_one_root(dtype: torch.dtype) -> None:
    models, reach = models_of(dtype), PoolReach(5, 7)
    scorer = random_scorer(models)
    dense = list(pools_for(models, scorer, reach).rows())
    states, marginals, roots = drafted(models)
    for t, (base, root) in enumerate(zip(marginals, roots, strict=True)):
        own = BlockStates(states.before[t : t + 1], states.after[t : t + 1])
        producer = TapsProducer(models.block_drafter, models.target, reach, scorer)
        live = producer.at_root(Drafted(int(root), 0, base, own))
        assert isinstance(live, Pool)
        one, other = scored_paths(live), scored_paths(dense[t])
        assert one.keys() == other.keys()
        assert max(abs(one[path] - other[path]) for path in one) < 1e-4


def test_a_policy_gets_the_beam_that_it_reads_or_nothing() -> None:
    models = models_of()
    producer = TapsProducer(models.block_drafter, models.target, PoolReach(5, 99), untrained(models))
    assert producer.width == VOCAB_SIZE
    assert producer.within(replace(NEED, equal=(("beam", 5),))) is producer
    with pytest.raises(MissingChannelError, match="beam 4"):
        producer.within(replace(NEED, equal=(("beam", 4),)))
    with pytest.raises(MissingChannelError, match="of the kind transitions"):
        producer.within(ChannelNeed("pool", "transitions"))
    with pytest.raises(ValueError, match="beam of a pool must be at least 1"):
        PoolReach(0, 1)


def test_numbers_that_are_none_are_refused() -> None:
    models = models_of()
    scorer = random_scorer(models)
    next(scorer.edge.parameters()).fill_(math.nan)
    with pytest.raises(ModelError, match="numbers"):
        pools_for(models, scorer, PoolReach(3, 3))


def test_marginals_that_are_too_narrow_are_refused() -> None:
    _, marginals, _ = drafted(models_of())
    with pytest.raises(ModelError, match="min-width 24"):
        base_of(marginals[0], 24)
