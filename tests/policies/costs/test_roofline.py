"""Rooflines: counted bytes and operations against the published terms, planted constants, and where the rule stops."""

from dataclasses import replace

import numpy as np
import pytest
from depth import examples, some
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up_artefacts import TARGET_CONFIG
from made_up_costs import random_table

from simlab.arrays import Doubles
from simlab.cost import GRID_STAGES, PLAIN, CostTable
from simlab.errors import PolicyError
from simlab.grid import path_weight
from simlab.policies.costs.curves import ALL_STAGES, MODEL_STAGES
from simlab.policies.costs.roofline import (
    LayerSizes,
    Roofline,
    fit_roofline,
    layer_sizes,
    roofline_of,
    roofline_rounds,
)
from simlab.policies.orders.node_order import OrderLayer
from simlab.policies.rules.budgets import FloorAndStep

SMALL = layer_sizes(TARGET_CONFIG, "made up")
QWEN3_4B = LayerSizes(36, 2560, 32 * 128, 8 * 128, 32, 9728, 151936)
CONTEXTS = np.array([64.0, 256.0, 1024.0])
SIZES = np.arange(16.0, 513.0, 16.0)


def flops_by_hand(sizes: LayerSizes, c: int, s: int) -> int:
    """Products of matrices, two operations for each multiplication: queries, keys and values, scores, sums, output."""
    h, q, kv = sizes.hidden, sizes.query, sizes.key_value
    attention = 2 * s * h * q + 2 * (2 * s * h * kv) + 2 * s * (c + s) * q + 2 * s * (c + s) * q + 2 * s * q * h
    feed_forward = 3 * (2 * s * h * sizes.feed_forward)
    return sizes.num_layers * (attention + feed_forward) + 2 * s * h * sizes.vocab


def bytes_by_hand(sizes: LayerSizes, c: int, s: int) -> int:
    """Elements of two bytes: weights, rows of the cache, and what each product reads and writes."""
    h, q, kv, f = sizes.hidden, sizes.query, sizes.key_value, sizes.feed_forward
    weights = sizes.vocab * h + sizes.num_layers * (2 * h * q + 2 * h * kv + 3 * h * f) + h * sizes.vocab
    cache = sizes.num_layers * (2 * c * kv + 2 * s * kv)
    scores = sizes.num_heads * s * (c + s)
    products = [
        (s * h) + (s * q + 2 * s * kv),
        (s * q) + scores,
        scores + (s * q),
        (s * q) + (s * h),
        (s * h) + (2 * s * f),
        (2 * s * f) + (s * h),
    ]
    return 2 * (weights + cache + sizes.num_layers * sum(products) + (s * h) + (s * sizes.vocab))


sizes_strategy = st.builds(LayerSizes, *([st.integers(1, 500)] * 7))


@given(sizes_strategy, st.integers(0, 5000), st.integers(1, 600))
def test_what_a_pass_computes_and_moves(sizes: LayerSizes, context: int, tokens: int) -> None:
    place = np.array([float(context)]), np.array([float(tokens)])
    assert sizes.flops(*place).tolist() == [flops_by_hand(sizes, context, tokens)]
    assert sizes.moved_bytes(*place).tolist() == [bytes_by_hand(sizes, context, tokens)]


