"""Training a DFlash drafter on the target's own text."""

import math
import platform
from collections.abc import Callable

import torch
from torch import Tensor, nn

from simlab.errors import ModelError
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.targets.model import Target
from simlab.real_runner.train.data import FeatureStore, TrainingBatch
from simlab.real_runner.train.losses import block_loss
from simlab.real_runner.train.options import TrainingPlan


class Trainer:
    """One run: the drafter, its optimiser, and the step it has reached."""

    def __init__(self, drafter: DFlashDrafter, target: Target, store: FeatureStore, plan: TrainingPlan) -> None:
        self.drafter, self.target, self.store, self.plan = drafter.float().train(), target, store, plan
        self.optimiser = torch.optim.AdamW(
            drafter.parameters(), lr=plan.learning_rate, betas=(0.9, 0.95), weight_decay=plan.weight_decay
        )
        self.step = 0
        self.kept, self.place = _head_subset(store, target, plan.head_tokens)
        weight = target.head.weight
        assert isinstance(weight, Tensor)
        self.head = weight[self.kept].to(target.dtype)

    def run(self, until: int, on_step: Callable[[], object] = lambda: None) -> float:
        """Train up to a step; the mean loss of the steps taken.

        Raises:
            ModelError: the loss is no longer a finite number.
        """
        losses = []
        for step in range(self.step, until):
            for group in self.optimiser.param_groups:
                group["lr"] = learning_rate(self.plan, step)
            loss = self._loss(self._batch(step))
            self.optimiser.zero_grad(set_to_none=True)
            loss.backward()
            nn.utils.clip_grad_norm_(self.drafter.parameters(), 1.0)
            self.optimiser.step()
            losses.append(float(loss.detach()))
            if not math.isfinite(losses[-1]):
                raise ModelError(f"the loss of step {step + 1} is {losses[-1]}; start over with a lower learning rate")
            self.step = step + 1
            on_step()
        return sum(losses) / max(1, len(losses))

    def _batch(self, step: int) -> TrainingBatch:
        plan = self.plan
        return self.store.batch(step, plan.seed, plan.num_sequences, plan.num_roots, self.drafter.config.block_size)

    def _loss(self, batch: TrainingBatch) -> Tensor:
        config, device = self.drafter.config, self.target.device
        tokens, roots = batch.tokens.to(device), batch.roots.to(device)
        s, g = roots.shape
        blocks = torch.full((s, g, config.block_size), config.mask_token_id, device=device)
        blocks[:, :, 0] = tokens.gather(1, roots)
        ahead = roots[..., None] + torch.arange(1, config.block_size, device=device)
        truth = tokens.gather(1, ahead.view(s, -1)).view(s * g, -1)
        dtype = self.target.dtype
        with torch.autocast(device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
            embedded = self.target.embedding(blocks).to(dtype)
            context = self.drafter.context(batch.features.to(device, dtype))
            hidden = self.drafter(embedded, roots, context)[:, :, 1:]
            logits = hidden.reshape(s * g * config.depth, -1) @ self.head.T
        log_probs = logits.float().log_softmax(-1)
        place = torch.where(truth >= 0, self.place[truth.clamp(min=0)], -1)
        of_truth = log_probs.gather(1, place.clamp(min=0).view(-1, 1)).view(place.shape)
        best = log_probs.detach().amax(-1).view(place.shape)
        return block_loss(best, of_truth, place >= 0, self.plan.loss)


def _head_subset(store: FeatureStore, target: Target, count: int) -> tuple[Tensor, Tensor]:
    """Ids of the commonest tokens, and where each token stands among them (-1: nowhere)."""
    vocab_size = target.vocab_size
    if count == 0 or count >= vocab_size:
        kept = torch.arange(vocab_size)
    else:
        kept = store.token_counts(vocab_size).sort(descending=True, stable=True).indices[:count].sort().values
    place = torch.full((vocab_size,), -1)
    place[kept] = torch.arange(len(kept))
    return kept.to(target.device), place.to(target.device)


def training_dtype(device: str) -> torch.dtype:
    """What the target runs in, and the drafter's matrix products: bfloat16 where the hardware has it, else float32."""
    if torch.device(device).type == "cuda":
        has = torch.cuda.is_bf16_supported(including_emulation=False)
    elif platform.machine().lower() in ("aarch64", "arm64"):
        has = torch.backends.mkldnn.is_available() and bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())
    else:
        # AMX comes with AVX512-BF16; oneDNN's own answer is also yes where it would emulate.
        has = torch.cpu._is_avx512_bf16_supported()
    return torch.bfloat16 if has else torch.float32


def learning_rate(plan: TrainingPlan, step: int) -> float:
    """Linear warm-up, then a cosine to zero."""
    if step < plan.warmup_steps:
        return plan.learning_rate * (step + 1) / plan.warmup_steps
    share = (step - plan.warmup_steps) / max(1, plan.steps - plan.warmup_steps)
    return plan.learning_rate * 0.5 * (1 + math.cos(math.pi * share))
