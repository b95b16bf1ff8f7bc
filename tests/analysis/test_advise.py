"""Choices and sentences follow from verdicts; break-even numbers from the arithmetic that they stand for."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlab.analysis.advise import (
    CHAIN,
    NOTHING,
    TREE,
    BatchAdvice,
    advice_sentences,
    advice_table,
    no_tree_sentence,
    ratio_text,
    tree_needs,
    where_sentence,
)
from simlab.analysis.compare.comparisons import Comparison
from simlab.analysis.statistics.intervals import FEW_PROMPTS, UNKNOWN, Interval
from simlab.analysis.table.summaries import NO_SPEED, BatchPrices, Summary
from simlab.sequence_replay import Totals


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
    length, token_s, needed_token_s = (needs[name] for name in ("needed_length", "token_s", "needed_token_s"))
    assert length is not None
    assert length * tree_rounds / tree_s == pytest.approx(chain.speed.tokens_per_s)
    extra = tree.totals.nodes_per_round - chain.totals.nodes_per_round
    assert (token_s is None) == (needed_token_s is None) == (extra <= 0)
    if token_s is not None and needed_token_s is not None:
        cheaper_s = chain_s / rounds + needed_token_s * extra
        assert tree.totals.acceptance_length / cheaper_s == pytest.approx(chain.speed.tokens_per_s)
        assert chain_s / rounds + token_s * extra == pytest.approx(tree_s / tree_rounds)


def comparison(more: str, less: str, ratio: float, decided: bool, prompts: int, within_prices: bool) -> Comparison:
    """A verdict where it is decided, by enough prompts, and not within the noise of the prices."""
    low, high = (ratio * 0.99, ratio * 1.01) if decided else (ratio * 0.5, ratio * 2.0)
    prices = Interval(ratio * 0.5, ratio * 2.0) if within_prices else UNKNOWN
    p_value = 0.001 if decided else 0.5
    return Comparison(
        measure="tokens_per_s",
        first=more,
        second=less,
        slice=None,
        prompts=prompts,
        first_value=ratio,
        second_value=1.0,
        difference=ratio - 1.0,
        difference_interval=UNKNOWN,
        ratio=ratio,
        ratio_interval=Interval(low, high),
        price_interval=prices,
        p_value=p_value,
        p_adjusted=p_value,
        log_error=0.1,
        degrees=20.0,
        detectable=1.1,
        family=3,
        equal=False,
    )


speeds = st.floats(0.5, 2.0).filter(lambda one: abs(one - 1) > 0.02)


@st.composite
def advices(draw: st.DrawFn, batch: int) -> BatchAdvice:
    """A random table of verdicts: ratios fit each other, and which of them are decided is drawn."""
    prompts, modelled = draw(st.sampled_from([2, 19, 20, 41])), draw(st.booleans())
    kinds = draw(st.sampled_from([(), (CHAIN,), (TREE,), (CHAIN, TREE), (CHAIN, TREE)]))
    ratios = {NOTHING: 1.0} | {kind: draw(speeds) for kind in kinds}

    def one(more: str, less: str) -> Comparison:
        ratio = ratios[more] / ratios[less]
        decided = draw(st.booleans()) and abs(ratio - 1) > 0.02
        return comparison(more, less, ratio, decided, prompts, draw(st.booleans()))

    def kept(kind: str) -> Summary | None:
        settings = '{"length": 3}' if kind == CHAIN else '{"budget": 8}'
        return replace(made_up(20, 10, 30, 1.0), policy=kind, name=kind, settings=settings) if kind in kinds else None

    gains = {(kind, NOTHING): one(kind, NOTHING) for kind in kinds}
    gains |= {(TREE, CHAIN): one(TREE, CHAIN)} if len(kinds) == 2 else {}
    bounds = {}
    for kind in kinds if modelled else ():
        lower = draw(st.floats(0.3, 1.0)) * ratios[kind]
        decided = draw(st.booleans()) and abs(lower - 1) > 0.02
        bounds[kind, NOTHING] = comparison(kind, NOTHING, lower, decided, prompts, draw(st.booleans()))
    of = BatchPrices(batch, "id", "prices", modelled)
    return BatchAdvice(of, kept(CHAIN), kept(TREE), gains, bounds, draw(st.booleans()))


tables = st.lists(st.integers(0, 6), min_size=1, max_size=5, unique=True).flatmap(
    lambda powers: st.tuples(*(advices(2**power) for power in sorted(powers)))
)


@given(tables)
def test_a_choice_stands_on_verdicts(found: tuple[BatchAdvice, ...]) -> None:
    """The simplest stands unless a verdict moves it; nothing that is recommended is beaten by anything."""
    for advice in found:
        choice, others = advice.choice, [one for one in advice.compared if one != advice.choice]
        assert choice in advice.compared
        assert not any(advice.beats(other, choice) for other in others)
        if choice != NOTHING:
            assert any(advice.beats(choice, other) for other in others)
            assert (choice, NOTHING) in advice.gains
        if advice.sure == "yes" and not advice.left_out:
            known = [one for one in others if advice.beats(choice, one)]
            assert all(one in known or any(advice.beats(mid, one) for mid in known) for one in others)
        gain = advice.gain
        assert (gain is None) == (choice == NOTHING)
        if any(one.prompts < FEW_PROMPTS for one in advice.gains.values()):
            assert choice == NOTHING
            assert "few prompts" in advice.sure


@pytest.mark.parametrize("bound", [None, 0.9, 1.0, 1.2], ids=["measured", "slower", "open", "faster"])
@pytest.mark.parametrize(("ratio", "verdict"), [(1.5, True), (0.8, False), (1.0, None)])
def test_where_passes_are_modelled_drafting_pays_only_if_it_does_for_one_text_alone(
    ratio: float, verdict: bool | None, bound: float | None
) -> None:
    """A modelled gain needs the bound's; a loss stands by itself."""

    def found(ratio: float) -> Comparison:
        return comparison(CHAIN, NOTHING, ratio, ratio != 1.0, prompts=41, within_prices=False)

    gains, bounds = {(CHAIN, NOTHING): found(ratio)}, {} if bound is None else {(CHAIN, NOTHING): found(bound)}
    advice = BatchAdvice(BatchPrices(8, "id", "prices", bound is not None), None, None, gains, bounds)
    assert advice.verdict(CHAIN, NOTHING) is (None if verdict and bound in (0.9, 1.0) else verdict)


