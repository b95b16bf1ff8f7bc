"""The table of finalists: what stands in each cell, and what is left empty."""

import pytest

from simlab.analysis.optimize.finalists import finalist_table
from simlab.traces.artefacts.optimum import ChosenPolicy, Optimum, PromptSource, Scalar

BEST = ChosenPolicy("ddtree:budget=8", "0123")
SOURCE = PromptSource("text", "draft", frozenset({("gsm8k", "1")}))
FIGURES: dict[str, Scalar] = {"dev_tokens_per_s": 30.0, "evaluation_tokens_per_s": 29.5}
BEST_ROW: dict[str, Scalar] = {"policy": BEST.policy, "role": "best", "best_over_this": None, "p_adjusted": None}


def cells(p_adjusted: float | None) -> list[list[str]]:
    """The cells of a rival's row and of the best's, by columns of at least two blanks."""
    rival: dict[str, Scalar] = {"policy": "chain", "role": "rival", "best_over_this": 1.25, "p_adjusted": p_adjusted}
    ends: dict[str, Scalar] = {"best_over_this_ci_low": 1.125, "best_over_this_ci_high": 1.5}
    rows: tuple[dict[str, Scalar], ...] = (FIGURES | BEST_ROW, FIGURES | rival | ends)
    optimum = Optimum(
        "0.1.0", "tokens_per_s", None, (), SOURCE, SOURCE, 2, None, BEST, "", {}, (BEST.policy, "chain"), rows
    )
    return [line.split() for line in finalist_table(optimum).splitlines()[-2:]]


@pytest.mark.parametrize(("p_adjusted", "shown"), [(0.0004, "<0.001"), (0.001, "0.001"), (0.0316, "0.032")])
def test_a_p_value_has_three_digits_and_the_best_has_none(p_adjusted: float, shown: str) -> None:
    best, rival = cells(p_adjusted)
    assert best == ["ddtree:budget=8", "best", "30.0", "29.5"]
    assert rival == ["chain", "rival", "30.0", "29.5", "1.250", "[1.125,", "1.500]", shown]


def test_a_p_value_that_is_not_known_is_left_empty() -> None:
    assert cells(None)[1][-1] == "1.500]"
