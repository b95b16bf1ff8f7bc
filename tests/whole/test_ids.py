"""Ids and results that others rely on: none may change because code moved; JSON is kept whole in `test_outputs`."""

import hashlib
import json
from pathlib import Path

import polars as pl
from made_up_artefacts import FullArtefacts
from places import GOLDEN
from policy_variants import every_policy

from simlab.cli.main import main
from simlab.traces.artefacts.cost import packaged_cost_files, read_cost_file
from simlab.traces.artefacts.kinds import find_packaged_config
from simlab.traces.artefacts.ngram import packaged_ngram_files, read_ngram_file
from simlab.traces.artefacts.table import packaged_table_files, read_table_file
from simlab.traces.reader import open_trace, packaged_trace

IDS = GOLDEN / "ids.json"

COST = "smollm2-135m-epyc-float32"
"""The latency profile of the kept values."""


def digest(value: object) -> str:
    """Of canonical JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, separators=(",", ":")).encode()).hexdigest()[:16]


def all_ids() -> dict[str, object]:
    """Of all policies, and of everything that comes with simlab."""
    trace = open_trace(packaged_trace())
    return {
        "policies": {policy.label: policy.policy_id for policy in every_policy(FullArtefacts())},
        "trace": {"text": trace.text_id, **dict(trace.draft_ids)},
        "costs": {path.name: read_cost_file(path).cost_id for path in packaged_cost_files()},
        "ngrams": {path.name: read_ngram_file(path).ngram_id for path in packaged_ngram_files()},
        "tables": {path.name: read_table_file(path).table_id for path in packaged_table_files()},
        "target_config": digest(find_packaged_config(trace.manifest.target.digest)),
    }


def result_columns(folder: Path) -> dict[str, object]:
    """A digest of each column of result rows and of rows of rounds, but for the version of simlab."""
    results, rounds = folder / "results.parquet", folder / "rounds.parquet"
    typed = ["replay", "-p", "chain:length=1/3", "-p", "presto:budget=8", "-p", "price", "--limit", "3", "--cost", COST]
    assert main([*typed, "--out", str(results), "--rounds", str(rounds)]) == 0
    frames = {path.stem: pl.read_parquet(path) for path in (results, rounds)}
    return {
        f"{name} {column}": digest(frame[column].to_list())
        for name, frame in frames.items()
        for column in frame.columns
        if column != "simlab_version"
    }


def same(name: str, value: object) -> None:
    kept = json.loads(IDS.read_text(encoding="utf-8"))[name]
    assert value == kept, f"the new value of {name!r}:\n{json.dumps({name: value}, indent=1)}"


def test_ids() -> None:
    same("ids", all_ids())


def test_results(tmp_path: Path) -> None:
    same("results", result_columns(tmp_path))
