"""Studies that run models, as functions of Python: on tiny models, from a profile to a confirmation."""

import json
from pathlib import Path

import pytest
from confirm_runs import MAX_NEW_TOKENS, Made, make

import simlab
from simlab.errors import UsageError
from simlab.studies.fit_ngram import fit_ngram
from simlab.studies.fit_tables import fit_calibration, fit_ranks
from simlab.studies.profile.profile import ProfileTable
from simlab.traces.format.documents import with_digest


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("studies"))


@pytest.fixture(scope="module")
def profiled(made: Made) -> ProfileTable:
    target, drafter, out = str(made.folder / "target"), str(made.folder / "drafter"), made.folder / "cost.json"
    return simlab.profile(target, drafter, out=out, node_counts=(0, 4, 8), contexts=(16, 64), repeats=2)


def test_a_profile_has_a_row_per_cell(profiled: ProfileTable) -> None:
    frame = profiled.frame
    assert frame.columns == ["stage", "num_drafted", "context", "price_s"]
    assert frame.height == len(tuple(profiled.file.cells()))
    assert (frame["price_s"] > 0).all()
    assert profiled.num_visits > 0


def test_a_profile_goes_on_as_its_file_says(profiled: ProfileTable) -> None:
    again = simlab.profile(out=profiled.path, resume=True)
    assert again.num_visits == 0
    assert again.to_json() == profiled.to_json()


def test_a_recording_is_opened(made: Made, tmp_path: Path) -> None:
    target, drafter = str(made.folder / "target"), str(made.folder / "drafter")
    trace = simlab.record(
        target, drafter, prompts=made.folder / "prompts.jsonl", out=tmp_path / "trace", max_new_tokens=MAX_NEW_TOKENS
    )
    assert trace.text_id == made.trace.text_id
    again = simlab.record(target, drafter, text_from=tmp_path / "trace", out=tmp_path / "again", device=("cpu",))
    assert again.text_id == trace.text_id
    with pytest.raises(UsageError, match="where --seed can change nothing"):
        simlab.record(target, drafter, text_from=tmp_path / "trace", out=tmp_path / "third", seed=0)


def test_a_confirmation_has_the_rows_of_its_summary(made: Made, tmp_path: Path) -> None:
    confirmation = simlab.confirm(made.trace, ["ddtree:budget=8"], limit=1, out=tmp_path / "out")
    assert confirmation.frame.to_dicts() == confirmation.to_json()["rows"]
    assert confirmation.frame["policy"].to_list() == [
        "autoregressive",
        "chain",
        "ddtree:budget=8",
        "hindsight:budget=8",
    ]
    assert json.loads((tmp_path / "out" / "confirm.json").read_text()) == with_digest(confirmation.to_json())
    again = simlab.confirm(made.trace, ["ddtree:budget=8"], limit=1, out=tmp_path / "out", resume=True)
    assert again.text() == confirmation.text()


def test_a_confirmation_runs_a_trace_or_prompts(made: Made, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="not both"):
        simlab.confirm(made.trace, prompts=made.folder / "prompts.jsonl", out=tmp_path / "out")
    with pytest.raises(UsageError, match="--top-k can change nothing about a trace"):
        simlab.confirm(made.trace, top_k=0, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_fits_have_their_rows(made: Made, tmp_path: Path) -> None:
    ranks = fit_ranks(made.trace, out=tmp_path / "ranks.json", top_k=8)
    assert ranks.frame["numbers"].to_list() == ranks.to_json()["numbers"]
    calibration = fit_calibration(made.trace, out=tmp_path / "calibration.json", top_k=8)
    assert calibration.frame["depth"].to_list() == [*range(1, calibration.source.kept.depth + 1), None]
    ngram = fit_ngram(trace=made.trace, out=tmp_path / "counts.parquet")
    assert ngram.frame["num_texts"].item() == len(made.trace.sequences())
    with pytest.raises(UsageError, match="give one of them"):
        fit_ngram(out=tmp_path / "none.parquet")
