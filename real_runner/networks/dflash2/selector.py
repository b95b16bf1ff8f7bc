"""The selector of DFlash 2: a score for each candidate of a depth given the token above it, among a drafter's first K.

As PyPI dflash 0.1.0 computes it: with u the drafter's logit of a candidate v, h its state behind the final norm, and
p the token above, ``u + <A[p] * (P h), B[v]>``. A law is over the K candidates; here a row has, beside that, the mass
that the drafter gave to all of them, as a TreeFlash head's candidates have it.

Letters: H hidden size, V vocabulary, N roots, D depths, S rows of a root, C = K candidates of a depth.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.files import loaded_tensors, write_checkpoint
from simlab.real_runner.drafters.dense import BlockStates, Outputs
from simlab.real_runner.networks.dflash2.config import SELECTOR_PREFIX, SelectorConfig, selector_to_json
from simlab.real_runner.networks.first_order import FirstOrderProducer, products_by_depth
from simlab.real_runner.networks.network import HeadReach, Reach
from simlab.real_runner.networks.parts import checked_parts
from simlab.real_runner.networks.producer import ChannelAsked, WithModels, block_stage, check_belongs


class Selector(nn.Module):
    """The weights of a selector: A and B, ``[V, rank]``, and P, ``[rank, H]``; at its start it adds nothing."""

    def __init__(self, config: SelectorConfig) -> None:
        super().__init__()
        self.config = config
        self.predecessor_codebook = nn.Embedding(config.vocab_size, config.rank)
        self.successor_codebook = nn.Embedding(config.vocab_size, config.rank)
        self.hidden_projection = nn.Linear(config.hidden_size, config.rank, bias=False)
        nn.init.zeros_(self.successor_codebook.weight)

    @property
    def inner_size(self) -> int:
        """The width of its codebooks: the rank."""
        return self.config.rank

    def forward(self, after: Tensor, above: Tensor, slots: Tensor) -> Tensor:
        """What candidates are multiplied by, ``[N, S, rank]``.

        Args:
            after: ``[N, D, H]``, states of D slots behind the drafter's final norm.
            above: int64 ``[N, S]``, tokens above.
            slots: int64 ``[S]``, the depth of each row.
        """
        made: Tensor = self.predecessor_codebook(above) * self.hidden_projection(after)[:, slots]
        return made


def load_selector(location: Path, drafter: Outputs, digest: str, dtype: torch.dtype) -> Selector:
    """Read the selector of a drafter whose checkpoint has a digest; it lies alone, or beside that drafter.

    What is refused says `checked_network`; a selector of another drafter is, too.
    """
    parts = checked_parts(location)
    config = parts.head
    if not isinstance(config, SelectorConfig):
        raise ModelError(f"{location} has no selector: it is a drafter alone, whose candidates stand in its draft set")
    check_belongs("selector", location, config.extends, digest)
    sizes = (drafter.config.hidden_size, drafter.config.vocab_size)
    if (config.hidden_size, config.vocab_size) != sizes or drafter.vocabulary is not None:
        raise ModelError(
            f"the selector in {location} is {config.hidden_size} wide and of {config.vocab_size:,} tokens, and its "
            f"drafter {sizes[0]} and of {sizes[1]:,}, all of the target's; train it again"
        )
    selector = Selector(config)
    selector.load_state_dict(loaded_tensors(location, parts.head_tensors))
    return selector.to(dtype).eval().requires_grad_(False)


def save_selector(selector: Selector, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write a selector alone, with weights of a dtype."""
    tensors = {SELECTOR_PREFIX + name.removesuffix(".weight"): tensor for name, tensor in selector.state_dict().items()}
    named = {f"{name}.weight" if name.endswith("projection") else name: tensor for name, tensor in tensors.items()}
    write_checkpoint(folder, named, dtype, selector_to_json(selector.config))


@dataclass(frozen=True, slots=True, eq=False)
class SelectorProducer(FirstOrderProducer):
    """A selector on a drafter: rows as those of a first-order head that scores the drafter's candidates."""

    head: Selector

    def _of_rows(self, states: BlockStates, above: Tensor, slots: Tensor) -> Tensor:
        made: Tensor = self.head(states.after, above, slots)
        return made

    def _candidate_logits(self, made: Tensor, rows: Tensor, theirs: Tensor, sizes: list[int], slots: Tensor) -> Tensor:
        """float32 ``[N, S, C]``: the drafter's own scores, but for a constant of the depth, and what is added."""
        added = products_by_depth(made, self.head.successor_codebook.weight, rows, sizes)
        return theirs.to(added.device)[:, slots] + added


def load(asked: ChannelAsked, reach: Reach) -> WithModels:
    """The selector of a checkpoint; see `simlab.real_runner.networks.loading.NetworkCode.load`."""
    assert isinstance(reach, HeadReach)
    selector = load_selector(asked.location, block_stage(asked.stage), asked.digest, asked.dtype)
    return lambda its, target: SelectorProducer(block_stage(its), target, reach, selector.to(target.device))
