"""Every figure that a study prints of a made-up release is the one that is kept, and of a real one what was published.

The kept texts were made by two programs that were written apart and agreed: that of this project before it was written
anew, and the present one. The tests of each study hold its main figures against plain Python.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from made_up_domino import made_up_contents
from made_up_releases import (
    adixg_contents,
    eliran_contents,
    gsm8k_contents,
    gsm8k_records,
    made_up,
    specdecode_contents,
)
from places import DOCS, GOLDEN
from released_data import made_up_release, real_release

from simlab.cli.main import main
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.published import DATA_STUDIES, PublishedStudy
from simlab.studies.reproduce.reproduce import RELEASED

MADE: Mapping[str, Callable[[], dict[str, str]]] = {
    "domino-rounds": made_up_contents,
    "domino-caddtree": made_up_contents,
    "domino-lossless": made_up_contents,
    "domino-gsm8k": lambda: gsm8k_contents(gsm8k_records()),
    "specdecode-bench": lambda: specdecode_contents(made_up()),
    "adixg-cost": adixg_contents,
    "eliran-online": eliran_contents,
}


@pytest.mark.parametrize("name", MADE)
def test_each_printed_figure(name: str, tmp_path: Path) -> None:
    limit = 8 if name == "adixg-cost" else None
    found = RELEASED[name](made_up_release(tmp_path, MADE[name]()), ReproduceOptions(limit=limit, progress=False))
    kept = (GOLDEN / "released" / f"{name}.txt").read_text(encoding="utf-8")
    assert found.text() + "\n" == kept
    json.dumps(found.to_json(), allow_nan=False)


def close(found: object, kept: object) -> bool:
    """Whether two JSON values are the same, numbers to nine digits."""
    if isinstance(found, dict) and isinstance(kept, dict):
        return list(found) == list(kept) and all(close(found[key], kept[key]) for key in found)
    if isinstance(found, list) and isinstance(kept, list):
        return len(found) == len(kept) and all(map(close, found, kept))
    if isinstance(found, float) and isinstance(kept, float):
        return found == pytest.approx(kept, rel=1e-9, abs=1e-12)
    return found == kept


@pytest.mark.parametrize("study", [one for one in DATA_STUDIES if not one.missing], ids=lambda one: one.name)
def test_of_the_real_files_what_was_published(study: PublishedStudy, capsys: pytest.CaptureFixture[str]) -> None:
    place = real_release(study.release).place
    assert main(["reproduce", study.name, "--data", str(place), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    kept = json.loads((DOCS / "measurements" / "published" / f"{study.name}.json").read_text(encoding="utf-8"))
    assert close(printed, kept)
