"""The floors of the code: who may import whom, and where each heavy package is used."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from places import REPOSITORY
from source_files import FOLDERS, source_files

LAYERS: tuple[tuple[str, ...], ...] = (
    ("core",),
    ("simlab.sampling", "simlab.testing", "simlab.untrusted", "simlab.workers"),
    ("simlab.traces", "simlab.policies"),
    ("simlab.analysis", "simlab.real_runner"),
    ("simlab.studies.result", "simlab.studies.inputs"),
    ("simlab.studies.replay", "simlab.studies.inspect", "simlab.studies.record"),
    (
        "simlab.studies.compare",
        "simlab.studies.confirm",
        "simlab.studies.curves",
        "simlab.studies.engines",
        "simlab.studies.export",
        "simlab.studies.fit_ngram",
        "simlab.studies.fit_tables",
        "simlab.studies.merge",
        "simlab.studies.optimize",
        "simlab.studies.policies",
        "simlab.studies.profile",
        "simlab.studies.prompts",
        "simlab.studies.report",
        "simlab.studies.reproduce",
        "simlab.studies.scoring",
        "simlab.studies.show_round",
        "simlab.studies.engines",
    ),
    ("simlab.studies.demo", "simlab.studies.field", "simlab.studies.plot"),
    ("simlab.cli",),
    ("simlab.__main__",),
)
"""The layers of the whole, lowest first: a layer imports from itself and from lower ones.

Of one layer only what stands together in a name knows each other: `simlab.traces` does not know `simlab.policies`,
and no study but the demo knows another one; the shared ones are below. `analysis` and `real_runner` know both folders
under them. The face of the package, `simlab.__init__`, names all studies and loads them when they are used.
"""

FLOORS: dict[str, tuple[tuple[str, ...], ...]] = {
    "traces": (
        ("fetching", "parquet"),
        ("format",),
        ("channels",),
        ("results", "artefacts"),
        ("decoded",),
        ("reader", "writer"),
        ("adder", "parts"),
        ("imported", "inspect", "publication", "texts"),
    ),
    "policies": (
        ("edges", "costs", "settings"),
        ("artefacts",),
        ("kernels",),
        ("orders",),
        ("rules",),
        ("composition",),
        ("routing",),
        ("named",),
        ("engine", "fits", "conformance"),
        ("__init__",),
        ("parsing",),
    ),
    "analysis": (
        ("figure_style", "trees"),
        ("statistics",),
        ("table", "engines"),
        ("compare", "crosscheck"),
        (
            "optimize",
            "confirm",
            "curves",
            "scoring",
            "engine_rules",
            "export",
            "advise",
        ),
        ("report",),
    ),
    "real_runner": (
        ("attention",),
        ("targets",),
        ("drafters",),
        ("checkpoints", "execution"),
        ("networks",),
        ("model_options",),
        ("models",),
        ("decoding",),
        ("tap_offset",),
        ("record", "profile"),
        ("train", "confirm"),
    ),
}
"""The floors inside each folder, lowest first: a package imports from itself and from lower floors."""

# Where each heavy package may be used. What is not listed is free.
HOMES: dict[str, set[str]] = {
    "numba": {"core", "simlab.sampling", "simlab.policies"},
    "scipy": {"simlab.policies", "simlab.analysis"},
    "polars": {"simlab.traces", "simlab.analysis", "simlab.studies"},
    "plotly": {"simlab.analysis"},
    "networkx": {"simlab.analysis"},
    "hypothesis": set(),
    "torch": {"simlab.real_runner"},
    "transformers": {"simlab.real_runner"},
    "safetensors": {"simlab.real_runner"},
    "gguf": {"simlab.real_runner"},
    "accelerate": {"simlab.real_runner"},
    "tokenizers": {"simlab.real_runner"},
    "huggingface_hub": {"simlab.real_runner", "simlab.traces"},
    "fsspec": {"simlab.traces"},
    "prometheus_client": {"simlab.analysis"},
    "ray": {"simlab.workers"},
}

MOST_INSIDE_FUNCTIONS = 40


@dataclass(frozen=True, slots=True)
class Import:
    """One imported name, and whether it is inside a function."""

    name: str
    line: int
    inside: bool
    relative: bool = False


def module_of(path: Path) -> str:
    """The dotted name of a file; a package's ``__init__`` keeps its name."""
    parts = path.with_suffix("").parts
    return ".".join(parts if parts[0] == "simlab" else ("simlab", *parts))


