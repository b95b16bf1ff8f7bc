"""How well a drafter does on dev texts: acceptance of its chain, and agreement at each depth."""

from collections.abc import Iterator

import torch
from torch import Tensor
from tqdm import tqdm

from simlab.real_runner.drafters.dense import draft_logits
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.targets.model import Target
from simlab.real_runner.train.curve import DevScore
from simlab.real_runner.train.data import FeatureStore

_BLOCKS_PER_PASS = 64


@torch.inference_mode()
def dev_score(drafter: DFlashDrafter, target: Target, store: FeatureStore, name: str) -> DevScore:
    """Draft at every root of every dev text and walk the chain through it; the name is for progress."""
    depth = drafter.config.depth
    right, counted = torch.zeros(depth), torch.zeros(depth)
    committed = rounds = 0
    texts = tqdm(store.sequences(), total=len(store.usable), desc=f"scoring on {name}", unit="text", leave=False)
    for tokens, prompt_length, features in texts:
        matches, known = _matches(drafter, target, tokens, prompt_length, features.to(target.dtype))
        right += (matches & known).sum(0)
        counted += known.sum(0)
        for step in _chain_rounds((matches & known).int().cumprod(1).sum(1).tolist()):
            committed, rounds = committed + step, rounds + 1
    agreement = tuple((right / counted.clamp(min=1)).tolist())
    return DevScore(round(committed / max(rounds, 1), 4), tuple(round(share, 4) for share in agreement))


def _matches(
    drafter: DFlashDrafter, target: Target, tokens: Tensor, prompt_length: int, features: Tensor
) -> tuple[Tensor, Tensor]:
    """bool ``[T - 1, D]``: the most probable token is the true one; there is a true one."""
    tokens, features = tokens.to(target.device), features.to(target.device)
    roots = torch.arange(prompt_length, len(tokens) - 1, device=target.device)
    ahead = roots[:, None] + torch.arange(1, drafter.config.block_size, device=target.device)
    truth = tokens[ahead.clamp(max=len(tokens) - 1)]
    passes = draft_logits(drafter, target, features, tokens, roots, _BLOCKS_PER_PASS)
    best = torch.cat([logits.argmax(-1) for _, logits in passes])
    return (best == truth).cpu(), (ahead < len(tokens)).cpu()


def _chain_rounds(accepted: list[int]) -> Iterator[int]:
    """Tokens committed by each round; ``accepted[t]`` is what the chain at root t gets right."""
    t = 0
    while t < len(accepted):
        step = min(accepted[t] + 1, len(accepted) - t)
        yield step
        t += step
