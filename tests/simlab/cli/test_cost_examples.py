"""``--cost NAME`` of an example: a trace is priced, and the output says whose prices they are."""

from pathlib import Path

import numpy as np
import pytest
from commands import json_of, output_of, refusal_of

from simlab.errors import CostError
from simlab.studies.inputs.prices import prices_for_trace
from simlab.studies.inputs.trace import first_prompts, sample_trace

FEW = ["--limit", "2"]


def replay(*typed: str) -> list[str]:
    return ["replay", *typed, *FEW]


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("h100-vllm-graphs", "Qwen/Qwen3-1.7B on NVIDIA H100 80GB, vLLM with CUDA graphs"),
        ("a800-eager", "Qwen/Qwen3-4B on NVIDIA A800, Hugging Face eager"),
        ("rtx5080-domino", "Qwen/Qwen3-4B on NVIDIA RTX 5080"),
    ],
)
def test_a_replay_says_whose_prices_they_are(name: str, said: str) -> None:
    printed = " ".join(output_of(*replay("--cost", name, "-p", "chain")).split())
    assert "PRICES OF OTHERS' MODELS, not of this trace's" in printed
    assert said in printed
    free = {"h100-vllm-graphs": "draft, select, commit", "a800-eager": "select, commit"}.get(name)
    assert ("not timed, so free here" in printed) == (free is not None)
    assert free is None or f"not timed, so free here: {free}" in printed


def test_the_seconds_of_a_replay_are_those_of_the_file() -> None:
    """By hand: plain decoding pays its price at each context."""
    trace = sample_trace()
    cost = prices_for_trace(Path("h100-vllm-graphs"), trace, "dflash").cost
    assert cost is not None
    assert cost.block_size == trace.manifest.draft_sets["dflash"].block_size
    (row,) = [
        one
        for one in json_of(*replay("--cost", "h100-vllm-graphs", "-p", "ar", "--json"))["rows"]
        if one["policy"] == "autoregressive"
    ]
    texts = [trace.sequences()[index] for index in first_prompts(trace, 2)]
    contexts = [len(one.prompt.token_ids) + place for one in texts for place in range(len(one.text) - 1)]
    seconds = sum(float(cost.curve("plain", context)[0]) for context in contexts)
    assert row["tokens_per_s"] == pytest.approx(len(contexts) / seconds, rel=1e-6)


@pytest.mark.parametrize(
    "typed",
    [
        ["--cost", "h100-vllm-graphs", "-p", "ddtree:budget=64"],
        ["--cost", "rtx5080-domino", "-p", "ddtree:budget=17"],
        ["--cost", "rtx5080-domino", "-p", "caddtree:budget=32"],
        ["--cost", "rtx5080-domino", "--what-if", "tile=16", "-p", "ddtree:budget=17"],
        ["--cost", "rtx5080-domino", "--what-if", "batch=20", "-p", "chain"],
        ["--cost", "rtx5080-domino", "--what-if", "convex", "-p", "ddtree:budget=17"],
        ["--cost", "rtx5080-domino", "-p", "bastion:budget=16,cost_model=roofline"],
    ],
)
def test_what_is_beyond_an_example_is_refused_without_advice_to_measure_it(typed: list[str]) -> None:
    """Nobody here can measure on others' machines."""
    said = refusal_of(*replay(*typed))
    assert "take another cost file: this one is an example that others measured, and it ends there" in said
    assert "simlab profile" not in said


def test_what_is_beyond_a_file_of_a_machine_at_hand_is_to_be_measured() -> None:
    cost = prices_for_trace(None, sample_trace(), "dflash").cost
    assert cost is not None
    with pytest.raises(CostError, match="measure more with `simlab profile --node-counts`"):
        cost.at("verify", np.array([1]), np.array([cost.most_drafted + 1]))
    with pytest.raises(CostError, match="measure longer ones with `simlab profile --contexts`"):
        cost.curve("verify", cost.longest_context + 1)


@pytest.mark.parametrize(
    ("name", "timed"), [("h100-vllm-graphs", False), ("a800-eager", False), ("rtx5080-domino", True)]
)
def test_a_table_says_what_its_speedups_are_over(name: str, timed: bool) -> None:
    printed = " ".join(output_of(*replay("--cost", name, "-p", "chain")).split())
    assert ("over the autoregressive baseline (fastest measured implementation)" in printed) == timed
    assert ("over the shortest pass (autoregressive decoding was not timed)" in printed) == (not timed)
    assert ("autoregressive decoding was not timed: the shortest pass stands for it" in printed) == (not timed)


@pytest.mark.parametrize("name", ["h100-vllm-graphs", "rtx5080-domino"])
def test_inspecting_an_example_gives_no_advice_to_measure_again(name: str) -> None:
    printed = output_of("inspect", name)
    assert "others' timings, one value to a cell: how noisy they are is not known" in printed
    assert "simlab profile" not in printed
    assert "CaDDTree" not in printed


def test_an_unknown_name_lists_the_examples() -> None:
    assert "a800-eager, h100-vllm-graphs, rtx5080-domino come with simlab" in refusal_of(
        *replay("--cost", "h200", "-p", "chain")
    )


def test_without_a_name_no_example_is_taken() -> None:
    trace = sample_trace()
    heading = prices_for_trace(None, trace, "dflash").heading
    assert "OTHERS" not in heading
