"""A run in experiment trackers, opened with ``--track``: a tracker that fails is left, and the work goes on."""

import math
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from simlab.errors import SimlabError, UsageError, enumerated, reason_of
from simlab.options import option
from simlab.tracking.writers import WRITERS, Scalar, Writer

TRACKERS = tuple(WRITERS)
"""What ``--track`` takes."""


def track_option() -> Sequence[str]:
    """``--track``, which may be repeated."""
    said = "write settings, numbers and results to an experiment tracker too; may be repeated"
    return option((), said, choices=TRACKERS, repeats=True)


_MOST_OF_A_REASON = 200


class Tracker:
    """A run in some trackers, or in none.

    Its calls never raise what a tracker raises: the first failure is said once, on standard error, and this tracker
    gets no more.

    Attributes:
        is_asked: whether anybody asked for a tracker.
    """

    def __init__(self, names: Iterable[str], job: str, settings: Mapping[str, object]) -> None:
        """Open a run in each tracker.

        Args:
            names: of the trackers.
            job: what is run, such as ``optimize``.
            settings: of it, with ids of what it reads and versions; nested ones get names such as ``plan.steps``.
        """
        self._writers: dict[str, Writer] = {}
        flat = flat_settings(settings)
        for name in dict.fromkeys(names):
            self._guarded(name, partial(self._open, name, job, flat))
        self.is_asked = bool(self._writers)

    def numbers(self, values: Mapping[str, float | None], step: int) -> None:
        """Write numbers of a step; those that are None or not finite are left out."""
        known = finite_numbers(values)
        if known:
            self._to_all(lambda writer: writer.numbers(known, step))

    def results(self, values: Mapping[str, object]) -> None:
        """Write what came out: the numbers of a JSON value, however deep, named by their keys with dots between."""
        known = finite_numbers(flat_values(values))
        if known:
            self._to_all(lambda writer: writer.results(known))

    def files(self, *paths: str | Path | None) -> None:
        """Keep copies of result files; None, and what is not there, is left out."""
        there = [Path(path) for path in paths if path is not None and Path(path).is_file()]
        if there:
            self._to_all(lambda writer: writer.files(there))

    def end(self, has_failed: bool) -> None:
        """Close the run; what was not sent yet is sent."""
        self._to_all(lambda writer: writer.end(has_failed))
        self._writers.clear()

    def _open(self, name: str, job: str, settings: Mapping[str, Scalar]) -> None:
        self._writers[name] = WRITERS[name](job, settings)

    def _to_all(self, call: Callable[[Writer], None]) -> None:
        for name, writer in list(self._writers.items()):
            self._guarded(name, partial(call, writer))

    def _guarded(self, name: str, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - whatever a tracker raises, the work goes on
            self._writers.pop(name, None)
            reason = reason_of(error)[:_MOST_OF_A_REASON]
            # A bar may be on the screen; it takes a tenth of a second to import, which `--help` should not wait for.
            from tqdm import tqdm  # noqa: PLC0415

            tqdm.write(f"{name} takes no more of this run ({reason}); the work goes on without it", file=sys.stderr)


def check_trackers(names: Iterable[str]) -> tuple[str, ...]:
    """Refuse, before any work, a tracker that is unknown or not installed; returns the names, each once."""
    found = tuple(dict.fromkeys(names))
    for name in found:
        if name not in WRITERS:
            raise UsageError(f"trackers are {enumerated(TRACKERS)}; got {name!r}")
        if find_spec(name) is None:
            raise SimlabError(
                f"--track {name} needs the package {name}, which is not installed; install it with: "
                f'pip install "simlab[{name}]"'
            )
    return found


@contextmanager
def tracking(names: Sequence[str], job: str, settings: Callable[[], Mapping[str, object]]) -> Iterator[Tracker]:
    """Open a run in trackers, and close it however the work ends.

    Args:
        names: of the trackers; empty: nothing is written anywhere.
        job: what is run, such as ``optimize``.
        settings: of it, asked for only where there is a tracker.
    """
    known = check_trackers(names)
    tracker, has_failed = Tracker(known, job, settings() if known else {}), True
    try:
        yield tracker
        has_failed = False
    finally:
        tracker.end(has_failed)


def flat_settings(values: Mapping[str, object]) -> dict[str, Scalar]:
    """Settings by names with dots between; a list of plain values becomes a text.

    >>> flat_settings({"plan": {"steps": 5}, "dev": ["a", "b"]})
    {'plan.steps': 5, 'dev': 'a, b'}
    """
    return flat_values({key: _with_texts(value) for key, value in values.items()})


def _with_texts(value: object) -> object:
    if isinstance(value, Mapping):
        return {key: _with_texts(one) for key, one in value.items()}
    if isinstance(value, list | tuple | set | frozenset) and not any(isinstance(one, Mapping) for one in value):
        return ", ".join(map(str, value))
    return value


def flat_values(values: Mapping[str, object]) -> dict[str, Scalar]:
    """Nested values by names with dots between; what is in a list is named by its policy, or by its place.

    >>> flat_values({"rows": [{"policy": "chain", "speedup": 1.5}], "shares": [0.5, 0.25]})
    {'rows.chain.policy': 'chain', 'rows.chain.speedup': 1.5, 'shares.0': 0.5, 'shares.1': 0.25}
    """
    found: dict[str, Scalar] = {}
    for key, value in values.items():
        named = _by_name(value) if isinstance(value, list | tuple) else value
        if isinstance(named, Mapping):
            found |= {f"{key}.{inner}": one for inner, one in flat_values(named).items()}
        elif value is None or isinstance(value, str | int | float | bool):
            found[str(key)] = value
        else:
            found[str(key)] = str(value)
    return found


def _by_name(values: Sequence[object]) -> dict[str, object]:
    """Give each of a list a name: a row's policy, where no other row has it, else its place."""
    names = [str(one.get("policy", "")) if isinstance(one, Mapping) else "" for one in values]
    return {
        name if name and names.count(name) == 1 else str(place): one
        for place, (name, one) in enumerate(zip(names, values, strict=True))
    }


def finite_numbers(values: Mapping[str, object]) -> dict[str, float]:
    """The numbers among values, as floats; truth values, and what is not finite, are none.

    >>> finite_numbers({"loss": 1, "name": "a", "won": True, "dev": None, "nan": float("nan")})
    {'loss': 1.0}
    """
    return {
        key: float(value)
        for key, value in values.items()
        if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
    }
