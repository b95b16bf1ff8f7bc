"""How far a prediction was off, what explains it, and how it is said."""

import math
from typing import TypedDict

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_rows import result_row

from simlab.analysis.confirm.errors import PARTS, PredictionErrors, prediction_errors
from simlab.analysis.confirm.text import error_table, prediction_verdict
from simlab.analysis.table.summaries import STAGE_COLUMNS
from simlab.traces.results.rows import results_frame

STAGES = ("draft", "channel", "select", "verify", "commit")
SECONDS = {
    "autoregressive": (0.0, 0.0, 0.0, 0.02, 0.0),
    "chain": (0.006, 0.002, 0.0001, 0.027, 0.0001),
    "ddtree:budget=8": (0.006, 0.0, 0.0002, 0.028, 0.0001),
}
PER_ROUND = {"autoregressive": 1, "chain": 2, "ddtree:budget=8": 3}


class Row(TypedDict):
    """What a result row says of one text."""

    kind: str
    policy: str
    prompt: int
    rounds: int
    committed: int
    seconds: tuple[float, ...]


def made_up(factors: dict[str, tuple[float, ...]], num_prompts: int = 30, noise: float = 0.0) -> list[Row]:
    """Predicted and measured rows; measured seconds are the predicted ones times the factors of their policy."""
    rng = np.random.default_rng(2)
    rows: list[Row] = []
    for policy, seconds in SECONDS.items():
        for prompt in range(num_prompts):
            rounds = 20 + prompt
            stages = tuple(rounds * value for value in seconds)
            committed = rounds * PER_ROUND[policy]
            rows.append(
                Row(kind="predicted", policy=policy, prompt=prompt, rounds=rounds, committed=committed, seconds=stages)
            )
            slow = rng.lognormal(0, noise) if noise else 1.0
            measured = tuple(slow * stage * factor for stage, factor in zip(stages, factors[policy], strict=True))
            rows.append(
                Row(kind="measured", policy=policy, prompt=prompt, rounds=rounds, committed=committed, seconds=measured)
            )
    return rows


def frame(rows: list[Row], priced: bool = True) -> pl.DataFrame:
    """The rows as result rows; the predicted ones have no seconds where nothing is priced."""
    table = []
    for row in rows:
        timed = row["kind"] == "measured" or priced
        seconds = dict(zip(STAGE_COLUMNS, row["seconds"], strict=True)) if timed else {}
        own = {name: row[name] for name in ("kind", "rounds", "committed")}
        place = {"sequence": row["prompt"], "prompt_id": f"p{row['prompt']}"}
        cost_id = "c" if row["kind"] == "predicted" and priced else None
        table.append(result_row(row["policy"], **own, **place, **seconds, cost_id=cost_id))
    return results_frame(table)


def by_hand(rows: list[Row], policy: str) -> dict[str, float]:
    """The errors of a policy from sums over rows; a text that was measured twice is predicted twice."""

    def sums(kind: str, label: str) -> dict[str, float]:
        measured = [row for row in rows if row["kind"] == "measured" and row["policy"] == label]
        predicted = {row["prompt"]: row for row in rows if row["kind"] == "predicted" and row["policy"] == label}
        chosen = measured if kind == "measured" else [predicted[row["prompt"]] for row in measured]
        found = {stage: sum(row["seconds"][index] for row in chosen) for index, stage in enumerate(STAGES)}
        found["rounds"] = sum(row["rounds"] for row in chosen)
        found["committed"] = sum(row["committed"] for row in chosen)
        found["all"] = sum(found[stage] for stage in STAGES)
        return found

    predicted, seen = sums("predicted", policy), sums("measured", policy)
    plain_foreseen, plain_seen = sums("predicted", "autoregressive"), sums("measured", "autoregressive")

    def speed(one: dict[str, float]) -> float:
        return one["committed"] / one["all"]

    return {
        "acceptance_length": predicted["committed"] / predicted["rounds"] / (seen["committed"] / seen["rounds"]) - 1,
        "verify_s_per_round": predicted["verify"] / predicted["rounds"] / (seen["verify"] / seen["rounds"]) - 1,
        "round_s": predicted["all"] / predicted["rounds"] / (seen["all"] / seen["rounds"]) - 1,
        "tokens_per_s": speed(predicted) / speed(seen) - 1,
        "speedup": speed(predicted) / speed(plain_foreseen) / (speed(seen) / speed(plain_seen)) - 1,
    }


def of(rows: list[Row], policy: str) -> PredictionErrors:
    return next(error for error in prediction_errors(frame(rows)) if error.policy == policy)


