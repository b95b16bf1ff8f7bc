"""``simlab confirm --from``: what was chosen is run, held against its rivals, and marked if it saw these texts."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import json_of, output_of, refusal_of
from confirm_runs import Made, make
from made_up_costs import random_table

from simlab.cli.main import main
from simlab.errors import TraceError
from simlab.policies.parsing.parse import parse_policies
from simlab.studies.confirm.choice import prior_choice
from simlab.studies.inputs.prices import Prices
from simlab.traces.artefacts.confirmation import SUMMARY, read_confirmation
from simlab.traces.artefacts.optimum import ChosenPolicy, Optimum, PromptSource, write_optimum

BEST = "ddtree:budget=4"
RUN = (BEST, "ddtree:budget=8", "chain")
ELSEWHERE = PromptSource("feedfacefeedface", "beefbeefbeefbeef", frozenset({("gsm8k", "far"), ("mbpp", "away")}))


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("from"))


@pytest.fixture(scope="module")
def optimum(made: Made) -> Optimum:
    """Chosen on other prompts, reported on those of the trace."""
    (best,) = parse_policies([BEST])
    names = frozenset((one.prompt.dataset, one.prompt.prompt_id) for one in made.trace.sequences())
    here = PromptSource(made.trace.text_id, made.trace.draft_ids[made.trace.draft_name()], names)
    chosen = ChosenPolicy(BEST, best.policy_id)
    return Optimum(
        simlab_version="1",
        objective="tokens_per_s",
        node_cap=None,
        cost_ids=("c0ffee",),
        chosen_on=ELSEWHERE,
        reported_on=here,
        searched=17,
        winner=chosen,
        best=chosen,
        verdict=f"{BEST} is faster than each of 2 others.",
        optimism={},
        run=RUN,
        rows=(
            {
                "policy": BEST,
                "evaluation_tokens_per_s": 50.0,
                "evaluation_speedup": 1.5,
                "evaluation_speedup_ci_low": 1.4,
                "evaluation_speedup_ci_high": 1.6,
            },
        ),
    )


def typed(made: Made, path: Path, out: Path, *more: str) -> list[str]:
    return ["confirm", "--trace", str(made.folder / "trace"), "--from", str(path), "--out", str(out), *more]


@pytest.fixture(scope="module")
def done(made: Made, optimum: Optimum, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a confirmation of the choice, and of one more policy, by turn."""
    out = tmp_path_factory.mktemp("done") / "out"
    write_optimum(out.parent / "optimize.json", optimum)
    assert main(typed(made, out.parent / "optimize.json", out, "-p", "ddtree:budget=2", "--by", "turn")) == 0
    return out


def test_it_runs_what_was_chosen_and_says_where(made: Made, done: Path) -> None:
    """A finished folder is only read again."""
    more = ("-p", "ddtree:budget=2", "--by", "turn", "--resume")
    text = output_of(*typed(made, done.parent / "optimize.json", done, *more))
    assert text.splitlines()[0].startswith(("No winner among ddtree:budget=4", "ddtree:budget=4 is faster")) or (
        text.splitlines()[0].endswith("faster than ddtree:budget=4.")
    )
    for part in (
        "chosen   ddtree:budget=4, best of 17 by tokens/s, on 2 prompts (gsm8k, mbpp; text feedfacefeedface)",
        "optimize ddtree:budget=4 is faster than each of 2 others; on 3 prompts (",
        "), predicted speedup 1.50 [1.40, 1.60], 50.0 tokens/s\n",
        "ended    every text was run: 3 prompts; widest interval of a speed ratio",
        "turn 0: 3 prompts, 3 sequences\n",
        "turn 1: 3 prompts, 3 sequences\n",
        "all: 3 prompts, 6 sequences\n",
    ):
        assert part in text
    assert "IN SAMPLE" not in text
    found = read_confirmation(done)
    ran = [row["policy"] for row in found.rows if row["measured_tokens_per_s"] is not None]
    assert ran == ["autoregressive", BEST, "ddtree:budget=8", "chain", "ddtree:budget=2"]
    assert found.first == BEST
    assert [one["first"] for one in found.comparisons] == [BEST] * 3


