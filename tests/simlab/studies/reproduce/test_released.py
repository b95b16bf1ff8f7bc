"""Files that others released: found, checked, fetched and kept; a changed one is refused in one sentence."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from commands import ran
from file_server import FileServer, serving_files
from released_data import made_up_release

from simlab.analysis.statistics.intervals import Interval
from simlab.analysis.table.estimates import Estimate
from simlab.errors import SimlabError, UsageError
from simlab.studies.reproduce.published import PUBLISHED
from simlab.studies.reproduce.released import ComparedFigure, ReleasedFiles, compared_text, read_release
from simlab.traces.fetching import fetched

CELLS = "tables/cells.csv"
CONTENTS = {
    CELLS: "dataset,method,tau\ngsm8k,chain,6.50\ngsm8k,tree,7.25\nmbpp,chain,6.50\n",
    "README.md": "A title\n\nOurs is **11.6x** faster, on 1,024 prompts.\n",
    "raw/rows.jsonl": '{"a": 1}\n{"a": 2}\n',
}


@pytest.fixture
def files(tmp_path: Path) -> ReleasedFiles:
    return made_up_release(tmp_path / "clone", CONTENTS)


@pytest.fixture
def served(files: ReleasedFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setenv("SIMLAB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(fetched, "PAUSE_S", 0.01)
    with serving_files(Path(str(files.location))) as made:
        yield made


def test_a_figure_carries_where_it_stands(files: ReleasedFiles) -> None:
    quoted = files.quoted_cell(CELLS, "tau", dataset="gsm8k", method="tree")
    assert (quoted.value, quoted.path, quoted.where) == (7.25, CELLS, "tau of dataset gsm8k, method tree")
    assert quoted.sha256 == files.release.files[CELLS][1]
    assert files.quoted_pattern("README.md", r"\*\*([\d.]+)x").value == 11.6
    found = files.quoted_pattern("README.md", r"([\d,]+) prompts")
    assert (found.value, found.where) == (1024, "line 3")


def test_a_file_that_is_none_of_the_release_is_refused(files: ReleasedFiles) -> None:
    with pytest.raises(ValueError, match="is no file of"):
        files.path("other.csv")


def test_a_changed_or_missing_file_is_refused_with_what_to_type(files: ReleasedFiles) -> None:
    path = Path(str(files.location)) / CELLS
    path.write_text(path.read_text().replace("6.50", "6.51"))
    with pytest.raises(UsageError, match="is not as it was released: its sha256 begins with") as refused:
        files.text(CELLS)
    assert refused.value.__notes__ == list(files.release.commands)
    path.unlink()
    with pytest.raises(UsageError, match="expected a clone of github.com/someone/something at commit 0000000"):
        files.text(CELLS)


def test_files_are_fetched_once_and_kept(files: ReleasedFiles, served: FileServer) -> None:
    for _ in range(2):
        there = ReleasedFiles(files.release, served.address)
        there.have(list(CONTENTS), progress=False)
        assert there.text(CELLS) == CONTENTS[CELLS]
        assert [one["a"] for one in there.objects("raw/rows.jsonl")] == [1, 2]
    assert served.times_asked("cells.csv") == 1


def test_a_changed_file_at_an_address_is_refused(files: ReleasedFiles, served: FileServer) -> None:
    (served.root / CELLS).write_text(CONTENTS[CELLS].replace("6.50", "6.51"))
    with pytest.raises(SimlabError, match="is not as it was released; give a clone with --data:") as refused:
        ReleasedFiles(files.release, served.address).text(CELLS)
    assert refused.value.__notes__ == list(files.release.commands)


def test_an_address_that_is_not_there_says_what_else_would_do(files: ReleasedFiles, served: FileServer) -> None:
    with pytest.raises(SimlabError, match=r"[^.]; or give a clone with --data:") as refused:
        ReleasedFiles(files.release, f"{served.address}/nowhere").text(CELLS)
    assert "git clone https://github.com/someone/something" in refused.value.__notes__


def test_every_study_lists_its_files() -> None:
    studies = [one for one in PUBLISHED.values() if one.release]
    assert studies
    for study in studies:
        release = read_release(study.release)
        assert len(release.commit) == 40
        assert release.licence
        assert release.files
        assert all(len(sha256) == 64 for _, sha256 in release.files.values())
        assert all(num_bytes > 0 for num_bytes, _ in release.files.values()) or study.missing


@pytest.mark.parametrize("name", ["domino-rounds", "domino-caddtree", "domino-lossless", "domino-gsm8k"])
def test_the_command_refuses_files_that_are_missing_or_changed(name: str, tmp_path: Path) -> None:
    typed = ["study", "reproduce", name, "--data", str(tmp_path)]
    code, out, err = ran(*typed)
    assert (code, out) == (2, "")
    assert "has no results/" in err
    assert "expected a clone of github.com/slin-zhq/Domino-Tree at commit" in err
    assert "git clone https://github.com/slin-zhq/Domino-Tree" in err
    made_up_release(tmp_path, dict.fromkeys(read_release("domino-tree").files, "something else"))
    code, _, err = ran(*typed)
    assert code == 2
    assert "is not as it was released" in err


# --- a figure beside ours


def test_of_other_records_theirs_lies_within_or_outside(files: ReleasedFiles) -> None:
    theirs = files.quoted_cell(CELLS, "tau", dataset="gsm8k", method="tree")
    inside = ComparedFigure("a", Estimate(7.4, Interval(7.254, 7.5)), theirs, same_records=False)
    outside = replace(inside, ours=Estimate(7.4, Interval(7.256, 7.5)))
    assert (inside.is_within, outside.is_within) == (True, False)
    assert (inside.verdict, outside.verdict) == ("within", "outside")
    assert replace(inside, theirs=None).verdict == ""
    assert ComparedFigure("a", Estimate(7.4), theirs, same_records=False).is_within is None
    assert inside.row()["difference"] == pytest.approx(0.15)
    assert inside.row()["theirs_path"] == CELLS
    assert inside.row()["as_printed"] is None


@pytest.mark.parametrize(("ours", "verdict"), [(7.2549, "as printed"), (7.255, "as printed"), (7.2551, "differs")])
def test_of_the_same_records_theirs_is_ours_as_it_is_rounded(files: ReleasedFiles, ours: float, verdict: str) -> None:
    theirs = files.quoted_cell(CELLS, "tau", dataset="gsm8k", method="tree")
    found = ComparedFigure("a", Estimate(ours, Interval(5.0, 9.0)), theirs)
    assert found.verdict == verdict
    assert found.row()["within_interval"] is None
    # A difference of nothing has no sign of its own.
    assert "-0.00" not in compared_text([ComparedFigure("a", Estimate(7.25 - 1e-12), theirs)])


def test_what_they_do_not_print_is_marked() -> None:
    found = ComparedFigure("a", Estimate(7.25), by_formula=7.0)
    assert (found.verdict, found.difference, found.row()["theirs"]) == ("", 0.25, None)
    text = compared_text([found])
    assert "7.00*" in text
    assert "they print no such figure" in text
    assert "they print no such figure" not in compared_text([replace(found, by_formula=float("nan"))])


@pytest.mark.parametrize(
    ("place", "lack"), [("nowhere", "does not exist"), ("file", "is no folder"), (" ", "--data is")]
)
def test_a_place_that_is_no_folder_is_said_to_be_none(
    files: ReleasedFiles, tmp_path: Path, place: str, lack: str
) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=lack):
        ReleasedFiles(files.release, tmp_path / place if place.strip() else place).text(CELLS)
