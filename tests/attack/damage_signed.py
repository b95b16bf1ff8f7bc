"""Signing what was damaged, as somebody does who changed a file on purpose: with the product's own digests."""

import json
from pathlib import Path

import polars as pl

from simlab.ids import content_digest
from simlab.traces.format.documents import DIGEST, with_digest
from simlab.traces.format.files import FAILURES
from simlab.traces.format.tables import ENTRY, rows_digest

UNREADABLE = (ValueError, RecursionError, OverflowError)


def sign_json(path: Path) -> bool:
    """Give a JSON object the digest of what it says now; False where it is none that can have one."""
    try:
        values = json.loads(path.read_bytes())
        if not isinstance(values, dict):
            return False
        text = json.dumps(with_digest(values), indent=1, ensure_ascii=False)
        path.write_bytes(text.encode("utf-8"))
    except UNREADABLE:
        return False
    return True


def sign_table(path: Path) -> bool:
    """Give a table the digest of the rows that it has now; False where it cannot have one."""
    try:
        rows = pl.read_parquet(path, glob=False)
        facts = json.loads(pl.read_parquet_metadata(path).get(ENTRY, "{}"))
        said = {key: value for key, value in facts.items() if key != DIGEST}
        said[DIGEST] = content_digest({"facts": said, "rows": rows_digest(rows)})
        metadata = {ENTRY: json.dumps(said, sort_keys=True, ensure_ascii=False)}
        rows.write_parquet(path, compression="zstd", statistics=False, metadata=metadata)
    except (*FAILURES, *UNREADABLE, TypeError):
        return False
    return True
