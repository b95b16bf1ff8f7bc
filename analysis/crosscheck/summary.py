"""What a crosscheck came to, read from the file that it left."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from simlab.analysis.crosscheck.rounds import ComparedLengths, ComparedText
from simlab.analysis.crosscheck.verdict import Verdict
from simlab.analysis.engines.answers import EngineError, ServerCounters, count, inner, number, parsed_object, text
from simlab.analysis.statistics.intervals import Interval, finite
from simlab.analysis.table.estimates import Estimate
from simlab.untrusted.json_text import file_bytes

# A crosscheck as JSON: the verdict, a row for each text, lengths and counts.


def crosscheck_json(
    verdict: Verdict,
    texts: Sequence[ComparedText],
    lengths: ComparedLengths | None,
    counters: ServerCounters | None,
    predicted: ServerCounters,
) -> dict[str, object]:
    """All of it; null: not known."""
    return {
        "verdict": verdict.name,
        "level": verdict.level,
        "reason": verdict.reason,
        "num_texts": len(texts),
        "texts_equal": sum(text.parting is None for text in texts),
        "rounds_compared": sum(text.num_compared for text in texts),
        "rounds_equal": sum(text.num_equal for text in texts),
        "acceptance_length": None if lengths is None else lengths.to_json(),
        "counters": None if counters is None else counters.to_json(),
        "counters_foretold": predicted.to_json(),
        "texts": [_text(text) for text in texts],
    }


def _text(text: ComparedText) -> dict[str, object]:
    first = text.differences[0] if text.differences else None
    return {
        "sequence": text.recorded.index,
        "dataset": text.recorded.prompt[0],
        "prompt_id": text.recorded.prompt[1],
        "tokens": text.num_tokens,
        "tokens_foretold": text.num_predicted_tokens,
        "parts_at": text.parting,
        "gap_where_it_parts": finite(text.gap),
        "parts_at_close_call": text.is_tie if text.parting is not None else None,
        "rounds": text.num_rounds,
        "rounds_foretold": text.num_predicted,
        "rounds_compared": text.num_compared,
        "rounds_equal": text.num_equal,
        "rounds_short": text.num_short,
        "first_other_round": None
        if first is None
        else {
            "root": first.root,
            "accepted": first.accepted,
            "foretold": first.predicted,
            "margin": finite(first.margin),
            "close_call": first.is_tie,
        },
    }


FORMAT = "simlab-crosscheck"
RESULT = "crosscheck.json"


@dataclass(frozen=True, slots=True)
class CrosscheckSummary:
    """One crosscheck, as a report shows it.

    Attributes:
        location: of its file.
        text_id: of the texts that were asked for.
        engine: its title and version.
        verdict: what it came to.
        texts: equal ones, and all.
        rounds: equal ones, and all that were compared.
        measured: the engine's acceptance length; nan: not told.
        predicted: the trace's.
        error: predicted over measured with its interval.
    """

    location: Path
    text_id: str
    engine: str
    verdict: Verdict
    texts: tuple[int, int]
    rounds: tuple[int, int]
    measured: float
    predicted: float
    error: Estimate


def read_crosscheck(path: Path) -> CrosscheckSummary:
    """The summary in a file of `simlab crosscheck --out`, or in its folder.

    Raises:
        EngineError: it is no such file.
    """
    file = path / RESULT if path.is_dir() else path
    if not file.is_file():
        raise EngineError(f"expected {RESULT} of `simlab crosscheck --out` at {path}; there is none. Check the path.")
    values = parsed_object(file_bytes(file), str(file))
    named = [text(values, key) for key in ("text_id", "engine", "verdict", "level", "reason")]
    if text(values, "format") != FORMAT or None in named:
        raise EngineError(f"{file} is no result of `simlab crosscheck --out`; give the {RESULT} that it wrote")
    text_id, engine, *verdict = map(str, named)
    num_texts, texts_equal, num_rounds, rounds_equal = (
        count(values, key, str(file)) or 0 for key in ("num_texts", "texts_equal", "rounds_compared", "rounds_equal")
    )
    lengths, over = inner(values, "acceptance_length"), "trace_over_engine"
    figures = [
        number(lengths, key, str(file)) for key in ("engine", "trace", over, f"{over}_ci_low", f"{over}_ci_high")
    ]
    measured, predicted, error, low, high = (math.nan if value is None else value for value in figures)
    return CrosscheckSummary(
        location=file,
        text_id=text_id,
        engine=f"{engine} {text(values, 'engine_version') or ''}".rstrip(),
        verdict=Verdict(*verdict),
        texts=(texts_equal, num_texts),
        rounds=(rounds_equal, num_rounds),
        measured=measured,
        predicted=predicted,
        error=Estimate(error, Interval(low, high)),
    )
