"""Policies given as objects: what they are called, and that their ids say what their results depend on."""

import linecache
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import numpy as np
import pytest
from depth import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from simlab.errors import PolicyError
from simlab.policies.named.caddtree import CaDDTree
from simlab.policies.named.chain import Chain
from simlab.policies.named.ddtree import DDTree
from simlab.policies.named.expand_parent import ExpandParentTree
from simlab.policies.parsing.parse import _fitting, _grid, _hints, _pairs, _source, label_of, parse_policies

CELL = """
from dataclasses import dataclass
import numpy as np
from simlab import Draft, DraftTree, Needs, Stateless

@dataclass(frozen=True)
class Mine(Stateless):
    length: int = 3
    weights: object = None

    @property
    def needs(self) -> Needs:
        return Needs(top_k=1)

    @property
    def budget(self) -> int:
        return self.length

    def select(self, draft: Draft, state: None = None) -> DraftTree:
        return DraftTree.chain(draft.root_token, draft.drafted().top_tokens(shortened(self.length)))
"""

HELPER = """
LEAST = 1

def shortened(length):
    return max(length - 0, LEAST)
"""


class Notebook:
    """A module without a file, whose cells are run as IPython runs them."""

    def __init__(self) -> None:
        self.module = types.ModuleType("a_notebook")

    def run(self, cell: str, is_known: bool = True) -> None:
        name = f"/nowhere/ipykernel_1/{uuid4().hex}.py"
        if is_known:
            linecache.cache[name] = (len(cell), None, cell.splitlines(keepends=True), name)
        exec(compile(cell, name, "exec"), vars(self.module))

    def __getitem__(self, name: str) -> Any:  # noqa: ANN401 - anything of a cell
        return getattr(self.module, name)


@pytest.fixture
def notebook(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Notebook]:
    def made(*cells: str) -> Notebook:
        found = Notebook()
        monkeypatch.setitem(sys.modules, "a_notebook", found.module)
        for cell in cells:
            found.run(cell)
        return found

    return made


def id_of(given: Any) -> str:  # noqa: ANN401 - a policy
    (found,) = parse_policies([given])
    return found.policy_id


