"""``simlab replay --out FILE``: killed, resumed, extended; several machines; threads."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import polars as pl
import pytest
from commands import json_of, output_of, refusal_of
from made_up_costs import EMPTY, filled
from summary_rows import as_measured

from simlab.analysis.table.summaries import STAGE_COLUMNS
from simlab.cli.interruption import INTERRUPTED
from simlab.cli.main import main
from simlab.cost import PLAIN
from simlab.policies.engine import replay as engine
from simlab.recorded import RecordedTexts
from simlab.studies.inputs.artefacts import PricedPolicies, priced_policies
from simlab.studies.inputs.prices import Prices
from simlab.studies.replay import rows as replay_rows
from simlab.studies.replay import run as command_replay_run
from simlab.studies.replay.run import ReplayRun, replay_trace
from simlab.traces.artefacts.cost import CostFile, write_cost_file
from simlab.traces.reader import open_trace
from simlab.traces.results.files import read_results, write_results
from simlab.traces.synthetic import write_synthetic_trace
from simlab.workers.threads import Threads

POLICIES = ("-p", "ddtree:budget=2..6", "-p", "chain:length=1..3")
NUM_SEQUENCES = 8
NUM_ROWS = NUM_SEQUENCES * (1 + 1 + 5 + 3 + 1)


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("resume") / "trace"
    return write_synthetic_trace(folder, num_sequences=NUM_SEQUENCES, length=20)


@pytest.fixture(scope="module")
def whole(trace: Path, tmp_path_factory: pytest.TempPathFactory) -> pl.DataFrame:
    """The rows of a replay that nobody killed."""
    return replayed(trace, tmp_path_factory.mktemp("whole") / "results.parquet")


def replayed(trace: Path, out: Path, *arguments: str) -> pl.DataFrame:
    assert main(["replay", "--trace", str(trace), *POLICIES, "--out", str(out), *arguments]) == 0
    assert [one.name for one in out.parent.iterdir()] == [out.name]
    return read_results(out)


class Counted:
    """Counts the replays of the engine, and interrupts after some."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int = 10**6) -> None:
        self.texts: list[int] = []
        self.policies = 0
        self._most, self._real = most, engine.Replay.sums
        counted = self

        def sums(replay: engine.Replay, texts: RecordedTexts) -> engine.ReplaySums:
            if len(counted.texts) == counted._most:
                raise KeyboardInterrupt
            found = counted._real(replay, texts)
            counted.texts += [one.index for one in texts.sequences]
            counted.policies += found.counts.shape[0] * len(texts.sequences)
            return found

        monkeypatch.setattr(engine.Replay, "sums", sums)
        monkeypatch.setattr(command_replay_run, "ROOTS_AT_ONCE", 1)


