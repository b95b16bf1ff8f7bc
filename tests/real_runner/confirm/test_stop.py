"""When a confirmation ends: at whole prompts, at few looks, and at the same place after an interruption."""

import itertools
import json
import math
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pytest
from confirm_runs import LABELS, Made, confirmed, end_after_a_prompt, setup_of
from scipy import stats

from simlab.analysis.confirm.table import widest_half_width
from simlab.analysis.statistics.intervals import intervals_of, log_products
from simlab.arrays import Doubles
from simlab.draft import Prompt
from simlab.errors import TimeUpError
from simlab.policy import AnyPolicy
from simlab.real_runner.confirm import confirm
from simlab.real_runner.confirm.confirm import finished, measure
from simlab.real_runner.confirm.log import LOG, ConfirmLog
from simlab.real_runner.confirm.options import ConfirmOptions
from simlab.real_runner.confirm.stop import StopRule, is_look, whole
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.decoded import DecodedText
from simlab.real_runner.decoding.plain import Clock
from simlab.real_runner.models import Models
from simlab.sampling.choice import Sampling

LOOKS = (20, 25, 31, 38, 47, 58, 72, 90, 112, 140, 175, 218)


Known: TypeAlias = dict[tuple[object, ...], DecodedText]


@pytest.fixture(scope="module")
def known() -> Known:
    return {}


@pytest.fixture
def decode_once(known: Known, monkeypatch: pytest.MonkeyPatch) -> Callable[..., DecodedText]:
    """A text that is decoded again and again with the same outcome is decoded the first time only.

    The questions here are which texts run and when that ends; of their rounds and seconds other tests ask.
    """

    def once(
        models: Models, policy: AnyPolicy, prompt: Prompt, sampling: Sampling, most: int, clock: Clock, _check: object
    ) -> DecodedText:
        key = (repr(policy), prompt.dataset, prompt.prompt_id, prompt.turn, sampling, most)
        if key not in known:
            known[key] = decode(models, policy, prompt, sampling, most, clock)
        return known[key]

    monkeypatch.setattr(confirm, "decode", once)
    return once


def widths(values: Iterable[float]) -> tuple[list[tuple[int, ...]], StopRule]:
    """A rule that finds these widths, the last one for ever, and what it was asked of."""
    found = itertools.chain(values, itertools.repeat(0.01))
    seen: list[tuple[int, ...]] = []

    def half_width(sums: Doubles, _plain: int) -> float:
        seen.append(sums.shape)
        return next(found)

    return seen, StopRule(half_width, until_interval=0.03)


def places(made: Made, options: ConfirmOptions, rule: StopRule) -> list[tuple[int, int]]:
    """Repeat and sequence of each text, in the order of the log."""
    setup = setup_of(made, options)
    log = ConfirmLog(options.out, setup.key(), resume=False)
    measure(setup, log, rule)
    return [(sequence.repeat, sequence.index) for sequence in finished(log)]


def test_looks_are_few_and_known_beforehand() -> None:
    assert tuple(num for num in range(230) if is_look(num)) == LOOKS


