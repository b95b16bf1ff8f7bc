"""Confirmations of policies that read a channel: the network comes from the trace, and its rows are those recorded."""

import math
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from captured_rehearsals import captured
from confirm_runs import Made, make
from random_heads import FLASH, flash_policy, make_head

from simlab.analysis.confirm.errors import PARTS
from simlab.errors import MissingChannelError, ModelError, SimlabError, TraceError, UsageError
from simlab.policies.parsing.parse import NamedPolicy
from simlab.real_runner.checkpoints.contents import checkpoint_digest
from simlab.real_runner.confirm import confirm as confirming
from simlab.real_runner.confirm.confirm import finished
from simlab.real_runner.confirm.log import ConfirmLog
from simlab.real_runner.confirm.options import ConfirmOptions
from simlab.real_runner.confirm.setup import load_setup
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.models import load_models
from simlab.real_runner.networks.treeflash.head import TreeFlashProducer
from simlab.real_runner.record.additions import ChannelOptions, add
from simlab.studies.confirm.run import run_confirmation
from simlab.studies.inputs.artefacts import with_references
from simlab.studies.inputs.prices import cost_table_of
from simlab.studies.profile.profile import profile
from simlab.traces.artefacts.cost import read_cost_file

POLICY = flash_policy(8)
NAMED = NamedPolicy("flash:budget=8", "flash", {"budget": 8}, POLICY, "flash-8")
WIDE = NamedPolicy("flash:previous=9", "flash", {"previous": 9}, flash_policy(8, previous=9), "flash-9")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A trace with a channel, its head in ``head``, another one in ``other``."""
    folder = tmp_path_factory.mktemp("channels")
    made = make(folder, num_prompts=2)
    make_head(folder / "head", folder / "drafter", 3)
    make_head(folder / "other", folder / "drafter", 4)
    add(ChannelOptions(str(folder / "trace"), FLASH, str(folder / "head"), settings={"previous": 6, "top_k": 5}))
    return made


def policies_of(*more: NamedPolicy) -> list[NamedPolicy]:
    return [*with_references([]), *(more or (NAMED,))]


def test_a_policy_of_a_channel_is_confirmed(made: Made, tmp_path: Path) -> None:
    options = ConfirmOptions(out=tmp_path / "out", limit=1)
    found = run_confirmation(options, made.trace, policies_of())
    assert not found.has_failed
    setup = load_setup(options, made.trace, policies_of(), made.trace.sequences()[:2])
    producer = setup.models.channels[FLASH]
    assert isinstance(producer, TreeFlashProducer)
    assert (producer.reach.previous, producer.reach.top_k) == (6, 5)
    assert setup.key()["--channel"] == {FLASH: checkpoint_digest(made.folder / "head")}
    runs = [run for sequence in finished(ConfirmLog(options.out, setup.key(), resume=True)) for run in sequence.runs]
    ours = [run for run in runs if run.policy_id == NAMED.policy_id]
    assert len(ours) == 2
    assert all(run.unequal == "" and run.totals.drafted > run.totals.rounds for run in ours)
    assert all(_largest(difference) <= 1e-3 for run in ours for difference in run.differences)


@pytest.mark.parametrize("is_captured", [False, True], ids=["eager", "captured"])
def test_a_policy_of_a_channel_is_predicted_with_its_price(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_captured: bool
) -> None:
    """Profiled, predicted and measured: the channel is a stage of its own in each, and of nobody else."""
    if is_captured:
        for place in ("profile.profile", "confirm.setup"):
            monkeypatch.setattr(f"simlab.real_runner.{place}.load_models", lambda *how: captured(load_models(*how)))
    cost = tmp_path / "cost.json"
    channel = FLASH, str(made.folder / "head"), {"top_k": 5}
    longest = max(len(sequence.prompt.token_ids) + len(sequence.text) for sequence in made.trace.sequences())
    models = str(made.folder / "target"), str(made.folder / "drafter")
    grid = (0, 4, 16), (8, longest)
    profile(*models, out=cost, node_counts=grid[0], contexts=grid[1], repeats=6, channel=[channel], units=(4, 6))
    options = ConfirmOptions(out=tmp_path / "out", repeats=3)
    found = run_confirmation(options, made.trace, policies_of(), cost=cost, reprice=tmp_path / "again.json")
    assert "No seconds of" not in found.text()
    rows = {str(row["name"]): row for row in found.to_json()["rows"]}  # type: ignore[attr-defined]
    for name in ("ar", "chain"):
        assert rows[name]["predicted_channel_s_per_round"] == rows[name]["measured_channel_s_per_round"] == 0
    ours = rows["flash"]
    assert ours["predicted_channel_s_per_round"] > 0
    assert ours["measured_channel_s_per_round"] > 0
    parts = [ours[f"log_error_{part}"] for part in PARTS]
    assert sum(parts) == pytest.approx(math.log1p(ours["error_speedup"]))
    assert {"channel", "draft"} <= set(found.text().split())
    file, again = read_cost_file(cost), read_cost_file(tmp_path / "again.json")
    assert found.stale is not None
    before, after = (cost_table_of(one).channels[FLASH].seconds for one in (file, again))
    assert after == pytest.approx(before * found.stale.channel)


def test_a_policy_whose_channel_has_no_price_is_measured_and_not_predicted(made: Made, tmp_path: Path) -> None:
    cost = tmp_path / "cost.json"
    longest = max(len(sequence.prompt.token_ids) + len(sequence.text) for sequence in made.trace.sequences())
    models = str(made.folder / "target"), str(made.folder / "drafter")
    profile(*models, out=cost, node_counts=(0, 4, 16), contexts=(8, longest), repeats=3)
    found = run_confirmation(ConfirmOptions(out=tmp_path / "out", limit=1), made.trace, policies_of(), cost=cost)
    rows = {str(row["name"]): row for row in found.to_json()["rows"]}  # type: ignore[attr-defined]
    assert rows["flash"]["predicted_speedup"] is None
    assert rows["flash"]["measured_channel_s_per_round"] > 0
    assert rows["chain"]["predicted_speedup"] > 0
    assert f"No seconds of {NAMED.label}: {cost} does not say" in " ".join(found.text().split())


def _largest(difference: Mapping[str, object]) -> float:
    size = difference.get("size", 0.0)
    return size if isinstance(size, float) else 0.0


def test_another_head_in_rounds_is_among_the_differences(
    made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Planted behind the check of digests."""
    other = make_head(tmp_path / "planted", made.folder / "drafter", 9)

    def planted(models, *arguments):  # type: ignore[no-untyped-def]
        if FLASH in models.channels:
            from simlab.real_runner.networks.treeflash.head import load_head

            own = models.channels[FLASH]
            digest = checkpoint_digest(made.folder / "drafter")
            head = load_head(other, models.drafter, digest, torch.float32)
            models = replace(models, channels={FLASH: replace(own, head=head)})
        return decode(models, *arguments)

    monkeypatch.setattr(confirming, "decode", planted)
    options = ConfirmOptions(out=tmp_path / "out", limit=1)
    found = run_confirmation(options, made.trace, policies_of())
    assert not found.has_failed, "the text is still the target's, and its own rows replay"
    setup = load_setup(options, made.trace, policies_of(), made.trace.sequences()[:2])
    runs = [run for sequence in finished(ConfirmLog(options.out, setup.key(), resume=True)) for run in sequence.runs]
    listed = [difference for run in runs for difference in run.differences if difference["kind"] == "channel"]
    assert max(map(_largest, listed)) > 0.1
    assert {one["channel"] for one in listed} == {FLASH}
    assert any(str(one["says"]).startswith("flash at 0, ") for one in listed)


