"""What a recorder hands over of a channel for each sequence: plain numpy arrays, checked where they enter."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeAlias, TypeVar

import numpy as np

from simlab.arrays import Bools, Floats, read_only
from simlab.channels import (
    BRANCHES,
    FEATURES,
    POOL,
    TRANSITIONS,
    BranchRows,
    FeatureRows,
    PoolRows,
    TransitionRows,
)
from simlab.ids import content_id
from simlab.traces.format.frames import add_array
from simlab.traces.format.manifest_entries import ChannelInfo

Listed = TypeVar("Listed", bound=TransitionRows | BranchRows)


@dataclass(frozen=True, eq=False)
class ListedColumns(Generic[Listed]):
    """The transitions or branches of one sequence, for each root ``t = 0 .. T-2``.

    Attributes:
        rows: what a replay reads.
        outside_log_mass: float32 ``[sum S]``, log of the mass of each row that is not kept, from -255 to 0.
    """

    rows: Listed
    outside_log_mass: Floats

    def __post_init__(self) -> None:
        outside, num = self.outside_log_mass, len(self.rows.ids)
        if outside.dtype != np.float32 or outside.shape != (num,):
            raise ValueError(f"outside_log_mass must be float32 [{num}]; got {outside.dtype} {list(outside.shape)}")
        object.__setattr__(self, "outside_log_mass", read_only(outside))


TransitionColumns = ListedColumns[TransitionRows]
BranchColumns = ListedColumns[BranchRows]


@dataclass(frozen=True, slots=True, eq=False)
class PoolColumns:
    """The pools of one sequence, for each root ``t = 0 .. T-2``.

    Attributes:
        rows: what a replay reads.
        target_log_probs: float32 ``[sum n]``, the target's log-probability of each node given its path, from -255 to 0;
            0 where there is none.
        labelled: bool ``[T - 1]``, the roots at which they are known; others are stored as null.
    """

    rows: PoolRows
    target_log_probs: Floats
    labelled: Bools

    def __post_init__(self) -> None:
        num = len(self.rows.tokens)
        if self.target_log_probs.dtype != np.float32 or self.target_log_probs.shape != (num,):
            raise ValueError(
                f"target_log_probs must be float32 [{num}]; got {self.target_log_probs.dtype} "
                f"{list(self.target_log_probs.shape)}"
            )
        if self.labelled.dtype != np.bool_ or self.labelled.shape != (len(self.rows),):
            raise ValueError(f"labelled must be bool [{len(self.rows)}]; got {self.labelled.dtype}")
        known = np.where(np.repeat(self.labelled, self.rows.sizes), self.target_log_probs, np.float32(0))
        object.__setattr__(self, "target_log_probs", read_only(known.astype(np.float32)))
        object.__setattr__(self, "labelled", read_only(self.labelled))

    @classmethod
    def unlabelled(cls, rows: PoolRows) -> "PoolColumns":
        """Pools of which the target's log-probabilities are not known."""
        return cls(rows, np.zeros(len(rows.tokens), np.float32), np.zeros(len(rows), np.bool_))


@dataclass(frozen=True, slots=True, eq=False)
class FeatureColumns:
    """The features of one sequence, for each root ``t = 0 .. T-2``; a replay reads all of them.

    Attributes:
        rows: what a replay reads.
    """

    rows: FeatureRows


ChannelColumns: TypeAlias = TransitionColumns | BranchColumns | PoolColumns | FeatureColumns
"""All columns of a channel, of one sequence."""


def columns_part(columns: ChannelColumns, first: int, last: int) -> ChannelColumns:
    """The columns from one root up to another, without copying."""
    starts = columns.rows.starts()
    part: Any = columns.rows.part(first, last, starts)
    within = slice(int(starts[first]), int(starts[last]))
    if isinstance(columns, ListedColumns):
        return replace(columns, rows=part, outside_log_mass=columns.outside_log_mass[within])
    if isinstance(columns, FeatureColumns):
        return replace(columns, rows=part)
    labels = columns.target_log_probs[within], columns.labelled[first:last]
    return replace(columns, rows=part, target_log_probs=labels[0], labelled=labels[1])


# Ids of channels: hashes of decoded columns, as `simlab.traces.format.frames` makes those of draft sets.


_HASHED = {
    TRANSITIONS: ("num_rows", "previous", "ids", "log_probs", "outside_log_mass"),
    POOL: ("sizes", "tokens", "parents", "log_probs", "expanded", "target_log_probs", "labelled"),
    BRANCHES: ("lengths", "ids", "log_probs", "outside_log_mass"),
    FEATURES: ("values",),
}
"""Arrays of the rows, and then of the columns, in the order in which they enter."""


def channel_digest(columns: ChannelColumns) -> str:
    """sha256 of a channel's rows of one sequence; log-probs of the target that are not known count as 0."""
    digest, rows = hashlib.sha256(), columns.rows
    for name in _HASHED[rows.kind]:
        array = getattr(rows if hasattr(rows, name) else columns, name)
        add_array(digest, "num_previous" if name == "num_rows" else name, array)
    return digest.hexdigest()


def channel_id(text: str, info: ChannelInfo, digests: Sequence[str]) -> str:
    """The id of a channel.

    Args:
        text: the text's id.
        info: what the manifest says of the channel.
        digests: those of all sequences in order.
    """
    return content_id(
        {
            "text_id": text,
            "extends_id": info.extends_id,
            "producer": info.producer.digest,
            "kind": info.kind,
            "settings": dict(info.settings),
            "rows": list(digests),
        }
    )
