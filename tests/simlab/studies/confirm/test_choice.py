"""Confirmations of what a search chose: it is run, held against its rivals, and marked if it saw these texts."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from confirm_runs import Made, end_after_a_prompt, make
from made_up_costs import random_table
from study_results import refused, rows_of, value_of

import simlab
from simlab.errors import TraceError
from simlab.policies.parsing.parse import parse_policies
from simlab.studies.confirm.choice import prior_choice
from simlab.studies.confirm.confirm import confirm
from simlab.studies.confirm.confirmation import Confirmation
from simlab.studies.inputs.prices import Prices
from simlab.traces.artefacts.confirmation import SUMMARY, read_confirmation
from simlab.traces.artefacts.optimum import ChosenPolicy, Optimum, PromptSource, write_optimum

BEST = "ddtree:budget=4"
RUN = (BEST, "ddtree:budget=8", "chain")
ONE_MORE = "ddtree:budget=2"
ELSEWHERE = PromptSource("feedfacefeedface", "beefbeefbeefbeef", frozenset({("gsm8k", "far"), ("mbpp", "away")}))
NO_PRICES = Prices(None, "none", "")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("from"))


@pytest.fixture(scope="module")
def optimum(made: Made) -> Optimum:
    """Chosen on other prompts, reported on those of the trace."""
    (best,) = parse_policies([BEST])
    names = frozenset((sequence.prompt.dataset, sequence.prompt.prompt_id) for sequence in made.trace.sequences())
    here = PromptSource(made.trace.text_id, made.trace.draft_ids[made.trace.draft_name()], names)
    chosen = ChosenPolicy(BEST, best.policy_id)
    speedup = {"evaluation_speedup": 1.5, "evaluation_speedup_ci_low": 1.4, "evaluation_speedup_ci_high": 1.6}
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
        rows=({"policy": BEST, "evaluation_tokens_per_s": 50.0, **speedup},),
    )


@pytest.fixture(scope="module")
def done(made: Made, optimum: Optimum, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Confirmation]:
    """A confirmation of the choice, and of one more policy, by turn, and its folder."""
    out = tmp_path_factory.mktemp("done") / "out"
    write_optimum(out.parent / "optimize.json", optimum)
    choice = out.parent / "optimize.json"
    return out, confirm(made.trace, [ONE_MORE], choice=choice, out=out, by="turn")


def test_it_runs_what_was_chosen_and_says_where(made: Made, done: tuple[Path, Confirmation]) -> None:
    """A finished folder is only read again."""
    out, first = done
    again = confirm(made.trace, [ONE_MORE], choice=out.parent / "optimize.json", out=out, by="turn", resume=True)
    assert again.text() == first.text()
    line = first.text().splitlines()[0]
    assert line.startswith((f"No winner among {BEST}", f"{BEST} is faster")) or line.endswith(f"faster than {BEST}.")
    for part in (
        f"chosen   {BEST}, best of 17 by tokens/s, on 2 prompts (gsm8k, mbpp; text feedfacefeedface)",
        f"optimize {BEST} is faster than each of 2 others; on 3 prompts (",
        "), predicted speedup 1.50 [1.40, 1.60], 50.0 tokens/s\n",
        "ended    every text was run: 3 prompts; widest interval of a speed ratio",
        "turn 0: 3 prompts, 3 sequences\n",
        "turn 1: 3 prompts, 3 sequences\n",
        "all: 3 prompts, 6 sequences\n",
    ):
        assert part in first.text()
    assert "IN SAMPLE" not in first.text()


def test_the_file_holds_what_a_report_needs(made: Made, done: tuple[Path, Confirmation]) -> None:
    found = read_confirmation(done[0])
    ran = [row["policy"] for row in found.rows if row["measured_tokens_per_s"] is not None]
    assert ran == ["autoregressive", *RUN, ONE_MORE]
    assert found.first == BEST
    assert [comparison["first"] for comparison in found.comparisons] == [BEST] * 3
    assert (found.text_id, found.cost_id) == (made.trace.text_id, None)
    row = found.row("chain")
    assert (row["error_speedup"], row["lossless"], row["counts_equal_replay"]) == (None, "exact", True)
    # Slices add up to the whole.
    assert found.by == "turn"
    for row in found.rows:
        slices = [one for one in found.slices if one["policy"] == row["policy"]]
        assert [one["slice"] for one in slices] == [0, 1]
        for name in ("rounds", "committed", "sequences"):
            assert sum(int(one[name] or 0) for one in slices) == row[name]


def test_texts_that_were_searched_are_marked(made: Made, optimum: Optimum, tmp_path: Path) -> None:
    """The chain always runs, so nobody chose it."""
    write_optimum(tmp_path / "seen.json", replace(optimum, chosen_on=optimum.reported_on))
    found = confirm(made.trace, choice=tmp_path / "seen.json", out=tmp_path / "out", limit=1)
    assert f"IN SAMPLE: {BEST}, ddtree:budget=8.\n" in found.text()
    assert "was chosen on 3 prompts, and some of these are run here" in found.text()
    assert [label for label, row in rows_of(found).items() if row["in_sample"]] == [BEST, "ddtree:budget=8"]
    assert value_of(found)["chosen"]["in_sample"] is True


def test_a_choice_at_other_prices_says_so(made: Made, optimum: Optimum) -> None:
    """So does one whose best policy is another here, because what it reads is."""
    policies, cost = parse_policies(list(RUN)), random_table(np.random.default_rng(1))
    here = Prices(cost, "made up", "")

    def lines(of: Optimum, prices: Prices, batch: int = 1) -> list[tuple[str, str]]:
        return list(prior_choice(Path("x"), of, made.trace.sequences(), policies).lines(prices, batch))

    assert [name for name, _ in lines(optimum, NO_PRICES)] == ["chosen", "optimize"]
    other = "chosen with another latency profile (cost c0ffee) than this prediction"
    assert [text for name, text in lines(optimum, here) if not name] == [other]
    served = "chosen for one text at a time, and run here 4 at a time"
    assert [text for name, text in lines(optimum, NO_PRICES, 4) if not name] == [served]
    assert len(lines(replace(optimum, cost_ids=(cost.cost_id,)), here)) == 2
    assert "predicted" not in str(lines(replace(optimum, rows=()), NO_PRICES))
    changed = replace(optimum, best=ChosenPolicy(BEST, "another id"), winner=None, verdict="no winner: level.")
    moved = prior_choice(Path("x"), changed, made.trace.sequences(), policies)
    assert moved.policy_id == optimum.best.policy_id
    assert moved.lines(NO_PRICES, 1)[-1][1].startswith("the best policy here reads another latency profile")


OWN = """
from pathlib import Path
from simlab.policies.named.chain import Chain

