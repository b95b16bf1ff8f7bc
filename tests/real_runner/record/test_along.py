"""Rows along texts that the target reads several of in a pass are those of each text alone."""

import dataclasses
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tiny_models
from depth import some
from random_eagle3 import make_eagle3
from random_heads import make_head
from tiny_recordings import record_given

from simlab.real_runner.record import texts
from simlab.real_runner.record.additions import Addition, ChannelOptions, DraftOptions, load_channel, load_draft
from simlab.traces.channels.columns import ChannelColumns
from simlab.traces.format.frames import DraftColumns


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models, and a trace of one shard whose seven texts are of 1 to 19 tokens."""
    folder = tmp_path_factory.mktemp("along")
    _, drafter = record_given(folder, 7, batch_size=7)
    tiny_models.make_drafter(folder / "second", block_size=5, seed=8)
    make_eagle3(folder / "eagle")
    make_head(folder / "head", drafter, 3, tiny_models.drafter_config().intermediate_size)
    return folder


def arrays_of(value: object) -> Iterator[np.ndarray]:
    """All arrays of a value whose fields are arrays or such values."""
    if isinstance(value, np.ndarray):
        yield value
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from arrays_of(getattr(value, field.name))


ADDED = {
    "a draft set": ("second", None),
    "transitions": ("head", {"previous": 4, "top_k": 5}),
    "branches": ("second", {"top_k": 3}),
    "pools of paths": ("drafter", {"beam": 3, "top_k": 2}),
    "pools of an EAGLE-3 head": ("eagle", {"beam": 3, "top_k": 4, "steps": 3}),
}


@pytest.mark.parametrize("room", some([60, 20, 4096]))
@pytest.mark.parametrize("added", ADDED)
def test_texts_together_have_the_rows_of_each_alone(
    made: Path, added: str, room: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(texts, "TOKENS_PER_PASS", room)
    network, settings = ADDED[added]
    place = str(made / "trace"), "added", str(made / network)
    addition: Addition[DraftColumns] | Addition[ChannelColumns]
    if settings is None:
        addition = load_draft(DraftOptions(*place))
    else:
        addition = load_channel(ChannelOptions(*place, settings=settings))
    recorded, told = list(addition.trace.recorded(addition.reads)), list[int]()
    alone = addition.along.columns(recorded, told.append)
    together = addition.along.together(recorded, told.append)
    assert sorted(told) == sorted([len(one.text) for one in recorded] * 2)
    for one, other in zip(alone, together, strict=True):
        pairs = list(zip(arrays_of(one), arrays_of(other), strict=True))
        assert len(pairs) > 2
        for mine, theirs in pairs:
            assert mine.shape == theirs.shape
            if mine.dtype.kind == "f":
                np.testing.assert_allclose(np.exp(mine), np.exp(theirs), rtol=1e-4, atol=1e-6)
            else:
                np.testing.assert_array_equal(mine, theirs)
