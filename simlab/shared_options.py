"""Options that several commands have, each declared once; `simlab.options` says how a class of options uses them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simlab.limits.typed_numbers import whole_number
from simlab.options import count, option

SLICES = ("dataset", "context", "turn")
"""What ``--by`` cuts results by; as `simlab.analysis.statistics.slices.SLICES`."""

_MOST_THREADS = 1024


def trace_option(
    said: str = "a recorded trace: a folder, or an address such as hf://... (default: the packaged one)",
) -> Any:  # noqa: ANN401 - a trace, a path, or None
    """``--trace``: what is judged."""
    return option(None, said, "DIR")


def dev_trace_option(said: str) -> Any:  # noqa: ANN401 - a trace, a path, or None
    """``--dev-trace``: what settings are chosen on."""
    return option(None, said, "DIR")


def draft_set_option(said: str = "the draft set, where the trace holds more than one") -> str | None:
    """``--draft-set``: one of the draft sets of a trace."""
    return option(None, said, "NAME")


def policies_option(said: str = "see `simlab policies`; may be repeated") -> Sequence[str]:
    """``-p``, which may be repeated."""
    return option((), said, "POLICY", names="-p --policy", repeats=True)


def cost_option(
    said: str = "latency profile: a file of `simlab profile`, or the name of a packaged one",
) -> str | Path | None:
    """``--cost``: the latency profile of one machine."""
    return option(None, said, "FILE", read=Path)


def costs_option(
    said: str = "latency profile: a file of `simlab profile`, or the name of a packaged one; may be repeated",
) -> str | Path | Sequence[str | Path]:
    """``--cost`` of several machines."""
    return option((), said, "FILE", read=Path, repeats=True)


def limit_option(said: str = "the first N prompts only") -> int | None:
    """``--limit``: so many prompts."""
    return option(None, said, "N")


def by_option(said: str = "a table for each, and one of all", slices: Sequence[str] = SLICES) -> str | None:
    """``--by``: slices of the results."""
    return option(None, said, choices=slices)


def threads_option(said: str = "CPU threads (default: all cores)") -> int | None:
    """``--threads``."""
    return option(None, said, "N", read=count(1, _MOST_THREADS))


def progress_option() -> bool | None:
    """``--progress`` and ``--no-progress``."""
    return option(None, "a progress bar; by default on a terminal, after two seconds")


def batch_option(said: str, default: Sequence[int] | None = None) -> Sequence[int] | None:
    """``--batch`` of a command that takes several batch sizes."""
    return option(default, said, "N,N,...", read=batch_sizes)


def one_batch_option(said: str = "decode N texts at a time (default: each alone)", group: str = "") -> int | None:
    """``--batch`` of a command that runs at one batch size."""
    return option(None, said, "N", read=batch_size, group=group)


def batch_sizes(text: str) -> tuple[int, ...]:
    """Read batch sizes, and put them in ascending order.

    >>> batch_sizes("8,1,2")
    (1, 2, 8)
    """
    try:
        return tuple(sorted({whole_number(part, 1) for part in text.split(",")}))
    except ValueError as error:
        raise ValueError(f"expected batch sizes such as 1,2,4,8; got {text!r}") from error


def batch_size(text: str) -> int:
    """Read one batch size.

    >>> batch_size("8")
    8
    """
    sizes = batch_sizes(text)
    if len(sizes) > 1:
        raise ValueError(f"expected one batch size, such as 4; got {text!r}; run the command once for each")
    return sizes[0]
