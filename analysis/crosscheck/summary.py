"""What a crosscheck came to, read from the file that it left."""

from dataclasses import dataclass
from pathlib import Path

from simlab.analysis.crosscheck.verdict import GOOD
from simlab.analysis.engines.answers import EngineError
from simlab.analysis.engines.json_values import Json, count, inner, number, parsed_object, text

FORMAT = "simlab-crosscheck"
RESULT = "crosscheck.json"


@dataclass(frozen=True, slots=True)
class CrosscheckSummary:
    """One crosscheck, as a report shows it.

    Attributes:
        place: of its file.
        text_id: of the texts that were asked for.
        engine: its title and version.
        verdict: its name; likewise ``level`` and ``reason``.
        texts: equal ones, and all.
        rounds: equal ones, and all that were compared.
        measured: the engine's acceptance length; nan: not told.
        foretold: the trace's.
        error: foretold over measured with its ends; nan: not known.
    """

    place: Path
    text_id: str
    engine: str
    verdict: str
    level: str
    reason: str
    texts: tuple[int, int]
    rounds: tuple[int, int]
    measured: float
    foretold: float
    error: tuple[float, float, float]

    @property
    def is_good(self) -> bool:
        """Whether the engine did what was foretold."""
        return self.verdict in GOOD


def read_crosscheck(path: Path) -> CrosscheckSummary:
    """The summary in a file of `simlab crosscheck --out`, or in its folder.

    Raises:
        EngineError: it is no such file.
    """
    file = path / RESULT if path.is_dir() else path
    if not file.is_file():
        raise EngineError(f"expected {RESULT} of `simlab crosscheck --out` at {path}; there is none. Check the path.")
    values = parsed_object(file.read_bytes(), str(file))
    named = {key: text(values, key) for key in ("text_id", "engine", "verdict", "level", "reason")}
    missing = [key for key, value in named.items() if value is None]
    if text(values, "format") != FORMAT or missing:
        raise EngineError(f"{file} is no result of `simlab crosscheck --out`; give the {RESULT} that it wrote")
    lengths = inner(values, "acceptance_length")
    engine = " ".join(part for part in (named["engine"], text(values, "engine_version")) if part)
    return CrosscheckSummary(
        place=file,
        text_id=named["text_id"] or "",
        engine=engine,
        verdict=named["verdict"] or "",
        level=named["level"] or "",
        reason=named["reason"] or "",
        texts=_pair(values, "texts_equal", "num_texts", file),
        rounds=_pair(values, "rounds_equal", "rounds_compared", file),
        measured=_number(lengths, "engine", file),
        foretold=_number(lengths, "trace", file),
        error=(
            _number(lengths, "trace_over_engine", file),
            _number(lengths, "trace_over_engine_ci_low", file),
            _number(lengths, "trace_over_engine_ci_high", file),
        ),
    )


def _pair(values: Json, equal: str, everything: str, file: Path) -> tuple[int, int]:
    return count(values, equal, str(file)) or 0, count(values, everything, str(file)) or 0


def _number(values: Json, key: str, file: Path) -> float:
    found = number(values, key, str(file))
    return float("nan") if found is None else found
