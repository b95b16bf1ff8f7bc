"""``simlab train calibration``, ``ranks`` and ``price``, from end to end on a made-up trace."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import json_of, output_of, refusal_of
from made_up_costs import SYNTHETIC

from simlab.cli.main import main
from simlab.policies import POLICIES
from simlab.policies.edges.models import edge_map_of
from simlab.policies.fits.calibration import (
    add_edges,
    add_ranks,
    fit_map,
    no_edge_counts,
    no_rank_counts,
    rank_frequencies,
)
from simlab.policies.named.calibrated import CalibratedTree
from simlab.policies.named.price import Price
from simlab.policies.named.sequoia import Sequoia
from simlab.studies.fit_tables import fit_price
from simlab.traces.artefacts.table import read_table_file
from simlab.traces.reader import open_trace
from simlab.traces.synthetic import write_synthetic_trace


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("train") / "trace"
    return write_synthetic_trace(folder, num_sequences=24, length=40, kept=16)


@pytest.fixture(autouse=True)
def named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(POLICIES._imported, "price", Price)
    monkeypatch.setitem(POLICIES._imported, "calibrated", CalibratedTree)
    monkeypatch.setitem(POLICIES._imported, "sequoia", Sequoia)


def typed(*arguments: object) -> list[str]:
    return ["train", *map(str, arguments)]


def output(*arguments: object) -> dict[str, Any]:
    return json_of(*typed(*arguments, "--json"))


def test_a_calibration_is_fitted_written_and_judged_on_prompts_held_out(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "calibration.json"
    found = output("calibration", "--trace", trace, "--out", out, "--top-k", 16)
    file, opened = read_table_file(out, "calibration"), open_trace(trace)
    counts, number = no_edge_counts(7), 0
    for recorded in opened.recorded("synthetic"):
        assert recorded.rows is not None
        add_edges(counts, recorded.rows, 16)
        number += len(recorded.text) - 1
    assert np.array_equal(edge_map_of({"values": file.values}), fit_map(counts))
    assert (file.text_id, file.draft_id) == (opened.text_id, opened.draft_ids["synthetic"])
    assert file.fits(SYNTHETIC, SYNTHETIC, 8)
    assert (file.num_positions, found["num_positions"]) == (number, number)
    assert (found["path"], found["table_id"]) == (str(out), file.table_id)
    assert (found["num_prompts"], found["num_parts"]) == (18, 4)
    held_out = found["held_out"]
    assert [row["depth"] for row in held_out] == [1, 2, 3, 4, 5, 6, 7, None]
    for name in ("num_edges", "num_true"):
        assert held_out[-1][name] == sum(row[name] for row in held_out[:-1])
    assert held_out[-1]["num_edges"] == int(counts.numbers.sum())
    means = [row["nll_after"] * row["num_edges"] for row in held_out]
    assert means[-1] == pytest.approx(sum(means[:-1]))
    # The made-up drafter is right far more often than it thinks.
    assert held_out[-1]["nll_after"] < held_out[-1]["nll_before"]
    assert held_out[-1]["ece_after"] < held_out[-1]["ece_before"]
    assert held_out[-1]["first_ece_after"] < held_out[-1]["first_ece_before"]


def test_the_same_trace_gives_the_same_file(trace: Path, tmp_path: Path) -> None:
    for kind in ("calibration", "ranks"):
        for name in ("one", "other"):
            assert main(typed(kind, "--trace", trace, "--out", tmp_path / name, "--top-k", 16)) == 0
        assert (tmp_path / "one").read_bytes() == (tmp_path / "other").read_bytes()


def test_ranks_are_counted_and_written(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "ranks.json"
    found = output("ranks", "--trace", trace, "--out", out, "--top-k", 10, "--limit", 5)
    counts, opened = no_rank_counts(7, 10), open_trace(trace)
    prompts = [(one.prompt.dataset, one.prompt.prompt_id) for one in opened.sequences()]
    first_five = list(dict.fromkeys(prompts))[:5]
    wanted = [place for place, prompt in enumerate(prompts) if prompt in first_five]
    assert (found["num_prompts"], len(wanted)) == (5, 6)  # one of them is a conversation of two turns
    for recorded in opened.recorded("synthetic", wanted):
        assert recorded.rows is not None
        add_ranks(counts, recorded.rows)
    file = read_table_file(out, "ranks")
    assert np.array_equal(file.values, rank_frequencies(counts))
    assert found["numbers"] == counts.numbers.tolist()
    assert found["first_share"] == file.values[:, 0].tolist()
    assert found["table_id"] == file.table_id


def test_people_get_tables(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "table.json"
    lines = output_of(*typed("calibration", "--trace", trace, "--out", out, "--top-k", 16)).splitlines()
    assert "18 prompts" in lines[0]
    assert [line.split()[0] for line in lines[3:12]] == ["depth", "1", "2", "3", "4", "5", "6", "7", "all"]
    assert lines[-1] == f"Table: {out} ({read_table_file(out).table_id})"
    lines = output_of(*typed("ranks", "--trace", trace, "--out", out, "--top-k", 16)).splitlines()
    assert [line.split()[0] for line in lines[3:11]] == ["depth", "1", "2", "3", "4", "5", "6", "7"]
    for line in lines[4:11]:
        assert sum(map(float, line.split()[2:])) == pytest.approx(1.0, abs=4e-4)
    assert lines[-1] == f"Table: {out} ({read_table_file(out).table_id})"


def test_the_price_settles(trace: Path, cost: Path) -> None:
    arguments = ("price", "--trace", trace, "--cost", cost, "-p", "price:budget=16")
    found = output(*arguments)
    assert found["rates"][0] == 0.0
    assert found["policy"] == f"price:budget=16,rate={found['rate']:.6g}"
    assert found["expected_per_s"] > 0
    if found["settled"]:
        assert found["expected_per_s"] == pytest.approx(found["rate"])
    assert output_of(*typed(*arguments)).splitlines()[-1] == f"Policy: {found['policy']}"
    rows = {
        row["policy"]: row
        for row in json_of("replay", "--trace", trace, "--cost", cost, "-p", found["policy"], "--json")["rows"]
    }
    assert rows[found["policy"]]["rounds"] == found["rounds"]
    # What is typed has six digits of the rate.
    assert rows[found["policy"]]["tokens_per_s"] == pytest.approx(found["committed_per_s"], rel=1e-3)


@pytest.mark.parametrize(
    ("settled", "said"), [(True, "the last one settled it"), (False, "they take turns; this is the best of them")]
)
def test_people_read_whether_the_price_settled(trace: Path, cost: Path, settled: bool, said: str) -> None:
    fit = fit_price(trace, "price:budget=4", cost=cost, limit=2)
    text = replace(fit, found=replace(fit.found, settled=settled)).text()
    assert f"{len(fit.found.rates)} rates were tried, {said}.\n" in text


def test_other_policies_that_learn_a_rate_have_one_too(trace: Path, cost: Path, tmp_path: Path) -> None:
    table = tmp_path / "calibration.json"
    output_of(*typed("calibration", "--trace", trace, "--out", table, "--top-k", 16))
    policy = f'calibrated:stop=price,budget=16,top_k=16,table="{table}"'
    found = output("price", "--trace", trace, "--cost", cost, "-p", policy)
    assert found["policy"].startswith("calibrated:stop=price")
    assert found["rate"] > 0


def test_a_table_of_ranks_makes_a_fixed_tree(trace: Path, cost: Path, tmp_path: Path) -> None:
    table = tmp_path / "ranks.json"
    assert main(typed("ranks", "--trace", trace, "--out", table, "--top-k", 16)) == 0
    policy = f'sequoia:budget=8,table="{table}"'
    rows = {
        row["name"]: row for row in json_of("replay", "--trace", trace, "--cost", cost, "-p", policy, "--json")["rows"]
    }
    assert rows["sequoia"]["nodes_per_round"] == 8
    assert rows["sequoia"]["acceptance_length"] > 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("calibration", "--top-k", "17"),
            "keeps at every depth, which is 16; read fewer, or record with --min-width 17",
        ),
        (("ranks", "--top-k", "17"), "--top-k 17 reads more ranks"),
        (("calibration", "--top-k", "16", "--limit", "1"), "fewer than 2 prompts"),
        (("ranks", "--draft-set", "other"), "holds no draft set 'other'"),
        (("price", "-p", "ddtree:budget=8"), "expected one policy that learns a rate"),
        (("price", "-p", "price:budget=8/16"), "expected one policy that learns a rate"),
        (("price", "-p", "price:budget=8,rate=3"), "expected one policy that learns a rate"),
        (("price", "-p", "price:budget=17"), "--exact-budget"),
        (("price", "-p", "price"), "its latency profile ends at 64"),
    ],
)
def test_what_cannot_be_done_is_refused(
    trace: Path, cost: Path, tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    kind, *rest = arguments
    rest += ["--cost", str(cost)] if kind == "price" else ["--out", str(tmp_path / "table.json")]
    assert message in refusal_of(*typed(kind, "--trace", trace, *rest))
    assert list(tmp_path.iterdir()) == []
