"""A dry run says what a recording will be, and makes none."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import tiny_models

from simlab.cli.main import main
from simlab.real_runner.record.dry_run import estimate, spread
from simlab.real_runner.record.options import RecordOptions
from simlab.real_runner.record.record import load, record


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("dry")
    tiny_models.make_pair(made, block_size=8)
    return made


def options_for(folder: Path, tmp_path: Path, num_prompts: int, num_turns: int = 1) -> RecordOptions:
    return RecordOptions(
        target=str(folder / "target"),
        draft=str(folder / "drafter"),
        prompts=tiny_models.write_prompts(tmp_path / "prompts.jsonl", num_prompts, num_turns),
        out=tmp_path / "trace",
        max_new_tokens=32,
        temperature=0.7,
        batch_size=8,
    )


def recorded_bytes(options: RecordOptions) -> int:
    return sum(path.stat().st_size for path in record(options).iterdir())


@pytest.mark.parametrize(("num_prompts", "num_turns"), [(1, 1), (20, 2), (150, 1)])
def test_the_size_is_right_within_ten_percent(folder: Path, tmp_path: Path, num_prompts: int, num_turns: int) -> None:
    options = options_for(folder, tmp_path, num_prompts, num_turns)
    found = estimate(options, *load(options))
    assert (found.num_prompts, found.num_texts) == (num_prompts, num_prompts * num_turns)
    assert found.num_sampled == min(num_prompts, 64)
    assert found.num_bytes == pytest.approx(recorded_bytes(options), rel=0.1)
    assert found.seconds > 0


def test_positions_of_given_text_are_known(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "given.jsonl"
    texts = np.random.default_rng(0).integers(5, tiny_models.VOCAB_SIZE, (100, 50))
    rows = [{"prompt_token_ids": [9, 10], "token_ids": text[i % 50 :].tolist()} for i, text in enumerate(texts)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = replace(options_for(folder, tmp_path, 1), prompts=None, completions=path)
    found = estimate(options, *load(options))
    assert found.positions == sum(1 + i % 50 for i in range(100))
    assert found.num_bytes == pytest.approx(recorded_bytes(options), rel=0.1)


def test_it_is_printed_and_nothing_is_written(folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny_models.write_prompts(tmp_path / "prompts.jsonl", 3)
    models = ["--target", str(folder / "target"), "--draft", str(folder / "drafter")]
    text = ["--prompts", str(tmp_path / "prompts.jsonl"), "--max-new-tokens", "8"]
    assert main(["record", *models, *text, "--out", str(tmp_path / "trace"), "--dry-run", "sample"]) == 0
    out = capsys.readouterr().out
    assert "<|im_start|>user\n0. tree<|im_end|>\n<|im_start|>assistant\n" in out
    assert "prompts         3\n" in out
    assert "expected size" in out
    assert "expected time" in out
    assert not (tmp_path / "trace").exists()


def test_a_sample_is_spread_over_all() -> None:
    assert spread(range(10), 3) == [0, 3, 6]
    assert spread(range(2), 3) == [0, 1]
