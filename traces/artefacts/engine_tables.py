"""Cost tables of serving engines: seconds of a step by its requests and its tokens, looked up as the engine does.

SGLang's two forms are those of its DSpark scheduler (`sglang/srt/speculative/dspark_components/dspark_sps.py`): steps
a second by tokens of the batch, or a bias, a part by requests and a part by tokens. vLLM's two curves are those of its
adaptive verification (`vllm/v1/worker/gpu/spec_decode/adaptive_verification.py`), which writes no file; read is JSON of
exactly the arguments of its ``build_cost_tables_from_curves``, in milliseconds. A result of `vllm bench serve
--save-result` (`vllm/benchmarks/serve.py`) is one cell.
"""

import json
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from pathlib import Path
from typing import ClassVar

import numpy as np

from simlab.cost.stages import LEAST_S, MOST_S
from simlab.errors import CostError, reason_of
from simlab.limits import MOST_COUNT
from simlab.untrusted.json_text import file_text, parse_json

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

    def pass_s(self, requests: int, tokens: int) -> float:
        """Seconds of a step of so many tokens."""
        index = bisect_right(self.token_probes, tokens) - 1
        return self.steps[max(index, 0)][1]


@dataclass(frozen=True, slots=True)
class AdditiveSteps:
    """SGLang's additive table; linear between probes, and constant outside.

    Attributes:
        bias_s: of every step.
        by_requests: seconds more, by requests; the first is 0 where the engine fitted them, and may be below 0.
        by_tokens: the same, by tokens of the step.
    """

    form: ClassVar[str] = SGLANG
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
        sizes = [tokens for tokens, _ in points]
        seconds = list(accumulate((value for _, value in points), max))
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
    if not all(LEAST_S <= seconds <= MOST_S for _, seconds in points):
        raise ValueError(f"seconds beside {name} must be from {LEAST_S:g} to {MOST_S:g}")


def _linear(points: Points, size: int) -> float:
    return float(np.interp(size, [tokens for tokens, _ in points], [value for _, value in points]))


# Reading and writing the files of `simlab.traces.artefacts.engine_tables`.


FORMS = (SGLANG, VLLM_CURVES, VLLM_BENCH)

_SAMPLED = ("sample_batch_tokens", "sample_steps_per_sec", "max_batch_tokens")
_ADDITIVE = ("bias_seconds", "bs_probes", "alpha_seconds", "m_probes", "theta_seconds")
_CURVES = ("draft_curve", "verify_curve")
_BENCH = ("total_input_tokens", "total_output_tokens", "completed", "mean_tpot_ms")
_DRAFTS = ("spec_decode_num_drafts", "spec_decode_draft_tokens")

Fields = Mapping[str, object]


def read_engine_table(path: str | Path) -> EngineTable | None:
    """The engine's table in a file; None where the file is no JSON object, and so none of these.

    Raises:
        CostError: it cannot be read, is of no form or of several, or its values make no sense.
    """
    try:
        text = file_text(path, "utf-8-sig")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise CostError(f"{path} could not be read ({reason_of(error)}); expected CSV or JSON") from error
    if text.lstrip()[:1] != "{":
        return None
    try:
        value = parse_json(text)
    except ValueError as error:
        raise CostError(f"{path} is not JSON ({error}); expected a cost table of SGLang or vLLM") from error
    assert isinstance(value, dict)
    try:
        return table_of(value)
    except ValueError as error:
        raise CostError(f"{path}: {error}") from error


def table_of(fields: Fields) -> EngineTable:
    """The table that a JSON object is, told by its keys."""
    named = [keys for keys, _ in _READERS if any(key in fields for key in keys)]
    if len(named) != 1:
        mixed = f"it mixes {' and '.join(keys[0] for keys in named)}" if named else "it has none of their keys"
        listed = "; or ".join(", ".join(keys) for keys, _ in _READERS)
        raise ValueError(f"{mixed}; expected a cost table of one engine: {listed}")
    keys, reader = next((keys, reader) for keys, reader in _READERS if keys is named[0])
    missing = [key for key in keys if key not in fields]
    if missing:
        raise ValueError(f"there is no {', '.join(missing)}; expected {', '.join(keys)}")
    return reader(fields)


def sampled_text(table: SampledSteps) -> str:
    """SGLang's file of a table of steps a second."""
    return _text(
        {
            "sample_batch_tokens": list(table.token_probes),
            "sample_steps_per_sec": [1.0 / seconds for _, seconds in table.steps],
            "max_batch_tokens": table.max_batch_tokens,
        }
    )


