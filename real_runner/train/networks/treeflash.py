"""Training a first-order head, ``simlab train treeflash``: the target's token at every slot, given the true one above.

The drafter and the target's head stay as they are. All depths of a block are learnt at once: the token above is the
text's own, so no depth waits for another.
"""

from abc import abstractmethod
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.contents import checkpoint_digest, config_file
from simlab.real_runner.drafters.dense import BlockStates, block_states, embedded_tokens, finished_logits
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.networks.adapter.config import adapter_from_json
from simlab.real_runner.networks.adapter.gated import load_adapter
from simlab.real_runner.networks.adapter.masked import OwnDrafter
from simlab.real_runner.networks.drafter import find_drafter
from simlab.real_runner.networks.known import read_fields
from simlab.real_runner.networks.treeflash.head import TreeFlashHead, save_head
from simlab.real_runner.targets.model import Target
from simlab.real_runner.train.features import block_loss, judged
from simlab.real_runner.train.networks.run import (
    Learner,
    NetworkWords,
    Scored,
    Start,
    beside_drafter,
    train_network,
)
from simlab.real_runner.train.options import HeadOptions
from simlab.real_runner.train.plan import TrainingPlan
from simlab.real_runner.train.text import FeatureStore, TrainingBatch
from simlab.real_runner.train.trainer import commonest, indices_of


def train_head(options: HeadOptions) -> Path:
    """Train a head; see `train_network`.

    Raises:
        SimlabError: text, models or folder cannot be used.
    """

    def begun(digest: str, drafter: DFlashDrafter | OwnDrafter, target: Target, store: FeatureStore) -> HeadLoss:
        wide = target.config if isinstance(drafter, OwnDrafter) else drafter.config
        inner_size = options.inner_size or wide.intermediate_size
        head = TreeFlashHead(drafter.config.hidden_size, inner_size, options.dropout).to(target.device)
        return HeadLoss(head, drafter, target, store, options.plan, digest)

    def start(target: Target) -> Start:
        folder = find_drafter(options.draft).folder
        if adapter_from_json(read_fields(config_file(folder))) is None:
            return beside_drafter(options, begun)(target)
        adapter = load_adapter(folder, target)
        if adapter.config.noise is not None and not adapter.config.noise.below:
            raise ModelError(
                f"{options.draft} does not say which tokens stand at its rows, as UNO's adapters do not; train a head "
                "on one of `simlab train self --noise uniform`"
            )
        digest, own = checkpoint_digest(folder), OwnDrafter(adapter, target)
        # Texts are read anew in every step, so no state of theirs is kept.
        return Start((), lambda store: begun(digest, own, target, store), (options.draft, digest))

    return train_network(options, start)


SomeHead = TypeVar("SomeHead", bound=nn.Module)


