"""Measuring: every policy in turn on the same recorded prompts, in one process."""

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, replace

from tqdm import tqdm

from simlab.channels import ChannelRows
from simlab.channels.needs import channels_read
from simlab.policies.parsing.parse import NamedPolicy
from simlab.real_runner.confirm.groups import finished_groups
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
from simlab.real_runner.decoding.decoded import DecodedText
from simlab.real_runner.decoding.own_rows import first_unequal
from simlab.real_runner.decoding.plain import Clock, clock_of
from simlab.traces.format.frames import SequenceRecord

SEQUENCE = "sequence"
"""The kind of the log's entries."""

WARM_UP_TOKENS = 32
_LAYOUT = "{desc}: {percentage:3.0f}%|{bar}| [{elapsed}<{remaining}{postfix}]"
_OPEN_LAYOUT = "{desc}: [{elapsed}{postfix}]"
"""Of a run whose end is not known beforehand."""

NEVER = StopRule(lambda *_: math.inf)


def measure(setup: ConfirmSetup, log: ConfirmLog, rule: StopRule = NEVER) -> None:
    """Decode every prompt under every policy and add it to the log, but for what is there already.

    Before anything is timed each policy decodes some tokens of the first prompt. The policies go in
    order at every other prompt and backwards at the rest; with each repeat these change places.

    Args:
        setup: what is run.
        log: what was measured already.
        rule: what ends the run before its last repeat; the text that is decoded when time is up is not kept.
    """
    before = finished(log)
    done = {(one.repeat, one.index) for one in before}
    places = [(repeat, record.index) for repeat in range(setup.options.repeats) for record in setup.records]
    ending = StopMonitor(setup, rule, before)
    if done.issuperset(places) or ending.is_reached:
        return
    clock = clock_of(setup.models.target.device)
    with suppress(TimeIsUpError), ConfirmProgress(setup, done, ending, rule.may_stop) as bar:
        _warm_up(setup, clock, bar)
        for repeat, number, record, channels in _all_missing(setup, done):
            order = setup.policies if (number + repeat) % 2 == 0 else setup.policies[::-1]
            decoded = {one.policy_id: _timed(setup, one, record, clock, bar) for one in order}
            runs = tuple(_finished(setup, one, decoded[one.policy_id], record, channels) for one in setup.policies)
            sequence = FinishedSequence(repeat, record.index, runs)
            log.append(SEQUENCE, sequence.to_json())
            ending.add(sequence)
            if ending.is_reached:
                return


def finished(log: ConfirmLog) -> list[FinishedSequence]:
    """What was measured so far, in the order of measuring."""
    groups = [sequence for group in finished_groups(log) for sequence in group.sequences]
    return [*(finished_sequence(entry) for entry in log.entries(SEQUENCE)), *groups]


_Channels = Mapping[str, ChannelRows]


def _all_missing(
    setup: ConfirmSetup, done: set[tuple[int, int]]
) -> Iterator[tuple[int, int, SequenceRecord, _Channels]]:
    """Repeat, number, record and recorded channels of what is still to be done, repeat by repeat."""
    for repeat in range(setup.options.repeats):
        own = {index for where, index in done if where == repeat}
        yield from ((repeat, *one) for one in _missing(setup, own))


def _missing(setup: ConfirmSetup, done: set[int]) -> Iterator[tuple[int, SequenceRecord, _Channels]]:
    """The sequences not yet done, each with its number among all; with what was recorded where it is compared."""
    numbers = {record.index: number for number, record in enumerate(setup.records) if record.index not in done}
    records = setup.trace.records([setup.draft], numbers) if setup.is_reference else setup.records
    read = channels_read(one.policy for one in setup.policies) if setup.is_reference else ()
    of_channels = setup.trace.recorded(setup.draft, numbers, read) if read else None
    for record in records:
        if record.index in numbers:
            yield numbers[record.index], record, {} if of_channels is None else next(of_channels).channels


def _warm_up(setup: ConfirmSetup, clock: Clock, bar: "ConfirmProgress") -> None:
    first, most = setup.records[0], min(WARM_UP_TOKENS, setup.manifest.max_new_tokens)
    for named in setup.policies:
        bar.show(f"warming up {named.label}")
        decode(setup.models, named.policy, first.prompt, setup.sampling, most, clock, bar.check_time)


