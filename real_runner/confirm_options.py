"""What a person asks of a confirmation."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ConfirmOptions:
    """Which models to run on which texts, and how.

    Attributes:
        out: the folder of the log and of the results.
        target: a name, folder or Hub id; None: as the trace names it.
        draft: likewise.
        limit: at most so many prompts of the trace; None takes all.
        threads: of the CPU; None leaves them as torch has them.
        repeats: how often each text is decoded under each policy.
        resume: go on with the log that is in ``out``.
        tap_offset: one of `simlab.real_runner.tap_offset.CHOICES`; None: as the trace was recorded.
    """

    out: Path
    target: str | None = None
    draft: str | None = None
    dtype: str = "float32"
    device: str = "cpu"
    threads: int | None = None
    limit: int | None = None
    repeats: int = 1
    resume: bool = False
    tap_offset: str | None = None

    def __post_init__(self) -> None:
        for name in ("threads", "limit", "repeats"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name} must be at least 1; got {value}")
