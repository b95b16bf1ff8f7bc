"""How a checkpoint numbers the target's layers, found by trying.

Publishers count layers in two ways, and configurations do not say which. A drafter that reads the state one layer
too early or too late still drafts, only worse, and nothing fails. Its top-1 tokens along the target's own text do
tell: read as it was trained, it agrees with that text far more often.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from tqdm import tqdm

from simlab.arrays import Doubles, Ints
from simlab.errors import ModelError
from simlab.real_runner.decoding.generate import generate
from simlab.real_runner.drafters.config import TAP_OFFSETS, DFlashConfig, check_taps
from simlab.real_runner.drafters.dense import draft_logits
from simlab.real_runner.models import Models
from simlab.real_runner.targets.model import features_of, tapped
from simlab.sampling.choice import Sampling

PromptAndText: TypeAlias = tuple[Ints, Ints]
"""A prompt and what the target wrote after it, int32."""

AUTO = "auto"
CHOICES = (AUTO, *map(str, TAP_OFFSETS))
"""What a person may ask for; None: as the checkpoint's format has it."""

MOST_TEXTS, TEXT_TOKENS, PROMPT_TOKENS = 8, 128, 512
_FEW_ROOTS, _MANY_ROOTS, _BLOCKS_PER_PASS = 128, 1024, 32
_CLEAR_ERRORS = 4.0


@dataclass(frozen=True, slots=True)
class OffsetTrial:
    """What came of reading the layer numbers in one way.

    Attributes:
        agreement_share: of the drafted tokens, how many are the text's.
        hits: float64 ``[R]``, the text's tokens among the drafted ones at each root.
        num_drafted: of all roots.
    """

    offset: int
    agreement_share: float
    hits: Doubles
    num_drafted: int


def parse_tap_offset(choice: str | None) -> int | None:
    """The offset that a person named; None: as the format has it, or still to be found."""
    return None if choice is None or choice == AUTO else int(choice)


def settle_tap_offset(models: Models, choice: str | None, texts: Sequence[PromptAndText]) -> None:
    """Find the offset where it is asked for; it then stands in the drafter's configuration.

    Args:
        models: the drafter's configuration is replaced.
        choice: one of `CHOICES`, or None.
        texts: with which to try; without an answer the target writes one.
    """
    if choice != AUTO:
        return
    drafter, answered = models.block_drafter, _answered(models, texts[:MOST_TEXTS])
    best, trials = _best_trial(models, answered)
    drafter.config = drafter.config.with_tap_offset(best.offset)
    tqdm.write(f"--tap-offset {AUTO}: {best.offset} ({_shown(trials)})", file=sys.stderr)


def _best_trial(models: Models, texts: Sequence[PromptAndText]) -> tuple[OffsetTrial, list[OffsetTrial]]:
    """The best trial, from few roots where these are enough, and all trials."""
    trials = [try_offset(models, config, texts, _FEW_ROOTS) for config in readings(models)]
    try:
        return clearly_best(trials), trials
    except ModelError:
        trials = [try_offset(models, config, texts, _MANY_ROOTS) for config in readings(models)]
        return clearly_best(trials), trials


def readings(models: Models) -> list[DFlashConfig]:
    """The drafter's configuration in each convention in which its layers are layers of the target."""
    configs = []
    for offset in TAP_OFFSETS:
        try:
            config = models.block_drafter.config.with_tap_offset(offset)
            check_taps(config.target_layer_ids, len(models.target.layers))
        except ModelError:
            continue
        configs.append(config)
    return configs


@torch.inference_mode()
def try_offset(models: Models, config: DFlashConfig, texts: Sequence[PromptAndText], num_roots: int) -> OffsetTrial:
    """Draft along some texts, with the tapped layers of a configuration, at so many roots of them or fewer."""
    hits: list[float] = []
    drafter, num_drafted, per_text = models.block_drafter, 0, max(1, num_roots // max(1, len(texts)))
    for prompt, text in texts:
        tokens = torch.from_numpy(np.concatenate([prompt, text]).astype(np.int64)).to(models.target.device)
        with tapped(models.target, config.target_layer_ids) as taken:
            models.target.states(tokens[None])
            features = features_of(taken, config.target_layer_ids)[0]
        first, last = len(prompt), len(tokens) - 1
        chosen = np.unique(np.linspace(first, last - 1, min(per_text, max(0, last - first)), dtype=np.int64))
        roots = torch.from_numpy(chosen).to(tokens.device)
        for part, logits in draft_logits(
            models.block_drafter, models.target, features, tokens, roots, _BLOCKS_PER_PASS
        ):
            drafted = logits.argmax(-1).cpu().numpy().astype(np.int32)
            proposed = drafted if drafter.vocabulary is None else drafter.vocabulary.to_target(drafted)
            ahead = part.cpu().numpy()[:, None] + np.arange(1, config.depth + 1)
            valid = ahead < len(tokens)
            truth = tokens.cpu().numpy()[np.minimum(ahead, last)]
            hits += ((proposed == truth) & valid).sum(axis=1).tolist()
            num_drafted += int(valid.sum())
    if not num_drafted:
        raise ModelError(f"the texts are too short for --tap-offset {AUTO}; give --tap-offset 0 or 1")
    return OffsetTrial(config.tap_offset, sum(hits) / num_drafted, np.array(hits, np.float64), num_drafted)


def clearly_best(trials: Sequence[OffsetTrial]) -> OffsetTrial:
    """The trial that agrees clearly more with the text than every other.

    Clearly: the mean difference per root is above four of its standard errors. The only reading in which the
    layers exist is the best.
    """
    if not trials:
        raise ModelError("the drafter's target_layer_ids do not fit the target in either way of counting layers")
    best = max(trials, key=lambda trial: trial.agreement_share)
    for other in trials:
        if other is not best and not _clearly_above(best.hits, other.hits):
            raise ModelError(
                f"--tap-offset {AUTO} cannot tell which layers this drafter reads ({_shown(trials)}); ask its "
                "publisher and give --tap-offset 0 or 1, or give more and longer prompts"
            )
    return best


def _clearly_above(hits: Doubles, others: Doubles) -> bool:
    difference = hits - others
    error = float(difference.std(ddof=1)) / len(difference) ** 0.5 if len(difference) > 1 else float("inf")
    return float(difference.mean()) > _CLEAR_ERRORS * error


def _shown(trials: Sequence[OffsetTrial]) -> str:
    return ", ".join(
        f"{trial.offset}: {trial.agreement_share:.1%} of {trial.num_drafted:,} drafted tokens are the text's"
        for trial in trials
    )


def _answered(models: Models, texts: Sequence[PromptAndText]) -> list[PromptAndText]:
    """The texts, the target's own greedy words where there are none yet; long ones are cut."""
    cut = [(prompt, text[:TEXT_TOKENS]) for prompt, text in texts]
    silent = [number for number, (_, text) in enumerate(cut) if not len(text)]
    if silent:
        prompts = [cut[number][0][-PROMPT_TOKENS:] for number in silent]
        greedy = Sampling(0.0, 0, 1.0, 0)
        most = max(1, min(TEXT_TOKENS, models.target.longest_context - max(map(len, prompts))))
        written = generate(models.target, [ids.tolist() for ids in prompts], [0] * len(prompts), greedy, most)
        for number, ids, (answer, _) in zip(silent, prompts, written, strict=True):
            cut[number] = (ids, np.array(answer, np.int32))
    return cut
