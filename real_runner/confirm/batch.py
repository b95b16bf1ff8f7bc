"""Measuring several texts at a time: every policy in turn serves the same group of texts from start to end."""

from collections.abc import Iterator, Sequence

from simlab.policies.parsing.parse import NamedPolicy
from simlab.real_runner.confirm.confirm import NEVER, WARM_UP_TOKENS, ConfirmProgress, differences_in
from simlab.real_runner.confirm.groups import GROUP, FinishedGroup, MachineRun, TextGroup, finished_groups, of_groups
from simlab.real_runner.confirm.log import ConfirmLog, Difference, FinishedRun, FinishedSequence, finished_run
from simlab.real_runner.confirm.record_comparison import compare_with_record
from simlab.real_runner.confirm.serving import ServedGroup, first_unequal_of_each, policies_on_record, serve_group
from simlab.real_runner.confirm.setup import ConfirmSetup
from simlab.real_runner.confirm.stop import StopMonitor, StopRule
from simlab.real_runner.decoding.timer import Clock, clock_of


def measure_groups(setup: ConfirmSetup, log: ConfirmLog, rule: StopRule = NEVER) -> None:
    """Serve every group under every policy and add it to the log, but for what is there already.

    Before anything is timed each policy writes some tokens of the first texts. The policies go in order at every other
    group and backwards at the rest; with each repeat these change places.

    Args:
        setup: what is run.
        log: what was measured already.
        rule: what ends the run before its last repeat, after a whole group.
    """
    before = list(finished_groups(log))
    done = {(one.repeat, one.group) for one in before}
    texts = [sequence for one in before for sequence in one.sequences]
    ending = StopMonitor(setup, rule, texts)
    places = {(repeat, number) for repeat in range(setup.options.repeats) for number in range(len(setup.groups))}
    if done >= places or ending.is_reached:
        return
    clock = clock_of(setup.models.target.device)
    with ConfirmProgress(setup, {(one.repeat, one.index) for one in texts}, ending, rule.may_stop) as bar:
        _warm_up(setup, clock, bar)
        for repeat, number, records in _all_missing(setup, done):
            group = _measured(setup, repeat, number, records, clock, bar)
            log.append(GROUP, group.to_json())
            for sequence in group.sequences:
                ending.add(sequence)
            if ending.is_reached:
                return


def _all_missing(setup: ConfirmSetup, done: set[tuple[int, int]]) -> Iterator[tuple[int, int, TextGroup]]:
    """Repeat, number and records of each group that is still to be served, repeat by repeat."""
    groups = setup.groups
    for repeat in range(setup.options.repeats):
        numbers = [number for number in range(len(groups)) if (repeat, number) not in done]
        records = _records(setup, [groups[number] for number in numbers])
        yield from ((repeat, number, each) for number, each in zip(numbers, records, strict=True))


def _records(setup: ConfirmSetup, groups: Sequence[TextGroup]) -> Iterator[TextGroup]:
    """Each group with what was recorded of its texts, read once, where it is compared; else nothing of it."""
    if not setup.is_reference:
        return iter([()] * len(groups))
    wanted = [record.index for group in groups for record in group]
    return of_groups(groups, setup.trace.records([setup.draft], wanted))


def _warm_up(setup: ConfirmSetup, clock: Clock, bar: ConfirmProgress) -> None:
    most = min(WARM_UP_TOKENS, setup.manifest.max_new_tokens)
    for named in setup.policies:
        bar.show(f"warming up {named.label}")
        _served(setup, named, setup.groups[0][: setup.options.batch], most, clock)


def _served(setup: ConfirmSetup, named: NamedPolicy, group: TextGroup, most: int, clock: Clock) -> ServedGroup:
    prompts = [record.prompt for record in group]
    return serve_group(setup.models, named.policy, prompts, setup.sampling, most, setup.options.batch, clock)


def _measured(
    setup: ConfirmSetup, repeat: int, number: int, records: TextGroup, clock: Clock, bar: ConfirmProgress
) -> FinishedGroup:
    """Judged outside of all timing."""
    group = setup.groups[number]
    order = setup.policies if (number + repeat) % 2 == 0 else setup.policies[::-1]
    served: dict[str, ServedGroup] = {}
    again = f", repeat {repeat + 1}" if repeat else ""
    for named in order:
        bar.begin_policy_at(named, f"group {number + 1} of {len(setup.groups)}{again}")
        of_policy_served = served[named.policy_id] = _served(setup, named, group, setup.manifest.max_new_tokens, clock)
        tokens, seconds = _of_texts(of_policy_served)
        bar.end_policy(named, tokens, seconds, len(group))
    runs = [_finished(setup, named, served[named.policy_id], records) for named in setup.policies]
    sequences = tuple(
        FinishedSequence(repeat, record.index, tuple(of_policy[place] for of_policy in runs))
        for place, record in enumerate(group)
    )
    machine = tuple(_machine(named.policy_id, served[named.policy_id]) for named in setup.policies)
    return FinishedGroup(repeat, number, sequences, machine)


def _of_texts(served: ServedGroup) -> tuple[int, float]:
    """Tokens after the first of all texts of the group, and the seconds that each of them waited, added up."""
    return sum(len(one.text) - 1 for one in served.texts), sum(one.seconds.total_s for one in served.texts)


def _machine(policy_id: str, served: ServedGroup) -> MachineRun:
    return MachineRun(policy_id, served.num_committed, served.total_s)


def _finished(setup: ConfirmSetup, named: NamedPolicy, served: ServedGroup, records: TextGroup) -> list[FinishedRun]:
    unequal = first_unequal_of_each(named.policy, served)
    differences = _differences(setup, named, served, records)
    return [
        finished_run(named.policy_id, decoded, "" if other is None else str(other), differences.get(place, ()))
        for place, (decoded, other) in enumerate(zip(served.texts, unequal, strict=True))
    ]


def _differences(
    setup: ConfirmSetup, named: NamedPolicy, served: ServedGroup, records: TextGroup
) -> dict[int, list[Difference]]:
    """From the recorded trace, by the place of the text in its group."""
    if not records:
        return {}
    recorded = [record.recorded(setup.draft) for record in records]
    policies = policies_on_record(named.policy, recorded, served.batch)
    by_place = {}
    for place, (record, text) in enumerate(zip(records, recorded, strict=True)):
        gaps = None if record.tokens is None else record.tokens.decision_gap
        compared = compare_with_record(policies[place], served.texts[place], text, gaps)
        by_place[place] = list(differences_in(compared))
    return by_place
