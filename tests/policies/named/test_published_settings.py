"""Defaults that are said to be a release's, beside what the release says: settings, and how it counts."""

from dataclasses import fields

import pytest

from simlab.policies import POLICIES
from simlab.policies.composition import Composed
from simlab.policies.named.eagle2_beam import Eagle2Beam
from simlab.policies.routing.routed_policy import RoutedRecipe

ROOT = 1
"""Counted by a release where it is taken away here."""

RELEASED: dict[str, dict[str, object]] = {
    # ZinYY/AdaFlash: its threshold on the chain's product; only the trained head has another.
    "adaflash": {"threshold": 0.3},
    # PopSoda2002/TreeSpark: node_cap 64; theta by its ladder at one text at a time and temperature 0.
    "survival": {"threshold": 0.02, "budget": 64},
    "calibrated": {"threshold": 0.02, "budget": 64},
    # hxri/ddtreeplus: power 1, base width 1, 80 %, 5 %, and the borders and widths of its first sweep.
    "entropy-width": {
        "budget": 128,
        "power": 1.0,
        "base_width": 1,
        "most_width": None,
        "coverage": 0.8,
        "least_prob": 0.05,
        "entropies": "1.5,3",
        "widths": "1,8,24",
    },
    # ZhangShuai1230/CaDDTree: the first size that brings no more ends it; its cost is of the two models.
    "caddtree": {"look_ahead": 1, "overhead": False},
    # kaist-ai-osi-lab/BASTION: floor 32, a step that is the floor, auxiliary seconds counted; sizes count the root.
    "bastion": {"floor": 32, "step": None, "doubling": False, "overhead": True},
    # hao-ai-lab/JetSpec: width 7; its benchmark's budget of 255; class defaults of its gap rule.
    "expand-parent": {"budget": 255 - ROOT, "width": 7, "gap_slope": 1.0, "gap_middle": 1.0},
    # hemingkx/Spec-Bench runs EAGLE-2 with a total of 60, 5 steps and 10 branches.
    "eagle2-beam": {"budget": 60 - ROOT, "beam": 10, "depth": 5},
    # catnanami/D2-SD: four boundaries.
    "d2sd-boundary": {"boundaries": 4},
    # Two accounts of PRESTO.
    "presto": {"ngram_weight": 0.2, "budget": 128},
    # wzyyy-lab/TAPS-EMNLP2026: a node cap that does not count the root.
    "taps": {"budget": 64, "depth_price": 0.002},
    # patrickbdevaney: published up to 17.
    "spine-gap": {"budget": 17},
}


@pytest.mark.parametrize("name", RELEASED)
def test_defaults_are_the_release_s(name: str) -> None:
    policy = POLICIES[name]
    defaults = {field.name: field.default for field in fields(policy)}  # type: ignore[arg-type]
    assert {setting: defaults[setting] for setting in RELEASED[name]} == RELEASED[name]


def test_eagle_s_class_defaults_count_the_root() -> None:
    """EAGLE-2's own default is a total of 59, so 58 drafted tokens; EAGLE-3's is 60 with 7 steps."""
    said = Eagle2Beam.__doc__
    assert said is not None
    for total, depth in ((59, 5), (60, 7)):
        assert f"budget={total - ROOT},depth={depth}" in said


def test_composed_policies_say_where_they_are_from() -> None:
    for name, policy in POLICIES.items():
        if isinstance(policy, type) and issubclass(policy, Composed | RoutedRecipe):
            assert getattr(policy, "source", ""), name
            assert getattr(policy, "exactness", ""), name
