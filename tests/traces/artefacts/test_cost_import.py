"""Timings of others as cost files: counting rules, samples, what is not given, and what is refused."""

import csv
import json
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from made_up_costs import SYNTHETIC, filled

from simlab.cost import GRID_STAGES, PLAIN
from simlab.errors import CostError
from simlab.studies.inputs.prices import cost_table_of
from simlab.traces.artefacts.cost import CostFile, read_cost_file, write_cost_file
from simlab.traces.artefacts.cost_import import ANY_CONTEXT, ImportedFor, counts_of, imported_cost_file
from simlab.traces.artefacts.timings import (
    DRAFTED_ONLY,
    PUBLISHED,
    ROOT_INCLUDED,
    WHOLE_PASS,
    PassTiming,
    PassTimings,
    published_timings,
    read_timings,
)

ABOUT = ImportedFor(
    target=SYNTHETIC,
    drafter=SYNTHETIC,
    block_size=8,
    temperature=0.0,
    top_k=0,
    top_p=1.0,
    machine="Made-up GPU",
    dtype="bfloat16",
)

A800_MS = {
    "4b": {
        1000: (33.8, 33.8, 33.8, 34.9, 48.5),
        4000: (34.6, 34.7, 36.3, 46.3, 72.4),
        8000: (45.0, 47.6, 51.4, 64.7, 104.0),
    },
    "8b": {
        1000: (35.0, 35.1, 35.1, 41.4, 63.2),
        4000: (34.8, 37.5, 41.7, 55.2, 86.0),
        8000: (49.0, 52.3, 57.1, 73.6, 117.3),
    },
}
"""Milliseconds of passes of 16, 64, 128, 256 and 512 tokens by context, as they were read off the release's tables."""


