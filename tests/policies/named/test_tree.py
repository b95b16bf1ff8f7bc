"""Trees put together of parts: every combination keeps the contract, or is refused with the reason."""

import itertools

import numpy as np
import pytest
from channel_texts import with_channels
from depth import some
from made_up_artefacts import FullArtefacts
from policy_variants import every_policy

from simlab import rounds
from simlab.errors import PolicyError
from simlab.policies import POLICIES
from simlab.policies.artefacts import Artefacts
from simlab.policies.composition import Composed, Composition
from simlab.policies.named.calibrated import CalibratedTree
from simlab.policies.named.tree import EDGES, ORDERS, RULES
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.testing import check_sequence
from simlab.testing.random_texts import random_sequence

CHANNELS = {
    "transitions": "channel=treeflash,previous=2,top_k=3",
    "pool": "channel=taps,pool_beam=3",
    "eagle3": "channel=eagle3,pool_beam=3,top_k=4,steps=2",
    "redrafts": "channel=d2sd,branches=2,top_k=3",
}


def recipe_of(one: NamedPolicy) -> Composed:
    """The policy as it is set; one that is no recipe says that it is no tree."""
    made = POLICIES[one.name](**one.settings)
    return made if isinstance(made, Composed) else NoTree()


class NoTree(Composed):
    """Of no parts."""

    def compose(self, artefacts: Artefacts) -> Composition:
        raise NotImplementedError


def typed(edges: str, order: str, rule: str) -> str:
    return ",".join(filter(None, [f"tree:budget=12,edges={edges},order={order},rule={rule}", CHANNELS.get(edges, "")]))


@pytest.mark.parametrize(("edges", "order", "rule"), some([*itertools.product(EDGES, ORDERS, RULES)], quick=50))
def test_every_combination_keeps_the_contract_or_is_refused(edges: str, order: str, rule: str) -> None:
    fits = edges in ORDERS[order][0] and (rule != "doubt" or order == "chain")
    falls = order in ("best-first", "beam", "chain")
    text = typed(edges, order, rule)
    if not fits or (rule == "survival" and not falls):
        with pytest.raises(PolicyError, match=r"takes|enter in that order|is read with") as caught:
            parse_policies([text], FullArtefacts())
        assert "\n" not in str(caught.value)
        return
    (named,) = parse_policies([text], FullArtefacts())
    generator = np.random.default_rng(3)
    for _ in range(2):
        check_sequence(named.policy, with_channels(random_sequence(generator, 8), [named.policy]))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("edges=nope", "edges is one of marginal, calibrated, transitions, pool"),
        ("rule=nope", "rule is one of"),
        ("order=nope", "order is one of"),
        ("edges=pool", "write channel=NAME"),
        ("edges=calibrated,ngram_weight=0.2", "ngram_weight is read with edges=marginal"),
        ("counts=text", "with an ngram_weight above 0"),
        ("threshold=0.1", "threshold is read with rule=survival or rule=doubt alone"),
        ("order=expand-parent,ngram_weight=0.1", "a 3-gram corrects scores of order=best-first or beam"),
        ("rule=ratio,ngram_weight=0.2", "normalise them"),
        ("edges=pool,channel=taps,depth_price=0.1,rule=ratio", "normalise them"),
        ("order=chain,top_k=3", "leave out top_k"),
        ("order=beam,width=0", "width must be at least 1"),
        ("rule=floor,step=0", "step must be at least 1"),
        ("budget=0", "budget must be at least 1"),
    ],
)
def test_what_does_not_fit_is_one_sentence(settings: str, said: str) -> None:
    with pytest.raises(PolicyError, match=said) as caught:
        parse_policies([f"tree:{settings}"], FullArtefacts())
    assert "\n" not in str(caught.value)


def test_grids_go_over_parts_as_over_numbers() -> None:
    found = parse_policies(["tree:edges=marginal/calibrated,order=best-first/beam,budget=1..3"], FullArtefacts())
    assert len({one.policy_id for one in found}) == 12


COMPOSED = [one for one in every_policy(FullArtefacts()) if recipe_of(one).as_tree()]


@pytest.mark.parametrize("named", COMPOSED, ids=[one.label for one in COMPOSED])
def test_a_named_policy_is_the_tree_that_it_says(named: NamedPolicy) -> None:
    """Equal trees, round by round."""
    (tree,) = parse_policies([recipe_of(named).as_tree()], FullArtefacts())
    generator = np.random.default_rng(8)
    for draw in range(6):
        text = random_sequence(generator, 9)
        recorded = with_channels(text, [named.policy], tied=draw % 2 == 0)
        pairs = zip(rounds(named.policy, recorded), rounds(tree.policy, recorded), strict=True)
        for one, other in pairs:
            assert one.tree.tokens.tolist() == other.tree.tokens.tolist()
            assert one.tree.parents.tolist() == other.tree.parents.tolist()
            assert one.path == other.path


def test_all_but_some_named_policies_are_trees() -> None:
    of_a_batch = {"joint", "joint-throughput", "vllm-adaptive", "sglang-dspark"}
    others = {"ar", "entropy-width", "sequoia", "jetspec-extended", "tree", "router", "whiflash"}
    assert {one.name for one in COMPOSED} == set(POLICIES) - others - of_a_batch
    assert all(recipe_of(one).as_tree() for one in every_policy(FullArtefacts()) if one.name == "calibrated")


def test_a_name_of_a_file_is_quoted_where_it_must_be() -> None:
    typed_text = CalibratedTree(table="../a, b/c.json").as_tree()
    assert 'table="../a, b/c.json"' in typed_text
    (named,) = parse_policies([typed_text], FullArtefacts())
    assert named.settings["table"] == "../a, b/c.json"
