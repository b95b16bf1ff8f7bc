"""Prompt files of four formats, and conversations rendered with a chat template."""

import codecs
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from jinja2 import TemplateError
from tqdm import tqdm

from simlab.errors import PromptError
from simlab.untrusted.json_text import file_bytes, parse_json
from simlab.untrusted.visible import visible

# The rows of a prompt or completion file, checked where they enter.


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
        data = file_bytes(path).removeprefix(codecs.BOM_UTF8).rstrip()
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


_SHAREGPT_ROLES = {"system": "system", "human": "user", "user": "user", "gpt": "assistant", "assistant": "assistant"}


class Tokenizer(Protocol):
    """What is used of a ``transformers`` tokenizer, 5.17 or later."""

    @property
    def chat_template(self) -> object: ...
    @property
    def encode(self) -> Callable[..., list[int]]: ...
    @property
    def apply_chat_template(self) -> Callable[..., object]: ...


@dataclass(frozen=True, slots=True)
class PromptRecord:
    """A conversation put to the target, then user messages that follow its own answers.

    ``conversation`` ends in the first user message to be answered; what stands before is given.
    ``later_turns`` are asked one by one, each after the target's answer: see ``next_turn``.
    """

    prompt_id: str
    dataset: str
    conversation: Conversation
    later_turns: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.conversation or self.conversation[-1].role != "user":
            raise ValueError(f"the conversation of prompt {self.prompt_id!r} must end in a user message")


def read_prompts(path: Path, limit: int | None = None) -> list[PromptRecord]:
    """The prompts of a JSONL file or of a JSON list, at most the first ``limit``.

    A row is recognised by the first of these keys that it fills:

    * ``turns``: user messages, each asked after the target's answer to the one before;
    * ``messages``: ``role`` and ``content``, ending in a user message; one answer after it is dropped;
    * ``conversations`` (ShareGPT): ``from`` and ``value``; the first human message, and system ones before it;
      a conversation that is empty or has no human message is skipped, and stderr says how many;
    * ``prompt``: one user message.

    ``id`` (text or integer; default ``STEM-N``, row ``N`` counted from 0) and ``dataset`` (default:
    the file's stem) are optional. Other keys, and rows past the limit, are not looked at.

    Raises:
        PromptError: the file cannot be read or a row cannot be used; names file and line.
        ValueError: a limit below 1.
    """
    rows = list(read_rows(path, limit))
    records = [_record(row) for row in rows if not _says_nothing(row.fields)]
    if not records:
        raise PromptError(f"{path}: expected a conversation with a human message; got none in {len(rows)} rows")
    if skipped := len(rows) - len(records):
        said = f"{path}: skipped {skipped} of {len(rows)} conversations: no human message"
        tqdm.write(visible(said), file=sys.stderr)
    return records


def _says_nothing(fields: Mapping[str, object]) -> bool:
    """Whether this is a ShareGPT row as public dumps have some: nobody asks anything in it."""
    turns = fields.get("conversations")
    if not isinstance(turns, list) or any(fields.get(name) is not None for name in ("turns", "messages")):
        return False
    roles = [entry.get("from") if isinstance(entry, dict) else None for entry in turns]
    return all(isinstance(role, str) and _SHAREGPT_ROLES.get(role, "user") != "user" for role in roles)


def _record(row: PromptRow) -> PromptRecord:
    for name, parse in _FORMATS.items():
        if row.fields.get(name) is not None:
            return PromptRecord(row.prompt_id, row.dataset, *parse(row.fields[name], row.where))
    got = ", ".join(row.fields) or "none"
    raise PromptError(f"{row.where}: expected one of the keys {', '.join(_FORMATS)}; got {got}")


_Parsed: TypeAlias = tuple[Conversation, tuple[str, ...]]


def _from_turns(value: object, where: str) -> _Parsed:
    first, *later = (text_of(turn, "each of 'turns'", where) for turn in list_of(value, "turns", where))
    return (Message("user", first),), tuple(later)


def _from_messages(value: object, where: str) -> _Parsed:
    messages = messages_of(value, where)
    return ending_in_user(messages[:-1] if messages[-1].role == "assistant" else messages, where), ()


def _from_sharegpt(value: object, where: str) -> _Parsed:
    kept: list[Message] = []
    for entry in list_of(value, "conversations", where):
        message = message_of(entry, ("from", "value"), _SHAREGPT_ROLES, where)
        kept += [message] if message.role != "assistant" else []
        if message.role == "user":
            break
    return ending_in_user(tuple(kept), where), ()


def _from_prompt(value: object, where: str) -> _Parsed:
    return (Message("user", text_of(value, "'prompt'", where)),), ()


_FORMATS: Mapping[str, Callable[[object, str], _Parsed]] = {
    "turns": _from_turns,
    "messages": _from_messages,
    "conversations": _from_sharegpt,
    "prompt": _from_prompt,
}


def next_turn(messages: Sequence[Message], answer_text: str, user_text: str) -> Conversation:
    """The conversation that asks ``user_text`` after the target answered ``answer_text``.

    ``answer_text`` is decoded without special tokens, and may be empty.
    """
    return *messages, Message("assistant", answer_text), Message("user", user_text)


def render(tokenizer: Tokenizer, messages: Sequence[Message], template_kwargs: Mapping[str, object]) -> list[int]:
    """The ids of a conversation up to where the target's answer begins.

    A tokenizer without a chat template (a base model's) gets the last user message alone,
    encoded with the special tokens that it adds to any text; earlier messages are not seen.
    """
    if _has_template(tokenizer, template_kwargs):
        ids = _apply(tokenizer, messages, template_kwargs, tokenize=True)
    else:
        ids = tokenizer.encode(_last_user(messages))
    assert isinstance(ids, list)
    if not ids:
        raise PromptError(f"the prompt {_last_user(messages)[:40]!r} has no tokens; expected at least one; remove it")
    return ids


def render_text(tokenizer: Tokenizer, messages: Sequence[Message], template_kwargs: Mapping[str, object]) -> str:
    """What ``render`` encodes, as text; without a template, special tokens are not shown."""
    if not _has_template(tokenizer, template_kwargs):
        return _last_user(messages)
    return str(_apply(tokenizer, messages, template_kwargs, tokenize=False))


def _has_template(tokenizer: Tokenizer, template_kwargs: Mapping[str, object]) -> bool:
    has_template = bool(template_kwargs.get("chat_template") or tokenizer.chat_template)
    if template_kwargs and not has_template:
        raise PromptError(f"the tokenizer has no chat template to take {', '.join(template_kwargs)}; drop them")
    return has_template


def _apply(
    tokenizer: Tokenizer, messages: Sequence[Message], template_kwargs: Mapping[str, object], *, tokenize: bool
) -> object:
    conversation = [{"role": message.role, "content": message.content} for message in messages]
    try:
        return tokenizer.apply_chat_template(
            conversation, add_generation_prompt=True, tokenize=tokenize, return_dict=False, **template_kwargs
        )
    except (TemplateError, TypeError, ValueError) as error:
        roles = ", ".join(message.role for message in messages)
        raise PromptError(f"the chat template refused a conversation of {roles}: {error}") from error


def _last_user(messages: Sequence[Message]) -> str:
    return next(message.content for message in reversed(messages) if message.role == "user")
