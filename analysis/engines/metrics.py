"""A server's Prometheus text, as sums by name."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from simlab.analysis.engines.answers import EngineError

MOST_BYTES = 1 << 26
"""More than any server's text of metrics."""


@dataclass(frozen=True, slots=True)
class Samples:
    """All samples of one reading: by name, labels and value of each."""

    by_name: Mapping[str, tuple[tuple[Mapping[str, str], float], ...]]

    def has_prefix(self, prefix: str) -> bool:
        """Whether a name begins so."""
        return any(name.startswith(prefix) for name in self.by_name)

    def number(self, *names: str) -> int | None:
        """The sum over all labels of the first of these names that is there, as a whole number; None: none is."""
        for name in names:
            samples = self.by_name.get(name)
            if samples is not None:
                return _whole(name, math.fsum(value for _, value in samples))
        return None

    def by_position(self, name: str, label: str = "position") -> tuple[int, ...] | None:
        """The sums by a label that counts from 0; None where the name is not there."""
        samples = self.by_name.get(name)
        if samples is None:
            return None
        sums: dict[int, float] = {}
        for labels, value in samples:
            place = labels.get(label, "")
            if not place.isdecimal() or int(place) > 10_000:
                raise EngineError(f"expected the label {label} of {name} to count from 0; got {place!r}")
            sums[int(place)] = sums.get(int(place), 0.0) + value
        return tuple(_whole(name, sums.get(index, 0.0)) for index in range(max(sums, default=-1) + 1))

    def labels(self, name: str) -> Mapping[str, str]:
        """The labels of the first sample of a name; none where it is not there."""
        samples = self.by_name.get(name, ())
        return samples[0][0] if samples else {}


def read_samples(text: str, where: str) -> Samples:
    """The samples of a Prometheus text; histograms and summaries as their parts.

    Args:
        text: as a server's address of metrics gives it.
        where: what it is called in messages.

    Raises:
        EngineError: it is no such text.
    """
    found: dict[str, list[tuple[Mapping[str, str], float]]] = {}
    series: set[tuple[str, frozenset[tuple[str, str]]]] = set()
    try:
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labelled = sample.name, frozenset(sample.labels.items())
                if labelled in series:
                    raise EngineError(
                        f"{where} has {sample.name} with the same labels twice, as two readings in one file have; give "
                        "one reading, and an earlier one with --before"
                    )
                series.add(labelled)
                found.setdefault(sample.name, []).append((dict(sample.labels), float(sample.value)))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise EngineError(
            f"{where} is no Prometheus text ({lines[0][:120]}); give what the server's address of metrics answers"
        ) from error
    if not found:
        raise EngineError(f"{where} holds no metrics; give what the server's address of metrics answers")
    return Samples({name: tuple(samples) for name, samples in found.items()})


def _whole(name: str, value: float) -> int:
    if not (math.isfinite(value) and abs(value - round(value)) < 1e-6 and 0 <= value < 2**53):
        raise EngineError(f"expected the count {name} to be a whole number; got {value:g}")
    return round(value)
