"""`jetspec` from end to end: a drafter runs behind its own paths, recorded, replayed, priced and confirmed."""

from pathlib import Path

import numpy as np
import pytest
from confirm_runs import Made, make

from simlab.channels import PoolRows
from simlab.policies.parsing.parse import NamedPolicy, parse_policies
from simlab.real_runner.confirm.confirm import finished
from simlab.real_runner.confirm.log import ConfirmLog
from simlab.real_runner.confirm.options import ConfirmOptions
from simlab.real_runner.confirm.setup import load_setup
from simlab.real_runner.heads.path_producer import PathProducer
from simlab.real_runner.record.additions.add import ChannelOptions, add
from simlab.studies.confirm.run import run_confirmation
from simlab.studies.inputs.artefacts import with_references
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
