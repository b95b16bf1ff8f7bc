"""Speeds of schedules beside each other, and the calibration of what rules believe, with intervals over prompts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from simlab.analysis.statistics.intervals import Interval, finite, intervals_of, prompt_spread, speedup_interval
from simlab.analysis.table.text import aligned, number
from simlab.arrays import Bools, Doubles, Floats, Longs
from simlab.cost import CostTable
from simlab.policies.composition import Composition
from simlab.policies.costs.curves import ALL_STAGES, pass_seconds
from simlab.policies.engine.lock_step import TreeChoice, accepted_of
from simlab.policies.named.served.vllm_adaptive import AdaptiveMemory, AdaptiveVerification
from simlab.policies.orders.chain_orders import GreedyPathOrder
from simlab.policies.rules.serving import best_total, first_of_chains, log_probs_of
from simlab.recorded import RecordedTexts

# What is admitted to verification round by round: rules that are watched, and the schedule of hindsight.


Watched = list[tuple[Longs, Floats, Doubles, Longs, Longs, Longs]]
"""Drafts of the counted texts and what a rule thought of them, round after round: roots ``[S]``, confidences of the
rule and of the drafter itself ``[S, D]``, tokens that are admitted, tokens with which the target agrees, admitted or
not, and tokens of the text behind each root, ``[S]``."""


def watched(shared: Composition, texts: RecordedTexts, all_labels: bool) -> tuple[TreeChoice, Watched]:
    """vLLM's rule as `simlab.policies.engine.lock_step` replays it, watched.

    Args:
        shared: with that rule.
        texts: that are served.
        all_labels: whether it learns from what the target says of every drafted token up to the first rejected one,
            also of those that it did not admit, which a server does not hear.
    """
    assert isinstance(shared.rule, AdaptiveVerification)
    memory, seen = AdaptiveMemory(shared.rule, shared.rule.staleness), Watched()
    layer, firsts = shared.order.layer(texts, shared.budget, with_scores=True), texts.roots.firsts
    scores = layer.scores
    assert scores is not None
    num_texts, depth = len(texts.sequences), scores.shape[1] - 1

    def choose(roots: Longs, numbers: Longs) -> tuple[Longs, Longs]:
        sizes = memory.shares(numbers, scores[roots], texts.contexts[roots])
        accepted, admitted = accepted_of(layer, roots, sizes), memory.admitted
        follows = accepted_of(layer, roots, layer.num_available[roots])
        known = np.minimum(firsts[np.searchsorted(firsts, roots, side="right")] - roots, depth)
        if all_labels:
            memory.admitted = known
        memory.observe(follows if all_labels else accepted, known)
        counted = numbers < num_texts
        drafter, rule = np.exp(log_probs_of(scores[roots[counted]])), memory.confidences[counted]
        seen.append((roots[counted], rule, drafter, admitted[counted], follows[counted], known[counted]))
        return sizes.astype(np.int64), accepted

    return choose, seen


def hindsight(texts: RecordedTexts, cost: CostTable) -> TreeChoice:
    """Each round the number of accepted tokens of chains with the most tokens per second.

    It knows the target's text, so it verifies no token that is rejected, and it pays what the replay pays, not an
    engine's profile. Of equal ones the earlier position comes first. A round is looked at by itself, so another
    schedule of a whole text may be a little faster.
    """
    depth = texts.drafted().counts.shape[1]
    layer, contexts = GreedyPathOrder().layer(texts, depth, with_scores=False), texts.contexts

    def choose(roots: Longs, numbers: Longs) -> tuple[Longs, Longs]:
        num, follows = len(roots), accepted_of(layer, roots, layer.num_available[roots])
        sizes = tuple(range(num * (depth + 1) + 1))
        seconds = pass_seconds(cost, ALL_STAGES, num, depth, int(np.rint(contexts[roots].mean())), sizes)
        eligible: Bools = np.arange(depth) < follows[:, None]
        budget = best_total(np.ones(int(follows.sum())), num, seconds)
        chosen = first_of_chains(np.ones(eligible.shape, np.float32), eligible, budget, by_position=True)
        return chosen.astype(np.int64), chosen.astype(np.int64)

    return choose


# Tables of engine rules as a person reads them.


Row = Mapping[str, object]

SCHEDULE_NOTES = (
    "behind: the share of a schedule's speed that is missing; below 0 it is faster. [95 %] over prompts, paired.\n"
    "hindsight knows what the target accepts and takes the best number of each round by itself; no rule of chains can\n"
    "know it. stale=N: the number of tokens is made from confidences N drafts old. joint-throughput drafts trees."
)
CALIBRATION_NOTES = (
    "At drafts of counted texts whose earlier tokens the target accepts: the share that it accepts, what is believed\n"
    "in the mean, and the difference. labels: drafts among them that the rule verified itself: it learns from these.\n"
    "all labels: the same estimator, learning from every draft as the trace has them, in a replay of its own."
)


def schedules_text(rows: Sequence[Row], batch: int) -> str:
    """A line for each schedule at one batch size."""
    heads = [
        ["", "", "", "", "behind", "behind"],
        ["schedule", "acceptance", "drafted", "tokens/s", "hindsight", "joint-throughput"],
        ["", "length", "/round", "", "%, [95 %]", "%, [95 %]"],
    ]
    cells = [
        [
            str(row["schedule"]),
            *(number(_number(row[name]), 2) for name in ("acceptance_length", "drafted_per_round", "tokens_per_s")),
            *(_interval(row, f"behind_{other}") for other in ("hindsight", "joint_throughput")),
        ]
        for row in rows
        if row["batch"] == batch
    ]
    return aligned([*heads, *cells], [True, *[False] * 5])


def calibration_text(rows: Sequence[Row], batch: int) -> str:
    """A line for each estimator and position at one batch size."""
    heads = [
        ["estimator", "position", "drafts", "accepted", "believed", "bias, points", "labels"],
        ["", "", "", "%", "%", "[95 %]", ""],
    ]
    cells = [
        [
            *(str(row["estimator"]), str(row["position"]), f"{row['drafts']:,}"),
            *(_percent(row["accepted"]), _percent(row["believed"]), _interval(row, "bias"), f"{row['labels']:,}"),
        ]
        for row in rows
        if row["batch"] == batch
    ]
    return aligned([*heads, *cells], [True, *[False] * 6])


def _number(value: object) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")


def _percent(value: object) -> str:
    return number(100 * _number(value), 1)


def _interval(row: Row, name: str) -> str:
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f"{_percent(row[name])} [{_percent(low)}, {_percent(high)}]"


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
        speedup = speedup_interval(self.tokens, self.seconds, best.tokens, best.seconds)
        return 1.0 - self.tokens_per_s / best.tokens_per_s, Interval(1.0 - speedup.high, 1.0 - speedup.low)

    def row(self, batch: int, best: "ScheduleSums", joint: "ScheduleSums") -> dict[str, object]:
        """As JSON has it; numbers that are not known are None."""
        row: dict[str, object] = {
            "batch": batch,
            "schedule": self.label,
            "acceptance_length": float(self.tokens.sum() / self.rounds.sum()),
            "drafted_per_round": float(self.drafted.sum() / self.rounds.sum()),
            "tokens_per_s": self.tokens_per_s,
        }
        for name, other in (("hindsight", best), ("joint_throughput", joint)):
            value, interval = self.behind(other)
            row |= {f"behind_{name}": value, **interval.row(f"behind_{name}")}
        return row


def prompts_of(texts: RecordedTexts) -> Longs:
    """int64 ``[S]``, the number of each text's prompt; turns and samples of a prompt have one."""
    names = [(sequence.prompt.dataset, sequence.prompt.prompt_id) for sequence in texts.sequences]
    numbers = {name: index for index, name in enumerate(dict.fromkeys(names))}
    return np.array([numbers[name] for name in names], np.int64)


