"""``simlab train dflash`` refuses what cannot be: one sentence, exit code 2, nothing changed."""

from pathlib import Path
from typing import Any

import polars as pl
import pytest
import torch
from commands import failure_of
from training_runs import arguments, content, dev, finished, texts, write_table

from simlab.cli.main import main
from simlab.real_runner.train import train as train_dflash
from simlab.real_runner.train.options import HeadOptions
from simlab.real_runner.train.plan import TextOptions, TrainingPlan


@pytest.fixture(scope="module")
def trained(folder: Path) -> Path:
    """A finished run, not to be changed."""
    return finished(folder)


@pytest.mark.parametrize(
    "change", [("--seed", "1"), ("--steps", "13"), ("--decay", "2"), ("--block-size", "8"), ("--learning-rate", "0.1")]
)
def test_other_settings_are_not_resumed(trained: Path, folder: Path, change: tuple[str, str]) -> None:
    before = content(trained)
    typed = arguments(folder / "target", trained, *texts(folder), *dev(folder))
    said = failure_of(*typed, "--resume", *change)
    # Another seed orders the texts differently, so it is met one check earlier.
    assert ("other settings" in said) or (change[0] == "--seed" and "other texts" in said)
    assert content(trained) == before


def test_hidden_states_of_other_texts_are_refused(trained: Path, folder: Path, tmp_path: Path) -> None:
    other = write_table(tmp_path / "other.parquet", seed=1)
    typed = arguments(folder / "target", trained, "--text", str(other), "--resume")
    assert "other texts" in failure_of(*typed)
    typed = arguments(folder / "target", trained, *texts(folder), "--resume", "--max-tokens", "9")
    assert "other texts" in failure_of(*typed)


def test_answers_to_other_prompts_are_refused(folder: Path, tmp_path: Path) -> None:
    typed = arguments(folder / "target", tmp_path, "--prompts", str(folder / "prompts.jsonl"), steps=1)
    assert main(typed) == 0
    for change in (["--limit", "3"], ["--temperature", "1"], ["--max-new-tokens", "5"]):
        assert "answers to other prompts" in failure_of(*typed, "--resume", *change)


def test_a_damaged_state_is_refused(trained: Path, folder: Path, tmp_path: Path) -> None:
    typed = arguments(folder / "target", tmp_path, *texts(folder), "--resume")
    state = (trained / "state.safetensors").read_bytes()
    for damaged in (state[:-10], b"", (trained / "model.safetensors").read_bytes()):
        (tmp_path / "state.safetensors").write_bytes(damaged)
        assert "cannot be read" in failure_of(*typed)


