"""What the steps of the demo say and hand on."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Part:
    """A titled part of what is printed."""

    title: str
    text: str


@dataclass(frozen=True, slots=True)
class LiveParts:
    """What came out of the steps that run models.

    Attributes:
        verdict: the confirmation, which is printed first.
        others: parts that led to it.
        files: that were made, in the order of the steps.
        results: of these the result files and folders that the report shows.
        trace: the fresh recording.
        cost: the cost file.
        optimum: the choice on the dev prompts.
        has_failed: whether a text is not the target's, or rounds are not those of their replay.
    """

    verdict: Part
    others: tuple[Part, ...]
    files: tuple[Path, ...]
    results: tuple[Path, ...]
    trace: Path
    cost: Path
    optimum: Path
    has_failed: bool
