"""EAGLE-3 in the runner: without a drafter's pass, lossless, its own rows replay, and they are those of a record."""

from dataclasses import replace
from typing import NoReturn

import numpy as np
import pytest
import random_trees
from random_heads import FLASH, flash_policy, random_head
from systems import (
    EAGLE_REACH,
    GREEDY,
    eagle3_models,
    eagle3_policy,
    long_text,
    prompts_for,
)

from simlab.channels import Transitions
from simlab.draft import Draft
from simlab.errors import ModelError
from simlab.policy import Needs, Stateless
from simlab.real_runner.decoding.decode import decode
from simlab.real_runner.decoding.own_rows import first_unequal
from simlab.real_runner.models import Models
from simlab.real_runner.networks import drafter as drafts
from simlab.real_runner.networks.network import HeadReach
from simlab.real_runner.networks.producer import TextProducer
from simlab.real_runner.networks.treeflash.head import TreeFlashProducer
from simlab.tree import DraftTree


class NoDrafter:
    """A drafter that must not be begun."""

    def __init__(self, *_: object) -> NoReturn:
        raise AssertionError("the drafter was run")


def test_no_drafter_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drafts, "LiveDrafter", NoDrafter)
    assert long_text(eagle3_models(), eagle3_policy()).rounds
    with pytest.raises(AssertionError, match="the drafter was run"):
        long_text(with_flash(eagle3_models()), flash_policy(4))


def with_flash(models: Models) -> Models:
    """Beside the EAGLE-3 head a TreeFlash head on the drafter."""
    made = TreeFlashProducer(models.block_drafter, models.target, HeadReach(previous=6, top_k=5), random_head(models))
    return replace(models, channels={**models.channels, FLASH: made})


class Both(Stateless):
    """Reads both heads' channels and the drafter's candidates; drafts the EAGLE-3 tree."""

    budget = 9
    needs = Needs(top_k=2, channels=(*flash_policy(4).needs.channels, *eagle3_policy().needs.channels))

    def __init__(self) -> None:
        self.seen: list[Draft] = []

    def select(self, draft: Draft, state: None = None) -> DraftTree:
        self.seen.append(draft)
        return eagle3_policy().select(draft)


def test_beside_a_drafter_each_reads_its_own_layers() -> None:
    """The taps of head and drafter overlap; rounds and pools are those of the head alone."""
    models, both = with_flash(eagle3_models(1)), Both()
    producer = models.channels["eagle3"]
    assert isinstance(producer, TextProducer)
    taps = [models.drafter.config.target_layer_ids, producer.taps]
    assert taps[0] != taps[1]
    together, alone = long_text(models, both), long_text(models, eagle3_policy())
    flash = long_text(models, flash_policy(4))
    assert [one.round.tree.tokens.tolist() for one in together.rounds] == [
        one.round.tree.tokens.tolist() for one in alone.rounds
    ]
    first = both.seen[0]
    assert list(first.channels) == [FLASH, "eagle3"]
    assert first.drafted().depth == models.drafter.config.depth
    ours, theirs = first.channels[FLASH], flash.rounds[0].channels[FLASH]
    assert isinstance(ours, Transitions)
    assert isinstance(theirs, Transitions)
    assert np.array_equal(ours.ids, theirs.ids)
    assert first_unequal(both, together) is None


def test_texts_that_the_trees_would_outrun_are_refused() -> None:
    """The head's trees are deeper than the drafter's."""
    models, prompt = eagle3_models(), prompts_for(1)[0]
    most = random_trees.MAX_POSITIONS - len(prompt.token_ids) - EAGLE_REACH.depth
    assert EAGLE_REACH.depth > models.drafter.config.depth
    decode(models, eagle3_policy(), prompt, GREEDY, most)
    with pytest.raises(ModelError, match=f"a draft of {EAGLE_REACH.depth} it needs"):
        decode(models, eagle3_policy(), prompt, GREEDY, most + 1)