def written(folder: Path, text: str, name: str = "timings.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


@given(
    st.dictionaries(
        st.tuples(st.integers(1, 30), st.integers(1, 4)),
        st.lists(st.floats(1e-4, 1.0), min_size=1, max_size=4),
        min_size=1,
    ),
    st.sampled_from((ROOT_INCLUDED, DRAFTED_ONLY)),
)
def test_every_row_is_a_sample_of_its_own_cell(cells: dict[tuple[int, int], list[float]], counts: str) -> None:
    """Whatever the rule, the pass that was timed costs what was timed; a grid with a gap is refused."""
    rows = tuple(
        PassTiming(nodes, context, 1, second) for (nodes, context), seconds in cells.items() for second in seconds
    )
    assume(len(cells) == 1 or len({row.seconds for row in rows}) > 1)  # else nothing was measured
    timings = PassTimings("made-up.csv", (), rows)
    contexts, sizes = {context for _, context in cells}, {nodes for nodes, _ in cells}
    if len(cells) < len(contexts) * len(sizes):
        with pytest.raises(CostError, match="every number of nodes must be timed at every context"):
            imported_cost_file(timings, counts, ABOUT, {})
        return
    file = imported_cost_file(timings, counts, ABOUT, {})
    assert file.is_complete
    for (nodes, context), seconds in cells.items():
        drafted = nodes - 1 if counts == ROOT_INCLUDED else nodes
        assert file.samples["verify", drafted, context] == tuple(seconds)
    assert file.node_counts == tuple(sorted({0} | {nodes - (counts == ROOT_INCLUDED) for nodes in sizes}))
    assert any("was not timed" in note for note in file.notes) == (min(sizes) > (counts == ROOT_INCLUDED))


def test_constants_stand_in_every_cell_and_what_is_not_given_is_said() -> None:
    timings = PassTimings(
        "made-up.csv", ("of a made-up engine",), (PassTiming(1, 10, 1, 0.5), PassTiming(9, 10, 1, 0.7))
    )
    file = imported_cost_file(timings, ROOT_INCLUDED, ABOUT, {"draft": 0.01, "select": 0.0})
    cost = cost_table_of(file)
    assert cost.seconds["draft"].tolist() == [[0.01] * 9]
    assert cost.seconds["select"].max() == cost.seconds["commit"].max() == 0
    assert cost.seconds[PLAIN].tolist() == [[0.5]]
    assert np.allclose(cost.seconds["verify"], np.linspace(0.5, 0.7, 9)[None])
    assert file.device == "Made-up GPU, imported from made-up.csv"
    assert file.notes == (
        "of a made-up engine",
        "nodes were counted root-included: the root among them, one more than drafted tokens",
        "draft takes 0.01 s everywhere, as given",
        "select takes 0 s everywhere, as given",
        "commit: not given, so they cost nothing here and speeds are too high",
        "plain decoding was not given; a token takes as long as the shortest pass",
    )
    given_all = imported_cost_file(
        timings, ROOT_INCLUDED, ABOUT, dict.fromkeys((*GRID_STAGES[:2], "commit", PLAIN), 0.1)
    )
    assert not any("not given" in note for note in given_all.notes)
    assert cost_table_of(given_all).seconds[PLAIN].tolist() == [[0.1]]


def test_of_several_batches_one_is_chosen() -> None:
    rows = (PassTiming(0, 10, 1, 0.5), PassTiming(0, 10, 8, 0.9), PassTiming(4, 10, 8, 1.9))
    timings = PassTimings("made-up.csv", (), rows)
    with pytest.raises(CostError, match="timings of 1, 8 texts at a time; choose one with --batch N"):
        imported_cost_file(timings, DRAFTED_ONLY, ABOUT, {})
    with pytest.raises(CostError, match="no timings of 2 texts at a time; it has those of 1, 8"):
        imported_cost_file(timings, DRAFTED_ONLY, ABOUT, {}, 2)
    file = imported_cost_file(timings, DRAFTED_ONLY, ABOUT, {}, 8)
    assert (file.batch, file.node_counts, file.samples["verify", 0, 10]) == (8, (0, 4), (0.9,))


def test_a_pass_of_no_tokens_has_no_root() -> None:
    timings = PassTimings("made-up.csv", (), (PassTiming(0, 10, 1, 0.5),))
    with pytest.raises(CostError, match=f"a pass of 0 nodes.*--counts {DRAFTED_ONLY}"):
        imported_cost_file(timings, ROOT_INCLUDED, ABOUT, {})


def test_passes_that_all_take_the_same_time_were_not_measured(tmp_path: Path) -> None:
    same = [PassTiming(nodes, context, 1, 0.021) for nodes in (1, 4) for context in (9, 99)]
    with pytest.raises(CostError, match="has 0.021 s for each of its passes, whatever their nodes and context"):
        imported_cost_file(PassTimings("flat.csv", (), tuple(same)), ROOT_INCLUDED, ABOUT, {})
    # Two sizes may be alike, rounded; one measured cell says nothing of others, and says so in its notes.
    file = imported_cost_file(PassTimings("two.csv", (), (same[0], same[2])), ROOT_INCLUDED, ABOUT, {})
    write_cost_file(tmp_path / "two.json", file)
    assert read_cost_file(tmp_path / "two.json").samples["verify", 3, 9] == (0.021,)
    flat = dict.fromkeys(filled().cells(), (0.021,))
    write_cost_file(tmp_path / "flat.json", replace(filled(), samples=flat))
    with pytest.raises(CostError, match="flat.json has 0.021 s for each of its passes"):
        read_cost_file(tmp_path / "flat.json")


COLUMNS = {
    "context": ("context", "context_len", "kv_len", "Seq Len"),
    "batch": ("batch", "batch_size", "bs", "concurrency"),
    "tokens": ("num_tokens", "tokens", "Num Tokens"),
}
TIMES = {"seconds": 1.0, "latency_s": 1.0, "latency_ms": 1e3, "time (ms)": 1e3, "ms": 1e3, "latency_us": 1e6, "µs": 1e6}


@given(
    st.sampled_from(COLUMNS["context"]),
    st.sampled_from(COLUMNS["batch"]),
    st.sampled_from(COLUMNS["tokens"]),
    st.sampled_from(sorted(TIMES)),
    st.lists(
        st.tuples(st.integers(1, 99), st.integers(1, 9), st.integers(1, 64), st.integers(21, 999_999)), min_size=1
    ),
)
def test_columns_are_known_by_their_names(
    context: str, batch: str, tokens: str, time: str, rows: list[tuple[int, int, int, int]]
) -> None:
    lines = [f"{c},{b},{n},{micro * 1e-6 * TIMES[time]!r}" for c, b, n, micro in rows]
    with TemporaryDirectory() as folder:
        path = written(Path(folder), "\n".join([f"{context},{batch},{tokens},{time}", *lines]))
        found = read_timings(path)
    assert found.counts == "tokens"
    assert [row[:3] for row in found.rows] == [(n, c, b) for c, b, n, _ in rows]
    assert np.allclose([row.seconds for row in found.rows], [micro * 1e-6 for *_, micro in rows], rtol=1e-12)


def test_what_sizes_count_is_known_or_asked_for(tmp_path: Path) -> None:
    each = read_timings(written(tmp_path, "num_tokens,bs,ms\n1,1,7\n2,1,8\n1,8,9\n2,8,10\n"))
    assert counts_of(each, None) == ROOT_INCLUDED  # one token is none of eight texts
    whole = read_timings(written(tmp_path, "num_tokens,bs,ms\n8,8,9\n16,8,10\n"))
    with pytest.raises(CostError, match="those of each text, or of the whole pass?"):
        counts_of(whole, None)
    file = imported_cost_file(whole, counts_of(whole, WHOLE_PASS), ABOUT, {})
    assert (file.node_counts, file.batch, file.contexts) == ((0, 1), 8, (ANY_CONTEXT,))
    drafted = read_timings(written(tmp_path, "num_drafted,ms\n0,7\n4,8\n"))
    assert counts_of(drafted, None) == DRAFTED_ONLY
    with pytest.raises(CostError, match="leave out --counts root-included"):
        counts_of(drafted, ROOT_INCLUDED)
    odd = read_timings(written(tmp_path, "num_tokens,bs,ms\n9,8,9\n"))
    with pytest.raises(CostError, match="9 tokens, which 8 texts cannot share alike"):
        imported_cost_file(odd, WHOLE_PASS, ABOUT, {})


def test_other_stages_may_have_columns_of_their_own(tmp_path: Path) -> None:
    timings = read_timings(written(tmp_path, "num_tokens,ms,draft_ms,gpu\n1,7,2,H100\n5,8,2.5,H100\n"))
    file = imported_cost_file(timings, ROOT_INCLUDED, ABOUT, {"select": 0.001})
    assert file.samples["draft", 4, ANY_CONTEXT] == (0.0025,)
    assert file.notes[0] == "gpu: H100 in all rows"
    assert [note for note in file.notes if "not given" in note] == [
        "the context was not given, so seconds are taken as the same up to 131,072 tokens",
        "commit: not given, so they cost nothing here and speeds are too high",
        "plain decoding was not given; a token takes as long as the shortest pass",
    ]
    with pytest.raises(CostError, match="has a column of draft; leave out --draft-s"):
        imported_cost_file(timings, ROOT_INCLUDED, ABOUT, {"draft": 0.001})


@pytest.mark.parametrize(
    ("rows", "within", "has_plain"),
    [(((1, 0.5), (4, 0.6)), (), True), (((4, 0.6), (8, 0.7)), (), False), (((1, 0.5), (4, 0.6)), ("draft",), False)],
)
def test_without_a_pass_of_one_token_there_is_no_baseline(
    rows: tuple[tuple[int, float], ...], within: tuple[str, ...], has_plain: bool
) -> None:
    timings = PassTimings("t.csv", (), tuple(PassTiming(n, 10, 1, s) for n, s in rows), within)
    assert imported_cost_file(timings, ROOT_INCLUDED, ABOUT, {}).has_plain == has_plain
    assert imported_cost_file(timings, ROOT_INCLUDED, ABOUT, {PLAIN: 0.4}).has_plain
    assert cost_table_of(imported_cost_file(timings, ROOT_INCLUDED, ABOUT, {})).seconds[PLAIN].min() > 0


def test_csv_and_json_say_the_same(tmp_path: Path) -> None:
    table = "# from\n#  a page\n\n context, nodes ,seconds\n10,1,0.5\n10,2,7e-1\n"
    rows = [{"nodes": 1, "context": 10, "seconds": 0.5, "batch": 1}, {"nodes": 2, "context": 10, "seconds": 0.7}]
    first = read_timings(written(tmp_path, "\ufeff" + table))
    second = read_timings(written(tmp_path, json.dumps(rows), "timings.json"))
    assert first.rows == second.rows == (PassTiming(1, 10, 1, 0.5), PassTiming(2, 10, 1, 0.7))
    assert (first.remarks, second.remarks) == (("from a page",), ())


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "has no rows"),
        ("nodes,context,seconds\n", "has no rows"),
        ("1,10,0.5\n2,10,0.7\n", "has 1, 10, 0.5; expected names with commas"),
        ("nodes,context\n1,10\n", "has nodes, context; expected names with commas"),
        ("width,ctx,verify_ms\n1,9,8\n", "has width, ctx, verify_ms; expected names with commas between them: a size"),
        ("nodes,num_tokens,seconds\n1,2,0.5\n", "expected names with commas between them: a size"),
        ("nodes,context,ctx,seconds\n1,9,9,0.5\n", "has the columns context, ctx, all of contexts"),
        ("nodes,seconds,latency_ms\n1,0.5,500\n", "expected names with commas between them: a size"),
        ("nodes,latency\n1,0.5\n", "the column latency says no unit; call it latency_ms or latency_s, or give --unit"),
        ("nodes,seconds,gpu\n1,0.5,A\n2,0.6,B\n", "what the column gpu means is not known, and it has 2 values"),
        ("nodes,nodes,seconds\n1,1,0.5\n", "names a column twice"),
        ("nodes,seconds\n1,7.9\n2,8\n", "the fastest pass in"),
        ("nodes,latency_ms\n1,0.0079\n2,0.008\n", "Say the unit: --unit ms, or --unit s"),
        (
            '[{"nodes": 1, "seconds": 0.1}, {"nodes": 1, "seconds": 0.1, "draft_ms": 1}]',
            "entry 1 has no draft_ms, and other rows have",
        ),
        ("nodes,context,seconds\n1,10,\n", "line 2 has no seconds"),
        ("nodes,context,seconds\n1,10,0,5\n", "line 2 has 4 cells, and the first line names 3"),
        ("nodes,context,seconds\n1.5,10,0.5\n", "nodes: expected a whole number, at least 0; got '1.5'"),
        ("nodes,context,seconds\n1,0,0.5\n", "context: expected a whole number, at least 1; got '0'"),
        ("nodes,context,seconds,batch\n1,9,0.5,0\n", "batch: expected a whole number, at least 1; got '0'"),
        ("nodes,context,seconds\n-1,9,0.5\n", "nodes: expected a whole number"),
        ("nodes,context,seconds\n1,9,fast\n", "seconds must be a number, in seconds from 1e-09 to 1e+06; got 'fast'"),
        ("nodes,context,seconds\n1,9,1e308\n", "seconds must be a number, in seconds from 1e-09 to 1e+06"),
        ("nodes,context,seconds\n1,9,5e-324\n", "seconds must be a number, in seconds from 1e-09 to 1e+06"),
        ("nodes,context,seconds\n1,9,nan\n", "seconds must be a number, in seconds from 1e-09 to 1e+06"),
        ("nodes,context,seconds\n1,9,inf\n", "seconds must be a number, in seconds from 1e-09 to 1e+06"),
        ("nodes,context,seconds\n1,9,0\n", "seconds must be a number, in seconds from 1e-09 to 1e+06"),
        ("[1", "is not JSON"),
        ("{}", "is not a list of objects"),
        ("[1]", "is not a list of objects"),
        ("[]", "has no rows"),
        ('[{"nodes": true, "context": 1, "seconds": 1}]', "nodes: expected a whole number, at least 0; got 'True'"),
        ('[{"nodes": 1, "context": 1, "batch": 0, "seconds": 1}]', "batch: expected a whole number"),
        ('[{"nodes": 1, "context": 1, "seconds": true}]', "seconds must be a number, in seconds from 1e-09 to 1e+06"),
    ],
)
def test_what_is_no_timing_is_refused_with_its_place(text: str, said: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    with pytest.raises(CostError) as refused:
        read_timings(path)
    assert str(path) in str(refused.value)
    assert said in str(refused.value)


def test_a_file_that_is_not_there_names_those_that_come_with_simlab(tmp_path: Path) -> None:
    with pytest.raises(CostError, match="caddtree-a800-qwen3-4b, caddtree-a800-qwen3-8b, .* come with simlab"):
        read_timings(tmp_path / "none.csv")
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CostError, match="could not be read"):
        read_timings(binary)


def a800(size: str) -> CostFile:
    return imported_cost_file(read_timings(f"caddtree-a800-qwen3-{size}"), ROOT_INCLUDED, ABOUT, {"draft": 0.0065})


@pytest.mark.parametrize("size", list(A800_MS))
def test_the_published_figures_are_those_that_were_read(size: str) -> None:
    path = PUBLISHED / f"caddtree-a800-qwen3-{size}.csv"
    lines = [line for line in path.read_text().splitlines() if not line.startswith("#")]
    found = {(int(row["nodes"]), int(row["context"])): float(row["seconds"]) for row in csv.DictReader(lines)}
    wanted = {
        (nodes, context): ms / 1000
        for context, row in A800_MS[size].items()
        for nodes, ms in zip((16, 64, 128, 256, 512), row, strict=True)
    }
    assert found == pytest.approx(wanted, abs=1e-9)
    assert "commit a88f3f3" in read_timings(path.stem).remarks[0]
    named = {timing.stem for timing in published_timings() if timing.stem.startswith("caddtree")}
    assert named == {f"caddtree-a800-qwen3-{one}" for one in A800_MS}
