"""Speeds of schedules beside each other, and the calibration of what rules believe, with intervals over prompts."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simlab.analysis.engine_rules.schedules import Watched
from simlab.analysis.statistics.intervals import Interval, intervals_of, speedup_interval
from simlab.analysis.statistics.prompt_spread import prompt_spread
from simlab.arrays import Bools, Doubles, Longs
from simlab.recorded import RecordedTexts


@dataclass(frozen=True, slots=True, eq=False)
class ScheduleSums:
    """One schedule at one batch size, in sums of prompts.

    Attributes:
        label: what it is called.
        tokens: int64 ``[P]``, committed.
        rounds: int64 ``[P]``.
        drafted: int64 ``[P]``, verified tokens, roots not counted.
        seconds: float64 ``[P]``, that texts waited.
    """

    label: str
    tokens: Longs
    rounds: Longs
    drafted: Longs
    seconds: Doubles

    @property
    def tokens_per_s(self) -> float:
        """Tokens per second of each text."""
        return float(self.tokens.sum() / self.seconds.sum())

    def behind(self, best: "ScheduleSums") -> tuple[float, Interval]:
        """Which share of another schedule's speed is missing, and its interval over prompts; below 0 it is faster."""
        found = speedup_interval(self.tokens, self.seconds, best.tokens, best.seconds)
        return 1.0 - self.tokens_per_s / best.tokens_per_s, Interval(1.0 - found.high, 1.0 - found.low)

    def row(self, batch: int, best: "ScheduleSums", joint: "ScheduleSums") -> dict[str, object]:
        """As JSON has it; numbers that are not known are None."""
        found: dict[str, object] = {
            "batch": batch,
            "schedule": self.label,
            "acceptance_length": float(self.tokens.sum() / self.rounds.sum()),
            "drafted_per_round": float(self.drafted.sum() / self.rounds.sum()),
            "tokens_per_s": self.tokens_per_s,
        }
        for name, other in (("hindsight", best), ("joint_throughput", joint)):
            value, interval = self.behind(other)
            found[f"behind_{name}"] = value
            found[f"behind_{name}_low"], found[f"behind_{name}_high"] = known(interval.low), known(interval.high)
        return found


def known(value: float) -> float | None:
    """A number as JSON can say it."""
    return value if np.isfinite(value) else None


def prompts_of(texts: RecordedTexts) -> Longs:
    """int64 ``[S]``, the number of each text's prompt; turns and samples of a prompt have one."""
    names = [(one.prompt.dataset, one.prompt.prompt_id) for one in texts.sequences]
    places = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return np.array([places[name] for name in names], np.int64)


@dataclass(frozen=True, slots=True)
class Calibration:
    """What an estimator believes of one position, and what the target says, at drafts whose earlier tokens it accepts.

    Attributes:
        estimator: whose confidences.
        position: from 1.
        drafts: with all earlier tokens accepted, the text long enough to tell.
        accepted: share of them that the target accepts.
        believed: mean confidence.
        bias: ``believed - accepted``.
        bias_interval: over prompts.
        labels: of these drafts the server verified so many, and knows of no other.
        labels_accepted: share of the labels that are accepted; nan without labels.
        labels_believed: mean confidence where there is a label; likewise.
    """

    estimator: str
    position: int
    drafts: int
    accepted: float
    believed: float
    bias: float
    bias_interval: Interval
    labels: int
    labels_accepted: float
    labels_believed: float

    def row(self, batch: int) -> dict[str, object]:
        """As JSON has it."""
        low, high = self.bias_interval.low, self.bias_interval.high
        return {
            "batch": batch,
            "estimator": self.estimator,
            "position": self.position,
            "drafts": self.drafts,
            "accepted": known(self.accepted),
            "believed": known(self.believed),
            "bias": known(self.bias),
            "bias_low": known(low),
            "bias_high": known(high),
            "labels": self.labels,
            "labels_accepted": known(self.labels_accepted),
            "labels_believed": known(self.labels_believed),
        }


def calibrations(estimator: str, seen: Watched, texts: RecordedTexts, own: bool) -> list[Calibration]:
    """What an estimator believes and what the target says, for each position.

    Args:
        estimator: its name.
        seen: the rounds that were watched.
        texts: that were served.
        own: whether the confidences are the rule's; else they are the drafter's probabilities.
    """
    believed = np.concatenate([*seen.confidences] if own else [*seen.drafter]).astype(np.float64)
    follows, admitted, num_known = (np.concatenate(one) for one in (seen.follows, seen.admitted, seen.known))
    text_of = np.searchsorted(texts.roots.firsts, np.concatenate(seen.roots), side="right") - 1
    prompts = prompts_of(texts)[text_of]
    found = []
    for place in range(believed.shape[1]):
        reached = (follows >= place) & (num_known > place)
        labelled = reached & (admitted > place)
        found.append(_position(estimator, place, believed[:, place], follows > place, reached, labelled, prompts))
    return found


def _position(
    estimator: str, place: int, believed: Doubles, agrees: Bools, reached: Bools, labelled: Bools, prompts: Longs
) -> Calibration:
    num_prompts = int(prompts.max()) + 1
    columns: Sequence[Doubles] = (np.ones_like(believed), believed, agrees.astype(np.float64))
    sums = np.stack(
        [np.bincount(prompts[reached], one[reached], minlength=num_prompts) for one in columns], axis=1
    ).astype(np.float64)
    spread = prompt_spread(sums, lambda one: (one[..., 1:2] - one[..., 2:3]) / one[..., :1])
    (interval,) = intervals_of(spread)

    def mean(values: Doubles, where: Bools) -> float:
        return float(values[where].mean()) if where.any() else float("nan")

    truth, thought = mean(columns[2], reached), mean(believed, reached)
    return Calibration(
        estimator,
        place + 1,
        int(reached.sum()),
        truth,
        thought,
        thought - truth,
        interval,
        int(labelled.sum()),
        mean(columns[2], labelled),
        mean(believed, labelled),
    )
