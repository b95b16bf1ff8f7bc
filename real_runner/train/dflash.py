"""What a DFlash drafter learns: the loss of random blocks of the target's own text.

A drafter that redrafts behind its own first tokens (D2SD's second drafter, arXiv 2606.04446; JetSpec's head on paths,
arXiv 2606.18394) learns with the first slots filled: root and l true tokens, masks behind them, and the loss from the
first mask on.
"""

import numpy as np
import torch
from torch import Tensor

from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.targets.model import Target
from simlab.real_runner.train.data import FeatureStore
from simlab.real_runner.train.losses import block_loss
from simlab.real_runner.train.options import TrainingPlan
from simlab.real_runner.train.trainer import commonest, places_of


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
        self.place = places_of(kept, target.vocab_size).to(target.device)
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
        log_probs = logits.float().log_softmax(-1)
        place = torch.where(truth >= 0, self.place[truth.clamp(min=0)], -1)
        of_truth = log_probs.gather(-1, place.clamp(min=0).view(-1, 1)).view(place.shape)
        best = log_probs.detach().amax(-1).view(place.shape)
        # What comes behind the filled slots moves to the front, so that depths weigh from there on.
        moved = (slots + lengths[:, None]).clamp(max=config.depth - 1)
        is_asked = slots + lengths[:, None] < config.depth
        best, of_truth, place = (one.gather(1, moved) for one in (best, of_truth, place))
        return block_loss(best, of_truth, (place >= 0) & is_asked, plan.loss)

    def _prefix_lengths(self, step: int, num_blocks: int) -> Tensor:
        """int64 ``[N]``, filled slots of each block of a step: a function of step and seed alone."""
        if self.variable_prefix is None:
            return torch.zeros(num_blocks, dtype=torch.int64)
        depth = self.drafter.config.depth
        chances = self.variable_prefix ** np.arange(depth, dtype=np.float64)
        drawn = np.random.default_rng([self.plan.seed, step, 3]).choice(depth, num_blocks, p=chances / chances.sum())
        return torch.from_numpy(drawn.astype(np.int64))
