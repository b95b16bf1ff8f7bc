"""Serving engines in plain Python, for chains: what vLLM 0.32.0 and SGLang 0.5.23 admit to verification in each round.

Written from what their released code does, request by request and step by step, without any code of simlab's rules.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Protocol

import numpy as np

from simlab.cost import CostTable
from simlab.recorded import RecordedSequence, RecordedTexts

CAPTURED = [1, 2, 4, *range(8, 256, 8), *range(256, 513, 16)]


def single(value: float) -> float:
    """As a float32 holds it."""
    return float(np.float32(value))


@dataclass(frozen=True)
class Drafted:
    """A request's chain in a round."""

    number: int
    log_probs: list[float]


@dataclass(frozen=True)
class Verdict:
    """What became of it; ``known`` tokens of the text follow."""

    admitted: int
    accepted: int
    known: int


class Planner(Protocol):
    """An engine's rule."""

    def admit(self, drafted: Sequence[Drafted]) -> list[int]: ...

    def told(self, verdicts: Sequence[Verdict]) -> None: ...


Listed = list[tuple[int, int, int]]


def chain_at(sequence: RecordedSequence, t: int) -> tuple[list[float], int]:
    """Log-probabilities of the first candidates at a root, and how many of them the text follows."""
    assert sequence.rows is not None
    row = sequence.rows.row(t, int(sequence.rows.starts()[t]))
    firsts = [float(row.log_probs[row.offsets[d]]) for d in range(row.depth) if row.offsets[d + 1] > row.offsets[d]]
    follows = 0
    while follows < len(firsts) and sequence.rows.true_ranks[t, follows] == 0:
        follows += 1
    return firsts, follows


def serve_chains(texts: RecordedTexts, batch: int, planner: Planner) -> list[Listed]:
    """Of each text its rounds: root, drafted and accepted tokens. Where a text ends, the next takes its place."""
    numbers, num = count(), len(texts.sequences)
    running: list[tuple[int, int, int]] = []
    rounds: list[Listed] = [[] for _ in texts.sequences]
    left = {n for n, sequence in enumerate(texts.sequences) if len(sequence.text) > 1}
    while left:
        while len(running) < batch:
            number = next(numbers)
            if len(texts.sequences[number % num].text) > 1:
                running.append((number, number % num, 0))
        chains = [chain_at(texts.sequences[text], t) for _, text, t in running]
        admitted = planner.admit(
            [Drafted(number, firsts) for (number, _, _), (firsts, _) in zip(running, chains, strict=True)]
        )
        verdicts, going = [], []
        for (number, text, t), size, (_, follows) in zip(running, admitted, chains, strict=True):
            accepted, known = min(size, follows), len(texts.sequences[text].text) - 1 - t
            verdicts.append(Verdict(size, accepted, known))
            if number < num:
                rounds[text].append((t, size, accepted))
            if accepted + 1 < known:
                going.append((number, text, t + accepted + 1))
            elif number < num:
                left.remove(text)
        planner.told(verdicts)
        running = going
    return rounds


def seconds_of(cost: CostTable, stages: Sequence[str], context: int, mean: float) -> float:
    """What stages of a round take; linear between contexts and between whole numbers, as the nearest one outside."""
    low, found = math.floor(mean), 0.0
    for stage in stages:
        ends = [float(np.interp(context, cost.contexts, cost.seconds[stage][:, n])) for n in (low, math.ceil(mean))]
        found += ends[0] + (mean - low) * (ends[1] - ends[0])
    return found


def odds_of(log_prob: float) -> float:
    """Of a probability on the grid, one of 1 being half a step below."""
    most = math.log(2**17)
    return most if log_prob == 0.0 else max(-most, min(most, log_prob - math.log(-math.expm1(log_prob))))


def argmax(values: Sequence[float]) -> int:
    return values.index(max(values))


# vLLM


