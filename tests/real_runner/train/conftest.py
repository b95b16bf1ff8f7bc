"""What every test of training begins with: tiny models and texts, and the target loaded."""

from pathlib import Path

import pytest
import torch
from training_runs import make_files

from simlab.real_runner.targets.loading import load_target
from simlab.real_runner.targets.model import Target


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of `training_runs.make_files`."""
    return make_files(tmp_path_factory.mktemp("train"))


@pytest.fixture(scope="module")
def target(folder: Path) -> Target:
    return load_target(str(folder / "target"), torch.float32)
