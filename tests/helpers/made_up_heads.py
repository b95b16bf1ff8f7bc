"""Heads with made-up weights, for whatever channels policies read: bold, and functions of the text."""

from collections.abc import Iterable
from dataclasses import replace

import torch
from channel_texts import joint_needs

from simlab.policy import AnyPolicy
from simlab.real_runner.heads.rows import HeadReach
from simlab.real_runner.heads.treeflash import TreeFlashHead
from simlab.real_runner.heads.treeflash_producer import TreeFlashProducer
from simlab.real_runner.models import Models

INNER_SIZE = 16


def made_up_head(hidden_size: int, seed: int = 0) -> TreeFlashHead:
    """A head that changes every state a good deal."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        head = TreeFlashHead(hidden_size, INNER_SIZE)
        torch.nn.init.normal_(head.d.weight, std=0.3)
    return head.eval().requires_grad_(False)


def with_producers(models: Models, policies: Iterable[AnyPolicy], seed: int = 0) -> Models:
    """Models that make the channels of some policies, each with all that the most demanding one declares."""
    drafter, target = models.drafter, models.target
    channels = {}
    for need in joint_needs(policies):
        head = made_up_head(drafter.config.hidden_size, seed).to(target.device, target.dtype)
        channels[need.name] = TreeFlashProducer(head, drafter, target, HeadReach(**dict(need.least)))
    return replace(models, channels=channels)
