"""Pages of measurements whose tables a script writes say what their files say."""

import importlib
import json

import pytest
from places import DOCS, REPOSITORY


@pytest.mark.parametrize(("name", "shown"), [("make_diagnosis", "| none |"), ("make_quantised", "2.052")])
def test_a_page_is_what_its_file_makes_it(name: str, shown: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DOCS))
    script = importlib.import_module(name)
    text, values = ((REPOSITORY / path).read_text(encoding="utf-8") for path in (script.PAGE, script.DATA))
    assert script.page_of(text, json.loads(values)) == text
    planted = text.replace(shown, "| 9.999 |", 1)
    assert planted != text
    assert script.page_of(planted, json.loads(values)) == text
