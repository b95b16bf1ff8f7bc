"""What every study gives back: its rows as a data frame, as JSON, as text, and as a table in a notebook."""

import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, ClassVar, TypeAlias, cast

import polars as pl

from simlab.errors import UsageError, enumerated, named_or_listed
from simlab.traces.results.rows import settings_of
from simlab.untrusted.visible import ShownText

if TYPE_CHECKING:
    from simlab.analysis.compare.comparisons import Comparison
    from simlab.analysis.figure_style import Figure
    from simlab.analysis.report.page import Chart
    from simlab.traces.artefacts.optimum import Optimum

Pictures: TypeAlias = "Mapping[str, Callable[[], Chart]]"
"""By its name what draws each picture of a result; the first is the one that is shown."""


class StudyResult(ShownText):
    """A frozen value that a study gives back.

    Its text is what the command prints, its JSON what the command prints with ``--json``.
    """

    ROWS: ClassVar[str] = "rows"
    """The key of the JSON under which the rows of `frame` are."""

    @property
    def exported(self) -> "pl.DataFrame | Sequence[Comparison] | Optimum | None":
        """What `simlab.export` makes its table of: result rows, comparisons or a choice; None: there is no table."""
        return None

    PICTURES: ClassVar[str] = ""
    """What gives the pictures of the result, ``module:function``, loaded when one is drawn; empty: it has none."""

    @abstractmethod
    def to_json(self) -> Mapping[str, object]:
        """The value that the command prints with ``--json``."""

    @cached_property
    def frame(self) -> pl.DataFrame:
        """The rows of the JSON, with their keys as columns; the settings of policies are a struct, a field each."""
        rows = with_settings(cast(Sequence[Mapping[str, object]], self.to_json()[self.ROWS]))
        return pl.from_dicts(rows, infer_schema_length=None) if rows else pl.DataFrame()

    def plot(self, show: str | None = None) -> "Figure":
        """A picture of the result, as the report draws it: a plotly figure.

        Args:
            show: which one, by its name; None: the first. A wrong name is answered with those that there are.

        Raises:
            UsageError: the result has no such picture.
        """
        if not self.PICTURES:
            raise UsageError(f"a {type(self).__name__} has no picture")
        module, _, name = self.PICTURES.partition(":")
        pictures: Pictures = getattr(import_module(module), name)(self)
        if show is not None and show not in pictures:
            listed = named_or_listed(show, pictures, f"its pictures are {enumerated(list(pictures))}")
            raise UsageError(f"there is no picture `{show}` of this result{listed}")
        chart = pictures[next(iter(pictures)) if show is None else show]()
        return chart.on_white()


def with_settings(rows: Sequence[Mapping[str, object]]) -> list[dict[str, object]]:
    """Rows whose settings, JSON in a text, are values by name: every name in each row, null where a policy has none.

    A setting that is a number in some rows and something else in others is JSON in a text.

    >>> [row["settings"] for row in with_settings([{"settings": '{"budget": 8}'}, {"settings": "{}"}])]
    [{'budget': 8}, {'budget': None}]
    """
    settings = [dict(settings_of(text)) if isinstance(text := row.get("settings"), str) else {} for row in rows]
    names = list(dict.fromkeys(name for own in settings for name in own))
    for name in names:
        kinds = {type(own[name]) for own in settings if own.get(name) is not None}
        if len(kinds) > 1 and not kinds <= {int, float}:
            for own in (own for own in settings if name in own):
                own[name] = json.dumps(own[name])
    return [
        {**row, "settings": {name: own.get(name) for name in names} or None} if "settings" in row else dict(row)
        for row, own in zip(rows, settings, strict=True)
    ]
