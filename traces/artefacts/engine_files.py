"""Reading and writing the files of `simlab.traces.artefacts.engine_tables`."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path

from simlab.errors import CostError
from simlab.limits.typed_numbers import MOST_COUNT
from simlab.traces.artefacts.engine_tables import (
    SGLANG,
    VLLM_BENCH,
    VLLM_CURVES,
    AdditiveSteps,
    BenchCell,
    EngineTable,
    Points,
    SampledSteps,
    StepCurves,
)
from simlab.untrusted.json_text import parse_json

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
        text = Path(path).read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as error:
        raise CostError(f"{path} could not be read ({error}); expected CSV or JSON") from error
    if text.lstrip()[:1] != "{":
        return None
    try:
        found = parse_json(text)
    except ValueError as error:
        raise CostError(f"{path} is not JSON ({error}); expected a cost table of SGLang or vLLM") from error
    assert isinstance(found, dict)
    try:
        return table_of(found)
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
    if not isinstance(values, list) or not all(isinstance(one, list) and len(one) == 2 for one in values):
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
    return tuple(_size(one, name) for one in _list(fields, name))


def _numbers(fields: Fields, name: str) -> tuple[float, ...]:
    return tuple(_number(one, name) for one in _list(fields, name))


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