@pytest.mark.usefixtures("decode_once")
def test_it_stops_at_a_look_after_a_whole_prompt(
    made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tight from the first prompt on; the first look is after 20 whole prompts, in the seventh repeat of three."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)  # elsewhere there is no bar
    seen, rule = widths([])
    found = places(made, ConfirmOptions(tmp_path / "out", repeats=10), rule)
    assert found == [(number // 6, number % 6) for number in range(40)]
    assert max(seen) == (3, len(LABELS), 2)
    shown = capsys.readouterr().err
    assert "text 40, ±1.0 %, wanted 3 %, chain" in shown
    assert "%|" not in shown


def test_a_prompt_during_which_time_runs_out_is_left_out(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every reading of the clock takes a second: warming up and prompt 0 take some, and 1 is cut off in its turn 1."""
    options, seconds, seen = ConfirmOptions(tmp_path / "out", time_limit_s=0.0), [0.0], list[float]()

    def later() -> float:
        seconds[0] += 1
        return seconds[0]

    def decoded(*arguments: object) -> DecodedText:
        seen.append(seconds[0])
        return decode(*arguments)  # type: ignore[arg-type]

    setup = setup_of(made, options)
    monkeypatch.setattr(confirm, "decode", decoded)
    monkeypatch.setattr(confirm, "clock_of", lambda _: later)
    monkeypatch.setattr(confirm, "_audit_pass_s", lambda *_: 0.0)
    monkeypatch.setattr("simlab.real_runner.confirm.stop.time.monotonic", lambda: seconds[0])
    assert places(made, replace(options, out=tmp_path / "all"), StopRule(widest_half_width)) == [
        (0, number) for number in range(6)
    ]
    # After the warm-up a text of every policy for each of three turns, and the second policy's text of the fourth.
    limit = seen[len(LABELS) * (1 + 3) + 1] + 2
    seconds[0] = 0
    log = ConfirmLog(options.out, setup.key(), resume=False)
    measure(setup, log, StopRule(widest_half_width, time_limit_s=limit, begun=0.0))
    assert limit <= seconds[0] < limit + 10, "it ended within a round of the text"
    assert [sequence.index for sequence in finished(log)] == [0, 1, 2]
    assert [sequence.index for sequence in whole(setup.units, finished(log))] == [0, 1]
    monkeypatch.undo()
    done = confirmed(made, replace(options, resume=True))
    assert "ended    time was up, a prompt that was cut off is left out: 1 prompt\n" in done.text()
    assert [policy.judged.num_texts for policy in done.policies if policy.judged] == [2] * len(LABELS)
    assert [policy.measured.sequences for policy in done.policies if policy.measured] == [2] * 3
    assert [(sequence.index, len(sequence.runs)) for sequence in finished(log)] == [
        (number, len(LABELS)) for number in range(3)
    ]
    again = confirmed(made, replace(options, time_limit_s=None, resume=True))
    assert (again.ran.ended, again.ran.prompts) == ("all", 3)


def test_an_interrupted_run_ends_where_it_would_have_ended(
    made: Made, tmp_path: Path, decode_once: Callable[..., DecodedText], monkeypatch: pytest.MonkeyPatch
) -> None:
    options, num_left = ConfirmOptions(tmp_path / "out", repeats=10, until_interval=0.9), [100]

    def stop(*arguments: object) -> DecodedText:
        num_left[0] -= 1
        if num_left[0] < 0:
            raise KeyboardInterrupt
        return decode_once(*arguments)

    monkeypatch.setattr("simlab.studies.confirm.run.widest_half_width", lambda *_: 0.5)
    with monkeypatch.context() as patch:
        patch.setattr(confirm, "decode", stop)
        with pytest.raises(KeyboardInterrupt):
            confirmed(made, options)
    path = options.out / LOG
    before = path.read_bytes()
    done = confirmed(made, replace(options, resume=True))
    after = path.read_bytes()
    assert after.startswith(before)
    assert sum(json.loads(line).get("kind") == "sequence" for line in after.splitlines()) == 40
    assert (done.ran.ended, done.ran.prompts, done.ran.prompt_runs) == ("interval", 3, 20)
    assert "the intervals are tight: 3 prompts, 20 runs of a prompt; widest interval" in done.heading
    assert "not after a number of prompts fixed beforehand" in done.text()
    monkeypatch.setattr(confirm, "decode", stop)
    assert confirmed(made, replace(options, resume=True)).to_json() == done.to_json()
    assert path.read_bytes() == after


def test_every_policy_has_the_same_prompts_on_both_sides(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    end_after_a_prompt(monkeypatch)
    done = confirmed(made, ConfirmOptions(tmp_path / "out", time_limit_s=0))
    assert done.ran.ended == "time"
    assert [(policy.predicted.prompts, policy.predicted.sequences) for policy in done.policies] == [(1, 2)] * 4
    assert [policy.measured.sequences for policy in done.policies if policy.measured] == [2] * 3
    assert "1 prompts, 2 sequences" in done.heading


def test_time_that_is_up_before_a_prompt_is_said(made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is lost: with more time the same run goes on."""
    options = ConfirmOptions(tmp_path / "out", time_limit_s=0.0)
    with pytest.raises(TimeUpError, match="was over before every policy had run one whole prompt"):
        confirmed(made, options)
    with monkeypatch.context() as patch:
        patch.setattr(confirm, "WARM_UP_TOKENS", 1)
        assert confirmed(made, replace(options, time_limit_s=600, resume=True)).ran.ended == "all"


def test_the_audit_is_within_the_limit(made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A pass of a minute leaves no time for a text, and what it will take is said."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(confirm, "_audit_pass_s", lambda *_: 60.0)
        with pytest.raises(TimeUpError):
            confirmed(made, ConfirmOptions(tmp_path / "out", time_limit_s=200))
    said = capsys.readouterr().err
    assert re.search(r"confirm: loading and warming up took \d+ s, so \d+ s of the limit are left; ", said)
    assert "the audit will take 240 s of them or more" in said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"until_interval": 0.0}, "between 0 and 1"),
        ({"until_interval": 3.0}, "between 0 and 1"),
        ({"until_interval": math.nan}, "between 0 and 1"),
        ({"time_limit_s": -1.0}, "must not be negative"),
        ({"time_limit_s": math.inf}, "must not be negative"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(changes: dict[str, float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        ConfirmOptions(Path("out"), **changes)  # type: ignore[arg-type]


def half_width_by_hand(sums: Doubles, one: int, other: int) -> float:
    """Student's interval of a ratio of two speeds with the jackknife's error and Kish's number of prompts."""

    def log_ratio(rows: list[list[list[float]]]) -> float:
        tokens = [sum(row[policy][0] for row in rows) for policy in (one, other)]
        seconds = [sum(row[policy][1] for row in rows) for policy in (one, other)]
        return math.log(tokens[0] / seconds[0]) - math.log(tokens[1] / seconds[1])

    rows = sums.tolist()
    left_out = [log_ratio(rows[:index] + rows[index + 1 :]) for index in range(len(rows))]
    mean = sum(left_out) / len(rows)
    error = math.sqrt((len(rows) - 1) / len(rows) * sum((value - mean) ** 2 for value in left_out))
    columns = [[row[policy][column] for row in rows] for policy in (one, other) for column in (0, 1)]
    effective = min(sum(column) ** 2 / sum(value**2 for value in column) for column in columns)
    reach = stats.t.ppf(0.975, effective - 1) * error
    return float(math.exp(reach) - math.exp(-reach)) / 2


def test_the_widest_ratio_is_found() -> None:
    rng = np.random.default_rng(1)
    sums = rng.lognormal(0, 0.1, (12, 3, 2)) * np.array([[1, 1], [3, 1], [2, 1]])
    sums[:, 2, 1] *= rng.lognormal(0, 0.5, 12)
    pairs = ((1, 0), (2, 0), (1, 2))
    assert widest_half_width(sums, 0) == pytest.approx(max(half_width_by_hand(sums, *pair) for pair in pairs))
    steady = np.ones((12, 3, 2)) * np.arange(1, 13)[:, None, None]
    assert widest_half_width(steady, 0) == pytest.approx(0, abs=1e-9)
    assert widest_half_width(sums[:1], 0) == math.inf


def stopped_run(seed: int) -> tuple[int, bool]:
    """Prompts until tight, and whether the interval then holds the true speedup of 1.8."""
    rng = np.random.default_rng(seed)
    tokens = rng.lognormal(4.0, 0.4, 218)
    slowness = rng.lognormal(-(0.13**2) / 2, 0.13, (218, 3))
    slowness[:, 0] = 1
    seconds = tokens[:, None] * np.array([1, 1 / 1.5, 1 / 1.8]) * slowness
    sums = np.stack([np.repeat(tokens[:, None], 3, axis=1), seconds], axis=2)
    stop = next((num for num in LOOKS if widest_half_width(sums[:num], 0) <= 0.05), LOOKS[-1])
    (interval,) = intervals_of(log_products(sums[:stop].reshape(stop, -1), np.array([[-1, 1, 0, 0, 1, -1.0]])))
    return stop, interval.low <= math.log(1.8) <= interval.high


def test_an_interval_at_the_stop_holds_the_truth_as_often_as_it_says() -> None:
    """The page on confirming says so; stopping by the width alone costs about one in a hundred."""
    found = [stopped_run(seed) for seed in range(200)]
    assert len({stop for stop, _ in found}) >= 3
    assert 0.90 <= np.mean([holds for _, holds in found]) <= 0.99
