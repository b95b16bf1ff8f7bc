"""`jetspec` from end to end: a drafter runs behind its own paths, recorded, replayed, priced and confirmed."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import tiny_models
from confirm_runs import Made, make

from simlab.channels import PoolRows
from simlab.cli.main import main
from simlab.errors import ModelError
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.real_runner.confirm.confirm import finished
from simlab.real_runner.confirm.log import ConfirmLog
from simlab.real_runner.confirm.options import ConfirmOptions
from simlab.real_runner.confirm.setup import load_setup
from simlab.real_runner.heads.path_producer import PathProducer
from simlab.real_runner.profile.options import ProfileChannel
from simlab.real_runner.record.additions.add import ChannelOptions, DraftOptions, add
from simlab.studies.confirm.run import run_confirmation
from simlab.studies.inputs.artefacts import with_references
from simlab.studies.profile import profile
from simlab.traces.inspect import check_trace
from simlab.traces.reader import open_trace

SETTINGS = {"beam": 3, "top_k": 4}
POLICY = "jetspec:budget=9,beam=3,width=4"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    folder = tmp_path_factory.mktemp("paths")
    made = make(folder, num_prompts=2)
    add(ChannelOptions(str(folder / "trace"), "jetspec", str(folder / "drafter"), settings=SETTINGS))
    check_trace(folder / "trace")
    return made


def policies() -> list[NamedPolicy]:
    return [*with_references([]), *parse_policies([POLICY, f"{POLICY},order=best-first"])]


def test_pools_begin_with_the_drafters_own_candidates(made: Made) -> None:
    trace = open_trace(made.folder / "trace")
    assert trace.manifest.channels["jetspec"].settings["beam"] == 3
    for recorded in trace.recorded("dflash", channels=["jetspec"]):
        rows, base = recorded.channels["jetspec"], recorded.rows
        assert isinstance(rows, PoolRows)
        assert base is not None
        firsts = np.concatenate([[0], np.cumsum(base.counts.sum(axis=1))])
        for t, pool in enumerate(rows.rows()):
            assert pool.tokens[:4].tolist() == base.ids[firsts[t] : firsts[t] + 4].tolist()
            assert pool.log_probs[:4].tolist() == base.log_probs[firsts[t] : firsts[t] + 4].tolist()
            assert pool.expanded.sum() == 3 * (pool.depth - 1)


def test_the_runner_builds_the_trees_of_the_record(made: Made, tmp_path: Path) -> None:
    options = ConfirmOptions(out=tmp_path / "out")
    assert not run_confirmation(options, open_trace(made.folder / "trace"), policies()).has_failed
    trace = open_trace(made.folder / "trace")
    setup = load_setup(options, trace, policies(), trace.sequences()[:2])
    assert isinstance(setup.models.channels["jetspec"], PathProducer)
    runs = [run for one in finished(ConfirmLog(options.out, setup.key(), resume=True)) for run in one.runs]
    ours = [run for run in runs if run.policy_id in {one.policy_id for one in policies()[-2:]}]
    assert len(ours) >= 4
    assert all(run.unequal == "" and run.totals.drafted > run.totals.rounds for run in ours)


def test_it_is_priced_as_a_channel(made: Made, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    models = str(made.folder / "target"), str(made.folder / "drafter")
    channel = ProfileChannel(str(made.folder / "drafter"), SETTINGS, None)
    cost = tmp_path / "cost.json"
    profile(*models, out=cost, node_counts=(0, 4, 16), contexts=(8, 120), repeats=5, channels={"jetspec": channel})
    trace = str(made.folder / "trace")
    assert main(["replay", "--trace", trace, "-p", POLICY, "-p", "chain", "--cost", str(cost)]) == 0
    said = capsys.readouterr().out
    assert "jetspec" in said
    assert "No seconds of" not in said


def test_what_was_not_recorded_is_refused_with_its_command(made: Made, capsys: pytest.CaptureFixture[str]) -> None:
    trace = str(made.folder / "trace")
    assert main(["replay", "--trace", trace, "-p", "jetspec:budget=9,beam=3,width=3"]) == 2
    assert "--add-channel jetspec-2=CHECKPOINT,beam=3,top_k=3" in capsys.readouterr().err
    assert main(["replay", "--trace", trace, "-p", "jetspec:budget=9,order=widest"]) == 2
    assert "order is one of expand-parent, best-first" in capsys.readouterr().err


def test_another_drafter_is_a_draft_set_first(made: Made, tmp_path: Path) -> None:
    trace, other = tmp_path / "trace", tiny_models.make_drafter(tmp_path / "other", block_size=4, seed=8)
    shutil.copytree(made.folder / "trace", trace)
    options = ChannelOptions(str(trace), "paths", str(other), settings=SETTINGS, draft_set="dflash")
    with pytest.raises(ModelError, match="--add-draft NAME=.*and choose them with --draft-set NAME"):
        add(options)
    add(DraftOptions(str(trace), "other", str(other), min_width=12, exact_budget=20))
    found = add(ChannelOptions(str(trace), "paths", str(other), settings=SETTINGS, draft_set="other"))
    assert found.manifest.channels["paths"].extends == "other"
    with pytest.raises(ModelError, match="no setting previous; expected beam, top_k"):
        add(ChannelOptions(str(trace), "again", str(other), settings={"previous": 4}, draft_set="other"))
