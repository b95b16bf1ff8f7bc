"""The page of the field: its tables are those of its JSON, and its sentences quote nothing else."""

import importlib.util
import json
import re
from types import ModuleType

import pytest
from places import DOCS

PAGE, DATA = DOCS / "explanation" / "field.md", DOCS / "measurements" / "field.json"
NUMBER = re.compile(r"[−+]?\d+\.\d+")


@pytest.fixture(scope="module")
def maker() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_field", DOCS / "make_field.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_tables_are_those_of_the_json(maker: ModuleType) -> None:
    page = PAGE.read_text()
    assert maker.page_with_tables(page, json.loads(DATA.read_text())) == page
    asked = re.findall(r"<!-- table (\S+) -->", page)
    assert asked == list(dict.fromkeys(asked))
    assert set(asked) == set(maker.TABLES)


def test_sentences_quote_the_tables_alone(maker: ModuleType) -> None:
    page = PAGE.read_text()
    sentences = re.sub(
        r"```.*?```|`[^`]*`", "", re.sub(r"<!-- table.*?<!-- end -->", "", page, flags=re.DOTALL), flags=re.DOTALL
    )
    tables = set(NUMBER.findall(" ".join(make(json.loads(DATA.read_text())) for make in maker.TABLES.values())))
    bare = {table.lstrip("+") for table in tables}
    quoted = [one for one in NUMBER.findall(re.sub(r"\]\([^)]*\)", "", sentences)) if one.lstrip("+") not in bare]
    assert not quoted, f"figures that no table of the page has: {quoted}"


def test_a_changed_figure_changes_the_page(maker: ModuleType) -> None:
    field = json.loads(DATA.read_text())
    row = next(one for one in field["rows"] if one["slice"] == "all" and one["size"] == "16" and one["gain_tokens"])
    row["gain_tokens"] += 0.5
    page = PAGE.read_text()
    assert maker.page_with_tables(page, field) != page


def test_the_runs_are_what_the_page_says() -> None:
    field = json.loads(DATA.read_text())
    assert not field["has_failed"]
    assert all(one["rounds_equal_replay"] for one in field["confirmations"])
    assert all(one["same_texts"] == one["texts"] for one in field["confirmations"])
    assert field["prompts"] == {"gsm8k": 16, "mbpp": 16, "humaneval": 16, "mt_bench": 16}
