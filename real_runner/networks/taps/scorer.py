"""A TAPS scorer: how probable a node of a pool is once its parent is right, beside all other outcomes there.

After TAPS (2026, arXiv 2606.00487): sizes, the softmax below a parent and the inputs of nodes are the release's. The
residual form is simlab's, in which the network corrects what the marginals say and corrects nothing before it has
learnt. So "every other outcome" is given the log-probability that the pool leaves over, where the release gives 0, and
the depth of the children that it stands beside. Simlab's are also the names of the weights, none of which could be
fetched, and entropy and top gap of the candidates that are read, where the release has those of the whole vocabulary.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.files import loaded_tensors, write_checkpoint
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.networks.parts import checked_network
from simlab.real_runner.networks.producer import check_belongs
from simlab.real_runner.networks.taps.config import NUM_PLACE, PoolReach, ScorerConfig, ScorerSizes, scorer_to_json

_MOST = 20.0
"""A correction is at most so many nats, so that no sum overflows."""


@dataclass(frozen=True, slots=True, eq=False)
class ScorerInputs:
    """N pools of n nodes, of which P may have children: the root and all above the last depth.

    Attributes:
        parents: int64 ``[N, n]``, 0 the root, else the parent's place, from 1; below P.
        depths: int64 ``[n]``, from 1.
        sizes: nodes of each depth.
        log_probs: float32 ``[N, n]``, of each token at its depth by the marginals.
        spread: float32 ``[N, D, 3]``, of each depth: entropy and top gap of the candidates, in nats, and their mass.
        states: float32 ``[N, D, H]``, of the drafter's slots, after the final norm.
        embedded: float32 ``[N, 1 + n, H]``, of the root's token and the nodes'.
    """

    parents: Tensor
    depths: Tensor
    sizes: tuple[int, ...]
    log_probs: Tensor
    spread: Tensor
    states: Tensor
    embedded: Tensor


class TapsScorer(nn.Module):
    """The scorer of pools below one drafter; as it begins it says what the marginals say."""

    def __init__(self, sizes: ScorerSizes) -> None:
        super().__init__()
        self.sizes = sizes
        self.token = nn.Linear(sizes.hidden_size, sizes.rank, bias=False)
        self.state = nn.Linear(sizes.hidden_size, sizes.rank, bias=False)
        self.depth = nn.Embedding(sizes.depth, sizes.depth_size)
        shared = sizes.rank + sizes.depth_size + NUM_PLACE
        self.edge = _network(shared + 2 * sizes.rank, sizes.inner_size)
        self.other = _network(shared + sizes.rank, sizes.inner_size)

    def forward(self, inputs: ScorerInputs) -> tuple[Tensor, Tensor]:
        """Log-probabilities of each node given its parent, and of every other outcome below each parent.

        Those of the children of a parent that are in the pool, and of the rest, add up to 1, as far as the marginals'
        do.

        Returns:
            float64 ``[N, n]`` and ``[N, P]``.
        """
        parents, depths = inputs.parents, inputs.depths
        num_parents = 1 + sum(inputs.sizes[: self.sizes.depth - 1])
        log_probs = inputs.log_probs.double()
        sums = log_probs.new_zeros(len(parents), num_parents)
        rest = (1.0 - sums.scatter_add(1, parents, log_probs.exp())).clamp(min=0.0)
        # The weight of a path, its parent's first: depth by depth, since parents stand before their children.
        weights = path_sums(parents, inputs.sizes, log_probs)
        tokens, states = self.token(inputs.embedded), self.state(inputs.states)
        edge = self._scored(self.edge, inputs, depths, (tokens[:, 1:], _rows(tokens, parents)), states,
                            inputs.log_probs, weights[:, 1:].float())  # fmt: skip
        below = torch.cat([depths.new_ones(1), depths[: num_parents - 1] + 1])
        log_rest = rest.clamp(min=1e-9).log()
        other = self._scored(self.other, inputs, below, (tokens[:, :num_parents],), states,
                             log_rest.float(), weights[:, :num_parents].float())  # fmt: skip
        # Written so that corrections of 0 change nothing, to the last bit.
        grown = log_probs.exp() * torch.expm1(edge)
        total = 1.0 + sums.scatter_add(1, parents, grown) + rest * torch.expm1(other)
        log_total = total.clamp(min=1e-12).log()
        conditional = log_probs + edge - log_total.gather(1, parents)
        return conditional, log_rest + other - log_total

    def _scored(
        self,
        network: nn.Module,
        inputs: ScorerInputs,
        depths: Tensor,
        tokens: tuple[Tensor, ...],
        states: Tensor,
        log_probs: Tensor,
        weights: Tensor,
    ) -> Tensor:
        """The corrections, float64 ``[N, K]``, of K outcomes at these depths."""
        slots = depths - 1
        shares = (depths / self.sizes.depth).expand(len(weights), -1)
        numbers = [log_probs, *inputs.spread[:, slots].unbind(-1), shares, weights, weights / depths]
        of_depth = self.depth(slots).expand(len(weights), -1, -1)
        whole = torch.cat([*tokens, states[:, slots], of_depth, torch.stack(numbers, -1)], -1)
        corrections: Tensor = network(whole).squeeze(-1).double().clamp(-_MOST, _MOST)
        return corrections


def path_sums(parents: Tensor, sizes: Sequence[int], log_probs: Tensor) -> Tensor:
    """Log-probabilities summed from the root on: of the root, 0, and of each node.

    Args:
        parents: int64 ``[N, n]``, as `ScorerInputs` has them.
        sizes: nodes of each depth.
        log_probs: ``[N, n]``, of each node given its parent.

    Returns:
        As ``log_probs``, ``[N, 1 + n]``.
    """
    parts, first = [log_probs.new_zeros(len(parents), 1)], 0
    for size in sizes:
        above = torch.cat(parts, 1).gather(1, parents[:, first : first + size])
        parts.append(above + log_probs[:, first : first + size])
        first += size
    return torch.cat(parts, 1)


def _network(num_inputs: int, inner_size: int) -> nn.Sequential:
    last = nn.Linear(inner_size, 1)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(nn.LayerNorm(num_inputs), nn.Linear(num_inputs, inner_size), nn.SiLU(), last)


def _rows(tokens: Tensor, parents: Tensor) -> Tensor:
    """The row of each node's parent, ``[N, n, K]``; row 0 is the root's."""
    return tokens.gather(1, parents[..., None].expand(-1, -1, tokens.shape[-1]))


def load_scorer(location: Path, drafter: DFlashDrafter, digest: str) -> tuple[TapsScorer, PoolReach]:
    """Read the TAPS scorer of a drafter whose checkpoint has a digest, float32, and of which pools it was trained.

    What is refused says `checked_network`; a scorer of another drafter is, too.
    """
    config, tensors = checked_network(location, ScorerConfig, "TAPS scorer")
    check_belongs("scorer", location, config.extends, digest)
    theirs = drafter.config.hidden_size, drafter.config.depth
    if (config.sizes.hidden_size, config.sizes.depth) != theirs:
        raise ModelError(
            f"the scorer in {location} is {config.sizes.hidden_size} wide and {config.sizes.depth} deep, and its "
            f"drafter {theirs[0]} and {theirs[1]}; train it again"
        )
    scorer = TapsScorer(config.sizes)
    scorer.load_state_dict(loaded_tensors(location, tensors))
    return scorer.float().eval().requires_grad_(False), config.reach


def save_scorer(scorer: TapsScorer, folder: Path, digest: str, reach: PoolReach) -> None:
    """Write a scorer, float32, with its drafter's digest and the reach of the pools that it was trained on."""
    config = ScorerConfig(scorer.sizes, reach, digest)
    write_checkpoint(folder, scorer.state_dict(), torch.float32, scorer_to_json(config))
