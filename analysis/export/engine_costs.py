"""Cost tables for serving engines, from latency profiles of one or several batch sizes.

The forms, and what of a profile they hold, are those of `simlab.traces.artefacts.engine_tables`.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import numpy as np

from simlab.cost import GRID_STAGES, CostTable
from simlab.traces.artefacts.engine_tables import Points, SampledSteps, StepCurves


@dataclass(frozen=True, slots=True)
class BatchCosts:
    """A latency profile and what was timed in it.

    Attributes:
        batch: texts at a time.
        node_counts: drafted tokens of each text that were timed.
        cost: the seconds.
    """

    batch: int
    node_counts: Sequence[int]
    cost: CostTable


def sampled_steps(profiles: Sequence[BatchCosts], context: int) -> SampledSteps:
    """Seconds of whole rounds by their tokens, at one context; of several profiles with as many tokens the median."""
    points = _points(profiles, GRID_STAGES, context)
    return SampledSteps(points, points[-1][0])


def step_curves(profiles: Sequence[BatchCosts], context: int, drafted: int) -> StepCurves:
    """Seconds of drafting by requests, and of the target's pass by tokens, at one context.

    Args:
        profiles: one of each batch size.
        context: tokens before the root.
        drafted: of each text, where drafting is read off; it hardly depends on it.
    """
    draft = tuple(
        (one.batch, float(one.cost.curve("draft", context)[min(drafted, one.cost.most_drafted)]))
        for one in sorted(profiles, key=lambda one: one.batch)
    )
    return StepCurves(draft, _points(profiles, ("verify",), context))


def _points(profiles: Sequence[BatchCosts], stages: Sequence[str], context: int) -> Points:
    found: defaultdict[int, list[float]] = defaultdict(list)
    for one in profiles:
        seconds = np.sum([one.cost.curve(stage, context) for stage in stages], axis=0)
        for number in one.node_counts:
            found[one.batch * (number + 1)].append(float(seconds[number]))
    return tuple((tokens, median(found[tokens])) for tokens in sorted(found))
