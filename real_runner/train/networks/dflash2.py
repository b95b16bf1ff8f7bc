"""Training a selector of DFlash 2, ``simlab train dflash2``: the target's token among a drafter's first candidates.

The drafter stays as it is: a released one has convolutions and was trained with its selector, which this is not.
"""

from pathlib import Path

from torch import Tensor

from simlab.real_runner.drafters.dense import BlockStates
from simlab.real_runner.drafters.dflash import DFlashDrafter
from simlab.real_runner.networks.dflash2.config import SelectorConfig
from simlab.real_runner.networks.dflash2.selector import Selector, save_selector
from simlab.real_runner.targets.model import Target
from simlab.real_runner.train.networks.run import NetworkWords, beside_drafter, train_network
from simlab.real_runner.train.networks.treeflash import FirstOrderLoss
from simlab.real_runner.train.options import SelectorOptions
from simlab.real_runner.train.text import FeatureStore


def train_selector(options: SelectorOptions) -> Path:
    """Train a selector; see `train_network`.

    Raises:
        SimlabError: text, models or folder cannot be used.
    """

    def begun(digest: str, drafter: DFlashDrafter, target: Target, store: FeatureStore) -> SelectorLoss:
        sizes = (drafter.config.hidden_size, drafter.config.vocab_size, options.rank, options.top_k)
        selector = Selector(SelectorConfig(*sizes, digest)).to(target.device)
        return SelectorLoss(selector, drafter, target, store, options.plan, digest)

    return train_network(options, beside_drafter(options, begun))


class SelectorLoss(FirstOrderLoss[Selector]):
    """That of a selector: beyond its candidates the law is the drafter's."""

    def settings(self) -> dict[str, object]:
        return {"rank": self.network.config.rank, "top_k": self.network.config.top_k}

    def save(self, folder: Path) -> None:
        save_selector(self.network, folder)

    def _log_probs(self, head: Selector, states: BlockStates, above: Tensor, depths: Tensor) -> Tensor:
        base = self._of_output_head(states.after)
        first = base.topk(min(head.config.top_k, base.shape[-1]), dim=-1)
        codes = head.successor_codebook(self._kept[first.indices])
        added = (head(states.after, above, depths)[..., None, :] * codes).sum(-1).float()
        mass = first.values.exp().sum(-1, keepdim=True).clamp(max=1.0).log()
        return base.scatter(-1, first.indices, (first.values + added).log_softmax(-1) + mass)

    def described(self) -> NetworkWords:
        config = self.network.config
        return NetworkWords(
            kind="selector",
            what="A selector of DFlash 2, on a drafter without its convolutions,",
            command="simlab train dflash2",
            does="It chooses among the drafter's first candidates of a depth, given the token at the depth above.",
            sizes={"rank": config.rank, "candidates": config.top_k},
            borrowed="Everything else is the drafter's.",
            before="drafter alone",
            start="the drafter's own marginals: the selector adds nothing",
            asked="the true token, the true token above it known, over the tokens that the loss is taken over",
        )