def test_sizes_are_read_from_a_configuration() -> None:
    assert LayerSizes(3, 24, 32, 16, 4, 50, 300) == SMALL
    bare = {name: value for name, value in TARGET_CONFIG.items() if name not in ("num_key_value_heads", "head_dim")}
    assert layer_sizes(bare, "x") == LayerSizes(3, 24, 24, 24, 4, 50, 300)
    assert layer_sizes({**bare, "head_dim": None, "num_experts": None, "extra": [1]}, "x").key_value == 24
    assert SMALL.sizes_id != QWEN3_4B.sizes_id


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"hidden_size": None}, "x must give hidden_size as a whole number above 0; got None"),
        ({"vocab_size": 1.5}, "vocab_size as a whole number"),
        ({"head_dim": 0}, "head_dim as a whole number"),
        ({"num_hidden_layers": True}, "num_hidden_layers as a whole number"),
        ({"num_experts": 8}, "x is of a mixture of experts, .*cost_model=measured"),
    ],
)
def test_other_configurations_are_refused(changed: dict[str, object], said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        layer_sizes({**TARGET_CONFIG, **changed}, "x")


def test_values_without_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        LayerSizes(0, 1, 1, 1, 1, 1, 1)
    for constants in ((0.0, 0.0, 0.0, 0.0), (-1.0, 0.0, 1.0, 0.0), (float("inf"), 0.0, 1.0, 0.0)):
        with pytest.raises(ValueError, match="constants of a roofline"):
            Roofline(SMALL, *constants)


def grid() -> tuple[Doubles, Doubles]:
    contexts, tokens = np.meshgrid(CONTEXTS, SIZES, indexing="ij")
    return contexts.ravel(), tokens.ravel()


def planted_roofline(generator: np.random.Generator, sizes: LayerSizes) -> Roofline:
    """Both branches are the slower one at several sizes, and constants may be 0."""
    moved, flops = sizes.moved_bytes(*grid()), sizes.flops(*grid())
    while True:
        constants = generator.uniform(0.1, 2, 4) * generator.choice([0, 1, 1], 4)
        roofline = Roofline(
            sizes, constants[0] / moved.mean() + 1e-18, constants[1], constants[2] / flops.mean(), constants[3]
        )
        is_moving = roofline.byte_s * moved + roofline.memory_s > roofline.flop_s * flops + roofline.compute_s
        if all(len(np.unique(grid()[1][which])) > 3 for which in (is_moving, ~is_moving)):
            return roofline


@pytest.mark.parametrize("seed", some(range(12), quick=2))
@pytest.mark.parametrize("sizes", [SMALL, QWEN3_4B])
def test_planted_constants_are_found(seed: int, sizes: LayerSizes) -> None:
    planted = planted_roofline(np.random.default_rng(seed), sizes)
    found = fit_roofline(sizes, *grid(), planted.seconds(*grid()))
    for name in ("byte_s", "memory_s", "flop_s", "compute_s"):
        assert getattr(found, name) == pytest.approx(getattr(planted, name), rel=1e-5, abs=1e-6), name
    assert found == fit_roofline(sizes, *grid(), planted.seconds(*grid()))


constants = st.floats(0, 1e-3, allow_subnormal=False)


@given(sizes_strategy, st.tuples(constants, constants, constants, constants), st.integers(0, 9000))
def test_curves_are_convex_and_rise(sizes: LayerSizes, four: tuple[float, float, float, float], context: int) -> None:
    if not any(four):
        return
    rounds = Roofline(sizes, *four, other_s=0.5)
    seconds = rounds.costs(np.array([context]), 300).seconds[0]
    steps = np.diff(seconds)
    rounding = 1e-13 * seconds[-1]
    assert steps.min() >= -rounding
    assert np.diff(steps).min() >= -rounding
    assert seconds[0] >= 0.5


falling = st.lists(st.integers(0, 1 << 20), max_size=60).map(sorted)


@settings(max_examples=examples(200))
@given(falling, st.integers(0, 999), st.integers(1, 40), st.integers(0, 3000))
def test_the_rule_stops_at_the_best_size_of_all_above_its_floor(
    path_costs: list[int], seed: int, floor: int, context: int
) -> None:
    """Weights fall and seconds are convex, so the first stop is the best one (`CaDDTree`'s theorem)."""
    rounds = replace(planted_roofline(np.random.default_rng(seed), QWEN3_4B), other_s=0.01)
    scores = np.full((1, 61), -np.inf)
    scores[0, : len(path_costs) + 1] = np.array([0, *path_costs]) / -65536
    layer = OrderLayer(np.zeros((1, 0), np.uint16), np.array([len(path_costs)], np.int32), scores)
    table = random_table(np.random.default_rng(seed), 60)
    rule = FloorAndStep(60, table, floor=floor, step=1, roofline=rounds)
    (size,) = rule.sizes(layer, np.array([context])).tolist()
    tokens = 1 + np.cumsum([0.0, *path_weight(scores[0, 1 : len(path_costs) + 1]).tolist()])
    ratios = tokens / rounds.costs(np.array([context]), 60).seconds[0, : len(tokens)]
    assert size >= min(floor - 1, len(path_costs))
    assert ratios[size] >= ratios[min(floor - 1, len(path_costs)) :].max() * (1 - 1e-12)


def priced(roofline: Roofline, most_drafted: int) -> CostTable:
    """A table whose passes cost just what a roofline says, and whose other stages differ by context and size."""
    contexts = np.array([64, 256, 1024])
    pairs = contexts[:, None].astype(np.float64), np.arange(1.0, most_drafted + 2)
    others = np.add.outer(contexts, np.arange(most_drafted + 1)).astype(np.float64) / 1e6
    seconds = dict.fromkeys(GRID_STAGES, others)
    return CostTable(
        "planted", contexts, {**seconds, "verify": roofline.seconds(*pairs), PLAIN: np.ones((len(contexts), 1))}
    )


def test_a_cost_table_is_fitted_at_every_sixteenth_size() -> None:
    planted = planted_roofline(np.random.default_rng(5), QWEN3_4B)
    table = priced(planted, 511)
    assert roofline_of(table, QWEN3_4B) == fit_roofline(QWEN3_4B, *grid(), planted.seconds(*grid()))
    noisy = {stage: np.array(values) for stage, values in table.seconds.items()}
    others = (np.arange(512) + 1) % 16 != 0
    noisy["verify"][:, others] *= 3
    assert roofline_of(CostTable("noisy", table.contexts, noisy), QWEN3_4B) == roofline_of(table, QWEN3_4B)
    other_s = np.mean([[1e-6 * (context + n) for n in range(15, 512, 16)] for context in (64, 256, 1024)])
    assert roofline_rounds(table, QWEN3_4B, MODEL_STAGES).other_s == pytest.approx(other_s)
    assert roofline_rounds(table, QWEN3_4B, ALL_STAGES).other_s == pytest.approx(3 * other_s)


def test_what_cannot_be_fitted_is_refused() -> None:
    planted = planted_roofline(np.random.default_rng(5), QWEN3_4B)
    assert roofline_of(priced(planted, 63), QWEN3_4B).flop_s > 0
    with pytest.raises(PolicyError, match=r"ends at 62 drafted tokens; measure up to 63 or more with `simlab profile"):
        roofline_of(priced(planted, 62), QWEN3_4B)
    contexts, tokens = grid()
    with pytest.raises(PolicyError, match="latencies of 3 sizes of a pass; it takes at least 4"):
        fit_roofline(SMALL, contexts[:3], tokens[:3], np.ones(3))
    with pytest.raises(PolicyError, match="some of these are 0"):
        fit_roofline(SMALL, contexts[:5], tokens[:5], np.zeros(5))


def test_shipped_prices_are_fitted() -> None:
    from simlab.policies.costs.curves import cost_table
    from simlab.traces.artefacts.cost import packaged_cost_files, read_cost_file
    from simlab.traces.artefacts.kinds import find_packaged_config

    for path in packaged_cost_files():
        file = read_cost_file(path)
        config = find_packaged_config(file.target.digest)
        assert config is not None, f"{path.name} is of a target whose sizes do not come with simlab"
        table = cost_table(file.cost_id, file.contexts, file.node_counts, file.samples)
        roofline = roofline_of(table, layer_sizes(config, path.name))
        columns = np.arange(64, table.most_drafted + 1)
        tokens = (columns + 1).astype(np.float64)
        seconds = roofline.seconds(table.contexts[:, None].astype(np.float64), tokens)
        # A CPU's pass of few tokens is no roofline; that of many is bound by its arithmetic.
        assert np.abs(seconds / table.seconds["verify"][:, columns] - 1).mean() < 0.25
