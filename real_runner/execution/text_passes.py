"""Passes over the last tokens of many texts at once: of fixed sizes, captured on a GPU, for plain decoding.

Each text has a row of slots in one store of keys and values, where its slots are its positions. The target's layers are
those of `simlab.real_runner.execution.fused_layers`, but not compiled, since compiling takes longer than most
recordings. What a pass reads and chooses stays on the device, so the host may launch several before it looks.
"""

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from simlab.arrays import Longs
from simlab.real_runner.drafters.candidate_keys import on_host, sent
from simlab.real_runner.execution.captured_work import CapturedGraphs
from simlab.real_runner.execution.executions import context_for, rows_for
from simlab.real_runner.execution.fused_layers import DecoderLayer, PackedTarget, Regions, as_it_is, can_fuse_target
from simlab.real_runner.execution.kv_buffers import BufferCache, FixedRows
from simlab.real_runner.targets.model import Target, final_norm

PASSES_UNSEEN = 8
"""So many tokens of each text may be chosen before the host looks at them."""

_LEAST_ROWS = 8
"""A pass of fewer is no faster on a GPU."""

_KEPT_SHARE = 1 / 8
"""A store that takes more of the device's memory is given up behind each batch."""


def text_passes(target: Target) -> "TextPasses | None":
    """Such passes of a target on a GPU; None where it has other layers, or rotations that change with the length."""
    kinds = str(target.config.rope_parameters)
    is_fixed = "dynamic" not in kinds and "longrope" not in kinds
    return TextPasses(target) if target.device.type == "cuda" and is_fixed and can_fuse_target(target) else None


def attention_of_texts(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, room: int, scaling: float) -> Tensor:
    """The mix of the values that one token of each text sees, ``[S, A x F]``.

    Args:
        query: ``[S, A, F]``, of S texts.
        keys: ``[E, slots, F]``; text s has the slots from ``s x room`` on. ``A`` is a multiple of ``E``.
        values: the same.
        mask: ``[S, 1, 1, K]``, 0 where a text's slot is visible, -inf elsewhere; K is at most ``room``.
        room: slots of a text.
        scaling: of the scores.
    """
    num, groups = len(query), len(keys)
    of_texts = [rows[:, : num * room].unflatten(1, (num, room)).transpose(0, 1) for rows in (keys, values)]
    seen_keys, seen_values = (rows[:, :, : mask.shape[-1]] for rows in of_texts)
    # The heads that read the same keys are further rows of one product.
    side_by_side = query.unflatten(1, (groups, -1))
    mixed = nn.functional.scaled_dot_product_attention(
        side_by_side, seen_keys, seen_values, attn_mask=mask, scale=scaling
    )
    return mixed.flatten(1)


_Pair = tuple[Tensor, Tensor]


