"""Ids that depend on content alone; and the version of simlab, and of what it runs on."""

import hashlib
import json
from collections.abc import Iterable
from importlib import metadata

VERSION = "0.1.0"
"""Of the code that runs, installed or not: pyproject.toml takes it from here."""


def versions_of(packages: Iterable[str]) -> dict[str, str]:
    """The versions of some packages by name, in their order; simlab's is that of the code that runs."""
    return {name: VERSION if name == "simlab" else metadata.version(name) for name in packages}


def content_id(value: object) -> str:
    """A short id of a JSON value; the order of its keys does not matter.

    >>> content_id({"a": 1, "b": 2}) == content_id({"b": 2, "a": 1})
    True
    """
    return content_digest(value)[:16]


def content_digest(value: object) -> str:
    """The sha256 of a JSON value, written without spaces and with sorted keys.

    >>> content_digest({}) == hashlib.sha256(b"{}").hexdigest()
    True
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
