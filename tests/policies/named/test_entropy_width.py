"""Width caps by entropy, against the shares in plain Python and best-first trees of the rows they cut."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import oracle
import pytest
import shape_oracles
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from order_checks import (
    as_rows,
    check_nested,
    check_nodes,
    draft_of,
    real_rows,
    rows_strategy,
    texts,
)

from simlab.arrays import Floats
from simlab.errors import MissingChannelError
from simlab.grid import path_weight, to_grid
from simlab.policies.artefacts import NoArtefacts
from simlab.policies.named.ddtree import DDTree
from simlab.policies.named.entropy_width import (
    EntropyWidth,
    WidthCapped,
    WidthCaps,
    bin_caps,
    coverage_caps,
    least_prob_caps,
    proportional_caps,
)
from simlab.policies.parsing.parse import parse_policies
from simlab.recorded import texts_of
from simlab.sequence_replay import draft_source
from simlab.traces.reader import open_trace, packaged_trace

POLICIES = [
    EntropyWidth(),
    EntropyWidth(budget=1, top_k=1),
    EntropyWidth(budget=12, base_width=2, power=0.5),
    EntropyWidth(budget=20, most_width=3, power=2.0, top_k=8),
    EntropyWidth(budget=30, power=0.0),
    EntropyWidth(budget=30, caps="coverage"),
    EntropyWidth(budget=30, caps="coverage", coverage=0.5, top_k=5, most_width=4),
    EntropyWidth(budget=30, caps="probability", least_prob=0.1),
    EntropyWidth(budget=30, caps="bins"),
    EntropyWidth(budget=30, caps="bins", entropies="0.6163,2.0092", widths="1,3,9", top_k=6),
]


def cut(rows: list[oracle.Row], widths: list[int]) -> list[oracle.Row]:
    return [row[:width] for row, width in zip(rows, widths, strict=True)]


laws = st.integers(0, 2000).map(lambda seed: real_rows(seed, 1 + seed % 7, 2 + seed % 6))
"""Of 1 to 7 depths."""

# Of a whole vocabulary, so that they have nothing to do with the few candidates that are kept.
whole_entropies = st.lists(
    st.one_of(st.integers(0, 12 * 1024).map(lambda steps: steps / 1024), st.sampled_from([0.0, 1.5, 3.0, 10.8])),
    min_size=7,
    max_size=7,
)


@settings(max_examples=examples(200, quick=40))
@given(
    laws,
    whole_entropies,
    st.integers(1, 60),
    st.sampled_from([0.0, 1.0, 2.0, 3.0]),
    st.integers(1, 3),
    st.integers(1, 60),
)
def test_it_is_best_first_below_the_shares(
    rows: list[oracle.Row], whole: list[float], budget: int, power: float, base: int, most_width: int
) -> None:
    entropies = whole[: len(rows)]
    widths = shape_oracles.entropy_widths(entropies, budget, power, base, most_width)
    expected = oracle.best_paths_by_heap(cut(rows, widths), budget)
    order = WidthCapped(proportional_caps(budget, power, base_width=base, most_width=most_width), 64)
    check_nodes(order.nodes(draft_of(rows, entropies), budget), rows, expected)


def released_widths(entropies: Floats, budget: int) -> list[int]:
    """The release's arithmetic, in float32: base width 1, power 1, no width above the budget."""
    fractions = entropies / entropies.sum()
    return [max(1, min(1 + int(float(fraction) * max(0, budget - len(entropies))), budget)) for fraction in fractions]


def released_bins(entropies: Floats) -> list[int]:
    """Its bins of 1.5 and 3 nats, with widths 1, 8 and 24."""
    return [1 if entropy <= 1.5 else 8 if entropy <= 3.0 else 24 for entropy in entropies.tolist()]


