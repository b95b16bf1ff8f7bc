"""Example cost files of GPUs: made of the published timings, named, and said to be of others' models."""

import json
import statistics
from pathlib import Path

import pytest
from released_data import names_like, real_release

from simlab.errors import CostError
from simlab.traces.artefacts.cost import EXAMPLES, example_cost_files, packaged_cost_files, read_cost_file
from simlab.traces.artefacts.cost_import import COST_EXAMPLES, CostExample, made_example, write_examples
from simlab.traces.artefacts.kinds import find_file
from simlab.traces.artefacts.timings import read_timings

NAMES = [example.name for example in COST_EXAMPLES]


def test_the_shipped_files_are_those_that_the_timings_make(tmp_path: Path) -> None:
    write_examples(tmp_path)
    assert sorted(NAMES) == [file.stem for file in example_cost_files()]
    for name in NAMES:
        assert (tmp_path / f"{name}.json").read_bytes() == (EXAMPLES / f"{name}.json").read_bytes()


@pytest.mark.parametrize("one", COST_EXAMPLES, ids=NAMES)
def test_an_example_names_its_source_and_what_is_missing(one: CostExample) -> None:
    file = read_cost_file(one.name)
    assert file == made_example(one)
    assert file.is_of_others
    assert file.is_complete
    assert "github.com/" in file.notes[0]
    assert "commit" in file.notes[0]
    free = {"draft", "select", "commit"} - set(one.constants)
    assert any("not given, so they cost nothing" in note for note in file.notes) == bool(free)
    assert find_file(one.name) == EXAMPLES / f"{one.name}.json"


def test_files_of_a_machine_of_ours_are_no_examples() -> None:
    assert not any(read_cost_file(file).is_of_others for file in packaged_cost_files())


def test_an_unknown_name_lists_them() -> None:
    with pytest.raises(
        CostError, match=r"did you mean `h100-vllm-graphs`.*a800-eager, h100-vllm-graphs, rtx5080-domino"
    ):
        read_cost_file("h100-vllm-graph")


def test_the_prices_of_the_h100_are_the_medians_that_were_released() -> None:
    """An oracle: medians of the samples of the release, the context of one request added to each captured size."""
    files = real_release("adixg-cost")
    rows = json.loads(files.text("results/h100_e5.json"))["rows"]
    ms = {(row["num_tokens"], row["context_len"]): statistics.median(row["forward_ms"]) for row in rows}
    sizes = sorted({tokens for tokens, _ in ms})
    found = read_timings("adixg-h100-qwen3-1.7b").rows
    assert len(found) == 20 * 7
    for nodes, context, batch, seconds, _ in found:
        own = 0 if context == 1 else context
        size = next(one for one in sizes if one >= nodes)
        assert batch == 1
        assert seconds == pytest.approx((ms[size, 0] + ms[1, own] - ms[1, 0]) / 1000, abs=6e-9)


def test_only_the_example_whose_plain_decoding_was_timed_has_a_baseline() -> None:
    assert {name: read_cost_file(name).lacks_plain for name in NAMES} == {
        "h100-vllm-graphs": True,
        "a800-eager": True,
        "rtx5080-domino": False,
    }
    assert [name for name in NAMES if not read_cost_file(name).has_plain] == ["a800-eager"]
    assert not any(read_cost_file(file).lacks_plain for file in packaged_cost_files())


def test_the_prices_of_the_rtx_5080_are_means_over_the_rounds_that_were_released() -> None:
    """And so give the speedup that the records measure, at their own length."""
    files = real_release("domino-tree")
    rows = [
        row
        for name in names_like(files, "results/conditioning_ladder/best_builder/*.jsonl")
        for row in map(json.loads, files.text(name).splitlines())
    ]
    tree = [row for row in rows if row["method"] == "marg@16"]
    plain = [row for row in rows if row["method"] == "ar"]
    assert len(tree) == len(plain) == 430
    rounds = [round(row["num_output"] / row["mean_accept"]) for row in tree]
    mean = {
        name: sum(number * row[f"ms_{name}"] for number, row in zip(rounds, tree, strict=True)) / sum(rounds) / 1000
        for name in ("draft", "build", "verify", "commit")
    }
    tokens_per_s = {
        name: sum(row["num_output"] for row in some) / sum(row["decode_time"] for row in some)
        for name, some in (("tree", tree), ("plain", plain))
    }
    (one,) = [example for example in COST_EXAMPLES if example.name == "rtx5080-domino"]
    assert one.constants == pytest.approx(
        {
            "draft": mean["draft"],
            "select": mean["build"],
            "commit": mean["commit"],
            "plain": 1 / tokens_per_s["plain"],
        },
        abs=6e-7,
    )
    (row,) = read_timings(one.timings).rows
    assert row.seconds == pytest.approx(mean["verify"], abs=6e-7)
    length = sum(row["num_output"] for row in tree) / sum(rounds)
    round_s = row.seconds + sum(one.constants[stage] for stage in ("draft", "select", "commit"))
    assert length * one.constants["plain"] / round_s == pytest.approx(
        tokens_per_s["tree"] / tokens_per_s["plain"], rel=0.02
    )
