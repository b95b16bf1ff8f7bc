"""Second drafters of random weights, for the random models of the tests."""

from dataclasses import replace

import random_trees

from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.models import Models
from simlab.real_runner.networks.redraft import RedraftProducer, RedraftReach
from simlab.real_runner.targets.model import Target


def second_drafter(target: Target, seed: int, block_size: int) -> DFlashDrafter:
    """A drafter with weights and a block of its own, which reads the target's layers in another order."""
    drafter = random_trees.random_drafter(target, seed + 1000, target.dtype)
    taps = tuple(reversed(drafter.config.target_layer_ids))
    drafter.config = replace(drafter.config.with_block(block_size), target_layer_ids=taps)
    return drafter


def redraft_producer(models: Models, second: DFlashDrafter, top_k: int = 4) -> RedraftProducer:
    """What makes the branches of a second drafter."""
    reach = RedraftReach(second.config.depth, top_k)
    return RedraftProducer(second, models.target, reach, models.drafter.config.depth)


def random_redrafts(models: Models, seed: int = 0, top_k: int = 4, deeper: int = 0) -> RedraftProducer:
    """Branches of a second drafter whose block is longer than the first one's by so many slots."""
    drafter = second_drafter(models.target, seed, models.drafter.config.block_size + deeper)
    return redraft_producer(models, drafter.to(models.target.device), top_k)
