"""Drafts of which some of the text is still to be read: what is timed, what is read, and what the file says of it."""

import itertools
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import random_trees
import torch
from captured_rehearsals import captured
from random_eagle3 import random_eagle3_for
from random_redrafts import random_redrafts

from simlab.errors import ModelError
from simlab.policy import ChannelNeed
from simlab.real_runner.decoding import drafting
from simlab.real_runner.models import Models
from simlab.real_runner.networks.eagle3.config import Eagle3Reach
from simlab.real_runner.networks.eagle3.pool import eagle3_producer
from simlab.real_runner.networks.producer import AnyProducer
from simlab.real_runner.profile.channels import FEWEST_READ, CatchUpTimer
from simlab.real_runner.profile.options import ProfileOptions, settings_of
from simlab.real_runner.profile.profile import profile
from simlab.real_runner.profile.rounds import MEASURED_ROUNDS
from simlab.studies.inputs.prices import cost_table_of
from simlab.traces.artefacts.cost import CATCH_UP, read_cost_file

VOCAB_SIZE, NUM_TOKENS = 12, 60
EAGLE = ChannelNeed("eagle3", "pool", (("steps", 2),), (("beam", 4), ("top_k", 5)))
REDRAFTS = ChannelNeed("d2sd", "branches", (("branches", 1), ("top_k", 2)))


def models_of(seed: int = 0) -> Models:
    models = random_trees.random_models("qwen3", seed, VOCAB_SIZE, torch.float32)
    head = random_eagle3_for(models.target, seed, draft_vocab_size=9)
    made: dict[str, AnyProducer] = {
        "eagle3": eagle3_producer(head, models.target, Eagle3Reach(beam=4, top_k=5, steps=2)),
        "d2sd": random_redrafts(models, seed, top_k=5),
    }
    return replace(models, channels=made)


def step_clock() -> Callable[[], float]:
    """A second passes with each look."""
    ticks = itertools.count(1)
    return lambda: float(next(ticks))


@pytest.mark.parametrize("need", [None, EAGLE, REDRAFTS], ids=["drafter", "eagle3", "d2sd"])
@pytest.mark.parametrize("missed", [1, 5, 40])
@pytest.mark.parametrize("is_captured", [False, True], ids=["eager", "captured"])
def test_so_many_tokens_are_read_in_the_timed_part(
    monkeypatch: pytest.MonkeyPatch, need: ChannelNeed | None, missed: int, is_captured: bool
) -> None:
    """The text is read once whole: before the timed part its beginning, in it the missed tokens alone."""
    clock, tokens = step_clock(), np.arange(NUM_TOKENS, dtype=np.int32) % VOCAB_SIZE
    models = captured(models_of()) if is_captured else models_of()
    timer = CatchUpTimer(models, need, tokens, 20, clock)
    lengths: list[int] = []
    real = drafting.Drafting.read

    def counted(self: drafting.Drafting, features: torch.Tensor) -> None:
        lengths.append(features.shape[1])
        real(self, features)

    monkeypatch.setattr(drafting.Drafting, "read", counted)
    found = timer.visit(missed, 2)
    assert len(found) == MEASURED_ROUNDS
    # One look when the draft is made, one where the channel was, as far as it is timed.
    assert {one.channel_s for one in found} == {2.0 if need is None else 1.0}
    end = max(20, missed + FEWEST_READ)
    assert lengths[0] == end - missed
    assert set(lengths[1:]) == {missed}


def test_more_than_the_text_has_is_refused() -> None:
    tokens = np.zeros(NUM_TOKENS, np.int32)
    with pytest.raises(ModelError, match="give smaller --catch-up"):
        CatchUpTimer(models_of(), None, tokens, 20, step_clock()).visit(NUM_TOKENS, 0)


def test_the_file_says_it_and_goes_on(options: ProfileOptions) -> None:
    options = replace(options, node_counts=(0, 2), repeats=MEASURED_ROUNDS, catch_up=(1, 4, 9))
    file = profile(options).file
    assert read_cost_file(options.out) == file
    assert file.is_complete
    entry = file.channels["catch-up"]
    assert (entry.kind, entry.units, entry.counted) == (CATCH_UP, (1, 4, 9), "missed tokens")
    assert entry.producer.digest == file.drafter.digest
    assert settings_of(file)["catch_up"] == (1, 4, 9)
    assert settings_of(file)["channels"] == {}
    assert cost_table_of(file).channels["catch-up"].units.tolist() == [1, 4, 9]
    again = profile(replace(options, resume=True))
    assert again.num_visits == 0
    more = profile(replace(options, resume=True, catch_up=(1, 20))).file
    assert more.channels["catch-up"].units == (1, 4, 9, 20)
    assert more.is_complete


@pytest.mark.parametrize(
    ("changes", "says"),
    [({"catch_up": (2, 4)}, "rise from 1"), ({"catch_up": (1, 4), "batch": 2}, "one text at a time")],
)
def test_what_cannot_be_timed(changes: dict[str, object], says: str, options: ProfileOptions) -> None:
    with pytest.raises(ValueError, match=says):
        replace(options, **changes)  # type: ignore[arg-type]
