"""What every study gives back: its rows as a data frame, as JSON, as text, and as a table in a notebook."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import ClassVar, cast

import polars as pl

from simlab.untrusted.visible import visible, visible_html


class StudyResult(ABC):
    """A frozen value that a study gives back.

    Its text is what the command prints, its JSON what the command prints with ``--json``.
    """

    ROWS: ClassVar[str] = "rows"
    """The key of the JSON under which the rows of `frame` are."""

    @abstractmethod
    def to_json(self) -> Mapping[str, object]:
        """The value that the command prints with ``--json``."""

    @abstractmethod
    def text(self) -> str:
        """What the command prints."""

    @cached_property
    def frame(self) -> pl.DataFrame:
        """The rows of the JSON, with their keys as columns."""
        rows = cast(Sequence[Mapping[str, object]], self.to_json()[self.ROWS])
        return pl.from_dicts(rows, infer_schema_length=None) if rows else pl.DataFrame()

    def __repr__(self) -> str:
        return visible(self.text())

    def _repr_html_(self) -> str:
        return f"<pre>{visible_html(self.text())}</pre>"
