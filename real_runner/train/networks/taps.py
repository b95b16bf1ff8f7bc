"""Training a TAPS scorer, ``simlab train taps``: which outcome below each node of a true path is the target's.

Of every drawn root the drafter's pool is made as in a round. Labels on the path are ours: below each node of the pool
that the text goes through, the text's own token, or another outcome where the pool does not hold it. The release's are
laws: the target's probabilities at all nodes, a pass of the target for each pool, of held-out texts too,
so that the step that is kept is the best at what is learnt. Cross-entropy and agreement by depth are on the path with
both, so that runs can be compared.
"""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor
from tqdm import tqdm

from simlab.arrays import Floats, Ints, Longs
from simlab.errors import ModelError
from simlab.grid import LOWEST
from simlab.ids import content_id
from simlab.real_runner.checkpoints.files import write_tensors
from simlab.real_runner.decoding.tree_pass import TreeMask, pass_of
from simlab.real_runner.drafters.dense import block_states
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.execution.kv_buffers import BufferCache
from simlab.real_runner.networks.taps.config import PoolReach, ScorerSizes
from simlab.real_runner.networks.taps.pool import BeamNodes, beam_nodes, first_base, scorer_inputs
from simlab.real_runner.networks.taps.scorer import TapsScorer, path_sums, save_scorer
from simlab.real_runner.targets.model import Target
from simlab.real_runner.train.networks.run import (
    Learner,
    NetworkWords,
    Scored,
    beside_drafter,
    train_network,
)
from simlab.real_runner.train.options import LAW, ScorerOptions
from simlab.real_runner.train.text import FeatureStore, TrainingBatch, claim
from simlab.tree import DraftTree

# The target's probabilities at all nodes of some pools: the labels that TAPS's release learns from.
#
# After TAPS (2026, arXiv 2606.00487). Of each text a few roots are drawn. The drafter's pool is made there as in a
# round, and the target reads root and pool in one pass, each node seeing the text before the root, its ancestors and
# itself. What is kept lies in a folder, in files of some texts that are written whole: a killed reading continues
# where it stopped.
#
# Letters: S texts, G roots of each, n nodes of a pool, P of them that have children or may have, the root counted.

TEXTS_PER_FILE = 64
LEAST_MISS = 1e-7
"""A path is never sure, so that the loss of one that was not taken is finite."""


@dataclass(frozen=True, slots=True, eq=False)
class LawTexts:
    """The texts with such labels.

    Attributes:
        roots: int64 ``[S, G]``, absolute positions, of each usable text of a store, in its order.
        parents: int32 ``[S, G, n]``, and so on as `BeamNodes` has them.
        ranks: the same.
        tokens: the same.
        marginals: float32 ``[S, G, n]``.
        log_probs: float32 ``[S, G, n]``, the target's.
    """

    roots: Tensor
    parents: Ints
    ranks: Ints
    tokens: Ints
    marginals: Floats
    log_probs: Tensor

    def at(self, texts: Longs, reach: PoolReach, depth: int) -> tuple[BeamNodes, Tensor]:
        """The pools of some texts, by their places, root after root; and the target's, float32 ``[N, n]``."""
        num = self.parents.shape[-1]
        parents, ranks, tokens = (array[texts].reshape(-1, num) for array in (self.parents, self.ranks, self.tokens))
        marginals = self.marginals[texts].reshape(-1, num)
        nodes = BeamNodes(tuple(reach.sizes(depth)), parents, ranks, tokens, marginals)
        return nodes, self.log_probs[torch.from_numpy(texts)].view(-1, num)


