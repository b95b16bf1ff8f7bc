"""Prompt files of four formats, and conversations rendered with a chat template."""

import codecs
import json
import re
import sys
from collections import UserDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Protocol, TypeAlias

from jinja2 import Environment, TemplateError
from jinja2.meta import find_undeclared_variables
from tqdm import tqdm

from simlab.errors import PromptError
from simlab.real_runner.model_options import check_template_kwargs
from simlab.untrusted.json_text import file_bytes, parse_json
from simlab.untrusted.visible import visible

# The rows of a prompt or completion file, checked where they enter.


ROLES = ("system", "developer", "user", "assistant", "tool")
_ASKING = ("user", "tool")
"""Roles that a model answers."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message; ``role`` is one of ``ROLES``. ``content`` may be empty.

    ``others`` is what else a row says of it, such as ``tool_calls``; the chat template gets it as it is.
    """

    role: str
    content: str
    others: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.role not in ROLES:
            raise ValueError(f"the role of a message must be one of {', '.join(ROLES)}; got {self.role!r}")


Conversation: TypeAlias = tuple[Message, ...]


class RowFields(UserDict[str, object]):
    """The keys of a row, which know those that were read."""

    def __init__(self, values: dict[str, object]) -> None:
        super().__init__(values)
        self._read: set[str] = set()

    def __getitem__(self, key: str) -> object:
        self._read.add(key)
        return super().__getitem__(key)

    def filled(self, key: str) -> bool:
        """Whether a key has a value; it does not count as read."""
        return self.data.get(key) is not None

    def unread(self) -> list[str]:
        """Keys with a value that nobody read."""
        return [key for key in self if self.filled(key) and key not in self._read]


@dataclass(frozen=True, slots=True)
class PromptRow:
    """One JSON object of a file; ``where`` names its file and line in error messages."""

    where: str
    prompt_id: str
    dataset: str
    fields: RowFields

    def template_kwargs(self) -> dict[str, object]:
        """The row's own arguments of the chat template, its ``tools`` among them."""
        own, tools = self.fields.get("chat_template_kwargs") or {}, self.fields.get("tools") or []
        if not isinstance(own, dict):
            raise PromptError(f"{self.where}: expected 'chat_template_kwargs' to be an object; got {_kind(own)}")
        check_template_kwargs(own, f"{self.where}: 'chat_template_kwargs'")
        if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
            raise PromptError(f"{self.where}: expected 'tools' to be a list of objects; got {_kind(tools)}")
        return {**own, "tools": tools} if tools else own


def with_own(common: Mapping[str, object], own: Mapping[str, object]) -> dict[str, object]:
    """Arguments of the chat template for a row: those of all rows and its own, which may not contradict."""
    for key in common.keys() & own.keys():
        if common[key] != own[key]:
            raise PromptError(
                f"a row gives the chat template {key}={json.dumps(own[key])[:60]} and --chat-template-kwargs gives "
                f"{json.dumps(common[key])[:60]}; leave one out"
            )
    return {**common, **own}


def check_rows(path: Path, rows: Sequence[PromptRow], own: Sequence[Mapping[str, object]]) -> None:
    """Name on stderr what rows hold and nobody reads; refuse arguments of the template that change from row to row.

    Args:
        path: of the file.
        rows: that were read.
        own: the rows' arguments of the chat template; a trace says which, so all but tools are one set.
    """
    unread = dict.fromkeys(key for row in rows for key in row.fields.unread())
    if unread:
        note = f"{path}: keys of its rows that are not used: {', '.join(unread)}"
        tqdm.write(visible(note[:1000]), file=sys.stderr)
    dumped = [json.dumps({key: kwargs[key] for key in sorted(kwargs) if key != "tools"}) for kwargs in own]
    if len(different := list(dict.fromkeys(dumped))) > 1:
        raise PromptError(
            f"{path}: expected the same chat_template_kwargs in all rows, which a trace names once; got "
            f"{different[0][:80]} and {different[1][:80]}; put them into files of their own"
        )


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
        fields = RowFields(value)
        prompt_id = _identity(fields.get("id"), f"{path.stem}-{number}", where)
        if prompt_id in first_seen:
            earlier = first_seen[prompt_id]
            raise PromptError(f"{where}: expected an id of its own; got {prompt_id!r}, as in {earlier}; change one")
        first_seen[prompt_id] = where
        dataset = fields.get("dataset")
        named = path.stem if dataset is None else text_of(dataset, "'dataset'", where)
        yield PromptRow(where, prompt_id, named, fields)


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
    """The messages of a list of ``{"role", "content"}``, what else they have with them, or a PromptError."""
    roles = {role: role for role in ROLES}
    return tuple(message_of(entry, ("role", "content"), roles, where) for entry in list_of(value, "messages", where))