def test_a_loss_that_is_no_number_ends_the_run(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def endless(*_: object) -> torch.Tensor:
        return torch.tensor(float("nan"), requires_grad=True)

    monkeypatch.setattr(train_dflash, "block_loss", endless)
    typed = arguments(folder / "target", tmp_path, *texts(folder))
    assert "lower learning rate" in failure_of(*typed)


BAD: dict[str, tuple[list[str], str]] = {
    "no source": ([], "--text"),
    "two sources": (["--text", "TEXT", "--prompts", "PROMPTS"], "not allowed with"),
    "no such text": (["--text", "nowhere.parquet"], "no file nowhere.parquet"),
    "no such dev": (["--text", "TEXT", "--dev", "nowhere.jsonl"], "no file nowhere.jsonl"),
    "not parquet": (["--text", "TARGET/config.json"], "config.json"),
    "foreign ids": (["--text", "FOREIGN"], "token 5000"),
    "negative ids": (["--text", "NEGATIVE"], "ids outside 0 ..."),
    "no cell": (["--text", "NO_CELL"], "empty cells in column prompt_ids"),
    "no id": (["--text", "NO_ID"], "empty cells in column text_ids"),
    "words": (["--text", "WORDS"], "expected lists of whole numbers"),
    "fractions": (["--text", "FRACTIONS"], "expected lists of whole numbers"),
    "nothing to learn": (["--text", "SHORT"], "nothing to learn from"),
    "no target": (["--text", "TEXT", "--target", "./nowhere"], "could not be loaded"),
    "no drafter": (["--text", "TEXT", "--init", "./nowhere"], "could not be found"),
    "taps that are words": (["--text", "TEXT", "--taps", "a,b"], "layer numbers"),
    "taps past the end": (["--text", "TEXT", "--taps", "0,9"], "target of 4 layers"),
    "too many layers": (["--text", "TEXT", "--layers", "9"], "9 draft layers"),
    "a block of one": (["--text", "TEXT", "--block-size", "1"], "at least 2"),
    "no mask": (["--text", "TEXT", "--mask-token", "<nope>"], "no token '<nope>'"),
    "no learning": (["--text", "TEXT", "--learning-rate", "0"], "learning rate"),
    "decay": (["--text", "TEXT", "--decay", "-1"], "loss weight decay"),
    "steps": (["--text", "TEXT", "--steps", "0"], "at least 1"),
    "same dev twice": (["--text", "TEXT", "--dev", "DEV", "--dev", "DEV"], "different names"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_a_person_gets_wrong_is_one_sentence(folder: Path, tmp_path: Path, name: str) -> None:
    tables: dict[str, tuple[object, object]] = {
        "FOREIGN": ([[1]], [[5000, 2]]),
        "NEGATIVE": ([[1]], [[-1, 2]]),
        "SHORT": ([[1, 2], []], [[3], []]),
        "NO_CELL": ([[1], None], [[2, 3], [4, 5]]),
        "NO_ID": ([[1]], [[2, None]]),
        "WORDS": (["a"], ["b"]),
        "FRACTIONS": ([[0.5]], [[1.5]]),
    }
    for table, (prompt_ids, text_ids) in tables.items():
        pl.DataFrame({"prompt_ids": prompt_ids, "text_ids": text_ids}).write_parquet(tmp_path / f"{table}.parquet")
    words = {
        "TEXT": str(folder / "texts.parquet"),
        "PROMPTS": str(folder / "prompts.jsonl"),
        "DEV": str(folder / "dev.jsonl"),
        **{table: str(tmp_path / f"{table}.parquet") for table in tables},
    }
    more, expected = BAD[name]
    typed = [words.get(word, word.replace("TARGET", str(folder / "target"))) for word in more]
    said = failure_of(*arguments(folder / "target", tmp_path / "out", *typed))
    assert expected in said


def test_a_drafter_of_other_layers_cannot_be_gone_on_with(trained: Path, folder: Path, tmp_path: Path) -> None:
    for change, said in ((("--layers", "2"), "draft layers 1"), (("--taps", "0,1"), "taps (0, 1, 2)")):
        typed = arguments(folder / "target", tmp_path, *texts(folder), "--init", str(trained), *change)
        assert said in failure_of(*typed)


def test_a_plan_that_cannot_be_is_refused() -> None:
    with pytest.raises(ValueError, match="steps must be at least 1"):
        TrainingPlan(steps=0)
    with pytest.raises(ValueError, match="num_roots must be at least 1"):
        TrainingPlan(steps=1, num_roots=0)
    with pytest.raises(ValueError, match="seed must not be negative"):
        TrainingPlan(steps=1, seed=-1)
    with pytest.raises(ValueError, match="learning rate"):
        TrainingPlan(steps=1, learning_rate=float("inf"))


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"inner_size": 0}, "inner_size must be at least 1"),
        ({"patience": -1}, "patience must not be negative"),
        ({"eval_every": 0}, "eval_every must be at least 1"),
    ],
)
def test_options_of_a_head_that_cannot_be_are_refused(changed: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        HeadOptions(
            target="t",
            out=Path("out"),
            plan=TrainingPlan(steps=1),
            texts=TextOptions(text=Path("a")),
            draft="d",
            **changed,
        )
