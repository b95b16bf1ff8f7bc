"""Pages of published studies: every figure of a page is in what its command printed, and every study has a page."""

import json
import re

import pytest
from places import DOCS

from simlab.studies.reproduce.published import DATA_STUDIES, PublishedStudy
from simlab.studies.reproduce.released import read_release

PAGES, RESULTS = DOCS / "explanation" / "published", DOCS / "measurements" / "published"
RUN = [study.name for study in DATA_STUDIES if not study.missing]
NUMBER = re.compile(r"(?<![\w.,-])[−+]?\d[\d,]*\.\d+")


def decimals_of(text: str) -> set[str]:
    """Numbers with decimals, without their signs; those of links, code and versions are none."""
    plain = re.sub(r"```.*?```|`[^`]*`|\]\([^)]*\)|arXiv \d+\.\d+|[Ll]lama \d\.\d", "", text, flags=re.DOTALL)
    return {one.lstrip("−+").replace(",", "") for one in NUMBER.findall(plain)}


def printed(value: object, found: list[float]) -> list[float]:
    """All numbers of a JSON value, and those in its sentences."""
    if isinstance(value, dict):
        for one in value.values():
            printed(one, found)
    elif isinstance(value, list):
        for one in value:
            printed(one, found)
    elif isinstance(value, str):
        found += [float(one) for one in re.findall(r"\d+\.\d+", value)]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        found.append(abs(float(value)))
    return found


@pytest.mark.parametrize("name", RUN)
def test_every_figure_of_a_page_was_printed(name: str) -> None:
    """As it stands, as a share in per cent, or as a ratio less one in per cent."""
    numbers = printed(json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8")), [])
    # A number is far from most others in three digits or more; of fewer, more would be found by chance.
    forms = [
        *numbers,
        *(100 * number for number in numbers if number <= 1),
        *(abs(100 * (number - 1)) for number in numbers if number < 3),
    ]
    missing = []
    for figure in sorted(decimals_of((PAGES / f"{name}.md").read_text(encoding="utf-8"))):
        digits = len(figure.partition(".")[2])
        if not any(abs(form - float(figure)) <= 0.500001 * 10.0**-digits for form in forms):
            missing.append(figure)
    assert not missing


@pytest.mark.parametrize("study", DATA_STUDIES, ids=lambda study: study.name)
def test_every_study_has_a_page_and_a_row(study: PublishedStudy) -> None:
    page = (PAGES / f"{study.name}.md").read_text(encoding="utf-8")
    assert f"simlab study reproduce {study.name}" in re.sub(r"\s+", " ", page)
    assert f"]({study.name}.md)" in (PAGES / "index.md").read_text(encoding="utf-8")
    assert ("Not yet run by us" in page) == bool(study.missing)


def test_results_are_of_the_commit_that_is_listed() -> None:
    for study in DATA_STUDIES:
        if not study.missing:
            value = json.loads((RESULTS / f"{study.name}.json").read_text(encoding="utf-8"))
            release = read_release(study.release)
            assert value["commit"] == release.commit
            quoted = {row["theirs_path"]: row["theirs_sha256"] for row in value["figures"] if row["theirs_path"]}
            assert {path: release.files[path][1] for path in quoted} == quoted


def test_a_planted_figure_is_found() -> None:
    assert decimals_of("6.58 [6.28, 6.90], −1,024.5 of `1.25` (arXiv 2601.11580)") == {"6.58", "6.28", "6.90", "1024.5"}
