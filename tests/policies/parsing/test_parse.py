"""Policies as people type them."""

from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from made_up_costs import random_table

from simlab.cost import CostTable
from simlab.errors import PolicyError, SimlabError
from simlab.policies import POLICIES
from simlab.policies.artefacts import NoArtefacts
from simlab.policies.composition import Composition
from simlab.policies.edges.models import Marginal
from simlab.policies.named.autoregressive import Autoregressive
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.parsing.describe import describe
from simlab.policies.parsing.parse import parse_policies
from simlab.policies.rules.budgets import FixedBudget
from simlab.studies.optimize.space import parse_entry
from simlab.testing import check_policy

MINE = """
from dataclasses import dataclass
from typing import Literal
from simlab import Draft, DraftTree, Needs, Stateless

@dataclass(frozen=True, slots=True)
class Mine(Stateless):
    budget: int
    share: float = 0.5
    mode: str = "wide"
    careful: bool = False
    note: str | None = None

    @property
    def needs(self) -> Needs:
        return Needs(top_k=1)

    def select(self, draft: Draft, state: None = None) -> DraftTree:
        return DraftTree.chain(draft.root_token, draft.drafted().top_tokens(self.budget))

@dataclass(frozen=True)
class Coloured(Mine):
    colour: Literal["red", "blue"] = "red"

@dataclass(frozen=True)
class Listed(Mine):
    widths: tuple = (1, 2)

@dataclass(frozen=True)
class Unknown(Mine):
    table: "NowhereTable | None" = None

class NoDataclass(Stateless):
    def select(self, draft, state=None):
        return None

class NoPolicy:
    pass
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    path = tmp_path / "mine.py"
    path.write_text(MINE, encoding="utf-8")
    return path


def labels(*texts: str) -> list[str]:
    return [one.label for one in parse_policies(texts)]


def test_names_and_settings() -> None:
    found = parse_policies(["ar", "chain", "chain:length=5", "ddtree:budget=64"])
    plain, *others = [one.policy for one in found]
    assert plain == Autoregressive()
    assert [repr(one) for one in others] == ["chain", "chain:length=5", "ddtree:budget=64"]
    assert isinstance(others[-1], Composition)
    assert (others[-1].order, others[-1].rule) == (BestFirst(Marginal()), FixedBudget(64))
    assert [one.label for one in found] == ["autoregressive", "chain", "chain:length=5", "ddtree:budget=64"]
    assert [one.name for one in found] == ["ar", "chain", "chain", "ddtree"]
    assert [dict(one.settings) for one in found] == [{}, {"length": None}, {"length": 5}, {"budget": 64}]


def test_grids() -> None:
    assert labels("ddtree:budget=16/32/64") == [f"ddtree:budget={budget}" for budget in (16, 32, 64)]
    assert labels("ddtree:budget=3..5/8") == [f"ddtree:budget={budget}" for budget in (3, 4, 5, 8)]
    assert len(labels("ddtree:budget=1..512")) == 512


def test_several_grids_make_every_combination_in_order(mine: Path) -> None:
    assert labels(f"{mine}:Mine:budget=1/2,share=0.25/1") == [
        f"{mine}:Mine:budget={budget},share={share}" for budget in (1, 2) for share in ("0.25", "1")
    ]


def test_a_point_asked_for_twice_is_there_once() -> None:
    assert labels("chain", "ddtree:budget=4/8", "chain:length=null", "ddtree:budget=8/2") == [
        "chain",
        "ddtree:budget=4",
        "ddtree:budget=8",
        "ddtree:budget=2",
    ]


def test_ids_depend_on_settings_and_not_on_the_way_they_were_typed(mine: Path, tmp_path: Path) -> None:
    def the_id(text: str) -> str:
        (found,) = parse_policies([text])
        return found.policy_id

    assert the_id("chain") == the_id("chain:length=null")
    assert len({the_id(text) for text in ("ar", "chain", "chain:length=1", "ddtree:budget=1")}) == 4
    elsewhere = tmp_path / "elsewhere" / "mine.py"
    elsewhere.parent.mkdir()
    elsewhere.write_text(MINE, encoding="utf-8")
    assert the_id(f"{mine}:Mine:budget=2") == the_id(f"{elsewhere}:Mine:share=0.5,budget=2")
    before = the_id(f"{mine}:Mine:budget=2")
    mine.write_text(MINE + "\n", encoding="utf-8")
    assert the_id(f"{mine}:Mine:budget=2") != before


def test_a_policy_from_a_file(mine: Path) -> None:
    (found,) = parse_policies([f'{mine}:Mine:budget=2,mode=12,careful=true,note="a,b/c..d",share=1'])
    assert dict(found.settings) == {"budget": 2, "share": 1.0, "mode": "12", "careful": True, "note": "a,b/c..d"}
    assert type(found.settings["share"]) is float
    check_policy(found.policy, draws=5)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "there is no policy ``; the policies are ar, chain, "),
        ("ddtre", "there is no policy `ddtre`; did you mean `ddtree`? `simlab policies` lists them"),
        ("autoregressive", "there is no policy `autoregressive`; did you mean `ar`?"),
        ("nothing", "the policies are ar, chain, "),
        ("ddtree:budgt=4", "ddtree has no setting `budgt`; did you mean `budget`?"),
        ("ddtree:budget=8,16", "got `16`; several values of a setting are budget=8/16"),
        ("ddtree:budget=8,16,32", "got `16`; several values of a setting are budget=8/16/32"),
        ("presto:budget=8,16,ngram_weight=0.1", "several values of a setting are budget=8/16"),
        ("ddtree=16", "`ddtree=16` is no policy's name; write ddtree, or in replays ddtree:key=value"),
        ("ddtree budget=16", "is no policy's name; write ddtree"),
        ("ddtree:budget:16", "did you mean `budget=16`?"),
        ("ddtree:budget=8-16", "budget should be int; got `8-16`; from one to the other is 8..16"),
        ("ddtree:16", "got `16`; did you mean `budget=16`?"),
        ("ddtree", "ddtree needs a budget: write ddtree:budget=VALUE"),
        ("ddtree:", "ends where settings should follow"),
        ("ddtree:size=4", "no setting `size`; its settings are budget"),
        ("ar:length=4", "no setting `length`; it has none"),
        ("ddtree:budget", "key=value"),
        ("ddtree:budget=", "key=value"),
        ("ddtree:budget=4,budget=5", "twice"),
        ("ddtree:budget=4/", "a value is missing"),
        ("ddtree:budget=/4", "a value is missing"),
        ("ddtree:budget=4//5", "a value is missing"),
        ("ddtree:budget=8..4", "count upwards"),
        ("ddtree:budget=1..99999999", "count upwards, over at most 10,000"),
        ("ddtree:budget=many", "budget should be int; got `many`"),
        ("ddtree:budget=4.5", "budget should be int"),
        ("ddtree:budget=true", "budget should be int"),
        ("ddtree:budget=NaN", "budget should be int"),
        ("ddtree:budget=0", "at least 1; got 0"),
        ("chain:length=x", "length should be int or null"),
        ("nowhere.py:Mine", "cannot be read"),
        ("nowhere.py", "names a file but no class"),
    ],
)
def test_a_mistake_is_named(text: str, sentence: str) -> None:
    with pytest.raises(PolicyError) as raised:
        parse_policies([text])
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("ending", "sentence"),
    [
        (":Other", "holds no class Other"),
        (":NoPolicy", "holds no class NoPolicy with a `select` method"),
        (":NoDataclass", "must be a dataclass"),
        (":Mine", "needs a budget"),
        (
            ":Coloured:budget=1,colour=red",
            "which cannot be typed; a setting must be bool or int or float or str or null",
        ),
        (":Listed:budget=1", "widths is (1, 2); a setting must be"),
        (":Unknown:budget=1", "cannot be read: name 'NowhereTable' is not defined"),
        (":Mine:budget=1/2,share=NaN", "share should be float"),
        (":Mine:budget=1..200,share=1..200", "makes more than 10,000 policies"),
    ],
)
def test_a_mistake_with_a_file_is_named(mine: Path, ending: str, sentence: str) -> None:
    with pytest.raises(PolicyError) as raised:
        parse_policies([f"{mine}{ending}"])
    assert sentence in str(raised.value)


def test_a_file_that_does_not_run_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("import nothing_of_this_name\n", encoding="utf-8")
    with pytest.raises(PolicyError, match="does not run: ModuleNotFoundError"):
        parse_policies([f"{path}:Mine"])


RECIPE = """
from dataclasses import dataclass
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.rules.budgets import BestRatio, FixedBudget
from simlab.policies.composition import Composed, Composition
from simlab.policies.edges.models import Marginal