@dataclass
class VllmEstimator:
    """Coefficients, statistics of the window, and the last predictions."""

    depth: int
    interval: int
    slope: float = 0.5
    steps: int = 0
    window: list[tuple[int, float, float, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.intercepts = [single(-0.2)] * self.depth

    def predict(self, feature: float, position: int) -> float:
        return single(1 / (1 + math.exp(-(self.slope * feature + self.intercepts[position]))))

    def step(self, graded: Sequence[tuple[Sequence[float], Sequence[float], Verdict]]) -> None:
        for features, predictions, verdict in graded:
            # What lies behind the text's end is nobody's verdict.
            admitted = min(verdict.admitted, verdict.known)
            for k in range(admitted):
                if k <= verdict.accepted:
                    self.window.append((k, features[k], predictions[k], int(k < verdict.accepted)))
        self.steps += 1
        if self.steps == self.interval:
            self.steps = 0
            self._refit()
            self.window = []

    def _refit(self) -> None:
        a, g0 = 1e-3, 0.0
        b, c, g1, n = ([0.0] * self.depth for _ in range(4))
        c = [1e-3] * self.depth
        for k, x, p, label in self.window:
            w = p * (1 - p)
            a += w * x * x
            b[k] += w * x
            c[k] += w
            g0 += (label - p) * x
            g1[k] += label - p
            n[k] += 1
        total = sum(n)
        top = g0 - sum(b[k] * g1[k] / c[k] for k in range(self.depth))
        step = top / (a - sum(b[k] ** 2 / c[k] for k in range(self.depth))) * total / (total + 50)
        if self.slope + step < 0:
            step = 0.0
        self.slope = single(self.slope + step)
        for k in range(self.depth):
            delta = (g1[k] - b[k] * step) / c[k] * n[k] / (n[k] + 50)
            self.intercepts[k] = single(self.intercepts[k] + delta)


class VllmByHand:
    """The manager with its two slots of stale confidences, as vLLM 0.32.0 turns them."""

    def __init__(
        self, cost: CostTable, depth: int, interval: int = 100, padded: bool = True, context: int = 8192
    ) -> None:
        self.cost, self.depth, self.padded, self.context = cost, depth, padded, context
        self.estimator = VllmEstimator(depth, interval)
        self.confidence: dict[int, list[float]] = {}
        self.stale: list[dict[int, list[float]]] = [{}, {}]
        self.stale_idx = 0
        self.graded: list[tuple[list[float], list[float]]] = []
        self.totals: list[int] = []

    def admit(self, drafted: Sequence[Drafted]) -> list[int]:
        # New requests have had their prefill in the step that drafted these.
        resets = [one.number for one in drafted if one.number not in self.confidence]
        for number in resets:
            self.stale[self.stale_idx][number] = [1.0] * self.depth
        features = [[odds_of(value) for value in one.log_probs] for one in drafted]
        for one, row in zip(drafted, features, strict=True):
            self.confidence[one.number] = [self.estimator.predict(x, k) for k, x in enumerate(row)]
        self.graded = [(row, self.confidence[one.number]) for one, row in zip(drafted, features, strict=True)]
        self._record(resets)
        return self._split(drafted, self._budget(drafted))

    def _record(self, resets: Sequence[int]) -> None:
        ready = self.stale_idx ^ 1
        for number in resets:
            self.stale[ready][number] = [1.0] * self.depth
        self.stale_idx, write = ready, self.stale_idx
        self.stale[write] = {number: list(row) for number, row in self.confidence.items()}

    def _budget(self, drafted: Sequence[Drafted]) -> int:
        num = len(drafted)
        scores = []
        for one in drafted:
            reached = 1.0
            for k in range(len(one.log_probs)):
                reached *= self.stale[self.stale_idx][one.number][k]
                scores.append(reached)
        scores.sort(reverse=True)
        draft = max(seconds_of(self.cost, ["draft"], self.context, n / num) for n in range(num * self.depth + 1))
        rates, tokens, highest = [num / (draft + self._verify(num, num, 0.0))], float(num), self._verify(num, num, 0.0)
        for number, score in enumerate(scores, 1):
            tokens += score
            highest = self._verify(num, num + number, highest)
            rates.append(tokens / (draft + highest))
        self.totals.append(argmax(rates))
        return self.totals[-1]

    def _verify(self, num: int, tokens: int, before: float) -> float:
        """Padded to a captured size, and never less than a smaller pass."""
        if self.padded and tokens <= 512:
            tokens = next(size for size in CAPTURED if size >= tokens)
        mean = min((tokens - num) / num, self.depth)
        return max(before, seconds_of(self.cost, ["verify"], self.context, mean))

    def _split(self, drafted: Sequence[Drafted], budget: int) -> list[int]:
        offers = []
        for row, one in enumerate(drafted):
            reached = np.float32(1.0)
            for k in range(len(one.log_probs)):
                reached = np.float32(reached * np.float32(self.confidence[one.number][k]))
                offers.append((-float(reached), row, k))
        taken = sorted(offers)[:budget]
        return [sum(owner == row for _, owner, _ in taken) for row in range(len(drafted))]

    def told(self, verdicts: Sequence[Verdict]) -> None:
        graded = [(*one, verdict) for one, verdict in zip(self.graded, verdicts, strict=True)]
        self.estimator.step(graded)


# SGLang


class SglangByHand:
    """The planner on what the ring had two steps ago."""

    def __init__(
        self,
        cost: CostTable,
        depth: int,
        temperatures: Sequence[float] = (),
        lag: int = 2,
        probe: int | None = None,
        context: int = 1024,
    ) -> None:
        self.cost, self.depth, self.lag, self.context = cost, depth, lag, context
        self.temperatures = list(temperatures) or [1.0] * depth
        self.probe = probe or depth + 1
        self.ring: list[dict[int, list[float]]] = []
        self.totals: list[int] = []

    def admit(self, drafted: Sequence[Drafted]) -> list[int]:
        present = {
            one.number: [
                single(1 / (1 + math.exp(-odds_of(value) / t)))
                for value, t in zip(one.log_probs, self.temperatures, strict=False)
            ]
            for one in drafted
        }
        self.ring.append(present)
        if len(self.ring) <= self.lag:
            return [len(one.log_probs) for one in drafted]
        seen = self.ring[-1 - self.lag]
        late = {one.number: seen.get(one.number, [1.0] * len(one.log_probs)) for one in drafted}
        scores = sorted((s for one in drafted for s in _survival(late[one.number]) if s >= 1e-6), reverse=True)
        num = len(drafted)
        rates, tokens = [num * self._passes_per_s(num, num)], float(num)
        for number, score in enumerate(scores, 1):
            tokens += score
            rates.append(tokens * self._passes_per_s(num, num + number))
        self.totals.append(argmax(rates))
        offers = [
            (-s, k, row)
            for row, one in enumerate(drafted)
            for k, s in enumerate(_survival(present[one.number]))
            if s >= 1e-6
        ]
        taken = sorted(offers)[: self.totals[-1]]
        return [sum(owner == row for _, _, owner in taken) for row in range(num)]

    def _passes_per_s(self, num: int, tokens: int) -> float:
        probes = list(range(self.probe, num * (self.depth + 1) + 1, self.probe)) or [self.probe]
        size = max([probe for probe in probes if probe <= tokens] or probes[:1])
        mean = min(max((size - num) / num, 0.0), self.depth)
        return 1 / seconds_of(self.cost, ["draft", "select", "verify", "commit"], self.context, mean)

    def told(self, verdicts: Sequence[Verdict]) -> None:
        pass


def _survival(confidences: Sequence[float]) -> list[float]:
    reached, found = np.float32(1.0), []
    for confidence in confidences:
        reached = np.float32(reached * np.float32(confidence))
        found.append(float(reached))
    return found
