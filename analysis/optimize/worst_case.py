"""The smallest speedup of a run over several machines, and how it varies with the prompts."""

from collections.abc import Sequence

import numpy as np

from simlab.analysis.compare.comparisons import POWERS, Comparison, compared_logs, logs_of_runs
from simlab.analysis.statistics.bootstrap import Spread
from simlab.analysis.table.prompt_sums import COLUMNS, Run, prompt_sums
from simlab.arrays import Doubles

WORST_SPEEDUP = "worst_speedup"


def worst_speedups(machines: Sequence[Sequence[Run]]) -> Spread:
    """Logarithms, of each run; the machine on which it is worst is found again for each resample.

    Args:
        machines: the same runs, on the same prompts, at the prices of each machine.
    """
    return _least([logs_of_runs(_sums(runs), _powers()) for runs in machines])


def compared_worst(machines: Sequence[Sequence[Run]], pairs: Sequence[tuple[int, int]]) -> list[Comparison]:
    """Each pair of runs by their worst speedups, each alone.

    Args:
        machines: as for `worst_speedups`.
        pairs: places of two runs each.
    """
    sums = [_sums(runs) for runs in machines]
    equal = [all(np.array_equal(some[:, one], some[:, other]) for some in sums) for one, other in pairs]
    logs = _least([logs_of_runs(some, _powers()) for some in sums])
    return compared_logs(logs, equal, [run.name for run in machines[0]], pairs, WORST_SPEEDUP)


def _sums(runs: Sequence[Run]) -> Doubles:
    """What speedups are made of, float64 ``[prompts, runs, 4]``."""
    return np.asarray(prompt_sums(runs).sums[:, :, [COLUMNS.index(name) for name in POWERS["speedup"]]], np.float64)


def _powers() -> Doubles:
    return np.array(list(POWERS["speedup"].values()), np.float64)


def _least(spreads: Sequence[Spread]) -> Spread:
    """The smallest of each number; with the fewest effective prompts of any."""
    parts = (np.min([getattr(one, name) for one in spreads], axis=0) for name in Spread.__slots__)
    return Spread(*parts)
