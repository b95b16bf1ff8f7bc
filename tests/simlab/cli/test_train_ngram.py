"""``simlab train ngram``, on small tables of token ids and on the packaged trace."""

import json
from pathlib import Path

import polars as pl
import pytest
from commands import refusal_of

from simlab.cli.main import main
from simlab.policies.edges.ngram import counts_from_rows, probability
from simlab.traces.artefacts.ngram import NGramFile, read_ngram_file
from simlab.traces.reader import open_trace, packaged_trace

TEXTS = [([1, 2, 3], [4, 5, 4, 5, 4]), ([], [7, 7]), ([9], [4, 5])]


def table(path: Path) -> Path:
    if path.suffix == ".parquet":
        prompts, texts = zip(*TEXTS, strict=True)
        pl.DataFrame({"prompt_ids": prompts, "text_ids": texts}).write_parquet(path)
    else:
        path.write_text("".join(json.dumps({"prompt_ids": p, "text_ids": t}) + "\n" for p, t in TEXTS))
    return path


def as_rows(file: NGramFile) -> list[tuple[int, ...]]:
    return list(zip(*(c.tolist() for c in (file.firsts, file.seconds, file.thirds, file.counts)), strict=True))


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl"])
def test_it_counts_what_the_target_wrote(tmp_path: Path, suffix: str, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out" / "counts.parquet"
    assert main(["train", "ngram", "--text", str(table(tmp_path / f"text{suffix}")), "--out", str(out)]) == 0
    file = read_ngram_file(out)
    assert as_rows(file) == [
        *[(-1, -1, 4, 4), (-1, -1, 5, 3), (-1, -1, 7, 2)],
        *[(-1, 3, 4, 1), (-1, 4, 5, 3), (-1, 5, 4, 2), (-1, 7, 7, 1), (-1, 9, 4, 1)],
        *[(2, 3, 4, 1), (3, 4, 5, 1), (4, 5, 4, 2), (5, 4, 5, 1), (9, 4, 5, 1)],
    ]
    manifest = open_trace(packaged_trace()).manifest
    assert (file.tokenizer_digest, file.vocab_size) == (manifest.tokenizer_digest, manifest.vocab_size)
    assert (file.num_texts, file.num_tokens, file.min_count) == (3, 9, 1)
    assert file.ngram_id in capsys.readouterr().out


def test_rare_ones_and_later_texts_are_left_out(tmp_path: Path) -> None:
    out = tmp_path / "counts.parquet"
    arguments = ["train", "ngram", "--text", str(table(tmp_path / "text.parquet")), "--out", str(out)]
    assert main([*arguments, "--min-count", "2", "--limit", "1"]) == 0
    assert as_rows(read_ngram_file(out)) == [
        *[(-1, -1, 4, 3), (-1, -1, 5, 2), (-1, 4, 5, 2), (-1, 5, 4, 2), (4, 5, 4, 2)],
    ]


def test_it_counts_the_texts_of_a_trace(tmp_path: Path) -> None:
    out, trace = tmp_path / "counts.parquet", open_trace(packaged_trace())
    assert main(["train", "ngram", "--trace", str(packaged_trace()), "--out", str(out)]) == 0
    file = read_ngram_file(out)
    assert file.source == trace.text_id
    assert file.num_tokens == sum(len(one.text) for one in trace.sequences())
    counts = counts_from_rows(file.firsts, file.seconds, file.thirds, file.counts, file.vocab_size)
    text = trace.sequences()[0].text.tolist()
    assert probability(counts, text[0], text[1], text[2]) > 0.1


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--out", "x"], "one of the arguments --text --trace is required"),
        (["--text", "none.parquet", "--out", "x"], "none.parquet cannot be read"),
        (["--text", "text.txt", "--out", "x"], "as .parquet or .jsonl"),
        (["--text", "bad.jsonl", "--out", "x"], "bad.jsonl, line 2"),
        (["--text", "high.jsonl", "--out", "x"], "outside the vocabulary of 49,152"),
        (["--text", "empty.jsonl", "--out", "x"], "no token to count"),
        (["--text", "good.jsonl", "--like", "nowhere", "--out", "x"], "expected a trace folder at nowhere"),
        (["--trace", "nowhere", "--out", "x"], "expected a trace folder at nowhere"),
        (["--trace", "nowhere", "--like", "other", "--out", "x"], "leave it out"),
        (["--text", "good.jsonl", "--min-count", "0", "--out", "x"], "at least 1"),
    ],
)
def test_what_cannot_be_counted_is_a_sentence(
    arguments: list[str], sentence: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.txt").write_text("words")
    Path("bad.jsonl").write_text('{"text_ids": [1]}\n{"text_ids": ["a"]}\n')
    Path("high.jsonl").write_text('{"text_ids": [49152]}\n')
    Path("empty.jsonl").write_text("")
    Path("good.jsonl").write_text('{"text_ids": [1]}\n')
    assert sentence in refusal_of("train", "ngram", *arguments)
    assert not Path("x").exists()
