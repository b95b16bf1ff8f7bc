"""`eagle3` from end to end: a head without a drafter, recorded, replayed, priced and confirmed."""

import json
from pathlib import Path

import polars as pl
import pytest
from commands import output_of
from confirm_runs import Made, make
from random_eagle3 import make_eagle3

from simlab.channels import PoolRows
from simlab.cli.main import main
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.real_runner.confirm.confirm import finished
from simlab.real_runner.confirm.log import ConfirmLog
from simlab.real_runner.confirm.options import ConfirmOptions
from simlab.real_runner.confirm.setup import load_setup
from simlab.real_runner.networks.eagle3.pool import Eagle3Producer
from simlab.studies.confirm.run import run_confirmation
from simlab.studies.inputs.artefacts import with_references
from simlab.studies.profile.profile import profile
from simlab.traces.inspect import check_trace
from simlab.traces.reader import open_trace

SETTINGS = {"beam": 3, "top_k": 4, "steps": 4}
POLICY = "eagle3:budget=9,beam=3,top_k=4,steps=4"
TREE = "pool_beam=3,top_k=4,steps=4"
SHORTER = "eagle3:budget=5,beam=3,top_k=4,steps=2"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("eagle3")
    made = make(folder, num_prompts=2)
    make_eagle3(folder / "head")
    assert main(["record", "--trace", str(folder / "trace"), *channel(folder / "head")]) == 0
    check_trace(folder / "trace")
    return made


def channel(head: Path, name: str = "eagle3", settings: dict[str, int] = SETTINGS) -> list[str]:
    return ["--add-channel", ",".join([f"{name}={head}", *(f"{key}={value}" for key, value in settings.items())])]


def policies() -> list[NamedPolicy]:
    return [*with_references([]), *parse_policies([POLICY, SHORTER])]


def test_a_channel_extends_nothing_and_goes_deeper_than_the_drafter(made: Made) -> None:
    trace = open_trace(made.folder / "trace")
    info = trace.manifest.channels["eagle3"]
    assert (info.extends, info.extends_id) == (None, None)
    assert {**info.settings, "exact_nodes": 0} == {**SETTINGS, "depth": 5, "exact_nodes": 0}
    assert info.setting("depth") > trace.manifest.draft_sets["dflash"].depth
    for recorded in trace.recorded("dflash", channels=["eagle3"]):
        rows = recorded.channels["eagle3"]
        assert isinstance(rows, PoolRows)
        assert set(rows.sizes.tolist()) <= {4 + 4 * 12}


def test_the_runner_builds_the_trees_of_the_record(made: Made, tmp_path: Path) -> None:
    options = ConfirmOptions(out=tmp_path / "out")
    trace = open_trace(made.folder / "trace")
    assert not run_confirmation(options, trace, policies()).has_failed
    setup = load_setup(options, trace, policies(), trace.sequences()[:2])
    assert isinstance(setup.models.channels["eagle3"], Eagle3Producer)
    runs = [run for one in finished(ConfirmLog(options.out, setup.key(), resume=True)) for run in one.runs]
    ours = [run for run in runs if run.policy_id in {policy.policy_id for policy in policies()[-2:]}]
    assert len(ours) >= 4
    assert all(run.unequal == "" and not run.differences for run in ours)
    assert all(run.totals.drafted > run.totals.rounds and run.seconds.channel_s > 0 for run in ours)


def test_it_is_priced_by_its_steps_and_pays_no_drafter(made: Made, tmp_path: Path) -> None:
    models, cost = (str(made.folder / name) for name in ("target", "drafter")), tmp_path / "cost.json"
    asked = "eagle3", str(made.folder / "head"), {"beam": 3, "top_k": 4}
    profile(*models, out=cost, node_counts=(0, 4, 16), contexts=(8, 120), repeats=5, channel=[asked], units=(1, 3, 4))
    entry = json.loads(cost.read_text())["channels"]["eagle3"]
    assert (entry["units"], entry["settings"]) == ([1, 3, 4], {"beam": 3, "top_k": 4})
    assert "steps 1, 3, 4" in output_of("inspect", cost)
    trace, found = str(made.folder / "trace"), tmp_path / "rows.parquet"
    shown = ["-p", POLICY, "-p", SHORTER, "-p", f"tree:budget=9,edges=eagle3,channel=eagle3,{TREE},rule=ratio"]
    assert "No seconds of" not in output_of("replay", "--trace", trace, *shown, "--cost", cost, "--out", found)
    rows = pl.read_parquet(found).filter(pl.col("policy").str.contains("eagle3"))
    assert rows["policy"].n_unique() == 3
    assert rows["draft_s"].sum() == 0
    assert rows["channel_s"].null_count() == 0
    assert (rows["channel_s"] > 0).all()
