"""The published schemas and the readers refuse the same files, whole and with one value damaged."""

import copy
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from made_up_costs import filled
from made_up_optimum import OPTIMUM
from places import GOLDEN
from signed_files import is_signed, signed

from simlab.errors import CostError, TraceError
from simlab.traces.artefacts.cost import packaged_cost_files, read_cost_file
from simlab.traces.artefacts.kinds import SCHEMAS, read_schema
from simlab.traces.artefacts.optimum import read_optimum
from simlab.traces.format.documents import with_digest
from simlab.traces.format.manifest import DumpedInfo, ImportedInfo, read_manifest
from simlab.traces.format.manifest_entries import ChannelInfo
from simlab.traces.reader import packaged_trace

Place = tuple[str | int, ...]

SCALARS: tuple[object, ...] = (None, True, "x", "", 1.5, -1, 0, 70_000)
LISTS: tuple[object, ...] = ([], ["x"], [1], [-1], [None])
OBJECTS: tuple[object, ...] = ({}, {"x": 1}, {"x": "x"}, {"x": ["x"]}, {"x": []})
WRONG = (*SCALARS, *LISTS, *OBJECTS)
"""What is put in the place of each value in turn."""


def manifest_values() -> dict[str, Any]:
    """A manifest in which every optional key is there."""
    manifest = read_manifest(GOLDEN / "trace_v1")
    (name, draft_set) = next(iter(manifest.draft_sets.items()))
    full = replace(draft_set, draft_vocab_size=draft_set.vocab_size - 1, tap_offset=1, mask_token_id=3)
    full = replace(full, is_chain=True, root_seen=False, noise="deterministic,below=9,salt=0", candidates_only=True)
    draft_sets = {name: full, "other": replace(draft_set, mask_token_id=None)}
    draft_ids, channel_ids = {**manifest.held().draft_ids, "other": "0123"}, {"flash": "4", "eagle": "5", "new": "6"}
    files = {name: info for name, info in manifest.held().files.items() if not name.startswith("tokens-")}
    contents = replace(manifest.held(), draft_ids=draft_ids, channel_ids=channel_ids, files=files)
    of_rows = {"depth": draft_set.depth, "previous": 2, "top_k": 3, "order": "base-rank"}
    flash = ChannelInfo("transitions", manifest.target, name, draft_ids[name], of_rows, "float32")
    eagle = ChannelInfo("pool", manifest.target, None, None, {"depth": 2, "beam": 3, "exact_nodes": 4}, "float32")
    new = ChannelInfo("sketches", manifest.target, None, None, {"lengths": [0, 1]}, "float32", {"every": 10, "seed": 0})
    kept = replace(
        manifest,
        hidden_states=DumpedInfo((1, 2), "float32", "0123"),
        imported=ImportedInfo("made-up engine", ("the target's distributions",)),
        target=replace(manifest.target, quantised="fp8"),
        draft_sets=draft_sets,
        channels={"flash": flash, "eagle": eagle, "new": new},
        contents=contents,
    )
    values = kept.to_json()
    found: dict[str, Any] = json.loads(json.dumps(values))
    return found


def cost_values() -> dict[str, Any]:
    """A cost file in which every optional key is there."""
    return cost_values_of(3)


def cost_values_of(version: int) -> dict[str, Any]:
    """A cost file of one format, with notes."""
    found: dict[str, Any] = json.loads((GOLDEN / f"cost_v{version}.json").read_text(encoding="utf-8"))
    return found | {"notes": ["made up"]}


def optimum_values() -> dict[str, Any]:
    """A choice with a winner, prices and a limit."""
    found: dict[str, Any] = json.loads(json.dumps(replace(OPTIMUM, node_cap=16).to_json()))
    return found


VALUES: dict[str, Callable[[], dict[str, Any]]] = {
    "manifest": manifest_values,
    "cost": cost_values,
    "optimum": optimum_values,
}


def reader_accepts(kind: str, values: object, folder: Path) -> bool:
    """Whether simlab reads these values as a file of its kind; refused is refused in a sentence of its own."""
    path = folder / "manifest.json"
    path.write_text(json.dumps(signed(values) if is_signed(values) else values), encoding="utf-8")
    try:
        if kind == "manifest":
            read_manifest(folder)
        else:
            (read_cost_file if kind == "cost" else read_optimum)(path)
    except (CostError, TraceError):
        return False
    return True


def validator(kind: str) -> Any:  # noqa: ANN401 - jsonschema ships no types
    return jsonschema.Draft202012Validator(read_schema(kind))