EQUAL: dict[str, tuple[float, ...]] = dict.fromkeys(SECONDS, (1.0,) * 5)


@pytest.mark.parametrize(("place", "stage"), list(enumerate(STAGES)))
def test_a_slow_stage_explains_the_error(place: int, stage: str) -> None:
    factors = tuple(1.5 if number == place else 1.0 for number in range(5))
    errors = of(made_up(EQUAL | {"chain": factors}), "chain")
    assert errors.errors["speedup"].value > 0
    assert errors.parts[stage] == pytest.approx(math.log1p(errors.errors["speedup"].value))
    assert errors.shares[stage] == pytest.approx(1)
    assert errors.errors[f"{stage}_s_per_round"].value == pytest.approx(1 / 1.5 - 1)


def test_other_rounds_explain_the_error() -> None:
    """The measured rounds commit a tenth less; their seconds are the predicted ones."""
    rows = made_up(EQUAL)
    for row in rows:
        if row["kind"] == "measured" and row["policy"] == "chain":
            row["rounds"], row["seconds"] = 2 * row["rounds"], tuple(2 * value for value in row["seconds"])
    errors = of(rows, "chain")
    assert errors.errors["speedup"].value == pytest.approx(1)
    assert errors.parts["rounds"] == pytest.approx(math.log(2))
    assert errors.shares["rounds"] == pytest.approx(1)


@given(st.lists(st.floats(0.5, 2), min_size=15, max_size=15))
def test_the_parts_add_up(factors: list[float]) -> None:
    given_factors = {policy: tuple(factors[5 * index : 5 * index + 5]) for index, policy in enumerate(SECONDS)}
    rows = made_up(given_factors, num_prompts=3)
    for error in prediction_errors(frame(rows)):
        wanted = by_hand(rows, error.policy)
        for name, value in wanted.items():
            assert error.errors[name].value == pytest.approx(value, abs=1e-9)
        assert sum(error.parts.values()) == pytest.approx(math.log1p(wanted["speedup"]), abs=1e-9)
        assert sum(error.parts.values()) + error.machine == pytest.approx(math.log1p(wanted["tokens_per_s"]), abs=1e-9)
        assert math.isnan(error.shares["draft"]) or sum(error.shares.values()) == pytest.approx(1)


def test_a_text_that_ran_twice_is_predicted_twice() -> None:
    """Prompt 0 has long rounds, predicted and real, takes longer yet than predicted, and alone has a repeat."""
    rows = made_up(EQUAL, num_prompts=6)
    for row in list(rows):
        if row["prompt"] == 0:
            row["committed"] *= 2
            row["seconds"] = tuple(5 * one for one in row["seconds"])
        if row["prompt"] == 0 and row["kind"] == "measured":
            row["seconds"] = tuple(1.3 * one for one in row["seconds"])
            rows.append(row)
    found = {error.policy: error.errors for error in prediction_errors(frame(rows))}
    for policy in SECONDS:
        for name, value in by_hand(rows, policy).items():
            assert found[policy][name].value == pytest.approx(value, abs=1e-12)


def test_intervals_are_paired_with_the_prompt() -> None:
    """Prompts differ tenfold; what they were predicted to take they took, but for a little noise."""
    errors = of(made_up(EQUAL, noise=0.01), "chain")
    interval = errors.errors["tokens_per_s"].interval
    assert -0.01 < interval.low < errors.errors["tokens_per_s"].value < interval.high < 0.01


def test_without_prices_only_the_rounds_are_compared() -> None:
    found = prediction_errors(frame(made_up(EQUAL), priced=False))
    assert [errors.errors["acceptance_length"].value for errors in found] == [0, 0, 0]
    assert all(math.isnan(errors.errors["speedup"].value) and math.isnan(errors.machine) for errors in found)
    row = found[1].row()
    assert (row["error_acceptance_length"], row["error_speedup"], row["within_tolerance"]) == (0, None, None)
    assert all(row[f"log_error_{part}"] is None for part in PARTS)
    assert (prediction_verdict(found), error_table(found)) == ("", "")


def test_the_sentence_names_the_first_and_those_outside() -> None:
    factors = EQUAL | {"chain": (1.1,) * 5, "ddtree:budget=8": (0.98,) * 5}
    found = prediction_errors(frame(made_up(factors)))
    text = prediction_verdict(found, "ddtree:budget=8")
    assert text == (
        "Prediction of the speedup of ddtree:budget=8: 2.0 % low [2.0, 2.0]; not within 5 %: "
        "chain (10.0 % high [10.0, 10.0]). Tokens/s of autoregressive decoding: predicted 0.0 % high [0.0, 0.0]."
    )
