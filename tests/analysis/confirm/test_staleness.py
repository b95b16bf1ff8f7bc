"""A latency profile against rounds that ran: planted factors are found, and a corrected profile fits the rounds."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_costs import EMPTY, filled

from simlab.analysis.confirm.errors import FEWEST_ROUNDS, TimedRounds, staleness
from simlab.arrays import Doubles
from simlab.cost import PLAIN, STAGES, CostTable, Visits
from simlab.errors import CostError
from simlab.policies.named.treeflash import TreeFlash
from simlab.studies.confirm.run import repriced
from simlab.studies.inputs.prices import cost_table_of
from simlab.traces.artefacts.cost import CostChannel, CostFile
from simlab.traces.format.manifest_entries import ModelInfo

FILES = (filled(), filled(replace(EMPTY, visits=Visits(1, 1, paired=True))))
SIZES = (1, 8, 64)


def timed(
    cost: CostTable, generator: np.random.Generator, slowed: Doubles, factors: dict[int, float], num: int = 60
) -> tuple[TimedRounds, TimedRounds]:
    """Tokens of plain decoding and rounds of some sizes, on texts that are slowed, at factors times the prices."""
    texts = np.sort(generator.integers(0, len(slowed), num * len(factors)))
    contexts = generator.integers(1, 256, len(texts))
    sizes = generator.permutation(np.repeat(list(factors), num))
    stages = np.stack([cost.at(stage, contexts, sizes) for stage in STAGES], axis=1)
    scale = slowed[texts] * np.array([factors[size] for size in sizes.tolist()])
    rounds = TimedRounds(texts, contexts, sizes, stages * scale[:, None])
    of_plain = np.repeat(np.arange(len(slowed)), 30)
    where = generator.integers(1, 256, len(of_plain))
    seconds = np.zeros((len(of_plain), len(STAGES)))
    seconds[:, STAGES.index("verify")] = cost.at(PLAIN, where, np.zeros_like(where)) * slowed[of_plain]
    return TimedRounds(of_plain, where, np.zeros_like(where), seconds), rounds


@given(st.integers(0, 10**6), st.sampled_from(FILES))
def test_planted_factors_are_found_whatever_slows_a_text(seed: int, file: CostFile) -> None:
    generator, cost = np.random.default_rng(seed), cost_table_of(file)
    factors = {size: float(generator.uniform(0.5, 2)) for size in SIZES}
    plain, rounds = timed(cost, generator, generator.uniform(0.5, 2, 7), factors)
    found = staleness(plain, [(rounds, cost)], cost)
    assert found is not None
    assert {one["num_drafted"]: one["error"] + 1 for one in found.sizes} == pytest.approx(factors)
    assert all(one["rounds"] == 60 for one in found.sizes)
    furthest = max(factors, key=lambda size: abs(factors[size] - 1))
    assert found.worst["num_drafted"] == furthest
    assert found.worst["error"] == pytest.approx(factors[furthest] - 1)


@given(st.integers(0, 10**6), st.sampled_from(FILES))
def test_a_corrected_profile_fits_the_rounds_that_corrected_it(seed: int, file: CostFile) -> None:
    generator = np.random.default_rng(seed)
    factors = {size: float(generator.uniform(0.5, 2)) for size in SIZES}
    plain, rounds = timed(cost_table_of(file), generator, np.full(5, 1.3), factors)
    found = staleness(plain, [(rounds, cost_table_of(file))], cost_table_of(file))
    assert found is not None
    corrected = repriced(file, found)
    again = staleness(plain, [(rounds, cost_table_of(corrected))], cost_table_of(corrected))
    assert again is not None
    assert again.plain == pytest.approx(0.0, abs=1e-9)
    assert [one["error"] for one in again.sizes] == pytest.approx([0.0] * 3, abs=1e-9)
    assert corrected.cost_id != file.cost_id
    assert file.cost_id in corrected.notes[-1]


def test_seconds_change_with_every_stage_by_itself() -> None:
    generator, cost = np.random.default_rng(1), cost_table_of(FILES[0])
    plain, rounds = timed(cost, generator, np.ones(3), {8: 1.0})
    slow = rounds.seconds * np.array([2.0, 1.0, 1.0, 3.0, 1.0])
    found = staleness(plain, [(replace(rounds, seconds=slow), cost)], cost)
    assert found is not None
    assert found.sizes[0]["factors"] == pytest.approx(
        {"draft": 2.0, "channel": 1.0, "select": 1.0, "verify": 3.0, "commit": 1.0}
    )


def test_few_rounds_say_nothing() -> None:
    generator, cost = np.random.default_rng(1), cost_table_of(FILES[0])
    plain, rounds = timed(cost, generator, np.ones(3), {8: 1.0, 1: 2.0}, FEWEST_ROUNDS - 1)
    assert staleness(plain, [(rounds, cost)], cost) is None


def test_texts_without_plain_decoding_are_left_out() -> None:
    generator, cost = np.random.default_rng(1), cost_table_of(FILES[0])
    plain, rounds = timed(cost, generator, np.ones(4), {8: 1.0}, 200)
    first = plain.texts == 0
    fewer = TimedRounds(plain.texts[first], plain.contexts[first], plain.num_drafted[first], plain.seconds[first])
    found = staleness(fewer, [(rounds, cost)], cost)
    assert found is not None
    assert found.sizes[0]["rounds"] == int((rounds.texts == 0).sum())


def test_rounds_beyond_the_profile_are_refused() -> None:
    generator, cost = np.random.default_rng(1), cost_table_of(FILES[0])
    plain, rounds = timed(cost, generator, np.ones(3), {8: 1.0})
    with pytest.raises(CostError, match="measure longer ones"):
        staleness(plain, [(replace(rounds, contexts=rounds.contexts + 1000), cost)], cost)


def test_a_channel_is_held_against_its_own_price_and_corrected_by_one_factor() -> None:
    """Rounds of a policy with a channel and of one without, together; the first are charged."""
    head = CostChannel("transitions", ModelInfo("head", "", "head"), {"top_k": 3}, (2, 4))
    file = filled(replace(FILES[1], channels={"treeflash": head}))
    generator, cost = np.random.default_rng(3), cost_table_of(file)
    charged = cost.charged(TreeFlash(8, previous=4, top_k=3))
    plain, without = timed(cost, generator, np.ones(4), {8: 1.0})
    _, with_channel = timed(charged, generator, np.ones(4), {8: 1.0})
    slow = replace(with_channel, seconds=with_channel.seconds * np.array([1.0, 1.7, 1.0, 1.0, 1.0]))
    found = staleness(plain, [(slow, charged), (without, cost)], cost)
    assert found is not None
    assert found.channel == pytest.approx(1.7)
    (size,) = found.sizes
    assert size["factors"] == pytest.approx({"draft": 1, "channel": 1.7, "select": 1, "verify": 1, "commit": 1})
    corrected = cost_table_of(repriced(file, found))
    assert corrected.channels["treeflash"].seconds == pytest.approx(1.7 * cost.channels["treeflash"].seconds)
    assert corrected.seconds["draft"] == pytest.approx(cost.seconds["draft"])
    unpriced = staleness(plain, [(without, cost)], cost)
    assert unpriced is not None
    assert unpriced.channel == 1
