"""TreeFlash heads and TAPS scorers of random weights, and policies on the rows of a head."""

from pathlib import Path

import numpy as np
import torch
from marginals import kept_marginals
from tiny_models import HIDDEN_SIZE

from simlab.draft import Marginals
from simlab.policies.composition import Composition
from simlab.policies.orders.lattice_order import LatticeOrder
from simlab.policies.orders.lattice_sources import TransitionSource
from simlab.policies.rules.budgets import FixedBudget
from simlab.real_runner.checkpoints.contents import checkpoint_digest
from simlab.real_runner.drafters.config import KeptCandidates
from simlab.real_runner.drafters.dense import BlockStates, draft_states, logits_of
from simlab.real_runner.models import Models
from simlab.real_runner.networks.candidates import BaseCandidates, base_candidates
from simlab.real_runner.networks.taps.config import ScorerSizes
from simlab.real_runner.networks.taps.scorer import TapsScorer
from simlab.real_runner.networks.treeflash.head import TreeFlashHead, save_head
from simlab.real_runner.record.texts import forward_text

VOCAB_SIZE = 23
PROMPT_LENGTH = 6
TEXT = torch.from_numpy(np.random.default_rng(3).integers(0, VOCAB_SIZE, 30))
"""A text, of so many tokens the first ones a prompt."""

FLASH = "flash"
"""The channel that the policies here read."""


def random_head(models: Models, seed: int = 0, inner_size: int = 10) -> TreeFlashHead:
    """Every weight drawn anew, large enough that each of them matters."""
    generator = torch.Generator().manual_seed(seed)
    head = TreeFlashHead(models.drafter.config.hidden_size, inner_size).eval().requires_grad_(False)
    for parameter in head.parameters():
        around, spread = (1.0, 0.3) if parameter.dim() == 1 else (0.0, 2.0 * parameter.shape[1] ** -0.5)
        parameter.copy_(around + spread * torch.randn(parameter.shape, generator=generator))
    return head.to(models.target.dtype)


def make_head(folder: Path, drafter: Path, seed: int, inner_size: int = 12) -> Path:
    """A head of random weights for the tiny drafter, float32, on disk."""
    head, generator = TreeFlashHead(HIDDEN_SIZE, inner_size), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in head.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.5)
    save_head(head, folder, checkpoint_digest(drafter), torch.float32)
    return folder


def random_scorer(models: Models, seed: int = 0) -> TapsScorer:
    """Every weight drawn anew, so that each of them matters; float32, as scorers run."""
    generator = torch.Generator().manual_seed(seed)
    config = models.drafter.config
    scorer = TapsScorer(ScorerSizes(config.hidden_size, config.depth, rank=5, depth_size=3, inner_size=11))
    for parameter in scorer.eval().requires_grad_(False).parameters():
        around, spread = (0.3, 0.3) if parameter.dim() == 1 else (0.0, 1.5 * parameter.shape[1] ** -0.5)
        parameter.copy_(around + spread * torch.randn(parameter.shape, generator=generator))
    return scorer.to(models.target.device)


@torch.inference_mode()
def drafted(models: Models) -> tuple[BlockStates, list[Marginals], np.ndarray]:
    """States, marginals and root tokens at every root of the text."""
    taps, roots = models.drafter.config.target_layer_ids, torch.arange(PROMPT_LENGTH, len(TEXT) - 1)
    features, _ = forward_text(models.target, TEXT, taps)
    ((_, states),) = draft_states(models.block_drafter, models.target, features, TEXT, roots, len(roots))
    laws = logits_of(models.block_drafter, models.target, states.after).log_softmax(-1).numpy()
    kept = KeptCandidates(min_width=VOCAB_SIZE, exact_budget=1)
    return states, [kept_marginals(law, kept) for law in laws], TEXT[roots].numpy().astype(np.int32)


def base_at(marginals: list[Marginals], width: int) -> BaseCandidates:
    """The first candidates of some marginals."""
    flat = [np.concatenate([getattr(marginal, name) for marginal in marginals]) for name in ("ids", "log_probs")]
    return base_candidates(flat[0], flat[1], np.stack([np.diff(marginal.offsets) for marginal in marginals]), width)


def flash_policy(budget: int = 8, previous: int = 4, top_k: int = 4) -> Composition:
    """Best-first on the rows of a head."""
    source = TransitionSource(FLASH, previous=previous, top_k=top_k)
    return Composition(LatticeOrder(source), FixedBudget(budget), label=f"flash:budget={budget}")
