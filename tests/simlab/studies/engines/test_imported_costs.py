"""Latencies that were measured elsewhere become cost files: lists of timings and the tables of engines."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from eagle3_traces import write_head_trace
from made_up_costs import EMPTY, filled, sample_s
from study_results import refused, rows_of, value_of

import simlab
from simlab.cost import GRID_STAGES
from simlab.studies.engines.import_files import import_timings
from simlab.studies.export.export import export
from simlab.studies.inputs.prices import cost_table_of
from simlab.studies.inputs.trace import sample_trace
from simlab.traces.artefacts.cost import read_cost_file, write_cost_file

SAMPLED = {
    "sample_batch_tokens": [8, 16, 64, 256],
    "sample_steps_per_sec": [90.0, 85.0, 60.0, 20.0],
    "max_batch_tokens": 256,
}
CURVES = {"draft_curve": [[1, 1.0], [8, 2.0]], "verify_curve": [[1, 10.0], [8, 10.5], [64, 12.0], [512, 40.0]]}
ROOT: dict[str, Any] = {"counts": "root-included"}


@pytest.fixture
def timings(tmp_path: Path) -> Path:
    """What the target's passes take by tokens of the pass."""
    cells = [(nodes, context) for context in (16, 64, 256) for nodes in (1, 2, 9, 33, 65)]
    rows = [f"{nodes},{context},{sample_s('verify', nodes - 1, context)!r}" for nodes, context in cells]
    path = tmp_path / "engine.csv"
    path.write_text("\n".join(["# a made-up engine", "nodes,context,seconds", *rows]), encoding="utf-8")
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "dspark_sps.json"
    path.write_text(json.dumps(SAMPLED))
    return path


def test_imported_prices_price_a_replay(trace: Path, timings: Path, tmp_path: Path) -> None:
    """Every pass costs what was timed."""
    out, other = tmp_path / "engine.json", tmp_path / "other.json"
    import_timings([timings], trace, **ROOT, out=out, draft_s=0.004, machine="Made-up GPU")
    file = read_cost_file(out)
    assert file.node_counts == (0, 1, 8, 32, 64)
    for drafted in file.node_counts:
        assert cost_table_of(file).curve("verify", 64)[drafted] == pytest.approx(sample_s("verify", drafted, 64))
    assert value_of(simlab.replay(trace, ["ddtree:budget=8"], cost=out))["cost"] == file.cost_id
    said = refused(import_timings, [timings], trace, **ROOT, out=out, plain_s=0.01)
    assert f"{out} is there already; name another file, or delete it" in said
    again = value_of(import_timings([timings], trace, **ROOT, out=other, draft_s=0.004, plain_s=0.01))
    assert again["rows"][0]["cost_id"] == read_cost_file(other).cost_id != file.cost_id


def test_tables_of_engines_price_a_replay(table: Path, tmp_path: Path) -> None:
    out, of_vllm = tmp_path / "cost.json", tmp_path / "vllm.json"
    value = value_of(import_timings([table], sample_trace(), batch=4, plain_s=0.01, out=out))["rows"][0]
    assert any("Steps of 4 to 7 tokens were not timed" in one for one in value["checks"])
    assert any("within the seconds of verify" in one for one in value["notes"])
    rows = value_of(simlab.replay(None, ["chain"], batch=4, cost=out))["rows"]
    assert all(row["tokens_per_s"] > 0 for row in rows if row["name"] == "chain")
    table.write_text(json.dumps(CURVES))
    said = import_timings([table], batch=8, out=of_vllm).text()
    assert "draft takes 0.002 s everywhere" in said
    assert "Probes of 1 tokens cannot occur" in said


@pytest.mark.parametrize(
    ("file", "named", "said"),
    [
        ("table", {"counts": "drafted-only"}, "--counts is for CSV"),
        ("table", {"format": "vllm-bench"}, "it looks like sglang-sps"),
        ("table", {"format": "timings", **ROOT}, "is not a list of objects"),
        ("table", {"draft_s": 0.1}, "leave out --draft-s"),
        ("table", {"batch": 300}, "have at least one each"),
    ],
)
def test_what_does_not_fit_is_one_sentence(
    file: str, named: dict[str, object], said: str, timings: Path, table: Path, tmp_path: Path
) -> None:
    out = tmp_path / "made.json"
    path = {"timings": timings, "table": table}.get(file, Path(file))
    assert said in refused(import_timings, [path], **{"out": out, **named})
    assert not out.exists()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("tokens;ms\n1;7,1\n", "write commas between cells"),
        ("num_tokens\tlatency_ms\n1\t7.1\n", "expected names with commas between them"),
        ("", "has no rows; expected names"),
        ("# HELP up is it\nup 1\n", "holds counts of an engine"),
        ('vllm:num{a="b"} 1.0\n', "holds counts of an engine"),
    ],
)
def test_where_a_cost_file_is_wanted_only_counts_are_refused_as_such(text: str, said: str, tmp_path: Path) -> None:
    path, out = tmp_path / "timings.csv", tmp_path / "made.json"
    path.write_text(text)
    assert said in refused(simlab.import_files, [path], out=out)
    assert not out.exists()


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """Latencies of four texts at a time, at one context."""
    file, path = filled(), tmp_path / "measured.json"
    samples = {cell: seconds for cell, seconds in file.samples.items() if cell[2] == 64}
    write_cost_file(path, replace(file, batch=4, contexts=(64,), samples=samples))
    return path


