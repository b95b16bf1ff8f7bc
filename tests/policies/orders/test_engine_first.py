"""Engines' best-first trees against their rules in plain Python, many of the scores equal."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import oracle
import pytest
import sglang_uno
from depth import examples
from engine_wheels import SGLANG, TRITON, wheel_files
from hypothesis import given, settings
from hypothesis import strategies as st
from order_checks import as_rows, check_columns, check_layer, check_nested, check_nodes, draft_of, rows_strategy, texts

from simlab.policies.edges.models import Marginal
from simlab.policies.named.ddtree import DDTree
from simlab.policies.named.served.engine_first import EdgeLLM, Uno
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.orders.engine_first import EDGE_LLM, TIES, UNO, EngineFirst
from simlab.policies.parsing.parse import parse_policies
from simlab.policy import Needs
from simlab.sequence_replay import draft_source
from simlab.traces.reader import open_trace, packaged_trace

NO_END = 10_000


def built(rows: list[oracle.Row], ties: str, top_k: int, most: int) -> list[oracle.Path]:
    """The nodes as paths of ranks, in the order in which they enter; the root is number 0."""
    paths: list[oracle.Path] = [()]
    while len(paths) <= most:
        offers = []
        for number, path in enumerate(paths):
            if len(path) == len(rows):
                continue
            for rank, (token, _) in enumerate(rows[len(path)][:top_k]):
                if (*path, rank) not in paths:
                    mass = oracle.score(rows, (*path, rank))
                    own = (len(path), rank, token, number) if ties == UNO else (number, rank, token)
                    offers.append((-mass, own, (*path, rank)))
        if not offers:
            break
        paths.append(min(offers)[2])
    return paths[1:]


@settings(max_examples=examples(500, quick=100))
@given(rows_strategy(4, 4), st.sampled_from(sorted(TIES)), st.integers(1, 5), st.integers(0, 40))
def test_nodes_enter_as_the_engine_has_them(rows: list[oracle.Row], ties: str, top_k: int, most: int) -> None:
    check_nodes(EngineFirst(ties, top_k).nodes(draft_of(rows), most), rows, built(rows, ties, top_k, most))


def test_equal_paths_part_as_they_are_told() -> None:
    """One candidate a depth of log-probability 0 and one of -1, twice: after the root's first child all else ties."""
    rows: list[oracle.Row] = [[(7, 0.0), (9, -1.0)], [(3, -1.0), (4, -1.0)]]
    assert built(rows, UNO, 2, 4) == [(0,), (1,), (0, 0), (0, 1)]
    assert built(rows, EDGE_LLM, 2, 4) == [(0,), (1,), (0, 0), (0, 1)]
    # Below the second child a path is as probable as the first one's second: UNO goes by depth, Edge-LLM by parent.
    rows = [[(7, -1.0), (9, -1.0)], [(3, 0.0), (4, 0.0)]]
    assert built(rows, UNO, 2, 6) == [(0,), (1,), (0, 0), (1, 0), (0, 1), (1, 1)]
    assert built(rows, EDGE_LLM, 2, 6) == [(0,), (1,), (0, 0), (0, 1), (1, 0), (1, 1)]


@pytest.mark.parametrize("ties", TIES)
@pytest.mark.parametrize("top_k", [1, 3, 64])
def test_a_layer_is_the_nodes_root_by_root(ties: str, top_k: int) -> None:
    order = EngineFirst(ties, top_k)
    for recorded in texts(top_k, 6):
        check_layer(order, recorded, 20)
        typed = f"tree:order={ties},top_k={top_k},budget=1/7/20"
        check_columns([policy.policy for policy in parse_policies([typed])], recorded)


@settings(max_examples=examples(100, quick=20))
@given(rows_strategy(4, 4), st.sampled_from(sorted(TIES)), st.integers(1, 9), st.integers(0, 30), st.integers(0, 30))
def test_smaller_trees_are_beginnings(rows: list[oracle.Row], ties: str, top_k: int, one: int, other: int) -> None:
    check_nested(EngineFirst(ties, top_k), draft_of(rows), min(one, other), max(one, other))


@pytest.mark.parametrize("ties", TIES)
def test_but_for_ties_it_is_best_first(ties: str) -> None:
    """The same scores in the same order; the same nodes wherever the last score is met by no path outside."""
    for recorded in texts(3, 8):
        draft = draft_source(Needs(top_k=9), recorded)(0)
        every = BestFirst(Marginal(5)).nodes(draft, NO_END).scores.tolist()
        for most in (1, 6, 17):
            ours, theirs = EngineFirst(ties, 5).nodes(draft, most), BestFirst(Marginal(5)).nodes(draft, most)
            assert ours.scores.tolist() == theirs.scores.tolist() == every[: most + 1]


def test_named_policies_are_these_orders() -> None:
    assert Uno(9, 3).own.order == EngineFirst(UNO, 3)
    assert Uno(9, 3).own.masked == -2
    assert EdgeLLM(9, 3).own.order == EngineFirst(EDGE_LLM, 3)
    assert EdgeLLM(9, 3).own.masked is None
    assert DDTree(9).own.order != EdgeLLM(9).own.order


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the wheels of SGLang and Triton hold, which are fetched; neither is imported here."""
    wanted = (SGLANG, TRITON)
    return wheel_files(tmp_path_factory.mktemp("wheels"), wanted, ("triton", "sglang/kernels"))


@pytest.mark.thorough
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(("budget", "top_k"), [(23, 4), (28, 7), (12, 2)])
def test_sglangs_own_builder_makes_the_same_trees(wheels: Path, tmp_path: Path, budget: int, top_k: int) -> None:
    """500 made-up rounds full of ties, and 200 of the packaged trace; the kernel runs in Triton's interpreter."""
    chance, depth = np.random.default_rng(budget), 7
    drafts = []
    for _ in range(500):
        steps = -np.sort(chance.integers(0, 4, (depth, top_k)), axis=1)
        rows = [zip(chance.permutation(50)[:top_k].tolist(), map(float, row), strict=True) for row in steps]
        drafts.append([list(row) for row in rows])
    trace = open_trace(packaged_trace())
    for recorded in trace.recorded(trace.draft_name(), range(10)):
        source = draft_source(Needs(top_k=top_k), recorded)
        drafts += [as_rows(source(t)) for t in range(20)]
    assert len(drafts) == 700
    kept = np.array([[row[:top_k] for row in draft] for draft in drafts])
    np.savez(tmp_path / "in.npz", ids=kept[..., 0], log_probs=kept[..., 1], num_nodes=budget + 1)
    script = [sys.executable, sglang_uno.__file__, *map(str, (wheels, tmp_path / "in.npz", tmp_path / "out.npz"))]
    subprocess.run(script, check=True)
    made = np.load(tmp_path / "out.npz")
    for draft, tokens, edges in zip(drafts, made["tokens"], made["edges"], strict=True):
        ours = EngineFirst(UNO, top_k).nodes(draft_of(draft), budget)
        np.testing.assert_array_equal(ours.tokens[1:], tokens)
        np.testing.assert_array_equal(ours.parents[1:] * top_k + ours.ranks[1:], edges)