@pytest.mark.parametrize(
    ("policy", "widths_at"),
    [
        (EntropyWidth(budget=24), lambda entropies: released_widths(entropies, 24)),
        (EntropyWidth(budget=64), lambda entropies: released_widths(entropies, 64)),
        (EntropyWidth(budget=24, caps="bins"), released_bins),
    ],
    ids=("24", "64", "bins"),
)
def test_on_a_trace_it_is_the_release_with_the_stored_entropies(
    policy: EntropyWidth, widths_at: Callable[[Floats], list[int]]
) -> None:
    """The drafter's entropy over its whole vocabulary, as the trace has it, not that of the candidates it kept."""
    trace = open_trace(packaged_trace())
    num_roots, few = 0, range(examples(3, quick=1))
    for recorded, stored in zip(
        trace.recorded(trace.draft_name(None), few), trace.records(["dflash"], few), strict=True
    ):
        draft, entropies = draft_source(policy.needs, recorded), stored.drafts["dflash"].entropy
        for t in range(len(recorded.text) - 1):
            rows = as_rows(draft(t))
            expected = oracle.best_paths_by_heap(cut(rows, widths_at(entropies[t])), policy.budget)
            tree = policy.select(draft(t))
            assert tree.tokens[1:].tolist() == [rows[len(path) - 1][path[-1]][0] for path in expected], t
            num_roots += 1
    assert num_roots > 30


chosen_rows = st.one_of(
    rows_strategy(5, 6, fewest_ranks=1),
    st.integers(0, 2000).map(lambda seed: real_rows(seed, 1 + seed % 7, 2 + seed % 6)),
)


@settings(max_examples=examples(200, quick=40))
@given(chosen_rows, st.one_of(st.sampled_from([0.0, 0.5, 0.75, 0.8, 0.9, 1.0]), st.floats(0, 1)), st.integers(1, 60))
def test_it_is_best_first_below_a_coverage(rows: list[oracle.Row], coverage: float, most_width: int) -> None:
    widths = shape_oracles.covering_widths(rows, coverage, most_width)
    expected = oracle.best_paths_by_heap(cut(rows, widths), 50)
    check_nodes(WidthCapped(coverage_caps(coverage, most_width), 64).nodes(draft_of(rows), 50), rows, expected)


@settings(max_examples=examples(200, quick=40))
@given(chosen_rows, st.one_of(st.sampled_from([0.0, 0.05, 0.25, 0.5, 1.0]), st.floats(1e-9, 1)), st.integers(1, 60))
def test_it_is_best_first_above_a_probability(rows: list[oracle.Row], least_prob: float, most_width: int) -> None:
    widths = shape_oracles.likely_widths(rows, least_prob, most_width)
    expected = oracle.best_paths_by_heap(cut(rows, widths), 50)
    check_nodes(WidthCapped(least_prob_caps(least_prob, most_width), 64).nodes(draft_of(rows), 50), rows, expected)


@settings(max_examples=examples(200, quick=40))
@given(
    laws,
    whole_entropies,
    st.lists(st.tuples(st.floats(0, 12), st.integers(1, 7)), max_size=4, unique_by=lambda one: one[0]),
    st.integers(1, 7),
    st.integers(1, 60),
)
def test_it_is_best_first_in_bins_of_entropy(
    rows: list[oracle.Row], whole: list[float], bins: list[tuple[float, int]], widest: int, most_width: int
) -> None:
    entropies = whole[: len(rows)]
    borders = sorted(border for border, _ in bins)
    widths = [*(width for _, width in bins), widest]
    of_bins = shape_oracles.binned_widths(entropies, borders, widths, most_width)
    expected = oracle.best_paths_by_heap(cut(rows, of_bins), 50)
    order = WidthCapped(bin_caps(tuple(borders), tuple(widths), most_width), 64)
    check_nodes(order.nodes(draft_of(rows, entropies), 50), rows, expected)


def widths_of(caps: WidthCaps, rows: list[oracle.Row], entropies: list[float] | None = None) -> list[int]:
    """Children of the root, and of its first child, and so on down the spine."""
    nodes = WidthCapped(caps, 64).nodes(draft_of(rows, entropies), 9999)
    spine, found = 0, []
    for _ in rows:
        children = np.flatnonzero(nodes.parents == spine)
        found.append(len(children))
        spine = int(children[nodes.ranks[children] == 0][0])
    return found