def message_of(entry: object, names: tuple[str, str], roles: Mapping[str, str], where: str) -> Message:
    """One message out of an object; ``names`` of its role and content, ``roles`` from the file's words to ours."""
    if not isinstance(entry, dict):
        raise PromptError(f"{where}: expected each message to be an object; got {_kind(entry)}")
    said_role, content = (entry.get(name) for name in names)
    if not isinstance(said_role, str) or said_role not in roles:
        raise PromptError(f"{where}: expected {names[0]!r} to be one of {', '.join(roles)}; got {_kind(said_role)}")
    others = {key: value for key, value in entry.items() if key not in names and value is not None}
    if names[0] == "from":  # what ShareGPT has beside is for training, and reaches no template
        others = {}
    if "tool_calls" in others:
        others["tool_calls"] = [_call(call, where) for call in list_of(others["tool_calls"], "tool_calls", where)]
        content = "" if content is None else content  # as engines that serve chats read it
    if content == "" and roles[said_role] != "user":
        return Message(roles[said_role], "", others)
    return Message(roles[said_role], text_of(content, f"{names[1]!r} of each message", where), others)


def _call(call: object, where: str) -> object:
    """A call of a tool; its arguments as an object, which chat templates expect, where they are JSON text."""
    try:
        function: dict[str, object] = {**call["function"]}  # type: ignore[index]
        if isinstance(arguments := function.get("arguments"), str):
            function["arguments"] = parse_json(arguments or "{}")
        return {**call, "function": function}  # type: ignore[dict-item]
    except (TypeError, KeyError, ValueError) as error:
        raise PromptError(
            f"{where}: expected each of 'tool_calls' to be an object with a function; got {error}"
        ) from error


def ending_in_user(messages: Conversation, where: str) -> Conversation:
    """The messages, if a user, or a tool that a user's question led to, has the last word; else a PromptError."""
    asked = any(message.role == "user" for message in messages)
    if not asked or messages[-1].role not in _ASKING:
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
    def get_chat_template(self) -> Callable[..., str]: ...
    @property
    def apply_chat_template(self) -> Callable[..., object]: ...


@dataclass(frozen=True, slots=True)
class PromptRecord:
    """A conversation put to the target, then user messages that follow its own answers.

    ``conversation`` ends in the first user message to be answered; what stands before is given.
    ``later_turns`` are asked one by one, each after the target's answer: see ``next_turn``.
    ``template_kwargs`` are the row's own arguments of the chat template, its tools among them.
    """

    prompt_id: str
    dataset: str
    conversation: Conversation
    later_turns: tuple[str, ...] = ()
    template_kwargs: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.conversation or self.conversation[-1].role not in _ASKING:
            raise ValueError(f"the conversation of prompt {self.prompt_id!r} must end in a user message")


def read_prompts(path: Path, limit: int | None = None) -> list[PromptRecord]:
    """The prompts of a JSONL file or of a JSON list, at most the first ``limit``.

    A row is recognised by the first of these keys that it fills:

    * ``turns``: user messages, each asked after the target's answer to the one before;
    * ``messages``: ``role`` and ``content``, and what else the chat template reads (``tool_calls``), ending in a
      user's or a tool's message; one answer after it is dropped;
    * ``conversations`` (ShareGPT): ``from`` and ``value``, or ``role`` and ``content``; the first human message, and
      system ones before it; a conversation that is empty or has no human message is skipped, and stderr says how many;
    * ``prompt``: one user message.

    ``id`` (text or integer; default ``STEM-N``, row ``N`` counted from 0), ``dataset`` (default: the file's stem),
    ``tools`` and ``chat_template_kwargs`` (the same in all rows) are optional. Other keys are named on stderr. Rows
    past the limit are not looked at.

    Raises:
        PromptError: the file cannot be read or a row cannot be used; names file and line.
        ValueError: a limit below 1.
    """
    rows = list(read_rows(path, limit))
    records = [_record(row) for row in rows if not _says_nothing(row)]
    check_rows(path, rows, [record.template_kwargs for record in records])
    if not records:
        raise PromptError(f"{path}: expected a conversation with a human message; got none in {len(rows)} rows")
    if skipped := len(rows) - len(records):
        note = f"{path}: skipped {skipped} of {len(rows)} conversations: no human message"
        tqdm.write(visible(note), file=sys.stderr)
    return records


def _says_nothing(row: PromptRow) -> bool:
    """Whether this is a ShareGPT row as public dumps have some: nobody asks anything in it."""
    turns = row.fields.get("conversations") if _format(row) == "conversations" else None
    if not isinstance(turns, list):
        return False
    roles = [entry.get(_names(entry)[0]) if isinstance(entry, dict) else None for entry in turns]
    return all(isinstance(role, str) and _SHAREGPT_ROLES.get(role, "user") != "user" for role in roles)


def _format(row: PromptRow) -> str | None:
    return next((name for name in _FORMATS if row.fields.filled(name)), None)


def _names(entry: object) -> tuple[str, str]:
    """How a message of ``conversations`` names its role and content."""
    return ("role", "content") if isinstance(entry, dict) and "role" in entry else ("from", "value")


