"""Heads and scorers with made-up weights, for whatever channels policies read: bold, and functions of the text."""

import copy
from collections.abc import Iterable
from dataclasses import replace

import torch
from channel_texts import joint_needs
from random_eagle3 import random_eagle3_for
from random_heads import random_scorer

from simlab.channels import BRANCHES, FEATURES, POOL, TARGET
from simlab.channels.rows import WHOLE_CHAIN
from simlab.policy import AnyPolicy
from simlab.real_runner.models import Models
from simlab.real_runner.networks.eagle3.config import Eagle3Reach
from simlab.real_runner.networks.eagle3.pool import eagle3_producer
from simlab.real_runner.networks.network import HeadReach
from simlab.real_runner.networks.producer import AnyProducer
from simlab.real_runner.networks.redraft import PathProducer, PathReach, RedraftProducer, RedraftReach
from simlab.real_runner.networks.router.config import RouterConfig
from simlab.real_runner.networks.router.network import RouterNetwork, RouterProducer
from simlab.real_runner.networks.taps.config import PoolReach
from simlab.real_runner.networks.taps.pool import TapsProducer
from simlab.real_runner.networks.treeflash.head import TreeFlashHead, TreeFlashProducer
from simlab.real_runner.targets.model import Target

INNER_SIZE = 16
EXTENSIONS = 12


def made_up_head(hidden_size: int, seed: int = 0) -> TreeFlashHead:
    """A head that changes every state a good deal."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        head = TreeFlashHead(hidden_size, INNER_SIZE)
        torch.nn.init.normal_(head.d.weight, std=0.3)
    return head.eval().requires_grad_(False)


def made_up_router(target: Target, routes: tuple[str, ...], seed: int = 0) -> RouterProducer:
    """A router's network whose numbers differ a good deal from root to root."""
    config = RouterConfig(target.config.hidden_size, routes, target.digest, INNER_SIZE)
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        network = RouterNetwork(config)
        torch.nn.init.normal_(network.outer.weight, std=1.0)
    return RouterProducer(network.to(target.device).eval().requires_grad_(False), target)


def with_producers(models: Models, policies: Iterable[AnyPolicy], seed: int = 0) -> Models:
    """Models that make the channels of some policies, each with all that the most demanding one declares."""
    drafter, target = models.block_drafter, models.target
    channels: dict[str, AnyProducer] = {}
    for need in joint_needs(policies):
        equal, least = dict(need.equal), dict(need.least)
        if need.kind == TARGET:
            continue
        if need.kind == FEATURES:
            channels[need.name] = made_up_router(target, tuple(need.trained_for.split("|")), seed)
            continue
        if need.kind == BRANCHES:
            channels[need.name] = _redrafts(models, least["top_k"], is_whole=equal.get(WHOLE_CHAIN) == 1)
            continue
        if "steps" in least:
            reach = Eagle3Reach(equal["beam"], equal["top_k"], least["steps"])
            channels[need.name] = eagle3_producer(random_eagle3_for(target, seed).to(target.device), target, reach)
            continue
        if "top_k" in equal:
            channels[need.name] = PathProducer(drafter, target, PathReach(equal["beam"], equal["top_k"]))
            continue
        if need.kind == POOL:
            scorer, beam = random_scorer(models, seed), equal["beam"]
            channels[need.name] = TapsProducer(drafter, target, PoolReach(beam, EXTENSIONS), scorer)
            continue
        head = made_up_head(drafter.config.hidden_size, seed).to(target.device, target.dtype)
        channels[need.name] = TreeFlashProducer(drafter, target, HeadReach(**dict(need.least)), head)
    return replace(models, channels=channels)


def _redrafts(models: Models, top_k: int, is_whole: bool) -> RedraftProducer:
    """A second drafter of the first one's sizes, disturbed, behind each beginning of the chain or the whole of it.

    Its block is longer by a slot, so that there is a beginning more than the chain has tokens, or by a chain.
    """
    second, depth = copy.deepcopy(models.block_drafter), models.block_drafter.config.depth
    block = second.config.block_size + (depth if is_whole else 1)
    generator = torch.Generator().manual_seed(depth)
    with torch.no_grad():
        for parameter in second.parameters():
            noise = torch.randn(parameter.shape, generator=generator).to(parameter.device, parameter.dtype)
            parameter.mul_(1 + 0.3 * noise)
    second.config = second.config.with_block(block)
    reach = RedraftReach(second.config.depth, top_k, block=block, whole=int(is_whole))
    return RedraftProducer(second, models.target, reach, depth)