@dataclass(frozen=True)
class Small(Composed):
    budget: int = 4

    def compose(self, artefacts):
        return Composition(BestFirst(Marginal(8)), FixedBudget(self.budget))

@dataclass(frozen=True)
class Priced(Composed):
    budget: int = 4
    cost: str = "auto"

    def compose(self, artefacts):
        table, cost_id = artefacts.cost(self.cost)
        return Composition(BestFirst(Marginal(8)), BestRatio(self.budget, table), {"cost": cost_id})
"""


class PricesAlone(NoArtefacts):
    """Prices under any name, each with its own id."""

    def __init__(self, most_drafted: int = 20) -> None:
        self.table_of = random_table(np.random.default_rng(0), most_drafted)

    def cost(self, name: str) -> tuple[CostTable, str]:
        return self.table_of, f"id of {name}"


@pytest.fixture
def recipe(tmp_path: Path) -> Path:
    path = tmp_path / "recipe.py"
    path.write_text(RECIPE, encoding="utf-8")
    return path


def test_a_recipe_from_a_file_is_composed(recipe: Path) -> None:
    found = parse_policies([f"{recipe}:Small:budget=3/5", f"{recipe}:Priced"], PricesAlone())
    assert all(isinstance(one.policy, Composition) for one in found)
    assert [one.policy.budget for one in found] == [3, 5, 4]
    assert [repr(one.policy) for one in found] == [one.label for one in found]
    check_policy(found[0].policy, draws=5)
    (alone,) = parse_policies([f"{recipe}:Small:budget=3"])
    assert alone.policy_id == found[0].policy_id


def test_what_a_recipe_is_measured_with_is_part_of_its_id(recipe: Path) -> None:
    class Other(PricesAlone):
        def cost(self, name: str) -> tuple[CostTable, str]:
            return self.table_of, "another id"

    (one,), (other,) = (parse_policies([f"{recipe}:Priced"], artefacts) for artefacts in (PricesAlone(), Other()))
    assert one.settings == other.settings
    assert one.policy_id != other.policy_id


def test_a_recipe_without_what_it_needs_is_refused(recipe: Path) -> None:
    with pytest.raises(
        PolicyError, match=r"Priced`: this policy weighs tokens against latency and needs a latency profile"
    ):
        parse_policies([f"{recipe}:Priced"])
    with pytest.raises(
        PolicyError, match=r"drafts up to 21 tokens, and the cost file made-up ends at 20; give it a smaller"
    ):
        parse_policies([f"{recipe}:Priced:budget=20/21"], PricesAlone(20))


def test_a_grid_of_ten_thousand_points(mine: Path) -> None:
    assert len(labels(f"{mine}:Mine:budget=1..100,share=1..100")) == 10_000


# Numbers in settings that no policy can bear are refused in one sentence, whichever the setting


REQUIRED = {"int": "8", "float": "0.5", "str": "ar"}
SETTINGS = [
    (name, field.name, kind)
    for name, policy in POLICIES.items()
    for field in describe(name, policy).fields
    for kind in ("int", "float")
    if field.kind.split()[0] == kind
]


def typed(name: str, key: str, value: str) -> str:
    """A policy with one setting of a person's, and what it needs besides."""
    needed = {field.name: REQUIRED[field.kind] for field in describe(name, POLICIES[name]).fields if field.required}
    return f"{name}:{','.join(f'{at}={given}' for at, given in (needed | {key: value}).items())}"