def calibrations(estimator: str, seen: Watched, texts: RecordedTexts, own: bool) -> list[dict[str, object]]:
    """What an estimator believes of each position, and what the target says, at drafts whose earlier tokens it accepts.

    Args:
        estimator: its name.
        seen: the rounds that were watched.
        texts: that were served.
        own: whether the confidences are the rule's; else they are the drafter's probabilities.

    Returns:
        a row for each position: how many drafts, the share of them that the target accepts, the mean confidence, the
        difference with its interval over prompts, and the same of those drafts that the server verified, and knows of
        no other. Numbers that are not known are None.
    """
    roots, confidences, drafter, admitted, follows, num_known = map(np.concatenate, zip(*seen, strict=True))
    believed = (confidences if own else drafter).astype(np.float64)
    prompts = prompts_of(texts)[np.searchsorted(texts.roots.firsts, roots, side="right") - 1]
    rows = []
    for index in range(believed.shape[1]):
        reached = (follows >= index) & (num_known > index)
        about: dict[str, object] = {"estimator": estimator, "position": index + 1}
        labelled = reached & (admitted > index)
        rows.append(about | _at_position(believed[:, index], follows > index, reached, labelled, prompts))
    return rows


def _at_position(
    believed: Doubles, agrees: Bools, reached: Bools, labelled: Bools, prompts: Longs
) -> dict[str, object]:
    columns: Sequence[Doubles] = (np.ones_like(believed), believed, agrees.astype(np.float64))
    sums = [np.bincount(prompts[reached], column[reached], int(prompts.max()) + 1) for column in columns]
    spread = prompt_spread(
        np.stack(sums, axis=1).astype(np.float64), lambda array: (array[..., 1:2] - array[..., 2:3]) / array[..., :1]
    )
    (interval,) = intervals_of(spread)

    def mean(values: Doubles, where: Bools) -> float:
        return float(values[where].mean()) if where.any() else float("nan")

    truth, thought = mean(columns[2], reached), mean(believed, reached)
    return {
        "drafts": int(reached.sum()),
        "accepted": finite(truth),
        "believed": finite(thought),
        "bias": finite(thought - truth),
        **interval.row("bias"),
        "labels": int(labelled.sum()),
        "labels_accepted": finite(mean(columns[2], labelled)),
        "labels_believed": finite(mean(believed, labelled)),
    }
