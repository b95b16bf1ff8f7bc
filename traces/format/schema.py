"""The columns of every file of a trace, with the types they are stored in.

``docs/reference/trace_format.md`` says what each means; a test holds the two together.
"""

import polars as pl

from simlab.channels import BRANCHES, FEATURES, POOL

NUM_TOP = 16
"""Ids and log-probs of the target that a tokens row keeps (fewer in a smaller vocabulary)."""

Schema = dict[str, pl.DataType]


def sequences_schema() -> Schema:
    """``sequences.parquet``: a row for each recorded text."""
    return {
        "sequence": pl.Int32(),
        "prompt_id": pl.String(),
        "dataset": pl.String(),
        "turn": pl.Int32(),
        "sample": pl.Int32(),
        "seed": pl.Int64(),
        "prompt_token_ids": pl.List(pl.Int32()),
        "text_token_ids": pl.List(pl.Int32()),
        "stop_reason": pl.String(),
    }


def tokens_schema(vocab_size: int) -> Schema:
    """``tokens-NNNN.parquet``: a row for each emitted token, ``j = 0 .. T-1``."""
    width = min(NUM_TOP, vocab_size)
    return {
        "sequence": pl.Int32(),
        "position": pl.Int32(),
        "top_ids": pl.Array(pl.Int32(), width),
        "top_log_probs": pl.Array(pl.Float32(), width),
        "log_prob": pl.Float32(),
        "entropy": pl.Float32(),
        "log_normaliser": pl.Float32(),
        "decision_gap": pl.Float32(),
    }


def draft_schema(depth: int) -> Schema:
    """``draft-NAME-NNNN.parquet``: a row for each root, ``t = 0 .. T-2``."""
    return {
        "sequence": pl.Int32(),
        "position": pl.Int32(),
        "context_length": pl.Int32(),
        "counts": pl.Array(pl.UInt16(), depth),
        "ids": pl.List(pl.Int32()),
        "log_probs": pl.List(pl.Float32()),
        "outside_log_mass": pl.Array(pl.Float32(), depth),
        "entropy": pl.Array(pl.Float32(), depth),
        "true_rank": pl.Array(pl.Int32(), depth),
        "true_log_prob": pl.Array(pl.Float32(), depth),
    }


def channel_schema(kind: str, width: int) -> Schema:
    """``channel-NAME-NNNN.parquet``: a row for each root, ``t = 0 .. T-2``; ``width`` as `ChannelInfo` has it."""
    keys: Schema = {"sequence": pl.Int32(), "position": pl.Int32()}
    if kind == POOL:
        return keys | {
            "tokens": pl.List(pl.Int32()),
            "parents": pl.List(pl.Int32()),
            "log_probs": pl.List(pl.Float32()),
            "expanded": pl.List(pl.Boolean()),
            "target_log_probs": pl.List(pl.Float32()),
        }
    if kind == BRANCHES:
        return keys | {
            "lengths": pl.List(pl.UInt8()),
            "ids": pl.List(pl.Int32()),
            "log_probs": pl.List(pl.Float32()),
            "outside_log_mass": pl.List(pl.Float32()),
        }
    if kind == FEATURES:
        return keys | {"values": pl.Array(pl.Float32(), width)}
    return keys | {
        "num_previous": pl.Array(pl.UInt8(), width),
        "previous": pl.List(pl.Int32()),
        "ids": pl.List(pl.Int32()),
        "log_probs": pl.List(pl.Float32()),
        "outside_log_mass": pl.List(pl.Float32()),
    }


UNREAD = ("outside_log_mass", "target_log_probs")
"""The columns of a channel that a replay does not read."""

TARGET_LAW_COLUMNS = ("sequence", "position", "entropy")
"""The columns of the target's rows that a replay reads where a policy asks how sure the target was."""

REPLAY_COLUMNS = ("sequence", "position", "counts", "ids", "log_probs", "entropy", "true_rank")
"""The columns of a draft set that a replay reads."""


def replay_schema(depth: int) -> Schema:
    """The part of a draft set's columns that a replay reads."""
    return {name: dtype for name, dtype in draft_schema(depth).items() if name in REPLAY_COLUMNS}


def replay_channel_schema(kind: str, width: int) -> Schema:
    """The part of a channel's columns that a replay reads."""
    return {name: dtype for name, dtype in channel_schema(kind, width).items() if name not in UNREAD}