@given(tables)
def test_no_sentence_contradicts_the_table(found: tuple[BatchAdvice, ...]) -> None:
    rows = {row["batch"]: row for row in (advice.row() for advice in found)}
    lines = advice_table(found).splitlines()[1:]
    assert max(map(len, lines)) <= 100
    for advice, line in zip(found, lines, strict=True):
        assert ("draft nothing" in line) == (advice.choice == NOTHING) == (rows[advice.of.batch]["policy"] is None)
    sentences = advice_sentences(found)
    for name, words in (("Drafting", drafting_said), ("A tree over the chain", trees_said)):
        for sentence in (one for one in sentences if one.startswith(f"{name}: ")):
            said = said_at(sentence)
            for batch, word in said.items():
                assert words(rows[batch]) == word
            stops = re.search(r"between (\d+) and (\d+)", sentence)
            if stops:
                assert all(word != "faster" for batch, word in said.items() if batch >= int(stops[2]))
                assert all(word != "slower" for batch, word in said.items() if batch <= int(stops[1]))
    for sentence in sentences:
        if "is not significantly" in sentence or "by modelled prices" in sentence:
            assert str(rows[int(sentence.split()[1].rstrip(":"))]["sure"]).startswith("no")
    trees = [str(row["batch"]) for row in rows.values() if row["do"] == TREE]
    named = [one for one in sentences if one.startswith("Trees: ")]
    assert named == ([f"Trees: {TREE} (batch {', '.join(trees)})."] if trees else [])
    lost = no_tree_sentence(found, "Engines draft")
    assert ("costs" in lost) == any(row["do"] == TREE for row in rows.values())


def said_at(sentence: str) -> dict[int, str]:
    """What a sentence says of each batch size."""
    body = sentence.split(": ", 1)[1].split(". ", maxsplit=1)[0].rstrip(".")
    found: dict[int, str] = {}
    for part in body.split("; "):
        word, batches = part.replace(" at batch ", " at ").split(" at ")
        found |= {int(batch): word for batch in batches.split(", ")}
    return found


def drafting_said(row: dict[str, object]) -> str:
    """What the table says of drafting at one batch size."""
    if row["do"] != NOTHING:
        return "faster"
    return "slower" if row["sure"] == "yes" else "not known"


def trees_said(row: dict[str, object]) -> str:
    """What the table says of the tree over the chain."""
    return str(row["tree_over_chain_verdict"])


def test_where_in_words() -> None:
    said = where_sentence("Drafting", {1: True, 2: True, 4: None, 8: False})
    assert said == ("Drafting: faster at batch 1, 2; slower at 8; not known at 4. It stops paying between 2 and 8.")
    assert where_sentence("Drafting", {1: None}) == "Drafting: not known at batch 1."
    assert "stops" not in where_sentence("Drafting", {1: False, 2: True})
    assert "stops" not in where_sentence("Drafting", {1: True, 2: False, 4: True})


def test_a_batch_where_something_was_left_out_is_not_slower() -> None:
    gain = comparison(CHAIN, NOTHING, 0.8, True, 41, False)
    chain = replace(made_up(20, 10, 30, 1.0), policy=CHAIN, name=CHAIN, settings='{"length": 3}')
    of = BatchPrices(8, "id", "prices", False)
    advice = BatchAdvice(of, chain, None, {(CHAIN, NOTHING): gain})
    assert (advice.drafting, advice.sure) == (False, "yes")
    cut = replace(advice, left_out=(TREE,))
    assert (cut.drafting, cut.sure) == (None, "no, tree left out")


def test_an_interval_that_is_a_point_is_no_verdict() -> None:
    point = replace(comparison(TREE, NOTHING, 2.776, True, 41, False), ratio_interval=Interval(2.776, 2.776))
    assert (point.verdict, ratio_text(point)) == (None, "2.78")
    few = comparison(TREE, NOTHING, 2.776, True, 19, False)
    assert (few.verdict, comparison(TREE, NOTHING, 2.776, True, 20, False).verdict) == (None, True)
