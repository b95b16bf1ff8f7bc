"""A number and its cuts: the same route for one root and for many, and nothing else is taken for a rule."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlab.channels import TARGET, TargetLaw, TargetLawRows
from simlab.draft import Draft
from simlab.errors import MissingChannelError
from simlab.policies.routing.cut_rule import NO_ROUND, NUMBERS, CutRule, parse_cuts
from simlab.recorded import RecordedTexts, texts_of
from simlab.testing.random_texts import random_sequence

SOME_CUTS = st.lists(st.sampled_from([-1.0, 0.0, 0.5, 1.0, 1.5, 3.0, 8.0]), max_size=4, unique=True).map(sorted)


def route_by_counting(cuts: list[float], number: float) -> int:
    """How many cuts a number is above."""
    return sum(number > cut for cut in cuts)


def texts_with_law(seed: int) -> RecordedTexts:
    generator = np.random.default_rng(seed)
    sequences = [random_sequence(generator, 4) for _ in range(2)]
    same_depth = [sequence for sequence in sequences if sequence.rows is not None][:1]
    texts = texts_of(same_depth)
    entropies = generator.choice(np.array([0.0, 0.5, 1.0, 2.0], np.float32), len(texts.roots.token_indices))
    return RecordedTexts(texts.sequences, texts.rows, {TARGET: TargetLawRows(entropies)})


@pytest.mark.parametrize("by", NUMBERS)
@given(cuts=SOME_CUTS, seed=st.integers(0, 10**6), most=st.integers(0, 6))
def test_routes_of_all_roots_are_those_of_each(by: str, cuts: list[float], seed: int, most: int) -> None:
    rule, texts = CutRule(by, tuple(cuts)), texts_with_law(seed)
    law, contexts = texts.channels[TARGET], texts.contexts.tolist()
    assert isinstance(law, TargetLawRows)
    found = rule.routes_of(texts, most)
    for root, context in enumerate(contexts):
        draft = Draft(None, 0, np.zeros(context + 1, np.int32), context, {TARGET: law.row(root, root)})
        for accepted in range(NO_ROUND, most + 1):
            number = {"entropy": float(law.entropies[root]), "accepted": accepted, "context": context}[by]
            wanted = route_by_counting(cuts, number)
            assert rule.route(draft, accepted) == wanted
            row = found[min(root, len(found) - 1)]
            assert row[min(accepted - NO_ROUND, len(row) - 1)] == wanted


def test_cuts_at_the_ends_of_the_line_take_one_route() -> None:
    draft = Draft(None, 0, np.zeros(1, np.int32), 0, {TARGET: TargetLaw(3.0)})
    assert CutRule("entropy", (math.inf,)).route(draft, 0) == 0
    assert CutRule("entropy", (-math.inf,)).route(draft, 0) == 1


def test_a_law_that_was_not_read_is_missed() -> None:
    texts = texts_of([random_sequence(np.random.default_rng(3), 4)])
    with pytest.raises(MissingChannelError, match="read them with it|read it with them"):
        CutRule("entropy", (1.0,)).routes_of(texts, 3)


@pytest.mark.parametrize("typed", ["0.5|2", "", "1", "-inf|3|inf"])
def test_cuts_as_typed(typed: str) -> None:
    assert parse_cuts(typed) == tuple(float(one) for one in typed.split("|") if one)


@pytest.mark.parametrize(
    ("by", "cuts", "says"),
    [("entropy", (1.0, 1.0), "rise"), ("entropy", (2.0, 1.0), "2|1"), ("accepted", (math.nan,), "numbers that rise")],
)
def test_what_is_no_rule(by: str, cuts: tuple[float, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says.replace("|", r"\|")):
        CutRule(by, cuts)


def test_numbers_and_cuts_that_are_none() -> None:
    with pytest.raises(ValueError, match="by=length"):
        CutRule("length", ())
    with pytest.raises(ValueError, match=r"such as 0\.5\|2; got 1\|two"):
        parse_cuts("1|two")
