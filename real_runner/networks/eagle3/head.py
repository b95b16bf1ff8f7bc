"""The EAGLE-3 head: one layer that goes on from states of the target, token by token.

Li and others 2025, "EAGLE-3", arXiv 2503.01840; names and arithmetic are those of the released `cnets.py`. The input at
a position is the state of its token (fused taps of the target, or the head's own output) and the embedding of the token
behind it; the output says what may follow that one.

Letters: S sequences, L positions, C positions before them, H hidden size, H_t the target's, E key-value heads, F head
size, V_d tokens of the head.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from simlab.arrays import Ints
from simlab.errors import ModelError
from simlab.real_runner.checkpoints.fields import MASK, OFFSETS
from simlab.real_runner.checkpoints.files import load_weights, write_checkpoint
from simlab.real_runner.drafters.dense import check_fit
from simlab.real_runner.drafters.dflash import MLP, RMSNorm, rotated, rotation_at
from simlab.real_runner.drafters.vocabulary import DraftVocabulary
from simlab.real_runner.execution.executions import context_for
from simlab.real_runner.execution.graph_models import GraphedModels
from simlab.real_runner.networks.eagle3.config import Eagle3Config, eagle3_to_json
from simlab.real_runner.networks.parts import checked_network
from simlab.real_runner.targets.model import Target

WEIGHTS_PER_PASS = 2**26
"""Attention weights of a pass over a text."""

_READ_AGAIN = 3
"""Positions that are read again after going back, as many as a round of some accepted tokens brings."""


class KeyValues(NamedTuple):
    """What the layer keeps of positions: keys, already rotated, and values, ``[S, E, C, F]`` each."""

    keys: Tensor
    values: Tensor


def joined(parts: Sequence[KeyValues]) -> KeyValues:
    """Positions behind each other; parts of one sequence stand before each of S."""
    if len(parts) == 1:
        return parts[0]
    count = max(len(part.keys) for part in parts)
    columns = (
        torch.cat([part.expand(count, -1, -1, -1) for part in column], dim=2) for column in zip(*parts, strict=True)
    )
    return KeyValues(*columns)


class _Attention(nn.Module):
    """Grouped-query attention on inputs of twice the hidden size."""

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        self.num_heads, self.num_kv_heads, self.head_dim = (
            config.num_attention_heads,
            config.num_key_value_heads,
            config.head_dim,
        )
        both, bias = 2 * config.hidden_size, config.attention_bias
        self.q_proj = nn.Linear(both, self.num_heads * self.head_dim, bias=bias)
        self.k_proj = nn.Linear(both, self.num_kv_heads * self.head_dim, bias=bias)
        self.v_proj = nn.Linear(both, self.num_kv_heads * self.head_dim, bias=bias)
        self.o_proj = nn.Linear(self.num_heads * self.head_dim, config.hidden_size, bias=bias)

    def forward(
        self, x: Tensor, rotation: tuple[Tensor, Tensor], past: Sequence[KeyValues], hidden_mask: Tensor | None
    ) -> tuple[Tensor, KeyValues]:
        """Attend from ``x`` ``[S, L, 2H]`` to the past and to itself; see `Eagle3Head.forward`."""
        s, length, _ = x.shape
        e, f = self.num_kv_heads, self.head_dim
        queries = rotated(self.q_proj(x).view(s, length, -1, f).transpose(1, 2), rotation)
        kept = KeyValues(
            rotated(self.k_proj(x).view(s, length, e, f).transpose(1, 2), rotation),
            self.v_proj(x).view(s, length, e, f).transpose(1, 2),
        )
        seen = joined((*past, kept))
        scores = queries.reshape(s, e, -1, f) @ seen.keys.transpose(-1, -2) * f**-0.5
        scores = scores.view(s, e, -1, length, scores.shape[-1])
        if hidden_mask is None:
            hidden_mask = _later(length, scores.shape[-1], x.device)
        unseen = hidden_mask.expand(s, 1, length, -1)[:, :, None]
        scores = scores.masked_fill(unseen, float("-inf"))
        weights = scores.float().softmax(-1).to(x.dtype).reshape(s, e, -1, scores.shape[-1])
        mixed = (weights @ seen.values).reshape(s, -1, length, f).transpose(1, 2).reshape(s, length, -1)
        out: Tensor = self.o_proj(mixed)
        return out, kept


class _Layer(nn.Module):
    """The head's only layer."""

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        self.norms_residual = config.norm_before_residual
        self.self_attn = _Attention(config)
        self.mlp = MLP(config.hidden_size, config.intermediate_size)
        self.hidden_norm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.input_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(
        self,
        hidden: Tensor,
        embedded: Tensor,
        rotation: tuple[Tensor, Tensor],
        past: Sequence[KeyValues],
        hidden_mask: Tensor | None,
    ) -> tuple[Tensor, KeyValues]:
        normed = self.hidden_norm(hidden)
        both = torch.cat([self.input_layernorm(embedded), normed], dim=-1)
        mixed, kept = self.self_attn(both, rotation, past, hidden_mask)
        x = (normed if self.norms_residual else hidden) + mixed
        return x + self.mlp(self.post_attention_layernorm(x)), kept


