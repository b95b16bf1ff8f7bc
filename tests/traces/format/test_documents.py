"""Digests of JSON files: every change of a value is found, no change of spacing or order is one."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from places import GOLDEN
from signed_files import signed

from simlab.errors import SimlabError, TraceError
from simlab.traces.artefacts.cost import read_cost_file
from simlab.traces.artefacts.table import read_table_file
from simlab.traces.format.documents import DIGEST, MOST_BYTES, JsonFields, check_digest, in_lines, with_digest
from simlab.traces.format.manifest import manifest_from_text

READERS: dict[str, Callable[[Path], object]] = {
    "cost_v2.json": read_cost_file,
    "table_v1.json": read_table_file,
    "trace_v1/manifest.json": lambda path: manifest_from_text(path.read_text(encoding="utf-8"), str(path), path.parent),
}


def changed(values: Any, at: list[str | int]) -> bool:  # noqa: ANN401 - any JSON
    """Change one value a little, so that it stays of its type; whether there is one that can be."""
    holder = values
    for step in at[:-1]:
        holder = holder[step]
    value = holder[at[-1]]
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    holder[at[-1]] = f"{value}x" if isinstance(value, str) else value + 1
    return True


def places(value: object, at: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [at, *(place for key, one in inner for place in places(one, (*at, key)))]


@pytest.mark.parametrize("name", READERS)
def test_every_changed_value_is_refused_and_no_other_writing(name: str, tmp_path: Path) -> None:
    read, path = READERS[name], tmp_path / Path(name).name
    values = json.loads((GOLDEN / name).read_text(encoding="utf-8"))
    path.write_text(json.dumps(dict(reversed(values.items())), indent=7), encoding="utf-8")
    whole = read(path)
    assert whole is not None
    refused = 0
    for at in places(values)[1:]:
        damaged = json.loads(json.dumps(values))
        if not changed(damaged, list(at)):
            continue
        path.write_text(json.dumps(damaged), encoding="utf-8")
        with pytest.raises(SimlabError):
            read(path)
        refused += 1
    assert refused > 10


@pytest.mark.parametrize("name", READERS)
def test_a_file_without_a_digest_is_refused_and_signed_it_is_read(name: str, tmp_path: Path) -> None:
    read, path = READERS[name], tmp_path / Path(name).name
    values = json.loads((GOLDEN / name).read_text(encoding="utf-8"))
    del values[DIGEST]
    path.write_text(json.dumps(values), encoding="utf-8")
    where = tmp_path if name.startswith("trace") else path
    with pytest.raises(SimlabError, match=f"has no digest.*sign it: `simlab inspect {re.escape(str(where))} --sign`"):
        read(path)
    path.write_text(json.dumps(signed(values)), encoding="utf-8")
    read(path)


def test_a_doubled_key_is_refused(tmp_path: Path) -> None:
    text = (GOLDEN / "trace_v1" / "manifest.json").read_text(encoding="utf-8")
    doubled = text.replace('"exact_budget"', '"exact_budget": 60000, "exact_budget"')
    assert doubled != text
    with pytest.raises(TraceError, match="'exact_budget' stands twice"):
        manifest_from_text(doubled, "manifest.json", tmp_path)


def test_a_file_that_is_too_large_is_not_even_read(tmp_path: Path) -> None:
    path = tmp_path / "cost.json"
    with path.open("wb") as file:
        file.truncate(MOST_BYTES + 1)
    with pytest.raises(SimlabError, match=r"has 33,554,433 bytes, and a cost file has at most 33,554,432"):
        read_cost_file(path)


def test_a_digest_stands_last_and_covers_the_rest() -> None:
    values = with_digest({"a": 1, DIGEST: "an old one", "b": [1.5]})
    assert list(values) == ["a", "b", DIGEST]
    check_digest(JsonFields(values, "x"))
    assert json.loads(in_lines(values, "b")) == values
    with pytest.raises(TraceError, match="was changed after it was written"):
        check_digest(JsonFields(values | {"b": [1.25]}, "x"))
