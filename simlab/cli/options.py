"""Options that several commands share, each declared once."""

import argparse
from pathlib import Path

from simlab.cli.parser import positive, threads
from simlab.errors import UsageError
from simlab.tracking.tracker import TRACKERS
from simlab.workers.parts import Part, parse_part

SLICES = ("dataset", "context", "turn")
"""What ``--by`` cuts results by; as `simlab.analysis.statistics.slices.SLICES`."""


Options = argparse.ArgumentParser | argparse._ArgumentGroup
"""A parser, or a group of options within one."""


def add_trace(parser: Options) -> None:
    """Add ``--trace`` and ``--draft``: what was recorded."""
    parser.add_argument("--trace", metavar="DIR", help="a recorded trace: a folder, or an address such as hf://...")
    add_draft_set(parser)


def add_draft_set(parser: Options) -> None:
    """Add ``--draft``: one of the draft sets of a trace."""
    parser.add_argument("--draft", metavar="NAME", help="the draft set, where the trace holds more than one")


def add_policies(parser: Options, explained: str = "see `simlab policies`; may be repeated") -> None:
    """Add ``-p``, which may be repeated; not given, an empty list.

    Args:
        parser: to which it is added.
        explained: its help.
    """
    parser.add_argument("-p", "--policy", action="append", default=[], metavar="POLICY", help=explained)


def add_cost(parser: Options) -> None:
    """Add ``--cost``: one machine's prices."""
    parser.add_argument(
        "--cost",
        type=Path,
        metavar="FILE",
        help="latency profile: a file of `simlab profile`, or the name of a packaged one",
    )


def add_costs(parser: Options, explained: str) -> None:
    """Add ``--cost`` of several machines; not given, an empty list.

    Args:
        parser: to which it is added.
        explained: its help.
    """
    parser.add_argument("--cost", type=Path, action="append", default=[], metavar="FILE", help=explained)


def add_limit(parser: Options, explained: str = "the first N prompts only") -> None:
    """Add ``--limit``: so many prompts."""
    parser.add_argument("--limit", type=positive, metavar="N", help=explained)


def add_by(
    parser: Options, slices: tuple[str, ...] = SLICES, explained: str = "a table for each, and one of all"
) -> None:
    """Add ``--by``: slices of the results."""
    parser.add_argument("--by", choices=slices, help=explained)


def add_threads(parser: Options) -> None:
    """Add ``--threads`` of a replay."""
    parser.add_argument("--threads", type=threads, metavar="N", help="CPU threads (default: all cores)")


def add_ray(parser: Options) -> None:
    """Add ``--ray`` and ``--workers``: work on many processes and machines."""
    parser.add_argument(
        "--ray",
        metavar="local|ADDRESS",
        help="work on a local Ray, or on that of a cluster (HOST:PORT; on one of its machines: auto)",
    )
    parser.add_argument(
        "--workers", type=positive, metavar="N", help="workers of --ray (default: as many as it has room for)"
    )


def add_shard(parser: Options, explained: str) -> None:
    """Add ``--shard I/N``: one part of the work, for one of several machines.

    Args:
        parser: to which it is added.
        explained: its help; `simlab merge` is said behind it.
    """
    help_text = f"{explained}; `simlab merge` puts them together"
    parser.add_argument("--shard", type=_part, metavar="I/N", help=help_text)


def _part(text: str) -> Part:
    try:
        return parse_part(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def add_json(parser: Options) -> None:
    """Add ``--json``: output for scripts."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_progress(parser: Options) -> None:
    """Add ``--progress`` and ``--no-progress``."""
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="a progress bar; by default on a terminal, after two seconds",
    )


def add_track(parser: Options) -> None:
    """Add ``--track``, which may be repeated; not given, an empty list."""
    parser.add_argument(
        "--track",
        action="append",
        choices=TRACKERS,
        default=[],
        help="write settings, numbers and results to an experiment tracker too; may be repeated",
    )


def check_file_to_write(option: str, path: Path | None, example: str) -> None:
    """Refuse before the work a file that could not be written after it, and make its folder.

    Args:
        option: under which it was typed.
        path: of the file; None: none is wanted.
        example: a file's name.

    Raises:
        UsageError: the path is a folder.
    """
    if path is None:
        return
    if path.is_dir():
        raise UsageError(f"{option} names the folder {path}; expected a file, such as {path / example}")
    path.parent.mkdir(parents=True, exist_ok=True)


def batch_sizes(text: str) -> tuple[int, ...]:
    """Read batch sizes, and put them in ascending order.

    >>> batch_sizes("8,1,2")
    (1, 2, 8)
    """
    try:
        return tuple(sorted({positive(part) for part in text.split(",")}))
    except argparse.ArgumentTypeError as error:
        raise argparse.ArgumentTypeError(f"expected batch sizes such as 1,2,4,8; got {text!r}") from error
