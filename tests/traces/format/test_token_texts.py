"""The text of a trace's tokens: the packaged trace has it, it is the tokenizer's, and damage is found."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest
from commands import refusal_of
from synthetic_traces import write_synthetic_trace

from simlab.cli.main import main
from simlab.errors import TraceError
from simlab.real_runner.targets import builtin, token_text
from simlab.studies.inputs.trace import decoder_of, sample_trace
from simlab.traces.format import token_texts
from simlab.traces.format.files import TOKEN_TEXTS
from simlab.traces.format.token_texts import text_of_tokens
from simlab.traces.reader import open_trace, packaged_trace
from simlab.traces.texts import add_token_texts, tokens_of

needs_tokenizer = pytest.mark.skipif(builtin.target_at_hand() is None, reason="the built-in target is not here")


def test_every_token_of_the_packaged_trace_has_its_text() -> None:
    trace = sample_trace()
    texts = trace.token_texts()
    assert texts is not None
    assert sorted(texts) == tokens_of(trace)


@needs_tokenizer
def test_the_texts_are_those_of_the_targets_tokenizer() -> None:
    trace = sample_trace()
    texts, decode = trace.token_texts(), token_text.load_decoder(trace.manifest.target.name)
    assert texts is not None
    for record in trace.sequences():
        for ids in (record.prompt.token_ids.tolist(), record.text.tolist()):
            assert text_of_tokens(texts, ids) == decode(ids)
    some = sorted(texts)[::97]
    assert [text_of_tokens(texts, [one]) for one in some] == [decode([one]) for one in some]


@needs_tokenizer
def test_adding_them_again_gives_the_packaged_files(tmp_path: Path) -> None:
    copy = tmp_path / "trace"
    shutil.copytree(packaged_trace(), copy)
    (copy / TOKEN_TEXTS).unlink()
    target = sample_trace().manifest.target
    assert add_token_texts(copy, lambda ids: token_text.bytes_of_tokens(target.name, target.revision, ids)) > 30_000
    for name in (TOKEN_TEXTS, "manifest.json"):
        assert (copy / name).read_bytes() == (packaged_trace() / name).read_bytes()


def test_words_are_shown_without_a_tokenizer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def refuse(name: str, revision: str) -> None:
        raise AssertionError(f"the tokenizer of {name} was asked for")

    monkeypatch.setattr(token_text, "decoder_at_hand", refuse)
    trace = sample_trace()
    decode = decoder_of(trace)
    assert decode is not None
    assert decode(trace.sequences()[0].text.tolist()).strip().isprintable() or "\n" in decode([198])
    out = tmp_path / "report.html"
    assert main(["report", "--limit", "2", "--texts", "1", "-p", "ddtree:budget=2", "--out", str(out)]) == 0
    page = out.read_text(encoding="utf-8")
    shown = json.loads(page.partition('id="data-trees">')[2].partition("</script>")[0])
    assert shown["words"] is True
    assert not all(one.isdigit() for one in shown["tokens"])


def test_a_trace_without_them_has_none(tmp_path: Path) -> None:
    assert open_trace(write_synthetic_trace(tmp_path / "trace", num_sequences=2, length=8)).token_texts() is None


@pytest.mark.parametrize("how", ["missing", "other"])
def test_damaged_texts_are_refused(how: str, tmp_path: Path) -> None:
    copy = tmp_path / "trace"
    shutil.copytree(packaged_trace(), copy)
    if how == "missing":
        (copy / TOKEN_TEXTS).unlink()
    else:
        rows = pl.read_parquet(copy / TOKEN_TEXTS)
        rows.with_columns(pl.col("token_id").reverse()).write_parquet(copy / TOKEN_TEXTS)
    with pytest.raises(TraceError, match=TOKEN_TEXTS):
        open_trace(copy).token_texts()
    assert TOKEN_TEXTS in refusal_of("inspect", copy)


@pytest.mark.parametrize(
    "rows", [{"token_id": [1, 2], "text": [b"a", None]}, {"token_id": [1, 1], "text": [b"a", b"b"]}]
)
def test_a_token_without_a_text_or_with_two_is_refused(
    rows: dict[str, list[object]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = {"token_id": pl.Int32(), "text": pl.Binary()}
    pl.DataFrame(rows, schema=schema).write_parquet(tmp_path / TOKEN_TEXTS)
    monkeypatch.setattr(token_texts, "checked_file", lambda *_: tmp_path / TOKEN_TEXTS)
    with pytest.raises(TraceError, match="expected one text for each token"):
        sample_trace().token_texts()
