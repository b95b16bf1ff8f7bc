"""BASTION as people name it: how many candidates it reads, whose prices it weighs, and what its id depends on."""

import json
from pathlib import Path

import numpy as np
import pytest
from made_up_artefacts import MadeUpArtefacts
from made_up_costs import random_table
from order_checks import draft_of, texts

from simlab.cost import GRID_STAGES, PLAIN, CostTable
from simlab.errors import PolicyError
from simlab.policies.composition import Composition
from simlab.policies.named.bastion import Bastion
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.recorded import RecordedSequence
from simlab.sequence_replay import draft_source
from simlab.studies.inputs.artefacts import TraceArtefacts
from simlab.studies.inputs.prices import Prices
from simlab.traces.reader import open_trace, packaged_trace

PRICES = random_table(np.random.default_rng(1), most_drafted=80, longest=700)


def named(text: str, width: int) -> NamedPolicy:
    (policy,) = parse_policies([text], MadeUpArtefacts(PRICES, width=width))
    return policy


@pytest.mark.parametrize(("width", "read"), [(32, 32), (64, 64), (100, 100), (128, 128), (512, 128)])
def test_it_reads_as_many_candidates_as_the_release_where_the_trace_holds_them(width: int, read: int) -> None:
    policy = named("bastion:budget=80", width)
    assert policy.policy.needs.top_k == read
    assert policy.label == f"bastion:budget=80,top_k={read}"
    assert repr(policy.policy) == policy.label
    assert policy.settings["top_k"] == read
    typed = named(policy.label, 64)
    assert (typed.label, typed.policy_id) == (policy.label, policy.policy_id)
    assert Bastion(budget=80).compose(MadeUpArtefacts(PRICES, width=width)).needs.top_k == read


def released_size(reached: int, floor: int, step: int | None = None) -> int:
    """Nodes that the release keeps of those it reached, the root among both; its step is the floor unless given."""
    if reached < floor:
        return reached
    step = floor if step is None else step
    return floor + step * int((reached - floor) / step)


def rising_table(most_drafted: int, rise_s: float) -> CostTable:
    """A second for every stage, and a little more of verification for each drafted token."""
    seconds = {stage: np.ones((1, most_drafted + 1)) for stage in GRID_STAGES} | {PLAIN: np.ones((1, 1))}
    seconds["verify"] = seconds["verify"] + rise_s * np.arange(most_drafted + 1)
    return CostTable("rising", np.array([1]), seconds)


def sizes_of(recipe: Bastion, recorded: RecordedSequence) -> list[int]:
    policy = recipe.compose(MadeUpArtefacts(rising_table(80, 0.05)))
    draft = draft_source(policy.needs, recorded)
    return [policy.select(draft(t)).num_nodes for t in range(len(recorded.text) - 1)]


@pytest.mark.parametrize(("floor", "step"), [(8, None), (5, None), (8, 3), (1, None), (4, 1)])
def test_it_keeps_what_the_release_keeps(floor: int, step: int | None) -> None:
    cut = 0
    for recorded in texts(9, 20, most_kept=12):
        reached = sizes_of(Bastion(budget=80, floor=floor, step=1), recorded)
        found = sizes_of(Bastion(budget=80, floor=floor, step=step), recorded)
        assert found == [released_size(size, floor, step) for size in reached]
        cut += sum(one < other for one, other in zip(found, reached, strict=True))
    assert cut > 0 or step == 1 or floor == 1


@pytest.mark.parametrize(
    ("recipe", "kept"),
    [
        (Bastion(budget=95, floor=64), 64),
        (Bastion(budget=95, floor=64, step=32), 96),
        (Bastion(budget=95), 96),
    ],
    ids=repr,
)
def test_a_floor_of_64_keeps_64_of_96_nodes(recipe: Bastion, kept: int) -> None:
    draft = draft_of([[(rank, -2.0 - rank / 16) for rank in range(32)]] * 4)
    assert recipe.compose(MadeUpArtefacts(rising_table(95, 0.0))).select(draft).num_nodes == kept


def test_the_prices_it_weighs_are_part_of_its_id() -> None:
    def ids(policy: NamedPolicy) -> dict[str, str]:
        assert isinstance(policy.policy, Composition)
        return dict(policy.policy.artefacts)

    measured, modelled = (named(f"bastion:budget=80,cost_model={model}", 64) for model in ("measured", "roofline"))
    assert measured.policy_id != modelled.policy_id
    assert ids(measured) == {"cost": "made-up"}
    assert set(ids(modelled)) == {"cost", "target_config"}

    class OtherTarget(MadeUpArtefacts):
        def target_config(self, name: str) -> dict[str, object]:
            return {**super().target_config(name), "vocab_size": 301}

    (other,) = parse_policies(["bastion:budget=80,cost_model=roofline"], OtherTarget(PRICES))
    assert other.policy_id != modelled.policy_id


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("cost_model=linear", "cost_model must be measured or roofline; got linear"),
        ("top_k=0", "top_k must be at least 1, or left out; got 0"),
        ("step=0", "step must be at least 1"),
        ("budget=0", "budget must be at least 1; got 0"),
        ("floor=0", "floor must be at least 1; got 0"),
    ],
)
def test_settings_without_sense_are_refused(settings: str, said: str) -> None:
    with pytest.raises(PolicyError, match=said):
        named(f"bastion:{settings}", 64)


def shelf(with_trace: bool = True) -> TraceArtefacts:
    prices = Prices(PRICES, "made up", "")
    return TraceArtefacts(prices, open_trace(packaged_trace()), "dflash") if with_trace else TraceArtefacts(prices)


def test_the_command_line_finds_the_sizes_of_the_shipped_target(tmp_path: Path) -> None:
    found = shelf().target_config("auto")
    assert (found["hidden_size"], found["num_hidden_layers"]) == (576, 30)
    (tmp_path / "config.json").write_text(json.dumps(found), encoding="utf-8")
    for path in (tmp_path, tmp_path / "config.json"):
        assert shelf(with_trace=False).target_config(str(path)) == found
        text = f'bastion:budget=80,cost_model=roofline,target_config="{path}"'
        (policy,) = parse_policies([text], shelf())
        (auto,) = parse_policies(["bastion:budget=80,cost_model=roofline"], shelf())
        assert isinstance(policy.policy, Composition)
        assert isinstance(auto.policy, Composition)
        assert policy.policy.artefacts == auto.policy.artefacts
    assert shelf().min_width() == shelf(with_trace=False).min_width() == 64
