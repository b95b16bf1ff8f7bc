"""A router's network: what it reads, the same at one root and along a text, and whose it is."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import random_trees
import torch
from made_up_heads import made_up_router

from simlab.channels import Features
from simlab.errors import MissingChannelError, ModelError
from simlab.policy import ChannelNeed
from simlab.real_runner.checkpoints.contents import config_file
from simlab.real_runner.checkpoints.files import write_json
from simlab.real_runner.networks.drafter import load_drafter
from simlab.real_runner.networks.known import read_fields
from simlab.real_runner.networks.loading import load_producer, reach_of
from simlab.real_runner.networks.router.config import RouterConfig
from simlab.real_runner.networks.router.network import RouterProducer, load_router, router_inputs, save_router
from simlab.real_runner.targets.model import Target

ROUTES = ("ddtree:budget=16", "chain", "ar")


def target_of(seed: int = 0, family: str = "llama") -> Target:
    return random_trees.random_models(family, seed, 12, torch.float32).target


def tokens_of(seed: int, num: int = 19) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(seed).integers(12, size=num))


@pytest.mark.parametrize("family", random_trees.FAMILIES)
@torch.inference_mode()
def test_along_a_text_it_says_what_it_says_at_each_root(family: str) -> None:
    target, tokens = target_of(1, family), tokens_of(1)
    producer, states = made_up_router(target, ROUTES), target.states(tokens[None])[0]
    rows = producer.columns(states, tokens, 11).rows
    assert rows.values.shape == (11, 3)
    for index, root in enumerate(range(7, 18)):
        alone = target.states(tokens[None, :root])[0, -1]
        found = producer.foresee(alone, target.logits(alone[None])[0], root)
        assert isinstance(found, Features)
        assert found.values == pytest.approx(rows.values[index], abs=1e-3)
    assert rows.values.std(axis=0).min() > 1e-3, "the numbers are those of the root"


def test_what_is_read_by_hand() -> None:
    logits, states = torch.tensor([[0.0, 1.0, -1.0]]), torch.tensor([[3.0, 4.0]])
    laws = torch.softmax(logits[0], -1).tolist()
    entropy = -sum(law * np.log(law) for law in laws)
    found = router_inputs(states, logits, torch.tensor([8]))[0].tolist()
    assert found == pytest.approx([3.0, 4.0, entropy, 1.0, np.log(8)])


def test_a_network_of_another_target_is_refused() -> None:
    producer = made_up_router(target_of(), ROUTES)
    with pytest.raises(ModelError, match="reads states of the target of the digest"):
        RouterProducer(producer.network, replace(target_of(), digest="another"))


def test_numbers_that_are_none_are_refused() -> None:
    producer = made_up_router(target_of(), ROUTES)
    broken = torch.full((producer.network.config.hidden_size,), torch.nan)
    with pytest.raises(ModelError, match="what is no number"):
        producer.foresee(broken, torch.zeros(12), 3)


def test_a_policy_with_other_routes_is_refused() -> None:
    producer = made_up_router(target_of(), ROUTES)
    assert producer.within(ChannelNeed("router", "features", trained_for="|".join(ROUTES))) is producer
    with pytest.raises(MissingChannelError, match="with routes chain"):
        producer.within(ChannelNeed("router", "features", trained_for="chain"))
    with pytest.raises(MissingChannelError, match="of the kind pool"):
        producer.within(ChannelNeed("router", "pool"))


def test_a_checkpoint_is_read_as_it_was_written(tmp_path: Path) -> None:
    target = target_of()
    network = made_up_router(target, ROUTES, 3).network
    save_router(network, tmp_path)
    read = load_router(tmp_path)
    assert read.config == network.config
    assert all(
        torch.equal(parameter, other) for parameter, other in zip(read.parameters(), network.parameters(), strict=True)
    )
    fields = read_fields(config_file(tmp_path))
    reach = reach_of(fields, {}, is_base=False)
    assert isinstance(reach, RouterConfig)
    made = load_producer(tmp_path, reach.settings(), torch.float32)(None, target)
    assert isinstance(made, RouterProducer)
    with pytest.raises(ModelError, match="has no settings"):
        reach_of(fields, {"steps": 3}, is_base=False)
    with pytest.raises(ModelError, match="chooses among drafters and is none"):
        load_drafter(tmp_path, torch.float32)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"routes": "chain"}, "where a list of policies belongs"),
        ({"routes": []}, "has 1 to 64 routes"),
        ({"routes": ["a|b"]}, "none empty"),
        ({"target_digest": 3}, "where a digest belongs"),
        ({"inner_size": 0}, "from 1 to 65,536; got 0"),
        ({"hidden_size": 8}, "norm.weight"),
    ],
)
def test_damaged_checkpoints(tmp_path: Path, change: dict[str, object], says: str) -> None:
    save_router(made_up_router(target_of(), ROUTES).network, tmp_path)
    fields = dict(read_fields(config_file(tmp_path)))
    nested = fields["router_config"]
    assert isinstance(nested, dict)
    write_json(tmp_path / "config.json", {**fields, "router_config": {**nested, **change}})
    with pytest.raises(ModelError, match=says):
        load_router(tmp_path)


def test_a_network_that_lacks_a_tensor(tmp_path: Path) -> None:
    save_router(made_up_router(target_of(), ROUTES).network, tmp_path)
    fields = dict(read_fields(config_file(tmp_path)))
    write_json(tmp_path / "config.json", {**fields, "router_config": 3})
    with pytest.raises(ModelError, match="where an object belongs"):
        load_router(tmp_path)
