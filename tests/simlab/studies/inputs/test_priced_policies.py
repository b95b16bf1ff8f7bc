"""Policies without seconds beside others that have some: why, in words."""

from types import SimpleNamespace
from typing import Any

from simlab.policies.parsing.parse import parse_policies
from simlab.studies.inputs.artefacts import PoliciesOnMachine


def test_each_reason_is_said_once_with_all_that_it_holds_for() -> None:
    policies = tuple(parse_policies(["chain", "ddtree:budget=4/8", "ar"]))
    reasons = {"chain": "too deep.", "ddtree:budget=8": "too deep.", "ddtree:budget=4": "no channel."}
    labels = {id(named.policy): named.label for named in policies}
    prices: Any = SimpleNamespace(why_unpriced=lambda policy: reasons.get(labels[id(policy)], ""))
    found = PoliciesOnMachine(prices, policies)
    assert found.unpriced == reasons
    assert found.unpriced_note().split("\n") == [
        "No seconds of chain, ddtree:budget=8: too deep.",
        "No seconds of ddtree:budget=4: no channel.",
    ]
    assert PoliciesOnMachine(prices, policies[-1:]).unpriced_note() == ""
