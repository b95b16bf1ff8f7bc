"""Every policy of the table, and one that learns from its rounds."""

import json
from dataclasses import MISSING, dataclass, field, fields, replace

from made_up_artefacts import FullArtefacts

from simlab import Draft, DraftTree, Needs, Outcome, Prompt
from simlab.policies import POLICIES
from simlab.policies.composition import Composed
from simlab.policies.named.chain import Chain
from simlab.policies.parsing.parse import parse_policies
from simlab.policies.routing.routed_policy import RoutedRecipe
from simlab.policy import AnyPolicy

# Settings under which each policy is checked; one that is not here is so with its defaults.
SETTINGS: dict[str, list[dict[str, object]]] = {
    "chain": [{}, {"length": 1}, {"length": 3}],
    "ddtree": [{"budget": 1}, {"budget": 5}, {"budget": 16}, {"budget": 64}],
    "joint": [{"budget": 1}, {"budget": 16}],
    "joint-throughput": [{"budget": 16}, {"budget": 64, "look_ahead": 1}],
    "entropy-width": [{}, {"caps": "coverage"}, {"caps": "probability"}, {"caps": "bins"}],
    "bastion": [{}, {"cost_model": "roofline"}],
    "taps": [{"budget": 16, "beam": 3}, {"budget": 16, "beam": 3, "depth_price": 0.0}],
    "jetspec-extended": [{"tree_budget": 16, "width": 4, "gap": 0.1}, {"tree_budget": 60, "width": 2, "gap": -1.0}],
    "jetspec": [{"budget": 16, "beam": 3, "width": 4, "order": order} for order in ("expand-parent", "best-first")],
    "d2sd": [{"budget": 16, "branches": 2}, {"exclude": True}, {"budget": 16, "width": 3}, {"branches": 0}],
    "mfd": [{"budget": 16, "top_k": 3}],
    "eagle3": [{"budget": 16, "beam": 3, "top_k": 4, "steps": 2}, {"budget": 5, "beam": 3, "top_k": 4, "steps": 4}],
    "sequoia": [{}, {"size": "hardware"}],
    "router": [
        {"routes": "ddtree:budget=16|ar", "cuts": "0.8"},
        {"routes": "ar|chain|ddtree:budget=16", "by": "accepted", "cuts": "-1|1"},
        {"routes": "chain:length=2|eagle3:budget=5,beam=3,top_k=4,steps=2|entropy-width", "cuts": "0.5|1.2"},
        {"routes": "d2sd:budget=9,branches=2|ddtree:budget=3", "by": "context", "cuts": "5"},
        {"routes": "ddtree:budget=9|chain:length=2|ar", "by": "network", "channel": "router-three", "beta": 0.5},
    ],
    "whiflash": [
        {"entropy": 0.9, "sure": "ddtree:budget=8", "unsure": "eagle3:budget=5,beam=3,top_k=4,steps=2"},
        {"entropy": 0.4, "unsure": "eagle3:budget=5,beam=3,top_k=4,steps=2"},
        {"network": "router", "sure": "ddtree:budget=8", "unsure": "eagle3:budget=5,beam=3,top_k=4,steps=2", "rate": 9},
    ],
    "self": [{"masked": -1}, {"budget": 16, "masked": 2}, {"budget": 5, "masked": 5, "order": "chain"}],
}


ARTEFACTS = FullArtefacts()


def made(name: str, given: dict[str, object]) -> AnyPolicy:
    """A policy; settings that must be given, and are not, are 16."""
    if issubclass(POLICIES[name], RoutedRecipe):  # type: ignore[arg-type]
        quoted = ",".join(f"{key}={json.dumps(value)}" for key, value in given.items())
        return parse_policies([f"{name}:{quoted}"], ARTEFACTS)[0].policy
    required = {one.name: 16 for one in fields(POLICIES[name]) if one.init and one.default is MISSING}  # type: ignore[arg-type]
    policy = POLICIES[name](**{**required, **given})
    assert not isinstance(policy, RoutedRecipe)
    return replace(policy.compose(ARTEFACTS), label=f"{name}:{given}") if isinstance(policy, Composed) else policy


EVERY_POLICY = [made(name, given) for name in POLICIES for given in SETTINGS.get(name, [{}])]

WITH_A_DRAFTER = [policy for policy in EVERY_POLICY if policy.needs.masked is None]
"""Those that run beside a drafter; others are of a target that drafts for itself."""


@dataclass(frozen=True, slots=True)
class LongerAfterSuccess:
    """A chain one longer than what was last accepted: memory as it is meant."""

    budget: int = 8
    needs: Needs = field(default_factory=lambda: Needs(top_k=1))

    def start(self, prompt: Prompt) -> int:
        return 1

    def select(self, draft: Draft, state: int) -> DraftTree:
        return Chain(min(state, self.budget)).select(draft)

    def update(self, state: int, outcome: Outcome) -> int:
        return outcome.num_accepted + 1
