"""A made-up trace and made-up latencies of its models, which most commands are tried on."""

from pathlib import Path

import pytest
from made_up_costs import filled

from simlab.traces.artefacts.cost import write_cost_file
from simlab.traces.synthetic import write_synthetic_trace


@pytest.fixture(scope="session")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine prompts, three of two turns."""
    return write_synthetic_trace(tmp_path_factory.mktemp("made-up") / "trace", num_sequences=12, length=40)


@pytest.fixture(scope="session")
def cost(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cost file for the models of the trace."""
    path = tmp_path_factory.mktemp("prices") / "cost.json"
    write_cost_file(path, filled())
    return path
