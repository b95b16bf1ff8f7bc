"""The text of a trace's tokens, so that they can be read where the target's tokenizer is not at hand.

``token_texts.parquet`` is optional and outside every id. It keeps bytes, since a token may end within a character.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path

import polars as pl

from simlab.traces.format.files import TOKEN_TEXTS, read_frame, unreadable
from simlab.traces.format.manifest import Manifest
from simlab.traces.format.schema import Schema
from simlab.traces.format.shards import checked_file

_SCHEMA: Schema = {"token_id": pl.Int32(), "text": pl.Binary()}


def token_texts_frame(texts: Mapping[int, bytes]) -> pl.DataFrame:
    """A row for each token, by id: ``token_id`` int32, ``text`` its bytes of UTF-8."""
    ids = sorted(texts)
    return pl.DataFrame({"token_id": ids, "text": [texts[token_id] for token_id in ids]}, schema=_SCHEMA)


def read_token_texts(location: str | Path, manifest: Manifest) -> Mapping[int, bytes] | None:
    """The bytes of each token, by id; None where the trace does not have them.

    Raises:
        TraceError: the file is missing or damaged, or does not have one text for each of its tokens.
    """
    if TOKEN_TEXTS not in manifest.held().files:
        return None
    rows = read_frame(location, TOKEN_TEXTS, _SCHEMA, path=checked_file(location, manifest, TOKEN_TEXTS))
    if any(column.null_count() for column in rows) or not rows["token_id"].is_unique().all():
        raise unreadable(location, TOKEN_TEXTS, ValueError("expected one text for each token"))
    return dict(zip(rows["token_id"].to_list(), rows["text"].to_list(), strict=True))


def text_of_tokens(texts: Mapping[int, bytes], ids: Iterable[int]) -> str:
    r"""The text that tokens stand for together; one that is not known stands there as its number.

    >>> text_of_tokens({1: b"caf", 2: b"\xc3", 3: b"\xa9"}, [1, 2, 3, 4])
    'café<4>'
    """
    return b"".join(texts.get(token_id, b"<%d>" % token_id) for token_id in ids).decode("utf-8", "replace")
