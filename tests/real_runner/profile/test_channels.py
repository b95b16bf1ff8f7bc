"""Profiling a channel with tiny models: real rounds with its network in the loop, beside all other cells."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from commands import output_of, refusal_of
from random_heads import make_head, random_scorer

from simlab.cli.main import main
from simlab.errors import CostError, ModelError
from simlab.real_runner.checkpoints.contents import checkpoint_digest
from simlab.real_runner.decoding.decoded import DecodedRound
from simlab.real_runner.models import Models
from simlab.real_runner.networks.taps.config import PoolReach
from simlab.real_runner.networks.taps.scorer import save_scorer
from simlab.real_runner.profile.options import ProfileChannel, ProfileOptions, settings_of
from simlab.real_runner.profile.profile import profile
from simlab.real_runner.profile.rounds import MEASURED_ROUNDS, MEASURED_STEPS
from simlab.studies.inputs.prices import cost_table_of
from simlab.traces.artefacts.cost import read_cost_file

DEPTH = 3
SETTINGS: Mapping[str, object] = {"previous": 3, "top_k": 4, "candidates": 8}


@pytest.fixture(scope="module")
def head(pair: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(make_head(tmp_path_factory.mktemp("heads") / "head", pair[1], 0))


@pytest.fixture
def options(options: ProfileOptions, head: str) -> ProfileOptions:
    return replace(options, node_counts=(0, 2, 5), channels={"flash": ProfileChannel(head, SETTINGS, (1, 3))})


def test_every_cell_of_the_channel_gets_its_samples(
    options: ProfileOptions, ran: list[list[tuple[int, DecodedRound]]]
) -> None:
    file = profile(options).file
    assert read_cost_file(options.out) == file
    assert file.is_complete
    channel = file.channels["flash"]
    assert (channel.kind, channel.units) == ("transitions", (1, 3))
    assert channel.settings == {"depth": DEPTH, "top_k": 4, "order": "base-rank", "candidates": 8}
    assert channel.producer.digest == checkpoint_digest(Path(channel.producer.name))
    rounds = [round_ for ((_, round_),) in ran]
    with_channel = {round_.seconds.channel_s: round_ for round_ in rounds if round_.channels}
    for units in (1, 3):
        for context in file.contexts:
            seconds = file.samples["channel:flash", units, context]
            assert len(seconds) == 2 * MEASURED_ROUNDS
            assert len(file.samples["plain:flash", units, context]) == 2 * MEASURED_STEPS
            for value in seconds:
                flash = with_channel[value].channels["flash"]
                assert max(flash.num_rows) == units  # type: ignore[union-attr]
    assert all(round_.seconds.channel_s == 0 for round_ in rounds if not round_.channels)
    assert cost_table_of(file).channels["flash"].units.tolist() == [1, 3]


def test_a_channel_is_added_to_a_file_that_has_everything_else(options: ProfileOptions) -> None:
    before = profile(replace(options, channels={})).file
    assert before.to_json()["format_version"] == 2
    added = profile(replace(options, resume=True))
    assert added.num_visits == 2 * 2 * 2, "two sweeps over two units and two contexts"
    assert {cell: added.file.samples[cell] for cell in before.samples} == before.samples
    channel = options.channels["flash"]
    more = profile(replace(options, resume=True, channels={"flash": replace(channel, units=(2,))}))
    assert more.file.channels["flash"].units == (1, 2, 3)
    assert more.num_visits == 2 * 2
    again = profile(replace(options, resume=True, channels=settings_of(more.file)["channels"]))
    assert again.num_visits == 0


def test_another_network_under_the_same_name_is_refused(
    options: ProfileOptions, pair: tuple[Path, Path], head: str, tmp_path: Path
) -> None:
    before = profile(options).file
    other = make_head(tmp_path / "other", pair[1], 1)
    resumed = replace(options, resume=True)
    for changed in (
        ProfileChannel(str(other), SETTINGS, (1,)),
        ProfileChannel(head, {**SETTINGS, "top_k": 2}, (1,)),
    ):
        with pytest.raises(CostError, match=r"the channel flash of .* was measured with .*give another --out"):
            profile(replace(resumed, channels={"flash": changed}))
    assert read_cost_file(options.out) == before


def test_the_command_says_what_it_measured(
    pair: tuple[Path, Path], head: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, draft = map(str, pair)
    out = tmp_path / "cost.json"
    grid = ["--node-counts", "2", "--contexts", "24", "--repeats", "6", "--out", str(out)]
    channel = ["--channel", f"flash={head},top_k=4,candidates=8", "--units", "1,3"]
    assert "Milliseconds of the channel flash" in output_of(
        "profile", "--target", target, "--draft", draft, *grid, *channel
    )
    assert main(["profile", "--resume", "--out", str(out)]) == 0
    assert "nothing was measured" in capsys.readouterr().err
    shown = output_of("inspect", out)
    assert "channel    flash: transitions of" in shown
    assert "channel:flash" in shown


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        (["--units", "4"], "--units says how much of a channel is timed"),
        (["--channel", "a=b", "--channel", "a=c"], "there twice"),
        (["--channel", "a"], "NAME=CHECKPOINT"),
        (["--channel", "a=b,colour=3"], "has no setting"),
        (["--channel", "a=b", "--units", "0"], "at least 1"),
        (["--channel", "a=b", "--batch", "2"], "one text at a time"),
    ],
)
def test_what_cannot_be_is_refused_in_a_sentence(typed: list[str], said: str, tmp_path: Path) -> None:
    out = tmp_path / "cost.json"
    assert said in refusal_of("profile", "--out", out, *typed)
    assert not out.exists()


def test_a_pool_has_one_price(options: ProfileOptions, pair: tuple[Path, Path], models: Models, tmp_path: Path) -> None:
    """Two networks at once; what is made whole takes no units."""
    save_scorer(random_scorer(models), tmp_path / "scorer", checkpoint_digest(pair[1]), PoolReach(3, 5))
    both = {**options.channels, "taps": ProfileChannel(str(tmp_path / "scorer"))}
    file = profile(replace(options, channels=both)).file
    assert file.is_complete
    assert (file.channels["taps"].kind, file.channels["taps"].units) == ("pool", (1,))
    assert file.channels["taps"].settings == {"depth": DEPTH, "beam": 3, "extensions": 5}
    assert set(cost_table_of(file).channels) == {"flash", "taps"}
    whole = ProfileChannel(str(tmp_path / "scorer"), {}, (2,))
    with pytest.raises(ModelError, match="makes a pool, which is timed whole; leave --units out"):
        profile(replace(options, out=tmp_path / "other.json", channels={"taps": whole}))
