"""The lattice head of LiLiCorr: every pair of candidates of neighbouring depths scored at once, in sight of all others.

A score is of first order, for it names two tokens; it depends on the root's whole lattice, and so on its rows alone. As
sglang 0.5.23 computes it; nothing of the drafter's own scores is added. Log-probabilities are read as rows have them,
on the grid, so that record and runner read the same.

Letters: H size of the drafter's states, W of the head's own, N roots, D depths, K candidates of a depth.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding, normalize, scaled_dot_product_attention, silu

from simlab.errors import ModelError
from simlab.real_runner.checkpoints.files import loaded_tensors
from simlab.real_runner.drafters.dense import BlockStates
from simlab.real_runner.drafters.dflash import RMSNorm
from simlab.real_runner.networks.first_order import FirstOrderProducer
from simlab.real_runner.networks.lilicorr.config import FEATURES, LatticeConfig
from simlab.real_runner.networks.network import HeadReach, Reach
from simlab.real_runner.networks.parts import checked_network
from simlab.real_runner.networks.producer import ChannelAsked, WithModels, block_stage, check_belongs


class Perceptron(nn.Module):
    """Two matrices with biases, and a SiLU between them."""

    def __init__(self, inputs: int, inner: int, outputs: int) -> None:
        super().__init__()
        self.up_proj, self.down_proj = nn.Linear(inputs, inner), nn.Linear(inner, outputs)

    def forward(self, x: Tensor) -> Tensor:
        """``[..., outputs]`` of ``[..., inputs]``."""
        made: Tensor = self.down_proj(silu(self.up_proj(x)))
        return made


class LatticeAttention(nn.Module):
    """Attention of all candidates to all; its weights are laid out as those of torch's own attention."""

    def __init__(self, size: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.in_proj_weight = nn.Parameter(torch.empty(3 * size, size))
        self.in_proj_bias = nn.Parameter(torch.empty(3 * size))
        self.out_proj = nn.Linear(size, size)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        """``[N, D K, W]`` of the same; ``bias`` ``[heads, D K, D K]`` is added to the scores."""
        parts = nn.functional.linear(x, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1)
        queries, keys, values = (part.unflatten(-1, (self.num_heads, -1)).transpose(1, 2) for part in parts)
        mixed = scaled_dot_product_attention(queries, keys, values, attn_mask=bias)
        made: Tensor = self.out_proj(mixed.transpose(1, 2).flatten(2))
        return made


class LatticeLayer(nn.Module):
    """Attention and perceptron, each behind a norm."""

    def __init__(self, config: LatticeConfig) -> None:
        super().__init__()
        size = config.hidden_size
        self.attn_norm, self.mlp_norm = (RMSNorm(size, config.rms_norm_eps) for _ in range(2))
        self.attn = LatticeAttention(size, config.num_heads)
        self.mlp = Perceptron(size, config.inner_size, size)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        """``[N, D K, W]`` of the same."""
        x = x + self.attn(self.attn_norm(x), bias)
        made: Tensor = x + self.mlp(self.mlp_norm(x))
        return made


class LatticeHead(nn.Module):
    """Scores of first and of neighbouring candidates.

    A candidate v of rank r with log-probability l begins as its embedding, the drafter's state of its slot, a
    perceptron of ``norm(l, exp(l), l - max l, r / (K - 1), r = 0)`` and learned vectors of slot and rank. Layers over
    all of them follow. With x a candidate's state behind them and a the projected state of the text before the root::

        f = silu(W [x; a; x * a])       score(p, v) = scale <unit(out f(p)), unit(in f(v))>

    and the first depth has ``scale <unit(anchor_out a), unit(in f(v))>``.
    """

    def __init__(self, config: LatticeConfig) -> None:
        super().__init__()
        self.config, drafter, size = config, config.drafter_size, config.hidden_size
        self.token_proj = None if drafter == size else nn.Linear(drafter, size)
        self.pass_hidden_proj, self.context_proj = nn.Linear(drafter, size), nn.Linear(drafter, size)
        self.feature_norm, self.feature_mlp = nn.LayerNorm(FEATURES), Perceptron(FEATURES, size, size)
        shapes = dict(config.shapes())
        own = ("slot_embedding", "rank_embedding", "relative_slot_bias", "same_slot_bias")
        self.slot_embedding, self.rank_embedding, self.relative_slot_bias, self.same_slot_bias = (
            nn.Parameter(torch.zeros(shapes[name])) for name in own
        )
        self.layers = nn.ModuleList(LatticeLayer(config) for _ in range(config.num_layers))
        self.output_norm, self.anchor_norm = (RMSNorm(size, config.rms_norm_eps) for _ in range(2))
        self.factor_input_proj = nn.Linear(3 * size, size)
        self.out_head, self.in_head, self.anchor_out_head = (nn.Linear(size, config.factor_dim) for _ in range(3))

    @property
    def inner_size(self) -> int:
        """The widest of what it makes of a candidate."""
        return max(self.config.inner_size, 3 * self.config.hidden_size)

    def forward(self, embedded: Tensor, log_probs: Tensor, after: Tensor, anchor: Tensor) -> tuple[Tensor, Tensor]:
        """The scores of the first depth and of neighbouring ones.

        Args:
            embedded: ``[N, D, K, H]``, the target's embeddings of the candidates.
            log_probs: float32 ``[N, D, K]``, under the drafter's whole vocabulary.
            after: ``[N, D, H]``, the drafter's states behind its final norm.
            anchor: ``[N, H]``, what the drafter makes of the target's states at the token before the root.

        Returns:
            float32 ``[N, K]`` and ``[N, D - 1, K, K]``, the second by the candidate above, then the one below.
        """
        depth, top_k = log_probs.shape[1:]
        states = embedded if self.token_proj is None else self.token_proj(embedded)
        states = states + self.pass_hidden_proj(after)[:, :, None]
        states = states + self.feature_mlp(self.feature_norm(_features(log_probs).to(states.dtype)))
        states = states + self.slot_embedding[0, :, :depth] + self.rank_embedding[0]
        states, bias = states.flatten(1, 2), self._bias(depth, top_k)
        for layer in self.layers:
            states = layer(states, bias)
        states = self.output_norm(states).unflatten(1, (depth, top_k))
        before = self.anchor_norm(self.context_proj(anchor))
        beside = before[:, None, None].expand_as(states)
        factors = silu(self.factor_input_proj(torch.cat([states, beside, states * beside], dim=-1)))
        start, out, into = (
            normalize(made, dim=-1, eps=self.config.vector_eps)
            for made in (self.anchor_out_head(before), self.out_head(factors), self.in_head(factors))
        )
        first = (into[:, 0] @ start[:, :, None])[..., 0]
        pairs = out[:, :-1] @ into[:, 1:].transpose(-1, -2)
        return first.float() * self.config.logit_scale, pairs.float() * self.config.logit_scale

    def _bias(self, depth: int, top_k: int) -> Tensor:
        """``[heads, D K, D K]``: of the distance between two slots, from the second to the first, and of equal ones."""
        slots = torch.arange(depth, device=self.same_slot_bias.device).repeat_interleave(top_k)
        apart = slots[:, None] - slots[None, :]
        same = (apart == 0).to(self.same_slot_bias.dtype)
        bias: Tensor = self.relative_slot_bias[:, apart + self.config.block_size - 1]
        return bias + self.same_slot_bias[:, None, None] * same


def _features(log_probs: Tensor) -> Tensor:
    """float32 ``[N, D, K, 5]`` of candidates in the order of their ranks."""
    ranks = torch.arange(log_probs.shape[-1], device=log_probs.device)
    share, is_first = ranks / max(len(ranks) - 1, 1), (ranks == 0).float()
    below = log_probs - log_probs.amax(-1, keepdim=True)
    parts = (log_probs, log_probs.exp(), below, share.expand_as(log_probs), is_first.expand_as(log_probs))
    return torch.stack(parts, dim=-1)


@dataclass(frozen=True, slots=True, eq=False)
class LatticeProducer(FirstOrderProducer):
    """A lattice head on its drafter: a row is its law of a depth's candidates, times what the drafter gave to them."""

    head: LatticeHead

    def _of_rows(self, states: BlockStates, above: Tensor, slots: Tensor) -> Tensor:
        """``[N, D + 1, H]``: the drafter's states, and behind them what it makes of the token before the root."""
        drafter = block_stage(self.drafter)
        anchor = drafter.hidden_norm(drafter.fc(states.seen))
        return torch.cat([states.after, anchor[:, None]], dim=1)

    def _candidate_logits(self, made: Tensor, rows: Tensor, theirs: Tensor, sizes: list[int], slots: Tensor) -> Tensor:
        embedded = embedding(rows.to(made.device), self.target.embedding.weight.to(made.device))
        first, pairs = self.head(embedded.to(made.dtype), theirs.to(made.device), made[:, :-1], made[:, -1])
        read = [first[:, None], *(pairs[:, depth, :size] for depth, size in enumerate(sizes[1:]))]
        return torch.cat(read, dim=1)


def load(asked: ChannelAsked, reach: Reach) -> WithModels:
    """The lattice head of a checkpoint; see `simlab.real_runner.networks.loading.NetworkCode.load`."""
    assert isinstance(reach, HeadReach)
    check_belongs("lattice head", asked.location, None, asked.digest)
    config, tensors = checked_network(asked.location, LatticeConfig, "lattice head")
    drafted = block_stage(asked.stage).config
    if drafted.block_size > config.block_size:
        raise ModelError(
            f"the lattice head in {asked.location} knows blocks of {config.block_size}, and the drafter's block here "
            f"is {drafted.block_size}; leave --block out, or give at most {config.block_size}"
        )
    head = LatticeHead(config)
    head.load_state_dict(loaded_tensors(asked.location, tensors))
    head = head.to(asked.dtype).eval().requires_grad_(False)
    return lambda its, target: LatticeProducer(block_stage(its), target, reach, head.to(target.device))
