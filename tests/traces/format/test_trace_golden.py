"""Traces of every format version ever released are read, and give the numbers they gave then."""

import re

import polars as pl
from places import DOCS, GOLDEN

from simlab.channels import POOL, TRANSITIONS, Pool, Transitions
from simlab.traces.format.files import FORMAT_VERSION
from simlab.traces.format.manifest import read_manifest
from simlab.traces.format.schema import channel_schema, draft_schema, sequences_schema, tokens_schema
from simlab.traces.inspect import check_trace
from simlab.traces.reader import open_trace
from simlab.traces.results.rows import results_schema

PAGE = DOCS / "reference" / "trace_format.md"


def test_there_is_a_golden_trace_of_every_version() -> None:
    versions = {f"trace_v{version}" for version in range(1, FORMAT_VERSION + 1)}
    assert {path.name for path in GOLDEN.glob("trace_v*")} == versions


def test_version_1() -> None:
    trace = open_trace(GOLDEN / "trace_v1")
    assert {
        "text_id": trace.text_id,
        "draft_ids": dict(trace.draft_ids),
        "shards": trace.manifest.held().shards,
    } == {
        "text_id": "1b167e94ed3158fc",
        "draft_ids": {"synthetic": "87f5fa224bb3d4cf"},
        "shards": (2, 2),
    }
    first = next(trace.recorded("synthetic"))
    assert first.rows is not None
    assert {
        "prompt": (first.prompt.prompt_id, first.prompt.dataset, first.prompt.token_ids.tolist()),
        "text": first.text.tolist(),
        "stop_reason": first.stop_reason,
        "counts": first.rows.counts[0].tolist(),
        "ids": first.rows.ids[:8].tolist(),
        "log_probs": first.rows.log_probs[:3].tolist(),
        "true_ranks": first.rows.true_ranks[-3:].tolist(),
    } == {
        "prompt": ("math-0", "math", [17, 52, 54, 1]),
        "text": [56, 37, 41, 53, 35, 46, 50, 14, 4],
        "stop_reason": "length",
        "counts": [13, 14, 14],
        "ids": [37, 6, 35, 4, 33, 2, 31, 0],
        "log_probs": [-1.2250213623046875, -1.8952484130859375, -2.278076171875],
        "true_ranks": [[0, 2, 0], [0, 1, -1], [2, -1, -1]],
    }
    _, tokens = next(trace.token_rows())
    assert tokens.top_ids[0, :5].tolist() == [56, 57, 58, 59, 0]
    assert tokens.top_log_probs[0, :2].tolist() == [-4.237823486328125, -4.525482177734375]


def test_version_1_is_whole() -> None:
    report = check_trace(GOLDEN / "trace_v1")
    assert (report["prompts"], report["sequences"], report["tokens"], report["stopped"]) == (3, 4, 29, 2)
    assert (report["drafts"]["synthetic"]["num_rows"], report["drafts"]["synthetic"]["num_candidates"]) == (25, 830)


def test_channels_of_version_1() -> None:
    folder = GOLDEN / "trace_channels_v1"
    trace = open_trace(folder)
    assert (trace.text_id, dict(trace.draft_ids)) == ("1b167e94ed3158fc", {"synthetic": "87f5fa224bb3d4cf"})
    assert dict(trace.channel_ids) == {"transitions": "383626a48baab9ee", "pool": "b6cc0932cb5ff6f8"}
    assert trace.manifest.channels["pool"].settings == {"depth": 3, "top_k": 4, "beam": 2, "exact_nodes": 4}
    first = next(trace.recorded("synthetic", channels=["transitions", "pool"]))
    transitions, pool = (next(iter(first.channels[name].rows())) for name in ("transitions", "pool"))
    assert isinstance(transitions, Transitions)
    assert isinstance(pool, Pool)
    assert {
        "num_rows": transitions.num_rows.tolist(),
        "previous": transitions.previous.tolist(),
        "ids": transitions.ids[:2].tolist(),
        "log_probs": transitions.log_probs[0].tolist(),
    } == {
        "num_rows": [1, 3, 3],
        "previous": [37, 6, 35, 24, 1, 38],
        "ids": [[37, 35, 0, 6], [1, 24, 38, 15]],
        "log_probs": [-0.3672637939453125, -3.1726531982421875, -3.6366729736328125, -3.8869781494140625],
    }
    assert {
        "tokens": pool.tokens[:8].tolist(),
        "parents": pool.parents[:8].tolist(),
        "log_probs": pool.log_probs[:3].tolist(),
        "expanded": pool.expanded[:4].tolist(),
    } == {
        "tokens": [37, 6, 33, 35, 24, 1, 38, 15],
        "parents": [0, 0, 0, 0, 1, 1, 1, 1],
        "log_probs": [-0.1847686767578125, -3.923614501953125, -4.1816558837890625],
        "expanded": [True, True, False, False],
    }
    report = check_trace(folder)
    assert [report["channels"][name]["num_scored"] for name in ("transitions", "pool")] == [700, 500]


def test_files_without_channels_are_what_they_were() -> None:
    """A manifest without channels has no key for them, and its bytes are those of before there were any."""
    manifest = read_manifest(GOLDEN / "trace_v1")
    assert (manifest.channels, manifest.held().channel_ids) == ({}, {})
    assert manifest.to_bytes() == (GOLDEN / "trace_v1" / "manifest.json").read_bytes()


def test_the_page_lists_every_column_with_its_type() -> None:
    page = PAGE.read_text()
    tables = {
        "sequences.parquet": sequences_schema(),
        "tokens-NNNN.parquet": tokens_schema(vocab_size=1000),
        "draft-NAME-NNNN.parquet": draft_schema(depth=7),
        "Transitions": channel_schema(TRANSITIONS, width=7),
        "Pools": channel_schema(POOL, width=7),
        "Result files": results_schema(),
    }
    for title, schema in tables.items():
        section = re.split(r"\n##+ ", page.split(f"## {title}", 1)[1], maxsplit=1)[0]
        rows = dict(re.findall(r"^\| `(\w+)` \| ([^|]+?) \|", section, re.MULTILINE))
        assert rows == {name: written(dtype) for name, dtype in schema.items()}, title


def written(dtype: pl.DataType) -> str:
    """A type as the page writes it; fixed widths have the letters W and D."""
    if isinstance(dtype, pl.Array):
        return f"{written(dtype.inner)} [{'W' if dtype.size == 16 else 'D'}]"  # type: ignore[arg-type]
    if isinstance(dtype, pl.List):
        return f"list of {written(dtype.inner)}"  # type: ignore[arg-type]
    return str(dtype).lower()
