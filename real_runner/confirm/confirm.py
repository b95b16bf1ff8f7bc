"""Measuring: every policy in turn on the same recorded prompts, in one process."""

import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import repeat as endlessly

import numpy as np
import torch
from tqdm import tqdm

from simlab.channels.needs import channels_read
from simlab.policies.parsing.parse import NamedPolicy
from simlab.real_runner.confirm.batch import ServedGroup, first_unequal_of_each, policies_on_record, serve_group
from simlab.real_runner.confirm.groups import GROUP, FinishedGroup, TextGroup, finished_groups, of_groups
from simlab.real_runner.confirm.log import (
    ConfirmLog,
    Difference,
    FinishedRun,
    FinishedSequence,
    finished_run,
    finished_sequence,
)
from simlab.real_runner.confirm.record_comparison import RecordComparison, compare_with_record
from simlab.real_runner.confirm.setup import ConfirmSetup
from simlab.real_runner.confirm.stop import StopMonitor, StopRule, TimeIsUpError
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.plain import Clock, clock_of
from simlab.recorded import RecordedSequence
from simlab.traces.format.frames import SequenceRecord, TokenRows

SEQUENCE = "sequence"
"""The kind of the log's entries."""

WARM_UP_TOKENS = 32
_LAYOUT = "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}{postfix}]"
_OPEN_LAYOUT = "{desc}: [{elapsed}{postfix}]"
"""Of a run whose end is not known beforehand."""

NEVER = StopRule(lambda *_: math.inf)


def measure(setup: ConfirmSetup, log: ConfirmLog, rule: StopRule = NEVER) -> None:
    """Decode every text under every policy and add it to the log, but for what is there already.

    Where several texts run at a time they do in groups, each of which is served from start to end. Before anything is
    timed each policy writes some tokens of the first texts. The policies go in order at every other text or group and
    backwards at the rest; with each repeat these change places.

    Args:
        setup: what is run.
        log: what was measured already.
        rule: what ends the run before its last repeat; what is decoded when time is up is not kept.
    """
    groups, before = _groups(setup), finished(log)
    number_of = {record.index: number for number, group in enumerate(groups) for record in group}
    done = {(finished.repeat, number_of[finished.index]) for finished in before}
    ending = StopMonitor(setup, rule, before)
    if len(done) == setup.options.repeats * len(groups) or ending.is_reached:
        return
    clock = clock_of(setup.models.target.device)
    with suppress(TimeIsUpError), ConfirmProgress(setup, len(before), ending, rule.may_stop) as bar:
        _warm_up(setup, groups[0][: setup.options.batch], clock, bar)
        if rule.time_limit_s is not None:
            bar.say(ending.keep_for_audit(_audit_pass_s(setup, groups[0][0], clock)))
        for repeat in range(setup.options.repeats):
            numbers = [number for number in range(len(groups)) if (repeat, number) not in done]
            records = _on_record(setup, [groups[number] for number in numbers])
            for number, on_record in zip(numbers, records, strict=True):
                group = _measured(setup, repeat, number, groups[number], on_record, clock, bar)
                kind, entry = (GROUP, group) if setup.options.batch > 1 else (SEQUENCE, group.sequences[0])
                log.append(kind, entry.to_json())
                for sequence in group.sequences:
                    ending.add(sequence)
                if ending.is_reached:
                    return


def _groups(setup: ConfirmSetup) -> Sequence[TextGroup]:
    """What is measured at a time: a text, or a group of several."""
    return setup.groups if setup.options.batch > 1 else [(record,) for record in setup.records]


def finished(log: ConfirmLog) -> list[FinishedSequence]:
    """What was measured so far, in the order of measuring."""
    groups = [sequence for group in finished_groups(log) for sequence in group.sequences]
    return [*(finished_sequence(entry) for entry in log.entries(SEQUENCE)), *groups]


_OnRecord = Sequence[tuple[RecordedSequence, TokenRows | None]]
"""What was recorded of the texts of a group, and of the target's decisions in each."""


def _on_record(setup: ConfirmSetup, groups: Sequence[TextGroup]) -> Iterator[_OnRecord]:
    """What was recorded of the texts of each group, where it is compared; else nothing of it."""
    if not setup.is_reference:
        yield from [()] * len(groups)
        return
    wanted = [record.index for group in groups for record in group]
    read = channels_read(policy.policy for policy in setup.policies)
    # Channels are read by policies of single texts alone, so each group has one.
    channels = (
        (sequence.channels for sequence in setup.trace.recorded(setup.draft, wanted, read)) if read else endlessly({})
    )
    for records in of_groups(groups, setup.trace.records([setup.draft], wanted)):
        yield [(replace(record.recorded(setup.draft), channels=next(channels)), record.tokens) for record in records]


def _warm_up(setup: ConfirmSetup, first: TextGroup, clock: Clock, bar: "ConfirmProgress") -> None:
    most = min(WARM_UP_TOKENS, setup.manifest.max_new_tokens)
    for named in setup.policies:
        bar.show(f"warming up {named.label}")
        _served(setup, named, first, most, clock, bar)


@torch.inference_mode()
def _audit_pass_s(setup: ConfirmSetup, record: SequenceRecord, clock: Clock) -> float:
    """Seconds of a pass over a text and its logits, about as the audit takes them in float32."""
    target, tokens = setup.models.target, np.concatenate([record.prompt.token_ids, record.text]).astype(np.int64)
    begun = clock()
    target.rows(target.logits(target.states(torch.from_numpy(tokens)[None])[0, -len(record.text) :]))
    return (clock() - begun) * torch.float32.itemsize / target.dtype.itemsize


