"""The text of a finished trace's tokens, stored beside it: `add_token_texts`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import polars as pl

from simlab.traces.format.files import MANIFEST, write_beside, write_frame
from simlab.traces.format.manifest import file_info
from simlab.traces.format.token_texts import TOKEN_TEXTS, token_texts_frame
from simlab.traces.reader import Trace, open_trace


def add_token_texts(folder: Path, bytes_of: Callable[[Sequence[int]], Mapping[int, bytes]]) -> int:
    """Store the text of each prompt's, text's and candidate's token beside a trace; how many there are.

    No id of the trace changes. Reports then show words where the target's tokenizer is not at hand.

    Args:
        folder: of the trace.
        bytes_of: from token ids to their bytes, such as `simlab.real_runner.targets.token_text.bytes_of_tokens` of the
            trace's target.
    """
    trace = open_trace(folder)
    texts = bytes_of(tokens_of(trace))
    write_frame(folder / TOKEN_TEXTS, token_texts_frame(texts))
    contents = trace.manifest.held()
    files = {**contents.files, TOKEN_TEXTS: file_info(folder / TOKEN_TEXTS)}
    finished = replace(trace.manifest, contents=replace(contents, files=files))
    write_beside(folder / MANIFEST, lambda file: file.write(finished.to_bytes()))
    return len(texts)


def tokens_of(trace: Trace) -> list[int]:
    """Every token of the trace's prompts, texts and candidates, once, by id."""
    columns = [("sequences", "prompt_token_ids"), ("sequences", "text_token_ids")]
    columns += [(name, "ids") for name in trace.manifest.draft_sets]
    found: set[int] = set()
    for table, column in columns:
        found.update(trace.scan(table).select(pl.col(column).explode().unique()).collect()[column].drop_nulls())
    return sorted(found)
