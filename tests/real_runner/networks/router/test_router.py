"""A router's network: what it reads, the same at one root and along a text, and whose it is."""

import math
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
from simlab.real_runner.networks.router.config import TAKEN, Gain, RouterConfig
from simlab.real_runner.networks.router.network import (
    RouterNetwork,
    RouterProducer,
    load_router,
    router_inputs,
    save_router,
)
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
        found = producer.predict(alone, target.logits(alone[None])[0], root)
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
        producer.predict(broken, torch.zeros(12), 3)


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
        (3, "where an object belongs"),
    ],
)
def test_damaged_checkpoints(tmp_path: Path, change: dict[str, object] | int, says: str) -> None:
    save_router(made_up_router(target_of(), ROUTES).network, tmp_path)
    fields = dict(read_fields(config_file(tmp_path)))
    nested = fields["router_config"]
    assert isinstance(nested, dict)
    changed = change if isinstance(change, int) else nested | change
    write_json(tmp_path / "config.json", {**fields, "router_config": changed})
    with pytest.raises(ModelError, match=says):
        load_router(tmp_path)


def whiflash_network(seed: int, pos: int = 1, threshold: float = 0.0, gelu: str = "erf") -> RouterNetwork:
    target = target_of()
    config = RouterConfig(target.config.hidden_size, ROUTES[:2], target.digest, 5, Gain(pos, threshold, gelu))
    network = RouterNetwork(config).float().eval().requires_grad_(False)
    generator = torch.Generator().manual_seed(seed)
    for parameter in network.parameters():
        parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return network


@pytest.mark.parametrize("pos", [0, 1])
@pytest.mark.parametrize("gelu", ["erf", "tanh"])
def test_a_network_of_whiflashs_form_takes_a_route_above_its_threshold(pos: int, gelu: str) -> None:
    network = whiflash_network(pos, pos, gelu=gelu)
    states = np.random.default_rng(2).normal(size=(40, network.config.hidden_size + 3)).astype(np.float32)
    matrices = [parameter.double().numpy() for parameter in network.parameters()]
    said = []
    for state in states[:, :-3].astype(np.float64):
        inner = matrices[0] @ state + matrices[1]
        by_erf = [value * (1 + math.erf(value / math.sqrt(2))) / 2 for value in inner]
        by_tanh = [
            value * (1 + math.tanh(math.sqrt(2 / math.pi) * (value + 0.044715 * value**3))) / 2 for value in inner
        ]
        said.append(float(matrices[2][0] @ np.array(by_erf if gelu == "erf" else by_tanh) + matrices[3][0]))
    for threshold in (0.0, 0.7, -1e6, 1e6):
        config = replace(network.config, gain=Gain(pos, threshold, gelu))
        other = RouterNetwork(config)
        other.load_state_dict(network.state_dict())
        found = other(torch.from_numpy(states))
        assert found.argmax(dim=1).tolist() == [pos if value > threshold else 1 - pos for value in said]
        assert set(found.detach().ravel().tolist()) == {0.0, TAKEN}
    equal = replace(network.config, gain=Gain(pos, 3.0, gelu))
    constant = RouterNetwork(equal)
    constant.load_state_dict({name: value * 0 for name, value in network.state_dict().items()})
    constant.outer.bias.data.fill_(3.0)
    assert constant(torch.zeros(1, states.shape[1])).argmax(dim=1).tolist() == [1 - pos]


def test_a_network_of_whiflashs_form_is_read_and_says_no_number_where_it_has_none(tmp_path: Path) -> None:
    network = whiflash_network(1, threshold=0.5)
    save_router(network, tmp_path)
    read = load_router(tmp_path)
    assert read.config == network.config
    producer = RouterProducer(read, target_of())
    assert producer.predict(torch.ones(network.config.hidden_size), torch.zeros(12), 3).values.max() == TAKEN
    with pytest.raises(ModelError, match="what is no number"):
        producer.predict(torch.full((network.config.hidden_size,), torch.nan), torch.zeros(12), 3)
    assert "ddtree" not in dict(read.config.lines())["router"]
    assert "over 0.5 tokens more" in dict(read.config.lines())["router"]


@pytest.mark.parametrize(
    ("gain", "says"),
    [
        ({"threshold": 1.0}, "lacks pos, gelu: WhiFlash's card does not say which route"),
        ({"pos": 2, "threshold": 1.0, "gelu": "erf"}, "pos 0 or 1"),
        ({"pos": 0, "threshold": "1", "gelu": "erf"}, "where a number belongs"),
        ({"pos": 0, "threshold": 1.0, "gelu": "fast"}, "gelu erf or tanh"),
        ({"pos": 0, "threshold": 1.0, "gelu": "erf", "beta": 1}, "beta"),
    ],
)
def test_what_a_card_does_not_say_is_asked_for(tmp_path: Path, gain: dict[str, object], says: str) -> None:
    save_router(whiflash_network(1), tmp_path)
    fields = dict(read_fields(config_file(tmp_path)))
    nested = fields["router_config"]
    assert isinstance(nested, dict)
    write_json(tmp_path / "config.json", {**fields, "router_config": {**nested, "gain": gain}})
    with pytest.raises(ModelError, match=says):
        load_router(tmp_path)
    write_json(tmp_path / "config.json", {**fields, "router_config": {**nested, "routes": ["chain"]}})
    with pytest.raises(ModelError, match="gain of one route over another has 2"):
        load_router(tmp_path)
