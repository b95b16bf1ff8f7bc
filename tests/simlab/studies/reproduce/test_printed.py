"""Every figure that a study prints of a made-up release is the one that is kept, and of a real one what was published.

The kept texts were made by two programs that were written apart and agreed: that of this project before it was written
anew, and the present one. The tests of each study hold its main figures against plain Python.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from commands import json_of
from made_up_domino import made_up_contents
from made_up_releases import (
    adixg_contents,
    gsm8k_contents,
    gsm8k_records,
    made_up,
    specdecode_contents,
)
from places import DOCS, GOLDEN
from released_data import made_up_release, real_release

from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.published import DATA_STUDIES, PublishedStudy
from simlab.studies.reproduce.reproduce import RELEASED, reproduce

MADE: Mapping[str, Callable[[], dict[str, str]]] = {
    "domino-rounds": made_up_contents,
    "domino-caddtree": made_up_contents,
    "domino-lossless": made_up_contents,
    "domino-gsm8k": lambda: gsm8k_contents(gsm8k_records()),
    "specdecode-bench": lambda: specdecode_contents(made_up()),
    "adixg-cost": adixg_contents,
}


def kept(name: str) -> tuple[str, object]:
    """What a study printed, as text and as JSON."""
    text, value = ((GOLDEN / "released" / f"{name}.{kind}").read_text(encoding="utf-8") for kind in ("txt", "json"))
    return text, json.loads(value)


@pytest.mark.parametrize("name", MADE)
def test_each_printed_figure(name: str, tmp_path: Path) -> None:
    limit = 8 if name == "adixg-cost" else None
    found = RELEASED[name](made_up_release(tmp_path, MADE[name]()), ReproduceOptions(limit=limit, progress=False))
    text, value = kept(name)
    assert found.text() + "\n" == text
    assert close(json.loads(json.dumps(found.to_json(), allow_nan=False)), value)


def test_each_printed_figure_of_rounds_that_are_packaged() -> None:
    found = reproduce.run(ReproduceOptions("ddtreepp-rounds"))
    text, value = kept("ddtreepp-rounds")
    assert found.text() + "\n" == text
    assert close(found.to_json(), value)


def close(found: object, wanted: object) -> bool:
    """Whether two JSON values are the same, numbers to eight digits."""
    if isinstance(found, dict) and isinstance(wanted, dict):
        return list(found) == list(wanted) and all(close(found[key], wanted[key]) for key in found)
    if isinstance(found, list) and isinstance(wanted, list):
        return len(found) == len(wanted) and all(map(close, found, wanted))
    if isinstance(found, float) and isinstance(wanted, float):
        return found == pytest.approx(wanted, rel=1e-8, abs=1e-12)
    return found == wanted


@pytest.mark.parametrize("study", [one for one in DATA_STUDIES if not one.missing], ids=lambda one: one.name)
def test_of_the_real_files_what_was_published(study: PublishedStudy) -> None:
    place = real_release(study.release).location
    printed = json_of("study", "reproduce", study.name, "--data", place, "--json")
    published = json.loads((DOCS / "measurements" / "published" / f"{study.name}.json").read_text(encoding="utf-8"))
    assert close(printed, published)
