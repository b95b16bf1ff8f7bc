"""Ids that depend on content alone."""

import hashlib
import json


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
