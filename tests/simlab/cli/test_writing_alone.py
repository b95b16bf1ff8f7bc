"""Commands that go on with earlier work: two at once never lose what either made."""

import subprocess
import sys
from pathlib import Path

import pytest
from commands import refusal_of
from synthetic_traces import write_synthetic_trace

from simlab.cli.main import main
from simlab.traces.format.lock import exclusive_lock, lock_file
from simlab.traces.results.files import read_results

NUM_SEQUENCES = 4
BOTH = (("chain:length=1", "chain:length=2"), ("ddtree:budget=3", "ddtree:budget=4"))


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic_trace(tmp_path_factory.mktemp("alone") / "trace", num_sequences=NUM_SEQUENCES, length=20)


@pytest.mark.parametrize("number", range(2))
def test_of_two_replays_into_one_file_one_is_refused_or_both_are_there(
    trace: Path, tmp_path: Path, number: int
) -> None:
    out, rounds = tmp_path / "results.parquet", tmp_path / "rounds.parquet"
    typed = [sys.executable, "-m", "simlab", "replay", "--trace", str(trace), "--out", str(out), "--resume"]
    typed += ["--rounds", str(rounds)] if number else []
    started = [
        subprocess.Popen([*typed, "-p", first, "-p", second], stderr=subprocess.PIPE, text=True)
        for first, second in BOTH
    ]
    said = [one.communicate()[1] for one in started]
    codes = [one.returncode for one in started]
    assert 0 in codes
    assert set(codes) <= {0, 2}
    found = set(read_results(out)["policy"])
    for code, text, policies in zip(codes, said, BOTH, strict=True):
        if code == 0:
            assert set(policies) <= found
        else:
            assert text == f"simlab: another simlab is writing {out}; wait until it is done, or give another --out\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(
        path.name for path in ([out, rounds] if number else [out])
    )


@pytest.mark.parametrize(
    ("held", "option", "typed"),
    [
        ("new.parquet", "--out", ("replay", "--out", "new.parquet")),
        ("new.parquet", "--out", ("replay", "--out", "new.parquet", "--batch", "2")),
        ("new.parquet", "--rounds", ("replay", "--out", "x.parquet", "--rounds", "new.parquet")),
        ("run/manifest.json", "--out", ("record", "--prompts", "none.jsonl", "--out", "run")),
        ("run/manifest.json", "--out", ("record", "--prompts", "none.jsonl", "--out", "run", "--resume")),
        ("cost.json", "--out", ("profile", "--out", "cost.json")),
        ("run/log.jsonl", "--out", ("confirm", "--out", "run")),
        ("run/log.jsonl", "--out", ("confirm", "--prompts", "none.jsonl", "--out", "run", "--resume")),
        ("o.json", "--out", ("optimize", "--trace", "none", "--out", "o.json")),
        ("r.parquet", "--results", ("optimize", "--trace", "none", "--out", "o.json", "--results", "r.parquet")),
        ("s.parquet", "--sums", ("optimize", "--trace", "none", "--shard", "0/2", "--sums", "s.parquet")),
        ("run/answers.jsonl", "--out", ("crosscheck", "--answers", "none", "--trace", "none", "--out", "run")),
        ("run/state.safetensors", "--out", ("train", "dflash", "--text", "t", "--dev", "d", "--out", "run")),
    ],
)
def test_what_another_simlab_writes_is_refused_before_any_work(
    tmp_path: Path,
    held: str,
    option: str,
    typed: tuple[str, ...],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with exclusive_lock(Path(held)):
        assert main(list(typed)) == 2
    said = f"another simlab is writing {held}; wait until it is done, or give another {option}"
    assert capsys.readouterr().err == f"simlab: {said}\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "typed",
    [("record", "--prompts", "none.jsonl"), ("confirm",), ("train", "dflash", "--text", "t", "--dev", "d")],
)
def test_a_file_in_the_place_of_a_folder_is_left_alone(tmp_path: Path, typed: tuple[str, ...]) -> None:
    out = tmp_path / "mine"
    out.write_text("precious")
    assert refusal_of(*typed, "--out", out) == f"simlab: --out names the file {out}; expected a folder\n"
    assert out.read_text() == "precious"


def test_a_lock_goes_wherever_a_policy_file_goes(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("import os\nos.chdir('/')\n")
    typed = [sys.executable, "-m", "simlab", "replay", "-p", "mine.py:Mine", "--out", "r.parquet"]
    done = subprocess.run(typed, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, "mine.py" in done.stderr) == (2, True)
    assert {path.name for path in tmp_path.iterdir()} - {"__pycache__"} == {"mine.py"}


def test_a_lock_that_a_killed_recording_left_keeps_nobody_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run").mkdir()
    lock_file(Path("run/manifest.json")).touch()
    assert "none.jsonl" in refusal_of("record", "--prompts", "none.jsonl", "--out", "run")
    assert list(Path("run").iterdir()) == []
