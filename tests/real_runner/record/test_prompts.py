"""Prompt and completion files, and their rendering."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from places import SHARED
from tokenizers import Tokenizer as RawTokenizer
from tokenizers import decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from simlab.errors import PromptError
from simlab.real_runner.model_options import parse_template_kwargs
from simlab.real_runner.record.prompts import (
    Message,
    PromptRecord,
    Tokenizer,
    next_turn,
    read_prompts,
    render,
    render_text,
    with_own,
)
from simlab.real_runner.record.sources import (
    Completion,
    CompletionIds,
    CompletionText,
    Sources,
    completion_ids,
    read_completions,
    shared_kwargs,
)

TEMPLATE = (
    "{% for m in messages %}{% if m.role == 'developer' %}{{ raise_exception('no developer here') }}{% endif %}"
    "<|{{ m.role }}|>{{ m.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}{% if thinking %}<think>{% endif %}"
)
SPECIAL = ["<s>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<think>"]
HI = Message("user", "Hi")

Write = Callable[..., Path]


def user(content: object) -> dict[str, object]:
    return {"role": "user", "content": content}


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def to_file(*rows: object, name: str = "some.jsonl") -> Path:
        path = tmp_path / name
        path.write_bytes(b"".join(json.dumps(row, ensure_ascii=False).encode() + b"\n" for row in rows))
        return path

    return to_file


def byte_tokenizer(template: str | None) -> PreTrainedTokenizerFast:
    """Ids 0 to 5 are ``SPECIAL``, then one id a byte; ``encode`` puts ``<s>`` in front."""
    vocabulary = {token: index for index, token in enumerate(SPECIAL + sorted(pre_tokenizers.ByteLevel.alphabet()))}
    raw = RawTokenizer(models.BPE(vocab=vocabulary, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    raw.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])
    raw.add_special_tokens(SPECIAL)
    return PreTrainedTokenizerFast(tokenizer_object=raw, bos_token="<s>", eos_token="<|end|>", chat_template=template)


@pytest.fixture(scope="module")
def chat() -> Tokenizer:
    return byte_tokenizer(TEMPLATE)


@pytest.fixture(scope="module")
def base() -> Tokenizer:
    return byte_tokenizer(None)


# Prompt files: the formats.


def test_messages_keep_the_given_context(write: Write) -> None:
    given_rows = [("system", ""), ("user", "Hi"), ("assistant", "Yes?"), ("user", "Go")]
    messages = [{"role": role, "content": content} for role, content in given_rows]
    expected = tuple(Message(role, content) for role, content in given_rows)
    path = write({"messages": messages}, {"messages": [*messages, {"role": "assistant", "content": "Gone"}]})
    assert read_prompts(path) == [PromptRecord(f"some-{row}", "some", expected) for row in range(2)]


SHAREGPT = [
    {"from": "system", "value": "Be brief"},
    {"from": "gpt", "value": "Left over"},
    {"from": "human", "value": "Hi"},
    {"from": "gpt", "value": "Hello"},
    {"from": "human", "value": "More"},
]


def test_sharegpt_as_a_list_and_as_lines(write: Write) -> None:
    row = {"id": "q_0", "conversations": SHAREGPT}
    expected = [PromptRecord("q_0", "some", (Message("system", "Be brief"), HI))]
    assert read_prompts(write(row)) == expected
    assert read_prompts(write([row], name="some.json")) == expected
    words = {"human": "user", "gpt": "assistant", "system": "system"}
    named = [{"role": words[one["from"]], "content": one["value"]} for one in SHAREGPT]
    assert read_prompts(write(row | {"conversations": named})) == expected


def test_conversations_in_which_nobody_asks_are_skipped_and_counted(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    named = [{"role": "system", "content": "Be brief"}]
    silent = [{"conversations": []}, {"conversations": SHAREGPT[:2]}, {"conversations": named}]
    (found,) = read_prompts(write(silent[0], {"conversations": SHAREGPT}, *silent[1:]))
    assert found.prompt_id == "some-1"
    assert "skipped 3 of 4 conversations" in capsys.readouterr().err
    with pytest.raises(PromptError, match="expected a conversation with a human message; got none in 3 rows"):
        read_prompts(write(*silent))


def test_rows_past_the_limit_are_not_looked_at(write: Write) -> None:
    path = write({"prompt": "Hi"}, {"prompt": "Ho"}, "not an object")
    assert len(read_prompts(path, limit=2)) == 2
    with pytest.raises(ValueError, match="at least 1; got 0"):
        read_prompts(path, limit=0)


@pytest.mark.parametrize("end", [b"", b"\n", b"\r\n", b"\n\n"])
def test_line_ends_and_a_byte_order_mark(tmp_path: Path, end: bytes) -> None:
    path = tmp_path / "some.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + b'{"prompt": "Hi"}\r\n{"prompt": "Ho"}' + end)
    assert [record.conversation[0].content for record in read_prompts(path)] == ["Hi", "Ho"]


line_ends = st.sampled_from("\u2028\u2029\x85\x0b\x0c\x1c\x1d\x1e\r\n\ufeff ")
texts = st.lists(st.text(st.characters(codec="utf-8") | line_ends, min_size=1), min_size=1, max_size=4)


@given(turns=texts)
@settings(max_examples=examples(60))
def test_every_text_comes_back_as_it_was(tmp_path_factory: pytest.TempPathFactory, turns: list[str]) -> None:
    path = tmp_path_factory.mktemp("texts") / "some.jsonl"
    path.write_bytes(json.dumps({"turns": turns}, ensure_ascii=False).encode() + b"\n")
    [record] = read_prompts(path)
    assert [record.conversation[0].content, *record.later_turns] == turns


# Prompt files: tools, arguments of the template, and keys that nobody reads.

CALL = {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city": "Oslo"}'}}
CALLING: dict[str, object] = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "3"}
TOOLS = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
WITH_TOOLS = (
    "{% for t in tools or [] %}<tool>{{ t.function.name }}{% endfor %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
    "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }}({{ c.function.arguments.city }}){% endfor %}"
    "{% endfor %}{% if enable_thinking is defined and not enable_thinking %}<off>{% endif %}"
)


def test_tools_calls_and_arguments_of_a_row_reach_the_template(write: Write) -> None:
    asked = [{"role": "user", "content": "Oslo?"}, CALLING, RESULT]
    row = {"messages": asked, "tools": TOOLS, "chat_template_kwargs": {"enable_thinking": False}}
    (found,) = read_prompts(write(row))
    kwargs = with_own({}, found.template_kwargs)
    rendered = "<tool>weather<|user|>Oslo?<|assistant|><call>weather(Oslo)<|tool|>3<off>"
    tokenizer = byte_tokenizer(WITH_TOOLS)
    assert render_text(tokenizer, found.conversation, kwargs) == rendered
    (completion,) = read_completions(write(row | {"completion": "Cold."}))
    prompt_ids, _ = completion_ids(tokenizer, completion, {})
    assert prompt_ids == tokenizer.encode(rendered, add_special_tokens=False)
    # A trace names the arguments of all its rows; tools are in the tokens of each prompt.
    assert shared_kwargs(Sources((found,)), {}) == {"enable_thinking": False}
    with pytest.raises(PromptError, match="enable_thinking=false and --chat-template-kwargs gives true"):
        with_own({"enable_thinking": True}, found.template_kwargs)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"prompt": "Hi", "tools": TOOLS}, "does not read tools and their calls"),
        ({"messages": [user("Hi"), CALLING, RESULT]}, "does not read tools and their calls"),
        ({"prompt": "Hi", "chat_template_kwargs": {"enable_thinking": False}}, "does not read enable_thinking"),
    ],
)
def test_what_the_template_does_not_read_is_refused(
    write: Write, chat: Tokenizer, base: Tokenizer, row: dict[str, object], says: str
) -> None:
    (found,) = read_prompts(write(row))
    with pytest.raises(PromptError, match=says):
        render(chat, found.conversation, found.template_kwargs)
    with pytest.raises(PromptError, match="has no chat template to take"):
        render(base, found.conversation, found.template_kwargs)


def test_arguments_that_change_from_row_to_row_are_refused(write: Write) -> None:
    path = write({"prompt": "Hi", "chat_template_kwargs": {"enable_thinking": False}}, {"prompt": "Ho"})
    with pytest.raises(PromptError, match="the same chat_template_kwargs in all rows"):
        read_prompts(path)


def test_keys_that_nobody_reads_are_named(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    read_prompts(write({"id": "a", "prompt": "Hi", "system": "Be brief", "category": "x", "note": None}))
    assert capsys.readouterr().err.strip().endswith("keys of its rows that are not used: system, category")
    read_completions(write({"prompt": "Hi", "completion": "Ho", "finish_reason": "stop", "seed": 3}))
    assert capsys.readouterr().err.strip().endswith("not used: seed")
    read_prompts(write({"id": "a", "dataset": "d", "turns": ["Hi"], "tools": []}))
    assert not capsys.readouterr().err


# Prompt files: the errors.


@pytest.mark.parametrize(
    ("row", "says"),
    [
        (["Hi"], "expected a JSON object; got list"),
        ({}, "expected one of the keys turns, .*; got none"),
        ({"question": "Hi"}, "got question"),
        ({"turns": []}, "at least one entry for 'turns'; got list"),
        ({"turns": "Hi"}, "for 'turns'; got str"),
        ({"turns": ["Hi", ""]}, "each of 'turns' to be text that is not empty"),
        ({"turns": ["Hi", 3]}, "got int 3"),
        ({"prompt": ["Hi"]}, "'prompt' to be text"),
        ({"prompt": ""}, "'prompt' to be text that is not empty"),
        ({"id": "", "prompt": "Hi"}, "'id' to be text"),
        ({"id": True, "prompt": "Hi"}, "'id' to be text"),
        ({"dataset": 1, "prompt": "Hi"}, "'dataset' to be text"),
        ({"messages": []}, "at least one entry for 'messages'"),
        ({"messages": ["Hi"]}, "each message to be an object"),
        ({"messages": [{"role": "bot", "content": "Hi"}]}, "'role' to be one of system, .*got str"),
        ({"messages": [{"role": "tool", "content": "Hi"}]}, "expected a user message as the last one"),
        (
            {"messages": [user("Hi"), {**CALLING, "tool_calls": ["a"]}, user("So?")]},
            "each of 'tool_calls' to be an object",
        ),
        ({"messages": [user("Hi")], "tools": "[]"}, "'tools' to be a list of objects"),
        ({"prompt": "Hi", "chat_template_kwargs": "x"}, "'chat_template_kwargs' to be an object"),
        ({"prompt": "Hi", "chat_template_kwargs": {"tokenize": False}}, "may not set tokenize"),
        ({"messages": [{"role": ["user"], "content": "Hi"}]}, "'role' to be one of"),
        ({"messages": [user(None)]}, "'content' of each message to be text that is not empty; got null"),
        ({"messages": [user("")]}, "'content' of each message"),
        ({"messages": [{"role": "assistant", "content": "Hi"}]}, "expected a user message as the last one.*got none"),
        ({"messages": [{"role": "system", "content": "Hi"}]}, "got one from system"),
        ({"conversations": [{"from": "bot", "value": "Hi"}]}, "'from' to be one of system, human"),
        ({"conversations": [{"from": "human", "value": 3}]}, "'value' of each message"),
    ],
)
def test_a_row_that_cannot_be_used(write: Write, row: object, says: str) -> None:
    path = write({"prompt": "Hi"}, row)
    with pytest.raises(PromptError, match=f"some.jsonl, line 2: .*{says}"):
        read_prompts(path)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"", "line 1: expected one JSON object a line; got an empty file"),
        (b" \n\n", "line 1: .*got an empty file"),
        (b'{"prompt": "Hi"}\n{"prompt": "Hi"', "line 2: .*got invalid JSON"),
        (b'{"prompt": "Hi"}\n\n{"prompt": "Hi"}', "line 2: .*got invalid JSON"),
        (b'{"prompt": "Hi"}\n{"prompt": "\xe9"}', "line 2: expected UTF-8; got the byte 0xe9"),
        (b'{"prompt": "\\ud83d"}', "line 1: .*got invalid JSON: it holds half of a UTF-16 pair"),
        (b"[]", "at least one entry for 'the JSON list'"),
        (b'[\n{"prompt": "Hi"},\n{"prompt" "Hi"}]', "line 3: .*got invalid JSON"),
        (b'[\n{"prompt": "Hi"},\n{"prompt": "\xe9"}]', "line 3: expected UTF-8"),
        (b'[{"prompt": "Hi"}, 3]', "entry 2: expected a JSON object; got int 3"),
        (b'{"a": ' + b"[" * 200_000, "line 1: .*got invalid JSON"),
        (b'{"a": ' + b"1" * 5_000 + b"}", "line 1: .*got invalid JSON"),
    ],
)
def test_a_file_that_cannot_be_used(tmp_path: Path, data: bytes, says: str) -> None:
    path = tmp_path / "some.jsonl"
    path.write_bytes(data)
    with pytest.raises(PromptError, match=says):
        read_prompts(path)


def test_two_rows_with_one_id(write: Write) -> None:
    path = write({"id": "some-1", "prompt": "Hi"}, {"prompt": "Ho"})
    with pytest.raises(PromptError, match=r"line 2: .*got 'some-1', as in .*line 1"):
        read_prompts(path)


# Rendering.


def test_what_the_template_refuses(chat: Tokenizer) -> None:
    with pytest.raises(PromptError, match="refused a conversation of developer, user: no developer here"):
        render(chat, [Message("developer", "Hi"), HI], {})
    with pytest.raises(PromptError, match="refused a conversation of user"):
        render_text(chat, [HI], {"tokenize": True})


def test_without_a_template_the_last_user_message_is_encoded(base: Tokenizer) -> None:
    messages = next_turn([HI], "Hello", "More")
    assert render(base, messages, {}) == [SPECIAL.index("<s>"), *base.encode("More", add_special_tokens=False)]
    assert render_text(base, messages, {}) == "More"
    with pytest.raises(PromptError, match="no chat template to take thinking"):
        render(base, [HI], {"thinking": True})
    assert render_text(base, [HI], {"chat_template": TEMPLATE}) == "<|user|>Hi<|end|><|assistant|>"


def test_template_arguments_of_the_command_line() -> None:
    assert parse_template_kwargs('{"enable_thinking": false}') == {"enable_thinking": False}
    for text in ("", "[]", "thinking=1", "null", '{"a": NaN}', "[" * 200_000):
        with pytest.raises(PromptError, match="must be a JSON object such as"):
            parse_template_kwargs(text)
    with pytest.raises(PromptError, match="may not set return_dict, tokenize"):
        parse_template_kwargs('{"tokenize": false, "thinking": true, "return_dict": true}')


# Completions.

HELLO = {"role": "assistant", "content": "Hello"}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"prompt_token_ids": [1, 2], "token_ids": [0]}, CompletionIds((1, 2), (0,))),
        ({"prompt": "Hi", "completion": "Hello"}, CompletionText((HI,), "Hello", finished=False)),
        ({"prompt": "Hi", "text": "Hello", "finish_reason": "stop"}, CompletionText((HI,), "Hello", finished=True)),
        (
            {"prompt": "Hi", "output": "Hello", "finish_reason": "length"},
            CompletionText((HI,), "Hello", finished=False),
        ),
        ({"prompt": [user("Hi")], "output": "Hello"}, CompletionText((HI,), "Hello", finished=False)),
        ({"messages": [user("Hi"), HELLO, user("More")]}, CompletionText((HI,), "Hello", finished=False)),
        (
            {"messages": [user("A"), HELLO, user("Hi"), HELLO]},
            CompletionText((Message("user", "A"), Message("assistant", "Hello"), HI), "Hello", finished=False),
        ),
        (
            {"prompt": "Hi", "choices": [{"text": "Hello", "finish_reason": "stop"}]},
            CompletionText((HI,), "Hello", finished=True),
        ),
        (
            {"messages": [user("Hi")], "choices": [{"message": HELLO, "finish_reason": None}]},
            CompletionText((HI,), "Hello", finished=False),
        ),
    ],
)
def test_formats_of_completions(write: Write, row: dict[str, object], expected: CompletionIds | CompletionText) -> None:
    path = write(row, {"id": "x", "dataset": "d", **row})
    assert read_completions(path) == [Completion("some-0", "some", expected), Completion("x", "d", expected)]
    assert len(read_completions(path, limit=1)) == 1


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ({"prompt": "Hi"}, "expected one of the keys token_ids, choices, .*; got prompt"),
        ({}, "got none"),
        ({"token_ids": [1]}, "'prompt_token_ids'; got null"),
        ({"prompt_token_ids": [], "token_ids": [1]}, "at least one entry for 'prompt_token_ids'"),
        ({"prompt_token_ids": [1], "token_ids": []}, "at least one entry for 'token_ids'"),
        ({"prompt_token_ids": [1], "token_ids": [1.0]}, "'token_ids' to hold token ids from 0 on; got 1.0"),
        ({"prompt_token_ids": [True], "token_ids": [1]}, "got True"),
        ({"prompt_token_ids": [-1], "token_ids": [1]}, "got -1"),
        ({"prompt_token_ids": [2**31], "token_ids": [1]}, "got 2147483648"),
        ({"prompt": "Hi", "text": ""}, "'text' to be text that is not empty"),
        ({"prompt": "Hi", "text": "a", "output": "b"}, "got text, output; keep one"),
        ({"text": "a"}, "'prompt' to be text that is not empty; got null"),
        ({"prompt": [HELLO], "text": "a"}, "expected a user message"),
        ({"prompt": "Hi", "text": "a", "finish_reason": 1}, "'finish_reason' to be text"),
        ({"prompt": "Hi", "choices": []}, "at least one entry for 'choices'"),
        ({"prompt": "Hi", "choices": [{"text": "a"}, {"text": "b"}]}, "expected one object in 'choices'; got 2"),
        ({"prompt": "Hi", "choices": ["a"]}, "expected one object in 'choices'"),
        ({"prompt": "Hi", "choices": [{"text": ""}]}, "'text' or 'message.content' of 'choices'"),
        ({"prompt": "Hi", "choices": [{"message": {"content": None}}]}, "'text' or 'message.content'"),
        ({"messages": [user("Hi")]}, "expected an assistant message"),
        ({"messages": [user("Hi"), {"role": "assistant", "content": ""}]}, "expected an assistant message"),
        ({"messages": [HELLO]}, "expected a user message"),
    ],
)
def test_a_completion_that_cannot_be_used(write: Write, row: object, says: str) -> None:
    path = write({"prompt": "Hi", "text": "Hello"}, row)
    with pytest.raises(PromptError, match=f"some.jsonl, line 2: .*{says}"):
        read_completions(path)


def test_ids_of_completions(chat: Tokenizer) -> None:
    hello = chat.encode("Hello", add_special_tokens=False)
    for finished, stop, ends in ((True, 1, [1]), (True, None, []), (False, 1, [])):
        completion = Completion("a", "d", CompletionText((HI,), "Hello", finished))
        assert completion_ids(chat, completion, {}, stop) == (render(chat, [HI], {}), hello + ends)
    ended = Completion("a", "d", CompletionText((HI,), "Hello<|end|>", finished=True))
    assert completion_ids(chat, ended, {}, 1)[1] == [*hello, 1]


# Real files and a real tokenizer, where they are at hand.


@pytest.mark.skipif(not SHARED.is_dir(), reason="the real prompt files are not here")
def test_real_prompt_files() -> None:
    for path in sorted((SHARED / "prompts").glob("*.jsonl")):
        assert len(read_prompts(path)) == path.read_bytes().count(b"\n")
