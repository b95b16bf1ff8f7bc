"""Cost tables of serving engines: seconds of a step by its requests and its tokens, looked up as the engine does.

SGLang's two forms are those of its DSpark scheduler (`sglang/srt/speculative/dspark_components/dspark_sps.py`): steps
a second by tokens of the batch, or a bias, a part by requests and a part by tokens. vLLM's two curves are those of its
adaptive verification (`vllm/v1/worker/gpu/spec_decode/adaptive_verification.py`), which writes no file; read is JSON of
exactly the arguments of its ``build_cost_tables_from_curves``, in milliseconds. A result of `vllm bench serve
--save-result` (`vllm/benchmarks/serve.py`) is one cell.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import ClassVar

import numpy as np

SGLANG, VLLM_CURVES, VLLM_BENCH = "sglang-sps", "vllm-curves", "vllm-bench"

Points = tuple[tuple[int, float], ...]
"""Sizes, ascending, and seconds of each."""


@dataclass(frozen=True, slots=True)
class SampledSteps:
    """SGLang's table of steps a second; between probes it takes the one below, and below the first the first.

    Attributes:
        steps: tokens of all requests of a step together, the roots among them, and seconds of the whole step.
        max_batch_tokens: the most tokens that the server was said to verify in a step.
    """

    form: ClassVar[str] = SGLANG
    whole_steps: ClassVar[bool] = True
    steps: Points
    max_batch_tokens: int

    def __post_init__(self) -> None:
        _check_points("sample_batch_tokens", self.steps)
        if self.max_batch_tokens < self.steps[-1][0]:
            raise ValueError(
                f"max_batch_tokens must be at least the largest probe, {self.steps[-1][0]}; got {self.max_batch_tokens}"
            )

    @property
    def token_probes(self) -> tuple[int, ...]:
        """Tokens of a step that were timed."""
        return tuple(size for size, _ in self.steps)

    def draft_s(self, requests: int) -> float:
        """Nothing: drafting is within the step."""
        return 0.0

    def pass_s(self, requests: int, tokens: int) -> float:
        """Seconds of a step of so many tokens."""
        place = bisect_right(self.token_probes, tokens) - 1
        return self.steps[max(place, 0)][1]


@dataclass(frozen=True, slots=True)
class AdditiveSteps:
    """SGLang's additive table; linear between probes, and constant outside.

    Attributes:
        bias_s: of every step.
        by_requests: seconds more, by requests; the first is 0 where the engine fitted them, and may be below 0.
        by_tokens: likewise, by tokens of the step.
    """

    form: ClassVar[str] = SGLANG
    whole_steps: ClassVar[bool] = True
    bias_s: float
    by_requests: Points
    by_tokens: Points

    def __post_init__(self) -> None:
        _check_sizes("bs_probes", self.by_requests)
        _check_sizes("m_probes", self.by_tokens)
        if not self.bias_s > 0:
            raise ValueError(f"bias_seconds must be above 0; got {self.bias_s:g}")
        least = self.bias_s + min(s for _, s in self.by_requests) + min(s for _, s in self.by_tokens)
        if not least > 0:
            raise ValueError(f"every step must take time; bias, alpha and theta together come down to {least:g} s")

    @property
    def token_probes(self) -> tuple[int, ...]:
        """Tokens of a step that were timed."""
        return tuple(size for size, _ in self.by_tokens)

    def draft_s(self, requests: int) -> float:
        """Nothing: drafting is within the step."""
        return 0.0

    def pass_s(self, requests: int, tokens: int) -> float:
        """Seconds of a step of so many requests and tokens."""
        return self.bias_s + _linear(self.by_requests, requests) + _linear(self.by_tokens, tokens)


@dataclass(frozen=True, slots=True)
class StepCurves:
    """vLLM's curves: drafting by requests, verifying by tokens.

    Up to ``graph_limit`` a size is padded to the next that was timed; above it seconds are linear between sizes above.
    No larger size is cheaper than a smaller one.

    Attributes:
        draft: seconds by requests.
        verify: seconds by tokens of all requests together, the roots among them.
        graph_limit: the largest size that graphs were captured for; 0: all sizes are padded.
    """

    form: ClassVar[str] = VLLM_CURVES
    whole_steps: ClassVar[bool] = False
    draft: Points
    verify: Points
    graph_limit: int = 0

    def __post_init__(self) -> None:
        _check_points("draft_curve", self.draft)
        _check_points("verify_curve", self.verify)
        if self.graph_limit < 0:
            raise ValueError(f"cudagraph_limit must be at least 0; got {self.graph_limit}")

    @property
    def token_probes(self) -> tuple[int, ...]:
        """Tokens of a pass that were timed."""
        return tuple(size for size, _ in self.verify)

    def draft_s(self, requests: int) -> float:
        """Seconds of drafting for so many requests."""
        return self._looked_up(self.draft, requests)

    def pass_s(self, requests: int, tokens: int) -> float:
        """Seconds of the target's pass of so many tokens."""
        return self._looked_up(self.verify, tokens)

    def _looked_up(self, points: Points, size: int) -> float:
        sizes = [one for one, _ in points]
        seconds = list(accumulate((one for _, one in points), max))
        if size > sizes[-1]:
            slope = (seconds[-1] - seconds[-2]) / (sizes[-1] - sizes[-2]) if len(sizes) > 1 else 0.0
            return seconds[-1] + slope * (size - sizes[-1])
        above = bisect_right(sizes, self.graph_limit)
        if self.graph_limit and size > self.graph_limit and above < len(sizes):
            return float(np.interp(size, sizes[above:], seconds[above:]))
        return seconds[bisect_left(sizes, size)]


