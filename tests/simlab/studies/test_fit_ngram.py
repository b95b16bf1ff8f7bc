"""Counts of 3-grams, on small tables of token ids and on the packaged trace."""

import json
from pathlib import Path

import polars as pl
import pytest
from counted_texts import probability
from study_results import refused

from simlab.policies.edges.ngram import counts_from_rows
from simlab.studies.fit_ngram import fit_ngram
from simlab.traces.artefacts.ngram import NGramFile, read_ngram_file
from simlab.traces.reader import open_trace, packaged_trace

TEXTS = [([1, 2, 3], [4, 5, 4, 5, 4]), ([], [7, 7]), ([9], [4, 5])]


def written(path: Path) -> Path:
    if path.suffix == ".parquet":
        prompts, texts = zip(*TEXTS, strict=True)
        pl.DataFrame({"prompt_ids": prompts, "text_ids": texts}).write_parquet(path)
    else:
        path.write_text("".join(json.dumps({"prompt_ids": p, "text_ids": t}) + "\n" for p, t in TEXTS))
    return path


def as_rows(file: NGramFile) -> list[tuple[int, ...]]:
    return list(zip(*(c.tolist() for c in (file.firsts, file.seconds, file.thirds, file.counts)), strict=True))


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_it_counts_what_the_target_wrote(tmp_path: Path, suffix: str) -> None:
    text, out = written(tmp_path / f"text{suffix}"), tmp_path / "counts.parquet"
    fit_ngram(text=text, out=out)
    file = read_ngram_file(out)
    assert as_rows(file) == [
        *[(-1, -1, 4, 4), (-1, -1, 5, 3), (-1, -1, 7, 2)],
        *[(-1, 3, 4, 1), (-1, 4, 5, 3), (-1, 5, 4, 2), (-1, 7, 7, 1), (-1, 9, 4, 1)],
        *[(2, 3, 4, 1), (3, 4, 5, 1), (4, 5, 4, 2), (5, 4, 5, 1), (9, 4, 5, 1)],
    ]
    manifest = open_trace(packaged_trace()).manifest
    assert (file.tokenizer_digest, file.vocab_size) == (manifest.tokenizer_digest, manifest.vocab_size)
    assert (file.num_texts, file.num_tokens, file.min_count) == (3, 9, 1)
    # Rare ones and later texts may be left out.
    fit_ngram(text=text, out=out, min_count=2, limit=1)
    assert as_rows(read_ngram_file(out)) == [
        *[(-1, -1, 4, 3), (-1, -1, 5, 2), (-1, 4, 5, 2), (-1, 5, 4, 2), (4, 5, 4, 2)],
    ]


def test_it_counts_the_texts_of_a_trace(tmp_path: Path) -> None:
    out, trace = tmp_path / "counts.parquet", open_trace(packaged_trace())
    fit_ngram(trace=trace, out=out)
    file = read_ngram_file(out)
    assert (file.source, file.num_tokens) == (trace.text_id, sum(len(sequence.text) for sequence in trace.sequences()))
    counts = counts_from_rows(file.firsts, file.seconds, file.thirds, file.counts, file.vocab_size)
    text = trace.sequences()[0].text.tolist()
    assert probability(counts, text[0], text[1], text[2]) > 0.1


GOOD = '{"text_ids": [1]}\n'


@pytest.mark.parametrize(
    ("name", "content", "more", "said"),
    [
        ("none.parquet", None, {}, "none.parquet cannot be read"),
        ("text.txt", "words", {}, "as .parquet or .jsonl"),
        ("bad.jsonl", GOOD + '{"text_ids": ["a"]}\n', {}, "bad.jsonl, line 2"),
        ("high.jsonl", '{"text_ids": [49152]}\n', {}, "outside the vocabulary of 49,152"),
        ("empty.jsonl", "", {}, "no token to count"),
        ("good.jsonl", GOOD, {"like": "nowhere"}, "expected a trace folder at nowhere"),
        (None, None, {"trace": "nowhere"}, "expected a trace folder at nowhere"),
        (None, None, {"trace": "nowhere", "like": "other"}, "leave it out"),
        (None, None, {}, "give one of them"),
    ],
)
def test_what_cannot_be_counted_is_a_sentence(
    name: str | None, content: str | None, more: dict[str, object], said: str, tmp_path: Path
) -> None:
    text, out = None if name is None else tmp_path / name, tmp_path / "x"
    if text is not None and content is not None:
        text.write_text(content)
    assert said in refused(fit_ngram, text=text, out=out, **more)
    assert not out.exists()
