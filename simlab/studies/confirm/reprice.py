"""A latency profile against the rounds of a run, and the same profile corrected by them."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from simlab.analysis.confirm.errors import Staleness, TimedRounds, staleness
from simlab.arrays import Longs
from simlab.cost import GRID_STAGES, STAGES, is_plain
from simlab.policy import is_plain_decoding, routes_of
from simlab.real_runner.confirm.log import ROUND_COLUMNS, FinishedRun, FinishedSequence
from simlab.real_runner.confirm.setup import ConfirmSetup
from simlab.studies.inputs.prices import Prices
from simlab.traces.artefacts.cost import CostFile

_MICROSECOND = 1e-6


def staleness_of(setup: ConfirmSetup, sequences: Sequence[FinishedSequence], prices: Prices) -> Staleness | None:
    """How far the latency profile is from the rounds of a run; None where nothing is priced or compared.

    Texts that are served together wait for each other, so their rounds are not compared.

    Args:
        setup: what was run.
        sequences: what was measured.
        prices: of the prediction.
    """
    if prices.cost is None or setup.options.batch != 1:
        return None
    # Rounds of a router take routes of different stages, and the log does not say which.
    every = [one for one in setup.policies if one.policy.needs.draft and not routes_of(one.policy)]
    drafting = [(one.policy_id, prices.cost_of(one.policy)) for one in every]
    plain = next(one.policy_id for one in setup.policies if is_plain_decoding(one.policy))
    return staleness(
        _timed(setup, sequences, plain),
        [(_timed(setup, sequences, policy_id), cost) for policy_id, cost in drafting if cost is not None],
        prices.cost,
    )


def repriced(file: CostFile, found: Staleness) -> CostFile:
    """A cost file with its samples corrected by the rounds of a run.

    Plain decoding's are multiplied by one factor; those of a stage by a factor for each number of drafted tokens, the
    logarithm straight between the numbers that ran and constant beyond them. Those of all channels have one factor. All
    contexts are corrected alike.

    Args:
        file: what was predicted with.
        found: how far it was from the run.
    """
    ran = np.array([one.num_drafted for one in found.sizes], np.float64)
    factors = {}
    for stage in GRID_STAGES:
        logs = np.log([one.factors[stage] for one in found.sizes])
        factors[stage] = np.exp(np.interp(np.array(file.node_counts, np.float64), ran, logs))
    places = {num_drafted: place for place, num_drafted in enumerate(file.node_counts)}

    def factor(stage: str, num_drafted: int) -> float:
        if stage in factors:
            return float(factors[stage][places[num_drafted]])
        return 1 + found.plain if is_plain(stage) else found.channel

    samples = {
        (stage, n, context): tuple((np.array(seconds) * factor(stage, n)).tolist())
        for (stage, n, context), seconds in file.samples.items()
    }
    num_rounds = sum(one.rounds for one in found.sizes)
    sizes = ", ".join(str(one.num_drafted) for one in found.sizes)
    note = (
        f"corrected by {num_rounds:,} rounds that `simlab confirm` ran, of {sizes} drafted tokens; before that it was "
        f"the cost file {file.cost_id}"
    )
    return replace(file, samples=samples, notes=(*file.notes, note))


def _timed(setup: ConfirmSetup, sequences: Sequence[FinishedSequence], policy_id: str) -> TimedRounds:
    """The rounds of a policy, a number for each text and repeat."""
    lengths = {record.index: len(record.prompt.token_ids) for record in setup.records}
    parts = [
        _of_run(number, lengths[sequence.index], run)
        for number, sequence in enumerate(sequences)
        for run in sequence.runs
        if run.policy_id == policy_id
    ]
    table = np.concatenate(parts) if parts else np.zeros((0, 3 + len(STAGES)), np.int64)
    seconds = np.asarray(table[:, 3:] * _MICROSECOND, np.float64)
    return TimedRounds(table[:, 0], table[:, 1], table[:, 2], seconds)


def _of_run(number: int, prompt_length: int, run: FinishedRun) -> Longs:
    """Text, context, drafted tokens and microseconds of each stage, int64 ``[R, 8]``."""
    names = ("drafted", *(f"{stage}_us" for stage in STAGES))
    columns = [run.rounds[:, ROUND_COLUMNS.index(name)] for name in names]
    contexts = run.rounds[:, ROUND_COLUMNS.index("position")] + prompt_length
    return np.stack([np.full(len(run.rounds), number, np.int64), contexts, *columns], axis=1)
