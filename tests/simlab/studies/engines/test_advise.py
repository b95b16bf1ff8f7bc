"""Advice: verdicts follow the prices, settings are chosen where they are asked to be, and what is not known is said."""

import json
import shlex
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from eagle3_traces import write_head_trace
from places import TESTS
from study_results import refused, rows_of, value_of
from synthetic_traces import write_synthetic_trace

import simlab
from simlab.studies.engines.advise import advise
from simlab.studies.engines.import_files import import_timings
from simlab.traces.artefacts.cost import read_cost_file, write_cost_file

ENGINES = TESTS / "data" / "engines"
POLICIES = ["chain:length=1/2/3", "ddtree:budget=2/4/8"]


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic_trace(tmp_path_factory.mktemp("advice") / "trace", num_sequences=36, length=40)


def test_verdicts_follow_the_prices(trace: Path, served_costs: dict[int, Path]) -> None:
    """A drafted token is free for one text, costs a little for 4, and a whole token for 16."""
    value = value_of(advise(trace, cost=[served_costs[batch] for batch in (1, 4, 16)], batch=[1, 4, 16], threads=1))
    rows = {row["batch"]: row for row in value["rows"]}
    assert not any(row["modelled"] for row in rows.values())
    assert (rows[1]["do"], rows[1]["policy"]) == ("tree", rows[1]["tree"])
    assert rows[1]["tree"] == "ddtree:budget=64"
    assert (rows[16]["do"], rows[16]["policy"], rows[16]["gain"]) == ("nothing", None, None)
    assert rows[16]["tree_speedup_verdict"] == "slower"
    assert rows[16]["tree_needed_length"] > rows[16]["tree_length"]
    assert rows[16]["tree_needed_token_s"] < rows[16]["tree_token_s"]
    for row in rows.values():
        assert row["tree_over_chain_ci_low"] <= row["tree_over_chain"] <= row["tree_over_chain_ci_high"]
        assert row["tree_over_chain"] == pytest.approx(row["tree_speedup"] / row["chain_speedup"])
    (drafting,) = [one for one in value["advice"] if one.startswith("Drafting: ")]
    assert "faster at batch 1" in drafting
    assert "slower at 16" in drafting
    assert "winner" not in " ".join(value["advice"])


def test_batches_without_a_file_are_modelled_or_left_out(trace: Path, served_costs: dict[int, Path]) -> None:
    policies = ["chain:length=2", "ddtree:budget=8/40"]
    value = value_of(advise(trace, policies, cost=served_costs[1], batch=[2, 128], threads=1))
    assert [(row["batch"], row["modelled"]) for row in value["rows"]] == [(2, True)]
    for said in ("Batch size left out: 128", "drafted tokens of each text: ddtree:budget=40", "Modelled, not measured"):
        assert any(said in one for one in value["notes"])


def test_a_modelled_batch_must_beat_one_text_alone(trace: Path, served_costs: dict[int, Path]) -> None:
    """By the profile of 4 texts a pass of more tokens costs more, so what a batch of them costs is the model's."""
    steep = read_cost_file(served_costs[16])
    alone = served_costs[1].parent / "steep.json"
    write_cost_file(alone, replace(steep, batch=1))
    advice = advise(trace, POLICIES, cost=alone, batch=[1, 4], threads=1)
    by_batch = {one.of.batch: one for one in advice.batches}
    assert by_batch[1].bounds == {}
    bounds = by_batch[4].bounds
    gains = {pair: by_batch[4].gains[pair] for pair in bounds}
    assert list(bounds) == [("chain", "nothing"), ("tree", "nothing")]
    # Autoregressive decoding of 4 texts is never faster than of one.
    assert all(bounds[pair].ratio < gain.ratio for pair, gain in gains.items())
    assert by_batch[4].choice == "nothing"
    if any(gain.verdict for gain in gains.values()):
        assert "model" in by_batch[4].sure


