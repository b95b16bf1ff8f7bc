"""Text of others as a person sees it: what a terminal or a page would obey, and not show, is written out."""

import re
from abc import ABC, abstractmethod
from html import escape
from typing import IO
from urllib.parse import quote

_HIDDEN = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters: escapes of terminals begin with one; line feed and tab stay
    "\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"  # directions, nothing to see
    "\U000e0000-\U000e007f"  # tags
    "\ud800-\udfff"  # halves of pairs, which no file can hold
    "]"
)

_LOGINS = re.compile(r"://(?:[^/\s:@]*(:[^/\s@]+@))?[^\s?]*(\?[^\s#]+)?")
_secrets: dict[str, str] = {}


def hide_secrets(word: str) -> None:
    """From now on show no password of the addresses in a word, and no query of theirs: that may be a login.

    >>> hide_secrets("https://example.org/trace?sig=c2VjcmV0")
    >>> visible("no file at https://example.org/trace/manifest.json?sig=c2VjcmV0")
    'no file at https://example.org/trace/manifest.json?...'
    """
    for password, query in _LOGINS.findall(word):
        _secrets.update({password: ":...@"} if password else {})
        _secrets.update({query: "?...", f"?{quote(query[1:], safe=SAFE_IN_QUERY)}": "?..."} if query else {})


SAFE_IN_QUERY = "/%!$&'()*+,;=:@~?"
"""Signs of the query of an address that are not written as ``%..``."""


def visible(text: str) -> str:
    r"""The text with characters that are not shown, or change how others are, as their numbers, and no secrets.

    >>> visible("chain\x1b[2J\u202egnp")
    'chain[U+001B][2J[U+202E]gnp'
    """
    for secret, shown in _secrets.items():
        text = text.replace(secret, shown)
    return _HIDDEN.sub(lambda match: f"[U+{ord(match[0]):04X}]", text)


def visible_html(text: str) -> str:
    """What can be seen of a text, as HTML that stands for just this text.

    >>> visible_html("a < b")
    'a &lt; b'
    """
    return escape(visible(text))


class VisibleOutput:
    """A stream of text in which nothing can steer a terminal.

    Args:
        stream: to which it is written.
    """

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write what can be seen of a text."""
        self._stream.write(visible(text))
        return len(text)

    def close(self) -> None:
        """Stay open: what runs inside a command does not own the stream."""

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


class ShownText(ABC):
    """A value that shows itself as the text that its command prints, in a console and in a notebook."""

    __slots__ = ()

    @abstractmethod
    def text(self) -> str:
        """What the command prints."""

    def __repr__(self) -> str:
        return visible(self.text())

    def _repr_html_(self) -> str:
        return f"<pre>{visible_html(self.text())}</pre>"


def label_lines(label: str, width: int) -> list[str]:
    """A label in lines of at most so many columns, broken behind a comma, a colon or a slash if it may be."""
    lines = [""]
    for piece in re.findall(r"[^,:/|]*[,:/|]?", label):
        room = width - 2 * (len(lines) > 1)
        if lines[-1] and len(lines[-1]) + len(piece) > room:
            lines.append("")
        lines[-1] += piece if lines[-1] else piece.lstrip()
    return lines