@pytest.mark.parametrize(
    ("file_format", "stages"), [("sglang-sps", GRID_STAGES), ("vllm-curves", ("verify",))], ids=["sglang", "vllm"]
)
def test_what_is_exported_is_imported(
    measured: Path, tmp_path: Path, file_format: str, stages: tuple[str, ...]
) -> None:
    """At every number of drafted tokens that was timed; between them the engines round, and cost files do not."""
    table, again = tmp_path / "table.json", tmp_path / "again.json"
    made = export(file_format, cost=[measured])
    assert any("context of 64 tokens" in note for note in made.notes)
    table.write_text(made.text)
    import_timings([table], batch=4, out=again)
    before, after = (cost_table_of(read_cost_file(path)) for path in (measured, again))
    for number in EMPTY.node_counts:
        wanted = sum(float(before.curve(stage, 64)[number]) for stage in stages)
        assert float(after.curve("verify", 64)[number]) == pytest.approx(wanted)
    if file_format == "vllm-curves":
        assert after.seconds["draft"].max() == pytest.approx(float(before.curve("draft", 64)[7]))


def test_batch_sizes_share_a_table(measured: Path, cost: Path) -> None:
    value = json.loads(export("sglang-sps", cost=[measured, cost]).text)
    assert value["sample_batch_tokens"] == [1, 2, 4, 8, 9, 36, 65, 260]
    assert [size for size, _ in json.loads(export("vllm-curves", cost=[measured, cost]).text)["draft_curve"]] == [1, 4]


def test_one_pass_of_a_head_prices_its_chains_and_trees(tmp_path: Path) -> None:
    """A chain of k takes k passes, a tree one and as many as its steps, whatever the batch; nothing else changes."""
    trace, table, cost = write_head_trace(tmp_path / "trace", num_sequences=6), tmp_path / "t.csv", tmp_path / "c.json"
    rows = [(1, 0.0100), (2, 0.0101), (6, 0.0105), (13, 0.0120)]
    for batch in (1, 4):
        table.write_text("\n".join(["nodes,context,seconds,batch", *(f"{n},64,{s},{batch}" for n, s in rows)]))
        cost.unlink(missing_ok=True)
        given: dict[str, Any] = {"counts": "root-included", "plain_s": 0.0099, "batch": batch, "out": cost}
        made = import_timings([table], trace, draft_s=0.0007, **given)
        ((_, file, _),) = made.costs
        assert any("a pass of the head takes 0.0007 s" in note for note in file.notes)
        tree = "eagle3:budget=6,beam=3,top_k=3,steps=2"
        found = rows_of(simlab.replay(trace, ["chain", "chain:length=2", tree], cost=cost))
        for label, stage, passes in (
            ("chain", "draft_s", 5),
            ("chain:length=2", "draft_s", 2),
            (tree, "channel_s", 3),
        ):
            assert found[label][stage] == pytest.approx(found[label]["rounds"] * passes * 0.0007)
        assert found[tree]["draft_s"] == 0
        assert simlab.inspect(str(cost)).text()


def test_a_head_whose_passes_were_not_timed_has_no_price(tmp_path: Path) -> None:
    trace, table, cost = write_head_trace(tmp_path / "trace", num_sequences=4), tmp_path / "t.csv", tmp_path / "c.json"
    table.write_text("nodes,context,seconds\n1,64,0.01\n4,64,0.0101\n13,64,0.012\n")
    said = refused(import_timings, [table], trace, counts="root-included", draft_s=0.0007, out=cost)
    assert "chains of up to 5 tokens" in said
    assert "add a row of it: 6 nodes" in said
    import_timings([table], trace, counts="root-included", out=cost)
    tree = "eagle3:budget=6,beam=3,top_k=3,steps=2"
    said = simlab.replay(trace, [tree], cost=cost).text()
    assert "simlab import --draft-s SECONDS --trace TRACE" in " ".join(said.split())


def test_several_files_of_timings_are_refused_as_that(timings: Path, tmp_path: Path) -> None:
    """And not as counts of an engine, of which several are read together."""
    (tmp_path / "curves.json").write_text(json.dumps(CURVES))
    for given in ([timings, timings], [timings, tmp_path / "curves.json"], [tmp_path / "curves.json", timings]):
        said = refused(simlab.import_files, given, out=tmp_path / "cost.json")
        assert said == "timings are imported one file at a time; got 2 files"
        assert refused(simlab.import_timings, given) == said