class Eagle3Head(nn.Module):
    """The head's own weights; embedding and output head are the target's, where it has none itself.

    Attributes:
        embed_tokens: its own embedding, of the target's vocabulary; None: the target's.
        lm_head: its own output head, of its own vocabulary; None: the target's.
        vocabulary: which tokens its own head proposes; None: those of the target.
    """

    def __init__(self, config: Eagle3Config) -> None:
        super().__init__()
        self.config = config
        self.embed_tokens: nn.Embedding | None = None
        self.lm_head: nn.Linear | None = None
        self.vocabulary: DraftVocabulary | None = None
        size = config.target_hidden_size
        self.fc_norm = (
            nn.ModuleList(RMSNorm(size, config.rms_norm_eps) for _ in range(config.num_taps))
            if config.fc_norm
            else None
        )
        self.fc = nn.Linear(config.num_taps * size, config.hidden_size, bias=False)
        self.midlayer = _Layer(config)
        self.norm = RMSNorm(config.hidden_size, config.rms_norm_eps)

    def fused(self, features: Tensor) -> Tensor:
        """Inputs ``[..., H]`` of tapped states ``[..., taps x H_t]`` of the target, in the order of the layers' ids."""
        if self.fc_norm is not None:
            parts = features.chunk(self.config.num_taps, dim=-1)
            features = torch.cat([norm(part) for norm, part in zip(self.fc_norm, parts, strict=True)], dim=-1)
        out: Tensor = self.fc(features)
        return out

    def forward(
        self,
        hidden: Tensor,
        embedded: Tensor,
        positions: Tensor,
        past: Sequence[KeyValues] = (),
        hidden_mask: Tensor | None = None,
    ) -> tuple[Tensor, KeyValues]:
        """Say what may follow at some positions, in one pass.

        Args:
            hidden: ``[S, L, H]``, states: fused taps, or outputs of the passes before.
            embedded: ``[S, L, H]``, embeddings of the tokens behind these.
            positions: int64 ``[S, L]``.
            past: of positions that were read before, in parts behind each other.
            hidden_mask: bool, of a shape that broadcasts to ``[S, 1, L, C + L]``, True where a position is not seen;
                None: each sees all that stands before it, and itself.

        Returns:
            ``[S, L, H]``, before the last norm, or behind it where ``config.norm_output`` says so; and keys and values
            of these L positions.
        """
        rotation = rotation_at(positions[:, None], self.config.rope_theta, self.config.head_dim, hidden.dtype)
        x, kept = self.midlayer(hidden, embedded.to(hidden.dtype), rotation, past, hidden_mask)
        return (self.norm(x) if self.config.norm_output else x), kept

    def embedded(self, target: Target, tokens: Tensor) -> Tensor:
        """``[..., H]``, embeddings of the target's tokens; its own where it has some."""
        weight = (self.embed_tokens or target.embedding).weight
        return nn.functional.embedding(tokens.to(weight.device), weight)

    def logits(self, target: Target, output: Tensor) -> Tensor:
        """float32 ``[..., V_d]`` of outputs ``[..., H]``; without a vocabulary of its own V_d is the target's."""
        states = output if self.config.norm_output else self.norm(output)
        return target.logits(states) if self.lm_head is None else self.lm_head(states).float()