class TextPasses:
    """Texts that are being written, one batch at a time.

    Attributes:
        target: whose texts they are.
        num_rows: rows of a pass, at least one a text; those behind the texts, or of texts that ended, are dummies.
    """

    def __init__(self, target: Target) -> None:
        """Begin with no room, and no pass captured."""
        self.target, self.num_rows = target, 0
        self._graphs = CapturedGraphs(target.device)
        self._regions, self._layers = Regions(as_it_is), cast(PackedTarget | None, None)
        self._store: FixedRows | None = None
        self._turns = torch.empty(0)
        # Of each row, what the next pass reads: a token, and its position.
        self._tokens = self._positions = self._nothing(0)
        self._chosen, self._num_chosen = self._nothing(PASSES_UNSEEN, 0), self._nothing(1)
        self._logits: Tensor | None = None
        self._room = self._longest = self._unseen = 0

    def begin(self, prompts: BufferCache, lengths: Sequence[int], most: int) -> None:
        """Take in what the target has read.

        Args:
            prompts: keys and values of S prompts, padded on the right.
            lengths: of each of them, padding not counted.
            most: tokens that will be written behind each prompt.
        """
        held = prompts.rows.tensor
        assert held is not None
        self._longest, self.num_rows = max(lengths), rows_for(len(lengths))
        self._room, self._unseen = context_for(self._longest + most), 0
        self._reserve(held)
        rows = self._of_texts()
        rows[:, :, : len(lengths), : prompts.length] = held[:, :, :, : prompts.length].transpose(1, 2)
        rows[:, :, len(lengths) :] = 0
        padding = [0] * (self.num_rows - len(lengths))
        self._positions[: self.num_rows] = sent(torch.tensor([*lengths, *padding]), self.target.device)
        self._tokens.zero_()
        self._num_chosen.zero_()

    def choose(self, logits: Tensor) -> None:
        """Choose the likeliest token behind each text, of logits ``[S, V]``; the next pass reads it."""
        self._choose(nn.functional.pad(logits, (0, 0, 0, self.num_rows - len(logits))))
        self._unseen += 1

    def put(self, tokens: Longs) -> None:
        """Put tokens that the host has chosen, int64 ``[rows]``, where the next pass reads them."""
        self._tokens[: self.num_rows] = sent(torch.from_numpy(tokens), self.target.device)

    def step(self, *, wants_logits: bool = False) -> None:
        """Launch a pass over the last token of each text.

        Args:
            wants_logits: the host is to choose what follows; else the likeliest token is what the next pass reads.
        """
        self._longest += 1
        num, num_seen = self.num_rows, context_for(self._longest)
        if wants_logits and (self._logits is None or len(self._logits) < num):
            self._graphs.forget()
            self._logits = torch.zeros(num, self.target.vocab_size, device=self.target.device)

        def work() -> None:
            logits = self.target.logits(self._states(num_seen))
            self._positions[:num].add_(1)
            if wants_logits and self._logits is not None:
                self._logits[:num] = logits
            else:
                self._choose(logits)

        changed = (self._tokens, self._positions, self._chosen, self._num_chosen)
        self._graphs.run((num, self._room, num_seen, wants_logits), work, changed)
        self._unseen += 0 if wants_logits else 1

    def logits(self, rows: Sequence[int]) -> Tensor:
        """float32 ``[R, V]`` of some rows of the last pass that was asked for them."""
        assert self._logits is not None
        return self._logits[sent(torch.tensor(rows), self.target.device)]

    def look(self) -> Longs:
        """The tokens chosen since the last look, int64 ``[n, rows]``, -1 where logits were no law; waits for them."""
        (chosen,) = on_host(self._chosen[: self._unseen, : self.num_rows])
        self._num_chosen.zero_()
        self._unseen = 0
        return chosen.copy()

    def keep(self, rows: Sequence[int]) -> bool:
        """Let the texts of some rows take the first rows, in order, where a pass then has half the rows or fewer.

        Returns:
            Whether it has: else everything is where it was, since each other size is captured anew.
        """
        num = max(rows_for(len(rows)), _LEAST_ROWS)
        if num > self.num_rows // 2:
            return False
        others = [row for row in range(self.num_rows) if row not in set(rows)]
        order = sent(torch.tensor([*rows, *others][:num]), self.target.device)
        was = self._of_texts()
        self.num_rows = num
        for part, into in zip(was, self._of_texts(), strict=True):
            into.copy_(part.index_select(1, order))
        for buffer in (self._tokens, self._positions):
            buffer[:num] = buffer[order]
        return True

    def end(self) -> None:
        """The texts are written: a large store is given up, and the passes that were captured with it."""
        if self._store is not None and self.target.device.type == "cuda":
            _, whole = torch.cuda.mem_get_info(self.target.device)
            if self._store.tensor.nbytes > whole * _KEPT_SHARE:
                self._graphs.forget()
                self._store = None

    def _nothing(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=torch.int64, device=self.target.device)

    def _reserve(self, like: Tensor) -> None:
        """Have slots, rotations and rows enough; the passes are captured anew where anything moves."""
        if self._layers is None:
            self._layers = PackedTarget(self.target, self._regions)
        if self._store is None or self._store.room < self.num_rows * self._room:
            self._graphs.forget()
            self._store = None
            self._store = FixedRows(like, self.num_rows * self._room)
        if self._turns.numel() == 0 or self._turns.shape[1] < self._room:
            self._graphs.forget()
            self._turns = self._layers.rotations(self._room)
        if len(self._tokens) < self.num_rows:
            self._graphs.forget()
            self._tokens, self._positions = self._nothing(self.num_rows), self._nothing(self.num_rows)
            self._chosen = self._nothing(PASSES_UNSEEN, self.num_rows)

    def _of_texts(self) -> Tensor:
        """The store as ``[parts, E, S, room, F]``, a view."""
        assert self._store is not None
        rows = self._store.tensor[:, 0, :, : self.num_rows * self._room]
        return cast(Tensor, rows.unflatten(2, (self.num_rows, self._room)))

    def _states(self, num_seen: int) -> Tensor:
        """The states ``[S, H]`` after the final norm, of the last token of each text."""
        assert self._layers is not None
        assert self._store is not None
        layers, held, run, num = self._layers.each(), self._store.of_layers(), self._regions, self.num_rows
        positions, room, device = self._positions[:num], self._room, self.target.device
        at = positions + room * torch.arange(num, device=device)
        hidden = torch.arange(num_seen, device=device) > positions[:, None]
        mask = hidden.to(self.target.dtype).masked_fill_(hidden, -torch.inf)[:, None, None]
        where = (self._turns, positions)
        tokens, weight = self._tokens[:num], self.target.embedding.weight
        x, query = cast(_Pair, run.first(layers[0], tokens, weight, 1.0, *where, *held[0], at))
        mixed = attention_of_texts(query, *held[0], mask, room, self._layers.scaling)
        for number, rows in enumerate(held[1:]):
            following = (layers[number + 1], x, mixed, *where, *rows, at)
            x, query = cast(_Pair, run.between(layers[number], *following))
            mixed = attention_of_texts(query, *rows, mask, room, self._layers.scaling)
        # Behind the last attention the modules' own arithmetic, which is the same.
        last = cast(DecoderLayer, self.target.layers[-1])
        x = x + last.self_attn.o_proj(mixed)
        x = x + last.mlp(last.post_attention_layernorm(x))
        return cast(Tensor, final_norm(self.target)(x))

    def _choose(self, logits: Tensor) -> None:
        """Launch the choice of the likeliest tokens, the first of equal ones, of logits ``[rows, V]``."""
        largest, tokens = logits.max(-1)
        chosen = tokens.where(largest.isfinite(), -1)
        self._chosen[:, : self.num_rows].index_copy_(0, self._num_chosen, chosen[None])
        self._tokens[: self.num_rows] = chosen.clamp(min=0)
        self._num_chosen.add_(1)
