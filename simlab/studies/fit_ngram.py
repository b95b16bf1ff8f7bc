"""``simlab train ngram``: the counts of a 3-gram, from texts of the target."""

import argparse
import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from simlab.arrays import Ints
from simlab.cli.parser import Parser, add_command, positive
from simlab.errors import PromptError, UsageError, at_the_door
from simlab.policies.edges.ngram_counting import count_texts
from simlab.traces.artefacts.ngram import NGramFile, write_ngram_file
from simlab.traces.format.files import file_sha256
from simlab.traces.format.manifest import Manifest, read_manifest
from simlab.traces.reader import open_trace, packaged_trace
from simlab.traces.texts import read_text_lines, read_text_table

Texts = Iterator[tuple[Ints, Ints]]

_DETAILS = """The text is a table of token ids: Parquet with lists in the columns prompt_ids and text_ids, or JSONL with
one object a line that has them. What the target wrote is counted; a prompt only stands before it.

  simlab train ngram --text text.parquet --min-count 2 --out runs/mine.parquet
  simlab replay --trace other -p 'presto:ngram="runs/mine.parquet"'

Its tokens are those of --like, a trace: the tokenizer's digest is kept with the counts, and a trace of another one
refuses them. Pairs and triples that came less often than --min-count are left out, and what they had goes to shorter
contexts. With --trace the texts of a trace are counted: they hold its answers, so replay another one with them."""


def add_parser(kinds: "argparse._SubParsersAction[Parser]") -> None:
    """Add the kind to the list of what can be trained."""
    parser = add_command(kinds, "ngram", "Count a 3-gram of the target's texts.", _DETAILS)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--text", type=Path, metavar="FILE", help="token ids to count: .parquet or .jsonl")
    source.add_argument("--trace", metavar="DIR", help="a trace whose texts to count")
    parser.add_argument("--like", metavar="DIR", help="a trace of the same tokenizer (default: the packaged one)")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the file of counts: .parquet")
    parser.add_argument(
        "--min-count", type=positive, default=1, metavar="N", help="leave rarer pairs and triples out (default 1: none)"
    )
    parser.add_argument("--limit", type=positive, metavar="N", help="the first N texts only")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:

    texts, manifest, source = _source(options)
    chosen = list(itertools.islice(texts, options.limit))
    with at_the_door():
        rows = count_texts(chosen, manifest.vocab_size, options.min_count)
    num_tokens = sum(len(text) for _, text in chosen)
    file = NGramFile(
        manifest.tokenizer_digest, manifest.vocab_size, options.min_count, len(chosen), num_tokens, source, *rows
    )
    write_ngram_file(options.out, file)
    print(
        f"{options.out}: {len(rows.counts):,} counts of {num_tokens:,} tokens in {len(chosen):,} texts, "
        f"{options.out.stat().st_size / 1e6:.1f} MB, id {file.ngram_id}"
    )
    return 0


def _source(options: argparse.Namespace) -> "tuple[Texts, Manifest, str]":
    """Texts, the manifest of a trace of their tokenizer, and what they are known by."""
    if options.trace is not None:
        if options.like is not None:
            raise UsageError("--like says of which tokenizer --text is; a --trace knows its own, so leave it out")
        trace = open_trace(options.trace)
        return ((one.prompt.token_ids, one.text) for one in trace.sequences()), trace.manifest, trace.text_id
    manifest = read_manifest(packaged_trace() if options.like is None else options.like)
    return _texts(options.text), manifest, _digest(options.text)


def _texts(path: Path) -> "Texts":

    read = {".parquet": read_text_table, ".jsonl": read_text_lines}.get(path.suffix)
    if read is None:
        raise UsageError(f"--text takes token ids as .parquet or .jsonl; got {path}")
    for before, text in read(path):
        yield np.array(before, np.int32), np.array(text, np.int32)


def _digest(path: Path) -> str:

    try:
        return file_sha256(path)
    except OSError as error:
        raise PromptError(f"{path} cannot be read ({error.strerror or error}); give a file of token ids") from error