def check_head(head: Eagle3Head, target: Target) -> None:
    """Refuse a head that was made for another target."""
    check_fit(target, head)
    _check_stops(head, target)


def _check_stops(head: Eagle3Head, target: Target) -> None:
    """Refuse a head that can propose no end of a text."""
    stops = np.array(sorted(target.stop_token_ids), np.int32)
    if head.vocabulary is not None and len(stops) and (head.vocabulary.to_draft(stops) < 0).all():
        raise ModelError(
            f"none of the {len(head.vocabulary.target_ids)} tokens of this EAGLE-3 head ends a text of {target.name}, "
            f"which ends them with {', '.join(map(str, stops.tolist()))}; choose the target it was trained for, or "
            "train another head: `simlab train eagle3` always keeps them"
        )


def _later(length: int, num_keys: int, device: torch.device) -> Tensor:
    """bool ``[1, 1, L, C + L]``, True where a position stands behind the one that looks."""
    own = torch.arange(num_keys - length, num_keys, device=device)
    return (torch.arange(num_keys, device=device) > own[:, None])[None, None]


# What a head keeps of a text: keys and values of its positions, and what it said along the last of them.


@dataclass(frozen=True, slots=True, eq=False)
class ReadText:
    """What a head keeps of a text, and what it said along the last part of it.

    Attributes:
        past: keys and values of all positions ``[1, E, C, F]``.
        outputs: ``[L, H]``, of the positions that were read last.
    """

    past: KeyValues
    outputs: Tensor


