"""The network of a router, and what it reads: what the target said of the token before a root.

After WhiFlash (2026, arXiv 2606.07710): simlab's own, a reconstruction, and the form that the cards of its released
networks give. They see no candidate of any drafter, so that only the route that is taken need draft.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional

from simlab.channels import FeatureRows, Features
from simlab.channels.features import features_to_grid
from simlab.errors import ModelError
from simlab.policy import ChannelNeed
from simlab.real_runner.checkpoints.files import loaded_tensors, write_checkpoint
from simlab.real_runner.execution.fixed_drafter import run
from simlab.real_runner.execution.graph_models import GraphedModels
from simlab.real_runner.networks.network import Reach
from simlab.real_runner.networks.parts import checked_network
from simlab.real_runner.networks.producer import ChannelAsked, WithModels, check_makes
from simlab.real_runner.networks.router.config import NUM_BESIDE, TAKEN, RouterConfig, router_to_json
from simlab.real_runner.targets.model import Target, entropies_of
from simlab.traces.channels.columns import FeatureColumns

_ROOTS_PER_PASS = 128
"""Roots whose laws are in memory at a time."""


def router_inputs(states: Tensor, logits: Tensor, positions: Tensor) -> Tensor:
    """What a router's network reads of some roots.

    Args:
        states: ``[N, H]``, of the target behind its last norm, at the token before each root.
        logits: ``[N, V]``, of these states: the laws that the roots were chosen from.
        positions: int64 ``[N]``, of the roots, absolute; at least 1.

    Returns:
        float32 ``[N, H + 3]``: the state, the law's entropy and the gap between its two most probable tokens, in nats,
        and the logarithm of the position.
    """
    log_probs = logits.float().log_softmax(-1)
    first, second = log_probs.topk(2, dim=-1).values.unbind(-1)
    beside = torch.stack([entropies_of(log_probs), first - second, positions.float().log()], dim=-1)
    return torch.cat([states.float(), beside], dim=-1)


def inputs_along(target: Target, states: Tensor, num_roots: int) -> Iterator[Tensor]:
    """What is read of the last roots of a text but for its last token, some of them at a time.

    Args:
        target: which read the text.
        states: ``[C, H]``, of it behind its last norm, from position 0 to the text's last token.
        num_roots: T - 1, of a text of T tokens.

    Yields:
        float32 ``[N, H + 3]``, see `router_inputs`.
    """
    last = len(states) - 1
    for roots in torch.arange(last - num_roots, last, device=states.device).split(_ROOTS_PER_PASS):
        before = states[roots - 1]
        yield router_inputs(before, target.logits(before), roots)


class RouterNetwork(nn.Module):
    """From `router_inputs` to the tokens that a round by each route is expected to add, the bonus token among them.

    Of WhiFlash's form (the card of WhiFlash/Qwen3-4B-NeuralRouter-df-e3): w2 GELU(W1 h + b1) + b2 of the state h alone,
    the tokens that one route brings more than the other; `TAKEN` for the route that it takes, 0 for the other.
    """

    def __init__(self, config: RouterConfig) -> None:
        super().__init__()
        self.config = config
        if config.gain is not None:
            self.inner = nn.Linear(config.hidden_size, config.inner_size)
            self.outer = nn.Linear(config.inner_size, 1)
            return
        num_inputs = config.hidden_size + NUM_BESIDE
        self.norm = nn.LayerNorm(num_inputs)
        self.inner = nn.Linear(num_inputs, config.inner_size)
        self.outer = nn.Linear(config.inner_size, len(config.routes))

    def forward(self, inputs: Tensor) -> Tensor:
        """Expected tokens ``[N, routes]``, above 0 (of WhiFlash's form `TAKEN` or 0), of `router_inputs`."""
        gain = self.config.gain
        if gain is not None:
            form = "tanh" if gain.gelu == "tanh" else "none"
            hidden = functional.gelu(self.inner(inputs[:, : self.config.hidden_size]), approximate=form)
            answers = self.outer(hidden)
            is_pos = torch.where(answers > gain.threshold, TAKEN, 0.0) + answers * 0.0
            return torch.cat([is_pos, TAKEN - is_pos] if gain.pos == 0 else [TAKEN - is_pos, is_pos], dim=-1)
        return functional.softplus(self.outer(functional.silu(self.inner(self.norm(inputs)))))


# The channel of a router's network: features, made before anything is drafted.


@dataclass(frozen=True, slots=True, eq=False)
class RouterProducer:
    """A router's network, and the target that it reads; see `RootProducer`.

    Attributes:
        network: in float32.
        target: whose hidden states it reads.
        graphs: which capture its passes; None: these are run as they come.
    """

    network: RouterNetwork
    target: Target
    graphs: GraphedModels | None = None

    def __post_init__(self) -> None:
        own, digest = self.network.config.target_digest, self.target.digest
        if own != digest:
            raise ModelError(
                f"the router's network reads states of the target of the digest {own[:12]}, and {self.target.name} has "
                f"the digest {digest[:12]}; give that target, or train a network for this one with `simlab train "
                "router`"
            )

    @property
    def kind(self) -> str:
        return self.network.config.kind

    @property
    def taps(self) -> tuple[int, ...]:
        """The target's last layer, whose state has passed the final norm."""
        return (self.target.num_layers - 1,)

    def within(self, need: ChannelNeed) -> "RouterProducer":
        """This producer: all numbers of a root are made at once."""
        check_makes(need, self.kind, self.network.config.settings())
        return self

    def captured(self, graphs: GraphedModels) -> "RouterProducer":
        """This producer with its passes captured."""
        return replace(self, graphs=graphs)

    @torch.inference_mode()
    def predict(self, state: Tensor, logits: Tensor, position: int) -> Features:
        at = torch.tensor([position], device=state.device)

        def work(*inputs: Tensor) -> tuple[Tensor]:
            return (self.network(router_inputs(*inputs)),)

        return _rows(*run(self.graphs, ("router", self.network), work, state[None], logits[None], at)).row(0, 0)

    @torch.inference_mode()
    def columns(self, features: Tensor, tokens: Tensor, num_roots: int) -> FeatureColumns:
        inputs = inputs_along(self.target, features, num_roots)
        return FeatureColumns(_rows(torch.cat([self.network(part) for part in inputs])))


def _rows(answers: Tensor) -> FeatureRows:
    """What a network said of some roots, ``[N, routes]``, as a channel has it."""
    try:
        return FeatureRows(features_to_grid(answers.cpu().numpy()))
    except ValueError as error:
        raise ModelError("the router's network says what is no number; train it again") from error


# Routers' networks on disk.


def load_router(location: Path) -> RouterNetwork:
    """Read a router's network, float32; what is refused says `checked_network`."""
    config, tensors = checked_network(location, RouterConfig, "router's network")
    network = RouterNetwork(config)
    network.load_state_dict(loaded_tensors(location, tensors))
    return network.float().eval().requires_grad_(False)


def save_router(network: RouterNetwork, folder: Path) -> None:
    """Write a router's network, float32."""
    write_checkpoint(folder, network.state_dict(), torch.float32, router_to_json(network.config))


def load(asked: ChannelAsked, reach: Reach) -> WithModels:
    """The network of a checkpoint; see `simlab.real_runner.networks.loading.NetworkCode.load`."""
    network = load_router(asked.location)
    return lambda _, target: RouterProducer(network.to(target.device), target)
