"""Recorded sequences in memory: what the replay reads."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from simlab.arrays import Floats, Ints, Longs, read_only
from simlab.channels import ChannelRows, join_channels
from simlab.channels.root_rows import starts_of
from simlab.draft import Marginals, Prompt
from simlab.errors import MissingChannelError

NO_ENTROPIES = (
    "the policy reads the drafter's entropies, and these rows hold none; read them from a trace, or name a policy "
    "that reads candidates alone"
)
"""Said where rows that were put together without entropies meet a policy that reads them."""


@dataclass(frozen=True, slots=True, eq=False)
class DraftRows:
    """The kept candidates of one sequence, a row for each root ``t = 0 .. T-2``.

    Attributes:
        ids: int32 ``[sum K]``, all rows and depths one after the other.
        log_probs: float32 ``[sum K]``, on the grid.
        counts: int32 ``[T - 1, D]``, candidates kept.
        true_ranks: int32 ``[T - 1, D]``, rank of the true token, kept or not; -1 past the end of
            the text or outside the drafter's vocabulary. For bounds and analysis only.
        entropies: float32 ``[T - 1, D]``, nats, of the drafter's law over its whole vocabulary; None where they are
            not known.
    """

    ids: Ints
    log_probs: Floats
    counts: Ints
    true_ranks: Ints
    entropies: Floats | None = None

    def __post_init__(self) -> None:
        if self.counts.ndim != 2 or self.counts.shape != self.true_ranks.shape:
            raise ValueError(
                f"counts {self.counts.shape} and true_ranks {self.true_ranks.shape} must both be [T - 1, D]"
            )
        if self.ids.shape != self.log_probs.shape or self.ids.shape != (int(self.counts.sum(dtype=np.int64)),):
            raise ValueError(
                f"ids {self.ids.shape} and log_probs {self.log_probs.shape} must be as long as counts says"
            )
        if self.entropies is not None and self.entropies.shape != self.counts.shape:
            raise ValueError(f"entropies {self.entropies.shape} must be [T - 1, D], as counts {self.counts.shape}")

    def starts(self) -> Longs:
        """int64 ``[T]``, where each row begins in the flat arrays."""
        starts = np.zeros(len(self.counts) + 1, np.int64)
        np.cumsum(self.counts.sum(axis=1, dtype=np.int64), out=starts[1:])
        return starts

    def part(self, first: int, last: int, starts: Longs) -> "DraftRows":
        """The rows from one root up to another, without copying; ``starts`` as `starts` gives them."""
        candidates, roots = slice(int(starts[first]), int(starts[last])), slice(first, last)
        entropies = None if self.entropies is None else self.entropies[roots]
        return DraftRows(
            self.ids[candidates], self.log_probs[candidates], self.counts[roots], self.true_ranks[roots], entropies
        )

    def rows(self) -> Iterator[Marginals]:
        """The marginals of each root in turn."""
        starts = self.starts()
        for t in range(len(self.counts)):
            yield self.row(t, int(starts[t]))

    def row(self, t: int, start: int) -> Marginals:
        """The marginals at root ``t``, which begin at ``start`` in the flat arrays."""
        offsets = np.zeros(self.counts.shape[1] + 1, np.int32)
        np.cumsum(self.counts[t], out=offsets[1:])
        stop = start + int(offsets[-1])
        entropies = None if self.entropies is None else self.entropies[t]
        return Marginals(self.ids[start:stop], self.log_probs[start:stop], offsets, entropies)


@dataclass(frozen=True, slots=True, eq=False)
class RecordedSequence:
    """One text of the target and the drafter's rows along it.

    Attributes:
        index: its place in the trace.
        text: int32 ``[T]``; token 0 is the prefill's, the last is a stop token or the last allowed.
        stop_reason: ``stop`` or ``length``.
        rows: None where no draft set was asked for.
        channels: what was read beside it, by name; a row for each root.
    """

    index: int
    prompt: Prompt
    text: Ints
    stop_reason: str
    rows: DraftRows | None
    channels: Mapping[str, ChannelRows] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.text.ndim != 1 or len(self.text) == 0:
            raise ValueError(f"a text is a flat array of at least one token; got shape {self.text.shape}")
        if self.rows is not None and len(self.rows.counts) != len(self.text) - 1:
            raise ValueError(
                f"a text of {len(self.text)} tokens needs a row for all but the last; got {len(self.rows.counts)}"
            )
        for name, rows in self.channels.items():
            if len(rows) != len(self.text) - 1:
                raise ValueError(
                    f"a text of {len(self.text)} tokens needs a row of the channel {name} for all but the last; got "
                    f"{len(rows)}"
                )


class Roots(NamedTuple):
    """All roots of some texts, one after the other, as kernels read them.

    Attributes:
        ids: int32 ``[sum K]``, of the candidates; nothing where no draft set was asked for.
        log_probs: float32 ``[sum K]``.
        counts: int32 ``[R, D]``.
        true_ranks: int32 ``[R, D]``.
        starts: int64 ``[R + 1]``, where each row begins in the flat arrays.
        tokens: int32, prompt and text of each, one after the other.
        token_indices: int64 ``[R]``, where each root is among the tokens.
        firsts: int64 ``[S + 1]``, the first root of each text, and R.
        begins: int64 ``[S + 1]``, the first token of each prompt, and the number of all tokens.
    """

    ids: Ints
    log_probs: Floats
    counts: Ints
    true_ranks: Ints
    starts: Longs
    tokens: Ints
    token_indices: Longs
    firsts: Longs
    begins: Longs


@dataclass(frozen=True, eq=False)
class RecordedTexts:
    """Some texts and their drafter's rows, one after the other.

    Attributes:
        sequences: the texts.
        rows: those of all of them; None where no draft set was asked for.
        channels: the same, those of each channel that was read.
    """

    sequences: tuple[RecordedSequence, ...]
    rows: DraftRows | None
    channels: Mapping[str, ChannelRows] = field(default_factory=dict)

    @cached_property
    def roots(self) -> Roots:
        """All of it in flat arrays."""
        rows = self.rows
        lengths = np.array([len(sequence.text) for sequence in self.sequences], np.int64)
        prompts = np.array([len(sequence.prompt.token_ids) for sequence in self.sequences], np.int64)
        firsts, begins = starts_of(lengths - 1), starts_of(prompts + lengths)
        parts = [part for sequence in self.sequences for part in (sequence.prompt.token_ids, sequence.text)]
        tokens = np.concatenate(parts).astype(np.int32, copy=False)
        positions = np.arange(firsts[-1]) + np.repeat(begins[:-1] + prompts - firsts[:-1], lengths - 1)
        if rows is None:
            nothing = np.empty((len(positions), 0), np.int32)
            rows = DraftRows(np.empty(0, np.int32), np.empty(0, np.float32), nothing, nothing)
        # A kernel is compiled once more for arrays that can be written, so all that were recorded cannot.
        return Roots(
            read_only(rows.ids),
            read_only(rows.log_probs),
            read_only(rows.counts),
            read_only(rows.true_ranks),
            rows.starts(),
            tokens,
            positions,
            firsts,
            begins,
        )

    @cached_property
    def contexts(self) -> Longs:
        """int64 ``[R]``, tokens before each root."""
        roots = self.roots
        return roots.token_indices - np.repeat(roots.begins[:-1], np.diff(roots.firsts))

    def drafted(self) -> Roots:
        """The roots, for what needs a draft set."""
        if self.rows is None:
            raise ValueError("trees need a drafter's rows, and none were read")
        return self.roots

    def entropies(self) -> Floats:
        """The drafter's entropies at all roots, float32 ``[R, D]``, read-only."""
        if self.rows is None or self.rows.entropies is None:
            raise MissingChannelError(NO_ENTROPIES)
        return read_only(self.rows.entropies)


def texts_of(sequences: Sequence[RecordedSequence]) -> RecordedTexts:
    """Some texts together; the rows of several are copied."""
    rows = [sequence.rows for sequence in sequences if sequence.rows is not None]
    if not sequences or len(rows) not in (0, len(sequences)) or len({row.counts.shape[1] for row in rows}) > 1:
        raise ValueError("expected texts of one draft set, or all without one")
    if len({frozenset(sequence.channels) for sequence in sequences}) > 1:
        raise ValueError("expected texts with the same channels")
    channels = {
        name: join_channels([sequence.channels[name] for sequence in sequences]) for name in sequences[0].channels
    }
    return RecordedTexts(tuple(sequences), _joined_rows(rows), channels)


def _joined_rows(rows: Sequence[DraftRows]) -> DraftRows | None:
    if len(rows) < 2:
        return rows[0] if rows else None
    ids, log_probs, counts, true_ranks = (
        np.concatenate([getattr(row, name) for row in rows]) for name in ("ids", "log_probs", "counts", "true_ranks")
    )
    parts = [row.entropies for row in rows if row.entropies is not None]
    entropies = np.concatenate(parts) if len(parts) == len(rows) else None
    return DraftRows(ids, log_probs, counts, true_ranks, entropies)