def curves_text(table: StepCurves) -> str:
    """The two curves that vLLM profiles, pairs of a size and milliseconds."""
    curves = zip(_CURVES, (table.draft, table.verify), strict=True)
    return _text(
        {name: [[size, 1e3 * seconds] for size, seconds in points] for name, points in curves}
        | {"cudagraph_limit": table.graph_limit}
    )


def _text(value: object) -> str:
    return json.dumps(value, indent=1, allow_nan=False) + "\n"


def _sampled(fields: Fields) -> EngineTable:
    sizes, rates = _sizes(fields, "sample_batch_tokens"), _numbers(fields, "sample_steps_per_sec")
    if not all(rate > 0 for rate in rates):
        raise ValueError("sample_steps_per_sec must be above 0")
    points = _pairs("sample_batch_tokens", sizes, tuple(1.0 / rate for rate in rates))
    return SampledSteps(points, _size(fields["max_batch_tokens"], "max_batch_tokens"))


def _additive(fields: Fields) -> EngineTable:
    requests = _pairs("bs_probes", _sizes(fields, "bs_probes"), _numbers(fields, "alpha_seconds"))
    tokens = _pairs("m_probes", _sizes(fields, "m_probes"), _numbers(fields, "theta_seconds"))
    return AdditiveSteps(_number(fields["bias_seconds"], "bias_seconds"), requests, tokens)


def _curves(fields: Fields) -> EngineTable:
    limit = fields.get("cudagraph_limit", 0)
    draft, verify = (_curve(fields, name) for name in _CURVES)
    return StepCurves(draft, verify, _size(limit, "cudagraph_limit", 0))


def _curve(fields: Fields, name: str) -> Points:
    values = fields[name]
    if not isinstance(values, list) or not all(isinstance(value, list) and len(value) == 2 for value in values):
        raise ValueError(f"{name} must be a list of pairs, a size and milliseconds each")
    return tuple((_size(size, name), _number(ms, name) / 1e3) for size, ms in values)


def _bench(fields: Fields) -> EngineTable:
    if any(fields.get(name) is None for name in _DRAFTS):
        tpot = _number(fields["mean_tpot_ms"], "mean_tpot_ms") / 1e3
        raise ValueError(
            f"it has no {_DRAFTS[0]}, so it is a run of vllm bench serve without drafting; its time of a token is "
            f"what another import takes as --plain-s {tpot:g}"
        )
    if fields.get("max_concurrency") is None:
        raise ValueError("its max_concurrency is not set, so its batch is not known; run it with --max-concurrency")
    count = {name: _size(fields[name], name) for name in (*_BENCH[:3], *_DRAFTS)}
    requests, drafts = count["completed"], count["spec_decode_num_drafts"]
    if count["total_output_tokens"] <= requests or count["spec_decode_draft_tokens"] < drafts:
        raise ValueError("its requests have no round: expected more output tokens than requests, and drafted tokens")
    length = (count["total_output_tokens"] - requests) / drafts
    tpot_s = _number(fields["mean_tpot_ms"], "mean_tpot_ms") / 1e3
    context = (count["total_input_tokens"] + count["total_output_tokens"] / 2) / requests
    return BenchCell(
        concurrency=_size(fields["max_concurrency"], "max_concurrency"),
        drafted=round(count["spec_decode_draft_tokens"] / drafts),
        round_s=tpot_s * length,
        acceptance_length=length,
        context=round(context),
    )


_READERS: tuple[tuple[tuple[str, ...], Callable[[Fields], EngineTable]], ...] = (
    (_SAMPLED, _sampled),
    (_ADDITIVE, _additive),
    (_CURVES, _curves),
    (_BENCH, _bench),
)


def _pairs(name: str, sizes: tuple[int, ...], seconds: tuple[float, ...]) -> Points:
    if len(sizes) != len(seconds):
        raise ValueError(f"{name} has {len(sizes)} sizes and {len(seconds)} values; there must be one for each")
    return tuple(zip(sizes, seconds, strict=True))


def _sizes(fields: Fields, name: str) -> tuple[int, ...]:
    return tuple(_size(size, name) for size in _list(fields, name))


def _numbers(fields: Fields, name: str) -> tuple[float, ...]:
    return tuple(_number(number, name) for number in _list(fields, name))


def _list(fields: Fields, name: str) -> list[object]:
    values = fields[name]
    if not isinstance(values, list):
        raise ValueError(f"{name} must be a list of numbers")
    return values


def _size(value: object, name: str, least: int = 1) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= MOST_COUNT:
        raise ValueError(f"{name} must be whole numbers, at least {least}; got {str(value)[:40]}")
    return value


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{name} must be numbers; got {str(value)[:40]}")
    return float(value)
