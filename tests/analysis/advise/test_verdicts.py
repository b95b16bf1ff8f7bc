"""Break-even numbers against the arithmetic that they stand for."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlab.analysis.advise.verdicts import break_even_sentence, stops_from, tree_needs
from simlab.analysis.statistics.intervals import UNKNOWN
from simlab.analysis.table.summaries import NO_SPEED, Summary
from simlab.totals import Totals


def made_up(committed: int, rounds: int, drafted: int, seconds: float) -> Summary:
    speed = replace(NO_SPEED, tokens_per_s=committed / seconds)
    totals = Totals(rounds=rounds, committed=committed, drafted=drafted)
    return Summary(None, "predicted", "made-up", "id", "made-up", "{}", 1, 1, totals, 1.0, UNKNOWN, speed)


counts = st.integers(1, 500)
seconds = st.floats(0.01, 100.0)


@given(counts, counts, counts, seconds, counts, counts, counts, seconds)
def test_at_the_needed_numbers_tree_and_chain_are_as_fast(
    committed: int, rounds: int, drafted: int, chain_s: float, more: int, tree_rounds: int, wide: int, tree_s: float
) -> None:
    chain, tree = made_up(committed, rounds, drafted, chain_s), made_up(more, tree_rounds, wide, tree_s)
    needs = tree_needs(chain, tree)
    assert needs.needed_length * tree_rounds / tree_s == pytest.approx(chain.speed.tokens_per_s)
    extra = tree.totals.nodes_per_round - chain.totals.nodes_per_round
    assert (needs.token_s is None) == (needs.needed_token_s is None) == (extra <= 0)
    if needs.token_s is not None and needs.needed_token_s is not None:
        cheaper_s = chain_s / rounds + needs.needed_token_s * extra
        assert tree.totals.acceptance_length / cheaper_s == pytest.approx(chain.speed.tokens_per_s)
        assert chain_s / rounds + needs.token_s * extra == pytest.approx(tree_s / tree_rounds)


@given(st.lists(st.floats(0.5, 2.0), min_size=1, max_size=8))
def test_behind_a_break_even_nothing_pays(ratios: list[float]) -> None:
    batches = [2**index for index in range(len(ratios))]
    wanted = [batch for index, batch in enumerate(batches) if max(ratios[index:]) <= 1]
    assert stops_from(batches, ratios) == (wanted[0] if wanted else None)


def test_break_even_in_words() -> None:
    assert "at no batch size" in break_even_sentence("It", [1, 2], [0.5, 0.6])
    assert "still ahead at the largest" in break_even_sentence("It", [1, 2], [0.5, 1.6])
    assert "up to a batch of 2, behind from 4 on" in break_even_sentence("It", [1, 2, 4], [1.5, 1.1, 0.9])
