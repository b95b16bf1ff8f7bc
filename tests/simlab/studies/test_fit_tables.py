"""Calibrations, ranks and rates that are fitted on a made-up trace: the tables by plain counts, and their use."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from made_up_costs import SYNTHETIC
from study_results import refused, rows_of, value_of
from synthetic_traces import write_synthetic_trace

import simlab
from simlab.policies.edges.models import edge_map_of
from simlab.policies.fits.calibration import (
    add_edges,
    add_ranks,
    fit_map,
    no_edge_counts,
    no_rank_counts,
    rank_frequencies,
)
from simlab.studies.fit_tables import fit_calibration, fit_price, fit_ranks
from simlab.traces.artefacts.table import read_table_file
from simlab.traces.reader import open_trace


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("train") / "trace"
    return write_synthetic_trace(folder, num_sequences=24, length=40, kept=16)


def test_a_calibration_is_fitted_written_and_judged_on_prompts_held_out(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "calibration.json"
    fit = fit_calibration(trace, out=out, top_k=16)
    value, file, opened = value_of(fit), read_table_file(out, "calibration"), open_trace(trace)
    counts, number = no_edge_counts(7), 0
    for recorded in opened.recorded("synthetic"):
        assert recorded.rows is not None
        add_edges(counts, recorded.rows, 16)
        number += len(recorded.text) - 1
    assert np.array_equal(edge_map_of({"values": file.values}), fit_map(counts))
    assert (file.text_id, file.draft_id) == (opened.text_id, opened.draft_ids["synthetic"])
    assert file.fits(SYNTHETIC, SYNTHETIC, 8)
    assert (file.num_positions, value["num_positions"]) == (number, number)
    assert (value["path"], value["table_id"]) == (str(out), file.table_id)
    assert (value["num_prompts"], value["num_parts"]) == (18, 4)
    held_out = value["held_out"]
    assert [row["depth"] for row in held_out] == [1, 2, 3, 4, 5, 6, 7, None]
    for name in ("num_edges", "num_true"):
        assert held_out[-1][name] == sum(row[name] for row in held_out[:-1])
    assert held_out[-1]["num_edges"] == int(counts.numbers.sum())
    means = [row["nll_after"] * row["num_edges"] for row in held_out]
    assert means[-1] == pytest.approx(sum(means[:-1]))
    # The made-up drafter is right far more often than it thinks.
    for name in ("nll", "ece", "first_ece"):
        assert held_out[-1][f"{name}_after"] < held_out[-1][f"{name}_before"]


def test_ranks_are_counted_and_written(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "ranks.json"
    fit = fit_ranks(trace, out=out, top_k=10, limit=5)
    value, counts, opened = value_of(fit), no_rank_counts(7, 10), open_trace(trace)
    prompts = [(sequence.prompt.dataset, sequence.prompt.prompt_id) for sequence in opened.sequences()]
    first_five = list(dict.fromkeys(prompts))[:5]
    wanted = [index for index, prompt in enumerate(prompts) if prompt in first_five]
    assert (value["num_prompts"], len(wanted)) == (5, 6)  # one of them is a conversation of two turns
    for recorded in opened.recorded("synthetic", wanted):
        assert recorded.rows is not None
        add_ranks(counts, recorded.rows)
    file = read_table_file(out, "ranks")
    assert np.array_equal(file.values, rank_frequencies(counts))
    assert value["numbers"] == counts.numbers.tolist()
    assert value["first_share"] == file.values[:, 0].tolist()
    assert value["table_id"] == file.table_id


def test_the_same_trace_gives_the_same_file(trace: Path, tmp_path: Path) -> None:
    for study in (fit_calibration, fit_ranks):
        for name in ("one", "other"):
            study(trace, out=tmp_path / name, top_k=16)
        assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_the_price_settles(trace: Path, cost: Path) -> None:
    fit = fit_price(trace, "price:budget=16", cost=cost)
    value = value_of(fit)
    assert value["rates"][0] == 0.0
    assert value["policy"] == f"price:budget=16,rate={value['rate']:.6g}"
    assert value["expected_per_s"] > 0
    if value["settled"]:
        assert value["expected_per_s"] == pytest.approx(value["rate"])
    assert fit.text().splitlines()[-1] == f"Policy: {value['policy']}"
    row = rows_of(simlab.replay(trace, [value["policy"]], cost=cost))[value["policy"]]
    assert row["rounds"] == value["rounds"]
    # What is typed has six digits of the rate.
    assert row["tokens_per_s"] == pytest.approx(value["committed_per_s"], rel=1e-3)
    for settled, said in ((True, "the last one settled it"), (False, "they take turns; this is the best of them")):
        text = replace(fit, settled=settled).text()
        assert f"{len(fit.tried)} rates were tried, {said}.\n" in text


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ("price:budget=17", "--exact-budget"),
        ("price", "drafts up to 64 tokens, and the trace is exact up to 16"),
    ],
)
def test_a_rate_of_more_tokens_than_are_exact_is_refused(trace: Path, cost: Path, policy: str, said: str) -> None:
    assert said in refused(fit_price, trace, policy, cost=cost)