def read_laws(
    store: FeatureStore, drafter: DFlashDrafter, target: Target, reach: PoolReach, folder: Path, num: int, seed: int
) -> LawTexts:
    """The labels of some roots of every usable text, read or taken from the folder.

    Args:
        store: of the texts and the states that the drafter reads.
        drafter: whose pools these are, in the target's dtype.
        target: that is asked.
        reach: of the pools; no more than the drafter has.
        folder: that keeps them.
        num: roots of a text.
        seed: of the drawing of roots.

    Raises:
        ModelError: a file in the folder is damaged, or the logits are no law.
    """
    folder.mkdir(parents=True, exist_ok=True)
    starts = range(0, len(store.usable), TEXTS_PER_FILE)
    parts = []
    with tqdm(total=len(store.usable), desc="asking the target at pools", unit="text", disable=None) as bar:
        for number, start in enumerate(starts):
            part, path = store.usable[start : start + TEXTS_PER_FILE], folder / f"laws-{number:05d}.safetensors"
            if not path.is_file():
                rows = []
                for text in part:
                    rows.append(_of_text(store, text, drafter, target, reach, drawn_roots(store, text, num, seed)))
                    bar.update()
                names = rows[0]
                write_tensors(path, {name: torch.stack([row[name] for row in rows]) for name in names})
            else:
                bar.update(len(part))
            parts.append(_read_back(path))
    whole = {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
    parents, ranks, tokens, marginals = (whole[name].numpy() for name in ("parents", "ranks", "tokens", "marginals"))
    return LawTexts(whole["roots"], parents, ranks, tokens, marginals, whole["log_probs"])


def drawn_roots(store: FeatureStore, text: int, num: int, seed: int) -> Tensor:
    """int64 ``[G]``, rising: roots of a text, a function of text and seed alone; a short text has some twice."""
    first, last = store.roots_of(text)
    chance = np.random.default_rng([seed, text, 4])
    return torch.from_numpy(np.sort(chance.choice(last - first, num, replace=last - first < num)) + first)


def _of_text(
    store: FeatureStore, text: int, drafter: DFlashDrafter, target: Target, reach: PoolReach, roots: Tensor
) -> dict[str, Tensor]:
    batch = store.at([text], roots[None], drafter.config.block_size)
    tokens = batch.tokens[0].to(target.device)
    with torch.inference_mode():
        context = drafter.context(batch.features.to(target.device, target.dtype))
        at = roots.to(target.device)
        states = block_states(drafter, target, tokens[at], at, context)
        nodes = beam_nodes(first_base(drafter, target, states, reach.width), reach)
        laws = pool_laws(target, tokens, roots.tolist(), nodes)
    arrays = (nodes.parents, nodes.ranks.astype(np.int32), nodes.tokens, nodes.log_probs, laws)
    named = zip(("parents", "ranks", "tokens", "marginals", "log_probs"), arrays, strict=True)
    return {"roots": roots, **{name: torch.from_numpy(np.ascontiguousarray(array)) for name, array in named}}


@torch.inference_mode()
def pool_laws(target: Target, tokens: Tensor, roots: Sequence[int], nodes: BeamNodes) -> Floats:
    """The target's log-probability of each node's token at its parent, at temperature 1.

    The text is read once, up to the last root; behind each root its pool is read and forgotten again.

    Args:
        target: that is asked.
        tokens: int64 ``[L]``, prompt and text.
        roots: absolute positions, rising, as many as ``nodes`` has pools.
        nodes: of the pools.

    Returns:
        float32 ``[N, n]``, from -255 to 0.
    """
    num_requested = int((nodes.depths < len(nodes.sizes)).sum())
    cache, mask = BufferCache(target, int(roots[-1]) + 1 + num_requested), TreeMask(target)
    laws = np.empty(nodes.tokens.shape, np.float32)
    for number, root in enumerate(roots):
        if root > cache.length:
            target.states(tokens[None, cache.length : root], cache)
        parents = np.concatenate([[-1], nodes.parents[number, :num_requested]]).astype(np.int32)
        ids = np.concatenate([[int(tokens[root])], nodes.tokens[number, :num_requested]]).astype(np.int32)
        read, visible, positions = pass_of(DraftTree(ids, parents), root, mask)
        states = target.states(read, cache, visible, positions)
        cache.shorten(root)
        log_probs = target.logits(states[0]).log_softmax(-1)
        if not bool(torch.isfinite(log_probs.amax(-1)).all()):
            raise target.no_law()
        indices = (torch.from_numpy(array[number].astype(np.int64)) for array in (nodes.parents, nodes.tokens))
        laws[number] = log_probs.cpu()[tuple(indices)].clamp(min=LOWEST).numpy()
    return laws


def law_loss(nodes: BeamNodes, conditional: Tensor, rest: Tensor, laws: Tensor, reach_weight: float) -> Tensor:
    """The loss on the target's probabilities at all nodes of some pools, a scalar.

    The mean, over parents with children, of the Kullback-Leibler divergence of what a scorer says of the children and
    of any other outcome from what the target does; and ``reach_weight`` times the cross-entropy of reaching each node,
    summed over the nodes of a depth.

    Args:
        nodes: of the pools.
        conditional: float64 ``[N, n]``, a scorer's log-probability of each node given its parent.
        rest: float64 ``[N, P]``, that of any other outcome below each parent.
        laws: float32 ``[N, n]``, the target's log-probabilities.
        reach_weight: see above.
    """
    device = conditional.device
    parents = torch.from_numpy(nodes.parents.astype(np.int64)).to(device)
    theirs, nothing = laws.to(device).double(), torch.zeros_like(rest)
    others = (1.0 - nothing.scatter_add(1, parents, theirs.exp())).clamp(min=0.0)
    below = nothing.scatter_add(1, parents, theirs.exp() * (theirs - conditional))
    below = below + torch.special.xlogy(others, others) - others * rest
    is_parent = nothing.scatter_add(1, parents, torch.ones_like(theirs)) > 0
    divergence = (below * is_parent).sum() / is_parent.sum()
    true, predicted = (path_sums(parents, nodes.sizes, edges)[:, 1:] for edges in (theirs, conditional))
    missed = torch.log1p(-predicted.exp().clamp(max=1 - LEAST_MISS))
    crossed = -(true.exp() * predicted + (1.0 - true.exp()) * missed)
    loss: Tensor = divergence + reach_weight * crossed.sum() / (len(parents) * len(nodes.sizes))
    return loss.float()


def _read_back(path: Path) -> dict[str, Tensor]:
    try:
        return load_file(path)
    except SafetensorError as error:
        raise ModelError(f"the labels in {path} are damaged ({error}); delete that file, and resume") from error


def train_scorer(options: ScorerOptions) -> Path:
    """Train a scorer; see `train_network`.

    Raises:
        SimlabError: text, models or folder cannot be used.
    """

    def begun(digest: str, drafter: DFlashDrafter, target: Target, store: FeatureStore) -> ScorerLoss:
        config = drafter.config
        reach = PoolReach(options.beam, options.extensions).within(config.draft_vocab_size or config.vocab_size)
        scorer = TapsScorer(ScorerSizes(config.hidden_size, config.depth)).to(target.device)
        return ScorerLoss(scorer, drafter, target, store, options, reach, digest)

    return train_network(options, beside_drafter(options, begun))


class ScorerLoss(Learner[TapsScorer]):
    """What a scorer learns."""

    def __init__(
        self,
        scorer: TapsScorer,
        drafter: DFlashDrafter,
        target: Target,
        store: FeatureStore,
        options: ScorerOptions,
        reach: PoolReach,
        digest: str,
    ) -> None:
        """Have the target asked at pools, where these are the labels.

        Args:
            scorer: that learns.
            drafter: that does not, in the target's dtype.
            target: of both; this and the next as of `Learner`.
            store: the same.
            options: of the run.
            reach: of the pools; no more than the drafter has.
            digest: of the drafter's checkpoint.
        """
        super().__init__(scorer, target, store, options.plan, drafter.config.block_size)
        self.drafter, self.options, self.reach, self.digest = drafter, options, reach, digest
        self.laws: LawTexts | None = None
        self._held_out_laws: LawTexts | None = None
        if options.labels == LAW:
            self._num_roots = options.law_roots // len(store.usable)
            if self._num_roots == 0:
                raise ModelError(
                    f"--law-roots {options.law_roots} is less than one root for each of {len(store.usable)} texts; ask "
                    "for more, or learn from fewer texts with --limit"
                )
            self.laws = self._asked(store, "laws")

    def __call__(self, step: int) -> Tensor:
        """The loss of the step's batch, a scalar."""
        if self.laws is not None:
            return self._law_loss(self.network, *self._with_laws(step, self.laws))
        return super().__call__(step)

    def shipped(self) -> TapsScorer:
        """A copy of the scorer: its checkpoint has float32."""
        return copy.deepcopy(self.network).eval()

    def settings(self) -> dict[str, object]:
        return {
            "beam": self.reach.beam,
            "extensions": self.reach.extensions,
            "reach_weight": self.options.reach_weight,
            # Runs of before there was a choice do not say it.
            **({"labels": LAW, "law_roots": self.options.law_roots} if self.laws is not None else {}),
        }

    def save(self, folder: Path) -> None:
        save_scorer(self.network, folder, self.digest, self.reach)

    def described(self) -> NetworkWords:
        sizes = self.network.sizes
        return NetworkWords(
            kind="scorer",
            what="A scorer of pools (after TAPS, arXiv 2606.00487; residual on the marginals, which is ours, and "
            f"{self._labels()})",
            command="simlab train taps",
            does="It says how probable each node of a beam over the drafter's marginals is once its parent is right.",
            sizes={
                "beam": self.reach.beam,
                "extensions": self.reach.extensions,
                "projections": sizes.rank,
                "inner size": sizes.inner_size,
            },
            borrowed="The embedding is the target's.",
            before="drafter alone",
            start="the drafter's own marginals, as far as the pool holds them: the scorer corrects nothing",
            asked="what came below a node of the true path that is in the pool: one of its children there, or another "
            "outcome",
        )

    def _labels(self) -> str:
        if self.laws is None:
            return "with labels on the path, which are ours too"
        return f"with the release's labels, the target's probabilities at {self.laws.roots.numel():,} pools"

    def _with_laws(self, step: int, laws: LawTexts) -> tuple[TrainingBatch, tuple[BeamNodes, Tensor]]:
        """About as many roots as a step on the path has, of as many texts as that takes."""
        plan, num = self.options.plan, laws.roots.shape[1]
        count = min(len(self.store.usable), max(1, plan.num_sequences * plan.num_roots // num))
        drawn = self.store.drawn(step, plan.seed, count)
        numbers = {text: number for number, text in enumerate(self.store.usable)}
        texts = np.array([numbers[text] for text in drawn])
        batch = self.store.at(drawn, laws.roots[torch.from_numpy(texts)], self.drafter.config.block_size)
        return batch, laws.at(texts, self.reach, self.drafter.config.depth)

    def _asked(self, store: FeatureStore, name: str) -> LawTexts:
        """The labels of some texts, in a folder of that name in the run's."""
        drafter, target, reach, seed = self.drafter, self.target, self.reach, self.options.plan.seed
        source = {
            "target": target.digest,
            "drafter": self.digest,
            "dtype": str(target.dtype),
            "pools": reach.settings(drafter.config.depth),
            "seed": seed,
            "roots of a text": self._num_roots,
            "texts": content_id(store.usable),
        }
        folder = self.options.out / name
        claim(folder, "source.json", source, "labels of other texts, roots, pools or models")
        return read_laws(store, drafter, target, reach, folder, self._num_roots, seed)

    def held_out_loss(self, fixed: TapsScorer, store: FeatureStore, scored: Scored) -> float:
        """With labels of the target the mean over texts; they are asked about once."""
        if self.laws is None:
            return super().held_out_loss(fixed, store, scored)
        if self._held_out_laws is None:
            self._held_out_laws = self._asked(store, "held-out-laws")
        laws, config, sums = self._held_out_laws, self.drafter.config, 0.0
        for first in range(0, len(store.usable), self.options.plan.num_sequences):
            texts = np.arange(first, min(first + self.options.plan.num_sequences, len(store.usable)))
            roots = laws.roots[torch.from_numpy(texts)]
            batch = store.at([store.usable[text] for text in texts], roots, config.block_size)
            sums += len(texts) * float(self._law_loss(fixed, batch, laws.at(texts, self.reach, config.depth)))
        return sums / len(store.usable)

    def _law_loss(self, scorer: TapsScorer, batch: TrainingBatch, laws: tuple[BeamNodes, Tensor]) -> Tensor:
        """The release's: how far the scorer is from the target below each parent, and whether paths are reached."""
        nodes, conditional, rest = self._scored_pools(scorer, batch, laws[0])
        return law_loss(nodes, conditional, rest, laws[1], self.options.reach_weight)

    def loss(self, scored: Scored) -> Tensor:
        entropies, _, asked, missed, known = scored
        below = (entropies * asked).sum() / asked.sum().clamp(min=1)
        paths = (missed * known).sum() / known.sum().clamp(min=1)
        return (below + self.options.reach_weight * paths).float()

    def scored(self, network: TapsScorer, batch: TrainingBatch, step: int | None) -> Scored:
        tokens, roots = batch.tokens.to(self.target.device), batch.roots.to(self.target.device)
        depths = torch.arange(self.drafter.config.depth, device=tokens.device)
        truth = tokens.gather(1, (roots[..., None] + depths + 1).flatten(1)).view(-1, len(depths))
        return _along(*self._scored_pools(network, batch), truth)

    def _scored_pools(
        self, scorer: TapsScorer, batch: TrainingBatch, nodes: BeamNodes | None = None
    ) -> tuple[BeamNodes, Tensor, Tensor]:
        """The pools of a batch, or those that were given, and what a scorer says of them."""
        drafter, target, device = self.drafter, self.target, self.target.device
        tokens, roots = batch.tokens.to(device), batch.roots.to(device)
        with torch.no_grad():
            context = drafter.context(batch.features.to(device, target.dtype))
            root_tokens = tokens.gather(1, roots).flatten()
            states = block_states(drafter, target, root_tokens, roots.flatten(), context)
            base = first_base(drafter, target, states, self.reach.width)
        nodes = beam_nodes(base, self.reach) if nodes is None else nodes
        above = root_tokens.cpu().numpy().astype(np.int32)
        conditional, rest = scorer(scorer_inputs(drafter, target, states, above, base, nodes))
        return nodes, conditional, rest


def _along(nodes: BeamNodes, conditional: Tensor, rest: Tensor, truth: Tensor) -> Scored:
    """What a scorer says along the true paths ``[N, D]`` of some pools; a token of -1 is not known.

    Of a depth counts what came below the true node of the depth above, where that is in the pool and the text goes on.
    Besides, float64 ``[N, D]``: the loss on whole paths, summed over the nodes of a depth; bool ``[N, D]``: whether the
    text goes on.
    """
    device, num = conditional.device, len(conditional)
    parents = torch.from_numpy(nodes.parents.astype(np.int64)).to(device)
    ids = torch.from_numpy(nodes.tokens.astype(np.int64)).to(device)
    known = (truth >= 0).cumprod(1).bool()
    on = at_parent = torch.ones(num, 1, dtype=torch.bool, device=device)
    reached = conditional.new_zeros(num, 1)
    columns: list[tuple[Tensor, ...]] = []
    first, below = 0, 0
    for depth, size in enumerate(nodes.sizes):
        level = slice(first, first + size)
        above = parents[:, level]
        true_above = on.gather(1, above)
        hit = true_above & (ids[:, level] == truth[:, depth, None])
        # At most one node of a depth is on the true path, and so one parent above.
        other = rest[:, below : below + at_parent.shape[1]]
        is_asked = at_parent.any(1) & known[:, depth]
        missing = (other * at_parent).sum(1)
        of_truth = torch.where(hit.any(1), (conditional[:, level] * hit).sum(1), missing)
        children = conditional[:, level].detach().masked_fill(~true_above, -torch.inf).amax(1)
        reached = torch.cat([reached, reached.gather(1, above) + conditional[:, level]], 1)
        paths = reached[:, 1 + first : 1 + first + size]
        misses = torch.log1p(-paths.exp().clamp(max=1 - LEAST_MISS))
        missed = -torch.where(hit, paths, misses).sum(1)
        right = of_truth >= torch.maximum(children, missing.detach())
        columns.append((-of_truth, right, is_asked, missed, known[:, depth]))
        on, at_parent = torch.cat([on, hit], 1), hit
        first, below = first + size, 1 + first
    return tuple(torch.stack(column, 1) for column in zip(*columns, strict=True))
