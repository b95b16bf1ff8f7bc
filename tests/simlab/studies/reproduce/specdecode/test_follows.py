"""SpecDecode-Bench: verdicts that are corrected for their number, and what follows for figures of every outcome."""

import itertools
from typing import Any

import pytest

from simlab.analysis.statistics.intervals import UNKNOWN, Interval
from simlab.analysis.table.estimates import Estimate
from simlab.studies.reproduce.released import ComparedFigure, ReleasedFiles, read_release
from simlab.studies.reproduce.specdecode.bench import with_corrected_verdicts
from simlab.studies.reproduce.specdecode.chains import ADAPTIVE
from simlab.studies.reproduce.specdecode.text import (
    adaptive_sentence,
    charge_sentence,
    follows_text,
    match_sentence,
    oracle_sentence,
    tables_text,
)


def verdict_row(over: float, p_value: float) -> dict[str, Any]:
    return {f"{name}_over_fixed": Estimate(over, UNKNOWN, p_value) for name in ADAPTIVE}


def test_verdicts_are_corrected_over_all_cells_and_rules() -> None:
    # Eight tests: the smallest two p-values times 8 and 7 count, the next, times 6 and 5, do not.
    cells = ((1.1, 0.006), (0.9, 0.007), (1.1, 0.03), (1.1, float("nan")))
    rows = with_corrected_verdicts([verdict_row(*cell) for cell in cells])
    assert [row["two-up-one-down_verdict_corrected"] for row in rows] == ["+", "-", "=", "="]
    alone = with_corrected_verdicts([verdict_row(1.1, 0.024)])
    assert alone[0]["longer-after-success_verdict_corrected"] == "+"
    many = with_corrected_verdicts([verdict_row(1.1, 0.024)] * 2)
    assert [row["longer-after-success_verdict_corrected"] for row in many] == ["=", "="]


def reached_rows(corrected: str, shares: tuple[float, float] = (0.8, 0.4)) -> list[dict[str, Any]]:
    """Two datasets, both drafters, two batch sizes; verdicts are the same everywhere."""
    rows = []
    for dataset, drafter, index in itertools.product(("a", "b"), ("eagle", "ngram"), (0, 1)):
        share = shares[index] + (0.03 if dataset == "b" else 0)
        reached = Estimate(share, Interval(share - 0.1, share + 0.1))
        row: dict[str, Any] = {"dataset": dataset, "drafter": drafter, "batch": (1, 128)[index]}
        rows.append(row | {"fixed_reached": reached})
        for name in ADAPTIVE:
            rows[-1] |= {f"{name}_verdict": "-", f"{name}_verdict_corrected": corrected}
    return rows


def test_what_follows_says_how_much_is_reached() -> None:
    for shares, first, change in (
        ((0.8, 0.4), "most", "less at 128, 40 to 43 % (intervals from 30 to 53 %)"),
        ((0.4, 0.8), "a part", "more at 128, 80 to 83 % (intervals from 70 to 93 %)"),
        ((0.8, 0.81), "most", "about as much at 128, 81 to 84 % (intervals from 71 to 94 %)"),
    ):
        text = follows_text([], [], reached_rows("=", shares), [])
        assert text.startswith("EAGLE: a fixed length chosen on other requests reaches " + first)
        assert text.count(change) == 2
    unknown = [row | {"fixed_reached": Estimate(float("nan"))} for row in reached_rows("=")]
    assert "reaches" not in follows_text([], [], unknown, [])


def test_what_follows_says_which_rule_is_faster() -> None:
    none = adaptive_sentence(reached_rows("="))
    assert none.startswith("No adaptive rule is faster")
    assert "faster in 0 and slower in 0 (uncorrected: 0 and 8)" in none
    assert "corrected over all 16 (Holm)" in none
    both = adaptive_sentence(reached_rows("+"))
    assert both.startswith("two-up-one-down and longer-after-success are faster")
    one = [row | {"longer-after-success_verdict_corrected": "-"} for row in reached_rows("+")]
    assert adaptive_sentence(one).startswith("two-up-one-down is faster than the fixed length in more cells")


@pytest.mark.parametrize(
    ("charged", "expected"),
    [
        ((0.85, 0.89), "it is 11 to 15 % lower"),
        ((0.9, 0.9), "it is 10 % lower"),
        ((1.1, 1.2), "it is 10 to 20 % higher"),
        ((1.1, 1.1), "it is 10 % higher"),
        ((0.9, 1.2), "it is changed by -10 to +20 %"),
        ((1.001, 0.999), "it is the same to less than 0.5 %"),
    ],
)
def test_what_follows_says_what_the_charge_changes(charged: tuple[float, float], expected: str) -> None:
    rows = [{"batch": 1, "theirs": 2.0, "theirs_charged": 2.0 * value} for value in charged]
    assert expected in charge_sentence([*rows, {"batch": 8, "theirs": 1.0, "theirs_charged": 9.0}])
    assert charge_sentence([]) == ""


def test_what_follows_says_how_often_lookup_matches() -> None:
    def figure(assumed: float, found: float) -> ComparedFigure:
        theirs = ReleasedFiles(read_release("specdecode-bench")).quoted("simulator.py", assumed, "line 1")
        return ComparedFigure("", Estimate(found, Interval(found - 0.05, found + 0.05)), theirs, same_records=False)

    text = match_sentence([figure(0.2, 0.1), figure(0.8, 0.1), figure(0.1, 0.4), figure(0.3, 0.3)])
    assert "at 10 to 40 % of places; their simulator assumes 10 to 80 %" in text
    assert "more than our interval holds in 2 of 4 datasets and less in 1." in text
    assert match_sentence([]) == ""


def test_what_follows_says_what_our_oracle_adds() -> None:
    near = {"batch": 1, "theirs": 2.0, "ours": Estimate(2.3), "ours_always_drafting": 2.1}
    text = oracle_sentence([near, near | {"theirs": 2.4}, near | {"batch": 8, "ours": Estimate(9.0)}])
    assert "adds 0.20 to EAGLE's" in text
    assert "nearer to theirs in 1 of 2 datasets" in text
    assert oracle_sentence([{"batch": 1}]) == ""


def test_a_table_warns_where_few_texts_hold_many_tokens() -> None:
    row: dict[str, Any] = {
        "dataset": "a",
        "drafter": "eagle",
        "requests": 500,
        "tokens": 9,
        "longest_text": 9,
        "past_end": 0,
    }
    row |= {"longest_texts_share": 0.3, "same_length": 3, "unexplained": None}

    def tables(share: float) -> str:
        rows: dict[str, list[dict[str, Any]]] = {name: [] for name in ("steps", "combined", "reached", "means")}
        return "\n".join(tables_text({**rows, "drafters": [row | {"longest_texts_share": share}]}))

    assert "30 % (a, eagle) of the tokens" in " ".join(tables(0.3).split())
    assert "30.0 %" in tables(0.3)
    assert "WARNING" not in tables(0.2)