@pytest.fixture(scope="module")
def head(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A trace of a head, and timings of an engine that price its passes."""
    folder = tmp_path_factory.mktemp("head")
    trace, table, cost = write_head_trace(folder / "trace"), folder / "t.csv", folder / "c.json"
    rows = [(1, 0.0100), (2, 0.0101), (3, 0.0102), (5, 0.0104), (6, 0.0105), (9, 0.0109), (17, 0.012), (33, 0.015)]
    table.write_text("\n".join(["nodes,context,seconds", *(f"{nodes},64,{seconds}" for nodes, seconds in rows)]))
    import_timings([table], trace, counts="root-included", draft_s=0.0007, plain_s=0.0099, out=cost)
    return trace, cost


def test_a_head_gets_trees_of_its_own_and_settings_of_engines(head: tuple[Path, Path]) -> None:
    trace, cost = head
    advice = advise(trace, cost=cost, batch=[1, 2], threads=1)
    for one in advice.batches:
        assert one.tree is not None
        assert one.tree.name == "eagle3"
        assert not one.is_cut
    assert advice.batches[0].choice == "tree"
    budget, steps = (json.loads(advice.batches[0].tree.settings)[key] for key in ("budget", "steps"))  # type: ignore[union-attr]
    lines = advice.engine_lines()
    (flags,) = [dict(pairwise(shlex.split(line))) for line in lines if "--speculative-algorithm" in line]
    assert flags["--speculative-algorithm"] == "EAGLE3"
    assert flags["--speculative-num-steps"] == str(steps + 1)
    assert flags["--speculative-eagle-topk"] == "3"
    assert flags["--speculative-num-draft-tokens"] == str(budget + 1)
    (pasted,) = [line for line in lines if line.startswith("--speculative-config")]
    config = json.loads(shlex.split(pasted)[1])
    assert (config["method"], config["model"]) == ("eagle3", "synthetic")
    assert any(one.startswith("vLLM drafts no trees: that costs") for one in value_of(advice)["advice"])


@pytest.mark.parametrize(
    ("engine", "trees"),
    [
        ("vllm", []),
        ("sglang", []),
        ("tensorrt-llm", []),
        ("tensorrt-edge-llm", ["edge-llm:budget=2/4/8/16/32/64,top_k=2", "edge-llm:budget=4/8/16/32/64,top_k=4",
                               "edge-llm:budget=8/16/32/64,top_k=8"]),
    ],
)  # fmt: skip
def test_an_engine_is_compared_by_what_it_drafts(
    engine: str, trees: list[str], trace: Path, served_costs: dict[int, Path]
) -> None:
    found = advise(trace, cost=served_costs[1], batch=[1], threads=1, engine=engine)
    given = advise(trace, ["chain:length=1..7", *trees], cost=served_costs[1], batch=[1], threads=1)
    assert value_of(found)["rows"] == value_of(given)["rows"]
    (row,) = value_of(found)["rows"]
    lines, said = found.engine_lines(), " ".join(value_of(found)["advice"])
    assert ("drafts no trees" in said) == (not trees and row["tree"] is not None)
    if engine.startswith("tensorrt"):
        words = shlex.split(lines[-1])
        assert words[:5] == ["simlab", "export", "--format", engine, "-p"]
        assert words[5] == row["policy"]
        assert words[6:] == ["--trace", str(trace)]
        assert row["policy"].startswith("edge-llm:" if trees else "chain")
        made = json.loads(simlab.export(words[3], words[5], trace=words[7]).text) if trees else None
        assert made is None or made["flags"]["specVerifySize"] == 1 + int(row["policy"].split("=")[1].split(",")[0])
    else:
        assert [line.startswith("--") for line in lines] == [False, True]
        assert lines[0].startswith({"vllm": "vLLM: ", "sglang": "SGLang: "}[engine])


def test_trees_of_a_head_are_within_what_an_engine_verifies(head: tuple[Path, Path]) -> None:
    """TensorRT-LLM takes from as many tokens as steps to K of each, vLLM no tree."""
    trace, cost = head
    for engine, most in (("tensorrt-llm", 15), ("sglang", 64)):
        found = advise(trace, cost=cost, batch=[1], engine=engine)
        (row,) = value_of(found)["rows"]
        assert row["tree"].startswith("eagle3:")
        assert int(row["tree"].split("budget=")[1].split(",")[0]) <= most
        assert ENGINES_SAY[engine] in found.engine_lines()[0]
    (row,) = value_of(advise(trace, cost=cost, batch=[1], engine="vllm"))["rows"]
    assert row["tree"] is None


ENGINES_SAY = {"tensorrt-llm": "TensorRT-LLM: ", "sglang": "SGLang: steps "}


def test_the_reason_is_that_the_channel_has_no_price(head: tuple[Path, Path], tmp_path: Path) -> None:
    trace, _ = head
    table, cost = tmp_path / "t.csv", tmp_path / "c.json"
    table.write_text("nodes,context,seconds\n1,64,0.01\n6,64,0.0105\n")
    import_timings([table], trace, counts="root-included", out=cost)
    tree = "eagle3:budget=4,beam=3,top_k=3,steps=2"
    said = refused(advise, trace, [tree], cost=cost, batch=[1])
    assert "simlab import --draft-s SECONDS --trace TRACE" in said
    assert "measure it again" not in said
    beside = value_of(advise(trace, ["chain:length=5", tree], cost=cost, batch=[1], threads=1))
    assert beside["rows"][0]["sure"] in ("no, tree left out", "no")
    assert any("Left out: eagle3:budget=4" in one for one in beside["notes"])


def test_chains_are_compared_in_the_blocks_that_were_recorded(tmp_path: Path) -> None:
    """vLLM's drafts of a block of 4 are another recording than the first 3 tokens of a block of 8."""
    trace, block = ENGINES / "block8", ENGINES / "block4"
    cut = advise(trace, limit=4, batch=[1], threads=1)
    own = advise(trace, limit=4, batch=[1], threads=1, block_trace=[block])
    assert {row["chain"] for row in value_of(own)["rows"]} <= {"chain:length=3", "chain:length=7"}
    assert not own.batches[0].is_cut
    assert cut.batches[0].is_cut == (cut.batches[0].chain.policy != "chain:length=7")  # type: ignore[union-attr]
    replayed = rows_of(simlab.replay(block, ["chain:length=3"], limit=4))["chain:length=3"]
    of_block = advise(trace, ["chain:length=3"], limit=4, batch=[1], threads=1, block_trace=[block]).batches[0].chain
    assert of_block is not None
    assert of_block.totals.rounds == replayed["rounds"]


def test_a_chain_that_no_engine_drafts_says_so(trace: Path, served_costs: dict[int, Path]) -> None:
    advice = advise(trace, ["chain:length=1"], cost=served_costs[1], batch=[1], threads=1)
    assert advice.batches[0].choice == "chain"
    said = " ".join(advice.text().split())
    assert "chain of 1*" in said
    assert "* The first token of a recorded block of 8" in said
    assert "with N 2, and compare it with --block-trace" in said
    assert '"num_speculative_tokens": 1' in said


@pytest.mark.parametrize("chosen_elsewhere", [False, True])
def test_settings_are_those_that_are_best_where_they_are_chosen(
    chosen_elsewhere: bool, trace: Path, cost: Path, tmp_path: Path
) -> None:
    other = write_synthetic_trace(tmp_path / "other", num_sequences=5, length=30, seed=7)
    dev = other if chosen_elsewhere else None
    advice = advise(trace, POLICIES, cost=cost, batch=[1], dev_trace=dev, threads=1)
    alone = advise(dev or trace, POLICIES, cost=cost, batch=[1], threads=1)
    assert (advice.trace.location, advice.chosen_on.location) == (str(trace), str(dev or trace))
    ours, theirs = advice.batches[0].row(), alone.batches[0].row()
    assert (ours["chain"], ours["tree"]) == (theirs["chain"], theirs["tree"])
    assert (ours["tree_speedup"] == theirs["tree_speedup"]) == (not chosen_elsewhere)
    said = " ".join(advice.text().split())
    assert (f"chosen on {other}" in said, "very prompts that judge" in said) == (chosen_elsewhere, not chosen_elsewhere)


def test_a_size_that_nobody_timed_is_not_chosen(trace: Path, served_costs: dict[int, Path], tmp_path: Path) -> None:
    """For one text a drafted token is free, so the longest chain is fastest, as far as it was timed."""
    file = read_cost_file(served_costs[1])
    last = file.node_counts[-1]
    kept = {cell: seconds for cell, seconds in file.samples.items() if cell[1] in (0, 1, last)}
    write_cost_file(tmp_path / "thin.json", replace(file, node_counts=(0, 1, last), samples=kept))
    value = value_of(advise(trace, ["chain:length=1/5", "ddtree:budget=8"], cost=tmp_path / "thin.json", batch=[1]))
    (row,) = value["rows"]
    assert (row["chain"], row["tree"]) == ("chain:length=1", None)
    assert any(f"chain:length=5 (1 to {last}), ddtree:budget=8 (1 to {last})" in one for one in value["notes"])


@pytest.mark.parametrize(
    ("policies", "batch", "priced", "said"),
    [
        ((), [4], (16,), "none of one text to work it out from"),
        ((), [1], (), "advice needs a latency profile"),
    ],
)
def test_what_cannot_be_said_is_one_sentence(
    trace: Path,
    served_costs: dict[int, Path],
    policies: tuple[str, ...],
    batch: list[int],
    priced: tuple[int, ...],
    said: str,
) -> None:
    assert said in refused(advise, trace, policies, batch=batch, cost=[served_costs[one] for one in priced])


def test_the_mend_of_an_imported_table_is_its_owners(tmp_path: Path) -> None:
    """Who timed another engine cannot run it here, and adds rows instead."""
    rows, cost = [(1, 0.00847), (2, 0.01349), (3, 0.01564), (5, 0.02067), (8, 0.02813)], tmp_path / "w.json"
    table = tmp_path / "one-context.csv"
    for contexts in ((512,), (512, 1024)):
        lines = [f"{nodes},{context},{seconds}" for context in contexts for nodes, seconds in rows]
        table.write_text("\n".join(["nodes,context,seconds", *lines]))
        cost.unlink(missing_ok=True)
        import_timings([table], counts="root-included", out=cost)
        if contexts == (512,):
            # Longer texts are left out, in a sentence that names the file.
            assert f"where the contexts of {cost} end" in " ".join(advise(cost=cost, batch=[1]).text().split())
            assert "simlab profile" not in simlab.inspect(str(cost)).text()
            assert "add rows of more nodes" in refused(simlab.replay, None, ["ddtree:budget=32"], cost=cost, limit=4)
    row = advise(cost=cost, batch=[1]).batches[0]
    assert (row.choice, row.label("chain"), row.sure) == ("nothing", "chain:length=2", "no")
