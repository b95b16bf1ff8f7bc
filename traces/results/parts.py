"""What a file says of the work that it is one part of, so that all parts can be put together again."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from simlab.errors import TraceError, UsageError, enumerated
from simlab.traces.format.json_fields import JsonFields, first_difference
from simlab.workers.parts import Part, missing_parts, parse_part

_PART, _OF = "part", "part_of"


@dataclass(frozen=True, slots=True)
class NotedPart:
    """One part, and in what all parts of the same work agree.

    Attributes:
        part: which one.
        of: the work: ids of what is read, simlab's version, how much there is; JSON.
    """

    part: Part
    of: Mapping[str, object]

    def facts(self) -> dict[str, object]:
        """What stands in the metadata of the file; the only part there is says nothing, since it is the whole."""
        return {} if self.part.is_whole else {_PART: str(self.part), _OF: dict(self.of)}


def noted_part(facts: JsonFields) -> NotedPart | None:
    """What the metadata of a file says of its part; None: it is whole."""
    if _PART not in facts.values:
        return None
    try:
        # Backwards, so that another text is named before the drafts, whose id depends on it.
        of = dict(sorted(facts.inner(_OF).values.items(), reverse=True))
        return NotedPart(parse_part(facts.text(_PART)), of)
    except ValueError as error:
        raise TraceError(f"{facts.where}: {error}") from error


def check_whole(path: str | Path, noted: NotedPart | None) -> None:
    """Refuse a part where the whole is wanted."""
    if noted is not None:
        raise TraceError(
            f"{path} is part {noted.part} alone; put all {noted.part.count} together first: `simlab merge ... --out "
            "FILE`"
        )


def check_together(paths: Sequence[str | Path], noted: Sequence[NotedPart | None]) -> None:
    """Refuse files that are not all the parts of one work.

    Args:
        paths: of the files.
        noted: what each says of its part, at least one that it is one.
    """
    parts = [(path, one) for path, one in zip(paths, noted, strict=True) if one is not None]
    (first_path, first), *others = parts
    wholes = [path for path, one in zip(paths, noted, strict=True) if one is None]
    if wholes:
        raise UsageError(f"{first_path} is a part and {wholes[0]} is none; merge the parts alone, all of them")
    for path, one in others:
        if one.part.count != first.part.count:
            raise UsageError(
                f"{first_path} is one of {first.part.count} parts, and {path} is one of {one.part.count}; merge the "
                "parts of one split"
            )
        _check_same_work(first_path, first.of, path, one.of)
    lacking = missing_parts([one.part for _, one in parts])
    if lacking:
        names = enumerated([str(one) for one in lacking[:9]] + ([f"{len(lacking) - 9} more"] if lacking[9:] else []))
        raise UsageError(f"{names} {'is' if len(lacking) == 1 else 'are'} missing; merge takes all parts at once")


def check_once(paths: Sequence[str | Path], noted: Sequence[NotedPart | None]) -> None:
    """Refuse a part that is named twice; arguments as of `check_together`."""
    parts = sorted((one.part, place) for place, one in enumerate(noted) if one is not None)
    for (part, place), (other, another) in pairwise(parts):
        if part == other:
            raise UsageError(f"{paths[place]} and {paths[another]} are both part {part}; give each part once")


def _check_same_work(
    first: str | Path, found: Mapping[str, object], other: str | Path, wanted: Mapping[str, object]
) -> None:
    """Refuse two parts of different works, by the name of what differs."""
    differing = first_difference(found, wanted, f"in {first}", f"in {other}")
    if differing is not None:
        raise UsageError(f"{first} and {other} are parts of different works: they differ in {differing}")
