"""JSON of others: what the standard library reads within limits is read alike, the rest refused with a reason."""

import ast
import contextlib
import json
import math
import os
from pathlib import Path

import pytest
from commands import refusal_of
from hypothesis import given
from hypothesis import strategies as st
from places import REPOSITORY
from source_files import source_files

from simlab.untrusted.json_text import MOST_DEEP, file_bytes, file_text, parse_json

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8"))
)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=20)


@given(VALUES, st.booleans())
def test_what_is_within_the_limits_is_read_as_by_the_standard_library(value: object, escaped: bool) -> None:
    text = json.dumps(value, ensure_ascii=escaped)
    assert parse_json(text) == json.loads(text) == parse_json(text.encode())


@given(st.binary(max_size=60) | st.text(max_size=60))
def test_anything_else_is_refused_with_a_reason(text: bytes | str) -> None:
    with contextlib.suppress(ValueError):
        parse_json(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' stands twice"),
        ("[" * (MOST_DEEP + 2) + "]" * (MOST_DEEP + 2), "nested deeper"),
        ("[" * 100_000 + "]" * 100_000, "nested deeper"),
        ('{"a":' * 2_000 + "1" + "}" * 2_000, "nested deeper"),
        ("9" * 400, "400 digits does not fit into 64 bits"),
        ("-" + "9" * 5_000, "5000 digits"),
        (str(2**63), "19 digits does not fit"),
        ("1e999", "too large"),
        ("[NaN]", "NaN is no number"),
        ("-Infinity", "is no number"),
        ('"\\ud800"', "half of a UTF-16 pair"),
        ('{"\\udc00": 1}', "half of a UTF-16 pair"),
        (b'"\xff"', "not UTF-8"),
        ("\ufeff1", "BOM"),
        ("", "Expecting value"),
    ],
)
def test_what_another_reader_would_take_otherwise(text: str | bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_json(text)


def test_the_limits_themselves_are_within() -> None:
    deep: object = json.loads("[" * MOST_DEEP + "]" * MOST_DEEP)
    assert parse_json(json.dumps(deep)) == deep
    assert parse_json(f"[{2**63 - 1}, {-(2**63)}, {math.nextafter(math.inf, 0)!r}]") == [
        2**63 - 1,
        -(2**63),
        math.nextafter(math.inf, 0),
    ]
    assert parse_json('"\\ud83d\\ude00"') == "\U0001f600"


def test_a_file_is_read_and_what_is_none_is_refused_without_waiting(tmp_path: Path) -> None:
    (tmp_path / "whole").write_bytes(b"\xef\xbb\xbfcaf\xc3\xa9")
    (tmp_path / "link").symlink_to(tmp_path / "whole")
    assert file_text(tmp_path / "link", "utf-8-sig") == "caf\xe9"
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/zero")):
        with pytest.raises(OSError, match="a pipe or a device; write what it gives to a file") as caught:
            file_bytes(path)
        assert caught.value.filename == str(path)
    with pytest.raises(IsADirectoryError):
        file_bytes(tmp_path)


@pytest.mark.parametrize(
    "typed",
    [
        "replay -p chain --cost PIPE",
        "import PIPE --counts root-included --out OUT",
        "record --prompts PIPE --out OUT",
        "train ngram --text PIPE --out OUT",
        "prompts gsm8k --from PIPE --out OUT",
        "confirm --from PIPE",
        "inspect PIPE",
    ],
)
def test_commands_wait_for_no_pipe(typed: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    names = {"PIPE": str(tmp_path / "pipe"), "OUT": str(tmp_path / "out")}
    assert "a pipe or a device; write what it gives to a file" in refusal_of(*(names.get(w, w) for w in typed.split()))
    assert not (tmp_path / "out").exists()


OWN = {
    "simlab/limits.py",
    "simlab/studies/profile/profile.py",
    "real_runner/profile/machine.py",
    "simlab/cli/completion.py",
    "analysis/report/page.py",
    "traces/fetching/store.py",
    "traces/fetching/addresses.py",
    "traces/decoded.py",
    "traces/writer.py",
    "real_runner/targets/builtin.py",
    "simlab/untrusted/json_text.py",
}
"""Modules that open files of simlab's own making, of the system, or (`traces.decoded`) in a stricter way."""


def reads_a_file(node: ast.AST) -> bool:
    """Whether this is a call that opens a file to be read, by whatever way but `open_file`'s own."""
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func).split(".")[-1]
    if name in ("read_bytes", "read_text"):
        return isinstance(node.func, ast.Attribute) and not node.args
    modes = [value.value for value in node.args if isinstance(value, ast.Constant) and isinstance(value.value, str)]
    is_text = any(word.arg == "encoding" for word in node.keywords) and not modes
    return name == "open" and (is_text or any(set(mode) <= set("rbt") for mode in modes))


def test_no_reader_goes_around_the_door() -> None:
    calls = [
        (path.as_posix(), ast.unparse(node))
        for path in source_files()
        for node in ast.walk(ast.parse((REPOSITORY / path).read_text(encoding="utf-8")))
        if reads_a_file(node)
    ]
    assert len(calls) > 10
    # Data of a package's own, the copy that `inspect --sign` made, and what fsspec opens.
    kept = ("files('simlab", "(files('simlab", "copy.read_bytes", "system.open")
    assert [call for call in calls if call[0] not in OWN and not call[1].startswith(kept)] == []


@pytest.mark.parametrize(
    "typed",
    [
        *(
            "replay --trace LOOP",
            "inspect LOOP",
            "compare LOOP -p chain --against ddtree:budget=4",
            "export --push x --trace LOOP",
        ),
        *("replay --trace ~no-such-user/x", "inspect ~no-such-user/x", "replay -p ~no-such-user/x.py:Mine"),
        *("merge a.parquet b.parquet --out LOOP", "merge . LOOP --out LOOP"),
    ],
)
def test_paths_that_lead_nowhere_are_refused(typed: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link to itself, and the home of nobody: what pathlib answers with a RuntimeError."""
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    assert refusal_of(*typed.replace("LOOP", "loop").split())
    assert [one.name for one in tmp_path.iterdir()] == ["loop"]
