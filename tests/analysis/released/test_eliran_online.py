"""The study of unary and pairwise trees: on rounds that the test makes up, in the columns of the release's export."""

import csv
import io
import random
from pathlib import Path
from statistics import fmean, median

import pytest
from released_data import made_up_release, values_of
from scipy import stats

from simlab.analysis.released.eliran_online import FILES, GAINS, METRICS, PAIRWISE, ROUNDS, UNARY, eliran_online
from simlab.analysis.released.files import ReleasedFiles, read_release
from simlab.cli.main import main
from simlab.errors import SimlabError, UsageError

HEAD = (
    "sample_index,method_key,method,prompt_id,round_id,tree_budget,tree_node_count,tree_max_depth,matched_draft_tokens,"
    "committed_tokens_this_round,verifier_bonus_committed,draft_latency_ms,tree_build_latency_ms,"
    "tree_compile_latency_ms,target_verify_latency_ms,commit_latency_ms,total_round_latency_ms,nodes_at_depth_1"
)
BUDGETS, PROMPTS = (8, 64), 12


def rounds(seed: int, gain: float = 0.8, prompts: int = PROMPTS) -> str:
    draw = random.Random(seed)
    lines = [HEAD, "0,dflash2,dflash2_greedy,gsm8k:0,0,7,7,7,3,4,True,12.1,0,0,40.1,0.6,53,1"]
    for prompt in range(prompts):
        for budget in BUDGETS:
            for method in (UNARY, "dflash2_unary_k64", PAIRWISE):
                mean = 3 + gain * (method == PAIRWISE) + prompt / 10
                number = draw.randint(8, 20)
                for place in range(number):
                    matched = max(0, min(7, round(draw.gauss(mean, 1.5))))
                    committed = matched if place == number - 1 else matched + 1
                    ms = 39 + budget / 100 + draw.random() / 10
                    key = f"{method}_tb{budget}"
                    lines.append(
                        f"{prompt},{key},{method},gsm8k:{prompt},{place},{budget},{budget},7,{matched},{committed},"
                        f"{place < number - 1},12,0.8,0.2,{ms},2,55,1"
                    )
    return "\n".join(lines) + "\n"


def contents(gain: float = 0.8, prompts: int = PROMPTS) -> dict[str, str]:
    sets = {"GSM8K": rounds(1, gain, prompts), "MATH500": rounds(2, gain, prompts)}
    metrics = ["dataset,budget,method,mean_matched_draft_tokens"]
    gains = ["dataset,budget,unary_k,matched_gain"]
    for dataset in sets:
        for budget in BUDGETS:
            metrics += [f"{dataset},{budget},{label},3.0" for label in ("Unary-K16", "Unary-K64", "Pairwise-K16")]
            gains += [f"{dataset},{budget},16,0.8", f"{dataset},{budget},64,0.7"]
    return {
        **{ROUNDS[dataset]: text for dataset, text in sets.items()},
        METRICS: "\n".join(metrics) + "\n",
        GAINS: "\n".join(gains) + "\n",
    }


def oracle(text: str, budget: int) -> tuple[float, float, float]:
    """The paired mean and Student's interval, prompt by prompt."""
    matched: dict[tuple[str, int], list[int]] = {}
    for row in csv.DictReader(io.StringIO(text)):
        if row["method_key"] in (f"{UNARY}_tb{budget}", f"{PAIRWISE}_tb{budget}"):
            matched.setdefault((row["method"], int(row["sample_index"])), []).append(int(row["matched_draft_tokens"]))
    gains = [fmean(matched[PAIRWISE, prompt]) - fmean(matched[UNARY, prompt]) for prompt in range(PROMPTS)]
    low, high = stats.t.interval(0.95, PROMPTS - 1, fmean(gains), stats.sem(gains))
    return fmean(gains), float(low), float(high)


def test_paired_gains_are_those_of_plain_python(tmp_path: Path) -> None:
    made = contents()
    found = eliran_online(made_up_release(tmp_path, made))
    gains = [one for one in found.compared if one.what.endswith("pairwise over unary")]
    assert len(gains) == 4
    for one, (dataset, budget) in zip(gains, [(d, b) for d in ROUNDS for b in BUDGETS], strict=True):
        mean, low, high = oracle(made[ROUNDS[dataset]], budget)
        assert one.ours == pytest.approx(mean)
        assert (one.interval.low, one.interval.high) == pytest.approx((low, high), rel=0.02, abs=0.01)
        assert one.theirs is not None
        assert one.theirs.value == 0.8
    assert "matches more tokens in 4, fewer in 0" in found.follows


