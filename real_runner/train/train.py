"""``simlab train dflash``: from text to a drafter, in one folder that can be taken up again."""

import copy
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm

from simlab.real_runner.checkpoints.files import write_json, write_text
from simlab.real_runner.checkpoints.zlab import config_to_json
from simlab.real_runner.drafters.dense import draft_logits
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.networks.drafter import save_drafter
from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target
from simlab.real_runner.train.features import block_loss, judged
from simlab.real_runner.train.model_card import model_card
from simlab.real_runner.train.options import TrainOptions
from simlab.real_runner.train.plan import TrainingPlan
from simlab.real_runner.train.setup import (
    TRACKED_FILES,
    check_start,
    dev_stores,
    drafter_of,
    start_from_earlier,
    start_of,
    store_of,
    tracked_settings,
)
from simlab.real_runner.train.state import STATE, load_state, save_state
from simlab.real_runner.train.text import FeatureStore
from simlab.real_runner.train.trainer import (
    CurvePoint,
    DevScore,
    Trainer,
    commonest,
    indices_of,
    note_evaluation,
    row_of,
    train_through,
    training_dtype,
)
from simlab.traces.format.lock import exclusive_lock
from simlab.tracking.tracker import check_trackers, tracking

# How well a drafter does on dev texts: acceptance of its chain, and agreement at each depth.


_BLOCKS_PER_PASS = 64


@torch.inference_mode()
def dev_score(drafter: DFlashDrafter, target: Target, store: FeatureStore, name: str) -> DevScore:
    """Draft at every root of every dev text and walk the chain through it; the name is for progress."""
    depth = drafter.config.depth
    right, counted = torch.zeros(depth), torch.zeros(depth)
    committed = rounds = 0
    texts = tqdm(
        store.sequences(), total=len(store.usable), desc=f"scoring on {name}", unit="text", leave=False, disable=None
    )
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


# What a DFlash drafter learns: the loss of random blocks of the target's own text.
#
# A drafter that redrafts behind its own first tokens (D2SD's second drafter, arXiv 2606.04446; JetSpec's head on paths,
# arXiv 2606.18394) learns with the first slots filled: root and l true tokens, masks behind them, and the loss from the
# first mask on.


class DrafterLoss:
    """The loss of a step: a function of plan and step, and of the drafter's weights."""

    def __init__(
        self,
        drafter: DFlashDrafter,
        target: Target,
        store: FeatureStore,
        plan: TrainingPlan,
        variable_prefix: float | None = None,
    ) -> None:
        """Hold on to what a step needs.

        Args:
            drafter: that learns.
            target: whose embedding and head it borrows.
            store: the texts that are learnt from.
            plan: of the run.
            variable_prefix: a block begins with l of D true tokens behind its root, l = 0 .. D - 1 as likely as this
                number to the power l; None: with none.
        """
        self.drafter, self.target, self.store, self.plan = drafter, target, store, plan
        self.variable_prefix = variable_prefix
        kept = commonest(store, target.vocab_size, plan.head_tokens)
        self.index_of = indices_of(kept, target.vocab_size).to(target.device)
        weight = target.head.weight
        assert isinstance(weight, Tensor)
        self.head = weight[kept.to(target.device)].to(target.dtype)

    def __call__(self, step: int) -> Tensor:
        """The loss of the step's batch, a scalar."""
        config, device, plan = self.drafter.config, self.target.device, self.plan
        batch = self.store.batch(step, plan.seed, plan.num_sequences, plan.num_roots, config.block_size)
        tokens, roots = batch.tokens.to(device), batch.roots.to(device)
        s, g = roots.shape
        blocks = torch.full((s, g, config.block_size), config.mask_token_id, device=device)
        blocks[:, :, 0] = tokens.gather(1, roots)
        ahead = roots[..., None] + torch.arange(1, config.block_size, device=device)
        truth = tokens.gather(1, ahead.view(s, -1)).view(s * g, -1)
        lengths = self._prefix_lengths(step, s * g).to(device)
        slots = torch.arange(config.depth, device=device)
        is_filled = (slots < lengths[:, None]) & (truth >= 0)
        blocks[:, :, 1:] = torch.where(is_filled, truth, config.mask_token_id).view(s, g, -1)
        dtype = self.target.dtype
        with torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
            embedded = self.target.embedding(blocks).to(dtype)
            context = self.drafter.context(batch.features.to(device, dtype))
            hidden = self.drafter(embedded, roots, context)[:, :, 1:]
            logits = hidden.reshape(s * g * config.depth, -1) @ self.head.T
        log_probs = logits.float().log_softmax(-1).view(*truth.shape, -1)
        # What comes behind the filled slots moves to the front, so that depths weigh from there on.
        moved = (slots + lengths[:, None]).clamp(max=config.depth - 1)
        is_asked = slots + lengths[:, None] < config.depth
        entropies, right, known = (tensor.gather(1, moved) for tensor in judged(log_probs, truth, self.index_of))
        return block_loss(entropies, right, known & is_asked, plan.loss)

    def _prefix_lengths(self, step: int, num_blocks: int) -> Tensor:
        """int64 ``[N]``, filled slots of each block of a step: a function of step and seed alone."""
        if self.variable_prefix is None:
            return torch.zeros(num_blocks, dtype=torch.int64)
        depth = self.drafter.config.depth
        chances = self.variable_prefix ** np.arange(depth, dtype=np.float64)
        drawn = np.random.default_rng([self.plan.seed, step, 3]).choice(depth, num_blocks, p=chances / chances.sum())
        return torch.from_numpy(drawn.astype(np.int64))


