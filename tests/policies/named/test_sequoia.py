"""One tree for all rounds: its size against every tree that there is, under prices of every shape."""

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_artefacts import MadeUpArtefacts
from made_up_costs import random_table
from order_checks import draft_of, real_rows

from simlab.cost import GRID_STAGES, PLAIN, CostTable
from simlab.errors import CostError, PolicyError
from simlab.grid import path_weight
from simlab.policies.artefacts import NoArtefacts
from simlab.policies.named.sequoia import Sequoia, fastest_size, round_seconds
from simlab.policies.orders.node_order import StaticOrder
from simlab.testing import check_policy

TABLE = np.array([[0.5, 0.25, 0.1], [0.25, 0.5, 0.0], [0.5, 0.125, 0.125], [1.0, 0.0, 0.0]])
PRICES = random_table(np.random.default_rng(2), 40, longest=900)
ARTEFACTS = MadeUpArtefacts(PRICES, {"ranks": TABLE})


def fixed_size(recipe: Sequoia, artefacts: MadeUpArtefacts = ARTEFACTS) -> int:
    return recipe.compose(artefacts).budget


def test_a_fixed_size_is_the_beginning_of_the_order() -> None:
    policy = Sequoia(9).compose(ARTEFACTS)
    check_policy(policy, draws=15)
    assert policy.needs.top_k == 3
    assert policy.artefacts == {"ranks": "made-up-ranks"}
    draft = draft_of(real_rows(0, 5, 4))
    nodes = StaticOrder(TABLE, "t").nodes(draft, 9)
    assert policy.select(draft).parents.tolist() == nodes.parents.tolist()
    assert policy.select(draft).tokens.tolist() == nodes.tokens.tolist()
    assert fixed_size(Sequoia()) == 64


def every_tree(table: list[list[float]]) -> list[tuple[int, int, Fraction]]:
    """Size, depth and expected tokens of every tree of ranks, weights on the grid as everywhere."""
    shape = [range(len(row)) for row in table]
    paths = [path for depth in range(1, len(table) + 1) for path in itertools.product(*shape[:depth])]
    costs = [[round(min(-math.log(max(f, 1e-300)), 255.0) * 65536) for f in row] for row in table]
    weights = {
        path: Fraction(float(path_weight(-sum(costs[d][rank] for d, rank in enumerate(path)) / 65536)))
        for path in paths
    }
    found = []
    for chosen in itertools.product((False, True), repeat=len(paths)):
        tree = {path for path, is_in in zip(paths, chosen, strict=True) if is_in}
        if tree and all(len(path) == 1 or path[:-1] in tree for path in tree):
            found.append((len(tree), max(map(len, tree)), 1 + sum((weights[path] for path in tree), Fraction(0))))
    return found


small_tables = st.one_of(
    st.lists(st.lists(st.sampled_from([0.0, 0.125, 0.3, 0.5, 1.0]), min_size=2, max_size=2), min_size=1, max_size=2),
    st.lists(st.lists(st.sampled_from([0.0, 0.3, 0.9]), min_size=1, max_size=1), min_size=1, max_size=4),
    st.lists(st.lists(st.sampled_from([0.1, 0.25, 0.6]), min_size=3, max_size=3), min_size=1, max_size=1),
)


@settings(max_examples=examples(150))
@given(small_tables, st.lists(st.integers(1, 64), min_size=13, max_size=13), st.booleans())
def test_no_tree_of_any_size_and_depth_has_more_tokens_per_second(
    table: list[list[float]], units: list[int], falls: bool
) -> None:
    """The brute force is over all trees; shallow ones are among them, so depth is searched too."""
    seconds = sorted(units) if not falls else units
    ratios: dict[int, Fraction] = {}
    for size, _, tokens in every_tree(table):
        ratios[size] = max(ratios.get(size, Fraction(0)), tokens / seconds[size])
    best = max(ratios.values())
    scores = StaticOrder(np.array(table), "t").scores(12)
    found = fastest_size(scores, np.array(seconds, np.float64))
    assert found == min(size for size, ratio in ratios.items() if float(ratio) == float(best))


def priced(verify: "list[float]") -> CostTable:
    """Prices that are the same at every context but for the stage `commit`."""
    contexts = np.array([10, 100, 1000, 2000])
    rows = np.tile(np.array(verify), (4, 1))
    seconds = {stage: np.zeros_like(rows) for stage in GRID_STAGES}
    steps = np.outer([0.0, 0.0, 1.0, 2.0], np.arange(len(verify)))
    return CostTable("drawn", contexts, {**seconds, "verify": rows, "commit": steps, PLAIN: np.ones((4, 1))})


def test_the_size_is_chosen_once_at_one_context() -> None:
    """In the middle of the measured contexts more tokens are free; where they cost a second each, one is enough."""
    artefacts = MadeUpArtefacts(priced([1.0] * 11 + [5.0] * 10), {"ranks": TABLE})
    assert fixed_size(Sequoia(20, size="hardware"), artefacts) == 10
    assert fixed_size(Sequoia(20, size="hardware", context=100), artefacts) == 10
    assert fixed_size(Sequoia(20, size="hardware", context=2000), artefacts) == 1
    assert fixed_size(Sequoia(size="hardware", budget=4), artefacts) == 4
    assert fixed_size(Sequoia(size="fixed", budget=7), artefacts) == 7
    half = round_seconds(artefacts.cost("auto")[0], 550)
    assert half.tolist() == [1.0 + n / 2 if n < 11 else 5.0 + n / 2 for n in range(21)]


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(PolicyError, match="simlab train ranks"):
        _ = Sequoia().needs
    with pytest.raises(PolicyError, match="needs a latency profile"):
        Sequoia(size="hardware").compose(MadeUpArtefacts(None, {"ranks": TABLE}))
    with pytest.raises(PolicyError, match="searched up to 41 tokens, and its latency profile ends at 40"):
        Sequoia(41, size="hardware").compose(ARTEFACTS)
    with pytest.raises(CostError, match="901 tokens before its root"):
        Sequoia(40, size="hardware", context=901).compose(ARTEFACTS)
    with pytest.raises(PolicyError, match="makes no tree"):
        fastest_size(np.zeros(1), np.ones(3))
    assert NoArtefacts().min_width() == 64


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"budget": 0}, "budget must be at least 1"),
        ({"size": "large"}, "size must be fixed or hardware; got large"),
        ({"context": 5}, "context is where size=hardware"),
        ({"size": "hardware", "context": -1}, "context must be at least 0"),
    ],
)
def test_settings_without_sense_are_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Sequoia(**given)  # type: ignore[arg-type]
