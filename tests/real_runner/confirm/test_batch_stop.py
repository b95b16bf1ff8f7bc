"""``simlab confirm --batch N`` that stops, is killed and goes on; and faults that a whole run must see."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from batch_runs import ASKED
from confirm_runs import Made, Watch, confirmed, end_after_a_prompt, spoilt

from simlab.cost import StageSeconds
from simlab.draft import Prompt
from simlab.errors import TraceError
from simlab.policy import AnyPolicy
from simlab.real_runner.confirm import audit as confirm_audit
from simlab.real_runner.confirm import confirm
from simlab.real_runner.confirm.batch import ServedGroup, serve_group
from simlab.real_runner.confirm.log import LOG
from simlab.real_runner.confirm.options import ConfirmOptions
from simlab.real_runner.decoding.decoded import DecodedText
from simlab.real_runner.decoding.speculation import Speculation
from simlab.studies.confirm.confirmation import Confirmation

# Stopping and going on


def watched(monkeypatch: pytest.MonkeyPatch, most: int | None = None) -> Watch:
    """Serving that notes its order, and stops the run after so many groups under a policy."""

    def note(_models: object, policy: AnyPolicy, prompts: Sequence[Prompt], *more: object) -> object:
        return type(policy).__name__, tuple(prompt.prompt_id for prompt in prompts), more[2]

    return Watch(monkeypatch, serve_group, note, most)


@pytest.mark.thorough
def test_a_killed_run_goes_on_after_its_last_whole_group(
    served: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = ConfirmOptions(tmp_path / "out", batch=2, repeats=2)
    # The warm-up, the first group, and half of the second.
    watched(monkeypatch, most=4 + 4 + 2)
    with pytest.raises(KeyboardInterrupt):
        confirmed(served, options, ASKED)
    path = tmp_path / "out" / LOG
    lines = path.read_bytes().splitlines(keepends=True)
    assert len(lines) == 2
    path.write_bytes(b"".join(lines) + lines[-1][: len(lines[-1]) // 2])
    rest = watched(monkeypatch)
    done = confirmed(served, replace(options, resume=True), ASKED)
    assert not done.has_failed
    assert path.read_bytes().startswith(b"".join(lines))
    names = [name for name, _, _ in rest.asked[:4]]
    timed = rest.asked[4:]
    assert len(timed) == 5 * 4
    groups = [("p0", "p0", "p1", "p1"), ("p2", "p2", "p3", "p3"), ("p4", "p4")]
    for index in range(1, 6):
        repeat, number = divmod(index, 3)
        order = names if (repeat + number) % 2 == 0 else names[::-1]
        turn = timed[4 * (index - 1) : 4 * index]
        assert turn == [(name, groups[number], 2) for name in order]
    assert done.ran.prompt_runs == 10
    assert "3 groups, 6 runs of a group" in done.text()
    monkeypatch.setattr(confirm_audit, "audit_text", None)
    monkeypatch.setattr(confirm, "serve_group", None)
    assert confirmed(served, replace(options, resume=True), ASKED).to_json() == done.to_json()


def test_another_batch_is_another_run(served: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    end_after_a_prompt(monkeypatch)
    options = ConfirmOptions(tmp_path / "out", batch=2, time_limit_s=0, repeats=10)
    confirmed(served, options, ASKED)
    with pytest.raises(TraceError, match="was begun with"):
        confirmed(served, replace(options, batch=3, resume=True), ASKED)
    with pytest.raises(TraceError, match="was begun with"):
        confirmed(served, replace(options, batch=1, resume=True), ASKED)


# Faults that a whole run must see


def exchanged_seconds(served: ServedGroup) -> ServedGroup:
    """The first two texts have each other's seconds, as far as they go."""
    text, other = served.texts[:2]
    ours = [ran.seconds for ran in text.rounds]
    theirs = [ran.seconds for ran in other.rounds]
    texts = [_with_seconds(text, theirs[::-1]), _with_seconds(other, ours[::-1]), *served.texts[2:]]
    return replace(served, texts=tuple(texts))


def _with_seconds(text: DecodedText, seconds: Sequence[StageSeconds]) -> DecodedText:
    given = [*seconds, *(ran.seconds for ran in text.rounds[len(seconds) :])]
    return replace(
        text, rounds=tuple(replace(ran, seconds=each) for ran, each in zip(text.rounds, given, strict=False))
    )


def row_of(done: Confirmation, label: str) -> dict[str, Any]:
    return next(policy.row() for policy in done.policies if policy.policy == label)


def test_exchanged_seconds_fail(served: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoilt(monkeypatch, serve_group, "chain", exchanged_seconds)
    done = confirmed(served, ConfirmOptions(tmp_path / "out", batch=2, limit=2), ASKED)
    assert done.has_failed
    assert row_of(done, "chain")["num_equal"] == 2
    assert row_of(done, "ddtree:budget=8")["counts_equal_replay"] is True
    assert "had other rounds than the replay of their own rows" in done.verdict
    assert "seconds" in done.verdict


def test_a_batch_that_is_not_kept_full_fails(served: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Speculation, "has_place", property(lambda self: not self.running))
    done = confirmed(served, ConfirmOptions(tmp_path / "out", batch=2, limit=2), ASKED)
    assert done.has_failed
    assert "texts beside it" in done.verdict or "rounds of the batch" in done.verdict
