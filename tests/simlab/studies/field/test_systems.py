"""The systems of the field: every policy that they name can be made, and each row is one of its own."""

import pytest
from made_up_artefacts import FullArtefacts

from simlab.policies.parsing.parse import parse_policies
from simlab.studies.field.systems import BASELINE, SYSTEMS, System


@pytest.fixture(scope="module")
def artefacts() -> FullArtefacts:
    return FullArtefacts()


@pytest.mark.parametrize("system", SYSTEMS, ids=lambda one: one.name)
def test_all_that_a_system_may_run_can_be_made(system: System, artefacts: FullArtefacts) -> None:
    searched = parse_policies(system.searched, artefacts)
    assert len({point.policy_id for point in searched}) == len(searched) > 0
    for typed in system.turned:
        assert typed.count("{}") == 1
        ends = [typed.replace("{}", f"{value:.4g}") for value in (system.knob[0], system.knob[-1])]
        few, many = parse_policies(ends, artefacts)
        assert few.policy_id != many.policy_id
    assert not system.published or len(parse_policies([system.published], artefacts)) == 1


def test_rows_are_one_of_their_own() -> None:
    names = [system.name for system in SYSTEMS]
    assert len(set(names)) == len(names)
    assert BASELINE in names
