"""Pages of results claim what follows from their JSON, and nothing else: a wrong sentence anywhere on them fails."""

import importlib
import json
import re
import sys
from copy import deepcopy
from types import ModuleType
from typing import Any

import pytest
from places import DOCS, REPOSITORY

FIELD = json.loads((DOCS / "measurements" / "field.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def claims() -> ModuleType:
    """docs/make_claims.py."""
    sys.path.insert(0, str(DOCS))
    try:
        return importlib.import_module("make_claims")
    finally:
        sys.path.remove(str(DOCS))


@pytest.fixture(scope="module")
def field(claims: ModuleType) -> ModuleType:
    """docs/make_field.py."""
    made: ModuleType = claims.make_field
    return made


def pages(claims: ModuleType) -> dict[str, str]:
    return {name: (REPOSITORY / name).read_text(encoding="utf-8") for name in claims.PAGES}


def faults(claims: ModuleType, name: str, page: str) -> list[str]:
    """What a page says that its files do not."""
    changed = [] if claims.written(page, claims.PAGES[name]) == page else ["what is computed is not what stands there"]
    return changed + list(claims.unclaimed(page))


def test_pages_say_what_their_files_say(claims: ModuleType) -> None:
    for name, page in pages(claims).items():
        assert faults(claims, name, page) == [], name
        asked = re.findall(r"<!-- made (\S+) -->", page)
        assert sorted(asked) == sorted(claims.PAGES[name]), name


@pytest.mark.parametrize(
    "sentence",
    [
        "A 3-gram is the best of all.",
        "In predicted seconds survival is faster than DDTree.",
        "Nothing measured differs from zero but losses.",
        "Every prediction is within 5 % of the measurement.",
        "JetSpec's paths draft 1.08 times as much.",
        "The gaps lose 7 to 18 %.",
        "The differences are within the noise of the profile.",
        "A head of ten million weights beats a drafter of nine.",
        "Only the oracle has more.",
        "Whole paths have the longest trees, and more tokens a round than heads.",
    ],
)
def test_a_planted_sentence_is_found_in_any_page(claims: ModuleType, sentence: str) -> None:
    """Behind every paragraph of prose between marks, and within what is computed."""
    for name, page in pages(claims).items():
        results = re.search(r"<!-- results -->\n", page)
        places = [results.end() if results else page.index("\n\n") + 2]
        places += [found.start() for found in re.finditer(r"\n\n<!-- made [a-z]", page)][:1]
        places += [found.start() for found in re.finditer(r"<!-- end -->", page)][:1]
        for place in places:
            assert faults(claims, name, f"{page[:place]}\n\n{sentence}\n\n{page[place:]}"), (name, place)


def test_a_changed_figure_of_a_page_or_a_file_is_found(claims: ModuleType, field: ModuleType) -> None:
    for name, page in pages(claims).items():
        figure = re.search(r"<!-- made .*?(\d\.\d)", page, re.DOTALL)
        assert figure is not None
        other = "9.9" if figure[1] != "9.9" else "8.8"
        assert faults(claims, name, page[: figure.start(1)] + other + page[figure.end(1) :]), name
    for name, part in field.PARTS.items():
        if name in {"training", "not-as-published"}:
            continue
        assert part(_with_other_figures()) != part(FIELD), name


def _with_other_figures() -> dict[str, Any]:
    other: dict[str, Any] = deepcopy(FIELD)
    for row in other["rows"]:
        for key, value in row.items():
            if isinstance(value, float) and key != "nodes_per_round":
                row[key] = (2 if key == "measured_verify_ms" else 1.01) * value + 0.01
    return other


# The rules of the field's claims, by hand on its file.


def _changed(system: str, size: str, **values: object) -> dict[str, Any]:
    """The field with one row on all prompts changed."""
    other: dict[str, Any] = deepcopy(FIELD)
    own = (system, size, "all", FIELD["models"]["dtype"])
    (row,) = (row for row in other["rows"] if (row["system"], row["size"], row["slice"], row["prices"]) == own)
    row |= values
    return other


def _claim(field: ModuleType, value: dict[str, Any], start: str) -> str:
    (found,) = (line for line in field.short(value).splitlines() if line.startswith(f"* **{start}"))
    return str(found)


def test_a_claim_needs_the_verdict_of_its_correction(field: ModuleType) -> None:
    """Of a row that is larger without a verdict nothing is said, and one with a verdict is named."""
    other = deepcopy(FIELD)
    for row in other["rows"]:
        for name in ("gain_tokens_differs", "gain_speed_differs", "gain_measured_differs"):
            row[name] = False if row[name] is not None else None
    assert re.search(r", 0 of \d+ systems are faster than DDTree", field.short(other))
    assert re.search(r"with 16, 0 of \d+: no system; 0 add fewer", field.short(other))
    assert "0 systems are predicted to be faster" in field.answer(other)
    assert "on the real models 0 are faster, 0 slower" in field.answer(other)
    planted = _changed("sequoia", "16", gain_tokens=0.123, gain_tokens_low=0.1, gain_tokens_high=0.2)
    assert "`sequoia` 12.3 [10.0, 20.0]" in _claim(field, planted, "At equal drafted tokens")
    assert "sequoia" not in _claim(field, FIELD, "At equal drafted tokens")


def test_a_head_of_fewer_draws_stands_beside_the_packaged_one(field: ModuleType) -> None:
    said = _claim(field, FIELD, "Training decides")
    for row in field.shorter_trained()["rows"]:
        assert f"(\u2212{-100 * row['gain_tokens']:.1f} [" in said
    planted = _changed("eagle3", "32", gain_tokens=0.123, gain_tokens_low=0.1, gain_tokens_high=0.2)
    assert "with 32 12.3 [10.0, 20.0] (" in _claim(field, planted, "Training decides")
    without = FIELD | {"rows": [row for row in FIELD["rows"] if row["system"] != "eagle3"]}
    assert "Training decides" not in field.short(without)


def test_sizes_that_nobody_timed_are_marked_and_not_claimed(field: ModuleType) -> None:
    values: dict[str, Any] = {"gain_speed": 0.5, "gain_speed_low": 0.4, "gain_speed_high": 0.6, "predicted_speedup": 9}
    own = FIELD["models"]["dtype"]
    for is_untimed in (True, False):
        planted = _changed("chain", "fastest", **values, gain_speed_differs=True, untimed=is_untimed)
        assert ("`chain`" in _claim(field, planted, f"In predicted seconds, {own}")) is not is_untimed
        assert ("| `chain` †" in field.fastest(planted)) is is_untimed
        assert ("| `chain`" in field.by_dataset(planted)) is not is_untimed


def test_a_system_that_does_not_come_to_a_size_has_no_cell(field: ModuleType) -> None:
    assert "| `chain`" not in field.tokens(FIELD), "the longest chain has seven tokens"
    rows = {line.split("`")[1]: line.split("|") for line in field.tokens(FIELD).splitlines()[2:]}
    assert [bool(cell.strip()) for cell in rows["spine-gap"][2:6]] == [True, False, False, False]
    without = deepcopy(FIELD)
    without["rows"] = [row for row in without["rows"] if (row["system"], row["size"]) != ("taps", "64")]
    (line,) = (line for line in field.survives(without).splitlines() if line.startswith("| `taps`"))
    assert [cell.strip() == "no cell" for cell in line.split("|")[3:5]] == [False, True]


def test_systems_without_a_price_are_named(field: ModuleType) -> None:
    (line,) = (line for line in field.chosen(FIELD).splitlines() if line.startswith("* **No prices of h200"))
    assert {"`treeflash`", "`taps`", "`eagle3`", "`jetspec`", "`uno`"} <= set(re.findall(r"`[^`]*`", line))
    assert not {"`ddtree`", "`presto`"} & set(re.findall(r"`[^`]*`", line))


def test_equal_drafted_tokens_are_equal() -> None:
    """On the prompts of choice within 3 %; on the others the mean is near, and the baseline has the same."""
    for row in FIELD["rows"]:
        if row["slice"] == "all" and row["size"].isdigit():
            assert abs(row["nodes_per_round"] / int(row["size"]) - 1) < 0.15, row["policy"]
            assert (row["gain_tokens"] is None) == (row["system"] == "ddtree")


def test_what_is_not_as_published_is_starred_and_said(field: ModuleType) -> None:
    assert re.search(r"^\* `jetspec, b.*order", field.not_as_published(FIELD), re.MULTILINE)
    assert re.search(r"^\| `jetspec, b[^`]*` \*", field.tokens(FIELD), re.MULTILINE)
    other = deepcopy(FIELD)
    other["models"]["channels"]["taps"]["settings"] = {"beam": 24}
    other["models"]["channels"]["treeflash"]["settings"] |= {"candidates": 32}
    said = field.not_as_published(other)
    assert re.search(r"^\* `taps.*beam of 24", said, re.MULTILINE)
    assert re.search(r"^\* `treeflash.*first 32", said, re.MULTILINE)


def test_pictures_show_what_the_file_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    drawn = importlib.import_module("draw_field").PICTURES["field_tokens.svg"](FIELD)
    titles = [note.text for note in drawn.layout.annotations]
    assert "presto*" in titles
    assert "chain" not in titles
    (curve,) = (trace for trace in drawn.data[3::4][titles.index("sequoia") :][:1])
    own = [
        row for row in FIELD["rows"] if (row["system"], row["slice"]) == ("sequoia", "all") and row["size"].isdigit()
    ]
    assert list(curve.y) == [row["acceptance_length"] for row in sorted(own, key=lambda row: int(row["size"]))]


def test_what_was_trained_is_what_the_cards_say(field: ModuleType) -> None:
    rows = field.training()
    assert "| `eagle3-smollm2-135m` | 9,808,128 | 2,940 | 590,537 | 40,000 |" in rows
    assert "| `dflash-smollm2-135m` | 8,740,480 | 6,079 | 1,213,198 | 40,000 |" in rows


def test_differences_stand_after_holm_over_their_table(claims: ModuleType) -> None:
    """By hand: of three p-values near 0.03 none is below 0.05 / 3, and of two one of which is tiny, one stands."""
    table = {"rows": [["a", "2.2 [0.2, 4.2]"], ["b", "2.2 [0.2, 4.2]"], ["c", "−2.2 [−4.2, −0.2]"]]}
    assert claims.standing(table, (1,)) == {(0, 1): False, (1, 1): False, (2, 1): False}
    told = {"rows": [["a", "9.0 [7.0, 11.0]"], ["b", "1.0 [−1.0, 3.0]"], ["c", ""]]}
    assert claims.standing(told, (1,)) == {(0, 1): True, (1, 1): False}
    counted = claims.counted(told, (1,), "gains")
    assert counted == "Of 2 gains, 1 are above 0 and 0 below; 1 are not significantly different from 0."
    assert claims.errors_sentence([4.9, -5.1], "cases").startswith("1 of 2 cases are within 5 %")


def test_the_runs_are_what_the_page_says(field: ModuleType) -> None:
    assert not FIELD["has_failed"]
    assert {row["drafter"] for row in FIELD["rows"] if row["gain_measured"] is not None} == {"dflash"}
    planted = _changed("edge-llm", "fastest", measured_speedup=99.0)
    assert max(field.equal_rounds(planted)) > 50 > 0.1 > max(field.equal_rounds(FIELD)) > 0
    assert FIELD["prompts"] == {"gsm8k": 32, "mbpp": 32, "humaneval": 32, "mt_bench": 32}
