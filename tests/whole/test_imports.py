"""The shape of the code: who may import whom, flat folders, small modules, examples that run."""

import ast
import doctest
import re
import types
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from places import REPOSITORY

FOLDERS = ("traces", "policies", "analysis", "real_runner")
COMMAND_LINE = ("__main__", "cli", "studies")
MAX_LINES = 300
VAGUE_NAMES = {"utils", "common", "misc", "types", "helpers"}

# What a module in each place may import; the command line may import every folder, but only inside functions.
ARROWS: dict[str, set[str]] = {
    "core": {"core"},
    "traces": {"core", "traces"},
    "policies": {"core", "policies"},
    "analysis": {"core", "traces", "policies", "analysis"},
    "real_runner": {"core", "traces", "policies", "real_runner"},
    "command line": {"core", "command line", *FOLDERS},
    "tests": {"core", "command line", *FOLDERS},
}

# Where each heavy package may be used. What is not listed is free.
HOMES: dict[str, set[str]] = {
    "numba": {"core", "policies"},
    "scipy": {"policies", "analysis"},
    "polars": {"traces", "analysis"},
    "plotly": {"analysis"},
    "networkx": {"analysis"},
    "hypothesis": set(),  # but for simlab.testing, inside functions
    "torch": {"real_runner"},
    "transformers": {"real_runner"},
    "safetensors": {"real_runner"},
    "gguf": {"real_runner"},
    "accelerate": {"real_runner"},
    "tokenizers": {"real_runner"},
    "huggingface_hub": {"real_runner"},
}


@dataclass(frozen=True, slots=True)
class Import:
    """One imported name, and whether it is loaded as soon as the module is."""

    name: str
    line: int
    eager: bool
    relative: bool = False


def place_of(path: Path) -> str:
    """The place of a file, given relative to the repository."""
    folder = path.parts[0]
    if folder != "simlab":
        return folder
    return place_of_name(".".join(path.with_suffix("").parts))


def place_of_name(name: str) -> str:
    """The place of a module of this project, by its dotted name."""
    part = [*name.split("."), "__init__"][1]
    if part in FOLDERS:
        return part
    return "command line" if part in COMMAND_LINE else "core"