Path(__file__).with_suffix(".ran").touch()

class Mine(Chain):
    pass
"""


@pytest.mark.parametrize("run", ["{}:Mine", 'router:routes="{}:Mine/ar"'])
def test_a_choice_runs_no_code_that_is_not_named_on_this_command_line(
    run: str, made: Made, optimum: Optimum, tmp_path: Path
) -> None:
    own = tmp_path / "own.py"
    own.write_text(OWN)
    typed = run.format(own)
    write_optimum(tmp_path / "choice.json", replace(optimum, run=(*RUN, typed)))
    said = refused(confirm, made.trace, choice=tmp_path / "choice.json", out=tmp_path / "out")
    assert f"code runs only if you name it yourself: look at it, then add -p '{typed}'" in said
    assert not own.with_suffix(".ran").exists()
    assert not (tmp_path / "out").exists()


def test_a_policy_file_of_a_choice_that_is_named_too_runs(made: Made, optimum: Optimum, tmp_path: Path) -> None:
    own = tmp_path / "own.py"
    own.write_text(OWN)
    write_optimum(tmp_path / "choice.json", replace(optimum, run=(*RUN, f"{own}:Mine")))
    done = confirm(made.trace, [f"{own}:Mine"], choice=tmp_path / "choice.json", out=tmp_path / "out", limit=1)
    assert len([row for row in value_of(done)["rows"] if str(row["policy"]).endswith("own.py:Mine")]) == 1


def test_time_that_is_up_leaves_a_whole_prompt(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end_after_a_prompt(monkeypatch)
    asked: dict[str, Any] = {"out": tmp_path, "time_limit": 0.0, "until_interval": 0.02}
    confirmation = confirm(made.trace, [ONE_MORE], **asked)
    assert "ended    time was up, a prompt that was cut off is left out: 1 prompt\n" in confirmation.text()
    ran = value_of(confirmation)["ran"]
    assert (ran["ended"], ran["prompts"], ran["repeats"]) == ("time", 1, 10)
    assert (ran["until_interval"], ran["time_limit_s"], ran["half_width"]) == (0.02, 0, None)
    said = refused(confirm, made.trace, [ONE_MORE], out=tmp_path, resume=True)
    assert "was begun with --repeats 10; this run has 1" in said


def test_compare_says_the_same(done: tuple[Path, Confirmation]) -> None:
    """The same policy against the same others, read as the same family."""
    found = read_confirmation(done[0])
    results, policies = done[0] / "results.parquet", [*RUN, ONE_MORE]
    table = simlab.compare(results, policies, kind="measured", measure="tokens_per_s")
    theirs = {row["second"]: row for row in value_of(table)["rows"] if row["measure"] == "tokens_per_s"}
    assert {str(comparison["second"]): dict(comparison) for comparison in found.comparisons} == theirs
    said = table.text().split("\n\n")[1].splitlines()[0]
    assert found.verdict.splitlines()[0][1:] == said[1:]


def without(name: str) -> Callable[[dict[str, Any]], str]:
    return lambda values: json.dumps({key: value for key, value in values.items() if key != name})


@pytest.mark.parametrize(
    ("damaged", "said"),
    [
        (lambda values: json.dumps(values | {"format_version": 2}), "this simlab reads up to 1"),
        (without("format"), "is no summary of a confirmation"),
        (lambda values: json.dumps(values | {"rows": [{"policy": {}}]}), "must be a number, a string or null"),
        (without("ran"), "'ran'"),
        (lambda _values: "{", "is not JSON"),
    ],
)
def test_a_damaged_summary_is_refused(
    done: tuple[Path, Confirmation], tmp_path: Path, damaged: Callable[[dict[str, Any]], str], said: str
) -> None:
    (tmp_path / SUMMARY).write_text(damaged(json.loads((done[0] / SUMMARY).read_text())))
    with pytest.raises(TraceError, match=said):
        read_confirmation(tmp_path)
    with pytest.raises(TraceError, match="there is none"):
        read_confirmation(tmp_path / "absent")