def test_a_checkpoint_that_moved_is_named_by_channel(made: Made, tmp_path: Path) -> None:
    """The trace's own place is no longer there."""
    moved = tmp_path / "made"
    shutil.copytree(made.folder / "trace", moved / "trace")
    shutil.copytree(made.folder / "head", moved / "elsewhere")
    manifest = made.trace.manifest
    info = manifest.channels[FLASH]
    gone = replace(info, producer=replace(info.producer, name=str(tmp_path / "gone")))
    (moved / "trace" / "manifest.json").write_bytes(replace(manifest, channels={FLASH: gone}).to_bytes())
    there = Made(moved)
    options = ConfirmOptions(out=tmp_path / "out", limit=1)

    def load(**places: str) -> None:
        load_setup(replace(options, channels=places), there.trace, policies_of(), there.trace.sequences()[:1])

    with pytest.raises(ModelError, match="--channel flash=CHECKPOINT says where it is now"):
        load()
    load(flash=str(moved / "elsewhere"))
    with pytest.raises(TraceError, match="give that checkpoint with --channel flash=CHECKPOINT"):
        load(flash=str(made.folder / "other"))
    with pytest.raises(UsageError, match="no policy reads the channel flsh; did you mean `flash`?"):
        load(flsh=str(moved / "elsewhere"))


@pytest.mark.parametrize(
    ("changed", "policy", "error", "said"),
    [
        ({"batch": 2}, NAMED, MissingChannelError, "one text at a time; leave --batch out"),
        ({"execution": "compiled"}, NAMED, MissingChannelError, "no form for --execution compiled"),
        ({}, WIDE, MissingChannelError, "wants previous 9 at least, where 6 was recorded"),
    ],
    ids=str,
)
def test_what_cannot_be_run_is_refused_before_models_are_loaded(
    made: Made, tmp_path: Path, changed: dict[str, object], policy: NamedPolicy, error: type[SimlabError], said: str
) -> None:
    options = replace(ConfirmOptions(out=tmp_path, target="nowhere"), **changed)  # type: ignore[arg-type]
    with pytest.raises(error, match=said):
        run_confirmation(options, made.trace, policies_of(policy))
