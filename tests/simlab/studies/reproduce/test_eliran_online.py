"""The study of unary and pairwise trees: on rounds that the test makes up, in the columns of the release's export."""

import csv
import io
from pathlib import Path
from statistics import fmean, median
from typing import Any

import pytest
from commands import output_of, ran
from made_up_releases import BUDGETS, NUM_PROMPTS, eliran_contents, eliran_rounds
from released_data import made_up_release, values_of
from scipy import stats

from simlab.errors import SimlabError
from simlab.studies.reproduce.eliran_online import FILES, PAIRWISE, ROUNDS, UNARY, eliran_online
from simlab.studies.reproduce.options import ReproduceOptions
from simlab.studies.reproduce.released import read_release

QUIET = ReproduceOptions(progress=False)


def oracle(text: str, budget: int) -> tuple[float, float, float]:
    """The paired mean and Student's interval, prompt by prompt."""
    matched: dict[tuple[str, int], list[int]] = {}
    for row in csv.DictReader(io.StringIO(text)):
        if row["method_key"] in (f"{UNARY}_tb{budget}", f"{PAIRWISE}_tb{budget}"):
            matched.setdefault((row["method"], int(row["sample_index"])), []).append(int(row["matched_draft_tokens"]))
    gains = [fmean(matched[PAIRWISE, prompt]) - fmean(matched[UNARY, prompt]) for prompt in range(NUM_PROMPTS)]
    low, high = stats.t.interval(0.95, NUM_PROMPTS - 1, fmean(gains), stats.sem(gains))
    return fmean(gains), float(low), float(high)


def test_paired_gains_are_those_of_plain_python(tmp_path: Path) -> None:
    made = eliran_contents()
    found = eliran_online(made_up_release(tmp_path, made), QUIET)
    gains = [figure for figure in found.compared if figure.what.endswith("pairwise over unary")]
    assert len(gains) == 4
    for gain, (dataset, budget) in zip(gains, [(d, b) for d in ROUNDS for b in BUDGETS], strict=True):
        mean, low, high = oracle(made[ROUNDS[dataset]], budget)
        assert gain.ours.value == pytest.approx(mean)
        assert (gain.ours.interval.low, gain.ours.interval.high) == pytest.approx((low, high), rel=0.02, abs=0.01)
        assert gain.theirs is not None
        assert gain.theirs.value == 0.8
    assert "matches more tokens in 4, fewer in 0" in found.follows


def test_lengths_and_times_are_those_of_plain_python(tmp_path: Path) -> None:
    made = eliran_contents()
    values = eliran_online(made_up_release(tmp_path, made), QUIET).values
    rows = [row for row in csv.DictReader(io.StringIO(made[ROUNDS["GSM8K"]])) if row["method_key"] == f"{UNARY}_tb64"]
    lengths: Any = values["lengths"]
    (one,) = [each for each in lengths if (each["dataset"], each["method"], each["budget"]) == ("GSM8K", UNARY, 64)]
    committed = [int(row["committed_tokens_this_round"]) for row in rows]
    assert one["acceptance_length"] == pytest.approx(fmean(committed))
    assert one["rounds"] == len(rows)
    assert one["verify_ms"] == pytest.approx(median(float(row["target_verify_latency_ms"]) for row in rows))
    each = {
        prompt: [c for c, row in zip(committed, rows, strict=True) if row["sample_index"] == str(prompt)]
        for prompt in range(NUM_PROMPTS)
    }
    assert one["acceptance_length_macro"] == pytest.approx(fmean(map(fmean, each.values())))
    curves = values["verify_ms_by_nodes"]
    assert isinstance(curves, dict)
    assert [nodes for nodes, _ in curves["GSM8K"]] == [8, 64]


def test_trees_that_are_alike_show_no_difference(tmp_path: Path) -> None:
    found = eliran_online(made_up_release(tmp_path, eliran_contents(gain=0.0)), QUIET)
    assert "matches more tokens in 0, fewer in 0, and 4 show no difference" in found.follows


def test_a_pairwise_tree_that_matches_fewer_is_said_to(tmp_path: Path) -> None:
    found = eliran_online(made_up_release(tmp_path, eliran_contents(gain=-1.5)), QUIET)
    assert "matches more tokens in 0, fewer in 4, and 0 show no difference" in found.follows


def test_one_prompt_has_no_interval(tmp_path: Path) -> None:
    found = eliran_online(made_up_release(tmp_path, eliran_contents(prompts=1)), QUIET)
    assert all(one["acceptance_length_ci_low"] is None for one in values_of(found)["lengths"])
    assert "nan" not in found.text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sample_index,method_key\n0,x_tb8\n", "has no rounds as the release exports them"),
        (eliran_rounds(1).replace(f"{PAIRWISE}_tb8", f"{PAIRWISE}_tb9"), "cannot be paired"),
        (eliran_rounds(1).replace(",39.", ",forty."), "has no rounds as the release exports them"),
    ],
)
def test_what_is_no_such_file_is_refused_in_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SimlabError, match=said):
        eliran_online(made_up_release(tmp_path, {**eliran_contents(), ROUNDS["GSM8K"]: text}), QUIET)


def test_the_list_says_that_it_was_not_run_and_the_command_what_runs_it(tmp_path: Path) -> None:
    printed = " ".join(output_of("study", "reproduce").split())
    assert "eliran-online: the rounds of its step 6.3 were not at hand; with --data CLONE it runs" in printed
    code, _, said = ran("study", "reproduce", "eliran-online")
    assert code == 2
    assert "the rounds of its step 6.3 were not at hand" in said
    assert "git clone https://github.com/Eliran-Turgeman/ddtree" in said
    assert sorted(FILES) == sorted(read_release("eliran-online").files)
