"""Texts of DominoTree beside autoregressive ones: against plain Python, on made-up records and on the real ones."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from made_up_domino import lines, made_up_contents, parsed
from released_data import made_up_release, real_release, values_of

from simlab.analysis.released.domino.figures import domino_lossless_figure
from simlab.analysis.released.domino.lossless import END_OF_TEXT, SOURCES, domino_lossless
from simlab.analysis.released.files import ReleasedFiles, read_release
from simlab.cli.main import main
from simlab.errors import SimlabError

Values = Mapping[str, Any]


@pytest.fixture(scope="module")
def contents() -> dict[str, str]:
    return made_up_contents()


def up_to_end(ids: list[int]) -> list[int]:
    return ids[: ids.index(END_OF_TEXT) + 1] if END_OF_TEXT in ids else ids


def check_against_oracle(files: ReleasedFiles) -> Values:
    """Counts of texts that are alike, of equal digests, and the first differences; gives what was found."""
    found = values_of(domino_lossless(files, progress=False))
    assert {row["folder"] for row in found["sources"]} == set(SOURCES)
    curves = {(one["folder"], one["method"]): one for one in found["curves"]}
    for row in found["sources"]:
        by_turn: dict[Any, dict[str, Any]] = {}
        for name in files.names(f"{row['folder']}/*_T0.0.jsonl"):
            for one in parsed(files.text(name)):
                by_turn.setdefault((name, one["sample_idx"], one["turn_index"]), {})[one["method"]] = one
        pairs = [(turn[row["method"]], turn["ar"]) for turn in by_turn.values()]
        alike = [up_to_end(one["out_head"]) == up_to_end(plain["out_head"]) for one, plain in pairs]
        digest = [one["out_sig"] == plain["out_sig"] for one, plain in pairs]
        assert (row["turns"], row["alike"], row["digest"]) == (len(pairs), sum(alike), sum(digest))
        assert sum(digest) <= row["whole"] <= row["perhaps"] <= row["alike"]
        parts_at = [
            next(place for place in range(999) if one["out_head"][place] != plain["out_head"][place])
            for (one, plain), same in zip(pairs, alike, strict=True)
            if not same
        ]
        at_risk = sum(parts_at) + len(parts_at) + sum(
            len(up_to_end(one["out_head"])) for (one, _), same in zip(pairs, alike, strict=True) if same
        )  # fmt: skip
        if parts_at:
            assert row["parts_per_token"] == pytest.approx(len(parts_at) / at_risk, abs=2e-5)
        curve = curves[row["folder"], row["method"]]
        expected = [1 - sum(place < position for place in parts_at) / len(pairs) for position in curve["positions"]]
        assert curve["alike"] == pytest.approx(expected, abs=1e-4)
    return found


def test_is_as_in_plain_python(contents: dict[str, str], tmp_path: Path) -> None:
    found = check_against_oracle(made_up_release(tmp_path, contents))
    assert all(abs(one["difference"]) < 0.006 for one in found["figures"])
    whole = sum(row["alike"] for row in found["datasets"] if row["method"] == "dominotree@16")
    first = next(row for row in found["sources"] if row["method"] == "dominotree@16")
    assert whole == first["alike"]
    assert 0 < first["alike"] < first["turns"]
    assert first["whole"] == first["alike"], "all of these texts are short, so each is compared as a whole"


def test_sees_another_token(contents: dict[str, str], tmp_path: Path) -> None:
    """A token that changes before the end is a difference; one behind the end is none."""
    name = next(iter(SOURCES)) + "/gsm8k_T0.0.jsonl"
    counted = {}
    for place in (0, 6):
        records = parsed(contents[name])
        plain, tree = records[0], next(one for one in records if one["method"] == "dominotree@16")
        tree["out_head"] = [*plain["out_head"], 198, 9]
        tree["out_head"][place] += 1
        files = made_up_release(tmp_path / str(place), contents | {name: lines(records)})
        rows: Any = domino_lossless(files, progress=False).to_json()["sources"]
        counted[place] = next(row["alike"] for row in rows if row["method"] == "dominotree@16")
    assert counted[6] == counted[0] + 1


def test_refuses_records_without_heads(contents: dict[str, str], tmp_path: Path) -> None:
    name = next(iter(SOURCES)) + "/gsm8k_T0.0.jsonl"
    records = parsed(contents[name])
    records[1]["out_head"] = "none"
    files = made_up_release(tmp_path, contents | {name: lines(records)})
    with pytest.raises(SimlabError, match="line 2: no record of a text"):
        domino_lossless(files, progress=False)


def test_refuses_files_that_changed_or_are_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    typed = ["reproduce", "domino-lossless", "--data", str(tmp_path)]
    assert main(typed) == 2
    assert "has no results/" in capsys.readouterr().err
    made_up_release(tmp_path, dict.fromkeys(read_release("domino-tree").files, "something else"))
    assert main(typed) == 2
    assert "is not as it was released" in capsys.readouterr().err


def test_text_and_figure(contents: dict[str, str], tmp_path: Path) -> None:
    found = domino_lossless(made_up_release(tmp_path, contents), progress=False)
    assert "as autoregressive decoding" in found.text()
    assert len(domino_lossless_figure(values_of(found)).to_dict()["data"]) == 4


def test_real_records() -> None:
    """As many texts begin alike as we said before: 255 of 430."""
    found = check_against_oracle(real_release("domino-tree"))
    counted = {(row["folder"], row["method"]): row["alike"] for row in found["sources"]}
    assert counted["results/conditioning_ladder/matched_builder", "dominotree@16"] == 255
    assert counted["results/raw/8b/dominotree", "dominotree@16"] == 243
    assert all(row["equal"] == row["turns"] == 430 for row in found["repeated"])
