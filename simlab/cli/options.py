"""Options that several commands share, each in one place."""

import argparse
from pathlib import Path

from simlab.errors import UsageError


def add_trace(parser: argparse.ArgumentParser) -> None:
    """``--trace`` and ``--draft``: what was recorded."""
    parser.add_argument("--trace", metavar="DIR", help="a recorded trace: a folder, or an address such as hf://...")
    parser.add_argument("--draft", metavar="NAME", help="the draft set, where the trace holds more than one")


def add_cost(parser: argparse.ArgumentParser) -> None:
    """``--cost``: one machine's prices."""
    parser.add_argument(
        "--cost", type=Path, metavar="FILE", help="prices: a file of `simlab profile`, or the name of a shipped one"
    )


def add_progress(parser: argparse.ArgumentParser) -> None:
    """``--progress`` and ``--no-progress``."""
    parser.add_argument(
        "--progress",
        action=argparse.BooleanOptionalAction,
        help="a progress bar; by default on a terminal, after two seconds",
    )


def make_room(option: str, path: Path | None, example: str) -> None:
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