@dataclass(frozen=True, slots=True)
class BenchCell:
    """One run of `vllm bench serve` with drafting: one batch, one number of drafted tokens, one time.

    Attributes:
        concurrency: requests in flight at most.
        drafted: tokens drafted for a request in a round.
        round_s: mean seconds of a round: the mean time of an output token times the tokens of a round, the bonus token
            among them.
        acceptance_length: tokens of a round, (output tokens - requests) over drafts.
        context: mean tokens before a root.
    """

    form: ClassVar[str] = VLLM_BENCH
    whole_steps: ClassVar[bool] = True
    concurrency: int
    drafted: int
    round_s: float
    acceptance_length: float
    context: int

    def __post_init__(self) -> None:
        if min(self.concurrency, self.drafted, self.context) < 1 or not self.round_s > 0:
            raise ValueError("a run must have requests, drafted tokens and time in it; this one has not")

    @property
    def token_probes(self) -> tuple[int, ...]:
        """Tokens of the one step that was timed."""
        return (self.concurrency * (self.drafted + 1),)

    def draft_s(self, requests: int) -> float:
        """Nothing: drafting is within the round."""
        return 0.0

    def pass_s(self, requests: int, tokens: int) -> float:
        """Seconds of the one round, whatever is asked."""
        return self.round_s


EngineTable = SampledSteps | AdditiveSteps | StepCurves | BenchCell


def _check_sizes(name: str, points: Sequence[tuple[int, float]]) -> None:
    sizes = [size for size, _ in points]
    if not sizes or sizes[0] < 1 or not all(low < high for low, high in pairwise(sizes)):
        raise ValueError(f"{name} must be one or more sizes that rise from 1 or above; got {str(sizes)[:80]}")


def _check_points(name: str, points: Sequence[tuple[int, float]]) -> None:
    _check_sizes(name, points)
    if not all(0 < seconds < float("inf") for _, seconds in points):
        raise ValueError(f"seconds beside {name} must be above 0 and finite")


def _linear(points: Points, size: int) -> float:
    return float(np.interp(size, [one for one, _ in points], [one for _, one in points]))