def imports(node: ast.AST, eager: bool = True) -> Iterator[Import]:
    """Every import below a node; one inside a function or under TYPE_CHECKING is not eager."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
        eager = False
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        yield from (found for child in node.body for found in imports(child, False))
        yield from (found for child in node.orelse for found in imports(child, eager))
        return
    if isinstance(node, ast.Import):
        yield from (Import(alias.name, node.lineno, eager) for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.level:
        yield Import("." * node.level + (node.module or ""), node.lineno, eager, relative=True)
    elif isinstance(node, ast.ImportFrom):
        yield from (Import(f"{node.module}.{alias.name}", node.lineno, eager) for alias in node.names)
    for child in ast.iter_child_nodes(node):
        yield from imports(child, eager)


def fault_of(found: Import, place: str, stem: str) -> str | None:
    """What is wrong with one import, or None."""
    package = found.name.split(".")[0]
    if found.relative:
        return "relative imports are not used"
    if package in FOLDERS:
        return f"write simlab.{package}, never {package}"
    if package == "simlab":
        target = place_of_name(found.name)
        if target not in ARROWS[place]:
            return f"{place} must not import from {target}"
        if place == "command line" and target in FOLDERS and found.eager:
            return f"the command line imports {target} only inside functions"
    if place != "tests" and place not in HOMES.get(package, {place}):
        lazily_tested = (package, place, stem, found.eager) == ("hypothesis", "core", "testing", False)
        return None if lazily_tested else f"{package} is not used in {place}"
    return None


def faults(path: Path, source: str) -> list[str]:
    """What is wrong with the imports and the size of a file, given relative to the repository."""
    place = place_of(path)
    found = [
        f"{path}:{one.line}: {fault}"
        for one in imports(ast.parse(source))
        if (fault := fault_of(one, place, path.stem)) is not None
    ]
    num_lines = len(source.splitlines())
    if place != "tests" and num_lines > MAX_LINES:
        found.append(f"{path}: {num_lines} lines; split before {MAX_LINES}")
    if path.stem in VAGUE_NAMES:
        found.append(f"{path}: split by idea, not into {path.stem}")
    return found


def source_files() -> list[Path]:
    """Every Python file of the project, relative to the repository, under its real folder."""
    folders = ("simlab", *FOLDERS, "tests")
    return sorted(path.relative_to(REPOSITORY) for folder in folders for path in (REPOSITORY / folder).rglob("*.py"))


def examples(page: Path) -> list[tuple[int, str]]:
    """The runnable Python blocks of a page with their lines; a block marked ``python fragment`` is only shown."""
    text = page.read_text(encoding="utf-8")
    blocks = re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    return [(text[: block.start()].count("\n") + 1, block[1]) for block in blocks]


def run_example(code: str) -> None:
    """Runs a block as a module of its own, and the doctests in it."""
    module = types.ModuleType("example")
    exec(compile(code, "example", "exec"), module.__dict__)
    assert doctest.testmod(module).failed == 0


@pytest.mark.parametrize("path", source_files(), ids=str)
def test_file_keeps_to_its_place(path: Path) -> None:
    assert faults(path, (REPOSITORY / path).read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("path", "source", "fault"),
    [
        ("simlab/sequence_replay.py", "import simlab.traces", "core must not import from traces"),
        (
            "simlab/sequence_replay.py",
            "def f():\n    from simlab import policies",
            "core must not import from policies",
        ),
        ("simlab/sequence_replay.py", "from simlab.cli.main import main", "core must not import from command line"),
        ("simlab/__init__.py", "from simlab import cli", "core must not import from command line"),
        ("traces/format/files.py", "from simlab.policies import x", "traces must not import from policies"),
        ("policies/edges.py", "from simlab.traces.format.files import x", "policies must not import from traces"),
        ("analysis/page.py", "import simlab.real_runner.targets.model", "analysis must not import from real_runner"),
        ("real_runner/loop.py", "from simlab import analysis", "real_runner must not import from analysis"),
        (
            "real_runner/loop.py",
            "if TYPE_CHECKING:\n    from simlab.analysis import x",
            "real_runner must not import from analysis",
        ),
        ("policies/edges.py", "import simlab.cli.demo", "policies must not import from command line"),
        ("simlab/cli/main.py", "from simlab.traces import x", "the command line imports traces only inside functions"),
        (
            "simlab/cli/replay.py",
            "class A:\n    import simlab.policies",
            "the command line imports policies only inside functions",
        ),
        (
            "simlab/cli/demo.py",
            "try:\n    from simlab import analysis\nexcept ImportError: ...",
            "only inside functions",
        ),
        ("simlab/cli/main.py", "def f():\n    import torch", "torch is not used in command line"),
        ("traces/format/files.py", "import torch", "torch is not used in traces"),
        ("analysis/page.py", "from transformers import AutoModel", "transformers is not used in analysis"),
        ("policies/edges.py", "import polars as pl", "polars is not used in policies"),
        ("traces/format/files.py", "import plotly.graph_objects", "plotly is not used in traces"),
        ("simlab/tree.py", "import networkx", "networkx is not used in core"),
        ("simlab/testing.py", "import hypothesis", "hypothesis is not used in core"),
        ("policies/edges.py", "from policies import shapes", "write simlab.policies, never policies"),
        ("tests/test_x.py", "import traces.files", "write simlab.traces, never traces"),
        ("policies/edges.py", "from . import shapes", "relative imports are not used"),
        ("policies/edges.py", "from .shapes import x", "relative imports are not used"),
        ("policies/utils.py", "", "split by idea"),
        ("policies/edges.py", "x = 0\n" * 301, "301 lines"),
    ],
)
def test_planted_fault_is_found(path: str, source: str, fault: str) -> None:
    (found,) = faults(Path(path), source)
    assert fault in found


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("simlab/sequence_replay.py", "import numpy as np\nfrom numba import njit\nfrom simlab.tree import DraftTree"),
        ("simlab/cli/main.py", "from simlab.errors import SimlabError\ndef f():\n    from simlab import real_runner"),
        ("simlab/cli/main.py", "if TYPE_CHECKING:\n    from simlab.traces import x"),
        ("simlab/testing.py", "def f():\n    import hypothesis"),
        ("policies/edges.py", "import scipy.stats\nfrom simlab import Draft, Policy"),
        ("analysis/page.py", "import networkx, plotly, polars, scipy\nfrom simlab import policies, traces"),
        ("real_runner/loop.py", "import torch\nfrom simlab.traces import x\nfrom simlab.policies import y"),
        ("tests/test_x.py", "import networkx, polars, torch\nfrom simlab import analysis"),
        ("tests/test_x.py", "x = 0\n" * 301),
    ],
)
def test_proper_file_passes(path: str, source: str) -> None:
    assert faults(Path(path), source) == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_link_leads_to_the_folder(folder: str) -> None:
    link = REPOSITORY / "simlab" / folder
    assert link.is_symlink()
    assert link.readlink() == Path("..") / folder
    assert (link / "__init__.py").is_file()


def test_links_are_the_four_folders() -> None:
    links = {path.name for path in (REPOSITORY / "simlab").iterdir() if path.is_symlink()}
    assert links == set(FOLDERS)


PAGE = REPOSITORY / "docs" / "conventions.md"


@pytest.mark.parametrize(("line", "code"), [pytest.param(*one, id=f"line {one[0]}") for one in examples(PAGE)])
def test_example_runs(line: int, code: str) -> None:
    run_example(code)


def test_examples_are_found_and_a_wrong_one_fails(tmp_path: Path) -> None:
    assert len(examples(PAGE)) >= 10
    page = tmp_path / "page.md"
    page.write_text("a\n\n```python\nassert 1 + 1 == 3\n```\n\n```python fragment\nx\n```\n", encoding="utf-8")
    ((line, code),) = examples(page)
    assert line == 3
    with pytest.raises(AssertionError):
        run_example(code)


def test_wrong_doctest_in_an_example_fails() -> None:
    with pytest.raises(AssertionError):
        run_example('def f():\n    """\n    >>> 1 + 1\n    3\n    """\n')