def _record(row: PromptRow) -> PromptRecord:
    name = _format(row)
    if name is None:
        got = ", ".join(row.fields) or "none"
        raise PromptError(f"{row.where}: expected one of the keys {', '.join(_FORMATS)}; got {got}")
    own = row.template_kwargs()
    return PromptRecord(row.prompt_id, row.dataset, *_FORMATS[name](row.fields[name], row.where), own)


_Parsed: TypeAlias = tuple[Conversation, tuple[str, ...]]


def _from_turns(value: object, where: str) -> _Parsed:
    first, *later = (text_of(turn, "each of 'turns'", where) for turn in list_of(value, "turns", where))
    return (Message("user", first),), tuple(later)


def _from_messages(value: object, where: str) -> _Parsed:
    messages = messages_of(value, where)
    return ending_in_user(messages[:-1] if messages[-1].role == "assistant" else messages, where), ()


def _from_sharegpt(value: object, where: str) -> _Parsed:
    messages: list[Message] = []
    for entry in list_of(value, "conversations", where):
        message = message_of(entry, _names(entry), _SHAREGPT_ROLES, where)
        messages += [message] if message.role != "assistant" else []
        if message.role == "user":
            break
    return ending_in_user(tuple(messages), where), ()


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
    if _has_template(tokenizer, messages, template_kwargs):
        ids = _apply(tokenizer, messages, template_kwargs, tokenize=True)
    else:
        ids = tokenizer.encode(_last_user(messages))
    assert isinstance(ids, list)
    if not ids:
        raise PromptError(f"the prompt {_last_user(messages)[:40]!r} has no tokens; expected at least one; remove it")
    return ids


def render_text(tokenizer: Tokenizer, messages: Sequence[Message], template_kwargs: Mapping[str, object]) -> str:
    """What ``render`` encodes, as text; without a template, special tokens are not shown."""
    if not _has_template(tokenizer, messages, template_kwargs):
        return _last_user(messages)
    return str(_apply(tokenizer, messages, template_kwargs, tokenize=False))


def _has_template(tokenizer: Tokenizer, messages: Sequence[Message], template_kwargs: Mapping[str, object]) -> bool:
    has_template = bool(template_kwargs.get("chat_template") or tokenizer.chat_template)
    if template_kwargs and not has_template:
        raise PromptError(f"the tokenizer has no chat template to take {', '.join(template_kwargs)}; drop them")
    if not has_template and any(message.role == "tool" or "tool_calls" in message.others for message in messages):
        raise PromptError("the tokenizer has no chat template to take tools and their calls; take these rows out")
    return has_template


def _apply(
    tokenizer: Tokenizer, messages: Sequence[Message], template_kwargs: Mapping[str, object], *, tokenize: bool
) -> object:
    conversation = [{"role": message.role, "content": message.content, **message.others} for message in messages]
    try:
        rendered = tokenizer.apply_chat_template(
            conversation, add_generation_prompt=True, tokenize=tokenize, return_dict=False, **template_kwargs
        )
        template = tokenizer.get_chat_template(template_kwargs.get("chat_template"), template_kwargs.get("tools"))
    except (TemplateError, TypeError, ValueError) as error:
        roles = ", ".join(message.role for message in messages)
        raise PromptError(f"the chat template refused a conversation of {roles}: {error}") from error
    _check_read(template, messages, template_kwargs)
    return rendered


_OF_TRANSFORMERS = ("chat_template", "sanitize_control_tokens")
"""Arguments that choose or follow the template, which does not see them."""


def _check_read(template: str, messages: Sequence[Message], template_kwargs: Mapping[str, object]) -> None:
    """Refuse what was meant to change the prompt, and does not."""
    unread = [key for key in template_kwargs if key not in _OF_TRANSFORMERS and key not in variables_of(template)]
    if "tools" in unread or (
        any("tool_calls" in message.others for message in messages) and "tool_calls" not in template
    ):
        raise PromptError(
            "the chat template does not read tools and their calls, so the model would be asked without them; take "
            "these rows out, or record a target whose template reads them"
        )
    if unread:
        raise PromptError(
            f"the chat template does not read {', '.join(unread)}, so nothing would change; leave it out of the "
            "arguments of the template, or check its name"
        )


@lru_cache(maxsize=16)
def variables_of(template: str) -> frozenset[str]:
    """The variables that a chat template reads; every word of one that jinja2 alone cannot parse.

    >>> sorted(variables_of("{% if thinking %}{{ messages[0].content }}{% endif %}"))
    ['messages', 'thinking']
    """
    try:
        # Parsed and never run; transformers' own tags make a template one that jinja2 alone cannot parse.
        return frozenset(find_undeclared_variables(Environment(extensions=["jinja2.ext.loopcontrols"]).parse(template)))
    except TemplateError:
        return frozenset(re.findall(r"\w+", template))


def _last_user(messages: Sequence[Message]) -> str:
    return next(message.content for message in reversed(messages) if message.role == "user")
