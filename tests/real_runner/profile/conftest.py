"""Models that are profiled: a target and a drafter on disk, and loaded."""

from pathlib import Path

import pytest
import tiny_models

from simlab.real_runner.models import Models, load_models


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return tiny_models.make_pair(tmp_path_factory.mktemp("pair"))


@pytest.fixture(scope="module")
def models(pair: tuple[Path, Path]) -> Models:
    target, draft = map(str, pair)
    return load_models(target, draft, "float32", "cpu")