def _served(
    setup: ConfirmSetup, named: NamedPolicy, group: TextGroup, most: int, clock: Clock, bar: "ConfirmProgress"
) -> ServedGroup:
    prompts, batch, rest = [record.prompt for record in group], setup.options.batch, (clock, bar.check_time)
    if batch == 1:
        return ServedGroup(1, (decode(setup.models, named.policy, prompts[0], setup.sampling, most, *rest),), (), ())
    return serve_group(setup.models, named.policy, prompts, setup.sampling, most, batch, *rest)


def _measured(
    setup: ConfirmSetup,
    repeat: int,
    number: int,
    group: TextGroup,
    on_record: _OnRecord,
    clock: Clock,
    bar: "ConfirmProgress",
) -> FinishedGroup:
    """Decode a group under every policy, and judge it outside of all timing."""
    order = setup.policies if (number + repeat) % 2 == 0 else setup.policies[::-1]
    served = dict[str, ServedGroup]()
    for named in order:
        bar.begin_policy(named, repeat, number)
        served[named.policy_id] = served_group = _served(setup, named, group, setup.manifest.max_new_tokens, clock, bar)
        num_tokens = sum(len(text.text) - 1 for text in served_group.texts)
        bar.end_policy(named, num_tokens, sum(text.seconds.total_s for text in served_group.texts), len(group))
    runs = [_finished(named, served[named.policy_id], on_record) for named in setup.policies]
    sequences = tuple(
        FinishedSequence(repeat, record.index, own_runs)
        for record, own_runs in zip(group, zip(*runs, strict=True), strict=True)
    )
    ids = [policy.policy_id for policy in setup.policies]
    machine = {policy_id: (served[policy_id].num_committed, served[policy_id].total_s) for policy_id in ids}
    return FinishedGroup(repeat, number, sequences, machine)


def _finished(named: NamedPolicy, served: ServedGroup, on_record: _OnRecord) -> Iterator[FinishedRun]:
    policies = policies_on_record(named.policy, [recorded for recorded, _ in on_record], served.batch)
    for index, unequal in enumerate(first_unequal_of_each(named.policy, served)):
        decoded, differences = served.texts[index], list[Difference]()
        if on_record:
            recorded, tokens = on_record[index]
            gaps = None if tokens is None else tokens.decision_gap
            differences = list(differences_in(compare_with_record(policies[index], decoded, recorded, gaps)))
        yield finished_run(named.policy_id, decoded, "" if unequal is None else str(unequal), differences)


def differences_in(comparison: RecordComparison) -> Iterator[Difference]:
    """The differences of a text as flat values; a number that is not known is None."""
    for difference in comparison.differences():
        yield {key: _known(value) for key, value in difference.items()}
    if comparison.num_unpaired:
        text = f"{comparison.num_unpaired} rounds begin where the other has no root"
        yield {"kind": "round", "num_unpaired": comparison.num_unpaired, "says": text}


def _known(value: int | float | str | None) -> int | float | str | None:
    return value if value is None or isinstance(value, str) or math.isfinite(value) else None


class ConfirmProgress:
    """A bar on stderr over all runs, with what runs, the speed of the policy and the width of the intervals so far.

    A context manager.
    """

    def __init__(self, setup: ConfirmSetup, num_done: int, ending: StopMonitor, is_open: bool) -> None:
        self._setup, self._ending, self._is_open = setup, ending, is_open
        self.check_time = ending.check_time
        num_runs = len(setup.policies) * len(setup.records) * setup.options.repeats
        self._bar = tqdm(
            total=num_runs,
            initial=len(setup.policies) * num_done,
            desc="confirm",
            bar_format=_OPEN_LAYOUT if is_open else _LAYOUT,
            smoothing=0,
            disable=None,
        )
        self._tokens = dict.fromkeys((policy.policy_id for policy in setup.policies), 0)
        self._seconds = dict.fromkeys(self._tokens, 0.0)

    def show(self, text: str) -> None:
        """Show beside the bar what runs now."""
        self._bar.set_postfix_str(text, refresh=True)

    def say(self, text: str) -> None:
        """Write a line above the bar, or where no bar is."""
        self._bar.write(f"confirm: {text}", file=sys.stderr)

    def begin_policy(self, named: NamedPolicy, repeat: int, number: int) -> None:
        """A policy's turn has come, at a text or a group of that number."""
        if self._setup.options.batch > 1:
            again = f", repeat {repeat + 1}" if repeat else ""
            where = f"group {number + 1} of {len(self._setup.groups)}{again}"
        else:
            num = len(self._setup.records) * self._setup.options.repeats
            text = int(self._bar.n) // len(self._setup.policies) + 1
            where = f"text {text}" if self._is_open else f"text {text}/{num}"
        width = self._ending.text()
        self.show(f"{where}, {f'{width}, ' if width else ''}{named.label}{self._speed(named.policy_id)}")

    def end_policy(self, named: NamedPolicy, num_tokens: int, seconds: float, num_texts: int) -> None:
        """A policy has written so many tokens after the first, in that many texts."""
        self._tokens[named.policy_id] += num_tokens
        self._seconds[named.policy_id] += seconds
        self._bar.update(num_texts)

    def _speed(self, policy_id: str) -> str:
        """Tokens/s of the policy's turns so far, as text; nothing before the first."""
        own, plain = (self._tokens_per_s(identity) for identity in (policy_id, self._setup.plain_id))
        return f" {own:.1f} tokens/s ({own / plain:.2f} x plain)" if own and plain else ""

    def _tokens_per_s(self, policy_id: str) -> float:
        seconds = self._seconds[policy_id]
        return self._tokens[policy_id] / seconds if seconds else 0.0

    def __enter__(self) -> "ConfirmProgress":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()
