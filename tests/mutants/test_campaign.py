"""The campaign of mutants itself: what it plants, whom it asks, which kernels it takes away, what it says."""

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("cosmic_ray", reason="not installed: pip install -e '.[mutants]'")

from campaign import EQUIVALENT, Campaign, Workshop, compiled, report
from mutant_places import FOLDERS, Mutant, changed_lines, mutants, sample
from mutant_tests import ImportGraph, files_to_ask
from places import REPOSITORY, TESTS

SOURCE = '''"""A module with 1 number in its text."""

from dataclasses import dataclass

__all__ = ["half" + "s"]


@dataclass(frozen=True)
class Halves:
    """Two or more."""

    number: int | None = None

    def half(self, of: int | float) -> float | None:
        if of < 0:
            raise ValueError("less than" + f"{0 + 0}")
        return of / 2
'''


def test_only_what_runs_is_mutated() -> None:
    found = {
        changed_lines(SOURCE, mutant.apply(SOURCE))
        for choice in mutants("half.py", SOURCE).values()
        for mutant in choice
    }
    assert {before for before, _ in found} == {"if of < 0:", "return of / 2"}
    assert ("return of / 2", "return of * 2") in found
    assert ("if of < 0:", "if of <= 0:") in found


def test_an_exception_that_cosmic_ray_cannot_replace_is_left_alone(tmp_path: Path) -> None:
    source = "import a\n\ntry:\n    x = 1\nexcept (*a.FAILURES, a.Error):\n    x = 2\n"
    for folder in FOLDERS:
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "simlab" / "starred.py").write_text(source)
    lines = {seed: [mutant.apply(source) for mutant in sample(tmp_path, seed)] for seed in range(8)}
    assert all(2 <= len(found) <= 3 for found in lines.values())


@pytest.mark.parametrize(
    ("module", "first"),
    [
        ("simlab/tree.py", "tests/simlab/test_tree.py"),
        ("policies/orders/node_order.py", "tests/policies/orders/test_best_first.py"),
        ("simlab/studies/fit_tables.py", "tests/simlab/studies/test_fit_tables.py"),
        ("analysis/statistics/slices.py", "tests/analysis/compare/test_comparisons.py"),
    ],
)
def test_the_nearest_tests_are_asked_first(module: str, first: str) -> None:
    near, far = files_to_ask(REPOSITORY, Path(module))
    assert first == near[0]
    assert not set(near) & set(far)
    assert all((REPOSITORY / file).exists() for file in (*near, *far))


def test_a_name_that_a_package_hands_on_is_taken_from_where_it_is_written() -> None:
    imports = ImportGraph(REPOSITORY)
    assert imports.resolved([("simlab", "DraftTree"), ("simlab.tree", "DraftTree")]) == {"simlab.tree"}
    assert "simlab.policies.kernels.insertion" in compiled(imports.graph)
    assert "simlab.analysis.table.text" not in compiled(imports.graph)


def test_kernels_of_callers_go_and_others_stay(tmp_path: Path) -> None:
    shop = Workshop(tmp_path)
    names = (
        "edges_12/ngram.counted-3.py311.nbi",
        "kernels_34/walk.step-9.py311.1.nbc",
        "edges_12/models.f-1.py311.nbi",
    )
    for name in names:
        path = shop.kernels / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    graph = {"simlab.edges.ngram": set(), "simlab.kernels.walk": {"simlab.edges.ngram"}, "simlab.edges.models": set()}
    left = shop.kernels_without("simlab/edges/ngram.py", graph)
    assert [path.name for path in left.rglob("*.nb?")] == ["models.f-1.py311.nbi"]
    assert len(list(shop.kernels.rglob("*.nb?"))) == 3


def small_shop(folder: Path, asserted: str) -> Campaign:
    """A tree of one module and one test, with what the test asserts."""
    tree = folder / "tree"
    (tree / "simlab").mkdir(parents=True)
    (tree / "tests" / "simlab").mkdir(parents=True)
    (folder / "kernels").mkdir()
    (tree / "simlab" / "__init__.py").write_text("")
    (tree / "simlab" / "two.py").write_text("def two():\n    return 2\n")
    (tree / "tests" / "simlab" / "test_two.py").write_text(
        f"from simlab.two import two\n\n\ndef test_two():\n    assert {asserted}\n"
    )
    shutil.copy(TESTS / "conftest.py", tree / "tests")
    (tree / "pytest.ini").write_text(f"[pytest]\npythonpath = {TESTS / 'helpers'}\n")
    return Campaign(Workshop(folder), ImportGraph(tree))


@pytest.mark.parametrize(
    ("asserted", "outcome", "by"),
    [
        ("two() == 2", "caught", "tests/simlab/test_two.py::test_two"),
        ("two()", "survived", ""),
        ("False", "survived", ""),
    ],
)
def test_a_mutant_is_caught_by_a_test_that_is_content_without_it(
    tmp_path: Path, asserted: str, outcome: str, by: str
) -> None:
    campaign = small_shop(tmp_path, asserted)
    before = (tmp_path / "tree/simlab/two.py").stat()
    mutant = Mutant("simlab/two.py", 2, "core/NumberReplacer", 0)
    campaign.run(7, mutant)
    for number in campaign.check():
        campaign.run(number, mutant)
    (row,) = campaign.latest().values()
    assert (row["number"], row["outcome"], row["by"]) == (7, outcome, by)
    assert (row["before"], row["after"]) == ("return 2", "return 3")
    after = (tmp_path / "tree/simlab/two.py").stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)


def test_equivalent_mutants_are_of_lines_that_are_there() -> None:
    for row in json.loads(EQUIVALENT.read_text(encoding="utf-8")):
        lines = " ".join((REPOSITORY / row["module"]).read_text(encoding="utf-8").split())
        assert " ".join(row["before"].split()) in lines
        assert len(row["reason"].split()) > 3


def test_the_report_names_survivors() -> None:
    row = {"number": 1, "module": "simlab/two.py", "line": 2, "before": "return 2", "after": "return 3"}
    assert report([row | {"outcome": "survived"}, row | {"number": 2, "outcome": "caught"}]) == (
        "1 of 2 mutants caught (50.0%); 0 more change no behaviour\n\nsimlab/two.py:2\n- return 2\n+ return 3"
    )
