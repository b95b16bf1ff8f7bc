"""Pages of measurements whose tables a script writes say what their files say."""

import importlib
import json

import pytest
from places import DOCS, REPOSITORY


@pytest.mark.parametrize(("name", "shown"), [("make_diagnosis", "| none |"), ("make_quantised", "2.052")])
def test_a_page_is_what_its_file_makes_it(name: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    script, claims = importlib.import_module(name), importlib.import_module("make_claims")
    text, values = ((REPOSITORY / path).read_text(encoding="utf-8") for path in (script.PAGE, script.DATA))
    parts = script.parts(json.loads(values))
    assert claims.written(text, parts) == text
    planted = text.replace(shown, "| 9.999 |", 1)
    assert planted != text
    assert claims.written(planted, parts) == text
