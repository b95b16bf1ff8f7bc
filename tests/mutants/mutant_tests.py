"""Which tests are asked about a module: its mirror, then the nearest by imports, then a few that use everything."""

import ast
from collections import deque
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path

PRODUCT = ("simlab", "traces", "policies", "analysis", "real_runner")

BROAD = (
    "tests/policies/engine/test_replay.py",
    "tests/simlab/studies/replay/test_replay.py",
    "tests/simlab/studies/replay/test_batch.py",
    "tests/whole/test_ids.py",
    "tests/whole/test_outputs.py",
)
"""Asked about every module, after the first."""

POLICIES = "tests/policies/test_policies.py"
"""What every policy keeps; asked about all that policies are made of."""

SLOW = (
    "tests/whole/",
    "tests/docs/",
    "tests/real_runner/",
    "tests/mutants/",
    "tests/simlab/studies/demo/test_demo.py",
)
"""Not asked, unless they are in the mirror of a module's folder, or broad."""

QUICK = ("tests/real_runner/checkpoints/", "tests/real_runner/record/", "tests/real_runner/confirm/test_producers.py")
HEAVY = (
    "tests/simlab/cli/test_report_in_browser.py",
    "tests/simlab/studies/test_public_face.py",
    "tests/real_runner/record/test_record_killed.py",
    "tests/real_runner/record/test_recording_at_scale.py",
)
"""Never among the first, unless they are a module's mirror."""

NEAR = 4
FAR = 5
"""Most files of the first and of the second asking."""

FAR_AWAY = 99
"""Steps to a module that is not reached."""


def module_name(path: Path) -> str:
    """The name under which a file of the repository is imported."""
    parts = path.with_suffix("").parts
    parts = parts if parts[0] == "simlab" else ("simlab", *parts)
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _written_imports(source: str) -> list[tuple[str, str | None]]:
    """Every import of a file: the module, and the name taken from it."""
    found: list[tuple[str, str | None]] = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found += [(name.name, None) for name in node.names]
        if isinstance(node, ast.ImportFrom) and node.module:
            found += [(node.module, name.name) for name in node.names]
    return found


class ImportGraph:
    """Who imports whom in the product, a name that a package hands on being taken from where it is written."""

    def __init__(self, root: Path) -> None:
        folders = (root / folder for folder in PRODUCT)
        paths = (path.relative_to(root) for folder in folders for path in folder.rglob("*.py"))
        self._written = {
            module_name(path): _written_imports((root / path).read_text(encoding="utf-8")) for path in paths
        }
        self.graph = {name: self.resolved(written) - {name} for name, written in self._written.items()}

    def _origin(self, module: str, name: str | None) -> str | None:
        if name is None or module not in self._written:
            return module if module in self._written else None
        if f"{module}.{name}" in self._written:
            return f"{module}.{name}"
        handed_on = [origin for origin, one in self._written[module] if one == name and origin != module]
        return self._origin(handed_on[0], name) if handed_on else module

    def resolved(self, written: Iterable[tuple[str, str | None]]) -> set[str]:
        """The product's modules behind some imports."""
        return {origin for one in written if (origin := self._origin(*one)) is not None}


def distances(graph: Mapping[str, Iterable[str]], module: str) -> dict[str, int]:
    """Steps from a module to each that imports it, itself 0."""
    importers: dict[str, list[str]] = {}
    for name, wanted in graph.items():
        for one in wanted:
            importers.setdefault(one, []).append(name)
    found, waiting = {module: 0}, deque([module])
    while waiting:
        one = waiting.popleft()
        for importer in importers.get(one, ()):
            if importer not in found:
                found[importer] = found[one] + 1
                waiting.append(importer)
    return found


@cache
def _graph(root: Path) -> ImportGraph:
    """The imports of a tree, in which mutants change no import."""
    return ImportGraph(root)


@cache
def _imports_of_tests(root: Path, imports: ImportGraph) -> dict[str, tuple[set[str], set[str]]]:
    """For each file of tests the product's modules that it imports itself, and those that its helpers do."""
    helpers = {
        path.stem: _written_imports(path.read_text(encoding="utf-8")) for path in root.glob("tests/helpers/*.py")
    }
    found = {}
    for path in sorted((root / "tests").rglob("test_*.py")):
        written = _written_imports(path.read_text(encoding="utf-8"))
        lent = [name for module, _ in written for name in helpers.get(module, ())]
        found[path.relative_to(root).as_posix()] = imports.resolved(written), imports.resolved(lent)
    return found


def _mirrored_folder(module: Path) -> str:
    return f"tests/{module.parent.as_posix()}/"


FOLDERS = "confirm demo engines export inspect optimize profile prompts replay report reproduce"
STUDIES = {
    **{one: f"{one}/" for one in FOLDERS.split()},
    **dict.fromkeys(("table", "results", "engine"), "replay/"),
    **dict.fromkeys(("advise", "crosscheck", "candidates"), "engines/"),
    **{one: f"test_{one}.py" for one in ("compare", "curves", "merge", "scoring")},
    "parsing": "test_policies.py",
}
"""By the name of a package or module, where the tests of the study that uses it are."""


def _study(module: Path) -> str | None:
    """How the files of tests of a module's study begin; a module of a study has its mirror."""
    if module.is_relative_to("simlab/studies"):
        return None
    names = (one for one in (*reversed(module.parent.parts), module.stem) if one in STUDIES)
    name = next(names, None)
    return None if name is None else f"tests/simlab/studies/{STUDIES[name]}"


def files_to_ask(root: Path, module: Path) -> tuple[list[str], list[str]]:
    """Files of tests to ask first, and to ask when the first are content."""
    graph = _graph(root)
    near = distances(graph.graph, module_name(module))
    mirror = f"{_mirrored_folder(module)}test_{module.stem}.py"
    study = _study(module)

    def rank(file: str, own: set[str], lent: set[str]) -> tuple[bool, bool, int, bool, int]:
        # What a helper imports says less of the test: a helper of many tests would make all of them equally near.
        ways = [near[name] for name in own if name in near] + [near[name] + 1 for name in lent if name in near]
        steps = min(ways, default=FAR_AWAY)
        of_study = study is not None and file.startswith(study)
        related = of_study or file.startswith(_mirrored_folder(module))
        return file != mirror, steps > 0 and not related, 0 if of_study else steps, not related, len(own | lent)

    imports = _imports_of_tests(root, graph)
    asked = {
        file: rank(file, *names)
        for file, names in imports.items()
        if file == mirror or file.startswith((*QUICK, _mirrored_folder(module))) or not file.startswith(SLOW)
    }
    order = sorted(asked, key=lambda file: (asked[file], file))
    order = [file for file in order if asked[file][2] < FAR_AWAY or not asked[file][1]]
    near_by = [file for file in order if not asked[file][1] and (file not in HEAVY or file == mirror)]
    first = near_by[:NEAR] or order[:2]
    second = [file for file in order if file not in first][:FAR]
    wide = (POLICIES, *BROAD) if module.parts[0] == "policies" else BROAD
    broad = [file for file in wide if file in imports and file not in (*first, *second)]
    return first, [*broad, *second]
