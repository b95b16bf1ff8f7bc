"""Writers that are killed at one of the moments at which they may be."""

from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest


class Killed(BaseException):
    """The process ended here."""


def kill_after(monkeypatch: pytest.MonkeyPatch, num_events: int) -> Callable[[], int]:
    """Raise at the ``num_events``-th event; gives back how many there were.

    Events: a Parquet file half written, a file about to be renamed, a file just renamed.
    """
    count = 0
    write_parquet, rename = pl.DataFrame.write_parquet, Path.replace

    def event() -> None:
        nonlocal count
        count += 1
        if count == num_events:
            raise Killed

    def half_written(frame: pl.DataFrame, file: object, **options: object) -> None:
        write_parquet(frame.head(len(frame) // 2), file, **options)  # type: ignore[arg-type]
        event()
        file.seek(0)  # type: ignore[attr-defined]
        file.truncate()  # type: ignore[attr-defined]
        write_parquet(frame, file, **options)  # type: ignore[arg-type]

    def renamed(path: Path, target: Path) -> Path:
        event()
        rename(path, target)
        event()
        return target

    monkeypatch.setattr(pl.DataFrame, "write_parquet", half_written)
    monkeypatch.setattr(Path, "replace", renamed)
    return lambda: count