def _timed(
    setup: ConfirmSetup, named: NamedPolicy, record: SequenceRecord, clock: Clock, bar: "ConfirmProgress"
) -> DecodedText:
    bar.begin_policy(named)
    most, check = setup.manifest.max_new_tokens, bar.check_time
    decoded = decode(setup.models, named.policy, record.prompt, setup.sampling, most, clock, check)
    bar.end_policy(named, len(decoded.text) - 1, decoded.seconds.total_s)
    return decoded


def _finished(
    setup: ConfirmSetup, named: NamedPolicy, decoded: DecodedText, record: SequenceRecord, channels: _Channels
) -> FinishedRun:
    """Judged outside of all timing."""
    unequal = first_unequal(named.policy, decoded)
    differences: list[Difference] = []
    if setup.is_reference:
        recorded = replace(record.recorded(setup.draft), channels=channels)
        gaps = None if record.tokens is None else record.tokens.decision_gap
        differences = list(differences_in(compare_with_record(named.policy, decoded, recorded, gaps)))
    return finished_run(named.policy_id, decoded, "" if unequal is None else str(unequal), differences)


def differences_in(comparison: RecordComparison) -> Iterator[Difference]:
    """The differences of a text as flat values; a number that is not known is None."""
    parts = {
        "text": () if comparison.parting is None else (comparison.parting,),
        "round": comparison.round_differences,
        "row": comparison.row_differences,
        "channel": comparison.channel_differences,
    }
    for kind, differences in parts.items():
        for difference in differences:
            known = {key: _known(value) for key, value in asdict(difference).items()}
            yield {"kind": kind, **known, "says": str(difference)}
    if comparison.num_unpaired:
        text = f"{comparison.num_unpaired} rounds begin where the other has no root"
        yield {"kind": "round", "num_unpaired": comparison.num_unpaired, "says": text}


def _known(value: int | float | str | None) -> int | float | str | None:
    return value if value is None or isinstance(value, str) or math.isfinite(value) else None


class ConfirmProgress:
    """A bar on stderr over all runs, with what runs, the speed of the policy and the width of the intervals so far.

    A context manager.
    """

    def __init__(self, setup: ConfirmSetup, done: set[tuple[int, int]], ending: StopMonitor, is_open: bool) -> None:
        self._setup, self._ending, self._is_open = setup, ending, is_open
        self.check_time = ending.check_time
        num_runs = len(setup.policies) * len(setup.records) * setup.options.repeats
        self._bar = tqdm(
            total=num_runs,
            initial=len(setup.policies) * len(done),
            desc="confirm",
            bar_format=_OPEN_LAYOUT if is_open else _LAYOUT,
            smoothing=0,
        )
        self._tokens = dict.fromkeys((one.policy_id for one in setup.policies), 0)
        self._seconds = dict.fromkeys(self._tokens, 0.0)

    def show(self, text: str) -> None:
        """Show beside the bar what runs now."""
        self._bar.set_postfix_str(text, refresh=True)

    def begin_policy(self, named: NamedPolicy) -> None:
        """A policy's turn has come."""
        number = int(self._bar.n) // len(self._setup.policies) + 1
        num = len(self._setup.records) * self._setup.options.repeats
        self.begin_policy_at(named, f"text {number}" if self._is_open else f"text {number}/{num}")

    def begin_policy_at(self, named: NamedPolicy, place: str) -> None:
        """A policy's turn has come, at a text or a group that is named."""
        width = self._ending.text()
        self.show(f"{place}, {f'{width}, ' if width else ''}{named.label}{self._speed(named.policy_id)}")

    def end_policy(self, named: NamedPolicy, num_tokens: int, seconds: float, num_texts: int = 1) -> None:
        """A policy has written so many tokens after the first, in that many texts."""
        self._tokens[named.policy_id] += num_tokens
        self._seconds[named.policy_id] += seconds
        self._bar.update(num_texts)

    def _speed(self, policy_id: str) -> str:
        """Tokens/s of the policy's turns so far, as text; nothing before the first."""
        own, plain = (self._tokens_per_s(one) for one in (policy_id, self._setup.plain_id))
        return f" {own:.1f} tokens/s ({own / plain:.2f} x plain)" if own and plain else ""

    def _tokens_per_s(self, policy_id: str) -> float:
        seconds = self._seconds[policy_id]
        return self._tokens[policy_id] / seconds if seconds else 0.0

    def __enter__(self) -> "ConfirmProgress":
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.close()
