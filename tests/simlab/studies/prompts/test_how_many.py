"""How many prompts a difference takes, as it is asked and answered."""

from pathlib import Path

import pytest
from study_results import refused

from simlab.studies.prompts.how_many import NUMBERS, PromptNumbers, how_many, parse_percent
from simlab.studies.prompts.prompts import PromptsOptions, prompts
from simlab.traces.synthetic import write_synthetic_trace


@pytest.fixture(scope="module")
def packaged() -> PromptNumbers:
    found = prompts(difference=1.03)
    assert isinstance(found, PromptNumbers)
    return found


def test_more_prompts_find_less(packaged: PromptNumbers) -> None:
    """And the number that is named lies between its neighbours in the table."""
    assert [one.second for one in packaged.comparisons] == ["autoregressive", "chain", "ddtree:budget=16"]
    for one in packaged.comparisons:
        found, needed = packaged.detectable(one), packaged.needed(one)
        assert found == sorted(found, reverse=True)
        assert needed is not None
        enough = [number for number, ratio in zip(NUMBERS, found, strict=True) if ratio <= packaged.ratio]
        assert all(number >= needed for number in enough)
        assert all(number < needed for number in NUMBERS if number not in enough)


def test_the_text_says_on_what_it_rests(packaged: PromptNumbers) -> None:
    text = packaged.text()
    flat = " ".join(text.split())
    assert "like those of the packaged trace" in flat
    assert "The 41 prompts of the packaged trace find" in flat
    needed = packaged.needed(packaged.comparisons[0])
    assert needed is not None
    percent = 100 * (packaged.ratio - 1)
    assert f"chain over autoregressive: {percent:.0f} % takes {needed - 41:,} more" in flat
    row = packaged.to_json()["rows"][0]  # type: ignore[index]
    assert row["prompts_needed"] == packaged.needed(packaged.comparisons[0])


def test_a_small_trace_is_said_to_carry_little(tmp_path: Path) -> None:
    trace = write_synthetic_trace(tmp_path / "small", num_sequences=6, length=40)
    text = " ".join(how_many(1.05, trace, ("ddtree:budget=4", "chain"), None, None).text().split())
    assert "Fewer than 20 prompts: no winner is named" in text
    assert "Acceptance length of ddtree:budget=4: " in text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "expected NAME and --out FILE, or --for"),
        ({"name": "demo"}, "expected NAME and --out FILE, or --for"),
        ({"difference": 1.03, "name": "demo", "out": "x"}, "--for writes no file; leave out NAME, --out"),
        ({"name": "demo", "out": "x", "policies": ("ar",)}, "without --for a file is written; leave out -p"),
    ],
)
def test_what_does_not_fit_together_is_refused(given: dict[str, object], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        PromptsOptions(**given)  # type: ignore[arg-type]


def test_a_comparison_takes_two_policies() -> None:
    assert "a comparison takes two policies" in refused(prompts, difference=1.03, policies=("chain",))


@pytest.mark.parametrize("typed", ["", "x", "0", "-3%", "nan", "101%"])
def test_what_is_no_difference_is_refused(typed: str) -> None:
    with pytest.raises(ValueError, match="expected a difference above 0 %"):
        parse_percent(typed)
