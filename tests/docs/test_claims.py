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
        if name in {"training", "not-as-published", "sizes"}:
            continue
        assert part(_with_other_figures()) != part(FIELD), name


def _with_other_figures() -> dict[str, Any]:
    other: dict[str, Any] = deepcopy(FIELD)
    for row in other["rows"]:
        for key, value in row.items():
            if isinstance(value, float) and key != "nodes_per_round":
                row[key] = 1.01 * value + 0.01
    return other


# The rules of the field's claims, by hand on its file.


def test_a_claim_needs_the_verdict_of_its_correction(field: ModuleType) -> None:
    """Raw intervals leave 0 out where Holm does not; and of a row that is larger without a verdict nothing is said."""
    raw = [
        row["system"]
        for row in FIELD["rows"]
        if (row["slice"], row["size"]) == ("all", "fastest") and (row["gain_measured_high"] or 0) < 0
    ]
    assert {"vllm-adaptive", "sglang-dspark", "d2sd-boundary"} <= set(raw)
    assert "Of 29 measured differences from DDTree 0 stand." in field.short(FIELD)
    other = deepcopy(FIELD)
    for row in other["rows"]:
        row["gain_speed_differs"] = False if row["gain_speed_differs"] is not None else None
    assert "0 of 21 settings whose size was timed are faster" in field.short(other)
    assert "seconds: no system" in field.answer(other)


def test_sizes_that_nobody_timed_are_marked_and_not_claimed(field: ModuleType) -> None:
    marked = re.findall(r"^\| `([^`]*)`[^|]*†", field.PARTS["fastest"](FIELD), re.MULTILINE)
    known = "chain adaflash vllm-adaptive survival entropy-width caddtree bastion spine-gap d2sd-boundary d2sd"
    assert marked == [*known.split(), "jetspec-extended", "self, presto"]
    seconds = next(line for line in field.short(FIELD).splitlines() if "In predicted seconds" in line)
    assert re.findall(r"(?:: |, )`([a-z]+)`", seconds) == ["router", "composition", "presto"]
    timed = deepcopy(FIELD)
    timed["size"]["node_counts"] = [1, 2, 3, *FIELD["size"]["node_counts"]]
    assert "`chain` †" not in field.PARTS["fastest"](timed)


def test_unequal_numbers_of_drafted_tokens_are_not_compared(field: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    rows = {line.split("`")[1]: line.split("|") for line in field.equal_nodes(FIELD).splitlines()[2:]}
    assert [cell.strip() for cell in rows["spine-gap"][2:8]] == [
        "14.0",
        "2.30 [2.12, 2.49]",
        "no DDTree of 14",
    ] * 2
    assert rows["calibrated"][4].strip() == "0.6 [−0.1, 1.4] °"
    assert rows["presto"][4].strip() == "5.1 [4.1, 6.0]"
    matched = deepcopy(FIELD)
    (row,) = (
        one for one in matched["rows"] if (one["system"], one["size"], one["slice"]) == ("spine-gap", "16", "all")
    )
    row |= {"gain_tokens_own": -0.105, "gain_tokens_own_low": -0.12, "gain_tokens_own_high": -0.09}
    row["gain_tokens_own_differs"] = True
    assert "| 14.0 | 2.30 [2.12, 2.49] | −10.5 [−12.0, −9.0] |" in field.equal_nodes(matched)
    drawn = importlib.import_module("draw_field").PICTURES["field_gains.svg"](FIELD)
    assert all("spine-gap" not in trace.y for trace in drawn.data)


def test_what_is_not_as_published_is_starred_and_said(field: ModuleType) -> None:
    said = field.not_as_published(FIELD)
    for name, what in (
        ("bastion", "floor of 8"),
        ("treeflash", "first 32"),
        ("taps", "beam of 24"),
        ("jetspec, b", "order"),
    ):
        assert re.search(rf"^\* `{name}.*{what}", said, re.MULTILINE), name
        assert re.search(rf"^\| `{name}[^`]*` \*", field.equal_nodes(FIELD), re.MULTILINE), name
    published = deepcopy(FIELD)
    published["models"]["channels"]["taps"]["settings"] = {"beam": 48}
    assert "taps" not in field.deviations(published)


def test_what_was_trained_is_what_the_cards_say(field: ModuleType) -> None:
    rows = field.training(FIELD)
    assert "| `eagle3-smollm2-135m` | 9,808,128 | 1,940 | 367,170 | 8,000 |" in rows
    assert "| `dflash-smollm2-135m` | 8,740,480 | 6,079 | 1,213,198 | 40,000 |" in rows


def test_differences_stand_after_holm_over_their_table(claims: ModuleType) -> None:
    """By hand: of three p-values near 0.03 none is below 0.05 / 3, and of two one of which is tiny, one stands."""
    table = {"rows": [["a", "2.2 [0.2, 4.2]"], ["b", "2.2 [0.2, 4.2]"], ["c", "−2.2 [−4.2, −0.2]"]]}
    assert claims.standing(table, (1,)) == {(0, 1): False, (1, 1): False, (2, 1): False}
    told = {"rows": [["a", "9.0 [7.0, 11.0]"], ["b", "1.0 [−1.0, 3.0]"], ["c", ""]]}
    assert claims.standing(told, (1,)) == {(0, 1): True, (1, 1): False}
    assert (
        claims.counted(told, (1,), "gains")
        == "Of 2 gains, 1 are above 0 and 0 below; 1 are not significantly different from 0."
    )
    assert claims.errors_sentence([4.9, -5.1], "cases").startswith("1 of 2 cases are within 5 %")


def test_the_runs_are_what_the_page_says() -> None:
    assert not FIELD["has_failed"]
    assert FIELD["prompts"] == {"gsm8k": 16, "mbpp": 16, "humaneval": 16, "mt_bench": 16}