def interrupted(trace: Path, out: Path, after: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(command_replay_run, "KEEP_EVERY_ROWS", 1)
        Counted(patch, after)
        arguments = ["replay", "--trace", str(trace), *POLICIES, "--out", str(out), "--threads", "1"]
        assert main(arguments) == INTERRUPTED


def test_an_interrupted_replay_goes_on_and_makes_the_same_file(
    trace: Path,
    whole: pl.DataFrame,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert whole.height == NUM_ROWS
    out = tmp_path / "results.parquet"
    interrupted(trace, out, 5, monkeypatch)
    assert "add --resume to go on" in capsys.readouterr().err
    assert not out.exists()
    assert "results.parquet was begun already; add --resume to go on with it" in refusal_of(
        "replay", "--trace", trace, *POLICIES, "--out", out
    )
    counted = Counted(monkeypatch)
    assert replayed(trace, out, "--resume").equals(whole)
    assert 0 < len(counted.texts) < NUM_SEQUENCES


def test_a_killed_replay_goes_on(trace: Path, whole: pl.DataFrame, tmp_path: Path) -> None:
    out = tmp_path / "results.parquet"
    arguments = ["replay", "--trace", str(trace), *POLICIES, "--out", str(out), "--threads", "2"]
    code = (
        "import os\n"
        "from simlab.studies.replay import run\n"
        "from simlab.cli.main import main\n"
        "from simlab.traces.results.store import ResultStore\n"
        "run.KEEP_EVERY_ROWS = 1\n"
        "add, calls = ResultStore.add, []\n"
        "def killing(self, rows):\n"
        "    add(self, rows)\n"
        "    calls.append(rows)\n"
        "    if len(calls) == 3:\n"
        "        os._exit(9)\n"
        "ResultStore.add = killing\n"
        f"main({arguments!r})\n"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False, capture_output=True).returncode == 9
    parts = sorted((tmp_path / "results.parquet.parts").iterdir())
    assert len(parts) == 3
    (parts[0].parent / ".part-000003.parquet.part").write_bytes(b"half")
    assert replayed(trace, out, "--resume").equals(whole)


def test_nothing_is_replayed_twice(
    trace: Path, whole: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "results.parquet"
    write_results(out, whole)
    assert f"{out} is there already; add --resume to go on with it, or give another --out" in refusal_of(
        "replay", "--trace", trace, *POLICIES, "--out", out
    )
    counted = Counted(monkeypatch)
    assert replayed(trace, out, "--resume").equals(whole)
    assert counted.texts == []
    more = replayed(trace, out, "--resume", "-p", "ddtree:budget=5..7")
    assert counted.policies == NUM_SEQUENCES
    assert more.height == NUM_ROWS + NUM_SEQUENCES
    assert more.join(whole, on=whole.columns, how="semi", nulls_equal=True).height == NUM_ROWS


def test_the_rows_of_other_policies_and_measured_rows_stay(trace: Path, whole: pl.DataFrame, tmp_path: Path) -> None:
    out = tmp_path / "results.parquet"
    others = whole.with_columns(pl.concat_str(pl.lit("x"), "policy_id").alias("policy_id"))
    measured = as_measured(whole.head(4))
    write_results(out, pl.concat([others, measured, measured]))
    found = replayed(trace, out, "--resume")
    assert found.height == 2 * NUM_ROWS + 8
    assert found.tail(NUM_ROWS).equals(whole)
    assert found.head(8).equals(pl.concat([measured, measured]))


@pytest.mark.parametrize("column", ["simlab_version", "text_id", "draft_id", "cost_id"])
def test_rows_of_anything_else_do_not_stand_for_new_ones(
    trace: Path, whole: pl.DataFrame, tmp_path: Path, column: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "results.parquet"
    seconds = pl.col(STAGE_COLUMNS)
    seconds = seconds.fill_null(7.0) if column == "cost_id" else seconds
    write_results(out, whole.with_columns(pl.lit("other").alias(column), seconds))
    counted = Counted(monkeypatch)
    found = replayed(trace, out, "--resume")
    assert len(counted.texts) == NUM_SEQUENCES
    assert found.tail(NUM_ROWS).equals(whole)
    # rows of another version are replaced; those of another trace or other prices say something else
    assert found.height == (1 if column == "simlab_version" else 2) * NUM_ROWS


def test_a_policy_stands_under_the_name_it_was_last_priced_policies(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.parquet"
    first = ["replay", "--trace", str(trace), "-p", "chain:length=null", "--out", str(out), "--limit", "2"]
    assert main(first) == 0
    assert main(["replay", "--trace", str(trace), "-p", "chain", "--out", str(out), "--resume"]) == 0
    assert set(read_results(out)["policy"]) == {"autoregressive", "chain", "hindsight:budget=7"}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--resume"], "--resume goes on with a result file; name it with --out FILE"),
        (["--out", "x.parquet", "--rounds", "./x.parquet"], "--out and --rounds both name x.parquet; give two files"),
        (["--rounds", "/"], "--rounds names the folder"),
        (["--threads", "0"], "at least 1"),
    ],
)
def test_what_does_not_go_together(trace: Path, arguments: list[str], said: str) -> None:
    assert said in refusal_of("replay", "--trace", trace, *arguments)


def test_a_file_of_something_else_is_left_alone(trace: Path, tmp_path: Path) -> None:
    out = tmp_path / "notes.parquet"
    out.write_text("mine")
    assert main(["replay", "--trace", str(trace), "--out", str(out), "--resume"]) == 2
    assert out.read_text() == "mine"


def test_any_number_of_threads_and_policies_at_once_gives_the_same_rows(
    trace: Path, whole: pl.DataFrame, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert replayed(trace, tmp_path / "one" / "results.parquet", "--threads", "1").equals(whole)
    assert replayed(trace, tmp_path / "two" / "results.parquet", "--threads", "2").equals(whole)
    monkeypatch.setattr(command_replay_run, "ROWS_AT_ONCE", 3)
    assert replayed(trace, tmp_path / "few" / "results.parquet", "--threads", "3").equals(whole)


FAST_DRAFTS = replace(EMPTY, device="Another CPU")


def two_machines(folder: Path) -> tuple[CostFile, CostFile]:
    """One on which drafted tokens cost much, and one on which they are free."""
    dear = filled()
    free = replace(
        filled(FAST_DRAFTS), samples={cell: (1.0 if cell[0] == PLAIN else 0.01,) * 3 for cell in FAST_DRAFTS.cells()}
    )
    for name, file in (("dear", dear), ("free", free)):
        write_cost_file(folder / f"{name}.json", file)
    return dear, free


def test_several_machines_in_one_replay(trace: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = two_machines(tmp_path)
    costs = ("--cost", str(tmp_path / "dear.json"), "--cost", str(tmp_path / "free.json"))
    out = tmp_path / "out" / "results.parquet"
    found = replayed(trace, out, *costs, "-p", "ddtree:budget=60")
    text = capsys.readouterr().out
    for file in files:
        rows = found.filter(cost_id=file.cost_id)
        assert rows.height == NUM_ROWS + 2 * NUM_SEQUENCES
        assert f"(cost {file.cost_id})\n\npolicy " in text
    assert "The fastest policy by prediction, and its speedup, change with the latency profile:" in text
    assert any(line.startswith("  ddtree:budget=60 (") and "Another CPU" in line for line in text.splitlines())
    value = json_of("replay", "--trace", trace, *POLICIES, "--json", *costs)
    assert value["cost"] == [file.cost_id for file in files]
    assert {row["cost_id"] for row in value["rows"]} == {file.cost_id for file in files}
    assert "The fastest" not in output_of("replay", "--trace", trace, *POLICIES, costs[0], costs[1], costs[0], costs[1])


def test_each_machine_has_the_rows_that_it_has_alone(trace: Path, tmp_path: Path) -> None:
    dear, free = two_machines(tmp_path)
    costs = [("--cost", str(tmp_path / f"{name}.json")) for name in ("dear", "free")]
    both = replayed(trace, tmp_path / "both" / "results.parquet", *costs[0], *costs[1])
    for cost, file in zip(costs, (dear, free), strict=True):
        alone = replayed(trace, tmp_path / file.cost_id / "results.parquet", *cost)
        assert both.filter(cost_id=file.cost_id).equals(alone)


def test_a_policy_that_reads_prices_reads_those_of_each_machine(trace: Path, tmp_path: Path) -> None:
    two_machines(tmp_path)
    mine = tmp_path / "mine.py"
    mine.write_text(
        "from dataclasses import dataclass\n"
        "from simlab.policies.orders.best_first import BestFirst\n"
        "from simlab.policies.rules.budgets import BestRatio\n"
        "from simlab.policies.composition import Composed, Composition\n"
        "from simlab.policies.edges.models import Marginal\n"
        "@dataclass(frozen=True)\n"
        "class Mine(Composed):\n"
        "    budget: int = 30\n"
        "    cost: str = 'auto'\n"
        "    def compose(self, shelf):\n"
        "        table, cost_id = shelf.cost(self.cost)\n"
        "        return Composition(BestFirst(Marginal()), BestRatio(self.budget, table, look_ahead=99),"
        " {'cost': cost_id})\n",
        encoding="utf-8",
    )
    opened = open_trace(trace)
    paths = [tmp_path / "dear.json", tmp_path / "free.json"]
    typed = [f"{mine}:Mine", f"{mine}:Mine:cost={paths[0]}"] if "," not in str(mine) else []
    typed[1] = f'{mine}:Mine:cost="{paths[0]}"'
    asked = priced_policies(typed, paths, opened, "synthetic")
    ids = [[one.policy_id for one in each.policies if one.name.endswith("Mine")] for each in asked]
    assert ids[0][0] != ids[1][0]
    assert ids[0][1] == ids[1][1]
    rows = replay_trace(opened, "synthetic", asked, None, ReplayRun(Threads(2)))
    drafted = rows.group_by("policy_id", "cost_id").agg(pl.col("drafted").sum(), pl.col("rounds").sum())
    per_round = {(a, b): n / r for a, b, n, r in drafted.iter_rows()}
    dear, free = (each.prices.cost_id for each in asked)
    assert per_round[ids[1][0], free] > per_round[ids[0][0], dear]
    assert per_round[ids[0][1], dear] == per_round[ids[0][1], free] == per_round[ids[0][0], dear]


def test_hindsight_beside_a_policy_that_reads_a_channel_may_take_its_tokens() -> None:
    from dataclasses import dataclass

    from simlab.draft import Draft
    from simlab.policies.parsing.parse import NamedPolicy
    from simlab.policy import ChannelNeed, Needs, Stateless
    from simlab.tree import DraftTree

    @dataclass(frozen=True)
    class Channelled(Stateless):
        budget: int = 3
        channels: tuple[ChannelNeed, ...] = ()

        @property
        def needs(self) -> Needs:
            return Needs(channels=self.channels)

        def select(self, draft: Draft, state: None = None) -> DraftTree:
            return DraftTree.root_only(draft.root_token)

    none = Prices(None, "none", "")
    ids = set()
    for channels in ((), (ChannelNeed("pool", "pool"),)):
        one = NamedPolicy("mine", "mine", {}, Channelled(channels=channels), "id")
        asked = PricedPolicies(none, (one,))
        (bound,) = replay_rows.bound_rows(asked, 64, 7, best_budgets=True)
        assert bound.channels == channels
        ids.add(bound.policy_id)
    assert len(ids) == 2


def test_rounds_add_up_to_the_rows(trace: Path, whole: pl.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "rounds.parquet"
    assert main(["replay", "--trace", str(trace), *POLICIES, "--rounds", str(path)]) == 0
    found = pl.read_parquet(path)
    sums = found.group_by("policy", "policy_id", "sequence", maintain_order=True).agg(
        pl.len().cast(pl.Int64).alias("rounds"),
        *(pl.col(f"num_{name}").cast(pl.Int64).sum().alias(name) for name in ("drafted", "accepted", "committed")),
        pl.col("clipped").cast(pl.Int64).sum(),
    )
    policies = whole.filter(pl.col("name") != "hindsight", pl.col("rounds") > 0)
    assert sums.sort(sums.columns).equals(policies.select(sums.columns).sort(sums.columns))
