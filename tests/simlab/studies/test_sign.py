"""`simlab inspect --sign`: a file that somebody edited is checked and vouched for; what is wrong stays as it was."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest
from commands import json_of, output_of, refusal_of
from places import GOLDEN

import simlab
from simlab.cli.main import main
from simlab.errors import SimlabError
from simlab.studies.inspect.sign import sign
from simlab.traces.artefacts.cost import read_cost_file
from simlab.traces.artefacts.optimum import read_optimum
from simlab.traces.artefacts.table import read_table_file
from simlab.traces.inspect import check_trace
from simlab.traces.reader import open_trace
from simlab.traces.results.files import read_results


def edited(path: Path, **changes: object) -> None:
    values = json.loads(path.read_text(encoding="utf-8")) | changes
    path.write_text(json.dumps(values), encoding="utf-8")


@pytest.mark.parametrize("name", ["cost_v1.json", "cost_v2.json", "table_v1.json"])
def test_an_edited_file_is_read_once_it_is_signed(name: str, tmp_path: Path) -> None:
    path = Path(shutil.copy(GOLDEN / name, tmp_path / name))
    read, change = (read_table_file, {"num_positions": 7}) if "table" in name else (read_cost_file, {"device": "mine"})
    edited(path, **change)
    with pytest.raises(SimlabError, match=r"was changed.*--sign"):
        read(path)
    out = output_of("inspect", path, "--sign")
    assert "Signed." in out
    assert "you vouch for" in out
    found = read(path)
    assert all(getattr(found, key) == value for key, value in change.items())
    signed = path.read_bytes()
    assert json_of("inspect", path, "--sign", "--json")["signed"] is True
    assert path.read_bytes() == signed
    assert [one.name for one in tmp_path.iterdir()] == [name]


def test_what_is_wrong_is_not_signed(tmp_path: Path) -> None:
    path = Path(shutil.copy(GOLDEN / "cost_v2.json", tmp_path / "cost.json"))
    edited(path, threads=0)
    before = path.read_bytes()
    assert f"{path}: threads, block_size, repeats and batch must be at least 1" in refusal_of("inspect", path, "--sign")
    assert path.read_bytes() == before
    for name, text in (("a.json", "{"), ("b.json", "[1]"), ("c.json", '{"format": "other"}'), ("d.parquet", "x")):
        (tmp_path / name).write_text(text)
        assert main(["inspect", str(tmp_path / name), "--sign"]) == 2
    for name in ("absent", "https://example.org/trace"):
        assert "could be signed" in refusal_of("inspect", name, "--sign").splitlines()[-1]
    (tmp_path / "folder").mkdir()
    assert main(["inspect", str(tmp_path / "folder"), "--sign"]) == 2
    assert main(["inspect", "--schema", "cost", "--sign"]) == 2


def test_a_trace_is_proved_whole_before_it_is_signed(tmp_path: Path) -> None:
    folder = Path(shutil.copytree(GOLDEN / "trace_v1", tmp_path / "trace"))
    edited(folder / "manifest.json", device="another")
    with pytest.raises(SimlabError, match="was changed"):
        open_trace(folder)
    sign(str(folder))
    assert open_trace(folder).manifest.device == "another"
    check_trace(folder)
    edited(folder / "manifest.json", vocab_size=5)
    before = (folder / "manifest.json").read_bytes()
    with pytest.raises(SimlabError) as refused:
        sign(str(folder))
    assert str(folder) in str(refused.value)
    assert "simlab-sign" not in str(refused.value)
    assert (folder / "manifest.json").read_bytes() == before


def test_results_and_choices(tmp_path: Path) -> None:
    results, choice = tmp_path / "r.parquet", tmp_path / "o.json"
    simlab.replay(None, ["chain"], limit=4, out=results)
    rows = read_results(results)
    rows.with_columns(simlab_version=pl.lit("mine")).write_parquet(results)
    with pytest.raises(SimlabError, match=r"no digest of its rows.*--sign"):
        read_results(results)
    sign(str(results))
    assert set(read_results(results)["simlab_version"]) == {"mine"}
    rows.with_columns(pl.col("rounds") + 1).write_parquet(results)
    with pytest.raises(SimlabError, match="verified must be drafted"):
        sign(str(results))
    simlab.optimize(None, ["ddtree:budget=4/8"], cost="smollm2-135m-epyc-float32", out=choice, progress=False)
    edited(choice, verdict="no winner: mine.")
    with pytest.raises(SimlabError, match="was changed"):
        read_optimum(choice)
    sign(str(choice))
    assert read_optimum(choice).verdict == "no winner: mine."
