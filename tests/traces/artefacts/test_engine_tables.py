"""Cost tables of engines: looked up as the engines do, made cost files, written and read again, and refused."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from made_up_costs import SYNTHETIC

from simlab.cost import PLAIN
from simlab.errors import CostError
from simlab.studies.inputs.prices import cost_table_of
from simlab.traces.artefacts.cost_import import ImportedFor, engine_timings, imported_cost_file, shape_checks
from simlab.traces.artefacts.engine_tables import (
    AdditiveSteps,
    BenchCell,
    EngineTable,
    SampledSteps,
    StepCurves,
    curves_text,
    read_engine_table,
    sampled_text,
    table_of,
)
from simlab.traces.artefacts.timings import DRAFTED_ONLY

ABOUT = ImportedFor(SYNTHETIC, SYNTHETIC, 8, 0.0, 0, 1.0, "Made-up GPU", "bfloat16")
SAMPLED = {"sample_batch_tokens": [1, 8, 64], "sample_steps_per_sec": [100.0, 80.0, 50.0], "max_batch_tokens": 64}
ADDITIVE = {
    "bias_seconds": 0.01,
    "bs_probes": [1, 8],
    "alpha_seconds": [0.0, 0.002],
    "m_probes": [8, 64],
    "theta_seconds": [0.0, 0.004],
}
CURVES = {"draft_curve": [[1, 1.0], [8, 2.0]], "verify_curve": [[1, 10.0], [8, 12.0], [64, 20.0]]}
BENCH = {
    "completed": 3,
    "total_input_tokens": 266,
    "total_output_tokens": 96,
    "max_concurrency": 1,
    "mean_tpot_ms": 148.0,
    "spec_decode_num_drafts": 29,
    "spec_decode_draft_tokens": 203,
}

times = st.floats(1e-4, 1.0)
points = st.dictionaries(st.integers(1, 90), times, min_size=1, max_size=8).map(
    lambda found: tuple(sorted(found.items()))
)
rising = points.map(
    lambda found: tuple(zip((s for s, _ in found), np.maximum.accumulate([t for _, t in found]).tolist(), strict=True))
)


def sampled(found: tuple[tuple[int, float], ...]) -> SampledSteps:
    return SampledSteps(found, found[-1][0])


tables: st.SearchStrategy[EngineTable] = st.one_of(
    points.map(sampled),
    st.builds(AdditiveSteps, times, points, points),
    st.builds(StepCurves, points, points, st.sampled_from((0, 10, 40))),
)


@given(tables, st.integers(1, 12))
def test_a_cost_file_has_the_engines_seconds_at_every_number_of_drafted_tokens(table: EngineTable, batch: int) -> None:
    """Whatever steps and padding the engine has, also between probes, and nothing beyond the last one."""
    most = table.token_probes[-1] // batch - 1
    if most < 0:
        with pytest.raises(CostError, match="have at least one each"):
            engine_timings(table, "made-up.json", batch, 100)
        return
    wanted = [table.pass_s(batch, batch * (number + 1)) for number in range(most + 1)]
    assume(len(set(wanted)) > 1)  # else nothing was measured, and it is refused
    cost = cost_table_of(imported_cost_file(engine_timings(table, "made-up.json", batch, 100), DRAFTED_ONLY, ABOUT, {}))
    assert cost.most_drafted == most
    assert np.allclose(cost.curve("verify", 100), wanted, rtol=1e-12)
    assert cost.seconds[PLAIN][0, 0] == pytest.approx(wanted[0])


@given(points, st.integers(1, 200))
def test_sglang_takes_the_probe_below(found: tuple[tuple[int, float], ...], tokens: int) -> None:
    below = [seconds for size, seconds in found if size <= tokens]
    assert sampled(found).pass_s(1, tokens) == (below[-1] if below else found[0][1])


@given(points, st.integers(0, 60))
def test_vllm_pads_to_the_next_size_and_never_falls(found: tuple[tuple[int, float], ...], limit: int) -> None:
    """Against the released rule, written once more with whole arrays."""
    table = StepCurves(found, found, limit)
    sizes, seconds = np.array(found, np.float64).T
    seconds = np.maximum.accumulate(seconds)
    tokens = np.arange(1, 120)
    wanted = seconds[np.minimum(np.searchsorted(sizes, tokens), len(sizes) - 1)]
    above = sizes > limit
    if limit and above.any():
        wanted[tokens > limit] = np.interp(tokens[tokens > limit], sizes[above], seconds[above])
    if len(sizes) > 1:
        slope = (seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2])
        wanted[tokens > sizes[-1]] = (seconds[-1] + slope * (tokens - sizes[-1]))[tokens > sizes[-1]]
    assert np.allclose([table.pass_s(1, int(token)) for token in tokens], wanted)
    assert np.allclose([table.draft_s(int(token)) for token in tokens], wanted)


@given(points, rising, st.integers(0, 60))
def test_what_is_written_is_read_again(
    steps: tuple[tuple[int, float], ...], curve: tuple[tuple[int, float], ...], limit: int
) -> None:
    again = table_of(json.loads(sampled_text(sampled(steps))))
    assert isinstance(again, SampledSteps)
    assert again.token_probes == sampled(steps).token_probes
    assert [s for _, s in again.steps] == pytest.approx([s for _, s in steps])
    curves = table_of(json.loads(curves_text(StepCurves(curve, steps, limit))))
    assert isinstance(curves, StepCurves)
    assert curves.graph_limit == limit
    assert [s for _, s in (*curves.draft, *curves.verify)] == pytest.approx([s for _, s in (*curve, *steps)])


def test_the_forms_are_told_by_their_keys() -> None:
    kinds = [type(table_of(one)) for one in (SAMPLED, ADDITIVE, CURVES, BENCH)]
    assert kinds == [SampledSteps, AdditiveSteps, StepCurves, BenchCell]
    additive = table_of(ADDITIVE)
    assert additive.pass_s(8, 64) == pytest.approx(0.016)
    assert additive.pass_s(20, 500) == pytest.approx(0.016)


def test_a_run_of_vllm_bench_serve_is_one_cell() -> None:
    cell = table_of(BENCH)
    assert isinstance(cell, BenchCell)
    assert (cell.concurrency, cell.drafted, cell.context) == (1, 7, 105)
    assert cell.acceptance_length == pytest.approx(93 / 29)
    assert cell.round_s == pytest.approx(0.148 * 93 / 29)
    file = imported_cost_file(engine_timings(cell, "bench.json", 1, 300), DRAFTED_ONLY, ABOUT, {PLAIN: 0.05})
    assert file.node_counts == (0, 7)
    assert file.contexts == (300,)
    assert "one cell of vllm bench serve: 1 requests at a time, 7 drafted tokens" in file.notes[0]
    assert any("within the seconds of verify" in note for note in file.notes)
    with pytest.raises(CostError, match="leave out --draft-s"):
        imported_cost_file(engine_timings(cell, "bench.json", 1, 300), DRAFTED_ONLY, ABOUT, {"draft": 0.05})
    with pytest.raises(CostError, match="a run of 1 requests at a time"):
        engine_timings(cell, "bench.json", 4, 300)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({}, "none of their keys"),
        (SAMPLED | ADDITIVE, "mixes sample_batch_tokens and bias_seconds"),
        ({"bias_seconds": 0.1}, "there is no bs_probes"),
        (SAMPLED | {"sample_steps_per_sec": [1.0]}, "3 sizes and 1 values"),
        (SAMPLED | {"sample_batch_tokens": [1, 64, 8]}, "rise from 1"),
        (SAMPLED | {"sample_steps_per_sec": [1.0, 0.0, 1.0]}, "above 0"),
        (SAMPLED | {"sample_steps_per_sec": [1.0, "2", 1.0]}, "must be numbers"),
        (SAMPLED | {"sample_steps_per_sec": [1e-320, 1.0, 1.0]}, "must be from 1e-09 to 1e"),
        (SAMPLED | {"max_batch_tokens": 8}, "at least the largest probe"),
        (ADDITIVE | {"bias_seconds": 0.0}, "bias_seconds must be above 0"),
        (ADDITIVE | {"theta_seconds": [0.0, -0.5]}, "every step must take time"),
        (CURVES | {"draft_curve": [1, 2]}, "list of pairs"),
        (CURVES | {"verify_curve": []}, "verify_curve must be one or more"),
        ({k: v for k, v in BENCH.items() if not k.startswith("spec")}, "without drafting.*--plain-s 0.148"),
        (BENCH | {"max_concurrency": None}, "--max-concurrency"),
        (BENCH | {"total_output_tokens": 3}, "no round"),
        (BENCH | {"mean_tpot_ms": 0.0}, "time in it"),
    ],
)
def test_wrong_files_are_refused_in_a_sentence(tmp_path: Path, fields: dict[str, object], said: str) -> None:
    path = tmp_path / "table.json"
    path.write_text(json.dumps(fields))
    with pytest.raises(CostError, match=said) as error:
        read_engine_table(path)
    assert str(error.value).startswith(str(path))
    assert "\n" not in str(error.value)


def test_shapes_that_cannot_occur_are_said() -> None:
    said = " ".join(shape_checks(table_of(SAMPLED), 4, 8))
    assert "Probes of 1 tokens cannot occur: 4 requests" in said
    assert "Probes of 64 tokens are above 4 requests times a block of 8" in said
    assert "The table ends at 64 tokens, and 16 whole blocks" in " ".join(shape_checks(table_of(SAMPLED), 16, 8))
    assert "16 requests are outside" in " ".join(shape_checks(table_of(ADDITIVE), 16, 4))
    assert "Steps of 2 to 7 tokens were not timed" in " ".join(shape_checks(table_of(ADDITIVE), 2, 8))
    assert "Graph sizes 8, 64 are no multiple of 3" in " ".join(shape_checks(table_of(CURVES), 3, 8))
    noisy = table_of(SAMPLED | {"sample_steps_per_sec": [50.0, 80.0, 90.0], "max_batch_tokens": 80})
    assert "noise" in " ".join(shape_checks(noisy, 8, 8))
    assert "max_batch_tokens is 80" in " ".join(shape_checks(noisy, 8, 8))
    assert shape_checks(table_of(SAMPLED), 8, 8)[1:] == ()
    assert shape_checks(table_of(BENCH), 1, 8) == ()
    assert "blocks of 8" in shape_checks(table_of(BENCH), 1, 16)[0]
