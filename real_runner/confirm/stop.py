"""When a confirmation ends before its last repeat: its intervals are tight, or its time is up."""

import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from simlab.arrays import Doubles
from simlab.real_runner.confirm.groups import ResampledUnit
from simlab.real_runner.confirm.log import FinishedSequence
from simlab.real_runner.confirm.setup import ConfirmSetup

FIRST_LOOK = 20
"""Whole prompts that are run before anybody looks how wide the intervals are; each repeat of one counts."""


HalfWidth = Callable[[Doubles, int], float]
"""The widest 95 % interval of a speed ratio, halved and relative, from float64 ``[prompts, policies, 2]`` (tokens and
seconds) and the place of plain decoding; infinite where it is not known."""

_AUDIT_PASSES = 4
"""Passes of the audit over a text that all policies wrote alike: one for the text, about three for the bound."""

Place = tuple[int, str, str]
"""Repeat, dataset, name of the prompt."""


@dataclass(frozen=True, slots=True, eq=False)
class StopRule:
    """What ends a run early.

    Attributes:
        half_width: how it is known.
        until_interval: end when it is no larger than this; None: never.
        time_limit_s: end so early that measuring and the audit take so many seconds, in the middle of a text too; None:
            never.
        begun: since when they count, by `time.monotonic`.
    """

    half_width: HalfWidth
    until_interval: float | None = None
    time_limit_s: float | None = None
    begun: float = field(default_factory=time.monotonic)

    @property
    def may_stop(self) -> bool:
        """Whether the rule can end a run at all."""
        return self.until_interval is not None or self.time_limit_s is not None


def is_look(num_prompts: int) -> bool:
    """Whether the intervals are looked at after so many whole prompts: at 20, and whenever a quarter was added.

    >>> [num for num in range(1, 100) if is_look(num)]
    [20, 25, 31, 38, 47, 58, 72, 90]
    """
    look = FIRST_LOOK
    while look < num_prompts:
        look += look // 4
    return look == num_prompts


class TimeIsUpError(Exception):
    """The run ends in the middle of a text; its prompt is left out."""


def whole(units: Mapping[int, ResampledUnit], sequences: Sequence[FinishedSequence]) -> list[FinishedSequence]:
    """The sequences of what was run whole in its repeat, all turns and samples; the rest of them is left out.

    Args:
        units: what each sequence is run whole with, by its place in the trace.
        sequences: what was measured.
    """
    sizes, done = Counter(units.values()), Counter((sequence.repeat, units[sequence.index]) for sequence in sequences)
    return [
        sequence
        for sequence in sequences
        if done[sequence.repeat, units[sequence.index]] == sizes[units[sequence.index]]
    ]


class StopMonitor:
    """Follows a run and says when it may end: with tight intervals between whole prompts, when time is up anywhere.

    Args:
        setup: what is run.
        rule: what ends it.
        finished: what was measured before.
    """

    def __init__(self, setup: ConfirmSetup, rule: StopRule, finished: Sequence[FinishedSequence] = ()) -> None:
        self._rule = rule
        self._prompt_of = setup.units
        self._sizes = Counter(self._prompt_of.values())
        self._ids = [policy.policy_id for policy in setup.policies]
        self._plain = self._ids.index(setup.plain_id)
        self._sums: dict[tuple[str, str], Doubles] = {}
        self._done: Counter[Place] = Counter()
        self._load_s = 0.0 if setup.audits_itself else setup.load_s
        self._audit_s, self._pass_s = self._load_s, 0.0
        self.half_width = math.inf
        for sequence in finished:
            self._add(sequence)
        self._measure()

    def keep_for_audit(self, pass_s: float) -> str:
        """End so early that the audit fits in too, a pass of which takes about ``pass_s``; what to say of the time."""
        self._pass_s, self._audit_s = pass_s, self._load_s + _AUDIT_PASSES * pass_s
        took, limit = time.monotonic() - self._rule.begun, self._rule.time_limit_s or 0.0
        return (
            f"loading and warming up took {took:.0f} s, so {max(limit - took, 0):.0f} s of the limit are left; the "
            f"audit will take {self._audit_s:.0f} s of them or more"
        )

    def add(self, sequence: FinishedSequence) -> None:
        """One more text was decoded under every policy."""
        self._add(sequence)
        self._audit_s += (len({run.text_digest for run in sequence.runs}) + _AUDIT_PASSES - 1) * self._pass_s
        if self.is_between_prompts:
            self._measure()

    @property
    def num_whole(self) -> int:
        """Whole prompts so far, each repeat counted."""
        return sum(num == self._sizes[dataset, name] for (_, dataset, name), num in self._done.items())

    @property
    def is_between_prompts(self) -> bool:
        """Whether every prompt that was begun is finished, all its turns and samples."""
        return self.num_whole == len(self._done)

    @property
    def is_tight(self) -> bool:
        """Whether this is a look at the intervals, and they are tight."""
        until = self._rule.until_interval
        return until is not None and is_look(self.num_whole) and self.half_width <= until

    @property
    def is_reached(self) -> bool:
        """Whether the run may end here."""
        return self._is_late or (self.is_between_prompts and self.is_tight)

    def check_time(self) -> None:
        """Raise `TimeIsUpError` when time is up."""
        if self._is_late:
            raise TimeIsUpError

    @property
    def _is_late(self) -> bool:
        limit = self._rule.time_limit_s
        return limit is not None and time.monotonic() >= self._rule.begun + limit - self._audit_s

    def text(self) -> str:
        """How wide the widest interval is, for a progress bar; empty while that says nothing."""
        if not self.half_width < 1:
            return ""
        until = self._rule.until_interval
        wanted = "" if until is None else f", wanted {100 * until:g} %"
        return f"±{100 * self.half_width:.1f} %{wanted}"

    def _add(self, sequence: FinishedSequence) -> None:
        prompt = self._prompt_of[sequence.index]
        sums = {run.policy_id: (run.totals.committed, run.seconds.total_s) for run in sequence.runs}
        own = np.array([sums[policy_id] for policy_id in self._ids], np.float64)
        self._sums[prompt] = self._sums.get(prompt, np.zeros_like(own)) + own
        self._done[sequence.repeat, *prompt] += 1

    def _measure(self) -> None:
        if self._sums:
            table = np.stack([self._sums[prompt] for prompt in sorted(self._sums)])
            self.half_width = self._rule.half_width(table, self._plain)
