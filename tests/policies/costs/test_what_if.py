"""Machines that nobody measured, cell by cell against what is said of them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_costs import random_table

from simlab.cost import GRID_STAGES, PLAIN, STAGES, CostTable
from simlab.errors import CostError
from simlab.policies.costs.curves import convex_view
from simlab.policies.costs.what_if import WhatIf, parse_what_if, what_if

FACTORS = st.sampled_from([0.25, 0.5, 1.5, 3.0])
CHANGES = st.builds(
    WhatIf,
    st.dictionaries(st.sampled_from([*STAGES, PLAIN]), FACTORS).map(lambda found: tuple(found.items())),
    st.integers(1, 9),
    st.integers(1, 4),
)


def pass_s(cost: CostTable, change: WhatIf, place: int, tokens: int) -> float:
    """Seconds of a pass of so many tokens of all texts together, on the machine with other tiles and speed."""
    most = cost.most_drafted + 1
    while tokens % change.tile and tokens < most:
        tokens += 1
    return float(cost.seconds["verify"][place, tokens - 1]) * dict(change.factors).get("verify", 1.0)


@given(st.integers(0, 10**6), CHANGES)
def test_each_cell_is_as_said(seed: int, change: WhatIf) -> None:
    cost = random_table(np.random.default_rng(seed))
    changed, factors, batch = what_if(cost, change), dict(change.factors), change.batch
    assert changed.most_drafted == (cost.most_drafted + 1) // batch - 1
    assert changed.contexts.tolist() == cost.contexts.tolist()
    for index in range(len(cost.contexts)):
        for n in range(changed.most_drafted + 1):
            assert changed.seconds["verify"][index, n] == pass_s(cost, change, index, batch * (n + 1))
            for stage in ("draft", "select", "commit"):
                assert changed.seconds[stage][index, n] == cost.seconds[stage][index, n] * factors.get(stage, 1.0)
        # A token of plain decoding is a pass of the target too: it takes the factor, fills a tile, and is shared.
        untiled = float(cost.seconds["verify"][index, 0]) * factors.get("verify", 1.0)
        more = max(pass_s(cost, change, index, batch) - untiled, 0.0)
        scaled = cost.seconds[PLAIN][index, 0] * factors.get(PLAIN, factors.get("verify", 1.0))
        assert changed.seconds[PLAIN][index, 0] == pytest.approx(scaled + more, rel=1e-12)


@given(CHANGES)
def test_a_label_is_read_as_what_it_is_of(change: WhatIf) -> None:
    if change.label:
        assert parse_what_if(change.label) == change


@given(st.integers(0, 10**6), CHANGES, CHANGES)
def test_ids_differ_with_the_change_alone(seed: int, first: WhatIf, second: WhatIf) -> None:
    cost = random_table(np.random.default_rng(seed))
    ids = what_if(cost, first).cost_id, what_if(cost, second).cost_id
    assert (ids[0] == ids[1]) == (first.label == second.label)
    assert (ids[0] == cost.cost_id) == (first.label == "")


def test_a_tile_is_a_staircase() -> None:
    """With tiles of 4 one token drafted costs what three cost: their passes fill one tile."""
    verify = np.arange(1.0, 11.0)[None]
    seconds = {stage: np.zeros((1, 10)) for stage in GRID_STAGES} | {"verify": verify, PLAIN: np.ones((1, 1))}
    changed = what_if(CostTable("made-up", np.array([1]), seconds), parse_what_if("tile=4"))
    assert changed.seconds["verify"][0].tolist() == [4.0] * 4 + [8.0] * 4 + [10.0] * 2
    assert changed.seconds[PLAIN].tolist() == [[4.0]]
    both = what_if(CostTable("made-up", np.array([1]), seconds), parse_what_if("tile=4,batch=2"))
    assert both.seconds[PLAIN].tolist() == [[4.0]]


def test_typed_in_any_order_it_is_the_same_machine() -> None:
    cost = random_table(np.random.default_rng(0))
    first, second = (
        parse_what_if(text) for text in ("batch=2, tile=4,plain*2,verify*.5", "verify*0.5,plain*2.0,tile=4,batch=2")
    )
    assert first == second
    assert first.label == "verify*0.5,plain*2,tile=4,batch=2"
    assert what_if(cost, first).cost_id == what_if(cost, second).cost_id
    assert what_if(cost, parse_what_if("tile=1")) is cost


def test_the_convex_view_comes_last() -> None:
    cost = random_table(np.random.default_rng(3))
    stairs = what_if(cost, parse_what_if("tile=5"))
    both = what_if(cost, parse_what_if("convex,tile=5"))
    np.testing.assert_array_equal(both.seconds["verify"], convex_view(stairs).seconds["verify"])
    assert len({cost.cost_id, stairs.cost_id, both.cost_id}) == 3


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "cannot read ''"),
        ("verify", "cannot read 'verify'"),
        ("verify*0.5;tile=4", "cannot read"),
        ("verify*-1", "cannot read"),
        ("verify*nan", "cannot read"),
        ("tile=0", "tile: expected a whole number, at least 1; got '0'"),
        ("tile=4,tile=4", "each once"),
        ("convex,convex", "each once"),
        ("verfy*2", "'verfy' is no stage"),
        ("verify*0", "must be a number above 0"),
        ("plain*0", "must be a number above 0"),
        ("verify*1e999", "must be a number above 0"),
        ("verify*2,verify*3", "scaled twice"),
    ],
)
def test_what_makes_no_sense_is_refused(text: str, said: str) -> None:
    with pytest.raises(CostError) as refused:
        parse_what_if(text)
    assert said in str(refused.value)


def test_a_batch_beyond_the_prices_is_refused() -> None:
    cost = random_table(np.random.default_rng(0), most_drafted=20)
    assert what_if(cost, parse_what_if("batch=21")).most_drafted == 0
    with pytest.raises(CostError, match="at least 22 tokens, and this latency profile ends at 21"):
        what_if(cost, parse_what_if("batch=22"))
    assert what_if(cost, parse_what_if("draft*0")).seconds["draft"].max() == 0
    with pytest.raises(CostError, match="at least 1; got 0 and 1"):
        WhatIf(tile=0)


@given(st.integers(0, 10**6), CHANGES)
def test_draws_of_the_prices_are_changed_as_the_prices_are(seed: int, change: WhatIf) -> None:
    rng = np.random.default_rng(seed)
    cost = random_table(rng)
    drawn = [
        replace(
            cost, seconds={stage: array * rng.lognormal(0, 0.1, array.shape) for stage, array in cost.seconds.items()}
        )
        for _ in range(3)
    ]
    changed = what_if(replace(cost, draws=tuple(drawn)), change)
    for found, costs in zip(changed.draws, drawn, strict=True):
        for stage, seconds in what_if(costs, change).seconds.items():
            np.testing.assert_array_equal(found.seconds[stage], seconds)
    # Least squares bend each draw otherwise, so its spread would say nothing of the convex curve.
    assert what_if(replace(cost, draws=tuple(drawn)), WhatIf(convex=True)).draws == ()
