"""Which policies are judged in sample: by tables and counts of the very texts that are replayed."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from study_results import refused
from synthetic_traces import write_synthetic_trace

from simlab.policies.artefacts import LEAST_WIDTH
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.studies.confirm.confirm import artefacts_of_models
from simlab.studies.fit_ngram import fit_ngram
from simlab.studies.fit_tables import fit_calibration, fit_ranks
from simlab.studies.inputs.artefacts import TraceArtefacts
from simlab.studies.inputs.prices import Prices
from simlab.studies.replay.replay import replay
from simlab.traces.artefacts.ngram import read_ngram_file
from simlab.traces.artefacts.table import read_table_file
from simlab.traces.reader import Trace, open_trace, packaged_trace

FITS: dict[str, Callable[..., object]] = {"calibration": fit_calibration, "ranks": fit_ranks, "ngram": fit_ngram}
KINDS = {"calibration": "calibrated:table=", "ranks": "sequoia:table=", "ngram": "presto:ngram="}


@pytest.fixture(scope="module")
def traces(tmp_path_factory: pytest.TempPathFactory) -> tuple[Trace, Trace]:
    """Two of the same made-up models, on other texts."""
    folder = tmp_path_factory.mktemp("traces")
    made = (write_synthetic_trace(folder / str(seed), seed=seed, num_sequences=4, length=30) for seed in (1, 2))
    trace, other = map(open_trace, made)
    return trace, other


def policies_on(trace: Trace, typed: list[str]) -> tuple[list[NamedPolicy], tuple[str, ...]]:
    shelf = TraceArtefacts(Prices(None, "none", ""), trace, trace.draft_name())
    found = parse_policies(typed, shelf)
    return found, shelf.in_sample(found)


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_the_same_texts_is_marked(traces: tuple[Trace, Trace], tmp_path: Path, kind: str) -> None:
    """And only there, and only the policies that use it."""
    path = tmp_path / f"{kind}{'.parquet' if kind == 'ngram' else '.json'}"
    FITS[kind](trace=traces[0], out=path)
    label = f'{KINDS[kind]}"{path}"'
    found, marked = policies_on(traces[0], ["ar", "ddtree:budget=4", label])
    assert marked == (label,)
    made = read_ngram_file(path).ngram_id if kind == "ngram" else read_table_file(path).table_id
    assert list(found[2].policy.artefacts.values()) == [made]  # type: ignore[attr-defined]
    assert policies_on(traces[1], ["ar", label])[1] == ()


@pytest.mark.parametrize("draft", [None, "org/drafter@v1", "moved/elsewhere"])
def test_the_only_draft_set_of_a_trace_is_meant_by_any_name(draft: str | None) -> None:
    """Whether that drafter made it is seen when it is loaded; until then its prices and tables are at hand."""
    trace = open_trace(packaged_trace())
    shelf = artefacts_of_models(None, trace, draft, trace.manifest.dtype)
    found = parse_policies(["caddtree", "calibrated:budget=8"], shelf)
    assert len(found) == 2


def test_of_several_draft_sets_the_named_one_is_meant() -> None:
    """By its repository, which the manifest has without the revision."""
    trace = open_trace(packaged_trace())
    (kept,) = trace.manifest.draft_sets.values()
    sets = {
        name: replace(kept, model=replace(kept.model, name=f"org/{name}"), min_width=width)
        for name, width in (("one", 3), ("two", 5))
    }
    both = cast(Trace, SimpleNamespace(manifest=replace(trace.manifest, draft_sets=sets, contents=None)))
    widths = {asked: artefacts_of_models(None, both, asked, "float32").min_width() for asked in ("org/one@v1", "two")}
    assert widths == {"org/one@v1": 3, "two": 5}
    assert artefacts_of_models(None, both, None, "float32").min_width() == LEAST_WIDTH


def test_a_file_that_is_there_is_not_explained_by_quotes() -> None:
    assert "double quotes" not in refused(replay, None, [f'sequoia:table="{__file__}"'])
