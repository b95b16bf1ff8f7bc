"""The channel of a router's network: features, made before anything is drafted."""

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from simlab.channels import FeatureRows, Features
from simlab.channels.branches import features_to_grid
from simlab.errors import ModelError
from simlab.policy import ChannelNeed
from simlab.real_runner.heads.producer import check_makes
from simlab.real_runner.heads.router.network import RouterNetwork, inputs_along, router_inputs
from simlab.real_runner.targets.model import Target
from simlab.traces.channels.columns import FeatureColumns


@dataclass(frozen=True, slots=True, eq=False)
class RouterProducer:
    """A router's network, and the target that it reads.

    Attributes:
        network: in float32.
        target: see there.
    """

    network: RouterNetwork
    target: Target

    def __post_init__(self) -> None:
        own, found = self.network.config.target_digest, self.target.digest
        if own != found:
            raise ModelError(
                f"the router's network reads states of the target of the digest {own[:12]}, and {self.target.name} has "
                f"the digest {found[:12]}; give that target, or train a network for this one with `simlab train router`"
            )

    @property
    def kind(self) -> str:
        """The kind of its channel."""
        return self.network.config.kind

    @property
    def taps(self) -> tuple[int, ...]:
        """The target's last layer, whose state has passed the final norm."""
        return (self.target.num_layers - 1,)

    def within(self, need: ChannelNeed) -> "RouterProducer":
        """This producer: all numbers of a root are made at once."""
        check_makes(need, self.kind, self.network.config.settings)
        return self

    @torch.inference_mode()
    def foresee(self, state: Tensor, logits: Tensor, position: int) -> Features:
        """The features of one root, in a round; see `RootProducer.foresee`."""
        positions = torch.tensor([position], device=state.device)
        return self._rows([router_inputs(state[None], logits[None], positions)]).row(0, 0)

    @torch.inference_mode()
    def columns(self, features: Tensor, tokens: Tensor, num_roots: int) -> FeatureColumns:
        """The features of every root of one text; see `TextProducer.columns`."""
        return FeatureColumns(self._rows(inputs_along(self.target, features, num_roots)))

    def _rows(self, inputs: Iterable[Tensor]) -> FeatureRows:
        said = torch.cat([self.network(some) for some in inputs])
        try:
            return FeatureRows(features_to_grid(said.cpu().numpy()))
        except ValueError as error:
            raise ModelError("the router's network says what is no number; train it again") from error
