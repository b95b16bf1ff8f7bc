"""Cost files on disk: round trip, ids, what is refused, and which shipped one fits."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_costs import EMPTY, SYNTHETIC, filled
from places import DOCS, GOLDEN

from simlab.cost import GRID_STAGES, PLAIN, Visits
from simlab.errors import CostError
from simlab.policies.costs.cell_prices import NUM_DRAWS
from simlab.studies.inputs.prices import cost_table_of
from simlab.traces.artefacts import cost as cost_file
from simlab.traces.artefacts.cost import (
    FORMAT_VERSION,
    CostChannel,
    CostFile,
    find_packaged,
    packaged_cost_files,
    read_cost_file,
    write_cost_file,
)
from simlab.traces.format.documents import with_digest
from simlab.traces.format.manifest_entries import ModelInfo
from simlab.traces.reader import open_trace, packaged_trace

PAGE = DOCS / "reference" / "cost_files.md"
OTHER = ModelInfo("other", "main", "sha256:0123456789abcdef")


def test_what_is_written_is_read(tmp_path: Path) -> None:
    for file in (EMPTY, filled(), replace(filled(), device="Größe", execution="graph")):
        write_cost_file(tmp_path / "new" / "cost.json", file)
        found = read_cost_file(tmp_path / "new" / "cost.json")
        assert found == file
        assert found.cost_id == file.cost_id
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["cost.json"]


def test_there_is_a_golden_file_of_every_version() -> None:
    names = {f"cost_v{version}.json" for version in range(1, FORMAT_VERSION + 1)}
    assert {path.name for path in GOLDEN.glob("cost_v*")} == names


def test_version_1() -> None:
    file = read_cost_file(GOLDEN / "cost_v1.json")
    assert (file.cost_id, file.verify_key(), file.draft_key()) == (
        "0028ffe2bf267baf",
        "c1ce32993e5d86d8",
        "1824aec4ce003800",
    )
    quartiles = (0.01026, 0.012135, 0.010415, 0.01232)
    assert cost_table_of(file).curve("verify", 40)[4] == pytest.approx(sum(quartiles) / 4)


def test_version_2() -> None:
    file = read_cost_file(GOLDEN / "cost_v2.json")
    assert (file.cost_id, file.visits) == ("98a7964dd42edbf6", Visits(2, 4, paired=True))
    ratios = [0.0104 / 0.0051, 0.0151 / 0.0074, 0.0102 / 0.0052]
    cost = cost_table_of(file)
    assert cost.curve("verify", 32)[0] == pytest.approx(cost.curve(PLAIN, 32)[0] * sorted(ratios)[1])
    assert len(cost.draws) == NUM_DRAWS


def test_version_3() -> None:
    """Channels beside what a file of version 2 has, whose prices stay as they are."""
    file, before = read_cost_file(GOLDEN / "cost_v3.json"), cost_table_of(read_cost_file(GOLDEN / "cost_v2.json"))
    assert file.cost_id == "a801fd04b6eae4bb"
    assert file.channels == {"flash": FLASH}
    cost = cost_table_of(file)
    for stage in (*GRID_STAGES, PLAIN):
        assert cost.seconds[stage].tolist() == before.seconds[stage].tolist()
    ratios = [0.002 / 0.0051, 0.0029 / 0.0074, 0.00198 / 0.0052]
    plain = cost.curve(PLAIN, 32)[0]
    assert cost.channels["flash"].seconds[0].tolist() == pytest.approx([plain * sorted(ratios)[1] * n for n in (1, 2)])
    assert [len(draw.channels["flash"].units) for draw in cost.draws] == [2] * NUM_DRAWS


HEAD = ModelInfo("synthetic-head", "", "synthetic-head")
FLASH = CostChannel("transitions", HEAD, {"depth": 7, "top_k": 3, "order": "base-rank"}, (2, 4))
PAIRED = replace(EMPTY, visits=Visits(2, 4, paired=True))
WITH_CHANNEL = replace(PAIRED, channels={"flash": FLASH})


def test_a_file_without_channels_is_written_as_before(tmp_path: Path) -> None:
    for version in (1, 2, 3):
        golden = GOLDEN / f"cost_v{version}.json"
        write_cost_file(tmp_path / golden.name, read_cost_file(golden))
        assert (tmp_path / golden.name).read_bytes() == golden.read_bytes()


def test_channels_enter_the_grid_and_the_id(tmp_path: Path) -> None:
    file = filled(WITH_CHANNEL)
    write_cost_file(tmp_path / "cost.json", file)
    assert read_cost_file(tmp_path / "cost.json") == file
    assert {n for stage, n, _ in file.cells() if stage == "channel:flash"} == {2, 4}
    assert sum(stage == "plain:flash" for stage, _, _ in file.cells()) == 2 * len(file.contexts)
    without = {cell: seconds for cell, seconds in file.samples.items() if cell[0] != "channel:flash"}
    assert not replace(file, samples=without).is_complete
    other = replace(FLASH, settings={**FLASH.settings, "top_k": 4})
    assert replace(file, channels={"flash": other}).cost_id != file.cost_id
    two = {"flash": FLASH, "early": FLASH}
    turned = dict(reversed(two.items()))
    assert replace(PAIRED, channels=two).cost_id == replace(PAIRED, channels=turned).cost_id


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"batch": 2}, "one text at a time"),
        ({"visits": Visits()}, "autoregressive decoding beside"),
        ({"channels": {"no name": FLASH}}, "the name of a channel"),
    ],
)
def test_channels_that_cannot_have_been_timed_are_refused(changes: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        replace(WITH_CHANNEL, **changes)


@pytest.mark.parametrize("units", [(), (0,), (2, 2), (4, 2), (1 << 40,)])
def test_units_rise(units: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="units of a channel must rise"):
        replace(FLASH, units=units)


def test_how_a_channel_was_made_is_told_apart() -> None:
    recorded = {"depth": 7, "previous": 9, "top_k": 3, "order": "base-rank"}
    assert FLASH.difference("transitions", HEAD, recorded) is None
    assert FLASH.difference("pool", HEAD, recorded) == "transitions, and not pool"
    assert "sha256 01234567" in str(FLASH.difference("transitions", OTHER, recorded))
    assert FLASH.difference("transitions", HEAD, recorded | {"top_k": 5}) == "top_k 3, and not with 5"
    assert FLASH.difference("transitions", HEAD, recorded | {"candidates": 8}) == "candidates none, and not with 8"


@pytest.mark.parametrize(
    "damage",
    [
        {"channels": {}},
        {"channels": None},
        {"channels": {"flash": {}}},
        {"channels": {"flash": {**FLASH.to_json(), "units": [4, 2]}}},
        {"channels": {"other": FLASH.to_json()}},
        {"format_version": 4},
    ],
)
def test_damaged_channels_are_refused(damage: dict[str, object], tmp_path: Path) -> None:
    path = tmp_path / "cost.json"
    path.write_text(json.dumps(with_digest(filled(WITH_CHANNEL).to_json() | damage)), encoding="utf-8")
    with pytest.raises(CostError):
        read_cost_file(path)


def test_plain_decoding_stands_beside_every_number_where_visits_are_paired(tmp_path: Path) -> None:
    file = filled(PAIRED)
    write_cost_file(tmp_path / "cost.json", file)
    assert read_cost_file(tmp_path / "cost.json") == file
    assert (file.to_json()["format_version"], EMPTY.to_json()["format_version"]) == (2, 1)
    assert {n for stage, n, _ in file.cells() if stage == PLAIN} == set(file.node_counts)
    assert not replace(file, samples={(PLAIN, 0, 16): (1.0,)}).is_complete
    assert file.cost_id not in (filled().cost_id, replace(file, visits=Visits(2, 5, paired=True)).cost_id)


def test_the_page_names_every_key() -> None:
    _, _, page = PAGE.read_text(encoding="utf-8").partition("\n## The file\n")
    rows = [line.split("|")[1] for line in page.partition("\n## ")[0].splitlines() if line.startswith("| `")]
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row)}
    assert named == {*with_digest(replace(WITH_CHANNEL, notes=("one",)).to_json()), *GRID_STAGES, PLAIN}


@given(st.lists(st.one_of(st.just(0.0), st.floats(1e-9, 1e6)), min_size=1, max_size=4))
def test_samples_survive_to_the_last_bit(tmp_path_factory: pytest.TempPathFactory, seconds: list[float]) -> None:
    path = tmp_path_factory.mktemp("cost") / "cost.json"
    file = EMPTY.with_samples({("verify", 8, 64): tuple(seconds)})
    write_cost_file(path, file)
    assert read_cost_file(path).samples == {("verify", 8, 64): tuple(seconds)}


def test_it_is_complete_when_every_cell_has_a_sample() -> None:
    file = EMPTY
    assert file.missing() == tuple(file.cells())
    for cell in file.cells():
        assert not file.is_complete
        with pytest.raises(CostError, match=r"is not finished: .*`simlab profile --out FILE --resume`"):
            cost_table_of(file)
        file = file.with_samples({cell: (1.0,)})
    assert file.is_complete
    assert file.missing() == ()
    assert cost_table_of(file).cost_id == file.cost_id


BOTH: dict[str, Any] = {
    "device": "another",
    "threads": 3,
    "system": "another",
    "target": OTHER,
    "dtype": "bfloat16",
    "attention": "eager",
    "execution": "graph",
    "temperature": 1.0,
    "top_k": 5,
    "top_p": 0.5,
    "versions": {"torch": "3.0"},
    "batch": 2,
}


@pytest.mark.parametrize("name", list(BOTH))
def test_keys_and_id_change_with_what_the_target_depends_on(name: str) -> None:
    file, changed = filled(), replace(filled(), **{name: BOTH[name]})
    assert changed.verify_key() != file.verify_key()
    assert changed.draft_key() != file.draft_key()
    assert changed.cost_id != file.cost_id


@pytest.mark.parametrize(("name", "value"), [("drafter", OTHER), ("block_size", 4)])
def test_only_the_draft_key_changes_with_the_drafter(name: str, value: object) -> None:
    file = filled()
    changed = replace(file, **{name: value})  # type: ignore[arg-type]
    assert changed.verify_key() == file.verify_key()
    assert changed.draft_key() != file.draft_key()
    assert changed.cost_id != file.cost_id


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"contexts": ()}, "contexts must rise"),
        ({"contexts": (64, 16)}, "contexts must rise"),
        ({"contexts": (0, 16)}, "contexts must rise"),
        ({"node_counts": (1, 8)}, "node counts must rise from 0"),
        ({"node_counts": (0, 8, 8)}, "node counts must rise from 0"),
        ({"threads": 0}, "at least 1"),
        ({"temperature": -9e18}, "the temperature is from 0, .*; got -9e.18, 1 and 0"),
        ({"temperature": float("nan")}, "the temperature is from 0"),
        ({"top_p": 0.0}, "top_p above 0 and at most 1"),
        ({"top_k": -1}, "top_k from 0"),
        ({"repeats": 0}, "at least 1"),
        ({"samples": {("verify", 2, 16): (1.0,)}}, "not in the grid"),
        ({"samples": {(PLAIN, 8, 16): (1.0,)}}, "not in the grid"),
        ({"samples": {("prefill", 0, 16): (1.0,)}}, "not in the grid"),
        ({"samples": {("verify", 0, 16): ()}}, "one or more times, 0 or from 1e-09"),
        ({"samples": {("verify", 0, 16): (1.0, -1.0)}}, "one or more times, 0 or from 1e-09"),
        ({"samples": {("verify", 0, 16): (float("nan"),)}}, "one or more times, 0 or from 1e-09"),
        ({"samples": {("verify", 0, 16): (1e308,)}}, "one or more times, 0 or from 1e-09"),
        ({"samples": {("verify", 0, 16): (5e-324,)}}, "one or more times, 0 or from 1e-09"),
        ({"samples": {("verify", 0, 16): (float("inf"),)}}, "one or more times, 0 or from 1e-09"),
    ],
)
def test_a_measurement_that_does_not_fit_itself_is_refused(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replace(EMPTY, **change)


def damaged(tmp_path: Path, **changes: object) -> Path:
    """A file with some values changed; None takes one out."""
    write_cost_file(tmp_path / "cost.json", filled())
    values = json.loads((tmp_path / "cost.json").read_text(encoding="utf-8")) | changes
    text = json.dumps({key: value for key, value in values.items() if value is not None})
    (tmp_path / "cost.json").write_text(text, encoding="utf-8")
    return tmp_path / "cost.json"


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": "simlab-trace"}, "is no cost file; `simlab profile --out FILE` makes one"),
        ({"format": None}, "is no cost file"),
        ({"format_version": 4}, r"format version 4; this simlab reads up to 3\. Upgrade simlab, or make it again"),
        ({"device": None}, "expected the key 'device'; it is missing"),
        ({"threads": "two"}, "'threads' must be an integer; got 'two'"),
        ({"threads": True}, "'threads' must be an integer"),
        ({"format_version": 2}, "expected the key 'visit_rounds'; it is missing"),
        ({"format_version": 2, "visit_rounds": 0, "visit_steps": 4}, "a visit must bring at least one sample"),
        ({"format_version": 0}, "'format_version' must be at least 1"),
        ({"target": {"name": "t"}}, "target: expected the key 'revision'"),
        ({"contexts": [64, 16]}, "contexts must rise"),
        ({"samples": {}}, "'samples' must be a list of objects"),
        ({"samples": [3]}, "'samples' must be a list of objects"),
        ({"samples": [{"stage": "verify", "num_drafted": 0, "context": 16, "seconds": 0.1}]}, "samples 0: 'seconds'"),
        ({"samples": [{"stage": "verify", "num_drafted": 0, "context": 16, "seconds": ["x"]}]}, "a list of numbers"),
        ({"samples": [{"stage": "verify", "num_drafted": 0, "context": 17, "seconds": [0.1]}]}, "not in the grid"),
    ],
)
def test_a_damaged_file_is_refused(tmp_path: Path, changes: dict[str, object], said: str) -> None:
    with pytest.raises(CostError, match=said) as caught:
        read_cost_file(damaged(tmp_path, **changes))
    assert str(tmp_path / "cost.json") in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_cell_may_stand_in_the_file_only_once(tmp_path: Path) -> None:
    row = {"stage": "verify", "num_drafted": 0, "context": 16, "seconds": [0.1]}
    with pytest.raises(CostError, match="twice"):
        read_cost_file(damaged(tmp_path, samples=[row, row]))


def test_what_is_no_json_or_no_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cost.json"
    with pytest.raises(CostError, match="there is none"):
        read_cost_file(path)
    for text in ("", "{", "[1]", "no", '{"format": NaN}'):
        path.write_text(text, encoding="utf-8")
        with pytest.raises(CostError, match="no cost file"):
            read_cost_file(path)
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(CostError, match="no cost file"):
        read_cost_file(path)
    with pytest.raises(CostError, match="could not be read"):
        read_cost_file(tmp_path)


def test_models_are_the_same_by_their_digests_or_as_one_commit_of_the_hub() -> None:
    """Of a commit not every command fetches all files, and the digest is of those that were fetched."""
    whole = ModelInfo("org/target", "0123", "of all files")
    part, file = replace(whole, digest="of some files"), replace(EMPTY, target=whole)
    assert file.fits(part, SYNTHETIC, 8)
    assert file.fits(replace(whole, name="moved", revision=""), SYNTHETIC, 8)
    for other in (replace(part, revision="4567"), replace(part, name="org/another"), replace(part, revision="")):
        assert not file.fits(other, SYNTHETIC, 8)
    assert not replace(EMPTY, target=replace(whole, revision="")).fits(replace(part, revision=""), SYNTHETIC, 8)
    assert not file.fits(whole, OTHER, 8)
    assert not file.fits(whole, SYNTHETIC, 16)


def ship(monkeypatch: pytest.MonkeyPatch, folder: Path, *files: CostFile) -> None:
    """Let these be the files that come with simlab."""
    monkeypatch.setattr(cost_file, "PACKAGED", folder)
    for number, file in enumerate(files):
        write_cost_file(folder / f"{number}.json", file)


def found_for(file: CostFile, dtype: str) -> CostFile | None:
    return find_packaged(file.target, file.drafter, file.block_size, dtype)


def test_a_shipped_file_must_be_of_the_same_models_and_block(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    others = [replace(filled(), target=OTHER), replace(filled(), drafter=OTHER), replace(filled(), block_size=4)]
    ship(monkeypatch, tmp_path, *others)
    assert found_for(filled(), "float32") is None
    ship(monkeypatch, tmp_path, *others, filled())
    assert found_for(filled(), "float32") == filled()
    assert found_for(replace(filled(), target=replace(SYNTHETIC, name="by another name")), "float32") == filled()


def test_what_is_shipped_prices_the_packaged_trace() -> None:
    manifest = open_trace(packaged_trace()).manifest
    (kept,) = manifest.draft_sets.values()
    dtypes = set()
    for path in packaged_cost_files():
        file = read_cost_file(path)
        assert read_cost_file(path.stem) == file
        assert (file.target.digest, file.drafter.digest) == (manifest.target.digest, kept.model.digest)
        assert cost_table_of(file).most_drafted >= 128
        dtypes.add(file.dtype)
    assert dtypes == {"float32", "bfloat16"}
    found = find_packaged(manifest.target, kept.model, kept.block_size, manifest.dtype)
    assert found is not None
    assert found.dtype == manifest.dtype
