"""Fitted tables on disk: round trip, ids, what is refused, and which shipped one fits."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_costs import SYNTHETIC
from places import GOLDEN

from simlab.errors import TraceError
from simlab.policies.edges.correction import NUM_CLASSES
from simlab.traces.artefacts import table as table_file
from simlab.traces.artefacts.table import (
    CALIBRATION,
    FORMAT_VERSION,
    RANKS,
    TableFile,
    find_packaged_table,
    packaged_table_files,
    read_table_file,
    write_table_file,
)
from simlab.traces.format.manifest_entries import ModelInfo

OTHER = ModelInfo("other", "main", "sha256:0123456789abcdef")
MAPS = np.linspace(0.0, 2.0, 3 * 2 * NUM_CLASSES * 2).reshape(3, 2, NUM_CLASSES, 2)
TABLE = TableFile(
    kind=CALIBRATION,
    target=SYNTHETIC,
    drafter=OTHER,
    block_size=8,
    text_id="text",
    draft_id="draft",
    num_positions=1234,
    values=MAPS,
)
SHARES = replace(TABLE, kind=RANKS, values=np.array([[0.5, 0.25, 0.125], [0.25, 0.25, 0.0]]))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    for file in (TABLE, SHARES, replace(TABLE, drafter=ModelInfo("größer", "", "x"))):
        write_table_file(tmp_path / "new" / "table.json", file)
        found = read_table_file(tmp_path / "new" / "table.json")
        assert found.to_json() == file.to_json()
        assert np.array_equal(found.values, file.values)
        assert found.table_id == file.table_id
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["table.json"]


@given(st.lists(st.floats(0, 1e300), min_size=2, max_size=2))
def test_values_survive_to_the_last_bit(tmp_path_factory: pytest.TempPathFactory, drawn: list[float]) -> None:
    path = tmp_path_factory.mktemp("table") / "table.json"
    write_table_file(path, replace(TABLE, values=np.array(drawn).reshape(1, 1, 1, 2).repeat(2, axis=1)))
    assert read_table_file(path).values[0, 0, 0].tolist() == drawn


def test_the_id_is_of_everything() -> None:
    others = [
        SHARES,
        replace(TABLE, target=OTHER),
        replace(TABLE, drafter=SYNTHETIC),
        replace(TABLE, block_size=16),
        replace(TABLE, text_id="other"),
        replace(TABLE, draft_id="other"),
        replace(TABLE, num_positions=1),
        replace(TABLE, values=MAPS + 1e-6),
    ]
    assert len({file.table_id for file in [TABLE, *others]}) == 9


def test_there_is_a_golden_file_of_every_version() -> None:
    names = {f"table_v{version}.json" for version in range(1, FORMAT_VERSION + 1)}
    assert {path.name for path in GOLDEN.glob("table_v*")} == names


def test_version_1() -> None:
    file = read_table_file(GOLDEN / "table_v1.json", RANKS)
    assert file.to_json() == SHARES.to_json()
    assert file.table_id == "20d23806fbd6f099"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kind": "odds"}, "one of calibration, ranks"),
        ({"block_size": 0}, "block_size"),
        ({"values": np.ones((3, 3))}, "shape"),
        ({"values": -MAPS}, "slopes"),
        ({"values": MAPS[:, :1]}, "shape"),
        ({"values": np.full_like(MAPS, np.nan)}, "finite"),
        ({"values": np.empty((0, 2, 7, 2))}, "one or more"),
        ({"kind": RANKS}, "shape"),
        ({"kind": RANKS, "values": np.array([[0.75, 0.75]])}, "at most 1"),
        ({"kind": RANKS, "values": np.array([[-0.25, 0.75]])}, "at least 0"),
    ],
)
def test_values_that_are_none_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        replace(TABLE, **changed)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "other"}, "is no fitted table; `simlab train calibration --out FILE` makes one"),
        ({"format_version": FORMAT_VERSION + 1}, f"reads up to {FORMAT_VERSION}. Upgrade simlab"),
        ({"kind": "odds"}, "fit the table again"),
        ({"kind": RANKS}, "shape"),
        ({"block_size": "8"}, "must be an integer"),
        ({"target": None}, "must be an object"),
        ({"values": None}, "nested lists of numbers"),
        ({"values": [["1.0"]]}, "nested lists of numbers"),
        ({"values": [[True, 0.5]]}, "nested lists of numbers"),
        ({"values": [[[[0.5], [0.5, 1.0]]]]}, "fit the table again"),
        ({"num_positions": -1}, "num_positions"),
    ],
)
def test_damage_is_refused(tmp_path: Path, change: dict[str, object], message: str) -> None:
    path = tmp_path / "table.json"
    path.write_text(json.dumps(TABLE.to_json() | change), encoding="utf-8")
    with pytest.raises(TraceError) as found:
        read_table_file(path)
    assert message in str(found.value)
    assert str(path) in str(found.value)


def test_missing_keys_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "table.json"
    for key in TABLE.to_json():
        path.write_text(json.dumps({name: value for name, value in TABLE.to_json().items() if name != key}))
        with pytest.raises(TraceError):
            read_table_file(path)


def test_the_shipped_table_of_the_models_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_file, "PACKAGED", tmp_path)
    assert packaged_table_files() == []
    assert find_packaged_table(CALIBRATION, SYNTHETIC, OTHER, 8) is None
    write_table_file(tmp_path / "a.json", replace(TABLE, block_size=16))
    write_table_file(tmp_path / "b.json", SHARES)
    write_table_file(tmp_path / "c.json", TABLE)
    found = find_packaged_table(CALIBRATION, SYNTHETIC, OTHER, 8)
    assert found is not None
    assert found.table_id == TABLE.table_id
    assert find_packaged_table(CALIBRATION, OTHER, OTHER, 8) is None
    assert find_packaged_table(CALIBRATION, SYNTHETIC, replace(OTHER, digest="of some of its files"), 8) is not None
    assert read_table_file("b").kind == RANKS
