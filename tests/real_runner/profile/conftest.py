"""What is profiled: a target and a drafter on disk and loaded, a grid, a text, and the rounds that are run."""

from pathlib import Path

import numpy as np
import pytest
import tiny_models

from simlab.arrays import Ints
from simlab.real_runner.decoding.decoded import DecodedRound
from simlab.real_runner.decoding.speculation import Speculation
from simlab.real_runner.models import Models, load_models
from simlab.real_runner.profile.options import ProfileOptions
from simlab.real_runner.profile.rounds import MEASURED_ROUNDS


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return tiny_models.make_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def models(pair: tuple[Path, Path]) -> Models:
    target, draft = map(str, pair)
    return load_models(target, draft, "float32", "cpu")


@pytest.fixture
def options(pair: tuple[Path, Path], tmp_path: Path) -> ProfileOptions:
    target, draft = map(str, pair)
    text = "Draft a tree, verify it in one pass, and keep what the target would have said. " * 9
    grid = (0, 1, 5, 40), (24, 60)
    return ProfileOptions(target, draft, tmp_path / "cost.json", text, *grid, repeats=2 * MEASURED_ROUNDS)


@pytest.fixture(scope="module")
def token_ids() -> Ints:
    return np.random.default_rng(0).integers(5, tiny_models.VOCAB_SIZE, 1024).astype(np.int32)


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[list[tuple[int, DecodedRound]]]:
    """Every round of a batch from now on, each text's with the tokens before its root."""
    found: list[list[tuple[int, DecodedRound]]] = []
    real = Speculation.round

    def watched(self: Speculation) -> list[DecodedRound]:
        rounds = real(self)
        starts = [len(text.prompt.token_ids) for text in self.running]
        found.append([(start + one.round.position, one) for start, one in zip(starts, rounds, strict=True)])
        return rounds

    monkeypatch.setattr(Speculation, "round", watched)
    return found
