"""Training an adapter, ``simlab train self``: the target learns to say, at masks, what it would say at the tokens.

Samragh and others 2025, "Your LLM Knows the Future", arXiv 2507.11851. The target stays as it is: a text is read
without gradients, and the masks behind some of its tokens are a pass of their own on what was read; backwards goes
through the rows of that pass alone.

Letters: S sequences, G roots of each, N = S G, k masks behind the token before a root, H hidden size.
"""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor

from simlab.real_runner.networks.adapter.gated import GatedAdapter, config_for, load_adapter, save_adapter
from simlab.real_runner.networks.adapter.masked import mask_states, read_texts
from simlab.real_runner.networks.adapter.noise import Noise
from simlab.real_runner.networks.drafter import find_drafter
from simlab.real_runner.targets.model import Target
from simlab.real_runner.train.features import block_loss, judged
from simlab.real_runner.train.networks.run import (
    Learner,
    NetworkWords,
    Scored,
    Start,
    train_network,
)
from simlab.real_runner.train.options import UNIFORM, SelfOptions
from simlab.real_runner.train.plan import TrainingPlan
from simlab.real_runner.train.text import FeatureStore, TrainingBatch
from simlab.real_runner.train.trainer import commonest, indices_of


def train_self(options: SelfOptions) -> Path:
    """Train an adapter; see `train_network`.

    Raises:
        SimlabError: text, target or folder cannot be used.
    """

    def start(target: Target) -> Start:
        noise = Noise(below=target.vocab_size) if options.noise == UNIFORM else None
        config = config_for(target, options.masks, options.rank, float(options.rank), noise)

        def begun(store: FeatureStore) -> AdapterLoss:
            adapter = GatedAdapter(config, target).to(target.device)
            if options.init is not None:
                adapter.take(load_adapter(find_drafter(options.init).folder, target), options.init)
            return AdapterLoss(adapter, target, store, options.plan, options.consistency, options.init)

        # Texts are read anew in every step, so no state of theirs is kept.
        return Start((), begun)

    return train_network(options, start)


class AdapterLoss(Learner[GatedAdapter]):
    """What an adapter learns."""

    def __init__(
        self,
        adapter: GatedAdapter,
        target: Target,
        store: FeatureStore,
        plan: TrainingPlan,
        consistency: float,
        init: str | None,
    ) -> None:
        """Prepare the rows of the output head that the loss is taken over.

        Args:
            adapter: that learns; the next three as of `Learner`.
            target: the same.
            store: the same.
            plan: the same.
            consistency: weight of the distance to the states of the text's own rows.
            init: the adapter that it went on from; None: it began anew.
        """
        super().__init__(adapter, target, store, plan, adapter.config.num_masks + 1)
        self.init, self.consistency = init, consistency
        kept = commonest(store, target.vocab_size, plan.head_tokens)
        self._place = indices_of(kept, target.vocab_size).to(target.device)
        weight = target.head.weight
        assert isinstance(weight, Tensor)
        self._rows = weight.detach()[kept.to(target.device)]

    def settings(self) -> dict[str, object]:
        config = self.network.config
        settings = {"masks": config.num_masks, "rank": config.rank, "consistency": self.consistency}
        more = {"noise": None if config.noise is None else UNIFORM, "init": self.init}
        return settings | {name: value for name, value in more.items() if value is not None}

    def save(self, folder: Path) -> None:
        save_adapter(self.network, self.target.name, folder)

    def described(self) -> NetworkWords:
        config = self.network.config
        source, start = "2507.11851", "masks of random embeddings, and a change of nothing"
        if config.noise is not None:
            source, start = "2609.04010", "a change of nothing"
        if self.init is not None:
            start = f"the changes of {self.init}"
        return NetworkWords(
            kind="adapter",
            what=f"An adapter with which a target drafts for itself (after arXiv {source})",
            command="simlab train self",
            does="It is felt at mask rows alone: what the target writes is what it writes without it.",
            sizes={"masks": config.num_masks, "rank": config.rank},
            borrowed="Everything else is the target's.",
            before="before the first step",
            start=start,
            asked="the true token behind each mask, over the tokens that the loss is taken over",
        )

    def loss(self, scored: Scored) -> Tensor:
        entropies, right, known, distance, inside = scored
        loss = block_loss(entropies, right, known, self.plan.loss)
        return loss + self.consistency * (distance * inside).sum() / inside.sum().clamp(min=1)

    def scored(self, network: GatedAdapter, batch: TrainingBatch, step: int | None) -> Scored:
        """What the masks behind some roots say; noise is drawn anew in every step.

        Besides, float32 ``[N, k]``: the mean squared distance to the state of the text's own row; bool ``[N, k]``:
        whether there is such a row.
        """
        target, k, salt = self.target, network.config.num_masks, 0 if step is None else step + 1
        tokens, roots = batch.tokens.to(target.device), batch.roots.to(target.device).clamp(min=1)
        ahead = roots[..., None] + torch.arange(k, device=roots.device)
        # Nothing behind the last mask's place is looked at.
        length = min(batch.features.shape[1], int(ahead.max()) + 1)
        with torch.no_grad():
            texts = read_texts(target, tokens[:, :length].clamp(min=0))
        own_states, _ = texts
        states = mask_states(target, network, texts, roots - 1, self._noise(tokens, roots - 1, salt)).flatten(0, 1)
        truth = _at(tokens[..., None], ahead + 1)[..., 0].flatten(0, 1)
        logits = torch.nn.functional.linear(states, self._rows).float()
        own = _at(own_states, ahead.clamp(max=length - 1)).flatten(0, 1)
        distance = (states.float() - own.float()).square().mean(-1)
        inside = _at(tokens[..., None], ahead)[..., 0].flatten(0, 1) >= 0
        return *judged(logits.log_softmax(-1), truth, self._place), distance, inside

    def _noise(self, tokens: Tensor, anchors: Tensor, salt: int) -> Tensor | None:
        """int64 ``[S, G, k]``, drawn with a salt; None where masks have embeddings of their own."""
        config = self.network.config
        if config.noise is None:
            return None
        text, positions = replace(config.noise, salt=salt).behind(()), anchors.cpu().numpy()
        committed = tokens.gather(1, anchors).cpu().numpy()
        drawn = text.tokens(committed.ravel(), positions.ravel(), config.num_masks)
        return torch.from_numpy(drawn).view(*anchors.shape, -1).to(tokens.device)


def _at(rows: Tensor, indices: Tensor) -> Tensor:
    """Rows ``[S, G, k, H]`` of rows ``[S, C, H]`` at places ``[S, G, k]``."""
    gathered = rows.gather(1, indices.flatten(1)[..., None].expand(-1, -1, rows.shape[-1]))
    return gathered.view(*indices.shape, -1)
