"""A server's Prometheus text: counters are added over engines of a model, gauges never."""

from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from simlab.analysis.engines.answers import EngineError

MOST_BYTES = 1 << 26
"""More than any server's text of metrics."""


_RANKS = frozenset({"tp_rank", "pp_rank", "moe_ep_rank"})
"""Labels of ranks that work on the same tokens, so that each of them counts what all of them did."""

_MODELS = ("model_name", "model", "served_model_name")
"""Labels that name what is served."""


@dataclass(frozen=True, slots=True)
class Samples:
    """All samples of one reading: by name, labels and value of each.

    Attributes:
        by_name: labels and value of each series.
        where: what the reading is called in messages.
    """

    by_name: Mapping[str, tuple[tuple[Mapping[str, str], float], ...]]
    where: str = "the reading"

    def model(self, prefix: str) -> str | None:
        """The name of the model that metrics with this prefix are of; None where they do not tell.

        Raises:
            EngineError: they are of several served models, whose sums would be of none of them.
        """
        series = [labels for name, samples in self.by_name.items() if name.startswith(prefix) for labels, _ in samples]
        names = {label: sorted({labels[label] for labels in series if labels.get(label)}) for label in _MODELS}
        for label, models in names.items():
            if len(models) > 1:
                raise EngineError(
                    f"{self.where} has metrics of {len(models)} served models, {', '.join(models)[:400]}; choose one: "
                    f"keep its lines alone, as `grep '{label}=\"{models[0]}\"'` does"
                )
        return next((models[0] for models in names.values() if models), None)

    def counter(self, *names: str) -> int | None:
        """The sum of the first of these counters that is there, over engines, each rank's count once; None: none is."""
        for name in names:
            if name in self.by_name:
                return sum(_whole(name, value) for value in self._by_engine(name).values())
        return None

    def gauge(self, name: str) -> int | None:
        """The value of a gauge, equal in all its series and never a sum; None where it is not there, or 0 as unset."""
        values = sorted({value for _, value in self.by_name.get(name, ()) if value != 0})
        if len(values) > 1:
            raise EngineError(
                f"{self.where} has {name} of {values[0]:g} and of {values[-1]:g}: its ranks or engines are set "
                "differently, and a gauge is no sum; keep the lines of those that are alike"
            )
        return _whole(name, values[0]) if values else None

    def largest(self, name: str) -> int | None:
        """The largest value of a gauge that may differ by engine; None where it is not there."""
        values = [value for _, value in self.by_name.get(name, ())]
        return _whole(name, max(values)) if values else None

    def by_position(self, name: str) -> tuple[int, ...] | None:
        """The sums of a counter by its label ``position``, from 0; None where the name is not there."""
        if name not in self.by_name:
            return None
        sums: dict[int, int] = {}
        for labels, value in self._by_engine(name).items():
            position = dict(labels).get("position", "")
            if not position.isdecimal() or int(position) > 10_000:
                raise EngineError(f"expected the label position of {name} to count from 0; got {position!r}")
            sums[int(position)] = sums.get(int(position), 0) + _whole(name, value)
        return tuple(sums.get(index, 0) for index in range(max(sums, default=-1) + 1))

    def labels(self, name: str) -> Mapping[str, str]:
        """The labels of a name that has one series, ranks left out; none where it is not there."""
        labels = list(self._by_engine(name))
        if len(labels) > 1:
            raise EngineError(
                f"{self.where} has {name} with {len(labels)} sets of labels; keep the lines of one engine"
            )
        return dict(labels[0]) if labels else {}

    def _by_engine(self, name: str) -> dict[frozenset[tuple[str, str]], float]:
        """Values by all labels but those of ranks, of which each has the same."""
        values: dict[frozenset[tuple[str, str]], float] = {}
        for labels, value in self.by_name.get(name, ()):
            key = frozenset((label, text) for label, text in labels.items() if label not in _RANKS)
            if key in values and values[key] != value:
                raise EngineError(
                    f"{self.where} has {name} of {values[key]:,.0f} on one rank and of {value:,.0f} on another, which "
                    "work on the same tokens; read it while the server is idle, or keep the lines of one rank"
                )
            values[key] = value
        return values


def read_samples(text: str, where: str) -> Samples:
    """The samples of a Prometheus text; histograms and summaries as their parts.

    Args:
        text: as a server's address of metrics gives it.
        where: what it is called in messages.

    Raises:
        EngineError: it is no such text.
    """
    by_name: dict[str, list[tuple[Mapping[str, str], float]]] = {}
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
                by_name.setdefault(sample.name, []).append((dict(sample.labels), float(sample.value)))
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, OverflowError) as error:
        lines = str(error).splitlines() or [type(error).__name__]
        raise EngineError(
            f"{where} is no Prometheus text ({lines[0][:120]}); give what the server's address of metrics answers"
        ) from error
    if not by_name:
        raise EngineError(f"{where} holds no metrics; give what the server's address of metrics answers")
    return Samples({name: tuple(samples) for name, samples in by_name.items()}, where)


def _whole(name: str, value: float) -> int:
    if not (value.is_integer() and 0 <= value < 2**53):
        raise EngineError(f"expected the count {name} to be a whole number; got {value:g}")
    return round(value)
