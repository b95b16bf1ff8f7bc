"""A crosscheck as JSON: the verdict, a row for each text, lengths and counts."""

import math
from collections.abc import Sequence

from simlab.analysis.crosscheck.foretold import ForetoldCounts
from simlab.analysis.crosscheck.lengths import ComparedLengths
from simlab.analysis.crosscheck.rounds import ComparedText
from simlab.analysis.crosscheck.verdict import Verdict
from simlab.analysis.engines.answers import ServerCounters


def crosscheck_json(
    verdict: Verdict,
    texts: Sequence[ComparedText],
    lengths: ComparedLengths | None,
    counters: ServerCounters | None,
    foretold: ForetoldCounts,
) -> dict[str, object]:
    """All of it; null: not known."""
    return {
        "verdict": verdict.name,
        "level": verdict.level,
        "reason": verdict.reason,
        "num_texts": len(texts),
        "texts_equal": sum(one.parting is None for one in texts),
        "rounds_compared": sum(one.num_compared for one in texts),
        "rounds_equal": sum(one.num_equal for one in texts),
        "acceptance_length": None if lengths is None else _lengths(lengths),
        "counters": None if counters is None else counters.to_json(),
        "counters_foretold": foretold.to_json(),
        "texts": [_text(one) for one in texts],
    }


def _lengths(lengths: ComparedLengths) -> dict[str, object]:
    values = {
        "engine": lengths.measured,
        "engine_ci_low": lengths.measured_interval.low,
        "engine_ci_high": lengths.measured_interval.high,
        "trace": lengths.foretold,
        "trace_ci_low": lengths.foretold_interval.low,
        "trace_ci_high": lengths.foretold_interval.high,
        "trace_over_engine": lengths.error,
        "trace_over_engine_ci_low": lengths.error_interval.low,
        "trace_over_engine_ci_high": lengths.error_interval.high,
    }
    return {"prompts": lengths.num_prompts, **{key: _known(value) for key, value in values.items()}}


def _text(one: ComparedText) -> dict[str, object]:
    first = one.differences[0] if one.differences else None
    return {
        "sequence": one.text.index,
        "dataset": one.text.prompt[0],
        "prompt_id": one.text.prompt[1],
        "tokens": one.num_tokens,
        "tokens_foretold": one.num_foretold_tokens,
        "parts_at": one.parting,
        "gap_where_it_parts": _known(one.gap),
        "parts_at_close_call": one.is_tie if one.parting is not None else None,
        "rounds": one.num_rounds,
        "rounds_foretold": one.num_foretold,
        "rounds_compared": one.num_compared,
        "rounds_equal": one.num_equal,
        "rounds_short": one.num_short,
        "first_other_round": None
        if first is None
        else {
            "root": first.root,
            "accepted": first.accepted,
            "foretold": first.foretold,
            "margin": _known(first.margin),
            "close_call": first.is_tie,
        },
    }


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None
