"""What the drafter proposed at one root, and what a policy may see of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from simlab.arrays import Floats, Ints, read_only
from simlab.channels import Channel
from simlab.jit import kernel

_DTYPES = (np.dtype(np.int32), np.dtype(np.float32), np.dtype(np.int32))


_SHOWN = 5
"""Candidates of each depth that a notebook shows."""


@dataclass(frozen=True, slots=True, eq=False)
class Marginals:
    """The drafter's kept candidates at each depth, most probable first.

    Attributes:
        ids: int32 ``[sum K_d]``, token ids; within a depth in the order of their ranks.
        log_probs: float32 ``[sum K_d]``, natural logarithm under the full vocabulary, on the grid.
        offsets: int32 ``[D + 1]``, where each depth begins.
        entropies: float32 ``[D]``, nats, of the drafter's law over its whole vocabulary at each depth; None where
            nobody asked for them.
    """

    ids: Ints
    log_probs: Floats
    offsets: Ints
    entropies: Floats | None = None

    def __post_init__(self) -> None:
        dtypes = (self.ids.dtype, self.log_probs.dtype, self.offsets.dtype)
        if dtypes != _DTYPES:
            raise ValueError(f"ids, log_probs and offsets must be int32, float32 and int32; got {dtypes}")
        if self.ids.shape != self.log_probs.shape or self.ids.ndim != 1:
            raise ValueError(f"ids {self.ids.shape} and log_probs {self.log_probs.shape} must be flat and equally long")
        if self.offsets.ndim != 1 or not _rise(self.offsets, len(self.ids)):
            raise ValueError(f"offsets must rise from 0 to {len(self.ids)}; got {self.offsets.tolist()}")
        if not _in_order(self.log_probs, self.offsets):
            raise ValueError("the log-probabilities of a depth must be at most 0 and must not rise with the rank")
        entropies = self.entropies
        if entropies is not None and (entropies.dtype != np.float32 or entropies.shape != (self.depth,)):
            raise ValueError(f"entropies must be float32 [{self.depth}]; got {entropies.dtype} {entropies.shape}")

    @property
    def depth(self) -> int:
        """D, the positions drafted ahead."""
        return len(self.offsets) - 1

    @property
    def counts(self) -> Ints:
        """int32 ``[D]``, candidates of each depth; read-only as a trace's, so kernels are compiled once for both."""
        return read_only(np.diff(self.offsets))

    def at(self, depth: int) -> tuple[Ints, Floats]:
        """Ids and log-probs kept at a depth, counted from 1."""
        low, high = self.offsets[depth - 1], self.offsets[depth]
        return self.ids[low:high], self.log_probs[low:high]

    def top_tokens(self, length: int) -> Ints:
        """The most probable token at each of the first depths.

        Returns:
            int32 ``[min(length, D)]``; shorter where a depth keeps no candidate.
        """
        firsts = self.offsets[: min(length, self.depth) + 1]
        empty = np.flatnonzero(firsts[1:] == firsts[:-1])
        return self.ids[firsts[: empty[0] if len(empty) else -1]]

    def first_ranks(self, top_k: int) -> "Marginals":
        """Marginals that hold only the first ``top_k`` ranks at every depth."""
        ids, log_probs, offsets = _first_ranks(self.ids, self.log_probs, self.offsets, top_k)
        # As what is read of a trace: kernels are compiled once for both.
        return Marginals(read_only(ids), read_only(log_probs), offsets, self.entropies)


@kernel
def _first_ranks(ids: Ints, log_probs: Floats, offsets: Ints, top_k: int) -> tuple[Ints, Floats, Ints]:
    cut = np.zeros(offsets.size, np.int32)
    for depth in range(1, offsets.size):
        cut[depth] = cut[depth - 1] + min(offsets[depth] - offsets[depth - 1], top_k)
    cut_ids, cut_log_probs = np.empty(cut[-1], np.int32), np.empty(cut[-1], np.float32)
    for depth in range(1, offsets.size):
        skipped = offsets[depth - 1] - cut[depth - 1]
        for index in range(cut[depth - 1], cut[depth]):
            cut_ids[index], cut_log_probs[index] = ids[skipped + index], log_probs[skipped + index]
    return cut_ids, cut_log_probs, cut


@kernel
def _rise(offsets: Ints, end: int) -> bool:
    if offsets.size == 0 or offsets[0] != 0 or offsets[-1] != end:
        return False
    for depth in range(1, offsets.size):  # noqa: SIM110 - compiled
        if offsets[depth] < offsets[depth - 1]:
            return False
    return True


@kernel
def _in_order(log_probs: Floats, offsets: Ints) -> bool:
    for depth in range(1, offsets.size):
        highest = np.float32(0.0)
        for index in range(offsets[depth - 1], offsets[depth]):
            if not log_probs[index] <= highest:
                return False
            highest = log_probs[index]
    return True


@dataclass(frozen=True, slots=True, eq=False)
class Prompt:
    """What a sequence answers; turns and samples of one ``prompt_id`` belong together.

    Attributes:
        token_ids: int32 ``[P]``, the rendered prompt.
    """

    prompt_id: str
    dataset: str
    turn: int
    sample: int
    token_ids: Ints


@dataclass(frozen=True, slots=True, eq=False)
class Draft:
    """All that a policy may know when it chooses a tree.

    Attributes:
        marginals: the drafter's candidates; None for a policy that needs no drafter.
        root_token: the last committed token.
        committed: int32 ``[P + t + 1]``, prompt and text up to and including the root, read-only.
        context_length: tokens before the root, which is also the root's absolute position.
        channels: what recorded channels say at this root, by name; only those that the policy declares, and no more
            of each than it declares.
    """

    marginals: Marginals | None
    root_token: int
    committed: Ints
    context_length: int
    channels: Mapping[str, Channel] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len(self.committed) != self.context_length + 1 or self.committed[-1] != self.root_token:
            raise ValueError("committed tokens must end with the root, at position context_length")

    def _repr_html_(self) -> str:
        depths = range(0 if self.marginals is None else self.marginals.depth)
        rows = [f"<tr><th>root</th><td>{self.root_token}</td></tr>"]
        for depth in depths:
            ids, log_probs = self.drafted().at(depth + 1)
            first = zip(ids[:_SHOWN].tolist(), np.exp(log_probs[:_SHOWN]).tolist(), strict=True)
            cells = "".join(f"<td>{token} ({prob:.3f})</td>" for token, prob in first)
            rows.append(f"<tr><th>depth {depth + 1}</th>{cells}</tr>")
        return f"<table><caption>token ids (probabilities)</caption>{''.join(rows)}</table>"

    def drafted(self) -> Marginals:
        """The marginals, for a policy that declares that it needs them."""
        if self.marginals is None:
            raise ValueError("this draft holds no marginals; declare the need for them in the policy's needs")
        return self.marginals

    def entropies(self) -> Floats:
        """The drafter's entropies, float32 ``[D]`` in nats, for a policy that declares that it needs them."""
        entropies = self.drafted().entropies
        if entropies is None:
            raise ValueError("this draft holds no entropies; declare the need for them, Needs(entropies=True)")
        return entropies

    def channel(self, name: str) -> Channel:
        """What a channel says at this root, for a policy that declares that it needs it."""
        if name not in self.channels:
            raise ValueError(
                f"this draft holds no channel {name!r}; declare the need for it, "
                f"Needs(channels=(ChannelNeed({name!r}, KIND),))"
            )
        return self.channels[name]
