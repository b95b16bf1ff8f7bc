"""``simlab replay`` and ``simlab policies``, from end to end on a made-up trace."""

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from commands import json_of, output_of, refusal_of
from made_up_costs import EMPTY, filled

from simlab.cli.main import main
from simlab.traces.artefacts import cost as cost_file
from simlab.traces.artefacts.cost import write_cost_file
from simlab.traces.format.manifest_entries import ModelInfo
from simlab.traces.reader import open_trace
from simlab.traces.results.files import read_results

TREES = ("-p", "ddtree:budget=8/16")
STAGE_COLUMNS = ("draft_s", "channel_s", "select_s", "verify_s", "commit_s")


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder whose cost files are those that come with simlab; empty at first."""
    folder = tmp_path / "shipped"
    monkeypatch.setattr(cost_file, "PACKAGED", folder)
    return folder


def replayed(trace: Path, *arguments: str, cost_id: str | None = None) -> list[dict[str, Any]]:
    """The rows of ``--json``."""
    value = json_of("replay", "--trace", trace, "--json", *arguments)
    assert set(value) == {"text_id", "draft_ids", "cost", "rows", "unpriced"}
    assert value["cost"] == cost_id
    assert list(value["draft_ids"]) == ["synthetic"]
    rows: list[dict[str, Any]] = value["rows"]
    return rows


def test_the_reference_rows_are_always_there(trace: Path) -> None:
    labels = [row["policy"] for row in replayed(trace)]
    assert labels == ["autoregressive", "chain", "ddtree:budget=16", "ddtree:budget=64", "hindsight:budget=64"]
    labels = [row["policy"] for row in replayed(trace, "-p", "hindsight")]
    assert labels == ["autoregressive", "chain", "hindsight:budget=7"]
    labels = [row["policy"] for row in replayed(trace, *TREES, "-p", "chain", "-p", "hindsight")]
    assert labels == ["autoregressive", "ddtree:budget=8", "ddtree:budget=16", "chain", "hindsight:budget=16"]


def test_the_rows_hold_what_a_script_reads(trace: Path) -> None:
    rows = replayed(trace, *TREES)
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


@pytest.mark.parametrize("by", ["dataset", "context", "turn"])
def test_slices_add_up_to_the_whole(trace: Path, cost: Path, by: str) -> None:
    priced = (*TREES, "--cost", str(cost))
    whole = replayed(trace, *priced, cost_id=filled().cost_id)
    slices = replayed(trace, *priced, "--by", by, cost_id=filled().cost_id)
    for row in whole:
        parts = [part for part in slices if part["policy"] == row["policy"]]
        assert len({part["slice"] for part in parts}) == len(parts) > 1
        for name in ("sequences", "rounds", "drafted", "verified", "accepted", "committed", "clipped"):
            assert sum(part[name] for part in parts) == row[name]
        for name in STAGE_COLUMNS:
            assert sum(part[name] for part in parts) == pytest.approx(row[name])


def test_the_table_names_what_was_replayed(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "new" / "results.parquet"
    text = output_of("replay", "--trace", trace, *TREES, "--by", "dataset", "--out", out, "--progress")
    for part in (
        str(trace),
        "9 prompts, 12 sequences",
        "dataset math",
        "all: 9 prompts",
        "bonus token",
        "latency  none",
        "No speeds: simlab ships no latency profile for these models and this block; measure one with",
    ):
        assert part in text
    found = read_results(out)
    assert found.height == 12 * 5
    assert set(found["kind"]) == {"predicted"}
    assert "ddtree:budget=16" in output_of("inspect", out)
    rows = json_of("inspect", "--json", out)["rows"]
    fresh = replayed(trace, *TREES)
    assert [row["acceptance_length"] for row in rows] == [row["acceptance_length"] for row in fresh]


def test_a_policy_that_knows_the_answers_is_marked(trace: Path, tmp_path: Path) -> None:
    """Its table was fitted on the trace that is replayed."""
    table = tmp_path / "ranks.json"
    assert main(["train", "ranks", "--trace", str(trace), "--out", str(table)]) == 0
    label = f"sequoia:budget=8,table={json.dumps(str(table))}"
    assert f"IN SAMPLE: {label}.\n" in output_of("replay", "--trace", trace, "-p", label)
    rows = replayed(trace, "-p", label, *TREES)
    assert [row["policy"] for row in rows if row["in_sample"]] == [label]
    assert "IN SAMPLE" not in output_of("replay", "--trace", trace, *TREES)


def test_with_prices_every_policy_has_a_speed(trace: Path, cost: Path) -> None:
    rows = replayed(trace, *TREES, "--cost", str(cost), cost_id=filled().cost_id)
    plain = rows[0]
    assert plain["policy"] == "autoregressive"
    assert (plain["speedup"], plain["speedup_ci_low"], plain["speedup_ci_high"]) == (1.0, 1.0, 1.0)
    assert (plain["draft_s"], plain["select_s"], plain["commit_s"]) == (0.0, 0.0, 0.0)
    for row in rows:
        assert row["tokens_per_s"] == pytest.approx(row["committed"] / sum(row[name] for name in STAGE_COLUMNS))
        assert row["speedup"] == pytest.approx(row["tokens_per_s"] / plain["tokens_per_s"])
        assert row["speedup_ci_low"] <= row["speedup"] <= row["speedup_ci_high"]
        assert row["speedup_price_low"] is row["speedup_price_high"] is None, "each cell was visited once"
    assert all(row["draft_s"] > 0 for row in rows[1:])
    assert rows.pop()["policy"] == "hindsight:best<=16"
    unpriced = replayed(trace, *TREES)
    for row, other in zip(rows, unpriced, strict=True):
        assert {key for key in row if row[key] != other[key]} == {
            "tokens_per_s",
            "speedup",
            "speedup_ci_low",
            "speedup_ci_high",
            *STAGE_COLUMNS,
        }


def test_the_prices_are_named_and_kept_with_the_rows(trace: Path, cost: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.parquet"
    text = output_of("replay", "--trace", trace, *TREES, "--cost", cost, "--out", out)
    cost_id = filled().cost_id
    assert f"latency  Made-up CPU, 2 threads, float32, eager, torch 2.0.0 (cost {cost_id})\n" in text
    assert "tokens/s  speedup" in text
    assert "No speeds" not in text
    assert max(map(len, text[text.index("policy") :].splitlines())) <= 120
    rows = read_results(out)
    assert set(rows["cost_id"]) == {cost_id}
    assert rows.select(STAGE_COLUMNS).null_count().row(0) == (0, 0, 0, 0, 0)
    shown = output_of("inspect", out)
    assert f"predicted with the latency profile {cost_id}" in shown
    assert next(line for line in text.splitlines() if "budget=8" in line) in shown


def test_shipped_prices_are_taken_where_none_are_given(trace: Path, cost: Path, shipped: Path) -> None:
    other_models = replace(filled(), block_size=4)
    write_cost_file(shipped / "a.json", other_models)
    replayed(trace, *TREES, cost_id=None)
    faster = filled(replace(EMPTY, device="Another CPU"))
    write_cost_file(shipped / "b.json", faster)
    replayed(trace, *TREES, cost_id=faster.cost_id)
    replayed(trace, *TREES, "--cost", str(cost), cost_id=filled().cost_id)
    assert "latency  Another CPU, 2 threads" in output_of("replay", "--trace", trace, *TREES)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"contexts": (16, 40)}, "reaches 40 tokens of context and 64 drafted tokens; this needs "),
        ({"node_counts": (0, 15)}, "and 15 drafted tokens; this needs "),
    ],
)
def test_shipped_prices_that_end_too_early_are_left_out(
    trace: Path, shipped: Path, change: dict[str, Any], said: str
) -> None:
    write_cost_file(shipped / "a.json", filled(replace(EMPTY, **change)))
    replayed(trace, *TREES, cost_id=None)
    text = output_of("replay", "--trace", trace, *TREES)
    assert "latency  none\n" in text
    assert said in text
    assert "tokens/s" not in text


def test_the_longest_round_decides_whether_prices_reach(trace: Path, shipped: Path) -> None:
    longest = max(len(one.prompt.token_ids) + len(one.text) - 2 for one in open_trace(trace).sequences())
    just = filled(replace(EMPTY, contexts=(16, longest), node_counts=(0, 16)))
    write_cost_file(shipped / "a.json", just)
    replayed(trace, *TREES, cost_id=just.cost_id)
    write_cost_file(shipped / "a.json", filled(replace(just, contexts=(16, longest - 1), samples={})))
    replayed(trace, *TREES, cost_id=None)


def test_a_temperature_other_than_the_traces_is_named(trace: Path, tmp_path: Path) -> None:
    write_cost_file(tmp_path / "cost.json", replace(filled(), temperature=0.7))
    assert "torch 2.0.0, temperature 0.7 (cost" in output_of(
        "replay", "--trace", trace, "--cost", tmp_path / "cost.json"
    )


OTHER = ModelInfo("other-model", "", "sha256:123456789abcdef")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"target": OTHER}, ("other-model (12345678) with the drafter synthetic", "is of synthetic (syntheti)")),
        ({"drafter": OTHER}, ("the drafter other-model (12345678), block 8", "drafter synthetic (syntheti)")),
        ({"block_size": 4}, ("block 4; the trace is of", "block 8. Give a cost file of the trace's models")),
        ({"samples": {}}, ("is not finished: 51 of its 51 cells", "simlab profile --out", "--resume`")),
        ({"contexts": (8, 30)}, ("tokens before its root", "up to 30", "simlab profile --contexts")),
        ({"node_counts": (0, 15)}, ("drafts 16 tokens", "up to 15", "simlab profile --node-counts")),
    ],
)
def test_prices_that_do_not_fit_are_refused_in_a_sentence(
    trace: Path, tmp_path: Path, change: dict[str, Any], said: tuple[str, ...]
) -> None:
    path = tmp_path / "cost.json"
    write_cost_file(path, replace(EMPTY, **change) if "samples" in change else filled(replace(EMPTY, **change)))
    err = refusal_of("replay", "--trace", trace, *TREES, "--cost", path)
    for part in said:
        assert part in err


def test_a_file_that_is_no_cost_file_is_refused(trace: Path, tmp_path: Path) -> None:
    newer = tmp_path / "newer.json"
    newer.write_text('{"format": "simlab-cost", "format_version": 99}', encoding="utf-8")
    for path, said in (
        (tmp_path / "gone.json", "there is none"),
        (trace / "manifest.json", "is no cost file"),
        (trace / "sequences.parquet", "is no cost file"),
        (tmp_path, "could not be read"),
        (newer, "format version 99"),
    ):
        assert said in refusal_of("replay", "--trace", trace, "--cost", path)


def test_a_limit_counts_prompts_and_keeps_turns_together(trace: Path) -> None:
    rows = replayed(trace, "--limit", "3")
    assert (rows[0]["prompts"], rows[0]["sequences"]) == (3, 4)
    assert not math.isnan(rows[0]["acceptance_length"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["-p", "ddtree:budget=65"], "--exact-budget 128"),
        (["-p", "ddtree:width=1"], "its settings are budget"),
        (["--draft-set", "other"], "no draft set 'other'"),
        (["--out", "/"], "names the folder"),
    ],
)
def test_a_mistake_is_one_sentence(trace: Path, arguments: list[str], said: str) -> None:
    assert said in refusal_of("replay", "--trace", trace, *arguments)


def test_a_replay_runs_without_torch(trace: Path) -> None:
    code = (
        "import sys\n"
        "class Absent:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name.split('.')[0] in ('torch', 'transformers', 'safetensors'):\n"
        "            raise ModuleNotFoundError(f'No module named {name}', name=name)\n"
        "sys.meta_path.insert(0, Absent())\n"
        "from simlab.cli.main import main\n"
        f"sys.exit(main(['replay', '--trace', {str(trace)!r}, '-p', 'ddtree:budget=8']))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "hindsight:budget=8" in done.stdout


def test_a_policy_of_ones_own_is_replayed(trace: Path, tmp_path: Path) -> None:
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
    rows = {row["policy"]: row for row in replayed(trace, "-p", f"{mine}:First", "-p", "chain:length=1")}
    assert rows[f"{mine}:First"]["rounds"] == rows["chain:length=1"]["rounds"]