def test_a_class_of_a_file_is_the_one_that_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "own_policy.py"
    path.write_text(HELPER + CELL, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    mine = __import__("own_policy").Mine
    monkeypatch.delitem(sys.modules, "own_policy")
    typed, other = parse_policies([f"{path}:Mine:length=2", f"{path}:Mine"])
    monkeypatch.setitem(sys.modules, "own_policy", sys.modules[type(typed.policy).__module__])
    sys.modules["own_policy"].__file__ = str(path)
    found, default = parse_policies([mine(length=2), mine])
    assert (found.name, found.policy_id, found.settings) == (typed.name, typed.policy_id, typed.settings)
    assert (default.policy_id, default.label) == (other.policy_id, "Mine")
    assert found.label == label_of(mine(length=2)) == "Mine:length=2"


@pytest.mark.parametrize(
    ("given", "typed"),
    [
        (DDTree(16), "ddtree:budget=16"),
        (Chain, "chain"),
        (Chain(3), "chain:length=3"),
        (ExpandParentTree(budget=8), "expand-parent:budget=8"),
    ],
)
def test_a_built_in_policy_is_the_one_that_is_typed(given: Any, typed: str) -> None:  # noqa: ANN401
    (found,), (same,) = parse_policies([given]), parse_policies([typed])
    assert (found.label, found.name, found.policy_id) == (same.label, same.name, same.policy_id)
    assert len(parse_policies([given, typed])) == 1


@given(
    st.integers(1, 512),
    st.sampled_from(["auto", "runs/a.json", "true", "3", "1e3", 'a"b', "a..b", "a,b", "\N{SNOWMAN}", "-", "a=b"]),
)
@settings(max_examples=examples(60))
def test_a_text_in_a_label_is_read_as_it_was(budget: int, text: str) -> None:
    policy = CaDDTree(budget=budget, cost=text)
    source, settings_text = _source(label_of(policy))
    hints = _hints(source)
    read = {
        key: _fitting("", key, next(_grid("", value)), hints[key]) for key, value in _pairs(source, "", settings_text)
    }
    assert source.make(**read) == policy


def test_one_policy_alone_is_one(notebook: Callable[..., Notebook]) -> None:
    mine = notebook(HELPER, CELL)["Mine"]
    assert [one.label for one in parse_policies("chain")] == ["chain"]
    assert [one.label for one in parse_policies(mine(2))] == ["Mine:length=2"]
    assert [one.label for one in parse_policies(mine)] == ["Mine"]
    assert [one.name for one in parse_policies(mine)] == ["a_notebook:Mine"]


def test_the_id_of_a_notebook_s_class_follows_what_it_uses(notebook: Callable[..., Notebook]) -> None:
    first = id_of(notebook(HELPER, CELL)["Mine"])
    assert id_of(notebook(HELPER, CELL + "\nunrelated = 1\n")["Mine"]) == first
    assert id_of(notebook("other = [1]\n", HELPER, CELL)["Mine"]) == first
    changed = [
        (HELPER, CELL.replace("top_k=1", "top_k=2")),
        (HELPER.replace("- 0", "- 1"), CELL),
        (HELPER.replace("LEAST = 1", "LEAST = 2"), CELL),
    ]
    ids = {id_of(notebook(*cells)["Mine"]) for cells in changed}
    assert len(ids | {first}) == 4


def test_what_is_no_plain_value_counts_by_its_content(notebook: Callable[..., Notebook]) -> None:
    mine = notebook(HELPER, CELL)["Mine"]
    given = [np.zeros(3), np.zeros(3), np.ones(3), (1, 2), {"a": 1}]
    ids = [id_of(mine(weights=weights)) for weights in given]
    assert ids[0] == ids[1]
    assert len(set(ids)) == 4
    (found,) = parse_policies([mine(weights=np.ones(3))])
    assert found.settings == {"length": 3}
    assert found.label.startswith("Mine:weights=")
    with pytest.raises(PolicyError, match="cannot tell what it holds"):
        parse_policies([mine(weights=object())])


def test_what_has_no_id_is_refused(notebook: Callable[..., Notebook]) -> None:
    unknown = notebook(HELPER)
    unknown.run(CELL, is_known=False)
    with pytest.raises(PolicyError, match="source of the class Mine is not known here.*put the class in a file"):
        parse_policies([unknown["Mine"]])
    reads = notebook(HELPER.replace("LEAST = 1", "LEAST = object()"), CELL)["Mine"]
    with pytest.raises(PolicyError, match="the variable `LEAST`, which `Mine` reads, is a object"):
        parse_policies([reads])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (3, "got 3, which is of type int"),
        (int, "got int, which is of type type"),
        (None, "got None, which is of type NoneType"),
        (object(), "is a text such as ddtree:budget=16, an object with a method `select`"),
    ],
)
def test_what_is_no_policy_is_refused(given: Any, said: str) -> None:  # noqa: ANN401
    with pytest.raises(PolicyError, match=said):
        parse_policies([given])


def test_a_policy_keeps_what_every_policy_promises(notebook: Callable[..., Notebook]) -> None:
    without = notebook(HELPER, CELL.replace("return self.length", "return -1"))["Mine"]
    with pytest.raises(PolicyError, match=r"`Mine`: `budget`, .* at least 0; got -1"):
        parse_policies([without])
    needed = notebook(HELPER, CELL.replace("length: int = 3", "length: int"))["Mine"]
    with pytest.raises(PolicyError, match="Mine needs a length"):
        parse_policies([needed])
    taken = notebook(HELPER, CELL.replace("class Mine", "class chain"))["chain"]
    with pytest.raises(PolicyError, match="may not be called `chain`"):
        parse_policies([taken])


def test_two_classes_of_one_name_are_refused(notebook: Callable[..., Notebook]) -> None:
    book = notebook(HELPER, CELL)
    first = book["Mine"]()
    book.run(CELL.replace("top_k=1", "top_k=2"))
    with pytest.raises(PolicyError, match="two different policies are called `Mine`"):
        parse_policies([first, book["Mine"]()])