class FirstOrderLoss(Learner[SomeHead]):
    """What a network learns of a token given the one above; a subclass says what its network makes of that one."""

    def __init__(
        self,
        head: SomeHead,
        drafter: DFlashDrafter | OwnDrafter,
        target: Target,
        store: FeatureStore,
        plan: TrainingPlan,
        digest: str,
    ) -> None:
        """Prepare the rows of the output head that the loss is taken over.

        Args:
            head: that learns.
            drafter: that does not, in the target's dtype; or the masks of a target that drafts for itself.
            target: of both; this and the next two as of `Learner`.
            store: the same.
            plan: the same.
            digest: of the drafter's checkpoint.
        """
        super().__init__(head, target, store, plan, drafter.config.block_size)
        self.digest, self.drafter = digest, drafter
        kept, own, output = commonest(store, target.vocab_size, plan.head_tokens), drafter.vocabulary, target.head
        rows = kept
        if own is not None and drafter.lm_head is not None:
            output, ids = drafter.lm_head, torch.from_numpy(own.to_draft(kept.numpy())).to(torch.int64)
            kept, rows = kept[ids >= 0], ids[ids >= 0]
        self._place = indices_of(kept, target.vocab_size).to(target.device)
        self._kept = kept.to(target.device)
        weight, bias = output.weight, getattr(output, "bias", None)
        assert isinstance(weight, Tensor)
        self._weight = weight[rows.to(weight.device)].to(target.device)
        self._bias = bias[rows.to(bias.device)].to(target.device) if isinstance(bias, Tensor) else None

    def __call__(self, step: int) -> Tensor:
        """The loss of the step's batch, a scalar."""
        # What dropout leaves out is a function of the step too, so that a resumed run is the same run.
        torch.manual_seed(int(np.random.default_rng([self.plan.seed, step, 4]).integers(2**63)))
        return super().__call__(step)

    def loss(self, scored: Scored) -> Tensor:
        entropies, right, known = scored
        return block_loss(entropies, right, known, self.plan.loss)

    @abstractmethod
    def _log_probs(self, head: SomeHead, states: BlockStates, above: Tensor, depths: Tensor) -> Tensor:
        """float32 ``[N, D, V']``, of the tokens that the loss is taken over; ``above`` is int64 ``[N, D]``."""

    def scored(self, network: SomeHead, batch: TrainingBatch, step: int | None) -> Scored:
        drafter, target, device = self.drafter, self.target, self.target.device
        tokens, roots = batch.tokens.to(device), batch.roots.to(device)
        # Masks stand behind the token before a root.
        roots = roots.clamp(min=1) if isinstance(drafter, OwnDrafter) else roots
        depths = torch.arange(drafter.config.depth, device=device)
        above, truth = (
            tokens.gather(1, (roots[..., None] + depths + further).flatten(1)).view(-1, len(depths))
            for further in (0, 1)
        )
        with torch.no_grad():
            if isinstance(drafter, OwnDrafter):
                # Behind the last root nothing is read.
                states = drafter.states(tokens[:, : int(roots.max())].clamp(min=0), roots)
            else:
                context = drafter.context(batch.features.to(device, target.dtype))
                states = block_states(drafter, target, tokens.gather(1, roots).flatten(), roots.flatten(), context)
        with torch.autocast(device.type, torch.bfloat16, enabled=target.dtype == torch.bfloat16):
            log_probs = self._log_probs(network, states, above.clamp(min=0), depths)
        return judged(log_probs, truth, self._place)

    def _of_output_head(self, states: Tensor) -> Tensor:
        """float32 ``[N, D, V']`` of states ``[N, D, H]`` behind the drafter's norm."""
        logits = torch.nn.functional.linear(states.flatten(0, 1), self._weight, self._bias).float()
        return finished_logits(self.drafter, logits).log_softmax(-1).view(*states.shape[:2], -1)


class HeadLoss(FirstOrderLoss[TreeFlashHead]):
    """That of a TreeFlash head."""

    def settings(self) -> dict[str, object]:
        return {"inner_size": self.network.inner_size, "dropout": self.network.dropout.p}

    def save(self, folder: Path) -> None:
        save_head(self.network, folder, self.digest)

    def _log_probs(self, head: TreeFlashHead, states: BlockStates, above: Tensor, depths: Tensor) -> Tensor:
        embedded = embedded_tokens(self.drafter, self.target, above).to(self.target.dtype)
        return self._of_output_head(self.drafter.norm(head(states.before, states.after, embedded, depths)))

    def described(self) -> NetworkWords:
        return NetworkWords(
            kind="head",
            what="A first-order head (TreeFlash, arXiv 2606.03819)",
            command="simlab train treeflash",
            does="It corrects what the drafter says of a depth for the token at the depth above.",
            sizes={"inner size": self.network.inner_size},
            borrowed="Embedding, last norm and output head are those of the drafter.",
            before="drafter alone",
            start="the drafter's own marginals: the head adds nothing",
            asked="the true token, the true token above it known, over the tokens that the loss is taken over",
        )
