"""Cost tables for serving engines, from latency profiles of one or several batch sizes.

The forms, and what of a profile they hold, are those of `simlab.traces.artefacts.engine_tables`.
"""

from collections import defaultdict
from collections.abc import Sequence
from statistics import median

import numpy as np
from scipy.special import expit

from simlab.arrays import Bools, Doubles
from simlab.cost import GRID_STAGES, CostTable
from simlab.recorded import Roots
from simlab.traces.artefacts.cost import CostFile
from simlab.traces.artefacts.engine_tables import Points, SampledSteps, StepCurves

# A temperature for each position of a block, by maximum likelihood, as SGLang's DSpark scheduler reads them.
#
# The scheduler divides the logit of a position's confidence by the position's temperature. A dense trace says at every
# root whether the drafter's first candidate is right, so each position is fitted where all positions before it were.


FEWEST = 30
"""A position with fewer right or wrong candidates keeps the temperature 1."""

_LEAST, _MOST = 1e-2, 1e2
_STEPS = 60
_SURE = 2.0**-16
"""Probabilities nearer to 0 or 1 than the grid of traces count as so near."""


Position = tuple[Doubles, Bools]
"""Logits of the confidences of first candidates at one position ``[R]``, and whether they were right ``[R]``."""


def chain_positions(parts: Sequence[Roots]) -> list[Position]:
    """What is known of each position, at all roots whose earlier positions were right and within the text."""
    positions = [_positions(part) for part in parts]
    parts_of = [zip(*same, strict=True) for same in zip(*positions, strict=True)]
    return [(np.concatenate(logits), np.concatenate(right)) for logits, right in parts_of]


def _positions(roots: Roots) -> list[Position]:
    num_roots, depth = roots.counts.shape
    begins = roots.starts[:-1, None] + np.cumsum(roots.counts, axis=1, dtype=np.int64) - roots.counts
    last = np.repeat(roots.firsts[1:], np.diff(roots.firsts)) - np.arange(num_roots)
    alive = np.ones(num_roots, bool)
    positions = []
    for index in range(depth):
        kept = alive & (index < last) & (roots.counts[:, index] > 0)
        prob = np.clip(np.exp(roots.log_probs[begins[kept, index]].astype(np.float64)), _SURE, 1 - _SURE)
        right = roots.true_ranks[:, index] == 0
        positions.append((np.log(prob) - np.log1p(-prob), right[kept]))
        alive = kept & right
    return positions


def temperature_of(position: Position) -> float:
    """The temperature above 0 that makes what was seen most likely; 1 where too little was seen.

    The likelihood is concave in one over the temperature, so its slope is searched for 0 by halving, from 0.01 to 100.
    """
    logits, right = position
    if min(right.sum(), (~right).sum()) < FEWEST:
        return 1.0
    low, high = 1.0 / _MOST, 1.0 / _LEAST
    for _ in range(_STEPS):
        middle = float(np.sqrt(low * high))
        if logits @ (right - expit(middle * logits)) > 0:
            low = middle
        else:
            high = middle
    return round(1.0 / low, 6)


Profile = tuple[CostFile, CostTable]
"""A latency profile of one batch size, and its seconds."""


def sampled_steps(profiles: Sequence[Profile], context: int) -> SampledSteps:
    """Seconds of whole rounds by their tokens, at one context; of several profiles with as many tokens the median."""
    points = _points(profiles, GRID_STAGES, context)
    return SampledSteps(points, points[-1][0])


def step_curves(profiles: Sequence[Profile], context: int, drafted: int) -> StepCurves:
    """Seconds of drafting by requests, and of the target's pass by tokens, at one context.

    Args:
        profiles: one of each batch size.
        context: tokens before the root.
        drafted: of each text, where drafting is read off; it hardly depends on it.
    """
    draft = tuple(
        (file.batch, float(cost.curve("draft", context)[min(drafted, cost.most_drafted)]))
        for file, cost in sorted(profiles, key=lambda profile: profile[0].batch)
    )
    return StepCurves(draft, _points(profiles, ("verify",), context))


def _points(profiles: Sequence[Profile], stages: Sequence[str], context: int) -> Points:
    by_tokens: defaultdict[int, list[float]] = defaultdict(list)
    for file, cost in profiles:
        seconds = np.sum([cost.curve(stage, context) for stage in stages], axis=0)
        for number in file.node_counts:
            by_tokens[file.batch * (number + 1)].append(float(seconds[number]))
    return tuple((tokens, median(by_tokens[tokens])) for tokens in sorted(by_tokens))