def test_texts_that_were_searched_are_marked(made: Made, optimum: Optimum, tmp_path: Path) -> None:
    """The chain always runs, so nobody chose it."""
    write_optimum(tmp_path / "seen.json", replace(optimum, chosen_on=optimum.reported_on))
    text = output_of(*typed(made, tmp_path / "seen.json", tmp_path / "out", "--limit", "1"))
    assert f"IN SAMPLE: {BEST}, ddtree:budget=8.\n" in text
    assert "was chosen on 3 prompts, and some of these are run here" in text
    found = read_confirmation(tmp_path / "out")
    assert [row["policy"] for row in found.rows if row["in_sample"]] == [BEST, "ddtree:budget=8"]
    assert found.chosen is not None
    assert found.chosen["in_sample"] is True


def test_a_choice_at_other_prices_says_so(made: Made, optimum: Optimum) -> None:
    """So does one whose best policy is another here, because what it reads is."""
    policies = parse_policies(list(RUN))
    chosen = prior_choice(Path("x"), optimum, made.trace.sequences(), policies)
    cost = random_table(np.random.default_rng(1))
    assert [name for name, _ in chosen.lines(Prices(None, "none", ""), 1)] == ["chosen", "optimize"]
    (line,) = [text for name, text in chosen.lines(Prices(cost, "made up", ""), 1) if not name]
    assert line == "chosen with another latency profile (cost c0ffee) than this prediction"
    (served,) = [text for name, text in chosen.lines(Prices(None, "none", ""), 4) if not name]
    assert served == "chosen for one text at a time, and run here 4 at a time"
    same = replace(optimum, cost_ids=(cost.cost_id,))
    assert (
        len(prior_choice(Path("x"), same, made.trace.sequences(), policies).lines(Prices(cost, "made up", ""), 1)) == 2
    )
    other = ChosenPolicy(BEST, "another id")
    unsaid = prior_choice(Path("x"), replace(optimum, rows=()), made.trace.sequences(), policies)
    assert "predicted" not in str(unsaid.lines(Prices(None, "none", ""), 1))
    moved = prior_choice(Path("x"), replace(optimum, best=other, winner=None), made.trace.sequences(), policies)
    assert moved.policy_id == optimum.best.policy_id
    assert moved.lines(Prices(None, "none", ""), 1)[-1][1].startswith(
        "the best policy here reads another latency profile"
    )


def test_a_choice_that_is_none_is_refused(made: Made, tmp_path: Path) -> None:
    (tmp_path / "other.json").write_text("{}")
    for name, said in (("other.json", "is no choice of policies"), ("absent.json", "there is none")):
        assert said in refusal_of(*typed(made, tmp_path / name, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--until-interval", "0"), "until_interval must lie between 0 and 1"),
        (("--until-interval", "3"), "such as 0.03; got 3"),
        (("--time-limit", "-1"), "--time-limit is in minutes and must not be negative"),
        (("--time-limit", "nan"), "argument --time-limit: expected a"),
        (("--by", "policy"), "--by should be dataset, context or turn"),
    ],
)
def test_a_rule_that_makes_no_sense_is_one_sentence(
    made: Made, more: tuple[str, str], said: str, tmp_path: Path
) -> None:
    command = ["confirm", "--trace", str(made.folder / "trace"), "--out", str(tmp_path / "out"), *more]
    assert said in refusal_of(*command)


