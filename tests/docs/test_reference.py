"""The pages of docs/reference that are made from the code are what the code says; the site's hook."""

import ast
import importlib.util
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from places import DOCS

import simlab


def loaded(path: Path) -> ModuleType:
    """A script of docs/ as a module."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


GENERATOR = loaded(DOCS / "generate_reference.py")
HOOK = loaded(DOCS / "site" / "hook.py")


def plain(page: str) -> str:
    """A page without what differs between versions of Python: how help is wrapped, and an option's value said twice."""
    text = re.sub(r"(?<=\s)(-\w) ([A-Z]+), (--[\w-]+ \2)", r"\1, \3", page)
    return " ".join(text.split())


def test_pages_are_what_the_code_says() -> None:
    texts = {name: (DOCS / "reference" / name).read_text(encoding="utf-8") for name in GENERATOR.PAGES}
    stale = [name for name, text in texts.items() if plain(text) != plain(GENERATOR.PAGES[name]())]
    assert stale == [], "run `make reference`"


def test_options_are_compared_whatever_python_prints() -> None:
    assert plain("  -p POLICY, --policy POLICY\n     said") == plain("  -p, --policy POLICY   said")


def test_every_command_and_kind_is_found() -> None:
    names = list(GENERATOR.command_names())
    assert {("replay",), ("confirm",), ("train", "dflash"), ("version",)} <= set(names)
    assert len(names) == len(set(names)) >= 20


def test_every_public_name_is_on_the_page() -> None:
    page = GENERATOR.python_page()
    assert set(re.findall(r"^## (\S+)$", page, re.MULTILINE)) >= set(simlab.__all__)


def test_a_signature_is_written_as_the_source_has_it() -> None:
    source = "def f(a, /, b: int = 3, *rest: str, c: float | None = None) -> list[str]: ..."
    (node,) = ast.parse(source).body
    assert GENERATOR._signature(node) == source[4:-5]
    long = f"def f(a: {'x' * 60}, *, b: {'y' * 60} = 1): ..."
    (node,) = ast.parse(long).body
    assert GENERATOR._signature(node) == f"f(\n    a: {'x' * 60},\n    *,\n    b: {'y' * 60} = 1,\n)"


def test_links_out_of_the_docs_become_text(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    (tmp_path / "code.py").touch()
    page = SimpleNamespace(file=SimpleNamespace(abs_src_path=str(tmp_path / "docs" / "page.md")))
    config = SimpleNamespace(docs_dir=str(tmp_path / "docs"))
    text = "[`code`](../code.py) [b](b.md#c) [d](https://e.org)\n\n```python fragment\n[x](../code.py)\n```\n"
    shown = HOOK.on_page_markdown(text, page, config, None)
    assert shown == "`code` [b](b.md#c) [d](https://e.org)\n\n```python\n[x](../code.py)\n```\n"
    with pytest.raises(ValueError, match="leads to no file"):
        HOOK.on_page_markdown("[gone](../gone.py)", page, config, None)
