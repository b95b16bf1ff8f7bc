"""The rows of a prompt or completion file, checked where they enter."""

import codecs
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from simlab.errors import PromptError
from simlab.untrusted.json_text import parse_json

ROLES = ("system", "developer", "user", "assistant")


@dataclass(frozen=True, slots=True)
class Message:
    """One message; ``role`` is one of ``ROLES``. ``content`` may be empty."""

    role: str
    content: str

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(f"the role of a message must be one of {', '.join(ROLES)}; got {self.role!r}")


Conversation: TypeAlias = tuple[Message, ...]


@dataclass(frozen=True, slots=True)
class PromptRow:
    """One JSON object of a file; ``where`` names its file and line in error messages."""

    where: str
    prompt_id: str
    dataset: str
    fields: Mapping[str, object]


def read_rows(path: Path, limit: int | None) -> Iterator[PromptRow]:
    """The objects of a JSONL file or of a JSON list, in order, with unique ids.

    Lines end at a line feed alone, so a text may hold U+2028. A byte order mark, CRLF and blank
    lines at the end are tolerated.
    """
    if limit is not None and limit < 1:
        raise ValueError(f"limit must be at least 1; got {limit}")
    first_seen: dict[str, str] = {}
    for number, (where, value) in enumerate(_values(path, limit)):
        if not isinstance(value, dict):
            raise PromptError(f"{where}: expected a JSON object; got {_kind(value)}")
        prompt_id = _identity(value.get("id"), f"{path.stem}-{number}", where)
        if prompt_id in first_seen:
            earlier = first_seen[prompt_id]
            raise PromptError(f"{where}: expected an id of its own; got {prompt_id!r}, as in {earlier}; change one")
        first_seen[prompt_id] = where
        dataset = value.get("dataset")
        yield PromptRow(where, prompt_id, path.stem if dataset is None else text_of(dataset, "'dataset'", where), value)


def _values(path: Path, limit: int | None) -> Iterator[tuple[str, object]]:
    try:
        data = path.read_bytes().removeprefix(codecs.BOM_UTF8).rstrip()
    except OSError as error:
        raise PromptError(f"{path} cannot be read ({error.strerror}); expected a JSONL file") from error
    if data.lstrip().startswith(b"["):
        entries = list_of(_parsed(data, path, 1), "the JSON list", str(path))[:limit]
        yield from ((f"{path}, entry {number}", entry) for number, entry in enumerate(entries, 1))
        return
    if not data:
        raise PromptError(f"{path}, line 1: expected one JSON object a line; got an empty file")
    for number, line in enumerate(data.split(b"\n")[:limit], 1):
        yield f"{path}, line {number}", _parsed(line, path, number)


def _parsed(data: bytes, path: Path, first_line: int) -> object:
    try:
        return parse_json(data.decode())
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        got = f"the byte 0x{data[error.start]:02x}"
        raise PromptError(f"{path}, line {line}: expected UTF-8; got {got}; save the file as UTF-8") from error
    except ValueError as error:
        line = first_line + getattr(error, "lineno", 1) - 1
        raise PromptError(f"{path}, line {line}: expected one JSON object a line; got invalid JSON: {error}") from error


def _identity(value: object, default: str, where: str) -> str:
    if value is None:
        return default
    return str(value) if type(value) is int else text_of(value, "'id'", where)


def _kind(value: object) -> str:
    return "null" if value is None else f"{type(value).__name__} {json.dumps(value)[:40]}"


def list_of(value: object, name: str, where: str) -> list[object]:
    """``value`` as a list that is not empty, or a PromptError."""
    if not isinstance(value, list) or not value:
        raise PromptError(f"{where}: expected a list with at least one entry for {name!r}; got {_kind(value)}")
    return value


def text_of(value: object, what: str, where: str) -> str:
    """``value`` as a text that is not empty and can be encoded, or a PromptError."""
    if not isinstance(value, str) or not value:
        raise PromptError(f"{where}: expected {what} to be text that is not empty; got {_kind(value)}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        got = f"half of a surrogate pair at character {error.start}"
        raise PromptError(f"{where}: expected {what} to be Unicode text; got {got}") from error
    return value


def messages_of(value: object, where: str) -> Conversation:
    """The messages of a list of ``{"role", "content"}``, or a PromptError."""
    roles = {role: role for role in ROLES}
    return tuple(message_of(entry, ("role", "content"), roles, where) for entry in list_of(value, "messages", where))


def message_of(entry: object, names: tuple[str, str], roles: Mapping[str, str], where: str) -> Message:
    """One message out of an object; ``names`` of its role and content, ``roles`` from the file's words to ours."""
    if not isinstance(entry, dict):
        raise PromptError(f"{where}: expected each message to be an object; got {_kind(entry)}")
    said_role, content = (entry.get(name) for name in names)
    if not isinstance(said_role, str) or said_role not in roles:
        raise PromptError(f"{where}: expected {names[0]!r} to be one of {', '.join(roles)}; got {_kind(said_role)}")
    if content == "" and roles[said_role] != "user":
        return Message(roles[said_role], "")
    return Message(roles[said_role], text_of(content, f"{names[1]!r} of each message", where))


def ending_in_user(messages: Conversation, where: str) -> Conversation:
    """The messages, if there are any and a user has the last word; else a PromptError."""
    if not messages or messages[-1].role != "user":
        got = f"one from {messages[-1].role}" if messages else "none"
        raise PromptError(f"{where}: expected a user message as the last one before the answer; got {got}")
    return messages
