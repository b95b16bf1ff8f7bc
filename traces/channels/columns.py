"""What a recorder hands over of a channel for each sequence: plain numpy arrays, checked where they enter."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from simlab.arrays import Bools, Floats, read_only
from simlab.channels import BranchRows, FeatureRows, MadeRows, PoolRows, TransitionRows
from simlab.ids import content_id
from simlab.traces.format.frames import add_array
from simlab.traces.format.manifest_entries import ChannelInfo


@dataclass(frozen=True, slots=True, eq=False)
class TransitionColumns:
    """The transitions of one sequence, for each root ``t = 0 .. T-2``.

    Attributes:
        rows: what a replay reads.
        outside_log_mass: float32 ``[sum S]``, log of the mass of each row that is not kept, from -255 to 0.
    """

    rows: TransitionRows
    outside_log_mass: Floats

    def __post_init__(self) -> None:
        _check_outside(self.outside_log_mass, len(self.rows.ids))
        object.__setattr__(self, "outside_log_mass", read_only(self.outside_log_mass))


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
class BranchColumns:
    """The branches of one sequence, for each root ``t = 0 .. T-2``.

    Attributes:
        rows: what a replay reads.
        outside_log_mass: float32 ``[sum S]``, log of the mass of each row that is not kept, from -255 to 0.
    """

    rows: BranchRows
    outside_log_mass: Floats

    def __post_init__(self) -> None:
        _check_outside(self.outside_log_mass, len(self.rows.ids))
        object.__setattr__(self, "outside_log_mass", read_only(self.outside_log_mass))


@dataclass(frozen=True, slots=True, eq=False)
class FeatureColumns:
    """The features of one sequence, for each root ``t = 0 .. T-2``; a replay reads all of them.

    Attributes:
        rows: what a replay reads.
    """

    rows: FeatureRows


def _check_outside(outside: Floats, num: int) -> None:
    if outside.dtype != np.float32 or outside.shape != (num,):
        raise ValueError(f"outside_log_mass must be float32 [{num}]; got {outside.dtype} {list(outside.shape)}")


ChannelColumns: TypeAlias = TransitionColumns | PoolColumns | BranchColumns | FeatureColumns
"""All columns of a channel, of one sequence."""


def columns_part(columns: ChannelColumns, first: int, last: int) -> ChannelColumns:
    """The columns from one root up to another, without copying."""
    starts = columns.rows.starts()
    part: MadeRows = columns.rows.part(first, last, starts)
    within = slice(int(starts[first]), int(starts[last]))
    if isinstance(part, TransitionRows):
        assert isinstance(columns, TransitionColumns)
        return TransitionColumns(part, columns.outside_log_mass[within])
    if isinstance(part, BranchRows):
        assert isinstance(columns, BranchColumns)
        return BranchColumns(part, columns.outside_log_mass[within])
    if isinstance(part, FeatureRows):
        return FeatureColumns(part)
    assert isinstance(columns, PoolColumns)
    return PoolColumns(part, columns.target_log_probs[within], columns.labelled[first:last])


# Ids of channels: hashes of decoded columns, as `simlab.traces.format.frames` makes those of draft sets.


_Names = tuple[str, ...]
_TRANSITIONS: tuple[_Names, _Names] = (("previous", "ids", "log_probs"), ("outside_log_mass",))
_POOL: tuple[_Names, _Names] = (
    ("sizes", "tokens", "parents", "log_probs", "expanded"),
    ("target_log_probs", "labelled"),
)
_BRANCHES: tuple[_Names, _Names] = (("lengths", "ids", "log_probs"), ("outside_log_mass",))
_FEATURES: tuple[_Names, _Names] = (("values",), ())
"""Arrays of the rows and of the columns, in the order in which they enter."""


def channel_digest(columns: ChannelColumns) -> str:
    """sha256 of a channel's rows of one sequence; log-probs of the target that are not known count as 0."""
    digest, rows = hashlib.sha256(), columns.rows
    if isinstance(rows, TransitionRows):
        add_array(digest, "num_previous", rows.num_rows)
        of_rows, of_columns = _TRANSITIONS
    elif isinstance(rows, BranchRows):
        of_rows, of_columns = _BRANCHES
    elif isinstance(rows, FeatureRows):
        of_rows, of_columns = _FEATURES
    else:
        of_rows, of_columns = _POOL
    for name in of_rows:
        add_array(digest, name, getattr(rows, name))
    for name in of_columns:
        add_array(digest, name, getattr(columns, name))
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
