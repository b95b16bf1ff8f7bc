"""JSON of others: what the standard library reads within limits is read alike, the rest refused with a reason."""

import contextlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from simlab.untrusted.json_text import MOST_DEEP, parse_json

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
