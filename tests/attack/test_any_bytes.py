"""Any bytes in any file: its reader says one sentence, or gives what it gives without the damage."""

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl
import pytest
from attack_inputs import make_missing
from damage_files import changed_bytes
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st

import simlab
from simlab.errors import SimlabError
from simlab.real_runner.record.prompts import read_prompts
from simlab.traces.artefacts.candidates import read_candidates
from simlab.traces.artefacts.cost import read_cost_file
from simlab.traces.artefacts.ngram import read_ngram_file
from simlab.traces.artefacts.optimum import read_optimum
from simlab.traces.artefacts.table import read_table_file
from simlab.traces.artefacts.timings import read_timings
from simlab.traces.format.tables import rows_digest
from simlab.traces.reader import open_trace
from simlab.traces.results.files import read_results, read_unfinished_results, results_part
from simlab.traces.results.sums import read_sums
from simlab.traces.texts import read_text_lines, read_text_table


def recorded(shard: Path) -> object:
    """What replays read of a trace, one of whose files is damaged."""
    trace = open_trace(shard.parent)
    return trace.manifest, list(trace.recorded_texts(trace.draft_name()))


def asked(path: Path) -> object:
    """The prompts in a published benchmark's file."""
    with TemporaryDirectory() as folder:
        return simlab.prompts(path.stem, source=path, out=Path(folder) / "out.jsonl").prompts


def texts_of(path: Path) -> object:
    return list((read_text_lines if path.suffix == ".jsonl" else read_text_table)(path))


def part_of(path: Path) -> object:
    """What merge reads of a part of a replay."""
    noted = results_part(path)
    return read_unfinished_results(path)[0], noted and noted.facts()


VOUCHED: Mapping[str, Callable[[Path], object]] = {
    "cost.json": read_cost_file,
    "results.parquet": read_results,
    "calibration.json": read_table_file,
    "ngram.parquet": read_ngram_file,
    "optimum.json": read_optimum,
    "sums.parquet": read_sums,
    "part.parquet": part_of,
    "trace/manifest.json": recorded,
    "trace/sequences.parquet": recorded,
    "trace/tokens-0000.parquet": recorded,
    "trace/draft-synthetic-0001.parquet": recorded,
}
"""Files with a digest, and what reads them."""

FREE: Mapping[str, Callable[[Path], object]] = {
    "candidates.jsonl": read_candidates,
    "timings.csv": read_timings,
    "timings.json": read_timings,
    "prompts.jsonl": read_prompts,
    "gsm8k.jsonl": asked,
    "mbpp.json": asked,
    "mt-bench.jsonl": asked,
    "texts.parquet": texts_of,
    "texts.jsonl": texts_of,
}
"""Files that people write: other bytes may say something else."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inputs")
    make_missing(folder, sorted({name.partition("/")[0] for name in (*VOUCHED, *FREE)} - {"prompts.jsonl"}))
    simlab.prompts("gsm8k", source=folder / "gsm8k.jsonl", out=folder / "prompts.jsonl")
    return folder


def plain(value: object) -> object:
    """A value as Python's own, which can be compared."""
    if isinstance(value, pl.DataFrame):
        return rows_digest(value)
    if isinstance(value, np.ndarray):
        return value.dtype.str, value.tolist()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain(inner) for inner in value]
    return repr(value)


def outcome(reader: Callable[[Path], object], path: Path) -> object:
    """What a reader gives, or its one sentence."""
    try:
        return plain(reader(path))
    except SimlabError as error:
        said = str(error)
        assert said
        assert "\n" not in said.strip()
        return None


@pytest.mark.parametrize("name", [*VOUCHED, *FREE])
@settings(max_examples=examples(60))
@given(data=st.data())
def test_any_bytes_are_refused_or_change_nothing(name: str, inputs: Path, data: st.DataObject) -> None:
    path, reader = inputs / name, {**VOUCHED, **FREE}[name]
    content = path.read_bytes()
    before = outcome(reader, path)
    assert before is not None
    changed = content
    for _ in range(data.draw(st.integers(1, 4))):
        changed, _ = changed_bytes(changed, data.draw(st.randoms()))
    path.write_bytes(data.draw(st.binary(max_size=60) | st.just(changed)))
    try:
        found = outcome(reader, path)
    finally:
        path.write_bytes(content)
    assert name in FREE or found in (None, before)
