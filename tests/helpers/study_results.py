"""Studies that tests call: what they print as JSON, rows by policy, and the sentence with which they refuse."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import pytest

from simlab.errors import SimlabError
from simlab.studies.merge import merge


class Printed(Protocol):
    """What a study gives back, whether a table or a file."""

    def to_json(self) -> Mapping[str, object]: ...


def value_of(result: Printed) -> dict[str, Any]:
    """What ``--json`` prints of a result, read again."""
    value: dict[str, Any] = json.loads(json.dumps(result.to_json(), allow_nan=False))
    return value


def rows_of(result: Printed) -> dict[str, dict[str, Any]]:
    """The rows of a result by their policy."""
    return {row["policy"]: row for row in value_of(result)["rows"]}


def refused(study: Callable[..., object], *arguments: object, **named: object) -> str:
    """The sentence with which a study refuses what it is given."""
    with pytest.raises(SimlabError) as refusal:
        study(*arguments, **named)
    return str(refusal.value)


def merge_refusal(out: Path, *paths: Path) -> str:
    """The sentence with which files are not merged, of which no file is made."""
    said = refused(merge, paths, out)
    assert not out.exists()
    return said
