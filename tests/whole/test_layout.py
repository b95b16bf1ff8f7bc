"""The layout: packages that can be held in the head, modules of one thing, names and docstrings that stand alone."""

import ast
import doctest
import re
import types
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from places import DOCS, REPOSITORY
from source_files import FOLDERS, source_files

MOST_MODULES, MANY_MODULES = 15, 32
"""Modules in a folder; see decision 5 for those that hold many alike."""

ALIKE = ("decoding", "cli", "named")

MOST_LINES = 500

BUDGET = {
    "simlab": 28_510,
    "traces": 11_080,
    "policies": 14_330,
    "analysis": 12_810,
    "real_runner": 27_220,
    "tests": 68_820,
}
"""Lines of Python of a folder; to raise a number takes a line in decision 12."""

MOST_PRODUCT_MODULES = 501
VAGUE_NAMES = {"utils", "common", "misc", "types", "helpers"}
VAGUE_VARIABLES = {"found", "handed", "one", "said", "told"}
"""Names of variables that do not say what they hold; convention 5."""

TAKEN_NAMES = {"target", "build", "dist", "spec", "test"}
"""Names of folders that other programs take for something else."""

LEAST_WORDS = 4
LEANING = ("Of ", "The same", "For ", "Its ")
"""A first line that begins so leans on a name beside it."""


def folders() -> list[Path]:
    """Every folder of the product with Python files, relative to the repository."""
    return sorted({path.parent for path in source_files()})


def leaning_docstrings(source: str) -> list[str]:
    """First lines of docstrings that do not stand alone."""
    nodes = (
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
    )
    texts = map(ast.get_docstring, nodes)
    firsts = (text.strip().split("\n")[0] for text in texts if text)
    return [first for first in firsts if len(first.split()) < LEAST_WORDS or first.startswith(LEANING)]


def vague_variables(source: str) -> set[str]:
    """Variables and parameters whose names do not say what they hold."""
    nodes = list(ast.walk(ast.parse(source)))
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    return VAGUE_VARIABLES & (names | {node.arg for node in nodes if isinstance(node, ast.arg)})


def folder_faults(folder: Path, modules: int) -> Iterator[str]:
    most = MANY_MODULES if folder.name in ALIKE else MOST_MODULES
    if modules > most:
        yield f"{folder} holds {modules} modules; at most {most}"
    if not (REPOSITORY / folder / "__init__.py").is_file():
        yield f"{folder} has no __init__.py"
    if folder.name in TAKEN_NAMES:
        yield f"other programs take {folder} for something else"


def module_faults(path: Path, source: str) -> Iterator[str]:
    lines = len(source.splitlines())
    if lines > MOST_LINES:
        yield f"{path} has {lines} lines; at most {MOST_LINES}"
    if path.stem in VAGUE_NAMES:
        yield f"{path} does not say what it holds"
    yield from (f"{path}: the variable {name!r} does not say what it holds" for name in sorted(vague_variables(source)))
    yield from (f"{path}: {first!r} leans on a name beside it" for first in leaning_docstrings(source))


def test_folders_are_a_handful() -> None:
    modules = Counter(path.parent for path in source_files())
    assert [fault for folder in folders() for fault in folder_faults(folder, modules[folder])] == []


def test_modules_are_one_thing() -> None:
    sources = ((path, (REPOSITORY / path).read_text(encoding="utf-8")) for path in source_files())
    assert [fault for path, source in sources for fault in module_faults(path, source)] == []


def test_folders_keep_to_their_budget() -> None:
    paths = {folder: [path for path in source_files() if path.parts[0] == folder] for folder in BUDGET}
    paths["tests"] = [path.relative_to(REPOSITORY) for path in (REPOSITORY / "tests").rglob("*.py")]
    lines = {
        folder: sum(len((REPOSITORY / path).read_text(encoding="utf-8").splitlines()) for path in own)
        for folder, own in paths.items()
    }
    assert {folder: num for folder, num in lines.items() if num > BUDGET[folder]} == {}
    assert len(source_files()) <= MOST_PRODUCT_MODULES


def test_planted_faults_are_found() -> None:
    assert len(list(folder_faults(Path("simlab/target"), MOST_MODULES + 1))) == 3
    assert len(list(module_faults(Path("simlab/utils.py"), '"""Two words."""\n' * (MOST_LINES + 1)))) == 3
    assert vague_variables("def f(one):\n    return [found for found in one.told]\n") == {"one", "found"}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('"""Two words."""', ["Two words."]),
        (
            '"""A module that stands alone."""\ndef f():\n    """Of the whole trace at once."""',
            ["Of the whole trace at once."],
        ),
        ('class A:\n    """The same for all of the slices."""', ["The same for all of the slices."]),
        ('"""A module that stands alone."""', []),
    ],
)
def test_a_docstring_that_leans_is_found(source: str, found: list[str]) -> None:
    assert leaning_docstrings(source) == found


def test_links_are_the_four_folders() -> None:
    links = {path.name: path.readlink() for path in (REPOSITORY / "simlab").iterdir() if path.is_symlink()}
    assert links == {folder: Path("..") / folder for folder in FOLDERS}


def test_tests_mirror_the_folders() -> None:
    tests = REPOSITORY / "tests"
    mirrored = [path for path in tests.rglob("test_*.py") if path.relative_to(tests).parts[0] in ("simlab", *FOLDERS)]
    packages = {folder.as_posix() for folder in folders()}
    strays = {path.parent.relative_to(tests).as_posix() for path in mirrored} - packages
    assert strays == set()


def examples(page: Path) -> Iterator[tuple[int, str]]:
    """The runnable Python blocks of a page with their lines; a block marked ``python fragment`` is only shown."""
    text = page.read_text(encoding="utf-8")
    blocks = re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return ((text[: block.start()].count("\n") + 1, block[1]) for block in blocks)


def run_example(code: str) -> None:
    """Run a block as a module of its own, and the doctests in it."""
    module = types.ModuleType("example")
    exec(compile(code, "example", "exec"), module.__dict__)
    assert doctest.testmod(module).failed == 0


PAGE = DOCS / "development" / "conventions.md"


def test_examples_of_the_conventions_run() -> None:
    blocks = list(examples(PAGE))
    assert len(blocks) >= 10
    for _, code in blocks:
        run_example(code)


def test_a_wrong_example_fails(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("a\n\n```python\nassert 1 + 1 == 3\n```\n\n```python fragment\nx\n```\n", encoding="utf-8")
    ((line, code),) = examples(page)
    assert line == 3
    with pytest.raises(AssertionError):
        run_example(code)


def test_wrong_doctest_in_an_example_fails() -> None:
    with pytest.raises(AssertionError):
        run_example('def f():\n    """\n    >>> 1 + 1\n    3\n    """\n')