def read_text(
    head: Eagle3Head, target: Target, features: Tensor, following: Tensor, past: KeyValues | None
) -> ReadText:
    """Read some positions of a text, in passes of bounded memory.

    Args:
        head: of an EAGLE-3 drafter.
        target: that it belongs to; it may borrow its embedding.
        features: ``[L, taps x H_t]``, tapped states of the target.
        following: int64 ``[L]``, the token behind each of these positions.
        past: of the positions before; None: there are none.
    """
    hidden, embedded = head.fused(features)[None], head.embedded(target, following)[None]
    parts = [] if past is None else [past]
    first = 0 if past is None else past.keys.shape[2]
    positions = torch.arange(first, first + len(following), device=features.device)[None]
    per_pass = max(1, WEIGHTS_PER_PASS // (head.config.num_attention_heads * (first + len(following))))
    outputs = list[Tensor]()
    for part in zip(*(tensor.split(per_pass, dim=1) for tensor in (hidden, embedded, positions)), strict=True):
        output, kept = head(*part, parts)
        outputs.append(output[0])
        parts.append(kept)
    return ReadText(joined(parts), torch.cat(outputs))


class GrowingText:
    """One text that is being written, as a head keeps it.

    What the target has read since the last draft is read when the next one is made. Keys and values of drafted tokens
    never come here, so that none of a rejected one is kept.
    """

    def __init__(self, head: Eagle3Head, target: Target, graphs: GraphedModels | None = None) -> None:
        """Begin with nothing read of the text; ``graphs`` capture its passes, where they are given."""
        self._head, self._target, self._graphs = head, target, graphs
        self._past: KeyValues | None = None
        self._num_read = 0
        self._waiting: list[Tensor] = []
        self._last = torch.empty(0)

    def read(self, features: Tensor) -> None:
        """Take in the tapped states ``[1, L, taps x H_t]`` of further tokens of the text."""
        self._waiting.append(features[0])

    def up_to_root(self, committed: Ints) -> ReadText:
        """What is kept of all before the root, the last of the tokens of prompt and text, int32; all before it read.

        Where passes are captured, keys and values have the next fixed size: those behind the root mean nothing.
        """
        root, features = len(committed) - 1, torch.cat(self._waiting)
        following = torch.from_numpy(committed[root + 1 - len(features) :].astype(np.int64)).to(features.device)
        first, self._waiting, self._last = self._num_read, [], features[-_READ_AGAIN:]
        self._num_read = first + len(features)
        if self._graphs is None or first == 0 or len(features) > 4 * self._graphs.num_fresh:
            past = self._past if self._graphs is None or first == 0 else self._seen(self._graphs, first)
            text = read_text(self._head, self._target, features, following, past)
            self._past = text.past
            return text if self._graphs is None else self._kept(self._graphs, text)
        return self._read_captured(self._graphs, features, following, first)

    def rewind(self, length: int) -> None:
        """Forget all but the first tokens of the text; of what was read, the last few states stay as they were."""
        if length > self._num_read:
            self._waiting = [torch.cat(self._waiting)[: length - self._num_read]]
            return
        again = min(len(self._last), length)
        self._num_read = length - again
        if self._past is not None:
            self._past = KeyValues(*(tensor[:, :, : self._num_read] for tensor in self._past))
        self._waiting = [self._last[:again]]

    def _kept(self, graphs: GraphedModels, text: ReadText) -> ReadText:
        """A text that was read as it came, at fixed addresses."""
        rows = torch.stack(text.past)
        graphs.reserve(self._num_read)
        graphs.rows(self._head, rows).fill(rows)
        return ReadText(self._seen(graphs, context_for(self._num_read)), text.outputs)

    def _seen(self, graphs: GraphedModels, num: int) -> KeyValues:
        rows = graphs.rows(self._head)
        return KeyValues(rows.first(0, num), rows.first(1, num))

    def _read_captured(self, graphs: GraphedModels, features: Tensor, following: Tensor, first: int) -> ReadText:
        """Some tokens more, in passes of a fixed number; what is padded is overwritten by the next tokens."""
        head, target, most, outputs = self._head, self._target, graphs.num_fresh, list[Tensor]()
        for states, tokens in zip(features.split(most), following.split(most), strict=True):
            num_seen, padded = context_for(first + most), most - len(states)

            def work(states: Tensor, tokens: Tensor, start: Tensor, num_seen: int = num_seen) -> tuple[Tensor]:
                slots = start + torch.arange(len(states), device=states.device)
                past, rows = self._seen(graphs, num_seen), graphs.rows(head)
                before = (torch.arange(num_seen, device=states.device) >= start).expand(len(states), -1)
                hidden = torch.cat([before, _later(len(states), len(states), states.device)[0, 0]], dim=1)
                inputs = (head.fused(states)[None], head.embedded(target, tokens)[None], slots[None])
                output, new = head(*inputs, (past,), hidden)
                rows.write(0, slots, new.keys)
                rows.write(1, slots, new.values)
                return (output[0],)

            inputs = (pad(states, (0, 0, 0, padded)), pad(tokens, (0, padded)), torch.tensor([first]))
            (output,) = graphs.call(("eagle3", head, num_seen), work, *inputs)
            outputs.append(output[: len(states)].clone())
            first += len(states)
        return ReadText(self._seen(graphs, context_for(self._num_read)), torch.cat(outputs))


# Heads on disk, in the released names of tensors.


def load_eagle3(location: Path, dtype: torch.dtype, device: str = "cpu") -> Eagle3Head:
    """Read an EAGLE-3 head, to run in a dtype; what is refused says `checked_network`."""
    config, stored = checked_network(location, Eagle3Config, "EAGLE-3 head")
    head = Eagle3Head(config)
    load_weights(head, location, stored)
    return head.to(device, dtype).eval().requires_grad_(False)


def save_eagle3(head: Eagle3Head, folder: Path, dtype: torch.dtype = torch.bfloat16) -> None:
    """Write a head in the released layout, with weights of a dtype."""
    own = {} if head.vocabulary is None else _vocabulary(head.vocabulary)
    write_checkpoint(folder, head.state_dict() | own, dtype, eagle3_to_json(head.config))


def _vocabulary(own: DraftVocabulary) -> dict[str, Tensor]:
    """``d2t`` int64 ``[V_d]``, target id minus own id, and ``t2d`` bool ``[V]``."""
    ids = torch.from_numpy(own.target_ids.astype(np.int64))
    mask = torch.zeros(own.target_vocab_size, dtype=torch.bool)
    mask[ids] = True
    return {OFFSETS: ids - torch.arange(len(ids)), MASK: mask}
