"""Tiny models and traces of theirs, recorded once for all tests that leave them as they are."""

import pytest
from batch_runs import NUM_PROMPTS
from confirm_runs import Made, make


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Three prompts of two turns each."""
    return make(tmp_path_factory.mktemp("confirm"))


@pytest.fixture(scope="session")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Made:
    return make(tmp_path_factory.mktemp("sampled"), temperature=0.9)


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """As many prompts as are served in groups."""
    return make(tmp_path_factory.mktemp("served"), num_prompts=NUM_PROMPTS)
