"""Outputs as text that is kept and compared: what was printed, and what files hold, pages and their figures too."""

import json
import math
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import polars as pl
from places import REPOSITORY

from simlab.ids import VERSION

WIDTH = 150
"""Characters up to which a JSON value stands in one line."""

_FRACTION = re.compile(r"\d+\.\d+(?:e[+-]\d+)?|\d+e[+-]\d+")


class _Page(HTMLParser):
    """The words of a page, and the JSON that its figures are drawn from."""

    def __init__(self) -> None:
        super().__init__()
        self._tags: list[str] = []
        self._is_json = False
        self.lines: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("script", "style"):
            self._tags.append(tag)
            self._is_json = ("type", "application/json") in attrs
        # What is read besides text; looks are of the style sheet.
        self.lines += [f"[{name} {value}]" for name, value in attrs if name in ("title", "alt", "aria-label", "href")]

    def handle_endtag(self, tag: str) -> None:
        if tag in ("script", "style"):
            self._tags.pop()

    def handle_data(self, data: str) -> None:
        if not self._tags:
            self.lines += [" ".join(data.split())] if data.strip() else []
        elif self._is_json:
            self.lines += json_lines(json.loads(data))


def _short(value: Any) -> Any:  # noqa: ANN401
    """A JSON value whose fractions have seven digits: more differ between machines, and digests with them."""
    if isinstance(value, dict):
        return {name: "DIGEST" if name == "digest" else _short(inner) for name, inner in value.items()}
    if isinstance(value, list):
        return [_short(inner) for inner in value]
    return float(f"{value:.7g}") if isinstance(value, float) and math.isfinite(value) else value


def json_lines(value: object, before: str = "") -> list[str]:
    """A JSON value, broken into lines where it is long; lists of numbers are not."""
    return _json_lines(_short(value), before)


def _json_lines(value: Any, before: str) -> list[str]:  # noqa: ANN401
    text = before + json.dumps(value, ensure_ascii=False)
    if isinstance(value, dict) and len(text) > WIDTH:
        pairs = [_json_lines(inner, f"{name}: ") for name, inner in value.items()]
    elif isinstance(value, list) and any(isinstance(inner, dict | list) for inner in value) and len(text) > WIDTH:
        pairs = [_json_lines(inner, "- ") for inner in value]
    else:
        return [text]
    return [before.rstrip() or "value", *(f"  {line}" for lines in pairs for line in lines)]


def _table_lines(path: Path) -> list[str]:
    """Each column of a Parquet file: its dtype, and the sum of its numbers or its different values."""
    frame = pl.read_parquet(path)
    lines = [f"{frame.height} rows"]
    for column in frame:
        is_number = column.dtype.is_numeric()
        value = f"sum {_short(float(column.sum()))}" if is_number else f"{column.n_unique()} different"
        lines.append(f"{column.name} {column.dtype}: {value}, {column.null_count()} null")
    return lines


def lines_of(path: Path) -> list[str]:
    """What a file holds, as text."""
    if path.suffix == ".html":
        page = _Page()
        page.feed(_anywhere(path.read_text(encoding="utf-8")))
        return page.lines
    if path.suffix == ".parquet":
        return _table_lines(path)
    return printed_lines(path.read_text(encoding="utf-8"))


def _anywhere(text: str) -> str:
    """The same text in whatever folder and version the tests run."""
    return text.replace(str(REPOSITORY), "REPOSITORY").replace(VERSION, "VERSION")


def printed_lines(text: str) -> list[str]:
    """What a command printed; one JSON value is broken into lines."""
    text = _anywhere(text)
    if text.startswith("{"):
        try:
            return json_lines(json.loads(text))
        except json.JSONDecodeError:
            pass
    return [line.rstrip() for line in text.splitlines()]


def first_difference(found: list[str], kept: list[str]) -> str:
    """The first line that is another one, fractions to six digits; empty where all are the same."""
    for number, (here, there) in enumerate(zip(found, kept, strict=False), 1):
        if here != there and not _close(here, there):
            return f"line {number}\nkept {there}\nnow  {here}"
    if len(found) != len(kept):
        longer = max(found, kept, key=len)
        return f"{len(kept)} lines were kept, there are {len(found)} now: {longer[min(len(found), len(kept))]}"
    return ""


def _close(here: str, there: str) -> bool:
    if _FRACTION.split(here) != _FRACTION.split(there):
        return False
    pairs = zip(map(float, _FRACTION.findall(here)), map(float, _FRACTION.findall(there)), strict=True)
    return all(math.isclose(*pair, rel_tol=1e-6, abs_tol=1e-12) for pair in pairs)
