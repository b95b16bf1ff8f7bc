"""What a person sets is what the rule and the order read: every setting arrives under its own name."""

from typing import Any

import numpy as np
import pytest
from made_up_artefacts import FullArtefacts

from simlab.policies.composition import Composed
from simlab.policies.named.adaflash import AdaFlash
from simlab.policies.named.bastion import Bastion
from simlab.policies.named.caddtree import CaDDTree
from simlab.policies.named.calibrated import CalibratedTree
from simlab.policies.named.d2sd_boundary import D2SDBoundary
from simlab.policies.named.eagle2_beam import Eagle2Beam
from simlab.policies.named.entropy_width import EntropyWidth
from simlab.policies.named.expand_parent import ExpandParentTree
from simlab.policies.named.joint_throughput import JointThroughput
from simlab.policies.named.presto import Presto
from simlab.policies.named.price import Price
from simlab.policies.named.survival import SurvivalThreshold

# No two numbers of a recipe are equal, so that none can stand in for another.
RULES: list[tuple[Composed, dict[str, object]]] = [
    (Bastion(budget=80, floor=6, step=4), {"most": 80, "floor": 6, "step": 4, "doubling": False, "roofline": None}),
    (Bastion(budget=80, floor=6), {"floor": 6, "step": 6}),
    (Bastion(budget=80, floor=6, doubling=True), {"doubling": True}),
    (CalibratedTree(stop="floor", budget=70, floor=8, step=3), {"most": 70, "floor": 8, "step": 3, "doubling": False}),
    (CalibratedTree(stop="floor", budget=70, floor=8), {"floor": 8, "step": 8}),
    (CalibratedTree(stop="ratio", budget=70, look_ahead=5), {"most": 70, "look_ahead": 5, "tile": 1, "discount": 1.0}),
    (CalibratedTree(stop="survival", budget=70, threshold=0.3), {"most": 70, "threshold": 0.3}),
    (CalibratedTree(stop="price", budget=70, memory=0.4, look_ahead=5), {"most": 70, "memory": 0.4, "look_ahead": 5}),
    (CalibratedTree(stop="price", budget=70, rate=60.0, look_ahead=5), {"most": 70, "rate": 60.0, "look_ahead": 5}),
    (CaDDTree(budget=70, look_ahead=5, tile=8), {"most": 70, "look_ahead": 5, "tile": 8, "discount": 1.0}),
    (JointThroughput(budget=70, look_ahead=5), {"most": 70, "look_ahead": 5}),
    (Price(budget=70, memory=0.4, look_ahead=5), {"most": 70, "memory": 0.4, "look_ahead": 5}),
    (Price(budget=70, rate=60.0, look_ahead=5), {"most": 70, "rate": 60.0, "look_ahead": 5}),
    (SurvivalThreshold(budget=70, threshold=0.3), {"most": 70, "threshold": 0.3}),
    (AdaFlash(budget=70, threshold=0.2), {"most": 70, "threshold": 0.2}),
    (Eagle2Beam(budget=70, beam=6, depth=3), {"most": 70}),
]

ORDERS: list[tuple[Composed, dict[str, object]]] = [
    (Eagle2Beam(budget=70, beam=6, depth=3), {"width": 6, "deepest": 4}),
    (D2SDBoundary(budget=70, boundaries=3, below=2), {"num_branches": 3, "below": 2}),
    (ExpandParentTree(budget=70, width=6, caps="5,2"), {"width": 6, "caps": (5, 2, 6), "gap": None}),
    (ExpandParentTree(width=6, caps="top2gap", gap_slope=2.0, gap_middle=0.5), {"width": 6, "gap": (2.0, 0.5)}),
]


def read(part: object, expected: dict[str, object]) -> dict[str, object]:
    return {name: getattr(part, name) for name in expected}


@pytest.mark.parametrize(("recipe", "expected"), RULES, ids=[repr(recipe) for recipe, _ in RULES])
def test_a_rule_has_the_settings_of_its_policy(recipe: Composed, expected: dict[str, object]) -> None:
    assert read(recipe.compose(FullArtefacts()).rule, expected) == expected


@pytest.mark.parametrize(("recipe", "expected"), ORDERS, ids=[repr(recipe) for recipe, _ in ORDERS])
def test_an_order_has_the_settings_of_its_policy(recipe: Composed, expected: dict[str, object]) -> None:
    assert read(recipe.compose(FullArtefacts()).order, expected) == expected


@pytest.mark.parametrize(("renormalised", "adaptive"), [(True, False), (False, True)])
def test_a_correction_has_the_settings_of_presto(renormalised: bool, adaptive: bool) -> None:
    recipe = Presto(
        ngram_weight=0.3, counts="both", text_share=0.6, renormalised=renormalised, adaptive=adaptive, top_k=9
    )
    order: Any = recipe.compose(FullArtefacts()).order
    expected: dict[str, object] = {"weight": 0.3, "text_share": 0.6, "top_k": 9}
    expected |= {"renormalised": renormalised, "adaptive": adaptive}
    assert read(order.edge, expected) == expected


def test_caps_of_widths_have_the_settings_of_their_policy() -> None:
    shared: Any = EntropyWidth(budget=70, power=2.0, base_width=3, most_width=9, top_k=20).compose(FullArtefacts())
    expected: dict[str, object] = {"budget": 70, "power": 2.0, "base_width": 3, "most_width": 9}
    assert read(shared.order.caps, expected) == expected
    assert (shared.order.top_k, shared.rule.most) == (20, 70)
    bins: Any = EntropyWidth(budget=70, caps="bins", entropies="1,2", widths="3,4,5", most_width=9)
    caps = bins.compose(FullArtefacts()).order.caps
    assert (caps.entropies.tolist(), caps.widths.tolist(), caps.most_width) == ([1.0, 2.0], [3, 4, 5], 9)
    assert caps.widths.dtype == np.int32
