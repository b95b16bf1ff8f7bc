"""``simlab replay`` and ``simlab policies``, from end to end on a made-up trace."""

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from simlab.main import main
from simlab.traces.results import read_results
from simlab.traces.synthetic import write_synthetic_trace

TREES = ("-p", "ddtree:budget=8/16")


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_synthetic_trace(tmp_path_factory.mktemp("replay") / "trace", num_sequences=12, length=40)


def replayed(capsys: pytest.CaptureFixture[str], trace: Path, *arguments: str) -> list[dict[str, Any]]:
    """The rows of ``--json``."""
    assert main(["replay", "--trace", str(trace), "--json", *arguments]) == 0
    value = json.loads(capsys.readouterr().out)
    assert set(value) == {"text_id", "draft_ids", "cost", "rows"}
    assert value["cost"] is None
    assert list(value["draft_ids"]) == ["synthetic"]
    rows: list[dict[str, Any]] = value["rows"]
    return rows


def test_the_reference_rows_are_always_there(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    labels = [row["policy"] for row in replayed(capsys, trace)]
    assert labels == ["autoregressive", "chain", "ddtree:budget=16", "ddtree:budget=64", "hindsight:budget=64"]
    labels = [row["policy"] for row in replayed(capsys, trace, "-p", "hindsight")]
    assert labels == ["autoregressive", "chain", "hindsight:budget=7"]
    labels = [row["policy"] for row in replayed(capsys, trace, *TREES, "-p", "chain", "-p", "hindsight")]
    assert labels == ["autoregressive", "ddtree:budget=8", "ddtree:budget=16", "chain", "hindsight:budget=16"]


def test_the_rows_hold_what_a_script_reads(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = replayed(capsys, trace, *TREES)
    by_policy = {row["policy"]: row for row in rows}
    plain, bound = by_policy["autoregressive"], by_policy["hindsight:budget=16"]
    assert plain["acceptance_length"] == 1.0
    assert plain["nodes_per_round"] == 0.0
    for row in rows:
        assert all(value is None or isinstance(value, str | int | float) for value in row.values())
        assert row["committed"] == plain["committed"]
        assert row["rounds"] >= bound["rounds"]
        assert row["acceptance_length"] == pytest.approx(row["committed"] / row["rounds"])
        assert row["acceptance_length_ci_low"] <= row["acceptance_length"] <= row["acceptance_length_ci_high"]
        assert [row[name] for name in ("tokens_per_s", "speedup", "speedup_ci_low", "speedup_ci_high")] == [None] * 4
    assert json.loads(by_policy["ddtree:budget=8"]["settings"]) == {"budget": 8}


@pytest.mark.parametrize("by", ["dataset", "turn"])
def test_slices_add_up_to_the_whole(trace: Path, by: str, capsys: pytest.CaptureFixture[str]) -> None:
    whole, slices = replayed(capsys, trace, *TREES), replayed(capsys, trace, *TREES, "--by", by)
    for row in whole:
        parts = [part for part in slices if part["policy"] == row["policy"]]
        assert len({part["slice"] for part in parts}) == len(parts) > 1
        for name in ("sequences", "rounds", "drafted", "verified", "accepted", "committed", "clipped"):
            assert sum(part[name] for part in parts) == row[name]


def test_the_table_names_what_was_replayed(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "new" / "results.parquet"
    assert main(["replay", "--trace", str(trace), *TREES, "--by", "dataset", "--out", str(out), "--progress"]) == 0
    text = capsys.readouterr().out
    for part in (
        str(trace),
        "9 prompts, 12 sequences",
        "dataset math",
        "all: 9 prompts",
        "bonus token",
        "No speeds yet",
    ):
        assert part in text
    found = read_results(out)
    assert found.height == 12 * 5
    assert set(found["kind"]) == {"predicted"}
    assert main(["inspect", str(out)]) == 0
    assert "ddtree:budget=16" in capsys.readouterr().out
    assert main(["inspect", "--json", str(out)]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    fresh = replayed(capsys, trace, *TREES)
    assert [row["acceptance_length"] for row in rows] == [row["acceptance_length"] for row in fresh]


def test_a_limit_counts_prompts_and_keeps_turns_together(trace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = replayed(capsys, trace, "--limit", "3")
    assert (rows[0]["prompts"], rows[0]["sequences"]) == (3, 4)
    assert not math.isnan(rows[0]["acceptance_length"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-p", "ddtree:budget=65"], "--exact-budget 128"),
        (["-p", "ddtree:width=1"], "its settings are budget"),
        (["--draft", "other"], "no draft set 'other'"),
        (["--out", "/"], "names the folder"),
    ],
)
def test_a_mistake_is_one_sentence(
    trace: Path, arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", "--trace", str(trace), *arguments]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert said in err
    assert err.count("\n") == 1


def test_a_replay_runs_without_torch(trace: Path) -> None:
    code = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('torch', 'transformers', 'safetensors'):\n"
        "            raise ModuleNotFoundError(f'No module named {name}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        f"from simlab.main import main; sys.exit(main(['replay', '--trace', {str(trace)!r}, '-p', 'ddtree:budget=8']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "hindsight:budget=8" in done.stdout


def test_a_policy_of_ones_own_is_replayed(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from dataclasses import dataclass\n"
        "from simlab import Draft, DraftTree, Needs, Stateless\n"
        "@dataclass(frozen=True, slots=True)\n"
        "class First(Stateless):\n"
        "    @property\n"
        "    def needs(self):\n        return Needs(top_k=1)\n"
        "    @property\n"
        "    def budget(self):\n        return 1\n"
        "    def select(self, draft, state=None):\n"
        "        return DraftTree.chain(draft.root_token, draft.drafted().top_tokens(1))\n",
        encoding="utf-8",
    )
    rows = {row["policy"]: row for row in replayed(capsys, trace, "-p", f"{mine}:First", "-p", "chain:length=1")}
    assert rows[f"{mine}:First"]["rounds"] == rows["chain:length=1"]["rounds"]


def test_the_policies_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["policies"]) == 0
    assert "arXiv 2604.12989" in capsys.readouterr().out
    assert main(["policies", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in listed] == ["ar", "chain", "ddtree"]
    assert set(listed[0]) == {"name", "summary", "settings", "reads", "source", "exactness"}
