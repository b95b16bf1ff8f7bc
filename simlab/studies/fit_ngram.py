"""The counts of a 3-gram, from texts of a target."""

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

import numpy as np
import polars as pl

from simlab.arrays import Ints
from simlab.errors import PromptError, UsageError, as_usage_error
from simlab.options import limit_option, option, study
from simlab.policies.edges.ngram_counting import count_texts
from simlab.studies.inputs.trace import TraceSource, opened
from simlab.studies.result import StudyResult
from simlab.traces.artefacts.ngram import NGramFile, write_ngram_file
from simlab.traces.format.files import file_sha256
from simlab.traces.format.manifest import Manifest, read_manifest
from simlab.traces.reader import packaged_trace
from simlab.traces.texts import read_text_lines, read_text_table
from simlab.tracking.tracker import check_trackers, track_option, tracking

Texts = Iterator[tuple[Ints, Ints]]
"""Token ids of a prompt and of what the target wrote, both int32."""


@dataclass(frozen=True, eq=False, repr=False)
class NGramFit(StudyResult):
    """Counts of a 3-gram, and where they were written.

    Attributes:
        path: of the file.
        file: what is in it.
    """

    path: Path
    file: NGramFile

    @cached_property
    def frame(self) -> pl.DataFrame:
        """One row, with the keys of the JSON as columns."""
        return pl.from_dicts([self.to_json()])

    def to_json(self) -> dict[str, object]:
        """What was counted, as flat values."""
        file = self.file
        return {
            "kind": "ngram",
            "path": str(self.path),
            "ngram_id": file.ngram_id,
            "num_texts": file.num_texts,
            "num_tokens": file.num_tokens,
            "min_count": file.min_count,
            "num_counts": len(file.counts),
        }

    def text(self) -> str:
        """The line that ``simlab train ngram`` prints."""
        file = self.file
        return (
            f"{self.path}: {len(file.counts):,} counts of {file.num_tokens:,} tokens in {file.num_texts:,} texts, "
            f"{self.path.stat().st_size / 1e6:.1f} MB, id {file.ngram_id}"
        )


@dataclass(frozen=True, kw_only=True)
class NgramOptions:
    """Which texts are counted."""

    DETAILS: ClassVar = """\
The text is a table of token ids: Parquet with lists in the columns prompt_ids and text_ids, or JSONL with
one object a line that has them. What the target wrote is counted; a prompt only stands before it.

  simlab train ngram --text text.parquet --min-count 2 --out runs/mine.parquet
  simlab replay --trace other -p 'presto:ngram="runs/mine.parquet"'

Its tokens are those of --like, a trace: the tokenizer's digest is kept with the counts, and a trace of another one
refuses them. Pairs and triples that came less often than --min-count are left out, and what they had goes to shorter
contexts. With --trace the texts of a trace are counted: they hold its answers, so replay another one with them."""

    text: str | Path | None = option(
        None, "token ids to count: .parquet or .jsonl", "FILE", read=Path, one_of="source!"
    )
    trace: TraceSource | None = option(None, "a trace whose texts to count", "DIR", one_of="source!")
    like: str | Path | None = option(None, "a trace of the same tokenizer (default: the packaged one)", "DIR")
    out: str | Path = option(..., "the file of counts: .parquet", "FILE", read=Path)
    min_count: int = option(1, "leave rarer pairs and triples out; 1: none", "N")
    limit: int | None = limit_option("the first N texts only")
    track: Sequence[str] = track_option()


@study(NgramOptions)
def fit_ngram(options: NgramOptions) -> NGramFit:
    """Count pairs and triples of tokens in texts of a target, and write them to a file.

    Raises:
        SimlabError: not exactly one of trace and text was given, the text cannot be read, or holds no token, or one
            outside the vocabulary; nothing is written.
    """
    check_trackers(options.track)
    texts, manifest, source = _source(options.trace, options.text, options.like)
    settings = {"source": source, "min_count": options.min_count, "limit": options.limit}
    with tracking(options.track, "train ngram", lambda: settings) as tracker:
        chosen = list(itertools.islice(texts, options.limit))
        with as_usage_error():
            rows = count_texts(chosen, manifest.vocab_size, options.min_count)
        num_tokens = sum(len(written) for _, written in chosen)
        digest, size = manifest.tokenizer_digest, manifest.vocab_size
        file = NGramFile(digest, size, options.min_count, len(chosen), num_tokens, source, *rows)
        write_ngram_file(Path(options.out), file)
        fit = NGramFit(Path(options.out), file)
        tracker.results(fit.to_json())
        tracker.files(fit.path)
    return fit


def _source(trace: TraceSource | None, text: str | Path | None, like: str | Path | None) -> tuple[Texts, Manifest, str]:
    """Texts, the manifest of a trace of their tokenizer, and what they are known by."""
    if (trace is None) == (text is None):
        raise UsageError("a 3-gram is counted in the texts of a trace or in a file of token ids; give one of them")
    if text is not None:
        manifest = read_manifest(packaged_trace() if like is None else str(like))
        return _texts_of_file(Path(text)), manifest, _digest(Path(text))
    if like is not None:
        raise UsageError("--like says of which tokenizer --text is; a --trace knows its own, so leave it out")
    recording = opened(trace)
    return (
        ((sequence.prompt.token_ids, sequence.text) for sequence in recording.sequences()),
        recording.manifest,
        recording.text_id,
    )


def _texts_of_file(path: Path) -> Texts:
    """Read the texts of a file of token ids."""
    read = {".parquet": read_text_table, ".jsonl": read_text_lines}.get(path.suffix)
    if read is None:
        raise UsageError(f"--text takes token ids as .parquet or .jsonl; got {path}")
    for before, text in read(path):
        yield np.array(before, np.int32), np.array(text, np.int32)


def _digest(path: Path) -> str:
    """The sha256 of a file's content."""
    try:
        return file_sha256(path)
    except OSError as error:
        raise PromptError(f"{path} cannot be read ({error.strerror or error}); give a file of token ids") from error