def test_lengths_and_times_are_those_of_plain_python(tmp_path: Path) -> None:
    made = contents()
    values = eliran_online(made_up_release(tmp_path, made)).values
    rows = [row for row in csv.DictReader(io.StringIO(made[ROUNDS["GSM8K"]])) if row["method_key"] == f"{UNARY}_tb64"]
    lengths = values["lengths"]
    assert isinstance(lengths, list)
    (one,) = [each for each in lengths if (each["dataset"], each["method"], each["budget"]) == ("GSM8K", UNARY, 64)]
    committed = [int(row["committed_tokens_this_round"]) for row in rows]
    assert one["acceptance_length"] == pytest.approx(fmean(committed))
    assert one["rounds"] == len(rows)
    assert one["verify_ms"] == pytest.approx(median(float(row["target_verify_latency_ms"]) for row in rows))
    each = {
        prompt: [c for c, row in zip(committed, rows, strict=True) if row["sample_index"] == str(prompt)]
        for prompt in range(PROMPTS)
    }
    assert one["acceptance_length_macro"] == pytest.approx(fmean(map(fmean, each.values())))
    curves = values["verify_ms_by_nodes"]
    assert isinstance(curves, dict)
    assert [nodes for nodes, _ in curves["GSM8K"]] == [8, 64]


def test_trees_that_are_alike_show_no_difference(tmp_path: Path) -> None:
    found = eliran_online(made_up_release(tmp_path, contents(gain=0.0)))
    assert "matches more tokens in 0, fewer in 0, and 4 show no difference" in found.follows


def test_a_pairwise_tree_that_matches_fewer_is_said_to(tmp_path: Path) -> None:
    found = eliran_online(made_up_release(tmp_path, contents(gain=-1.5)))
    assert "matches more tokens in 0, fewer in 4, and 0 show no difference" in found.follows


def test_one_prompt_has_no_interval(tmp_path: Path) -> None:
    found = eliran_online(made_up_release(tmp_path, contents(prompts=1)))
    assert all(one["acceptance_length_ci_low"] is None for one in values_of(found)["lengths"])
    assert "nan" not in found.text()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("sample_index,method_key\n0,x_tb8\n", "has no rounds as the release exports them"),
        (rounds(1).replace(f"{PAIRWISE}_tb8", f"{PAIRWISE}_tb9"), "cannot be paired"),
        (rounds(1).replace(",39.", ",forty."), "has no rounds as the release exports them"),
    ],
)
def test_what_is_no_such_file_is_refused_in_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(SimlabError, match=said):
        eliran_online(made_up_release(tmp_path, {**contents(), ROUNDS["GSM8K"]: text}))


def test_a_changed_file_is_refused(tmp_path: Path) -> None:
    files = made_up_release(tmp_path, contents())
    (tmp_path / ROUNDS["MATH500"]).write_text("other")
    with pytest.raises(UsageError, match="is not as it was released"):
        eliran_online(files)


def test_the_list_says_that_it_was_not_run_and_the_command_what_runs_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["reproduce", "--list"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "eliran-online: the rounds of its step 6.3 were not at hand; with --data CLONE it runs" in printed
    assert "eliran-online not yet run by us" in printed
    assert main(["reproduce", "eliran-online"]) == 2
    said = capsys.readouterr().err
    assert "the rounds of its step 6.3 were not at hand" in said
    assert "git clone https://github.com/Eliran-Turgeman/ddtree" in said
    assert main(["reproduce", "eliran-online", "--data", str(tmp_path)]) == 2
    assert "expected a clone of github.com/Eliran-Turgeman/ddtree" in capsys.readouterr().err


def test_the_files_are_those_with_a_digest() -> None:
    release = read_release("eliran-online")
    assert sorted(FILES) == sorted(release.files)
    assert all(len(one.sha256) == 64 for one in release.files.values())
    assert ReleasedFiles(release).place is None