def imports(node: ast.AST, inside: bool = False) -> Iterator[Import]:
    """Every import below a node."""
    inside = inside or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
    if isinstance(node, ast.Import):
        yield from (Import(alias.name, node.lineno, inside) for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        name = "." * node.level + (node.module or "")
        yield from (Import(f"{name}.{alias.name}", node.lineno, inside, bool(node.level)) for alias in node.names)
    for child in ast.iter_child_nodes(node):
        yield from imports(child, inside)


def layer_of(name: str) -> tuple[int, str]:
    """The number of a module's layer, and the part of it that the module stands in."""
    for number, parts in enumerate(LAYERS):
        for part in parts:
            if name == part or name.startswith(f"{part}."):
                return number, part
    return 0, "core"


def floor_of(folder: str, name: str) -> int | None:
    """The number of a module's floor within its folder; None where it has none."""
    part = [*name.split("."), "__init__"][2]
    if not part.islower():  # a name of the package's face, such as POLICIES
        part = "__init__"
    return next((number for number, floor in enumerate(FLOORS[folder]) if part in floor), None)


def package_fault(importing: str, imported: str) -> str | None:
    """What is wrong with an import of one module of the product by another, or None."""
    (own, part), (other, other_part) = layer_of(importing), layer_of(imported)
    if other > own:
        return f"{part} must not import from {other_part}"
    if other == own and part != other_part and "simlab.testing" not in (part, other_part):
        return f"{part} must not import from {other_part}"
    folder = part.removeprefix("simlab.")
    if part == other_part and folder in FLOORS:
        mine, its = floor_of(folder, importing), floor_of(folder, imported)
        same = importing.split(".")[2:3] == imported.split(".")[2:3]
        if mine is None or its is None:
            return f"{importing if mine is None else imported} has no floor in {folder}"
        if its > mine or (its == mine and not same):
            return f"{folder}: {importing} stands on a floor that does not see {imported}"
    return None


def fault_of(found: Import, importing: str) -> str | None:
    """What is wrong with one import, or None."""
    package = found.name.split(".")[0]
    if found.relative:
        return "relative imports are not used"
    if package in FOLDERS:
        return f"write simlab.{package}, never {package}"
    if package == "simlab":
        return None if importing == "simlab.__init__" else package_fault(importing, found.name)
    part = layer_of(importing)[1]
    homes = HOMES.get(package)
    if homes is None or any(part == home or part.startswith(f"{home}.") for home in homes):
        return None
    return f"{package} is not used in {part}"


def faults(module: str, source: str) -> list[str]:
    """What is wrong with the imports of a module."""
    found = ((one, fault_of(one, module)) for one in imports(ast.parse(source)))
    return [f"{module}:{node.line}: {fault}" for node, fault in found if fault is not None]


def test_modules_keep_to_their_floors() -> None:
    sources = ((path, (REPOSITORY / path).read_text(encoding="utf-8")) for path in source_files())
    assert [fault for path, source in sources for fault in faults(module_of(path), source)] == []


@pytest.mark.parametrize(
    ("module", "source", "fault"),
    [
        ("simlab.draft", "import simlab.traces.reader", "core must not import from simlab.traces"),
        (
            "simlab.draft",
            "def f():\n    from simlab.policies.named import chain",
            "core must not import from simlab.pol",
        ),
        ("simlab.draft", "from simlab.cli.main import main", "core must not import from simlab.cli"),
        ("simlab.draft", "from simlab.studies.compare import compare", "core must not import from simlab.studies"),
        ("simlab.traces.reader", "from simlab.policies import x", "traces must not import from simlab.policies"),
        ("simlab.policies.edges.models", "from simlab.traces.reader import x", "must not import from simlab.traces"),
        ("simlab.analysis.table.text", "import simlab.real_runner.models", "must not import from simlab.real_runner"),
        ("simlab.real_runner.models", "from simlab.analysis import x", "must not import from simlab.analysis"),
        (
            "simlab.real_runner.models",
            "if TYPE_CHECKING:\n    from simlab.analysis import x",
            "must not import from simlab.analysis",
        ),
        ("simlab.policies.edges.models", "import simlab.cli.record", "must not import from simlab.cli"),
        ("simlab.studies.compare", "from simlab.cli.main import COMMANDS", "must not import from simlab.cli"),
        ("simlab.studies.compare", "from simlab.studies.curves import x", "must not import from simlab.studies.curves"),
        (
            "simlab.studies.inputs.trace",
            "from simlab.studies.replay import x",
            "must not import from simlab.studies.rep",
        ),
        (
            "simlab.policies.edges.models",
            "from simlab.policies.orders.best_first import x",
            "a floor that does not see",
        ),
        ("simlab.policies.named.chain", "from simlab.policies.engine.replay import x", "a floor that does not see"),
        ("simlab.policies.fits.price", "from simlab.policies.engine.replay import x", "a floor that does not see"),
        ("simlab.traces.format.files", "from simlab.traces.reader import x", "a floor that does not see"),
        ("simlab.analysis.table.text", "from simlab.analysis.report.page import x", "a floor that does not see"),
        ("simlab.real_runner.targets.model", "from simlab.real_runner.record.record import x", "that does not see"),
        ("simlab.analysis.new.text", "from simlab.analysis.table.text import x", "new.text has no floor in analysis"),
        ("simlab.cli.main", "def f():\n    import torch", "torch is not used in simlab.cli"),
        ("simlab.cli.main", "import polars", "polars is not used in simlab.cli"),
        ("simlab.traces.reader", "import torch", "torch is not used in simlab.traces"),
        ("simlab.policies.edges.models", "import polars as pl", "polars is not used in simlab.policies"),
        ("simlab.tree", "import networkx", "networkx is not used in core"),
        ("simlab.testing.contract", "import hypothesis", "hypothesis is not used in simlab.testing"),
        ("simlab.policies.edges.models", "from policies import x", "write simlab.policies, never policies"),
        ("simlab.policies.edges.models", "from .children import x", "relative imports are not used"),
    ],
)
def test_planted_fault_is_found(module: str, source: str, fault: str) -> None:
    (found,) = faults(module, source)
    assert fault in found


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("simlab.sequence_replay", "import numpy as np\nfrom numba import njit\nfrom simlab.tree import DraftTree"),
        ("simlab.policies.named.chain", "import scipy.special\nfrom simlab.policies.rules.budgets import x"),
        ("simlab.analysis.report.page", "import networkx, plotly, polars, scipy\nfrom simlab import policies, traces"),
        ("simlab.real_runner.models", "import torch\nfrom simlab.traces.reader import x\nimport simlab.policies.named"),
        ("simlab.studies.compare", "import polars\nfrom simlab.studies.replay.replay import replay"),
        ("simlab.studies.demo.live", "from simlab.studies.report.report import report"),
        ("simlab.cli.optimize", "from simlab.studies.replay.replay import replay"),
    ],
)
def test_proper_module_passes(module: str, source: str) -> None:
    assert faults(module, source) == []


def test_few_imports_stand_inside_functions() -> None:
    sources = ((path, (REPOSITORY / path).read_text(encoding="utf-8")) for path in source_files())
    found = [
        f"{path}:{one.line} {one.name}" for path, text in sources for one in imports(ast.parse(text)) if one.inside
    ]
    assert len({one.split()[0] for one in found}) < MOST_INSIDE_FUNCTIONS, "\n".join(found)


def test_every_part_has_a_layer_or_a_floor() -> None:
    """A new package is put on its floor by whoever makes it; a layer or floor without a package is taken away."""
    there = {module_of(path) for path in source_files()}
    named = {part for parts in LAYERS for part in parts} - {"core"}
    floors = {
        f"simlab.{folder}.{part}" for folder, all_floors in FLOORS.items() for floor in all_floors for part in floor
    }
    for name in sorted(named | floors):
        assert any(one == name or one.startswith(f"{name}.") for one in there), f"there is no {name}"
    studies = {".".join(one.split(".")[:3]) for one in there if one.startswith("simlab.studies.")}
    assert studies - {"simlab.studies.__init__"} <= named
