"""Pools of a drafter that runs again behind each path: against one block a path, and against its own rows."""

import copy
import itertools
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from depth import some
from marginals import token_paths
from pool_oracle import Path, plain_pool
from random_heads import PROMPT_LENGTH, TEXT, VOCAB_SIZE, base_at, drafted
from random_trees import random_models

from simlab.channels import POOL, PoolRows
from simlab.draft import Draft
from simlab.grid import STEPS_PER_NAT, to_grid
from simlab.policies.edges.models import Marginal
from simlab.policies.orders.best_first import BestFirst
from simlab.policies.orders.lattice_order import LatticeOrder
from simlab.policies.orders.lattice_sources import PoolSource
from simlab.policy import ChannelNeed
from simlab.real_runner.drafters.dense import logits_of, passes_along
from simlab.real_runner.drafters.dflash import DrafterContext
from simlab.real_runner.models import Models
from simlab.real_runner.networks.redraft import PathProducer, PathReach
from simlab.real_runner.record.texts import forward_text

REACHES = [PathReach(3, 4), PathReach(1, 1), PathReach(1, 5), PathReach(6, 2), PathReach(2, 23)]


def models_of(causal: bool, dtype: torch.dtype = torch.float64) -> Models:
    models = random_models("qwen3", 1, VOCAB_SIZE, dtype)
    if not causal:
        return models
    # Other tests are given the same random models.
    drafter = copy.copy(models.block_drafter)
    drafter.config = drafter.config.as_causal_head()
    return replace(models, drafter=drafter)


def context_of(models: Models) -> DrafterContext:
    features, _ = forward_text(models.target, TEXT, models.block_drafter.config.target_layer_ids)
    return models.block_drafter.context(features[None])


def pools_at(models: Models, roots: torch.Tensor, reach: PathReach) -> PoolRows:
    _, marginals, _ = drafted(models)
    base = base_at([marginals[int(root) - PROMPT_LENGTH] for root in roots], VOCAB_SIZE)
    producer = PathProducer(models.block_drafter, models.target, reach)
    passes = passes_along(models.block_drafter, models.target, context_of(models))
    return producer.pools(TEXT[roots], roots, passes, base)


@torch.inference_mode()
def law_behind(models: Models, root: int, path: Path) -> dict[int, float]:
    """What one block with its slots filled says behind a path, alone."""
    config, drafter = models.block_drafter.config, models.block_drafter
    ids = [int(TEXT[root]), *path] + [config.mask_token_id] * (config.block_size - 1 - len(path))
    embedded = torch.nn.functional.embedding(torch.tensor([[ids]]), models.target.embedding.weight)
    states = drafter(embedded * config.input_embedding_scale, torch.tensor([[root]]), context_of(models))
    law = logits_of(drafter, models.target, states[0, 0, config.first_slot + len(path)]).log_softmax(-1)
    return dict(enumerate(to_grid(law.double().numpy()).tolist()))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("reach", REACHES, ids=str)
def test_a_pool_is_one_block_a_path(reach: PathReach, causal: bool) -> None:
    models = models_of(causal)
    for root in (PROMPT_LENGTH, 17, len(TEXT) - 2):
        (pool,) = pools_at(models, torch.tensor([root]), reach).rows()
        law = partial(law_behind, models, root)
        expected = plain_pool(law, reach.beam, reach.top_k, models.block_drafter.config.depth - 1)
        assert token_paths(pool.tokens.tolist(), pool.parents.tolist()) == list(expected)
        scores, expanded = zip(*expected.values(), strict=True)
        assert np.abs(pool.log_probs - np.array(scores)).max() <= 1 / STEPS_PER_NAT
        assert pool.expanded.tolist() == list(expanded)


@pytest.mark.parametrize(("reach", "causal"), some([*itertools.product(REACHES, (False, True))], quick=3), ids=str)
def test_dense_pools_are_those_of_one_root(reach: PathReach, causal: bool) -> None:
    models, roots = models_of(causal), torch.arange(PROMPT_LENGTH, len(TEXT) - 1)
    together = list(pools_at(models, roots, reach).rows())
    for root, pool in zip(roots, together, strict=True):
        (alone,) = pools_at(models, root[None], reach).rows()
        assert np.array_equal(pool.tokens, alone.tokens)
        assert np.array_equal(pool.parents, alone.parents)
        assert np.array_equal(pool.expanded, alone.expanded)
        assert np.abs(pool.log_probs - alone.log_probs).max() <= 1 / STEPS_PER_NAT


def test_a_head_that_cannot_tell_tokens_from_masks_has_the_trees_of_its_rows() -> None:
    """With one embedding for all, a filled slot is a mask, and pools as wide as the tree are best-first on the rows."""
    models, reach = models_of(causal=True), PathReach(12, 12)
    # Other tests are given the same random models.
    models = replace(models, target=replace(models.target, model=copy.deepcopy(models.target.model)))
    with torch.no_grad():
        models.target.embedding.weight[:] = models.target.embedding.weight[0].clone()
    _, marginals, roots = drafted(models)
    places = torch.arange(PROMPT_LENGTH, len(TEXT) - 1)
    for pool, base, root in zip(pools_at(models, places, reach).rows(), marginals, roots, strict=True):
        draft = Draft(base, int(root), np.array([5, int(root)], np.int32), 1, {"pool": pool})
        ours = LatticeOrder(PoolSource(ChannelNeed("pool", POOL))).nodes(draft, 12)
        theirs = BestFirst(Marginal(12)).nodes(draft, 12)
        assert ours.tokens.tolist() == theirs.tokens.tolist()
        assert ours.parents.tolist() == theirs.parents.tolist()