__all__ = ["TrainOptions", "scores_of", "train"]


def train(options: TrainOptions) -> Path:
    """Train a drafter; the checkpoint, its card, its state and its curve are in the folder.

    Raises:
        SimlabError: text, models or folder cannot be used.
    """
    check_trackers(options.track)
    with exclusive_lock(options.out / STATE):
        check_start(options.out, options.texts.files + options.dev, options.device, options.resume)
        return _trained(options)


def _trained(options: TrainOptions) -> Path:
    target = load_target(options.target, training_dtype(options.device), options.device)
    start = start_of(options, target)
    config = start.config if isinstance(start, DFlashDrafter) else start
    store = store_of(options.out, options.texts, options.plan.seed, target, config.target_layer_ids)
    dev = dev_stores(options, target, config)
    drafter = drafter_of(options, target, start, store)
    settings = {"config": config_to_json(drafter.config), "dtype": str(target.dtype), **options.filled}
    loss = DrafterLoss(drafter, target, store, options.plan, options.variable_prefix)
    trainer = Trainer(drafter, loss, options.plan, settings)
    if (options.out / STATE).exists():
        curve = load_state(trainer, options.out)
    else:
        curve = []
        start_from_earlier(options, trainer)

    def evaluate(loss: float | None) -> Mapping[str, float]:
        curve.append(CurvePoint(trainer.step, loss, scores_of(drafter, target, dev)))
        save_state(trainer, curve, options.out)
        save_drafter(drafter, options.out)
        write_json(options.out / "curve.json", [row_of(point) for point in curve])
        return {name: score.acceptance_length for name, score in curve[-1].dev.items()}

    with tracking(options.track, "train dflash", lambda: tracked_settings(options, target, settings)) as tracker:
        if not curve:
            # The start is scored and saved too: whatever is wrong with scoring or disk shows at once.
            note_evaluation(evaluate(None), trainer, tracker)
        train_through(trainer, options.out, options.eval_every, evaluate, tracker)
        save_drafter(drafter, options.out)
        write_json(options.out / "curve.json", [row_of(point) for point in curve])
        card = model_card(options, drafter, len(store.usable), store.num_text_tokens, curve)
        write_text(options.out / "README.md", card)
        tracker.results({"final": row_of(curve[-1])})
        tracker.files(*(options.out / name for name in TRACKED_FILES))
    return options.out


def scores_of(drafter: DFlashDrafter, target: Target, dev: Mapping[str, FeatureStore]) -> dict[str, DevScore]:
    """The drafter on every dev set, with its weights rounded as they will be shipped."""
    fixed = copy.deepcopy(drafter).to(torch.bfloat16).to(target.dtype).eval()
    return {name: dev_score(fixed, target, store, name) for name, store in dev.items()}