def test_settings_are_found() -> None:
    assert len([setting for setting in SETTINGS if setting[2] == "int"]) > 30
    assert len([setting for setting in SETTINGS if setting[2] == "float"]) > 10


@pytest.mark.parametrize(("name", "key", "kind"), SETTINGS, ids=lambda one: one)
def test_what_no_policy_can_bear_is_refused(name: str, key: str, kind: str) -> None:
    whole = [str(2**31), str(-(2**31)), str(2**63), "9" * 400, "9" * 5000, "1_000", "٣", "３", "+5", "012"]
    real = ["1e999", "-1e999", "NaN", "Infinity", "9" * 400, "9" * 5000, "1_0.5", "٣.5"]
    for value in whole if kind == "int" else real:
        with pytest.raises(PolicyError) as refused:
            parse_policies([typed(name, key, value)])
        said = str(refused.value)
        assert key in said
        assert len(said) < 400
        assert "\n" not in said


@pytest.mark.parametrize(
    ("name", "key", "kind"), [setting for setting in SETTINGS if setting[2] == "int"], ids=lambda one: one
)
def test_large_settings_are_refused_in_a_sentence_or_will_do(name: str, key: str, kind: str) -> None:
    for value in ("0", "-1", "65534", "65535", "1000000000", str(2**31 - 1)):
        said = ""
        with suppress(SimlabError):
            parse_policies([typed(name, key, value)])
            said = "made"
        assert not (said and key == "budget") or 0 < int(value) <= 65_534


@pytest.mark.parametrize("end", ["٣", "３", "9" * 400, "9" * 5000, "-" + "9" * 5000])
def test_ends_of_ranges_are_numbers(end: str) -> None:
    for text in (f"ddtree:budget=1..{end}", f"ddtree:budget={end}..7"):
        with pytest.raises(PolicyError, match="expected a whole number|should count upwards") as refused:
            parse_policies([text])
        assert len(str(refused.value)) < 400


def test_a_range_of_a_billion_is_refused() -> None:
    with pytest.raises(PolicyError, match="over at most 10,000 values"):
        parse_policies(["ddtree:budget=1..1000000000"])
    with pytest.raises(PolicyError, match="between finite numbers"):
        parse_entry(f"survival:threshold=0.1~{'9' * 400}")
    assert parse_entry("survival:threshold=٠~٣").ranges == {}
