"""Ids of channels: hashes of decoded columns, as `simlab.traces.format.records` makes those of draft sets."""

import hashlib
from collections.abc import Sequence

from simlab.channels import BranchRows, FeatureRows, TransitionRows
from simlab.ids import content_id
from simlab.traces.channels.columns import ChannelColumns
from simlab.traces.format.manifest_entries import ChannelInfo
from simlab.traces.format.records import add_array

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
