"""The systems of the field: every policy that they name can be made, and each row is one of its own."""

import pytest
from made_up_artefacts import FullArtefacts

from simlab.policies.parsing.parse import parse_policies
from simlab.studies.field.systems import BASELINE, COMPOSED, NODES, SYSTEMS, System

DEPTH = 7


@pytest.fixture(scope="module")
def artefacts() -> FullArtefacts:
    return FullArtefacts()


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda one: one.name)
def test_every_size_of_a_system_can_be_made(system: System, artefacts: FullArtefacts) -> None:
    for nodes in NODES:
        typed = system.equal.format(nodes=nodes, rest=max(nodes - DEPTH, 1), depth=DEPTH)
        for point in parse_policies([typed] if typed else [], artefacts):
            assert getattr(point.policy, "budget", nodes) <= nodes, point.label
    assert parse_policies(system.searched, artefacts)


@pytest.mark.parametrize("drafter", COMPOSED)
def test_every_composition_can_be_made(drafter: str, artefacts: FullArtefacts) -> None:
    points = parse_policies(COMPOSED[drafter], artefacts)
    assert len({point.policy_id for point in points}) == len(points) > 50


def test_rows_are_one_of_their_own() -> None:
    names = [system.name for system in SYSTEMS]
    assert len(set(names)) == len(names)
    assert BASELINE in names
