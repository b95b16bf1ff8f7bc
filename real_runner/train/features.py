"""Target hidden states of training text, read once and kept on disk.

A store is a folder of safetensors shards, each a fixed run of sequences, written whole and
renamed into place: a killed reading continues where it stopped.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from tqdm import tqdm

from simlab.real_runner.checkpoints.files import write_tensors
from simlab.real_runner.targets.model import Target, features_of, tapped
from simlab.real_runner.train.plan import LossWeights

# The training loss of a block drafter: three interventions on cross-entropy.
#
# "Teaching Diffusion to Speculate Left-to-Right" (2026), arXiv 2606.11552: earlier positions weigh
# more, the first error weighs extra, and the expected length of the accepted chain is rewarded.
# The scale of the decay and whether the weights apply per block are reconstructions: here the decay
# is exp(-k / decay), weights within a block sum to one, and every term is a mean over blocks.


def judged(log_probs: Tensor, truth: Tensor, indices: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """What laws say of the true tokens: cross-entropies, whether the most probable token is true, and what counts.

    Args:
        log_probs: float32 ``[..., K]``, of the tokens that the loss is taken over.
        truth: int64 ``[...]``, -1 where there is no true token.
        indices: int64 ``[V]``, where each token stands among these; -1: nowhere.

    Returns:
        float32, nats; bool; bool: all ``[...]``.
    """
    index = torch.where(truth >= 0, indices[truth.clamp(min=0)], -1)
    of_truth = log_probs.gather(-1, index.clamp(min=0)[..., None])[..., 0]
    return -of_truth, of_truth >= log_probs.detach().amax(-1), index >= 0


def block_loss(entropies: Tensor, right: Tensor, known: Tensor, weights: LossWeights) -> Tensor:
    """The loss of a batch of blocks, a scalar.

    Args:
        entropies: float32 ``[N, D]``, cross-entropy of the true token; nats.
        right: bool ``[N, D]``, whether the drafter's most probable token is the true one.
        known: bool ``[N, D]``, whether depth d of a block has a true token that counts.
        weights: the three weights.
    """
    depths = torch.arange(entropies.shape[1], device=entropies.device)
    if weights.decay > 0:
        per_depth = torch.exp(-depths / weights.decay)
    else:
        per_depth = torch.ones_like(depths, dtype=torch.float32)
    per_depth = per_depth / per_depth.sum()
    blocks = known[:, 0].sum().clamp(min=1)
    loss = (entropies * known * per_depth).sum() / blocks
    if weights.focal > 0:
        wrong = known & ~right
        first_wrong = wrong & (wrong.cumsum(1) == 1)
        loss = loss + weights.focal * (entropies * first_wrong).sum() / blocks
    if weights.chain > 0:
        reached = torch.exp(((-entropies).masked_fill(~known, -1e4)).cumsum(1))
        loss = loss - weights.chain * reached.sum() / blocks
    return loss


SEQUENCES_PER_SHARD = 64
_TOKENS_PER_BATCH = 4096


@dataclass(frozen=True, slots=True)
class TrainingText:
    """One prompt and its continuation, as token ids."""

    prompt_ids: tuple[int, ...]
    text_ids: tuple[int, ...]


def read_features(
    texts: Sequence[TrainingText], target: Target, layer_ids: Sequence[int], folder: Path, max_tokens: int
) -> None:
    """Run the target over every text and keep the tapped states, bfloat16; without layers, the tokens alone.

    Sequences are cut after ``max_tokens``. Finished shards are skipped. Each shard is a run of
    consecutive texts: give them in random order, so that any part of the store is a fair sample.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with tqdm(total=len(texts), desc=f"reading hidden states for {folder.name}", unit="text", disable=None) as bar:
        for number, start in enumerate(range(0, len(texts), SEQUENCES_PER_SHARD)):
            part = texts[start : start + SEQUENCES_PER_SHARD]
            path = folder / f"features-{number:05d}.safetensors"
            if path.is_file():
                bar.update(len(part))
            else:
                write_tensors(path, _read_shard(part, target, layer_ids, max_tokens, bar.update))


def _read_shard(
    texts: Sequence[TrainingText],
    target: Target,
    layer_ids: Sequence[int],
    max_tokens: int,
    on_texts: Callable[[int], object],
) -> dict[str, Tensor]:
    rows = [torch.tensor((text.prompt_ids + text.text_ids)[:max_tokens], dtype=torch.int64) for text in texts]
    features: list[Tensor] = [torch.empty(0)] * len(rows)
    by_length = sorted(range(len(rows)), key=lambda i: len(rows[i]))
    while by_length:
        longest = len(rows[by_length[-1]])
        count = max(1, _TOKENS_PER_BATCH // longest)
        batch, by_length = by_length[-count:], by_length[:-count]
        ids = torch.nn.utils.rnn.pad_sequence([rows[i] for i in batch], batch_first=True)
        states = teacher_forced_features(target, ids, layer_ids)
        for row, index in enumerate(batch):
            features[index] = states[row, : len(rows[index])].to(torch.bfloat16)
        on_texts(len(batch))
    return {
        "tokens": torch.cat(rows).to(torch.int32),
        "lengths": torch.tensor([len(row) for row in rows], dtype=torch.int32),
        "prompt_lengths": torch.tensor([len(text.prompt_ids) for text in texts], dtype=torch.int32),
        "features": torch.cat(features),
    }


@torch.inference_mode()
def teacher_forced_features(target: Target, ids: Tensor, layer_ids: Sequence[int]) -> Tensor:
    """Tapped states ``[S, L, taps x H]`` of right-padded ids ``[S, L]``; causal, so padding is harmless."""
    if not layer_ids:
        return torch.empty(*ids.shape, 0)
    with tapped(target, layer_ids) as taken:
        target.model.get_decoder()(ids.to(target.device), use_cache=False)
        return features_of(taken, layer_ids)