def test_what_lies_on_a_border() -> None:
    """Three candidates of 1/2, 1/4 and 1/8, as near as the grid comes."""
    row = [(rank, float(to_grid(-(rank + 1) * math.log(2)))) for rank in range(3)]
    half, quarter, eighth = (float(path_weight(value)) for _, value in row)
    for coverage, width in ((0.0, 1), (half, 1), (half + 1e-9, 2), (half + quarter, 2), (half + quarter + eighth, 3)):
        assert widths_of(coverage_caps(coverage, 9), [row] * 2) == [width, width]
    assert widths_of(coverage_caps(1.0, 9), [row]) == [3]
    for least_prob, width in ((0.25, 2), (0.2501, 1), (0.9, 1), (0.125, 3), (0.0, 3)):
        assert widths_of(least_prob_caps(least_prob, 9), [row]) == [width]
    assert widths_of(bin_caps((1.5,), (1, 3), 9), [row], [1.5]) == [1]
    assert widths_of(bin_caps((math.nextafter(1.5, 0),), (1, 3), 9), [row], [1.5]) == [3]


def test_caps_as_they_are_typed() -> None:
    (one,) = parse_policies(['entropy-width:caps=bins,entropies="0.3,1.2,2.4",widths="1,4,12,32"'])
    assert one.settings["widths"] == "1,4,12,32"
    keys = {policy.compose(NoArtefacts()).order.key for policy in POLICIES}
    assert len(keys) == len(POLICIES)
    wide = EntropyWidth(budget=9, caps="probability", least_prob=0.0).compose(NoArtefacts())
    assert isinstance(wide.order, WidthCapped)
    assert wide.order.caps.most_width == 9


@given(rows_strategy(5, 6), st.integers(0, 30), st.integers(0, 30))
def test_one_order_is_nested(rows: list[oracle.Row], one: int, other: int) -> None:
    draft = draft_of(rows, [1.0 + depth for depth in range(len(rows))])
    check_nested(WidthCapped(proportional_caps(20, 1.0, base_width=1, most_width=20), 64), draft, *sorted((one, other)))


def test_without_entropies_it_is_refused() -> None:
    rows = real_rows(3, 4, 9)
    for caps in ("proportional", "bins"):
        policy = EntropyWidth(budget=9, caps=caps)
        assert policy.needs.entropies
        with pytest.raises(ValueError, match=r"holds no entropies; declare the need for them, Needs\(entropies=True\)"):
            policy.select(draft_of(rows))
    for caps in ("coverage", "probability"):
        policy = EntropyWidth(budget=9, caps=caps)
        assert not policy.needs.entropies
        assert policy.select(draft_of(rows)).num_drafted == 9
    recorded = next(text for text in texts(2, 9) if len(text.text) > 2)
    assert recorded.rows is not None
    bare = replace(recorded, rows=replace(recorded.rows, entropies=None))
    with pytest.raises(MissingChannelError, match="these rows hold none; read them from a trace"):
        draft_source(EntropyWidth().needs, bare)
    with pytest.raises(MissingChannelError, match="these rows hold none; read them from a trace"):
        WidthCapped(bin_caps((1.0,), (1, 2), 9), 64).layer(texts_of([bare]), 9, True)
    assert draft_source(DDTree(8).needs, recorded)(0).drafted().entropies is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"budget": 0}, "budget must be"),
        ({"base_width": 0}, "base_width must be"),
        ({"top_k": 0}, "top_k must be"),
        ({"most_width": 0}, "most_width must be"),
        ({"power": -1.0}, "power must be"),
        ({"power": 17.0}, "power must be"),
        ({"caps": "widest"}, "caps must be one of proportional, coverage, probability, bins"),
        ({"coverage": 1.5}, "coverage must be from 0 to 1"),
        ({"least_prob": -0.1}, "least_prob must be from 0 to 1"),
        ({"entropies": "2,1"}, "entropies must be rising"),
        ({"entropies": "1,inf"}, "entropies must be rising"),
        ({"entropies": "1,x"}, "entropies must be rising"),
        ({"widths": "1,8"}, "widths one whole number more"),
        ({"widths": "1,0,2"}, "widths one whole number more"),
    ],
)
def test_settings_without_sense_are_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        EntropyWidth(**given)  # type: ignore[arg-type]