def test_time_that_is_up_leaves_a_whole_prompt(made: Made, tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = ["confirm", "--trace", str(made.folder / "trace"), "--out", str(out), "-p", "ddtree:budget=2"]
    text = output_of(*command, "--time-limit", "0", "--until-interval", "0.02")
    assert "ended    time was up, a prompt that was cut off is left out: 1 prompt\n" in text
    found = read_confirmation(out)
    assert (found.ran["ended"], found.ran["prompts"], found.ran["repeats"]) == ("time", 1, 10)
    assert (found.ran["until_interval"], found.ran["time_limit_s"], found.ran["half_width"]) == (0.02, 0, None)
    assert "was begun with --repeats 10; this run has 1" in refusal_of(*command, "--resume")


def test_slices_add_up_to_the_whole(done: Path) -> None:
    found = read_confirmation(done)
    assert found.by == "turn"
    for row in found.rows:
        slices = [one for one in found.slices if one["policy"] == row["policy"]]
        assert [one["slice"] for one in slices] == [0, 1]
        for name in ("rounds", "committed", "sequences"):
            assert sum(int(one[name] or 0) for one in slices) == row[name]


def test_compare_says_the_same(done: Path) -> None:
    """The same policy against the same others, read as the same family."""
    policies = [
        argument for label in (BEST, "ddtree:budget=8", "chain", "ddtree:budget=2") for argument in ("-p", label)
    ]
    command = ["compare", str(done / "results.parquet"), *policies, "--kind", "measured", "--measure", "tokens_per_s"]
    value = json_of(*command, "--json")
    ours = read_confirmation(done).comparisons
    theirs = {row["second"]: row for row in value["rows"] if row["measure"] == "tokens_per_s"}
    assert {str(one["second"]): dict(one) for one in ours} == theirs
    said = output_of(*command).split("\n\n")[1].splitlines()[0]
    first = read_confirmation(done).verdict.splitlines()[0]
    assert first[1:] == said[1:]


def test_a_report_finds_all_of_it_without_model_packages(done: Path) -> None:
    script = (
        "import sys; from simlab.traces.artefacts.confirmation import read_confirmation; "
        f"found = read_confirmation({str(done)!r}); "
        "print(found.row('chain')['lossless'], 'torch' in sys.modules, 'transformers' in sys.modules)"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.split() == ["exact", "False", "False"]


def test_what_a_report_needs_is_in_the_file(made: Made, done: Path) -> None:
    found = read_confirmation(done / SUMMARY)
    assert (found.text_id, found.cost_id, found.has_key_match) == (made.trace.text_id, None, False)
    assert found.why_unpriced.startswith("Nothing is predicted")
    assert {"device", "threads", "dtype", "versions", "target", "drafter", "half_width", "ended"} <= set(found.ran)
    assert found.rank_agreement["policies"] == 0
    row = found.row("chain")
    assert row["measured_verify_s_per_round"] is not None
    assert row["error_acceptance_length"] == 0
    assert (row["error_speedup"], row["lossless"], row["counts_equal_replay"]) == (None, "exact", True)
    assert found.chosen is not None
    assert found.chosen["chosen_on"] == {
        "text_id": "feedfacefeedface",
        "draft_id": "beefbeefbeefbeef",
        "prompts": 2,
        "datasets": ["gsm8k", "mbpp"],
    }
    with pytest.raises(KeyError):
        found.row("absent")


def damaged(values: dict[str, Any], change: str) -> str:
    """The text of a summary with something wrong."""
    if change == "newer":
        return json.dumps(values | {"format_version": 2})
    if change == "older":
        return json.dumps({key: value for key, value in values.items() if key != "format"})
    if change == "nested":
        return json.dumps(values | {"rows": [{"policy": {}}]})
    if change == "missing":
        return json.dumps({key: value for key, value in values.items() if key != "ran"})
    return "{"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("newer", "this simlab reads up to 1"),
        ("older", "is no summary of a confirmation"),
        ("nested", "must be a number, a string or null"),
        ("missing", "'ran'"),
        ("half", "is not JSON"),
    ],
)
def test_a_damaged_summary_is_refused(done: Path, tmp_path: Path, change: str, said: str) -> None:
    values = json.loads((done / SUMMARY).read_text())
    (tmp_path / SUMMARY).write_text(damaged(values, change))
    with pytest.raises(TraceError, match=said):
        read_confirmation(tmp_path)
    with pytest.raises(TraceError, match="there is none"):
        read_confirmation(tmp_path / "absent")
