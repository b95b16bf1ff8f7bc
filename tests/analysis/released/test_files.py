"""Files that others released: found, checked, fetched and kept; a changed one is refused in one sentence."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from file_server import FileServer, serving_files
from released_data import made_up_release

from simlab.analysis.released.compared import ComparedFigure, compared_text
from simlab.analysis.released.files import ReleasedFiles, read_release
from simlab.analysis.reproduce.published import PUBLISHED
from simlab.analysis.statistics.intervals import Interval
from simlab.cli.main import main
from simlab.errors import SimlabError, UsageError
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
    with serving_files(Path(str(files.place))) as made:
        yield made


def test_a_figure_carries_where_it_stands(files: ReleasedFiles) -> None:
    quoted = files.quoted_cell(CELLS, "tau", dataset="gsm8k", method="tree")
    assert (quoted.value, quoted.path, quoted.where) == (7.25, CELLS, "tau of dataset gsm8k, method tree")
    assert quoted.sha256 == files.release.files[CELLS].sha256
    assert files.quoted_in_line("README.md", "faster", "11.6x").value == 11.6
    assert files.quoted_in_line("README.md", "prompts", "1,024").where == "line 3"


def test_a_figure_that_is_not_there_is_refused(files: ReleasedFiles) -> None:
    with pytest.raises(SimlabError, match="has 2 rows with method chain; expected one"):
        files.quoted_cell(CELLS, "tau", method="chain")
    with pytest.raises(SimlabError, match="has no line with 'faster' and '12'"):
        files.quoted_in_line("README.md", "faster", "12")
    with pytest.raises(ValueError, match="is no file of"):
        files.path("other.csv")


def test_a_changed_or_missing_file_is_refused_with_what_to_type(files: ReleasedFiles) -> None:
    path = Path(str(files.place)) / CELLS
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
        assert all(len(one.sha256) == 64 for one in release.files.values())
        assert all(one.num_bytes > 0 for one in release.files.values()) or study.missing


def test_the_command_refuses_a_folder_without_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "domino-rounds", "--data", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "expected a clone of github.com/slin-zhq/Domino-Tree at commit" in err
    assert "git clone https://github.com/slin-zhq/Domino-Tree" in err


def test_a_study_without_released_files_takes_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["reproduce", "averaging", "--data", "clone"]) == 2
    assert "--data says nothing to averaging; leave it out" in capsys.readouterr().err


# --- a figure beside ours


def test_a_figure_is_held_as_it_is_rounded(files: ReleasedFiles) -> None:
    theirs = files.quoted_cell(CELLS, "tau", dataset="gsm8k", method="tree")
    inside = ComparedFigure("a", 7.4, theirs, Interval(7.254, 7.5))
    outside = replace(inside, interval=Interval(7.256, 7.5))
    assert (inside.holds_theirs, outside.holds_theirs) == (True, False)
    assert replace(inside, theirs=None).holds_theirs is None
    assert ComparedFigure("a", 7.4, theirs).holds_theirs is None
    assert inside.row()["difference"] == pytest.approx(0.15)
    assert inside.row()["theirs_path"] == CELLS


def test_a_difference_of_nothing_has_no_sign_of_its_own(files: ReleasedFiles) -> None:
    theirs = files.quoted_cell(CELLS, "tau", dataset="gsm8k", method="tree")
    assert "-0.00" not in compared_text([ComparedFigure("a", 7.25 - 1e-12, theirs)])