def places(value: object, at: Place = ()) -> Iterator[Place]:
    """Where each value stands; of a list the first two."""
    if at:
        yield at
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from places(inner, (*at, key))
    elif isinstance(value, list):
        for index, inner in enumerate(value[:2]):
            yield from places(inner, (*at, index))


def damages(whole: dict[str, Any]) -> Iterator[tuple[Place, str, dict[str, Any]]]:
    """Files in which one value is taken out, or is another one."""
    for at in places(whole):
        for wrong in ("removed", *WRONG):
            values = copy.deepcopy(whole)
            holder: Any = values
            for step in at[:-1]:
                holder = holder[step]
            if wrong == "removed":
                del holder[at[-1]]
            else:
                holder[at[-1]] = wrong
            yield at, repr(wrong), values


def is_beyond_a_schema(kind: str, at: Place) -> bool:
    """Whether a value there is refused by what it is beside others: the few rules that a schema cannot say."""
    if kind == "manifest":  # draft_vocab_size is at most vocab_size; each draft set has an id
        if at[0] == "draft_sets":
            return len(at) < 3 or at[-1] in ("vocab_size", "draft_vocab_size")
        if at[0] == "channels":  # each has an id, and fits the draft set that it extends
            return len(at) < 3 or str(at[2]).startswith("extends") or at[-1] in ("kind", "depth", "previous")
        # Files that are listed are those that the shards call for.
        return at[:2] in (("contents", "draft_ids"), ("contents", "channel_ids"), ("contents", "shards"))
    if kind == "cost":  # contexts, node counts and units rise, and samples are of their grid, each cell once
        return (
            at[0] in ("contexts", "node_counts")
            or "units" in at
            or (at[0] == "samples" and at[-1] in ("stage", "num_drafted", "context"))
        )
    # The winner is the best policy, is run first, and is what the verdict names; which figures are numbers.
    return at[0] in ("winner", "best", "run", "optimism", "rows", "verdict")


@pytest.mark.parametrize("kind", SCHEMAS)
def test_each_schema_is_one(kind: str) -> None:
    jsonschema.Draft202012Validator.check_schema(read_schema(kind))
    with pytest.raises(ValueError, match="manifest, cost, optimum; got 'trace'"):
        read_schema("trace")


@pytest.mark.parametrize("kind", SCHEMAS)
def test_what_simlab_writes_is_valid(kind: str, tmp_path: Path) -> None:
    values = with_digest(VALUES[kind]())
    assert list(validator(kind).iter_errors(values)) == []
    assert reader_accepts(kind, values, tmp_path)
    assert list(validator(kind).iter_errors(values | {"later": [1, {"a": None}]})) == []
    assert reader_accepts(kind, values | {"later": [1, {"a": None}]}, tmp_path)


def test_packaged_and_golden_files_are_valid() -> None:
    manifests = [packaged_trace(), GOLDEN / "trace_v1", GOLDEN / "trace_channels_v1"]
    costs = [*packaged_cost_files(), *sorted(GOLDEN.glob("cost_v*.json"))]
    for kind, paths in (("manifest", [manifest / "manifest.json" for manifest in manifests]), ("cost", costs)):
        for path in paths:
            values = json.loads(path.read_text(encoding="utf-8"))
            assert list(validator(kind).iter_errors(values)) == [], path
    assert list(validator("cost").iter_errors(json.loads(json.dumps(with_digest(filled().to_json()))))) == []


@pytest.mark.thorough
@pytest.mark.parametrize("kind", SCHEMAS)
def test_schema_and_reader_refuse_the_same_damage(kind: str, tmp_path: Path) -> None:
    check, refused = validator(kind), 0
    older = [cost_values_of(1), cost_values_of(2)] if kind == "cost" else []
    for at, wrong, values in (damage for whole in (VALUES[kind](), *older) for damage in damages(with_digest(whole))):
        by_schema, by_reader = check.is_valid(values), reader_accepts(kind, values, tmp_path)
        refused += not by_schema
        if by_schema and is_beyond_a_schema(kind, at):
            continue
        assert by_schema == by_reader, f"{at} {wrong}: the schema says {by_schema}, the reader {by_reader}"
    assert refused > 300


@pytest.mark.parametrize("kind", SCHEMAS)
def test_every_key_that_the_reader_needs_is_required(kind: str, tmp_path: Path) -> None:
    values = with_digest(VALUES[kind]())
    needed = {
        key for key in values if not reader_accepts(kind, {k: v for k, v in values.items() if k != key}, tmp_path)
    }
    schema: dict[str, Any] = read_schema(kind)
    needed.discard("channels")  # it is needed where the contents have ids of channels, which a schema cannot say
    assert needed == {*schema["required"], *schema.get("else", {}).get("required", ())}
    assert set(values) == set(schema["properties"])
